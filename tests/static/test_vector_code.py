"""Eight numbers at once give what NumPy gives, on any kind of processor."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from unmask.loops import compiled_fast
from unmask.static.vector_code import (
    LANES,
    add,
    load,
    multiply,
    multiply_add,
    prefetch,
    same,
    sigmoid,
    spread,
    store,
    subtract,
    sums,
)

Floats = NDArray[np.float32]


@compiled_fast
def everything(x: Floats, out: Floats) -> None:
    a, b = load(x, 0), load(x, LANES + 1)
    prefetch(out, 0)
    store(out, 0, add(a, b))
    store(out, 8, subtract(a, b))
    store(out, 16, multiply(a, b))
    store(out, 24, multiply_add(a, b, spread(x, 3)))
    store(out, 32, sigmoid(a))
    c, d, e, f = add(a, b), subtract(a, b), same(np.float32(1.5)), spread(x, 1)
    store(out, 40, sums(a, b, c, d, e, f, same(np.float32(0)), multiply(c, d)))


def expected(x: Floats) -> NDArray[np.float64]:
    a, b = x[:8].astype(np.float64), x[9:17].astype(np.float64)
    one = np.ones(8)
    columns = [a, b, a + b, a - b, 1.5 * one, x[1] * one, 0 * one, (a + b) * (a - b)]
    return np.concatenate([a + b, a - b, a * b, a * b + x[3], 1 / (1 + np.exp(-a)), [c.sum() for c in columns]])


@pytest.mark.parametrize("seed", range(5))
def test_every_operation_is_that_of_numpy(seed):
    x, out = np.random.default_rng(seed).normal(0, 3, 17).astype(np.float32), np.zeros(48, np.float32)
    everything(x, out)
    np.testing.assert_allclose(out, expected(x), rtol=2e-6, atol=2e-5)


def test_the_sigmoid_is_exact_to_the_last_bits_of_float32_and_flat_beyond_thirty():
    xs = np.linspace(-30, 30, 4001).astype(np.float32)
    out = np.zeros(48, np.float32)
    for at in range(0, 4000, 8):
        x = np.concatenate([xs[at : at + 8], np.zeros(9, np.float32)])
        everything(x, out)
        exact = 1 / (1 + np.exp(-x[:8].astype(np.float64)))
        np.testing.assert_allclose(out[32:40], exact, rtol=3e-6)
        assert np.abs(out[32:40] - exact).max() < 2e-7
    x[:8] = [-1e30, -40, 40, 1e30, -np.inf, np.inf, 0, -0.0]
    everything(x, out)
    np.testing.assert_allclose(out[32:40], [0, 0, 1, 1, 0, 1, 0.5, 0.5], atol=1e-12)


def test_what_is_no_number_stays_none():
    x, out = np.zeros(17, np.float32), np.zeros(48, np.float32)
    x[2] = np.nan
    everything(x, out)
    assert np.isnan(out[[2, 10, 18, 34, 40]]).all() and np.isfinite(out[[0, 8, 16, 32, 41]]).all()


def test_it_runs_on_a_processor_without_vector_extensions(tmp_path):
    """The same file, compiled for the least that its kind of processor has."""
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    code = (
        "import sys; sys.path[:0] = ['tests/static']\n"
        "import numpy as np, test_vector_code as t\n"
        "x, out = np.random.default_rng(0).normal(0, 3, 17).astype(np.float32), np.zeros(48, np.float32)\n"
        "t.everything(x, out)\n"
        "np.testing.assert_allclose(out, t.expected(x), rtol=2e-6, atol=2e-5)\n"
        "assert 'ymm' not in ''.join(t.everything.inspect_asm().values())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
