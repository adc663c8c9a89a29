"""The vectors of a word in its sentences: those that transformers gives, by character offsets, layer by layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from elmo_models import ELMO
from small_models import SMALL, our_model, randomise

from unmask.errors import UnmaskError
from unmask.hub.files import save_model
from unmask.labelled.records import Place
from unmask.measure.uses import Use, places
from unmask.measure.word_states import word_states
from unmask.nn.characters import token_kinds
from unmask.nn.encoder import Encoder
from unmask.static.folder import StaticFolder, write_static_folder
from unmask.static.vectors import Vectors
from unmask.static.words import WordCounts
from unmask.text.tokenizer import Tokenizer

PIECES = ["the", "ban", "##k", "##s", "river", "cat", ".", "苹", "果", "树", *"abcdefg", *(f"##{c}" for c in "abcdefg")]
SENTENCES = [
    "The bank.", "the banks the bank . the banks", "river bank the cat", "我的苹果树。苹果", "bank the\u0301 banks bank",
]  # fmt: skip


def uses(word: str, *texts: str, forms: tuple[str, ...] = ()) -> list[Use]:
    return [
        Use(text, start, end, word, "", Place("made up", 1, 1))
        for text in texts
        for start, end in places(text, (word, *forms), ignore_case=True)
    ]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("tokenizer")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES]
    pieces += [f"word{number}" for number in range(SMALL.vocab_size - len(pieces))]
    (here / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    Tokenizer.load(here).save(here / "saved")
    return here / "saved"


@pytest.fixture(scope="module")
def bert(tokenizer: Path) -> Path:
    save_model(tokenizer.parent / "bert", *our_model(), tokenizer_folder=tokenizer, about={})
    return tokenizer.parent / "bert"


def theirs(model: Any, tokenizer: Any, one: Use) -> list[Any]:
    """Mean of the states of the tokens that touch the word, for each layer."""
    encoded = tokenizer(one.text, return_offsets_mapping=True, return_tensors="pt")
    offsets = encoded.pop("offset_mapping")[0].tolist()
    inside = [at for at, (begin, end) in enumerate(offsets) if begin < min(end, one.end) and end > one.start]
    with torch.no_grad():
        states = model(**encoded, output_hidden_states=True).hidden_states
    return [state[0, inside].mean(0).numpy() for state in states]


def test_every_layer_has_the_mean_of_the_word_s_tokens_as_transformers_has_them(bert: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModel.from_pretrained(str(bert)).eval()
    theirs_tokenizer = transformers.AutoTokenizer.from_pretrained(str(bert))
    asked = uses("bank", *SENTENCES, forms=("banks",)) + uses("苹果", *SENTENCES)
    found = word_states(bert, asked)
    assert "left and right at once" in found.reads
    assert found.layers == ("embeddings", "1", "2", "3") and not found.static and len(asked) == 10
    for number, one in enumerate(asked):
        for state_UD, wanted in zip(found.states, theirs(model, theirs_tokenizer, one), strict=True):
            assert np.abs(state_UD[number] - wanted).max() < 2e-5


def test_the_order_of_sentences_and_their_batches_change_nothing(bert: Path) -> None:
    asked = uses("bank", *SENTENCES, forms=("banks",))
    together, alone = word_states(bert, asked), [word_states(bert, [one]) for one in asked]
    for layer, state_UD in enumerate(together.states):
        assert np.abs(state_UD - np.concatenate([one.states[layer] for one in alone])).max() < 2e-5


def test_of_a_long_text_the_part_around_the_word_is_read(bert: Path) -> None:
    far = "cat " * 50 + "the bank river " + "cat " * 50  # the model has 32 places
    [one] = uses("bank", far)
    found = word_states(bert, [one])
    assert found.notes == ("1 text of more than 32 tokens: the part around the word is read",)
    [near] = uses("bank", "cat " * 13 + "the bank river " + "cat " * 13)  # the same 30 tokens, the word in the middle
    assert np.abs(found.states[-1] - word_states(bert, [near]).states[-1]).max() < 2e-5
    long = Use("a" * 60, 0, 60, "a", "", Place("", 1, 1))
    assert np.isfinite(word_states(bert, [long]).states[-1]).all()  # a word longer than the model


def test_a_word_that_the_tokenizer_does_not_know_is_counted_and_one_without_a_token_refused(bert: Path) -> None:
    assert (
        "unknown to the tokenizer, in part or whole, in 2 uses"
        in word_states(bert, uses("梨", "梨。", "一个梨")).notes[0]
    )
    with pytest.raises(UnmaskError, match="no token") as caught:
        word_states(bert, [Use("the \u200b bank", 4, 5, "\u200b", "", Place("file.txt", 7, 7))])
    assert "line 7" in caught.value.where


def test_an_elmo_has_its_word_s_vector_in_every_layer_and_the_mix(tokenizer: Path, tmp_path: Path) -> None:
    encoder = Encoder(replace(ELMO, vocab_size=SMALL.vocab_size))
    randomise(encoder)
    assert encoder.words is not None
    encoder.words.tell(token_kinds(Tokenizer.load(tokenizer)))
    save_model(tmp_path / "elmo", encoder, None, tokenizer_folder=tokenizer, about={})
    found = word_states(tmp_path / "elmo", uses("bank", "the bank .", "river bank the cat", "the bank ."))
    assert found.layers == ("embeddings", "1", "2", "3", "mix") and "once more from the right" in found.reads
    embedded, last = found.states[0], found.states[-1]
    assert np.abs(embedded[0] - embedded[1]).max() < 1e-6  # made of its characters alone
    assert np.abs(last[0] - last[1]).max() > 1e-3 and np.abs(last[0] - last[2]).max() < 1e-6


def test_a_static_vector_is_the_same_in_every_sentence_and_form(tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    vectors = Vectors(WordCounts(["the", "Bank", "果"], np.array([3, 2, 1])), matrix)
    write_static_folder(tmp_path / "static", StaticFolder(vectors))
    asked = uses("bank", *SENTENCES, forms=("banks",))
    found = word_states(tmp_path / "static", asked)
    assert found.static and found.layers == ("static",) and not found.notes
    assert (found.states[0] == matrix[1]).all() and len(found.states[0]) == len(asked)
    mixed = word_states(tmp_path / "static", asked[:1] + uses("river", *SENTENCES))
    assert (mixed.states[0][1] == 0).all() and "1 use without a vector" in mixed.notes[0]
    with pytest.raises(UnmaskError, match="'river' has no vector") as caught:
        word_states(tmp_path / "static", uses("river", *SENTENCES))
    assert caught.value.where == str(tmp_path / "static")
