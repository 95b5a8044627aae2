"""Writes safetensors files tensor by tensor, and opens the files of a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

_CODES = {torch.float32: "F32", torch.bfloat16: "BF16"}

Spec = tuple[str, Sequence[int]]  # name and shape


class Writer:
    """Writes one file under a temporary name and renames it once all tensors are in it.

    Tensors are of one type and come in the order that the constructor got. A writer without a
    path takes them too and writes nothing.
    """

    def __init__(self, path: Path | None, dtype: torch.dtype, specs: Sequence[Spec]) -> None:
        self._path, self._dtype, self._specs = path, dtype, list(specs)
        self._next, self._file = 0, None
        if path is not None:
            self._temporary = path.with_name(f".{path.name}.{os.getpid()}")
            self._temporary.unlink(missing_ok=True)
            self._file = open(self._temporary, "xb")  # follows no link
            self._file.write(_header(self._specs, dtype))

    def write(self, name: str, tensor: Tensor) -> None:
        """Appends a tensor, on any device and of any floating-point type."""
        expected, shape = self._specs[self._next]
        if name != expected or tuple(tensor.shape) != tuple(shape):
            raise ValueError(f"write tensor {name} {list(tensor.shape)}, expected {expected} {list(shape)}")
        self._next += 1
        if self._file is not None:
            tensor = tensor.detach().to("cpu", self._dtype).contiguous()
            self._file.write(memoryview(tensor.view(torch.uint8).numpy().reshape(-1)))

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._file is None:
            return
        try:
            if kind is None and self._next == len(self._specs):
                self._file.flush()
                os.fsync(self._file.fileno())
                os.replace(self._temporary, self._path)
            elif kind is None:
                raise ValueError(f"write {self._path}: {self._next} tensors, expected {len(self._specs)}")
        finally:
            self._file.close()
            self._temporary.unlink(missing_ok=True)


def _header(specs: Sequence[Spec], dtype: torch.dtype) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, shape in specs:
        count = 1
        for size in shape:
            count *= size
        end = start + count * dtype.itemsize
        entries[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [start, end]}
        start = end
    if len(entries) != len(specs) + 1:
        raise ValueError("write safetensors: two tensors have one name")
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


class Folder:
    """The tensors of a folder's model.safetensors, or of its sharded files, or of one named file. Use it as a context."""

    def __init__(self, path: str | Path, file: str | None = None) -> None:
        self._path, self._stack = Path(path), ExitStack()
        self._files = [self._path / file] if file else weight_files(self._path)

    def __enter__(self) -> Mapping[str, Any]:
        """Returns safetensors' slices by name. Nothing is read before a slice is indexed."""
        slices: dict[str, Any] = {}
        try:
            for path in self._files:
                opened = self._stack.enter_context(safe_open(str(path), framework="pt"))
                for name in opened.keys():
                    slices[name] = opened.get_slice(name)
        except Exception as err:
            self._stack.close()
            raise OSError(f"read {path}: {err}") from err
        return slices

    def __exit__(self, *_: Any) -> None:
        self._stack.close()


def weight_files(folder: Path) -> list[Path]:
    """Returns the files that hold a model's weights. Raises OSError if there are none."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.exists():
        return [single]
    if index.exists():
        names = set(json.loads(index.read_text())["weight_map"].values())
        return [folder / name for name in sorted(names)]
    raise FileNotFoundError(f"read {folder}: no model.safetensors, nor its index")
