"""The README.md of an exported model: what it is, what it learned from, how good it was, how to use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unmask.config import RunConfig
from unmask.train.report.text import loss_name

# For each kind of goal the class transformers loads the model by, and its task: the first that a run has decides.
USES = {
    "mlm": ("AutoModelForMaskedLM", "fill-mask"),
    "causal": ("AutoModelForCausalLM", "text-generation"),
    "infill": ("AutoModelForSeq2SeqLM", ""),
    "rtd": ("AutoModel", "feature-extraction"),
    "nsp": ("AutoModel", "feature-extraction"),
    "sop": ("AutoModel", "feature-extraction"),
}


def model_card(
    run: RunConfig,
    corpus: Mapping[str, Any],
    evaluation: Mapping[str, Any] | None,
    encoder_parameters: int,
    trained_parameters: int,
    *,
    transformers: bool = True,
) -> str:
    """Markdown with the front matter model hubs read; every figure in it was measured in the run.

    `trained_parameters` counts heads, generator and decoder too; without `transformers` the folder is one that only unmask
    loads.
    """
    e = run.encoder
    train = corpus.get("splits", {}).get("train", {})
    kinds = [goal.kind for goal in run.objectives]
    loader, task = next(use for kind, use in USES.items() if kind in kinds)
    library = "transformers" if transformers else "unmask"
    shape = run.examples.kind.replace("_", " ")
    pipeline = f"\npipeline_tag: {task}" if task and transformers else ""
    return f"""---
library_name: {library}{pipeline}
tags: [unmask]
---

# A model pre-trained with unmask

{e.num_hidden_layers} layers, {e.hidden_size} wide, {e.num_attention_heads} heads, {e.vocab_size:,} tokens,
{encoder_parameters:,} parameters ({trained_parameters:,} with everything that was trained beside it).

- Objectives: {" + ".join(map(loss_name, kinds))}, on {shape} of up to {run.examples.max_length} tokens
- Corpus: {train.get("documents", 0):,} documents, {train.get("tokens", 0):,} tokens
- {_quality(evaluation)}

```python
{_usage(loader, task) if transformers else _OURS}
```

Every setting of the run is in `unmask.json`.
"""


_OURS = """from pathlib import Path
from unmask import build_encoder, load_model

encoder = build_encoder(load_model(Path(".")))"""


def _usage(loader: str, task: str) -> str:
    if not task:
        return f"""from transformers import {loader}, AutoTokenizer

model, tokenizer = {loader}.from_pretrained("."), AutoTokenizer.from_pretrained(".")"""
    name = task.partition("-")[0]
    return f"""from transformers import {loader}, AutoTokenizer, pipeline

{name} = pipeline("{task}", model={loader}.from_pretrained("."), tokenizer=AutoTokenizer.from_pretrained("."))"""


def _quality(evaluation: Mapping[str, Any] | None) -> str:
    if evaluation is None:
        return "Held-out loss: not measured"
    losses = ", ".join(f"{loss_name(name)} {value:.4f}" for name, value in evaluation["losses"].items())
    perplexity = f", perplexity {evaluation['perplexity']:.2f}" if "perplexity" in evaluation else ""
    return f"Held-out loss after {evaluation['step']:,} steps (nats): {losses}{perplexity}"
