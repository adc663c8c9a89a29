"""One optimizer step: forward and backward over its micro-batches, then one update. It names no model and no objective: it
adds sums, divides by counts, and steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from unmask.batch import PackedBatch
from unmask.config import Training
from unmask.errors import UnmaskError
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Losses, Objective, combine
from unmask.train.compiled import compile_networks, filled_tokens
from unmask.train.journal import Journal
from unmask.train.machine import autocast, choose_device, choose_precision
from unmask.train.optimise import build_optimizer, hidden_matrices, moments, restore_moments
from unmask.train.state import random_state, set_random_state

Tensors = Mapping[str, Mapping[str, Tensor]]


class Diverged(UnmaskError):
    """The loss or the gradient is no longer a number. Nothing of that step reached a file, nor on a CPU the weights."""

    exit_code = 1


class Unseen(NamedTuple):
    """What a step on a GPU has not yet been asked: whether its losses and its gradient's norm are numbers."""

    step: int
    micro: Sequence[PackedBatch]
    numbers: Tensor  # in the CPU's memory, or on their way there
    losses: int  # how many of the numbers are losses; the rest is the norm
    arrived: torch.cuda.Event | None

    @classmethod
    def of(cls, step: int, micro: Sequence[PackedBatch], numbers: Tensor, losses: int) -> Unseen:
        """The copy is only begun here: reading waits for it, not for what the GPU was given since."""
        if numbers.device.type != "cuda":
            return cls(step, micro, numbers, losses, None)
        there = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True).copy_(numbers, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        return cls(step, micro, there, losses, arrived)

    def read(self) -> list[float]:
        if self.arrived is not None:
            self.arrived.synchronize()
        return [float(number) for number in self.numbers.tolist()]


@dataclass(eq=False)
class Stepper:
    """The network on its device with its optimizer; `last_good` says where the last checkpoint is, for error messages.

    Parameters that want no gradient stay as they are. `scales` multiply the learning rate of single parameters
    ("encoder.blocks.0.attention.qkv.weight"); the rest have 1.

    On a CPU every loss and every gradient is looked at before it moves the weights. On a GPU a look would make the device wait
    for the program: there a step is looked at when the next one is on its way, and before anything is recorded, measured or
    saved (`confirm`). A step that was no number has then moved the weights in memory, but reaches no file.
    """

    run: Training
    encoder: Encoder
    objective: Objective
    journal: Journal
    last_good: str
    scales: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.device = choose_device(self.run.machine)
        self.dtype = choose_precision(self.run.machine, self.device)
        self.waits = self.device.type == "cpu"
        if self.device.type == "cuda":
            torch.backends.cuda.matmul.fp32_precision = "tf32"  # for what stays in fp32 while training
        self.encoder.to(self.device)
        self.objective.to(self.device)
        if self.run.machine.compile:
            compile_networks(self.encoder, self.objective, tokens=filled_tokens(self.run))
        self.parameters = _named_parameters(encoder=self.encoder, objective=self.objective)
        matrices = hidden_matrices(encoder=self.encoder, objective=self.objective)
        self.optimizer = build_optimizer(self.run.optimizer, self.parameters, matrices, self.scales)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        self.unseen: Unseen | None = None
        self.losses: list[Tensor] = []

    def backward(self, micro: Sequence[PackedBatch], step: int) -> dict[str, tuple[Tensor, int]]:
        """Gradients of step number `step`; returns sum (in double precision, on the device) and count of each loss.

        Raises Diverged before a broken gradient.
        """
        counts = _add_counts(self.objective.counts(batch) for batch in micro)
        sums: dict[str, tuple[Tensor, int]] = {}
        self.losses = []
        for batch in micro:
            with autocast(self.device, self.dtype):
                losses = self.objective(self.encoder, batch)
            loss = combine(losses, counts)
            if self.waits:
                self._check(loss, losses, batch, step)
            self.losses.append(loss.detach())
            self.scaler.scale(loss).backward()
            for name, part in losses.items():
                total, count = part.total.detach().double(), part.count
                before = sums.get(name)
                sums[name] = (total, count) if before is None else (before[0] + total, before[1] + count)
        return sums

    def update(self, micro: Sequence[PackedBatch], step: int, learning_rate: float) -> Tensor:
        """Moves the weights and forgets the gradient; returns its norm before clipping."""
        self.confirm()
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), self.run.optimizer.max_grad_norm)
        seen = [] if self.scaler.is_enabled() else [norm]  # the scaler looks for such a norm itself, and takes no step
        self.unseen = Unseen.of(step, micro, torch.stack([*self.losses, *seen]), len(self.losses))
        if self.waits:
            self.confirm()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * group["scale"]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.forget()
        return norm

    def confirm(self) -> None:
        """Raises Diverged when the last step was no number; on a GPU this waits for it."""
        unseen, self.unseen = self.unseen, None
        if unseen is None:
            return
        fine = [math.isfinite(number) for number in unseen.read()]
        if all(fine):
            return
        kept = "the step was not taken" if self.waits else "nothing of it was saved"
        what = "gradient is not finite" if all(fine[: unseen.losses]) else "loss is not a finite number"
        raise Diverged(
            f"the {what} in step {unseen.step}; {kept}",
            where=self.journal.name_documents(*unseen.micro),
            do=f"lower optimizer.learning_rate; {self.last_good}",
        )

    def forget(self) -> None:
        """Throws the gradient away."""
        self.optimizer.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Everything that training changes, by the groups a checkpoint holds."""
        return {
            "encoder": dict(self.encoder.state_dict()),
            "objective": dict(self.objective.state_dict()),
            "optimizer": moments(self.optimizer, self.parameters),
            "random": random_state(self.device),
        }

    def restore(self, tensors: Tensors) -> None:
        """Puts back what `tensors` gave."""
        self.encoder.load_state_dict(dict(tensors["encoder"]))
        self.objective.load_state_dict(dict(tensors["objective"]))
        restore_moments(self.optimizer, self.parameters, tensors["optimizer"])
        set_random_state(tensors["random"], self.device)

    def _check(self, loss: Tensor, losses: Losses, batch: PackedBatch, step: int) -> None:
        if torch.isfinite(loss):
            return
        terms = ", ".join(f"{name} = {float(part.total.detach()):g}" for name, part in losses.items())
        raise Diverged(
            f"the loss is not a finite number in step {step} ({terms}); the step was not taken",
            where=self.journal.name_documents(batch, rows=_broken_rows(self.encoder, self.objective, batch)),
            do=f"lower optimizer.learning_rate or look at these documents; {self.last_good}",
        )


def _named_parameters(**modules: nn.Module) -> dict[str, nn.Parameter]:
    return {
        f"{name}.{key}": p
        for name, module in modules.items()
        for key, p in module.named_parameters()
        if p.requires_grad
    }


def _broken_rows(encoder: Encoder, objective: Objective, batch: PackedBatch) -> set[int]:
    """The sequences whose hidden states are not finite; none when the fault is in a head."""
    with torch.no_grad():
        broken = ~torch.isfinite(objective.states(encoder, batch)[-1]).all(-1)
    return set(batch.layout.rows[broken].tolist())


def _add_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return total
