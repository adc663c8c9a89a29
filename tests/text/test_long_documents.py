"""A document far longer than the window: nothing is lost, nothing fails."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from made_up import english_documents
from small_models import SMALL, our_model

from unmask.config import Blocks, Documents, Examples, FullSentences, Pairs
from unmask.errors import UnmaskError
from unmask.measure.fill import fill_mask
from unmask.randomness import generator
from unmask.text.build import BuildOptions, build_corpus
from unmask.text.examples import cut
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, train

LONG = "We need a fix! " * 400
UNBROKEN = "fix we " * 1500  # one sentence


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train([*english_documents(50), LONG, UNBROKEN], TrainOptions(vocab_size=90, lowercase=True))[0]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Corpus:
    """Two long documents between short ones."""
    folder = tmp_path_factory.mktemp("long")
    texts = [*english_documents(3), LONG, UNBROKEN, *english_documents(3, seed=1)]
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    options = BuildOptions(heldout_share=0.0, duplicates="keep")
    build_corpus(
        [str(folder / f"{n}.txt") for n in range(len(texts))], folder / "corpus", tokenizer, options, workers=1
    )
    return Corpus.open(folder / "corpus", "train")


def examples_of(corpus: Corpus, how: Examples) -> tuple[list[list[int]], list[int]]:
    """The ids of each example and the document it begins in."""
    pool = cut(corpus.read(np.arange(corpus.num_documents)), how, corpus.vocabulary, generator(0))
    at, _, lengths = pool.gather(np.arange(len(pool)))
    return [part.tolist() for part in np.split(pool.stream[at], lengths.cumsum()[:-1])], pool.document.tolist()


@pytest.mark.parametrize("max_length", [8, 33, 128, 512, 4000])
def test_B078_every_token_of_a_long_document_is_in_one_example_in_order(corpus: Corpus, max_length: int) -> None:
    examples, documents = examples_of(corpus, Documents(max_length=max_length))
    for document, size in enumerate(corpus.document_tokens().tolist()):
        pieces = [ids[1:-1] for ids, home in zip(examples, documents, strict=True) if home == document]
        wanted = corpus.read(np.array([document])).tokens.tolist()
        assert sum(pieces, []) == wanted and len(wanted) == size
        assert len(pieces) == -(-size // (max_length - 2))  # as few windows as will do
    assert corpus.document_tokens().max() >= 2000


@pytest.mark.parametrize("how", [Pairs(max_length=64), FullSentences(max_length=64), Blocks(max_length=64)])
def test_B078_the_other_ways_to_cut_lose_no_token_of_it_either(corpus: Corpus, how: Examples) -> None:
    examples, _ = examples_of(corpus, how)
    special = set(corpus.vocabulary.special_ids)
    used = Counter(i for ids in examples for i in ids if i not in special)
    stored = Counter(i for i in corpus.read(np.arange(corpus.num_documents)).tokens.tolist() if i not in special)
    lost = sum((stored - used).values())
    assert not used - stored
    assert lost == 0 or (isinstance(how, Pairs) and lost < how.max_length)  # the last exchanged pair may be cut
    assert max(map(len, examples)) <= how.max_length


@pytest.mark.parametrize("text", [LONG + "[MASK]", "[MASK]" + UNBROKEN, "[MASK] " * 500])
def test_B078_a_text_longer_than_the_model_is_refused_in_a_sentence(tokenizer: Tokenizer, text: str) -> None:
    encoder, objective = our_model(SMALL)
    with pytest.raises(UnmaskError) as caught:
        fill_mask(encoder, objective.parts["mlm"], tokenizer, text)
    tokens = len(tokenizer.encode_marked(text).ids) + 2
    assert caught.value.what == f"the text has {tokens} tokens, but this model has 32 positions"
    assert caught.value.do == "shorten it"


def test_the_longest_text_that_fits_is_filled(tokenizer: Tokenizer) -> None:
    encoder, objective = our_model(SMALL)
    words = next(n for n in count() if len(tokenizer.encode_marked("we " * (n + 1) + "[MASK]").ids) > 30)
    assert len(fill_mask(encoder, objective.parts["mlm"], tokenizer, "we " * words + "[MASK]")) == 1


def test_a_corpus_of_one_long_document_alone_trains(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Nothing to pair it with: every pair is a true one, and none is lost."""
    (tmp_path / "long.txt").write_text(LONG, encoding="utf-8")
    build_corpus(
        [str(tmp_path / "long.txt")], tmp_path / "corpus", tokenizer, BuildOptions(heldout_share=0.0), workers=1
    )
    alone = Corpus.open(tmp_path / "corpus", "train")
    pool = cut(alone.read(np.arange(1)), Pairs(max_length=64), alone.vocabulary, generator(0))
    assert set(pool.label.tolist()) <= {0, -1} and int(pool.lengths().sum()) >= alone.num_tokens
