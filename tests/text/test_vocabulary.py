from __future__ import annotations

import json
from dataclasses import replace

import pytest
from made_up import GPT2_LIKE, T5_LIKE, VOCABULARY

from unmask.errors import UnmaskError
from unmask.text.vocabulary import ROLES, Vocabulary


@pytest.mark.parametrize("role", ROLES)
def test_a_missing_token_is_refused_by_name_with_a_way_out(role):
    assert VOCABULARY.require(role) == getattr(VOCABULARY, f"{role}_token_id")
    lacking = replace(VOCABULARY, **{f"{role}_token_id": None})
    with pytest.raises(UnmaskError, match=f"no {role} token") as error:
        lacking.require(role)
    assert "--like" in error.value.do


def test_the_token_with_id_0_is_no_missing_one():
    assert replace(VOCABULARY, mask_token_id=0).require("mask") == 0


def test_sentinels_are_given_in_order_and_a_tokenizer_without_them_is_refused():
    assert replace(VOCABULARY, sentinel_ids=(63, 62, 61)).require_sentinels() == (63, 62, 61)
    with pytest.raises(UnmaskError, match="no sentinels"):
        VOCABULARY.require_sentinels()


@pytest.mark.parametrize("vocabulary", [VOCABULARY, GPT2_LIKE, T5_LIKE])
def test_a_manifest_keeps_everything(vocabulary):
    written = json.loads(json.dumps(vocabulary.as_dict()))
    assert Vocabulary.from_dict(vocabulary.size, written) == vocabulary


def test_a_manifest_from_before_there_were_sentinels_is_read():
    written = VOCABULARY.as_dict()
    del written["sentinel_ids"]
    assert Vocabulary.from_dict(64, written) == VOCABULARY


@pytest.mark.parametrize(
    "change", [{"mask_token_id": 64}, {"special_ids": [0, -1]}, {"sentinel_ids": ["63"]}, {"pad_token_id": True}]
)
def test_ids_outside_the_vocabulary_are_refused(change):
    with pytest.raises(ValueError, match="outside"):
        Vocabulary.from_dict(64, VOCABULARY.as_dict() | change)
