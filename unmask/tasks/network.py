"""What a fine-tuning run trains: the model's encoder with the head of a task, and how both read texts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from unmask.batch import PackedBatch
from unmask.config import Contrast, EncoderConfig, FineTuning, Recurrent, Task
from unmask.errors import UnmaskError
from unmask.hub.files import LoadedModel, load_model
from unmask.hub.restore import restore_head
from unmask.hub.sentence_layout import MODULES, SentenceLayout, read_sentence_layout, write_sentence_layout
from unmask.hub.task_heads import head_kind
from unmask.inference.loaded import fitting_tokenizer
from unmask.nn.cost import TRAINING, count_parameters, encoder_flops
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.objectives.base import Joint, Objective
from unmask.objectives.contrast import MODES
from unmask.tasks.contrast import layout_of
from unmask.tasks.dropout import learning
from unmask.tasks.job import Job
from unmask.tasks.layers import add_adapters, freeze
from unmask.text.aligned import AlignedEncoder


@dataclass(frozen=True)
class Network:
    """`adapted`: the encoder's matrices stand still, with adapters beside them. `loaded` is without its tensors: a run needs
    the memory."""

    config: EncoderConfig
    encoder: Encoder
    objective: Joint
    texts: AlignedEncoder
    loaded: LoadedModel
    lowercase: bool
    frozen_layers: int
    adapted: bool

    def training_flops(self, batch: PackedBatch) -> float:
        reading = None if batch.read is None else len(batch.read)
        own = encoder_flops(self.config, batch.layout.lengths, reading=reading)
        moving = 1 - self.frozen_layers / self.config.num_blocks
        backward = 1 if self.adapted else TRAINING - 1  # matrices that don't move have no gradient of their own
        return own * (1 + backward * moving) + TRAINING * self.objective.flops(self.config, batch)

    def parameters(self, *, trained: bool = False) -> int:
        """Numbers in the network as it trains, adapters too; or those of them that move."""
        moving = {p for part in (self.encoder, self.objective) for p in part.parameters() if p.requires_grad}
        return sum(p.numel() for p in moving) if trained else count_parameters(self.encoder, self.objective)


def load_start(run: FineTuning) -> LoadedModel:
    """The model that a run begins with."""
    return load_model(read_sentence_layout(Path(run.model)).model_folder)


def build_network(run: FineTuning, job: Job, loaded: LoadedModel) -> Network:
    """The encoder that `load_start` gave with a new head, or the head that it already has for these very labels."""
    layout = read_sentence_layout(Path(run.model))
    if isinstance(job.task, Contrast):
        _require_same_pooling(job.task, layout, run.model)
    kind = job.task.kind
    loaded = replace(loaded, config=replace(loaded.config, layer_mix=loaded.config.layer_mix or run.layer_mix))
    config, shape = learning(loaded.config, loaded.head_shape(kind), run.dropout, kind)
    encoder = Encoder(config)
    encoder.load_state_dict({**encoder.state_dict(), **loaded.encoder})
    member = job.objective(config, shape)
    objective = Joint({kind: member})
    generator = torch.Generator().manual_seed(run.seed)
    initialise(objective, config, generator)
    _begin_head(member, loaded, job)
    freeze(encoder, run.frozen_layers)
    add_adapters(encoder, run.lora_rank, run.lora_alpha, run.frozen_layers, generator)
    if encoder.mix is not None:
        encoder.mix.learn()
    _require_learning(encoder, objective)
    return Network(
        config,
        encoder,
        objective,
        aligned(run, config),
        replace(loaded, encoder={}, heads={}, beginnings={}, tokenizer_folder=layout.model_folder),
        layout.lowercase,
        run.frozen_layers,
        run.lora_rank > 0,
    )


def aligned(run: FineTuning, config: EncoderConfig) -> AlignedEncoder:
    """How the run reads texts: with the model's tokenizer, to the model's length at most."""
    layout = read_sentence_layout(Path(run.model))
    limit = min(run.max_length, layout.max_length or run.max_length, config.max_position_embeddings)
    tokenizer, whole_words = fitting_tokenizer(layout.model_folder, config), isinstance(config.layer, Recurrent)
    return AlignedEncoder(tokenizer, limit, lowercase=layout.lowercase, whole_words=whole_words)


def _require_learning(*parts: nn.Module) -> None:
    if not any(parameter.requires_grad for part in parts for parameter in part.parameters()):
        raise UnmaskError(
            "frozen_layers leaves nothing that learns: this task has no head of its own", do="freeze fewer layers"
        )


def finish_folder(task: Task, net: Network, folder: Path) -> None:
    """What other libraries need beside the model folder: sentence-transformers' files around an encoder for vectors."""
    if isinstance(task, Contrast):
        layout = layout_of(task, folder, net.texts.max_length, lowercase=net.lowercase)
        write_sentence_layout(layout, net.config.hidden_size)


def _require_same_pooling(task: Contrast, layout: SentenceLayout, where: str) -> None:
    """A folder made for vectors goes on as it pools: the other way would begin it anew without a word."""
    own = MODES[task.pooling]
    if (Path(where) / MODULES).is_file() and layout.pooling != (own,):
        known: dict[str, str] = {mode: name for name, mode in MODES.items()}
        names = " and ".join(known.get(mode, mode) for mode in layout.pooling)
        raise UnmaskError(
            f"the model pools by {names}, but task.pooling is {task.pooling}",
            where=where,
            do=f"use --set task.pooling={names}, or a copy of the folder without {MODULES}",
        )


def _begin_head(objective: Objective, loaded: LoadedModel, job: Job) -> None:
    """A head that the folder has for these very labels goes on; otherwise what stands before a head's outputs begins it."""
    kind, labels = job.task.kind, getattr(job.task, "labels", None)
    there = loaded.heads.get(head_kind(kind), {})
    own = {name.removeprefix("head."): tensor.shape for name, tensor in objective.state_dict().items()}
    if {name: tensor.shape for name, tensor in there.items()} != own:
        labels = ()  # those of no folder: other outputs need a new head
    restore_head(objective, loaded, kind, labels)
