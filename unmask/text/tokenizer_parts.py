"""The fixed parts of the tokenizers we make: how each kind normalises, splits, frames and decodes text.

A `Style` says how text is seen; `frame` puts a model into it and gives the document of tokenizer.json.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from unmask.text.tokenizer_files import BERT_SPECIALS, ROBERTA_SPECIALS, added_token, cls_and_sep

NEVER = -100.0  # score of unigram pieces that text must not spell: worse than any string of ordinary pieces


@dataclass(frozen=True)
class Style:
    """How a kind of tokenizer looks at text. In training, text is cut between the two lists of pre-tokenizers."""

    kind: str
    specials: dict[str, str]
    normalizer: Any
    before_cut: tuple[Any, ...]
    after_cut: tuple[Any, ...]
    tokenize_chinese_chars: bool

    def normalise(self, text: str) -> str:
        """The text as the model's pieces spell it."""
        return str(self.normalizer.normalize_str(text))

    def pre_tokenizer(self) -> Any:
        """The splitter of the finished tokenizer."""
        parts = [*self.before_cut, *self.after_cut]
        return parts[0] if len(parts) == 1 else pre_tokenizers.Sequence(parts)

    def config(self, lowercase: bool, strip_accents: bool) -> dict[str, Any]:
        """tokenizer_config.json: a class that takes tokenizer.json as it is, and the special tokens."""
        names = {f"{name}_token": token for name, token in self.specials.items()}
        inputs = (
            ["input_ids", "attention_mask"] if self.kind == "bpe" else ["input_ids", "token_type_ids", "attention_mask"]
        )
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": inputs,
            "clean_up_tokenization_spaces": False,
            "do_lower_case": lowercase,
            "strip_accents": strip_accents,
            "tokenize_chinese_chars": self.tokenize_chinese_chars,
            **names,
        }


def style(kind: str, *, lowercase: bool, strip_accents: bool, chinese: bool, digits: bool) -> Style:
    """The look of a kind: BERT's for WordPiece and characters, RoBERTa's for BPE, SentencePiece's for unigram."""
    single = (pre_tokenizers.Digits(individual_digits=True),) if digits else ()
    if kind in ("wordpiece", "characters"):
        normalizer = normalizers.Sequence(
            [
                normalizers.NFC(),
                normalizers.BertNormalizer(
                    clean_text=True, handle_chinese_chars=chinese, strip_accents=strip_accents, lowercase=lowercase
                ),
            ]
        )
        return Style(kind, BERT_SPECIALS, normalizer, (), (pre_tokenizers.BertPreTokenizer(), *single), chinese)
    steps: list[Any] = [normalizers.NFC()]
    if strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if kind == "bpe":
        pieces = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return Style(kind, ROBERTA_SPECIALS, normalizers.Sequence(steps), (), (*single, pieces), chinese)
    steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    spaces = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    return Style(kind, BERT_SPECIALS, normalizers.Sequence(steps), (spaces, *single), (), chinese)


def wordpiece(vocabulary: dict[str, int], look: Style) -> Any:
    """A WordPiece model; words over 100 characters are unknown, as in BERT."""
    return models.WordPiece(vocabulary, unk_token=look.specials["unk"], max_input_chars_per_word=100)


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
    match look.kind:
        case "bpe":
            sep, cls = ((look.specials[name], vocabulary[look.specials[name]]) for name in ("sep", "cls"))
            tokenizer.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets=True, add_prefix_space=False)
            tokenizer.decoder = decoders.ByteLevel()
        case "unigram":
            tokenizer.post_processor = cls_and_sep(look.specials, vocabulary)
            tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
        case _:
            tokenizer.post_processor = cls_and_sep(look.specials, vocabulary)
            tokenizer.decoder = decoders.WordPiece(prefix="##")
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    specials = [added_token(token, vocabulary[token]) for token in look.specials.values()]
    content["added_tokens"] = sorted([*specials, *extra], key=lambda token: token["id"])
    return content
