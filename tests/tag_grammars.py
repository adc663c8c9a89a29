"""Schemes of tags by their published definitions, written as regular expressions: another way than the one under test."""

from __future__ import annotations

import re
from collections.abc import Sequence

GRAMMARS = {  # of tags, each with a blank behind it
    "bio": r"(?:O |B-(\w+) (?:I-\1 )*)*",
    "bios": r"(?:O |S-\w+ |B-(\w+) (?:I-\1 )+)*",
    "bioes": r"(?:O |S-\w+ |B-(\w+) (?:I-\1 )*E-\1 )*",
    "bilou": r"(?:O |U-\w+ |B-(\w+) (?:I-\1 )*L-\1 )*",
    "bmes": r"(?:O |S-\w+ |B-(\w+) (?:M-\1 )*E-\1 )*",
    "bmewo": r"(?:O |W-\w+ |B-(\w+) (?:M-\1 )*E-\1 )*",
}
LETTERS = {"bio": "BI", "bios": "BIS", "bioes": "BIES", "bilou": "BILU", "bmes": "BMES", "bmewo": "BMEW"}
IN_IOBES = str.maketrans("MLUW", "IESS")


def alphabet(scheme: str, types: str = "XY") -> list[str]:
    return ["O", *(f"{letter}-{label}" for letter in LETTERS[scheme] for label in types)]


def is_legal(tags: Sequence[str], scheme: str) -> bool:
    """Whether the grammar can spell them; tags without types too."""
    typed = "".join(tag + " " if tag == "O" or "-" in tag else f"{tag}-none " for tag in tags)
    return re.fullmatch(GRAMMARS[scheme], typed) is not None


def in_iobes(tags: Sequence[str]) -> list[str]:
    """The same tags in the letters of IOBES."""
    return [tag[:1].translate(IN_IOBES) + tag[1:] for tag in tags]
