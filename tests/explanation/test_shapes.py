"""Shapes and parameters of the published sizes, against networks that really run."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from texts import ENGLISH, OTHER, PAIRS, explained, measured, size
from torch import nn

from unmask import presets
from unmask.explanation import explain
from unmask.explanation.ask import ask
from unmask.explanation.batches import make_batch, read
from unmask.explanation.pieces import manner_of
from unmask.explanation.shapes import shapes_of
from unmask.nn import attend
from unmask.nn.cost import count_parameters
from unmask.road.model import build, outline
from unmask.text.words import WordSplitter

SOME = [("bert_tiny", "nsp"), ("roberta_base", "mlm"), ("albert_base", "sop"), ("spanbert_base", "span")]
SOME += [
    ("electra_small", "rtd"),
    ("deberta_base", "ngram"),
    ("deberta_v2_xlarge", "wwm"),
    ("deberta_v3_xsmall", "rtd"),
]
SOME += [("modernbert_base", "mlm"), ("neobert", "mlm"), ("gpt2", "causal"), ("t5_small", "infill")]
# Steps by their module, in encoder, generator or decoder.
LAYER = {
    "attention.out": "attention output",
    "feed_forward.up": "feed-forward, up",
    "feed_forward.down": "feed-forward, down",
    "cross.out": "output of attention to the encoder",
}


@pytest.mark.parametrize(("preset", "objective"), SOME)
def test_shapes_are_those_of_a_network_that_runs(preset: str, objective: str) -> None:
    """Of each family at small size: hooks on its modules and on the attention kernel, on a CPU, two sequences."""
    asked = ask([ENGLISH, OTHER], objective, preset, None, None, 1)
    vocabulary = asked.tokenizer.vocabulary()
    model = build(asked.small, vocabulary)
    source = read([ENGLISH, OTHER], asked.tokenizer, WordSplitter())
    batch = make_batch(asked.small, source, vocabulary, model.objective.prepare).prepared
    empty = outline(asked.small, vocabulary)
    stages = shapes_of(empty.encoder, empty.objective, batch)
    seen, kernels = _run(model.encoder, model.objective, batch)
    for path, shape in seen.items():
        owner = "decoder" if ".decoder." in path else "generator" if ".generator." in path else "encoder"
        for end, name in LAYER.items():
            if path.endswith(f"blocks.0.{end}"):
                found = [s.shape for s in stages if s.part.startswith(f"{owner}, layer 1") and s.name == name]
                assert found == [shape], (path, found)
        if path.endswith(".head") and "mlm" in path:
            owners = ("MLM head", "generator's MLM head")
            assert shape in [s.shape for s in stages if s.part in owners and s.name == "logits"]
    scores = {s.shape for s in stages if s.name.startswith("scores")}
    contexts = {s.shape for s in stages if s.name.startswith("context")}
    assert {(*q[:-1], k[-2]) for q, k in kernels} == scores and {q for q, _ in kernels} == contexts


def _run(encoder: nn.Module, objective: nn.Module, batch: Any) -> tuple[dict[str, tuple[int, ...]], set[Any]]:
    """Shapes of the outputs of all modules by path, and of queries and keys at the kernel."""
    seen: dict[str, tuple[int, ...]] = {}
    kernels = set()

    def hook(path: str) -> Callable[..., None]:
        def keep(module: nn.Module, given: Any, out: Any) -> None:
            if isinstance(out, torch.Tensor):
                seen.setdefault(path, tuple(out.shape))

        return keep

    def kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **more: Any) -> torch.Tensor:
        kernels.add((tuple(q.shape), tuple(k.shape)))
        return true(q, k, v, **more)

    true = F.scaled_dot_product_attention
    for root, module in (("encoder", encoder), ("objective", objective)):
        for name, part in module.named_modules():
            part.register_forward_hook(hook(f"{root}.{name}"))
    padded = mock.patch.object(attend, "_as_it_stands", lambda layout: True)  # through torch's own attention
    with torch.no_grad(), padded, mock.patch.object(F, "scaled_dot_product_attention", kernel):
        objective(encoder, batch)
    return seen, kernels


@pytest.mark.parametrize(("preset", "objective"), PAIRS)
def test_letters_stand_for_the_numbers_beside_them(preset: str, objective: str) -> None:
    found = explained(preset, objective)
    published = presets.preset(preset)()
    for name, letter in (
        ("hidden_size", "H"),
        ("vocab_size", "V"),
        ("intermediate_size", "F"),
        ("num_hidden_layers", "L"),
    ):
        assert found.sizes[letter] == getattr(published, name)
    assert len(found.shapes) > 10
    for stage in found.shapes:
        for letters, number in zip(stage.letters, stage.shape, strict=True):
            assert measured(letters) or size(letters, found.sizes) == number, stage
        assert stage.padded == stage.letters or stage.padded[-1] == stage.letters[-1]
    targets = {len(loss.targets) for loss in found.losses}
    assert all(
        stage.shape[0] in targets for stage in found.shapes if stage.name == "logits" and stage.letters[0] == "M"
    )


def test_scores_are_shown_for_all_sequences_at_once() -> None:
    """As one padded grid, the way they are taught; how a kernel saves the padding is its own affair."""
    found = explain(ENGLISH, second="A dog.", preset="bert_base")
    scores = [stage.shape for stage in found.shapes if stage.name.startswith("scores")]
    longest = max(len(one.input_ids) for one in found.sequences)
    assert scores == [(2, 12, longest, longest)]


@pytest.mark.parametrize(("preset", "objective"), PAIRS)
def test_parts_add_up_to_all_parameters(preset: str, objective: str) -> None:
    found = explained(preset, objective)
    asked = ask([ENGLISH], objective, preset, None, None, 0)
    model = outline(asked.run, asked.tokenizer.vocabulary())
    assert found.parameters == count_parameters(model.encoder, model.objective)
    assert sum(part.parameters for part in found.parts) == found.parameters
    assert sum(part.share for part in found.parts) == pytest.approx(1.0)
    own = sum(part.parameters for part in found.parts if part.part == "encoder")
    assert own == count_parameters(model.encoder)
    assert len({(part.part, part.name) for part in found.parts}) == len(found.parts)


def test_bert_base_falls_into_its_well_known_parts() -> None:
    """Worked by hand: 768 wide, 12 layers, 3,072 in between, 30,522 pieces, 512 places, 2 segments."""
    parts = {(p.part, p.name): p.parameters for p in explain(ENGLISH, preset="bert_base", objective="nsp").parts}
    assert parts["encoder", "token table"] == 30522 * 768
    assert parts["encoder", "position table"] == 512 * 768
    assert parts["encoder", "segment table"] == 2 * 768
    assert parts["encoder", "attention: queries, keys, values"] == 12 * 3 * (768 * 768 + 768)
    assert parts["encoder", "attention: output"] == 12 * (768 * 768 + 768)
    assert parts["encoder", "feed-forward"] == 12 * (768 * 3072 + 3072 + 3072 * 768 + 768)
    assert parts["encoder", "norms of the layers"] == 12 * 2 * 2 * 768
    assert parts["MLM head", "one bias a token"] == 30522
    assert parts["NSP head", "answer"] == 2 * 768 + 2


def test_shared_layers_count_once_and_say_so() -> None:
    parts = explain(ENGLISH, preset="albert_base").parts
    (feed_forward,) = (part for part in parts if part.name == "feed-forward")
    assert feed_forward.parameters == 768 * 3072 + 3072 + 3072 * 768 + 768
    assert feed_forward.note == "1 set of weights for 12 layers, counted once"


@pytest.mark.parametrize("preset", ["deberta_v2_xxlarge", "albert_xxlarge", "ettin_1b"])
def test_the_largest_presets_take_neither_time_nor_memory(preset: str) -> None:
    """1.6 G parameters are 6 GB; on the meta device they are shapes only."""
    explain(ENGLISH)  # what is loaded once
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert explain(ENGLISH, preset=preset).parameters > 100_000_000
    assert time.process_time() - began < 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


def test_every_preset_knows_its_tokenizer() -> None:
    assert {manner_of(presets.preset(name)) for name in presets.names()} >= {"bert", "roberta", "albert", "gpt2", "t5"}


def test_a_given_tokenizer_decides_the_vocabulary_as_in_a_run(tmp_path: Any) -> None:
    asked = ask([ENGLISH], "mlm", "bert_base", None, None, 0)
    asked.tokenizer.save(tmp_path)
    found = explain(ENGLISH, preset="bert_base", tokenizer=tmp_path)
    assert found.sizes["V"] == asked.tokenizer.vocab_size and not found.tokenizer.learned
    assert found.sizes["H"] == presets.bert_base().hidden_size
