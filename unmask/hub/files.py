"""Model folders: written so that transformers loads them as they are, read from anything of the BERT family.

A folder holds config.json, model.safetensors, the tokenizer's files, unmask.json (where the model comes from), README.md
and manifest.json (size and SHA-256 of each file).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from unmask.config import EncoderConfig
from unmask.errors import DamagedError, UnmaskError
from unmask.files import MANIFEST, file_sha256, read_manifest, write_folder
from unmask.hub import configs, names
from unmask.hub.match import match_tensors
from unmask.hub.tensors import WEIGHTS, files_of, find_tensors, read_tensors
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint
from unmask.text.tokenizer import Tokenizer

ORIGIN = "unmask.json"
# The settings that decide what an encoder computes; two that differ in one of them can't share weights.
DECISIVE = (*configs.LIMITS, "hidden_act", "layer_norm_eps")

State = dict[str, Tensor]


@dataclass(frozen=True)
class LoadedModel:
    """What a folder held, under our names, in fp32 on the CPU.

    `heads` has "mlm" (a TokenHead's tensors) and "nsp" (a PairHead's) when they are whole, or "pooler" (a PairHead's
    first layer) when the folder has that alone. `missing` and `unexpected` are Hugging Face names: parts of the
    pre-training model that the folder lacks, and what it holds besides.
    """

    config: EncoderConfig
    encoder: State
    heads: dict[str, State]
    missing: list[str]
    unexpected: list[str]
    tokenizer_folder: Path | None
    about: dict[str, Any]  # unmask.json; empty for a folder of others


def save_model(
    folder: Path,
    encoder: Encoder,
    objective: Joint | None,
    *,
    tokenizer_folder: Path | None,
    about: Mapping[str, Any],
    card: str | None = None,
    replace: bool = True,
) -> None:
    """Writes a model folder, whole or not at all; the heads of `objective` decide which BERT class it is.

    Without heads it is a `BertModel` that has no pooler, since none was trained. Raises UnmaskError for a tensor that is
    not finite, and the errors of `write_folder`.
    """
    parts = {} if objective is None else dict(objective.parts.items())
    heads = {kind: dict(part.get_submodule("head").state_dict()) for kind, part in parts.items()}
    save_weights(
        folder,
        encoder.config,
        dict(encoder.state_dict()),
        heads,
        tokenizer_folder=tokenizer_folder,
        about=about,
        card=card,
        replace=replace,
    )


def save_weights(
    folder: Path,
    config: EncoderConfig,
    encoder: State,
    heads: Mapping[str, State],
    *,
    tokenizer_folder: Path | None,
    about: Mapping[str, Any],
    card: str | None = None,
    replace: bool = True,
) -> None:
    """`save_model` for tensors under our names, as `load_model` gives them."""
    architecture = _architecture(heads)
    tensors = _exported(config, encoder, heads, prefix="" if architecture == "BertModel" else "bert.")
    with write_folder(folder, replace=replace, about={"format": "unmask-model", "version": 1}) as temporary:
        _write_json(temporary / "config.json", configs.to_hf(config, architecture))
        _write_json(temporary / ORIGIN, {"format": "unmask-model", "version": 1, **about})
        save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt"})
        if tokenizer_folder is not None:
            _write_tokenizer(tokenizer_folder, temporary, config)
        if card is not None:
            (temporary / "README.md").write_text(card, encoding="utf-8")


def load_model(folder: Path) -> LoadedModel:
    """Reads a BERT-family folder: with or without heads, one file or several, half precision or old spellings.

    Raises UnmaskError naming what does not fit (family, shapes, missing tensors, only pickled weights), DamagedError
    for a file that is broken or differs from the folder's own manifest. No file of the folder is ever run.
    """
    if not folder.is_dir():
        raise UnmaskError("there is no such folder", where=str(folder), do="check the path of the model")
    settings = configs.read_json(folder / "config.json")
    config = configs.from_hf(settings, where=str(folder / "config.json"))
    stored = find_tensors(folder, settings.get("architectures"))
    found = match_tensors(stored, config, folder, tied=settings.get("tie_word_embeddings") is not False)
    about = configs.read_json(folder / ORIGIN) if (folder / ORIGIN).exists() else {}
    if about and (folder / MANIFEST).exists():
        tokenizer_files = [folder / name for name in ("tokenizer.json", "vocab.txt") if (folder / name).is_file()]
        _check_hashes(folder, [folder / "config.json", *files_of(stored), *tokenizer_files])
    theirs = read_tensors(found.tensors)
    heads = {kind: names.from_hf(found.tables[kind], theirs, 0) for kind in found.tables}
    encoder = names.from_hf(names.ENCODER, theirs, config.num_hidden_layers)
    has_tokenizer = any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt"))
    tokenizer = folder if has_tokenizer else None
    return LoadedModel(config, encoder, heads, found.missing, found.unexpected, tokenizer, about)


def build_encoder(loaded: LoadedModel) -> Encoder:
    """An encoder of its own with the folder's weights, ready to answer (dropout off)."""
    with torch.device("meta"):
        encoder = Encoder(loaded.config)
    encoder.to_empty(device="cpu").load_state_dict(loaded.encoder)
    return encoder.eval()


def restore_into(encoder: Encoder, objective: Joint | None, loaded: LoadedModel) -> list[str]:
    """Copies the folder's weights into a model that exists; returns the parameters of heads it had nothing for.

    Those keep the values they had ("mlm.dense.weight", …). Raises UnmaskError when the two encoders differ.
    """
    for name in DECISIVE:
        here, there = getattr(encoder.config, name), getattr(loaded.config, name)
        if here != there:
            raise UnmaskError(
                f"{name} is {here} in this run, but {there} in the model to go on from",
                do=f"set encoder.{name}={there}",
            )
    encoder.load_state_dict(loaded.encoder)
    new = []
    for kind, part in {} if objective is None else dict(objective.parts.items()).items():
        head = part.get_submodule("head")
        state = loaded.heads.get(kind) or (loaded.heads.get("pooler", {}) if kind == "nsp" else {})
        absent = head.load_state_dict(state, strict=False).missing_keys
        new += [f"{kind}.{name}" for name in absent]
    return new


def _architecture(heads: Mapping[str, State]) -> str:
    match ("mlm" in heads, "nsp" in heads):
        case (True, True):
            return "BertForPreTraining"
        case (True, False):
            return "BertForMaskedLM"
        case (False, True):
            return "BertForNextSentencePrediction"
        case _:
            return "BertModel"


def _exported(config: EncoderConfig, encoder: State, heads: Mapping[str, State], prefix: str) -> State:
    """Every tensor under its Hugging Face name, fp32, checked. The tied output matrix is stored once, as the embedding."""
    tensors = names.to_hf(names.ENCODER, encoder, config.num_hidden_layers)
    for kind, state in heads.items():
        tensors |= names.to_hf(names.TABLES[kind], state, 0)
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise UnmaskError(
                f"{name} holds NaN or infinity, so the model is not written",
                do="go back to an earlier checkpoint of the run",
            )
    return {name if name.startswith("cls.") else prefix + name: t.cpu().float() for name, t in tensors.items()}


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


def _check_hashes(folder: Path, files: list[Path]) -> None:
    """Compares the files that were read with the manifest of a folder of ours: one flipped bit loads silently otherwise."""
    entries = read_manifest(folder)["files"]
    for path in files:
        entry = entries.get(path.name)
        if entry is None or entry["sha256"] != file_sha256(path):
            raise DamagedError(
                f"{path.name} is not the file that was written: its SHA-256 differs from {MANIFEST}",
                where=str(folder),
                do=f"use another copy of the folder; if you changed the file on purpose, delete {MANIFEST}",
            )


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
