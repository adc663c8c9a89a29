"""A model folder ready to turn texts into vectors: `unmask.load(folder).encode(texts)`.

Legend: N texts, D numbers of a vector.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unmask.config import EncoderConfig, Machine
from unmask.errors import UnmaskError
from unmask.hub.configs import read_config, read_json
from unmask.hub.files import build_encoder, load_model
from unmask.hub.sentence_layout import SentenceLayout, read_sentence_layout
from unmask.inference.backend import Backend, TokenBatch
from unmask.inference.batches import token_batches
from unmask.inference.tokens import TextEncoder
from unmask.inference.torch_backend import TorchBackend
from unmask.nn.pooling import Mode, Pooling
from unmask.progress import Progress, quiet
from unmask.text.tokenizer import Tokenizer
from unmask.text.tokenizer_files import has_tokenizer
from unmask.train.machine import choose_device, set_threads

WINDOW_TEXTS, WINDOW_CHARACTERS = 8192, 4 << 20  # of a stream that are sorted by length together

Vectors = NDArray[np.float32]


class TruncationWarning(UserWarning):
    """Texts were longer than the model takes, and were cut."""


class Block(NamedTuple):
    """Consecutive texts of a stream, done."""

    vectors_ND: Vectors
    tokens: int  # special ones included
    truncated: int  # texts that were cut to the model's length


@dataclass(frozen=True)
class _Plan:
    """What one call asks for, complete and checked."""

    pooling: Pooling
    normalize: bool
    batch_tokens: int
    layer: int
    prompt: str


def load(
    folder: str | Path,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int = 0,
    backend: Literal["torch", "onnx"] = "torch",
    precision: Literal["fp32", "bf16"] = "fp32",
) -> Loaded:
    """Loads any model folder that unmask reads (its own, Hugging Face's, sentence-transformers') with its tokenizer.

    `threads` of torch, for the whole process; 0 leaves them as they are. `precision` bf16 makes matrix products in half
    the bits, on hardware that has them: nearly twice as fast, and vectors whose cosine to those of fp32 is above 0.999
    for a sentence model. A graph of ONNX is computed on the CPU. Raises UnmaskError and DamagedError with what is wrong;
    no file of the folder is ever run.
    """
    _require_device(device, backend)
    folder = Path(folder)
    if threads:
        set_threads(Machine(threads=threads))
    layout = read_sentence_layout(folder)
    match backend:
        case "torch":
            model = load_model(layout.model_folder)
            config = model.config
            ready: Backend = TorchBackend(build_encoder(model), choose_device(Machine(device=device)), precision)
        case "onnx" if precision == "fp32":
            from unmask.inference.onnx_backend import OnnxBackend

            where = layout.model_folder / "config.json"  # the graph holds the weights
            config = read_config(read_json(where), where=str(where))[1]
            ready = OnnxBackend.load(layout.model_folder, threads=threads)
        case "onnx":
            raise UnmaskError("a graph has its precision already", where="precision", do="leave it at fp32")
        case _:
            raise UnmaskError(f"unknown backend {backend!r}", where="backend", do="give torch or onnx")
    return Loaded(ready, _text_encoder(config, layout), layout, config.hidden_size)


class Loaded:
    """A model with its tokenizer. Nothing that a call does changes it, so threads may share it."""

    def __init__(self, backend: Backend, texts: TextEncoder, layout: SentenceLayout, hidden_size: int):
        self.backend, self.hidden_size = backend, hidden_size
        self._texts, self._layout = texts, layout

    @property
    def max_length(self) -> int:
        """Tokens of the longest text, special ones included; what is longer is cut, counted and told."""
        return self._texts.max_length

    @property
    def prompts(self) -> Mapping[str, str]:
        """The texts that the folder wants before a query, a passage …, by name."""
        return self._layout.prompts

    def prompt_named(self, name: str) -> str:
        """One of `prompts`; UnmaskError for a name that the folder does not have."""
        if name not in self.prompts:
            listed = ", ".join(self.prompts) or "none"
            raise UnmaskError(f"the folder has no prompt {name!r}", where="prompt", do=f"its prompts are: {listed}")
        return self.prompts[name]

    def encode(
        self,
        texts: Sequence[str],
        *,
        pooling: Mode | Sequence[Mode] | None = None,
        normalize: bool | None = None,
        batch_tokens: int = 0,
        layer: int = -1,
        prompt: str | None = None,
        progress: Progress = quiet,
    ) -> Vectors:
        """[N, D] one vector for each text, in the order given; [0, D] for none.

        `pooling` (several are put side by side), `normalize` (to length 1) and `prompt` (put before each text; "" none)
        are the folder's own unless given; a folder that says nothing gets the mean over all tokens, special ones too,
        as it is. `layer` counts hidden states as transformers does: 0 are the embedded tokens, -1 the output. A batch
        holds at most `batch_tokens` tokens (0: what suits the device), or one text, which changes the result by
        rounding only. Texts longer than `max_length` are cut, with a TruncationWarning that counts them. Raises
        UnmaskError for what is no text, an empty text where the tokenizer frames none, and answers that are not finite.
        """
        if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
            raise UnmaskError(
                f"the texts are a {type(texts).__name__}, not a list", do="give [text], or `stream` for a generator"
            )
        plan = self._plan(pooling, normalize, batch_tokens, layer, prompt)
        block = self._block(list(texts), plan, 0, lambda done: progress("embedding, texts", done, len(texts)))
        if block.truncated:
            warnings.warn(
                f"{block.truncated:,} of {len(texts):,} texts have more than {self.max_length:,} tokens and were cut",
                TruncationWarning,
                stacklevel=2,
            )
        return block.vectors_ND

    def stream(
        self,
        texts: Iterable[str],
        *,
        pooling: Mode | Sequence[Mode] | None = None,
        normalize: bool | None = None,
        batch_tokens: int = 0,
        layer: int = -1,
        prompt: str | None = None,
        total: int | None = None,
        progress: Progress = quiet,
    ) -> Iterator[Block]:
        """`encode` for any number of texts in constant memory: blocks in the order of the texts, which may be a generator.

        Some thousands of texts are sorted by length at a time. `total` is the number of texts, where it is known, for
        `progress`. What was cut is counted in each block; nothing is warned of.
        """
        plan = self._plan(pooling, normalize, batch_tokens, layer, prompt)
        return self._blocks(iter(texts), plan, total, progress)

    def _blocks(self, texts: Iterator[str], plan: _Plan, total: int | None, progress: Progress) -> Iterator[Block]:
        before = 0
        for window in _windows(texts):

            def tell(done: int, before: int = before) -> None:
                progress("embedding, texts", before + done, total)

            yield self._block(window, plan, before, tell)
            before += len(window)
        progress("embedding, texts", before, before)

    def _block(self, texts: list[str], plan: _Plan, before: int, tell: Callable[[int], None]) -> Block:
        _require_texts(texts, before)
        tokens = self._texts.encode(texts, plan.prompt)
        vectors_ND, done = np.empty((0, self.hidden_size * len(plan.pooling.modes)), np.float32), 0
        if texts:
            tell(0)
        for chosen in token_batches(tokens.lengths_N, plan.batch_tokens):
            found = self.backend.pooled(TokenBatch(*tokens.gather(chosen)), plan.pooling, plan.layer)
            if not done:
                vectors_ND = np.empty((len(texts), found.shape[1]), np.float32)
            vectors_ND[chosen] = found
            done += len(chosen)
            tell(done)
        _require_finite(vectors_ND, before)
        if plan.normalize:  # 1e-12 is where torch's F.normalize stops too
            vectors_ND /= np.maximum(np.linalg.norm(vectors_ND, axis=1, keepdims=True), 1e-12)
        return Block(vectors_ND, len(tokens.ids_T), tokens.truncated)

    def _plan(
        self,
        pooling: Mode | Sequence[Mode] | None,
        normalize: bool | None,
        batch_tokens: int,
        layer: int,
        prompt: str | None,
    ) -> _Plan:
        layers = self.backend.num_layers
        if not -layers - 1 <= layer <= layers:
            raise UnmaskError(f"there is no layer {layer}", where="layer", do=f"give {-layers - 1} … {layers}")
        if batch_tokens < 0:
            raise UnmaskError(f"batch_tokens is {batch_tokens}", where="batch_tokens", do="give 1 or more, or 0")
        asked = prompt if prompt is not None else self._layout.default_prompt
        how = Pooling.of(self._layout.pooling if pooling is None else pooling)
        if not self._layout.include_prompt:
            how = replace(how, skip=self._texts.prompt_length(asked))
        unit = self._layout.normalize if normalize is None else normalize
        return _Plan(how, unit, batch_tokens or self.backend.batch_tokens, layer % (layers + 1), asked)


def _require_device(device: str, backend: str) -> None:
    if device not in ("auto", "cpu", "cuda"):
        raise UnmaskError(f"unknown device {device!r}", where="device", do="give auto, cpu or cuda")
    if device == "cuda" and backend == "onnx":
        raise UnmaskError("a graph is computed on the CPU only", where="device", do="give cpu, or the torch backend")


def fitting_tokenizer(folder: Path, config: EncoderConfig) -> Tokenizer:
    """A model folder's tokenizer; UnmaskError where there is none, and where it has ids that the model has no rows for."""
    if not has_tokenizer(folder):
        raise UnmaskError(
            "the folder has no tokenizer", where=str(folder), do="copy the model's tokenizer.json into it"
        )
    tokenizer, rows = Tokenizer.load(folder), config.vocab_size
    if tokenizer.vocab_size > rows:
        raise UnmaskError(
            f"the tokenizer has {tokenizer.vocab_size:,} ids, but the model only {rows:,} rows",
            where=str(folder),
            do="use the tokenizer the model was trained with",
        )
    return tokenizer


def _text_encoder(config: EncoderConfig, layout: SentenceLayout) -> TextEncoder:
    tokenizer = fitting_tokenizer(layout.model_folder, config)
    limit = config.max_position_embeddings
    return TextEncoder(tokenizer, min(layout.max_length or limit, limit), lowercase=layout.lowercase)


def _windows(texts: Iterator[str]) -> Iterator[list[str]]:
    """Consecutive texts, as many as the memory bounds allow."""
    window: list[str] = []
    characters = 0
    for text in texts:
        window.append(text)
        characters += len(text) if isinstance(text, str) else 0
        if len(window) == WINDOW_TEXTS or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def _require_texts(texts: Sequence[object], before: int) -> None:
    if set(map(type, texts)) <= {str}:
        return
    for at, text in enumerate(texts, before):
        if not isinstance(text, str):
            raise UnmaskError(
                f"text {at}, counted from 0, is a {type(text).__name__}, not a string", do="give strings only"
            )


def _require_finite(vectors_ND: Vectors, before: int) -> None:
    wrong = ~np.isfinite(vectors_ND).all(1)
    if wrong.any():
        raise UnmaskError(
            f"the model answers text {before + int(wrong.argmax())}, counted from 0, with NaN or infinity",
            do="use an earlier checkpoint of the model; its weights have grown too large",
        )
