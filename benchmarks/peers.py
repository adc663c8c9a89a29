"""transformers as people use it: its models, its collator's batches, fused AdamW, clipping.

All peers begin with the weights of one folder that unmask wrote. Batches are the collator's own, made before the clock runs
(ours are too; loading has a benchmark of its own).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForMaskedLM,
    DataCollatorForLanguageModeling,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    PreTrainedTokenizerFast,
)

from benchmarks.rows import Task
from benchmarks.sides import Work
from benchmarks.text import concatenated_rows, grouped_rows, random_rows
from unmask.config import AdamW, ReplacedTokens, Rope

Batch = dict[str, Tensor]


class Peer:
    """Peer A, B, C or D of `rows.PEERS` on a row's task."""

    def __init__(self, task: Task, peer: str):
        published = 0.0 if isinstance(task.row.encoder.positions, Rope) else 0.1  # ModernBERT's is 0
        sparse = peer in "CD" and isinstance(task.row.encoder.positions, Rope)
        dropout = published if peer in "AB" else 0.0
        build = _electra if isinstance(task.row.goal, ReplacedTokens) else _masked_lm
        self.model = build(task, dropout, sparse).train()
        self.optimizer = optimizer(task.run().optimizer, dict(self.model.named_parameters()))
        self.batches = batches(task, peer)
        self.endless = cycle(self.batches)

    def step(self) -> Work:
        batch = next(self.endless)
        self.model(batch).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return Work(int(batch["attention_mask"].sum()))

    def loss(self) -> float:
        """The masked-token loss of the first batch, to compare with ours."""
        with torch.no_grad():
            return float(self.model.masked_loss(self.batches[0]))


class MaskedLM(nn.Module):
    """Any of its models with a masked-token head."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self.model(**batch).loss

    masked_loss = forward


class Electra(nn.Module):
    """Generator and discriminator with shared embeddings: logits at all places, guesses by Gumbel noise, 50 x RTD."""

    def __init__(self, generator: ElectraForMaskedLM, discriminator: ElectraForPreTraining):
        super().__init__()
        self.generator, self.discriminator = generator, discriminator

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        ids, seen, labels = batch["input_ids"], batch["attention_mask"], batch["labels"]
        out = self.generator(input_ids=ids, attention_mask=seen, labels=labels)
        with torch.no_grad():
            hidden = labels != -100
            logits = out.logits[hidden]
            guess = (logits - torch.empty_like(logits).exponential_().log()).argmax(-1)
            original = torch.where(hidden, labels, ids)
            filled = original.clone()
            filled[hidden] = guess
        found = self.discriminator(input_ids=filled, attention_mask=seen, labels=(filled != original).long())
        return out.loss + 50 * found.loss

    def masked_loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self.generator(**batch).loss


def _masked_lm(task: Task, dropout: float, sparse: bool) -> nn.Module:
    modern = isinstance(task.row.encoder.positions, Rope)
    given = {"sparse_prediction": sparse} if modern else _dropouts(dropout)
    return MaskedLM(AutoModelForMaskedLM.from_pretrained(task.model, dtype=torch.float32, **given))


def _electra(task: Task, dropout: float, sparse: bool) -> nn.Module:
    given = dict(dtype=torch.float32, **_dropouts(dropout))
    discriminator = ElectraForPreTraining.from_pretrained(task.model, **given)
    generator = ElectraForMaskedLM.from_pretrained(task.model / "generator", **given)
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.tie_weights()
    return Electra(generator, discriminator)


def _dropouts(p: float) -> dict[str, float]:
    return {"hidden_dropout_prob": p, "attention_probs_dropout_prob": p}


def optimizer(config: AdamW, parameters: Mapping[str, nn.Parameter]) -> torch.optim.AdamW:
    """Fused AdamW that decays matrices only, as the Trainer's."""
    decayed = [p for p in parameters.values() if p.dim() >= 2]
    plain = [p for p in parameters.values() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=betas, eps=config.epsilon, fused=True)


def batches(task: Task, peer: str) -> list[Batch]:
    """What the standard collator makes of the peer's rows; B's and D's are the same."""
    row, text, seed = task.row, task.text, task.seed
    match peer:
        case "A":
            rows = random_rows(text, row.length, row.sequences, task.count, seed)
        case "C":
            rows = grouped_rows(text, row.length, row.tokens, task.rounds, task.steps, seed)
        case _:
            rows = concatenated_rows(text, row.length, row.sequences, task.count, seed)
    collate = DataCollatorForLanguageModeling(
        PreTrainedTokenizerFast.from_pretrained(text.tokenizer_folder),
        mlm_probability=row.masking.mask_rate,
        mask_replace_prob=row.masking.replace_mask,
        random_replace_prob=row.masking.replace_random,
        pad_to_multiple_of=row.length if peer == "A" else None,
    )
    torch.manual_seed(seed)  # the collator draws masks from torch's own generator
    return [dict(collate([{"input_ids": ids} for ids in batch])) for batch in rows]
