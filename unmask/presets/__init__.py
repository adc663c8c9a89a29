"""Published encoders as functions that return a configuration. A variant is `dataclasses.replace(bert_base(), …)`.

Every function takes the size of the vocabulary and has the published one as its default. One file a family; a preset is a
public function in one of them, and its name there is its name on the command line.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from types import ModuleType

from unmask.config import EncoderConfig
from unmask.errors import UnmaskError
from unmask.presets import albert, bert, deberta, electra, gpt, modernbert, recurrent, roberta, t5
from unmask.presets.albert import albert_base, albert_large, albert_xlarge, albert_xxlarge
from unmask.presets.bert import (
    bert_base,
    bert_base_chinese,
    bert_large,
    bert_medium,
    bert_mini,
    bert_small,
    bert_tiny,
    spanbert_base,
    spanbert_large,
)
from unmask.presets.deberta import (
    deberta_base,
    deberta_large,
    deberta_v2_xlarge,
    deberta_v2_xxlarge,
    deberta_v3_base,
    deberta_v3_large,
    deberta_v3_small,
    deberta_v3_xsmall,
    mdeberta_v3_base,
)
from unmask.presets.electra import electra_base, electra_large, electra_small
from unmask.presets.gpt import gpt2, gpt2_medium
from unmask.presets.modernbert import (
    ettin_1b,
    ettin_17m,
    ettin_32m,
    ettin_68m,
    ettin_150m,
    ettin_400m,
    modernbert_base,
    modernbert_large,
    neobert,
)
from unmask.presets.recurrent import elmo, elmo_medium, elmo_mini, elmo_small
from unmask.presets.roberta import camembert_base, roberta_base, roberta_large
from unmask.presets.t5 import t5_base, t5_small

Preset = Callable[..., EncoderConfig]

__all__ = [
    "Preset",
    "albert_base",
    "albert_large",
    "albert_xlarge",
    "albert_xxlarge",
    "bert_base",
    "bert_base_chinese",
    "bert_large",
    "bert_medium",
    "bert_mini",
    "bert_small",
    "bert_tiny",
    "camembert_base",
    "deberta_base",
    "deberta_large",
    "deberta_v2_xlarge",
    "deberta_v2_xxlarge",
    "deberta_v3_base",
    "deberta_v3_large",
    "deberta_v3_small",
    "deberta_v3_xsmall",
    "electra_base",
    "electra_large",
    "electra_small",
    "elmo",
    "elmo_medium",
    "elmo_mini",
    "elmo_small",
    "ettin_150m",
    "ettin_17m",
    "ettin_1b",
    "ettin_32m",
    "ettin_400m",
    "ettin_68m",
    "families",
    "gpt2",
    "gpt2_medium",
    "mdeberta_v3_base",
    "modernbert_base",
    "modernbert_large",
    "names",
    "neobert",
    "preset",
    "roberta_base",
    "roberta_large",
    "spanbert_base",
    "spanbert_large",
    "t5_base",
    "t5_small",
]

_FILES = (bert, roberta, albert, electra, deberta, modernbert, gpt, t5, recurrent)


def families() -> list[list[str]]:
    """The presets by name, those of one file together, in the order of the file."""
    return [list(_presets_of(file)) for file in _FILES]


def names() -> list[str]:
    """The presets by name."""
    return [name for family in families() for name in family]


def preset(name: str) -> Preset:
    """The preset function called `name`; dashes count as underscores."""
    found = {name: function for file in _FILES for name, function in _presets_of(file).items()}
    if (name := name.replace("-", "_")) in found:
        return found[name]
    near = difflib.get_close_matches(name, found, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    there = "; ".join(", ".join(family) for family in families())
    raise UnmaskError(f"no preset is called {name!r}", do=f"{hint}there are: {there}")


def _presets_of(file: ModuleType) -> dict[str, Preset]:
    """The public functions written in this file."""
    return {
        name: value
        for name, value in vars(file).items()
        if inspect.isfunction(value) and value.__module__ == file.__name__ and not name.startswith("_")
    }
