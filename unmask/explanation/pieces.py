"""A tokenizer for a text where none is given: learned from this text alone, in the manner of the preset's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from unmask import presets
from unmask.presets import Preset
from unmask.text.families import Like
from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, train
from unmask.text.words import HANZI, WordSplitter, character_classes

LONGEST = 7  # letters of a piece: common words stay whole, longer ones show how a word falls into pieces

_MANNERS: tuple[tuple[Like, tuple[Preset, ...]], ...] = (
    ("bert", (presets.bert_tiny, presets.bert_mini, presets.bert_small, presets.bert_medium, presets.bert_base)),
    ("bert", (presets.bert_large, presets.bert_base_chinese, presets.spanbert_base, presets.spanbert_large)),
    ("bert", (presets.neobert, presets.elmo_mini, presets.elmo_small, presets.elmo_medium, presets.elmo)),
    ("roberta", (presets.roberta_base, presets.roberta_large)),
    ("xlm-roberta", (presets.camembert_base,)),
    ("albert", (presets.albert_base, presets.albert_large, presets.albert_xlarge, presets.albert_xxlarge)),
    ("electra", (presets.electra_small, presets.electra_base, presets.electra_large)),
    ("deberta", (presets.deberta_base, presets.deberta_large)),
    ("deberta-v3", (presets.deberta_v2_xlarge, presets.deberta_v2_xxlarge, presets.deberta_v3_xsmall)),
    ("deberta-v3", (presets.deberta_v3_small, presets.deberta_v3_base, presets.deberta_v3_large)),
    ("deberta-v3", (presets.mdeberta_v3_base,)),
    ("modernbert", (presets.modernbert_base, presets.modernbert_large, presets.ettin_17m, presets.ettin_32m)),
    ("modernbert", (presets.ettin_68m, presets.ettin_150m, presets.ettin_400m, presets.ettin_1b)),
    ("gpt2", (presets.gpt2, presets.gpt2_medium)),
    ("t5", (presets.t5_small, presets.t5_base)),
)


def manner_of(preset: Preset) -> Like:
    """The published tokenizer whose special tokens and frame a preset has."""
    return next(like for like, those in _MANNERS if preset in those)


def learn(texts: Sequence[str], like: Like) -> Tokenizer:
    """A tokenizer that knows every character and every short word of the texts; longer words are several pieces."""
    tokenizer, _ = train(texts, TrainOptions(like=like, min_frequency=1))
    content, config = tokenizer.documents()
    match tokenizer.kind:
        case "wordpiece":
            _drop_long(content["model"])
        case "unigram":
            _add_words(content["model"], tokenizer, texts)
        case "bpe":
            return tokenizer  # merges can't be dropped one by one
    return Tokenizer(content, config)


def _drop_long(model: dict[str, Any]) -> None:
    """Special tokens stand first in these vocabularies, so they keep their ids."""
    short = [piece for piece in model["vocab"] if len(piece.removeprefix("##")) <= LONGEST]
    model["vocab"] = {piece: id for id, piece in enumerate(short)}


def _add_words(model: dict[str, Any], tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Unigram training keeps hardly a word of so short a text; its words come in behind, likelier than any other cut."""
    known = {piece for piece, _ in model["vocab"]}
    parts = (part for text in texts for line in text.split("\n") for part in tokenizer.pre_tokens(line))
    for piece in dict.fromkeys(piece for part in parts for piece in _cut(part)):
        if piece not in known:
            model["vocab"].append([piece, 0.0])


def _cut(part: str) -> list[str]:
    """Words of at most LONGEST letters, without hanzi: these are pieces of their own already."""
    starts = [*WordSplitter().starts(part).nonzero()[0].tolist(), len(part)]
    words = [part[begin:end] for begin, end in zip(starts, starts[1:], strict=False)]
    return [piece for word in words if not (character_classes(word) == HANZI).any() for piece in _PIECE.findall(word)]


_PIECE = re.compile(rf"▁?.{{1,{LONGEST}}}")
