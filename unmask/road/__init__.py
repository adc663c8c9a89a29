"""The pre-training job from its settings to a model folder: opens the corpus, builds the network, trains, exports, reports."""

from unmask.road.cost import estimate
from unmask.road.finish import export
from unmask.road.folder import read_settings
from unmask.road.model import Model, build, fit_to_corpus
from unmask.road.phases import phases_of
from unmask.road.run import HELD_OUT_SEED, pretrain, resume

__all__ = [
    "HELD_OUT_SEED",
    "Model",
    "build",
    "estimate",
    "export",
    "fit_to_corpus",
    "phases_of",
    "pretrain",
    "read_settings",
    "resume",
]
