from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published import some_lines, texts, trained_like
from tokenizers import processors

from unmask.errors import UnmaskError
from unmask.text.extend import extend
from unmask.text.families import FAMILIES, PLAIN
from unmask.text.inspect import inspect
from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, train
from unmask.text.words import WordSplitter

LIKE = list(FAMILIES)


def auto(folder: Path, **options):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(str(folder), **options)


@pytest.mark.parametrize("like", LIKE)
@pytest.mark.parametrize("model_type", [False, True])
def test_AutoTokenizer_gives_the_same_ids_and_tokens(shared, tmp_path, like, model_type):
    tokenizer = trained_like(shared, like)
    tokenizer.save(tmp_path)
    if model_type:  # with a model beside it, AutoTokenizer may choose another class
        kind = {"deberta-v3": "deberta-v2"}.get(like, like)
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    theirs = auto(tmp_path)
    ours = [encoded.ids.tolist() for encoded in tokenizer.encode(texts(shared))]
    assert ours == theirs(texts(shared), add_special_tokens=False)["input_ids"]
    assert len(theirs) == tokenizer.vocab_size <= 2000
    for role, token in FAMILIES[like].tokens.items():
        assert getattr(theirs, f"{role}_token") == token
    absent = {"pad", "unk", "cls", "sep", "mask"} - FAMILIES[like].tokens.keys()
    assert all(getattr(theirs, f"{role}_token") is None for role in absent)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint and again.vocabulary() == tokenizer.vocabulary()


@pytest.mark.parametrize(
    ("like", "first", "last"),
    [
        ("bert", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], []),
        ("roberta", ["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"]),
        ("xlm-roberta", ["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"]),
        ("deberta", ["[PAD]", "[CLS]", "[SEP]", "[UNK]"], ["[MASK]"]),
        ("deberta-v3", ["[PAD]", "[CLS]", "[SEP]", "[UNK]"], ["[MASK]"]),
        ("modernbert", [], ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]),
        ("gpt2", [], ["<|endoftext|>"]),
        ("albert", ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], []),
        ("t5", ["<pad>", "</s>", "<unk>"], ["<extra_id_2>", "<extra_id_1>", "<extra_id_0>"]),
    ],
)
def test_special_tokens_have_the_published_places(shared, like, first, last):
    tokenizer = trained_like(shared, like)
    pieces = tokenizer.pieces()
    assert pieces[: len(first)] == first and pieces[len(pieces) - len(last) :] == last
    special = len(first) + (100 if like == "t5" else len(last))
    assert len(tokenizer.special_ids) == special and len(set(pieces)) == len(pieces)


@pytest.mark.parametrize(
    ("like", "one", "two"),
    [
        ("bert", "[CLS] a [SEP]", "[CLS] a [SEP] b [SEP]"),
        ("roberta", "<s> a </s>", "<s> a </s> </s> b </s>"),
        ("xlm-roberta", "<s> a </s>", "<s> a </s> </s> b </s>"),
        ("modernbert", "[CLS] a [SEP]", "[CLS] a [SEP] b [SEP]"),
        ("albert", "[CLS] a [SEP]", "[CLS] a [SEP] b [SEP]"),
        ("deberta-v3", "[CLS] a [SEP]", "[CLS] a [SEP] b [SEP]"),
        ("gpt2", "a", "a b"),
        ("t5", "a </s>", "a </s> b </s>"),
    ],
)
def test_AutoTokenizer_frames_texts_as_the_family_does(shared, tmp_path, like, one, two):
    tokenizer = trained_like(shared, like)
    tokenizer.save(tmp_path)
    theirs = auto(tmp_path)
    a, b = (encoded.ids.tolist() for encoded in tokenizer.encode(["the old", "new town"]))
    ids = {"a": a, "b": b}
    spell = lambda words: [
        id for word in words.split() for id in ids.get(word, [tokenizer.pieces().index(word) if word not in ids else 0])
    ]
    assert theirs("the old")["input_ids"] == spell(one)
    pair = theirs("the old", "new town")
    assert pair["input_ids"] == spell(two)
    if "token_type_ids" in pair:
        assert pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)


@pytest.mark.parametrize("like", LIKE)
def test_published_sizes_are_the_default(like):
    sizes = {"roberta": 50265, "gpt2": 50257, "albert": 30000, "t5": 32100, "modernbert": 50368, "bert": 30522}
    assert FAMILIES[like].vocab_size == sizes.get(like, FAMILIES[like].vocab_size)
    small, report = train(["a few words"] * 3, TrainOptions(like=like, min_frequency=1))
    assert report.asked == FAMILIES[like].vocab_size and small.vocab_size < 500


def test_choices_of_the_training_go_before_the_familys(shared, tmp_path):
    texts = ["Zoë's CAFÉ ``here''"] * 3
    tokens = lambda tokenizer: tokenizer.decode(tokenizer.encode(texts[:1])[0].ids)
    folded, _ = train(texts, TrainOptions(like="albert", vocab_size=300))
    assert tokens(folded) == 'zoe\'s cafe "here"'
    kept, _ = train(texts, TrainOptions(like="albert", vocab_size=300, lowercase=False, strip_accents=False))
    assert tokens(kept) == 'Zoë\'s CAFÉ "here"'
    lower, _ = train(texts, TrainOptions(like="roberta", vocab_size=300, lowercase=True))
    lower.save(tmp_path)
    theirs = auto(tmp_path)  # the class of RoBERTa folds nothing, so another one has to be named
    assert theirs(texts[0], add_special_tokens=False)["input_ids"] == lower.encode(texts[:1])[0].ids.tolist()
    assert tokens(lower) == "zoë's café ``here''"


def test_a_family_of_another_kind_is_refused():
    with pytest.raises(UnmaskError, match="kind bpe, not unigram"):
        train(["text"], TrainOptions(like="roberta", kind="unigram"))
    assert train(["text"], TrainOptions(like="roberta", kind="bpe", vocab_size=300))[0].kind == "bpe"


@pytest.mark.parametrize("like", ["roberta", "t5"])
def test_a_size_without_room_for_the_last_tokens_is_refused_with_the_size_it_needs(like):
    needed = {"roberta": 256 + 5, "t5": 3 + 100 + 3 + 2}[like]
    with pytest.raises(UnmaskError, match=f"need {needed} pieces"):
        train(["abc"], TrainOptions(like=like, vocab_size=needed - 1))
    assert train(["abc"] * 3, TrainOptions(like=like, vocab_size=needed))[0].vocab_size <= needed


@pytest.mark.parametrize("like", ["albert", "deberta-v3", "t5", "xlm-roberta"])
def test_unigram_pieces_of_chinese_are_words_not_sentences(shared, like):
    tokenizer = trained_like(shared, like)
    chinese = [text for text in some_lines(shared)[150:] if len(text) > 60]
    lengths = [offset[1] - offset[0] for e in tokenizer.encode(chinese) for offset in e.offsets.tolist()]
    hanzi = [piece for piece in tokenizer.pieces() if any("\u4e00" <= letter <= "\u9fff" for letter in piece)]
    assert max(map(len, hanzi)) <= 6 and np.mean(lengths) < 4


@pytest.mark.parametrize("like", LIKE)
def test_word_starts_of_chinese_follow_the_segmenter(shared, like):
    tokenizer = trained_like(shared, like)
    text = "自然语言处理模型很有用。"
    encoded = tokenizer.encode([text], WordSplitter(segmenter="jieba"))[0]
    words = np.flatnonzero(WordSplitter(segmenter="jieba").starts(text))
    starts = encoded.offsets[encoded.word_starts, 0]
    assert set(starts.tolist()) <= set(words.tolist()) and len(starts) >= 3


@pytest.mark.parametrize("like", LIKE)
def test_a_mask_in_a_marked_text_stands_for_a_word_with_its_space(shared, like):
    tokenizer = trained_like(shared, like)
    if tokenizer.mask_token_id is None:
        return
    mask = tokenizer.token(tokenizer.mask_token_id)
    ids = tokenizer.encode_marked(f"so the {mask} word").ids.tolist()
    words = tokenizer.encode(["so the word"])[0].ids.tolist()
    assert [id for id in ids if id != tokenizer.mask_token_id] == words


@pytest.mark.parametrize("like", LIKE)
@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_gives_ids_of_text_and_places_inside_it(shared, like, text):
    tokenizer = trained_like(shared, like)
    encoded = tokenizer.encode([text])[0]
    assert (encoded.ids < tokenizer.vocab_size).all()
    assert not set(encoded.ids.tolist()) & (set(tokenizer.special_ids) - {tokenizer.unk_token_id})
    assert (encoded.offsets >= 0).all() and (encoded.offsets <= len(text)).all()
    assert (encoded.offsets[:, 0] <= encoded.offsets[:, 1]).all()
    if len(encoded.ids):
        assert encoded.word_starts[0]


def test_a_vocabulary_that_spells_its_separator_and_has_no_unknown_token_says_so(shared):
    content, config = trained_like(shared, "gpt2").documents()
    content["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    vocabulary, token = content["model"]["vocab"], "<|endoftext|>"
    letters = [token[:size] for size in range(2, len(token) + 1)]
    for piece in letters[:-1]:
        vocabulary.setdefault(piece, len(vocabulary))
    content["model"]["merges"] = [[piece[:-1], piece[-1]] for piece in letters]
    content["post_processor"] = json.loads(processors.ByteLevel(trim_offsets=True).__getstate__())
    forging = Tokenizer(content, config)
    assert forging.encode(["plain text"])[0].ids.size
    with pytest.raises(UnmaskError, match="no unk token"):
        forging.encode(["a<|endoftext|>"])


def test_plain_kinds_and_families_name_every_special_token_they_use():
    for family in [*FAMILIES.values(), *PLAIN.values()]:
        assert set(family.tokens.values()) <= set(family.special)
        assert len(set(family.special)) == len(family.special)


@pytest.mark.parametrize("like", LIKE)
def test_every_family_can_be_measured_and_extended(shared, like):
    tokenizer = trained_like(shared, like)
    report = inspect(tokenizer, ["The old café, 北京。"])
    assert report.tokens > 4 and report.unknown_tokens in range(4)
    assert report.unknown_tokens == 0 or FAMILIES[like].kind != "bpe"
    longer, pieces = extend(tokenizer, ["The zebrafishes swim. " * 20], 2)
    assert longer.vocab_size == tokenizer.vocab_size + len(pieces)
    assert longer.pieces()[: tokenizer.vocab_size] == tokenizer.pieces()
    assert longer.vocabulary().special_ids == tokenizer.special_ids
    assert longer.sentinel_ids == tokenizer.sentinel_ids
