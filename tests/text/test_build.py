"""From text to shards: nothing lost, nothing twice, the same for any number of workers, and safe to interrupt."""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers

from unmask.errors import CannotWriteError, DiskError, UnmaskError
from unmask.files import write_folder
from unmask.text import parts as parts_module
from unmask.text.build import BuildOptions, build_corpus
from unmask.text.clean import normalise, split_sentences
from unmask.text.documents import ReadOptions
from unmask.text.duplicates import band_keys, find_duplicates, fingerprint
from unmask.text.parts import Chunk, Recipe, make_part, part_path, read_part
from unmask.text.plan import Index, make_plan
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer
from unmask.text.words import WordSplitter

SMALL = BuildOptions(shard_tokens=2000)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def a_tokenizer(folder: Path, more: str = "") -> Tokenizer:
    """One token per letter, stop or hanzi of the basic plane; `more` characters make it another tokenizer."""
    pieces = SPECIALS + list(LETTERS + ".。" + more) + [f"##{letter}" for letter in LETTERS]
    pieces += [chr(code) for code in range(0x4E00, 0x9FA6)]
    backend = Backend(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.add_special_tokens(SPECIALS)
    folder.mkdir(parents=True)
    backend.save(str(folder / "tokenizer.json"))
    names = {f"{kind.strip('[]').lower()}_token": kind for kind in SPECIALS}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **names}))
    (folder / "special_tokens_map.json").write_text(json.dumps(names))
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return a_tokenizer(tmp_path_factory.mktemp("tokenizer") / "t")


def some_texts(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)

    def sentence() -> str:
        return " ".join("".join(rng.choices(LETTERS, k=rng.randint(2, 6))) for _ in range(rng.randint(3, 9)))

    return ["\n".join(f"{sentence()}." for _ in range(rng.randint(1, 4))) for _ in range(count)]


def write_jsonl(path: Path, texts: list[str]) -> str:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def stored(folder: Path) -> dict[str, list[tuple[int, list[list[int]]]]]:
    """By split: the record number and the sentences (ids) of each document."""
    out = {}
    for split, counts in manifest(folder)["about"]["splits"].items():
        documents = []
        corpus = Corpus.open(folder, split) if counts["documents"] else None
        for number in range(corpus.num_documents if corpus else 0):
            texts = corpus.read(np.array([number]))
            ends = texts.sentences.tolist()
            sentences = [texts.tokens[a:b].tolist() for a, b in zip(ends, ends[1:], strict=False)]
            documents.append((corpus.origin(number)[1], sentences))
        out[split] = documents
    return out


def children() -> list[int]:
    """Processes whose parent is this one."""
    return [int(pid) for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]


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


def test_the_same_documents_are_held_out_in_any_order_and_with_duplicates(tmp_path, tokenizer):
    texts = some_texts(200)
    shuffled = texts + texts[:50]
    random.Random(1).shuffle(shuffled)
    options = BuildOptions(heldout_share=0.1)
    held = []
    for name, some in (("one", texts), ("two", shuffled)):
        build_corpus([write_jsonl(tmp_path / f"{name}.jsonl", some)], tmp_path / name, tokenizer, options)
        by_split = {split: [str(ids) for _, ids in documents] for split, documents in stored(tmp_path / name).items()}
        assert not set(by_split["train"]) & set(by_split["heldout"])
        assert max(Counter(by_split["train"] + by_split["heldout"]).values()) == 1
        held.append(set(by_split["heldout"]))
    assert held[0] == held[1]
    assert 5 <= len(held[0]) <= 40


def test_held_out_text_is_at_least_one_document_and_at_most_its_limit(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(40))

    def splits(**changes: object) -> tuple[int, int, int]:
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        found = build_corpus([source], out, tokenizer, BuildOptions(**changes))["splits"]
        return found["train"]["documents"], found["heldout"]["documents"], found["heldout"]["tokens"]

    assert splits(heldout_share=1e-9)[:2] == (32, 8)  # fewer could not make random sentence pairs
    assert splits(heldout_share=0)[:2] == (40, 0)
    assert 0 < splits(heldout_share=0.9, heldout_tokens=300)[2] <= 300
    one = write_jsonl(tmp_path / "one.jsonl", some_texts(1))
    about = build_corpus([one], tmp_path / "single", tokenizer)
    assert about["splits"]["train"]["documents"] == 1
    with pytest.raises(UnmaskError, match="heldout split of this corpus has no documents"):
        Corpus.open(tmp_path / "single", "heldout")


def test_kept_duplicates_never_stand_on_both_sides(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(30) * 3)
    options = BuildOptions(duplicates="keep", heldout_share=0.3, heldout_tokens=500)
    about = build_corpus([source], tmp_path / "c", tokenizer, options)
    assert sum(split["documents"] for split in about["splits"].values()) == 90
    train, heldout = ({str(ids) for _, ids in documents} for documents in stored(tmp_path / "c").values())
    assert train and heldout and not train & heldout


def test_near_duplicates_are_those_of_the_whole_comparison(tmp_path, tokenizer):
    rng = random.Random(3)
    words = ["".join(rng.choices(LETTERS, k=4)) for _ in range(200)]
    texts = []
    for _ in range(150):  # long and short, equal, nearly equal and different
        start = rng.randrange(100)
        text = words[start : start + rng.choice([5, 60, 100])]
        text[rng.randrange(len(text))] = rng.choice(words)
        texts.append(" ".join(text))
    texts += texts[:10]
    source = write_jsonl(tmp_path / "a.jsonl", texts)
    found = find_duplicates(
        np.frombuffer(b"".join(map(fingerprint, texts)), np.uint64).reshape(-1, 2),
        np.stack(list(map(band_keys, texts))),
    )
    assert found.exact > 3 and found.near > 3
    for name, chunk in (("one", 4_000_000), ("two", 20_000)):
        about = build_corpus([source], tmp_path / name, tokenizer, chunk_characters=chunk, workers=1)
        assert about["report"]["duplicates"] == {"exact": found.exact, "near": found.near}
        records = [record for split in stored(tmp_path / name).values() for record, _ in split]
        assert sorted(records) == (np.flatnonzero(found.kept) + 1).tolist()


def test_no_limit_of_held_out_tokens_parts_equal_documents():
    rng = np.random.default_rng(0)
    exact = np.tile(rng.integers(0, 1 << 63, (20, 2), np.uint64), (3, 1))
    index = Index(np.array([0, 60]), np.full(60, 10), exact, np.zeros(0, np.int64), np.zeros((0, 32), np.uint32), 0, 0)
    for limit in range(1, 400, 7):
        plan = make_plan(index, drop_duplicates=False, heldout_share=0.5, heldout_tokens=limit, shard_tokens=1000)
        sides = [{tuple(row) for row in exact[plan.place == number].tolist()} for number in range(len(plan.names))]
        assert plan.names == ["heldout-00000", "train-00000"]
        assert not sides[0] & sides[1]


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


def test_B025_a_corpus_is_used_again_only_when_nothing_changed(tmp_path, tokenizer):
    source, out = tmp_path / "a.jsonl", tmp_path / "c"
    write_jsonl(source, some_texts(20))

    def outcome(tokenizer: Tokenizer = tokenizer, options: BuildOptions = SMALL, sources: str = str(source)) -> str:
        return build_corpus([sources], out, tokenizer, options)["outcome"]

    assert outcome() == "built"
    before = (out / "manifest.json").stat()
    assert outcome().startswith("kept")
    assert (out / "manifest.json").stat() == before
    other = a_tokenizer(tmp_path / "other", more="!")
    assert outcome(other).startswith("rebuilt: the tokenizer changed")
    assert Corpus.open(out).about["tokenizer"]["fingerprint"] == other.fingerprint
    assert "options changed: shard_tokens 2000 -> 300" in outcome(other, replace(SMALL, shard_tokens=300))
    options = replace(SMALL, shard_tokens=300, read=ReadOptions(skip_bad=1))
    assert "options changed: read.skip_bad 0 -> 1" in outcome(other, options)
    shutil.copy(source, tmp_path / "b.jsonl")
    with pytest.raises(CannotWriteError, match="another corpus, of other sources and by another tokenizer"):
        outcome(tokenizer, options, str(tmp_path / "b.jsonl"))
    assert Corpus.open(out).about["sources"] == [str(source)]
    assert "the list of sources changed" in outcome(other, options, str(tmp_path / "b.jsonl"))
    assert "kept" in outcome(other, options, str(tmp_path / "b.jsonl"))


def test_B025_a_corpus_prepared_by_an_older_version_is_built_anew(tmp_path, tokenizer, monkeypatch):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(20))
    build_corpus([source], tmp_path / "c", tokenizer, SMALL)
    monkeypatch.setattr("unmask.text.build.PREPARATION", 99)
    assert build_corpus([source], tmp_path / "c", tokenizer, SMALL)["outcome"] == (
        "rebuilt: texts are prepared in a better way now"
    )


def test_B025_changed_text_is_noticed_even_when_size_and_time_are_the_same(tmp_path, tokenizer):
    source, out = tmp_path / "a.txt", tmp_path / "c"
    source.write_text("one two three.")
    os.utime(source, (1, 1))
    build_corpus([str(source)], out, tokenizer)
    source.write_text("one two threx.")
    os.utime(source, (1, 1))
    assert build_corpus([str(source)], out, tokenizer)["outcome"] == "rebuilt: the texts changed"


def test_a_damaged_corpus_is_built_again(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(20))
    build_corpus([source], tmp_path / "c", tokenizer, SMALL)
    whole = manifest(tmp_path / "c")
    tokens = tmp_path / "c" / "train-00000.tokens"
    tokens.write_bytes(tokens.read_bytes()[:-1])
    outcome = build_corpus([source], tmp_path / "c", tokenizer, SMALL)["outcome"]
    assert outcome.startswith("rebuilt: it was damaged: train-00000.tokens")
    assert manifest(tmp_path / "c") == whole


def test_a_folder_that_is_no_corpus_is_never_replaced(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(3))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("x")
    with write_folder(tmp_path / "model", about={"format": "model"}) as folder:
        (folder / "weights").write_text("years of work")
    (tmp_path / "c.parts").mkdir()
    (tmp_path / "c.parts" / "thesis.txt").write_text("years of work")
    for name in ("mine", "file", "model", "c"):
        with pytest.raises(CannotWriteError):
            build_corpus([source], tmp_path / name, tokenizer)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    assert (tmp_path / "model" / "weights").read_text() == "years of work"
    assert [path.name for path in (tmp_path / "c.parts").iterdir()] == ["thesis.txt"]


def test_B026_nothing_is_written_beside_the_sources(tmp_path, tokenizer):
    folder = tmp_path / "read-only"
    folder.mkdir()
    write_jsonl(folder / "a.jsonl", some_texts(5))
    (folder / "a.jsonl").chmod(0o444)
    folder.chmod(0o555)
    before = folder.stat().st_mtime_ns, sorted(folder.iterdir())
    build_corpus([str(folder)], tmp_path / "out" / "c", tokenizer)
    assert (folder.stat().st_mtime_ns, sorted(folder.iterdir())) == before
    folder.chmod(0o755)


def a_chunk(folder: Path, tokenizer: Tokenizer, texts: list[str]) -> Chunk:
    folder.mkdir()
    tokenizer.save(folder / "tokenizer")
    recipe = Recipe(folder, tokenizer.fingerprint, "auto", WordSplitter(), near_duplicates=True, versions="1")
    return Chunk(recipe, 7, texts, [(0, n) for n in range(1, len(texts) + 1)], {0: "book.txt"})


def test_a_part_is_used_again_only_for_the_same_texts_and_recipe(tmp_path, tokenizer):
    chunk = a_chunk(tmp_path / "p", tokenizer, some_texts(4))
    assert not make_part(chunk).reused
    assert make_part(chunk).reused
    changed = [
        replace(chunk, texts=[*chunk.texts[:3], chunk.texts[3] + "x"]),
        replace(chunk, texts=chunk.texts[:2] + [chunk.texts[2] + chunk.texts[3], ""]),
        replace(chunk, origins=[(1, n) for n in range(1, 5)]),
        replace(chunk, recipe=replace(chunk.recipe, language="zh")),
        replace(chunk, recipe=replace(chunk.recipe, near_duplicates=False)),
        replace(chunk, recipe=replace(chunk.recipe, words=WordSplitter(user_words=(("a", 1),)))),
        replace(chunk, recipe=replace(chunk.recipe, tokenizer="another")),
        replace(chunk, recipe=replace(chunk.recipe, versions="2")),
    ]
    for other in changed:
        assert not make_part(other).reused
        assert not make_part(chunk).reused


def test_a_damaged_part_is_made_again_and_never_read(tmp_path, tokenizer):
    chunk = a_chunk(tmp_path / "p", tokenizer, some_texts(4))
    make_part(chunk)
    path = part_path(tmp_path / "p", 7)
    whole = path.read_bytes()
    rng = random.Random(0)
    for _ in range(100):
        broken = bytearray(whole)
        broken[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(broken[: rng.choice([len(whole), rng.randrange(len(whole))])])
        with pytest.raises(UnmaskError, match="part file changed"):
            read_part(tmp_path / "p", 7)
    assert not make_part(chunk).reused
    assert path.read_bytes() == whole


def test_an_error_inside_a_library_names_the_document(tmp_path, tokenizer, monkeypatch):
    class Panic(BaseException):
        """What a Rust library raises."""

    class Fragile:
        kind, vocab_size, unk_token_id = "wordpiece", 100, 1

        def encode(self, texts: list[str], words: WordSplitter) -> list:
            if any("bomb" in text for text in texts):
                raise Panic("index out of range")
            return tokenizer.encode(texts)

    monkeypatch.setattr(parts_module, "_tokenizer", lambda folder: Fragile())
    chunk = a_chunk(tmp_path / "p", tokenizer, ["fine.", "a bomb.", "fine too."])
    with pytest.raises(UnmaskError, match="Panic: index out of range") as error:
        make_part(chunk)
    assert error.value.where == "book.txt, record 2"


def test_a_killed_worker_is_an_error_and_leaves_no_process_behind(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(200))

    def kill_one(what: str, done: float, total: float | None) -> None:
        if "preparing" in what and total is None:
            for child in children():
                os.kill(child, signal.SIGKILL)

    begin = time.monotonic()
    with pytest.raises(UnmaskError, match="worker process was killed by signal 9"):
        build_corpus([source], tmp_path / "c", tokenizer, workers=2, chunk_characters=1500, progress=kill_one)
    assert time.monotonic() - begin < 10
    assert not children()
    assert part_path(tmp_path / "c.parts", 0).is_file()
    build_corpus([source], tmp_path / "c", tokenizer)
    assert not (tmp_path / "c.parts").exists()


def test_a_second_build_of_the_same_corpus_is_refused_while_the_first_is_at_work(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(20))
    messages = []

    def again(what: str, done: float, total: float | None) -> None:
        if not messages:
            with pytest.raises(CannotWriteError) as error:
                build_corpus([source], tmp_path / "c", tokenizer)
            messages.append(str(error.value))

    build_corpus([source], tmp_path / "c", tokenizer, progress=again)
    assert f"process {os.getpid()}" in messages[0]


SCRIPT = """
import os, signal, sys
from pathlib import Path
from unmask.text.build import BuildOptions, build_corpus
from unmask.text.tokenizer import Tokenizer
from unmask.text.words import WordSplitter

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would have it ignored

def progress(what, done, total):
    print(what, done, flush=True)
    sys.stdin.readline()  # goes no further until told to, or until nobody is there to tell it

source, out, tokenizer = sys.argv[1:4]
build_corpus([source], out, Tokenizer.load(Path(tokenizer)), BuildOptions(shard_tokens=2000), workers=2,
             chunk_characters=1500, progress=progress)
"""


def start_build(source: str, out: Path, tokenizer: Path) -> subprocess.Popen:
    """A build in a process group of its own that waits for a line after each report of progress."""
    command = [sys.executable, "-c", SCRIPT, source, str(out), str(tokenizer)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def group_is_gone(group: int, patience: float = 10) -> bool:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_after_a_kill_or_ctrl_c_the_same_command_goes_on_and_nobody_is_left(tmp_path, tokenizer, how):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(150))
    build_corpus([source], tmp_path / "undisturbed", tokenizer, SMALL)
    tokenizer.save(tmp_path / "t")
    process = start_build(source, tmp_path / "c", tmp_path / "t")
    for _ in range(3):
        assert process.stdout.readline().startswith("preparing")
        process.stdin.write("\n")
        process.stdin.flush()
    assert process.stdout.readline().startswith("preparing")
    (os.killpg if how == signal.SIGINT else os.kill)(process.pid, how)  # Ctrl-C reaches the whole group
    _, said = process.communicate(timeout=20)
    assert process.returncode == -how
    assert group_is_gone(process.pid)
    assert said.count("KeyboardInterrupt") == (how == signal.SIGINT)
    assert not (tmp_path / "c").exists()
    done = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "c.parts").glob("*.part")}
    assert len(done) >= 4
    again: dict[str, int] = {}

    def look(what: str, done: float, total: float | None) -> None:
        again.update({path.name: path.stat().st_mtime_ns for path in (tmp_path / "c.parts").glob("*.part")})

    build_corpus([source], tmp_path / "c", tokenizer, SMALL, chunk_characters=1500, progress=look)
    assert {name: again[name] for name in done} == done
    assert manifest(tmp_path / "c") == manifest(tmp_path / "undisturbed")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"a.jsonl", "c", "undisturbed", "t"}


def test_a_full_disk_is_said_and_the_old_corpus_stays(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(100))
    build_corpus([source], tmp_path / "c", tokenizer, SMALL)
    old = manifest(tmp_path / "c")
    tokenizer.save(tmp_path / "t")
    size = max(path.stat().st_size for path in (tmp_path / "t").rglob("*"))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, size + 1000))

    command = SCRIPT.replace("chunk_characters=1500", "chunk_characters=10**9").replace("400", "10**9")
    write_jsonl(tmp_path / "a.jsonl", some_texts(4000))
    done = subprocess.run(
        [sys.executable, "-c", command, source, str(tmp_path / "c"), str(tmp_path / "t")],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        preexec_fn=limit,
        timeout=60,
    )
    assert DiskError.__name__ in done.stderr and "File too large" in done.stderr
    assert manifest(tmp_path / "c") == old


MEMORY_SCRIPT = """
import resource, sys
from pathlib import Path
from unmask.text.build import build_corpus
from unmask.text.tokenizer import Tokenizer

build_corpus([sys.argv[1]], sys.argv[2], Tokenizer.load(Path(sys.argv[3])), workers=2, chunk_characters=100_000)
own = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(own / 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


@pytest.mark.slow
def test_B017_memory_does_not_grow_with_the_corpus(tmp_path, tokenizer):
    tokenizer.save(tmp_path / "t")
    peaks = []
    for count in (1000, 8000):
        texts = [" ".join(some) for some in zip(*[iter(some_texts(4 * count))] * 4, strict=True)]
        source = write_jsonl(tmp_path / f"{count}.jsonl", texts)
        command = [sys.executable, "-c", MEMORY_SCRIPT, source, str(tmp_path / str(count)), str(tmp_path / "t")]
        said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
        peaks.append([float(mib) for mib in said.split()])
    (own, worker), (own_large, worker_large) = peaks
    assert worker_large < worker + 5  # MiB; eight times the text
    assert own_large < own + 10  # what is remembered of 7,000 more documents
    assert own_large + 2 * worker_large < 400


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
