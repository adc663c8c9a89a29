"""How new weights start: one table for every family."""

from __future__ import annotations

import math

import torch
from torch import nn

from unmask.config import EncoderConfig
from unmask.nn.attention import Attention, CrossAttention
from unmask.nn.characters import CharacterWords, Highway
from unmask.nn.parts import FeedForward
from unmask.nn.places import Places
from unmask.nn.recurrent import RecurrentBlock

CHARACTERS = 3**-0.5  # of numbers drawn evenly from -1 to 1, as released


def initialise(module: nn.Module, config: EncoderConfig, generator: torch.Generator) -> None:
    """Matrices and tables from a normal distribution cut at two deviations, biases 0, norms 1.

    The deviation is `initializer_range` everywhere ("normal": BERT); divided by √(2 × layers) where a matrix writes into the
    residual stream ("residual": GPT-2 section 2.3, ModernBERT appendix B); or by the width a matrix reads ("t5": T5's code,
    with word vectors of deviation 1 and queries smaller by √head_size, since its scores are not scaled). What makes words
    from characters begins as in ELMo's released code whatever the initializer: by the width a matrix reads.
    """
    deviations = _deviations(module, config)
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding | nn.Conv1d):
            std = deviations.get(id(part), config.initializer_range)
            nn.init.trunc_normal_(part.weight, 0.0, std, -2 * std, 2 * std, generator=generator)
        if isinstance(part, nn.Linear | nn.Conv1d) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LSTM):  # as torch begins one, but from our generator
            for parameter in part.parameters():
                nn.init.uniform_(parameter, -(part.hidden_size**-0.5), part.hidden_size**-0.5, generator=generator)
    if config.initializer == "t5":
        _shrink_queries(module)
    _open_gates(module)


def _deviations(module: nn.Module, config: EncoderConfig) -> dict[int, float]:
    """Those that differ from `initializer_range`, by the identity of the part.

    A part's own config counts: a generator is not as deep as the encoder it trains.
    """
    found: dict[int, float] = {}
    for part in module.modules():
        match config.initializer, part:
            case _, CharacterWords():  # comes before its parts
                found |= {id(p): p.in_features**-0.5 for p in part.modules() if isinstance(p, nn.Linear)}
                found |= {id(table): CHARACTERS for table in (part.characters, part.marks)}
            case "residual", Attention() | CrossAttention():
                found[id(part.out)] = _residual(part.config)
            case "residual", FeedForward():
                found[id(part.down)] = _residual(part.config)
            case "t5", nn.Linear():
                found[id(part)] = part.in_features**-0.5
            case "t5", nn.Embedding():
                found.setdefault(id(part), 1.0)
            case "t5", Places() if hasattr(part, "table"):  # comes before its table
                found[id(part.table)] = part.config.hidden_size**-0.5
    return found


def _residual(config: EncoderConfig) -> float:
    return config.initializer_range / math.sqrt(2 * config.num_hidden_layers)


@torch.no_grad()
def _open_gates(module: nn.Module) -> None:
    """Highways begin by letting words through (bias -2, Srivastava et al. 2015, section 2.1), LSTM cells by remembering (bias
    of the second gate 1, Jozefowicz et al. 2015, section 5)."""
    for part in module.modules():
        match part:
            case Highway(both=both):
                both.bias[both.out_features // 2 :] = -2.0
            case RecurrentBlock():
                for lstm in (part.from_left, part.from_right):
                    lstm.get_parameter("bias_ih_l0")[lstm.hidden_size : 2 * lstm.hidden_size] = 1.0
                    lstm.get_parameter("bias_hh_l0").zero_()


@torch.no_grad()
def _shrink_queries(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, Attention):
            part.qkv.weight[: part.inner] *= part.config.key_size**-0.5
        if isinstance(part, CrossAttention):
            part.query.weight *= part.config.key_size**-0.5
