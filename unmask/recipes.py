"""Whole runs as functions that return a RunConfig, and how a recipe is found: by name here, in a TOML file, in Python code."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unmask import presets, settings
from unmask.config import (
    AdamW,
    BatchSize,
    EncoderConfig,
    FullSentences,
    Keeping,
    Linear,
    Machine,
    MaskedTokens,
    Minutes,
    Pairs,
    RunConfig,
    SentencePair,
    Steps,
)
from unmask.errors import UnmaskError


def bert(encoder: EncoderConfig | None = None) -> RunConfig:
    """BERT's objectives (Devlin et al. 2019, section 3.1) with a batch for one machine, and the learning rate that goes with it.

    The published run had batches of 128,000 tokens for a million steps, at 1e-4 with 10,000 steps of warm-up.
    """
    return RunConfig(
        encoder=encoder or presets.bert_mini(),
        examples=Pairs(max_length=128),
        objectives=(MaskedTokens(), SentencePair()),
        optimizer=AdamW(learning_rate=5e-4),
        schedule=Linear(warmup=0.05),
        batch=BatchSize(tokens=4096),
        until=Steps(steps=20_000),
    )


def bert_chinese(encoder: EncoderConfig | None = None) -> RunConfig:
    """BERT over Chinese characters with whole-word masking (Cui et al. 2019): words come from the corpus' segmenter."""
    return RunConfig(
        encoder=encoder or presets.bert_mini(21128),
        examples=Pairs(max_length=128),
        objectives=(MaskedTokens(whole_word=True), SentencePair()),
        optimizer=AdamW(learning_rate=5e-4),
        schedule=Linear(warmup=0.05),
        batch=BatchSize(tokens=4096),
        until=Steps(steps=20_000),
    )


def mlm_only(encoder: EncoderConfig | None = None) -> RunConfig:
    """MLM on full sentences, no NSP: what RoBERTa (Liu et al. 2019, section 4) found to be enough."""
    return RunConfig(
        encoder=encoder or presets.bert_mini(),
        examples=FullSentences(max_length=128),
        objectives=(MaskedTokens(),),
        optimizer=AdamW(learning_rate=5e-4, beta2=0.98),
        schedule=Linear(warmup=0.06),
        batch=BatchSize(tokens=4096),
        until=Steps(steps=20_000),
    )


def demo(minutes: float = 5.0) -> RunConfig:
    """What teaches a small BERT most in five minutes on two cores, found by trying: short sequences and small batches, so that
    it takes many steps and soon learns to look at its neighbours; two layers, since wider and deeper ones see too little text.
    """
    return RunConfig(
        encoder=presets.bert_tiny(8192),
        examples=Pairs(max_length=32),
        objectives=(MaskedTokens(frequency_bias=True), SentencePair()),
        optimizer=AdamW(learning_rate=1.2e-3, beta2=0.98),
        schedule=Linear(warmup=0.1),
        batch=BatchSize(tokens=1024),
        until=Minutes(minutes=minutes),
        keeping=Keeping(evaluations=10, evaluation_tokens=32_768, keep_last=1),
        machine=Machine(workers=0),
    )


RECIPES: dict[str, Callable[[], RunConfig]] = {f.__name__: f for f in (bert, bert_chinese, mlm_only, demo)}


def recipe(spec: str) -> RunConfig:
    """A recipe by name ("bert"), TOML file ("my.toml"), Python file ("my.py:function") or module ("package.module:function")."""
    if spec.endswith(".toml"):
        return _from_toml(Path(spec))
    if ":" in spec:
        return _from_code(*spec.rsplit(":", 1))
    if (name := spec.replace("-", "_")) in RECIPES:
        return RECIPES[name]()
    near = difflib.get_close_matches(spec, RECIPES, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    advice = f"{hint}there are {', '.join(RECIPES)}; or give a FILE.toml or FILE.py:function"
    raise UnmaskError(f"no recipe is called {spec!r}", do=advice)


def _from_toml(path: Path) -> RunConfig:
    """`[encoder] preset = "bert_mini"` begins from a preset; the other fields then change it."""
    data = settings.read_toml(path)
    encoder: Any = data.get("encoder")
    if isinstance(encoder, str):
        encoder = {"preset": encoder}
    if isinstance(encoder, dict) and "preset" in encoder:
        name = encoder["preset"]
        rest = {key: value for key, value in encoder.items() if key != "preset"}
        data["encoder"] = settings.plain(presets.preset(str(name))()) | rest
    return settings.parse(RunConfig, data, where=str(path))


def _from_code(place: str, name: str) -> RunConfig:
    """Calls the user's own function; its code is trusted as the user's shell is."""
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            if spec is None or spec.loader is None:
                raise ImportError(f"{place} is not a Python file")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        found = getattr(module, name)()
    except UnmaskError:
        raise
    except Exception as error:  # whatever the user's code raises is theirs to mend
        raise UnmaskError(
            f"the recipe can't be loaded: {type(error).__name__}: {error}",
            where=_place_of(error, place, name),
            do="mend the line named, and write the recipe as FILE.py:function or package.module:function",
        ) from error
    if not isinstance(found, RunConfig):
        raise UnmaskError(f"the recipe returned {type(found).__name__}, not a RunConfig", where=f"{place}:{name}")
    return found


def _place_of(error: Exception, place: str, name: str) -> str:
    """The line of the user's file the error comes from, else the recipe as it was given."""
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == place]
    line = error.lineno if isinstance(error, SyntaxError) else frames[-1] if frames else None
    return f"{place}:{line}" if line else f"{place}:{name}"
