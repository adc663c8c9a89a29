"""Whole runs as functions that return a RunConfig, and how a recipe is found: by name, by preset, in a TOML file, in code.

A recipe takes an encoder and returns the published run with it, as far as one machine goes: objectives, examples, optimizer
and schedule are the published ones; batch, learning rate and number of steps are for small batches (see `parts`), and there
is no dropout. Each says what the published run had.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from unmask import presets, settings
from unmask.config import EncoderConfig, RunConfig
from unmask.errors import UnmaskError
from unmask.presets import Preset
from unmask.recipes.generative import gpt2, t5
from unmask.recipes.load import from_code, from_toml
from unmask.recipes.masked import (
    albert,
    bert,
    bert_chinese,
    camembert,
    deberta,
    demo,
    mlm_only,
    roberta,
    spanbert,
)
from unmask.recipes.modern import ettin_long, modernbert, modernbert_long, neobert
from unmask.recipes.recurrent import elmo
from unmask.recipes.replaced import deberta_v3, electra, electra_large, electra_paper
from unmask.recipes.shrink import shrunk

Recipe = Callable[..., RunConfig]

__all__ = [
    "RECIPES",
    "Recipe",
    "albert",
    "bert",
    "bert_chinese",
    "camembert",
    "deberta",
    "deberta_v3",
    "demo",
    "electra",
    "electra_large",
    "electra_paper",
    "elmo",
    "ettin_long",
    "gpt2",
    "mlm_only",
    "modernbert",
    "modernbert_long",
    "neobert",
    "of_preset",
    "recipe",
    "roberta",
    "shrunk",
    "spanbert",
    "t5",
]

_OF_PRESETS: tuple[tuple[Recipe, tuple[Preset, ...]], ...] = (
    (bert, (presets.bert_tiny, presets.bert_mini, presets.bert_small, presets.bert_medium)),
    (bert, (presets.bert_base, presets.bert_large)),
    (bert_chinese, (presets.bert_base_chinese,)),
    (spanbert, (presets.spanbert_base, presets.spanbert_large)),
    (roberta, (presets.roberta_base, presets.roberta_large)),
    (camembert, (presets.camembert_base,)),
    (albert, (presets.albert_base, presets.albert_large, presets.albert_xlarge, presets.albert_xxlarge)),
    (electra, (presets.electra_small, presets.electra_base)),
    (electra_large, (presets.electra_large,)),
    (deberta, (presets.deberta_base, presets.deberta_large)),
    (deberta, (presets.deberta_v2_xlarge, presets.deberta_v2_xxlarge)),
    (deberta_v3, (presets.deberta_v3_xsmall, presets.deberta_v3_small, presets.deberta_v3_base)),
    (deberta_v3, (presets.deberta_v3_large, presets.mdeberta_v3_base)),
    (modernbert, (presets.modernbert_base, presets.modernbert_large)),
    (modernbert, (presets.ettin_17m, presets.ettin_32m, presets.ettin_68m)),
    (modernbert, (presets.ettin_150m, presets.ettin_400m, presets.ettin_1b)),
    (neobert, (presets.neobert,)),
    (gpt2, (presets.gpt2, presets.gpt2_medium)),
    (t5, (presets.t5_small, presets.t5_base)),
    (elmo, (presets.elmo_mini, presets.elmo_small, presets.elmo_medium, presets.elmo)),
)
_WITHOUT_PRESET: tuple[Recipe, ...] = (mlm_only, electra_paper, modernbert_long, ettin_long, demo)

RECIPES: dict[str, Recipe] = {f.__name__: f for f in (*(f for f, _ in _OF_PRESETS), *_WITHOUT_PRESET)}


def recipe(spec: str = "", preset: str = "") -> RunConfig:
    """The run of a recipe, with the encoder of a preset where one is named.

    `spec` is a name ("bert"), a TOML file ("my.toml"), a Python file ("my.py:function") or a module
    ("package.module:function"). Left out, it is the recipe of the preset's family, or "bert" where there is no preset either.
    """
    encoder = presets.preset(preset)() if preset else None
    if encoder and not spec:
        return _called(of_preset(presets.preset(preset)), encoder)
    if (name := (spec or "bert").replace("-", "_")) in RECIPES:
        return _called(RECIPES[name], encoder)
    run = _own(spec)
    if encoder is None:
        return run
    data = settings.plain(run) | {"encoder": settings.plain(encoder)}
    return settings.parse(RunConfig, data, where=spec)


def of_preset(preset: Preset) -> Recipe:
    """The recipe that the models of a preset's family were trained by."""
    return next(found for found, encoders in _OF_PRESETS if preset in encoders)


def _called(function: Recipe, encoder: EncoderConfig | None) -> RunConfig:
    try:
        return function(encoder=encoder)
    except ValueError as error:  # the encoder can't do what this recipe asks
        do = "choose another recipe, or name the preset alone: it brings its own"
        raise UnmaskError(str(error), where=function.__name__, do=do) from None


def _own(spec: str) -> RunConfig:
    if spec.endswith(".toml"):
        return from_toml(Path(spec))
    if ":" in spec:
        return from_code(*spec.rsplit(":", 1))
    if spec.replace("-", "_") in presets.names():
        raise UnmaskError(f"{spec!r} is a preset, not a recipe", do=f"give it as --preset {spec}; it brings its recipe")
    near = difflib.get_close_matches(spec, RECIPES, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    advice = f"{hint}there are {', '.join(RECIPES)}; or give a FILE.toml or FILE.py:function"
    raise UnmaskError(f"no recipe is called {spec!r}", do=advice)
