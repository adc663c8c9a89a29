"""What sentence-transformers keeps around a model: where it lies, how its states become one vector, its prompts.

Only JSON is read. A module that is not the library's own would be code to run, so the folder is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.files import safe_join
from unmask.hub.configs import LONGEST_JSON, read_json

MODULES, PROMPTS, LENGTH = "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"
THEIRS = "sentence_transformers."

# The switches of older 1_Pooling/config.json, in the order in which their vectors stand side by side.
SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class SentenceLayout:
    """How a folder wants its vectors made. A folder without modules.json says nothing: the mean over all tokens, as it is."""

    model_folder: Path
    pooling: tuple[str, ...] = ("mean",)
    include_prompt: bool = True  # False: the prompt's tokens steer the others but are not pooled
    normalize: bool = False  # to length 1
    max_length: int | None = None  # tokens of a text, special ones included; None: what model and tokenizer allow
    lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str = ""  # put before every text unless another is given


def read_sentence_layout(folder: Path) -> SentenceLayout:
    """Reads modules.json and what it names; any model folder may be asked.

    Raises UnmaskError for modules that are code of others or that unmask has no counterpart of, for names that lead out
    of the folder, and for settings of the wrong kind.
    """
    if not (folder / MODULES).is_file():
        return _with_length(SentenceLayout(folder))
    modules = _modules(folder)
    kinds = [kind for kind, _ in modules]
    if kinds not in (["Transformer"], ["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UnmaskError(
            f"this model is made of {', '.join(kinds) or 'nothing'}; unmask computes Transformer, Pooling, Normalize",
            where=str(folder / MODULES),
            do="choose a model without further layers: left out, they would give wrong vectors",
        )
    places = dict(modules)
    modes, include_prompt = _pooling(places["Pooling"]) if "Pooling" in places else (("mean",), True)
    prompts, default = _prompts(folder)
    layout = SentenceLayout(
        places["Transformer"], modes, include_prompt, "Normalize" in places, prompts=prompts, default_prompt=default
    )
    return _with_length(layout)


def write_sentence_layout(layout: SentenceLayout, hidden_size: int) -> None:
    """Writes modules.json and what it names into `layout.model_folder`, in the spelling that all versions of
    sentence-transformers read. `default_prompt` must be one of the prompts or empty."""
    folder = layout.model_folder
    assert [mode for mode in SWITCHES.values() if mode in layout.pooling] == list(layout.pooling), "in their order"
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), *([("Normalize", "2_Normalize")] * layout.normalize)]
    _write_json(
        folder / MODULES,
        [
            {"idx": at, "name": str(at), "path": path, "type": f"{THEIRS}models.{kind}"}
            for at, (kind, path) in enumerate(kinds)
        ],
    )
    (folder / "1_Pooling").mkdir(exist_ok=True)
    switches = {switch: mode in layout.pooling for switch, mode in SWITCHES.items()}
    width = {"word_embedding_dimension": hidden_size}
    _write_json(folder / "1_Pooling" / "config.json", {**width, **switches, "include_prompt": layout.include_prompt})
    _write_json(folder / LENGTH, {"max_seq_length": layout.max_length, "do_lower_case": layout.lowercase})
    default = (
        {text: name for name, text in layout.prompts.items()}[layout.default_prompt] if layout.default_prompt else None
    )
    prompts = {"prompts": dict(layout.prompts), "default_prompt_name": default}
    _write_json(folder / PROMPTS, {"model_type": "SentenceTransformer", **prompts, "similarity_fn_name": "cosine"})


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """(class, folder) of each module, in order."""
    where = folder / MODULES
    found = []
    for entry in _entries(where):
        kind, path = (entry.get("type"), entry.get("path")) if isinstance(entry, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(path, str):
            raise UnmaskError("a module has no type or no path", where=str(where), do="use a copy that is whole")
        if not kind.startswith(THEIRS):
            raise UnmaskError(
                f"the module {ascii(kind)[:80]} is code of somebody, and no code of a model folder is ever run",
                where=str(where),
                do="choose a model that needs none",
            )
        found.append((kind.rpartition(".")[2], safe_join(folder, path) if path else folder))
    return found


def _entries(path: Path) -> list[Any]:
    """modules.json is a list, unlike every other JSON file of a model."""
    with open(path, "rb") as file:
        text = file.read(LONGEST_JSON + 1)
    try:
        listed = json.loads(text) if len(text) <= LONGEST_JSON else None
    except (ValueError, RecursionError):
        listed = None
    if not isinstance(listed, list):
        raise UnmaskError(f"{path.name} holds no JSON list", where=str(path), do="use a copy that is whole")
    return listed


def _pooling(folder: Path) -> tuple[tuple[str, ...], bool]:
    settings = read_json(folder / "config.json")
    modes = settings.get("pooling_mode")
    if modes is None:
        modes = [mode for switch, mode in SWITCHES.items() if settings.get(switch) is True] or ["mean"]
    names = [modes] if isinstance(modes, str) else modes
    if not isinstance(names, list) or not all(name in SWITCHES.values() for name in names) or not names:
        raise UnmaskError(
            f"unknown pooling {ascii(modes)[:80]}",
            where=str(folder / "config.json"),
            do=f"known are {', '.join(SWITCHES.values())}",
        )
    return tuple(names), settings.get("include_prompt") is not False


def _prompts(folder: Path) -> tuple[dict[str, str], str]:
    if not (folder / PROMPTS).is_file():
        return {}, ""
    settings = read_json(folder / PROMPTS)
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise UnmaskError("the prompts are not texts", where=str(folder / PROMPTS), do="use a copy that is whole")
    if default is not None and default not in list(prompts):
        raise UnmaskError(
            f"the default prompt {ascii(default)[:80]} is none of the prompts",
            where=str(folder / PROMPTS),
            do=f"the prompts are: {', '.join(prompts) or 'none'}",
        )
    return prompts, "" if default is None else prompts[default]


def _with_length(layout: SentenceLayout) -> SentenceLayout:
    """With what sentence_bert_config.json, or else the tokenizer, says of the length; both may be silent."""
    settings, tokenizer = (_read_if_there(layout.model_folder / name) for name in (LENGTH, "tokenizer_config.json"))
    limits = (settings.get("max_seq_length"), tokenizer.get("model_max_length"))
    length = next((limit for limit in limits if _is_length(limit)), None)
    return replace(layout, max_length=length, lowercase=settings.get("do_lower_case") is True)


def _read_if_there(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _is_length(limit: object) -> bool:
    """transformers writes 10³⁰ for "any"."""
    return isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit < 1 << 31


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
