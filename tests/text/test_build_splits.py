"""What is held out, and which of equal documents stay."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from small_corpora import LETTERS, some_texts, stored, write_jsonl

from unmask.errors import UnmaskError
from unmask.text.build import BuildOptions, build_corpus
from unmask.text.duplicates import band_keys, find_duplicates, fingerprint
from unmask.text.plan import Index, make_plan
from unmask.text.shards import Corpus


def test_the_same_documents_are_held_out_in_any_order_and_with_duplicates(tmp_path, tokenizer):
    texts = some_texts(200)
    shuffled = texts + texts[:50]
    random.Random(1).shuffle(shuffled)
    options = BuildOptions(heldout_share=0.1)
    held = []
    for name, some in (("one", texts), ("two", shuffled)):
        build_corpus([write_jsonl(tmp_path / f"{name}.jsonl", some)], tmp_path / name, tokenizer, options)
        by_split = {split: [str(ids) for _, ids in documents] for split, documents in stored(tmp_path / name).items()}
        assert not set(by_split["train"]) & set(by_split["heldout"])
        assert max(Counter(by_split["train"] + by_split["heldout"]).values()) == 1
        held.append(set(by_split["heldout"]))
    assert held[0] == held[1]
    assert 5 <= len(held[0]) <= 40


def test_held_out_text_is_at_least_one_document_and_at_most_its_limit(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(40))

    def splits(**changes: object) -> tuple[int, int, int]:
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        found = build_corpus([source], out, tokenizer, BuildOptions(**changes))["splits"]
        return found["train"]["documents"], found["heldout"]["documents"], found["heldout"]["tokens"]

    assert splits(heldout_share=1e-9)[:2] == (32, 8)  # fewer could not make random sentence pairs
    assert splits(heldout_share=0)[:2] == (40, 0)
    assert 0 < splits(heldout_share=0.9, heldout_tokens=300)[2] <= 300
    one = write_jsonl(tmp_path / "one.jsonl", some_texts(1))
    about = build_corpus([one], tmp_path / "single", tokenizer)
    assert about["splits"]["train"]["documents"] == 1
    with pytest.raises(UnmaskError, match="heldout split of this corpus has no documents"):
        Corpus.open(tmp_path / "single", "heldout")


def test_kept_duplicates_never_stand_on_both_sides(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(30) * 3)
    options = BuildOptions(duplicates="keep", heldout_share=0.3, heldout_tokens=500)
    about = build_corpus([source], tmp_path / "c", tokenizer, options)
    assert sum(split["documents"] for split in about["splits"].values()) == 90
    train, heldout = ({str(ids) for _, ids in documents} for documents in stored(tmp_path / "c").values())
    assert train and heldout and not train & heldout


def test_near_duplicates_are_those_of_the_whole_comparison(tmp_path, tokenizer):
    rng = random.Random(3)
    words = ["".join(rng.choices(LETTERS, k=4)) for _ in range(200)]
    texts = []
    for _ in range(150):  # long and short, equal, nearly equal and different
        start = rng.randrange(100)
        text = words[start : start + rng.choice([5, 60, 100])]
        text[rng.randrange(len(text))] = rng.choice(words)
        texts.append(" ".join(text))
    texts += texts[:10]
    source = write_jsonl(tmp_path / "a.jsonl", texts)
    found = find_duplicates(
        np.frombuffer(b"".join(map(fingerprint, texts)), np.uint64).reshape(-1, 2),
        np.stack(list(map(band_keys, texts))),
    )
    assert found.exact > 3 and found.near > 3
    for name, chunk in (("one", 4_000_000), ("two", 20_000)):
        about = build_corpus([source], tmp_path / name, tokenizer, chunk_characters=chunk, workers=1)
        assert about["report"]["duplicates"] == {"exact": found.exact, "near": found.near}
        records = [record for split in stored(tmp_path / name).values() for record, _ in split]
        assert sorted(records) == (np.flatnonzero(found.kept) + 1).tolist()


def test_no_limit_of_held_out_tokens_parts_equal_documents():
    rng = np.random.default_rng(0)
    exact = np.tile(rng.integers(0, 1 << 63, (20, 2), np.uint64), (3, 1))
    index = Index(np.array([0, 60]), np.full(60, 10), exact, np.zeros(0, np.int64), np.zeros((0, 32), np.uint32), 0, 0)
    for limit in range(1, 400, 7):
        plan = make_plan(index, drop_duplicates=False, heldout_share=0.5, heldout_tokens=limit, shard_tokens=1000)
        sides = [{tuple(row) for row in exact[plan.place == number].tolist()} for number in range(len(plan.names))]
        assert plan.names == ["heldout-00000", "train-00000"]
        assert not sides[0] & sides[1]
