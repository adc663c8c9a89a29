"""A model folder ready to fill in masks: encoder, MLM head and tokenizer together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unmask.config import MaskedTokens
from unmask.errors import UnmaskError
from unmask.hub.files import build_encoder, load_model
from unmask.hub.restore import fill_head
from unmask.nn.encoder import Encoder
from unmask.objectives.masked import MaskedTokenObjective
from unmask.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class MaskedModel:
    """What fill-mask needs; dropout is off."""

    encoder: Encoder
    mlm: MaskedTokenObjective
    tokenizer: Tokenizer


def load_masked_model(folder: Path) -> MaskedModel:
    """Loads a folder that has an MLM head and a tokenizer; UnmaskError names what is missing."""
    loaded = load_model(folder)
    if "mlm" not in loaded.heads:
        raise UnmaskError(
            "the model has no whole MLM head, so it can't fill in masks",
            where=str(folder),
            do=f"choose {loaded.generator_folder}, which was trained to"
            if loaded.generator_folder
            else "choose one that has",
        )
    if loaded.tokenizer_folder is None:
        raise UnmaskError(
            "the folder has no tokenizer", where=str(folder), do="copy the model's tokenizer.json into it"
        )
    tokenizer = Tokenizer.load(loaded.tokenizer_folder)
    goal = MaskedTokens(enhanced_decoder="positions.weight" in loaded.heads["mlm"])
    mlm = MaskedTokenObjective(loaded.config, goal, tokenizer.vocabulary())
    if lacking := fill_head(mlm.head, loaded.heads["mlm"], "mlm"):
        raise UnmaskError(
            f"the MLM head is not whole: the folder lacks {lacking[0]}",
            where=str(folder),
            do="use a copy of the model that is whole",
        )
    return MaskedModel(build_encoder(loaded), mlm.eval(), tokenizer)
