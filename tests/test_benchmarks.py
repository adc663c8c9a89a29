"""The benchmarks run: what they measure on a tiny model means nothing, that they end and tell does."""

from __future__ import annotations

import importlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

REPOSITORY = Path(__file__).parents[1]
WORDS = "the a small large cat dog house river runs sees finds under over near old new green and but while".split()


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Paragraphs of made-up sentences, each of one to twenty."""
    draw, path = random.Random(0), tmp_path_factory.mktemp("text") / "text.txt"
    sentence = lambda: " ".join(draw.choices(WORDS, k=draw.randint(4, 14))).capitalize() + "."
    path.write_text("\n\n".join(" ".join(sentence() for _ in range(draw.randint(1, 20))) for _ in range(300)) + "\n")
    return path


def run(name: str, text: Path, *more: str) -> tuple[str, dict]:
    """What a benchmark printed and wrote."""
    file = text.parent / f"{name}.json"
    told = command(name, text, "--rounds", "1", "--threads", "1", "--text", str(text), "--json", str(file), *more)
    return told, json.loads(file.read_text())


def command(name: str, text: Path, *more: str) -> str:
    words = [sys.executable, "-m", f"benchmarks.{name}", "--tiny", "--cache", str(text.parent / "cache"), *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000"}
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=1800, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch):
    """A module of the folder benchmarks, which is not installed."""
    monkeypatch.syspath_prepend(str(REPOSITORY))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


def test_a_missed_bar_is_marked(benchmark) -> None:
    tables = benchmark("tables")
    assert tables.at_least(2.5, 2.5) == "2.50× (bar ≥ 2.5)"
    assert tables.at_least(2.49, 2.5) == "**2.49×** (bar ≥ 2.5, **missed**)"
    assert tables.at_most(0.41, 0.4) == "**0.41×** (bar ≤ 0.4, **missed**)"
    assert tables.at_least(0.7, 0.65, "%") == "70 % (bar ≥ 65 %)"
    assert tables.at_least(1.2, None) == "1.20×" and tables.at_least(None, 2.0) == "–"


def test_a_ratio_is_the_median_of_the_rounds_own_ratios(benchmark) -> None:
    sides = benchmark("sides")
    ours = sides.Measured([sides.Turn(100, seconds, 0.0, 0.0) for seconds in (1.0, 10.0, 2.0)])
    theirs = sides.Measured([sides.Turn(100, seconds, 0.0, 0.0) for seconds in (2.0, 30.0, 2.0)])
    assert sides.ratio(ours, theirs) == pytest.approx(2.0)  # of 2, 3 and 1; the medians of the speeds are equal


@pytest.fixture
def paragraphs(benchmark, tmp_path: Path):
    """200 paragraphs of 1 to 60 tokens, and a tokenizer whose [CLS] is 2 and [SEP] 3."""
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    sizes = np.random.default_rng(0).integers(1, 61, 200)
    tokens = np.random.default_rng(1).integers(5, 20, sizes.sum()).astype(np.int32)
    return benchmark("text").Text(tokens, np.concatenate([[0], sizes.cumsum()]), tmp_path)


def test_ours_and_peer_a_read_the_same_examples(benchmark, paragraphs) -> None:
    (rows,) = benchmark("text").random_rows(paragraphs, 32, 200, 1, seed=0)
    texts = paragraphs.cut(32).read(np.arange(200))
    begin = texts.sentences[texts.documents]
    ours = [[2, *texts.tokens[a:b].tolist(), 3] for a, b in zip(begin, begin[1:], strict=False)]
    assert sorted(rows) == sorted(ours) and max(map(len, rows)) == 32


def test_concatenated_rows_are_full(benchmark, paragraphs) -> None:
    batches = benchmark("text").concatenated_rows(paragraphs, 16, 4, 5, seed=0)
    assert [[len(row) for row in rows] for rows in batches] == [[16] * 4] * 5


def test_grouped_rows_keep_to_their_places_and_rounds_cost_the_same(benchmark, paragraphs) -> None:
    batches = benchmark("text").grouped_rows(paragraphs, 64, 128, 20, 2, seed=0)
    longest = [max(map(len, rows)) for rows in batches]
    places = [len(rows) * max(map(len, rows)) for rows in batches]
    assert (
        len(batches) == 40 and max(places) <= 128 and sum(len(r) for rows in batches for r in rows) > 0.85 * sum(places)
    )
    rounds = [sum(longest[i : i + 2]) for i in range(0, 40, 2)]
    assert max(rounds) <= 1.5 * min(rounds) and max(longest) > 2 * min(longest)  # a short and a long batch in each


COMPARED = ["bert-mini-8k-128", "modernbert-mini-8k-8192", "deberta-mini-8k-128", "electra-small-30k-128"]
GROWTH = "growth-modernbert"


@pytest.fixture(scope="module")
def pretrained(text: Path) -> tuple[str, dict[str, dict]]:
    """One command for all rows: most of its time goes into importing both sides' libraries."""
    told, written = run("pretrain", text, "--rows", ",".join([*COMPARED, GROWTH]))
    return told, {result["name"]: result for result in written["results"]}


@pytest.mark.slow
@pytest.mark.parametrize("row", COMPARED)
def test_pretraining_is_compared_with_every_peer_from_the_same_loss(pretrained, row: str) -> None:
    told, result = pretrained[0], pretrained[1][row]
    assert set(result["speeds"]) == {*result["ratios"], "ours on D's rows"} | {"ours"} - (
        {"ours"} if row[-4:] == "8192" else set()
    )
    ours, theirs = (result["losses"][side] for side in ("ours on D's rows", "D"))
    assert ours == pytest.approx(theirs, abs=1e-3)
    assert all(size > 0 for size in result["memory"].values())
    assert result["title"] in told and "run_mlm" in told


@pytest.mark.slow
def test_growth_with_length_is_told(pretrained) -> None:
    assert pretrained[1][GROWTH]["kept"] > 0 and "speed left" in pretrained[0]


@pytest.mark.slow
def test_finetuning_is_compared_with_both_peers(text: Path) -> None:
    _, written = run("finetune", text)
    assert set(written["results"]["ratios"]) == {f"{o} / {p}" for o in ("ours", "ours with dropout") for p in "AC"}


@pytest.mark.slow
def test_embeddings_are_those_of_sentence_transformers(text: Path) -> None:
    _, written = run("embed", text)
    assert written["results"]["cosines"]["ours fp32"] == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
def test_all_write_a_page_and_the_numbers_and_attention_is_compared_of_every_kind(text: Path, tmp_path: Path) -> None:
    command(
        "all",
        text,
        "--only",
        "attention",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--text",
        str(text),
        "--out",
        str(tmp_path),
    )
    page = (tmp_path / "benchmarks.md").read_text()
    assert "| attention, forward and backward |" in page
    assert all(kind in page for kind in ("DeBERTa-v3's", "T5's", "window of", "dropout 0.1"))
    assert "attention" in json.loads((tmp_path / "benchmarks.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "read"), [("bert-512,modernbert-8192", False), ("modernbert-1024", True)])
def test_what_a_gpu_would_be_measured_with_runs_on_a_cpu(text: Path, tmp_path: Path, rows: str, read: bool) -> None:
    """Its sides found the same loss, or it would have failed; on random ids, and on text."""
    more = ("--text", str(text)) if read else ()
    file = tmp_path / "gpu.json"
    told = command("gpu", text, "--steps", "2", "--backend", "aot_eager", "--rows", rows, "--json", str(file), *more)
    found = json.loads(file.read_text())["results"]["rows"]
    assert ",".join(row["name"] for row in found) == rows
    sides = {"unmask", "unmask, compiled", "transformers (sdpa)", "transformers (sdpa), compiled"}
    assert all(set(row["sides"]) == sides for row in found) and "MFU" in told


def test_the_rows_of_a_gpu_are_those_that_are_tried(benchmark) -> None:
    assert [row.name for row in benchmark("gpu").ROWS] == ["bert-512", "modernbert-1024", "modernbert-8192"]


def test_every_gpu_has_its_own_peak(benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = benchmark("gpu")
    names = {
        "NVIDIA H100 80GB HBM3": 989e12,
        "NVIDIA H100 PCIe": 756e12,
        "NVIDIA A100-SXM4-80GB": 312e12,
        "NVIDIA L40S": None,
    }
    for name, peak in names.items():
        monkeypatch.setattr("torch.cuda.get_device_name", lambda _, name=name: name)
        assert gpu.vendor_peak(SimpleNamespace(type="cuda")) == peak
    assert gpu.vendor_peak(SimpleNamespace(type="cpu")) is None
