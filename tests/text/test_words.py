from __future__ import annotations

import gzip
import json
import random
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from unmask.errors import UnmaskError
from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, train
from unmask.text.words import WordSplitter, read_user_words

JIEBA = WordSplitter(segmenter="jieba")
TEXTS = [
    "Well , it doesn't work: a naïve café, 2024 times. We know the trade-off; they don't!",
    "自然语言处理模型很有用。naïve café和自然语言处理模型，用hello world训练BERT模型。",
    "The naïve café \U0001f642 serves 自然语言 models\u200band café\u0301s… ok",
]


def words(text, splitter=WordSplitter()):
    at = [*np.flatnonzero(splitter.starts(text)), len(text)]
    return [text[a:b].strip() for a, b in zip(at, at[1:], strict=False)]


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram", "characters"])
def tokenizer(request) -> Tokenizer:
    return train(TEXTS * 3, TrainOptions(kind=request.param, vocab_size=400, limit_alphabet=300))[0]


def test_B003_words_are_not_glued_to_marks_and_hanzi_stand_alone():
    assert words("Well , it doesn't.") == ["Well", ",", "it", "doesn", "'", "t", "."]
    assert words("  two  spaces\n") == ["two", "spaces", ""]
    assert words("用BERT训练") == ["用", "BERT", "训", "练"]
    assert words("") == []


def test_a_segmenter_joins_hanzi_and_leaves_other_scripts_alone():
    assert words("自然语言处理模型hello world和naïve café，don't", JIEBA) == [
        *("自然语言", "处理", "模型", "hello", "world", "和", "naïve", "café", "，", "don", "'", "t")
    ]
    assert words("北京 是　首都", JIEBA) == ["北京", "是", "首都"]


def test_words_of_the_user_dictionary_stay_whole():
    text = "他来到了网易杭研大厦学C++语言"
    assert "网易杭研大厦" not in words(text, JIEBA)
    mine = WordSplitter("jieba", (("网易杭研大厦", 0), ("C++语言", 0)))
    assert words(text, mine)[-3:] == ["网易杭研大厦", "学", "C++语言"]
    assert "网易杭研大厦" not in words(text, JIEBA), "one splitter's words must not leak into another"


def test_a_word_list_is_read_and_faults_in_it_are_named(tmp_path):
    (tmp_path / "words.txt").write_text("\ufeff网易 100 nt\n\n杭研大厦\n", encoding="utf-8")
    assert read_user_words(tmp_path / "words.txt") == (("网易", 100), ("杭研大厦", 0))
    (tmp_path / "bad.txt").write_text("网易\n杭研 viele\n", encoding="utf-8")
    with pytest.raises(UnmaskError, match="bad.txt:2"):
        read_user_words(tmp_path / "bad.txt")
    with pytest.raises(UnmaskError, match="can't be read"):
        read_user_words(tmp_path / "none.txt")


def test_fingerprints_tell_splitters_apart():
    splitters = [WordSplitter(), JIEBA, WordSplitter("jieba", (("网易", 0),)), WordSplitter("jieba", (("网易", 5),))]
    assert len({splitter.fingerprint for splitter in splitters}) == 4
    assert WordSplitter("jieba").fingerprint == JIEBA.fingerprint


@pytest.mark.parametrize("name", ["en_wikitext2_valid", "zh_docs_react", "en_novels_eltec"])
def test_words_are_those_of_berts_own_splitter(shared, name):
    with gzip.open(shared / "data" / "corpora" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"][:20_000] for _, line in zip(range(20), file, strict=False)]
    bert = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer()])
    spaced = normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
    )
    for text in texts:
        theirs = [word for word, _ in bert.pre_tokenize_str(spaced.normalize_str(text))]
        assert [word for word in words(text) if word] == theirs


@pytest.mark.parametrize("splitter", [WordSplitter(), JIEBA])
def test_B085_no_word_and_no_character_is_masked_in_part(tokenizer, splitter):
    rng = random.Random(0)
    for text, encoded in zip(TEXTS, tokenizer.encode(TEXTS, splitter), strict=True):
        group_of_token = np.cumsum(encoded.word_starts) - 1
        group_of_character = np.cumsum(splitter.starts(text))
        for _ in range(100):
            chosen = np.array([rng.random() < 0.3 for _ in range(group_of_token[-1] + 1)])
            masked, shown = set(), set()
            for token, (start, stop) in enumerate(encoded.offsets):
                side = masked if chosen[group_of_token[token]] else shown
                side.update((group_of_character[at], at) for at in range(start, max(stop, start + 1)))
            assert not {word for word, _ in masked} & {word for word, _ in shown}
            assert not {at for _, at in masked} & {at for _, at in shown}


def test_B085_bytes_of_one_character_share_a_group():
    bpe, _ = train(["plain ascii text only"], TrainOptions(kind="bpe", vocab_size=270))
    encoded = bpe.encode(["naïve café 自然\U0001f642"])[0]
    starts = [tuple(offset) for offset, begins in zip(encoded.offsets, encoded.word_starts, strict=True) if begins]
    assert [start for start, _ in starts] == [0, 6, 11, 12, 13]  # naïve, café, 自, 然 and the smiley


@given(st.text(st.sampled_from(list("ab ,.'\t\n的人，éé\u0301\u200b\U0001f642の12_")), max_size=40))
def test_every_token_sequence_begins_with_a_word_and_groups_follow_the_text(text):
    tokenizer = _small()
    for splitter in (WordSplitter(), JIEBA):
        encoded = tokenizer.encode([text], splitter)[0]
        if len(encoded.ids):
            assert encoded.word_starts[0]
            word = np.cumsum(splitter.starts(text))
            assert encoded.word_starts.sum() <= word[-1]


def _small() -> Tokenizer:
    if not _SMALL:
        _SMALL.append(train(TEXTS, TrainOptions(kind="bpe", vocab_size=300))[0])
    return _SMALL[0]


_SMALL: list[Tokenizer] = []


def test_chinese_whole_words_mask_a_binomial_share_of_each_sentence(shared):
    """Elsewhere a Chinese sentence is one word: it is masked in full or not at all."""
    with gzip.open(shared / "data" / "corpora" / "zh_docs_react.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"][:300] for _, line in zip(range(30), file, strict=False)]
    tokenizer, _ = train(texts, TrainOptions(kind="characters", vocab_size=4000))
    for text, encoded in zip(texts, tokenizer.encode(texts, JIEBA), strict=True):
        hanzi = sum(unicodedata.name(character, "").startswith("CJK UNIFIED") for character in text)
        lengths = np.diff([*np.flatnonzero(encoded.word_starts), len(encoded.ids)])
        assert lengths.max() <= 12
        if hanzi > 50:
            assert 1.1 < len(encoded.ids) / encoded.word_starts.sum() < 2.5


def test_a_token_that_reaches_over_words_joins_them():
    text = "ab cd, ef"  # words: ab | cd | , | ef
    offsets = np.array([[0, 1], [1, 4], [4, 5], [5, 6], [7, 9]], np.int32)
    assert WordSplitter().token_starts(text, offsets).tolist() == [True, False, False, True, True]
