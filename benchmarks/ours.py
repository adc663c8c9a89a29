"""Our side of the pre-training table, from unmask's public parts: road.build, Batches, an objective, the run's own step."""

from __future__ import annotations

import time
from functools import partial
from itertools import cycle, islice
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from benchmarks.peers import batches
from benchmarks.rows import Task
from benchmarks.sides import Work
from unmask import road
from unmask.batch import PackedBatch, Targets
from unmask.config import EncoderConfig
from unmask.loader import Batches, Cursor
from unmask.objectives.base import combine
from unmask.text.tokenizer import Tokenizer
from unmask.train.machine import keep_freed_memory, matmul_peak, products
from unmask.train.step import Stepper


class Ours:
    """unmask on a row's task: on documents of their own lengths, or on the `rows` that peer D gets."""

    def __init__(self, task: Task, rows: bool):
        keep_freed_memory()  # as every run of ours does
        run, self.row = task.run(), task.row
        model = road.build(run, Tokenizer.load(task.text.tokenizer_folder).vocabulary())
        journal: Any = SimpleNamespace(name_documents=lambda *a, **k: "a batch of the benchmark")
        self.stepper = Stepper(run, model.encoder, model.objective, journal, "there is no checkpoint")
        self.batches = [model.objective.with_reads(b) for b in _as_ours(task)] if rows else _documents(task, model)
        self.flops = [model.training_flops(batch) for batch in self.batches]
        self.endless = cycle(zip(self.batches, self.flops, strict=True))

    def step(self) -> Work:
        batch, flops = next(self.endless)
        self.stepper.backward([batch], 1)
        self.stepper.update([batch], 1, self.stepper.run.optimizer.learning_rate)
        return Work(batch.num_tokens, flops)

    def loss(self) -> float:
        """The masked-token loss of the first batch, to compare with the peer's."""
        with torch.no_grad():
            losses = self.stepper.objective(self.stepper.encoder, self.batches[0])
        return float(combine({"mlm": losses["mlm"]}, self.stepper.objective.counts(self.batches[0])))

    def peak(self) -> float:
        """This machine's matrix-product peak at this moment, FLOP/s."""
        return matmul_peak(torch.device("cpu"), torch.float32)

    def peak_at_shapes(self) -> float:
        """The same at the products of this model's step."""
        return peak_at_shapes(self.row.encoder, self.row.tokens)


def _documents(task: Task, model: road.Model) -> list[PackedBatch]:
    run = task.run()
    stream = Batches(
        task.text.cut(task.row.length), run.examples, model.vocabulary, model.objective.prepare, task.seed,
        run.batch.tokens,
    ).since(Cursor())  # fmt: skip
    return [batch for batch, _ in islice(stream, task.count)]


def _as_ours(task: Task) -> list[PackedBatch]:
    """The collator's full rows, with its masks, as packed batches."""
    return [packed(batch["input_ids"], batch["labels"]) for batch in batches(task, "D")]


def packed(ids_BL: Tensor, labels_BL: Tensor) -> PackedBatch:
    """Rows without padding; labels are -100 where nothing is scored."""
    rows, length = ids_BL.shape
    where = (labels_BL.flatten() != -100).nonzero().squeeze(1)
    draw = torch.rand(len(where), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    batch = PackedBatch(
        ids_BL.flatten(),
        torch.arange(0, rows * length + 1, length, dtype=torch.int32),
        examples=torch.arange(rows),
        labels={"mlm": Targets(where, labels_BL.flatten()[where]), "draw": Targets(where, draw)},
    )
    cast(object, batch.layout)  # made in the loader's worker, where there is one
    return batch


def peak_at_shapes(config: EncoderConfig, tokens: int, seconds: float = 1.5) -> float:
    """FLOP/s of the matrix products of a block, forward and backward, each at its best and by the best kernel here."""
    width, inner, up, down = config.hidden_size, config.inner_size, config.up_size, config.intermediate_size
    shapes = [(width, 3 * inner), (inner, width), (width, up), (down, width)]
    spent, work = 0.0, 0.0
    for a, b in shapes:
        x_TA, y_TB, weight_BA = torch.randn(tokens, a), torch.randn(tokens, b), torch.randn(b, a)
        for x, weight in ((x_TA, weight_BA), (y_TB, weight_BA.T), (y_TB.T, x_TA.T)):
            kernels = products(torch.device("cpu"), torch.float32).values()
            spent += min(_best(partial(kernel, x, weight), seconds / 24) for kernel in kernels)
            work += 2.0 * tokens * a * b
    return work / spent


def _best(product: Any, seconds: float) -> float:
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        start = time.perf_counter()
        product()
        best = min(best, time.perf_counter() - start)
    return best
