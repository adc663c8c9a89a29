"""The README.md of an exported model: what it is, what it learned from, how good it was, how to use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unmask.config import RunConfig
from unmask.nn.cost import count_parameters


def model_card(run: RunConfig, corpus: Mapping[str, Any], evaluation: Mapping[str, Any] | None) -> str:
    """Markdown with the front matter model hubs read; every figure in it was measured in the run."""
    e = run.encoder
    train = corpus.get("splits", {}).get("train", {})
    parameters = count_parameters(e, **{goal.kind: True for goal in run.objectives})
    pipeline = "\npipeline_tag: fill-mask" if any(goal.kind == "mlm" for goal in run.objectives) else ""
    goals = " + ".join(goal.kind.upper() for goal in run.objectives)
    return f"""---
library_name: transformers{pipeline}
tags: [unmask, bert]
---

# A BERT pre-trained with unmask

{e.num_hidden_layers} layers, {e.hidden_size} wide, {e.num_attention_heads} heads, {e.vocab_size:,} tokens,
{parameters:,} parameters.

- Objectives: {goals}, on {run.examples.kind.replace("_", " ")} of up to {run.examples.max_length} tokens
- Corpus: {train.get("documents", 0):,} documents, {train.get("tokens", 0):,} tokens
- {_quality(evaluation)}

```python
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

fill = pipeline("fill-mask", model=AutoModelForMaskedLM.from_pretrained("."), tokenizer=AutoTokenizer.from_pretrained("."))
```

Every setting of the run is in `unmask.json`.
"""


def _quality(evaluation: Mapping[str, Any] | None) -> str:
    if evaluation is None:
        return "Held-out loss: not measured"
    losses = ", ".join(f"{name.upper()} {value:.4f}" for name, value in evaluation["losses"].items())
    perplexity = f", MLM perplexity {evaluation['perplexity']:.2f}" if "perplexity" in evaluation else ""
    return f"Held-out loss after {evaluation['step']:,} steps (nats): {losses}{perplexity}"
