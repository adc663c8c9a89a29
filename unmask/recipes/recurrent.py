"""The recipe of words that read their sentence: ELMo."""

from __future__ import annotations

from unmask import presets
from unmask.config import AdamW, BatchSize, BidirectionalWords, EncoderConfig, FullSentences, Linear, RunConfig
from unmask.recipes.parts import STEPS, fitting

CHARACTERS = BatchSize(tokens=16384)  # some 3,000 English words
RATE = 2e-3  # of Adam, at a width of 256


def elmo(encoder: EncoderConfig | None = None) -> RunConfig:
    """ELMo (Peters et al. 2018, section 3.4): the next word from the left and from the right, over words made of characters.

    Published: sentences of a billion words in any order, 10 passes in batches of 7,680 words, each going on where the one before
    ended; Adagrad at 0.2, gradients clipped at 10, and a vocabulary of 793,471 words by samples of 8,192 of them. Here frequent
    words are told apart at once and rare ones in groups, and no state outlives its batch.
    """
    encoder = encoder or presets.elmo_mini()
    return RunConfig(
        encoder=encoder,
        examples=FullSentences(max_length=fitting(512, encoder)),
        objectives=(BidirectionalWords(),),
        optimizer=AdamW(learning_rate=float(f"{RATE * min(1.0, 256 / encoder.hidden_size):.1e}")),
        schedule=Linear(warmup=0.05),
        batch=CHARACTERS,
        until=STEPS,
    )
