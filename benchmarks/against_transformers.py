"""The same MLM pre-training by unmask and by a plain transformers loop, in one process, in turns.

Same corpus, vocabulary, model size, first weights, tokens seen, hyper-parameters and schedule. The plain loop is what people
write today: documents, concatenated, cut into blocks of equal length with [CLS] and [SEP], DataCollatorForLanguageModeling,
BertForMaskedLM, AdamW. Both models are measured by the same held-out evaluation.

    python benchmarks/against_transformers.py CORPUS [--tokens 1000000] [--length 128] [--preset bert_tiny] [--threads 2]

It prints the two held-out losses, their ratio (they should be within 1 %), and tokens per second of each and the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from unmask import presets, recipes, road
from unmask.config import AdamW, BatchSize, Blocks, MaskedTokens, Tokens
from unmask.hub import names
from unmask.loader import Batches, Cursor
from unmask.measure.heldout import evaluate, held_out_batches, unigram_entropy
from unmask.objectives.base import combine
from unmask.text.shards import Corpus
from unmask.train.optimise import build_optimizer, learning_rate_factor


class Ours:
    """unmask's own parts, stepped by hand so that the two sides can take turns."""

    def __init__(self, run, corpus: Corpus):
        self.run, self.model = run, road.build(run, corpus.vocabulary)
        self.stream = Batches(
            corpus, run.examples, corpus.vocabulary, self.model.objective.prepare, run.seed, run.batch.tokens
        ).since(Cursor())
        self.parameters = dict(self.model.encoder.named_parameters(prefix="e")) | dict(
            self.model.objective.named_parameters(prefix="o")
        )
        self.optimizer = build_optimizer(run.optimizer, self.parameters)

    def step(self, progress: float) -> int:
        batch, _ = next(self.stream)
        combine(self.model.objective(self.model.encoder, batch), self.model.objective.counts(batch)).backward()
        _update(self.optimizer, self.parameters.values(), self.run, progress)
        return batch.num_tokens


class Theirs:
    """A plain loop with transformers."""

    def __init__(self, run, corpus: Corpus, first: Ours):
        e = run.encoder
        config = BertConfig(
            vocab_size=e.vocab_size, hidden_size=e.hidden_size, num_hidden_layers=e.num_hidden_layers,
            num_attention_heads=e.num_attention_heads, intermediate_size=e.intermediate_size,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        self.run, self.model = run, BertForMaskedLM(config)
        state = {
            "bert." + k: v
            for k, v in names.to_hf(names.ENCODER, dict(first.model.encoder.state_dict()), e.num_hidden_layers).items()
        }
        state |= names.to_hf(names.MLM, dict(first.model.objective.parts["mlm"].head.state_dict()), 0)
        missing, unexpected = self.model.load_state_dict(state, strict=False)
        assert not unexpected and set(missing) <= {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}, (
            missing,
            unexpected,
        )
        self.model.tie_weights()
        tokenizer = PreTrainedTokenizerFast.from_pretrained(corpus.tokenizer_folder)
        self.collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
        self.blocks = self._blocks(corpus)
        named = dict(self.model.named_parameters())
        self.parameters, self.optimizer = named, build_optimizer(run.optimizer, named)

    def _blocks(self, corpus: Corpus) -> Iterator[list[dict[str, list[int]]]]:
        """One stream of documents, cut into equal blocks with [CLS] and [SEP] around each, shuffled anew each epoch."""
        texts, v = corpus.read(np.arange(corpus.num_documents)), corpus.vocabulary
        edges = texts.sentences[texts.documents]
        stream = np.concatenate(
            [np.r_[texts.tokens[a:b], v.sep_token_id] for a, b in zip(edges, edges[1:], strict=False)]
        )
        length, room = self.run.examples.max_length, self.run.examples.max_length - 2
        inner = stream[: len(stream) // room * room].reshape(-1, room)
        rows = np.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (v.cls_token_id, v.sep_token_id)))
        size, draw = self.run.batch.tokens // length, np.random.default_rng(self.run.seed)
        while True:
            order = draw.permutation(len(rows))
            for i in range(0, len(order) - size + 1, size):
                yield [{"input_ids": rows[j].tolist()} for j in order[i : i + size]]

    def step(self, progress: float) -> int:
        batch = self.collate(next(self.blocks))
        self.model(**batch).loss.backward()
        _update(self.optimizer, self.parameters.values(), self.run, progress)
        return batch["input_ids"].numel()

    def as_ours(self, like: Ours) -> road.Model:
        """Its weights in our modules, to be measured by the same evaluation."""
        model = road.build(self.run, like.model.vocabulary)
        state = {k.removeprefix("bert."): t for k, t in self.model.state_dict().items()}
        model.encoder.load_state_dict(names.from_hf(names.ENCODER, state, self.run.encoder.num_hidden_layers))
        model.objective.parts["mlm"].head.load_state_dict(names.from_hf(names.MLM, state, 0))
        return model


def _update(optimizer: torch.optim.Optimizer, parameters, run, progress: float) -> None:
    torch.nn.utils.clip_grad_norm_(list(parameters), run.optimizer.max_grad_norm)
    for group in optimizer.param_groups:
        group["lr"] = run.optimizer.learning_rate * learning_rate_factor(run.schedule, progress)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("corpus")
    ask.add_argument("--tokens", type=int, default=1_000_000)
    ask.add_argument("--preset", default="bert_tiny")
    ask.add_argument("--length", type=int, default=128)
    ask.add_argument("--threads", type=int, default=2)
    ask.add_argument("--learning-rate", type=float, default=1e-3)
    given = ask.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    run = replace(
        recipes.mlm_only(presets.preset(given.preset)()),
        corpus=given.corpus,
        examples=Blocks(max_length=given.length),
        objectives=(MaskedTokens(),),
        optimizer=AdamW(learning_rate=given.learning_rate),
        batch=BatchSize(tokens=16 * given.length),
        until=Tokens(tokens=given.tokens),
    )
    run = road.fit_to_corpus(run)
    train, heldout = Corpus.open(run.corpus, "train"), Corpus.open(run.corpus, "heldout")
    ours = Ours(run, train)
    theirs = Theirs(run, train, ours)
    seen, seconds = [0, 0], [[], []]
    while min(seen) < given.tokens:
        for i, side in enumerate((ours, theirs)):
            if seen[i] < given.tokens:
                start = time.perf_counter()
                count = side.step(seen[i] / given.tokens)
                seconds[i].append((time.perf_counter() - start) / count)
                seen[i] += count
    batches = held_out_batches(
        Batches(heldout, run.examples, heldout.vocabulary, ours.model.objective.prepare, road.HELD_OUT_SEED, 2048),
        200_000,
    )
    losses = [evaluate(m.encoder, m.objective, batches)["losses"]["mlm"] for m in (ours.model, theirs.as_ours(ours))]
    entropy = unigram_entropy(heldout.token_counts(), frozenset(heldout.vocabulary.special_ids))
    ours_speed, theirs_speed = (1 / statistics.median(s) for s in seconds)
    print(
        "held-out MLM loss (nats):",
        f"unmask {losses[0]:.4f}, transformers {losses[1]:.4f}, ratio {losses[0] / losses[1]:.4f}",
    )
    print(f"unigram entropy: {entropy:.4f}")
    print(f"tokens per second (median step): unmask {ours_speed:,.0f}, transformers {theirs_speed:,.0f},", end=" ")
    print(f"ratio {ours_speed / theirs_speed:.2f}")


if __name__ == "__main__":
    main()
