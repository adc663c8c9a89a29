"""Masking real token sequences: English and Chinese, one text and pairs, several tokenizers."""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Literal, get_args

import numpy as np
import pytest
import torch
from made_up import MadeUpSource, english_documents
from small_goals import CONFIG

from unmask.batch import PackedBatch
from unmask.config import Documents, Examples, MaskedTokens, Pairs
from unmask.loader import Batches, Cursor
from unmask.objectives.choose import Unit
from unmask.objectives.masked import MaskedTokenObjective
from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, train
from unmask.text.words import WordSplitter

UNITS: tuple[Unit, ...] = get_args(Unit)
Language = Literal["en", "zh"]
CHINESE = (
    "我们在北京大学研究自然语言处理的方法。",
    "预训练模型需要大量的中文语料，也需要时间。",
    "他昨天在图书馆看了三本关于历史的书！",
    "今天天气很好，孩子们在公园里放风筝。",
    "这家公司的机器学习工程师来自上海和深圳。",
)


def _sentences(language: Language) -> list[list[str]]:
    if language == "en":
        return [[s + "." for s in text.rstrip(".").split(". ")] for text in english_documents(60)]
    rng = np.random.default_rng(0)
    return [[CHINESE[i] for i in rng.integers(0, len(CHINESE), 6)] for _ in range(60)]


@cache
def tokenized(language: Language, kind: Literal["wordpiece", "bpe", "characters"]) -> tuple[Tokenizer, MadeUpSource]:
    """A small tokenizer and the documents as its tokens, with where words start: Chinese ones as jieba finds them."""
    documents = _sentences(language)
    texts = [sentence for document in documents for sentence in document]
    tokenizer, _ = train(texts, TrainOptions(kind=kind, vocab_size=300))
    splitter = WordSplitter(segmenter="jieba" if language == "zh" else "none")
    encoded = iter(tokenizer.encode(texts, splitter))
    rows = [[next(encoded) for _ in document] for document in documents]
    source = MadeUpSource(
        [[e.ids.tolist() for e in row] for row in rows], [[e.word_starts.tolist() for e in row] for row in rows]
    )
    return tokenizer, source


def batches(tokenizer: Tokenizer, source: MadeUpSource, how: Examples, sequences: int) -> list[PackedBatch]:
    """Not yet masked, `sequences` or more in all."""
    loader = Batches(source, how, tokenizer.vocabulary(), lambda batch, seed: batch, 3, 4096)
    found: list[PackedBatch] = []
    for batch, _ in islice(loader.since(Cursor()), 10_000):
        found.append(batch)
        if sum(b.num_sequences for b in found) >= sequences:
            break
    return found


@pytest.mark.parametrize(
    ("language", "kind"), [("en", "wordpiece"), ("en", "bpe"), ("zh", "characters"), ("zh", "bpe")]
)
@pytest.mark.parametrize("how", [Pairs(max_length=48), Documents(max_length=48)], ids=["pairs", "single"])
def test_no_special_token_is_ever_a_target_and_nothing_else_changes(
    language: Language, kind: Literal["wordpiece", "bpe", "characters"], how: Examples
) -> None:
    """10,000 sequences and more over the units (UER chooses [CLS] or [SEP] in 24 % of the pairs); the share is 15 %."""
    tokenizer, source = tokenized(language, kind)
    vocabulary = tokenizer.vocabulary()
    special = torch.from_numpy(vocabulary.is_special())
    plain = batches(tokenizer, source, how, 600)
    drawn = 0
    for number, unit in enumerate(UNITS * 5):
        mlm = MaskedTokenObjective(CONFIG, MaskedTokens(unit=unit), vocabulary)
        chosen = candidates = 0
        for before in plain:
            after = mlm.prepare(before, number)
            where, value = after.labels["mlm"]
            assert not special[value].any()
            assert torch.equal(after.input_ids.index_copy(0, where, value), before.input_ids)
            shown = after.input_ids[where]
            assert not special[shown[shown != vocabulary.mask_token_id]].any()
            words = before.word_starts
            assert words is not None and (unit == "token" or _whole(where, words, special[before.input_ids]))
            chosen, candidates = chosen + len(where), candidates + int((~special[before.input_ids]).sum())
            drawn += before.num_sequences
        assert abs(chosen / candidates - 0.15) < 0.01
    assert drawn >= 10_000


def _whole(where: torch.Tensor, word_starts: torch.Tensor, special: torch.Tensor) -> bool:
    """Whether each word is chosen in full or not at all."""
    chosen = torch.zeros(len(word_starts), dtype=torch.bool).index_fill(0, where, True)
    begins = word_starts | special
    begins[1:] |= special[:-1]
    return not bool((chosen[1:] != chosen[:-1])[~begins[1:]].any())


@pytest.mark.parametrize("unit", UNITS)
def test_chinese_sentences_are_neither_masked_in_full_nor_left_alone(unit: Unit) -> None:
    """Where a sentence counts as one word, 85 % of the draws mask nothing and 15 % all."""
    tokenizer, source = tokenized("zh", "characters")
    mlm = MaskedTokenObjective(CONFIG, MaskedTokens(unit=unit), tokenizer.vocabulary())
    for before in batches(tokenizer, source, Pairs(max_length=48), 1_000):
        after = mlm.prepare(before, 0)
        counts = np.bincount(after.layout.rows[after.labels["mlm"].where].numpy(), minlength=after.num_sequences)
        share = counts / np.array(after.layout.lengths)
        assert share.max() < 0.5 and (counts[np.array(after.layout.lengths) > 30] > 0).all()
