"""The vector that a model has for a word in each sentence: one for all of a static model's, one a layer of any encoder's.

Legend: U uses of a word, D numbers of a vector, T tokens, M tokens of words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig, Machine, Recurrent
from unmask.errors import UnmaskError
from unmask.hub.files import build_encoder, load_model
from unmask.hub.sentence_layout import read_sentence_layout
from unmask.inference.batches import token_batches
from unmask.inference.loaded import fitting_tokenizer
from unmask.inference.tokens import TokenisedTexts
from unmask.inference.torch_backend import TorchBackend
from unmask.labelled.records import counted
from unmask.measure.uses import Use, name_of
from unmask.progress import Progress, quiet
from unmask.static.folder import is_static_folder
from unmask.static.load import load_vectors
from unmask.static.vectors import Vectors
from unmask.text.frame import Slices, spread
from unmask.text.pieces import PieceEncoder
from unmask.train.machine import choose_device

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Device = Literal["auto", "cpu", "cuda"]

STATIC = "One vector for each word, learned from all sentences together; those it stands in here are not read."
RECURRENT = (
    "The embeddings know the letters of a word alone. Then each layer reads the sentence from the left, one word after the "
    "other, and once more from the right: half of a state knows what stands before the word, half what stands behind it, "
    "and no layer puts the two together."
)
CAUSAL = (
    "The embeddings know a token alone. In each layer it looks at all those before it, and never at those behind it."
)
ATTENTION = (
    "The embeddings know a token alone, and in many models its place. In each layer it looks at all others, left and right "
    "at once, so that what stands before a word and what stands behind it are weighed together."
)


@dataclass(frozen=True, eq=False)
class WordStates:
    """`states[l]` [U, D] are the vectors of the uses in the layer called `layers[l]`; `notes` say what is special in them,
    `reads` how such a model reads a sentence."""

    static: bool
    layers: tuple[str, ...]
    states: tuple[Floats, ...]
    notes: tuple[str, ...]
    reads: str


def word_states(path: Path, uses: Sequence[Use], *, device: Device = "auto", progress: Progress = quiet) -> WordStates:
    """The vectors of all uses by one model: a file or folder of static vectors, or any model folder that unmask reads.

    A static vector is that of the word that was asked for, whatever its form (and with other capitals, if need be); a use of a
    word without one has a zero vector, and is counted. In a layer of an encoder it is the mean of the states of the tokens
    that the written form falls into. The layers are the embedded tokens, each layer and, where the network has one, the mix of
    all. Of a text longer than the model takes, the part around the word is read.
    """
    if path.exists() and (not path.is_dir() or is_static_folder(path)):
        return _static(path, uses, progress)
    return _contextual(path, uses, device, progress)


def _static(path: Path, uses: Sequence[Use], progress: Progress) -> WordStates:
    vectors, _ = load_vectors(path, progress=progress)
    words = dict.fromkeys(use.word for use in uses)
    found = {word: vector for word in words if (vector := _vector(vectors, word)) is not None}
    if not found:
        _refuse(path, vectors, uses[0].word)
    nothing = np.zeros(vectors.dimension, np.float32)
    states_UD = np.array([found.get(use.word, nothing) for use in uses], np.float32)
    missing = sum(use.word not in found for use in uses)
    notes = [f"{counted(missing, 'use')} without a vector: a zero one stands for it"] * bool(missing)
    return WordStates(True, ("static",), (states_UD,), tuple(notes), STATIC)


def _refuse(path: Path, vectors: Vectors, word: str) -> None:
    """The error of a word without a vector says what is near; which of several models it was, only we know."""
    try:
        vectors.vector(word)
    except UnmaskError as error:
        raise UnmaskError(error.what, where=str(path), do=error.do) from None


def _vector(vectors: Vectors, word: str) -> Floats | None:
    """Of the word, be it with other capitals; else what n-grams make of it."""
    place = vectors.words.index.get(word, vectors.words.folded_index.get(word.casefold()))
    return vectors.find(word) if place is None else vectors.matrix[place]


class _Windows(NamedTuple):
    """For each use, the tokens that a model reads, and which of them are the word's."""

    tokens: TokenisedTexts
    first_U: Ints
    count_U: Ints
    unknown: int  # words with a piece that the vocabulary does not have


def _contextual(folder: Path, uses: Sequence[Use], device: Device, progress: Progress) -> WordStates:
    layout = read_sentence_layout(folder)
    model = load_model(layout.model_folder)
    tokenizer = fitting_tokenizer(layout.model_folder, model.config)
    limit = min(layout.max_length or model.config.max_position_embeddings, model.config.max_position_embeddings)
    pieces = PieceEncoder(tokenizer, lowercase=layout.lowercase)
    windows = _windows(pieces, uses, limit, tokenizer.unk_token_id)
    backend = TorchBackend(build_encoder(model), choose_device(Machine(device=device)))
    states = _read(backend, windows, f"reading with {name_of(folder)}, words", progress)
    if not all(np.isfinite(one).all() for one in states):
        do = "use an earlier checkpoint of the model; its weights have grown too large"
        raise UnmaskError("the model answers with NaN or infinity", where=str(folder), do=do)
    layers = ["embeddings", *(str(number) for number in range(1, backend.num_layers + 1))]
    layers += ["mix"] * (len(states) - len(layers))
    notes = []
    if windows.tokens.truncated:
        long = counted(windows.tokens.truncated, "text")
        notes.append(f"{long} of more than {limit:,} tokens: the part around the word is read")
    if windows.unknown:
        notes.append(f"the word is unknown to the tokenizer, in part or whole, in {counted(windows.unknown, 'use')}")
    return WordStates(False, tuple(layers), tuple(states), tuple(notes), _how_it_reads(model.config))


def _how_it_reads(config: EncoderConfig) -> str:
    if isinstance(config.layer, Recurrent):
        return RECURRENT
    return CAUSAL if config.causal else ATTENTION


def _windows(pieces: PieceEncoder, uses: Sequence[Use], limit: int, unknown: int | None) -> _Windows:
    """The word in the middle where the text is too long."""
    encoded = pieces.encode([use.text for use in uses], aligned=True)
    begin_U, size_U, room = encoded.begins(), encoded.sizes(), pieces.alone.room(limit)
    first_U, count_U, strange = np.zeros(len(uses), np.int64), np.zeros(len(uses), np.int64), 0
    for at, use in enumerate(uses):
        own = np.arange(begin_U[at], begin_U[at] + size_U[at])
        first_U[at], count_U[at] = _tokens_of(use, encoded.offsets(own))
        word = encoded.ids_T[own][first_U[at] : first_U[at] + count_U[at]]
        strange += unknown is not None and bool((word == unknown).any())
    left_U = np.clip(first_U + count_U // 2 - room // 2, 0, np.maximum(size_U - room, 0))
    kept_U = np.minimum(size_U, room)
    ids_T, starts, _ = pieces.alone.put(Slices(encoded.ids_T, begin_U + left_U, kept_U))
    first_U = np.maximum(first_U - left_U, 0)
    tokens = TokenisedTexts(ids_T, np.diff(starts), int((kept_U < size_U).sum()))
    return _Windows(tokens, first_U + len(pieces.alone.ids[0]), np.minimum(count_U, kept_U - first_U), strange)


def _tokens_of(use: Use, offsets_T2: Ints) -> tuple[int, int]:
    """The first token that holds a character of the word, and how many there are up to the last."""
    begin_T, end_T = offsets_T2.T
    inside = np.flatnonzero((begin_T < use.end) & (end_T > use.start))
    if not len(inside):
        do = "leave this sentence out, or choose a model whose tokenizer knows the word"
        raise UnmaskError(f"the tokenizer gives {use.form!r} no token", where=str(use.place), do=do)
    return int(inside[0]), int(inside[-1] - inside[0] + 1)


def _read(backend: TorchBackend, windows: _Windows, what: str, progress: Progress) -> list[Floats]:
    """For each layer [U, D]."""
    uses, done, out = len(windows.first_U), 0, list[Floats]()
    for chosen in token_batches(windows.tokens.lengths_N, backend.batch_tokens):
        ids_T, lengths_B = windows.tokens.gather(chosen)
        starts = np.r_[0, lengths_B.cumsum()]
        count_B = windows.count_U[chosen]
        where_M = torch.from_numpy(spread(starts[:-1] + windows.first_U[chosen], count_B)).to(backend.device)
        batch = PackedBatch(torch.from_numpy(ids_T), torch.from_numpy(starts.astype(np.int32))).to(backend.device)
        with torch.inference_mode():
            found = [_means(x_TD.index_select(0, where_M), count_B) for x_TD in backend.encoder.layers(batch)]
        out = out or [np.empty((uses, means_BD.shape[1]), np.float32) for means_BD in found]
        for states_UD, means_BD in zip(out, found, strict=True):
            states_UD[chosen] = means_BD
        done += len(chosen)
        progress(what, done, uses)
    return out


def _means(states_MD: Tensor, count_B: Ints) -> Floats:
    """[B, D] of consecutive rows, as many each as `count` says."""
    rows_MD = states_MD.float().cpu().numpy()
    sums_BD = np.add.reduceat(rows_MD, count_B.cumsum() - count_B, axis=0)
    return (sums_BD / count_B[:, None]).astype(np.float32)
