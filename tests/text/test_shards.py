"""The read side of a corpus: what was written comes back, in any order, and nothing damaged is ever read."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import DamagedError, UnmaskError
from unmask.files import write_folder
from unmask.text.shards import FORMAT, SOURCES, VERSION, Corpus, ShardWriter, shard_name

TOKENIZER = {
    "kind": "wordpiece",
    "fingerprint": "f" * 64,
    "pad_token_id": 0,
    "unk_token_id": 1,
    "cls_token_id": 2,
    "sep_token_id": 3,
    "mask_token_id": 4,
    "special_ids": [0, 1, 2, 3, 4],
}
Document = list[list[int]]  # sentences of token ids


def words_of(ids: list[int]) -> list[int]:
    return [int(i % 3 == 0) for i in ids]


def write_corpus(folder: Path, shards: dict[str, list[Document]], *, vocab_size: int = 1000) -> Path:
    """Shards by name; the record number of a document is its place in its shard, counted from 1."""
    about: dict = {"format": FORMAT, "version": VERSION, "vocab_size": vocab_size, "tokenizer": TOKENIZER}
    with write_folder(folder, about=about) as temporary:
        writer = ShardWriter(temporary, vocab_size)
        about["dtype"] = writer.dtype
        for number, (name, documents) in enumerate(shards.items()):
            for first in range(0, len(documents), 3):  # in pieces, as the builder does
                piece = documents[first : first + 3]
                sentences = [sentence for document in piece for sentence in document]
                ids = [i for sentence in sentences for i in sentence]
                origins = [(number, first + place + 1) for place in range(len(piece))]
                writer.append(
                    name,
                    np.array(ids, np.uint32),
                    np.array(words_of(ids)),
                    np.array([len(sentence) for sentence in sentences], np.int64),
                    np.array([len(document) for document in piece], np.int64),
                    np.array(origins, np.int64).reshape(-1, 2),
                )
        about["shards"] = writer.shards()
        (temporary / SOURCES).write_text(json.dumps(list(shards)))
    return folder


def some_documents(count: int, seed: int, vocab_size: int = 1000) -> list[Document]:
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(5, vocab_size, rng.integers(1, 9)).tolist() for _ in range(rng.integers(1, 5))]
        for _ in range(count)
    ]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    shards = {
        shard_name("heldout", 0): some_documents(4, 1),
        shard_name("train", 0): some_documents(7, 2),
        shard_name("train", 1): some_documents(5, 3),
        shard_name("train", 2): some_documents(9, 4),
    }
    return write_corpus(tmp_path / "corpus", shards)


def naive(documents: list[Document], wanted: list[int]) -> tuple[list[int], list[int], list[int]]:
    ids: list[int] = []
    sentences, starts = [0], [0]
    for number in wanted:
        for sentence in documents[number]:
            ids += sentence
            sentences.append(len(ids))
        starts.append(len(sentences) - 1)
    return ids, sentences, starts


sentence_lists = st.lists(st.lists(st.integers(0, 99_999), min_size=1, max_size=5), min_size=1, max_size=4)
shard_lists = st.lists(st.lists(sentence_lists, min_size=1, max_size=5), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(shard_lists, st.data())
def test_reading_equals_putting_documents_end_to_end(tmp_path_factory, shards, data):
    folder = tmp_path_factory.mktemp("corpus") / "c"
    write_corpus(folder, {shard_name("train", n): docs for n, docs in enumerate(shards)}, vocab_size=100_000)
    documents = [document for shard in shards for document in shard]
    wanted = data.draw(st.lists(st.integers(0, len(documents) - 1), max_size=12))
    opened = Corpus.open(folder, "train")
    texts = opened.read(np.array(wanted, np.int64))
    ids, sentences, starts = naive(documents, wanted)
    assert texts.tokens.tolist() == ids
    assert texts.word_starts.tolist() == [bool(word) for word in words_of(ids)]
    assert texts.sentences.tolist() == sentences
    assert texts.documents.tolist() == starts
    assert opened.document_tokens().tolist() == [sum(map(len, document)) for document in documents]
    assert opened.document_sentences().tolist() == [len(document) for document in documents]


def test_the_split_is_counted_and_every_document_knows_its_origin(corpus):
    train, heldout = Corpus.open(corpus, "train"), Corpus.open(corpus, "heldout")
    assert (train.num_documents, heldout.num_documents) == (21, 4)
    assert train.num_tokens == train.document_tokens().sum()
    assert train.num_sentences == train.document_sentences().sum()
    assert train.origin(0) == ("train-00000", 1)
    assert train.origin(6) == ("train-00000", 7)
    assert train.origin(7) == ("train-00001", 1)
    assert train.origin(20) == ("train-00002", 9)
    assert (train.vocab_size, train.vocabulary.cls_token_id, train.vocabulary.mask_token_id) == (1000, 2, 4)


@pytest.mark.parametrize(("vocab_size", "bytes_each"), [(65_536, 2), (65_537, 4)])
def test_ids_take_two_bytes_while_the_vocabulary_allows(tmp_path, vocab_size, bytes_each):
    folder = write_corpus(tmp_path / "c", {"train-00000": [[[vocab_size - 1, 7]]]}, vocab_size=vocab_size)
    assert (folder / "train-00000.tokens").stat().st_size == 2 * bytes_each
    assert Corpus.open(folder, "train").read(np.array([0])).tokens.tolist() == [vocab_size - 1, 7]


def test_a_document_number_outside_the_split_is_refused(corpus):
    opened = Corpus.open(corpus, "train")
    for number in (-1, opened.num_documents):
        with pytest.raises(IndexError):
            opened.read(np.array([0, number]))


def test_an_empty_split_is_refused_in_words(tmp_path):
    folder = write_corpus(tmp_path / "c", {"train-00000": some_documents(2, 0)})
    with pytest.raises(UnmaskError, match="heldout split of this corpus has no documents"):
        Corpus.open(folder, "heldout")


def test_another_process_maps_the_files_instead_of_receiving_them(corpus):
    opened = Corpus.open(corpus, "train")
    sent = pickle.dumps(opened)
    assert len(sent) < 1000
    every = np.arange(opened.num_documents)
    assert (pickle.loads(sent).read(every).tokens == opened.read(every).tokens).all()


def test_200_flipped_bits_and_truncations_are_all_detected(corpus, tmp_path):
    rng = np.random.default_rng(0)
    files = sorted(path.name for path in corpus.iterdir() if path.name.startswith("train") or path.name == SOURCES)
    for _ in range(200):
        name = files[rng.integers(len(files))]
        content = (corpus / name).read_bytes()
        at = int(rng.integers(len(content)))
        broken = bytearray(content)
        if rng.integers(4):
            broken[at] ^= 1 << int(rng.integers(8))
        else:
            del broken[at:]
        (corpus / name).write_bytes(broken)
        with pytest.raises(DamagedError) as error:
            Corpus.open(corpus, "train")
        assert name in str(error.value)
        (corpus / name).write_bytes(content)
    Corpus.open(corpus, "train")


def test_200_flipped_bits_in_the_manifest_are_all_detected(corpus):
    rng = np.random.default_rng(1)
    path = corpus / "manifest.json"
    content = path.read_bytes()
    for _ in range(200):
        broken = bytearray(content)
        broken[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        with pytest.raises(UnmaskError):
            Corpus.open(corpus, "train")


def test_what_differs_is_said(corpus, tmp_path):
    def message() -> str:
        with pytest.raises(DamagedError) as error:
            Corpus.open(corpus, "train")
        return str(error.value)

    one, two = corpus / "train-00000.tokens", corpus / "train-00001.tokens"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(first[:-2])
    assert "train-00000.tokens" in message() and "truncated" in message()
    one.write_bytes(first + b"xx")
    assert "too long" in message()
    one.write_bytes(bytes(len(first)))
    assert "altered" in message()
    other = write_corpus(tmp_path / "other", {shard_name("train", n): some_documents(7, 2) for n in range(3)})
    one.write_bytes(np.roll(np.frombuffer((other / one.name).read_bytes(), "<u2"), 1).tobytes())
    assert "another corpus" in message()
    one.write_bytes(first)
    two.unlink()
    assert "missing" in message() and two.name in message()
    two.write_bytes(second)
    Corpus.open(corpus, "train")


def test_two_shards_swapped_are_told_apart(tmp_path):
    same = [[[5, 6], [7]]], [[[8, 9], [10]]]  # equal sizes: only the content tells
    folder = write_corpus(tmp_path / "c", {"train-00000": same[0], "train-00001": same[1]})
    one, two = folder / "train-00000.tokens", folder / "train-00001.tokens"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    with pytest.raises(DamagedError, match=r"train-00000\.tokens .* content of train-00001\.tokens"):
        Corpus.open(folder, "train")


def test_damage_in_the_other_split_does_not_stop_this_one(corpus):
    (corpus / "heldout-00000.tokens").write_bytes(b"")
    Corpus.open(corpus, "train")
    with pytest.raises(DamagedError):
        Corpus.open(corpus, "heldout")


def test_offsets_that_do_not_rise_are_refused_even_when_their_hash_is_right(tmp_path):
    for kind, values in {"sentences": [0, 2, 2], "documents": [1, 2]}.items():
        about = {"format": FORMAT, "version": VERSION, "vocab_size": 100, "tokenizer": TOKENIZER, "dtype": "uint16"}
        about["shards"] = [{"name": "train-00000", "split": "train", "documents": 1, "sentences": 2, "tokens": 2}]
        arrays = {"sentences": [0, 1, 2], "documents": [0, 2], "origins": [0, 1]} | {kind: values}
        with write_folder(tmp_path / kind, about=about) as temporary:
            np.array([5, 6], "<u2").tofile(temporary / "train-00000.tokens")
            np.array([1, 1], "u1").tofile(temporary / "train-00000.words")
            for name, content in arrays.items():
                np.array(content, "<i8").tofile(temporary / f"train-00000.{name}")
            (temporary / SOURCES).write_text('["a"]')
        with pytest.raises(DamagedError, match=f"{kind} is damaged: its offsets"):
            Corpus.open(tmp_path / kind, "train")


def test_a_folder_that_is_no_corpus_is_refused(tmp_path):
    with write_folder(tmp_path / "model", about={"format": "something else"}) as temporary:
        (temporary / "x").write_text("x")
    with pytest.raises(UnmaskError, match="not a corpus"):
        Corpus.open(tmp_path / "model")
    with pytest.raises(UnmaskError, match="no such folder"):
        Corpus.open(tmp_path / "nothing")


def test_B026_opening_writes_nothing_beside_the_corpus(corpus):
    def listing() -> list[tuple[str, int, int]]:
        return [(str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in [corpus, *sorted(corpus.rglob("*"))]]

    for path in [*corpus.rglob("*"), corpus]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = listing()
    opened = Corpus.open(corpus, "train")
    texts = opened.read(np.arange(5))
    assert listing() == before
    texts.tokens[:] = 0  # ours to change; the files are not
    assert not any(shard.tokens.flags.writeable for shard in opened._shards)
    corpus.chmod(0o755)


@pytest.mark.parametrize("kinds", [("tokens",), ("tokens", "words", "sentences", "documents", "origins")])
def test_B027_shards_left_only_in_packed_form_are_named_at_once(corpus, kinds):
    for kind in kinds:
        os.rename(corpus / f"train-00001.{kind}", corpus / f"train-00001.{kind}.zst")
    begin = time.monotonic()
    with pytest.raises(DamagedError, match=r"train-00001\.tokens .*missing.*train-00001\.tokens\.zst.*unpack"):
        Corpus.open(corpus, "train")
    assert time.monotonic() - begin < 5


def test_names_in_a_manifest_can_not_lead_out_of_the_folder(tmp_path):
    outside = tmp_path / "outside.tokens"
    outside.write_bytes(b"\5\0")
    about = {"format": FORMAT, "version": VERSION, "vocab_size": 100, "tokenizer": TOKENIZER, "dtype": "uint16"}
    about["shards"] = [{"name": "../outside", "split": "train", "documents": 1, "sentences": 1, "tokens": 1}]
    with write_folder(tmp_path / "c", about=about) as temporary:
        (temporary / SOURCES).write_text("[]")
    with pytest.raises(UnmaskError):
        Corpus.open(tmp_path / "c")
    shutil.rmtree(tmp_path / "c")
