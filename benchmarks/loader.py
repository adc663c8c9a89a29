"""Batches of unmask's loader and of `datasets` rows with transformers' collator, in turns: tokens per CPU second of one process.

    python -m benchmarks.loader [--rounds 5] [--lengths 128,512] [--json FILE]

Both read the same tokens from memory-mapped files, take examples in random order, hide 15 % of the tokens (single ones or whole
words) and make about 4,096 real tokens a batch; padding never counts. Ours also numbers each token's sequence and place, which
the peer leaves to the model; groups for attention are made by neither. `paragraphs` are one example each, truncated at the
length, which the peer pads to the longest of a batch; `blocks` are full rows of the concatenated text (run_mlm's default), which
need no padding. The peer gets the columns that it is fastest with: the mask of special tokens and, for whole words, the offsets
are made before the clock runs. Its whole-word masking takes rows of one length only, so there paragraphs are padded to the
length before.
Needs the `datasets` package.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, RandomSampler

from benchmarks import tables
from benchmarks.sides import Work, ratio, take_turns
from benchmarks.text import Ints, Rows, Text, concatenated_rows, default_cache, default_text, load_text, random_rows
from unmask.config import Blocks, Documents, MaskedTokens
from unmask.loader import Batches, Cursor
from unmask.objectives.masked import MaskedTokenObjective
from unmask.presets import bert_tiny
from unmask.text.shards import Texts
from unmask.text.tokenizer import Tokenizer

TOKENS = 4096
RATE = 0.15  # BERT, section 3.1
BAR = 8.0
ROWS = 8192  # of the peer, drawn at random again and again
PEER_BATCHES = 32  # of a turn; a turn of ours is a pool of examples, the whole of which is made at once
Result = dict[str, Any]


def main() -> None:
    given = _options()
    if importlib.util.find_spec("datasets") is None:
        sys.exit("this benchmark compares with the `datasets` package: pip install datasets")
    text = load_text(given.text or default_text(), 1000 if given.tiny else 8192, given.cache or default_cache())
    lengths = [32] if given.tiny else [int(n) for n in given.lengths.split(",")]
    results = []
    for length in lengths:
        for case in (Case(text, length, kind, unit) for kind in ("paragraphs", "blocks") for unit in ("token", "word")):
            results.append(compare(case, given))
            print(_line(results[-1]), flush=True)
    print("\n" + report(results))
    tables.write_json(given.json, "loader", results)


def _options() -> Any:
    ask = tables.arguments(__doc__)
    ask.set_defaults(threads=1, clock="cpu")
    ask.add_argument("--lengths", default="128,512", help="tokens of an example at most")
    return ask.parse_args()


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    text: Text
    length: int
    kind: str  # paragraphs or blocks
    unit: str  # token or word


# --- measuring --------------------------------------------------------------------------------------------------------------
def compare(case: Case, given: Any) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        _save_rows(case, folder)
        sides: dict[str, Any] = {"ours": partial(Ours, case), "theirs": partial(Peer, case, folder)}
        measured = take_turns(
            sides, rounds=given.rounds, threads=given.threads, clock=given.clock,
            before={name: ("hidden",) for name in sides},
        )  # fmt: skip
    for name, side in measured.items():
        share = side.answers["hidden"][0]
        assert abs(share - RATE) < 0.02, f"{name} hides {share:.1%} of the tokens"
    speeds = {name: side.speed() for name, side in measured.items()}
    about = {"examples": case.kind, "length": case.length, "unit": case.unit}
    return {
        **about,
        "speeds": speeds,
        "ratio": ratio(measured["ours"], measured["theirs"]),
        "bar": 0 if given.tiny else BAR,
    }


class Ours:
    """`Batches` with the masked-token objective, in this process."""

    def __init__(self, case: Case):
        tokenizer = Tokenizer.load(case.text.tokenizer_folder)
        vocabulary = tokenizer.vocabulary()
        how = Blocks(max_length=case.length) if case.kind == "blocks" else Documents(max_length=case.length)
        goal = MaskedTokens(mask_rate=RATE, unit=case.unit)  # type: ignore[arg-type]
        objective = MaskedTokenObjective(bert_tiny(vocabulary.size), goal, vocabulary)
        text = case.text.cut(case.length) if case.kind == "paragraphs" else case.text
        source = WithWords(text, ~_continuations(tokenizer))
        self.endless = Batches(source, how, vocabulary, objective.prepare, 0, TOKENS).since(Cursor())

    def step(self) -> Work:
        tokens = 0
        for batch, after in self.endless:
            tokens += batch.num_tokens
            if after.batch == 0:
                break
        return Work(tokens)

    def hidden(self) -> float:
        """Share of the tokens that are targets, special ones aside."""
        batch, _ = next(self.endless)
        return len(batch.labels["mlm"].where) / (batch.num_tokens - 2 * batch.num_sequences)


@dataclass(frozen=True)
class WithWords:
    """A text that also knows which pieces begin a word: a Source of `Batches`."""

    text: Text
    begins: NDArray[np.bool_]  # [V]

    def document_tokens(self) -> Ints:
        return self.text.document_tokens()

    def read(self, documents: Ints) -> Texts:
        texts = self.text.read(documents)
        return replace(texts, word_starts=self.begins[texts.tokens])


class Peer:
    """`datasets` rows from a file mapped into memory, sampled at random, through the collator of transformers."""

    def __init__(self, case: Case, folder: str):
        from datasets import load_from_disk
        from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

        rows = load_from_disk(folder)
        tokens = sum(map(sum, rows["attention_mask"]))
        words = {
            "whole_word_mask": True,
            "mask_replace_prob": 1.0,
            "random_replace_prob": 0.0,
        }  # it has no others there
        self.loader = DataLoader(
            rows,
            batch_size=max(1, round(TOKENS * len(rows) / tokens)),
            sampler=RandomSampler(rows),
            collate_fn=DataCollatorForLanguageModeling(
                PreTrainedTokenizerFast.from_pretrained(case.text.tokenizer_folder),
                mlm_probability=RATE,
                **(words if case.unit == "word" else {}),
            ),
        )
        self.endless = chain.from_iterable(repeat(self.loader))

    def step(self) -> Work:
        return Work(sum(int(batch["attention_mask"].sum()) for batch in islice(self.endless, PEER_BATCHES)))

    def hidden(self) -> float:
        """Share of the tokens that are targets, special ones aside."""
        batches = list(islice(self.endless, PEER_BATCHES))
        targets = sum(int((batch["labels"] != -100).sum()) for batch in batches)
        return targets / sum(int(batch["attention_mask"].sum()) - 2 * len(batch["labels"]) for batch in batches)


# --- what the peer reads ----------------------------------------------------------------------------------------------------
def _save_rows(case: Case, folder: str) -> None:
    """The tokens as a dataset on the disk, as run_mlm's preprocessing leaves it."""
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    tokenizer = Tokenizer.load(case.text.tokenizer_folder)
    special = tokenizer.vocabulary().is_special()
    goes_on = _continuations(tokenizer)
    padded = case.length if case.unit == "word" else 0
    Dataset.from_generator(
        lambda: (_row(np.array(ids), special, goes_on, padded, case.unit) for ids in _ids(case)),
        cache_dir=folder + "/cache",
    ).save_to_disk(folder)


def _ids(case: Case) -> Rows:
    count = len(case.text.starts) - 1
    if case.kind == "paragraphs":
        return random_rows(case.text, case.length, min(ROWS, count), 1, 0)[0]
    return concatenated_rows(case.text, case.length, min(ROWS, int(case.text.starts[-1]) // case.length), 1, 0)[0]


def _row(ids: Ints, special: NDArray[np.bool_], goes_on: NDArray[np.bool_], padded: int, unit: str) -> dict[str, Any]:
    pad = max(0, padded - len(ids))
    row = {
        "input_ids": np.pad(ids, (0, pad)),
        "attention_mask": np.pad(np.ones(len(ids), np.int8), (0, pad)),
        "special_tokens_mask": np.pad(special[ids].astype(np.int8), (0, pad), constant_values=1),
    }
    if unit == "word":  # a piece that goes on begins where the piece before it ends
        ends = 2 * np.arange(1, len(ids) + pad + 1)
        row["offset_mapping"] = np.stack([ends - 2 + ~np.pad(goes_on[ids], (0, pad)), ends], 1)
    return row


def _continuations(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """[V] True at WordPiece's pieces that go on with a word."""
    return np.array([piece.startswith("##") for piece in tokenizer.pieces()])


# --- showing ----------------------------------------------------------------------------------------------------------------
def report(results: Sequence[Result]) -> str:
    """The table."""
    head = ["examples", "length", "hidden", "unmask, M tokens/CPU s", "datasets + collator", "ratio"]
    return tables.markdown(head, [_cells(result) for result in results])


def _cells(result: Result) -> list[str]:
    ours, theirs = (result["speeds"][name] / 1e6 for name in ("ours", "theirs"))
    measured = [f"{ours:.2f}", f"{theirs:.3f}", tables.at_least(result["ratio"], result["bar"])]
    return [result["examples"], str(result["length"]), f"{result['unit']}s", *measured]


def _line(result: Result) -> str:
    return "  ".join(_cells(result))


if __name__ == "__main__":
    main()
