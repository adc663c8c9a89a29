"""What a network answers for every sequence, in the order of the sequences, whatever batches it saw them in.

Legend: N sequences, T tokens, M labelled places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmask.batch import PackedBatch
from unmask.epochs import token_budget
from unmask.measure.heldout import evaluating, figures
from unmask.nn.encoder import Encoder
from unmask.objectives.base import Joint, Losses, Objective
from unmask.progress import Progress, quiet
from unmask.text.sequences import Sequences, ragged

Per = Literal["sequence", "token", "place"]
Outputs = dict[str, NDArray[Any]]
TOKENS = 4096  # of a batch


def answers(
    encoder: Encoder,
    objective: Objective,
    sequences: Sequences,
    per: Per,
    *,
    places: str = "",
    progress: Progress = quiet,
) -> Outputs:
    """Every output of `objective.predict`, one row for each sequence [N], token [T] or place of the label `places` [M]."""
    device = next(encoder.parameters()).device
    found, done = _Rows(sequences, per, places), 0
    if len(sequences):
        progress("predicting, sequences", 0, len(sequences))
    with evaluating(encoder, objective):
        for batch in token_budget(sequences, TOKENS):
            found.put(batch, objective.predict(encoder, batch.to(device)))
            done += batch.num_sequences
            progress("predicting, sequences", done, len(sequences))
    return found.outputs


def judged(
    encoder: Encoder, objective: Joint, sequences: Sequences, per: Per, *, places: str = ""
) -> tuple[Outputs, dict[str, Any]]:
    """Of labelled sequences what `answers` gives, and the `figures` of their losses, of one pass through the encoder.

    `objective` holds one task. No batch parts a unit: a loss may be over all of it.
    """
    device = next(encoder.parameters()).device
    (member,) = objective.members().values()
    found = _Rows(sequences, per, places)

    def losses() -> Iterator[Losses]:
        for batch in token_budget(sequences, TOKENS, whole_units=True):
            of_batch, outputs = member.judge(encoder, objective.prepare(batch, 0).to(device))
            found.put(batch, outputs)
            yield of_batch

    with evaluating(encoder, objective):
        told = figures(losses())
    return found.outputs, told


class _Rows:
    """Outputs of batches, put where their sequences, tokens or places are."""

    def __init__(self, sequences: Sequences, per: Per, places: str):
        self.sequences, self.per, self.places = sequences, per, places
        self.outputs: Outputs = {}

    def put(self, batch: PackedBatch, outputs: Mapping[str, Tensor]) -> None:
        rows = self._of(batch)
        for name, tensor in outputs.items():
            part = tensor.cpu().numpy()
            if name not in self.outputs:
                self.outputs[name] = np.empty((self._size(), *part.shape[1:]), part.dtype)
            self.outputs[name][rows] = part

    def _size(self) -> int:
        match self.per:
            case "sequence":
                return len(self.sequences)
            case "token":
                return len(self.sequences.ids_T)
            case "place":
                return len(self.sequences.labels[self.places].place_M)

    def _of(self, batch: PackedBatch) -> NDArray[np.int64]:
        assert batch.examples is not None, "packed batches know their sequences"
        chosen = batch.examples.numpy()
        match self.per:
            case "sequence":
                return chosen
            case "token":
                return self.sequences.gather(chosen)[0]
            case "place":
                return ragged(self.sequences.labels[self.places].starts, chosen)[0]


def softmax(logits_NC: NDArray[np.floating]) -> NDArray[np.float64]:
    """Over the last axis, in double precision."""
    return torch.from_numpy(np.asarray(logits_NC, np.float64)).softmax(-1).numpy()
