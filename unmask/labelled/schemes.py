"""Schemes of tags: how the tag of each word says where an entity begins and ends. BIO, BIOES, and plain (a type a word)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from unmask.errors import UnmaskError
from unmask.labelled.rows import Doubts

Scheme = Literal["bio", "bioes", "plain"]
Repair = Literal["begin", "drop", "error"]
PREFIXES = {"bio": "BI", "bioes": "BIES"}
OTHER_NAMES = {"M": "I", "L": "E", "U": "S"}  # BMES and BILOU say the same with other letters


class Piece(NamedTuple):
    """Words [begin, end) of one type. `whole`: the tags are as the scheme wants them."""

    begin: int
    end: int
    label: str
    whole: bool


def spans_to_tags(spans: Sequence[tuple[int, int, str]], words: int, scheme: Scheme) -> tuple[str, ...]:
    """Tags of `words` words from spans (begin, end, type) over them, of which no two overlap; the rest is O."""
    tags = ["O"] * words
    for begin, end, label in spans:
        assert 0 <= begin < end <= words and set(tags[begin:end]) == {"O"}, "spans of words, apart from each other"
        match scheme:
            case "plain":
                tags[begin:end] = [label] * (end - begin)
            case "bio":
                tags[begin:end] = [f"B-{label}", *[f"I-{label}"] * (end - begin - 1)]
            case "bioes" if end - begin == 1:
                tags[begin] = f"S-{label}"
            case "bioes":
                tags[begin:end] = [f"B-{label}", *[f"I-{label}"] * (end - begin - 2), f"E-{label}"]
    return tuple(tags)


def repaired(
    tags: Sequence[str], scheme: Scheme, repair: Repair, where: Callable[[int], str], doubts: Doubts
) -> tuple[str, ...]:
    """The same tags where the scheme allows them; else made right, counted in `doubts`, or refused.

    `begin` takes a broken entity for one that begins and ends where it does; `drop` makes its words O. `where` names the
    place of a word. UnmaskError for what is no tag of the scheme at all.
    """
    if scheme == "plain":
        return tuple(tags)
    known = {tag: _renamed(tag, scheme, where, tags.index(tag)) for tag in dict.fromkeys(tags)}
    pieces = read_pieces([known[tag] for tag in tags], scheme)
    for piece in pieces:
        if piece.whole:
            continue
        if repair == "error":
            what = f"{tags[piece.begin]!r} breaks the {scheme.upper()} scheme after {(['O', *tags])[piece.begin]!r}"
            do = "repair the file, or let broken entities begin where they are (repair begin) or become O (repair drop)"
            raise UnmaskError(what, where=where(piece.begin), do=do)
        done = "given a beginning and an end" if repair == "begin" else "made O"
        doubts.add(f"entities whose tags break the {scheme.upper()} scheme, {done}", where(piece.begin))
    kept = [(p.begin, p.end, p.label) for p in pieces if p.whole or repair == "begin"]
    return spans_to_tags(kept, len(tags), scheme)


def read_pieces(tags: Sequence[str], scheme: Literal["bio", "bioes"]) -> list[Piece]:
    """The entities of tags of the scheme, in whatever order they come: a word of another type begins another one."""
    pieces: list[Piece] = []
    is_open = False
    for at, tag in enumerate(tags):
        prefix, _, label = tag.partition("-")
        continues = is_open and prefix in ("I", "E") and pieces[-1].label == label
        if continues:
            pieces[-1] = pieces[-1]._replace(end=at + 1)
        elif is_open and scheme == "bioes":
            pieces[-1] = pieces[-1]._replace(whole=False)  # it has no end of its own
        if tag != "O" and not continues:
            pieces.append(Piece(at, at + 1, label, prefix in ("B", "S")))
        is_open = prefix in ("B", "I")
    if is_open and scheme == "bioes":
        pieces[-1] = pieces[-1]._replace(whole=False)
    return pieces


def _renamed(tag: str, scheme: Literal["bio", "bioes"], where: Callable[[int], str], at: int) -> str:
    """The tag in the scheme's own letters."""
    prefix, dash, label = tag.partition("-")
    if scheme == "bioes":
        prefix = OTHER_NAMES.get(prefix, prefix)
    if tag == "O" or (label and prefix in PREFIXES[scheme]):
        return prefix + dash + label
    others = "ES" + "".join(OTHER_NAMES)
    looks = label and scheme == "bio" and prefix in others
    do = "this looks like BIOES: say scheme bioes" if looks else "tags without such a beginning are scheme plain"
    allowed = ", ".join(f"{letter}-…" for letter in PREFIXES[scheme])
    raise UnmaskError(f"{tag!r} is not a tag of {scheme.upper()}, which has O, {allowed}", where=where(at), do=do)
