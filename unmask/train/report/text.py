"""How figures and foreign text are written for people: on the report page and on the console alike."""

from __future__ import annotations

import math
import re

_BLANKS = re.compile(r"\s+")
_JOINERS = "\u200c\u200d"  # Persian and emoji need them, and they change nothing but the shape of their neighbours


def visible(text: object, limit: int = 0) -> str:
    """Text from outside, made harmless to look at.

    Characters that would act on the page or the terminal instead of being seen (escape codes, right-to-left overrides,
    lone surrogates, line breaks) appear as ⟨U+202E⟩. Longer than `limit` characters (0: no limit), it ends in "…".
    """
    words = str(text)
    if limit and len(words) > limit:
        words = words[: limit - 1] + "…"
    if words.isprintable():
        return words
    return "".join(c if c.isprintable() or c in _JOINERS or c == "\u3000" else f"⟨U+{ord(c):04X}⟩" for c in words)


def one_line(text: object) -> str:
    """`visible` for a sentence: every run of white space becomes one blank."""
    return visible(_BLANKS.sub(" ", str(text)).strip())


def loss_name(name: str) -> str:
    """A loss as people write it: MLM, NSP, SBO, but causal, infill, loss."""
    return one_line(name.upper() if len(name) == 3 else name)


def number(value: object) -> float | None:
    """A finite number out of JSON; None for anything else (null, NaN, text, true, an integer no float can hold)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        as_float = float(value)
    except OverflowError:
        return None
    return as_float if math.isfinite(as_float) else None


def count(value: float) -> str:
    """A count in full: 1,234,567."""
    return f"{value:,.0f}"


def compact(value: float) -> str:
    """A count in three digits: 1.23 M, 45.6 k, 987."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{_digits(value / size, 3)} {letter}"
    return _digits(value, 3)


def figure(value: float) -> str:
    """A measured number in four digits: 6.314, 0.0123, 1e-04."""
    if value and not 1e-3 <= abs(value) < 1e6:
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return _digits(value, 4)


def percent(share: float) -> str:
    """A share as per cent: 0.1234 is 12.3 %, 0.00123 is 0.12 %."""
    return f"{100 * share:.{2 if 0 < share < 0.01 else 1}f} %"


def duration(seconds: float) -> str:
    """A time span in its two largest units: 0.4 s, 52 s, 5 min 2 s, 3 h 10 min, 2 d 4 h."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    left = round(seconds)
    for size, name, small, small_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if left >= size:
            rest = left % size // small
            return f"{left // size} {name} {rest} {small_name}" if rest else f"{left // size} {name}"
    return f"{left} s"


def _digits(value: float, digits: int) -> str:
    """`value` with this many significant digits, never in exponent form, whole part always complete."""
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 1
    return f"{value:,.{max(digits - whole, 0)}f}"
