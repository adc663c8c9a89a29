"""Search in two stages: BM25 by hand and by brute force, exact vectors, reranking."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from gzip import open as gzip_open
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.labelled.records import Collection
from unmask.tasks import retrieval
from unmask.tasks.retrieval import Bm25, Hits, Role, Vectors, best, evaluate, folder_embedder, rerank, search, split


# --- words -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The CAT's mat, 3.5%!", ["the", "cat", "s", "mat", "3", "5"]),
        ("全文检索", ["全文", "文检", "检索"]),
        ("在 BERT模型里", ["在", "bert", "模型", "型里"]),
        ("Ｆｕｌｌ　ｗｉｄｔｈ", ["full", "width"]),
        ("Straße caf\u0065\u0301", ["strasse", "caf\u00e9"]),
        ("", []),
        (" \u3000,。", []),
    ],
)
def test_texts_fall_into_words_and_chinese_into_twos(text: str, words: list[str]) -> None:
    assert split(text) == words


# --- BM25 ------------------------------------------------------------------------------------------------------------
def test_bm25_by_hand() -> None:
    """Three documents of 2, 3 and 1 words, 2 on average; "cat" is in two of them."""
    found = Bm25(["cat mat", "cat cat dog", "dog"]).scores("Cat cat bird")
    rarity = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    first = rarity * 1 / (1 + 0.9 * (1 - 0.4 + 0.4 * 2 / 2))
    second = rarity * 2 / (2 + 0.9 * (1 - 0.4 + 0.4 * 3 / 2))
    assert found == pytest.approx([2 * first, 2 * second, 0.0])


words = st.text("abcd ", max_size=12)


@given(texts=st.lists(words, max_size=8), query=words, k1=st.floats(0.1, 2), b=st.floats(0, 1))
def test_bm25_equals_brute_force(texts: list[str], query: str, k1: float, b: float) -> None:
    bags = [text.split() for text in texts]
    mean = sum(map(len, bags)) / max(1, len(bags)) or 1
    wanted = []
    for bag in bags:
        total = 0.0
        for word in query.split():
            having = sum(word in other for other in bags)
            frequency = bag.count(word)
            length = k1 * (1 - b + b * len(bag) / mean)
            rarity = math.log(1 + (len(bags) - having + 0.5) / (having + 0.5))
            total += rarity * frequency / (frequency + length) if frequency else 0
        wanted.append(total)
    index = Bm25(texts, k1=k1, b=b)
    assert index.scores(query) == pytest.approx(wanted)
    (hits,) = index.search([query], 3)
    assert hits.score_K == pytest.approx(sorted((s for s in wanted if s > 0), reverse=True)[:3])
    assert not np.isin(hits.document_K, np.flatnonzero(np.array(wanted) == 0)).any()


# --- vectors ---------------------------------------------------------------------------------------------------------
@given(scores=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=20), depth=st.integers(1, 25))
def test_the_best_are_those_of_a_stable_sort(scores: list[float], depth: int) -> None:
    found = best(np.array(scores), depth)
    assert found.document_K.tolist() == sorted(range(len(scores)), key=lambda i: -scores[i])[:depth]
    assert found.score_K.tolist() == sorted(scores, reverse=True)[:depth]


def test_a_search_in_chunks_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    queries, documents = (rng.normal(size=(n, 8)).astype(np.float32) for n in (13, 50))
    wanted = np.argsort(-(queries.astype(float) @ documents.T.astype(float)), 1)[:, :7]
    told: list[float] = []
    for at_once in (1, 120, 1 << 20):
        monkeypatch.setattr(retrieval, "SCORES_AT_ONCE", at_once)
        found = search(queries, documents, 7, progress=lambda what, done, total: told.append(done))
        assert [one.document_K.tolist() for one in found] == wanted.tolist()
        assert told[-1] == 13
    assert told == [*range(14), 0, 2, 4, 6, 8, 10, 12, 13, 0, 13], "a rate is known from the first chunk on"
    assert [len(one.document_K) for one in search(queries, documents[:0], 7)] == [0] * 13


def test_each_role_gets_the_prompt_that_the_folder_has_for_it() -> None:
    """vllm#11801: a query's prompt forgotten; elsewhere documents get the query's, which is the default one."""
    asked: list[str | None] = []

    def model(**prompts: str) -> Any:
        def encode(texts: Sequence[str], *, normalize: bool, prompt: str | None, progress: object) -> Vectors:
            assert normalize
            asked.append(prompt)
            return np.ones((len(texts), 1), np.float32)

        return SimpleNamespace(prompts=prompts, encode=encode)

    for one in (model(query="q: ", document="d: ", passage="p: "), model(passage="p: "), model(query="q: "), model()):
        embed = folder_embedder(one)
        assert embed(["a"], "query").shape == embed(["b"], "document").shape == (1, 1)
    assert asked == ["q: ", "d: ", None, "p: ", "q: ", None, None, None]


# --- two stages ------------------------------------------------------------------------------------------------------
DOCUMENTS = {"a": "red apple pie", "b": "green apple", "c": "blue sky", "d": "red sky at night", "e": "nothing here"}
TOY = Collection(
    DOCUMENTS,
    {"1": "apple", "2": "sky at night", "3": "zebra", "4": "unjudged"},
    {"1": {"b": 1, "e": 0}, "2": {"c": 1, "d": 1}, "3": {"e": 1}, "4": {"a": 0}},
)


def judge(queries: Sequence[str], texts: Sequence[str]) -> np.ndarray:
    """Shorter is better."""
    assert len(queries) == len(texts)
    return np.array([-float(len(text)) for text in texts])


def test_a_toy_collection_is_searched_and_reranked() -> None:
    roles: list[tuple[Role, int]] = []

    def embed(texts: Sequence[str], role: Role) -> Vectors:
        roles.append((role, len(texts)))
        letters = np.array([[text.count(letter) for letter in "aepbz"] for text in texts], np.float32)
        return letters / np.maximum(np.linalg.norm(letters, axis=1, keepdims=True), 1e-6)

    found = evaluate(TOY, embed=embed, judge=judge)
    assert list(found) == ["bm25", "bi-encoder", "bm25+rerank", "bi-encoder+rerank"]
    assert roles == [("query", 3), ("document", 5)], "queries without a judgement are not asked"
    assert found["bm25"]["recall@10"] == pytest.approx((1 + 1 + 0) / 3)
    assert found["bm25"]["mrr@10"] == pytest.approx((1 + 1 + 0) / 3)
    assert found["bm25+rerank"]["recall@10"] == found["bm25"]["recall@10"]
    assert found["bi-encoder"]["recall@10"] == 1 and found["bi-encoder+rerank"]["recall@10"] == 1
    by_length = sorted(DOCUMENTS, key=lambda name: len(DOCUMENTS[name]))
    ranks = [by_length.index(name) + 1 for name in ("b", "c", "e")]
    assert found["bi-encoder+rerank"]["mrr@10"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    assert list(evaluate(TOY)) == ["bm25"]


def test_reranking_keeps_the_hits_and_the_order_of_equal_ones() -> None:
    hits = [Hits(np.array([2, 0, 1]), np.array([3.0, 2.0, 1.0])), Hits(np.array([], int), np.array([]))] * 20
    asked: list[int] = []

    def equal(queries: Sequence[str], texts: Sequence[str]) -> np.ndarray:
        asked.append(len(texts))
        return np.array([float(text == "one") for text in texts])

    found = rerank(hits, ["q"] * 40, ["zero", "one", "two"], equal)
    assert [one.document_K.tolist() for one in found] == [[1, 2, 0], []] * 20
    assert [one.score_K.tolist() for one in found[:2]] == [[1, 0, 0], []] and sum(asked) == 60
    shuffled = np.random.default_rng(0).permutation(100)
    (same,) = rerank([Hits(shuffled, np.zeros(100))], ["q"], ["zero", "one"] * 50, equal)
    assert same.document_K.tolist() == sorted(shuffled.tolist(), key=lambda at: at % 2 == 0)


def test_a_chinese_title_finds_its_abstract_by_words(shared: Path) -> None:
    folder = shared / "data" / "tasks" / "retrieval" / "zh_csl_title"

    def read(name: str) -> list[dict[str, str]]:
        path = folder / name
        with gzip_open(path, "rt", encoding="utf-8") if name.endswith(".gz") else path.open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    documents = {row["_id"]: row["text"] for row in read("corpus.jsonl.gz")}
    pairs = [line.split("\t") for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:301]]
    queries = {row["_id"]: row["text"] for row in read("queries.jsonl")}
    found = evaluate(Collection(documents, queries, {query: {text: 1} for query, text, _ in pairs}))
    assert found["bm25"]["recall@10"] > 0.9
