"""The task sets of the comparison, cut to sizes that two CPU cores can train, and the files that both sides read."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.text import REPOSITORY
from unmask.config import Answering, Classification, Contrast, Ranking, Regression, Tagging, Task
from unmask.labelled.collection import read_collection
from unmask.labelled.records import Collection
from unmask.tasks.retrieval import Bm25, Hits

TASKS = REPOSITORY.parent / "shared/data/tasks"
DISTRACTORS = 1000  # documents of a search besides those that answer the test's queries
QUERIES = 100  # of the test
NEGATIVES = 3  # of a training query of a cross-encoder, drawn from BM25's hits
RERANKED = 10


@dataclass(frozen=True)
class Row:
    """One task set: how much of it, how long, and what is learned. With `select` the best epoch on the dev set is kept, without
    it the last."""

    name: str
    kind: str
    task: Task
    train: int  # records, drawn once
    test: int
    epochs: int
    max_length: int
    learning_rate: float = 5e-5
    select: bool = True
    tested: str = "test"  # the split that is measured

    @property
    def title(self) -> str:
        return f"{self.name} ({self.task.kind})" if self.kind == "retrieval" else self.name

    def write(self, folder: Path) -> None:
        """train.jsonl, dev.jsonl and test.jsonl: the same draws every time."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.kind == "retrieval":
            _write(folder / "train.jsonl", self._queries())
            return
        for split, size in (("train", self.train), ("dev", self.test), ("test", self.test)):
            _write(folder / f"{split}.jsonl", self._draw(self.tested if split == "test" else split, size))

    def _draw(self, split: str, size: int) -> list[dict[str, Any]]:
        rows = _rows(TASKS / self.kind / self.name, split)
        return random.Random(0).sample(rows, size) if size < len(rows) else rows

    def _queries(self) -> list[dict[str, Any]]:
        """A training query with a text that answers it, and for a cross-encoder with some that do not."""
        collection = read_collection(str(TASKS / self.kind / self.name), "train")
        names, asked = list(collection.documents), sorted(collection.queries)
        asked = [q for q in asked if any(collection.relevant.get(q, {}).values())][: self.train]
        found = self._lexical(collection, asked) if isinstance(self.task, Ranking) else {}
        rows = []
        for query in asked:
            right = [id for id, grade in collection.relevant[query].items() if grade > 0]
            wrong = [names[at] for at in found.get(query, ()) if names[at] not in right]
            drawn = random.Random(query).sample(wrong, NEGATIVES) if found else []
            named = {f"negative_{at}": collection.documents[id] for at, id in enumerate(drawn, 1)}
            rows.append({"query": collection.queries[query], "positive": collection.documents[right[0]], **named})
        return rows

    def _lexical(self, collection: Collection, asked: Sequence[str]) -> dict[str, list[int]]:
        index = Bm25(list(collection.documents.values()))
        hits = index.search([collection.queries[q] for q in asked], 30)
        return {q: one.document_K.tolist() for q, one in zip(asked, hits, strict=True)}


def _rows(folder: Path, split: str) -> list[dict[str, Any]]:
    plain, packed = folder / f"{split}.jsonl", folder / f"{split}.jsonl.gz"
    text = plain.read_text("utf-8") if plain.exists() else gzip.decompress(packed.read_bytes()).decode("utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def _write(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@dataclass(frozen=True)
class Search:
    """A part of a collection to search, with BM25's best hits of each query to rerank."""

    collection: Collection
    asked: list[str]
    queries: list[str]
    texts: list[str]
    hits: list[Hits]


def search_of(row: Row) -> Search:
    """The test's first queries, what answers them, and other documents."""
    whole = read_collection(str(TASKS / row.kind / row.name), "test")
    asked = [q for q in sorted(whole.queries) if any(whole.relevant.get(q, {}).values())][:QUERIES]
    needed = {id for q in asked for id in whole.relevant[q]}
    others = random.Random(0).sample([id for id in whole.documents if id not in needed], DISTRACTORS)
    kept = needed.union(others)
    documents = {id: text for id, text in whole.documents.items() if id in kept}
    queries, texts = [whole.queries[q] for q in asked], list(documents.values())
    part = Collection(documents, {q: whole.queries[q] for q in asked}, {q: whole.relevant[q] for q in asked})
    return Search(part, asked, queries, texts, Bm25(texts).search(queries, RERANKED))


ENGLISH = (
    Row("en_sentence_polarity", "classification", Classification(), 1500, 1066, 2, 64, 1e-4),
    Row("en_banking77", "classification", Classification(), 1500, 1000, 5, 64, 4e-4),
    Row("en_scifact_verification", "pair", Classification(), 400, 321, 3, 128, 1e-4, tested="dev"),
    Row("en_stsb_open", "pair", Regression(), 1000, 629, 4, 128, 3e-4),
    Row("en_uner_ewt", "tagging", Tagging(), 1500, 800, 3, 128, 2e-4),
    Row("en_wnut17", "tagging", Tagging(), 2500, 800, 3, 128, 2e-4),
    Row("en_squad11", "qa", Answering(stride=64), 600, 300, 2, 192, 4e-4, select=False, tested="dev"),
    Row("en_scifact", "retrieval", Contrast(), 400, 0, 1, 128, 5e-5, select=False),
    Row("en_scifact", "retrieval", Ranking(), 200, 0, 1, 128, 2e-4, select=False),
)
CHINESE = (
    Row("zh_shopping_reviews", "classification", Classification(), 2000, 800, 3, 128, 5e-4),
    Row("zh_uner_gsdsimp", "tagging", Tagging(), 1500, 500, 4, 128, 6e-4),
    Row("zh_cmrc2018", "qa", Answering(stride=64), 150, 80, 2, 256, 6e-4, select=False, tested="dev"),
)
