"""The configurations and name tables of every preset, at its published size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers as hf
from small_models import VARIANTS, goals_of

from unmask import presets
from unmask.config import EncoderConfig
from unmask.hub import names
from unmask.hub.configs import choose_family, read_config
from unmask.hub.families import FAMILIES
from unmask.hub.family import Family, meaning
from unmask.nn.encoder import Encoder
from unmask.nn.heads import PairHead, ReplacedHead, TokenHead
from unmask.objectives.infill import InfillHead

GOAL = {"gpt2": "causal", "t5": "infill"}


THEIRS = [name for name in presets.names() if "elmo" not in name]  # transformers has no ELMo


def _family(config: EncoderConfig) -> Family:
    return choose_family(config, {}, 0)


@pytest.mark.parametrize("name", THEIRS)
def test_a_published_config_goes_out_and_comes_back(name: str) -> None:
    config = presets.preset(name)()
    family = _family(config)
    data = {"model_type": family.model_type, **family.write(config)}
    found, back = read_config(data)
    assert found is family and family.model_type != "unmask"
    same = replace(back, initializer=config.initializer, initializer_range=config.initializer_range)
    assert meaning(same) == meaning(config)


@pytest.mark.parametrize("name", [name for name in THEIRS if "neobert" not in name])
def test_transformers_reads_every_field_we_write(name: str) -> None:
    config = presets.preset(name)()
    family = _family(config)
    data = {field: value for field, value in family.write(config).items() if field != "use_cache"}
    theirs = hf.AutoConfig.for_model(family.model_type, **data).to_dict()
    assert {field: theirs[field] for field in data} == data | _as_lists(data)


def _as_lists(data: dict[str, Any]) -> dict[str, Any]:
    return {"pos_att_type": data["pos_att_type"].split("|")} if "pos_att_type" in data else {}


@pytest.mark.parametrize("name", [name for name in THEIRS if "neobert" not in name])
def test_the_name_tables_cover_every_tensor_of_both_sides_once(name: str) -> None:
    config = presets.preset(name)()
    family = _family(config)
    kind = GOAL.get(family.model_type, "mlm")
    architecture = family.classes[frozenset({kind})]
    settings = hf.AutoConfig.for_model(family.model_type, **family.write(config))
    layers = config.num_hidden_layers
    with torch.device("meta"):
        theirs = getattr(hf, architecture)(settings)
        head = InfillHead(config, layers) if kind == "infill" else TokenHead(config)
        ours = {"encoder": Encoder(config), kind: head}
    rows = {
        "encoder": family.encoder(config),
        kind: tuple(row for row in family.heads[kind](config, layers) if not row.optional),
    }
    tables = [names.shapes(part, config) for part in rows.values()]
    table = {name: shape for part in tables for name, shape in part.items()}
    assert len(table) == sum(map(len, tables)), "a name stands in two tables"
    state = {family.canonical(name): tuple(tensor.shape) for name, tensor in theirs.state_dict().items()}
    assert table == {name: shape for name, shape in state.items() if name not in family.tied.keys() | family.buffers}
    for part, module in ours.items():
        wanted = {row.ours for row in names.expand(rows[part], config.num_blocks)}
        assert wanted == set(module.state_dict())


HEADS = {"nsp": PairHead, "sop": PairHead, "rtd": lambda config: ReplacedHead(config, add_first=False)}


@pytest.mark.parametrize(("family", "kind"), [("bert", "nsp"), ("albert", "sop"), ("electra", "rtd")])
def test_the_heads_of_pairs_and_replaced_tokens_are_covered_too(family: str, kind: str) -> None:
    config = VARIANTS[family]
    rows = FAMILIES[family].heads[kind](config, 0)
    assert {row.ours for row in rows} == set(HEADS[kind](config).state_dict())


@pytest.mark.parametrize("name", VARIANTS)
def test_a_tensor_of_ours_goes_out_and_comes_back_in_every_form(name: str) -> None:
    """Stacked, turned over, head by head: `to_ours` undoes `to_theirs` bit for bit, in every family's table."""
    config = VARIANTS[name]
    if name == "neobert":
        config = replace(config, intermediate_size=64)
    heads = {goal.kind: ["bias"] for goal in goals_of(name)}
    family = choose_family(config, heads, 0)
    state = {k: torch.randn_like(v) for k, v in Encoder(config).state_dict().items()}
    rows = family.encoder(config)
    back = names.to_ours(rows, names.to_theirs(rows, state, config), config)
    assert back.keys() == state.keys() and all(torch.equal(back[k], v) for k, v in state.items())
