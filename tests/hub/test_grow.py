"""A model grown for an extended tokenizer: new words start from what their pieces meant, everything else stays."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import foreign
import pytest
import torch
from small_models import SMALL, VARIANTS, goals_of, our_model, our_network
from transformers import AutoModelForPreTraining, AutoTokenizer

from unmask.config import ReplacedTokens
from unmask.errors import UnmaskError
from unmask.hub.files import load_model, save_model
from unmask.hub.grow import grow_vocabulary
from unmask.text.tokenizer import Tokenizer

PIECES = [[5, 6], [7, 8, 9, 10], [11]]


@pytest.fixture
def extended(tmp_path: Path, tokenizer_folder: Path) -> Path:
    """The tokenizer with three more words."""
    plain = tmp_path / "vocabulary"
    plain.mkdir()
    old = (tokenizer_folder / "vocab.txt").read_text()
    (plain / "vocab.txt").write_text(old + "thecat\nlong\nword\n")
    Tokenizer.load(plain).save(tmp_path / "extended")
    return tmp_path / "extended"


def test_new_rows_are_the_mean_of_their_pieces_and_the_rest_stays_bit_for_bit(
    tmp_path: Path, saved: Path, extended: Path
) -> None:
    grow_vocabulary(saved, extended, PIECES, tmp_path / "grown")
    old, new = load_model(saved), load_model(tmp_path / "grown")
    assert new.config == dataclasses.replace(old.config, vocab_size=100)
    for before, after in (
        (old.encoder["embeddings.tokens.weight"], new.encoder["embeddings.tokens.weight"]),
        (old.heads["mlm"]["bias"], new.heads["mlm"]["bias"]),
    ):
        assert torch.equal(after[:97], before)
        for row, pieces in enumerate(PIECES):
            assert torch.allclose(after[97 + row], before[pieces].mean(0), rtol=0, atol=1e-7)
    for part, was in (
        (new.encoder, old.encoder),
        (new.heads["mlm"], old.heads["mlm"]),
        (new.heads["nsp"], old.heads["nsp"]),
    ):
        same = [name for name in part if name not in ("embeddings.tokens.weight", "bias")]
        assert all(torch.equal(part[name], was[name]) for name in same)
    assert new.about["steps"] == 12 and new.about["grown"]["from_vocab_size"] == 97


def test_transformers_loads_the_grown_folder_with_nothing_new(tmp_path: Path, saved: Path, extended: Path) -> None:
    grow_vocabulary(saved, extended, PIECES, tmp_path / "grown")
    model, report = AutoModelForPreTraining.from_pretrained(
        tmp_path / "grown", output_loading_info=True, local_files_only=True
    )
    assert not any(report.values())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "grown", local_files_only=True)
    ids = tokenizer("thecat word", return_tensors="pt")
    assert ids["input_ids"][0].tolist() == [2, 97, 99, 3]
    assert model(**ids).prediction_logits.shape == (1, 4, 100)


def test_the_logit_of_a_new_word_is_the_mean_of_its_pieces_logits(tmp_path: Path, saved: Path, extended: Path) -> None:
    """The output is linear in its rows, so mean rows and mean biases give the mean logit: no new word starts as noise."""
    grow_vocabulary(saved, extended, PIECES, tmp_path / "grown")
    new = load_model(tmp_path / "grown")
    hidden = torch.randn(5, SMALL.hidden_size, generator=torch.Generator().manual_seed(0))
    logits = hidden @ new.encoder["embeddings.tokens.weight"].T + new.heads["mlm"]["bias"]
    for row, pieces in enumerate(PIECES):
        assert torch.allclose(logits[:, 97 + row], logits[:, pieces].mean(1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("rows", [98, 99, 100, 128])
def test_a_padded_table_is_filled_before_it_grows(
    tmp_path: Path, tokenizer_folder: Path, extended: Path, rows: int
) -> None:
    model = our_model(dataclasses.replace(SMALL, vocab_size=rows))
    save_model(tmp_path / "padded", *model, tokenizer_folder=tokenizer_folder, about={})
    grow_vocabulary(tmp_path / "padded", extended, PIECES, tmp_path / "grown")
    old, new = (load_model(tmp_path / name).encoder["embeddings.tokens.weight"] for name in ("padded", "grown"))
    assert len(new) == max(rows, 100)
    assert torch.equal(new[:97], old[:97]) and torch.equal(new[100:], old[100:])
    assert torch.allclose(new[98], old[PIECES[1]].mean(0), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([[5], [6]], "the new tokens ids from 98 on, but the model has 97 rows"),
        ([[5], [6], []], "new token 2 has the pieces"),
        ([[5], [6], [97]], "one or more ids below 97"),
        ([[5], [-1], [6]], "new token 1 has the pieces"),
    ],
)
def test_pieces_that_do_not_fit_are_refused(
    tmp_path: Path, saved: Path, extended: Path, pieces: list[list[int]], words: str
) -> None:
    with pytest.raises(UnmaskError, match=words):
        grow_vocabulary(saved, extended, pieces, tmp_path / "grown")
    assert not (tmp_path / "grown").exists()


def test_what_is_left_out_is_named(tmp_path: Path, extended: Path) -> None:
    folder = foreign.write(tmp_path / "theirs", foreign.tensors(()) | {"classifier.weight": torch.ones(2, 48)})
    grow_vocabulary(folder, extended, PIECES, tmp_path / "grown")
    about = json.loads((tmp_path / "grown" / "unmask.json").read_text())
    assert about["grown"]["left_out"] == ["classifier.weight"]


@pytest.mark.parametrize("name", [*VARIANTS, "untied", "electra-generator"])
def test_every_table_and_bias_with_a_row_for_each_token_grows_in_any_family(
    name: str, tmp_path: Path, tokenizer_folder: Path, extended: Path
) -> None:
    """Heads, decoder and generator too: what had 97 rows has 100, nothing else changes, and the folder loads whole."""
    config, goals = VARIANTS.get(name, SMALL), goals_of(name)
    if name == "untied":
        config = dataclasses.replace(SMALL, tie_word_embeddings=False)
    if name == "electra-generator":
        config, goals = VARIANTS["electra"], (ReplacedTokens(generator_width=0.5),)
    model = our_network(config, goals)
    save_model(tmp_path / "old", *model, tokenizer_folder=tokenizer_folder, about={})
    grow_vocabulary(tmp_path / "old", extended, PIECES, tmp_path / "grown")
    old, new = (load_model(tmp_path / folder).weights() for folder in ("old", "grown"))
    pairs = [(old, new)] if old.generator is None else [(old, new), (old.generator, new.generator)]
    for before, after in pairs:
        assert after.config == dataclasses.replace(before.config, vocab_size=100)
        for one, other in [(before.encoder, after.encoder), *((before.heads[k], after.heads[k]) for k in before.heads)]:
            assert one.keys() == other.keys()
            for key, tensor in one.items():
                grown = tensor.shape[0] == 97
                assert other[key].shape[0] == (100 if grown else tensor.shape[0]), key
                assert torch.equal(other[key][:97] if grown else other[key], tensor), key
                if grown:
                    mean = torch.stack([tensor[pieces].mean(0) for pieces in PIECES])
                    torch.testing.assert_close(other[key][97:], mean, atol=1e-6, rtol=0)
