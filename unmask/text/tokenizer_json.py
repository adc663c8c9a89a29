"""The document tokenizer.json as a value: checked with suspicion, its special tokens found, made into a tokenizer.

`build` turns the library's panics (which are no `Exception`) into errors a person can read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import tokenizers

from unmask.errors import UnmaskError
from unmask.text.families import BERT_SPECIALS, END_OF_TEXT, ROBERTA_SPECIALS
from unmask.text.vocabulary import ROLES, Role

ModelKind = Literal["wordpiece", "bpe", "unigram"]
KINDS: dict[str, ModelKind] = {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram"}

DO_GET_ANOTHER = "Take the folder from its source again, or choose another tokenizer."
CHECK_TEXT = "Take that text out, or clean it first; if it looks fine to you, please report it."
_USUAL: dict[Role, tuple[str, ...]] = {
    role: (BERT_SPECIALS[role], ROBERTA_SPECIALS[role], *((END_OF_TEXT,) if role == "sep" else ())) for role in ROLES
}

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
        r"\s{2,}|[\n\r\t]",
    )
)
_PLAIN_PATTERN = re.compile(
    r"(\\[pP]\{\^?\w+\}|\\[^pP]|[^\\\[\](){}]|\[\^?(\\[pP]\{\^?\w+\}|\\[^pP]|[^\\\[\]&{}])+\])([*+?]|\{\d+(,\d*)?\})?"
)


@contextmanager
def without_panic(what: str, do: str = DO_GET_ANOTHER) -> Iterator[None]:
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


def special_tokens(content: dict[str, Any], config: Mapping[str, Any]) -> dict[str, str]:
    """The special tokens there are, as {"pad": "[PAD]", ...}: as configured, else by their usual spellings.

    A separator may be called "eos_token". An unknown token that is the separator too (GPT-2) counts as none. So does a
    [CLS] that nobody configured and that the frame does not use.
    """
    vocabulary = pieces_of(content)
    names: dict[str, str] = {}
    for role in ROLES:
        keys = ("sep_token", "eos_token") if role == "sep" else (f"{role}_token",)
        declared = [text for key in keys if (text := token_text(config.get(key))) is not None]
        usual = _USUAL[role] if role != "cls" or _may_frame(content, _USUAL[role]) else ()
        found = [token for token in (*declared, *usual) if token in vocabulary]
        if found:
            names[role] = found[0]
    if "unk" in names and names["unk"] == names.get("sep"):
        del names["unk"]
    return names


def sentinel_tokens(pieces: Mapping[str, int]) -> list[str]:
    """<extra_id_0>, <extra_id_1> … as far as they go."""
    found: list[str] = []
    while (token := f"<extra_id_{len(found)}>") in pieces:
        found.append(token)
    return found


def token_text(declared: Any) -> str | None:
    """A token of tokenizer_config.json, where it may be a string or an object."""
    text = declared.get("content") if isinstance(declared, dict) else declared
    return text if isinstance(text, str) else None


def check(content: dict[str, Any], where: str = "") -> None:
    """Refuses what is not a tokenizer of a known kind, ids far beyond the vocabulary, and regexes we can't trust."""
    model = content.get("model")
    if not isinstance(model, dict) or model.setdefault("type", _guess_type(model)) not in KINDS:
        raise UnmaskError(
            "The tokenizer is of no known kind.", where=where, do="Known are WordPiece, BPE and Unigram tokenizers."
        )
    ids = list(pieces_of(content, where).values())
    if not all(type(id) is int and 0 <= id < 4 * len(ids) + 1024 for id in ids):
        raise UnmaskError(f"An id lies outside the {len(ids)} pieces.", where=where, do=DO_GET_ANOTHER)
    for pattern in _patterns(content):
        if pattern not in _KNOWN_PATTERNS and not _PLAIN_PATTERN.fullmatch(pattern):
            raise UnmaskError(
                f"The tokenizer uses a regular expression that is not known to be fast: {pattern[:200]!r}",
                where=where,
                do="If you trust it, report it, so that it is checked and added to the list.",
            )


def declare_specials(content: dict[str, Any], names: Mapping[str, str]) -> None:
    """Sees that all are marked as special: a file that forgets it would let texts forge them."""
    pieces = pieces_of(content)
    added = {token["content"]: token for token in content.get("added_tokens") or ()}
    for token in [*names.values(), *sentinel_tokens(pieces)]:
        added.setdefault(token, added_token(token, pieces[token]))["special"] = True
    content["added_tokens"] = sorted(added.values(), key=lambda token: token["id"])


def added_token(token: str, id: int, *, special: bool = True, lstrip: bool = False) -> dict[str, Any]:
    """An entry of tokenizer.json's added_tokens; it is recognised before any normalisation.

    With `lstrip` it takes the space before it along.
    """
    switches = {"single_word": False, "lstrip": lstrip, "rstrip": False, "normalized": False}
    return {"id": id, "content": token, **switches, "special": special}


def pieces_of(content: dict[str, Any], where: str = "") -> dict[str, int]:
    """Every piece with its id, added ones included."""
    try:
        vocabulary = content["model"]["vocab"]
        pieces = (
            {piece: id for id, (piece, _) in enumerate(vocabulary)} if isinstance(vocabulary, list) else {**vocabulary}
        )
        return pieces | {token["content"]: token["id"] for token in content.get("added_tokens") or ()}
    except (KeyError, TypeError, ValueError) as error:
        raise UnmaskError(f"The vocabulary is damaged: {error}", where=where, do=DO_GET_ANOTHER) from error


def has_charsmap(content: dict[str, Any]) -> bool:
    """Whether text is normalised by SentencePiece's own table."""
    return any(node.get("type") == "Precompiled" for node in _nodes(content))


def _may_frame(content: dict[str, Any], tokens: tuple[str, ...]) -> bool:
    """Whether the frame holds one of the tokens, or there is no frame to tell."""
    frame = content.get("post_processor")
    if not isinstance(frame, dict) or frame.get("type") == "ByteLevel":
        return True
    written = json.dumps(frame)
    return any(json.dumps(token) in written for token in tokens)


def _guess_type(model: dict[str, Any]) -> str:
    """Old files leave the type out."""
    if "merges" in model:
        return "BPE"
    return "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"


def _patterns(content: dict[str, Any]) -> Iterator[str]:
    """Every regex in normalizers, pre-tokenizers and decoders."""
    return (node["Regex"] for node in _nodes(content) if isinstance(node.get("Regex"), str))


def _nodes(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every object outside the vocabularies (there are few)."""
    stack: list[Any] = [{key: value for key, value in content.items() if key not in ("model", "added_tokens")}]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
