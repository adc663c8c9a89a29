"""Compiled training: the same losses, gradients, counts and names, and no more graphs than the first step made."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_models import VARIANTS, goals_of, our_network, sequences
from small_runs import ignore, losses, small_run, stop_after, weights
from torch import Tensor, nn

from unmask import road
from unmask.batch import Layout, PackedBatch, Targets
from unmask.config import (
    BatchSize,
    Documents,
    Machine,
    MaskedTokens,
    Objectives,
    Pairs,
    ReplacedTokens,
    RunConfig,
    Steps,
)
from unmask.errors import UnmaskError
from unmask.objectives.base import combine
from unmask.train import compiled
from unmask.train.compiled import compile_networks, filled_tokens

# torch's tracer asks tensors for a gradient, and torch warns that they have none
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),  # torch's own code
]

WIRING = "aot_eager"  # traces forward and backward, and runs them without generated code
FILLED = 96  # not a multiple of what batches are filled up to anyway
LENGTHS = [
    [3, 3, 7, 12, 20],
    [1, 5, 30],
    [2, 2, 2, 9, 11, 16],
    [8, 8, 9],
    [30] * 3,
    [30] * 5,
    [30] * 9,
]  # filled up to 96 tokens each, the last two to 192 and 288
CASES: dict[str, tuple[str, tuple[Objectives, ...]]] = {
    **{name: (name, goals_of(name)) for name in VARIANTS},
    "electra's two networks": ("electra", (ReplacedTokens(generator_width=0.5),)),
    "enhanced mask decoder": ("deberta-v3", (MaskedTokens(enhanced_decoder=True),)),
}


@pytest.fixture(autouse=True)
def wiring(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compiled, "BACKEND", WIRING)
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def batches(name: str) -> list[PackedBatch]:
    found = []
    for seed, lengths in enumerate(LENGTHS):
        batch, rows = sequences(lengths, VARIANTS[name], seed), torch.arange(len(lengths))
        found.append(batch.with_(examples=rows, labels={"pair": Targets(rows, rows % 2)}))
    return found


def trained(encoder: nn.Module, objective: Any, batch: PackedBatch) -> tuple[Tensor, dict[str, int], dict[str, Tensor]]:
    """The loss, the counts and the gradients of a step."""
    parameters = {f"{i}.{k}": p for i, m in enumerate((encoder, objective)) for k, p in m.named_parameters()}
    for parameter in parameters.values():
        parameter.grad = None
    batch = objective.prepare(batch, 0)
    found = objective(encoder, batch)
    loss = combine(found, objective.counts(batch))
    loss.backward()
    gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
    return loss.detach(), {name: part.count for name, part in found.items()}, gradients


def require_equal(case: str) -> list[int]:
    """Trains both ways on every batch, and tells how many graphs there were after each."""
    name, goals = CASES[case]
    plain, fast = (tuple(m.train() for m in our_network(VARIANTS[name], goals)) for _ in range(2))
    compile_networks(*fast, tokens=FILLED)
    before, made = graphs(), []
    for batch in batches(name):
        loss, counts, gradients = trained(*plain, batch)
        its_loss, its_counts, its_gradients = trained(*fast, batch)
        assert its_counts == counts and its_gradients.keys() == gradients.keys()
        torch.testing.assert_close(its_loss, loss, rtol=1e-5, atol=1e-5)
        for key, gradient in gradients.items():
            torch.testing.assert_close(its_gradients[key], gradient, rtol=1e-4, atol=1e-5, msg=lambda m: f"{key}: {m}")  # noqa: B023
        made.append(graphs() - before)
    assert [list(m.state_dict()) for m in fast] == [list(m.state_dict()) for m in plain]
    return made


@pytest.mark.parametrize("case", CASES)
def test_compiled_training_is_the_same_training_in_as_few_graphs(case: str) -> None:
    turning, networks = case in ("modernbert", "neobert"), 2 if "two networks" in case else 1
    few = networks * (1 + turning)  # one for the layers of a network, one for its turning
    assert require_equal(case) == [few] * 5 + [2 * few, 3 * few]  # sizes are fixed: each has graphs of its own
    assert not torch._dynamo.utils.counters["graph_break"]


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="there is no C++ compiler")
@pytest.mark.parametrize("case", ["bert", "modernbert"])
def test_generated_code_gives_the_same_too(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "inductor")
    require_equal(case)


def test_half_precision_is_the_same_up_to_its_rounding() -> None:
    plain, fast = (tuple(m.train() for m in our_network(VARIANTS["modernbert"], (MaskedTokens(),))) for _ in range(2))
    compile_networks(*fast, tokens=FILLED)
    with torch.autocast("cpu", torch.bfloat16):
        (loss, _, gradients), (its, _, its_gradients) = (
            trained(*nets, batches("modernbert")[0]) for nets in (plain, fast)
        )
    torch.testing.assert_close(its, loss, rtol=1e-2, atol=1e-2)
    for key, gradient in gradients.items():
        assert (its_gradients[key] - gradient).norm() <= 0.05 * gradient.norm() + 1e-4, key


def test_what_is_no_training_step_is_neither_filled_nor_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, objective = our_network(VARIANTS["bert"], goals_of("bert"))
    expected = [encoder(batch) for batch in batches("bert")]
    compile_networks(encoder, objective, tokens=FILLED)
    before = graphs()
    monkeypatch.setattr(PackedBatch, "padded_to", None)
    with torch.inference_mode():
        found = [encoder.layers(batch)[-1] for batch in batches("bert")]
    assert graphs() == before and all(map(torch.equal, found, expected))


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), more=st.integers(0, 40), types=st.booleans())
def test_the_filling_stands_behind_in_sequences_no_longer_than_the_longest(
    lengths: list[int], more: int, types: bool
) -> None:
    batch = sequences(lengths, VARIANTS["bert" if types else "deberta-v3"])
    filled, count = batch.padded_to(sum(lengths) + more), sum(lengths)
    assert filled.input_ids.tolist() == batch.input_ids.tolist() + [0] * more
    assert filled.starts[: len(lengths) + 1].tolist() == batch.starts.tolist() and filled.starts.dtype == torch.int32
    if types:
        assert filled.token_type_ids is not None and filled.token_type_ids[count:].eq(0).all()
    fresh = Layout.of(filled.starts)
    assert filled.layout.lengths == fresh.lengths and filled.layout.longest == batch.layout.longest
    assert filled.layout.position_ids.equal(fresh.position_ids) and filled.layout.rows.equal(fresh.rows)
    ends = torch.tensor([group.tokens for group in filled.layout.groups]).cumsum(0).tolist()
    assert [group.first for group in filled.layout.groups] == [0, *ends[:-1]] and ends[-1] == count + more


# --- runs --------------------------------------------------------------------------------------------------------------
def compiling(corpus: Path, **changes: Any) -> RunConfig:
    machine, examples = Machine(device="cpu", threads=1, workers=0, compile=True), Pairs(max_length=64)
    return small_run(corpus, machine=machine, examples=examples, until=Steps(steps=6), **changes)


def test_a_compiled_run_counts_the_same_tokens_and_learns_the_same(small_corpus: Path, tmp_path: Path) -> None:
    run = compiling(small_corpus, dropout=0.0)
    plain = replace(run, machine=replace(run.machine, compile=False))
    for name, one in (("plain", plain), ("compiled", run)):
        assert road.pretrain(one, tmp_path / name, view=ignore).finished
    for expected, found in zip(losses(tmp_path / "plain"), losses(tmp_path / "compiled"), strict=True):
        if expected["kind"] != "sample":
            assert found["losses"] == pytest.approx(expected["losses"], rel=1e-4)
        for key in ("kind", "step", "tokens", "padding", "learning_rate"):
            assert found.get(key) == expected.get(key)


def test_the_first_step_of_a_run_compiles_and_no_other(small_corpus: Path, tmp_path: Path) -> None:
    said: list[str] = []
    made: list[int] = []

    def view(record: dict[str, Any]) -> None:
        if record["kind"] == "message":
            said.append(record["message"])
        elif record["kind"] == "step":
            made.append(graphs())

    road.pretrain(compiling(small_corpus), tmp_path / "run", view=view)
    assert len(made) == 6 and made[0] > 0 and len(set(made)) == 1
    assert "The first step waits for the compiler, up to some minutes." in said


def test_resume_is_invisible_when_compiled(small_corpus: Path, tmp_path: Path) -> None:
    run = compiling(small_corpus)  # with dropout: compiled code draws from the state that a checkpoint keeps
    road.pretrain(run, tmp_path / "whole", view=ignore)
    road.pretrain(run, tmp_path / "stopped", view=stop_after(3))
    torch.compiler.reset()
    assert road.resume(tmp_path / "stopped", view=ignore).finished
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")


def test_all_batches_are_filled_to_one_size_and_to_a_few_where_examples_are_long() -> None:
    run = RunConfig(examples=Documents(max_length=100), objectives=(MaskedTokens(),))
    assert run.batch.tokens == 4096 and filled_tokens(run) == 4224  # 4,196 and what is missing to 66 · 64
    assert filled_tokens(replace(run, examples=Documents(max_length=512), batch=BatchSize(tokens=1024))) == 192


def test_a_missing_compiler_is_said_before_any_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "inductor")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UnmaskError, match="needs a C"):
        compile_networks(*our_network(VARIANTS["bert"], goals_of("bert")), tokens=FILLED)
