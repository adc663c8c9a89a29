"""Eight float32 at once, for compiled loops: load, multiply, add and store them as one value.

The compiler can't be brought to keep a dozen running sums in vector registers on its own; with values that *are* vectors it
has no choice. Each function here becomes a few instructions of whatever machine it is compiled for, since LLVM cuts eight
lanes into what the machine has (two times four, say): nothing asks for a kind of processor. Only loops that are compiled can
call these functions. An index is a place in a flat array, is never checked, and never counts from the end.

A loop that is kept on the disk is not renewed when this file changes: save the files that import it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic as _intrinsic
from numba.extending import register_model

from unmask.static.memory import LANES

_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_FLOATS, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT, LANES)
_FUSED = ("contract",)  # a product and a sum may become one instruction, where there is one
_LIMIT = 30.0  # of a logit: beyond it float32 knows only 0 and 1 (and 1e-13)
_TERMS = 10  # of 2^f for -1 < f < 1: the first left out is 7e-9


intrinsic: Callable[[Callable[..., Any]], Any] = _intrinsic  # what it makes is called with other arguments


class _Lanes(types.Type):
    """The type of eight float32 in compiled code."""


_LANES = _Lanes(name="float32x8")


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: _Lanes) -> None:
        super().__init__(manager, kind, _FLOATS)


# --- memory -----------------------------------------------------------------------------------------------------------------
@intrinsic
def load(typing: Any, array: Any, at: Any) -> Any:
    """array[at : at + 8] of a flat float32 array."""

    def code(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        place = _place(context, builder, signature.args[0], given)
        return builder.load(builder.bitcast(place, _FLOATS.as_pointer()), align=4)

    return _LANES(array, types.intp), code


@intrinsic
def store(typing: Any, array: Any, at: Any, lanes: Any) -> Any:
    """array[at : at + 8] = lanes."""

    def code(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        place = _place(context, builder, signature.args[0], given)
        builder.store(given[2], builder.bitcast(place, _FLOATS.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, _LANES), code


@intrinsic
def spread(typing: Any, array: Any, at: Any) -> Any:
    """array[at] in all lanes."""

    def code(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        return _everywhere(builder, builder.load(_place(context, builder, signature.args[0], given)))

    return _LANES(array, types.intp), code


@intrinsic
def prefetch(typing: Any, array: Any, at: Any) -> Any:
    """Asks for the memory at array[at], which is written to soon, and goes on."""

    def code(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        place = builder.bitcast(_place(context, builder, signature.args[0], given), byte)
        builder.call(function, [place, _INT(1), _INT(3), _INT(1)])  # to write, near, data
        return context.get_dummy_value()

    return types.void(array, types.intp), code


def _place(context: Any, builder: Any, kind: Any, given: Sequence[Any]) -> Any:
    assert kind.dtype == types.float32 and kind.ndim == 1 and kind.layout == "C"
    return builder.gep(context.make_array(kind)(context, builder, given[0]).data, [given[1]])


# --- arithmetic -------------------------------------------------------------------------------------------------------------
@intrinsic
def same(typing: Any, number: Any) -> Any:
    """The number in all lanes."""
    return _LANES(types.float32), lambda context, builder, signature, given: _everywhere(builder, given[0])


@intrinsic
def add(typing: Any, left: Any, right: Any) -> Any:
    """Left + right."""
    return _lanes(2, lambda builder, left, right: builder.fadd(left, right, flags=_FUSED))


@intrinsic
def subtract(typing: Any, left: Any, right: Any) -> Any:
    """Left - right."""
    return _lanes(2, lambda builder, left, right: builder.fsub(left, right, flags=_FUSED))


@intrinsic
def multiply(typing: Any, left: Any, right: Any) -> Any:
    """Left * right."""
    return _lanes(2, lambda builder, left, right: builder.fmul(left, right, flags=_FUSED))


@intrinsic
def multiply_add(typing: Any, left: Any, right: Any, more: Any) -> Any:
    """Left * right + more."""
    return _lanes(3, _multiply_add)


@intrinsic
def sums(typing: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    """The sum over the lanes of each of eight vectors, as one vector."""
    return _lanes(8, _sums)


@intrinsic
def sigmoid(typing: Any, lanes: Any) -> Any:
    """1 / (1 + exp(-x)) within 2e-7, of logits cut off at ±30."""
    return _lanes(1, _sigmoid)


def _lanes(count: int, formula: Callable[..., Any]) -> tuple[Any, Any]:
    """What an intrinsic returns that makes lanes of lanes."""
    return _LANES(*[_LANES] * count), lambda context, builder, signature, given: formula(builder, *given)


def _multiply_add(builder: Any, left: Any, right: Any, more: Any) -> Any:
    return builder.fadd(builder.fmul(left, right, flags=_FUSED), more, flags=_FUSED)


def _sums(builder: Any, *eight: Any) -> Any:
    """Three rounds in which two vectors become one of half as many, half as long rows of lanes still to be added."""
    four = _halved(builder, eight, [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15])
    two = _halved(builder, four, [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15])
    return _halved(builder, two, [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15])[0]


def _halved(builder: Any, vectors: Sequence[Any], low: list[int], high: list[int]) -> list[Any]:
    kind = ir.VectorType(_INT, LANES)
    return [
        builder.fadd(*(builder.shuffle_vector(left, right, ir.Constant(kind, lanes)) for lanes in (low, high)))
        for left, right in zip(vectors[::2], vectors[1::2], strict=True)
    ]


def _sigmoid(builder: Any, x: Any) -> Any:
    """1 / (1 + 2^t) with t = -x log2(e) = n + f: 2^n by setting the exponent's bits, 2^f by its Taylor series."""
    for sign, limit in (("<", _constant(-_LIMIT)), (">", _constant(_LIMIT))):
        x = builder.select(builder.fcmp_ordered(sign, x, limit), limit, x)
    t = builder.fmul(x, _constant(-math.log2(math.e)))
    n = builder.fptosi(t, _INTS)
    f = builder.fsub(t, builder.sitofp(n, _FLOATS))
    power = _constant(0.0)
    for k in reversed(range(_TERMS)):
        power = _multiply_add(builder, power, f, _constant(math.log(2) ** k / math.factorial(k)))
    exponent = builder.shl(builder.add(n, ir.Constant(_INTS, [127] * LANES)), ir.Constant(_INTS, [23] * LANES))
    one = _constant(1.0)
    return builder.fdiv(one, _multiply_add(builder, builder.bitcast(exponent, _FLOATS), power, one))


def _constant(number: float) -> Any:
    return ir.Constant(_FLOATS, [number] * LANES)


def _everywhere(builder: Any, number: Any) -> Any:
    none = ir.Constant(_FLOATS, ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(none, number, _INT(0)), none, ir.Constant(_INTS, [0] * LANES))


# --- what GloVe needs -------------------------------------------------------------------------------------------------------
@intrinsic
def total(typing: Any, lanes: Any) -> Any:
    """The sum over the lanes, a number."""

    def code(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        vector, count = given[0], LANES
        while count > 1:
            count //= 2
            halves = (range(count), range(count, 2 * count))
            places = (ir.Constant(ir.VectorType(_INT, count), list(half)) for half in halves)
            vector = builder.fadd(*(builder.shuffle_vector(vector, vector, half) for half in places))
        return builder.extract_element(vector, _INT(0))

    return types.float32(_LANES), code


@intrinsic
def clip(typing: Any, lanes: Any, limit: Any) -> Any:
    """Lanes cut off at ± the limit; what is no number stays none."""
    return _lanes(2, _clip)


@intrinsic
def inverse_root(typing: Any, lanes: Any) -> Any:
    """1 / sqrt(x) within 3e-7 of it: an estimate, made better, where the machine has one."""
    return _lanes(1, _inverse_root)


def _clip(builder: Any, x: Any, limit: Any) -> Any:
    x = builder.select(builder.fcmp_ordered("<", limit, x), limit, x)
    low = builder.fneg(limit)
    return builder.select(builder.fcmp_ordered("<", x, low), low, x)


def _inverse_root(builder: Any, x: Any) -> Any:
    loose = ("contract", "reassoc", "arcp", "afn")
    root = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_FLOATS, [_FLOATS]), f"llvm.sqrt.v{LANES}f32")
    return builder.fdiv(_constant(1.0), builder.call(root, [x], fastmath=loose), flags=loose)
