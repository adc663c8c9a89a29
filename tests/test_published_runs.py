"""What each recipe learns is what was published; how much at a time is for one machine."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
import torch

from unmask import presets, recipes, settings
from unmask.batch import PackedBatch, Targets
from unmask.config import (
    BidirectionalWords,
    Blocks,
    Disentangled,
    Documents,
    FullSentences,
    Infill,
    MaskedTokens,
    NextTokens,
    Pairs,
    Phase,
    ReplacedTokens,
    Rope,
    RunConfig,
    SentenceOrder,
    SentencePair,
    SpanBoundary,
    WarmupStableDecay,
)
from unmask.nn.encoder import Encoder
from unmask.objectives.build import build_objective
from unmask.text.vocabulary import Vocabulary

MLM, ELECTRA = MaskedTokens(), MaskedTokens(replace_mask=0.85, replace_random=0.0)
ALL_MASKED = {"replace_mask": 1.0, "replace_random": 0.0}

# FACTS of the released code and the papers: (examples, objectives)
PUBLISHED = {
    "bert": (Pairs(max_length=128), (MLM, SentencePair())),
    "bert_chinese": (Pairs(max_length=128), (MaskedTokens(unit="word"), SentencePair())),
    "mlm_only": (FullSentences(max_length=128), (MLM,)),
    "roberta": (FullSentences(max_length=512), (MLM,)),
    "camembert": (FullSentences(max_length=512), (MaskedTokens(unit="word"),)),
    "albert": (Pairs(negatives="swapped", max_length=512), (MaskedTokens(unit="ngram"), SentenceOrder())),
    "spanbert": (Documents(max_length=512), (MaskedTokens(unit="span"), SpanBoundary(position_size=200))),
    "electra": (FullSentences(max_length=128), (ReplacedTokens(masking=ELECTRA, weight=50, generator_width=1),)),
    "electra_paper": (FullSentences(max_length=128), (ReplacedTokens(masking=ELECTRA, generator_width=1 / 4),)),
    "electra_large": (
        FullSentences(max_length=512),
        (ReplacedTokens(masking=replace(ELECTRA, mask_rate=0.25), generator_width=1 / 4),),
    ),
    "deberta": (FullSentences(max_length=512), (MaskedTokens(unit="ngram", enhanced_decoder=True),)),
    "deberta_v3": (
        FullSentences(max_length=512),
        (
            ReplacedTokens(
                masking=MaskedTokens(enhanced_decoder=True, **ALL_MASKED), weight=10, generator_width=1,
                generator_depth=0.5, sharing="gradient_disentangled", add_first=True,
            ),
        ),
    ),
    "modernbert": (Documents(max_length=1024), (MaskedTokens(mask_rate=0.3),)),
    "modernbert_long": (Documents(max_length=1024), (MaskedTokens(mask_rate=0.3),)),
    "ettin_long": (Documents(max_length=1024), (MaskedTokens(mask_rate=0.3),)),
    "neobert": (Documents(max_length=1024), (MaskedTokens(mask_rate=0.2, **ALL_MASKED),)),
    "gpt2": (Blocks(max_length=1024, frame=False), (NextTokens(),)),
    "t5": (Blocks(max_length=512), (Infill(mask_rate=0.15, mean_span=3.0),)),
    "elmo": (FullSentences(max_length=512), (BidirectionalWords(),)),
    "demo": (Pairs(max_length=32), (MaskedTokens(frequency_bias=True), SentencePair())),
}  # fmt: skip


def test_every_recipe_is_asserted_and_every_preset_has_one() -> None:
    assert set(PUBLISHED) == set(recipes.RECIPES)
    used = {recipes.of_preset(presets.preset(name)).__name__ for name in presets.names()}
    assert set(recipes.RECIPES) - used == {"mlm_only", "electra_paper", "modernbert_long", "ettin_long", "demo"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_examples_and_objectives_are_the_published_ones(name: str) -> None:
    run = recipes.recipe(name)
    assert (run.examples, run.objectives) == PUBLISHED[name]
    assert run.dropout == 0.0


BETAS = {"roberta": (0.98, 1e-6), "camembert": (0.98, 1e-6), "modernbert": (0.98, 1e-6), "neobert": (0.95, 1e-8),
         "bert": (0.999, 1e-6), "electra": (0.999, 1e-6), "deberta_v3": (0.999, 1e-6), "spanbert": (0.999, 1e-8)}  # fmt: skip


@pytest.mark.parametrize("name", BETAS)
def test_the_optimizers_memory_is_the_published_one(name: str) -> None:
    optimizer = recipes.recipe(name).optimizer
    assert (optimizer.beta2, optimizer.epsilon) == BETAS[name] and optimizer.beta1 == 0.9


def test_modernberts_weight_decay_takes_off_what_the_published_one_does() -> None:
    """A hundred-thousandth at every step at the peak rate of 8e-4, where ours is a share of the rate."""
    assert recipes.modernbert().optimizer.weight_decay * 8e-4 == pytest.approx(1e-5)


def test_the_released_electras_have_generators_256_wide() -> None:
    shares = {"small": 1.0, "base": 1 / 3, "large": 1 / 4}
    for size, share in shares.items():
        run = recipes.recipe(preset=f"electra_{size}")
        (goal,) = run.objectives
        assert isinstance(goal, ReplacedTokens) and goal.generator_width == share and goal.sharing == "tied"
        assert run.encoder.hidden_size * goal.generator_width == 256 and goal.generator_depth == 1.0
        assert goal.masking.mask_rate == (0.25 if size == "large" else 0.15)
    assert recipes.electra_paper().encoder == recipes.electra().encoder == presets.electra_small()


@pytest.mark.parametrize(("size", "layers"), [("xsmall", 6), ("small", 3), ("base", 6), ("large", 12)])
def test_deberta_v3_has_a_generator_of_half_the_depth(size: str, layers: int) -> None:
    run = recipes.recipe(preset=f"deberta_v3_{size}")
    (goal,) = run.objectives
    assert isinstance(goal, ReplacedTokens) and run.encoder.num_hidden_layers * goal.generator_depth == layers


@pytest.mark.parametrize(("width", "rate"), [(64, 5e-4), (256, 5e-4), (512, 2.5e-4), (1024, 1.3e-4), (4096, 3.1e-5)])
def test_the_peak_rate_falls_as_the_width_grows(width: int, rate: float) -> None:
    encoder = replace(presets.bert_tiny(), hidden_size=width)
    assert recipes.bert(encoder).optimizer.learning_rate == recipes.roberta(encoder).optimizer.learning_rate == rate


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_the_length_of_examples_fits_an_encoder_with_few_places(name: str) -> None:
    usual = recipes.recipe(name).encoder
    run = recipes.RECIPES[name](encoder=replace(usual, max_position_embeddings=48))
    assert run.examples.max_length == (32 if name == "demo" else 48)


# --- phases -------------------------------------------------------------------------------------------------------------
def phases_of(run: RunConfig) -> list[RunConfig]:
    """The run of each phase, with all that was changed before it."""

    def after(before: RunConfig, phase: Phase) -> RunConfig:
        return replace(settings.override(RunConfig, before, phase.changes), until=phase.until)

    return list(accumulate(run.phases, after, initial=replace(run, phases=())))


def test_modernbert_begins_with_theta_10000_and_ends_with_its_own() -> None:
    """Section 2.2: 1,024 tokens at a constant rate; 8,192 at 3/8 of it, theta 160,000 in global layers; then 1 − √x."""
    short, long, decay = phases_of(recipes.modernbert_long())
    assert short.encoder.positions == Rope(theta=10_000.0)
    assert long.encoder == decay.encoder == presets.modernbert_base()
    assert [phase.examples.max_length for phase in (short, long, decay)] == [1024, 8192, 8192]
    rates = [phase.optimizer.learning_rate for phase in (short, long, decay)]
    assert rates[1] == rates[2] == pytest.approx(rates[0] * 3e-4 / 8e-4, rel=1e-2)
    assert short.schedule == WarmupStableDecay(warmup=0.05, decay=0.0)
    assert long.schedule == WarmupStableDecay(warmup=0.0, decay=0.0)
    assert decay.schedule == WarmupStableDecay(warmup=0.0, decay=1.0, final=0.001)
    assert {phase.objectives for phase in (short, long, decay)} == {(MaskedTokens(mask_rate=0.3),)}


def test_ettin_halves_its_rate_while_the_context_grows_and_masks_less_at_the_end() -> None:
    short, long, decay = phases_of(recipes.ettin_long())
    assert short.encoder.positions == Rope(theta=10_000.0)
    assert long.encoder == decay.encoder == presets.ettin_17m()
    assert long.examples.max_length == decay.examples.max_length == 7999
    assert long.schedule == WarmupStableDecay(warmup=0.0, decay=1.0, final=0.5)
    assert decay.schedule == WarmupStableDecay(warmup=0.0, decay=1.0, final=0.04)
    assert long.optimizer == short.optimizer
    assert decay.optimizer.learning_rate == pytest.approx(long.optimizer.learning_rate / 2, rel=1e-2)
    assert long.objectives == (MaskedTokens(mask_rate=0.3),) and decay.objectives == (MaskedTokens(mask_rate=0.15),)


# --- on a small machine -------------------------------------------------------------------------------------------------
SMALLER = ["hidden_size=64", "num_attention_heads=2", "num_hidden_layers=2", "intermediate_size=96"]
ALSO = {
    "albert": ["embedding_size=16"], "electra_small": ["embedding_size=32"],
    "modernbert": ["local_attention=16", "positions.theta=20000", "positions.local_theta=500"],
    "ettin": ["positions.theta=20000"], "neobert": ["positions.theta=20000"],
    "deberta_v": ["positions.position_buckets=16", "positions.max_relative_positions=64"],
    "mdeberta": ["positions.position_buckets=16"], "deberta_b": ["positions.max_relative_positions=64"],
    "t5": ["positions.num_buckets=16", "head_size=16"], "roberta": ["positions.after_padding=false"],
}  # fmt: skip


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_can_be_made_smaller_setting_by_setting(name: str) -> None:
    more = [setting for begins, found in ALSO.items() if name.startswith(begins) for setting in found]
    changes = [f"encoder.{setting}" for setting in SMALLER + more]
    encoder = settings.override(RunConfig, recipes.recipe(preset=name), changes).encoder
    found = settings.plain(encoder)
    for setting in SMALLER + more:
        path, _, value = setting.partition("=")
        at = found
        for part in path.split("."):
            at = at[part]
        assert str(at).lower().removesuffix(".0") == value
    assert encoder.positions.kind == presets.preset(name)().positions.kind


VOCABULARY = Vocabulary(
    size=96, pad_token_id=0, unk_token_id=1, cls_token_id=2, sep_token_id=3, mask_token_id=4,
    special_ids=(0, 1, 2, 3, 4, *range(86, 96)), sentinel_ids=tuple(range(86, 96)),
)  # fmt: skip


def made_up_batch(length: int) -> PackedBatch:
    """Five sequences of pairs, words of two tokens."""
    draw = np.random.default_rng(0)
    rows = [[2, *draw.integers(5, 86, length - 3).tolist(), 3, 3] for _ in range(5)]
    batch = PackedBatch.pack(rows, [[0] * (length // 2) + [1] * (length - length // 2)] * 5)
    pair = Targets(torch.arange(5), torch.tensor([0, 1, 0, 1, 1]))
    return batch.with_(
        word_starts=torch.arange(len(batch.input_ids)) % 2 == 0, examples=torch.arange(5), labels={"pair": pair}
    )


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_every_recipe_at_toy_size_has_a_finite_loss_and_a_gradient_everywhere_in_the_encoder(name: str) -> None:
    run = recipes.shrunk(recipes.recipe(name), hidden=32, layers=3, length=32)
    run = replace(run, encoder=replace(run.encoder, vocab_size=VOCABULARY.size))
    encoder, objective = Encoder(run.encoder), build_objective(run.encoder, run.objectives, VOCABULARY)
    losses = objective(encoder, objective.prepare(made_up_batch(32), seed=1))
    torch.stack([loss.weight * loss.total / max(1, loss.count) for loss in losses.values()]).sum().backward()
    assert all(torch.isfinite(loss.total) for loss in losses.values())
    assert [
        key for key, p in encoder.named_parameters() if p.requires_grad and p.grad is None and "segments" not in key
    ] == []


@pytest.mark.parametrize("name", presets.names())
def test_a_shrunk_run_keeps_what_makes_the_family_what_it_is(name: str) -> None:
    run, whole = (recipes.shrunk(recipes.recipe(preset=name), layers=4), recipes.recipe(preset=name))
    small, large = run.encoder, whole.encoder
    assert (small.hidden_size, small.num_hidden_layers, small.num_attention_heads) == (64, 4, 2)
    assert (run.objectives, run.schedule, run.batch) == (whole.objectives, whole.schedule, whole.batch)
    same = ("hidden_act", "gated", "type_vocab_size", "causal", "scale_attention", "norm", "norm_first", "first_norm",
            "embedding_norm", "linear_bias", "key_bias", "conv_kernel_size", "layer_norm_eps", "initializer",
            "head_transform", "tie_word_embeddings", "pad_token_id", "num_hidden_groups", "position_offset")  # fmt: skip
    assert [getattr(small, field) for field in same] == [getattr(large, field) for field in same]
    assert bool(small.embedding_size) == bool(large.embedding_size) and small.table_size <= 64
    assert small.intermediate_size / 64 == pytest.approx(large.intermediate_size / large.hidden_size, rel=0.05)
    windows = [bool(small.window_of(layer)) for layer in range(4)]
    assert windows == [bool(large.window_of(layer)) for layer in range(4)] and small.window_of(1) < 16
    assert run.examples.max_length == small.max_position_embeddings == 64
    if isinstance(large.positions, Disentangled):
        farther = replace(
            large.positions, position_buckets=large.positions.position_buckets // 8, max_relative_positions=64
        )
        assert small.positions == farther
    else:
        assert small.positions == large.positions


def test_a_shrunk_run_keeps_the_proportions_of_its_phases() -> None:
    short, long, decay = phases_of(recipes.shrunk(recipes.modernbert_long(), length=32))
    assert [phase.examples.max_length for phase in (short, long, decay)] == [32, 256, 256]
    assert long.encoder.max_position_embeddings == 256 and long.encoder.local_attention == 4
    assert long.optimizer.learning_rate < short.optimizer.learning_rate
