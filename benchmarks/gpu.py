"""Pre-training steps of BERT base and ModernBERT base on a GPU, beside transformers: tokens per second, MFU, peak memory.

    python -m benchmarks.gpu [--rows bert-512,…] [--seconds 60] [--tokens 16384] [--text FILE] [--json FILE]

Both sides begin with the same weights and read the same full rows in bf16 with the same fused AdamW and clipping, without
dropout. Transformers gets its best attention (flash_attention_2 where the package flash-attn is installed, else sdpa) and, for
ModernBERT, `sparse_prediction`. Each side is measured plain and compiled, one after the other: a GPU runs nothing else, and
peak memory is a side's own. Before that both must find the same loss.

MFU is useful arithmetic (real tokens, masked-only head, forward and backward) over the vendor's dense bf16 peak; beside it
stands the share of what this GPU reaches in one large matrix product. Ids are random unless a text is given. Without a GPU the
script runs on the CPU, which shows that it runs (`--tiny --steps 2`).
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM

from benchmarks import tables
from benchmarks.ours import packed
from benchmarks.peers import batches as collated
from benchmarks.peers import optimizer
from benchmarks.rows import Row, Task
from benchmarks.sides import Work
from benchmarks.text import default_cache, load_text
from unmask import presets, road
from unmask.config import Machine, MaskedTokens, Rope, RunConfig
from unmask.hub.files import save_model
from unmask.objectives.base import combine
from unmask.text.tokenizer import Tokenizer
from unmask.text.vocabulary import Vocabulary
from unmask.train import compiled
from unmask.train.machine import (
    autocast,
    choose_device,
    choose_precision,
    matmul_peak,
    product_speed,
    products,
    set_threads,
)
from unmask.train.step import Stepper

ROWS = (
    Row("bert-512", "BERT base, 512", presets.bert_base(), 512, 0),
    Row("modernbert-1024", "ModernBERT base, 1,024", presets.modernbert_base(), 1024, 0, goal=MaskedTokens(mask_rate=0.3)),
    Row("modernbert-8192", "ModernBERT base, 8,192", presets.modernbert_base(), 8192, 0, goal=MaskedTokens(mask_rate=0.3)),
)  # fmt: skip
PEAKS = {  # dense bf16 with fp32 accumulation, FLOP/s, from the vendor's data sheets; the longer name stands first
    "B200": 2250e12, "H200": 989e12, "H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "A100": 312e12,
    "L4": 121e12, "RTX 4090": 165e12,
}  # fmt: skip
BATCHES = 4  # different ones, in turn
WARMUP, TURN = 3, 5  # steps: before the clock runs (a compiler's work is among them); between two looks at the clock
SAME_LOSS = {torch.float32: 1e-3, torch.bfloat16: 3e-2}  # nats
Result = dict[str, Any]


def main() -> None:
    given = _options()
    compiled.BACKEND = given.backend
    set_threads(Machine())  # TF32 for what stays in fp32, on both sides
    device = choose_device(Machine())
    dtype = choose_precision(Machine(), device)
    peaks = {"vendor": vendor_peak(device), "measured": measured_peak(device, dtype)}
    chosen = given.rows.split(",") if given.rows else [row.name for row in ROWS]
    results = []
    for row in [row for row in ROWS if row.name in chosen]:
        with tempfile.TemporaryDirectory() as folder:
            results.append(compare(_sized(row, given), given, Path(folder), device, dtype, peaks))
        print(
            f"{row.name}: " + ", ".join(f"{k} {v['speed']:,.0f}" for k, v in results[-1]["sides"].items()), flush=True
        )
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU: this says nothing"
    print("\n" + report(results, name))
    tables.write_json(given.json, "gpu", {"device": name, "precision": str(dtype), "peaks": peaks, "rows": results})


def _options() -> Any:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--rows", help=f"names, with commas: {', '.join(row.name for row in ROWS)} (default: all)")
    ask.add_argument("--seconds", type=float, default=60, help="of measuring, for each side")
    ask.add_argument("--steps", type=int, default=0, help="so many steps instead")
    ask.add_argument("--tokens", type=int, default=16384, help="of a step; at least one row")
    ask.add_argument("--backend", default="inductor", help="torch.compile's")
    ask.add_argument("--no-compile", action="store_true", help="leave the compiled sides out")
    ask.add_argument("--text", help="a text file or python-docs (default: random ids)")
    ask.add_argument("--cache", type=Path, help="where tokenizers and tokens are kept")
    ask.add_argument("--tiny", action="store_true", help="only see that it runs: small sizes, the numbers mean nothing")
    ask.add_argument("--json", type=Path, help="write the results here as well")
    return ask.parse_args()


def _sized(row: Row, given: Any) -> Row:
    if not given.tiny:
        return replace(row, tokens=max(given.tokens, row.length))
    encoder = replace(
        row.encoder, vocab_size=1000, pad_token_id=0, num_hidden_layers=2, hidden_size=64, num_attention_heads=4,
        intermediate_size=128,
    )  # fmt: skip
    return replace(row, encoder=encoder, length=32, tokens=128)


# --- the two sides -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Job:
    """What the sides of a row share."""

    run: RunConfig
    vocabulary: Vocabulary
    model: Path  # a folder with the weights that all sides begin with
    rows: list[dict[str, Tensor]]  # input_ids and labels [rows, length]
    device: torch.device
    dtype: torch.dtype


class Ours:
    """unmask's own step."""

    def __init__(self, job: Job, compiling: bool):
        run = replace(job.run, machine=replace(job.run.machine, compile=compiling))
        model = road.build(run, job.vocabulary)
        journal: Any = SimpleNamespace(name_documents=lambda *a, **k: "a batch of the benchmark")
        self.stepper = Stepper(run, model.encoder.train(), model.objective.train(), journal, "there is no checkpoint")
        self.batches = [packed(row["input_ids"], row["labels"]) for row in job.rows]
        self.flops = [model.training_flops(batch) for batch in self.batches]
        self.endless = itertools.cycle(zip(self.batches, self.flops, strict=True))

    def step(self) -> Work:
        batch, flops = next(self.endless)
        micro = [batch.to(self.stepper.device)]
        self.stepper.backward(micro, 1)
        self.stepper.update(micro, 1, self.stepper.run.optimizer.learning_rate)
        return Work(batch.num_tokens, flops)

    def loss(self) -> float:
        s, batch = self.stepper, self.batches[0].to(self.stepper.device)
        with torch.no_grad(), autocast(s.device, s.dtype):
            return float(combine(s.objective(s.encoder, batch), s.objective.counts(batch)))


class Transformers:
    """transformers' model in a plain training step; full rows need no attention mask."""

    def __init__(self, job: Job, compiling: bool, backend: str):
        self.job, modern = job, isinstance(job.run.encoder.positions, Rope)
        given = {"sparse_prediction": True} if modern else dict.fromkeys(_DROPOUTS, 0.0)
        model = AutoModelForMaskedLM.from_pretrained(
            job.model, dtype=torch.float32, attn_implementation=best_attention(job.device), **given
        )
        self.model = model.to(job.device).train()
        self.parameters = list(self.model.parameters())
        self.optimizer = optimizer(job.run.optimizer, dict(self.model.named_parameters()))
        self.forward: Callable[..., Any] = torch.compile(self.model, backend=backend) if compiling else self.model
        self.endless = itertools.cycle(job.rows)

    def step(self) -> Work:
        row = {k: v.to(self.job.device, non_blocking=True) for k, v in next(self.endless).items()}
        with self._precision():
            loss = self.forward(**row).loss
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.job.run.optimizer.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return Work(row["input_ids"].numel())

    def loss(self) -> float:
        with torch.no_grad(), self._precision():
            return float(self.model(**{k: v.to(self.job.device) for k, v in self.job.rows[0].items()}).loss)

    def _precision(self) -> AbstractContextManager[object]:
        return autocast(self.job.device, self.job.dtype)


_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")


def best_attention(device: torch.device) -> str:
    return "flash_attention_2" if device.type == "cuda" and importlib.util.find_spec("flash_attn") else "sdpa"


# --- measuring ---------------------------------------------------------------------------------------------------------
def compare(
    row: Row, given: Any, folder: Path, device: torch.device, dtype: torch.dtype, peaks: dict[str, float | None]
) -> Result:
    """All sides of one row, one after the other."""
    job = _job(row, given, folder, device, dtype)
    sides: dict[str, Callable[[], Ours | Transformers]] = {}
    for ending, compiling in (("", False), *((", compiled", True) for _ in range(not given.no_compile))):
        sides["unmask" + ending] = partial(Ours, job, compiling)
        sides[f"transformers ({best_attention(device)})" + ending] = partial(
            Transformers, job, compiling, given.backend
        )
    found = {name: measure(make, given, device) for name, make in sides.items()}
    losses = [side["loss"] for side in found.values()]
    assert max(losses) - min(losses) < SAME_LOSS[dtype], f"{row.name}: the sides compute different things: {losses}"
    useful = found["unmask"]["flops_per_token"]
    for side in found.values():
        side |= {f"of_{kind}": useful * side["speed"] / peak if peak else None for kind, peak in peaks.items()}
    return {"name": row.name, "title": row.title, "tokens": row.tokens, "sides": found}


def _job(row: Row, given: Any, folder: Path, device: torch.device, dtype: torch.dtype) -> Job:
    vocabulary, tokenizer = _made_up(row.encoder.vocab_size, row.encoder.pad_token_id), None
    text = None
    if given.text:
        text = load_text(given.text, row.encoder.vocab_size, given.cache or default_cache())
        tokenizer, vocabulary = text.tokenizer_folder, Tokenizer.load(text.tokenizer_folder).vocabulary()
        row = replace(
            row, encoder=replace(row.encoder, vocab_size=vocabulary.size, pad_token_id=vocabulary.pad_token_id)
        )
    task = Task(row, text, folder / "model", rounds=BATCHES, steps=1)  # type: ignore[arg-type]
    run = replace(task.run(), machine=Machine(workers=0))
    model = road.build(run, vocabulary)
    save_model(task.model, model.encoder, model.objective, tokenizer_folder=tokenizer, about={})
    if text is None:
        rows = [_random_rows(row, vocabulary, seed) for seed in range(BATCHES)]
    else:
        rows = [{k: batch[k] for k in ("input_ids", "labels")} for batch in collated(task, "D")]
    return Job(run, vocabulary, task.model, rows, device, dtype)


def _made_up(size: int, pad: int) -> Vocabulary:
    special = (0, 1, 2, 3, 4)
    return Vocabulary(
        size=size, pad_token_id=pad, unk_token_id=1, cls_token_id=2, sep_token_id=3, mask_token_id=4, special_ids=special
    )  # fmt: skip


def _random_rows(row: Row, vocabulary: Vocabulary, seed: int) -> dict[str, Tensor]:
    """Ids of no meaning, of which the goal's share is hidden."""
    draw, shape = torch.Generator().manual_seed(seed), (row.sequences, row.length)
    ids = torch.randint(5, row.encoder.vocab_size, shape, generator=draw)
    hidden = torch.rand(shape, generator=draw) < row.masking.mask_rate
    labels = ids.masked_fill(~hidden, -100)
    return {"input_ids": ids.masked_fill(hidden, vocabulary.require("mask")), "labels": labels}


def measure(make: Callable[[], Ours | Transformers], given: Any, device: torch.device) -> Result:
    """One side from its first weights: its loss, then its speed and peak memory."""
    side = make()
    loss = side.loss()
    for _ in range(WARMUP):
        work = side.step()
    _wait(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    speeds: list[float] = []
    end = time.perf_counter() + given.seconds
    while len(speeds) * TURN < given.steps if given.steps else time.perf_counter() < end:
        start, tokens = time.perf_counter(), sum(side.step().tokens for _ in range(TURN))
        _wait(device)
        speeds.append(tokens / (time.perf_counter() - start))
    memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    del side
    gc.collect()
    torch.compiler.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    speed, useful = statistics.median(speeds), work.flops / work.tokens
    return {"loss": loss, "speed": speed, "turns": speeds, "memory": memory, "flops_per_token": useful}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def vendor_peak(device: torch.device) -> float | None:
    """Of the data sheet; None for a device that is not in the table."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return next((peak for part, peak in PEAKS.items() if re.search(rf"\b{part}\b", name)), None)


def measured_peak(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of one large matrix product."""
    if device.type == "cpu":
        return matmul_peak(device, dtype)
    return product_speed(products(device, dtype)["torch"], 8192, 8192, 8192, device, dtype, 2.0)


# --- telling -----------------------------------------------------------------------------------------------------------
def report(results: list[Result], device: str) -> str:
    """The table."""
    head = ["model, length", "side", "tokens/s", "against unmask's best", "MFU", "of measured peak", "peak memory, MB"]
    lines = []
    for result in results:
        best = max(side["speed"] for name, side in result["sides"].items() if name.startswith("unmask"))
        for name, side in result["sides"].items():
            memory = "–" if side["memory"] is None else tables.megabytes(side["memory"])
            shares = [tables.at_least(side[key], 0, "%") for key in ("of_vendor", "of_measured")]
            against = f"{side['speed'] / best:.2f}"
            lines.append([result["title"], name, f"{side['speed']:,.0f}", against, *shares, memory])
    return f"On {device}:\n\n{tables.markdown(head, lines)}"


if __name__ == "__main__":
    main()
