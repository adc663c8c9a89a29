"""How a recipe is found: by name, by preset, in a TOML file, in Python code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unmask import presets, recipes
from unmask.config import (
    Blocks,
    Linear,
    MaskedTokens,
    Minutes,
    RunConfig,
    SentencePair,
    Steps,
)
from unmask.errors import UnmaskError


# --- TOML files ---------------------------------------------------------------------------------------------------------
def written(folder: Path, text: str | bytes, name: str = "run.toml") -> str:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(folder / name)


def test_a_toml_recipe_begins_from_a_preset_and_changes_it(tmp_path: Path) -> None:
    text = """
    seed = 3
    objectives = ["mlm"]
    [encoder]
    preset = "bert_tiny"
    num_hidden_layers = 3
    [examples]
    kind = "blocks"
    max_length = 256
    [until]
    minutes = 2
    """
    run = recipes.recipe(written(tmp_path, text))
    assert run.encoder == replace(presets.bert_tiny(), num_hidden_layers=3)
    assert run.objectives == (MaskedTokens(),) and run.examples == Blocks(max_length=256)
    assert run.until == Minutes(minutes=2.0) and run.seed == 3 and run.schedule == Linear()
    assert recipes.recipe(written(tmp_path, 'encoder = "bert-mini"\n')).encoder == presets.bert_mini()


def test_an_empty_toml_file_is_the_usual_run(tmp_path: Path) -> None:
    assert recipes.recipe(written(tmp_path, "")) == RunConfig()


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    run = recipes.recipe(written(tmp_path, b"\xef\xbb\xbfseed = 3\r\n[until]\r\nsteps = 7\r\n"))
    assert run.seed == 3 and run.until == Steps(steps=7)


def test_tables_of_objectives_are_read_in_order(tmp_path: Path) -> None:
    text = '[[objectives]]\nkind = "nsp"\n[[objectives]]\nkind = "mlm"\nunit = "word"\n'
    assert recipes.recipe(written(tmp_path, text)).objectives == (SentencePair(), MaskedTokens(unit="word"))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("seed = 1\n[encoder\nhidden_size = 1\n", "line 2"),
        ("seed = 1\nseed = 2\n", "line 2"),
        ("a\n", "line 1"),
        ("x = +\n", "line 1"),
    ],
)
def test_a_file_that_is_no_toml_is_refused_with_its_line(tmp_path: Path, text: str, place: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UnmaskError) as caught:
        recipes.recipe(path)
    assert caught.value.where == path and place in caught.value.what and "column" in caught.value.what


@pytest.mark.parametrize("text", [b"seed = 1\n# caf\xe9\n", "seed = 1\n".encode("utf-16"), b"\xff"])
def test_a_file_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path, text: bytes) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UnmaskError, match="not UTF-8") as caught:
        recipes.recipe(path)
    assert caught.value.where == f"{path}:{2 if b'caf' in text else 1}"


@pytest.mark.parametrize("text", ["x = " + "[" * 20_000, "seed = " + "9" * 5000, "seed = 0x" + "f" * 9000, "\0"])
def test_a_file_made_to_break_a_parser_is_refused_in_words(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UnmaskError) as caught:
        recipes.recipe(path)
    assert caught.value.where == path


def test_B209_an_unknown_key_in_a_file_is_named_with_the_file_and_a_suggestion(tmp_path: Path) -> None:
    for text, named, near in (
        ("learning_rate = 1e-3\n", "unknown setting learning_rate", "did you mean optimizer.learning_rate?"),
        ("[training]\nnum-epochs = 3\n", "unknown setting training", "valid here: corpus, "),
        ("[encoder]\nhidden-size = 3\n", "unknown setting encoder.hidden-size", "did you mean encoder.hidden_size"),
        ("[until]\nsteps = 3\nepochs = 1\n", "until does not say which kind it is", "steps | tokens | minutes"),
    ):
        path = written(tmp_path, text)
        with pytest.raises(UnmaskError) as caught:
            recipes.recipe(path)
        assert named in caught.value.what and near in caught.value.do and caught.value.where == path


def test_a_preset_that_does_not_exist_is_refused_with_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="bert_tinny") as caught:
        recipes.recipe(written(tmp_path, '[encoder]\npreset = "bert_tinny"\n'))
    assert "did you mean bert_tiny?" in caught.value.do


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path / "folder.toml"):
        (tmp_path / "folder.toml").mkdir(exist_ok=True)
        with pytest.raises(UnmaskError) as caught:
            recipes.recipe(str(path))
        assert caught.value.where == str(path)


# --- recipes in code ----------------------------------------------------------------------------------------------------
OWN = "from unmask.config import RunConfig, Steps\ndef mine():\n    return RunConfig(until=Steps(steps=7))\n"


def test_a_recipe_is_found_in_a_python_file_and_in_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recipes.recipe(written(tmp_path, OWN, "own.py") + ":mine").until == Steps(steps=7)
    monkeypatch.syspath_prepend(tmp_path)
    written(tmp_path, OWN, "own_recipes_of_a_test.py")
    assert recipes.recipe("own_recipes_of_a_test:mine").until == Steps(steps=7)
    assert recipes.recipe("unmask.recipes:bert") == recipes.bert()


def test_recipes_go_by_name_with_dashes_too() -> None:
    assert recipes.recipe("bert-chinese") == recipes.bert_chinese() == recipes.recipe("bert_chinese")
    with pytest.raises(UnmaskError) as caught:
        recipes.recipe("brt")
    assert "did you mean bert?" in caught.value.do


def test_a_preset_in_the_place_of_a_recipe_is_told_where_it_goes() -> None:
    with pytest.raises(UnmaskError, match="'electra-small' is a preset, not a recipe") as caught:
        recipes.recipe("electra-small")
    assert "--preset electra-small" in caught.value.do


@pytest.mark.parametrize("spec", ["nowhere.py:mine", "no_such_module:mine", "unmask.recipes:mine", "{own}:other"])
def test_a_recipe_that_is_not_there_is_refused_in_words(tmp_path: Path, spec: str) -> None:
    spec = spec.format(own=written(tmp_path, OWN, "own.py"))
    with pytest.raises(UnmaskError, match="can't be loaded") as caught:
        recipes.recipe(spec)
    assert caught.value.where == spec


def test_a_function_that_returns_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="returned int, not a RunConfig"):
        recipes.recipe(written(tmp_path, "def mine():\n    return 3\n", "own.py") + ":mine")


@pytest.mark.parametrize(
    "code",
    [
        "def mine(:\n",
        "def mine():\n    return nothing\n",
        "def mine(x):\n    return x\n",
        "def mine():\n    raise RuntimeError('boom')\n",
        "mine = 3\n",
        "from unmask.config import EncoderConfig\ndef mine():\n    return EncoderConfig(hidden_size=7)\n",
    ],
)
def test_an_error_in_the_users_own_code_is_told_as_theirs_with_its_line(tmp_path: Path, code: str) -> None:
    path = written(tmp_path, code, "own.py")
    with pytest.raises(UnmaskError) as caught:
        recipes.recipe(f"{path}:mine")
    assert path in caught.value.where


@pytest.mark.parametrize("spec", [":", ":mine", "..:mine"])
def test_a_spec_without_a_module_is_refused_in_words(spec: str) -> None:
    with pytest.raises(UnmaskError):
        recipes.recipe(spec)


# --- by preset ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", presets.names())
def test_a_preset_alone_brings_its_encoder_and_the_recipe_of_its_family(name: str) -> None:
    run = recipes.recipe(preset=name.replace("_", "-"))
    assert run == recipes.of_preset(presets.preset(name))(presets.preset(name)())
    begun = replace(run.encoder, positions=presets.preset(name)().positions)  # ModernBERT begins with a smaller theta
    assert begun == presets.preset(name)()


def test_without_a_word_it_is_bert() -> None:
    assert recipes.recipe() == recipes.bert()


def test_a_recipe_named_beside_a_preset_takes_only_its_encoder(tmp_path: Path) -> None:
    run = recipes.recipe("bert", "electra-small")
    assert run.encoder == presets.electra_small() and run.objectives == recipes.bert().objectives
    own = recipes.recipe(written(tmp_path, "seed = 3\n[encoder]\nhidden_size = 12\n"), "electra_small")
    assert own == RunConfig(seed=3, encoder=presets.electra_small())
    own = recipes.recipe(written(tmp_path, OWN, "own.py") + ":mine", "electra_small")
    assert own == RunConfig(until=Steps(steps=7), encoder=presets.electra_small())
    assert recipes.recipe("demo", "bert_mini") == replace(recipes.demo(), encoder=presets.bert_mini())


def test_any_encoder_is_made_causal_by_the_gpt_recipe() -> None:
    assert recipes.recipe("gpt2", "ettin_17m").encoder == replace(presets.ettin_17m(), causal=True)


@pytest.mark.parametrize(
    ("spec", "preset", "words"),
    [
        ("bert", "gpt2", "other objectives look at both sides"),
        ("t5", "albert_base", "needs encoder.embedding_size 0"),
        ("modernbert_long", "bert_base", "must be of kind rope, not absolute"),
        ("{toml}", "bert_tiny", "examples.max_length 600 exceeds"),
    ],
)
def test_a_recipe_and_a_preset_that_contradict_each_other_are_refused(
    tmp_path: Path, spec: str, preset: str, words: str
) -> None:
    spec = spec.format(
        toml=written(
            tmp_path, "[examples]\nkind = 'pairs'\nmax_length = 600\n[encoder]\npreset = 'gpt2'\ncausal = false\n"
        )
    )
    with pytest.raises(UnmaskError) as caught:
        recipes.recipe(spec, preset)
    assert words in caught.value.what and caught.value.where == spec and caught.value.do


def test_a_preset_that_is_not_there_is_refused_whatever_the_recipe() -> None:
    for spec in ("", "bert", "nowhere.toml"):
        with pytest.raises(UnmaskError, match="no preset is called 'electra_smal'") as caught:
            recipes.recipe(spec, "electra-smal")
        assert "did you mean electra_small?" in caught.value.do
