"""A draw of few training records per label: what a model makes of them tells whether it is worth labelling more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from unmask.labelled.records import Read, TextExample
from unmask.randomness import generator

DRAW = 4  # what a generator is for: keeps this use of the seed apart from the order of batches
SHOWN = 20  # labels that a sentence lists
NONE = ""  # stands for "no label at all" where records may have several: a class of its own


def few(read: Read[Any], per_label: int, seed: int) -> Read[Any]:
    """The records with about `per_label` of each label, in the file's order; all of a label that has fewer. 0: all records.

    A record with several labels counts for each of them. The rarest label is served first, so that the others, which come
    along with it, are drawn less often on their own; a label may still be in more records than asked for, never in fewer.
    """
    if not per_label:
        return read
    kept = draw(read.examples, per_label, seed)
    total = Counter(label for example in read.examples for label in labels_of(example))
    said = f"{len(kept):,} of {len(read.examples):,} records kept, {per_label:,} per label"
    rare = [f"{name or 'no label'} ({count:,})" for name, count in sorted(total.items()) if count < per_label]
    more = f" and {len(rare) - SHOWN} more" if len(rare) > SHOWN else ""
    doubts = (f"labels with fewer than {per_label:,} records: {', '.join(rare[:SHOWN])}{more}",) if rare else ()
    examples = [read.examples[at] for at in kept]
    return replace(read, examples=examples, understood=(*read.understood, said), warnings=(*read.warnings, *doubts))


def draw(examples: Sequence[TextExample], per_label: int, seed: int) -> list[int]:
    """The numbers of the records that `few` keeps, ascending."""
    having: dict[str, list[int]] = {}
    for at in generator(seed, DRAW).permutation(len(examples)).tolist():
        for label in labels_of(examples[at]):
            having.setdefault(label, []).append(at)
    kept: set[int] = set()
    for label in sorted(having, key=lambda name: (len(having[name]), name)):
        lacking = per_label - sum(at in kept for at in having[label])
        kept.update([at for at in having[label] if at not in kept][: max(0, lacking)])
    return sorted(kept)


def labels_of(example: TextExample) -> tuple[str, ...]:
    """The different labels of a record."""
    label = example.label
    assert isinstance(label, str | tuple), "FineTuning refuses per_label for tasks without labels"
    return (label,) if isinstance(label, str) else tuple(dict.fromkeys(label)) or (NONE,)
