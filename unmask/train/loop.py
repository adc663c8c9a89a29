"""The only training loop: steps, evaluations, checkpoints, until a phase of a run is over.

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
from torch import Tensor

from unmask.batch import PackedBatch
from unmask.config import Minutes, Training
from unmask.errors import DamagedError, UnmaskError
from unmask.loader import Cursor, Stream, load
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Objective
from unmask.train.checkpoint import Checkpoints
from unmask.train.interval import Interval
from unmask.train.journal import Journal
from unmask.train.machine import matmul_peak
from unmask.train.optimise import learning_rate_factor, require_same_optimizer
from unmask.train.plan import Leg, Plan, steps_left
from unmask.train.signals import StopRequest
from unmask.train.state import State, random_state, set_random_state
from unmask.train.step import Diverged, Stepper

EVALUATION_SHARE = 0.2  # of a phase's minutes may go into evaluations; more of them than fit are left out
PROBE_SHARE, PROBE_SECONDS = 0.02, 10.0  # of a phase's minutes go into measuring how long a step takes, and never more
EQUAL = 1e-9  # scores that differ by less are equal
REPLAN_UNTIL = 0.9  # later the rest is too short to be worth a new decision

Evaluate = Callable[[int], Sequence[dict[str, Any]]]  # step to records: an evaluation first, then whatever else to keep


@dataclass(frozen=True)
class Outcome:
    """How a call of `fit` ended: finished, or stopped by a signal with the exit code it asks for."""

    step: int
    tokens: int
    seconds: float
    finished: bool
    exit_code: int = 0


@dataclass(frozen=True)
class Part:
    """Which phase of its run a call of `fit` trains, counted from 0, of how many; `later_steps`: of those after it, as known."""

    number: int = 0
    count: int = 1
    later_steps: int = 0

    @property
    def last(self) -> bool:
        return self.number == self.count - 1


def fit(
    run: Training,
    encoder: Encoder,
    objective: Objective,
    batches: Stream,
    journal: Journal,
    checkpoints: Checkpoints,
    *,
    evaluate: Evaluate,
    flops: Callable[[PackedBatch], float],
    stop: StopRequest,
    part: Part = Part(),  # noqa: B008 frozen
    scales: Mapping[str, float] | None = None,
    patience: int = 0,
) -> Outcome:
    """Trains until the budget of `run`, or of the phase that it is the settings of, is spent or `stop` is set.

    `scales` are of the learning rate, by parameter. Where an evaluation gives a `score` (higher is better), it decides which
    checkpoint is best, else the loss; `patience` evaluations in a row that are no better end the training early (0: never).
    Goes on from the newest whole checkpoint if there is one; where that is the end of the phase before, this phase begins.
    """
    return _Run(
        run, encoder, objective, batches, journal, checkpoints, evaluate, flops, stop, part, scales or {}, patience
    ).go()


@dataclass(eq=False)
class _Run:
    run: Training
    encoder: Encoder
    objective: Objective
    batches: Stream
    journal: Journal
    checkpoints: Checkpoints
    evaluate: Evaluate
    flops: Callable[[PackedBatch], float]
    stop: StopRequest
    part: Part
    scales: Mapping[str, float]
    patience: int

    def __post_init__(self) -> None:
        saved = f"the last checkpoint is in {self.checkpoints.folder}"
        self.stepper = Stepper(self.run, self.encoder, self.objective, self.journal, saved, self.scales)
        self.state = State()
        self.plan = Plan(self.run.until, tokens_per_step=self.run.batch.tokens * self.run.batch.accumulate)
        self.peak = matmul_peak(self.stepper.device, self.stepper.dtype)

    def go(self) -> Outcome:
        self.encoder.train()
        self.objective.train()
        resumed = self._restore()
        self.zero = time.monotonic() - self.state.seconds
        if self.state.began.phase == self.part.number:
            self.journal.begin(self.state.step, self.part.number, resumed=resumed)
        else:
            resumed = False
            self._begin_phase()
        if not resumed:
            self._announce()
        if self.run.machine.compile:
            self.journal.say("The first step waits for the compiler, up to some minutes.")
        self._plan_first()
        if self._progress() < 1:
            self._train()
        finished = self._progress() >= 1 or self._is_enough()
        return Outcome(self.state.step, self.state.tokens, self.state.seconds, finished, self.stop.exit_code)

    def _is_enough(self) -> bool:
        """Whether the last evaluations were no better than one before them."""
        return 0 < self.patience <= self.state.worse

    def _begin_phase(self) -> None:
        assert self.state.began.phase == self.part.number - 1, "phases follow one another"
        self.state = self.state.next_phase()
        began = self.state.began
        self.plan = replace(self.plan, legs=(), first_step=began.step, first_tokens=began.tokens)

    def _announce(self) -> None:
        """The first records of a phase, before any step of it."""
        if self.part.number == 0:
            torch.manual_seed(self.run.seed)
        if self.part.count > 1:
            self.journal.write({"kind": "phase", "step": self.state.step, "phase": self.part.number})
        for record in self.evaluate(self.state.step):
            self.journal.write(record)

    def _train(self) -> None:
        workers, pin = self.run.machine.workers, self.stepper.device.type == "cuda"
        stream = load(self.batches, self.state.cursor, workers=workers, pin=pin)
        every = max(1, self.plan.first_estimate() // 2000)  # enough points for a curve, however long the phase
        clock, saved = Interval(), time.monotonic()
        while self._progress() < 1 and not self._is_enough():
            before = self._progress()
            norm = self._step(stream, clock)
            self.state.seconds = self._seconds()
            due = self._marks(self._progress()) > self._marks(before)
            if self.state.step % every == 0 or due:
                self.stepper.confirm()
                self.journal.write(self._record(float(norm), clock))
                clock = Interval()
            if due:
                self._save(self._measure())
                clock, saved = Interval(), time.monotonic()
            elif self.stop.signal or time.monotonic() - saved > 60 * self.run.keeping.save_minutes:
                self._save(None)
                clock, saved = Interval(), time.monotonic()
            if self.stop.signal:
                return

    def _step(self, stream: Iterator[tuple[PackedBatch, Cursor]], clock: Interval) -> Tensor:
        """One optimizer step on the next batches. Returns the gradient's norm; nothing here waits for a GPU."""
        start = time.monotonic()
        pulled = _pull(stream, self.run.batch.accumulate)
        clock.waited += time.monotonic() - start
        micro = [batch.to(self.stepper.device) for batch, _ in pulled]
        number = self.state.step + 1
        sums = self.stepper.backward(micro, number)
        norm = self.stepper.update(micro, number, self._learning_rate())
        self.state.add(sums)
        self.state.step = number
        self.state.cursor = pulled[-1][1]
        for batch in micro:
            self.state.tokens += batch.num_tokens
            clock.add(batch, self.flops(batch))
            self.state.padding = [self.state.padding[0] + batch.layout.padding(), self.state.padding[1] + 1]
        return norm

    def _learning_rate(self) -> float:
        """Of the step about to be taken: its middle, so that the first and the last step both move the weights."""
        tokens = self.state.tokens + self.run.batch.tokens * self.run.batch.accumulate
        done = (self._progress() + self.plan.progress(self.state.step + 1, tokens)) / 2
        return self.run.optimizer.learning_rate * learning_rate_factor(self.run.schedule, done)

    # --- time --------------------------------------------------------------------------------------------------------
    def _progress(self) -> float:
        """Share of the phase that is done."""
        return self.plan.progress(self.state.step, self.state.tokens)

    def _marks(self, progress: float) -> int:
        """How many of the phase's evaluations lie behind."""
        return int(progress * self._evaluations() + 1e-9)

    def _evaluations(self) -> int:
        chosen = self.plan.legs[0].evaluations if self.plan.legs else 0
        return chosen or self.run.keeping.evaluations

    def _seconds(self) -> float:
        """Time spent on the run, over all its resumes."""
        return time.monotonic() - self.zero

    def _spent(self) -> float:
        """Time spent on the phase."""
        return self._seconds() - self.state.began.seconds

    def _plan_first(self) -> None:
        if not isinstance(self.run.until, Minutes) or self.plan.legs or self._follow_record():
            return
        evaluation = self._spent()
        seconds = self._probe(min(PROBE_SECONDS, PROBE_SHARE * 60 * self.run.until.minutes))
        budget = 60 * self.run.until.minutes
        count = min(self.run.keeping.evaluations, max(1, int(EVALUATION_SHARE * budget / max(1e-9, evaluation))))
        left = budget - self._spent() - evaluation * count
        reason = f"{self.run.until.minutes:g} minutes at {1000 * seconds:.0f} ms a step, {count} evaluations"
        self._decide(steps_left(left, seconds), reason, count)

    def _probe(self, budget: float) -> float:
        """Seconds of a step, from real batches whose gradients are thrown away; the random state is put back."""
        state = random_state(self.stepper.device)
        times: list[float] = []
        end = time.monotonic() + budget
        stream = self.batches.since(self.state.cursor)
        while len(times) < 3 or (time.monotonic() < end and not self.stop.signal):
            micro = [batch.to(self.stepper.device) for batch, _ in islice(stream, self.run.batch.accumulate)]
            start = time.monotonic()
            self.stepper.backward(micro, self.state.step + 1)
            self.stepper.forget()
            if self.stepper.device.type == "cuda":
                torch.cuda.synchronize(self.stepper.device)
            times.append(time.monotonic() - start)
        set_random_state(state, self.stepper.device)
        return sorted(times[1:])[len(times[1:]) // 2]

    def _replan(self, evaluation: float) -> None:
        """Minutes again into steps, from the pace so far."""
        if not isinstance(self.run.until, Minutes) or self._progress() > REPLAN_UNTIL:
            return
        if self._follow_record():
            return
        behind = self._marks(self._progress())
        pace = (self._spent() - evaluation * behind) / (self.state.step - self.state.began.step)
        left = 60 * self.run.until.minutes - self._spent() - evaluation * (self._evaluations() - behind)
        self._decide(steps_left(left, pace), f"{1000 * pace:.0f} ms a step so far")

    def _follow_record(self) -> bool:
        """Takes the decision an interrupted run had already made at this step, if there is one."""
        recorded = next((leg for leg in self.journal.legs() if leg.step == self.state.step), None)
        if recorded:
            self.plan = self.plan.with_leg(recorded)
            self.journal.write({"kind": "plan", **asdict(recorded)})
        return recorded is not None

    def _decide(self, steps: int, reason: str, evaluations: int = 0) -> None:
        leg = Leg(self.state.step, self.state.step + steps, reason, evaluations, self.part.number)
        self.plan = self.plan.with_leg(leg)
        self.journal.decide(self.plan.legs)

    # --- records, checkpoints ----------------------------------------------------------------------------------------
    def _record(self, norm: float, clock: Interval) -> dict[str, Any]:
        """`loss` is the plain sum of the losses, as in evaluations; a weight only decides what the gradient is made of."""
        losses = {name: total / max(1, count) for name, (total, count) in self.state.losses().items()}
        padding = self.state.padding[0] / max(1, self.state.padding[1])
        self.state.sums, self.state.padding = {}, [0.0, 0]
        return {
            "kind": "step",
            "step": self.state.step,
            "total_steps": self.plan.total_steps(self.state.step, self.state.tokens) + self.part.later_steps,
            "tokens": self.state.tokens,
            "seconds": round(self.state.seconds, 3),
            "loss": sum(losses.values()),
            "losses": losses,
            "learning_rate": self.stepper.optimizer.param_groups[0]["lr"],
            "grad_norm": norm,
            "padding": round(padding, 4),
            **clock.rates(self.peak),
        }

    def _measure(self) -> float:
        """Evaluates; returns what is the lower the better: the loss, or the negative score."""
        start = time.monotonic()
        records = self.evaluate(self.state.step)
        for record in records:
            self.journal.write(record)
        self._replan(time.monotonic() - start)
        self.state.seconds = self._seconds()
        if not records:
            return -float(self.state.step)  # nothing to measure by: the last is the best
        loss = float(records[0]["loss"])
        aim = -float(records[0].get("score", -loss))
        if "score" in records[0]:
            aim += EQUAL * min(loss, 1e3)  # of equally good ones, the one with the lower loss
        if not math.isfinite(loss):
            raise Diverged(
                f"the held-out loss is not a finite number after step {self.state.step}",
                do="lower optimizer.learning_rate",
            )
        self.state.note(aim)
        return aim

    def _save(self, aim: float | None) -> None:
        self.stepper.confirm()
        state = self.state.plain() | {
            "legs": [asdict(leg) for leg in self.plan.legs],
            "threads": torch.get_num_threads(),
            "scaler": self.stepper.scaler.state_dict(),
            "optimizer": self.run.optimizer.kind,
        }
        # written before, so that no kill can part the two: a run that falls back forgets what came after its checkpoint
        self.journal.write({"kind": "checkpoint", "step": self.state.step, "path": f"steps/{self.state.step:010d}"})
        comparable = aim if self.part.last else None  # phases measure different things: the best is one of the last
        self.checkpoints.save(self.state.step, self.stepper.tensors(), state, loss=comparable)

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
        require_same_optimizer(state.get("optimizer", "adamw"), self.run.optimizer.kind, str(newest.folder))
        self.stepper.restore(tensors)
        self.stepper.scaler.load_state_dict(state["scaler"])
        self.state = State.of(state)
        began, legs = self.state.began, tuple(Leg(**leg) for leg in state["legs"])
        self.plan = replace(self.plan, legs=legs, first_step=began.step, first_tokens=began.tokens)
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
