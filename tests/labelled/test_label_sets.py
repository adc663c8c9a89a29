"""Which labels a data set has: always the same order, and never one that training did not see."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.labelled.labels import in_order_of, label_set, require_known, tag_set
from unmask.labelled.records import Place, TaggedExample, TextExample


def texts(*labels: str | tuple[str, ...] | None) -> list[TextExample]:
    return [TextExample("t", None, label, Place("train.csv", at + 1, at)) for at, label in enumerate(labels, 1)]


@given(
    st.lists(st.text(min_size=1, max_size=5), min_size=2, unique=True).flatmap(
        lambda s: st.tuples(st.just(s), st.permutations(s))
    )
)
def test_B146_the_order_of_labels_does_not_depend_on_the_order_of_records(drawn):
    one, other = drawn
    try:
        found = label_set(texts(*one))
    except UnmaskError:
        return  # they look like numbers
    assert found == label_set(texts(*other, *one)) and sorted(found) == sorted(one)


def test_numbers_are_sorted_by_value_and_words_by_letters():
    assert label_set(texts("10", "2", "1", "2")) == ("1", "2", "10")
    assert label_set(texts("10", "2", "x")) == ("10", "2", "x")
    assert label_set(texts("好評", "very good", "-")) == ("-", "very good", "好評")
    assert label_set(texts(*map(str, range(77)))) == tuple(map(str, range(77)))


def test_several_labels_a_text_count_each_and_one_alone_is_enough():
    assert label_set(texts(("b", "a"), (), ("c",))) == ("a", "b", "c")
    assert label_set(texts(("b",), ())) == ("b",)


def test_a_single_class_is_an_error_that_says_so():
    with pytest.raises(UnmaskError, match="every record has the label 'x'") as error:
        label_set(texts("x", "x"))
    assert "train.csv" in str(error.value)
    for nothing in (texts(None), texts((), ()), []):
        with pytest.raises(UnmaskError, match="no record has a label"):
            label_set(nothing)


def test_B010_measured_numbers_are_not_taken_for_classes():
    scores = [f"{at / 5:.1f}" for at in range(26)]
    with pytest.raises(UnmaskError, match="26 different numbers") as error:
        label_set(texts(*scores))
    assert "regression" in str(error.value)
    assert label_set(texts(*scores[:5], "unknown"))[-1] == "unknown"


def test_tags_are_labels_of_words():
    place = Place("a.conll", 1, 1)
    examples = [TaggedExample(("Ada", "is"), ("B-PER", "O"), place), TaggedExample(("Ada",), None, place)]
    assert label_set(examples) == tag_set(examples, "plain") == ("B-PER", "O")
    assert tag_set(examples, "bio") == ("B-PER", "I-PER", "O")
    assert tag_set(examples, "bioes") == ("B-PER", "E-PER", "I-PER", "O", "S-PER")
    assert tag_set(examples, "bios") == ("B-PER", "I-PER", "O", "S-PER")
    with pytest.raises(UnmaskError, match="every record has the label 'O'"):
        tag_set([TaggedExample(("is",), ("O",), place)], "bio")


def test_tags_without_types_have_an_O_only_where_a_word_is_outside() -> None:
    place = Place("a.conll", 1, 1)
    cut = TaggedExample(tuple("北京很大"), ("B", "E", "S", "S"), place)
    assert tag_set([cut], "bmes") == ("B", "E", "M", "S")
    assert tag_set([cut, TaggedExample(("a", "b"), ("O", "S"), place)], "bmes") == ("B", "E", "M", "O", "S")


def test_the_same_labels_take_the_order_that_is_known() -> None:
    assert in_order_of(("b", "a"), ("a", "b")) == ("b", "a")
    for other in ((), ("b",), ("b", "a", "c"), ("b", "c")):
        assert in_order_of(other, ("a", "b")) == ("a", "b")


def test_unseen_labels_are_listed_each_with_its_first_place():
    examples = texts("a", "b", "new one", "b", "新", "new one")
    require_known(examples, ("a", "b", "new one", "新"), "dev.csv")
    with pytest.raises(UnmaskError) as error:
        require_known(examples, ("a", "b"), "dev.csv")
    shown = str(error.value)
    assert "2 labels unknown" in shown and "known are 'a', 'b'" in shown and "where: dev.csv" in shown
    with pytest.raises(UnmaskError, match="did you mean 'negative'\\?"):
        require_known(texts("negativ"), ("negative", "positive"), "dev.csv")
    assert "'new one' (train.csv, line 4, record 3)" in shown and "'新' (train.csv, line 6, record 5)" in shown
    with pytest.raises(UnmaskError, match="'c'"):
        require_known(texts(("a", "c")), ("a",), "dev.csv")
    with pytest.raises(UnmaskError, match="and 5 more"):
        require_known(texts(*(f"l{at}" for at in range(25))), ("a",), "dev.csv")
