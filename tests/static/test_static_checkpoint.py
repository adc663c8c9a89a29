"""A checkpoint comes back bit for bit or not at all, to the training that it belongs to, and is written when it is worth it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unmask.config.static import CharacterNgrams, Glove, Word2Vec
from unmask.errors import CannotWriteError, DamagedError, UnmaskError
from unmask.files import write_folder
from unmask.static import checkpoint
from unmask.static.checkpoint import FORMAT, Checkpoint, Identity, require_same_settings, told

STANDS = {"next": 3, "sums": [0.1, 1e-300]}


def identity(settings: Word2Vec | Glove = Word2Vec(), **corpus: object) -> Identity:
    return {"settings": told(settings), "corpus": {"words": 7, "fingerprint": "ab", **corpus}}


def tables(rows: int = 4, columns: int = 3, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.random((rows, columns), np.float32) for name in ("inputs", "outputs")}


def saved(folder: Path, of: Identity | None = None) -> Path:
    Checkpoint(folder, lambda: of or identity(), tables()).save(STANDS)
    return folder


@pytest.mark.parametrize("times", [1, 2])
def test_what_is_saved_comes_back(times: int, tmp_path: Path):
    for seed in range(times):
        Checkpoint(tmp_path / "point", identity, tables(seed=seed)).save({**STANDS, "seed": seed})
    held = tables(seed=9)
    assert Checkpoint(tmp_path / "point", identity, held).load() == {**STANDS, "seed": times - 1}
    for name, table in tables(seed=times - 1).items():
        assert np.array_equal(held[name], table)
    assert [path.name for path in tmp_path.iterdir()] == ["point"]


def test_where_nothing_was_saved_nothing_is_changed(tmp_path: Path):
    held = tables()
    for folder in (None, tmp_path / "none"):
        assert Checkpoint(folder, identity, held).load() is None
    assert np.array_equal(held["inputs"], tables()["inputs"])


def test_without_a_folder_nothing_is_ever_due_and_the_corpus_is_not_read(monkeypatch):
    def read() -> Identity:
        raise AssertionError

    point = Checkpoint(None, read, tables(), minutes=0.0)
    point.save(STANDS)
    assert point.load() is None and not point.is_due() and not point.is_due(at_end_of_epoch=True)


# --- whose it is ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("now", "said"),
    [
        (identity(Word2Vec(window=4, seed=3)), "(settings: window was 5 and is 4, seed was 0 and is 3)"),
        (identity(Word2Vec(ngrams=CharacterNgrams(buckets=9))), "(settings: ngrams.buckets was 0 and is 9)"),
        (identity(Word2Vec(model="cbow"), words=8), "(settings: model was skipgram and is cbow)"),
        (identity(Glove()), "(settings: kind was word2vec and is glove)"),
        (identity(words=8, fingerprint="cd"), "(corpus: words was 7 and is 8, fingerprint was ab and is cd)"),
        ({**identity(), "pieces": {"words": 5}}, "(pieces: words was None and is 5)"),
    ],
)
def test_another_training_is_told_what_differs(now: Identity, said: str, tmp_path: Path):
    held = tables(seed=1)
    with pytest.raises(UnmaskError) as raised:
        Checkpoint(saved(tmp_path / "point"), lambda: now, held).load()
    assert raised.value.what == f"The checkpoint belongs to another training {said}."
    assert raised.value.where == str(tmp_path / "point") and "delete this folder" in raised.value.do
    assert np.array_equal(held["inputs"], tables(seed=1)["inputs"])


def test_a_setting_that_only_one_version_of_unmask_has_is_a_difference(tmp_path: Path):
    of = identity()
    of["settings"]["temperature"] = 2
    with pytest.raises(UnmaskError, match="temperature was 2 and is None"):
        Checkpoint(saved(tmp_path / "point", of), identity, tables()).load()


def test_memory_makes_no_difference():
    assert told(Glove(memory=2**22)) == told(Glove()) and told(Glove(window=9)) != told(Glove())


def test_settings_are_compared_without_the_corpus(tmp_path: Path):
    folder = saved(tmp_path / "point", identity(Glove()))
    require_same_settings(folder, Glove(memory=2**22))
    require_same_settings(tmp_path / "none", Glove())
    with pytest.raises(UnmaskError, match="epochs was 25 and is 26"):
        require_same_settings(folder, replace(Glove(), epochs=26))


# --- what is damaged --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("now", "said"),
    [
        (tables(rows=5), r"inputs is float32 of the shape \(4, 3\), not float32 of the shape \(5, 3\)"),
        ({**tables(), "outputs": np.zeros(12, np.float32)}, "outputs is"),
        ({**tables(), "ngrams": np.zeros((4, 3), np.float32)}, "ngrams is missing"),
    ],
)
def test_tables_of_another_shape_are_refused_before_any_is_filled(now, said: str, tmp_path: Path):
    before = {name: table.copy() for name, table in now.items()}
    with pytest.raises(DamagedError, match=said):
        Checkpoint(saved(tmp_path / "point"), identity, now).load()
    assert all(np.array_equal(table, before[name]) for name, table in now.items())


@pytest.mark.parametrize("name", ["tables.safetensors", "state.json", "manifest.json"])
def test_every_changed_byte_is_seen(name: str, tmp_path: Path):
    path = saved(tmp_path / "point") / name
    data = path.read_bytes()
    for at in range(0, len(data), 5):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(DamagedError):
            Checkpoint(tmp_path / "point", identity, tables()).load()
    path.write_bytes(data[:-1])
    with pytest.raises(DamagedError):
        require_same_settings(tmp_path / "point", Word2Vec())


@pytest.mark.parametrize("kind", ["folder", "other", "file"])
def test_a_place_that_holds_something_else_is_refused_before_training(kind: str, tmp_path: Path):
    if kind == "other":
        with write_folder(tmp_path / "point", about={"format": "unmask-vectors"}) as folder:
            (folder / "words.txt").write_text("")
    elif kind == "folder":
        (tmp_path / "point").mkdir()
        (tmp_path / "point" / "letter.txt").write_text("dear")
    else:
        (tmp_path / "point").write_text("dear")
    with pytest.raises(CannotWriteError):
        Checkpoint(tmp_path / "point", identity, tables()).load()


def test_an_empty_folder_is_as_good_as_none(tmp_path: Path):
    (tmp_path / "point").mkdir()
    point = Checkpoint(tmp_path / "point", identity, tables())
    assert point.load() is None
    point.save(STANDS)
    assert point.load() == STANDS


def test_a_link_to_a_folder_is_followed(tmp_path: Path):
    (tmp_path / "link").symlink_to(saved(tmp_path / "point"))
    point = Checkpoint(tmp_path / "link", identity, tables())
    point.save({"next": 4})
    assert point.load() == {"next": 4} and (tmp_path / "link").is_symlink()


def test_a_save_that_fails_leaves_the_one_before(tmp_path: Path):
    point = Checkpoint(saved(tmp_path / "point"), identity, tables())
    with pytest.raises(ValueError, match="JSON"):
        point.save({"sums": [float("nan")]})
    assert point.load() == STANDS and [path.name for path in tmp_path.iterdir()] == ["point"]


def test_what_lies_in_the_folder_can_be_read_by_others(tmp_path: Path):
    folder = saved(tmp_path / "point")
    state = json.loads((folder / "state.json").read_text())
    assert state == {"of": identity(), "stands": STANDS}
    assert json.loads((folder / "manifest.json").read_text())["about"] == {"format": FORMAT}


# --- when -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("seconds", "minutes", "usually", "after_an_epoch"),
    [
        (59, 5.0, False, False),
        (60, 5.0, False, True),
        (299, 5.0, False, True),
        (300, 5.0, True, True),
        (30, 0.5, True, True),
        (29, 0.5, False, False),
        (0, 0.0, True, True),
    ],
)
def test_saving_is_due_after_so_many_minutes_and_at_the_end_of_an_epoch_after_one(
    seconds, minutes, usually, after_an_epoch, tmp_path: Path, monkeypatch
):
    now = 1000.0
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now)
    point = Checkpoint(tmp_path / "point", identity, tables(), minutes)
    for _ in range(2):  # counted from the beginning, then from what was saved
        now += seconds
        assert (point.is_due(), point.is_due(at_end_of_epoch=True)) == (usually, after_an_epoch)
        point.save(STANDS)
