"""What this machine is and how fast: device, threads, precision, and its measured matrix-product peak."""

from __future__ import annotations

import os
import platform
import time
from contextlib import AbstractContextManager, nullcontext

import torch

from unmask.config import Machine
from unmask.errors import UnmaskError


def choose_device(machine: Machine) -> torch.device:
    """The device a run uses; asking for CUDA where there is none is an error, not a quiet CPU run."""
    if machine.device == "cuda" and not torch.cuda.is_available():
        raise UnmaskError(
            "machine.device is cuda, but torch sees no CUDA device",
            do="use machine.device=auto, or install a CUDA build of torch",
        )
    return torch.device("cuda" if machine.device != "cpu" and torch.cuda.is_available() else "cpu")


def set_threads(machine: Machine) -> int:
    """Sets and returns the number of threads torch computes with; results are bit-identical for equal numbers only."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    count = machine.threads or (
        int(asked) if asked.isdecimal() and 0 < int(asked) <= 1024 else len(os.sched_getaffinity(0))
    )
    torch.set_num_threads(count)
    torch.set_flush_denormal(True)  # a CPU takes a hundred times longer over denormal numbers
    return count


def choose_precision(machine: Machine, device: torch.device) -> torch.dtype:
    """The type matrix products run in: bf16 on GPUs that have it, else fp32; what the hardware lacks is refused."""
    wanted = machine.precision
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False) if device.type == "cuda" else _cpu_has_bf16()
    if wanted == "auto":
        return torch.bfloat16 if device.type == "cuda" and has_bf16 else torch.float32
    if wanted == "bf16" and not has_bf16:
        raise UnmaskError(
            "machine.precision is bf16, but this hardware would only emulate it, many times slower",
            do="use machine.precision=auto",
        )
    if wanted == "fp16" and device.type == "cpu":
        raise UnmaskError(
            "machine.precision is fp16, which CPUs only emulate, many times slower", do="use machine.precision=auto"
        )
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[wanted]


def _cpu_has_bf16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Matrix products in `dtype`, the rest in fp32."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)


def matmul_peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """FLOP/s of the best of several 1,024³ products: what "share of peak" is measured against."""
    a, b = (torch.randn(1024, 1024, device=device, dtype=dtype) for _ in range(2))
    best, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end or best == 0.0:
        start = time.perf_counter()
        for _ in range(4):
            a @ b
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = max(best, 4 * 2 * 1024**3 / (time.perf_counter() - start))
    return best


def describe(device: torch.device) -> dict[str, object]:
    """What a run records of its machine."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name()
    return {
        "device": device.type,
        "name": name,
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(
                (line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.machine()
            )
    except OSError:
        return platform.processor() or platform.machine()
