"""Compiled kernels that no start on this machine asks for any more: of older sources, other compilers or other CPUs."""

from pathlib import Path

from llamina.backends.cpu.jit import cache as cpu
from llamina.backends.cuda import compiler as cuda
from llamina.places import cache_dir

__all__ = ["stale_kernels"]


def stale_kernels() -> dict[Path, list[Path]]:
    """Files, and whole folders, by the folder that they are in. Whatever they are needed for is compiled again."""
    folders = {"kernels": cpu.stale, "cuda": cuda.stale}
    found = {cache_dir() / name: stale(cache_dir() / name) for name, stale in folders.items()}
    return {folder: paths for folder, paths in found.items() if paths}
