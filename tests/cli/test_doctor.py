"""`unmask doctor`: the machine in words, and its speed where that is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
from commands import unmask

from unmask.cli import doctor


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """doctor computes with every core, and leaves the process so: it ends there."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    torch.set_flush_denormal(False)


def test_it_tells_what_this_machine_has_and_measures_nothing_unasked() -> None:
    answer = unmask("doctor")
    assert answer.code == 0 and "GFLOP/s" not in answer.out
    for word in ("device", "cores", "memory_gib", "free disk here", "precision of a run", "torch", torch.__version__):
        assert word in answer.out


@pytest.mark.parametrize("amd", [True, False])
def test_bench_measures_products_and_memory_and_speaks_of_amd_where_it_is_one(
    monkeypatch: pytest.MonkeyPatch, amd: bool
) -> None:
    monkeypatch.setattr(doctor, "WIDTHS", (64,))
    monkeypatch.setattr("unmask.train.machine.mkl_on_amd", lambda: amd)
    monkeypatch.setattr("unmask.train.machine.choose_device", lambda machine: torch.device("cpu"))
    answer = unmask("doctor", "--bench")
    assert answer.code == 0, answer.err
    products = [line for line in answer.out.splitlines() if re.match(r"\| 64 +\|", line)]
    assert len(products) == 4 and all(int(cell) > 0 for line in products for cell in re.findall(r"\d+", line)[-2:])
    assert re.search(r"peak in float32 +\| +\d+ GFLOP/s", answer.out)
    assert re.search(r"memory copy +\| +\d+ GB/s", answer.out)
    assert ("MKL takes a slower path" in answer.out + answer.err) is amd
