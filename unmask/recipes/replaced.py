"""Recipes that tell replaced tokens from original ones: ELECTRA and DeBERTa-v3."""

from __future__ import annotations

from dataclasses import replace

from unmask import presets
from unmask.config import AdamW, EncoderConfig, FullSentences, Linear, MaskedTokens, ReplacedTokens, RunConfig
from unmask.recipes.parts import BATCH, SMALL_BATCH, STEPS, fitting, peak_rate


def electra(encoder: EncoderConfig | None = None) -> RunConfig:
    """ELECTRA as released (Clark et al. 2020, section 2 and table 6): a generator 256 wide beside an encoder of any width.

    That is all of a small encoder's width, a third of a base one's. The loss is MLM + 50 × RTD. Published: batches of 128
    examples of 128 tokens for a million steps at 5e-4 (small), of 256 and 512 tokens for 766,000 at 2e-4 (base); 10,000 steps
    of warm-up.
    """
    encoder = encoder or presets.electra_small()
    return _rtd(encoder, ReplacedTokens(generator_width=min(1.0, 256 / encoder.hidden_size)))


def electra_paper(encoder: EncoderConfig | None = None) -> RunConfig:
    """ELECTRA small as in the paper (table 6): its generator has a quarter of the encoder's width."""
    return _rtd(encoder or presets.electra_small(), ReplacedTokens(generator_width=0.25))


def electra_large(encoder: EncoderConfig | None = None) -> RunConfig:
    """ELECTRA large (table 6): 25 % are hidden, and the generator, 256 wide, has a quarter of the width.

    Published: batches of 2,048 examples of 512 tokens for 400,000 steps or more, at 2e-4 with 10,000 steps of warm-up.
    """
    run = electra(encoder or presets.electra_large())
    (goal,) = run.objectives
    assert isinstance(goal, ReplacedTokens)
    return replace(run, objectives=(replace(goal, masking=replace(goal.masking, mask_rate=0.25)),))


def deberta_v3(encoder: EncoderConfig | None = None) -> RunConfig:
    """DeBERTa-v3 (He et al. 2023, section 3): RTD with gradient-disentangled embeddings.

    The generator is as wide and half as deep, sees every target as [MASK] and guesses through the enhanced mask decoder. RTD
    weighs 10, the released code's default, where ELECTRA has 50. The released script: batches of 256 examples of 512 tokens
    (xsmall: 64) for a million steps, at 1e-4 (xsmall: 3e-4) with 10,000 steps of warm-up.
    """
    goal = ReplacedTokens(
        masking=MaskedTokens(replace_mask=1.0, replace_random=0.0, enhanced_decoder=True),
        weight=10.0,
        generator_width=1.0,
        generator_depth=0.5,
        sharing="gradient_disentangled",
        add_first=True,
    )
    return _rtd(encoder or presets.deberta_v3_xsmall(), goal)


def _rtd(encoder: EncoderConfig, goal: ReplacedTokens) -> RunConfig:
    """Small encoders read 128 tokens at a time, as ELECTRA small did; from base on it is 512."""
    small = encoder.hidden_size <= 256
    return RunConfig(
        encoder=encoder,
        examples=FullSentences(max_length=fitting(128 if small else 512, encoder)),
        objectives=(goal,),
        optimizer=AdamW(learning_rate=peak_rate(encoder)),
        schedule=Linear(warmup=0.05),
        batch=SMALL_BATCH if small else BATCH,
        until=STEPS,
    )
