"""What turns hidden states into answers.

Legend: M scored places, T tokens, D hidden_size, E table_size, V vocab_size, B sequences, N vectors of either.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig
from unmask.config.tasks import HeadShape
from unmask.nn.kernels.activation import activation
from unmask.nn.kernels.dropout import Dropout
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


class TaskHead(nn.Module):
    """A vector to the outputs of a task, through what its family's published classes have between: see `HeadShape`."""

    def __init__(self, config: EncoderConfig, outputs: int, shape: HeadShape):
        super().__init__()
        width, own = config.hidden_size, config.hidden_dropout_prob
        self.shape = shape
        self.input_dropout = Dropout(own if shape.input_dropout < 0 else shape.input_dropout)
        self.dense = None if shape.act is None else Linear(width, width, bias=shape.bias)
        self.activation = nn.Identity() if shape.act is None else activation(shape.act)
        self.norm = build_norm(config, width) if shape.normed else None
        self.dropout = Dropout(own if shape.dropout < 0 else shape.dropout)
        self.out = Linear(width, outputs, bias=shape.out_bias)

    def answer(self, x_ND: Tensor) -> Tensor:
        """[N, outputs], one row for each vector: those of sequences, or a token task's states as they are."""
        x = self.input_dropout(x_ND)
        x = x if self.dense is None else self.activation(self.dense(x))
        x = x if self.norm is None else self.norm(x)
        out: Tensor = self.out(self.dropout(x))
        return out


class SequenceHead(TaskHead):
    """A sequence to the outputs of a task: a label, several, a number."""

    def forward(self, hidden_TD: Tensor, batch: PackedBatch) -> Tensor:
        """[B, outputs], in the order of the batch."""
        where = self.reads(batch)
        vectors_BD = _means(hidden_TD, batch) if where is None else hidden_TD.index_select(0, where)
        return self.answer(vectors_BD)

    def reads(self, batch: PackedBatch) -> Tensor | None:
        """[B] the tokens whose states `forward` looks at; None: all."""
        match self.shape.pooling:
            case "first":
                return batch.starts[:-1].long()
            case "last":
                return batch.starts[1:].long() - 1
            case "mean":
                return None


def _means(hidden_TD: Tensor, batch: PackedBatch) -> Tensor:
    """[B, D]. Sequence by sequence, so that neither batch mates nor, on a GPU, the order of threads change a bit."""
    lengths_B = batch.starts.diff().long()
    return torch.segment_reduce(hidden_TD.float(), "mean", lengths=lengths_B, axis=0).to(hidden_TD.dtype)
