from __future__ import annotations

import pytest
import torch

from unmask.config import Machine
from unmask.errors import UnmaskError
from unmask.train.machine import choose_device, choose_precision, describe, matmul_peak, set_threads


def test_auto_takes_what_is_there() -> None:
    device = choose_device(Machine())
    assert device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert choose_device(Machine(device="cpu")).type == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a device this machine has")
def test_asking_for_a_missing_device_is_an_error_not_a_slow_run() -> None:
    with pytest.raises(UnmaskError, match="no CUDA device"):
        choose_device(Machine(device="cuda"))


def test_a_cpu_computes_in_fp32_unless_asked() -> None:
    assert choose_precision(Machine(), torch.device("cpu")) == torch.float32


def test_emulated_precision_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnmaskError, match="fp16"):
        choose_precision(Machine(precision="fp16"), torch.device("cpu"))
    monkeypatch.setattr("unmask.train.machine._cpu_has_bf16", lambda: False)
    with pytest.raises(UnmaskError, match="bf16"):
        choose_precision(Machine(precision="bf16"), torch.device("cpu"))


def test_threads_are_set_and_returned() -> None:
    before = torch.get_num_threads()
    try:
        assert set_threads(Machine(threads=1)) == 1 == torch.get_num_threads()
        assert set_threads(Machine()) >= 1
    finally:
        torch.set_num_threads(before)


def test_the_peak_is_a_plausible_number() -> None:
    assert 1e8 < matmul_peak(torch.device("cpu"), torch.float32, 0.05) < 1e14
    assert {"device", "name", "cores", "threads", "memory_gib"} <= describe(torch.device("cpu")).keys()
