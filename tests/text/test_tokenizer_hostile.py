from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from unmask.errors import UnmaskError
from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, train


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram"])
def content(request):
    text = ["some words and some more words to learn from, 12 of them"] * 3
    return train(text, TrainOptions(kind=request.param, vocab_size=300))[0].documents()[0]


def written(folder: Path, content: object) -> Path:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / "tokenizer.json").write_bytes(data)
    return folder


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(?:a*)*c", "a*a*a*a*b", "(.*)\\1", "[a-z]+@[a-z]+", "((a{9}){9}){9}"]
)
@pytest.mark.parametrize("place", ["pre_tokenizer", "normalizer", "nested", "decoder"])
def test_regular_expressions_that_may_be_slow_are_refused_before_they_run(tmp_path, content, pattern, place):
    part = {
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        "normalizer": {"type": "Replace", "pattern": {"Regex": pattern}, "content": ""},
        "decoder": {"type": "Replace", "pattern": {"Regex": pattern}, "content": ""},
    }
    part["nested"] = {"type": "Sequence", "pretokenizers": [part["pre_tokenizer"]]}
    key = "pre_tokenizer" if place == "nested" else place
    began = time.process_time()
    with pytest.raises(UnmaskError, match="regular expression"):
        Tokenizer.load(written(tmp_path, {**content, key: part[place]}))
    assert time.process_time() - began < 1


@pytest.mark.parametrize("pattern", [" {2,}", r"\s+", r"\p{N}", r"\d{1,3}", r"[^\s]", r"[\p{L}\p{M}]+", "▁"])
def test_plain_patterns_pass_and_are_fast_on_floods(tmp_path, content, pattern):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    steps = {"type": "Sequence", "pretokenizers": [split, *([content["pre_tokenizer"]])]}
    tokenizer = Tokenizer.load(written(tmp_path, {**content, "pre_tokenizer": steps}))
    began = time.process_time()
    for flood in ("a", "a.", " ", "1"):
        tokenizer.encode([flood * (20_000 // len(flood))])
    assert time.process_time() - began < 2


def test_a_long_pattern_is_judged_quickly(tmp_path, content):
    pattern = "[" + r"\p{L}" * 5000 + "(]"
    split = {"type": "Split", "pattern": {"Regex": pattern + "("}, "behavior": "Isolated", "invert": False}
    began = time.process_time()
    with pytest.raises(UnmaskError):
        Tokenizer.load(written(tmp_path, {**content, "pre_tokenizer": split}))
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "change",
    [
        {"model": None},
        {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}},
        {"model": {}},
        {"added_tokens": [{"id": 1 << 31, "content": "far", "special": True}]},
        {"added_tokens": 7},
        {"pre_tokenizer": {"type": "Nothing"}},
        {"post_processor": {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}, "model": 3},
    ],
)
def test_damaged_parts_are_errors_that_name_the_folder(tmp_path, content, change):
    with pytest.raises(UnmaskError) as error:
        Tokenizer.load(written(tmp_path, {**content, **change}))
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 200_000, b'{"model": {"vocab": ' + b"[" * 100_000]
)
def test_files_that_are_no_json_object_are_errors(tmp_path, data):
    with pytest.raises(UnmaskError, match="tokenizer.json"):
        Tokenizer.load(written(tmp_path, data))


def test_mutated_files_never_panic_and_never_hang(tmp_path, content):
    rng = random.Random(0)
    data = json.dumps(content).encode()
    begin, loaded = time.process_time(), 0
    for _ in range(150):
        bad = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(bad))
            match rng.randrange(3):
                case 0:
                    bad[at] = rng.randrange(256)
                case 1:
                    del bad[at : at + rng.randint(1, 20)]
                case 2:
                    bad[at:at] = rng.choice([b"0", b"null", b'"', b"{}", b"-1", b"99999999", b"\\u0000", b"e9"])
        try:
            tokenizer = Tokenizer.load(written(tmp_path, bytes(bad)))
            tokenizer.decode(tokenizer.encode(["some text 12, 的"])[0].ids)
            loaded += 1
        except UnmaskError:
            pass
    assert time.process_time() - begin < 5 and loaded < 150


def test_a_folder_without_a_tokenizer_says_what_it_needs(tmp_path):
    with pytest.raises(UnmaskError, match="vocab.txt"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(UnmaskError, match="no special token"):
        Tokenizer.load(tmp_path)


def test_code_named_in_a_configuration_does_not_travel(tmp_path, content):
    written(tmp_path, content)
    (tmp_path / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["x.Evil", null]}}')
    Tokenizer.load(tmp_path).save(tmp_path / "out")
    assert "auto_map" not in (tmp_path / "out" / "tokenizer_config.json").read_text()


def test_a_panic_of_the_library_is_an_ordinary_error(content):
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    with pytest.raises(UnmaskError, match="PanicException") as error:
        Tokenizer({**content, "pre_tokenizer": split}, {})
    assert not isinstance(error.value.__cause__, Exception), "else this test no longer tests panics"
