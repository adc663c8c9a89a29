"""Recipes that write text, for contrast: GPT-2 and T5."""

from __future__ import annotations

from dataclasses import replace

from unmask import presets
from unmask.config import AdamW, Blocks, Cosine, EncoderConfig, Infill, Linear, NextTokens, RunConfig
from unmask.recipes.parts import BATCH, STEPS, fitting, peak_rate


def gpt2(encoder: EncoderConfig | None = None) -> RunConfig:
    """GPT-2 (Radford et al. 2019, section 2): each token from those before it, on blocks of 1,024. Any encoder is made causal.

    Published: batches of 512 blocks; the optimizer is known from GPT alone (Radford et al. 2018, section 4.1): Adam at 2.5e-4
    with 2,000 steps of warm-up, falling as a cosine, weight decay 0.01.
    """
    encoder = replace(encoder or presets.gpt2(), causal=True)
    return RunConfig(
        encoder=encoder,
        examples=Blocks(max_length=fitting(1024, encoder), frame=False),
        objectives=(NextTokens(),),
        optimizer=AdamW(learning_rate=peak_rate(encoder), epsilon=1e-8),
        schedule=Cosine(warmup=0.05),
        batch=BATCH,
        until=STEPS,
    )


def t5(encoder: EncoderConfig | None = None) -> RunConfig:
    """T5 (Raffel et al. 2020, section 3.1): 15 % in spans of 3 on average become sentinels, which a decoder writes out.

    Published: Adafactor with batches of 128 examples of 512 tokens for 524,288 steps, at 0.01 and then 1/√step; AdamW here.
    """
    encoder = encoder or presets.t5_small()
    return RunConfig(
        encoder=encoder,
        examples=Blocks(max_length=fitting(512, encoder)),
        objectives=(Infill(),),
        optimizer=AdamW(learning_rate=peak_rate(encoder)),
        schedule=Linear(warmup=0.05),
        batch=BATCH,
        until=STEPS,
    )
