"""Static vectors as the beginning of an encoder's token table: which rows they take, and how."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up import english_documents
from small_models import SMALL

from unmask.config import BatchSize, Documents, EncoderConfig, MaskedTokens, ReplacedTokens, RunConfig, Steps
from unmask.config.examples import Examples
from unmask.errors import UnmaskError
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.road.model import build, fit_to_corpus
from unmask.road.static_table import begin_with_vectors
from unmask.static.folder import StaticFolder, write_static_folder
from unmask.static.vectors import Vectors
from unmask.static.words import WordCounts
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, train

WIDTH = 24
CONFIG = replace(SMALL, hidden_size=WIDTH, num_attention_heads=2)
EXAMPLES: Examples = Documents(max_length=32)


def written(folder: Path, words: list[str], width: int = WIDTH) -> tuple[Path, np.ndarray]:
    matrix = np.random.default_rng(0).normal(2.0, 3.0, (len(words), width)).astype(np.float32)
    counts = np.arange(len(words), 0, -1)
    write_static_folder(folder, StaticFolder(Vectors(WordCounts(words, counts), matrix)), overwrite=True)
    return folder, matrix


def new_encoder(rows: int, **changes: object) -> Encoder:
    encoder = Encoder(replace(CONFIG, vocab_size=rows, **changes))  # type: ignore[arg-type]
    initialise(encoder, encoder.config, torch.Generator().manual_seed(3))
    return encoder


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_tokens_that_begin_a_word_take_its_vector_and_all_others_stay(kind: str, tmp_path: Path) -> None:
    texts = english_documents(60) + ["我们学习自然语言。", "The sing song."] * 30
    tokenizer, _ = train(texts, TrainOptions(kind=kind, vocab_size=400))  # type: ignore[arg-type]
    texts_of = {"wordpiece": "", "bpe": "Ġ", "unigram": "▁"}[kind]
    pieces = tokenizer.pieces()
    begins = lambda piece: not piece.startswith("##") if kind == "wordpiece" else piece.startswith(texts_of)
    wanted = {
        id: p.removeprefix(texts_of) for id, p in enumerate(pieces) if begins(p) and id not in tokenizer.special_ids
    }
    wanted = {id: word for id, word in wanted.items() if word.isascii() and word.isalpha() and len(word) > 2}
    goes_on = [p.removeprefix("##") for p in pieces if not begins(p)]  # words that only pieces inside words look like
    words = list(dict.fromkeys([*wanted.values(), *(p for p in goes_on if p.isascii() and p.isalpha())]))
    words = [word for word in words if word.lower() not in {other.lower() for other in words if other != word}]
    source, matrix = written(tmp_path / "vectors", words)
    encoder = new_encoder(tokenizer.vocab_size)
    before = encoder.token_table().detach().clone()
    note = begin_with_vectors(encoder, tokenizer, source)
    after = encoder.token_table().detach()
    moved = (after != before).any(1).nonzero().squeeze(1).tolist()
    assert {id for id, word in wanted.items() if word in words} <= set(moved) and len(moved) > 10
    assert all(begins(pieces[id]) and id not in tokenizer.special_ids for id in moved)
    place = {word: row for row, word in enumerate(words)}
    taken = torch.tensor(np.array([matrix[place.get(pieces[id].removeprefix(texts_of), -1)] for id in wanted]))
    rows = after[list(wanted)]
    known = [at for at, id in enumerate(wanted) if wanted[id] in place]
    factor = rows[known[0], 0] / taken[known[0], 0]
    assert torch.allclose(rows[known], taken[known] * factor, rtol=1e-5)  # the vectors, times one number
    assert after[moved].square().mean().sqrt() == pytest.approx(float(before[moved].square().mean().sqrt()), rel=1e-4)
    assert note.startswith(f"{len(moved):,} of {tokenizer.vocab_size:,} rows of the token table begin as vectors")


def test_vectors_of_tokens_are_found_by_spelling(tmp_path: Path) -> None:
    tokenizer, _ = train(english_documents(60), TrainOptions(vocab_size=300))
    pieces = [piece for id, piece in enumerate(tokenizer.pieces()) if id not in tokenizer.special_ids]
    assert any(piece.startswith("##") for piece in pieces)
    source, matrix = written(tmp_path / "vectors", [*pieces, "[CLS]"])
    encoder = new_encoder(tokenizer.vocab_size)
    before = encoder.token_table().detach().clone()
    assert begin_with_vectors(encoder, tokenizer, source).startswith(f"{len(pieces):,} of {tokenizer.vocab_size:,} ")
    table = encoder.token_table().detach()
    ids = [id for id in range(tokenizer.vocab_size) if id not in tokenizer.special_ids]
    ratio = table[ids].numpy() / matrix[:-1]
    assert np.allclose(ratio, ratio[0, 0], rtol=1e-4)
    special = list(tokenizer.special_ids)
    assert torch.equal(table[special], before[special])


def test_other_capitals_will_do_and_hanzi_need_no_mark(tmp_path: Path) -> None:
    here = tmp_path / "vocab"
    here.mkdir()
    (here / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "The", "##the", "中", "##中", "cat"]) + "\n")  # fmt: skip # noqa: E501
    source, _ = written(tmp_path / "vectors", ["the", "中"])
    encoder = new_encoder(10)
    before = encoder.token_table().detach().clone()
    begin_with_vectors(encoder, Tokenizer.load(here), source)
    moved = (encoder.token_table().detach() != before).any(1).nonzero().squeeze(1).tolist()
    assert moved == [5, 7, 8]


def test_vectors_of_another_width_or_language_are_refused_with_advice(tmp_path: Path) -> None:
    tokenizer, _ = train(english_documents(20), TrainOptions(vocab_size=120))
    encoder = new_encoder(tokenizer.vocab_size)
    source, _ = written(tmp_path / "wide", ["the", "cat"], width=10)
    with pytest.raises(UnmaskError, match="10 numbers, but a row of the token table 24") as caught:
        begin_with_vectors(encoder, tokenizer, source)
    assert "--dimension 24" in caught.value.do and "encoder.embedding_size=10" in caught.value.do
    narrow = new_encoder(tokenizer.vocab_size, embedding_size=10)  # the advice works
    words = [piece for piece in tokenizer.pieces() if piece.isalpha()]
    assert "rows of the token table" in begin_with_vectors(narrow, tokenizer, written(tmp_path / "wide", words, 10)[0])
    with pytest.raises(UnmaskError, match="no token"):
        begin_with_vectors(encoder, tokenizer, written(tmp_path / "other", ["ñandú", "größe"])[0])


def run_of(corpus: Path, source: Path | str, **changes: object) -> RunConfig:
    run = RunConfig(
        corpus=str(corpus), embeddings_from=str(source), encoder=CONFIG, examples=EXAMPLES, objectives=(MaskedTokens(),),
        batch=BatchSize(tokens=256), until=Steps(steps=2),
    )  # fmt: skip
    return replace(run, **changes)  # type: ignore[arg-type]


def test_a_run_begins_with_them_and_a_resumed_one_does_not_look_at_them(small_corpus: Path, tmp_path: Path) -> None:
    corpus = Corpus.open(small_corpus, "train", verify=False)
    words = [piece for piece in Tokenizer.load(corpus.tokenizer_folder).pieces() if piece.isalpha()]
    source, matrix = written(tmp_path / "vectors", words)
    run = fit_to_corpus(run_of(small_corpus, source))
    model = build(run, corpus.vocabulary)
    assert f"{len(words):,} of {corpus.vocab_size:,} rows" in model.notes[0]
    cosines = torch.nn.functional.cosine_similarity(
        model.encoder.token_table().detach()[
            [Tokenizer.load(corpus.tokenizer_folder).pieces().index(w) for w in words]
        ],
        torch.from_numpy(matrix),
    )
    assert cosines.min() > 1 - 1e-5
    gone = build(replace(run, embeddings_from="gone"), corpus.vocabulary, start=False)
    assert not gone.notes
    with pytest.raises(UnmaskError, match="gone"):
        build(replace(run, embeddings_from="gone"), corpus.vocabulary)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"start_from": "model"}, "exclude each other"),
        ({"objectives": (ReplacedTokens(sharing="gradient_disentangled"),)}, "sharing tied or none"),
    ],
)
def test_where_there_is_no_new_table_they_are_refused(changes: dict[str, object], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        run_of(Path("corpus"), "vectors", **changes)
    assert isinstance(run_of(Path("corpus"), "vectors").encoder, EncoderConfig)
