"""What the published tokenizers are like: their special tokens and order, their size, how they see and frame a text.

A family is a value of shared parts. Training takes one (`--like`), and folders that hold nothing but vocabulary files are
read as one. The plain kinds are families too: those parts without a published model's habits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tokenizers import processors

Kind = Literal["wordpiece", "characters", "bpe", "unigram"]
Like = Literal[
    "bert", "electra", "roberta", "deberta", "modernbert", "gpt2", "albert", "deberta-v3", "xlm-roberta", "t5"
]

BERT_SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_SPECIALS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
END_OF_TEXT = "<|endoftext|>"
SENTINELS = tuple(f"<extra_id_{number}>" for number in range(100))  # T5's; each also marks a span in its target
FAST = "PreTrainedTokenizerFast"  # the class of transformers that takes tokenizer.json as it is


@dataclass(frozen=True, kw_only=True)
class Family:
    """One way to make a tokenizer.

    tokens: the role of each special token, by the names of tokenizer_config.json without "_token".
    first, last: special tokens at the beginning and at the end of the vocabulary, in order.
    frame: what stands around a text. "cls": [CLS] A [SEP] B [SEP]; "double": <s> A </s></s> B </s>; "end": A </s> B </s>.
    form: the Unicode form that text is brought into; "" leaves it alone.
    exact_class: the class of transformers that builds the same tokenizer when neither case nor accents are folded, and so
        can be told `add_prefix_space`; "": none does.
    """

    kind: Kind
    vocab_size: int = 30_000
    tokens: dict[str, str]
    first: tuple[str, ...]
    last: tuple[str, ...] = ()
    frame: Literal["cls", "double", "end", "none"] = "cls"
    form: Literal["", "NFC", "NFKC"] = "NFC"
    lowercase: bool = False
    strip_accents: bool = False
    latex_quotes: bool = False  # `` and '' are read as "
    exact_class: str = ""

    @property
    def special(self) -> tuple[str, ...]:
        """All special tokens, those at the beginning first."""
        return self.first + self.last


def _ends(tokens: dict[str, str]) -> dict[str, str]:
    """Where a family names them, the frame's tokens are also called beginning and end of a sentence."""
    return {**tokens, "bos": tokens["cls"], "eos": tokens["sep"]}


def _bert(**values: Any) -> Family:
    return Family(**{"tokens": BERT_SPECIALS, "first": tuple(BERT_SPECIALS.values()), **values})


_DEBERTA = {"first": ("[PAD]", "[CLS]", "[SEP]", "[UNK]"), "last": ("[MASK]",), "tokens": _ends(BERT_SPECIALS)}
_ROBERTA = {"first": ("<s>", "<pad>", "</s>", "<unk>"), "last": ("<mask>",), "tokens": _ends(ROBERTA_SPECIALS)}
_ROBERTA["frame"] = "double"

PLAIN: dict[Kind, Family] = {
    "wordpiece": _bert(kind="wordpiece"),
    "characters": _bert(kind="characters"),
    "bpe": _bert(kind="bpe", tokens=ROBERTA_SPECIALS, first=tuple(ROBERTA_SPECIALS.values()), frame="double"),
    "unigram": _bert(kind="unigram"),
}
FAMILIES: dict[Like, Family] = {
    "bert": _bert(kind="wordpiece", vocab_size=30_522),
    "electra": _bert(kind="wordpiece", vocab_size=30_522, lowercase=True),
    "roberta": _bert(kind="bpe", vocab_size=50_265, form="", exact_class="RobertaTokenizer", **_ROBERTA),
    "deberta": _bert(kind="bpe", vocab_size=50_265, form="", exact_class="DebertaTokenizer", **_DEBERTA),
    "modernbert": _bert(kind="bpe", vocab_size=50_368, first=(), last=("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")),
    "gpt2": Family(
        kind="bpe",
        vocab_size=50_257,
        tokens={"bos": END_OF_TEXT, "eos": END_OF_TEXT, "unk": END_OF_TEXT},
        first=(),
        last=(END_OF_TEXT,),
        frame="none",
        form="",
        exact_class="GPT2Tokenizer",
    ),
    "albert": _bert(
        kind="unigram",
        tokens=_ends({**BERT_SPECIALS, "pad": "<pad>", "unk": "<unk>"}),
        first=("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
        form="NFKC",
        lowercase=True,
        strip_accents=True,
        latex_quotes=True,
    ),
    "deberta-v3": _bert(kind="unigram", vocab_size=128_001, form="NFKC", **_DEBERTA),
    "xlm-roberta": _bert(kind="unigram", vocab_size=250_002, form="NFKC", **_ROBERTA),
    "t5": Family(
        kind="unigram",
        vocab_size=32_100,
        tokens={"pad": "<pad>", "eos": "</s>", "unk": "<unk>"},
        first=("<pad>", "</s>", "<unk>"),
        last=SENTINELS[::-1],
        frame="end",
        form="NFKC",
    ),
}


def post_processor(family: Family, ids: Mapping[str, int], *, prefix_space: bool = False) -> Any:
    """What puts the family's frame around a text or a pair, for tokenizer.json; None where there is no frame."""
    names = {role: family.tokens[role] for role in ("cls", "sep", "eos") if role in family.tokens}
    numbered = {role: (token, ids[token]) for role, token in names.items()}
    match family.frame:
        case "none":
            return None
        case "end":
            return _template(f"$A {names['eos']}", f"$A {names['eos']} $B {names['eos']}", numbered["eos"])
        case "double" if family.kind == "bpe":
            return processors.RobertaProcessing(
                numbered["sep"], numbered["cls"], trim_offsets=True, add_prefix_space=prefix_space
            )
    cls, sep = names["cls"], names["sep"]
    pair = f"{cls} $A {sep} {sep} $B {sep}" if family.frame == "double" else f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1"
    return _template(f"{cls} $A {sep}", pair, numbered["cls"], numbered["sep"])


def _template(single: str, pair: str, *special: tuple[str, int]) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=list(special))
