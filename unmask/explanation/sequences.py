"""A prepared batch, sequence by sequence, in the form of a lecture's tables.

Legend: T tokens before anything was hidden, N tokens that the encoder reads.
"""

from __future__ import annotations

from collections.abc import Sequence as Listed
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig, MaskedTokens, ReplacedTokens, RunConfig
from unmask.explanation.batches import Batch
from unmask.explanation.result import IGNORED, Fate, PairOf, Replacing, Sequence, Span, Writing
from unmask.objectives.choose import Unit, run_starts
from unmask.text.tokenizer import Tokenizer

ASKED = ("mlm", "causal")  # labels whose answer is a token of the encoder's side


@dataclass(frozen=True)
class Row:
    """One sequence's share of a batch: its tokens are [begin, end) before and [start, stop) after it was prepared."""

    number: int
    begin: int
    end: int
    start: int
    stop: int


def sequences_of(batch: Batch, filled: PackedBatch, run: RunConfig, tokenizer: Tokenizer) -> tuple[Sequence, ...]:
    """All sequences; `filled` is the batch after a generator filled its blanks, else the prepared one."""
    goals = [goal.masking if isinstance(goal, ReplacedTokens) else goal for goal in run.objectives]
    units: list[Unit] = [goal.unit for goal in goals if isinstance(goal, MaskedTokens)]
    clean, prepared = batch.clean.starts.tolist(), batch.prepared.starts.tolist()
    edges = zip(clean, clean[1:], prepared, prepared[1:], strict=False)
    rows = [Row(number, *edge) for number, edge in enumerate(edges)]
    mask = batch.prepared.layout.valid().int().tolist()
    return tuple(
        _sequence(row, batch, filled, run.encoder, tokenizer, (*units, "token")[0], mask[row.number]) for row in rows
    )


def _sequence(
    row: Row,
    batch: Batch,
    filled: PackedBatch,
    config: EncoderConfig,
    tokenizer: Tokenizer,
    unit: Unit,
    mask: list[int],
) -> Sequence:
    ids = batch.clean.input_ids[row.begin : row.end].tolist()
    shown = batch.prepared.input_ids[row.start : row.stop].tolist()
    words, word_texts = _words(row, batch)
    labels = _labels(row, batch.prepared)
    fates = _fates(labels if "mlm" in batch.prepared.labels else [IGNORED] * len(shown), shown, tokenizer)
    decoder = _writing(row, batch.prepared, tokenizer)
    types = batch.prepared.token_type_ids if config.type_vocab_size > 1 else None
    assert batch.clean.documents is not None
    if decoder is None:
        spans = _spans(row, batch.prepared, words, fates, tokenizer, ids, unit)
    else:
        spans = _missing(decoder, ids, shown, words, tokenizer)
        fates = ["sentinel" if id in tokenizer.sentinel_ids else "" for id in shown]
    return Sequence(
        text=int(batch.clean.documents[row.number]),
        tokens=tuple(map(tokenizer.token, ids)),
        ids=tuple(ids),
        words=words,
        word_texts=word_texts,
        input_tokens=tuple(map(tokenizer.token, shown)),
        input_ids=tuple(shown),
        token_type_ids=(0,) * len(shown) if types is None else tuple(types[row.start : row.stop].tolist()),
        position_ids=tuple(range(config.position_offset, config.position_offset + len(shown))),
        attention_mask=tuple(mask),
        labels=labels,
        fates=tuple(fates),
        spans=spans,
        pair=_pair(row, batch),
        decoder=decoder,
        replaced=_replaced(row, filled, tokenizer),
    )


def _words(row: Row, batch: Batch) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
    """The word of each token [T], and the text of each word."""
    assert batch.clean.word_starts is not None
    members: list[list[int]] = []
    words: list[int | None] = []
    for place in range(row.begin, row.end):
        origin = int(batch.origin[place])
        if origin < 0:
            words.append(None)
            continue
        if batch.clean.word_starts[place] or not words or words[-1] is None:
            members.append([])
        members[-1].append(origin)
        words.append(len(members) - 1)
    return tuple(words), tuple(map(batch.source.surface, members))


def _labels(row: Row, prepared: PackedBatch) -> tuple[int, ...]:
    """[N] what is to be answered at each token the encoder reads."""
    out = [IGNORED] * (row.stop - row.start)
    for name in ASKED:
        if name in prepared.labels:
            for place, value in _inside(row, *prepared.labels[name]):
                out[place] = value
    return tuple(out)


def _inside(row: Row, where: Tensor, value: Tensor) -> list[tuple[int, int]]:
    """Those of the targets that lie in this sequence, by their place in it."""
    pairs = zip(where.tolist(), value.tolist(), strict=True)
    return [(at - row.start, answer) for at, answer in pairs if row.start <= at < row.stop]


def _fates(labels: Listed[int], shown: Listed[int], tokenizer: Tokenizer) -> list[Fate]:
    """What the draw did to each target; a random token that is the right one by chance counts as kept."""

    def fate(label: int, id: int) -> Fate:
        if label == IGNORED:
            return ""
        if id == tokenizer.mask_token_id:
            return "mask"
        return "kept" if id == label else "random"

    return [fate(label, id) for label, id in zip(labels, shown, strict=True)]


def _spans(
    row: Row,
    prepared: PackedBatch,
    words: Listed[int | None],
    fates: Listed[Fate],
    tokenizer: Tokenizer,
    ids: Listed[int],
    unit: Unit,
) -> tuple[Span, ...]:
    """What was chosen as one: tokens, words, or runs of neighbouring words, with the borders that SBO guesses from."""
    if "mlm" not in prepared.labels:
        return ()
    where = np.array([place for place, fate in enumerate(fates) if fate], np.int64)
    apart = {"token": where, "word": np.array([words[at] for at in where.tolist()], np.int64)}
    starts = run_starts(where, apart.get(unit, np.zeros_like(where)))
    runs = [run.tolist() for run in np.split(where, np.flatnonzero(starts)[1:]) if len(run)]
    borders = {}
    if "sbo" in prepared.labels:
        edges = zip(*(edge.tolist() for edge in prepared.labels["sbo_edges"]), strict=True)
        borders = dict(zip(prepared.labels["sbo"].where.tolist(), edges, strict=True))
    spans = []
    for begin, end in ((run[0], run[-1] + 1) for run in runs):
        left, right = borders.get(row.start + begin, (None, None))
        spans.append(
            Span(
                begin,
                end,
                tuple(map(tokenizer.token, ids[begin:end])),
                len(set(words[begin:end])),
                tuple(fates[begin:end]),
                None if left is None else left - row.start,
                None if right is None else right - row.start,
            )
        )
    return tuple(spans)


def _writing(row: Row, prepared: PackedBatch, tokenizer: Tokenizer) -> Writing | None:
    if prepared.decoder is None:
        return None
    begin, end = prepared.decoder.starts[row.number : row.number + 2].tolist()
    reads = prepared.decoder.input_ids[begin:end].tolist()
    writes = prepared.decoder.labels["infill"].value[begin:end].tolist()
    return Writing(tuple(map(tokenizer.token, reads)), tuple(reads), tuple(map(tokenizer.token, writes)), tuple(writes))


def _missing(
    decoder: Writing, ids: Listed[int], shown: Listed[int], words: Listed[int | None], tokenizer: Tokenizer
) -> tuple[Span, ...]:
    """Spans that became sentinels: the decoder writes each sentinel with what stood in its place."""
    sentinels = set(tokenizer.sentinel_ids)
    missing: dict[int, int] = {}  # tokens by sentinel
    last = -1
    for id in decoder.labels[:-1]:
        last = id if id in sentinels else last
        missing[last] = missing.get(last, -1) + 1
    spans, place = list[Span](), 0
    for id in shown:
        size = missing.get(id, 1)
        if id in missing:
            inside = slice(place, place + size)
            tokens = tuple(map(tokenizer.token, ids[inside]))
            fates: tuple[Fate, ...] = tuple("sentinel" for _ in range(size))
            count = len(set(words[inside]))
            spans.append(Span(place, place + size, tokens, count, fates, sentinel=tokenizer.token(id)))
        place += size
    return tuple(spans)


def _replaced(row: Row, filled: PackedBatch, tokenizer: Tokenizer) -> Replacing | None:
    if "rtd" not in filled.labels:
        return None
    ids = filled.input_ids[row.start : row.stop].tolist()
    labels = filled.labels["rtd"].value[row.start : row.stop].int().tolist()
    return Replacing(tuple(map(tokenizer.token, ids)), tuple(ids), tuple(labels))


def _pair(row: Row, batch: Batch) -> PairOf | None:
    """The two segments and how they came together, where the sampler made a pair."""
    where, value = batch.clean.labels["pair"]
    label = dict(zip(where.tolist(), value.tolist(), strict=True)).get(row.number)
    if label is None or batch.clean.token_type_ids is None:
        return None
    types = batch.clean.token_type_ids[row.begin : row.end].tolist()
    origin = batch.origin[row.begin : row.end].tolist()
    first, second = ([o for o, t in zip(origin, types, strict=True) if o >= 0 and t == kind] for kind in (0, 1))
    texts = [int(batch.source.document[part[0]]) + 1 for part in (first, second)]
    if texts[0] != texts[1]:
        what = f"exchanged: A is from text {texts[0]}, B from text {texts[1]}"
    elif second[0] < first[0]:
        what = "swapped: in the text, B comes before A"
    else:
        what = "B follows A in the text"
    return PairOf(batch.source.surface(first), batch.source.surface(second), label, what)
