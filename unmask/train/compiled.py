"""What torch.compile makes faster: what stands between two attentions, as one graph for all layers.

Attention stays outside, since it asks where sequences end, and that differs from batch to batch; what is compiled looks at each
token alone. Its shapes are fixed: the encoder fills a training batch up to a number of tokens that is the same in every step (one
of a few where examples are long). Nothing outside the encoder ever meets the filling: no objective, count or statistic.

Weights, their names and all that is no training step (evaluations, saving) are as without it.

Legend: T tokens, D hidden_size, X = 3 · heads · head size.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from unmask.batch import Layout
from unmask.config import Training
from unmask.errors import UnmaskError
from unmask.nn.attention import Attention
from unmask.nn.encoder import MULTIPLE, Block, Encoder
from unmask.nn.kernels.rotary import turn
from unmask.nn.places import Known, Turns

BACKEND = "inductor"
SIZES = 8  # at most, where examples are long
VARIANTS = 64  # graphs of one function: sizes, networks (a generator's), phases; by itself torch stops at 8

Turn = Callable[[Tensor, int, Tensor, Tensor], Tensor]


def filled_tokens(run: Training) -> int:
    """Training batches are filled up to a multiple of this: all to the same size, unless one example is a large part of them.

    A batch may go beyond its budget by one example. Where that is much, filling all to the same size would cost more than a
    few sizes do.
    """
    most, longest = run.batch.tokens + run.max_length, run.max_length
    unit = most if 4 * longest <= run.batch.tokens else most / SIZES
    return MULTIPLE * math.ceil(unit / MULTIPLE)


def compile_networks(*networks: nn.Module, tokens: int) -> None:
    """From now on the encoders in these networks train compiled; the first step takes longer by the compiler's time.

    A batch is filled up to a multiple of `tokens` tokens. Raises UnmaskError where a compiler is missing.
    """
    _require_compiler(next(networks[0].parameters()).device)
    import torch._dynamo  # a second to import

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    add, turned = _compile(Block._add), _compile(turn)
    for module in [module for network in networks for module in network.modules()]:
        match module:
            case Encoder():
                module.multiple = tokens
            case Block():
                _replace(module, Block._add, partial(_add, tokens, add))
                _replace(module.attention, Attention._attend, partial(_attend, tokens, turned))


def _compile(part: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return torch.compile(part, dynamic=False, fullgraph=True, backend=BACKEND)


def _replace(module: nn.Module, method: Callable[..., Any], by: Callable[..., Any]) -> None:
    """In this one module. Its parameters, and so a checkpoint, don't know of it."""
    module.__dict__[method.__name__] = MethodType(by, module)


def _fits(x: Tensor, tokens: int) -> bool:
    """True in a training step, for the states of all tokens: some heads ask for those of a few."""
    return torch.is_grad_enabled() and len(x) % tokens == 0


def _add(tokens: int, compiled: Callable[..., Tensor], block: Block, x_TD: Tensor, attended_TD: Tensor) -> Tensor:
    """Residuals, norms, dropout and the feed-forward."""
    return (compiled if _fits(x_TD, tokens) else Block._add)(block, x_TD, attended_TD)


def _attend(
    tokens: int,
    turned: Turn,
    attention: Attention,
    qkv_TX: Tensor,
    layout: Layout,
    known: Known,
    window: int,
    where_M: Tensor | None,
) -> Tensor:
    """Attention with queries and keys turned by the compiled function, where places are known by turning."""
    if isinstance(known, Turns) and _fits(qkv_TX, tokens):
        cosine, sine = known.local if window else known.everywhere
        qkv_TX, known = turned(qkv_TX, attention.config.num_attention_heads, cosine, sine), None
    return Attention._attend(attention, qkv_TX, layout, known, window, where_M)


def _require_compiler(device: torch.device) -> None:
    names = (os.environ.get("CXX", ""), "c++", "g++", "clang++")
    if device.type != "cpu" or BACKEND != "inductor" or any(filter(None, map(shutil.which, filter(None, names)))):
        return
    raise UnmaskError(
        "machine.compile needs a C++ compiler, and there is none on the PATH",
        do="install one (g++), or set machine.compile=false: on a CPU it gains nothing",
    )
