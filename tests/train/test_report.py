"""The report page: what it says, that nothing in it can act, and that long or broken runs still give a page."""

from __future__ import annotations

import base64
import hashlib
import json
import tracemalloc
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_runs import HOSTILE, evaluation, hostile_run, ordinary_run, phased_run, sample, step, write_run

from unmask.errors import DamagedError, UnmaskError
from unmask.train.report.charts import nice_ticks
from unmask.train.report.curves import Thinned
from unmask.train.report.page import write_report
from unmask.train.report.samples import Samples, pieces
from unmask.train.report.text import compact, duration, figure, loss_name, visible


class Page(HTMLParser):
    """What a browser would make of the page: its elements, their attributes, its text and its scripts."""

    def __init__(self, source: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""
        self.text += " " * (tag in ("th", "td"))

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)
        elif self._inside == "style":
            self.styles.append(data)
        else:
            self.text += data

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


def page_of(folder: Path) -> Page:
    return Page(write_report(folder).read_text(encoding="utf-8"))


def test_the_page_says_how_the_run_went(tmp_path: Path) -> None:
    page = page_of(ordinary_run(tmp_path / "first"))
    assert "first finished" in page.words
    assert "fell from 9.00 to 5.00 nats a token, 1.52 below what guessing by word frequency alone" in page.words
    for shown in ("Held-out MLM loss 9.00 → 5.00", "8,103 → 148", "Unigram entropy 6.52", "NSP accuracy", "75.0 %"):
        assert shown in page.words
    for shown in ("410 k", "16.4 k", "25 s", "5.43 M", "21,034", "1,804", "python-docs", "mask_rate 0.15", "2.13.0"):
        assert shown in page.words
    assert "step 100 of 100 · all steps done" in page.words
    assert "steps/0000000100" in page.words


def test_the_words_accuracy_and_reference_belong_to_the_loss_whose_exponential_is_the_perplexity(
    tmp_path: Path,
) -> None:
    records = [step(1, losses={"aux": 0.5, "rtd": 6.0}), evaluation(1, 6.0) | {"losses": {"aux": 0.5, "rtd": 6.0}}]
    page = page_of(write_run(tmp_path / "run", records, result={"unigram_entropy": 6.5}))
    data = json.loads(page.scripts[0])
    assert data["charts"][0][0]["label"] == "RTD"
    assert [view["reference"] is not None for view in data["charts"][0]] == [True, False, False]


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([], "No training step is recorded yet"),
        ([step(1)], "No evaluation on held-out text is recorded yet"),
        ([step(1)], "No masked sentences are recorded yet"),
        ([step(1)], "No checkpoint is recorded yet"),
        ([evaluation(0, 9.0)], "Held-out MLM loss 9.00"),
        ([step(5, loss=None, losses={})], "step 5"),
        ([step(1, loss=1e300, losses={"mlm": float("nan")}, grad_norm=float("inf"))], "step 1"),
        ([step(1, grad_norm=1.7e308), step(2, grad_norm=-1.7e308)], "step 2"),
        ([step(3, learning_rate=0.0, padding=0.0, tokens_per_second=0.0)], "step 3"),
    ],
)
def test_what_is_missing_gives_a_sentence(tmp_path: Path, records: list[dict[str, Any]], said: str) -> None:
    assert said in page_of(write_run(tmp_path / "run", records)).words


def test_a_run_without_metrics_gives_a_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [])
    (folder / "metrics.jsonl").unlink()
    assert "running" in page_of(folder).words


def test_a_run_that_still_goes_on_says_how_long_it_will_take(tmp_path: Path) -> None:
    records = [{"kind": "plan", "step": 0, "total_steps": 400}, *map(step, range(1, 101))]
    page = page_of(write_run(tmp_path / "run", records, result={"status": "running"}))
    assert "running" in page.words and "step 100 of 400, about 1 min 15 s left" in page.words


@pytest.mark.parametrize(("waits", "said"), [((0.02, 0.02), False), ((0.01, 0.05), True), ((None, None), False)])
def test_a_run_that_waited_for_its_batches_says_so(tmp_path: Path, waits: tuple[float | None, ...], said: bool) -> None:
    page = page_of(write_run(tmp_path / "run", [step(i, loader_wait=wait) for i, wait in enumerate(waits, 9)]))
    assert ("3.0 % of the time went into waiting for batches: more machine.workers" in page.words) is said
    assert ("waiting for batches:" in page.words) is said
    page = page_of(write_run(tmp_path / "short", [step(i, loader_wait=wait) for i, wait in enumerate(waits, 1)]))
    assert "waiting for batches:" not in page.words, "the first batch is always waited for"


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="no run.json") as caught:
        write_report(tmp_path)
    assert str(tmp_path) in caught.value.where and caught.value.do


@pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000, "\xff", "3"])
def test_a_damaged_run_json_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(DamagedError) as caught:
        write_report(tmp_path)
    assert "run.json" in caught.value.where


@pytest.mark.parametrize("changes", [{"result": 3}, {"run": [1]}, {"corpus": "x"}, {"plan": [1, {}]}, {"model": None}])
def test_run_json_of_another_shape_still_gives_a_page(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert "Settings" in page_of(write_run(tmp_path / "run", [step(1)], **changes)).words


def test_a_torn_last_line_and_other_rubbish_are_counted_and_passed_over(tmp_path: Path) -> None:
    folder = ordinary_run(tmp_path / "run")
    rubbish = [
        b"5\n",
        b"\xff\xfe\n",
        b'{"kind":"step","step":"x"}\n',
        b"[" * 100_000 + b"\n",
        b'{"kind":"step","step":101,"lo',
    ]
    with (folder / "metrics.jsonl").open("ab") as metrics:
        metrics.writelines(rubbish)
    page = page_of(folder)
    assert "5 lines of metrics.jsonl could not be read" in page.words
    assert "step 100 of 100" in page.words


def test_steps_done_again_after_a_resume_replace_the_lost_ones(tmp_path: Path) -> None:
    lost = [step(number, loss=99.0) for number in range(6, 9)]
    records = [*map(step, range(1, 6)), *lost, evaluation(8, 9.9), {"kind": "resume", "step": 5}]
    records += [*map(step, range(6, 11)), evaluation(10, 5.0)]
    data = json.loads(page_of(write_run(tmp_path / "run", records)).scripts[0])
    assert data["tables"]["steps"]["step"] == list(range(1, 11))
    assert max(data["tables"]["steps"]["series"]["loss"][0]) < 20
    assert data["tables"]["evaluations"]["step"] == [10]


def test_phases_are_listed_and_drawn_where_they_begin(tmp_path: Path) -> None:
    page = page_of(phased_run(tmp_path / "run"))
    assert "1 0 50 steps 2 50 3,000 tokens examples.max_length=8192" in page.words
    assert "An upright line stands where a phase begins" in page.words
    lines = [attributes for name, attributes in page.elements if name == "line" and attributes.get("class") == "phase"]
    assert lines and all(line["x1"] == line["x2"] for line in lines)
    assert json.loads(page.scripts[0])["phases"] == [50]
    assert "upright" not in page_of(ordinary_run(tmp_path / "plain")).words


def test_figures_before_and_after_are_those_of_the_last_phase_and_the_curve_keeps_both_at_the_border(
    tmp_path: Path,
) -> None:
    page = page_of(phased_run(tmp_path / "run"))
    assert "in its last phase its held-out MLM loss fell from 4.50 to 4.00" in page.words
    held_out = json.loads(page.scripts[0])["tables"]["evaluations"]
    assert held_out["step"] == [0, 50, 50, 80] and held_out["series"]["losses.mlm"][0] == [9.0, 5.0, 4.5, 4.0]


def test_what_an_rtd_encoder_doubts_is_marked_rightly_or_wrongly_and_what_it_overlooks_underlined(
    tmp_path: Path,
) -> None:
    record = sample(1, ["[CLS]", "the", "cat", "sat", "down"], [2, 3], [[["dog", 0.5]], [["sat", 0.9]]])
    record |= {"filled": ["[CLS]", "the", "dog", "ran", "down"], "doubts": [0.1, 0.7, 0.8, 0.2, 0.0]}
    page = (write_report(write_run(tmp_path / "run", [step(1), record]))).read_text()
    assert (
        '<mark class="wrong"><bdi>the</bdi></mark> <mark class="right"><bdi>dog</bdi></mark> <u><bdi>ran</bdi></u>'
        in page
    )
    assert "a generator's draws" in page


@pytest.mark.parametrize("changes", [{"filled": ["a"]}, {"doubts": [0.5, "x"]}, {"filled": [1, 2]}, {"doubts": None}])
def test_doubts_of_another_shape_are_left_out(tmp_path: Path, changes: dict[str, Any]) -> None:
    record = sample(1, ["a", "b"], [1], [[["b", 0.5]]]) | {"filled": ["a", "c"], "doubts": [0.5, 0.5]} | changes
    page = (write_report(write_run(tmp_path / "run", [step(1), record]))).read_text()
    assert 'doubted" dir' not in page and "Guesses word by word" in page


@pytest.mark.parametrize("phase", [None, "1", True, -1, 10**9, 1.5])
def test_a_phase_of_another_shape_is_passed_over(tmp_path: Path, phase: Any) -> None:
    records = [evaluation(0, 9.0), {"kind": "phase", "step": 1, "phase": phase}, step(1)]
    page = page_of(write_run(tmp_path / "run", records, run={"phases": [3, {"until": [], "changes": 5}]}))
    assert "could not be read" in page.words


@pytest.mark.parametrize(
    "name, shown", [("mlm", "MLM"), ("rtd", "RTD"), ("sbo", "SBO"), ("causal", "causal"), ("infill", "infill")]
)
def test_losses_are_called_as_people_call_them(name: str, shown: str) -> None:
    assert loss_name(name) == shown


def test_the_page_asks_nothing_of_the_network_and_runs_only_its_own_script(tmp_path: Path) -> None:
    source = write_report(hostile_run(tmp_path / "run")).read_text(encoding="utf-8")
    page = Page(source)
    policy = next(a["content"] or "" for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    for kind, written in (("script", page.scripts[1]), ("style", page.styles[0])):
        digest = base64.b64encode(hashlib.sha256(written.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    addresses = [
        a for _, attributes in page.elements for name in ("href", "src", "action") if (a := attributes.get(name))
    ]
    assert addresses and all(address.startswith("#") for address in addresses)
    assert "http:" not in source.replace("http://www.w3.org/2000/svg", "") and "https:" not in source


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    source = write_report(hostile_run(tmp_path / "run")).read_text(encoding="utf-8")
    page = Page(source)
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 2 and "img" not in tags
    assert not any(name.startswith("on") or name == "style" for _, attributes in page.elements for name in attributes)
    for text in (
        "<img src=x onerror=alert(1)>",
        "</script><script>",
        "<!--<script>",
        "{{ 7 * 7 }}",
        "⟨U+202E⟩",
        "⟨U+001B⟩[31m",
    ):
        assert text in page.text
    assert not any(character in source for character in "\u202e\x1b\ud800")
    assert "x" * 500 not in source


def test_the_data_in_the_page_is_json_that_no_text_can_end(tmp_path: Path) -> None:
    page = Page(write_report(hostile_run(tmp_path / "run")).read_text(encoding="utf-8"))
    assert not set("<>&\u2028\u2029") & set(page.scripts[0]) and page.scripts[0].isascii()
    data = json.loads(page.scripts[0], parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert HOSTILE[0] in data["samples"]["sentences"][0]["truth"]


def test_the_curves_are_drawn_without_a_script_too(tmp_path: Path) -> None:
    page = page_of(ordinary_run(tmp_path / "run"))
    names = [attributes.get("aria-label") or "" for tag, attributes in page.elements if tag == "svg"]
    drawn = [name for name in names if "over the steps" in name]
    assert len(drawn) >= 6 and drawn[0].startswith("Loss")
    classes = [attributes.get("class") or "" for tag, attributes in page.elements if tag in ("path", "line")]
    assert "line tone0" in classes and "line tone1" in classes and "reference" in classes


def test_thinning_keeps_every_extreme_and_the_mean() -> None:
    thinned, values = Thinned(400), np.random.default_rng(0).normal(size=30_000)
    values[12_345], values[23_456] = 50.0, -50.0
    for number, value in enumerate(values.tolist(), start=1):
        thinned.add(number, {"loss": value})
    curve = thinned.curve("loss")
    assert len(curve.steps) <= 400 and np.all(np.diff(curve.steps) > 0)
    assert (curve.high.max(), curve.low.min()) == (50.0, -50.0)
    assert abs(curve.steps[curve.high.argmax()] - 12_346) < 1000
    assert curve.steps[:9].tolist() == list(range(1, 10))  # the first steps stay single


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.integers(1, 400), st.integers(10, 80))
def test_a_thinned_curve_covers_the_values_it_stands_for(values: list[float], gap: int, limit: int) -> None:
    thinned = Thinned(limit)
    for place, value in enumerate(values):
        thinned.add(place * gap, {"loss": value})
    curve = thinned.curve("loss")
    assert curve.low.min() == min(values) and curve.high.max() == max(values)
    assert np.all(curve.low <= curve.mean + 1e-6) and np.all(curve.mean <= curve.high + 1e-6)
    assert len(curve.steps) <= max(limit, 1)


def test_a_figure_recorded_now_and_then_has_gaps_not_zeros() -> None:
    thinned = Thinned()
    for number in range(10):
        thinned.add(number, {"loss": 1.0} | ({"rare": 2.0} if number == 4 else {}))
    assert np.isnan(thinned.curve("rare").mean).sum() == 9 and thinned.curve("rare").mean[4] == 2.0
    assert thinned.names() == ["loss", "rare"]


def test_a_long_run_stays_a_small_page_in_bounded_memory(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [])
    with (folder / "metrics.jsonl").open("w") as metrics:
        for number in range(1, 12_001):
            metrics.write(json.dumps(step(number * 50, loss=5 + number % 7)) + "\n")
    tracemalloc.start()
    path = write_report(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    data = json.loads(Page(path.read_text()).scripts[0])
    assert path.stat().st_size < 2_000_000 and peak < 40_000_000
    assert len(data["tables"]["steps"]["step"]) <= 1500


def test_samples_of_a_long_run_fit_the_page_and_keep_first_and_last(tmp_path: Path) -> None:
    samples = Samples()
    for number in range(0, 100_000, 250):
        tokens = ["字" * 30 + str(number)] * 100
        guesses = [[["字" * 30, 0.5]] * 5] * 24
        assert samples.add(sample(number, tokens, list(range(24)), guesses), number)
    page = samples.page()
    assert (page["steps"][0], page["steps"][-1]) == (0, 99_750)
    assert len(page["steps"]) > 2 and len(json.dumps(page)) < 700_000


@pytest.mark.parametrize(
    "changes",
    [
        {"masked": [9]},
        {"masked": [-1]},
        {"guesses": []},
        {"guesses": [[["a"]]]},
        {"shown": ["x"]},
        {"tokens": None},
        {"guesses": [[[1, 0.5]]]},
    ],
)
def test_a_sample_of_another_shape_is_passed_over(tmp_path: Path, changes: dict[str, Any]) -> None:
    good = sample(1, ["a", "b"], [1], [[["b", 0.5]]])
    page = page_of(write_run(tmp_path / "run", [step(1), good | changes]))
    assert "1 line of metrics.jsonl could not be read" in page.words


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["[CLS]", "un", "##mask", "(", "it", ")", ".", "[SEP]"], "[CLS] unmask (it). [SEP]"),
        (["[CLS]", "北", "京", "是", "python", "[SEP]"], "[CLS] 北京是python [SEP]"),
        (["<s>", "The", "Ġcaf", "Ã©", "Ġopens", ".", "</s>"], "<s> The café opens. </s>"),
        (["▁The", "▁cat", "s"], "The cats"),
        (["don", "'", "t", "call", "_", "_", "dict", "_", "_"], "don't call__dict__"),
        (["##", "a"], "## a"),
    ],
)
def test_tokens_are_shown_as_the_text_they_came_from(tokens: list[str], text: str) -> None:
    assert "".join(" " * space + piece for piece, space in pieces(tokens)) == text


@pytest.mark.parametrize("text", ["\u202eabc", "a\x00b", "\ud800", "a\nb", "\u2028", "\U000e0041", "\u200b", "\x9b31m"])
def test_characters_that_act_are_shown_by_their_code(text: str) -> None:
    assert visible(text).isprintable() and "⟨U+" in visible(text)


@pytest.mark.parametrize("text", ["plain", "naïve 北京", "👩\u200d💻", "می\u200cخواهم"])
def test_text_of_every_language_is_left_alone(text: str) -> None:
    assert visible(text) == text


def test_figures_are_written_for_people() -> None:
    assert [compact(x) for x in (0, 999, 1000, 999_950, 12_345_678)] == ["0.00", "999", "1.00 k", "1.00 M", "12.3 M"]
    assert [duration(x) for x in (0.04, 59.6, 302, 7500, 187_200)] == [
        "0.0 s",
        "1 min",
        "5 min 2 s",
        "2 h 5 min",
        "2 d 4 h",
    ]
    assert [figure(x) for x in (0.0, 5.32149, 1e-4, 0.00123, 1234.0)] == ["0.000", "5.321", "1e-4", "0.001", "1,234"]


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 8))
def test_ticks_are_few_and_inside(low: float, span: float, wanted: int) -> None:
    ticks = nice_ticks(low, low + max(span, abs(low) * 1e-6), wanted)
    assert len(ticks) <= wanted + 1
    assert all(low - span * 1e-3 - 1e-3 <= tick <= low + span * 1.001 + abs(low) * 2e-6 + 1e-3 for tick in ticks)
