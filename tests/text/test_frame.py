from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from torture import small

from unmask.errors import UnmaskError
from unmask.text.frame import Frame, Slices
from unmask.text.pieces import PieceEncoder
from unmask.text.tokenizer import Tokenizer


def with_frame(post_processor: dict[str, Any] | None, kind: str = "wordpiece", **config: str) -> Tokenizer:
    content, named = small(kind).documents()
    return Tokenizer({**content, "post_processor": post_processor}, named | config)


def template(single: str, pair: str | None, tokenizer: Tokenizer | None = None) -> dict[str, Any]:
    """From "[CLS]:0 $A:0 [SEP]:0"."""
    from tokenizers.processors import TemplateProcessing

    ids = [(token, (tokenizer or small("wordpiece"))._plain.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    made = TemplateProcessing(single=single, pair=pair or "$A:0 $B:1", special_tokens=ids)
    return json.loads(made.__getstate__().decode())


def test_the_frames_are_those_of_the_tokenizers_own_post_processor() -> None:
    tokenizer = small("wordpiece")
    cls, sep = (tokenizer.cls_token_id,), (tokenizer.sep_token_id,)
    pieces = PieceEncoder(tokenizer)
    assert pieces.alone == Frame((cls, sep), ((0,), (0,)), (0,))
    assert pieces.pair == Frame((cls, sep, sep), ((0,), (0,), (1,)), (0, 1))
    bpe = small("bpe")
    cls, sep = (bpe.cls_token_id,), (bpe.sep_token_id,)
    assert PieceEncoder(bpe).pair == Frame((cls, sep * 2, sep), ((0,), (0, 0), (0,)), (0, 0))


def test_types_come_from_the_template_whatever_they_are() -> None:
    made = with_frame(template("[CLS]:2 $A:1 [SEP]:0", "[SEP]:2 $A:1 [CLS]:3 [SEP]:0 $B:4"))
    cls, sep = made.cls_token_id, made.sep_token_id
    pieces = PieceEncoder(made)
    assert pieces.alone == Frame(((cls,), (sep,)), ((2,), (0,)), (1,))
    assert pieces.pair == Frame(((sep,), (cls, sep), ()), ((2,), (3, 0), ()), (1, 4))


def test_where_nothing_parts_two_texts_what_ends_one_does() -> None:
    made = with_frame(template("[CLS] $A [SEP]", None))
    cls, sep = (made.cls_token_id,), (made.sep_token_id,)
    assert PieceEncoder(made).pair == Frame((cls, sep, sep), ((0,), (0,), (0,)), (0, 0))
    bare = PieceEncoder(with_frame(None))
    assert bare.alone == Frame(((), ()), ((), ()), (0,))
    assert bare.pair == Frame(((), sep, ()), ((), (0,), ()), (0, 0))


def test_a_template_that_says_a_text_twice_or_turns_a_pair_round_is_not_guessed_at() -> None:
    with pytest.raises(UnmaskError, match="that stays between its special ones"):
        PieceEncoder(with_frame(template("[CLS] $A [SEP] $A", None)))
    turned = PieceEncoder(with_frame(template("[CLS] $A [SEP]", "[CLS] $B [SEP] $A [SEP]")))
    assert turned.pair is not None and len(turned.pair.ids[1]) == 1  # as if there were no template for pairs


def test_sequences_are_put_into_the_frame_even_where_slices_overlap() -> None:
    frame = Frame(((1,), (2, 3), (4,)), ((0,), (0, 1), (1,)), (0, 1))
    ids = np.arange(10, 20, dtype=np.int32)
    first = Slices(ids, np.array([0, 1, 9]), np.array([2, 0, 1]))
    second = Slices(ids, np.array([5, 4, 0]), np.array([0, 3, 1]))
    ids_T, starts, types_T = frame.put(first, second)
    rows = [ids_T[a:b].tolist() for a, b in zip(starts, starts[1:], strict=False)]
    assert rows == [[1, 10, 11, 2, 3, 4], [1, 2, 3, 14, 15, 16, 4], [1, 19, 2, 3, 10, 4]]
    assert types_T is not None and types_T[:6].tolist() == [0, 0, 0, 0, 1, 1]
    assert frame.put(*[Slices(ids, starts[:0], starts[:0])] * 2)[1].tolist() == [0]


def test_a_length_without_room_beside_the_special_tokens_is_refused() -> None:
    frame = Frame(((1,), (2,), (3,)), ((0,), (0,), (1,)), (0, 1))
    assert frame.room(5) == 2
    with pytest.raises(UnmaskError, match="pairs of texts of 4 tokens have no room"):
        frame.room(4)
    with pytest.raises(UnmaskError, match="texts of 2 tokens have no room"):
        Frame(((1,), (2,)), ((0,), (0,)), (0,)).room(2)
