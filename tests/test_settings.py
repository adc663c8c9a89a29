"""Settings out of files, command lines and code: what is right comes through, what is wrong is named."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from unmask import presets, recipes, settings
from unmask.config import (
    AdamW,
    Blocks,
    Cosine,
    Documents,
    EncoderConfig,
    FullSentences,
    Linear,
    MaskedTokens,
    Minutes,
    Muon,
    Pairs,
    Phase,
    RunConfig,
    SentencePair,
    Tokens,
    WarmupStableDecay,
)
from unmask.errors import UnmaskError

SHARE = st.floats(0, 1).map(float)
POSITIVE = st.floats(1e-12, 1e9)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "corpus": st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=20).map(str.strip),
    "seed": st.integers(0, 2**63 - 1),
    "dropout": st.floats(0, 0.99),
    "encoder.num_hidden_layers": st.integers(1, 99),
    "encoder.hidden_act": st.sampled_from(["gelu", "gelu_tanh", "relu"]),
    "encoder.layer_norm_eps": POSITIVE,
    "examples.short_rate": SHARE,
    "examples.max_length": st.integers(8, 512),
    "objectives.mlm.mask_rate": st.floats(0.01, 1.0),
    "objectives.0.unit": st.sampled_from(["token", "word", "ngram", "span"]),
    "batch.tokens": st.integers(512, 10**9),
    "until.minutes": POSITIVE,
    "optimizer.learning_rate": POSITIVE,
    "optimizer.beta2": SHARE,
    "schedule.final": SHARE,
    "keeping.keep_best": st.booleans(),
    "machine.threads": st.integers(0, 64),
}


def changed(*assignments: str) -> RunConfig:
    return settings.override(RunConfig, recipes.bert(), assignments)


def refusal(*assignments: str) -> UnmaskError:
    with pytest.raises(UnmaskError) as caught:
        changed(*assignments)
    return caught.value


def refusal_of(data: object, where: str = "here") -> UnmaskError:
    with pytest.raises(UnmaskError) as caught:
        settings.parse(RunConfig, data, where=where)
    return caught.value


def found_at(data: Any, path: str) -> Any:
    for name in path.split("."):
        if isinstance(data, list):
            data = next(item for place, item in enumerate(data) if name in (str(place), item["kind"]))
        else:
            data = data[name]
    return data


def leaves(value: object, prefix: str = "") -> Iterator[str]:
    """The dotted paths of every plain value of a run; members of a tuple go by their kind."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), f"{prefix}.{field.name}".lstrip("."))
    elif isinstance(value, tuple):
        for item in value:
            yield from leaves(item, f"{prefix}.{item.kind}")
    else:
        yield prefix


@hypothesis_settings(max_examples=150, deadline=None)
@given(chosen=st.fixed_dictionaries({}, optional=VALUES))
def test_any_assignments_come_out_where_they_were_put_and_survive_json(chosen: dict[str, Any]) -> None:
    run = changed(*(f"{path}={json.dumps(value, ensure_ascii=False)}" for path, value in chosen.items()))
    plain = settings.plain(run)
    assert {path: found_at(plain, path) for path in chosen} == chosen
    assert settings.parse(RunConfig, json.loads(json.dumps(plain))) == run
    one_by_one = recipes.bert()
    for path, value in chosen.items():
        one_by_one = settings.override(RunConfig, one_by_one, [f"{path}={json.dumps(value, ensure_ascii=False)}"])
    assert one_by_one == run


@pytest.mark.parametrize("name", list(recipes.RECIPES))
def test_every_recipe_survives_json(name: str) -> None:
    run = recipes.recipe(name)
    assert settings.parse(RunConfig, json.loads(json.dumps(settings.plain(run)))) == run


NAMES = st.sampled_from([*{part for path in leaves(recipes.bert()) for part in path.split(".")}, "minutes", "preset"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(1 << 2_000)
    | st.floats()
    | st.text(max_size=9)
    | NAMES
    | st.sampled_from(["pairs", "blocks", "mlm", "steps", "wsd", "cpu"])
)
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=5), inner, max_size=5)
)


@hypothesis_settings(max_examples=300, deadline=None)
@given(data=st.dictionaries(NAMES, TREES, max_size=5) | TREES)
def test_whatever_a_file_holds_the_answer_is_a_run_or_a_sentence(data: object) -> None:
    try:
        settings.parse(RunConfig, data, where="here")
    except UnmaskError as error:
        assert error.what and error.where == "here" and error.do


@hypothesis_settings(max_examples=300, deadline=None)
@given(
    st.lists(NAMES | st.sampled_from(["mlm", "0", "³", "", " "]) | st.text(max_size=3), max_size=4), st.text(max_size=9)
)
def test_whatever_is_assigned_the_answer_is_a_run_or_a_sentence(path: list[str], value: str) -> None:
    try:
        changed(f"{'.'.join(path)}={value}")
    except UnmaskError as error:
        assert error.what and error.where.startswith("--set") and error.do


@pytest.mark.parametrize(
    "literal", ["9" * 5000, "-" + "9" * 400, "0x" + "f" * 5000, "[" * 5000, "{a=" * 3000, '"""', "1e999", "nan"]
)
@pytest.mark.parametrize("path", ["seed", "dropout", "encoder.hidden_act", "until", "objectives", "objectives.mlm"])
def test_numbers_and_nests_that_python_refuses_to_spell_are_refused_in_a_short_sentence(
    path: str, literal: str
) -> None:
    error = refusal(f"{path}={literal}")
    assert path.split(".")[0] in error.what and len(error.what) < 300


# --- what is wrong is named --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", list(leaves(recipes.bert())))
def test_a_misspelt_setting_is_named_with_its_section_and_the_right_spelling(path: str) -> None:
    section, dot, name = path.rpartition(".")
    wrong = f"{section}{dot}{name[:2]}{name[3:]}" if len(name) > 4 else f"{path}x"
    error = refusal(f"{wrong}=1")
    assert wrong in error.what
    assert path in error.do.split("valid here")[0] and error.do.startswith("did you mean")


@pytest.mark.parametrize("path", list(leaves(recipes.bert())))
def test_a_value_of_the_wrong_type_is_named_with_its_path(path: str) -> None:
    value = "3" if path.endswith(("kind", "hidden_act", "negatives", "device", "precision")) else "[1]"
    error = (
        refusal(f"{path}={value}")
        if path not in ("corpus", "start_from", "embeddings_from")
        else refusal_of({path: [1]})
    )
    assert path.replace("mlm.kind", "0.kind").replace("nsp.kind", "1.kind") in error.what
    assert value in error.what or "[1]" in error.what


def test_every_unknown_key_is_named_at_once() -> None:
    error = refusal_of({"encoder": {"hidden-size": 3, "layers": 2}})
    assert "encoder.hidden-size" in error.what and "encoder.layers" in error.what
    assert "did you mean encoder.hidden_size" in error.do


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("learning_rate", "optimizer.learning_rate"),
        ("hidden_size", "encoder.hidden_size"),
        ("mask_rate", "objectives.mlm.mask_rate"),
        ("max_length", "examples.max_length"),
        ("minutes", "until.minutes"),
        ("device", "machine.device"),
    ],
)
def test_B209_a_setting_without_its_section_is_sent_to_its_section(wrong: str, right: str) -> None:
    for error in (refusal(f"{wrong}=1"), refusal_of({wrong: 1})):
        meant = error.do.removeprefix("did you mean ").split("? ")[0]
        assert meant.split(" or ")[0] == right


def test_settings_have_no_near_name_when_none_is_near() -> None:
    assert refusal("optimizer.zzz=1").do.startswith("valid here: optimizer.kind")
    assert "machine" in refusal("zzz=1").do


@pytest.mark.parametrize("text", ["seed", "=3", " = 3", ""])
def test_what_is_no_assignment_is_shown_how_to_write_one(text: str) -> None:
    assert "name=value" in refusal(text).do


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("encoder.hidden_size=0", "encoder.hidden_size must be above 0, not 0"),
        ("encoder.hidden_size=7", "encoder.hidden_size 7 must be a multiple of num_attention_heads 4"),
        ("objectives.mlm.mask_rate=1.5", "mask_rate must lie between 0 and 1, not 1.5"),
        ("objectives.mlm.replace_random=0.9", "replace_mask + replace_random must not exceed 1"),
        ("examples.max_length=4", "examples.max_length must be at least 8, not 4"),
        ("examples.max_length=1000", "examples.max_length 1000 exceeds encoder.max_position_embeddings 512"),
        ("batch.tokens=100", "batch.tokens 100 holds not one example of max_length 128"),
        ("encoder.type_vocab_size=-1", "type_vocab_size and pad_token_id must not be below 0"),
        ("examples=blocks", 'the nsp objective needs examples of kind "pairs" with negatives "random"'),
        ("examples.negatives=swapped", 'the nsp objective needs examples of kind "pairs" with negatives "random"'),
        ("objectives=['sop']", 'the sop objective needs examples of kind "pairs" with negatives "swapped"'),
        ("objectives=['mlm', 'rtd']", "objectives mlm and rtd each want the text in a form of their own"),
        ("objectives=['mlm', 'sbo']", 'the sbo objective needs an mlm objective with unit "span"'),
        ("objectives=['causal']", "the causal objective and encoder.causal go together"),
        ("encoder.causal=true", "the causal objective and encoder.causal go together"),
        ("encoder={embedding_size=64, head_transform=false}", "encoder.embedding_size needs encoder.head_transform"),
        ("objectives=[]", "objectives must be one or more different kinds"),
        ("objectives=['mlm', 'mlm']", "objectives must be one or more different kinds"),
        ("schedule.warmup=1.5", "schedule.warmup must lie between 0 and 1, not 1.5"),
        ("optimizer.learning_rate=0", "optimizer.learning_rate must be above 0"),
        ("until.steps=-3", "until.steps must be above 0, not -3"),
        ("until.minutes=nan", "until.minutes must be a finite number"),
        ("keeping.keep_last=0", "keeping.keep_last must be above 0"),
        ("machine.threads=-1", "machine.threads must lie between 0 and 1024, not -1"),
        ("dropout=1.0", "dropout must be below 1"),
        ("dropout=true", "dropout must be a number, not true"),
        ("seed=1.5", "seed must be a whole number, not 1.5"),
        ("seed=99999999999999999999", "seed must be a number of at most 64 bits"),
        ("encoder.hidden_size.x=1", "encoder.hidden_size is a plain value"),
        ("objectives.7.mask_rate=1", "unknown setting objectives.7"),
        ("objectives.³.mask_rate=1", "unknown setting objectives.³"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_path_and_the_limit(assignment: str, words: str) -> None:
    assert words in refusal(assignment).what


# --- unions -------------------------------------------------------------------------------------------------------------
def test_a_union_is_chosen_by_its_kind_alone() -> None:
    assert changed("schedule=cosine").schedule == Cosine()
    assert changed("objectives=['mlm']", "examples=full_sentences").examples == FullSentences()
    assert changed('objectives=[{kind="mlm", mask_rate=0.3}]').objectives == (MaskedTokens(mask_rate=0.3),)


def test_a_field_that_one_kind_alone_has_chooses_it() -> None:
    assert changed("until.minutes=5").until == Minutes(minutes=5.0)
    assert changed("until.tokens=5").until == Tokens(tokens=5)
    assert changed("schedule.decay=0.3").schedule == WarmupStableDecay(decay=0.3)
    assert settings.parse(RunConfig, {"until": {"minutes": 2}}).until == Minutes(minutes=2.0)
    assert settings.parse(RunConfig, {"schedule": {"decay": 0.1}}).schedule == WarmupStableDecay(decay=0.1)


def test_a_table_without_a_kind_is_of_the_kind_it_replaces() -> None:
    """The first kind of a union was taken instead, without a word."""
    assert changed("schedule=cosine", "schedule={warmup=0.2}").schedule == Cosine(warmup=0.2)
    assert changed("optimizer=muon", "optimizer={learning_rate=1e-3}").optimizer == Muon(learning_rate=1e-3)
    alone = ("objectives=['mlm']", "examples=full_sentences")
    assert changed(*alone, "examples={max_length=64}").examples == FullSentences(max_length=64)
    assert changed(*alone, "examples={short_rate=0.2}").examples == Pairs(short_rate=0.2)  # the only kind that has it
    assert changed("schedule=cosine", "schedule={kind='linear', final=0.1}").schedule == Linear(final=0.1)


def test_a_table_of_a_file_without_a_kind_is_of_the_default_s_kind_and_else_refused() -> None:
    @dataclasses.dataclass(frozen=True)
    class Own:
        schedule: Linear | Cosine = Cosine()
        others: tuple[Linear | Cosine, ...] = ()

    assert settings.parse(RunConfig, {"optimizer": {"learning_rate": 1e-3}}).optimizer == AdamW(learning_rate=1e-3)
    with pytest.MonkeyPatch.context() as names:
        names.setitem(globals(), "Own", Own)
        assert settings.parse(Own, {"schedule": {"warmup": 0.2}}) == Own(Cosine(warmup=0.2))
        with pytest.raises(UnmaskError, match="others.0 does not say which kind it is"):
            settings.parse(Own, {"others": [{"warmup": 0.2}]})
    assert "objectives.0 does not say which kind it is" in refusal("objectives=[{mask_rate=0.3}]").what


def test_a_change_of_kind_by_its_path_keeps_the_fields_both_kinds_have() -> None:
    assert changed("schedule.kind=cosine").schedule == Cosine(warmup=0.05)
    assert changed("objectives=['mlm']", "examples.max_length=64", "examples.kind=blocks").examples == Blocks(
        max_length=64
    )
    assert "until.minutes must be given" in refusal("until.kind=minutes").what


def test_later_assignments_see_the_kind_that_earlier_ones_chose() -> None:
    run = changed("objectives=['mlm']", "examples=documents", "examples.max_length=99", "objectives.0.mask_rate=0.4")
    assert run.examples == Documents(max_length=99)
    assert run.objectives == (MaskedTokens(mask_rate=0.4),)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"until": {"kind": "hours", "hours": 2}}, 'unknown setting until.kind = "hours"'),
        ({"until": {"hours": 2}}, "until does not say which kind it is"),
        ({"until": 5}, "until must be a table with kind = steps | tokens | minutes, not 5"),
        ({"examples": "pair"}, 'unknown setting examples.kind = "pair"'),
        ({"objectives": ["mln"]}, 'unknown setting objectives.0.kind = "mln"'),
        ({"objectives": "mlm"}, 'objectives must be a list, not "mlm"'),
        ({"schedule": {"kind": "linear", "decay": 0.1}}, "unknown setting schedule.decay"),
    ],
)
def test_an_unknown_kind_is_refused_with_the_kinds_there_are(data: object, words: str) -> None:
    error = refusal_of(data)
    assert words in error.what and error.do


def test_every_member_of_every_union_can_be_told_by_its_kind() -> None:
    for field, hint in typing.get_type_hints(RunConfig).items():
        members = typing.get_args(typing.get_args(hint)[0]) if field == "objectives" else typing.get_args(hint)
        if field == "phases":
            members = typing.get_args(typing.get_type_hints(Phase)["until"])
        kinds = [{f.name: f.default for f in dataclasses.fields(member)}["kind"] for member in members]
        assert len(set(kinds)) == len(members), field


# --- values on a command line ------------------------------------------------------------------------------------------
def test_text_is_taken_as_it_stands_even_where_it_looks_like_a_number() -> None:
    for text in ("2024", "true", "3e4", "2024-01-01", "[1]", "a=b", "./corpus one", ""):
        assert changed(f"corpus={text}").corpus == text
    assert changed('corpus=" quoted "').corpus == " quoted "


def test_numbers_are_written_as_in_toml() -> None:
    run = changed("optimizer.learning_rate=3e-4", "batch.tokens=8_192", "optimizer.beta1=1", "encoder.hidden_act=relu")
    assert run.optimizer == AdamW(learning_rate=3e-4, beta1=1.0)
    assert run.batch.tokens == 8192 and run.encoder.hidden_act == "relu"


def test_a_value_with_a_second_line_is_not_half_read() -> None:
    assert "must be a whole number" in refusal("seed=1\nbatch = 3").what


def test_pairs_and_encoder_have_the_defaults_the_papers_give() -> None:
    """BERT sections 3.1 and A.2, as a run without a word of settings has them."""
    run = settings.parse(RunConfig, {})
    assert run == RunConfig() and run.encoder == EncoderConfig() == presets.bert_base()
    assert run.examples == Pairs(negatives="random", negative_rate=0.5, short_rate=0.1)
    assert run.objectives == (MaskedTokens(mask_rate=0.15, replace_mask=0.8, replace_random=0.1), SentencePair())
