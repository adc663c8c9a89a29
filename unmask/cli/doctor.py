"""`unmask doctor`: what this machine has, and whether unmask can use it."""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(
    bench: Annotated[bool, typer.Option("--bench", help="Also measure matrix products, for a second or two.")] = False,
) -> None:
    """Tell what this machine has: cores, memory, disk, device, precision, versions, optional parts.

    Example: unmask doctor --bench
    """
    import importlib.metadata
    import importlib.util
    import platform
    import shutil

    import torch

    from unmask.cli.console import Console
    from unmask.config import Machine
    from unmask.train.machine import choose_device, choose_precision, describe, matmul_peak, set_threads

    with Console() as console:
        set_threads(Machine())
        device = choose_device(Machine())
        free = shutil.disk_usage(".").free / 2**30
        rows = [[name, str(value)] for name, value in describe(device).items()]
        rows += [
            ["free disk here, GiB", f"{free:.1f}"],
            ["precision of a run (auto)", str(choose_precision(Machine(), device)).removeprefix("torch.")],
        ]
        console.table("Machine", rows)
        names = ("unmask", "torch", "numpy", "tokenizers", "safetensors", "pyarrow")
        console.table(
            "Versions",
            [["python", platform.python_version()], *([name, importlib.metadata.version(name)] for name in names)],
        )
        extras = {
            "datasets": "hf:NAME sources",
            "transformers": "loading our models elsewhere",
        }
        there = {
            name: "installed" if importlib.util.find_spec(name) else f"not installed (pip install {name})"
            for name in extras
        }
        console.table("Optional", [[name, use, there[name]] for name, use in extras.items()], ["package", "for", ""])
        if bench:
            speeds = {"float32": matmul_peak(device, torch.float32, 1.0)}
            if choose_precision(Machine(), device) == torch.bfloat16 or torch.ops.mkldnn._is_mkldnn_bf16_supported():
                speeds["bfloat16"] = matmul_peak(device, torch.bfloat16, 1.0)
            console.table(
                "Matrix products (1,024 cubed)",
                [[name, f"{speed / 1e9:.0f} GFLOP/s"] for name, speed in speeds.items()],
            )
