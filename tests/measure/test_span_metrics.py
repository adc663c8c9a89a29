from __future__ import annotations

import gzip
import json
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import classification_report
from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support
from seqeval.metrics.v1 import precision_recall_fscore_support as strict_scores
from seqeval.scheme import BILOU, IOB2, IOBES, Entities
from sklearn.metrics import f1_score
from tag_grammars import LETTERS, in_iobes, is_legal

from unmask.config.tasks import SpanScheme
from unmask.errors import UnmaskError
from unmask.measure.spans import IllegalTag, Span, illegal_tags, span_scores, spans, tag_scores

TYPES = ("PER", "LOC", "creative-work")
ALPHABETS: dict[SpanScheme, list[str]] = {
    scheme: ["O", *(f"{p}-{t}" for p, t in product(letters, TYPES))]
    for scheme, letters in LETTERS.items()  # type: ignore[misc]
}
THEIRS: dict[SpanScheme, type] = {"bio": IOB2, "bioes": IOBES, "bilou": BILOU}


def pairs(scheme: SpanScheme) -> st.SearchStrategy[list[tuple[list[str], list[str]]]]:
    tag = st.sampled_from(ALPHABETS[scheme])
    row = st.lists(st.tuples(tag, tag), max_size=9).map(lambda both: ([t for t, _ in both], [p for _, p in both]))
    return st.lists(row, min_size=1, max_size=5)


def compare(scheme: SpanScheme, mode: str, truth: list[list[str]], predicted: list[list[str]]) -> None:
    ours = span_scores(truth, predicted, scheme=scheme, mode=mode)  # type: ignore[arg-type]
    scores = strict_scores if mode == "strict" else precision_recall_fscore_support
    options = {"scheme": THEIRS[scheme]} if mode == "strict" else {}
    precision, recall, f1, support = scores(truth, predicted, average=None, zero_division=0, **options)
    np.testing.assert_allclose(ours.counts.precision_L, precision, rtol=1e-12)
    np.testing.assert_allclose(ours.counts.recall_L, recall, rtol=1e-12)
    np.testing.assert_allclose(ours.counts.f1_L, f1, rtol=1e-12)
    np.testing.assert_array_equal(ours.counts.support_L, support)
    for average in ("micro", "macro", "weighted"):
        if average == "macro" and not len(support):
            continue  # seqeval's mean of no types is nan, with a warning
        expected = scores(truth, predicted, average=average, zero_division=0, **options)[:3]
        assert getattr(ours.counts, average)() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("scheme", "mode"), [(s, m) for s in THEIRS for m in ("strict", "default") if (s, m) != ("bilou", "default")]
)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_both_modes_agree_with_seqeval(scheme: SpanScheme, mode: str, data: st.DataObject) -> None:
    rows = data.draw(pairs(scheme))
    compare(scheme, mode, [truth for truth, _ in rows], [predicted for _, predicted in rows])


@pytest.mark.parametrize("scheme", THEIRS)
def test_every_short_sequence_has_the_spans_seqeval_finds(scheme: SpanScheme) -> None:
    alphabet = [tag for tag in ALPHABETS[scheme] if "creative" not in tag]
    rows = [list(row) for length in range(1, 4) for row in product(alphabet, repeat=length)]
    lenient = [[Span(kind, begin, end + 1) for kind, begin, end in get_entities(in_iobes(row))] for row in rows]
    strict = [[Span(e.tag, e.start, e.end) for e in found] for found in Entities(rows, THEIRS[scheme]).entities]
    assert spans(rows, scheme=scheme, mode="default") == lenient
    assert spans(rows, scheme=scheme, mode="strict") == strict


@pytest.mark.parametrize("scheme", ["bilou", "bmes", "bmewo"])
@pytest.mark.parametrize("typed", [True, False])
def test_other_letters_make_the_spans_that_those_of_bioes_make(scheme: SpanScheme, typed: bool) -> None:
    """Letters alone too, as Chinese words are cut: B M E S."""
    tags = [f"{p}-X" if typed else p for p in LETTERS[scheme]]
    rows = [list(row) for row in product(["O", *tags], repeat=3)]
    theirs = [[Span(e.tag, e.start, e.end) for e in found] for found in Entities(map(in_iobes, rows), IOBES).entities]
    lenient = [[Span(kind, begin, end + 1) for kind, begin, end in get_entities(in_iobes(row))] for row in rows]
    assert spans(rows, scheme=scheme) == spans(rows, scheme="bioes") == theirs
    assert spans(rows, scheme=scheme, mode="default") == lenient
    assert [not illegal_tags([row], scheme=scheme) for row in rows] == [is_legal(row, scheme) for row in rows]


def test_in_bios_an_entity_of_one_word_is_S_and_the_last_of_several_has_no_letter_of_its_own() -> None:
    rows = [list(row) for row in product(["O", "B-X", "I-X", "S-X", "I-Y"], repeat=3)]
    whole = [row for row in rows if is_legal(row, "bios")]
    assert spans(whole, scheme="bios") == spans(whole, scheme="bios", mode="default")
    assert spans([["B-X", "I-X", "S-X"], ["B-X", "S-X", "O"]], scheme="bios") == [
        [Span("X", 0, 2), Span("X", 2, 3)],
        [Span("X", 1, 2)],
    ]
    for row in rows:
        broken = illegal_tags([row], scheme="bios")
        assert (
            (not broken)
            == (row in whole)
            == (spans([row], scheme="bios") == spans([row], scheme="bios", mode="default"))
        )


def test_B150_strict_and_lenient_are_named_and_differ_where_a_span_begins_with_I() -> None:
    truth, predicted = [["B-X", "I-X"]], [["I-X", "I-X"]]
    strict, lenient = span_scores(truth, predicted), span_scores(truth, predicted, mode="default")
    assert (strict.mode, strict.counts.micro().f1) == ("strict", 0.0)
    assert (lenient.mode, lenient.counts.micro().f1) == ("default", 1.0)
    assert "bio" in strict.notes[0] and "strict" in strict.notes[0] and "default" in lenient.notes[0]


def test_B152_a_malformed_true_tag_is_reported_with_its_place_and_its_type_does_not_vanish() -> None:
    truth = [["O", "U-PER"], ["O", "O", "B-MISC"]]
    scores = span_scores(truth, truth, scheme="bioes")
    assert scores.types == ("MISC", "PER")
    assert scores.illegal_truth == [IllegalTag(1, 2, "B-MISC")] and scores.illegal_predicted == 1
    assert any("B-MISC at sequence 2, word 3" in note for note in scores.notes)
    assert span_scores(truth, truth, scheme="bioes", mode="default").counts.labels.tolist() == [0, 1]


def test_B155_single_word_spans_side_by_side_are_counted_one_by_one() -> None:
    counts = span_scores([["S-A", "O", "S-B"]], [["S-A", "S-B", "O"]], scheme="bioes").counts
    right, predicted, true = counts.right_L.sum(), counts.predicted_L.sum(), counts.support_L.sum()
    assert (right, predicted - right, true - right) == (1, 1, 1)


@pytest.mark.parametrize("mode", ["strict", "default"])
def test_no_spans_at_all_is_a_defined_score_that_is_said(mode) -> None:  # type: ignore[no-untyped-def]
    for rows in ([["O", "O"]], [[]], []):
        scores = span_scores(rows, rows, mode=mode)
        assert scores.counts.micro() == scores.counts.macro() == scores.counts.weighted() == (0, 0, 0)
        assert any("no spans" in note for note in scores.notes)
        assert spans(rows, mode=mode) == [[] for _ in rows]


def test_illegal_tags_are_counted_where_they_stand() -> None:
    assert illegal_tags([["I-A", "I-A", "B-A", "I-B", "O", "I-B"], ["I-A"]]) == [
        IllegalTag(0, 0, "I-A"),
        IllegalTag(0, 3, "I-B"),
        IllegalTag(0, 5, "I-B"),
        IllegalTag(1, 0, "I-A"),
    ]
    assert illegal_tags([["B-A", "I-A", "E-A", "S-B", "O"]], scheme="bioes") == []
    broken = [["E-A", "B-A", "O", "B-A", "I-A", "I-B"]]
    assert [tag.word for tag in illegal_tags(broken, scheme="bioes")] == [0, 1, 4, 5]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(ALPHABETS)).flatmap(lambda s: st.tuples(st.just(s), st.lists(st.sampled_from(ALPHABETS[s]))))
)
def test_tags_are_legal_exactly_where_both_modes_see_the_same(drawn: tuple[SpanScheme, list[str]]) -> None:
    scheme, row = drawn
    same = spans([row], scheme=scheme) == spans([row], scheme=scheme, mode="default")
    assert same == (not illegal_tags([row], scheme=scheme))


def test_a_span_never_runs_into_the_next_sequence() -> None:
    rows = [["O", "B-A"], ["I-A"], [], ["B-A", "I-A"]]
    assert spans(rows, mode="default") == [[Span("A", 1, 2)], [Span("A", 0, 1)], [], [Span("A", 0, 2)]]
    assert spans(rows) == [[Span("A", 1, 2)], [], [], [Span("A", 0, 2)]]


@pytest.mark.parametrize("tag", ["NN", "S-PER", "Bart", "b-PER", "", "O-PER", "B_PER", "B-"])
def test_a_tag_that_is_none_of_the_scheme_is_refused_by_name(tag: str) -> None:
    with pytest.raises(UnmaskError, match=re.escape(repr(tag))):
        span_scores([["O"]], [[tag]])


def test_a_prefix_alone_is_a_span_without_a_type_as_in_seqeval() -> None:
    assert spans([["B", "I", "O", "B"]]) == [[Span("_", 0, 2), Span("_", 3, 4)]]


def test_sequences_of_different_lengths_are_refused_by_number() -> None:
    with pytest.raises(UnmaskError, match="sequence 2"):
        span_scores([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(UnmaskError, match="1 predicted sequences for 2"):
        tag_scores([["O"], ["O"]], [["O"]])


def test_plain_tags_are_scored_word_by_word() -> None:
    rng = np.random.default_rng(3)
    names = ["NOUN", "VERB", "名词", "X Y"]
    truth, predicted = ([[names[i] for i in rng.integers(0, 4, n)] for n in (5, 0, 12)] for _ in range(2))
    scores = tag_scores(truth, predicted)
    flat = [[tag for row in rows for tag in row] for rows in (truth, predicted)]
    assert scores.accuracy == pytest.approx(np.mean([a == b for a, b in zip(*flat, strict=True)]))
    expected = f1_score(*flat, average=None, labels=[scores.tags[i] for i in scores.counts.labels], zero_division=0)
    np.testing.assert_allclose(scores.counts.f1_L, expected)


@pytest.mark.parametrize("name", ["en_wnut17", "zh_uner_gsdsimp"])
def test_real_tags_with_mistakes_score_as_in_seqeval(shared: Path, name: str) -> None:
    folder = shared / "data" / "tasks" / "tagging" / name
    file = next(folder.glob("dev.jsonl*"))
    opened = gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8")
    with opened as lines:
        truth = [json.loads(line)["labels"] for line in lines]
    tags = sorted({tag for row in truth for tag in row})
    rng = np.random.default_rng(0)
    predicted = [[tags[rng.integers(len(tags))] if rng.random() < 0.1 else tag for tag in row] for row in truth]
    report = classification_report(truth, predicted, output_dict=True, zero_division=0)
    scores = span_scores(truth, predicted, mode="default")
    assert scores.illegal_truth == [] and scores.illegal_predicted > 0
    for row, label in enumerate(scores.counts.labels):
        assert scores.counts.f1_L[row] == pytest.approx(report[scores.types[label]]["f1-score"])
    compare("bio", "strict", truth, predicted)
