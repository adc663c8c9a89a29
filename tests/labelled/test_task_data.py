"""Every real task set is read whole: as many records as it says it has, with exactly its labels and no doubt."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from unmask.labelled.labels import label_set, require_known
from unmask.labelled.questions import read_questions
from unmask.labelled.ranked import ranked_from_collection, read_collection
from unmask.labelled.tagged import read_tagged
from unmask.labelled.texts import read_texts

TASKS = Path(__file__).resolve().parents[3] / "shared" / "data" / "tasks"
BIG = 40_000  # records of a split that would take too long for a test


def sets(*kinds: str) -> list[str]:
    """Names of the task sets; empty, and the tests skipped, where the shared data are absent."""
    return sorted(f"{kind}/{path.parent.name}" for kind in kinds for path in TASKS.glob(f"{kind}/*/meta.json"))


def splits(name: str) -> tuple[dict, dict[str, str]]:
    """What the set says about itself, and the file of each split."""
    meta = json.loads((TASKS / name / "meta.json").read_text(encoding="utf-8"))
    found = {path.name.split(".")[0]: str(path) for path in (TASKS / name).glob("*.jsonl*")}
    assert found.keys() == meta["splits"].keys()
    return meta, found


def raw(path: str) -> list[dict]:
    data = Path(path).read_bytes()
    text = (gzip.decompress(data) if path.endswith(".gz") else data).decode()
    return [json.loads(line) for line in text.split("\n") if line]


@pytest.mark.parametrize("name", sets("classification", "pair", "wic"))
def test_texts_and_pairs(name):
    meta, files = splits(name)
    kind = "number" if meta.get("regression") else "label"
    everything = []
    for split, path in files.items():
        read = read_texts(path, kind=kind)
        assert len(read.examples) == meta["splits"][split] and not read.warnings
        if kind == "label":
            require_known(read.examples, meta["labels"], path)
        first, last = raw(path)[0], read.examples[-1]
        assert read.examples[0].text == first.get("text", first.get("text_a")) and last.place.record == len(
            read.examples
        )
        assert read.examples[0].pair == first.get("text_b") and read.examples[0].label == first["label"]
        everything += read.examples
    assert kind == "number" or label_set(everything) == tuple(sorted(meta["labels"]))


@pytest.mark.parametrize("name", sets("tagging", "pos"))
def test_tags(name):
    meta, files = splits(name)
    for split, path in files.items():
        read = read_tagged(path, scheme="plain" if meta["scheme"] == "none" else "bio")
        assert len(read.examples) == meta["splits"][split] and not read.warnings
        records = raw(path)
        assert [list(e.words) for e in read.examples] == [record["tokens"] for record in records]
        assert [list(e.tags or ()) for e in read.examples] == [record["labels"] for record in records]
        require_known(read.examples, meta["labels"], path)


@pytest.mark.parametrize("name", sets("qa"))
def test_questions(name):
    meta, files = splits(name)
    for split, path in files.items():
        if meta["splits"][split] > BIG:
            continue
        read = read_questions(path)
        assert len(read.examples) == meta["splits"][split] and not read.warnings
        for e in read.examples:
            assert e.answers is not None and all(e.context[a.start :].startswith(a.text) for a in e.answers)
        assert sum(map(len, (e.answers or () for e in read.examples))) == sum(len(r["answers"]) for r in raw(path))


@pytest.mark.slow
def test_the_largest_set_of_questions():
    path = TASKS / "qa" / "en_squad11" / "train.jsonl.gz"
    if not path.exists():
        pytest.skip("needs the project's shared data folder beside the repository (../shared)")
    read = read_questions(str(path))
    assert len(read.examples) == 87_599 and not read.warnings


@pytest.mark.parametrize("name", sets("retrieval"))
def test_collections(name):
    meta = json.loads((TASKS / name / "meta.json").read_text(encoding="utf-8"))
    for split, counts in meta["qrels"].items():
        found = read_collection(str(TASKS / name), split)
        assert len(found.documents) == meta["docs"] and len(found.queries) == counts["queries"]
        assert sum(map(len, found.relevant.values())) == counts["pairs"] and not found.warnings
        ranked = ranked_from_collection(found)
        assert len(ranked.examples) == counts["queries"] and not ranked.warnings
