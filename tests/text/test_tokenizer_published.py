from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from published import SAVED, SPM_FILES, saved_folder, spm_folder, spm_model, texts, trained_like, vocabulary_folder

from unmask.errors import UnmaskError
from unmask.text.tokenizer import Tokenizer

ROLES = ("pad", "unk", "cls", "sep", "mask")


def auto(folder: Path, **options):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(str(folder), **options)


def check_equal(tokenizer: Tokenizer, theirs, samples: list[str]) -> None:
    ours = [encoded.ids.tolist() for encoded in tokenizer.encode(samples)]
    for text, ids, wanted in zip(samples, ours, theirs(samples, add_special_tokens=False)["input_ids"], strict=True):
        assert ids == wanted, text


def check_roles(tokenizer: Tokenizer, theirs) -> None:
    """Ours are theirs; T5 and GPT-2 call their separator "eos", and GPT-2's unknown token is no unknown token."""
    wanted = {role: getattr(theirs, f"{role}_token_id") for role in ROLES}
    if wanted["sep"] is None:
        wanted["sep"] = theirs.eos_token_id
    if wanted["unk"] == wanted["sep"]:
        wanted["unk"] = None
    assert {role: getattr(tokenizer, f"{role}_token_id") for role in ROLES} == wanted
    assert set(tokenizer.special_ids) >= {id for id in wanted.values() if id is not None}


@pytest.mark.parametrize("name", SAVED)
def test_a_folder_saved_by_transformers_gives_the_ids_of_AutoTokenizer(shared, tmp_path, name):
    folder = saved_folder(tmp_path / "theirs", shared, name)
    tokenizer, theirs = Tokenizer.load(folder), auto(folder)
    check_equal(tokenizer, theirs, texts(shared))
    check_roles(tokenizer, theirs)
    assert tokenizer.pieces() == theirs.convert_ids_to_tokens(list(range(len(theirs))))
    tokenizer.save(tmp_path / "ours")
    again = auto(tmp_path / "ours")
    check_equal(tokenizer, again, texts(shared))
    assert again("some text", "and more")["input_ids"] == theirs("some text", "and more")["input_ids"]
    assert Tokenizer.load(tmp_path / "ours").fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize("like", ["electra", "roberta", "deberta", "gpt2"])
def test_a_folder_with_nothing_but_vocabulary_files_gives_the_ids_of_AutoTokenizer(shared, tmp_path, like):
    folder = vocabulary_folder(tmp_path / "theirs", shared, like)
    tokenizer, theirs = Tokenizer.load(folder), auto(folder)
    check_equal(tokenizer, theirs, texts(shared))
    check_roles(tokenizer, theirs)
    tokenizer.save(tmp_path / "ours")
    check_equal(tokenizer, auto(tmp_path / "ours"), texts(shared))


@pytest.mark.parametrize("family", SPM_FILES)
def test_a_folder_with_nothing_but_a_sentencepiece_model_gives_the_ids_of_AutoTokenizer(shared, tmp_path, family):
    rule = "identity" if family == "deberta-v2" else "nmt_nfkc"  # see the next test
    folder = spm_folder(tmp_path / "theirs", shared, family, rule)
    tokenizer, theirs = Tokenizer.load(folder), auto(folder)
    assert tokenizer.kind == "unigram"
    check_equal(tokenizer, theirs, texts(shared))
    check_roles(tokenizer, theirs)
    assert tokenizer.pieces() == theirs.convert_ids_to_tokens(list(range(len(theirs))))
    tokenizer.save(tmp_path / "ours")
    again = auto(tmp_path / "ours")
    check_equal(tokenizer, again, texts(shared))
    assert again("some text", "and more")["input_ids"] == theirs("some text", "and more")["input_ids"]


def test_deberta_text_is_normalised_by_the_table_of_its_own_model(shared, tmp_path):
    """SentencePiece itself is the measure: transformers 5 leaves the table out, so full-width marks are unknown to it."""
    sentencepiece = pytest.importorskip("sentencepiece")
    tokenizer = Tokenizer.load(spm_folder(tmp_path, shared, "deberta-v2"))
    theirs = sentencepiece.SentencePieceProcessor(model_proto=spm_model(shared, "deberta-v2"))
    scores = np.array([theirs.get_score(id) for id in range(len(theirs))])
    for text, encoded in zip(texts(shared), tokenizer.encode(texts(shared)), strict=True):
        wanted = theirs.encode(text)
        if encoded.ids.tolist() != wanted:  # two ways to cut a word that are equally probable, but for rounding
            assert abs(scores[encoded.ids].sum() - scores[wanted].sum()) < 1e-4, text


def test_a_deberta_folder_of_transformers_4_is_saved_so_that_AutoTokenizer_keeps_the_table(shared, tmp_path):
    tokenizer = Tokenizer.load(spm_folder(tmp_path / "spm", shared, "deberta-v2"))
    tokenizer.save(tmp_path / "old")
    config = json.loads((tmp_path / "old" / "tokenizer_config.json").read_text())
    (tmp_path / "old" / "tokenizer_config.json").write_text(
        json.dumps(config | {"tokenizer_class": "DebertaV2Tokenizer"})
    )
    old = Tokenizer.load(tmp_path / "old")
    assert old.fingerprint == tokenizer.fingerprint
    old.save(tmp_path / "new")
    check_equal(old, auto(tmp_path / "new"), texts(shared))


def test_options_of_the_configuration_are_followed(shared, tmp_path):
    plain = Tokenizer.load(spm_folder(tmp_path / "t5", shared, "t5"))
    few = Tokenizer.load(spm_folder(tmp_path / "few", shared, "t5", extra_ids=7))
    assert (len(plain.sentinel_ids), len(few.sentinel_ids)) == (100, 7)
    assert few.vocab_size == plain.vocab_size - 93
    for name, options in {"albert": {"do_lower_case": False}, "deberta-v2": {"split_by_punct": True}}.items():
        rule = "identity" if name == "deberta-v2" else "nmt_nfkc"
        folder = spm_folder(tmp_path / name, shared, name, rule, **options)
        check_equal(Tokenizer.load(folder), auto(folder), texts(shared))


def test_sentinels_are_special_and_counted_from_zero(shared, tmp_path):
    tokenizer = Tokenizer.load(saved_folder(tmp_path / "t5", shared, "t5"))
    tokens = [tokenizer.token(id) for id in tokenizer.sentinel_ids]
    assert tokens == [f"<extra_id_{number}>" for number in range(100)]
    assert tokenizer.vocabulary().sentinel_ids == tokenizer.sentinel_ids
    assert set(tokenizer.sentinel_ids) <= set(tokenizer.special_ids)
    assert tokenizer.sentinel_ids[0] == tokenizer.vocab_size - 1, "as published: <extra_id_0> is the last"


def test_a_token_spelled_like_a_beginning_is_none_where_the_frame_does_not_use_it(shared, tmp_path):
    """umT5 has a piece <s>, but no text of its begins with it."""
    content, config = trained_like(shared, "t5").documents()
    content["model"]["vocab"].append(["<s>", -50.0])
    assert Tokenizer(content, config).cls_token_id is None
    content["post_processor"] = None
    assert Tokenizer(content, config).cls_token_id == 2000


def test_a_model_file_of_no_named_family_is_refused_with_the_way_out(shared, tmp_path):
    folder = spm_folder(tmp_path, shared, "t5")
    (folder / "config.json").write_text("{}")
    with pytest.raises(UnmaskError, match="tokenizer_class"):
        Tokenizer.load(folder)
    (folder / "config.json").write_text('{"model_type": "albert"}')
    with pytest.raises(UnmaskError, match=r"\[CLS\]"):
        Tokenizer.load(folder)


@pytest.mark.parametrize("count", [-1, 1 << 40, "many", 1.5, True])
def test_impossible_counts_of_sentinels_are_refused(shared, tmp_path, count):
    with pytest.raises(UnmaskError, match="extra_ids"):
        Tokenizer.load(spm_folder(tmp_path, shared, "t5", extra_ids=count))


@pytest.mark.parametrize("name", SAVED)
def test_the_spelling_of_a_special_token_never_becomes_one(shared, tmp_path, name):
    tokenizer = Tokenizer.load(saved_folder(tmp_path / "theirs", shared, name))
    forged = set(tokenizer.special_ids) - {tokenizer.unk_token_id}
    names = [tokenizer.token(id) for id in tokenizer.special_ids][:12]
    samples = [*names, " ".join(names), "".join(names), *(f"the {name} word" for name in names)]
    for encoded in tokenizer.encode(samples):
        assert not forged & set(encoded.ids.tolist())


@pytest.mark.parametrize("like", ["roberta", "deberta", "gpt2"])
def test_words_are_cut_as_transformers_cuts_them_for_labelling(shared, tmp_path, like):
    """Every word with its space, so that it has the same pieces wherever it stands."""
    tokenizer = trained_like(shared, like)
    tokenizer.save(tmp_path)
    theirs = auto(tmp_path, add_prefix_space=True)
    for text in texts(shared)[:200]:
        words = text.split()
        wanted = theirs(words, is_split_into_words=True, add_special_tokens=False)
        ours = tokenizer.encode_words(words)
        assert ours.ids.tolist() == wanted["input_ids"]
        assert (np.cumsum(ours.word_starts) - 1).tolist() == wanted.word_ids()


@pytest.mark.parametrize("name", ["bert", "albert", "t5", "xlm-roberta", "roberta with add_prefix_space"])
def test_words_are_cut_as_transformers_cuts_them_where_it_needs_no_option(shared, tmp_path, name):
    folder = saved_folder(tmp_path / "theirs", shared, name)
    tokenizer, theirs = Tokenizer.load(folder), auto(folder)
    for text in texts(shared)[:200]:
        words = text.split()
        wanted = theirs(words, is_split_into_words=True, add_special_tokens=False)["input_ids"]
        assert tokenizer.encode_words(words).ids.tolist() == wanted


@pytest.mark.parametrize("like", ["roberta", "gpt2", "modernbert", "albert", "deberta-v3", "t5", "electra"])
def test_a_word_has_the_same_pieces_in_a_list_and_inside_a_sentence(shared, like):
    tokenizer = trained_like(shared, like)
    words = ["the", "old", "naïve", "café", "opened", "in", "Zürich", "的人", "2024"]
    alone = [tokenizer.encode_words([word]).ids.tolist() for word in words]
    together = tokenizer.encode_words(words).ids.tolist()
    assert together == [id for ids in alone for id in ids]
    inside = tokenizer.encode(["so " + " ".join(words)])[0].ids.tolist()
    assert inside[-len(together) :] == together


def test_a_gpt2_tokenizer_without_an_unknown_token_still_gives_each_word_a_piece(shared):
    tokenizer = trained_like(shared, "gpt2")
    assert tokenizer.unk_token_id is None
    encoded = tokenizer.encode_words(["", "a", "", " "])
    assert encoded.word_starts.sum() == 4


@pytest.mark.parametrize("name", SAVED)
def test_word_starts_and_offsets_follow_the_text_whatever_the_marks(shared, tmp_path, name):
    tokenizer = Tokenizer.load(saved_folder(tmp_path / "theirs", shared, name))
    for text in ("The old Zoë doesn't care.", "用BERT训练naïve模型，好。"):
        encoded = tokenizer.encode([text])[0]
        starts = encoded.offsets[encoded.word_starts, 0]
        words = [text[a:b].strip() for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
        wanted = {
            "The old Zoë doesn't care.": ["The", "old", "Zoë", "doesn", "'", "t", "care", "."],
            "用BERT训练naïve模型，好。": ["用", "BERT", "训", "练", "naïve", "模", "型", "，", "好", "。"],
        }[text]
        joined = "".join(words)
        assert joined == "".join(wanted), "nothing between words is lost"
        edges = {len("".join(wanted[:n])) for n in range(len(wanted))}
        assert {len("".join(words[:n])) for n in range(len(words))} <= edges, "no word begins inside another"
        assert len(words) >= len(wanted) - 2  # a piece may join words: they are then one


def test_a_tokenizer_configuration_may_be_objects_of_transformers_4(shared, tmp_path):
    trained_like(shared, "roberta").save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config["cls_token"] = {"__type": "AddedToken", "content": "<s>", "lstrip": False, "normalized": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.load(tmp_path).cls_token_id == 0
