"""Model folders of others, made by hand: any tensors under any names, whole or broken."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from small_models import SMALL, our_model
from torch import Tensor

from unmask.hub import names
from unmask.hub.families.bert import BERT

CONFIG = {"architectures": ["BertForPreTraining"], "model_type": "bert", "dtype": "float32", **BERT.write(SMALL)}


def tensors(heads: tuple[str, ...] = ("mlm", "nsp")) -> dict[str, Tensor]:
    """The small random model under the names of BertForPreTraining, the tied output matrix left out."""
    encoder, objective = our_model()
    out = names.to_theirs(BERT.encoder(SMALL), encoder.state_dict(), SMALL)
    for kind in heads:
        out |= names.to_theirs(BERT.heads[kind](SMALL, 0), objective.parts[kind].head.state_dict(), SMALL)
    return {BERT.full(name, CONFIG["architectures"][0]): tensor for name, tensor in out.items()}


def write(folder: Path, state: Mapping[str, Tensor] | None, config: Mapping[str, Any] = CONFIG) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if state is not None:
        save_file(dict(state), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def shard(folder: Path, state: Mapping[str, Tensor], count: int = 3, config: Mapping[str, Any] = CONFIG) -> Path:
    """The same in several files with an index."""
    write(folder, None, config)
    places = {}
    for number in range(count):
        part = dict(list(state.items())[number::count])
        file = f"model-{number + 1:05}-of-{count:05}.safetensors"
        save_file(part, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder
