"""From text to shards: nothing lost, nothing twice, the same for any number of workers."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace

import numpy as np
import pytest
from small_corpora import LETTERS, SMALL, manifest, some_texts, stored, write_jsonl

from unmask.errors import UnmaskError
from unmask.text.build import BuildOptions, build_corpus
from unmask.text.clean import normalise, split_sentences
from unmask.text.documents import ReadOptions
from unmask.text.shards import Corpus


def test_neither_workers_nor_chunks_change_a_byte(tmp_path, tokenizer):
    texts = some_texts(120)
    texts[50], texts[70] = texts[3], "  "
    source = write_jsonl(tmp_path / "a.jsonl", texts)
    folders = []
    for workers, chunk in ((1, 4_000_000), (1, 900), (2, 900), (2, 4000)):
        folders.append(tmp_path / f"{workers}-{chunk}")
        build_corpus([source], folders[-1], tokenizer, SMALL, workers=workers, chunk_characters=chunk)
    assert all(manifest(folder) == manifest(folders[0]) for folder in folders)
    assert len(manifest(folders[0])["about"]["shards"]) > 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a.jsonl", *(f.name for f in folders)])


@pytest.mark.parametrize(("count", "workers"), [(10, 1), (40, 4), (10, 4), (1, 4)])
def test_B6_no_document_is_lost_for_any_number_of_workers(tmp_path, tokenizer, count, workers):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(count))
    about = build_corpus([source], tmp_path / "c", tokenizer, SMALL, workers=workers, chunk_characters=400)
    assert sum(split["documents"] for split in about["splits"].values()) == count
    records = [record for split in stored(tmp_path / "c").values() for record, _ in split]
    assert sorted(records) == list(range(1, count + 1))


def test_stored_tokens_are_the_tokenizers_for_each_sentence(tmp_path, tokenizer):
    texts = some_texts(30) + ["今天天气很好。我们去公园。", "Cafe\u0301 is here.\r\nWhat a [MASK] word!", "x" * 300]
    build_corpus([write_jsonl(tmp_path / "a.jsonl", texts)], tmp_path / "c", tokenizer, SMALL)
    found = dict(document for split in stored(tmp_path / "c").values() for document in split)
    for record, text in enumerate(texts, 1):
        sentences = split_sentences(normalise(text), "auto")
        assert found[record] == [encoded.ids.tolist() for encoded in tokenizer.encode(sentences)]
    specials = set(tokenizer.special_ids) - {tokenizer.unk_token_id}
    assert not any(specials & set(ids) for sentences in found.values() for ids in sentences)


def test_every_document_read_is_accounted_for(tmp_path, tokenizer):
    rng = random.Random(5)
    words = ["".join(rng.choices(LETTERS, k=5)) for _ in range(300)]
    near = " ".join([*words[:-1], "zz"])
    lines = [json.dumps({"text": text}) for text in [*some_texts(50), " ".join(words), near]]
    lines += [lines[3], lines[4], json.dumps({"text": "\n \n"}), json.dumps({"text": ""}), "{broken", '{"other": 1}']
    lines += [json.dumps({"text": "\u0001\u0002"})]  # nothing is left of it after cleaning
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    options = replace(SMALL, read=ReadOptions(skip_bad=2, field="text"))
    about = build_corpus([str(tmp_path / "a.jsonl")], tmp_path / "c", tokenizer, options)
    read, report = about["report"]["read"], about["report"]
    kept = sum(split["documents"] for split in about["splits"].values())
    assert report["duplicates"] == {"exact": 2, "near": 1}
    assert read["bad_count"] == 2
    assert read["empty"] + report["clean"]["empty_documents"] == 3
    assert kept == 51
    assert len(lines) == read["documents"] + read["empty"] + read["bad_count"]
    assert read["documents"] == kept + 3 + report["clean"]["empty_documents"]
    assert sum(report["lengths"].values()) == kept
    assert sum(report["sentence_lengths"].values()) == sum(split["sentences"] for split in about["splits"].values())


def test_B015_a_line_of_100_000_characters_is_stored_whole(tmp_path, tokenizer):
    for name, text in {"one-word": "a" * 100_000, "words": "ab " * 33_333 + "c", "hanzi": "天" * 100_000}.items():
        (tmp_path / f"{name}.txt").write_text(text)
        about = build_corpus([str(tmp_path / f"{name}.txt")], tmp_path / name, tokenizer)
        assert about["splits"]["train"]["documents"] == 1
        assert about["report"]["text"]["characters"] == len(text)
    assert about["splits"]["train"]["tokens"] == 100_000


def test_B021_empty_and_blank_documents_are_skipped_and_counted(tmp_path, tokenizer):
    source = write_jsonl(
        tmp_path / "a.jsonl", ["x y. z w.", "", "   ", "p q. r s.\n\u200b\nt u.", "\u0003", "\u200b", "\ufeff"]
    )
    options = BuildOptions(heldout_share=0)
    about = build_corpus([source], tmp_path / "c", tokenizer, options, chunk_characters=1, workers=1)
    assert about["splits"]["train"]["documents"] == 2
    assert about["report"]["read"]["empty"] + about["report"]["clean"]["empty_documents"] == 5
    assert about["report"]["clean"]["empty_sentences"] == 1
    corpus = Corpus.open(tmp_path / "c", "train")
    assert (corpus.document_tokens() > 0).all() and (corpus.document_sentences() > 0).all()


def test_a_corpus_without_text_is_an_error_with_counts(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", ["", "  ", "\u0003"])
    with pytest.raises(UnmaskError, match="no text to store: 1 documents, 2 empty ones and 0 bad ones"):
        build_corpus([source], tmp_path / "c", tokenizer)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(("name", "hanzi"), [("en_wikitext2_valid", 0.0), ("zh_docs_react", 0.5)])
def test_real_corpora_in_both_languages(tmp_path, shared, tokenizer, name, hanzi):
    with gzip.open(shared / "data" / "corpora" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = [line for line, _ in zip(file, range(40), strict=False)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    about = build_corpus([str(tmp_path / "a.jsonl")], tmp_path / "c", tokenizer, chunk_characters=100_000)
    report, splits = about["report"], about["splits"]
    assert report["read"]["documents"] == len(lines)
    assert report["text"]["hanzi_share"] >= hanzi
    assert report["text"]["unknown_token_share"] < 0.3
    corpus = Corpus.open(tmp_path / "c", "train")
    texts = corpus.read(np.arange(corpus.num_documents))
    assert len(texts.tokens) == splits["train"]["tokens"]
    first = json.loads(lines[corpus.origin(0)[1] - 1])["text"]
    sentence = split_sentences(normalise(first), "auto")[0]
    assert texts.tokens[: texts.sentences[1]].tolist() == tokenizer.encode([sentence])[0].ids.tolist()
