"""Folders without tokenizer.json: what the vocabulary files of the published families become.

The rules of each family (what it does to text, which pieces it adds, what it calls them) are those of its published
tokenizer; the result is the pair of documents that `Tokenizer` takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from unmask.errors import UnmaskError
from unmask.text.families import FAMILIES, FAST, SENTINELS, Family, post_processor
from unmask.text.sentencepiece_file import CONTROL, USER_DEFINED, Piece, SentencePieceModel, read_model
from unmask.text.tokenizer_json import DO_GET_ANOTHER, added_token, special_tokens, token_text, without_panic

SENTENCEPIECE_FILES = ("spiece.model", "spm.model", "sentencepiece.bpe.model")
Documents = tuple[dict[str, Any], dict[str, Any]]  # tokenizer.json and tokenizer_config.json
_MOST_SENTINELS = 10_000


def from_wordpiece(file: Path, config: dict[str, Any]) -> Documents:
    """BERT's vocab.txt, with the published defaults where the configuration is silent (lower case, accents with it)."""
    try:
        lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UnmaskError(f"{file.name} can't be read: {error}", where=str(file), do=DO_GET_ANOTHER) from error
    vocabulary = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
    names = special_tokens({"model": {"vocab": vocabulary}}, config)
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=names.get("unk", "[UNK]")))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars", True) is not False,
        strip_accents=config.get("strip_accents") if isinstance(config.get("strip_accents"), bool) else None,
        lowercase=config.get("do_lower_case", True) is not False,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    if {"cls", "sep"} <= names.keys():
        tokenizer.post_processor = post_processor(Family(kind="wordpiece", tokens=names, first=()), vocabulary)
    return _document(tokenizer), {"tokenizer_class": "BertTokenizer"} | config


def from_byte_level(vocabulary: dict[str, Any], folder: Path, config: dict[str, Any]) -> Documents:
    """vocab.json and merges.txt of RoBERTa, DeBERTa (v1) or GPT-2; the special tokens in it tell which."""
    space = config.get("add_prefix_space") is True
    names = special_tokens({"model": {"vocab": vocabulary}}, config)
    with without_panic("vocab.json and merges.txt make no tokenizer"):
        tokenizer = tokenizers.Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    tokenizer.decoder = decoders.ByteLevel()
    family = FAMILIES["gpt2"]
    if {"cls", "sep"} <= names.keys():
        family = FAMILIES["roberta" if names["cls"] == "<s>" else "deberta"]
        framed = Family(kind="bpe", tokens=names, first=(), frame=family.frame)
        tokenizer.post_processor = post_processor(framed, vocabulary, prefix_space=space)
    document = _document(tokenizer)
    if "mask" in names:  # a mask takes the space before it
        document["added_tokens"] = [added_token(names["mask"], vocabulary[names["mask"]], lstrip=True)]
    return document, {"tokenizer_class": family.exact_class} | config


def from_sentencepiece(file: Path, config: dict[str, Any], model_config: dict[str, Any]) -> Documents:
    """A SentencePiece model of ALBERT, T5, DeBERTa (v2, v3), XLM-R or CamemBERT; the configurations must say which.

    The text is normalised by the model's own table, as the pieces were learned; transformers 5 forgets DeBERTa's.
    """
    rules = _rules(file, config, model_config)
    model = read_model(file)
    tokens = rules.family.tokens | {
        role: text for role in rules.family.tokens if (text := token_text(config.get(f"{role}_token")))
    }
    pieces = rules.pieces(model.pieces, tokens, config)
    ids = {piece.text: id for id, piece in enumerate(pieces)}
    missing = sorted({token for token in tokens.values() if token not in ids})
    if missing or len(ids) < len(pieces):
        raise UnmaskError(
            f"The pieces of {file.name} do not fit its family: {', '.join(missing) or 'some'} "
            f"{'lacks' if missing else 'would occur twice'}.",
            where=str(file),
            do="See that tokenizer_config.json names the right tokenizer_class and tokens.",
        )
    with without_panic(f"{file.name} makes no tokenizer"):
        scored = [(piece.text, piece.score) for piece in pieces]
        tokenizer = tokenizers.Tokenizer(models.Unigram(scored, unk_id=ids[tokens["unk"]], byte_fallback=False))
        tokenizer.normalizer = normalizers.Sequence(rules.normalizers(model, config))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [*_splits(rules, config), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
        )
        tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
        tokenizer.post_processor = post_processor(_with_tokens(rules.family, tokens), ids)
    document = _document(tokenizer)
    document["added_tokens"] = _added(pieces, tokens, ids)
    named = {f"{role}_token": token for role, token in tokens.items()}
    return document, config | named | {"tokenizer_class": FAST}  # so that tokenizer.json is taken as it is


# --- what the families with a SentencePiece model do -------------------------------------------------------------------
@dataclass(frozen=True)
class _Rules:
    """`pieces` are those of the file and what the family adds; `normalizers` come before the split at spaces."""

    family: Family
    pieces: Callable[[tuple[Piece, ...], dict[str, str], dict[str, Any]], list[Piece]]
    normalizers: Callable[[SentencePieceModel, dict[str, Any]], list[Any]]
    split_spaces: bool = True


def _rules(file: Path, config: dict[str, Any], model_config: dict[str, Any]) -> _Rules:
    """By the tokenizer's class, else by the model's type, as AutoTokenizer does."""
    for declared in (config.get("tokenizer_class"), model_config.get("model_type")):
        name = str(declared).lower().replace("-", "").replace("_", "").removesuffix("fast").removesuffix("tokenizer")
        if name in _RULES:
            return _RULES[name]
    raise UnmaskError(
        f"Nothing says which family's tokenizer {file.name} is.",
        where=str(file.parent),
        do='Put {"tokenizer_class": "AlbertTokenizer"} (or T5Tokenizer, DebertaV2Tokenizer, XLMRobertaTokenizer, '
        "CamembertTokenizer) into tokenizer_config.json.",
    )


def _own(pieces: tuple[Piece, ...], tokens: dict[str, str], config: dict[str, Any]) -> list[Piece]:
    return list(pieces)


def _with_mask(pieces: tuple[Piece, ...], tokens: dict[str, str], config: dict[str, Any]) -> list[Piece]:
    there = any(piece.text == tokens["mask"] for piece in pieces)
    return [*pieces, *([] if there else [Piece(tokens["mask"], type=CONTROL)])]


def _with_sentinels(pieces: tuple[Piece, ...], tokens: dict[str, str], config: dict[str, Any]) -> list[Piece]:
    count = config.get("extra_ids", len(SENTINELS))
    if type(count) is not int or not 0 <= count <= _MOST_SENTINELS:
        raise UnmaskError(f"extra_ids is {count!r}.", do=f"It must be a whole number up to {_MOST_SENTINELS:,}.")
    return [*pieces, *(Piece(f"<extra_id_{number}>", type=CONTROL) for number in reversed(range(count)))]


def _fairseq(pieces: tuple[Piece, ...], tokens: dict[str, str], config: dict[str, Any]) -> list[Piece]:
    """XLM-R counts its own four tokens first, in place of SentencePiece's three."""
    first = [Piece(tokens[role], type=CONTROL) for role in ("cls", "pad", "sep", "unk")]
    return [*first, *pieces[3:], Piece(tokens["mask"], type=CONTROL)]


def _camembert(pieces: tuple[Piece, ...], tokens: dict[str, str], config: dict[str, Any]) -> list[Piece]:
    """CamemBERT's own tokens come first, two of them unused; SentencePiece's unknown piece is one of the file's no more."""
    names = ("<s>NOTUSED", tokens["pad"], "</s>NOTUSED", tokens["unk"])
    first = [Piece(name, type=CONTROL) for name in names]
    return [*first, Piece("<unk>NOTUSED", -100.0), *pieces[1:], Piece(tokens["mask"], type=CONTROL)]


def _charsmap(model: SentencePieceModel, config: dict[str, Any]) -> list[Any]:
    return [normalizers.Precompiled(model.charsmap)] if model.charsmap else []


def _albert_text(model: SentencePieceModel, config: dict[str, Any]) -> list[Any]:
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if config.get("keep_accents") is not True:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if config.get("do_lower_case", True) is not False:
        steps.append(normalizers.Lowercase())
    return steps + _charsmap(model, config)


def _deberta_text(model: SentencePieceModel, config: dict[str, Any]) -> list[Any]:
    lower = [normalizers.Lowercase()] if config.get("do_lower_case") is True else []
    spaces = normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " ")
    return [*lower, *_charsmap(model, config), spaces, normalizers.NFC(), normalizers.Strip(left=False, right=True)]


_XLM_R = FAMILIES["xlm-roberta"]
_DEBERTA = _Rules(FAMILIES["deberta-v3"], _with_mask, _deberta_text, split_spaces=False)
_T5 = _Rules(FAMILIES["t5"], _with_sentinels, _charsmap)
_RULES = {
    "albert": _Rules(FAMILIES["albert"], _own, _albert_text),
    "debertav2": _DEBERTA,
    "t5": _T5,
    "mt5": _T5,
    "xlmroberta": _Rules(_XLM_R, _fairseq, _charsmap),
    "camembert": _Rules(_XLM_R, _camembert, _charsmap),
}


def _splits(rules: _Rules, config: dict[str, Any]) -> list[Any]:
    if rules.split_spaces:
        return [pre_tokenizers.WhitespaceSplit()]
    return [pre_tokenizers.Punctuation(behavior="isolated")] if config.get("split_by_punct") is True else []


def _with_tokens(family: Family, tokens: dict[str, str]) -> Family:
    return Family(kind=family.kind, tokens=tokens, first=(), frame=family.frame)


def _added(pieces: list[Piece], tokens: dict[str, str], ids: dict[str, int]) -> list[dict[str, Any]]:
    """Control pieces are special; pieces of the user are kept whole wherever they occur."""
    special = {piece.text for piece in pieces if piece.type == CONTROL} | set(tokens.values())
    whole = {piece.text for piece in pieces if piece.type == USER_DEFINED} - special
    added = [added_token(token, ids[token]) for token in special]
    added += [added_token(token, ids[token], special=False) for token in whole]
    return sorted(added, key=lambda token: token["id"])


def _document(tokenizer: tokenizers.Tokenizer) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    return document
