"""Tags that break their scheme are made right, dropped or refused; what is right stays as it is."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.labelled.rows import Doubts
from unmask.labelled.schemes import read_pieces, repaired, spans_to_tags

ALL = {"bio": ["O", "B-X", "I-X", "B-Y", "I-Y"], "bioes": ["O", *(f"{p}-{t}" for p in "BIES" for t in "XY")]}


def repair(tags, scheme="bio", how="begin") -> tuple[list[str], tuple[str, ...]]:
    doubts = Doubts()
    return list(repaired(tags, scheme, how, lambda at: f"word {at + 1}", doubts)), doubts.warnings


def is_right(tags: list[str], scheme: str) -> bool:
    """By the definitions: I follows B or I of its type; in BIOES so does E, and what B begins, E ends."""
    pairs = zip(["O", *tags], [*tags, "O"], strict=True)
    if scheme == "bio":
        return all(tag[0] != "I" or (before[0] in "BI" and before[2:] == tag[2:]) for before, tag in pairs)
    return all(
        (tag[0] in "IE" and tag[2:] == before[2:]) if before[0] in "BI" else tag[0] not in "IE" for before, tag in pairs
    )


@pytest.mark.parametrize(("scheme", "length"), [("bio", 4), ("bioes", 3)])
def test_every_sequence_of_tags_is_repaired_as_a_lenient_reader_understands_it(scheme, length):
    reader = pytest.importorskip("seqeval.metrics.sequence_labeling")
    for tags in map(list, product(ALL[scheme], repeat=length)):
        made, warnings = repair(tags, scheme)
        assert is_right(made, scheme) and reader.get_entities(made) == reader.get_entities(tags)
        assert (made == tags) == is_right(tags, scheme) == (not warnings)
        dropped, _ = repair(tags, scheme, "drop")
        assert is_right(dropped, scheme) and all(new in ("O", old) for new, old in zip(dropped, tags, strict=True))
        assert (dropped == tags) == is_right(tags, scheme)


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


@pytest.mark.parametrize("tag", ["NN", "B", "PER-B", "b-per", "B-", "", "E-PER", "S-PER"])
def test_what_is_no_tag_of_the_scheme_is_an_error_that_says_what_to_do(tag):
    with pytest.raises(UnmaskError, match="is not a tag of BIO") as error:
        repair(["O", tag])
    assert ("say scheme bioes" in str(error.value)) == (tag[:2] in ("E-", "S-")) and "word 2" in str(error.value)
    assert repair(["O", tag], "plain") == (["O", tag], ())


@given(st.data(), st.sampled_from(["bio", "bioes"]))
def test_spans_become_tags_and_come_back(data, scheme):
    edges = sorted(data.draw(st.sets(st.integers(0, 12), max_size=8)))
    spans = [(a, b, data.draw(st.sampled_from(["X", "Y-Z"]))) for a, b in zip(edges[::2], edges[1::2], strict=False)]
    tags = spans_to_tags(spans, 12, scheme)
    assert len(tags) == 12 and is_right(list(tags), scheme)
    assert [(p.begin, p.end, p.label, p.whole) for p in read_pieces(tags, scheme)] == [(*s, True) for s in spans]
    plain = spans_to_tags(spans, 12, "plain")
    assert [tag if tag == "O" else tag[2:] for tag in tags] == list(plain)
