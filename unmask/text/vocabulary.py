"""What the rest of the program needs to know of a tokenizer: its size and its special ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unmask.errors import UnmaskError

Role = Literal["pad", "unk", "cls", "sep", "mask"]
ROLES: tuple[Role, ...] = ("pad", "unk", "cls", "sep", "mask")


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Ids of one tokenizer; None where it has no such token (GPT-2 and T5 have no [CLS] and no [MASK]).

    `special_ids` are never masked and never drawn as a random replacement. `sentinel_ids` stand for <extra_id_0>,
    <extra_id_1> … in that order; only T5's have them.
    """

    size: int
    pad_token_id: int | None
    unk_token_id: int | None
    cls_token_id: int | None
    sep_token_id: int | None
    mask_token_id: int | None
    special_ids: tuple[int, ...]
    sentinel_ids: tuple[int, ...] = ()

    def require(self, role: Role) -> int:
        """The id of a token that the caller can't do without; UnmaskError where the tokenizer has none."""
        id: int | None = getattr(self, f"{role}_token_id")
        if id is None:
            raise UnmaskError(
                f"The tokenizer has no {role} token, which this needs.",
                do=f"Take a tokenizer of a family with one ({_FAMILIES[role]}), or another kind of run.",
            )
        return id

    def require_sentinels(self) -> tuple[int, ...]:
        """The sentinel ids; UnmaskError where the tokenizer has none."""
        if not self.sentinel_ids:
            raise UnmaskError(
                "The tokenizer has no sentinels (<extra_id_0>, <extra_id_1> …), which stand for the missing spans.",
                do="Take a T5 tokenizer, or train one with --like t5.",
            )
        return self.sentinel_ids

    def is_special(self) -> NDArray[np.bool_]:
        """[size] True at the special ids: a look-up table."""
        table = np.zeros(self.size, bool)
        table[list(self.special_ids)] = True
        return table

    def ordinary_ids(self) -> NDArray[np.int64]:
        """Every id that stands for text, ascending."""
        return np.flatnonzero(~self.is_special())

    def as_dict(self) -> dict[str, Any]:
        """All but the size, for a manifest."""
        ids = {f"{role}_token_id": getattr(self, f"{role}_token_id") for role in ROLES}
        return {**ids, "special_ids": list(self.special_ids), "sentinel_ids": list(self.sentinel_ids)}

    @classmethod
    def from_dict(cls, size: int, ids: dict[str, Any]) -> Vocabulary:
        """From a manifest's entries; raises KeyError, TypeError or ValueError when they make no vocabulary."""
        named = {f"{role}_token_id": ids[f"{role}_token_id"] for role in ROLES}
        special, sentinels = tuple(ids["special_ids"]), tuple(ids.get("sentinel_ids", ()))
        every = [*special, *sentinels, *(id for id in named.values() if id is not None)]
        if not all(type(id) is int and 0 <= id < size for id in every):
            raise ValueError("a special id lies outside the vocabulary")
        return cls(size=size, special_ids=special, sentinel_ids=sentinels, **named)


_FAMILIES: dict[Role, str] = {
    "pad": "--like roberta, for one",
    "unk": "--like roberta, for one",
    "cls": "--like bert or roberta, for one",
    "sep": "--like bert, roberta or t5, for one",
    "mask": "--like bert or roberta, for one",
}
