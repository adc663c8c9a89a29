"""`unmask doctor`: what this machine has, and whether unmask can use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch

    from unmask.cli.console import Console

WIDTHS = (128, 256, 512, 768)
AMD = (
    "MKL takes a slower path on AMD processors. Nothing needs doing: unmask multiplies through oneDNN where that is faster. "
    "Only gradients of weights stay in MKL, and would be about a tenth faster if MKL took the processor for Intel's."
)


def doctor(
    bench: Annotated[
        bool, typer.Option("--bench", help="Also measure matrix products and memory, for some seconds.")
    ] = False,
) -> None:
    """Tell what this machine has: cores, memory, disk, device, precision, versions, optional parts.

    Example: unmask doctor --bench
    """
    from unmask.cli.console import Console
    from unmask.config import Machine
    from unmask.train.machine import choose_device, set_threads

    with Console() as console:
        set_threads(Machine())
        device = choose_device(Machine())
        console.table("Machine", _machine(device))
        console.table("Versions", _versions())
        console.table("Optional", _optional(), ["package", "for", ""])
        if bench:
            _bench(console, device)


def _machine(device: torch.device) -> list[list[str]]:
    import shutil

    from unmask.config import Machine
    from unmask.train.machine import choose_precision, describe

    return [
        *([name, str(value)] for name, value in describe(device).items()),
        ["free disk here, GiB", f"{shutil.disk_usage('.').free / 2**30:.1f}"],
        ["precision of a run (auto)", str(choose_precision(Machine(), device)).removeprefix("torch.")],
    ]


def _versions() -> list[list[str]]:
    import importlib.metadata
    import platform

    names = ("unmask", "torch", "numpy", "tokenizers", "safetensors", "pyarrow")
    return [["python", platform.python_version()], *([name, importlib.metadata.version(name)] for name in names)]


def _optional() -> list[list[str]]:
    import importlib.util

    uses = {"datasets": "hf:NAME sources", "transformers": "loading our models elsewhere"}
    return [
        [name, use, "installed" if importlib.util.find_spec(name) else f"not installed (pip install {name})"]
        for name, use in uses.items()
    ]


def _bench(console: Console, device: torch.device) -> None:
    """The machine's speed at the products that training is made of, and what a run's share of peak is measured against."""
    import torch

    from unmask.train.machine import copy_speed, has_bf16, matmul_peak, mkl_on_amd, product_speed, products

    threads, kernels = torch.get_num_threads(), products(device, torch.float32)
    counts = sorted({1, threads}) if device.type == "cpu" else [threads]
    rows = []
    what = "measuring matrix products, widths"
    for done, hidden in enumerate(WIDTHS):
        console(what, done, len(WIDTHS))
        for name, shape in _shapes(hidden):
            speeds = []
            for product in kernels.values():
                for count in counts:
                    torch.set_num_threads(count)
                    speeds.append(product_speed(product, *shape, device, torch.float32, 0.03) / 1e9)
            rows.append([f"{hidden}", name, *(f"{speed:.0f}" for speed in speeds)])
    console(what, len(WIDTHS), len(WIDTHS))
    torch.set_num_threads(threads)
    heads = [f"{name}, {count} thread{'s' * (count > 1)}" for name in kernels for count in counts]
    console.table("Matrix products in fp32, GFLOP/s", rows, ["hidden size", "product", *heads])
    peaks = {"float32": matmul_peak(device, torch.float32, 1.0)}
    if has_bf16(device):
        peaks["bfloat16"] = matmul_peak(device, torch.bfloat16, 1.0)
    found = [[f"peak in {name}", f"{speed / 1e9:.0f} GFLOP/s"] for name, speed in peaks.items()]
    console.table("What a run's share of peak is of", [*found, ["memory copy", f"{copy_speed(device) / 1e9:.0f} GB/s"]])
    if device.type == "cpu" and mkl_on_amd():
        console.say(AMD)


def _shapes(hidden: int) -> list[tuple[str, tuple[int, int, int]]]:
    """Rows, width in and width out of the products of a step of 1,024 tokens, of which 154 are guessed."""
    return [
        ("queries, keys, values", (1024, hidden, 3 * hidden)),
        ("feed-forward", (1024, hidden, 4 * hidden)),
        ("vocabulary of 30,522", (154, hidden, 30522)),
        ("a weight's gradient", (4 * hidden, 1024, hidden)),
    ]
