"""Where an answer begins and ends: the loss of transformers, window by window, in full precision."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import SMALL, alone, padded, randomise, sequences
from torch import Tensor, nn

from unmask.batch import PackedBatch, Targets
from unmask.config import Answering
from unmask.config.tasks import HeadShape
from unmask.hub.files import build_encoder, load_model
from unmask.nn.encoder import Encoder
from unmask.objectives.answer import AnswerObjective
from unmask.objectives.base import combine

LINEAR = HeadShape(act=None, dropout=0.0)
SIZES = dict(vocab_size=97, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=80)
THEIRS = {
    "bert": (hf.BertForQuestionAnswering, hf.BertConfig(**SIZES, max_position_embeddings=32)),
    "electra": (hf.ElectraForQuestionAnswering, hf.ElectraConfig(**SIZES, embedding_size=16)),
    "deberta": (
        hf.DebertaV2ForQuestionAnswering,
        hf.DebertaV2Config(
            **SIZES, relative_attention=True, position_biased_input=False, pos_att_type="c2p|p2c", position_buckets=8,
            share_att_key=True, norm_rel_ebd="layer_norm", type_vocab_size=0,
        ),
    ),
}  # fmt: skip


def randomise_lively(module: nn.Module, seed: int) -> None:
    """With norms about 1, so that tokens differ in their last states, and guesses are not all alike."""
    randomise(module, seed)
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            part.weight.data += 1


def model() -> tuple[Encoder, AnswerObjective]:
    encoder, objective = Encoder(SMALL), AnswerObjective(SMALL, Answering(), LINEAR)
    randomise_lively(encoder, 1)
    randomise(objective, 2)
    return encoder.eval(), objective.eval()


def labelled(batch: PackedBatch, seed: int = 0) -> PackedBatch:
    """With random answers; the first window holds none."""
    begin_B, lengths_B = batch.starts[:-1].long(), batch.starts.diff()
    draw = torch.Generator().manual_seed(seed)
    first_B = (torch.rand(len(lengths_B), generator=draw) * lengths_B).long()
    last_B = first_B + (torch.rand(len(lengths_B), generator=draw) * (lengths_B - first_B)).long()
    first_B[0] = last_B[0] = 0
    zeros = torch.zeros_like(begin_B)
    return batch.with_(labels={"start": Targets(begin_B + first_B, zeros), "end": Targets(begin_B + last_B, zeros)})


def mean_loss(encoder: Encoder, objective: AnswerObjective, batch: PackedBatch) -> Tensor:
    return combine(objective(encoder, batch), objective.counts(batch))


@pytest.mark.parametrize("name", THEIRS)
def test_loss_and_gradient_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Window by window: in a padded batch, padding takes part in their softmax."""
    build, config = THEIRS[name]
    theirs = build(config).eval()
    randomise_lively(theirs, 3)
    theirs.save_pretrained(tmp_path)
    ours, objective = build_encoder(load_model(tmp_path)), AnswerObjective(SMALL, Answering(), LINEAR).eval()
    objective.head.out.load_state_dict(theirs.qa_outputs.state_dict())
    batch = labelled(sequences([5, 9, 17, 30]))
    batch = batch.with_(token_type_ids=None) if name == "deberta" else batch
    said, expected = objective.predict(ours, batch), []
    for row, one in enumerate(alone(batch)):
        begin, end = batch.starts[row : row + 2].tolist()
        start, stop = (batch.labels[side].where[row : row + 1] - begin for side in ("start", "end"))
        out = theirs(**padded(one), start_positions=start, end_positions=stop)
        expected.append(out.loss)
        for side, logits in (("start", out.start_logits), ("end", out.end_logits)):
            assert (said[side][begin:end] - logits[0]).abs().max() < 2e-5
    loss, their_loss = mean_loss(ours, objective, batch), torch.stack(expected).mean()
    assert loss.item() == pytest.approx(their_loss.item(), abs=2e-5)
    assert all(logits.std() > 0.2 for logits in said.values()), "where all are equal, any softmax gives the same"
    for found in (loss, their_loss):
        found.backward()
    assert (objective.head.out.weight.grad - theirs.qa_outputs.weight.grad).abs().max() < 2e-5


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 32), min_size=1, max_size=5), st.integers(0, 999))
def test_a_window_is_scored_as_if_it_were_alone(lengths: list[int], seed: int) -> None:
    encoder, objective = model()
    batch = labelled(sequences(lengths, seed=seed), seed)
    with torch.no_grad():
        together, said = objective(encoder, batch), objective.predict(encoder, batch)
        for side in ("start", "end"):
            where, logits = batch.labels[side].where, []
            for one in alone(batch):
                logits.append(objective.predict(encoder, one)[side])
            assert (said[side] - torch.cat(logits)).abs().max() < 1e-5
            places = (where - batch.starts[:-1]).tolist()
            literal = -sum(row.double().log_softmax(0)[place] for row, place in zip(logits, places, strict=True))
            assert together[side].total.item() == pytest.approx(float(literal), rel=1e-5, abs=1e-5)
            assert together[side].count == len(lengths) == objective.counts(batch)[side]
            right = sum(int(row.argmax()) == place for row, place in zip(logits, places, strict=True))
            assert together[side].correct == right


def test_a_head_of_zeros_guesses_evenly_inside_each_window() -> None:
    encoder, objective = model()
    torch.nn.init.zeros_(objective.head.out.weight)
    batch = labelled(sequences([5, 9, 30]))
    expected = sum(map(math.log, (5, 9, 30))) / 3
    assert mean_loss(encoder, objective, batch).item() == pytest.approx(expected, abs=1e-5)


def test_micro_batches_give_the_gradient_of_the_whole() -> None:
    encoder, objective = model()
    whole = labelled(sequences([5, 9, 17, 30]))
    mean_loss(encoder, objective, whole).backward()
    expected = objective.head.out.weight.grad.clone()
    objective.zero_grad()
    begins = whole.starts.tolist()
    for row, one in enumerate(alone(whole)):
        labels = {s: Targets(t.where[row : row + 1] - begins[row], t.value[:1]) for s, t in whole.labels.items()}
        combine(objective(encoder, one.with_(labels=labels)), objective.counts(whole)).backward()
    assert (objective.head.out.weight.grad - expected).abs().max() < 1e-5


def test_logits_and_loss_are_in_full_precision_under_autocast() -> None:
    encoder, objective = model()
    batch = labelled(sequences([5, 30]))
    hidden = encoder(batch).detach()
    plain = objective.loss(encoder, [hidden], batch)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = objective.loss(encoder, [hidden], batch)
        assert all(logits.dtype == torch.float32 for logits in objective.predict(encoder, batch).values())
    for side in ("start", "end"):
        assert mixed[side].total.dtype == torch.float32
        assert torch.allclose(mixed[side].total, plain[side].total, rtol=1e-6)


def test_a_published_head_with_a_layer_of_its_own_is_built_as_it_is() -> None:
    """ModernBERT's class goes through a dense layer and a norm."""
    objective = AnswerObjective(SMALL, Answering(), HeadShape(act="gelu", normed=True, dropout=0.0))
    assert {name.split(".")[0] for name in objective.head.state_dict()} == {"dense", "norm", "out"}
    batch = sequences([5, 30])
    assert objective.flops(SMALL, batch) > 2 * 35 * 48 * 48
