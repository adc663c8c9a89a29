"""The head of a task in a graph: the outputs that transformers' class for the task has, under the names Optimum gives them.

Legend: B sequences, L longest, T = B × L places, D hidden_size, C outputs of the head.
"""

from __future__ import annotations

from torch import Tensor, nn

from unmask.batch import Layout, PackedBatch
from unmask.errors import UnmaskError
from unmask.hub.family import TASK_CLASSES
from unmask.hub.files import LoadedModel
from unmask.nn.encoder import Encoder
from unmask.nn.heads import SequenceHead, TaskHead

TASK_HEADS = tuple(TASK_CLASSES)
LOGITS = "logits"
CRF = "crf."  # tensors of a tagger that are called so are not its head's
CRF_NOTE = (
    "the logits are the emissions of a CRF: its search for the best path is not in the graph, and the tag with the largest "
    "logit is not always the model's answer"
)


class PaddedTask(nn.Module):
    """Ids and mask [B, L] to what a task's head says: of sequences [B, C], of tokens [B, L, C], of answers two of [B, L]."""

    def __init__(self, encoder: Encoder, head: TaskHead, kind: str):
        super().__init__()
        self.encoder, self.head, self.kind = encoder, head, kind

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        batch = dense_batch(input_ids, attention_mask, token_type_ids)
        hidden_TD = self.encoder(batch)
        if isinstance(self.head, SequenceHead):
            return (self.head.answer(_vectors(hidden_TD, batch.layout, self.head.shape.pooling)),)
        answers_BLC = self.head.answer(hidden_TD).unflatten(0, input_ids.shape)
        return answers_BLC.unbind(-1) if self.kind == "answer" else (answers_BLC,)

    def answers(self, batch: PackedBatch) -> list[tuple[Tensor, bool]]:
        """The same for a packed batch, by the head's own code: [B, C] and False, or [T, …] and True."""
        hidden_TD = self.encoder(batch)
        if isinstance(self.head, SequenceHead):
            return [(self.head(hidden_TD, batch), False)]
        answers_TC = self.head.answer(hidden_TD)
        return [(x, True) for x in (answers_TC.unbind(-1) if self.kind == "answer" else (answers_TC,))]


def dense_batch(input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None) -> PackedBatch:
    """A padded batch as a packed one in which padding counts as tokens."""
    layout = Layout.dense(attention_mask)
    types = None if token_type_ids is None else token_type_ids.flatten()
    batch = PackedBatch(input_ids.flatten(), layout.starts, types)
    batch.__dict__["layout"] = layout
    return batch


def task_outputs(kind: str) -> tuple[str, ...]:
    """What the outputs of a task's graph are called."""
    return ("start_logits", "end_logits") if kind == "answer" else (LOGITS,)


def task_head_of(loaded: LoadedModel) -> str:
    """The kind of the head that a fine-tuned folder has, "none" for every other folder."""
    return next((kind for kind in TASK_HEADS if kind in loaded.heads), "none")


def build_task_head(loaded: LoadedModel, kind: str) -> TaskHead:
    """The folder's head, of a tagger without its CRF. UnmaskError for one that reads words through an LSTM."""
    state = loaded.heads[kind]
    if any(name.startswith("lstm.") for name in state):
        raise UnmaskError(
            "this tagger's LSTM reads the first pieces of words, and a graph's inputs do not say which these are",
            where=str(loaded.folder),
            do="export its hidden states (--head none), or train with decoder=crf or decoder=linear",
        )
    made = SequenceHead if kind == "classify" else TaskHead
    head = made(loaded.config, len(state["out.weight"]), loaded.head_shape(kind))
    head.load_state_dict({name: tensor for name, tensor in state.items() if not name.startswith(CRF)})
    return head.eval().requires_grad_(False)


def task_notes(loaded: LoadedModel, head: str) -> tuple[str, ...]:
    """What a person has to know of the graph's outputs."""
    return (CRF_NOTE,) if any(name.startswith(CRF) for name in loaded.heads.get(head, {})) else ()


def _vectors(hidden_TD: Tensor, layout: Layout, pooling: str) -> Tensor:
    """[B, D] what `SequenceHead` looks at, of a dense batch."""
    lengths_B = layout.valid().sum(1)
    match pooling:
        case "first":
            return hidden_TD.index_select(0, layout.starts[:-1])
        case "last":
            return hidden_TD.index_select(0, layout.starts[:-1] + lengths_B - 1)
    return layout.pad(hidden_TD).sum(1) / lengths_B[:, None]
