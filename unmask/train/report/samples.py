"""Masked sentences over time, for the report: which steps and sentences are kept, and how their tokens are shown."""

from __future__ import annotations

import json
import re
from typing import Any

from unmask.text.byte_letters import BYTE_OF
from unmask.train.report.text import number, visible

_STEPS, _SENTENCES, _PIECES, _PLACES, _GUESSES, _LETTERS = 48, 4, 200, 24, 5, 40
_BYTES = 600_000
_SPECIAL = re.compile(r"\[[A-Z]+\d*\]|<[a-z/]+>")
_NO_SPACE = re.compile("[\u2e80-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_CLOSES, _OPENS = set(".,;:!?)]}%’”'_"), set("([{“‘_")
_AFTER_APOSTROPHE = {"s", "t", "d", "m", "re", "ve", "ll"}  # don't, it's, we've


class Samples:
    """Takes sample records one at a time and keeps at most 48 steps of them, closer together early in the run."""

    def __init__(self) -> None:
        self._at: dict[int, list[dict[str, Any]]] = {}

    def add(self, record: dict[str, Any], step: int) -> bool:
        """Keeps one sample record; False when it is not a sample anybody could read."""
        if not _is_sample(record):
            return False
        self.cut(step)
        here = self._at.setdefault(step, [])
        if len(here) < _SENTENCES:
            here.append(record)
        if len(self._at) > _STEPS:
            steps = list(self._at)
            gaps = [(steps[i + 1] + 1) / (steps[i - 1] + 1) for i in range(1, len(steps) - 1)]
            del self._at[steps[1 + gaps.index(min(gaps))]]
        return True

    def cut(self, step: int) -> None:
        """Forgets the samples after `step`: the run was resumed from there."""
        for later in [s for s in self._at if s > step]:
            del self._at[later]

    def page(self) -> dict[str, Any]:
        """What the page shows: {"steps": [...], "sentences": [...]}; a sentence's `at` maps a place in `steps` to its guesses,
        and `doubted` to the text an RTD encoder judged."""
        steps = list(self._at)
        page = self._page(steps)
        while len(steps) > 2 and len(json.dumps(page)) > _BYTES:
            steps = steps[:-1:2] + steps[-1:]
            page = self._page(steps)
        return page

    def _page(self, steps: list[int]) -> dict[str, Any]:
        sentences: dict[str, dict[str, Any]] = {}
        for place, step in enumerate(steps):
            for record in self._at[step]:
                key = json.dumps([record["tokens"], record["masked"], record["shown"]])
                sentence = sentences.setdefault(key, _sentence(record))
                sentence["at"][place] = _guesses(record)
                if doubted := _doubted(record):
                    sentence["doubted"][place] = doubted
        return {"steps": steps, "sentences": list(sentences.values())}


def pieces(tokens: list[str]) -> list[tuple[str, bool]]:
    """Tokens as a reader wants them: (text, whether a blank comes before it). WordPiece, byte-level BPE, unigram, Chinese."""
    words = bool(any(token.startswith(("Ġ", "▁")) for token in tokens))
    shown: list[tuple[str, bool]] = []
    for token in tokens:
        text, space = _piece(token, words)
        before = shown[-1][0] if shown else ""
        if not words and (_NO_SPACE.match(text) or _NO_SPACE.match(before[-1:]) or text in _CLOSES or before in _OPENS):
            space = False
        if before[-1:] in ("'", "’") and text in _AFTER_APOSTROPHE:
            space = False
        if before and (_SPECIAL.fullmatch(text) or _SPECIAL.fullmatch(before)):
            space = True
        shown.append((visible(text, _LETTERS) or "␣", space and bool(shown)))
    return shown


def _piece(token: str, words: bool) -> tuple[str, bool]:
    if words and not _SPECIAL.fullmatch(token):
        text = token.lstrip("Ġ▁")
        return _from_bytes(text), text != token
    return (token[2:], False) if token.startswith("##") and len(token) > 2 else (token, True)


def _from_bytes(text: str) -> str:
    """Byte-level BPE writes é as Ã©: one visible character a byte (GPT-2's table). Half a character stays as it is."""
    try:
        return bytes(BYTE_OF[c] for c in text).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return text


def _sentence(record: dict[str, Any]) -> dict[str, Any]:
    """The parts of a sample that stay the same at every step."""
    masked = _places(record)
    shown = pieces(record["tokens"][:_PIECES])
    saw = [visible(record["shown"][place], _LETTERS) for place in masked]
    return {
        "pieces": [[text, int(space), int(bool(_SPECIAL.fullmatch(text)))] for text, space in shown],
        "more": len(record["tokens"]) > _PIECES,
        "masked": masked,
        "truth": [shown[place][0] for place in masked],
        "saw": saw,
        "at": {},
        "doubted": {},
    }


def _places(record: dict[str, Any]) -> list[int]:
    return [place for place in record["masked"] if place < _PIECES][:_PLACES]


def _guesses(record: dict[str, Any]) -> list[list[list[Any]]]:
    """For each shown place its best guesses: [text, probability, 1 when it is the token that stood there]."""
    by_place = dict(zip(record["masked"], record["guesses"], strict=True))
    words = any(token.startswith(("Ġ", "▁")) for token in record["tokens"])
    return [
        [
            [
                visible(_guess(token, words), _LETTERS),
                round(number(share) or 0.0, 4),
                int(token == record["tokens"][place]),
            ]
            for token, share in by_place[place][:_GUESSES]
        ]
        for place in _places(record)
    ]


def _doubted(record: dict[str, Any]) -> list[list[Any]]:
    """RTD: the text with draws in its blanks as [text, blank before, chance given that it is not the original, 1 if it is not].

    Empty for goals that judge no tokens, and for a record of another shape.
    """
    filled, doubts = record.get("filled"), record.get("doubts")
    if (
        not isinstance(filled, list)
        or not isinstance(doubts, list)
        or not len(filled) == len(doubts) == len(record["tokens"])
    ):
        return []
    chances = [number(chance) for chance in doubts[:_PIECES]]
    if None in chances or not all(isinstance(token, str) for token in filled):
        return []
    wrong = [int(a != b) for a, b in zip(filled, record["tokens"], strict=True)]
    return [
        [text, int(space), round(chance or 0.0, 2), replaced]
        for (text, space), chance, replaced in zip(pieces(filled[:_PIECES]), chances, wrong, strict=False)
    ]


def _guess(token: str, words: bool) -> str:
    """A guess alone keeps its ## so that "##ing" is not taken for a word."""
    return (_piece(token, words)[0] if words else token) or "␣"


def _is_sample(record: dict[str, Any]) -> bool:
    tokens, shown, masked, guesses = (record.get(name) for name in ("tokens", "shown", "masked", "guesses"))
    if not (
        isinstance(tokens, list) and isinstance(shown, list) and isinstance(masked, list) and isinstance(guesses, list)
    ):
        return False
    if len(tokens) != len(shown) or len(masked) != len(guesses) or not all(isinstance(t, str) for t in tokens + shown):
        return False
    if not all(isinstance(place, int) and 0 <= place < len(tokens) for place in masked):
        return False
    return all(isinstance(one, list) and all(_is_guess(pair) for pair in one) for one in guesses)


def _is_guess(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and number(pair[1]) is not None
