from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tokenizer_corpus import KINDS, ODD_LINES, corpus, lines, trained

from unmask.errors import UnmaskError
from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, train
from unmask.text.training_text import Sample, collect


def tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.token(id) for id in tokenizer.encode([text])[0].ids]


@pytest.mark.parametrize("kind", KINDS)
def test_B061_the_same_text_gives_the_same_bytes_in_any_order_and_with_any_threads(tmp_path, kind):
    rng = random.Random(3)
    words = [f"{a}{b}{c}" for a in "abcdexyz" for b in ("ing", "tion", "é", "的人") for c in "stuvw"]
    texts = [" ".join(rng.choice(words) for _ in range(40)) for _ in range(120)]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    program = (
        "import json,sys; from unmask.text.train_tokenizer import *; t=json.load(open(sys.argv[1])); "
        f"print(train(t[::int(sys.argv[2])], TrainOptions(kind='{kind}', vocab_size=500))[0].fingerprint)"
    )
    made = set()
    for threads, step in (("1", "1"), ("2", "-1")):
        environment = os.environ | {"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        command = [sys.executable, "-c", program, str(tmp_path / "texts.json"), step]
        made.add(subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout)
    assert len(made) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_vocabulary_has_the_size_asked_for_and_special_tokens_first(shared, kind):
    tokenizer, report = trained(shared, kind)
    assert report.vocab_size == tokenizer.vocab_size <= 4000
    assert tokenizer.vocab_size > 3900
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)
    assert len(set(tokenizer.pieces())) == tokenizer.vocab_size and all(tokenizer.pieces())
    assert report.as_dict()["texts"] == len(corpus(shared)) + 3


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "characters"])
def test_a_size_below_the_alphabet_is_refused_with_the_size_it_needs(kind):
    text = "".join(chr(0x4E00 + i) for i in range(1200)) + " letters"
    with pytest.raises(UnmaskError, match=r"need 1[23]\d\d pieces, but vocab_size is 1000"):
        train([text], TrainOptions(kind=kind, vocab_size=1000, limit_alphabet=5000))


def test_byte_level_bpe_needs_its_256_bytes():
    with pytest.raises(UnmaskError, match="need 261 pieces"):
        train(["text"], TrainOptions(kind="bpe", vocab_size=260))
    assert train(["text text"], TrainOptions(kind="bpe", vocab_size=261))[0].vocab_size == 261


@pytest.mark.parametrize("kind", KINDS)
def test_B059_three_thousand_hanzi_give_no_unknown_token_on_the_training_text(kind):
    hanzi = [chr(0x4E00 + i) for i in range(3000)]
    random.Random(0).shuffle(hanzi)
    texts = ["".join(hanzi[i : i + 30]) + "。" for i in range(0, 3000, 30)]
    tokenizer, report = train(texts, TrainOptions(kind=kind, vocab_size=21128))
    assert report.coverage == 1.0 and report.rare_characters == 0
    for encoded in tokenizer.encode(texts):
        assert tokenizer.unk_token_id not in encoded.ids
    if kind == "characters":
        assert tokens(tokenizer, texts[0]) == list(texts[0])


def test_real_chinese_in_character_mode_has_no_unknown_token_and_one_token_a_hanzi(shared):
    texts = corpus(shared)
    tokenizer, report = trained(shared, "characters")
    long = [text for text in texts if any(len(word) > 100 for word in text.split())]
    for text, encoded in zip(texts, tokenizer.encode(texts), strict=True):
        assert text in long or tokenizer.unk_token_id not in encoded.ids
    assert report.coverage == 1.0


def test_a_capped_alphabet_is_reported_with_its_coverage():
    texts = ["common words " * 50 + chr(0x100 + i) for i in range(200)]
    tokenizer, report = train(texts, TrainOptions(vocab_size=200))
    assert report.rare_characters > 100 and 0.9 < report.coverage < 1 and report.rare_examples
    assert tokenizer.vocab_size <= 200 and report.alphabet == 64


def test_B065_accents_stay_unless_they_are_asked_away(tmp_path):
    texts = ["naïve Café naïve Café"] * 5
    for lowercase in (False, True):
        tokenizer, _ = train(texts, TrainOptions(vocab_size=100, lowercase=lowercase))
        assert tokens(tokenizer, "naïve Café") == (["naïve", "café"] if lowercase else ["naïve", "Café"])
    tokenizer, _ = train(texts, TrainOptions(vocab_size=100, lowercase=True, strip_accents=True))
    tokenizer.save(tmp_path)
    assert tokens(Tokenizer.load(tmp_path), "naïve Café") == ["naive", "cafe"]
    assert (
        json.loads((tmp_path / "tokenizer.json").read_text())["normalizer"]["normalizers"][1]["strip_accents"] is True
    )
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["strip_accents"] is True


@pytest.mark.parametrize("kind", KINDS)
def test_B057_voiced_kana_keep_their_mark(kind):
    for text in ("バスです", "ハ\u3099スて\u3099す"):
        tokenizer, _ = train(["バスです"] * 5, TrainOptions(kind=kind, vocab_size=400))
        assert "バ" in tokenizer.decode(tokenizer.encode([text])[0].ids)
        assert tokenizer.unk_token_id not in tokenizer.encode([text])[0].ids


@pytest.mark.parametrize("kind", KINDS)
def test_B063_single_digits_stay_single(kind):
    texts = ["in 2024 and 2024, 1999 or 2024 x2024y"] * 20
    tokenizer, _ = train(texts, TrainOptions(kind=kind, vocab_size=400, individual_digits=True))
    assert not [piece for piece in tokenizer.pieces() if sum(character.isdigit() for character in piece) > 1]
    digits = [token.strip("▁Ġ#") for token in tokens(tokenizer, "2024")]
    assert [digit for digit in digits if digit] == list("2024")
    merged, _ = train(texts, TrainOptions(kind=kind, vocab_size=400))
    assert [piece for piece in merged.pieces() if "2024" in piece]


def test_B067_hanzi_can_be_left_in_one_word(tmp_path):
    texts = ["的人有", "的 人 有", "人的", "有人的"] * 3
    tokenizer, _ = train(texts, TrainOptions(vocab_size=60, tokenize_chinese_chars=False, min_frequency=1000))
    tokenizer.save(tmp_path)
    for each in (tokenizer, Tokenizer.load(tmp_path)):
        assert tokens(each, "的人有") == ["的", "##人", "##有"]
    split, _ = train(texts, TrainOptions(vocab_size=60))
    assert tokens(split, "的人有") == ["的", "人", "有"]


@pytest.mark.parametrize("kind", KINDS)
def test_B062_an_extra_token_is_recognised_before_anything_is_normalised(tmp_path, kind):
    options = TrainOptions(kind=kind, vocab_size=400, lowercase=True, extra_tokens=("[NUM]", "Ünit"))
    tokenizer, _ = train(["some cats and more cats"] * 3, options)
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    for text in ("[NUM] cats", "cats [NUM]", "Ünit[NUM]"):
        assert "[NUM]" in tokens(again, text)
    assert "Ünit" in tokens(again, "Ünit[NUM]") and "Ünit" not in tokens(again, "ünit")
    assert len(again.special_ids) == 5


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_B013_one_giant_word_does_not_stall_training(shared, kind):
    clean = lines(shared, "en_wikitext2_valid", 800)
    options = TrainOptions(kind=kind, vocab_size=2000)
    began = time.process_time()
    expected, _ = train(clean, options)
    plain = time.process_time() - began
    giant = "abcdefghijklmnopqrst" * 250_000
    began = time.process_time()
    tokenizer, report = train([*clean, giant], options)
    assert time.process_time() - began < 2 * plain + 1
    assert report.long_words >= 1
    assert tokenizer.pieces() == expected.pieces()


def test_B016_a_sample_bounds_memory_and_does_not_depend_on_the_order():
    texts = [f"text number {i} " * 50 for i in range(400)]
    size = sum(map(len, texts))
    samples = [collect(order, size // 4) for order in (texts, texts[::-1])]
    assert list(samples[0]) == list(samples[1])
    assert size / 16 < samples[0].bytes_kept <= size / 4
    assert samples[0].bytes_read == size and samples[0].texts == 400
    assert sorted(collect(texts, size)) == sorted(texts)


def test_B016_hanzi_without_a_space_is_learned_from_in_bounded_pieces():
    rng = random.Random(0)
    hanzi = "".join(chr(0x4E00 + rng.randrange(3000)) for _ in range(300_000))
    for kind in ("bpe", "characters"):
        tokenizer, report = train([hanzi], TrainOptions(kind=kind, vocab_size=6000, max_bytes=400_000))
        assert report.long_words == 0 and report.bytes_used <= 400_000 < report.bytes_read
        assert tokenizer.vocab_size > 2800


def test_slices_of_a_document_add_up_to_it():
    sample = Sample(1 << 30)
    text = "".join(f"word{i} " for i in range(40_000)) + "x" * 200_000
    sample.add(text)
    assert sorted("".join(sample)) == sorted(text) and max(map(len, sample)) <= 1 << 16


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [[], [""], [" \n\u3000"]])
def test_training_without_text_is_refused(kind, texts):
    with pytest.raises(UnmaskError, match="no text"):
        train(texts, TrainOptions(kind=kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tiny_text_gives_a_small_but_whole_tokenizer(kind):
    tokenizer, report = train(["ab"], TrainOptions(kind=kind, vocab_size=1000))
    assert report.vocab_size < 300 and tokenizer.decode(tokenizer.encode(["ab"])[0].ids).strip() == "ab"


@pytest.mark.parametrize(
    "options", [{"vocab_size": 0}, {"min_frequency": 0}, {"extra_tokens": (" ",)}, {"max_bytes": -1}]
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(UnmaskError):
        train(["text"], TrainOptions(**options))


def test_training_reports_its_progress(shared):
    seen = []
    train(ODD_LINES, TrainOptions(kind="bpe", vocab_size=300), progress=lambda *step: seen.append(step))
    assert {what for what, _, _ in seen} >= {"reading text, characters", "learning pieces"}
    assert seen[-1][1] == seen[-1][2]


def test_min_frequency_holds(shared):
    texts = ["rareword " + "frequent " * 10]
    tokenizer, _ = train(texts, TrainOptions(vocab_size=500, min_frequency=5))
    assert "frequent" in tokenizer.pieces() and "rareword" not in tokenizer.pieces()


def test_unigram_scores_segment_as_well_as_the_librarys_own(shared, tmp_path):
    """Our scores are hard-EM estimates; the number of tokens tells whether they are any good."""
    import tokenizers
    from tokenizers import pre_tokenizers, trainers

    texts = corpus(shared)[:400]
    ours, _ = train(texts, TrainOptions(kind="unigram", vocab_size=2000))
    theirs = tokenizers.Tokenizer(tokenizers.models.Unigram())
    theirs.pre_tokenizer = pre_tokenizers.Metaspace()
    theirs.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=1995, show_progress=False, unk_token="<unk>"))
    count = sum(len(encoding) for encoding in theirs.encode_batch(texts))
    assert sum(len(encoded.ids) for encoded in ours.encode(texts)) < 1.03 * count
    nats = [_nats(json.loads(theirs.to_str()), [e.ids for e in theirs.encode_batch(texts)])]
    nats.append(_nats(ours.documents()[0], [e.ids for e in ours.encode(texts)]))
    assert nats[1] < 1.01 * nats[0]


def _nats(content, texts) -> float:
    """Length of the texts in the code that the scores stand for."""
    scores = [score for _, score in content["model"]["vocab"]]
    assert sum(math.exp(score) for score in scores if score > -50) < 1.1 + (scores[0] == 0)
    return -sum(scores[id] for ids in texts for id in ids)


def test_the_path_of_saving_is_made(tmp_path: Path):
    tokenizer, _ = train(["some text"], TrainOptions(vocab_size=100))
    tokenizer.save(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b" / "vocab.txt").read_text().split("\n")[:5] == [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
    ]
