"""What the rest of the program needs to know of a tokenizer: its size and its special ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Ids of one tokenizer. `special_ids` are never masked and never drawn as a random replacement."""

    size: int
    pad_token_id: int
    unk_token_id: int
    cls_token_id: int
    sep_token_id: int
    mask_token_id: int
    special_ids: tuple[int, ...]

    def is_special(self) -> NDArray[np.bool_]:
        """[size] True at the special ids: a look-up table."""
        table = np.zeros(self.size, bool)
        table[list(self.special_ids)] = True
        return table

    def ordinary_ids(self) -> NDArray[np.int64]:
        """Every id that stands for text, ascending."""
        return np.flatnonzero(~self.is_special())
