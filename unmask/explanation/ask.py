"""From names to the settings of a run: which network, which objective, which tokenizer."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unmask import presets, recipes, settings
from unmask.config import (
    BatchSize,
    Blocks,
    Documents,
    EncoderConfig,
    Examples,
    Infill,
    MaskedTokens,
    NextTokens,
    Objectives,
    Pairs,
    Recurrent,
    ReplacedTokens,
    RunConfig,
    SentenceOrder,
    SentencePair,
    SpanBoundary,
)
from unmask.errors import UnmaskError
from unmask.explanation.pieces import learn, manner_of
from unmask.hub.files import LoadedModel, load_model
from unmask.presets import Preset
from unmask.text.tokenizer import Tokenizer

MOST_TOKENS = 512  # of a sequence

_USUAL: dict[str, Preset] = {
    "mlm": presets.bert_base,
    "wwm": presets.bert_base,
    "ngram": presets.albert_base,
    "span": presets.spanbert_base,
    "nsp": presets.bert_base,
    "sop": presets.albert_base,
    "rtd": presets.electra_small,
    "causal": presets.gpt2,
    "infill": presets.t5_small,
}
OBJECTIVES = tuple(_USUAL)


@dataclass(frozen=True)
class Asked:
    """What is explained.

    `run` has the network as published, `small` one with the same traits for the numbers; with a model folder both are its
    own. `learned` says that the tokenizer comes from the text.
    """

    objective: str
    network: str
    run: RunConfig
    small: RunConfig
    tokenizer: Tokenizer
    learned: bool
    where: str  # the tokenizer is from

    @property
    def trained(self) -> bool:
        return bool(self.run.start_from)


def ask(
    texts: Sequence[str],
    objective: str | None,
    preset: str | None,
    model: Path | None,
    tokenizer: Path | None,
    seed: int,
) -> Asked:
    """Settings for these names, each None where it was not given; UnmaskError for unknown or contradicting ones."""
    if objective is not None and objective not in OBJECTIVES:
        near = difflib.get_close_matches(objective, OBJECTIVES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UnmaskError(f"no objective is called {objective!r}", do=f"{hint}there are {', '.join(OBJECTIVES)}")
    if model is not None:
        if preset is not None:
            raise UnmaskError("a preset and a model were both given", do="leave out one: a model folder is a network")
        return _of_model(model, objective, tokenizer, seed)
    return _of_preset(texts, objective, preset, tokenizer, seed)


def _of_preset(texts: Sequence[str], objective: str | None, name: str | None, folder: Path | None, seed: int) -> Asked:
    published = presets.preset(name) if name else _USUAL[objective or "mlm"]
    base = recipes.recipe(preset=published.__name__)
    own = published()
    _require_attention(own, published.__name__)
    objective = objective or (_name_of(base.objectives) if name else "mlm")
    if folder is not None:
        tokenizer = Tokenizer.load(folder)
        own = _fitted(own, tokenizer)
    else:
        tokenizer = learn(texts, "t5" if objective == "infill" else manner_of(published))
    run = _checked(lambda: _run(base, own, objective, seed), objective, published.__name__)
    small = recipes.shrunk(run, length=run.examples.max_length)
    small = replace(small, encoder=_fitted(small.encoder, tokenizer))
    return Asked(objective, published.__name__, run, small, tokenizer, folder is None, str(folder or "this text"))


def _of_model(model: Path, objective: str | None, folder: Path | None, seed: int) -> Asked:
    loaded = load_model(model)
    _require_attention(loaded.config, str(model))
    folder = folder or loaded.tokenizer_folder
    if folder is None:
        raise UnmaskError("the folder has no tokenizer", where=str(model), do="give one with --tokenizer FOLDER")
    tokenizer = Tokenizer.load(folder)
    if tokenizer.vocab_size > loaded.config.vocab_size:
        raise UnmaskError(
            f"the tokenizer has {tokenizer.vocab_size:,} ids, but the model only {loaded.config.vocab_size:,} rows",
            where=str(folder),
            do="give the tokenizer the model was trained with",
        )
    goals = _goals_of(loaded)
    objective = objective or _name_of(goals)
    base = RunConfig(start_from=str(model))
    run = _checked(lambda: _run(base, loaded.config, objective, seed, goals), objective, str(model))
    return Asked(objective, str(model), run, run, tokenizer, False, str(folder))


def _require_attention(encoder: EncoderConfig, where: str) -> None:
    """An ELMo's words come to light only while it reads, so its shapes can't be shown before."""
    if isinstance(encoder.layer, Recurrent):
        raise UnmaskError(
            "only networks of attention can be explained, not recurrent ones", where=where, do="choose another"
        )


def _run(
    base: RunConfig, encoder: EncoderConfig, objective: str, seed: int, goals: Sequence[Objectives] | None = None
) -> RunConfig:
    length = min(MOST_TOKENS, encoder.max_position_embeddings)
    return replace(
        base,
        encoder=replace(encoder, causal=objective == "causal"),
        objectives=_goals(objective, base.objectives if goals is None else goals),
        examples=_examples(objective, length),
        batch=BatchSize(tokens=1 << 30),  # one batch holds it all
        seed=seed,
        phases=(),
    )


def _examples(objective: str, length: int) -> Examples:
    match objective:
        case "nsp":
            return Pairs(max_length=length)
        case "sop":
            return Pairs(max_length=length, negatives="swapped")
        case "causal":
            return Blocks(max_length=length, frame=False)
        case "infill":
            return Blocks(max_length=length)
    return Documents(max_length=length)


def _goals(objective: str, given: Sequence[Objectives]) -> tuple[Objectives, ...]:
    """As the network's own recipe has them, where it has such a goal; NSP, SOP and SBO go together with their MLM."""
    masked = next((goal for goal in given if isinstance(goal, MaskedTokens)), MaskedTokens())
    match objective:
        case "mlm":
            return (replace(masked, unit="token"),)
        case "wwm":
            return (replace(masked, unit="word"),)
        case "ngram":
            return (replace(masked, unit="ngram"),)
        case "span":
            boundary = next((goal for goal in given if isinstance(goal, SpanBoundary)), SpanBoundary())
            return replace(masked, unit="span"), boundary
        case "nsp":
            return replace(masked, unit="token"), SentencePair()
        case "sop":
            return replace(masked, unit="ngram"), SentenceOrder()
        case "rtd":
            return (next((goal for goal in given if isinstance(goal, ReplacedTokens)), ReplacedTokens()),)
        case "causal":
            return (NextTokens(),)
    return (next((goal for goal in given if isinstance(goal, Infill)), Infill()),)


def _name_of(goals: Sequence[Objectives]) -> str:
    """The objective that the first of these goals is called here."""
    match goals[0]:
        case MaskedTokens(unit=unit):
            return {"token": "mlm", "word": "wwm"}.get(unit, unit)
        case goal:
            return goal.kind


def _goals_of(loaded: LoadedModel) -> tuple[Objectives, ...]:
    """What a model was trained by: from its own run where it tells, else from its heads."""
    if "run" in loaded.about:
        return settings.parse(RunConfig, loaded.about["run"], where="unmask.json").objectives
    if "rtd" in loaded.heads:
        return (ReplacedTokens(add_first="norm.weight" in loaded.heads["rtd"]),)
    for kind, goal in (("causal", NextTokens()), ("infill", Infill())):
        if kind in loaded.heads:
            return (goal,)
    return (MaskedTokens(enhanced_decoder="positions.weight" in loaded.heads.get("mlm", {})),)


def _fitted(encoder: EncoderConfig, tokenizer: Tokenizer) -> EncoderConfig:
    """With the tokenizer's vocabulary, as a run has its corpus'."""
    return replace(encoder, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_token_id or 0)


def _checked(make: Callable[[], RunConfig], objective: str, network: str) -> RunConfig:
    try:
        return make()
    except ValueError as error:  # what a network can't be trained to do
        do = "choose another --objective, or leave out --preset: each objective has a network of its own"
        raise UnmaskError(str(error), where=f"{objective} with {network}", do=do) from None
