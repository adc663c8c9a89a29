"""What a run will cost, before anything of it is built."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from unmask.batch import PackedBatch, Targets
from unmask.config import Minutes, RunConfig
from unmask.nn.cost import count_parameters, training_bytes
from unmask.road.model import outline
from unmask.text.shards import Corpus
from unmask.text.vocabulary import Vocabulary
from unmask.train.machine import choose_device, choose_precision, matmul_peak, set_threads
from unmask.train.plan import known_steps

REACHED = 0.5  # of the machine's peak: what small and middle-sized models reach
WIDE = ("mlm", "sbo", "causal", "infill")  # losses with logits over the whole vocabulary


def estimate(run: RunConfig) -> dict[str, Any]:
    """Parameters, arithmetic, memory and time of a run of one phase on this machine, by the true objectives' arithmetic on a
    made-up batch of the longest examples."""
    set_threads(run.machine)
    device = choose_device(run.machine)
    peak = matmul_peak(device, choose_precision(run.machine, device))
    vocabulary = Corpus.open(run.corpus, "train", verify=False).vocabulary
    model = outline(run, vocabulary)
    plain = _made_up(run, vocabulary)
    batch = model.objective.prepare(plain, run.seed)
    tokens = run.batch.tokens * run.batch.accumulate
    flops = model.training_flops(batch) * tokens / plain.num_tokens
    seconds = flops / (REACHED * peak)
    counts = model.objective.counts(batch)
    parameters = count_parameters(model.encoder, model.objective)
    scored = sum(counts.get(name, 0) for name in WIDE)
    if isinstance(run.until, Minutes):
        steps = max(1, round(60 * run.until.minutes / seconds))
    else:
        steps = known_steps(run.until, tokens)
    return {
        "parameters": parameters,
        "encoder_parameters": count_parameters(model.encoder),
        "tokens_per_step": tokens,
        "flops_per_step": flops,
        "bytes": training_bytes(run.encoder, parameters, run.batch.tokens, scored),
        "steps": steps,
        "tokens": steps * tokens,
        "seconds": steps * seconds,
        "peak_flops": peak,
        "device": device.type,
    }


def _made_up(run: RunConfig, vocabulary: Vocabulary) -> PackedBatch:
    """Examples of the greatest length, of any ordinary tokens, two tokens a word."""
    length = run.examples.max_length
    count = max(1, run.batch.tokens // length)
    ordinary = vocabulary.ordinary_ids()
    ids = ordinary[np.arange(count * length) % len(ordinary)].astype(np.int64)
    return PackedBatch(
        torch.from_numpy(ids),
        torch.arange(0, (count + 1) * length, length, dtype=torch.int32),
        word_starts=torch.arange(count * length) % 2 == 0,
        examples=torch.arange(count),
        labels={"pair": Targets(torch.arange(count), torch.zeros(count, dtype=torch.int64))},
    )
