"""Recipes of the networks since 2024: ModernBERT, Ettin, NeoBERT. The long ones extend the context in phases."""

from __future__ import annotations

from dataclasses import replace

from unmask import presets
from unmask.config import (
    AdamW,
    Cosine,
    Documents,
    EncoderConfig,
    MaskedTokens,
    Phase,
    Rope,
    RunConfig,
    StableAdamW,
    Steps,
    WarmupStableDecay,
)
from unmask.recipes.parts import BATCH, STEPS, fitting, peak_rate

# The published 1e-5 is taken off at every step at the peak rate of 8e-4, whatever the rate; ours is multiplied by the rate.
MODERNBERT_DECAY = 1e-5 / 8e-4


def modernbert(encoder: EncoderConfig | None = None) -> RunConfig:
    """ModernBERT's first phase (Warner et al. 2024, section 2.2) with its decay: 30 % hidden, 1,024 tokens, theta 10,000.

    The published run: 1.7 T tokens in batches of 4,608 examples, StableAdamW at 8e-4 (base), 3 G tokens of warm-up, then
    constant; the last phase decays by 1 − √x. `modernbert_long` has all phases.
    """
    encoder = encoder or presets.modernbert_base()
    return RunConfig(
        encoder=_with_short_theta(encoder),
        examples=Documents(max_length=fitting(1024, encoder)),
        objectives=(MaskedTokens(mask_rate=0.3),),
        optimizer=StableAdamW(learning_rate=peak_rate(encoder), beta2=0.98, weight_decay=MODERNBERT_DECAY),
        schedule=WarmupStableDecay(warmup=0.05, decay=0.1, final=0.001),
        batch=BATCH,
        until=STEPS,
    )


def modernbert_long(encoder: EncoderConfig | None = None) -> RunConfig:
    """ModernBERT's three phases (section 2.2): 1,024 tokens, then 8,192 with larger thetas, then the decay.

    Their lengths are to each other as the published 1,719, 250 and 50 G tokens. The second phase's rate is 3/8 of the first's
    (3e-4 after 8e-4), the third falls by 1 − √x to a thousandth. Thetas rise to the encoder's own, 160,000 for global layers
    and 10,000 for local ones.
    """
    encoder = encoder or presets.modernbert_base()
    run = modernbert(encoder)
    rate = f"optimizer.learning_rate={run.optimizer.learning_rate * 3 / 8:.3g}"
    return replace(
        run,
        schedule=WarmupStableDecay(warmup=0.05, decay=0.0),
        phases=(
            Phase(until=Steps(steps=2_900), changes=(*_extension(encoder), rate, "schedule.warmup=0.0")),
            Phase(until=Steps(steps=600), changes=("schedule.decay=1.0", "schedule.final=0.001")),
        ),
    )


def ettin_long(encoder: EncoderConfig | None = None) -> RunConfig:
    """Ettin's three phases (Weller et al. 2025): as ModernBERT's, but the second falls to half the rate.

    The third goes on from there to 4 % of it, with 15 % of the tokens hidden instead of 30.
    """
    encoder = encoder or presets.ettin_17m()
    run = modernbert(encoder)
    falling = ("schedule.warmup=0.0", "schedule.decay=1.0")
    half = f"optimizer.learning_rate={run.optimizer.learning_rate / 2:.3g}"
    return replace(
        run,
        schedule=WarmupStableDecay(warmup=0.05, decay=0.0),
        phases=(
            Phase(until=Steps(steps=2_900), changes=(*_extension(encoder), *falling, "schedule.final=0.5")),
            Phase(until=Steps(steps=600), changes=(half, "schedule.final=0.04", "objectives.mlm.mask_rate=0.15")),
        ),
    )


def neobert(encoder: EncoderConfig | None = None) -> RunConfig:
    """NeoBERT (Le Breton et al. 2025): 20 % hidden, every one as [MASK], on 1,024 tokens.

    The released code: 1e-4 with 2,000 steps of warm-up, falling as a cosine to a tenth over 900,000 steps; then 50,000 steps
    on 4,096 tokens.
    """
    encoder = encoder or presets.neobert()
    return RunConfig(
        encoder=encoder,
        examples=Documents(max_length=fitting(1024, encoder)),
        objectives=(MaskedTokens(mask_rate=0.2, replace_mask=1.0, replace_random=0.0),),
        optimizer=AdamW(learning_rate=peak_rate(encoder), beta2=0.95, epsilon=1e-8),
        schedule=Cosine(warmup=0.05, final=0.1),
        batch=BATCH,
        until=STEPS,
    )


def _with_short_theta(encoder: EncoderConfig) -> EncoderConfig:
    """Theta 10,000 in all layers, what ModernBERT begins with; encoders without theta stay as they are."""
    return replace(encoder, positions=Rope()) if isinstance(encoder.positions, Rope) else encoder


def _extension(encoder: EncoderConfig) -> tuple[str, ...]:
    """What makes the context longer: the encoder's own thetas, and up to 8,192 tokens."""
    if not isinstance(encoder.positions, Rope):
        raise ValueError(
            f"the context is extended by theta: positions must be of kind rope, not {encoder.positions.kind}"
        )
    return (
        f"encoder.positions.theta={encoder.positions.theta}",
        f"encoder.positions.local_theta={encoder.positions.local_theta}",
        f"examples.max_length={fitting(8192, encoder)}",
    )
