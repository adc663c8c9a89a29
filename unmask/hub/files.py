"""Model folders: written so that transformers loads them as they are, read from any family that we have.

A folder holds config.json, model.safetensors, the tokenizer's files, unmask.json (where the model comes from), README.md
and manifest.json (size and SHA-256 of each file). What the class named in config.json has no place for lies beside it:
heads.safetensors under our own names, and the generator that trained the model as a folder of its own, generator/.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from unmask.config import EncoderConfig
from unmask.config.tasks import HeadShape
from unmask.errors import DamagedError, UnmaskError
from unmask.files import MANIFEST, file_sha256, read_manifest, write_folder
from unmask.hub import configs, names
from unmask.hub.family import TASK_CLASSES, Family
from unmask.hub.folder_heads import (
    BESIDE,
    HEADS,
    about_others,
    asked,
    bare_heads,
    beginnings,
    read_task_settings,
    task_settings,
    with_other_heads,
)
from unmask.hub.match import match_tensors
from unmask.hub.task_heads import SHAPES, ProblemType, TaskSettings, head_kind, head_shape, shape_beside
from unmask.hub.tensors import WEIGHTS, files_of, find_tensors, read_tensors
from unmask.hub.weights import State, Weights, gather
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint
from unmask.text.tokenizer import Tokenizer
from unmask.text.tokenizer_files import has_tokenizer

ORIGIN, GENERATOR = "unmask.json", "generator"
FORMAT = {"format": "unmask-model", "version": 1}


@dataclass(frozen=True)
class LoadedModel:
    """What a folder held, under our names, in fp32 on the CPU.

    `heads` has the tensors of each head that is whole by the kind of its objective, or "pooler" (a PairHead's first layer)
    where that is all there is; the head of a class for a task under "classify", "tag" or "answer". `missing` and
    `unexpected` are names of the other side: parts of the pre-training model that the folder lacks, and what it holds
    besides. `beginnings` are, for a task that it has no head of, tensors that a new one starts from in transformers.
    """

    config: EncoderConfig
    encoder: State
    heads: dict[str, State]
    missing: list[str]
    unexpected: list[str]
    tokenizer_folder: Path | None
    generator_folder: Path | None
    about: dict[str, Any]  # unmask.json; empty for a folder of others
    model_type: str
    settings: dict[str, Any]  # config.json
    folder: Path
    task: TaskSettings = TaskSettings()  # what the outputs of its task's head are
    beginnings: dict[str, State] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """Of a task's outputs, in order; LABEL_0 … where the folder names none, () where it has no such head."""
        return self.task.labels

    @property
    def problem_type(self) -> ProblemType | None:
        """What the outputs for a sequence are, where the folder says so."""
        return self.task.problem_type

    def head_shape(self, kind: str) -> HeadShape:
        """What a task's head looks like in this folder, or a new one should: that of the family's class, with what
        config.json says of it. UnmaskError for settings we can't compute with. `kind` is an objective's ("regress")."""
        beside = shape_beside(self.about, head_kind(kind), str(self.folder / ORIGIN))
        return beside or head_shape(self.model_type, kind, self.settings, str(self.folder / "config.json"))

    def weights(self) -> Weights:
        """The same as `save_weights` takes it, with its generator; a generator has none of its own."""
        shapes = {kind: self.head_shape(kind) for kind in self.heads if kind in TASK_CLASSES}
        own = Weights(self.config, self.encoder, self.heads, None, self.model_type, self.task, shapes)
        if self.generator_folder is None:
            return own
        g = load_model(self.generator_folder)
        return replace(own, generator=Weights(g.config, g.encoder, g.heads, None, g.model_type))


def save_model(
    folder: Path,
    encoder: Encoder,
    objective: Joint | None,
    *,
    tokenizer_folder: Path | None,
    about: Mapping[str, Any],
    card: str | None = None,
    replace: bool = True,
    task: TaskSettings = TaskSettings(),
    model_type: str = "",
) -> None:
    """Writes a model folder, whole or not at all; configuration and heads decide which class it is.

    `task` says what the outputs of a task's head are. `model_type` is the family the model came from, kept where it can say
    it. Raises UnmaskError for a tensor that is not finite or labels that are not those of the head, and the errors of
    `write_folder`.
    """
    weights = dataclasses.replace(gather(encoder, objective), task=task, model_type=model_type)
    save_weights(folder, weights, tokenizer_folder=tokenizer_folder, about=about, card=card, replace=replace)


def save_weights(
    folder: Path,
    weights: Weights,
    *,
    tokenizer_folder: Path | None,
    about: Mapping[str, Any],
    card: str | None = None,
    replace: bool = True,
    beside: Callable[[Path], None] = lambda folder: None,
) -> None:
    """`save_model` for tensors under our names, as `gather` and `LoadedModel.weights` give them; `beside` adds files."""
    with write_folder(folder, replace=replace, about=FORMAT) as temporary:
        family = _write_model(temporary, weights, tokenizer_folder, about)
        if weights.generator is not None:
            inner = temporary / GENERATOR
            inner.mkdir()
            _write_model(inner, weights.generator, tokenizer_folder, {"generator of": ".."}, prefer=family.model_type)
        if card is not None:
            (temporary / "README.md").write_text(card, encoding="utf-8")
        beside(temporary)


def load_model(folder: Path) -> LoadedModel:
    """Reads a model folder: with or without heads, one file or several, half precision or old spellings.

    Raises UnmaskError naming what does not fit (family, settings, shapes, missing tensors, only pickled weights),
    DamagedError for a file that is broken or differs from the folder's own manifest. No file of the folder is ever run.
    """
    if not folder.is_dir():
        raise UnmaskError("there is no such folder", where=str(folder), do="check the path of the model")
    settings = configs.read_json(folder / "config.json")
    family, config = configs.read_config(settings, where=str(folder / "config.json"))
    stored = find_tensors(folder, settings.get("architectures"))
    found = match_tensors(stored, asked(stored, settings, family, config, folder))
    about = configs.read_json(folder / ORIGIN) if (folder / ORIGIN).exists() else {}
    _check_manifest(folder, about, files_of(stored))
    theirs = read_tensors(found.tensors)
    heads = {kind: names.to_ours(rows, theirs, config) for kind, rows in found.heads.items()}
    heads = bare_heads(about, config) | with_other_heads(heads, folder) if about else heads
    generator = folder / GENERATOR
    return LoadedModel(
        config,
        names.to_ours(family.encoder(config), theirs, config),
        heads,
        found.missing,
        found.unexpected,
        folder if has_tokenizer(folder) else None,
        generator if (generator / "config.json").is_file() else None,
        about,
        family.model_type,
        settings,
        folder,
        read_task_settings(settings, heads, folder),
        beginnings(family, theirs, config),
    )


def build_encoder(loaded: LoadedModel) -> Encoder:
    """An encoder of its own with the folder's weights, ready to answer (dropout off)."""
    with torch.device("meta"):
        encoder = Encoder(loaded.config)
    encoder.to_empty(device="cpu").load_state_dict(loaded.encoder)
    return encoder.eval()


def _write_model(
    folder: Path, weights: Weights, tokenizer_folder: Path | None, about: Mapping[str, Any], prefer: str = ""
) -> Family:
    """config.json, tensors, unmask.json and tokenizer, in a folder that is there; returns the family it is of."""
    config, layers = weights.config, weights.decoder_layers
    heads = {kind: list(state) for kind, state in weights.heads.items()}
    family = configs.choose_family(config, heads, layers, prefer or weights.model_type, weights.shapes)
    kinds = family.kinds(heads, config, layers, weights.shapes)
    architecture = family.classes[kinds]
    tensors = names.to_theirs(family.encoder(config), weights.encoder, config)
    inside: set[tuple[str, str]] = set()
    for kind in kinds:
        rows = [row for row in family.rows(kind, config, layers) if row.ours in weights.heads[kind]]
        tensors |= names.to_theirs(rows, weights.heads[kind], config)
        inside |= {(kind, row.ours) for row in rows}
    for second, first in family.tied.items():
        if second in tensors and first not in tensors:  # an output bias that is not tied stands under both of its names
            tensors[first] = tensors[second].clone()
    others = {
        f"{kind}.{name}": tensor
        for kind, state in weights.heads.items()
        for name, tensor in state.items()
        if (kind, name) not in inside
    }
    _write_tensors({family.full(name, architecture): t for name, t in tensors.items()}, folder / WEIGHTS)
    if others:
        _write_tensors(others, folder / HEADS)
    settings = {**_general(architecture, family), **family.write(config), **_token_ids(family, tokenizer_folder)}
    settings |= task_settings(weights, family, kinds)
    if layers and family.decoder_block:  # elsewhere the decoder lies beside, and its tensors tell
        settings["num_decoder_layers"] = layers
    _write_json(folder / "config.json", settings)
    told = {name: value for name, value in about.items() if name not in (BESIDE, SHAPES)}
    _write_json(
        folder / ORIGIN, {**FORMAT, **told, "heads": sorted(heads), **about_others(others, weights.shapes, kinds)}
    )
    if tokenizer_folder is not None:
        _write_tokenizer(tokenizer_folder, folder, config)
    return family


def _write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """In fp32. A tied output matrix is stored once, as the embedding."""
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise UnmaskError(
                f"{name} holds NaN or infinity, so the model is not written",
                do="go back to an earlier checkpoint of the run",
            )
    save_file(
        {name: t.detach().cpu().float().contiguous() for name, t in tensors.items()}, path, metadata={"format": "pt"}
    )


def _general(architecture: str, family: Family) -> dict[str, Any]:
    return {"architectures": [architecture], "model_type": family.model_type, "dtype": "float32"}


def _token_ids(family: Family, tokenizer_folder: Path | None) -> dict[str, Any]:
    """The special tokens that a configuration of this family names; null where there is no tokenizer to know them."""
    if tokenizer_folder is None or not family.token_ids:
        return dict.fromkeys(family.token_ids)
    vocabulary = Tokenizer.load(tokenizer_folder).vocabulary()
    return {field: getattr(vocabulary, f"{role}_token_id") for field, role in family.token_ids.items()}


def _write_tokenizer(source: Path, target: Path, config: EncoderConfig) -> None:
    """The tokenizer, with its length limit set to what the position table holds."""
    tokenizer = Tokenizer.load(source)
    if tokenizer.vocab_size > config.vocab_size:
        raise UnmaskError(
            f"the tokenizer has {tokenizer.vocab_size:,} ids, but the model only {config.vocab_size:,} rows",
            where=str(source),
            do="use the tokenizer the model was trained with, or grow the model's vocabulary first",
        )
    tokenizer.save(target)
    settings = configs.read_json(target / "tokenizer_config.json")
    limit = settings.get("model_max_length")
    if not isinstance(limit, int) or not 0 < limit <= config.max_position_embeddings:
        _write_json(target / "tokenizer_config.json", {**settings, "model_max_length": config.max_position_embeddings})


def _check_manifest(folder: Path, about: Mapping[str, Any], weights: list[Path]) -> None:
    """Compares what was read with the manifest of a folder of ours: one flipped bit loads silently otherwise."""
    top = (
        folder if (folder / MANIFEST).exists() else folder.parent
    )  # a generator's files are in the whole folder's manifest
    if not about or not (top / MANIFEST).exists():
        return
    entries = read_manifest(top)["files"]
    others = [folder / name for name in ("config.json", HEADS, "tokenizer.json", "vocab.txt")]
    for path in [*weights, *(path for path in others if path.is_file())]:
        entry = entries.get(str(path.relative_to(top)))
        if entry is None or entry["sha256"] != file_sha256(path):
            raise DamagedError(
                f"{path.name} is not the file that was written: its SHA-256 differs from {MANIFEST}",
                where=str(folder),
                do=f"use another copy of the folder; if you changed the file on purpose, delete {MANIFEST}",
            )


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
