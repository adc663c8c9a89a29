"""Where sentence-pair labels come from: the sampler, by name; never a column of somebody's file."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up import VOCABULARY, MadeUpSource, english_documents, numbered_documents
from small_models import our_model, padded, vocabulary
from transformers import BertConfig, BertForNextSentencePrediction

from unmask.config import EncoderConfig, Pairs
from unmask.hub.files import save_model
from unmask.loader import Batches, Cursor
from unmask.objectives.pair import DOES_NOT, FOLLOWS
from unmask.text.build import BuildOptions, build_corpus
from unmask.text.documents import ReadOptions
from unmask.text.shards import Corpus
from unmask.text.train_tokenizer import TrainOptions, train


def test_B024_labels_in_a_file_of_texts_are_never_read(tmp_path: Path) -> None:
    """A corpus is text only: is_next, label and the like change no byte of it, whatever they say."""
    texts = english_documents(60)
    tokenizer, _ = train(texts, TrainOptions(vocab_size=200, lowercase=True))

    def built(name: str, **columns: Any) -> dict[str, bytes]:
        rows = [{"text": text, **columns, "id": number} for number, text in enumerate(texts)]
        (tmp_path / name).mkdir()
        source = tmp_path / name / "rows.jsonl"
        source.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        options = BuildOptions(read=ReadOptions(field="text"), heldout_share=0.1)
        build_corpus([str(source)], tmp_path / name / "corpus", tokenizer, options, workers=1)
        return {path.name: path.read_bytes() for path in (tmp_path / name / "corpus").glob("*-0*")}

    plain = built("plain")
    assert any(name.endswith(".tokens") for name in plain)
    assert (
        built("next", is_next=1) == built("random", is_random=True, label="0") == built("many", label=[1, 2]) == plain
    )
    about = Corpus.open(tmp_path / "next" / "corpus", "train").about
    assert "is_next" not in json.dumps(about)


@pytest.mark.parametrize("negatives", ["random", "swapped"])
def test_B024_the_label_is_0_where_b_follows_a_by_the_text_itself(negatives: Any) -> None:
    documents = numbered_documents([[7, 6, 8, 5, 9]] * 200)
    how = Pairs(max_length=32, negatives=negatives)
    batches = Batches(MadeUpSource(documents), how, VOCABULARY, lambda batch, seed: batch, 3, 400)
    seen = set()
    for batch, _ in islice(batches.since(Cursor()), 20):
        assert set(batch.labels) == {"pair"}
        where, value = batch.labels["pair"]
        for row, label in zip(where.tolist(), value.tolist(), strict=True):
            begin, end = batch.starts[row : row + 2].tolist()
            ids, kinds = batch.input_ids[begin:end], batch.token_type_ids[begin:end]
            first, second = (ids[(kinds == kind) & (ids >= 5)].tolist() for kind in (0, 1))
            follows = second[0] == first[-1] + 1  # every token of these documents is the number after the one before
            assert label == (FOLLOWS if follows else DOES_NOT)
            seen.add(label)
    assert seen == {0, 1}


def test_B024_class_0_of_the_exported_head_is_follows(tmp_path: Path) -> None:
    """transformers documents labels of BertForNextSentencePrediction as 0: B continues A. Same weights, same batch, same loss."""
    config = EncoderConfig(
        vocab_size=1200, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    encoder, objective = our_model(config)
    save_model(tmp_path / "model", encoder, objective, tokenizer_folder=None, about={})
    theirs = BertForNextSentencePrediction.from_pretrained(tmp_path / "model", attn_implementation="eager").eval()
    assert isinstance(theirs.config, BertConfig)
    source = MadeUpSource(numbered_documents([[7, 6, 8]] * 50))
    how = Pairs(max_length=32)
    batch, _ = next(iter(Batches(source, how, vocabulary(1200), objective.prepare, 0, 600).since(Cursor())))
    where, value = batch.labels["pair"]
    assert set(value.tolist()) == {FOLLOWS, DOES_NOT} and len(where) == batch.num_sequences
    with torch.no_grad():
        ours = objective(encoder, batch)["nsp"]
        wanted = theirs(**padded(batch), labels=value).loss
        turned = theirs(**padded(batch), labels=1 - value).loss
    assert abs(float(ours.total) / ours.count - float(wanted)) < 2e-5
    assert abs(float(turned) - float(wanted)) > 1e-2, "this batch can tell the order of the classes"
    assert np.isfinite(float(wanted))
