from __future__ import annotations

from collections import Counter

import pytest
from test_tokenizer import auto, check_equal, minilm
from tokenizer_corpus import KINDS, ODD_LINES, corpus, lines, trained

from unmask.errors import UnmaskError
from unmask.text.extend import extend
from unmask.text.inspect import inspect
from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, train


@pytest.mark.parametrize("kind", KINDS)
def test_new_pieces_follow_the_old_ones_and_save_tokens(shared, tmp_path, kind):
    old, _ = trained(shared, kind)
    field = lines(shared, "en_textbooks_openstax", 300) + lines(shared, "zh_docs_oiwiki", 300)
    new, pieces = extend(old, field, 200)
    assert new.kind == old.kind and len(pieces) == 200 and new.vocab_size == old.vocab_size + 200
    assert new.pieces()[: old.vocab_size] == old.pieces()
    assert new.special_ids == old.special_ids and new.mask_token_id == old.mask_token_id
    before, after = (sum(len(e.ids) for e in each.encode(field)) for each in (old, new))
    assert after < before * 0.98
    used = {int(id) for e in new.encode(field) for id in e.ids}
    assert len(used & set(range(old.vocab_size, new.vocab_size))) >= 180
    new.save(tmp_path)
    check_equal(new, auto(tmp_path), corpus(shared)[:300] + field + ODD_LINES)
    again, same = extend(old, field[::-1], 200)
    assert (again.fingerprint, same) == (new.fingerprint, pieces)


@pytest.mark.parametrize("kind", KINDS)
def test_the_old_pieces_of_a_new_one_spell_it(shared, kind):
    old, _ = trained(shared, kind)
    new, pieces = extend(old, lines(shared, "en_textbooks_openstax", 300), 60)
    for id, ids in enumerate(pieces, old.vocab_size):
        assert ids and max(ids) < old.vocab_size
        if old.unk_token_id not in ids:
            spelled = "".join(old.token(piece).removeprefix("##") for piece in ids)
            assert spelled == new.token(id)


def test_a_text_without_new_words_is_tokenised_as_before(shared):
    for kind in ("wordpiece", "bpe", "unigram"):
        old, _ = trained(shared, kind)
        new, _ = extend(old, ["zyzzyva quokka axolotl " * 20], 3, min_frequency=2)
        texts = corpus(shared)[:200]
        assert [e.ids.tolist() for e in new.encode(texts)] == [e.ids.tolist() for e in old.encode(texts)]
        if kind != "bpe":
            assert len(new.encode(["quokka axolotl"])[0].ids) == 2


def test_a_published_bert_learns_the_words_of_a_field(shared, tmp_path):
    old = Tokenizer.load(minilm())
    new, pieces = extend(old, ["Myocarditis and cardiomyopathies, myocarditis!"] * 6, 2)
    assert [new.token(id) for id in (30522, 30523)] == ["myocarditis", "cardiomyopathies"]
    assert [[old.token(id) for id in ids] for ids in pieces][0][0].startswith("my")
    new.save(tmp_path)
    check_equal(new, auto(tmp_path), ["Myocarditis is no cardiomyopathies"])


def test_merging_goes_on_as_plain_byte_pair_encoding_would():
    old, _ = train(["ab ab cd"], TrainOptions(kind="bpe", vocab_size=264))
    text = "abcabcd abab cdcd abcd xabx aaaa aaaaaa the then they bathe " * 3 + "abcd they"
    new, _ = extend(old, [text], 15, min_frequency=2)
    counts = Counter(old.pre_tokens(text))
    words = {word: [old.token(id) for id in old.model_ids(word)] for word in counts}
    expected: list[str] = []
    while len(expected) < 15:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in words.items():
            for pair in zip(pieces, pieces[1:], strict=False):
                pairs[pair] += counts[word]
        best = min(
            (pair for pair in pairs if "".join(pair) not in old.pieces() + expected), key=lambda p: (-pairs[p], p)
        )
        if pairs[best] < 2:
            break
        expected.append("".join(best))
        for pieces in words.values():
            at = 0
            while at < len(pieces) - 1:
                if (pieces[at], pieces[at + 1]) == best:
                    pieces[at : at + 2] = ["".join(best)]
                at += 1
    assert new.pieces()[old.vocab_size :] == expected and len(expected) == 15


def test_unknown_characters_become_known(shared):
    old, _ = train(["only letters here"] * 3, TrainOptions(kind="characters", vocab_size=100))
    new, pieces = extend(old, ["龍龍龍"] * 5, 1)
    assert new.token(new.vocab_size - 1) == "龍" and pieces == [[old.unk_token_id]]
    assert new.unk_token_id not in new.encode(["龍"])[0].ids


def test_added_tokens_beyond_the_model_keep_their_ids(shared):
    content, config = trained(shared, "unigram")[0].documents()
    size = len(content["model"]["vocab"])
    mask = content["added_tokens"][4]
    content["model"]["vocab"][mask["id"]][0] = "never-used-piece"
    content["added_tokens"][4] = {**mask, "id": size}
    content["added_tokens"].sort(key=lambda token: token["id"])
    old = Tokenizer(content, config)
    assert old.mask_token_id == size
    new, _ = extend(old, ["zyzzyva quokka " * 20], 2, min_frequency=2)
    assert new.mask_token_id == size and new.vocab_size == size + 3
    assert new.encode_marked("[MASK]").ids.tolist()[-1] == size


def test_asking_for_nothing_or_finding_nothing_is_an_error(shared):
    old, _ = trained(shared, "wordpiece")
    with pytest.raises(UnmaskError, match="at least 1"):
        extend(old, ["text"], 0)
    with pytest.raises(UnmaskError, match="no new piece"):
        extend(old, ["the the the"], 5)


def test_inspection_counts_what_can_be_counted_by_hand():
    tokenizer, _ = train(["ab cd ab cd"] * 5, TrainOptions(vocab_size=30))
    found = inspect(tokenizer, ["ab cd", "ab龍 xab"])
    assert (found.texts, found.characters, found.words) == (2, 10, 5)
    assert [tokenizer.token(id) for id in tokenizer.encode(["ab龍 xab"])[0].ids] == ["ab", "[UNK]", "[UNK]"]
    assert (found.tokens, found.unknown_tokens) == (5, 2)
    assert found.coverage == pytest.approx(1 - 4 / 10) and found.unknown_rate == pytest.approx(2 / 5)
    assert found.tokens_per_word == 1 and found.tokens_per_character == 0.5
    assert found.longest_pieces[:2] == ["ab", "cd"]
    pieces = [piece.removeprefix("##") for piece in tokenizer.pieces()[5:]]
    assert found.single_character_pieces == pytest.approx(sum(len(piece) == 1 for piece in pieces) / len(pieces))
    assert set(found.as_dict()) >= {"unknown_rate", "coverage", "longest_pieces"}


@pytest.mark.parametrize("kind", KINDS)
def test_inspection_of_the_training_text_shows_full_coverage(shared, kind):
    tokenizer, _ = trained(shared, kind)
    found = inspect(tokenizer, corpus(shared)[:600])
    assert found.coverage > 0.998 and 0.9 < found.tokens_per_word < 3
    assert len(found.longest_pieces) == 20 and not set(found.longest_pieces) & {"[MASK]", "<mask>", "[UNK]"}


def test_inspection_of_nothing_divides_by_nothing(shared):
    tokenizer, _ = trained(shared, "bpe")
    assert inspect(tokenizer, []).tokens_per_word == 0 and inspect(tokenizer, [""]).coverage == 1


def test_a_file_that_writes_merges_as_strings_can_be_extended(shared, tmp_path):
    content, config = trained(shared, "bpe")[0].documents()
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    new, _ = extend(Tokenizer(content, config), ["zyzzyva quokka " * 20], 2, min_frequency=2)
    expected, _ = extend(trained(shared, "bpe")[0], ["zyzzyva quokka " * 20], 2, min_frequency=2)
    assert new.fingerprint == expected.fingerprint
