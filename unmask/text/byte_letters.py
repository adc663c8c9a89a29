"""How byte-level BPE spells bytes: one visible letter each (the table of GPT-2)."""

from __future__ import annotations


def _byte_of() -> dict[str, int]:
    """Printable Latin-1 stands for itself, the rest for letters from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + place): byte for place, byte in enumerate(other)}


BYTE_OF = _byte_of()
