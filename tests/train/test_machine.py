from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch

from unmask.config import Machine
from unmask.errors import UnmaskError
from unmask.train.machine import (
    choose_device,
    choose_precision,
    describe,
    has_bf16,
    matmul_peak,
    mkl_on_amd,
    set_threads,
)
from unmask.train.muon import orthogonal


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
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    with pytest.raises(UnmaskError, match="bf16"):
        choose_precision(Machine(precision="bf16"), torch.device("cpu"))


def test_all_that_asks_for_bf16_gets_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever oneDNN calls supported: an avx512 processor without bf16 emulates it, slower than fp32."""
    cpu, asked = torch.device("cpu"), torch.eye(4)[None] * torch.tensor([1.0, 2.0, 3.0, 4.0])
    for there in (False, True):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda there=there: there)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
        assert has_bf16(cpu) is there
        assert torch.equal(orthogonal(asked), orthogonal(asked, torch.bfloat16 if there else torch.float32))
    assert choose_precision(Machine(precision="bf16"), cpu) == torch.bfloat16
    assert not torch.equal(orthogonal(asked, torch.bfloat16), orthogonal(asked, torch.float32))


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


def test_no_thread_computes_with_denormal_numbers() -> None:
    """In a process of its own: a thread keeps to how it was started, and those of the tests run already."""
    code = """if True:
        import torch
        from unmask.config import Machine
        from unmask.train.machine import set_threads
        assert set_threads(Machine(threads=4)) == 4
        small = torch.full((1 << 20,), 2e-38) * 0.1  # 2e-39 is below the smallest normal number, in every thread's part
        assert small.count_nonzero() == 0, f"{small.count_nonzero()} of {len(small)}"
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "MKL_"))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("mkl", "name", "slower"),
    [(True, "AMD EPYC 7763", True), (True, "Intel(R) Xeon(R) 6960P", False), (False, "AMD EPYC 7763", False)],
)
def test_mkl_takes_its_slower_path_on_amd_only(
    monkeypatch: pytest.MonkeyPatch, mkl: bool, name: str, slower: bool
) -> None:
    monkeypatch.setattr("unmask.train.machine._cpu_name", lambda: name)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    assert mkl_on_amd() is slower


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives memory back so soon")
def test_what_one_step_frees_the_next_one_finds() -> None:
    """In a process of its own: the C library's settings are the process's. 24 MiB have 6,144 pages."""
    code = """if True:
        import resource, torch
        from unmask.train.machine import keep_freed_memory
        keep_freed_memory()
        def step():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            pieces = [torch.ones(2 << 20) for _ in range(3)]
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        first, *later = [step() for _ in range(6)]
        assert first > 6000 and sum(later) < first, (first, later)  # else each takes as many as the first
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
