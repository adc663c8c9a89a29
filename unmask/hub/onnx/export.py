"""A model folder to an ONNX folder: traced, written, checked, and given its name only then."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig, Recurrent
from unmask.errors import UnmaskError
from unmask.files import write_folder
from unmask.hub.files import LoadedModel, load_model
from unmask.hub.onnx.graph import Graph, build_graphs, require_head, sentences_of
from unmask.hub.onnx.quantise import quantise
from unmask.hub.onnx.sentences import SENTENCES
from unmask.hub.onnx.session import require_onnx
from unmask.hub.onnx.tasks import task_head_of, task_notes
from unmask.hub.onnx.trace import write_graph
from unmask.hub.onnx.verify import Arrays, padded, verify
from unmask.hub.sentence_layout import MODULES, PROMPTS, read_sentence_layout
from unmask.progress import Progress, quiet
from unmask.text.tokenizer import Tokenizer

FORMAT = {"format": "unmask-onnx", "version": 1}
TEXTS_OF_A_BATCH, LONGEST_TEXT = 16, 128  # in the check of int8
WHAT = "exporting, steps"


@dataclass(frozen=True)
class OnnxReport:
    """What was written, and how near it is to the model."""

    files: tuple[str, ...]
    difference: float  # the worst of fp32, of the largest number of its answer
    cosine: float | None = None  # int8: the least over the texts
    spared: int = 0  # matrix products that int8 left in fp32
    head: str = "none"  # whose logits are in it
    notes: tuple[str, ...] = ()  # what a user of the outputs has to know


def export_onnx(
    folder: Path,
    out: Path,
    *,
    head: str = "auto",
    int8: bool = False,
    texts: Sequence[str] = SENTENCES,
    progress: Progress = quiet,
) -> OnnxReport:
    """Writes `out` with model.onnx, config.json and the tokenizer; `out` may be an older one, which is then replaced.

    `head` adds a head's logits to the hidden states: mlm, causal, rtd, nsp, sop; infill writes encoder_model.onnx and
    decoder_model.onnx. Of a task's head (classify, also a cross-encoder's; tag; answer) the outputs are its logits alone, and
    config.json names the labels. "auto" is the task's head of a fine-tuned folder, "none" elsewhere. The files are loaded
    again and compared with our own answers. `int8` writes the quantised form of the encoder, if the vectors of `texts` stay
    what they are. When anything fails, `out` is as before. Raises UnmaskError and DamagedError.
    """
    require_onnx()
    layout = read_sentence_layout(folder)
    loaded = load_model(layout.model_folder)
    _require_attention(loaded, folder)
    head = task_head_of(loaded) if head == "auto" else head
    require_head(loaded, head, folder)
    if int8 and head != "none":
        raise UnmaskError(
            "int8 is for hidden states: what it does to a head's logits is not checked",
            do="leave --int8 away, or give --head none",
        )
    batches = _text_batches(loaded, texts, layout.model_folder) if int8 else []
    graphs = build_graphs(loaded, head, sentences_of(layout, folder))
    about = {**FORMAT, "precision": "int8" if int8 else "fp32", "head": head}
    steps = 2 * len(graphs) + int8
    with write_folder(out, replace=True, about=about) as temporary:
        worst = _write_checked(graphs, loaded.config, temporary, lambda done: progress(WHAT, done, steps))
        report = OnnxReport(tuple(g.file for g in graphs), worst, head=head, notes=task_notes(loaded, head))
        if int8:
            progress(WHAT, steps - 1, steps)
            report = _in_int8(temporary, report, batches, progress)
        _copy_beside(folder, layout.model_folder, temporary, loaded, head)
        progress(WHAT, steps, steps)
    return report


def _require_attention(loaded: LoadedModel, where: Path) -> None:
    """How many words a text has depends on its tokens, and sizes of a graph may not."""
    if isinstance(loaded.config.layer, Recurrent):
        raise UnmaskError(
            "a recurrent network that makes words of characters can't be written as a graph",
            where=str(where),
            do="use the folder with unmask",
        )


def _write_checked(graphs: Sequence[Graph], config: EncoderConfig, folder: Path, done: Callable[[int], None]) -> float:
    """Writes the graphs and compares each with the model: the worst difference. Two steps a graph."""
    worst = 0.0
    for number, graph in enumerate(graphs):
        done(2 * number)
        write_graph(graph, config, folder / graph.file)
        done(2 * number + 1)
        worst = max(worst, verify(graph, config, folder / graph.file))
    return worst


def _in_int8(folder: Path, report: OnnxReport, batches: Sequence[Arrays], progress: Progress) -> OnnxReport:
    """Puts the quantised graph in the place of the other."""
    whole, small = folder / "model.onnx", folder / "small.onnx"
    cosine, spared = quantise(whole, small, batches, progress)
    whole.unlink()
    (folder / "model.onnx.data").unlink(missing_ok=True)
    small.replace(whole)  # tensors that stand beside it keep their file's name, which stands inside
    return replace(report, cosine=cosine, spared=spared)


def _copy_beside(folder: Path, model_folder: Path, target: Path, loaded: LoadedModel, head: str) -> None:
    """config.json, the tokenizer, and how a sentence-transformers folder makes its vectors."""
    shutil.copyfile(model_folder / "config.json", target / "config.json")
    if head in ("classify", "tag") and "id2label" not in loaded.settings:
        names = {str(at): label for at, label in enumerate(loaded.labels)}
        numbers = {label: at for at, label in enumerate(loaded.labels)}
        _write_json(target / "config.json", loaded.settings | {"id2label": names, "label2id": numbers})
    if loaded.tokenizer_folder is not None:
        Tokenizer.load(loaded.tokenizer_folder).save(target)
    if (folder / MODULES).is_file():
        _write_sentence_layout(folder, target, loaded.config.hidden_size)


def _write_sentence_layout(folder: Path, target: Path, hidden_size: int) -> None:
    """The files of sentence-transformers that say how `folder` makes vectors of hidden states."""
    layout = read_sentence_layout(folder)
    kinds = ("Transformer", "Pooling", "Normalize")[: 2 + layout.normalize]
    places = dict(zip(kinds, ("", "1_Pooling", "2_Normalize"), strict=False))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(places.items())
    ]
    (target / "1_Pooling").mkdir()
    pooling = {
        "word_embedding_dimension": hidden_size,
        "pooling_mode": layout.pooling[0] if len(layout.pooling) == 1 else list(layout.pooling),
        "include_prompt": layout.include_prompt,
    }
    _write_json(target / MODULES, modules)
    _write_json(target / "1_Pooling" / "config.json", pooling)
    _write_json(
        target / "sentence_bert_config.json", {"max_seq_length": layout.max_length, "do_lower_case": layout.lowercase}
    )
    if (folder / PROMPTS).is_file():
        shutil.copyfile(folder / PROMPTS, target / PROMPTS)


def _write_json(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _text_batches(loaded: LoadedModel, texts: Sequence[str], folder: Path) -> list[Arrays]:
    """Texts as a graph takes them, in batches of mixed lengths."""
    if loaded.tokenizer_folder is None:
        raise UnmaskError(
            "int8 is checked on texts, and the folder has no tokenizer",
            where=str(folder),
            do="copy the model's tokenizer.json into it",
        )
    tokenizer = Tokenizer.load(loaded.tokenizer_folder)
    begin, end = ([i] if i is not None else [] for i in (tokenizer.cls_token_id, tokenizer.sep_token_id))
    room = min(LONGEST_TEXT, loaded.config.max_position_embeddings) - len(begin) - len(end)
    rows = [[*begin, *map(int, encoded.ids[:room]), *end] for encoded in tokenizer.encode(list(texts))]
    rows = [row for row in rows if row]
    if not rows:
        raise UnmaskError("int8 is checked on texts, and none has a token", do="give texts of the model's own language")
    parts = [rows[at : at + TEXTS_OF_A_BATCH] for at in range(0, len(rows), TEXTS_OF_A_BATCH)]
    batches = [padded(PackedBatch.pack(part)) for part in parts]
    return [{name: np.ascontiguousarray(array) for name, array in batch.items()} for batch in batches]
