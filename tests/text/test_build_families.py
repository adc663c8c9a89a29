"""Corpora made with tokenizers of other families than BERT's."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import english_documents
from published import trained_like

from unmask.config import Blocks, Documents
from unmask.randomness import generator
from unmask.text.build import BuildOptions, build_corpus
from unmask.text.documents import ReadOptions
from unmask.text.examples import cut
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer


def corpus_of(folder, documents: list[str], tokenizer: Tokenizer) -> Corpus:
    (folder / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    options = BuildOptions(read=ReadOptions(separator="blank"), heldout_share=0.0, duplicates="keep")
    build_corpus([str(folder / "text.txt")], folder / "corpus", tokenizer, options, workers=1)
    return Corpus.open(folder / "corpus")


def text_of(corpus: Corpus, tokenizer: Tokenizer, document: int) -> str:
    return tokenizer.decode(corpus.read(np.array([document])).tokens)


@pytest.mark.parametrize("like", ["roberta", "gpt2", "modernbert", "t5"])
def test_a_corpus_keeps_what_its_tokenizer_has_and_lacks(shared, tmp_path, like):
    tokenizer = trained_like(shared, like)
    corpus = corpus_of(tmp_path, english_documents(8), tokenizer)
    assert corpus.vocabulary == tokenizer.vocabulary()
    texts = corpus.read(np.arange(corpus.num_documents))
    how = Blocks(max_length=32, frame=False) if like == "gpt2" else Documents(max_length=32)
    pool = cut(texts, how, corpus.vocabulary, generator(0))
    assert pool.lengths().max() <= 32


@pytest.mark.parametrize("like", ["roberta", "gpt2", "modernbert"])
def test_the_space_between_two_sentences_is_kept_where_pieces_tell_it(shared, tmp_path, like):
    """Else the model would learn "near the cat.The old dog", which no text has."""
    tokenizer = trained_like(shared, like)
    documents = [
        "The cat sat here. The dog sat there.\nA new line began.",
        "北京是首都。上海不是。 But this one is. 好。",
    ]
    corpus = corpus_of(tmp_path, documents, tokenizer)
    wanted = [document.replace("\n", " ") for document in documents]
    assert [text_of(corpus, tokenizer, number) for number in range(2)] == wanted
    whole = tokenizer.encode([wanted[0]])[0]
    read = corpus.read(np.array([0]))
    assert read.tokens.tolist() == whole.ids.tolist()
    assert read.word_starts.tolist() == whole.word_starts.tolist()
