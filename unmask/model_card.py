"""The README.md of an exported model: what it is, what it learned from, how good it was, how to use it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from unmask.config import EncoderConfig, Recurrent, RunConfig
from unmask.train.report.text import loss_name

# For each kind of head the class transformers loads the model by, and its task: the first that the folder's class has decides.
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
    architecture: str = "",
    held: Collection[str] = (),
) -> str:
    """Markdown with the front matter model hubs read; every figure in it was measured in the run.

    `trained_parameters` counts heads, generator and decoder too. `architecture` is the class of transformers that the folder
    was written for, with the heads `held`; without one, only unmask loads it.
    """
    e, cut = run.encoder, run.examples
    train = corpus.get("splits", {}).get("train", {})
    kinds = [goal.kind for goal in run.objectives]
    loader, task = next((use for kind, use in USES.items() if kind in held), (architecture, "feature-extraction"))
    pipeline = f"\npipeline_tag: {task}" if task and architecture else ""
    return f"""---
library_name: {"transformers" if architecture else "unmask"}{pipeline}
tags: [unmask]
---

# A model pre-trained with unmask

{e.num_hidden_layers} layers, {e.hidden_size} wide, {_parts(e)}, {e.vocab_size:,} tokens,
{encoder_parameters:,} parameters ({trained_parameters:,} with everything that was trained beside it).

- Objectives: {" + ".join(map(loss_name, kinds))}, on {cut.kind.replace("_", " ")} of up to {cut.max_length} tokens
- Corpus: {train.get("documents", 0):,} documents, {train.get("tokens", 0):,} tokens
- {_quality(evaluation)}

```python
{_usage(loader, task) if architecture else _OURS}
```

Every setting of the run is in `unmask.json`.
"""


def _parts(encoder: EncoderConfig) -> str:
    """What a layer is made of."""
    if isinstance(encoder.layer, Recurrent):
        return f"{encoder.layer.cell_size:,} LSTM cells in each direction"
    return f"{encoder.num_attention_heads} heads"


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
