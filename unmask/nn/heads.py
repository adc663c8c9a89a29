"""What turns hidden states into answers.

Legend: M scored places, T tokens, D hidden_size, E table_size, V vocab_size, B sequences.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unmask.config import EncoderConfig
from unmask.nn.kernels.activation import activation
from unmask.nn.kernels.linear import Linear
from unmask.nn.kernels.vocabulary import Logits
from unmask.nn.parts import build_norm


class TokenHead(nn.Module):
    """Hidden state to vocabulary logits, through the input embedding's own matrix unless the two are not tied.

    BERT's has a dense layer, an activation and a norm before the matrix; GPT, T5 and NeoBERT have none.
    """

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.transform = Transform(config, config.hidden_size, config.table_size) if config.head_transform else None
        self.matrix = None if config.tie_word_embeddings else Linear(config.table_size, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.head_bias else None

    def forward(self, hidden_MD: Tensor, embedding_VE: Tensor) -> Logits:
        """[M, V], not multiplied out. The tied matrix is an argument: it is stored and optimised once, in the encoder."""
        x = hidden_MD if self.transform is None else self.transform(hidden_MD)
        return Logits(x, embedding_VE if self.matrix is None else self.matrix.weight, self.bias)


class Transform(nn.Module):
    """Dense, activation, norm."""

    def __init__(self, config: EncoderConfig, width: int, out: int):
        super().__init__()
        self.dense = Linear(width, out, bias=config.linear_bias)
        self.activation = activation(config.hidden_act)
        self.norm = build_norm(config, out)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.activation(self.dense(x)))
        return out


class PairHead(nn.Module):
    """First token to two classes: BERT's pooler (dense, tanh) and a linear layer."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)
        self.out = Linear(config.hidden_size, 2)

    def forward(self, first_BD: Tensor) -> Tensor:
        """Logits [B, 2]."""
        out: Tensor = self.out(torch.tanh(self.dense(first_BD)))
        return out


class ReplacedHead(nn.Module):
    """Is this token the original? One number for each (ELECTRA section 2).

    `add_first` adds the first token's state and norms before the dense layer, as the released DeBERTa-v3 does.
    """

    def __init__(self, config: EncoderConfig, *, add_first: bool):
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)
        self.activation = activation(config.hidden_act)
        self.norm = build_norm(config, config.hidden_size) if add_first else None
        self.out = Linear(config.hidden_size, 1)

    def forward(self, hidden_TD: Tensor, first_T: Tensor) -> Tensor:
        """Logits [T]; `first_T` is where the first token of each token's sequence stands, its [CLS]."""
        x = hidden_TD if self.norm is None else self.norm(hidden_TD + hidden_TD.index_select(0, first_T))
        out: Tensor = self.out(self.activation(self.dense(x))).squeeze(-1)
        return out
