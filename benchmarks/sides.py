"""Lets sides take turns on one machine: each lives in a process of its own, and while one works the others wait.

A side is built in its worker from a function; the parent asks for `steps` steps of each side in turn, `rounds` times. So a
machine that gets slower or faster during a measurement does so for all sides, and memory is each side's own. Workers come
from a fork server that has imported torch and transformers, so every side has the same imports.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

PRELOADED = [
    "torch",
    "transformers",
    "transformers.models.bert.modeling_bert",
    "transformers.models.modernbert.modeling_modernbert",
    "transformers.models.deberta_v2.modeling_deberta_v2",
    "transformers.models.electra.modeling_electra",
    "unmask.objectives.mask_loops",
    "unmask.text.example_loops",
    "benchmarks.ours",
    "benchmarks.peers",
]


class Work(NamedTuple):
    """What a step did: real tokens (never padding), and the arithmetic that was useful, where a side knows it."""

    tokens: int
    flops: float = 0.0


class Side(Protocol):
    """One way of doing the work."""

    def step(self) -> Work: ...


class Turn(NamedTuple):
    """One side's part of a round."""

    tokens: int
    seconds: float
    cpu_seconds: float
    flops: float


@dataclass
class Measured:
    """All turns of a side, its peak memory above the imports in bytes, and what it answered to questions."""

    turns: list[Turn] = field(default_factory=list)
    memory: int = 0
    answers: dict[str, list[Any]] = field(default_factory=dict)
    clock: str = "wall"

    def speeds(self) -> list[float]:
        """Tokens per second of each round."""
        return [t.tokens / self._seconds(t) for t in self.turns]

    def speed(self) -> float:
        """Median tokens per second."""
        return statistics.median(self.speeds())

    def flop_rate(self) -> float:
        """Median useful FLOP/s."""
        return statistics.median(t.flops / self._seconds(t) for t in self.turns)

    def _seconds(self, turn: Turn) -> float:
        return turn.cpu_seconds if self.clock == "cpu" else turn.seconds


def ratio(ours: Measured, theirs: Measured) -> float:
    """How many times faster: the median of the rounds' own ratios."""
    return statistics.median(a / b for a, b in zip(ours.speeds(), theirs.speeds(), strict=True))


def take_turns(
    sides: Mapping[str, Callable[[], Side]],
    *,
    rounds: int,
    steps: int = 1,
    threads: int = 2,
    warmup: int = 2,
    clock: str = "wall",
    before: Mapping[str, tuple[str, ...]] | None = None,
    between: Mapping[str, tuple[str, ...]] | None = None,
    after: Mapping[str, tuple[str, ...]] | None = None,
) -> dict[str, Measured]:
    """Each side's turns, after `warmup` steps that are not counted.

    `before`, `between` and `after` name methods of sides, asked once before any step, after every round, and at the end; the
    answers are kept.
    """
    workers = {name: _Worker(name, make, threads) for name, make in sides.items()}
    measured = {name: Measured(clock=clock) for name in sides}
    try:
        for worker in workers.values():
            worker.answer()  # it is built
        _question(workers, measured, before)
        for worker in workers.values() if warmup else ():
            worker.ask("steps", warmup)
        for number in range(rounds):
            names = list(workers)
            start = number % len(names)  # nobody is always first
            for name in names[start:] + names[:start]:
                measured[name].turns.append(Turn(*workers[name].ask("steps", steps)))
            _question(workers, measured, between)
        for name, worker in workers.items():
            measured[name].memory = worker.ask("memory")
        _question(workers, measured, after)
    finally:
        for worker in workers.values():
            worker.end()
    return measured


def _question(
    workers: Mapping[str, _Worker], measured: dict[str, Measured], asked: Mapping[str, tuple[str, ...]] | None
) -> None:
    for name, methods in (asked or {}).items():
        for method in methods if name in workers else ():
            measured[name].answers.setdefault(method, []).append(workers[name].ask("call", method))


class _Worker:
    """The parent's end of a side."""

    def __init__(self, name: str, make: Callable[[], Side], threads: int):
        context = multiprocessing.get_context("forkserver")
        # The same for all sides: threads that spin long while they wait would take time from the side whose turn it is.
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        context.set_forkserver_preload(PRELOADED)
        self.name = name
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, make, threads), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, *order: Any) -> Any:
        self.pipe.send(order)
        return self.answer()

    def answer(self) -> Any:
        try:
            done, value = self.pipe.recv()
        except EOFError:
            raise RuntimeError(f"the process of {self.name} died (is there enough memory?)") from None
        if not done:
            raise RuntimeError(f"{self.name} failed:\n{value}")
        return value

    def end(self) -> None:
        self.pipe.close()
        self.process.join(10)
        if self.process.is_alive():
            self.process.terminate()


def _serve(pipe: Connection, make: Callable[[], Side], threads: int) -> None:
    import torch
    import transformers

    from unmask.loops import compiled

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.randn(256, 256) @ torch.randn(256, 256)  # the library of matrix products loads itself now,
    compiled(_nothing)(0)  # and numba's compiler
    imports = _memory("VmRSS")
    try:
        side = make()
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # forgets the peak so far: that of reading weights and making batches
        pipe.send((True, None))
        while True:
            pipe.send((True, _obey(side, pipe.recv(), imports)))
    except (EOFError, BrokenPipeError):
        return  # the parent is done
    except Exception:
        pipe.send((False, traceback.format_exc()))


def _nothing(x: int) -> int:
    return x


def _obey(side: Side, order: tuple[Any, ...], imports: int) -> Any:
    match order:
        case ("steps", count):
            cpu, wall, tokens, flops = time.process_time(), time.perf_counter(), 0, 0.0
            for _ in range(count):
                work = side.step()
                tokens, flops = tokens + work.tokens, flops + work.flops
            return Turn(tokens, time.perf_counter() - wall, time.process_time() - cpu, flops)
        case ("call", method):
            return getattr(side, method)()
        case ("memory",):
            return _memory("VmHWM") - imports
    raise AssertionError(order)


def _memory(kind: str) -> int:
    """VmRSS: bytes in memory now. VmHWM: the most there were."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(kind))
