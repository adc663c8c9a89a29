"""The rows of the pre-training table: the model, the length, and the bars that its ratios are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.text import Text
from unmask import presets
from unmask.config import AdamW, BatchSize, Documents, EncoderConfig, Machine, MaskedTokens, ReplacedTokens, RunConfig

PEERS = {
    "A": "transformers, padded to the maximum length, published dropout (run_mlm --line_by_line)",
    "B": "transformers, texts concatenated and cut, published dropout (run_mlm's default)",
    "C": "transformers, length-grouped, padded to the longest, sparse head where it has one, no dropout",
    "D": "transformers, the very rows that ours gets, sparse head where it has one, no dropout",
}


@dataclass(frozen=True)
class Row:
    """One line of the table. `bars` are the least ratios to peers; `share` the least share of the matrix-product peak."""

    name: str
    title: str
    encoder: EncoderConfig
    length: int
    tokens: int  # places in a batch of a peer, tokens in one of ours
    bars: Mapping[str, float] = field(default_factory=dict)
    goal: MaskedTokens | ReplacedTokens = MaskedTokens()
    peers: str = "ABCD"
    share: float = 0.0
    memory: float = 1.0  # the most peak memory may be of peer A's
    rounds: int = 0  # fewer than elsewhere; 0: as many

    @property
    def sequences(self) -> int:
        """Rows of a batch of a peer."""
        return max(1, self.tokens // self.length)

    @property
    def masking(self) -> MaskedTokens:
        """What is hidden."""
        return self.goal.masking if isinstance(self.goal, ReplacedTokens) else self.goal


@dataclass(frozen=True)
class Task:
    """A row on a text, with everything a worker needs to build its side."""

    row: Row
    text: Text
    model: Path  # a folder with the weights that all sides begin with
    rounds: int
    steps: int
    dropout: float = 0.0
    seed: int = 1

    @property
    def count(self) -> int:
        """Batches of a measurement."""
        return self.rounds * self.steps

    def run(self) -> RunConfig:
        """Our side's settings; the optimizer's are those of the peers too."""
        return RunConfig(
            encoder=self.row.encoder,
            examples=Documents(max_length=self.row.length),
            objectives=(self.row.goal,),
            batch=BatchSize(tokens=self.row.tokens),
            optimizer=AdamW(learning_rate=1e-4),
            machine=Machine(device="cpu", precision="fp32", workers=0),
        )


def bert(layers: int, hidden: int, vocab_size: int) -> EncoderConfig:
    return replace(
        presets.bert_base(vocab_size), num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )  # fmt: skip


def _modern(vocab_size: int) -> EncoderConfig:
    return replace(
        presets.modernbert_base(vocab_size), num_hidden_layers=4, hidden_size=256, num_attention_heads=4,
        intermediate_size=640, pad_token_id=0,
    )  # fmt: skip


def _deberta(vocab_size: int) -> EncoderConfig:
    return replace(
        presets.deberta_v3_base(vocab_size), num_hidden_layers=4, hidden_size=256, num_attention_heads=4,
        intermediate_size=1024,
    )  # fmt: skip


K8, K30 = 8192, 30522
THIRTY = MaskedTokens(mask_rate=0.3)


def _bars(a: float, b: float, c: float, d: float) -> dict[str, float]:
    return {peer: bar for peer, bar in zip("ABCD", (a, b, c, d), strict=True) if bar}


ROWS = (
    Row("bert-tiny-8k-128", "BERT tiny (L2 H128), 8k, 128", bert(2, 128, K8), 128, 4096, _bars(4.5, 3.6, 3.0, 3.2)),
    Row(
        "bert-mini-8k-128", "BERT mini (L4 H256), 8k, 128", bert(4, 256, K8), 128, 4096, _bars(2.5, 2.0, 1.6, 1.6),
        share=0.65,
    ),
    Row(
        "bert-mini-30k-128", "BERT mini, 30k, 128", bert(4, 256, K30), 128, 4096, _bars(4.3, 3.3, 2.7, 2.9),
        share=0.65, memory=0.4,
    ),
    Row("bert-mini-8k-512", "BERT mini, 8k, 512", bert(4, 256, K8), 512, 4096, _bars(7.0, 2.2, 1.9, 1.5), share=0.65),
    Row("bert-mini-30k-512", "BERT mini, 30k, 512 (memory)", bert(4, 256, K30), 512, 4096, memory=0.4, rounds=1),
    Row(
        "bert-small-30k-128", "BERT small (L8 H512), 30k, 128", bert(8, 512, K30), 128, 2048,
        _bars(2.2, 1.7, 1.45, 1.7), share=0.75,
    ),
    Row(
        "modernbert-mini-8k-128", "ModernBERT shape, mini, 8k, 128", _modern(K8), 128, 4096,
        _bars(2.1, 1.55, 1.2, 1.1), THIRTY,
    ),
    Row(
        "modernbert-mini-8k-512", "ModernBERT shape, mini, 8k, 512", _modern(K8), 512, 4096,
        _bars(5.0, 1.4, 1.25, 1.1), THIRTY,
    ),
    Row(
        "modernbert-mini-8k-8192", "ModernBERT shape, mini, one document of 8,192", _modern(K8), 8192, 8192,
        {"D": 4.0}, THIRTY, peers="D",
    ),
    Row(
        "deberta-mini-8k-128", "DeBERTa-v3 shape, mini, 8k, 128", _deberta(K8), 128, 4096, _bars(2.6, 1.8, 0, 1.9),
        peers="ABD",
    ),
    Row(
        "deberta-mini-8k-512", "DeBERTa-v3 shape, mini, 8k, 512", _deberta(K8), 512, 4096, _bars(6.5, 1.8, 0, 1.5),
        peers="ABD",
    ),
    Row(
        "electra-small-30k-128", "ELECTRA small (generator and discriminator), 30k, 128",
        presets.electra_small(K30), 128, 1024, _bars(2.8, 2.0, 0, 1.8), ReplacedTokens(generator_width=0.25),
        peers="ABD",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Growth:
    """Ours at two lengths, the same tokens a step: how much speed is left at the longer one."""

    name: str
    title: str
    short: Row
    long: Row
    bar: float


def _at(name: str, length: int, tokens: int) -> Row:
    row = next(row for row in ROWS if row.name == name)
    return replace(row, length=length, tokens=tokens)


GROWTHS = (
    Growth(
        "growth-bert", "BERT mini, 8k: speed at 512 against 128",
        _at("bert-mini-8k-128", 128, 4096), _at("bert-mini-8k-128", 512, 4096), 0.75,
    ),
    Growth(
        "growth-modernbert", "ModernBERT shape, mini, 8k: speed at 8,192 against 1,024",
        _at("modernbert-mini-8k-8192", 1024, 8192), _at("modernbert-mini-8k-8192", 8192, 8192), 0.5,
    ),
)  # fmt: skip
