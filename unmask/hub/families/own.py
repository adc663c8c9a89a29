"""What no class of transformers can express: every setting and every tensor under our own names."""

from __future__ import annotations

from typing import Any

import torch

from unmask import settings
from unmask.config import EncoderConfig, Recurrent
from unmask.hub.family import Family
from unmask.hub.fields import LIMITS, Fields, refusal
from unmask.hub.names import Row
from unmask.nn.encoder import Encoder

LONGEST = dict.fromkeys(("num_buckets", "max_distance", "position_buckets", "max_relative_positions"), 1 << 20)
LONGEST |= {"cell_size": 1 << 18, "character_size": 1 << 16, "max_characters": 1 << 16, "highway_layers": 1 << 8}
FILTERS = 1 << 18  # of all widths, each times its width


def _read(f: Fields) -> EncoderConfig:
    data = f.value("encoder", {})
    if not isinstance(data, dict):
        raise refusal("encoder must be a table of settings", f.where)
    inner = (data.get("positions"), data.get("layer"))
    for part in (data, *(part for part in inner if isinstance(part, dict))):
        for name, limit in (LIMITS | LONGEST).items():  # before anything of that size is made
            if isinstance(part.get(name), int) and part[name] > limit:
                raise refusal(f"{name} is more than {limit:,}", f.where)
    config = settings.parse(EncoderConfig, data, where=f.where)
    if isinstance(config.layer, Recurrent) and sum(width * count for width, count in config.layer.filters) > FILTERS:
        raise refusal(f"the filters are more than {FILTERS:,} numbers wide together", f.where)
    return config


def _write(config: EncoderConfig) -> dict[str, Any]:
    return {"encoder": settings.plain(config)}


def _encoder(config: EncoderConfig) -> tuple[Row, ...]:
    with torch.device("meta"):
        built = Encoder(config)
    return tuple(Row(name, (name,), tuple(tensor.shape)) for name, tensor in built.state_dict().items())


OWN = Family(
    model_type="unmask",
    prefix="",
    outside=(),
    read=_read,
    write=_write,
    encoder=_encoder,
    heads={},
    classes={frozenset(): "UnmaskEncoder"},
    tied={},
    block="blocks.{i}.",
)
