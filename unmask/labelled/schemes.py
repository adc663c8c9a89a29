"""Schemes of tags: how the tag of each word says where an entity begins and ends.

A tag is a letter for the word's place in its entity, a hyphen and the type of the entity, or O outside of all; without types
(word segmentation) it is the letter alone. In plain tags each word stands for itself, with a type of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Literal, NamedTuple

from unmask.config.tasks import Repair, Scheme, SpanScheme
from unmask.errors import UnmaskError
from unmask.labelled.rows import Doubts


class Letters(NamedTuple):
    """The letters of a scheme: of an entity's first word, those within, its last, the only one; "" where it has none."""

    begin: str
    inside: str
    end: str = ""
    single: str = ""


LETTERS: dict[SpanScheme, Letters] = {
    "bio": Letters("B", "I"),
    "bios": Letters("B", "I", "", "S"),
    "bioes": Letters("B", "I", "E", "S"),
    "bilou": Letters("B", "I", "L", "U"),
    "bmes": Letters("B", "M", "E", "S"),
    "bmewo": Letters("B", "M", "E", "W"),
}
Role = Literal["O", "B", "I", "E", "S"]  # of a word in its entity, in the letters of BIOES
ROLES: tuple[Role, ...] = ("B", "I", "E", "S")


class Part(NamedTuple):
    """What a tag says: the role of its word in an entity, and the type, "" where it has none."""

    role: Role
    label: str


class Piece(NamedTuple):
    """Words [begin, end) of one type. `whole`: the tags are as the scheme wants them."""

    begin: int
    end: int
    label: str
    whole: bool


def scheme_of(labels: Iterable[str]) -> Scheme:
    """The scheme that all of the labels are in, the first of `LETTERS` that has all of their letters; plain where none has.

    Labels but O must be a letter, a hyphen and a type; or all of them letters alone, and then all that the scheme has, as
    B, M, E, S: some letters alone may be anything.
    """
    parts = [label.partition("-") for label in labels if label != "O"]
    letters, typed = {letter for letter, _, _ in parts}, all(kind for _, _, kind in parts)
    alone = not any(hyphen for _, hyphen, _ in parts)
    for scheme in _schemes(letters):
        if typed or (alone and letters == {letter for letter in LETTERS[scheme] if letter}):
            return scheme
    return "plain"


def _schemes(letters: Collection[str]) -> list[SpanScheme]:
    """Those that have all of the letters."""
    return [scheme for scheme, own in LETTERS.items() if all(letter and letter in own for letter in letters)]


def part_of(tag: str, scheme: SpanScheme, where: Callable[[], str] = lambda: "") -> Part:
    """What a tag says; a scheme with a letter for the last word also knows the letters of the others that have one.

    UnmaskError, with the place `where` names, for what is no tag of the scheme.
    """
    letter, hyphen, label = tag.partition("-")
    role = _roles(scheme).get(letter)
    if tag == "O":
        return Part("O", "")
    if role is not None and bool(label) == bool(hyphen):
        return Part(role, label)
    own = ", ".join(f"{letter}-…" for letter in LETTERS[scheme] if letter)
    fitting = _schemes([letter])
    setting = f"--set task.scheme={fitting[0] if fitting else 'plain'}"
    raise UnmaskError(
        f"{tag!r} is not a tag of the scheme {scheme}: neither O nor {own}",
        where=where(),
        do=f"take the scheme the tags are in: {', '.join(fitting or LETTERS)}, or plain where each tag stands for itself; "
        f"e.g. {setting}",
    )


@cache
def _roles(scheme: SpanScheme) -> Mapping[str, Role]:
    """What the letters of tags mean."""
    read = [letters for letters in LETTERS.values() if letters.end] if LETTERS[scheme].end else [LETTERS[scheme]]
    return {letter: role for own in read for letter, role in zip(own, ROLES, strict=True) if letter}


def going_on(scheme: SpanScheme) -> tuple[Role, ...]:
    """The roles behind which an entity has to go on, since the scheme has another letter for its last or only word."""
    others: tuple[tuple[Role, str], ...] = (("B", LETTERS[scheme].single), ("I", LETTERS[scheme].end))
    return tuple(role for role, letter in others if letter)


def spans_to_tags(spans: Sequence[tuple[int, int, str]], words: int, scheme: Scheme) -> tuple[str, ...]:
    """Tags of `words` words from spans (begin, end, type) over them, of which no two overlap; the rest is O."""
    tags = ["O"] * words
    for begin, end, label in spans:
        assert 0 <= begin < end <= words and set(tags[begin:end]) == {"O"}, "spans of words, apart from each other"
        tags[begin:end] = _tags(label, end - begin, scheme)
    return tuple(tags)


def _tags(label: str, words: int, scheme: Scheme) -> list[str]:
    if scheme == "plain":
        return [label] * words
    begin, inside, end, single = LETTERS[scheme]
    letters = [begin, *[inside] * (words - 2), end or inside] if words > 1 else [single or begin]
    return [f"{letter}-{label}" if label else letter for letter in letters]


def repaired(
    tags: Sequence[str], scheme: Scheme, repair: Repair, where: Callable[[int], str], doubts: Doubts
) -> tuple[str, ...]:
    """The same tags, in the scheme's own letters, where it allows them; else made right, counted in `doubts`, or refused.

    `begin` takes a broken entity for one that begins and ends where it does; `drop` makes its words O. `where` names the
    place of a word. UnmaskError for what is no tag of the scheme at all.
    """
    if scheme == "plain":
        return tuple(tags)
    known = {tag: part_of(tag, scheme, partial(where, tags.index(tag))) for tag in dict.fromkeys(tags)}
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


def read_pieces(parts: Sequence[Part], scheme: SpanScheme) -> list[Piece]:
    """The entities of tags of the scheme, in whatever order they come: a word of another type begins another one."""
    pieces: list[Piece] = []
    unfinished, before = going_on(scheme), Part("O", "")
    for at, part in enumerate([*parts, Part("O", "")]):
        if part.role in ("I", "E") and before.role in ("B", "I") and before.label == part.label:
            pieces[-1] = pieces[-1]._replace(end=at + 1)
        else:
            if before.role in unfinished:
                pieces[-1] = pieces[-1]._replace(whole=False)  # it has no end of its own
            if part.role != "O":
                pieces.append(Piece(at, at + 1, part.label, part.role in ("B", "S")))
        before = part
    return pieces
