"""The text that all sides read: paragraphs, a tokenizer trained on them, their tokens, and the rows that peers are given.

A paragraph (a line that is not empty) is one example, truncated at the length. Tokenizer and tokens are made once and kept
in a cache folder. Legend: T tokens, D paragraphs.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unmask.text.documents import ReadOptions, ReadReport
from unmask.text.reader import read_documents
from unmask.text.shards import Texts, ranges
from unmask.text.tokenizer import Tokenizer

Ints = NDArray[np.int64]
Rows = list[list[int]]

REPOSITORY = Path(__file__).resolve().parents[1]
ARTICLES = REPOSITORY.parent / "shared/data/corpora/en_wiki_squad_articles.jsonl.gz"
UNMASK = [sys.executable, "-c", "from unmask.cli.main import main; main()"]


def default_text() -> str:
    """Articles of Wikipedia where they lie beside the repository, else Python's own documentation."""
    return str(ARTICLES) if ARTICLES.exists() else "python-docs"


def default_cache() -> Path:
    """A folder of this program in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unmask-benchmarks"


@dataclass(frozen=True)
class Text:
    """Paragraphs as tokens without special ones. It is a Source of `unmask.loader.Batches`."""

    tokens: NDArray[np.int32]  # [T]
    starts: Ints  # [D+1]
    tokenizer_folder: Path
    room: int = 0  # tokens that may be used of a paragraph; 0: all

    def cut(self, length: int) -> Text:
        """Paragraphs that are one example each of at most `length` tokens, [CLS] and [SEP] included."""
        return replace(self, room=length - 2)

    def document_tokens(self) -> Ints:
        sizes = np.diff(self.starts)
        return np.minimum(sizes, self.room) if self.room else sizes

    def read(self, documents: Ints) -> Texts:
        sizes = self.document_tokens()[documents]
        tokens = self.tokens[ranges(self.starts[documents], sizes)].astype(np.int64)
        ends = np.concatenate([[0], sizes.cumsum()])
        return Texts(tokens, np.ones(len(tokens), np.bool_), ends, np.arange(len(documents) + 1))


def load_text(source: str, vocab_size: int, cache: Path) -> Text:
    """Paragraphs of `source` (a file, or python-docs) in tokens of a WordPiece vocabulary trained on them."""
    folder = cache / f"{_name(source)}-{vocab_size}"
    if not (folder / "starts.npy").exists():
        _prepare(source, vocab_size, folder)
    return Text(np.load(folder / "tokens.npy", mmap_mode="r"), np.load(folder / "starts.npy"), folder / "tokenizer")


def _name(source: str) -> str:
    path = Path(source)
    about = f"{path.resolve()}{path.stat().st_size}" if path.exists() else source
    return f"{path.name.split('.')[0]}-{hashlib.sha256(about.encode()).hexdigest()[:8]}"


def _prepare(source: str, vocab_size: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = list(paragraphs(source))
    plain = folder / "paragraphs.txt"
    plain.write_text("\n".join(lines) + "\n", encoding="utf-8")
    train = [*UNMASK, "tokenizer", "train", str(plain), "--separator", "line", "--like", "bert"]
    train += ["--vocab-size", str(vocab_size), "--out", str(folder / "tokenizer")]
    if not (folder / "tokenizer").exists():
        subprocess.run(train, check=True, stdout=subprocess.DEVNULL)
    encoded = [e.ids for e in Tokenizer.load(folder / "tokenizer").encode(lines)]
    np.save(folder / "tokens.npy", np.concatenate(encoded).astype(np.int32))
    np.save(folder / "starts.npy", np.concatenate([[0], np.cumsum([len(ids) for ids in encoded])]).astype(np.int64))


def paragraphs(source: str) -> Iterator[str]:
    """The lines of all documents that hold at least a few words."""
    for document in read_documents([source], ReadOptions(), ReadReport()):
        yield from (line.strip() for line in document.text.splitlines() if len(line.split()) >= 4)


def sentences(source: str, count: int, seed: int = 0) -> list[str]:
    """Texts as people embed and classify them: mostly single sentences, some short passages, some paragraphs."""
    # "[MASK]" in a text is an order to transformers and five characters to us: no text that may hold one
    draw, lines = random.Random(seed), [line for line in paragraphs(source) if "[" not in line]
    found: list[str] = []
    while len(found) < count:
        line, kind = draw.choice(lines), draw.random()
        whole = [s for s in re.split(r"(?<=[.!?])\s+", line) if len(s) > 15] or [line]
        found.append(draw.choice(whole)[:600] if kind < 0.6 else line[:400] if kind < 0.85 else line[:1200])
    return found


# --- what peers are given: rows of ids, [CLS] … [SEP] around each paragraph ---------------------------------------------------
def random_rows(text: Text, length: int, rows: int, count: int, seed: int) -> list[Rows]:
    """`count` batches of so many random paragraphs each (run_mlm's line_by_line, shuffled)."""
    draw = np.random.default_rng(seed).permutation(len(text.starts) - 1)
    chosen = np.resize(draw, count * rows).reshape(count, rows)
    return [_framed(text.cut(length), batch) for batch in chosen]


def concatenated_rows(text: Text, length: int, rows: int, count: int, seed: int) -> list[Rows]:
    """`count` batches of full rows: framed paragraphs end to end, cut every `length` tokens (run_mlm's default)."""
    order = np.random.default_rng(seed).permutation(len(text.starts) - 1)
    stream: list[int] = []
    for document in np.resize(order, 100 * len(order)):
        if len(stream) >= count * rows * length:
            break
        stream += _framed(text, [document])[0]
    cut = [stream[i : i + length] for i in range(0, count * rows * length, length)]
    return [cut[i : i + rows] for i in range(0, len(cut), rows)]


def grouped_rows(text: Text, length: int, slots: int, rounds: int, steps: int, seed: int) -> list[Rows]:
    """Batches of near-equal lengths that hold at most `slots` places, padding included, from one pool that is used up whole.

    Every round of `steps` batches has short and long ones in turn, so that rounds cost about the same.
    """
    count, short = rounds * steps, text.cut(length)
    order = np.random.default_rng(seed).permutation(len(text.starts) - 1)
    sizes = np.minimum(short.document_tokens() + 2, length)
    enough = np.searchsorted(np.resize(sizes[order], 4 * len(order)).cumsum(), count * slots) + 1
    pool = np.resize(order, enough)
    batches = list(_by_length(pool[np.argsort(sizes[pool], kind="stable")], sizes, slots))
    chosen = np.linspace(0, len(batches) - 1, count).round().astype(int).reshape(steps, rounds)
    chosen[1::2] = chosen[1::2, ::-1]
    return [_framed(short, batches[i]) for i in chosen.T.ravel()]


def _by_length(pool: Ints, sizes: Ints, slots: int) -> Iterator[Ints]:
    begin = 0
    for end in range(1, len(pool) + 1):
        if end == len(pool) or sizes[pool[end]] * (end + 1 - begin) > slots:
            yield pool[begin:end]
            begin = end


def _framed(text: Text, documents: Ints | list[int]) -> Rows:
    v = Tokenizer.load(text.tokenizer_folder).vocabulary() if text.tokenizer_folder not in _FRAMES else None
    if v is not None:
        _FRAMES[text.tokenizer_folder] = (v.require("cls"), v.require("sep"))
    cls, sep = _FRAMES[text.tokenizer_folder]
    sizes = text.document_tokens()
    return [[cls, *text.tokens[text.starts[d] : text.starts[d] + sizes[d]].tolist(), sep] for d in documents]


_FRAMES: dict[Path, tuple[int, int]] = {}
