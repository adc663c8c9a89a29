"""Word in context: thresholds, files, and accuracy by the cosine alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.measure import wic
from unmask.measure.wic import (
    commonest_answer,
    most_accurate_threshold,
    read_pairs_in_context,
    word_in_context,
)
from unmask.measure.word_states import WordStates
from unmask.static.folder import StaticFolder, write_static_folder
from unmask.static.vectors import Vectors
from unmask.static.words import WordCounts

OURS = {"word": "bank", "text_a": "a bank", "text_b": "banks fail", "span_a": [2, 6], "span_b": [0, 5], "label": "same"}
THEIRS = {
    "word": "bank", "sentence1": "a bank", "sentence2": "banks fail", "start1": 2, "end1": 6, "start2": 0, "end2": 5,
    "label": True,
}  # fmt: skip


def write(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@given(st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=1, max_size=12))
def test_no_threshold_is_right_more_often(pairs: list[tuple[int, bool]]) -> None:
    scores, truth = np.array([s / 4 for s, _ in pairs]), np.array([t for _, t in pairs])
    accuracy = lambda threshold: float(((scores >= threshold) == truth).mean())
    found = most_accurate_threshold(scores, truth)
    assert accuracy(found) == max(map(accuracy, np.arange(-2.0, 2.01, 0.125)))
    assert found not in scores


def test_both_spellings_of_a_set_are_read_alike(tmp_path: Path) -> None:
    ours, theirs = (read_pairs_in_context(write(tmp_path / "a.jsonl", row)) for row in (OURS, THEIRS))
    assert ours == theirs
    [pair] = ours
    assert (pair.one.form, pair.other.form, pair.same) == ("bank", "banks", True)
    assert read_pairs_in_context(write(tmp_path / "a.jsonl", {**THEIRS, "label": 0}))[0].same is False


def test_csv_has_the_same_pairs_though_its_cells_are_strings(tmp_path: Path) -> None:
    (tmp_path / "ours.csv").write_text('text_a,text_b,span_a,span_b,label\na bank,banks fail,2 6,"[0, 5]",same\n')
    names = ("sentence1", "sentence2", "start1", "end1", "start2", "end2", "label")
    (tmp_path / "theirs.csv").write_text(",".join(names) + "\n" + ",".join(str(THEIRS[name]) for name in names) + "\n")
    for name in ("ours", "theirs"):
        [pair] = read_pairs_in_context(str(tmp_path / f"{name}.csv"))
        assert (pair.one.form, pair.other.form, pair.same) == ("bank", "banks", True)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"label": "maybe"}, "the label is 'maybe'"),
        ({"text_a": None}, "no text_a"),
        ({"span_b": [0, 99]}, "the place of the word in text_b is 0 to 99"),
        ({"span_b": [3, 3]}, "place of the word"),
        ({"span_a": [1, 2]}, "place of the word"),  # a space
        ({"span_a": "2-6"}, "place of the word"),
        ({"span_a": [False, True]}, "place of the word"),
        ({"span_a": [-4, 6]}, "place of the word"),
    ],
)
def test_what_is_wrong_in_a_pair_is_named(tmp_path: Path, changes: dict[str, object], what: str) -> None:
    source = write(tmp_path / "a.jsonl", OURS, {**OURS, **changes})
    with pytest.raises(UnmaskError) as caught:
        read_pairs_in_context(source)
    assert what in caught.value.what and "line 2" in caught.value.where and caught.value.do


def test_threshold_and_layer_are_chosen_on_dev_and_scored_on_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = read_pairs_in_context(write(tmp_path / "a.jsonl", *[OURS, {**OURS, "label": "different"}] * 4))
    dev, test = pairs[:4], pairs[4:]
    turn = lambda *angles: np.array([[np.cos(a), np.sin(a)] for a in angles], np.float32)
    ones = turn(*[0.0] * 8)
    good, late = (
        turn(0, 1, 0, 1, 0, 1, 1.2, 1),
        turn(0, 1, 0, 0, 0, 1, 0, 1),
    )  # the second is best on the test pairs only
    states = WordStates(False, ("1", "2"), (np.concatenate([ones, good]), np.concatenate([ones, late])), (), "")
    monkeypatch.setattr(wic, "word_states", lambda *given, **named: states)
    score = word_in_context(tmp_path, dev, test)
    assert [(layer.dev_accuracy, layer.accuracy) for layer in score.layers] == [(1, 0.75), (0.75, 1)]
    assert score.chosen == 0 and np.cos(1) < score.layers[0].threshold < 1
    assert commonest_answer(pairs) == 0.5 and commonest_answer(pairs[:3]) == pytest.approx(2 / 3)


def test_a_static_vector_can_only_compare_forms(tmp_path: Path) -> None:
    vectors = Vectors(WordCounts(["bank", "banks"], np.array([2, 1])), np.eye(2, dtype=np.float32))
    write_static_folder(tmp_path / "static", StaticFolder(vectors))
    alike = {**OURS, "text_b": "my bank", "span_b": [3, 7]}
    pairs = read_pairs_in_context(write(tmp_path / "a.jsonl", alike, {**OURS, "label": "different"}, {**alike, "label": "different"}))  # fmt: skip # noqa: E501
    score = word_in_context(tmp_path / "static", pairs, pairs)
    assert score.layers[0].accuracy == pytest.approx(2 / 3) and score.name == "static"


def test_the_shared_set_is_read_whole(shared: Path) -> None:
    folder = shared / "data/tasks/wic/en_wordnet_wic"
    if not folder.is_dir():
        pytest.skip("needs the shared word-in-context set")
    meta = json.loads((folder / "meta.json").read_text())
    for split, name in (("dev", "dev.jsonl"), ("test", "test.jsonl"), ("train", "train.jsonl.gz")):
        assert len(read_pairs_in_context(str(folder / name))) == meta["splits"][split]
