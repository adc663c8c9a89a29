"""unmask: pre-train text encoders on your own corpus and put them to work.

The public names are imported when they are first used, so that `import unmask` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from unmask.batch import PackedBatch
    from unmask.config import EncoderConfig, RunConfig
    from unmask.errors import UnmaskError
    from unmask.explanation import Explanation, explain
    from unmask.hub.files import build_encoder, load_model, save_model
    from unmask.inference.loaded import Loaded, load
    from unmask.nn.encoder import Encoder
    from unmask.road import export, pretrain, resume
    from unmask.text.build import BuildOptions, build_corpus
    from unmask.text.reader import read_documents
    from unmask.text.shards import Corpus
    from unmask.text.tokenizer import Tokenizer

_HOMES = {
    "PackedBatch": "unmask.batch",
    "EncoderConfig": "unmask.config",
    "RunConfig": "unmask.config",
    "UnmaskError": "unmask.errors",
    "Explanation": "unmask.explanation",
    "explain": "unmask.explanation",
    "build_encoder": "unmask.hub.files",
    "load_model": "unmask.hub.files",
    "save_model": "unmask.hub.files",
    "Loaded": "unmask.inference.loaded",
    "load": "unmask.inference.loaded",
    "Encoder": "unmask.nn.encoder",
    "export": "unmask.road",
    "pretrain": "unmask.road",
    "resume": "unmask.road",
    "BuildOptions": "unmask.text.build",
    "build_corpus": "unmask.text.build",
    "read_documents": "unmask.text.reader",
    "Corpus": "unmask.text.shards",
    "Tokenizer": "unmask.text.tokenizer",
}
__all__ = [
    "BuildOptions",
    "Corpus",
    "Encoder",
    "EncoderConfig",
    "Explanation",
    "Loaded",
    "PackedBatch",
    "RunConfig",
    "Tokenizer",
    "UnmaskError",
    "build_corpus",
    "build_encoder",
    "explain",
    "export",
    "load",
    "load_model",
    "pretrain",
    "read_documents",
    "resume",
    "save_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'unmask' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
