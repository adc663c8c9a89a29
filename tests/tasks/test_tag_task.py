"""Words to tags and spans: every word once, whatever the tokenizer makes of it and however long the record is."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import SMALL

from unmask.batch import Layout
from unmask.config import Tagging
from unmask.config.tasks import HeadShape
from unmask.epochs import Epochs
from unmask.errors import UnmaskError
from unmask.labelled.records import Place, TaggedExample
from unmask.loader import Cursor
from unmask.nn.crf import CRF, allowed_transitions
from unmask.nn.encoder import Encoder
from unmask.objectives.tag import UNKNOWN, TagObjective
from unmask.tasks.outputs import answers
from unmask.tasks.tag import Tagged, decode, from_text, score, sequences
from unmask.text.aligned import AlignedEncoder
from unmask.text.sequences import Sequences
from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, train

KINDS = ("wordpiece", "bpe", "unigram", "characters")
LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
DECODERS = ("linear", "crf", "bilstm_crf")
TASK = Tagging(labels=LABELS)
WITH_CRF = Tagging(labels=LABELS, decoder="crf")
INVISIBLE = ("Hello", "\u200b", "", "world", "\x10", "!")
LINE = "Ada Lovelace of London met Zoë in 北京 for 5.975,74 euro at state-of-the-art shops."


@functools.cache
def tokenizer(kind: str) -> Tokenizer:
    lines = [LINE, "JAPAN BEATS IT Hello world !", "a b c d e f g h i j k l m n o p q r s t u v w x y z 0 1 2 3"]
    return train(lines * 3, TrainOptions(kind=kind, vocab_size=400))[0]


def encoder_of(kind: str = "wordpiece", max_length: int = 64) -> AlignedEncoder:
    return AlignedEncoder(tokenizer(kind), max_length)


def record(words: Sequence[str], tags: Sequence[str] | None = None, line: int = 1) -> TaggedExample:
    return TaggedExample(tuple(words), None if tags is None else tuple(tags), Place("f.conll", line, line))


def oracle(features: Sequences, tags: Sequence[str], size: float = 9.0) -> dict[str, np.ndarray]:
    """Outputs of a model that knows the tags of all words, in the order of the records."""
    ids = np.array([LABELS.index(tag) for tag in tags], np.int64)
    assert len(ids) == len(features.labels["tag"].place_M)
    scores = size * np.eye(len(LABELS), dtype=np.float32)[ids]
    return {"scores": scores, "tags": ids, "confidence": np.full(len(ids), 0.75, np.float32)}


def said(examples: Sequence[TaggedExample], tags: Sequence[Sequence[str]], task: Tagging = TASK) -> list[Tagged]:
    features, _ = sequences(examples, encoder_of(), task)
    return decode(oracle(features, [tag for row in tags for tag in row]), features, examples, task)


def random_words(draw: random.Random, count: int) -> list[str]:
    return [
        draw.choice([*LINE.split(), *INVISIBLE, "北京市", "e\u0301", "\U0001f469\u200d\U0001f4bb"])
        for _ in range(count)
    ]


# --- words and their tokens ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_B071_words_of_nothing_keep_their_slot(kind: str) -> None:
    """BERT-NER-Pytorch#48, albert-chinese-ner#23, flair#1600: invisible characters shift all labels, or crash."""
    examples = [record(INVISIBLE, ["B-PER", "O", "O", "B-LOC", "O", "O"]), record([]), record(["a"], ["O"])]
    features, _ = sequences(examples, encoder_of(kind), TASK)
    tag = features.labels["tag"]
    assert tag.value_M.tolist() == [1, 0, 0, 3, 0, 0, 0]
    assert all(len(set(tag.place_M[a:b])) == b - a for a, b in zip(tag.starts, tag.starts[1:], strict=False))
    found = decode(oracle(features, ["B-PER", "O", "O", "B-LOC", "O", "O", "O"]), features, examples, TASK)
    assert [len(one.tags) for one in found] == [6, 0, 1]
    assert [(e.label, e.text, e.first, e.last) for e in found[0].spans] == [
        ("PER", "Hello", 0, 1),
        ("LOC", "world", 3, 4),
    ]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    overlap=st.integers(0, 40),
    max_length=st.integers(6, 24),
    seed=st.integers(0, 2**31),
)
def test_every_word_is_learned_once_and_in_order(
    kind: str, lengths: list[int], overlap: int, max_length: int, seed: int
) -> None:
    draw = random.Random(seed)
    examples = [record(random_words(draw, n), draw.choices(LABELS[::2][:1] + LABELS[1::2], k=n)) for n in lengths]
    features, _ = sequences(examples, encoder_of(kind, max_length), WITH_CRF, overlap=overlap)
    tag, edges = features.labels["tag"], features.labels["tag_edges"].value_M
    assert [LABELS[value] for value in tag.value_M] == [tag for example in examples for tag in example.tags or ()]
    sizes, own = features.lengths(), np.diff(tag.starts)
    assert (sizes <= max_length).all() and (tag.place_M < np.repeat(sizes, own)).all()
    filled = [at for at, n in enumerate(lengths) if n]
    assert [edges[features.example_N == at].sum(0).tolist() for at in filled] == [[1, 1]] * len(filled)
    begins = {int(at): True for at in features.example_N[edges[:, 0]]}
    assert sorted(begins) == filled


def test_the_windows_of_a_book_are_dealt_one_by_one() -> None:
    """All at once they would not fit into memory."""
    features, _ = sequences([record(["a"] * 300, ["O"] * 300)], encoder_of(max_length=12), TASK, overlap=2)
    epochs = Epochs(features, lambda batch, seed: batch, seed=0, units=2)
    batch, _ = next(epochs.since(Cursor()))
    assert len(features) > 20 and batch.num_sequences == 2


def test_a_word_longer_than_a_window_is_counted() -> None:
    assert sequences([record(["a" * 99, "b"], ["O", "O"])], encoder_of("characters", 12), TASK)[1] == 1


def test_records_without_tags_are_asked_not_learned() -> None:
    features, _ = sequences([record(["a", "b"]), record(["c"], ["O"])], encoder_of(), WITH_CRF)
    assert features.labels["tag"].value_M.tolist() == [UNKNOWN, UNKNOWN, 0]


def test_gold_that_no_path_leads_through_is_named() -> None:
    examples = [
        record(["a"], None, 1),
        record(["b", "c"], ["B-PER", "I-PER"], 2),
        record(["d", "e"], ["O", "I-LOC"], 9),
    ]
    with pytest.raises(UnmaskError, match=r"the tag I-LOC of word 2 \('e'\) breaks the scheme bio") as refused:
        sequences(examples, encoder_of(), WITH_CRF)
    assert refused.value.where == "f.conll, line 9, record 9"
    assert len(sequences(examples, encoder_of(), TASK)[0]) == 3, "a linear decoder can learn it"


# --- spans in the user's own text --------------------------------------------------------------------------------------------
TORTURE = "\U0001f469\u200d\U0001f4bb Ada\u0301 lives in Rome, 北京市 & 5.975,74 \u200bat  état."


@pytest.mark.parametrize("kind", KINDS)
def test_B160_spans_cut_the_users_own_text(kind: str) -> None:
    """argilla#1015: an emoji of several code points moves what stands behind it."""
    encoder = encoder_of(kind)
    examples = from_text([TORTURE, "", " \n "])
    assert [text[a:b] for text in (TORTURE,) for a, b in examples[0].offsets or ()] == list(examples[0].words)
    features, _ = sequences(examples, encoder, TASK)
    tags = [
        "B-LOC" if word in ("Rome", "市") else "B-PER" if word.startswith("Ada") else "O" for word in examples[0].words
    ]
    tags[examples[0].words.index("北")] = "B-LOC"
    tags[examples[0].words.index("京")] = tags[examples[0].words.index("市")] = "I-LOC"
    found = decode(oracle(features, tags), features, examples, TASK)
    assert [(s.label, s.text) for s in found[0].spans] == [("PER", "Ada\u0301"), ("LOC", "Rome"), ("LOC", "北京市")]
    assert all(TORTURE[s.begin : s.end] == s.text for s in found[0].spans)
    assert [(one.words, one.spans) for one in found[1:]] == [((), ()), ((), ())]


def test_B156_B157_B159_spans_of_words_count_characters_of_the_words_joined_by_spaces() -> None:
    """transformers#38818, #23322, #33579: a word of many pieces is one entity, and offsets are those of a stated text."""
    words = ["JAPAN", "BEATS", "5.975,74", "state-of-the-art", "IT"]
    found = said([record(words)], [["B-LOC", "I-LOC", "B-PER", "B-PER", "O"]])[0]
    joined = "JAPAN BEATS 5.975,74 state-of-the-art IT"
    assert [(s.text, s.first, s.last) for s in found.spans] == [
        ("JAPAN BEATS", 0, 2),
        ("5.975,74", 2, 3),
        ("state-of-the-art", 3, 4),
    ]
    assert all(joined[s.begin : s.end] == s.text for s in found.spans)
    assert [s.confidence for s in found.spans] == [0.75] * 3 and found.tags[1] == "I-LOC"


def test_a_linear_decoders_broken_tags_make_the_spans_of_a_lenient_reader() -> None:
    found = said([record(["a", "b", "c"])], [["I-PER", "I-LOC", "I-LOC"]])[0]
    assert [(s.label, s.first, s.last) for s in found.spans] == [("PER", 0, 1), ("LOC", 1, 3)]


def test_plain_tags_make_no_spans_and_may_have_any_name() -> None:
    task = Tagging(labels=("noun phrase", "动词", "I-", "NN"), scheme="plain", decoder="crf")
    examples = [record(["a", "b", "c"], ["NN", "动词", "noun phrase"])]
    features, _ = sequences(examples, encoder_of(), task)
    assert features.labels["tag"].value_M.tolist() == [3, 1, 0]
    outputs = {"scores": np.zeros((3, 4), np.float32), "tags": np.array([3, 1, 2]), "confidence": np.ones(3)}
    found = decode(outputs, features, examples, task)
    assert found[0].tags == ("NN", "动词", "I-") and found[0].spans == ()
    assert score(found, examples, task)["accuracy"] == pytest.approx(2 / 3)


# --- windows ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("overlap", [0, 1, 5])
@pytest.mark.parametrize("with_crf", [False, True])
def test_an_entity_across_windows_is_found_once(overlap: int, with_crf: bool) -> None:
    """transformers#15177: at every place of the text, so at every window's border too."""
    count = 40
    crf = CRF(allowed_transitions(LABELS, "bio")) if with_crf else None
    for first in range(count - 2):
        tags = ["O"] * count
        tags[first : first + 3] = ["B-PER", "I-PER", "I-PER"]
        examples = [record(["a"] * count)]
        features, _ = sequences(examples, encoder_of(max_length=12), TASK, overlap=overlap)
        found = decode(oracle(features, tags), features, examples, TASK, crf)[0]
        assert found.tags == tuple(tags)
        assert [(s.label, s.first, s.last) for s in found.spans] == [("PER", first, first + 3)]


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(0, 50), min_size=1, max_size=6), seed=st.integers(0, 2**31))
def test_with_a_crf_no_record_breaks_the_scheme_nor_at_the_borders_of_windows(lengths: list[int], seed: int) -> None:
    rng, draw = np.random.default_rng(seed), random.Random(seed)
    examples = [record(random_words(draw, n)) for n in lengths]
    features, _ = sequences(examples, encoder_of(max_length=12), WITH_CRF, overlap=2)
    crf = CRF(allowed_transitions(LABELS, "bio"))
    with torch.no_grad():
        crf.transitions.normal_()
    scores = rng.normal(size=(sum(lengths), len(LABELS))).astype(np.float32)
    # What the windows say by themselves is legal in each, as CRF.best of each would be: O everywhere.
    outputs = {
        "scores": scores,
        "tags": np.zeros(len(scores), np.int64),
        "confidence": np.ones(len(scores), np.float32),
    }
    found = decode(outputs, features, examples, WITH_CRF, crf)
    for one in found:
        for before, tag in zip(("O", *one.tags), one.tags, strict=False):
            assert not tag.startswith("I-") or before[2:] == tag[2:]
    windows = np.bincount(features.example_N, minlength=len(lengths))
    for one, count, part in zip(found, windows, np.split(scores, np.cumsum(lengths)[:-1]), strict=True):
        if count < 2:
            assert set(one.tags) <= {"O"}, "a record of one window keeps its answer"
            continue
        whole = Layout.of(torch.tensor([0, len(part)]).int())
        best = crf.best(torch.from_numpy(part), whole)
        assert one.tags == tuple(LABELS[tag] for tag in best)
        sure = crf.marginals(torch.from_numpy(part), whole).gather(1, best[:, None]).squeeze(1)
        np.testing.assert_allclose(one.confidence, sure, atol=1e-5)


# --- the whole way -----------------------------------------------------------------------------------------------------------
def network(decoder: str) -> tuple[Encoder, TagObjective, Tagging, AlignedEncoder]:
    task = Tagging(labels=LABELS, decoder=decoder)
    texts = encoder_of(max_length=24)
    config = replace(SMALL, vocab_size=tokenizer("wordpiece").vocab_size)
    torch.manual_seed(0)
    encoder, objective = Encoder(config), TagObjective(config, task, HeadShape(act=None))
    with torch.no_grad():
        for parameter in (*encoder.parameters(), *objective.parameters()):
            parameter.normal_(0, 0.3)
    return encoder.eval(), objective.eval(), task, texts


def answered(net: Any, examples: Sequence[TaggedExample]) -> list[Tagged]:
    encoder, objective, task, texts = net
    features, _ = sequences(examples, texts, task, overlap=4)
    outputs = answers(encoder, objective, features, "place", places="tag")
    return decode(outputs, features, examples, task, objective.crf)


@pytest.mark.parametrize("decoder", DECODERS)
def test_an_answer_depends_on_its_record_alone(decoder: str) -> None:
    """Not on batch mates, nor their number, nor their order; long records and empty ones among them."""
    net, draw = network(decoder), random.Random(1)
    examples = [record(random_words(draw, n)) for n in (3, 0, 50, 1, 17, 80, 6, 6)]
    whole = answered(net, examples)
    assert sum(len(one.spans) for one in whole) > 5
    for order in ([5], [7, 6, 5, 4, 3, 2, 1, 0], [1], [2, 2]):
        for at, one in zip(order, answered(net, [examples[at] for at in order]), strict=True):
            assert (one.words, one.tags) == (whole[at].words, whole[at].tags)
            np.testing.assert_allclose(one.confidence, whole[at].confidence, atol=1e-5)


# --- scores ----------------------------------------------------------------------------------------------------------------
def test_B150_the_first_score_is_strict_and_the_lenient_one_stands_beside_it() -> None:
    """seqeval#23: B-X I-X against I-X I-X is nothing in strict mode, and right in the lenient one."""
    examples = [record(["a", "b", "c"], ["B-PER", "I-PER", "O"])]
    found = score(said(examples, [["I-PER", "I-PER", "O"]]), examples, TASK)
    assert next(iter(found)) == "f1"
    assert (found["f1"], found["f1_default_mode"], found["illegal_tags"], found["f1 PER"]) == (0.0, 1.0, 1.0, 0.0)


def test_scores_count_spans_not_words() -> None:
    examples = [record(["a", "b", "c"], ["B-PER", "I-PER", "B-LOC"]), record(["d"], ["O"]), record([], [])]
    found = score(said(examples, [["B-PER", "O", "B-LOC"], ["O"], []]), examples, TASK)
    assert (found["f1"], found["precision"], found["recall"]) == (0.5, 0.5, 0.5)
    assert found["f1 LOC"] == 1.0 and found["f1 PER"] == 0.0


def test_no_spans_at_all_are_a_score_not_an_error() -> None:
    examples = [record(["a"], ["O"])]
    assert score(said(examples, [["O"]]), examples, TASK)["f1"] == 0.0
