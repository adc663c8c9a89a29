from __future__ import annotations

import gzip
import itertools
import json
import random
import re
import subprocess
import sys
import time
from math import comb

import numpy as np
import pytest

from unmask.text.duplicates import BANDS, band_keys, find_duplicates, fingerprint


def keys(texts):
    exact = np.frombuffer(b"".join(map(fingerprint, texts)), np.uint64).reshape(-1, 2)
    return exact, np.array([band_keys(text) for text in texts]).reshape(len(texts), BANDS)


def shingles(text):
    """An independent, plain statement of what a shingle is (for texts without kana)."""
    units = re.findall(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+", text.lower().replace("_", " "))
    return {tuple(units[i : i + 5]) for i in range(len(units) - 4)}


def jaccard(left, right):
    left, right = shingles(left), shingles(right)
    return len(left & right) / max(1, len(left | right))


def documents(shared, name, count, size):
    with gzip.open(shared / "data" / "corpora" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"][:size] for line in file]
    return [text for text in texts if len(text) > size * 0.9][:count]


def edited(text, changes, rng, units):
    parts = re.findall(units, text)
    for at in rng.sample(range(len(parts)), changes):
        parts[at] = rng.choice(["changed ", "甲", "other "])
    return "".join(parts)


def found(similarity):
    p = similarity**6
    return 1 - sum(comb(32, k) * p**k * (1 - p) ** (32 - k) for k in range(6))


def test_the_documented_curve_is_the_binomial_tail():
    assert [round(100 * found(j), 1) for j in (0.6, 0.7, 0.75, 0.8, 0.85, 0.9)] == [0.3, 16.7, 51.6, 88.0, 99.4, 100.0]


@pytest.mark.parametrize(("name", "units"), [("en_wiki_squad_articles", r"\S+\s*"), ("zh_docs_oiwiki", r"(?s).")])
def test_near_duplicates_are_found_as_often_as_their_brute_force_similarity_says(shared, name, units):
    rng = random.Random(1)
    originals = documents(shared, name, 50, 1200)
    hits, expected, high = 0, 0.0, []
    for text in originals:
        for share in (0.005, 0.01, 0.02, 0.04, 0.08, 0.15):
            parts = len(re.findall(units, text))
            copy = edited(text, max(1, int(parts * share)), rng, units)
            similarity = jaccard(text, copy)
            near = find_duplicates(*keys([text, copy])).near
            hits, expected = hits + near, expected + found(similarity)
            if similarity > 0.9:
                high.append(near)
            assert similarity > 0.45 or not near
    assert abs(hits - expected) < 0.05 * len(originals) * 6
    assert len(high) > 20 and all(high)


@pytest.mark.parametrize("name", ["en_wiki_squad_articles", "zh_docs_oiwiki", "zh_csl_abstracts"])
def test_different_real_documents_are_all_kept(shared, name):
    with gzip.open(shared / "data" / "corpora" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for _, line in zip(range(150), file, strict=False)]
    kept = find_duplicates(*keys(texts))
    for document, first in enumerate(kept.first):
        assert first == document or jaccard(texts[document], texts[first]) > 0.5


def test_the_first_occurrence_stays_and_both_kinds_are_counted(shared):
    a, b, c = documents(shared, "en_wiki_squad_articles", 3, 2000)
    near = a.replace(a.split()[100], "replaced", 1)
    kept = find_duplicates(*keys([b, a, near, c, a.upper(), b + "\n", near]))
    assert kept.kept.tolist() == [True, True, False, True, False, False, False]
    assert kept.first.tolist() == [0, 1, 1, 3, 1, 0, 1]
    assert (kept.exact, kept.near) == (3, 1)


def test_every_repeat_points_at_a_kept_earlier_document():
    rng = np.random.default_rng(0)
    exact = rng.integers(1, 400, (500, 2)).astype(np.uint64)
    bands = rng.integers(1, 4, (500, BANDS)).astype(np.uint64)
    kept = find_duplicates(exact, bands)
    assert kept.kept[kept.first].all() and (kept.first <= np.arange(500)).all()
    assert kept.exact + kept.near == (~kept.kept).sum() and not kept.kept.all()


def test_short_and_empty_texts_are_compared_exactly_only():
    short = "one two three four five six seven eight nine ten eleven twelve"
    kept = find_duplicates(*keys([short, short + " thirteen", "", "", short, " \n"]))
    assert kept.kept.tolist() == [True, True, True, False, False, False]
    assert (kept.exact, kept.near) == (3, 0)
    assert not band_keys(short).any() and band_keys(short * 3).all()


def test_no_documents_and_no_bands_are_fine():
    assert find_duplicates(np.zeros((0, 2), np.uint64), np.zeros((0, BANDS), np.uint64)).kept.shape == (0,)
    exact = np.frombuffer(b"".join(map(fingerprint, "aba")), np.uint64).reshape(-1, 2)
    assert find_duplicates(exact, np.zeros((3, 0), np.uint64)).kept.tolist() == [True, True, False]


def test_exactness_ignores_white_space_and_case_but_nothing_else():
    assert fingerprint("Hello  World\n") == fingerprint("hello world")
    assert len({fingerprint(text) for text in ("hello world", "helloworld", "hello, world", "hallo world")}) == 4


def test_keys_are_the_same_in_another_process():
    text = "The quick brown fox jumps over the lazy dog. " * 3 + "自然语言处理模型很有用" * 2
    program = "import sys; from unmask.text.duplicates import *; t=sys.stdin.buffer.read().decode(); "
    program += "print(fingerprint(t).hex(), band_keys(t).tolist())"
    made = subprocess.run([sys.executable, "-c", program], input=text.encode(), capture_output=True, check=True).stdout
    assert made.decode().strip() == f"{fingerprint(text).hex()} {band_keys(text).tolist()}"
    assert band_keys(text)[:2].tolist() == GOLDEN, "kept fingerprints of earlier builds would no longer match"


GOLDEN = [13223807216884960772, 18263623549532116607]


def test_half_a_million_characters_and_a_hundred_thousand_documents_take_little_time():
    began = time.process_time()
    for flood in ("a.", "a", "的", " ", "1 "):
        band_keys(flood * (500_000 // len(flood)))
        fingerprint(flood * (500_000 // len(flood)))
    rng = np.random.default_rng(0)
    bands = rng.integers(1, 1 << 62, (100_000, BANDS)).astype(np.uint64)
    bands[50_000:] = bands[0]
    assert find_duplicates(rng.integers(0, 1 << 62, (100_000, 2)).astype(np.uint64), bands).near == 50_000
    assert time.process_time() - began < 4


def test_words_hash_by_their_letters_and_their_order():
    base = [f"word{i}" for i in range(30)]
    rotations = [" ".join(base[i:] + base[:i]) for i in (0, 15)]
    assert not np.array_equal(band_keys(rotations[0]), band_keys(" ".join(reversed(base))))
    anagrams = [" ".join(words) for words in itertools.islice(itertools.permutations(["ab", "ba", "abc"] * 8), 2)]
    assert fingerprint(anagrams[0]) != fingerprint(anagrams[1])
