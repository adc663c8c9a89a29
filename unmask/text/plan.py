"""Which documents of a corpus are stored, in which split and shard: decided once over all parts, with arrays only.

Legend: D documents with text, P parts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.files import explained
from unmask.progress import Progress
from unmask.randomness import mix, uniform
from unmask.text.duplicates import find_duplicates
from unmask.text.parts import Part, read_part
from unmask.text.shards import ShardWriter, Split, offsets_of, ranges, shard_name

_FEWEST_HELD_OUT = 8  # documents, where there are four times as many: with one, no sentence pair could be a wrong one
_PERCENTILES = (1, 5, 25, 50, 75, 95, 99, 100)


@dataclass(slots=True)
class Index:
    """What is remembered of every document of every part: 24 bytes, and the band keys in a file mapped into memory."""

    first: NDArray[np.int64]  # [P+1], number of the first document of each part
    tokens: NDArray[np.int64]  # [D]
    exact: NDArray[np.uint64]  # [D, 2]
    keyed: NDArray[np.int64]  # [N], the documents that are long enough to have band keys
    bands: NDArray[Any]  # [N, bands], the keys' lower halves
    empty_documents: int
    empty_sentences: int


@dataclass(slots=True)
class Plan:
    """Where each document goes: `place` [D] is an index into the shard `names`, -1 for a duplicate."""

    place: NDArray[np.int32]
    names: list[str]
    exact_duplicates: int
    near_duplicates: int


@dataclass(slots=True)
class Totals:
    """Sums over the stored documents."""

    characters: int = 0
    hanzi: int = 0
    unknown: int = 0
    sentence_bits: NDArray[np.int64] = field(default_factory=lambda: np.zeros(32, np.int64))


def read_index(folder: Path, lengths_P: list[int], progress: Progress) -> Index:
    """Collects the small arrays of all parts, of which the numbers of documents are known.

    Band keys go to a scratch file, one band after the other: looking for duplicates reads them band by band. They are
    most of what is kept, so only half of each key is: duplicates share many bands, which no chance collision does.
    """
    first = offsets_of(np.array(lengths_P, np.int64))
    count = int(first[-1])
    tokens, exact = np.zeros(count, np.int64), np.zeros((count, 2), np.uint64)
    bands: NDArray[Any] = np.zeros((0, count), np.uint32)
    keyed, num_keyed, empty = [np.zeros(0, np.int64)], 0, np.zeros(2, np.int64)
    for number in range(len(lengths_P)):
        part, rows = read_part(folder, number), slice(first[number], first[number + 1])
        tokens[rows], exact[rows] = part.document_tokens, part.exact
        empty += part.empty
        with_keys = np.flatnonzero(part.bands.any(axis=1))
        if len(with_keys):
            if not len(bands):
                bands = _scratch(folder / "bands", (part.bands.shape[1], count))
            keyed.append(first[number] + with_keys)
            here = slice(num_keyed, num_keyed + len(with_keys))
            bands[:, here] = np.maximum(part.bands[with_keys].astype(np.uint32), 1).T  # 0 says: no key
            num_keyed = here.stop
        progress("reading the parts", number + 1, len(lengths_P))
    return Index(first, tokens, exact, np.concatenate(keyed), bands[:, :num_keyed].T, int(empty[0]), int(empty[1]))


def make_plan(
    index: Index, *, drop_duplicates: bool, heldout_share: float, heldout_tokens: int, shard_tokens: int
) -> Plan:
    """Drops duplicates, splits and cuts into shards.

    Held out are the documents whose content hashes lowest, about `heldout_share` of them, at least one and at most
    `heldout_tokens` tokens: neither order nor duplicates change the choice. A shard ends with the document that brings
    it to `shard_tokens`.
    """
    kept, exact, near = _without_duplicates(index) if drop_duplicates else (np.ones(len(index.tokens), bool), 0, 0)
    heldout = kept & _is_heldout(index, kept, heldout_share, heldout_tokens)
    place = np.full(len(kept), -1, np.int32)
    names: list[str] = []
    splits: list[tuple[Split, NDArray[np.bool_]]] = [("heldout", heldout), ("train", kept & ~heldout)]
    for split, chosen in splits:
        tokens = index.tokens[chosen]
        used, number = np.unique((np.cumsum(tokens) - tokens) // shard_tokens, return_inverse=True)
        place[chosen] = len(names) + number
        names += [shard_name(split, number) for number in range(len(used))]
    return Plan(place, names, exact, near)


def store(part: Part, place_D: NDArray[np.int32], names: list[str], writer: ShardWriter, totals: Totals) -> None:
    """Appends the documents of a part to their shards."""
    tokens, sentences = offsets_of(part.document_tokens), offsets_of(part.document_lengths)
    for number in np.unique(place_D[place_D >= 0]):
        chosen = np.flatnonzero(place_D == number)
        at = ranges(tokens[chosen], part.document_tokens[chosen])
        lengths = part.sentence_lengths[ranges(sentences[chosen], part.document_lengths[chosen])]
        writer.append(
            names[number],
            part.tokens[at],
            part.words[at],
            lengths,
            part.document_lengths[chosen],
            part.origins[chosen],
        )
        characters, hanzi, unknown = part.counts[chosen].sum(axis=0).tolist()
        totals.characters += characters
        totals.hanzi += hanzi
        totals.unknown += unknown
        totals.sentence_bits += np.bincount(_bits(lengths), minlength=32)


def summary(index: Index, plan: Plan, totals: Totals) -> dict[str, Any]:
    """The report on what is stored: languages, unknown tokens, and lengths of documents and sentences in tokens."""
    tokens = index.tokens[plan.place >= 0]
    return {
        "text": {
            "characters": totals.characters,
            "hanzi_share": round(totals.hanzi / max(totals.characters, 1), 4),
            "unknown_token_share": round(totals.unknown / max(int(tokens.sum()), 1), 6),
        },
        "document_tokens": {f"p{p}": int(np.percentile(tokens, p, method="nearest")) for p in _PERCENTILES},
        "lengths": _histogram(np.bincount(_bits(tokens))),
        "sentence_lengths": _histogram(totals.sentence_bits),
    }


def _without_duplicates(index: Index) -> tuple[NDArray[np.bool_], int, int]:
    """Which documents to keep [D], and how many are left out as exact and as near duplicates.

    Only documents with band keys can be near duplicates, so only they are compared for that.
    """
    found = find_duplicates(index.exact, np.zeros((len(index.exact), 0), np.uint64))
    different = find_duplicates(index.exact[index.keyed], index.bands).kept
    kept = found.kept.copy()
    kept[index.keyed] &= different
    return kept, found.exact, int(found.kept.sum() - kept.sum())


def _scratch(path: Path, shape: tuple[int, int]) -> NDArray[np.uint32]:
    """An array in a file. Its space is taken at once: writing to a mapped file on a full disk would end the process."""
    with explained(path), open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 4 * shape[0] * shape[1])
    return np.memmap(path, np.uint32, "r+", shape=shape)


def _is_heldout(index: Index, kept: NDArray[np.bool_], share: float, most_tokens: int) -> NDArray[np.bool_]:
    draw = uniform(mix(index.exact[:, 0]))
    order = np.flatnonzero(kept)[np.argsort(draw[kept], kind="stable")]
    if share == 0 or len(order) == 0 or draw[order[0]] == draw[order[-1]]:  # one document only: there to be learned
        return np.zeros(len(draw), bool)
    count = max(int(np.searchsorted(draw[order], share)), min(_FEWEST_HELD_OUT, len(order) // 4))
    count = min(count, int(np.searchsorted(np.cumsum(index.tokens[order]), most_tokens, "right")))
    return draw <= draw[order[max(count - 1, 0)]]


def _bits(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Binary digits of each length: 1 is 1, 2 and 3 are 2, 4 to 7 are 3."""
    return np.frexp(lengths.astype(np.float64))[1].astype(np.int64)


def _histogram(by_bits: NDArray[np.int64]) -> dict[str, int]:
    """Counts by length class, named "1", "2-3", "4-7" and so on."""
    counts = by_bits.tolist()
    names = [f"{1 << bits - 1}-{(1 << bits) - 1}" if bits > 1 else str(bits) for bits in range(len(counts))]
    return {name: count for name, count in zip(names, counts, strict=True) if count}
