"""Tokenizer folders of other people, read with suspicion: JSON and text only, no code, no pickle, no slow regex.

A folder becomes two documents, tokenizer.json and tokenizer_config.json. `build` makes a `tokenizers.Tokenizer` of the
first and turns the library's panics (which are no `Exception`) into errors a person can read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from unmask.errors import UnmaskError

Kind = Literal["wordpiece", "bpe", "unigram"]
KINDS: dict[str, Kind] = {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram"}

BERT_SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_SPECIALS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
_LARGEST_FILE = 256 << 20  # bytes; the largest published tokenizer.json are near 40 MB
_DO_GET_ANOTHER = "Take the folder from its source again, or choose another tokenizer."

# Patterns of published tokenizers; each was read and runs in linear time. Anything else has to be plain: one character or
# class, perhaps repeated.
_KNOWN_PATTERNS = frozenset(
    (
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+",
        r"\w+|[^\w\s]+",
    )
)
_PLAIN_PATTERN = re.compile(
    r"(\\[pP]\{\^?\w+\}|\\[^pP]|[^\\\[\](){}]|\[\^?(\\[pP]\{\^?\w+\}|\\[^pP]|[^\\\[\]&{}])+\])([*+?]|\{\d+(,\d*)?\})?"
)


CHECK_TEXT = "Take that text out, or clean it first; if it looks fine to you, please report it."


@contextmanager
def without_panic(what: str, do: str = _DO_GET_ANOTHER) -> Iterator[None]:
    """Turns whatever the tokenizers library raises, panics included, into an UnmaskError that begins with `what`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, UnmaskError):
        raise
    except BaseException as error:
        raise UnmaskError(f"{what}: {type(error).__name__}: {str(error)[:300]}", do=do) from error


def build(content: bytes) -> tokenizers.Tokenizer:
    """A new instance from the bytes of tokenizer.json, tried out once."""
    with without_panic("tokenizer.json makes no tokenizer"):
        tokenizer = tokenizers.Tokenizer.from_str(content.decode())
        tokenizer.encode_batch(["", "a b", "A1, 的。\u0301 \U0001f642" + "a" * 64 + "!"], add_special_tokens=False)
    return tokenizer


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two documents of a folder, checked; truncation and padding are taken out, they are the caller's business."""
    config = _read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    if (folder / "special_tokens_map.json").is_file():
        config |= {
            key: value for key, value in _read_json(folder / "special_tokens_map.json").items() if key not in config
        }
    config.pop("auto_map", None)  # names code to run
    if (folder / "tokenizer.json").is_file():
        content = _read_json(folder / "tokenizer.json")
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        content = _roberta(folder, config)
    elif (folder / "vocab.txt").is_file():
        content = _bert(folder, config)
    else:
        raise UnmaskError(
            "No tokenizer in this folder.",
            where=str(folder),
            do="It needs tokenizer.json, or vocab.txt (BERT), or vocab.json with merges.txt (RoBERTa).",
        )
    _check(content, folder)
    content |= {"truncation": None, "padding": None}
    _declare_specials(content, special_tokens(content, config))
    return content, config


def special_tokens(content: dict[str, Any], config: dict[str, Any]) -> dict[str, str]:
    """The five special tokens, as {"pad": "[PAD]", ...}: as configured, else by their usual spellings."""
    vocabulary = _pieces(content)
    names: dict[str, str] = {}
    for name in BERT_SPECIALS:
        declared = config.get(f"{name}_token")
        declared = declared.get("content") if isinstance(declared, dict) else declared
        usual = [BERT_SPECIALS[name], ROBERTA_SPECIALS[name]]
        found = [token for token in [declared, *usual] if isinstance(token, str) and token in vocabulary]
        if not found:
            raise UnmaskError(
                f"The tokenizer has no {name} token (neither {usual[0]} nor {usual[1]}).",
                do=f'Name it in tokenizer_config.json as "{name}_token", and see that the vocabulary has it.',
            )
        names[name] = found[0]
    return names


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ValueError(f"it has more than {_LARGEST_FILE >> 20} MB")
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UnmaskError(f"{path.name} can't be read: {error}", where=str(path), do=_DO_GET_ANOTHER) from error
    if not isinstance(document, dict):
        raise UnmaskError(f"{path.name} holds no JSON object.", where=str(path), do=_DO_GET_ANOTHER)
    return document


def _check(content: dict[str, Any], folder: Path) -> None:
    """Refuses what is not a tokenizer of a known family, ids far beyond the vocabulary, and regexes we can't trust."""
    where = str(folder / "tokenizer.json")
    model = content.get("model")
    if not isinstance(model, dict) or model.setdefault("type", _guess_type(model)) not in KINDS:
        raise UnmaskError(
            "The tokenizer is of no known kind.", where=where, do="Known are WordPiece, BPE and Unigram tokenizers."
        )
    ids = list(_pieces(content, where).values())
    if not all(type(id) is int and 0 <= id < 4 * len(ids) + 1024 for id in ids):
        raise UnmaskError(f"An id lies outside the {len(ids)} pieces.", where=where, do=_DO_GET_ANOTHER)
    for pattern in _patterns(content):
        if pattern not in _KNOWN_PATTERNS and not _PLAIN_PATTERN.fullmatch(pattern):
            raise UnmaskError(
                f"The tokenizer uses a regular expression that is not known to be fast: {pattern[:200]!r}",
                where=where,
                do="If you trust it, report it, so that it is checked and added to the list.",
            )


def _guess_type(model: dict[str, Any]) -> str:
    """Old files leave the type out."""
    if "merges" in model:
        return "BPE"
    return "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"


def _pieces(content: dict[str, Any], where: str = "") -> dict[str, int]:
    """Every piece with its id, added ones included."""
    try:
        vocabulary = content["model"]["vocab"]
        pieces = (
            {piece: id for id, (piece, _) in enumerate(vocabulary)} if isinstance(vocabulary, list) else {**vocabulary}
        )
        return pieces | {token["content"]: token["id"] for token in content.get("added_tokens") or ()}
    except (KeyError, TypeError, ValueError) as error:
        raise UnmaskError(f"The vocabulary is damaged: {error}", where=where, do=_DO_GET_ANOTHER) from error


def _patterns(node: Any) -> Iterator[str]:
    """Every regex in normalizers, pre-tokenizers and decoders (outside vocabularies there are few nodes)."""
    stack = [{key: value for key, value in node.items() if key not in ("model", "added_tokens")}]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(node.get("Regex"), str):
                yield node["Regex"]
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def _declare_specials(content: dict[str, Any], names: dict[str, str]) -> None:
    """Sees that the five are marked as special: a file that forgets it would let texts forge them."""
    pieces = _pieces(content)
    added = {token["content"]: token for token in content.get("added_tokens") or ()}
    for token in names.values():
        added.setdefault(token, added_token(token, pieces[token]))["special"] = True
    content["added_tokens"] = sorted(added.values(), key=lambda token: token["id"])


def added_token(token: str, id: int, *, special: bool = True) -> dict[str, Any]:
    """An entry of tokenizer.json's added_tokens; it is recognised before any normalisation."""
    switches = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": id, "content": token, **switches, "special": special}


def _bert(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """BERT's vocab.txt, with the published defaults where the configuration is silent (lower case, accents with it)."""
    try:
        lines = (folder / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UnmaskError(f"vocab.txt can't be read: {error}", where=str(folder), do=_DO_GET_ANOTHER) from error
    vocabulary = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
    names = special_tokens({"model": {"vocab": vocabulary}}, config)
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=names["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars", True) is not False,
        strip_accents=config.get("strip_accents") if isinstance(config.get("strip_accents"), bool) else None,
        lowercase=config.get("do_lower_case", True) is not False,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.post_processor = cls_and_sep(names, vocabulary)
    config.setdefault("tokenizer_class", "BertTokenizer")
    return _document(tokenizer)


def _roberta(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """RoBERTa's vocab.json and merges.txt."""
    vocabulary = _read_json(folder / "vocab.json")
    space = config.get("add_prefix_space") is True
    names = special_tokens({"model": {"vocab": vocabulary}}, {**config})
    with without_panic("vocab.json and merges.txt make no tokenizer"):
        tokenizer = tokenizers.Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    tokenizer.decoder = decoders.ByteLevel()
    sep, cls = ((names[name], vocabulary[names[name]]) for name in ("sep", "cls"))
    tokenizer.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets=True, add_prefix_space=space)
    config.setdefault("tokenizer_class", "RobertaTokenizer")
    document = _document(tokenizer)
    mask = added_token(names["mask"], vocabulary[names["mask"]])
    document["added_tokens"] = [{**mask, "lstrip": True}]  # RoBERTa's mask takes the space before it
    return document


def cls_and_sep(names: dict[str, str], vocabulary: dict[str, int]) -> processors.TemplateProcessing:
    """BERT's frame: [CLS] A [SEP] with type 0, then B [SEP] with type 1."""
    cls, sep = names["cls"], names["sep"]
    return processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )


def _document(tokenizer: tokenizers.Tokenizer) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    return document
