"""The labels of a data set: which there are, in an order that never changes, and whether other data know more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from unmask.config.tasks import Scheme
from unmask.errors import UnmaskError
from unmask.labelled.records import Place, TaggedExample, TextExample
from unmask.labelled.schemes import LETTERS, part_of

Labelled = TextExample | TaggedExample
SHOWN = 20  # unseen labels an error lists; it counts the rest
MANY = 10  # more different numbers than that, some with fractions, are hardly classes


def label_set(examples: Sequence[Labelled]) -> tuple[str, ...]:
    """All labels (of words: tags) that occur, sorted; where all are numbers, by value: 2 before 10.

    UnmaskError where there is nothing to tell apart, and where the labels look like measured numbers.
    """
    found = dict.fromkeys(label for example in examples for label in _labels(example))
    numbers = [_number(label) for label in found]
    if None not in numbers and len(found) > MANY and any((number or 0.0) % 1 for number in numbers):
        what = f"the labels are {len(found)} different numbers, such as {', '.join(sorted(found)[:3])}"
        do = "learn them as numbers (regression), or give the classes names that are not numbers"
        raise UnmaskError(what, where=_files(examples), do=do)
    several = any(isinstance(example, TextExample) and isinstance(example.label, tuple) for example in examples)
    if len(found) < (1 if several else 2):
        what = f"every record has the label {next(iter(found))!r}" if found else "no record has a label"
        raise UnmaskError(
            f"{what}: there is nothing to learn", where=_files(examples), do="add records of another label"
        )
    return tuple(sorted(found) if None in numbers else sorted(found, key=lambda label: (_number(label) or 0.0, label)))


def tag_set(examples: Sequence[TaggedExample], scheme: Scheme) -> tuple[str, ...]:
    """Every tag the scheme has for the types that occur, sorted: I-PER too where training saw no name of two words.

    O too; of tags without types only where it occurs: of text that is cut into words, each character is in one.
    """
    found = label_set(examples)
    if scheme == "plain":
        return found
    types = {part_of(tag, scheme).label for tag in found if tag != "O"}
    letters = [letter for letter in LETTERS[scheme] if letter]
    tags = {f"{letter}-{label}" if label else letter for letter in letters for label in types}
    return tuple(sorted(tags | ({"O"} if any(types) or "O" in found else set())))


def in_order_of(known: Sequence[str], labels: tuple[str, ...]) -> tuple[str, ...]:
    """The labels in the order of `known`, where these are the very same."""
    return tuple(known) if sorted(known) == sorted(labels) else labels


def require_known(examples: Sequence[Labelled], labels: Sequence[str], source: str) -> None:
    """UnmaskError listing, each with its first place, the labels of `source` that are not among `labels`."""
    known, unseen = set(labels), dict[str, Place]()
    for example in examples:
        for label in _labels(example):
            if label not in known:
                unseen.setdefault(label, example.place)
    if not unseen:
        return
    listed = [f"{label!r} ({place})" for label, place in list(unseen.items())[:SHOWN]]
    more = f" and {len(unseen) - SHOWN} more" if len(unseen) > SHOWN else ""
    shown = ", ".join(map(repr, labels[:SHOWN])) + (f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else "")
    what = f"{len(unseen)} label{'s' * (len(unseen) > 1)} unknown: {', '.join(listed)}{more}"
    near = get_close_matches(next(iter(unseen)), labels, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    do = f"{hint}known are {shown}; train with the others too, or leave these records out"
    raise UnmaskError(what, where=source, do=do)


def _labels(example: Labelled) -> Iterator[str]:
    """Every label of one example; none where it is asked."""
    found = example.tags if isinstance(example, TaggedExample) else example.label
    assert not isinstance(found, float), "numbers have no names"
    yield from (found,) if isinstance(found, str) else found or ()


def _number(label: str) -> float | None:
    try:
        number = float(label)
    except ValueError:
        return None
    return number if number == number and "_" not in label else None


def _files(examples: Sequence[Labelled]) -> str:
    return ", ".join(dict.fromkeys(example.place.file for example in examples)) or "no examples"
