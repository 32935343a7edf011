"""Machine-level primitives of the record kernels: raw loads and copies, and the code cache.

Kernels work on addresses, because the records of one call are in many buffers, and numba counts
references to arrays in a loop, which costs more than the loop. Nothing here checks bounds; the
callers do. All values outside of memory are int64.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

_BYTE = ir.IntType(8)
_HALF = ir.IntType(32)
_WORD = ir.IntType(64)


def _loader(kind: ir.IntType, extend: str, order: str = sys.byteorder) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def load(typing: Any, address: Any) -> Any:  # noqa: ARG001 (numba's form)
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            value = builder.load(builder.inttoptr(arguments[0], kind.as_pointer()), align=1)
            if order != sys.byteorder:
                value = builder.bswap(value)
            return value if kind is _WORD else getattr(builder, extend)(value, _WORD)

        return types.int64(types.int64), generate

    return load


def _storer(kind: ir.IntType) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def store(typing: Any, address: Any, value: Any) -> Any:  # noqa: ARG001 (numba's form)
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            address, value = arguments
            pointer = builder.inttoptr(address, kind.as_pointer())
            builder.store(value if kind is _WORD else builder.trunc(value, kind), pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return store


load_byte = _loader(_BYTE, "zext")
load_int32 = _loader(_HALF, "sext")
load_int64 = _loader(_WORD, "")
load_big_int32 = _loader(_HALF, "sext", "big")
load_big_uint32 = _loader(_HALF, "zext", "big")
load_big_int64 = _loader(_WORD, "", "big")
load_little_int64 = _loader(_WORD, "", "little")
store_byte = _storer(_BYTE)
store_int32 = _storer(_HALF)
store_int64 = _storer(_WORD)


@intrinsic  # type: ignore[untyped-decorator]
def store_double(typing: Any, address: Any, value: Any) -> Any:  # noqa: ARG001 (numba's form)
    """Store a double at an address."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address, value = arguments
        builder.store(value, builder.inttoptr(address, ir.DoubleType().as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def trailing_zeros(typing: Any, value: Any) -> Any:  # noqa: ARG001 (numba's form)
    """Return the number of trailing zero bits; 64 for zero."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_bytes(typing: Any, to: Any, source: Any, size: Any) -> Any:  # noqa: ARG001 (numba's form)
    """Copy bytes between two addresses with memcpy."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        to, source, size = arguments
        pointer = _BYTE.as_pointer()
        cgutils.raw_memcpy(
            builder, builder.inttoptr(to, pointer), builder.inttoptr(source, pointer), size, 1
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def inlined(function: Function) -> Function:
    """Decorate a small function to be inlined into kernels."""
    return numba.njit(forceinline=True, nogil=True)(function)  # type: ignore[no-any-return]


def compiled(signature: str) -> Callable[[Function], Function]:
    """Compile for one signature when the module is imported, or load what an earlier run compiled.

    Numba keys its cache by one source file. The cache folder's name is therefore a digest of all
    files that a kernel may use: those of its package and of this one. NUMBA_CACHE_DIR overrides it.
    """

    def decorate(function: Function) -> Function:
        before = numba.config.CACHE_DIR
        folder = before or _cache_folder(Path(function.__code__.co_filename).parent)
        numba.config.CACHE_DIR = folder
        try:
            return numba.njit(signature, nogil=True, cache=bool(folder))(function)  # type: ignore[no-any-return]
        finally:
            numba.config.CACHE_DIR = before

    return decorate


@functools.cache
def _cache_folder(sources: Path) -> str:
    """Return a cache folder that only this user can write to, or "" to disable the cache.

    Cached code is executed, so a folder that other users can write to is never used.
    """
    digest = hashlib.sha256()
    for place in dict.fromkeys((Path(__file__).parent, sources)):
        files = sorted(place.glob("*.py"))
        if not files:  # imported from an archive
            return ""
        try:
            for file in files:
                digest.update(file.read_bytes())
        except OSError:
            return ""
    name = f"kernels-{digest.hexdigest()[:16]}"
    for parent in _cache_parents():
        folder = parent / name
        try:
            # Created separately, because `parents=True` ignores `mode` for parent folders.
            parent.parent.mkdir(parents=True, exist_ok=True)
            parent.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            if _is_private(parent) and _is_private(folder):
                return str(folder)
        except OSError:
            continue
    return ""


def _cache_parents() -> list[Path]:
    user = os.getuid() if hasattr(os, "getuid") else "user"
    parents = [Path(tempfile.gettempdir()) / f"neve-{user}"]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    if Path(home).is_absolute():
        parents.insert(0, Path(home) / "neve")
    return parents


def _is_private(folder: Path) -> bool:
    if not hasattr(os, "getuid"):
        return True
    status = folder.lstat()
    ours = status.st_uid == os.getuid() and status.st_mode & 0o022 == 0
    return ours and folder.is_dir() and not folder.is_symlink() and os.access(folder, os.W_OK)
