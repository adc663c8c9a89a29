"""The tables of a lecture: words, draws, spans, pairs, the decoder's side, the generator's sample."""

from __future__ import annotations

import pytest
from texts import CHINESE, ENGLISH, HIDING, OTHER, drawn

from unmask.explanation import explain
from unmask.explanation.result import Sequence


def test_positions_of_roberta_begin_at_2() -> None:
    (one,) = explain(ENGLISH, preset="roberta_base").sequences
    assert one.position_ids == tuple(range(2, 2 + len(one.ids))) and set(one.token_type_ids) == {0}


def test_a_label_is_the_token_that_was_there_and_minus_100_elsewhere() -> None:
    fates = set()
    for found in drawn("mlm"):
        for one in found.sequences:
            for token, shown, label, fate in zip(one.ids, one.input_ids, one.labels, one.fates, strict=True):
                assert label == (token if fate else -100)
                assert shown == token or fate in ("mask", "random")
                assert (shown == found.tokenizer.special_tokens["[MASK]"]) == (fate == "mask")
            fates |= set(one.fates)
    assert fates == {"", "mask", "random", "kept"}


def test_whole_words_are_chosen_whole() -> None:
    """In Chinese a word is what the segmenter finds."""
    words = set()
    for seed in range(6):
        (one,) = explain(CHINESE, objective="wwm", seed=seed).sequences
        for span in one.spans:
            places = {place for place, word in enumerate(one.words) if word == one.words[span.start]}
            assert places == set(range(span.start, span.end))
            words.add("".join(span.tokens))
    assert {"自然语言", "研究"} & words


def test_spans_meet_one_fate_and_are_guessed_from_the_tokens_outside() -> None:
    longest = 0
    for found in drawn("span"):
        (one,) = found.sequences
        asked = {(t.sequence, t.place) for loss in found.losses if loss.name == "sbo" for t in loss.targets}
        for span in one.spans:
            assert len(set(span.fates) - {"kept", "random"}) <= 1
            assert (span.left, span.right) == (span.start - 1, span.end)
            assert {(0, place) for place in range(span.start, span.end)} <= asked
            longest = max(longest, span.words)
    assert longest > 1


def test_a_pair_says_where_its_second_segment_is_from() -> None:
    found = [one.pair for e in drawn("nsp", second=OTHER) for one in e.sequences]
    exchanged = [pair for pair in found if pair and pair.label == 1]
    assert exchanged and len(exchanged) < len(found)
    assert all("exchanged" in pair.what for pair in exchanged)
    for pair in exchanged:
        assert (pair.first in ENGLISH) != (pair.second in ENGLISH)
    for pair in found:
        assert pair and (pair.label == 1 or pair.what == "B follows A in the text")


def test_swapped_segments_are_told_from_those_in_order() -> None:
    found = [one.pair for e in drawn("sop") for one in e.sequences]
    for pair in found:
        assert pair and (ENGLISH.index(pair.first) > ENGLISH.index(pair.second)) == bool(pair.label)
        assert pair.what.startswith("swapped") == bool(pair.label)
    assert {pair.label for pair in found if pair} == {0, 1}


def test_segments_have_their_token_type() -> None:
    (one,) = explain(ENGLISH, objective="nsp").sequences
    first = one.tokens.index("[SEP]") + 1
    assert one.token_type_ids == (0,) * first + (1,) * (len(one.ids) - first)


def test_one_text_alone_gives_no_negative_pair_and_says_so() -> None:
    found = explain(ENGLISH, objective="nsp")
    assert any("--second" in note for note in found.notes)


def test_a_causal_label_is_the_next_token() -> None:
    (one,) = explain(ENGLISH, objective="causal").sequences
    assert one.labels == (*one.ids[1:], -100) and one.input_ids == one.ids


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, " ".join([ENGLISH] * 8)])
def test_a_decoder_is_to_write_what_the_sentinels_stand_for(text: str) -> None:
    """Putting each span back in the place of its sentinel gives the text again."""
    for seed in range(5):
        found = explain(text, objective="infill", seed=seed)
        (one,) = found.sequences
        assert one.decoder and one.decoder.input_ids[1:] == one.decoder.labels[:-1]
        assert one.decoder.input_ids[0] == found.tokenizer.special_tokens["<pad>"]
        spans = {span.sentinel: list(span.tokens) for span in one.spans}
        assert [t for token in one.input_tokens for t in spans.get(token, [token])] == list(one.tokens)
        assert list(one.decoder.target_tokens) == [t for s in one.spans for t in (s.sentinel, *s.tokens)] + ["</s>"]
        assert all(one.tokens[span.start : span.end] == span.tokens for span in one.spans)


def test_a_sample_that_is_the_original_counts_as_original() -> None:
    labels = set()
    for found in drawn("rtd"):
        one: Sequence = found.sequences[0]
        assert one.replaced
        for token, shown, label, fate in zip(one.ids, one.replaced.ids, one.replaced.labels, one.fates, strict=True):
            assert label == (token != shown) and (fate or not label)
            labels.add(label)
    assert labels == {0, 1}


def test_two_texts_are_padded_to_one_length() -> None:
    found = explain(ENGLISH, second="A dog.")
    lengths = [len(one.input_ids) for one in found.sequences]
    assert [sum(one.attention_mask) for one in found.sequences] == lengths
    assert {len(one.attention_mask) for one in found.sequences} == {max(lengths)} and min(lengths) < max(lengths)
    assert {one.text for one in found.sequences} == {0, 1}


def test_the_text_of_a_word_is_read_from_the_text() -> None:
    """Byte-level pieces can't be read in Chinese; the words they form can."""
    (one,) = explain(CHINESE, preset="roberta_base").sequences
    assert "自然语言" in one.word_texts and "".join(one.word_texts) == CHINESE


@pytest.mark.parametrize("objective", HIDING)
def test_a_text_too_short_for_a_target_is_explained_without_one(objective: str) -> None:
    found = [explain("a", objective=objective, seed=seed) for seed in range(4)]
    without = [e for e in found if not any(e.sequences[0].fates)]
    assert without and all(one.spans == () for e in without for one in e.sequences)
    assert all(any("no target" in note for note in e.notes) for e in without)
