"""What a network answers for every sequence, in the order of the sequences, whatever batches it saw them in.

Legend: N sequences, T tokens, M labelled places.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from unmask.batch import PackedBatch
from unmask.epochs import token_budget
from unmask.measure.heldout import evaluating
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Objective
from unmask.progress import Progress, quiet
from unmask.text.sequences import Sequences, ragged

Per = Literal["sequence", "token", "place"]
TOKENS = 4096  # of a batch


def answers(
    encoder: Encoder,
    objective: Objective,
    sequences: Sequences,
    per: Per,
    *,
    places: str = "",
    progress: Progress = quiet,
) -> dict[str, NDArray[Any]]:
    """Every output of `objective.predict`, one row for each sequence [N], token [T] or place of the label `places` [M]."""
    device = next(encoder.parameters()).device
    size = {"sequence": len(sequences), "token": len(sequences.ids_T)}.get(per)
    size = len(sequences.labels[places].place_M) if size is None else size
    found: dict[str, NDArray[Any]] = {}
    done = 0
    with evaluating(encoder, objective):
        for batch in token_budget(sequences, TOKENS):
            rows = _rows(sequences, batch, per, places)
            for name, tensor in objective.predict(encoder, batch.to(device)).items():
                part = tensor.cpu().numpy()
                if name not in found:
                    found[name] = np.empty((size, *part.shape[1:]), part.dtype)
                found[name][rows] = part
            done += batch.num_sequences
            progress("predicting, sequences", done, len(sequences))
    return found


def _rows(sequences: Sequences, batch: PackedBatch, per: Per, places: str) -> NDArray[np.int64]:
    assert batch.examples is not None, "packed batches know their sequences"
    chosen = batch.examples.numpy()
    match per:
        case "sequence":
            return chosen
        case "token":
            return sequences.gather(chosen)[0]
        case "place":
            return ragged(sequences.labels[places].starts, chosen)[0]


def softmax(logits_NC: NDArray[np.floating]) -> NDArray[np.float64]:
    """Over the last axis, in double precision."""
    return torch.from_numpy(np.asarray(logits_NC, np.float64)).softmax(-1).numpy()
