"""sentence-transformers folders: every spelling of their settings, and nothing of a stranger's is run or reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unmask.errors import UnmaskError
from unmask.hub.sentence_layout import SentenceLayout, read_sentence_layout

OLD, NEW = "sentence_transformers.models.", "sentence_transformers.base.modules."


def write(folder: Path, modules: object, **files: Any) -> Path:
    """modules.json, and 1_Pooling/config.json and others by the keyword of their first word."""
    folder.mkdir(exist_ok=True)
    names = {"pooling": "1_Pooling/config.json", "prompts": "config_sentence_transformers.json"}
    names |= {"length": "sentence_bert_config.json", "tokenizer": "tokenizer_config.json"}
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(modules))
    for name, value in files.items():
        (folder / names[name]).write_text(json.dumps(value))
    return folder


def modules(*kinds: str) -> list[dict[str, Any]]:
    folders = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize", "Dense": "2_Dense"}
    return [{"path": folders[kind.rpartition(".")[2]], "type": kind} for kind in kinds]


def test_a_folder_that_says_nothing_gets_the_mean_as_it_is(tmp_path: Path) -> None:
    assert read_sentence_layout(tmp_path) == SentenceLayout(tmp_path)
    assert SentenceLayout(tmp_path).pooling == ("mean",) and not SentenceLayout(tmp_path).normalize


@pytest.mark.parametrize(
    ("settings", "modes"),
    [
        ({"pooling_mode": "lasttoken"}, ("lasttoken",)),
        ({"pooling_mode": ["cls", "max"]}, ("cls", "max")),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("cls",)),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, ("max", "mean")),
        ({"pooling_mode_weightedmean_tokens": True}, ("weightedmean",)),
        ({"word_embedding_dimension": 48}, ("mean",)),
    ],
)
def test_poolings_old_and_new(tmp_path: Path, settings: dict[str, Any], modes: tuple[str, ...]) -> None:
    both = [modules(OLD + "Transformer", OLD + "Pooling"), modules(NEW + "transformer.Transformer", NEW + "x.Pooling")]
    for listed in both:
        assert read_sentence_layout(write(tmp_path / "model", listed, pooling=settings)).pooling == modes


def test_length_lower_case_prompts_and_normalising(tmp_path: Path) -> None:
    listed = modules(OLD + "Transformer", OLD + "Pooling", OLD + "Normalize")
    folder = write(
        tmp_path / "model",
        listed,
        pooling={"pooling_mode": "mean", "include_prompt": False},
        length={"max_seq_length": 77, "do_lower_case": True},
        prompts={"prompts": {"q": "find: "}, "default_prompt_name": "q"},
        tokenizer={"model_max_length": 512},
    )
    layout = read_sentence_layout(folder)
    assert layout == SentenceLayout(folder, ("mean",), False, True, 77, True, {"q": "find: "}, "find: ")
    write(folder, listed, length={"max_seq_length": None})
    assert read_sentence_layout(folder).max_length == 512
    write(folder, listed, tokenizer={"model_max_length": 10**30})
    assert read_sentence_layout(folder).max_length is None


@pytest.mark.parametrize("path", ["../other", "/etc", "a/../../b", "1_Pooling/..", "C:\\x"])
@pytest.mark.parametrize("kind", ["Transformer", "Pooling"])
def test_a_module_outside_the_folder_is_refused(tmp_path: Path, path: str, kind: str) -> None:
    listed = modules(OLD + "Transformer", OLD + "Pooling")
    listed[kind == "Pooling"]["path"] = path
    with pytest.raises(UnmaskError, match="not the name of a file inside its folder"):
        read_sentence_layout(write(tmp_path / "model", listed, pooling={}))


def test_a_link_that_leads_outside_is_refused(tmp_path: Path) -> None:
    listed = modules(OLD + "Transformer", OLD + "Pooling")
    listed[1]["path"] = "link"
    folder = write(tmp_path / "model", listed)
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(UnmaskError, match="not the name of a file inside its folder"):
        read_sentence_layout(folder)


@pytest.mark.parametrize("kind", ["modeling.Pooling", "os.system", "transformers_modules.x.Transformer"])
def test_a_module_of_somebody_s_code_is_refused(tmp_path: Path, kind: str) -> None:
    listed = [*modules(OLD + "Transformer"), {"path": "1_Pooling", "type": kind}]
    with pytest.raises(UnmaskError, match="no code of a model folder is ever run"):
        read_sentence_layout(write(tmp_path / "model", listed))


def test_a_layer_that_would_be_left_out_is_refused(tmp_path: Path) -> None:
    listed = modules(OLD + "Transformer", OLD + "Pooling", OLD + "Dense")
    with pytest.raises(UnmaskError, match="made of Transformer, Pooling, Dense"):
        read_sentence_layout(write(tmp_path / "model", listed, pooling={}))


@pytest.mark.parametrize("listed", [{}, [7], [{"path": ""}], [{"type": OLD + "Transformer"}], []])
def test_a_list_of_modules_that_is_none_is_refused(tmp_path: Path, listed: object) -> None:
    with pytest.raises(UnmaskError):
        read_sentence_layout(write(tmp_path / "model", listed))


@pytest.mark.parametrize(
    "files",
    [
        {"pooling": {"pooling_mode": "median"}},
        {"pooling": {"pooling_mode": 7}},
        {"pooling": {"pooling_mode": []}},
        {"pooling": {}, "prompts": {"prompts": {"q": 7}}},
        {"pooling": {}, "prompts": {"prompts": [1]}},
        {"pooling": {}, "prompts": {"default_prompt_name": "q"}},
        {"pooling": {}, "prompts": {"default_prompt_name": ["q"]}},
    ],
)
def test_settings_of_the_wrong_kind_are_refused(tmp_path: Path, files: dict[str, Any]) -> None:
    with pytest.raises(UnmaskError):
        read_sentence_layout(write(tmp_path / "model", modules(OLD + "Transformer", OLD + "Pooling"), **files))
