"""Texts, words and contexts as sequences of tokens in the tokenizer's own frame, and the way back to the user's characters.

All offsets count characters (code points) of the text as the user gave it, and cut out whole characters as a reader sees
them: what is removed, composed or spelled otherwise on the way to the tokens changes nothing of that.

Legend: T tokens end to end, N sequences, M words or context tokens, window by window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unmask.errors import UnmaskError
from unmask.text.frame import Frame, Slices, spread
from unmask.text.pieces import PieceEncoder
from unmask.text.sequences import Labels, Sequences
from unmask.text.tokenizer import Tokenizer
from unmask.text.windows import longest_first, most_context, token_windows, word_windows

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Framed:
    """Texts or pairs of texts, one sequence each, in the order given."""

    ids_T: NDArray[np.int32]
    starts: Ints  # [N+1]
    token_type_ids_T: NDArray[np.int8] | None  # None where the frame gives every token type 0
    truncated_N: NDArray[np.bool_]  # sequences that lost a part

    @property
    def truncated(self) -> int:
        """How many lost a part."""
        return int(self.truncated_N.sum())

    def sequences(self, labels: Mapping[str, Labels] | None = None, unit_N: Ints | None = None) -> Sequences:
        """With what is to be learned; each text is a unit of its own unless `unit_N` says otherwise."""
        numbers = np.arange(len(self.starts) - 1)
        units = numbers if unit_N is None else unit_N
        return Sequences(self.ids_T, self.starts, numbers, units, self.token_type_ids_T, labels or {})


@dataclass(frozen=True, eq=False)
class Words:
    """Rows of words as windows of whole words: those of a row follow each other, overlap, and cover all its words.

    A word has exactly one place in a window, its first piece, whether or not the vocabulary has pieces for it. A row without
    words has no window. `Labels(words.word_starts, words.place_M, tags)` are the labels of `sequences`.
    """

    ids_T: NDArray[np.int32]
    starts: Ints  # [N+1]
    token_type_ids_T: NDArray[np.int8] | None  # None where the frame gives every token type 0
    row_N: Ints  # whose words these are
    word_starts: Ints  # [N+1] which of the M words belong to each window
    word_M: Ints  # number of the word in its row
    place_M: Ints  # token of its first piece, counted inside the window
    best_M: NDArray[np.bool_]  # the one window that shows most of what is around the word: take its prediction there
    cut: int  # words longer than a window: their first pieces stay

    def rows_M(self) -> Ints:
        """[M] the row of each word."""
        return np.repeat(self.row_N, np.diff(self.word_starts))

    def sequences(self, labels: Mapping[str, Labels] | None = None) -> Sequences:
        """With what is to be learned; the windows of a row are one unit."""
        units = np.diff(self.row_N, prepend=self.row_N[:1]).astype(np.bool_).astype(np.int64).cumsum()
        return Sequences(self.ids_T, self.starts, self.row_N, units, self.token_type_ids_T, labels or {})


@dataclass(frozen=True, eq=False)
class Windows:
    """Questions, each with a piece of its context: those of one question follow each other, overlap, and cover the context.

    A question whose context has no token still has one window. `offsets_M2` are begin and end in the original context; both
    are equal for a token of white space alone, at which no answer begins or ends.
    """

    ids_T: NDArray[np.int32]
    starts: Ints  # [N+1]
    token_type_ids_T: NDArray[np.int8] | None  # None where the frame gives every token type 0
    example_N: Ints  # whose context this is
    token_starts: Ints  # [N+1] which of the M context tokens belong to each window
    place_M: Ints  # the token, counted inside the window; ascending, without gaps unless they are `by_words`
    token_M: Ints  # number of the token in its whole context
    offsets_M2: Ints
    best_M: NDArray[np.bool_]  # the one window that shows most of what is around the token (BERT, its code for SQuAD)
    questions_cut: int  # questions that left too little room for their context
    strides_shortened: int  # examples whose room for the context was no longer than the stride

    def sequences(self, labels: Mapping[str, Labels] | None = None) -> Sequences:
        """With what is to be learned; the windows of a question are one unit."""
        return Sequences(self.ids_T, self.starts, self.example_N, self.example_N, self.token_type_ids_T, labels or {})

    def by_words(self, inner_V: NDArray[np.bool_]) -> Windows:
        """With words in place of context tokens: a word stands at its first token in the window, and its offsets are those of
        all of its tokens there. `inner_V` are the tokens that go on with a word.

        For a network with one vector for all tokens of a word: which of them an answer ends at, it can't tell.
        """
        size_N = np.diff(self.token_starts)
        ids_M = self.ids_T[self.place_M + np.repeat(self.starts[:-1], size_N)]
        key_M = np.repeat(self.example_N, size_N) * (int(self.token_M.max(initial=0)) + 1) + self.token_M
        _, first, same_M = np.unique(key_M, return_index=True, return_inverse=True)  # each token of each context once
        example_C = np.repeat(self.example_N, size_N)[first]
        begins_C = ~inner_V[ids_M[first]] | (np.diff(example_C, prepend=-1) > 0)
        word_C = begins_C.cumsum()
        word_M = (word_C - word_C[np.searchsorted(example_C, example_C)])[same_M]
        chosen_M = begins_C[same_M]
        chosen_M[self.token_starts[:-1][size_N > 0]] = True
        chosen = np.flatnonzero(chosen_M)
        last = np.r_[chosen[1:], len(chosen_M)][: len(chosen)] - 1
        return replace(
            self,
            token_starts=np.r_[0, chosen_M.cumsum()][self.token_starts],
            place_M=self.place_M[chosen],
            token_M=word_M[chosen],
            offsets_M2=np.stack([self.offsets_M2[chosen, 0], self.offsets_M2[last, 1]], 1),
            best_M=self.best_M[chosen],
        )


class AlignedEncoder:
    """A tokenizer with its own frames for a text and a pair, cut to `max_length` tokens; threads may share it.

    The spelling of a special token inside a text is ordinary text. With `lowercase` texts are made lower-case first. With
    `whole_words`, for a network that reads words from their characters, windows have words in place of context tokens.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int, *, lowercase: bool = False, whole_words: bool = False):
        """UnmaskError where `max_length` leaves no room beside the special tokens."""
        self.max_length = max_length
        self._pieces = PieceEncoder(tokenizer, lowercase=lowercase)
        self._pieces.alone.room(max_length)
        self._spaced = tokenizer.kind == "bpe"
        pieces = tokenizer.pieces() if whole_words else []
        self._inner_V = np.array([piece.startswith("##") for piece in pieces], np.bool_)
        unknown = tokenizer.unk_token_id
        nothing = tokenizer.encode([" "])[0].ids[:1] if unknown is None else [unknown]
        self._nothing = np.array(nothing, np.int32)  # stands for a word without any piece

    def texts(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Framed:
        """Each text, or each text with its pair. What is too long loses tokens from the end, the longer of two first.

        Texts without any token give the frame alone; UnmaskError where there is none either, and for pairs where the
        tokenizer frames no pairs or `max_length` has no room for them.
        """
        first = self._pieces.encode(texts)
        if pairs is None:
            kept_N = np.minimum(first.sizes(), self._pieces.alone.room(self.max_length))
            framed = self._pieces.alone.put(first.slices(kept_N))
            return Framed(*framed, kept_N < first.sizes())
        assert len(pairs) == len(texts)
        frame, second = self._pair(), self._pieces.encode(pairs)
        kept = longest_first(first.sizes(), second.sizes(), frame.room(self.max_length))
        framed = frame.put(first.slices(kept[0]), second.slices(kept[1]))
        return Framed(*framed, kept[0] + kept[1] < first.sizes() + second.sizes())

    def words(self, rows: Sequence[Sequence[str]], overlap: int) -> Words:
        """Texts that come in words. Neighbouring windows share `overlap` words, or as many as half a window holds.

        Pieces are those of `Tokenizer.encode_words`: the same for a word at every place.
        """
        frame = self._pieces.alone
        room = frame.room(self.max_length)
        ids_T, starts, cut = self._word_tokens([word for row in rows for word in row], room)
        row_starts = np.cumsum([0, *map(len, rows)])
        found = list(word_windows(starts, row_starts, room, overlap))
        row_N, first_N, last_N = np.array(found, np.int64).reshape(-1, 3).T
        begin_N, size_N = starts[first_N], starts[last_N] - starts[first_N]
        word_M = spread(first_N, last_N - first_N)
        begin_M, end_M = (np.repeat(edge_N, last_N - first_N) for edge_N in (begin_N, begin_N + size_N))
        return Words(
            *frame.put(Slices(ids_T, begin_N, size_N)),
            row_N,
            word_starts=np.r_[0, (last_N - first_N).cumsum()],
            word_M=word_M - row_starts[np.repeat(row_N, last_N - first_N)],
            place_M=len(frame.ids[0]) + starts[word_M] - begin_M,
            best_M=most_context(word_M, starts[word_M] - begin_M, end_M - starts[word_M + 1]),
            cut=cut,
        )

    def windows(self, questions: Sequence[str], contexts: Sequence[str], stride: int) -> Windows:
        """Questions about contexts. Neighbouring windows share `stride` tokens, or half the room where that is too many.

        Where a question and its context do not fit, the question may fill what the context leaves, and half the window
        at most.
        """
        assert len(questions) == len(contexts) and stride >= 0
        frame = self._pair()
        room = frame.room(self.max_length)
        asked, told = self._pieces.encode(questions), self._pieces.encode(contexts, aligned=True)
        asked_E, told_E = asked.sizes(), told.sizes()
        kept_E = np.minimum(asked_E, room - np.minimum(told_E, min(-(-self.max_length // 2), room - 1)))
        room_E = np.maximum(room - kept_E, 1)
        stride_E = np.where(stride < room_E, stride, room_E // 2)
        example_N, first_N, size_N = token_windows(told_E, room_E, stride_E)
        begin_N, kept_N = told.begins()[example_N] + first_N, kept_E[example_N]
        question = Slices(asked.ids_T, asked.begins()[example_N], kept_N)
        token_M, inside_M = spread(first_N, size_N), spread(np.zeros_like(first_N), size_N)
        key_M = token_M + np.repeat((told_E.cumsum() - told_E)[example_N], size_N)
        windows = Windows(
            *frame.put(question, Slices(told.ids_T, begin_N, size_N)),
            example_N,
            token_starts=np.r_[0, size_N.cumsum()],
            place_M=inside_M + np.repeat(kept_N + sum(map(len, frame.ids[:2])), size_N),
            token_M=token_M,
            offsets_M2=told.offsets(spread(begin_N, size_N)),
            best_M=most_context(key_M, inside_M, np.repeat(size_N, size_N) - 1 - inside_M),
            questions_cut=int((kept_E < asked_E).sum()),
            strides_shortened=int(((stride_E < stride) & (told_E > room_E)).sum()),
        )
        return windows.by_words(self._inner_V) if len(self._inner_V) else windows

    def _pair(self) -> Frame:
        if self._pieces.pair is None:
            raise UnmaskError(
                "the tokenizer frames no pairs of texts and has no separator to put between them",
                do="choose a model with a separator, or join the texts yourself",
            )
        return self._pieces.pair

    def _word_tokens(self, words: list[str], room: int) -> tuple[NDArray[np.int32], Ints, int]:
        """Tokens of all words end to end, `room` of each at most, where each word begins [W+1], and how many were cut."""
        spaced = [" " + word if self._spaced and not word.startswith(" ") else word for word in words]
        pieces = self._pieces.encode(spaced)
        begin_W, size_W = pieces.begins(), pieces.sizes()
        gone_W = size_W == 0
        if gone_W.any() and not len(self._nothing):
            raise UnmaskError(
                "the tokenizer has no piece for a word, and no unknown token", where=repr(words[int(gone_W.argmax())])
            )
        begin_W = np.where(gone_W, len(pieces.ids_T), begin_W)
        kept_W = np.minimum(np.maximum(size_W, 1), room)
        ids_T = np.r_[pieces.ids_T, self._nothing][spread(begin_W, kept_W)]
        return ids_T, np.r_[0, kept_W.cumsum()], int((kept_W < size_W).sum())
