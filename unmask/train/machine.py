"""What this machine is and how fast: device, threads, precision, and its measured matrix-product peak."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.config import Machine
from unmask.errors import UnmaskError

Product = Callable[[Tensor, Tensor], Tensor]


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
    # Before any product: a thread treats denormal numbers, over which a CPU takes a hundred times longer, as the thread that
    # started it did then, and torch's threads start with the first product.
    torch.set_flush_denormal(True)
    torch.set_num_threads(count)
    return count


def keep_freed_memory() -> None:
    """Lets the C library keep what a step frees for the next step, where it is glibc (elsewhere nothing happens).

    glibc hands large pieces back to the system at once, and the system then clears every page again: up to a tenth of a step.
    For a process that trains and does nothing else; its peak stays what it was.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # pieces of up to 32 MiB come from the heap
        mallopt(_M_TRIM_THRESHOLD, 512 << 20)  # whose free end is given back only when it is longer than this


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def choose_precision(machine: Machine, device: torch.device) -> torch.dtype:
    """The type matrix products run in: bf16 on GPUs that have it, else fp32; what the hardware lacks is refused."""
    wanted = machine.precision
    if wanted == "auto":
        return torch.bfloat16 if device.type == "cuda" and has_bf16(device) else torch.float32
    if wanted == "bf16" and not has_bf16(device):
        raise UnmaskError(
            "machine.precision is bf16, but this hardware would only emulate it, many times slower",
            do="use machine.precision=auto",
        )
    if wanted == "fp16" and device.type == "cpu":
        raise UnmaskError(
            "machine.precision is fp16, which CPUs only emulate, many times slower", do="use machine.precision=auto"
        )
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[wanted]


def has_bf16(device: torch.device) -> bool:
    """Whether products in bf16 are faster than in fp32. oneDNN calls more processors supported, and emulates it on them."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Matrix products in `dtype`, the rest in fp32."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)


def matmul_peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """FLOP/s of the best of several products by the best of the kernels here: what "share of peak" is measured against."""
    kernels = products(device, dtype)
    share = seconds / (len(kernels) * len(_PEAK_SHAPES))
    return max(
        product_speed(kernel, *shape, device, dtype, share) for shape in _PEAK_SHAPES for kernel in kernels.values()
    )


_PEAK_SHAPES = ((1024, 1024, 1024), (1024, 256, 1024))  # rows, width in, width out


def products(device: torch.device, dtype: torch.dtype) -> dict[str, Product]:
    """The kernels that give x·Wᵀ here, by name."""
    if device.type == "cuda":
        return {"torch": F.linear}
    names: dict[str, Product] = {}
    if dtype == torch.float32:
        names["MKL" if torch.backends.mkl.is_available() else "BLAS"] = F.linear
    if torch.backends.mkldnn.is_available():
        names["oneDNN"] = lambda x, w: torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "")
    return names or {"torch": F.linear}


def product_speed(
    product: Product, rows: int, inner: int, out: int, device: torch.device, dtype: torch.dtype, seconds: float
) -> float:
    """FLOP/s of [rows, inner] times [out, inner] transposed: the best of at least two tries."""
    x, w = torch.randn(rows, inner, device=device, dtype=dtype), torch.randn(out, inner, device=device, dtype=dtype)
    best, tries, end = float("inf"), 0, time.monotonic() + seconds
    while tries < 2 or time.monotonic() < end:
        start = time.perf_counter()
        product(x, w)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best, tries = min(best, time.perf_counter() - start), tries + 1
    return 2 * rows * inner * out / best


def copy_speed(device: torch.device) -> float:
    """Bytes a second that a large copy reads and writes."""
    source = torch.ones(2**24, device=device)
    target, best = torch.empty_like(source), float("inf")
    for _ in range(5):
        start = time.perf_counter()
        target.copy_(source)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * source.nbytes / best


def mkl_on_amd() -> bool:
    """True where torch's MKL takes its slower path, since the processor is AMD's."""
    return torch.backends.mkl.is_available() and "AMD" in _cpu_name()


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
