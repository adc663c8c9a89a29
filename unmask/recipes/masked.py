"""Recipes that guess hidden tokens with the networks of 2018 to 2021: BERT and what came of it."""

from __future__ import annotations

from unmask import presets
from unmask.config import (
    AdamW,
    BatchSize,
    Documents,
    EncoderConfig,
    FullSentences,
    Keeping,
    Linear,
    Machine,
    MaskedTokens,
    Minutes,
    Pairs,
    RunConfig,
    SentenceOrder,
    SentencePair,
    SpanBoundary,
)
from unmask.recipes.parts import BATCH, SMALL_BATCH, STEPS, fitting, peak_rate


def bert(encoder: EncoderConfig | None = None) -> RunConfig:
    """BERT's objectives (Devlin et al. 2019, section 3.1) with a batch for one machine, and the learning rate that goes with it.

    The published run had batches of 128,000 tokens for a million steps, at 1e-4 with 10,000 steps of warm-up, 90 % of them
    with examples of 128 tokens.
    """
    return _bert(encoder or presets.bert_mini(), MaskedTokens())


def bert_chinese(encoder: EncoderConfig | None = None) -> RunConfig:
    """BERT over Chinese characters with whole-word masking (Cui et al. 2019): words come from the corpus' segmenter."""
    return _bert(encoder or presets.bert_mini(21128), MaskedTokens(unit="word"))


def _bert(encoder: EncoderConfig, masked: MaskedTokens) -> RunConfig:
    return RunConfig(
        encoder=encoder,
        examples=Pairs(max_length=fitting(128, encoder)),
        objectives=(masked, SentencePair()),
        optimizer=AdamW(learning_rate=peak_rate(encoder)),
        schedule=Linear(warmup=0.05),
        batch=SMALL_BATCH,
        until=STEPS,
    )


def mlm_only(encoder: EncoderConfig | None = None) -> RunConfig:
    """MLM on full sentences of 128 tokens, no NSP: what RoBERTa (Liu et al. 2019, section 4) found to be enough."""
    encoder = encoder or presets.bert_mini()
    return RunConfig(
        encoder=encoder,
        examples=FullSentences(max_length=fitting(128, encoder)),
        objectives=(MaskedTokens(),),
        optimizer=AdamW(learning_rate=peak_rate(encoder), beta2=0.98),
        schedule=Linear(warmup=0.06),
        batch=SMALL_BATCH,
        until=STEPS,
    )


def roberta(encoder: EncoderConfig | None = None) -> RunConfig:
    """RoBERTa (Liu et al. 2019, sections 3.1 and 4): MLM with masks drawn anew every time, on full sentences of 512 tokens.

    Published: batches of 8,192 examples for 500,000 steps, at 6e-4 (base) with 24,000 steps of warm-up; no clipping.
    """
    return _full_sentences(encoder or presets.roberta_base(), MaskedTokens(), beta2=0.98)


def camembert(encoder: EncoderConfig | None = None) -> RunConfig:
    """CamemBERT (Martin et al. 2020): RoBERTa with whole words hidden.

    Published: batches of 8,192 examples for 100,000 steps, at 7e-4 with 10,000 steps of warm-up.
    """
    return _full_sentences(encoder or presets.camembert_base(), MaskedTokens(unit="word"), beta2=0.98)


def deberta(encoder: EncoderConfig | None = None) -> RunConfig:
    """DeBERTa 1 and 2 (He et al. 2021, section 3.2 and appendix A): n-grams hidden, guessed by the enhanced mask decoder.

    Published: batches of 2,048 examples of 512 tokens for a million steps, at 2e-4 with 10,000 steps of warm-up.
    """
    return _full_sentences(encoder or presets.deberta_base(), MaskedTokens(unit="ngram", enhanced_decoder=True))


def _full_sentences(encoder: EncoderConfig, masked: MaskedTokens, beta2: float = 0.999) -> RunConfig:
    return RunConfig(
        encoder=encoder,
        examples=FullSentences(max_length=fitting(512, encoder)),
        objectives=(masked,),
        optimizer=AdamW(learning_rate=peak_rate(encoder), beta2=beta2),
        schedule=Linear(warmup=0.05),
        batch=BATCH,
        until=STEPS,
    )


def albert(encoder: EncoderConfig | None = None) -> RunConfig:
    """ALBERT (Lan et al. 2020, sections 3.1 and 4.1): n-grams of up to three words hidden, and the order of two segments.

    Published: LAMB with batches of 4,096 examples of 512 tokens for 125,000 steps, at 1.76e-3 with 3,125 steps of warm-up.
    """
    encoder = encoder or presets.albert_base()
    return RunConfig(
        encoder=encoder,
        examples=Pairs(negatives="swapped", max_length=fitting(512, encoder)),
        objectives=(MaskedTokens(unit="ngram"), SentenceOrder()),
        optimizer=AdamW(learning_rate=peak_rate(encoder)),
        schedule=Linear(warmup=0.05),
        batch=BATCH,
        until=STEPS,
    )


def spanbert(encoder: EncoderConfig | None = None) -> RunConfig:
    """SpanBERT (Joshi et al. 2020, section 3): spans of words hidden, also guessed from their borders; one segment, no NSP.

    Published: batches of 256 examples of 512 tokens for 2.4 million steps, at 1e-4 with 10,000 steps of warm-up.
    """
    encoder = encoder or presets.spanbert_base()
    return RunConfig(
        encoder=encoder,
        examples=Documents(max_length=fitting(512, encoder)),
        objectives=(MaskedTokens(unit="span"), SpanBoundary()),
        optimizer=AdamW(learning_rate=peak_rate(encoder), epsilon=1e-8),
        schedule=Linear(warmup=0.05),
        batch=BATCH,
        until=STEPS,
    )


def demo(minutes: float = 5.0, encoder: EncoderConfig | None = None) -> RunConfig:
    """What teaches a small BERT most in five minutes on two cores, found by trying: short sequences and small batches, so that
    it takes many steps and soon learns to look at its neighbours; two layers, since wider and deeper ones see too little text.
    """
    return RunConfig(
        encoder=encoder or presets.bert_tiny(8192),
        examples=Pairs(max_length=32),
        objectives=(MaskedTokens(frequency_bias=True), SentencePair()),
        optimizer=AdamW(learning_rate=1.2e-3, beta2=0.98),
        schedule=Linear(warmup=0.1),
        batch=BatchSize(tokens=1024),
        until=Minutes(minutes=minutes),
        keeping=Keeping(evaluations=10, evaluation_tokens=32_768, keep_last=1),
        machine=Machine(workers=0),
    )
