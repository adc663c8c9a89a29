"""The only training loop. It names no model and no objective: it adds sums, divides by counts, and steps.

A run is a pure function of its settings: resuming from any checkpoint continues bit for bit as if nothing had happened (at an
equal number of threads), because data order, masks and learning rate are functions of the state, and the state is saved.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from unmask.batch import PackedBatch
from unmask.config import Minutes, RunConfig
from unmask.errors import DamagedError, UnmaskError
from unmask.loader import Batches, Cursor, load
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Losses, Objective, combine
from unmask.train.checkpoint import Checkpoints
from unmask.train.interval import Interval
from unmask.train.journal import Journal
from unmask.train.machine import autocast, choose_device, choose_precision, matmul_peak
from unmask.train.optimise import build_optimizer, learning_rate_factor, moments, restore_moments
from unmask.train.plan import Leg, Plan, steps_left
from unmask.train.signals import StopRequest
from unmask.train.state import State, random_state, set_random_state

EVALUATION_SHARE = 0.2  # of a run's minutes may go into evaluations; more of them than fit are left out
PROBE_SHARE, PROBE_SECONDS = 0.02, 10.0  # of a run's minutes go into measuring how long a step takes, and never more
REPLAN_UNTIL = 0.9  # later the rest is too short to be worth a new decision

Evaluate = Callable[[int], Sequence[dict[str, Any]]]  # step to records: an evaluation first, then whatever else to keep


class Diverged(UnmaskError):
    """The loss or the gradient is no longer a number. Nothing of that step reached the weights."""

    exit_code = 1


@dataclass(frozen=True)
class Outcome:
    """How a call of `fit` ended: finished, or stopped by a signal with the exit code it asks for."""

    step: int
    tokens: int
    seconds: float
    finished: bool
    exit_code: int = 0


def fit(
    run: RunConfig,
    encoder: Encoder,
    objective: Objective,
    batches: Batches,
    journal: Journal,
    checkpoints: Checkpoints,
    *,
    evaluate: Evaluate,
    flops: Callable[[PackedBatch], float],
    stop: StopRequest,
) -> Outcome:
    """Trains until the run's budget is spent or `stop` is set; goes on from the newest whole checkpoint if there is one."""
    return _Run(run, encoder, objective, batches, journal, checkpoints, evaluate, flops, stop).go()


@dataclass(eq=False)
class _Run:
    run: RunConfig
    encoder: Encoder
    objective: Objective
    batches: Batches
    journal: Journal
    checkpoints: Checkpoints
    evaluate: Evaluate
    flops: Callable[[PackedBatch], float]
    stop: StopRequest

    def __post_init__(self) -> None:
        run = self.run
        self.device = choose_device(run.machine)
        self.dtype = choose_precision(run.machine, self.device)
        self.encoder.to(self.device)
        self.objective.to(self.device)
        self.parameters = _named_parameters(encoder=self.encoder, objective=self.objective)
        self.optimizer = build_optimizer(run.optimizer, self.parameters)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        self.state = State()
        self.plan = Plan(run.until, tokens_per_step=run.batch.tokens * run.batch.accumulate)
        self.peak = matmul_peak(self.device, self.dtype)

    def go(self) -> Outcome:
        self.encoder.train()
        self.objective.train()
        resumed = self._restore()
        self.journal.begin(self.state.step, resumed=resumed)
        began = time.monotonic() - self.state.seconds
        if not resumed:
            torch.manual_seed(self.run.seed)
            for record in self.evaluate(0):
                self.journal.write(record)
        self._plan_first(began)
        self._train(began)
        finished = self._progress() >= 1
        return Outcome(self.state.step, self.state.tokens, self.state.seconds, finished, self.stop.exit_code)

    def _train(self, began: float) -> None:
        workers = self.run.machine.workers
        stream = load(self.batches, self.state.cursor, workers=workers, pin=self.device.type == "cuda")
        every = max(1, self.plan.first_estimate() // 2000)  # enough points for a curve, however long the run
        clock, saved = Interval(), time.monotonic()
        while self._progress() < 1:
            before = self._progress()
            norm = self._step(stream, clock)
            self.state.seconds = time.monotonic() - began
            due = self._marks(self._progress()) > self._marks(before)
            if self.state.step % every == 0 or due:
                self.journal.write(self._record(norm, clock))
                clock = Interval()
            if due:
                loss = self._measure(began)
                self._save(loss)
                clock, saved = Interval(), time.monotonic()
            elif self.stop.signal or time.monotonic() - saved > 60 * self.run.keeping.save_minutes:
                self._save(None)
                clock, saved = Interval(), time.monotonic()
            if self.stop.signal:
                return

    # --- one optimizer step ------------------------------------------------------------------------------------------
    def _step(self, stream: Iterator[tuple[PackedBatch, Cursor]], clock: Interval) -> float:
        """Forward and backward over all micro-batches, then one update. Returns the gradient's norm."""
        start = time.monotonic()
        pulled = _pull(stream, self.run.batch.accumulate)
        clock.waited += time.monotonic() - start
        micro = [batch.to(self.device) for batch, _ in pulled]
        self._backward(micro)
        norm = self._update(micro)
        self.state.step += 1
        self.state.cursor = pulled[-1][1]
        for batch in micro:
            self.state.tokens += batch.num_tokens
            clock.add(batch, self.flops(batch))
            self.state.padding = [self.state.padding[0] + batch.layout.padding(), self.state.padding[1] + 1]
        return norm

    def _backward(self, micro: Sequence[PackedBatch]) -> None:
        counts = _add_counts(self.objective.counts(batch) for batch in micro)
        for batch in micro:
            with autocast(self.device, self.dtype):
                losses = self.objective(self.encoder, batch)
            loss = combine(losses, counts)
            self._check(loss, losses, batch)
            self.scaler.scale(loss).backward()
            for name, part in losses.items():
                total = self.state.sums.setdefault(name, [0.0, 0])
                total[0] += float(part.total.detach())
                total[1] += part.count

    def _check(self, loss: Tensor, losses: Losses, batch: PackedBatch) -> None:
        if torch.isfinite(loss):
            return
        terms = ", ".join(f"{name} = {float(part.total.detach()):g}" for name, part in losses.items())
        raise Diverged(
            f"the loss is not a finite number in step {self.state.step + 1} ({terms}); the step was not taken",
            where=self.journal.name_documents(batch, rows=_broken_rows(self.encoder, batch)),
            do=f"lower optimizer.learning_rate or look at these documents; the last checkpoint is in {self.checkpoints.folder}",
        )

    def _update(self, micro: Sequence[PackedBatch]) -> float:
        self.scaler.unscale_(self.optimizer)
        norm = float(nn.utils.clip_grad_norm_(self.parameters.values(), self.run.optimizer.max_grad_norm))
        if not self.scaler.is_enabled() and not norm < float("inf"):
            raise Diverged(
                f"the gradient is not finite in step {self.state.step + 1}; the step was not taken",
                where=self.journal.name_documents(*micro),
                do=f"lower optimizer.learning_rate; the last checkpoint is in {self.checkpoints.folder}",
            )
        rate = self._learning_rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def _learning_rate(self) -> float:
        """Of the step about to be taken: its middle, so that the first and the last step both move the weights."""
        done = (self._progress() + self.plan.progress(self.state.step + 1, self._tokens_after())) / 2
        return self.run.optimizer.learning_rate * learning_rate_factor(self.run.schedule, done)

    def _tokens_after(self) -> int:
        return self.state.tokens + self.run.batch.tokens * self.run.batch.accumulate

    # --- time --------------------------------------------------------------------------------------------------------
    def _progress(self) -> float:
        return self.plan.progress(self.state.step, self.state.tokens)

    def _marks(self, progress: float) -> int:
        """How many of the run's evaluations lie behind."""
        return int(progress * self._evaluations() + 1e-9)

    def _evaluations(self) -> int:
        chosen = self.plan.legs[0].evaluations if self.plan.legs else 0
        return chosen or self.run.keeping.evaluations

    def _plan_first(self, began: float) -> None:
        if not isinstance(self.run.until, Minutes) or self.plan.legs or self._follow_record():
            return
        evaluation = time.monotonic() - began
        seconds = self._probe(min(PROBE_SECONDS, PROBE_SHARE * 60 * self.run.until.minutes))
        budget = 60 * self.run.until.minutes
        count = min(self.run.keeping.evaluations, max(1, int(EVALUATION_SHARE * budget / max(1e-9, evaluation))))
        left = budget - (time.monotonic() - began) - evaluation * count
        reason = f"{self.run.until.minutes:g} minutes at {1000 * seconds:.0f} ms a step, {count} evaluations"
        self._decide(Leg(0, steps_left(left, seconds), reason, count))

    def _probe(self, budget: float) -> float:
        """Seconds of a step, from real batches whose gradients are thrown away; the random state is put back."""
        state = random_state(self.device)
        times: list[float] = []
        end = time.monotonic() + budget
        stream = self.batches.since(Cursor())
        while len(times) < 3 or (time.monotonic() < end and not self.stop.signal):
            micro = [batch.to(self.device) for batch, _ in islice(stream, self.run.batch.accumulate)]
            start = time.monotonic()
            self._backward(micro)
            self.optimizer.zero_grad(set_to_none=True)
            times.append(time.monotonic() - start)
        set_random_state(state, self.device)
        self.state.sums = {}
        return sorted(times[1:])[len(times[1:]) // 2]

    def _replan(self, began: float, evaluation: float) -> None:
        """Minutes again into steps, from the pace so far."""
        if not isinstance(self.run.until, Minutes) or self._progress() > REPLAN_UNTIL:
            return
        if self._follow_record():
            return
        spent = time.monotonic() - began
        to_come = self._evaluations() - self._marks(self._progress())
        pace = (spent - evaluation * self._marks(self._progress())) / self.state.step
        left = 60 * self.run.until.minutes - spent - evaluation * to_come
        self._decide(
            Leg(self.state.step, self.state.step + steps_left(left, pace), f"{1000 * pace:.0f} ms a step so far")
        )

    def _follow_record(self) -> bool:
        """Takes the decision an interrupted run had already made at this step, if there is one."""
        recorded = next((leg for leg in self.journal.legs() if leg.step == self.state.step), None)
        if recorded:
            self.plan = self.plan.with_leg(recorded)
            self.journal.write({"kind": "plan", **asdict(recorded)})
        return recorded is not None

    def _decide(self, leg: Leg) -> None:
        self.plan = self.plan.with_leg(leg)
        self.journal.decide(self.plan.legs)

    # --- records, checkpoints ----------------------------------------------------------------------------------------
    def _record(self, norm: float, clock: Interval) -> dict[str, Any]:
        losses = {name: total / max(1, count) for name, (total, count) in self.state.sums.items()}
        padding = self.state.padding[0] / max(1, self.state.padding[1])
        self.state.sums, self.state.padding = {}, [0.0, 0]
        return {
            "kind": "step",
            "step": self.state.step,
            "total_steps": self.plan.total_steps(self.state.step, self.state.tokens),
            "tokens": self.state.tokens,
            "seconds": round(self.state.seconds, 3),
            "loss": sum(losses.values()),
            "losses": losses,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "grad_norm": norm,
            "padding": round(padding, 4),
            **clock.rates(self.peak),
        }

    def _measure(self, began: float) -> float:
        start = time.monotonic()
        records = self.evaluate(self.state.step)
        for record in records:
            self.journal.write(record)
        self._replan(began, time.monotonic() - start)
        self.state.seconds = time.monotonic() - began
        loss = float(records[0]["loss"])
        if not math.isfinite(loss):
            raise Diverged(
                f"the held-out loss is not a finite number after step {self.state.step}",
                do="lower optimizer.learning_rate",
            )
        return loss

    def _save(self, loss: float | None) -> None:
        tensors = {
            "encoder": dict(self.encoder.state_dict()),
            "objective": dict(self.objective.state_dict()),
            "optimizer": moments(self.optimizer, self.parameters),
            "random": random_state(self.device),
        }
        state = asdict(self.state) | {
            "legs": [asdict(leg) for leg in self.plan.legs],
            "threads": torch.get_num_threads(),
            "scaler": self.scaler.state_dict(),
        }
        # written before, so that no kill can part the two: a run that falls back forgets what came after its checkpoint
        self.journal.write({"kind": "checkpoint", "step": self.state.step, "path": f"steps/{self.state.step:010d}"})
        self.checkpoints.save(self.state.step, tensors, state, loss=loss)

    def _restore(self) -> bool:
        newest, messages = self.checkpoints.newest()
        for message in messages:
            self.journal.say(message)
        if newest is None and messages:
            raise DamagedError(
                "no checkpoint of this run is whole, and going on would begin it anew",
                where=str(self.checkpoints.folder),
                do="restore a checkpoint from a copy, or delete the folder to begin the run anew",
            )
        if newest is None:
            return False
        tensors, state = self.checkpoints.load(newest)
        self.encoder.load_state_dict(tensors["encoder"])
        self.objective.load_state_dict(tensors["objective"])
        restore_moments(self.optimizer, self.parameters, tensors["optimizer"])
        set_random_state(tensors["random"], self.device)
        self.scaler.load_state_dict(state["scaler"])
        self.plan = replace(self.plan, legs=tuple(Leg(**leg) for leg in state["legs"]))
        self.state = State(state["step"], state["tokens"], state["seconds"], Cursor(**state["cursor"]), state["sums"])
        if state["threads"] != torch.get_num_threads():
            self.journal.say(
                f"This run began with {state['threads']} threads and goes on with {torch.get_num_threads()}: "
                "it will be as good, but not bit-identical. Set machine.threads to get the same bits."
            )
        return True


def _pull(stream: Iterator[tuple[PackedBatch, Cursor]], count: int) -> list[tuple[PackedBatch, Cursor]]:
    try:
        return list(islice(stream, count))
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise UnmaskError(
            f"a process that makes batches died: {str(error).splitlines()[0]}",
            do="it may have been out of memory: set machine.workers=0, then --resume",
        ) from None


def _named_parameters(**modules: nn.Module) -> dict[str, nn.Parameter]:
    return {f"{name}.{key}": p for name, module in modules.items() for key, p in module.named_parameters()}


def _broken_rows(encoder: Encoder, batch: PackedBatch) -> set[int]:
    """The sequences whose hidden states are not finite; none when the fault is in a head."""
    with torch.no_grad():
        broken = ~torch.isfinite(encoder(batch)).all(-1)
    return set(batch.layout.rows[broken].tolist())


def _add_counts(parts: Iterator[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return total
