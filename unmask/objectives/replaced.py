"""RTD: a small generator fills blanks, and the encoder says of every token whether it is the original (ELECTRA section 2).

Legend: T tokens, M blanks, B sequences, D hidden_size, V vocab_size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.batch import PackedBatch, Targets
from unmask.config import EncoderConfig, ReplacedTokens, Rope
from unmask.nn.cost import encoder_flops
from unmask.nn.embeddings import Tables
from unmask.nn.encoder import Encoder
from unmask.nn.heads import ReplacedHead
from unmask.nn.kernels.vocabulary import Logits
from unmask.objectives.base import Losses, Objective, Sum
from unmask.objectives.masked import MaskedTokenObjective
from unmask.randomness import keys, uniform
from unmask.text.vocabulary import Vocabulary

SALT = 0x525444  # keeps these draws apart from every other use of (seed, example)


class ReplacedTokenObjective(Objective):
    """Two losses: the generator's on its blanks ("mlm"), the encoder's on every token ("rtd").

    The generator's guesses are draws, through which no gradient flows; a draw that is the original counts as original. With
    gradient-disentangled sharing (DeBERTa-v3 section 3.3) the encoder's own tables hold E_delta only, and it reads
    E_G + E_delta, of which its loss moves E_delta alone.
    """

    def __init__(self, config: EncoderConfig, goal: ReplacedTokens, vocabulary: Vocabulary):
        super().__init__()
        self.goal = goal
        self.generator = Encoder(generator_config(config, goal), own_tables=goal.sharing != "tied")
        self.mlm = MaskedTokenObjective(self.generator.config, goal.masking, vocabulary)
        self.head = ReplacedHead(config, add_first=goal.add_first)

    def start(self, encoder: Encoder) -> None:
        """After the first weights are set: E_delta begins at 0, where embeddings are gradient-disentangled."""
        if self.goal.sharing == "gradient_disentangled":
            for table in encoder.embeddings.tables():
                if table is not None:
                    torch.nn.init.zeros_(table)

    def prepare(self, batch: PackedBatch, seed: int) -> PackedBatch:
        """Makes the blanks, and draws for each the number in [0, 1) that picks the generator's guess later."""
        batch = self.mlm.prepare(batch, seed)
        assert batch.examples is not None, "guesses are drawn from the examples' numbers"
        where = batch.labels["mlm"].where
        rows, places = batch.layout.rows[where].numpy(), batch.layout.position_ids[where].numpy()
        draw = uniform(keys(keys(SALT, seed, batch.examples.numpy())[rows], places))
        return batch.with_(labels={**batch.labels, "draw": Targets(where, torch.from_numpy(draw))})

    def counts(self, batch: PackedBatch) -> Mapping[str, int]:
        return {**self.mlm.counts(batch), "rtd": len(batch.input_ids)}

    def flops(self, config: EncoderConfig, batch: PackedBatch) -> float:
        small = self.generator.config
        head = 2.0 * len(batch.input_ids) * config.hidden_size * (config.hidden_size + 1)
        read = self.mlm.reads(batch)
        reading = None if read is None else len(read)
        own = encoder_flops(small, batch.layout.lengths, until=self.mlm.depth(small), reading=reading)
        return own + self.mlm.flops(small, batch) + head

    def begin(self, encoder: Encoder, batch: PackedBatch) -> tuple[PackedBatch, Losses]:
        """The generator's loss, and the batch with its guesses in the blanks; labels["rtd"] says which are wrong."""
        where, value = batch.labels["mlm"]
        answers, uniform = self.answers(encoder, batch), batch.labels["draw"].value
        scored = answers.score(value, count=not self.training, uniform_M=uniform)
        guess = scored.drawn
        assert guess is not None
        replaced = torch.zeros_like(batch.input_ids, dtype=torch.float32).index_copy(0, where, (guess != value).float())
        everywhere = torch.arange(len(replaced), device=replaced.device)
        filled = batch.with_(
            input_ids=batch.input_ids.index_copy(0, where, guess),
            labels={**batch.labels, "rtd": Targets(everywhere, replaced)},
        )
        return filled, {"mlm": Sum.of(scored, len(value))}

    def answers(self, encoder: Encoder, batch: PackedBatch) -> Logits:
        """[M, V] what the generator would put into each blank, not multiplied out; a tied one reads the encoder's tables."""
        tied = self.goal.sharing == "tied"
        added = (encoder.embeddings.tables(),) if tied else ()
        depth, read = self.mlm.depth(self.generator.config), self.mlm.reads(batch)
        layers = self.generator.layers(batch, *added, until=depth, read_M=read)
        table = encoder.token_table() if tied else None
        return self.mlm.answers(self.generator, layers, batch, batch.labels["mlm"].where, table)

    def tables(self) -> tuple[Tables, ...]:
        """E_G without a gradient, where embeddings are gradient-disentangled."""
        return (self.generator.embeddings.tables().detach(),) if self.goal.sharing == "gradient_disentangled" else ()

    def loss(self, encoder: Encoder, layers: Sequence[Tensor], batch: PackedBatch) -> Losses:
        hidden_TD, replaced = layers[-1], batch.labels["rtd"].value
        first_T = batch.starts[:-1].long().index_select(0, batch.layout.rows)
        logits = self.head(hidden_TD, first_T).float()
        correct = None if self.training else ((logits > 0) == (replaced > 0)).sum()
        total = F.binary_cross_entropy_with_logits(logits, replaced, reduction="sum")
        return {"rtd": Sum(total, len(replaced), correct, self.goal.weight)}

    def settle(self, encoder: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The encoder's tensors with E_G + E_delta in its tables, so that it works without the generator."""
        return dict(encoder) | {name: encoder[name] + table.to(encoder[name]) for name, table in self._given().items()}

    def unsettle(self, encoder: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Undoes `settle`, to go on from a saved encoder: E_delta is what its tables hold beyond E_G."""
        return dict(encoder) | {name: encoder[name] - table.to(encoder[name]) for name, table in self._given().items()}

    def _given(self) -> dict[str, Tensor]:
        """What `tables` adds, by the names of the encoder's tensors that it is added to."""
        named = [(kind, table) for tables in self.tables() for kind, table in tables._asdict().items()]
        return {f"embeddings.{kind}.weight": table for kind, table in named if table is not None}


def generator_config(config: EncoderConfig, goal: ReplacedTokens) -> EncoderConfig:
    """The encoder at a share of its width and depth, over embedding tables of the same size (ELECTRA section 3.2).

    Heads become fewer rather than narrower; widths are rounded to what the heads can divide. A narrower generator projects
    the tables' vectors, and its vocabulary head projects back.
    """
    heads = max(1, round(config.num_attention_heads * goal.generator_width))
    even = 2 if isinstance(config.positions, Rope) else 1  # RoPE turns pairs of numbers
    hidden = _multiple(config.hidden_size * goal.generator_width, even * heads)
    inner = config.head_size * config.num_attention_heads * goal.generator_width
    layers = max(1, round(config.num_hidden_layers * goal.generator_depth))
    return replace(
        config,
        hidden_size=hidden,
        embedding_size=0 if hidden == config.table_size else config.table_size,
        num_hidden_layers=layers,
        num_hidden_groups=min(config.num_hidden_groups, layers),
        num_attention_heads=heads,
        head_size=_multiple(inner / heads, even) if config.head_size else 0,
        intermediate_size=max(1, round(config.intermediate_size * goal.generator_width)),
        head_transform=config.head_transform or hidden != config.table_size,
    )


def _multiple(size: float, of: int) -> int:
    """The nearest multiple, and at least one of it."""
    return of * max(1, round(size / of))
