"""The fixed parts of the tokenizers we make: how each kind normalises, splits, frames and decodes text.

A `Style` says how text is seen; `frame` puts a model into it and gives the document of tokenizer.json.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from unmask.text.families import FAST, Family, post_processor
from unmask.text.tokenizer_json import added_token

NEVER = -100.0  # score of unigram pieces that text must not spell: worse than any string of ordinary pieces


@dataclass(frozen=True)
class Style:
    """How a family of tokenizers looks at text. In training, text is cut between the two lists of pre-tokenizers."""

    family: Family
    normalizer: Any | None
    before_cut: tuple[Any, ...]
    after_cut: tuple[Any, ...]
    config: dict[str, Any]  # tokenizer_config.json

    def normalise(self, text: str) -> str:
        """The text as the model's pieces spell it."""
        return str(self.normalizer.normalize_str(text)) if self.normalizer else text

    def pre_tokenizer(self) -> Any:
        """The splitter of the finished tokenizer."""
        parts = [*self.before_cut, *self.after_cut]
        return parts[0] if len(parts) == 1 else pre_tokenizers.Sequence(parts)


def style(family: Family, *, lowercase: bool, strip_accents: bool, chinese: bool, digits: bool) -> Style:
    """The look of a family with the choices of a training."""
    single = (pre_tokenizers.Digits(individual_digits=True),) if digits else ()
    folds = lowercase or strip_accents or digits
    config = _config(family, lowercase=lowercase, strip_accents=strip_accents, chinese=chinese, exact=not folds)
    if family.kind in ("wordpiece", "characters"):
        bert = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=chinese, strip_accents=strip_accents, lowercase=lowercase
        )
        normalizer = normalizers.Sequence([normalizers.NFC(), bert])
        return Style(family, normalizer, (), (pre_tokenizers.BertPreTokenizer(), *single), config)
    steps = _steps(family, lowercase=lowercase, strip_accents=strip_accents)
    if family.kind == "bpe":
        pieces = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return Style(family, normalizers.Sequence(steps) if steps else None, (), (*single, pieces), config)
    steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    spaces = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    return Style(family, normalizers.Sequence(steps), (spaces, *single), (), config)


def _steps(family: Family, *, lowercase: bool, strip_accents: bool) -> list[Any]:
    forms: dict[str, list[Any]] = {"": [], "NFC": [normalizers.NFC()], "NFKC": [normalizers.NFKC()]}
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')] if family.latex_quotes else []
    steps += forms[family.form]
    if strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]
    return [*steps, normalizers.Lowercase()] if lowercase else steps


def _config(family: Family, *, lowercase: bool, strip_accents: bool, chinese: bool, exact: bool) -> dict[str, Any]:
    """tokenizer_config.json: the class of transformers that takes or builds the same tokenizer, and its special tokens."""
    tokens: dict[str, Any] = {f"{role}_token": token for role, token in family.tokens.items()}
    if family.kind == "bpe" and "mask" in family.tokens:
        mask = added_token(family.tokens["mask"], 0, lstrip=True)
        tokens["mask_token"] = {"__type": "AddedToken", **{key: mask[key] for key in mask if key != "id"}}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    if family.frame != "cls":
        inputs.remove("token_type_ids")
    sentinels = [token for token in family.special if token not in family.tokens.values()]
    return {
        "tokenizer_class": family.exact_class if family.exact_class and exact else FAST,
        "model_input_names": inputs,
        "clean_up_tokenization_spaces": False,
        "do_lower_case": lowercase,
        "strip_accents": strip_accents,
        "tokenize_chinese_chars": chinese,
        **({"extra_special_tokens": sentinels[::-1]} if sentinels else {}),
        **tokens,
    }


def wordpiece(vocabulary: dict[str, int], look: Style) -> Any:
    """A WordPiece model; words over 100 characters are unknown, as in BERT."""
    return models.WordPiece(vocabulary, unk_token=look.family.tokens["unk"], max_input_chars_per_word=100)


def byte_level(vocabulary: dict[str, int], merges: Sequence[tuple[str, str]]) -> Any:
    """A BPE model over bytes: nothing is unknown to it."""
    return models.BPE(vocabulary, list(merges))


def unigram(scored: Sequence[tuple[str, float]], unk_id: int) -> Any:
    """A unigram language model over pieces with log-probabilities."""
    return models.Unigram(list(scored), unk_id=unk_id, byte_fallback=False)


def frame(model: Any, look: Style, vocabulary: dict[str, int], extra: list[dict[str, Any]]) -> dict[str, Any]:
    """The document of tokenizer.json: model, normaliser, splitter, special tokens around a text or a pair."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = look.normalizer
    tokenizer.pre_tokenizer = look.pre_tokenizer()
    tokenizer.post_processor = post_processor(look.family, vocabulary)
    match look.family.kind:
        case "bpe":
            tokenizer.decoder = decoders.ByteLevel()
        case "unigram":
            tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
        case _:
            tokenizer.decoder = decoders.WordPiece(prefix="##")
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    mask = (
        look.family.tokens.get("mask") if look.family.kind == "bpe" else None
    )  # spaces belong to the words after them
    specials = [added_token(token, vocabulary[token], lstrip=token == mask) for token in look.family.special]
    content["added_tokens"] = sorted([*specials, *extra], key=lambda token: token["id"])
    return content
