"""Published encoders as functions that return a configuration. A variant is `dataclasses.replace(bert_base(), …)`.

Sizes: BERT base and large from Devlin et al. 2019, section 3; tiny to medium from Turc et al. 2019 ("Well-Read Students
Learn Better"), table 1; `bert_base_chinese` is the released character model for Chinese.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable

from unmask.config import EncoderConfig
from unmask.errors import UnmaskError


def _bert(layers: int, hidden: int, vocab_size: int) -> EncoderConfig:
    """Every BERT size has heads of width 64 and a feed-forward four times its width."""
    return EncoderConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )


def bert_tiny(vocab_size: int = 30522) -> EncoderConfig:
    """2 layers, 128 wide: 4.4 M parameters with the published vocabulary."""
    return _bert(2, 128, vocab_size)


def bert_mini(vocab_size: int = 30522) -> EncoderConfig:
    """4 layers, 256 wide: 11 M parameters."""
    return _bert(4, 256, vocab_size)


def bert_small(vocab_size: int = 30522) -> EncoderConfig:
    """4 layers, 512 wide: 29 M parameters."""
    return _bert(4, 512, vocab_size)


def bert_medium(vocab_size: int = 30522) -> EncoderConfig:
    """8 layers, 512 wide: 41 M parameters."""
    return _bert(8, 512, vocab_size)


def bert_base(vocab_size: int = 30522) -> EncoderConfig:
    """12 layers, 768 wide: 110 M parameters."""
    return _bert(12, 768, vocab_size)


def bert_large(vocab_size: int = 30522) -> EncoderConfig:
    """24 layers, 1024 wide: 335 M parameters."""
    return _bert(24, 1024, vocab_size)


def bert_base_chinese(vocab_size: int = 21128) -> EncoderConfig:
    """BERT base over Chinese characters: 102 M parameters with the published vocabulary."""
    return _bert(12, 768, vocab_size)


def names() -> list[str]:
    """The presets by name, in the order of this file."""
    return [
        name
        for name, value in vars(sys.modules[__name__]).items()
        if inspect.isfunction(value) and name.startswith("bert_")
    ]


def preset(name: str) -> Callable[..., EncoderConfig]:
    """The preset function called `name`; dashes count as underscores."""
    if (name := name.replace("-", "_")) not in names():
        near = difflib.get_close_matches(name, names(), n=1)
        raise UnmaskError(
            f"no preset is called {name!r}",
            do=f"{f'did you mean {near[0]}? ' if near else ''}there are: {', '.join(names())}",
        )
    function: Callable[..., EncoderConfig] = getattr(sys.modules[__name__], name)
    return function
