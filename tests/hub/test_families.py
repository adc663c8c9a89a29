"""Every family and head computes what transformers computes: the same weights, all of them random, the same answers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from theirs import MODELS, batch_for, built, our_outputs, require_equal, target_side, their_outputs

from unmask.batch import PackedBatch
from unmask.hub.files import LoadedModel, load_model

LENGTHS = [1, 2, 7, 7, 8, 20, 41, 64]
# Where the output matrix is not tied, its own bias counts, and the other one is there for nothing, in transformers too.
UNUSED = {
    "bert-untied": ["cls.predictions.bias"],
    "roberta-untied": ["lm_head.bias"],
    "albert-untied": ["predictions.bias"],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("theirs")


def _loaded(name: str, folders: Path) -> LoadedModel:
    if not (folders / name).exists():
        built(name).save_pretrained(folders / name)
    return load_model(folders / name)


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_and_every_logit_equals_transformers(name: str, folders: Path) -> None:
    loaded, heads = _loaded(name, folders), MODELS[name].heads
    assert set(loaded.heads) == set(heads)
    assert loaded.unexpected == UNUSED.get(name, [])
    batch = batch_for(built(name), LENGTHS, heads)
    require_equal(our_outputs(loaded, batch), their_outputs(built(name), heads, batch))


@pytest.mark.parametrize("name", MODELS)
def test_a_sequence_alone_equals_transformers_too(name: str, folders: Path) -> None:
    loaded, heads = _loaded(name, folders), MODELS[name].heads
    for length in (1, 64):
        batch = batch_for(built(name), [length], heads, seed=length)
        require_equal(our_outputs(loaded, batch), their_outputs(built(name), heads, batch))


@pytest.mark.parametrize("name", ["t5", "t5-gated", "t5-gated-silu"])
def test_the_loss_of_a_decoder_on_labels_equals_transformers(name: str, folders: Path) -> None:
    """transformers makes what the decoder reads from the labels; ours is made in the objective."""
    loaded, model = _loaded(name, folders), built(name)
    read, labels = target_side([3, 1, 9], model.config.pad_token_id)
    model.config.decoder_start_token_id = model.config.pad_token_id
    batch = PackedBatch.pack([[5, 6, 7, 8], [9] * 30, [10, 11]]).with_(decoder=read)
    ours = F.cross_entropy(our_outputs(loaded, batch)["infill"], labels)
    valid = read.layout.valid()
    with torch.no_grad():
        theirs = model(
            input_ids=batch.layout.pad(batch.input_ids),
            attention_mask=batch.layout.valid().long(),
            labels=read.layout.pad(labels).masked_fill(~valid, -100),
        ).loss
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=2e-4)
