"""Attention alone, forward and backward: unmask's `attend` and what transformers computes instead, in turns in one process.

    python -m benchmarks.attention [--rounds 5] [--threads 2] [--json FILE]

Documents are paragraphs of the text, cut at the length, 4,096 tokens in all. Transformers' way is a padded batch with a mask
of the real keys; for windows a full matrix with a mask; for DeBERTa and T5 its own modules, projections included on both sides.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DebertaV2Config, T5Config
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Encoder
from transformers.models.t5.modeling_t5 import T5Attention

from benchmarks import tables
from benchmarks.text import default_cache, default_text, load_text
from unmask import presets
from unmask.batch import Layout
from unmask.config import EncoderConfig, RelativeBias
from unmask.nn.attend import attend
from unmask.nn.attention import Attention
from unmask.nn.places import Places

HEADS, KEY, WIDTH = 4, 64, 256
DROPOUT, WINDOW = 0.1, 64
Step = Callable[[], None]


def main() -> None:
    ask = tables.arguments(__doc__)
    given = ask.parse_args()
    torch.set_num_threads(given.threads)
    torch.set_flush_denormal(True)
    results = []
    for name, ours, theirs in _cases(given):
        mine, other = _in_turns(ours, theirs, given.rounds, given.clock)
        times = [b / a for a, b in zip(mine, other, strict=True)]
        result = {"name": name, "ours": statistics.median(mine), "theirs": statistics.median(other)}
        results.append({**result, "ratio": statistics.median(times)})
        print(f"{name}: {results[-1]['ratio']:.2f}×", flush=True)
    print("\n" + report(results))
    tables.write_json(given.json, "attention", results)


def report(results: list[dict[str, Any]]) -> str:
    head = ["attention, forward and backward", "ours, ms", "theirs, ms", "times faster"]
    lines = [[r["name"], f"{1e3 * r['ours']:.1f}", f"{1e3 * r['theirs']:.1f}", f"{r['ratio']:.2f}×"] for r in results]
    return tables.markdown(head, lines)


def _in_turns(ours: Step, theirs: Step, rounds: int, clock: str) -> tuple[list[float], list[float]]:
    now = time.process_time if clock == "cpu" else time.perf_counter
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for spent, step in zip(seconds, (ours, theirs), strict=True):
            start = now()
            step()
            if number:  # the first one warms up
                spent.append(now() - start)
    return seconds


def _cases(given: Any) -> Iterator[tuple[str, Step, Step]]:
    tokens = 256 if given.tiny else 4096
    lengths, windows = ((32,), (64,)) if given.tiny else ((128, 512), (512, 1024, 2048, 4096, 8192))
    for length in lengths:
        documents = _document_lengths(given, length, tokens)
        for dropout in (0.0, DROPOUT):
            said = f"dropout {dropout:g}" if dropout else "no dropout"
            yield f"documents up to {length}, {said}, against padded SDPA", *_documents(documents, dropout)
        yield f"DeBERTa-v3's, documents up to {length}, against transformers padded", *_deberta(documents)
        rows = [length] * (tokens // length)
        yield f"DeBERTa-v3's, full rows of {length}, against transformers", *_deberta(rows)
        yield f"T5's, documents up to {length}, against transformers padded", *_t5(documents)
    for length in windows:
        yield f"window of {2 * WINDOW}, one document of {length:,}, against SDPA with a full mask", *_window(length)


def _document_lengths(given: Any, length: int, tokens: int) -> list[int]:
    text = load_text(given.text or default_text(), 1000 if given.tiny else 8192, given.cache or default_cache())
    sizes = np.minimum(text.document_tokens() + 2, length)
    drawn = np.random.default_rng(0).choice(sizes, tokens)
    return sorted(drawn[: int(np.searchsorted(drawn.cumsum(), tokens))].tolist())


def _layout(lengths: list[int]) -> Layout:
    return Layout.of(torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32))


def _backward(inputs: Tensor, out: Tensor, gradient: Tensor) -> None:
    inputs.grad = None
    out.backward(gradient)


# --- plain attention and windows --------------------------------------------------------------------------------------------
def _documents(lengths: list[int], dropout: float) -> tuple[Step, Step]:
    layout = _layout(lengths)
    qkv = torch.randn(sum(lengths), 3, HEADS, KEY, requires_grad=True)
    grid = layout.pad(qkv.detach()).requires_grad_()  # transformers has it padded already
    gradient = torch.randn(sum(lengths), HEADS, KEY)
    wide, seen = layout.pad(gradient), layout.valid()[:, None, None, :]

    def theirs() -> None:
        q, k, v = grid.permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=dropout)
        _backward(grid, out.transpose(1, 2), wide)

    return (lambda: _backward(qkv, attend(qkv, layout, dropout=dropout), gradient)), theirs


def _window(length: int) -> tuple[Step, Step]:
    layout = _layout([length])
    qkv = torch.randn(length, 3, HEADS, KEY, requires_grad=True)
    gradient, place = torch.randn(length, HEADS, KEY), torch.arange(length)
    near = ((place[:, None] - place).abs() <= WINDOW)[None, None]

    def theirs() -> None:
        q, k, v = qkv[None].permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=near)
        _backward(qkv, out[0].transpose(0, 1), gradient)

    return (lambda: _backward(qkv, attend(qkv, layout, window=WINDOW), gradient)), theirs


# --- relative places: whole modules, since projecting the table of places is part of the work -------------------------------------
def _deberta(lengths: list[int]) -> tuple[Step, Step]:
    config = replace(
        presets.deberta_v3_base(100), hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=1,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    encoder = DebertaV2Encoder(
        DebertaV2Config(
            hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=1, intermediate_size=4 * WIDTH,
            relative_attention=True, position_buckets=256, max_position_embeddings=512, norm_rel_ebd="layer_norm",
            share_att_key=True, pos_att_type="p2c|c2p", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip
    module, layout = encoder.layer[0].attention, _layout(lengths)
    mask = encoder.get_attention_mask(layout.valid().long())

    def theirs(x_BLD: Tensor) -> Tensor:
        places, table = encoder.get_rel_pos(x_BLD), encoder.get_rel_embedding()
        found, _ = module.self(x_BLD, mask, relative_pos=places, rel_embeddings=table)
        return module.output.dense(found)

    return _modules(config, layout, theirs)


def _t5(lengths: list[int]) -> tuple[Step, Step]:
    config = EncoderConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, positions=RelativeBias(), scale_attention=False,
        linear_bias=False, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    settings = T5Config(d_model=WIDTH, d_kv=KEY, num_heads=HEADS, dropout_rate=0.0, attn_implementation="eager")
    module, layout = T5Attention(settings, has_relative_attention_bias=True, layer_idx=0), _layout(lengths)
    mask = torch.where(layout.valid(), 0.0, torch.finfo(torch.float32).min)[:, None, None, :]
    return _modules(config, layout, lambda x_BLD: module(x_BLD, mask=mask)[0])


def _modules(config: EncoderConfig, layout: Layout, theirs: Callable[[Tensor], Tensor]) -> tuple[Step, Step]:
    attention: nn.Module = Attention(config)
    places = Places(config)
    x_TD = torch.randn(len(layout.rows), WIDTH, requires_grad=True)
    x_BLD = layout.pad(x_TD.detach()).requires_grad_()
    gradient = torch.randn(len(layout.rows), WIDTH)
    wide = layout.pad(gradient)

    def ours() -> None:
        _backward(x_TD, attention(x_TD, layout, places(layout)), gradient)

    return ours, lambda: _backward(x_BLD, theirs(x_BLD), wide)


if __name__ == "__main__":
    main()
