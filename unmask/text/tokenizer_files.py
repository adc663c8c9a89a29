"""Tokenizer folders of other people, read with suspicion: JSON, text and protobuf only, no code, no pickle, no slow regex.

A folder becomes two documents, tokenizer.json and tokenizer_config.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.text.families import FAST
from unmask.text.tokenizer_json import DO_GET_ANOTHER, check, declare_specials, has_charsmap, special_tokens
from unmask.text.vocabulary_files import SENTENCEPIECE_FILES, from_byte_level, from_sentencepiece, from_wordpiece

_LARGEST_FILE = 256 << 20  # bytes; the largest published tokenizer.json are near 40 MB


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two documents of a folder, checked; truncation and padding are taken out, they are the caller's business."""
    config = _read_json_if_there(folder / "tokenizer_config.json")
    named = _read_json_if_there(folder / "special_tokens_map.json")
    config |= {key: value for key, value in named.items() if key not in config}
    config.pop("auto_map", None)  # names code to run
    content, config = _content(folder, config)
    check(content, str(folder / "tokenizer.json"))
    content |= {"truncation": None, "padding": None}
    names = special_tokens(content, config)
    if not names:
        raise UnmaskError(
            "The tokenizer has no special token at all.",
            where=str(folder),
            do='Name them in tokenizer_config.json ("sep_token", "mask_token" …), and see that the vocabulary has them.',
        )
    declare_specials(content, names)
    return content, config


def has_tokenizer(folder: Path) -> bool:
    """Whether there is a file in the folder that a tokenizer could be read from."""
    return any(
        (folder / name).is_file() for name in ("tokenizer.json", "vocab.txt", "vocab.json", *SENTENCEPIECE_FILES)
    )


def _content(folder: Path, config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    model = next((folder / name for name in SENTENCEPIECE_FILES if (folder / name).is_file()), None)
    if (folder / "tokenizer.json").is_file():
        content = _read_json(folder / "tokenizer.json")
        if has_charsmap(content):
            config["tokenizer_class"] = FAST  # the class of DeBERTa would build another one, without the table
        return content, config
    if model:
        return from_sentencepiece(model, config, _read_json_if_there(folder / "config.json"))
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return from_byte_level(_read_json(folder / "vocab.json"), folder, config)
    if (folder / "vocab.txt").is_file():
        return from_wordpiece(folder / "vocab.txt", config)
    raise UnmaskError(
        "No tokenizer in this folder.",
        where=str(folder),
        do="It needs tokenizer.json, or vocab.txt (BERT), or vocab.json with merges.txt (RoBERTa, GPT-2), or a "
        f"SentencePiece model ({', '.join(SENTENCEPIECE_FILES)}).",
    )


def _read_json_if_there(path: Path) -> dict[str, Any]:
    return _read_json(path) if path.is_file() else {}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ValueError(f"it has more than {_LARGEST_FILE >> 20} MB")
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UnmaskError(f"{path.name} can't be read: {error}", where=str(path), do=DO_GET_ANOTHER) from error
    if not isinstance(document, dict):
        raise UnmaskError(f"{path.name} holds no JSON object.", where=str(path), do=DO_GET_ANOTHER)
    return document
