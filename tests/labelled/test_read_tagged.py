"""Tagged words from columns, records and spans: as the file has them, or an error that names file, line and record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.config import Tagging
from unmask.errors import UnmaskError
from unmask.labelled.records import Read, TaggedExample
from unmask.labelled.tagged import read_tagged
from unmask.labelled.texts import read_texts
from unmask.tasks.jobs import job_of

TAGS = ["O", "B-PER", "I-PER", "B-LOC"]


def reading(folder: Path, name: str, data: str, **options) -> Read[TaggedExample]:
    (folder / name).write_text(data, encoding="utf-8", newline="")
    return read_tagged(str(folder / name), **options)


def pairs(read: Read[TaggedExample]) -> list[list[tuple[str, str]]]:
    return [list(zip(e.words, e.tags or (), strict=True)) for e in read.examples]


def lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(UnmaskError) as error:
        act()
    return str(error.value)


ADA = [[("Ada", "B-PER"), ("wrote", "O")], [("Rome", "B-LOC")]]


@pytest.mark.parametrize(
    "data",
    [
        "Ada B-PER\nwrote O\n\nRome B-LOC\n",
        "Ada B-PER\nwrote O\n\nRome B-LOC",
        "Ada\tB-PER\nwrote\tO\n\nRome\tB-LOC\n\n\n",
        "\ufeffAda B-PER\r\nwrote O\r\n\r\nRome B-LOC\r\n",
        "-DOCSTART- -X-\n\nAda B-PER  \nwrote   O\t\n \t \n-DOCSTART- O\nRome B-LOC\n",
        "# sent_id = 1\n# text = Ada wrote\nAda B-PER\nwrote O\n\n# note\nRome B-LOC\n",
        "Ada B-PER\nwrote O\n-DOCSTART-\nRome B-LOC\n",
    ],
)
def test_B011_columns_are_read_however_they_are_written(tmp_path, data):
    assert pairs(reading(tmp_path, "a.conll", data)) == ADA


def test_any_two_columns_can_be_chosen(tmp_path):
    data = "1\tAda\tNNP\tB-PER\n2\twrote\tVBD\tO\n\n1\tRome\tNNP\tB-LOC\n"
    assert pairs(reading(tmp_path, "a.iob2", data, word_column=1)) == ADA
    read = reading(tmp_path, "a.txt", data, word_column=-3, tag_column=2, scheme="plain")
    assert pairs(read)[0] == [("Ada", "NNP"), ("wrote", "VBD")]
    assert read.understood[1] == "the word is column 1, the tag column 2"
    assert pairs(reading(tmp_path, "a.txt", data, columns={"words": "1", "tags": "-1"})) == ADA
    for wrong in ({"words": "form"}, {"text": "1"}):
        shown = refused(lambda wrong=wrong: reading(tmp_path, "a.txt", data, columns=wrong))
        assert "is no column of a file with a word a line" in shown and "--map tags=3" in shown
    shown = refused(lambda: reading(tmp_path, "a.txt", data, tag_column=4))
    assert "no column 4 for the tag" in shown and "line 1" in shown and "4 columns" in shown
    assert "both column 3" in refused(lambda: reading(tmp_path, "a.txt", data, word_column=3))
    assert "both column 0" in refused(lambda: reading(tmp_path, "a.txt", "Ada\nRome\n"))


def test_the_word_number_sign_is_a_word_and_a_comment_is_none(tmp_path):
    for data in ("# new O\n#1 B-PER\n# O\n#hi there you O\nAda B-PER\n", "# no tabs\n#1\tB-PER\n#\tO\nAda\tB-PER\n"):
        read = reading(tmp_path, "a.conll", data)
        assert pairs(read) == [[("#1", "B-PER"), ("#", "O"), ("Ada", "B-PER")]]
        assert any("comment line" in sentence for sentence in read.understood)
    assert pairs(reading(tmp_path, "a.conll", "# heading\nAda B-PER\n")) == [[("Ada", "B-PER")]]
    assert pairs(reading(tmp_path, "a.conll", "# O\n")) == [[("#", "O")]]


def test_words_may_be_any_white_space_but_blank_and_tab(tmp_path):
    data = "\u3000\tO\nNew York\tB-LOC\n\u200b\tO\nx\u2028y\tO\n"
    assert [e.words for e in reading(tmp_path, "a.tsv", data).examples] == [
        ("\u3000", "New York", "\u200b", "x\u2028y")
    ]
    assert reading(tmp_path, "a.txt", "a\xa0b O\n\x85 O\n").examples[0].words == ("a\xa0b", "\x85")


def test_multiword_and_empty_tokens_of_conll_u_are_not_words(tmp_path):
    rest = "\t_\t{}\t_\t_\t_\t_\t_\t_\n"
    data = "".join(
        f"{n}\t{w}" + rest.format(t) for n, w, t in (("1-2", "don't", "_"), ("1", "do", "AUX"), ("2", "n't", "PART"))
    )
    data += "2.1\tgone" + rest.format("VERB")
    read = reading(tmp_path, "a.conllu", data, word_column=1, tag_column=3, scheme="plain")
    assert pairs(read) == [[("do", "AUX"), ("n't", "PART")]]


@pytest.mark.parametrize(
    ("data", "said", "place"),
    [
        ("Ada B-PER\nwrote O\n\nRome\n", "1 columns, where others have 2", "line 4, record 2"),
        ("Ada\tB-PER\nwrote\tO\nRome\t\n", "1 columns, where others have 2 columns parted by tabs", "line 3, record 1"),
        ("a\tO\nAda\t\tB-PER\n\nx\tO\n", "3 columns", "line 2, record 1"),
        ("a\t\t\nb\tx\tO\nc\tx\tO\n", "1 columns", "line 1, record 1"),
        ("Ada B-PER\nRome LOC\n", "'LOC' is not a tag of the scheme bio", "line 2, record 1, word 2 'Rome'"),
        ("", "there is no sentence", "a.conll"),
        ("\n# only\n\n-DOCSTART- O\n", "there is no sentence", "a.conll"),
        ("\n\n-DOCSTART- O\n", "there is no sentence", "a.conll"),
    ],
)
def test_B011_a_broken_line_is_named(tmp_path, data, said, place):
    shown = refused(lambda: reading(tmp_path, "a.conll", data))
    assert said in shown and place in shown


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    (tmp_path / "a.conll").write_bytes(b"Ada O\nRom\xe9 O\n")
    assert "a.conll:2, byte 4 of the line (0xe9)" in refused(lambda: read_tagged(str(tmp_path / "a.conll")))
    assert "no such file" in refused(lambda: read_tagged(str(tmp_path / "b.conll")))
    assert "not read from .csv" in refused(lambda: reading(tmp_path, "a.csv", "a,O\n"))
    assert "unknown repair 'fix'" in refused(lambda: reading(tmp_path, "a.conll", "a O\n", repair="fix"))


def test_broken_entities_are_counted_with_the_line_of_the_first(tmp_path):
    data = "Ada B-PER\n\nin O\n# no comment\nNew I-LOC\nYork I-LOC\n\nRome I-LOC\n".replace("# no comment\n", "")
    read = reading(tmp_path, "a.conll", data)
    assert [e.tags for e in read.examples] == [("B-PER",), ("O", "B-LOC", "I-LOC"), ("B-LOC",)]
    assert ": 2 (first: " in read.warnings[0] and "a.conll, line 4, record 2, word 2 'New'" in read.warnings[0]
    assert reading(tmp_path, "a.conll", data, repair="drop").examples[1].tags == ("O", "O", "O")
    shown = refused(lambda: reading(tmp_path, "a.conll", data, repair="error"))
    assert "'I-LOC' breaks the BIO scheme after 'O'" in shown and "line 4, record 2, word 2 'New'" in shown
    shown = refused(lambda: reading(tmp_path, "a.jsonl", lines({"tokens": ["a"], "tags": ["I-X"]}), repair="error"))
    assert "a.jsonl, line 1, record 1, word 1 'a'" in shown


@pytest.mark.parametrize("word", ["tokens", "words"])
@pytest.mark.parametrize("tag", ["labels", "tags", "ner_tags"])
def test_records_of_words_and_tags(tmp_path, word, tag):
    data = lines({word: ["Ada", "wrote"], tag: ["B-PER", "O"]}, {word: ["Rome"], tag: ["B-LOC"], "id": 3})
    read = reading(tmp_path, "a.jsonl", data)
    assert pairs(read) == ADA and read.examples[1].place == (str(tmp_path / "a.jsonl"), 2, 2)
    assert f"column {word!r} holds the list of words" in read.understood
    mapped = data.replace(word, "w").replace(tag, "t")
    assert pairs(reading(tmp_path, "b.jsonl", mapped, columns={"words": "w", "tags": "t"})) == ADA


def test_tags_that_are_numbers_need_names(tmp_path):
    data = lines({"tokens": ["Ada", "wrote"], "ner_tags": [1, 0]}, {"tokens": ["Rome"], "ner_tags": [3]})
    shown = refused(lambda: reading(tmp_path, "a.jsonl", data))
    assert "the tag is 1, and no names are given" in shown and "line 1, record 1, word 1 'Ada'" in shown
    assert pairs(reading(tmp_path, "a.jsonl", data, names=TAGS)) == ADA
    assert "there are 3 names" in refused(lambda: reading(tmp_path, "a.jsonl", data, names=TAGS[:3]))
    features = {"ner_tags": {"feature": {"names": TAGS, "_type": "ClassLabel"}, "_type": "Sequence"}}
    about = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    table = pa.table({"tokens": [["Ada", "wrote"], ["Rome"]], "ner_tags": [[1, 0], [3]]})
    pq.write_table(table.replace_schema_metadata(about), tmp_path / "a.parquet")
    assert pairs(read_tagged(str(tmp_path / "a.parquet"))) == ADA


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, "2 words, but 1 tags"),
        ({"tokens": ["a", None], "tags": ["O", "O"]}, "'tokens' is null"),
        ({"tokens": "a b", "tags": ["O", "O"]}, "a string, not a list"),
        ({"tokens": ["a"], "tags": [None]}, "the tag is null"),
        ({"tokens": ["a"], "tags": [""]}, "the tag is empty"),
        ({"tokens": ["a"], "tags": [True]}, "the tag is true or false"),
        ({"tokens": ["a"]}, "no 'tags'"),
        ({"tags": ["O"]}, "no 'tokens'"),
    ],
)
def test_a_broken_record_is_named(tmp_path, record, said):
    data = lines({"tokens": ["x"], "tags": ["O"]}, record)
    shown = refused(lambda: reading(tmp_path, "a.jsonl", data))
    assert said in shown and "a.jsonl, line 2, record 2" in shown


def test_missing_columns_list_those_there_are(tmp_path):
    assert "'x'; say which" in refused(lambda: reading(tmp_path, "a.jsonl", lines({"x": 1})))
    assert "--map tags=" in refused(lambda: reading(tmp_path, "a.jsonl", lines({"tokens": ["a"]})))
    assert "--map spans=" in refused(lambda: reading(tmp_path, "a.jsonl", lines({"text": "a"})))
    assert "cannot be mapped" in refused(lambda: reading(tmp_path, "a.jsonl", lines({"text": "a"}), columns={"a": "b"}))


@pytest.mark.parametrize(
    "record",
    [
        {"text": "Ada Byron, 北京", "spans": [[0, 9, "PER"], [11, 13, "LOC"]]},
        {"text": "Ada Byron, 北京", "label": [[11, 13, "LOC"], [0, 9, "PER"]], "id": 7},
        {"text": "Ada Byron, 北京", "entities": [{"start": 0, "end": 9, "label": "PER"}, [11, 13, "LOC"]]},
        {"text": "Ada Byron, 北京", "label": {"PER": {"Ada Byron": [[0, 8]]}, "LOC": {"北京": [[11, 12]]}}},
        {"text": "Ada Byron, 北京", "spans": [[0, 9, "PER"], [11, 13, "LOC"]], "tokens": [{"text": "Ada", "start": 0}]},
    ],
)
def test_spans_of_characters_become_words_with_tags_and_offsets(tmp_path, record):
    (example,) = reading(tmp_path, "a.jsonl", lines(record)).examples
    assert example.words == ("Ada", "Byron", ",", "北", "京") and example.text == "Ada Byron, 北京"
    assert example.tags == ("B-PER", "I-PER", "O", "B-LOC", "I-LOC")
    assert example.offsets == ((0, 3), (4, 9), (9, 10), (11, 12), (12, 13))
    bioes = reading(tmp_path, "a.jsonl", lines(record), scheme="bioes").examples[0]
    assert bioes.tags == ("B-PER", "E-PER", "O", "B-LOC", "E-LOC")


def test_overlapping_and_missing_spans_name_the_record(tmp_path):
    data = lines({"text": "a b", "spans": []}, {"text": "a b c", "spans": [[0, 3, "X"], [2, 5, "Y"]]})
    shown = refused(lambda: reading(tmp_path, "a.jsonl", data))
    assert "[0, 3, 'X'] and [2, 5, 'Y'] overlap" in shown and "a.jsonl, line 2, record 2" in shown
    for record in ({"text": "a"}, {"text": "a", "spans": None}):
        data = lines({"text": "a b", "spans": []}, record)
        assert "line 2, record 2" in refused(lambda data=data: reading(tmp_path, "a.jsonl", data))


def test_a_span_that_cuts_a_word_is_counted_since_a_text_without_spans_is_read_in_whole_words(tmp_path):
    data = lines(
        {"text": "Paris-based Adaish one", "spans": [[0, 5, "LOC"], [12, 15, "PER"]]}, {"text": "a", "spans": []}
    )
    read = reading(tmp_path, "a.jsonl", data)
    assert read.examples[0].words == ("Paris", "-", "based", "Ada", "ish", "one")
    (warning,) = read.warnings
    assert "begins or ends in" in warning and ": 1 (first:" in warning and "line 1, record 1" in warning
    asked = reading(tmp_path, "a.jsonl", data, asked=True)
    assert asked.examples[0].words == ("Paris", "-", "based", "Adaish", "one") and not asked.warnings


def test_asked_words_and_texts_need_no_tags(tmp_path):
    (example,) = reading(tmp_path, "a.conll", "Ada\n#1\nRome\n", asked=True).examples
    assert example.words == ("Ada", "#1", "Rome") and example.tags is None
    (example,) = reading(tmp_path, "a.jsonl", lines({"tokens": ["Ada"], "tags": None}), asked=True).examples
    assert example.words == ("Ada",) and example.tags is None
    (example,) = reading(tmp_path, "a.jsonl", lines({"text": "👩 Ada", "spans": 3}), asked=True).examples
    assert example.words == ("👩", "Ada") and example.offsets == ((0, 1), (2, 5)) and example.tags is None
    read = reading(tmp_path, "a.jsonl", lines({"tokens": []}), asked=True)
    assert read.examples[0].words == () and "sentences without a word: 1" in read.warnings[0]


WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n \0"), min_size=1, max_size=6)
SENTENCES = st.lists(
    st.lists(st.tuples(WORD, st.sampled_from(["O", "B-X", "B-Y"])), min_size=1, max_size=4), min_size=1
)


@settings(max_examples=60, deadline=None)
@given(SENTENCES, st.sampled_from(["\t", " ", "   "]), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_what_is_written_in_columns_is_read(sentences, between, line, ended):
    sentences = [[(w, t) for w, t in s if not w.startswith("-DOCSTART-") and w != "\ufeff"] for s in sentences]
    sentences = [s for s in sentences if s]
    if not sentences or sentences[0][0][0].startswith("\ufeff"):
        return
    data = (line * 2).join(line.join(f"{w}{between}{t}" for w, t in s) for s in sentences) + line * ended
    with TemporaryDirectory() as folder:
        assert pairs(reading(Path(folder), "a.conll", data)) == sentences
        words = [{"tokens": [w for w, _ in s], "labels": [t for _, t in s]} for s in sentences]
        assert pairs(reading(Path(folder), "a.jsonl", lines(*words))) == sentences


def test_tags_that_are_numbers_have_the_names_of_the_task_s_labels(tmp_path):
    path = tmp_path / "numbers.jsonl"
    path.write_text(json.dumps({"tokens": ["Ada", "slept"], "ner_tags": [1, 0]}), encoding="utf-8")
    with pytest.raises(UnmaskError, match="no names are given") as caught:
        read_tagged(str(path))
    assert "--set task.labels=" in str(caught.value)
    read = job_of(Tagging(labels=("O", "B-PER"))).read(str(path))
    assert read.examples[0].tags == ("B-PER", "O") and "tags are numbers: 0 is O, 1 is B-PER" in read.understood
    path.write_text(json.dumps({"tokens": ["Ada"], "ner_tags": ["B-PER"]}), encoding="utf-8")
    assert not any(
        "tags are numbers" in line for line in job_of(Tagging(labels=("O", "B-PER"))).read(str(path)).understood
    )


def test_a_label_of_a_whole_text_is_not_taken_for_spans_without_a_word(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text(json.dumps({"text": "a lovely film", "label": "good"}), encoding="utf-8")
    with pytest.raises(UnmaskError, match="column 'label' was taken for the spans of the text, but it is a string"):
        read_tagged(str(path))


def test_a_mapped_column_must_be_in_every_file_and_that_is_said(tmp_path):
    path = tmp_path / "dev.jsonl"
    path.write_text(json.dumps({"text": "a", "label": "b"}), encoding="utf-8")
    with pytest.raises(UnmaskError, match="no column 'review'") as caught:
        read_texts(str(path), columns={"text": "review"})
    assert "must be in every file of the command" in str(caught.value)
