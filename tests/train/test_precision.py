"""Training in half precision: finite everywhere, and it learns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import our_model, sequences
from small_runs import ignore, result, small_run

from unmask import road
from unmask.config import AdamW, Keeping, Linear, Machine, RunConfig, Steps
from unmask.errors import UnmaskError
from unmask.train.machine import autocast, has_bf16

CPU, BF16 = torch.device("cpu"), torch.bfloat16
needs_bf16 = pytest.mark.skipif(not has_bf16(CPU), reason="this CPU has no bf16 and would only emulate it")


def run_in(small_corpus: Path, precision: Any) -> RunConfig:
    run = small_run(small_corpus, until=Steps(steps=50), machine=Machine(device="cpu", precision=precision, threads=1))
    return replace(
        run,
        dropout=0.0,
        optimizer=AdamW(learning_rate=5e-3),
        schedule=Linear(warmup=0.1),
        keeping=Keeping(evaluations=2, evaluation_tokens=2000),
    )


@needs_bf16
@pytest.mark.slow
def test_B101_B102_a_bf16_run_stays_finite_and_its_loss_falls_as_in_fp32(small_corpus: Path, tmp_path: Path) -> None:
    losses = {}
    for precision in ("bf16", "fp32"):
        assert road.pretrain(run_in(small_corpus, precision), tmp_path / precision, view=ignore).finished
        records = [json.loads(line) for line in (tmp_path / precision / "metrics.jsonl").read_text().splitlines()]
        steps = [record for record in records if record["kind"] == "step"]
        assert len(steps) == 50 and all(abs(r["loss"]) < 20 and 0 < r["grad_norm"] < 1e4 for r in steps)
        found = result(tmp_path / precision)
        losses[precision] = found["last"]["losses"]["mlm"]
        assert losses[precision] < found["first"]["losses"]["mlm"] - 1.0
    assert 0 < abs(losses["bf16"] - losses["fp32"]) < 0.1  # not equal: it was bf16 indeed


@needs_bf16
@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_B101_B102_bf16_outputs_and_gradients_are_finite_where_lengths_differ(scale: float) -> None:
    """Groups of near-equal lengths hold padding, masked with minus infinity; weights eight times as large, as reported."""
    batch = sequences([1, 2, 27, 28, 29, 30, 31, 32])
    assert any(group.mask is not None for group in batch.layout.groups), "this batch must have padding inside a group"
    encoder, objective = our_model()
    with torch.no_grad():
        for block in encoder.blocks:
            for parameter in block.parameters():
                parameter.mul_(scale)
    with autocast(CPU, BF16):
        hidden = encoder(batch)
        logits = objective.parts["mlm"].head(hidden, encoder.embeddings.tokens.weight).dense()
    assert hidden.isfinite().all() and logits.isfinite().all()
    torch.nn.functional.cross_entropy(logits.float(), batch.input_ids).backward()
    assert all(p.grad.isfinite().all() for p in encoder.parameters() if p.grad is not None)
    padded = batch.layout.pad(hidden)
    assert not padded[~batch.layout.valid()].any()  # where there is no token there are zeros


@needs_bf16
def test_weights_stay_in_fp32_and_so_does_the_exported_model(small_corpus: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    run = replace(run_in(small_corpus, "bf16"), until=Steps(steps=2))
    road.pretrain(run, tmp_path / "run", view=ignore)
    saved = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {torch.float32}
    moments = load_file(tmp_path / "run" / "steps" / "0000000002" / "optimizer.safetensors")
    assert all(t.dtype == torch.float32 for t in moments.values() if t.is_floating_point())


def test_B101_fp16_on_a_cpu_is_refused_in_words(small_corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="fp16, which CPUs only emulate") as caught:
        road.pretrain(run_in(small_corpus, "fp16"), tmp_path / "run", view=ignore)
    assert caught.value.do == "use machine.precision=auto"
