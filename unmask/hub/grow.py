"""Makes room in a model for the words a tokenizer has learned since: the new rows start where the old pieces were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.config import Recurrent
from unmask.errors import UnmaskError
from unmask.hub.files import load_model, save_weights
from unmask.hub.weights import State, Weights
from unmask.text.tokenizer import Tokenizer

# The embedding, and what a vocabulary head has beside it.
PER_TOKEN = ("embeddings.tokens.weight", "bias", "matrix.weight", "tokens.bias", "tokens.matrix.weight")


def grow_vocabulary(
    folder_in: Path, new_tokenizer_folder: Path, pieces: Sequence[Sequence[int]], folder_out: Path
) -> None:
    """Writes the model of `folder_in` for an extended tokenizer.

    `pieces[k]` are the ids the old tokenizer gave to the k-th new token; the new tokens have the highest ids. The row of
    a new token, in the embedding that is also the output matrix, is the mean of its pieces' rows, and so is its output
    bias. Rows the model already has beyond the old tokenizer (padding of the table) are used first. Old rows and the rest
    of the model stay as they are, bit for bit; tensors that are no part of a pre-training model are left out, and named in
    unmask.json. Raises UnmaskError when pieces, tokenizer and model do not fit each other.
    """
    loaded = load_model(folder_in)
    if isinstance(loaded.config.layer, Recurrent):
        raise UnmaskError(
            "a network that makes words of characters has room for every word already",
            where=str(folder_in),
            do="use it as it is: a new token would be a new character",
        )
    old, size = loaded.config.vocab_size, Tokenizer.load(new_tokenizer_folder).vocab_size
    first = size - len(pieces)
    _check(pieces, first, old, new_tokenizer_folder)
    about = {
        **loaded.about,
        "grown": {"from_vocab_size": old, "new_tokens": len(pieces), "left_out": loaded.unexpected},
    }
    grown = _grow(loaded.weights(), pieces, first, max(old, size))
    save_weights(folder_out, grown, tokenizer_folder=new_tokenizer_folder, about=about)


def _grow(weights: Weights, pieces: Sequence[Sequence[int]], first: int, size: int) -> Weights:
    """Every tensor that has a row for each token, in the encoder, its heads and its generator."""

    def longer(state: State) -> State:
        return {name: _grown(t, pieces, first) if name in PER_TOKEN else t for name, t in state.items()}

    return replace(
        weights,
        config=replace(weights.config, vocab_size=size),
        encoder=longer(weights.encoder),
        heads={kind: longer(state) for kind, state in weights.heads.items()},
        generator=None if weights.generator is None else _grow(weights.generator, pieces, first, size),
    )


def _grown(rows: Tensor, pieces: Sequence[Sequence[int]], first: int) -> Tensor:
    """The table [V, E], or column [V], with the means written from row `first` on."""
    if not pieces:
        return rows
    ids = torch.tensor([i for row in pieces for i in row])
    starts = torch.tensor([0, *(len(row) for row in pieces[:-1])]).cumsum(0)
    new = F.embedding_bag(ids, rows.reshape(len(rows), -1), starts, mode="mean").reshape(-1, *rows.shape[1:])
    return torch.cat([rows[:first], new, rows[first + len(new) :]])


def _check(pieces: Sequence[Sequence[int]], first: int, rows: int, where: Path) -> None:
    if not 0 < first <= rows:
        raise UnmaskError(
            f"the new tokenizer gives the new tokens ids from {first:,} on, but the model has {rows:,} rows",
            where=str(where),
            do="extend the tokenizer this model was trained with",
        )
    for k, row in enumerate(pieces):
        if len(row) == 0 or min(row) < 0 or max(row) >= first:
            raise UnmaskError(
                f"new token {k} has the pieces {list(row)[:10]}, which must be one or more ids below {first:,}",
                where=str(where),
                do="cut each new token with the tokenizer as it was before",
            )
