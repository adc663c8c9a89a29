"""Learning a tokenizer from text: WordPiece, byte-level BPE, unigram and Chinese characters.

The pieces come from the trainers of the library `tokenizers`; this module decides what they get to see, so that the same
text gives the same tokenizer, byte for byte, in any order of documents and with any number of threads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from unmask.errors import UnmaskError
from unmask.progress import Progress, quiet
from unmask.text.families import FAMILIES, PLAIN, Family, Kind, Like
from unmask.text.tokenizer import Tokenizer
from unmask.text.tokenizer_json import added_token, without_panic
from unmask.text.tokenizer_parts import NEVER, Style, byte_level, frame, style, unigram, wordpiece
from unmask.text.training_text import CUT, Characters, Preparation, Sample, collect, count_characters, prepared
from unmask.text.unigram import estimate_scores


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """How to learn a tokenizer. Nothing is changed in the text that is not switched on here, but Unicode form (NFC).

    like: a published family: kind, special tokens and their order, vocab_size, Unicode form, case and frame are its own
        where nothing else is said here.
    kind: "wordpiece" (BERT), "bpe" (RoBERTa, byte-level), "unigram" (like SentencePiece) or "characters" (BERT Chinese:
        WordPiece in which each hanzi is a token, and every character of the text has one).
    vocab_size: pieces in all, special tokens included; fewer when the text has no more to learn. Default: the family's,
        else 30,000.
    lowercase, strip_accents: default: as the family does, else off.
    strip_accents: also takes the voicing marks off kana, so it is off unless asked for.
    tokenize_chinese_chars: WordPiece only; off: a run of hanzi is one word.
    individual_digits: no piece ever holds two digits.
    limit_alphabet: most different characters to keep; default: a quarter of vocab_size, for "characters" all. Rarer ones
        become the unknown token (a byte-level tokenizer needs no alphabet).
    max_word_length: longer words, in characters, teach nothing and are counted.
    max_bytes: of UTF-8 text to learn from; of more text, a fair sample is taken.
    extra_tokens: kept whole wherever they occur, before any normalisation ("[NUM]", say).
    """

    like: Like | None = None
    kind: Kind | None = None
    vocab_size: int | None = None
    lowercase: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    individual_digits: bool = False
    min_frequency: int = 2
    limit_alphabet: int | None = None
    max_word_length: int = 200
    max_bytes: int = 256 << 20
    extra_tokens: tuple[str, ...] = ()


@dataclass
class TrainReport:
    """What a training saw and made."""

    kind: str
    asked: int
    vocab_size: int = 0
    texts: int = 0
    characters: int = 0
    bytes_read: int = 0
    bytes_used: int = 0
    long_words: int = 0  # left out for their length, occurrences
    alphabet: int = 0  # different characters with a token (bytes for byte-level BPE)
    rare_characters: int = 0  # different characters without one
    rare_examples: str = ""
    coverage: float = 1.0  # share of the characters in the text that have a token
    seconds: float = field(default=0.0, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def train(
    texts: Iterable[str], options: TrainOptions | None = None, progress: Progress = quiet
) -> tuple[Tokenizer, TrainReport]:
    """Learns a tokenizer; reads `texts` once, as a stream. Raises UnmaskError when it can't keep to the options."""
    options = options or TrainOptions()
    family = _family(options)
    began = time.perf_counter()
    sample = collect(texts, options.max_bytes, progress)
    look = style(
        family,
        lowercase=family.lowercase,
        strip_accents=family.strip_accents,
        chinese=options.tokenize_chinese_chars or family.kind == "characters",
        digits=options.individual_digits,
    )
    progress("counting characters", 0, None)
    characters = count_characters(map(look.normalise, sample))
    progress("counting characters", 1, 1)
    kept, rare = _alphabet(characters, family, options.limit_alphabet)
    report = _report(sample, characters, kept, rare, family)
    prepare = Preparation(options.max_word_length, set(rare), cut_hanzi=family.kind in ("bpe", "unigram"))
    progress("learning pieces", 0, None)
    match family.kind:
        case "bpe":
            content = _bpe(sample, look, prepare, options)
        case "unigram":
            content = _unigram(sample, look, prepare, options, len(kept))
        case _:
            content = _wordpiece(sample, look, prepare, options, _entries(characters, kept))
    tokenizer = Tokenizer(content, look.config)
    report.vocab_size, report.long_words = tokenizer.vocab_size, prepare.long_words
    report.seconds = time.perf_counter() - began
    progress("learning pieces", 1, 1)
    return tokenizer, report


def _family(options: TrainOptions) -> Family:
    """The family asked for, with what the options change of it."""
    if options.like and options.kind not in (None, FAMILIES[options.like].kind):
        raise UnmaskError(
            f"A tokenizer like {options.like} is of kind {FAMILIES[options.like].kind}, not {options.kind}.",
            do="Give one of the two, like or kind.",
        )
    family = FAMILIES[options.like] if options.like else PLAIN[options.kind or "wordpiece"]
    chosen = {name: getattr(options, name) for name in ("vocab_size", "lowercase", "strip_accents")}
    family = replace(family, **{name: value for name, value in chosen.items() if value is not None})
    numbers = {name: getattr(options, name) for name in ("min_frequency", "max_word_length", "max_bytes")}
    for name, number in ({"vocab_size": family.vocab_size} | numbers).items():
        if number < 1:
            raise UnmaskError(f"{name} = {number} is too small.", do=f"Give {name} at least 1.")
    for token in options.extra_tokens:
        if not token.strip():
            raise UnmaskError("An extra token is blank.", do="Leave it out.")
    return family


def _alphabet(characters: Characters, family: Family, limit: int | None) -> tuple[list[int], list[int]]:
    """Code points that get a token, and those that don't."""
    ranked = characters.ranked()
    if not ranked:
        raise UnmaskError("There is no text to learn from.", do="Check the paths and fields of the sources.")
    if family.kind == "bpe":
        return ranked, []
    if limit is None:
        limit = len(ranked) if family.kind == "characters" else max(64, family.vocab_size // 4)
    return ranked[:limit], ranked[limit:]


def _entries(characters: Characters, kept: list[int]) -> list[str]:
    """Single characters of a WordPiece vocabulary: each as the beginning of a word, and inside one if it occurs there."""
    return [chr(code) for code in sorted(kept)] + [f"##{chr(code)}" for code in sorted(kept) if characters.inner[code]]


def _room(needed: int, family: Family) -> int:
    """Pieces to learn before those at the end of the vocabulary."""
    if needed + len(family.last) > family.vocab_size:
        raise UnmaskError(
            f"The special tokens and the alphabet alone need {needed + len(family.last)} pieces, "
            f"but vocab_size is {family.vocab_size}.",
            do=f"Raise vocab_size to {needed + len(family.last)} or more, or lower limit_alphabet.",
        )
    return family.vocab_size - len(family.last)


def _wordpiece(
    sample: Sample, look: Style, prepare: Preparation, options: TrainOptions, entries: list[str]
) -> dict[str, Any]:
    """BPE merges with "##" inside words, of which WordPiece keeps the pieces (as the library's own trainer does).

    The alphabet goes in as leading tokens: left to itself the library numbers it in the order of a random hash, and ties
    between pairs are broken by number.
    """
    first = list(dict.fromkeys([*look.family.first, *options.extra_tokens, *entries]))
    learner = tokenizers.Tokenizer(models.BPE(continuing_subword_prefix="##"))
    trainer = trainers.BpeTrainer(
        vocab_size=_room(len(first), look.family),
        min_frequency=options.min_frequency,
        special_tokens=first,
        continuing_subword_prefix="##",
        show_progress=False,
    )
    vocabulary = _with_last(_learn(learner, trainer, look, sample, prepare)["model"]["vocab"], look.family)
    return frame(wordpiece(vocabulary, look), look, vocabulary, _extra(options, vocabulary))


def _bpe(sample: Sample, look: Style, prepare: Preparation, options: TrainOptions) -> dict[str, Any]:
    first = [*look.family.first, *options.extra_tokens]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=_room(len(first) + len(alphabet), look.family),
        min_frequency=options.min_frequency,
        special_tokens=first,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    learned = _learn(tokenizers.Tokenizer(models.BPE()), trainer, look, sample, prepare)["model"]
    vocabulary = _with_last(learned["vocab"], look.family)
    model = byte_level(vocabulary, [(left, right) for left, right in learned["merges"]])
    return frame(model, look, vocabulary, _extra(options, vocabulary))


def _unigram(sample: Sample, look: Style, prepare: Preparation, options: TrainOptions, alphabet: int) -> dict[str, Any]:
    """The set of pieces comes from the library, their scores from us: its own differ from run to run in the third digit."""
    first = [*look.family.first, *options.extra_tokens]
    room = _room(
        len(first) + alphabet + 2, look.family
    )  # the mark of a space; one without which the trainer never ends
    trainer = trainers.UnigramTrainer(
        vocab_size=room - len(first), show_progress=False, special_tokens=[], unk_token=None
    )
    learned = _learn(tokenizers.Tokenizer(models.Unigram()), trainer, look, sample, prepare)
    pieces = sorted({piece for piece, _ in learned["model"]["vocab"]} - {*first, *look.family.last})
    scored = estimate_scores(pieces, look, prepared(sample, look.normalise, prepare))
    scored = [(token, NEVER) for token in first] + scored + [(token, NEVER) for token in look.family.last]
    vocabulary = {piece: id for id, (piece, _) in enumerate(scored)}
    model = unigram(scored, unk_id=vocabulary[look.family.tokens["unk"]])
    return frame(model, look, vocabulary, _extra(options, vocabulary))


def _with_last(vocabulary: dict[str, int], family: Family) -> dict[str, int]:
    return vocabulary | {token: len(vocabulary) + place for place, token in enumerate(family.last)}


def _learn(
    learner: tokenizers.Tokenizer, trainer: Any, look: Style, sample: Sample, prepare: Preparation
) -> dict[str, Any]:
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [*look.before_cut, pre_tokenizers.Split(CUT, "removed"), *look.after_cut]
    )
    with without_panic("The tokenizer can't be learned", "Try another kind or size, and please report this."):
        learner.train_from_iterator(prepared(sample, look.normalise, prepare), trainer)
        learned: dict[str, Any] = json.loads(learner.to_str())
    return learned


def _extra(options: TrainOptions, vocabulary: dict[str, int]) -> list[dict[str, Any]]:
    return [added_token(token, vocabulary[token], special=False) for token in options.extra_tokens]


def _report(sample: Sample, characters: Characters, kept: list[int], rare: list[int], family: Family) -> TrainReport:
    return TrainReport(
        kind=family.kind,
        asked=family.vocab_size,
        texts=sample.texts,
        characters=sample.characters,
        bytes_read=sample.bytes_read,
        bytes_used=sample.bytes_kept,
        alphabet=256 if family.kind == "bpe" else len(kept),
        rare_characters=len(rare),
        rare_examples="".join(map(chr, rare[:50])),
        coverage=characters.coverage(kept),
    )
