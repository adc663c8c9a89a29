"""`unmask explain` as a command: what it prints, as JSON too, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Road, unmask

from unmask.explanation import explain

TEXT = "The cat sat on the mat. It slept."
TOP = {
    "texts", "objective", "network", "seed", "settings", "tokenizer", "sequences", "sizes", "shapes", "parts", "parameters",
    "trained", "losses", "loss", "notes",
}  # fmt: skip
SEQUENCE = {
    "text", "tokens", "ids", "words", "word_texts", "input_tokens", "input_ids", "token_type_ids", "position_ids",
    "attention_mask", "labels", "fates", "spans", "pair", "decoder", "replaced",
}  # fmt: skip


@pytest.mark.parametrize(
    ("objective", "titles"),
    [
        ("mlm", ["MLM worked out at"]),
        ("wwm", ["MLM worked out at"]),
        ("ngram", ["MLM worked out at"]),
        ("span", ["SBO worked out at", "borders"]),
        ("nsp", ["Sentence pair of the text", "NSP worked out at"]),
        ("sop", ["Sentence pair of the text", "SOP worked out at"]),
        ("rtd", ["Generator and encoder on the text", "RTD worked out at"]),
        ("causal", ["CAUSAL worked out at"]),
        ("infill", ["The decoder on the text", "INFILL worked out at"]),
    ],
)
def test_every_table_of_an_objective_is_printed(objective: str, titles: list[str]) -> None:
    answer = unmask("explain", TEXT, "--objective", objective)
    assert answer.code == 0, answer.err
    for title in [
        *titles,
        "token_type",
        "attention_mask",
        "-log p",
        "Shapes in ",
        "Parameters of ",
        "Loss of the step",
    ]:
        assert title in answer.out, title


def test_chinese_is_read_in_words() -> None:
    answer = unmask("explain", "猫坐在垫子上。我们研究自然语言处理。", "--objective", "wwm", "-p", "bert-base-chinese")
    assert answer.code == 0 and "自然语言" in answer.out


def test_json_is_the_explanation_with_stable_names() -> None:
    answer = unmask("explain", TEXT, "--objective", "span", "--json")
    data = json.loads(answer.out)
    assert data == json.loads(json.dumps(explain(TEXT, objective="span").as_dict()))
    assert set(data) == TOP and set(data["sequences"][0]) == SEQUENCE
    assert set(data["sequences"][0]["spans"][0]) == {
        "start", "end", "tokens", "words", "fates", "left", "right", "sentinel",
    }  # fmt: skip
    assert set(data["shapes"][0]) == {"part", "name", "letters", "padded", "shape"}
    assert set(data["parts"][0]) == {"part", "name", "parameters", "share", "note"}
    assert set(data["losses"][0]) == {"name", "targets", "mean", "chance", "weight", "worked"}
    assert set(data["losses"][0]["worked"]) == {
        "sequence", "place", "side", "logits", "log_sum_exp", "likeliest", "true", "loss",
    }  # fmt: skip


def test_json_holds_any_character() -> None:
    """What would act on a terminal is escaped, not replaced."""
    text = "A\u202eB \u00ad C 😀 \U000e0041 cat sat."
    answer = unmask("explain", text, "--json")
    assert json.loads(answer.out)["texts"] == [text] and "\u202e" not in answer.out


def test_long_tables_are_cut_with_a_word_about_the_rest() -> None:
    answer = unmask("explain", TEXT * 20)
    assert "; --json has all)" in answer.out


def test_a_model_folder_is_explained_with_its_weights(road: Road) -> None:
    answer = unmask("explain", "The old cat sees the dog near the river.", "--model", road.model)
    assert answer.code == 0, answer.err
    assert "untrained" not in answer.out and "knows nothing yet" not in answer.out and str(road.model) in answer.out


@pytest.mark.parametrize(
    ("words", "what", "do"),
    [
        (["", "--objective", "mlm"], "the text is empty", "give a sentence"),
        (["A cat.", "--objective", "mln"], "no objective is called 'mln'", "did you mean mlm?"),
        (["A cat.", "--preset", "bert_bas"], "no preset is called 'bert_bas'", "did you mean bert_base?"),
        (["A cat.", "--preset", "gpt2", "--objective", "mlm"], "no mask token", "--like bert"),
        (["A cat.", "--preset", "t5_small", "--objective", "rtd"], "no mask token", "--like bert"),
        (
            ["A cat.", "--preset", "albert_base", "--objective", "infill"],
            "infill objective needs encoder.embedding_size 0",
            "--objective",
        ),
        (["A cat.", "--segmenter", "x"], "unknown segmenter 'x'", "none or jieba"),
        (["A cat.", "--model", "nowhere"], "there is no such folder", "check the path"),
        (["A cat.", "--model", "nowhere", "--preset", "gpt2"], "a preset and a model", "leave out one"),
        (["A cat.", "--tokenizer", "nowhere"], "", ""),
    ],
)
def test_what_cannot_be_explained_is_refused_in_one_message(words: list[str], what: str, do: str) -> None:
    answer = unmask("explain", *words)
    assert answer.code == 2 and not answer.out
    message = answer.error()
    assert message[0].startswith("error: ") and what in message[0] and do in message[-1], message
    assert len(message) <= 3


def test_a_tokenizer_that_does_not_fit_the_objective_is_refused(road: Road, tmp_path: Path) -> None:
    answer = unmask("explain", "A cat.", "--objective", "infill", "--tokenizer", road.tokenizer)
    assert answer.code == 2 and "sentinel" in answer.error()[0]
