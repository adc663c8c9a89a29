"""An ELMo's vectors are those of their text alone: what other ELMos remember from batch to batch, and stumble over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from elmo_models import ELMO
from made_up import english_documents

from unmask.hub.files import save_model
from unmask.inference.loaded import Loaded, load
from unmask.nn.characters import token_kinds
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer

LINES = [" ".join(text.split()[: 3 + row * 7 % 20]) for row, text in enumerate(english_documents(200, seed=3))]


@pytest.fixture(scope="module")
def elmo(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """A folder of new weights, all far from zero, so that what comes before a word is seen in its vector."""
    corpus = Corpus.open(small_corpus, "train", verify=False)
    encoder = Encoder(config := replace(ELMO, vocab_size=corpus.vocab_size, num_hidden_layers=2))
    initialise(encoder, config, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in encoder.blocks.parameters():
            parameter.mul_(4)
    assert encoder.words is not None
    encoder.words.tell(token_kinds(Tokenizer.load(corpus.tokenizer_folder)))
    folder = tmp_path_factory.mktemp("elmo") / "model"
    save_model(folder, encoder, None, tokenizer_folder=corpus.tokenizer_folder, about={})
    return load(folder)


def test_B192_a_line_s_vector_is_the_same_whatever_lines_were_read_before_it_and_beside_it(elmo: Loaded):
    """allennlp#2643, #1169, #2516, bilm-tf#176: the states of LSTMs went from one batch into the next, so that a text had
    another vector each time. tensorflow/hub#369: a longer text in the batch changed the others."""
    alone = np.concatenate([elmo.encode([line]) for line in LINES[:40]])
    assert np.ptp(alone, axis=0).min() > 0.01  # they do differ
    order = np.random.default_rng(0).permutation(len(LINES))
    for batch_tokens in (700, 10**6):
        found = elmo.encode(LINES, batch_tokens=batch_tokens)
        shuffled = elmo.encode([LINES[at] for at in order], batch_tokens=batch_tokens)
        assert np.abs(found[:40] - alone).max() < 2e-5 and np.abs(shuffled - found[order]).max() < 2e-5
        assert np.array_equal(elmo.encode(LINES, batch_tokens=batch_tokens), found)


@pytest.mark.parametrize("text", ["", " \n", "word", "a", "\u200b", "\U0001f642", "x" * 60, "的", "."])
def test_a_text_of_nothing_or_of_one_word_is_no_accident(text: str, elmo: Loaded):
    """allennlp#837: a batch of empty sentences alone. delft#63: a sentence of a single word."""
    (alone,) = elmo.encode([text])
    assert alone.shape == (ELMO.hidden_size,) and np.isfinite(alone).all()
    among = elmo.encode([LINES[3], text, text, LINES[4]])
    assert np.abs(among[1:3] - alone).max() < 2e-5 and np.abs(elmo.encode([text] * 5) - alone).max() < 2e-5
    assert np.abs(among[0] - elmo.encode([LINES[3]])[0]).max() < 2e-5
