"""Tags that break their scheme are made right, dropped or refused; what is right stays as it is."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from tag_grammars import GRAMMARS, LETTERS, alphabet, in_iobes, is_legal

from unmask.errors import UnmaskError
from unmask.labelled.rows import Doubts
from unmask.labelled.schemes import part_of, read_pieces, repaired, scheme_of, spans_to_tags


def repair(tags, scheme="bio", how="begin") -> tuple[list[str], tuple[str, ...]]:
    doubts = Doubts()
    return list(repaired(tags, scheme, how, lambda at: f"word {at + 1}", doubts)), doubts.warnings


def entities(tags: list[str]) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = get_entities(in_iobes(tags))
    return found


@pytest.mark.parametrize("scheme", GRAMMARS)
def test_every_sequence_of_tags_is_repaired_as_a_lenient_reader_understands_it(scheme):
    for tags in map(list, product(alphabet(scheme), repeat=4 if scheme == "bio" else 3)):
        made, warnings = repair(tags, scheme)
        assert is_legal(made, scheme) and entities(made) == entities(tags)
        assert (made == tags) == is_legal(tags, scheme) == (not warnings)
        dropped, _ = repair(tags, scheme, "drop")
        assert is_legal(dropped, scheme) and all(new in ("O", old) for new, old in zip(dropped, tags, strict=True))
        assert (dropped == tags) == is_legal(tags, scheme)


@pytest.mark.parametrize("scheme", GRAMMARS)
def test_tags_without_types_cut_a_text_into_words(scheme):
    """Chinese word segmentation: B, M, E, S."""
    for tags in map(list, product(LETTERS[scheme], repeat=4)):
        made, warnings = repair(tags, scheme)
        assert is_legal(made, scheme) and (made == tags) == is_legal(tags, scheme) == (not warnings)
        pieces = read_pieces([part_of(tag, scheme) for tag in made], scheme)
        assert spans_to_tags([(p.begin, p.end, p.label) for p in pieces], 4, scheme) == tuple(made)
        assert [(p.begin, p.end - 1) for p in pieces] == [(begin, end) for _, begin, end in entities(tags)]


@pytest.mark.parametrize("scheme", GRAMMARS)
@pytest.mark.parametrize("types", ["XY", ""])
def test_labels_tell_their_scheme(scheme, types):
    """Of a folder that somebody else made, and of the letters alone."""
    labels = alphabet(scheme, types) if types else list(LETTERS[scheme])
    assert scheme_of(labels) == scheme_of(["O", *labels[::-1]]) == scheme


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        (["O", "I-PER", "I-LOC"], "bio"),
        (["O", "B-X", "E-X", "S-X"], "bioes"),
        (["O", "B-X", "L-X"], "bilou"),
        (["O", "B-X", "M-Y"], "bmes"),
        (["B-X", "S-X"], "bios"),
        (["O"], "bio"),
        ([], "bio"),
        (["O", "B", "I-X"], "plain"),
        (["B", "E", "S"], "plain"),
        (["S", "V", "O"], "plain"),
        (["O", "B-X", "I-X", "[PAD]"], "plain"),
        (["O", "B-X", "I-X", "M-X"], "plain"),
        (["LABEL_0", "LABEL_1"], "plain"),
        (["O", "PER-B", "PER-I"], "plain"),
        (["O", "B-", "I-"], "plain"),
        (["", "-X"], "plain"),
    ],
)
def test_labels_are_of_the_first_scheme_that_has_all_of_their_letters(labels, scheme):
    assert scheme_of(labels) == scheme


def test_a_broken_entity_begins_where_it_is_or_becomes_o():
    assert repair(["I-X", "I-X", "O", "B-Y", "I-X"])[0] == ["B-X", "I-X", "O", "B-Y", "B-X"]
    assert repair(["I-X", "I-X", "O", "B-Y", "I-X"], how="drop")[0] == ["O", "O", "O", "B-Y", "O"]
    assert repair(["B-X", "O", "E-Y", "S-X"], "bioes")[0] == ["S-X", "O", "S-Y", "S-X"]
    assert repair(["B-X", "O", "E-Y", "S-X"], "bioes", "drop")[0] == ["O", "O", "O", "S-X"]
    (warning,) = repair(["O", "I-X", "O", "I-Y"])[1]
    assert warning == "entities whose tags break the BIO scheme, given a beginning and an end: 2 (first: word 2)"


def test_a_broken_entity_is_refused_by_its_place():
    with pytest.raises(UnmaskError, match="'I-Y' breaks the BIO scheme after 'B-X'") as error:
        repair(["B-X", "I-Y"], how="error")
    assert "where: word 2" in str(error.value)
    assert repair(["B-X", "I-X"], how="error")[0] == ["B-X", "I-X"]


def test_other_letters_for_the_same_scheme_are_understood():
    tags = ["B-A", "M-A", "E-A", "S-A", "B-creative-work", "I-creative-work", "L-creative-work", "U-A"]
    wanted = ["B-A", "I-A", "E-A", "S-A", "B-creative-work", "I-creative-work", "E-creative-work", "S-A"]
    assert repair(tags, "bioes") == (wanted, ())
    for scheme in ("bilou", "bmes", "bmewo"):
        made, warnings = repair(tags, scheme)
        assert in_iobes(made) == wanted and not warnings and {tag[0] for tag in made} == set(LETTERS[scheme])


@pytest.mark.parametrize(
    ("tag", "schemes"),
    [
        *((tag, ", ".join(LETTERS)) for tag in ("NN", "PER-B", "b-per", "B_PER", "")),
        ("E-PER", "bioes, bmes, bmewo"),
        ("S-PER", "bios, bioes, bmes"),
        ("L-PER", "bilou"),
        ("M", "bmes, bmewo"),
    ],
)
def test_what_is_no_tag_of_the_scheme_is_an_error_that_says_what_to_do(tag, schemes):
    with pytest.raises(UnmaskError, match="is not a tag of the scheme bio") as error:
        repair(["O", tag])
    assert f"the tags are in: {schemes}, or plain" in str(error.value) and "word 2" in str(error.value)
    named = schemes.partition(",")[0] if schemes != ", ".join(LETTERS) else "plain"
    assert f"--set task.scheme={named}" in str(error.value)
    assert repair(["O", tag], "plain") == (["O", tag], ())


@pytest.mark.parametrize("tag", ["B-", "I-", "O-PER"])
def test_a_hyphen_without_a_type_is_no_tag(tag):
    with pytest.raises(UnmaskError, match="is not a tag of the scheme bio"):
        repair(["O", tag])


@settings(deadline=None)
@given(st.data(), st.sampled_from(list(GRAMMARS)))
def test_spans_become_tags_and_come_back(data, scheme):
    edges = sorted(data.draw(st.sets(st.integers(0, 12), max_size=8)))
    spans = [(a, b, data.draw(st.sampled_from(["X", "Y-Z"]))) for a, b in zip(edges[::2], edges[1::2], strict=False)]
    tags = spans_to_tags(spans, 12, scheme)
    assert len(tags) == 12 and is_legal([tag.replace("Y-Z", "Y_Z") for tag in tags], scheme)
    pieces = read_pieces([part_of(tag, scheme) for tag in tags], scheme)
    assert [(p.begin, p.end, p.label, p.whole) for p in pieces] == [(*s, True) for s in spans]
    plain = spans_to_tags(spans, 12, "plain")
    assert [tag if tag == "O" else tag[2:] for tag in tags] == list(plain)
