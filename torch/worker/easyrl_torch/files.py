"""Weights, moments and adapters as files. All functions are collective: every rank calls them,
with its parameters as shards; the first rank writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers.distributed.sharding_utils import DtensorShardOperation

from .adapter import FILE, peft_name
from .names import Names
from .optimizer import AdamW
from .safetensors_stream import Folder, Writer
from .shard import Sharded, local

WEIGHTS = "model.safetensors"
MOMENTS = "trainer/optimizer.safetensors"


def write_weights(policy: Sharded, names: Names, optimizer: AdamW, folder: str) -> None:
    """Writes the weights in the type that passes compute in; an adapter is merged into them."""
    _write_model(policy, names, Path(folder) / WEIGHTS, policy.dtype)


def write_state(policy: Sharded, names: Names, optimizer: AdamW, folder: str) -> None:
    """Writes the weights in float32, the optimizer's moments, and the adapter if there is one."""
    _write_model(policy, names, Path(folder) / WEIGHTS, torch.float32)
    _make(policy, Path(folder) / "trainer")
    if policy.adapter is None:
        _write_moments(policy, names, optimizer, Path(folder) / MOMENTS)
        return
    _make(policy, Path(folder) / "adapter")
    write_adapter(policy, names, optimizer, str(Path(folder) / "adapter"))
    _write_adapter_moments(policy, optimizer, Path(folder) / MOMENTS)


def write_adapter(policy: Sharded, names: Names, optimizer: AdamW, folder: str) -> None:
    """Writes a folder that PEFT loads. Raises ValueError without an adapter."""
    adapter = policy.adapter
    if adapter is None:
        raise ValueError("write adapter: the policy has none")
    if policy.mesh.rank == 0:
        adapter.write_config(Path(folder))
    with _writer(policy, Path(folder) / FILE, torch.float32, adapter.specs) as file:
        for name, parameter in adapter.tensors():
            file.write(name, gather(parameter.detach()))


def load_state(policy: Sharded, names: Names, optimizer: AdamW, folder: str) -> None:
    """Loads weights and moments, or an adapter and its moments, that any number of ranks wrote."""
    if policy.adapter is not None:
        _load_adapter_state(policy, optimizer, Path(folder))
        return
    load_weights(policy, names, folder)
    shards = {_plain(shard.name): shard for shard in optimizer.shards}
    like = {name: weight for name, weight in policy.policy.weights() if name in shards}
    with Folder(folder, MOMENTS) as slices:
        for kind in ("first", "second"):
            chosen = {name.removeprefix(kind + "."): s for name, s in slices.items() if name.startswith(kind + ".")}
            parts = names.in_memory(chosen, like, torch.float32)
            for name, shard in shards.items():
                getattr(shard, kind).copy_(parts[name])


def is_adapter(folder: str) -> bool:
    """Whether a folder holds a PEFT adapter instead of a model."""
    return (Path(folder) / FILE).exists()


def load_adapter(policy: Sharded, folder: str | Path) -> None:
    """Replaces the adapter by that of a PEFT folder. Raises ValueError without an adapter."""
    if policy.adapter is None:
        raise ValueError(f"load adapter {folder}: the policy has none")
    with Folder(folder, FILE) as slices, torch.no_grad():
        for name, parameter in policy.adapter.tensors():
            local(parameter).copy_(_part(slices, name, parameter))


def _load_adapter_state(policy: Sharded, optimizer: AdamW, folder: Path) -> None:
    like = dict(policy.adapter.tensors())
    shards = {peft_name(shard.name): shard for shard in optimizer.shards}
    load_adapter(policy, folder / "adapter")
    with Folder(folder, MOMENTS) as slices:
        for name, shard in shards.items():
            shard.first.copy_(_part(slices, f"first.{name}", like[name]))
            shard.second.copy_(_part(slices, f"second.{name}", like[name]))


def _part(slices: Mapping[str, Any], name: str, like: Tensor) -> Tensor:
    """Reads this rank's part of a tensor that is split as `like`."""
    if name not in slices:
        raise ValueError(f"tensor {name} is missing")
    shape = tuple(slices[name].get_shape())
    if shape != tuple(like.shape):
        raise ValueError(f"tensor {name} has shape {list(shape)}, expected {list(like.shape)}")
    return DtensorShardOperation(like).shard_tensor(slices[name]) if isinstance(like, DTensor) else slices[name][...]


def load_weights(policy: Sharded, names: Names, folder: str) -> None:
    """Replaces the weights by those of a folder."""
    like = names.tensors(policy.policy)
    with Folder(folder) as slices, torch.no_grad():
        for name, part in names.in_memory(slices, like, torch.float32).items():
            local(like[name]).copy_(part)


@contextmanager
def loaded(policy: Sharded, names: Names, folder: str) -> Iterator[None]:
    """Has the policy compute with the weights, or the adapter, of a folder inside the context, and puts its own back
    bit for bit. Weights replace those under an adapter."""
    adapter = is_adapter(folder)
    with policy.closed():
        own = names.tensors(policy.policy) if not adapter else dict(policy.adapter.tensors() if policy.adapter else ())
        kept = [(t, local(t).detach().clone()) for t in own.values()]
        if adapter:
            load_adapter(policy, folder)
        else:
            load_weights(policy, names, folder)
    try:
        yield
    finally:
        with policy.closed(), torch.no_grad():
            for tensor, value in kept:
                local(tensor).copy_(value)


def _write_model(policy: Sharded, names: Names, path: Path, dtype: torch.dtype) -> None:
    weights = names.tensors(policy.policy)
    specs = [spec for group in names.groups for spec in names.specs(group)]
    with _writer(policy, path, dtype, specs) as file:
        for group in names.groups:
            whole = {name: _whole(policy, name, weights[name].detach(), dtype) for name in group}
            for name, tensor in names.on_disk(whole).items():
                file.write(name, tensor)


def _whole(policy: Sharded, name: str, weight: Tensor, dtype: torch.dtype) -> Tensor:
    if policy.adapter is None:
        return gather(weight.to(dtype))
    return policy.adapter.merged(name, gather(weight), gather)


def _write_moments(policy: Sharded, names: Names, optimizer: AdamW, path: Path) -> None:
    shards = {_plain(shard.name): shard for shard in optimizer.shards}
    weights = dict(policy.policy.weights())
    groups = [[name for name in group if name in shards] for group in names.groups]
    groups = [group for group in groups if group]
    specs = [(f"{kind}.{name}", shape) for group in groups for kind in ("first", "second") for name, shape in names.specs(group)]
    with _writer(policy, path, torch.float32, specs) as file:
        for group in groups:
            for kind in ("first", "second"):
                whole = {name: gather(_as(getattr(shards[name], kind), weights[name])) for name in group}
                for name, tensor in names.on_disk(whole).items():
                    file.write(f"{kind}.{name}", tensor)


def _write_adapter_moments(policy: Sharded, optimizer: AdamW, path: Path) -> None:
    like = dict(policy.adapter.tensors())
    specs = [(f"{kind}.{name}", shape) for name, shape in policy.adapter.specs for kind in ("first", "second")]
    shards = {peft_name(shard.name): shard for shard in optimizer.shards}
    with _writer(policy, path, torch.float32, specs) as file:
        for name, parameter in like.items():
            for kind in ("first", "second"):
                file.write(f"{kind}.{name}", gather(_as(getattr(shards[name], kind), parameter)))


def _writer(policy: Sharded, path: Path, dtype: torch.dtype, specs) -> Writer:
    return Writer(path if policy.mesh.rank == 0 else None, dtype, specs)


def _make(policy: Sharded, folder: Path) -> None:
    if policy.mesh.rank == 0:
        folder.mkdir(exist_ok=True)


def gather(tensor: Tensor) -> Tensor:
    """Returns the whole of a tensor that is split over ranks."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _as(part: Tensor, like: Tensor) -> Tensor:
    """Returns part as a tensor split as `like`."""
    if not isinstance(like, DTensor):
        return part
    return DTensor.from_local(
        part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride())


def _plain(name: str) -> str:
    """Returns the name that Policy.weights has for a parameter of the policy."""
    return name.removeprefix("model.")
