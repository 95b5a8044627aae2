"""Places of the ranks on the data and tensor axes, and their process groups."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

# A collective waits for the slowest rank. The trainer notices a dead rank long before this
# and closes all connections, which ends the ranks.
_COLLECTIVE_LIMIT = timedelta(hours=2)


@dataclass(frozen=True)
class Place:
    """The variables that torchrun has set for this process."""

    rank: int
    world: int
    local_rank: int

    @classmethod
    def from_environment(cls) -> Place:
        """Reads RANK, WORLD_SIZE and LOCAL_RANK; without them this is the only rank."""
        rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        if not 0 <= rank < world:
            raise ValueError(f"RANK is {rank}, expected 0 to {world - 1}")
        return cls(rank, world, int(os.environ.get("LOCAL_RANK", rank)))


def choose_device(place: Place) -> torch.device:
    """Returns this rank's accelerator, or the CPU if the machine has none or EASYRL_DEVICE says so."""
    if os.environ.get("EASYRL_DEVICE") == "cpu":
        return torch.device("cpu")
    try:
        import torch_npu  # noqa: F401  registers torch.npu
    except ImportError:
        pass
    for name in ("cuda", "npu"):
        accelerator = getattr(torch, name, None)
        if accelerator is not None and accelerator.is_available():
            device = torch.device(name, place.local_rank % accelerator.device_count())
            accelerator.set_device(device)
            return device
    return torch.device("cpu")


def device_name(device: torch.device) -> str:
    """Returns the product's name, or the machine's architecture for the CPU."""
    if device.type == "cpu":
        return os.uname().machine
    return getattr(torch, device.type).get_device_name(device)


def device_memory(device: torch.device) -> int:
    """Returns the bytes of memory that the device has."""
    if device.type == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return getattr(torch, device.type).get_device_properties(device).total_memory


def _meeting(place: Place) -> dict[str, Any]:
    """Returns where the ranks meet: in the file EASYRL_MEETING, which opens no port, otherwise at MASTER_ADDR."""
    path = os.environ.get("EASYRL_MEETING")
    if place.world == 1:
        store = dist.HashStore()
    elif path:
        store = dist.FileStore(path, place.world)
    else:
        return {}
    return {"store": store, "rank": place.rank, "world_size": place.world}


class Mesh:
    """The ranks as a grid of data and tensor axis. Rank r is at (r // tp, r % tp)."""

    def __init__(self, place: Place, device: torch.device, dp: int, tp: int) -> None:
        """Joins the other ranks. Blocks until all are there."""
        if dp < 1 or tp < 1 or dp * tp != place.world:
            raise ValueError(f"dp is {dp} and tp is {tp}, expected a product of {place.world}, the number of ranks")
        self.rank, self.world, self.device, self.dp, self.tp = place.rank, place.world, device, dp, tp
        self.data_rank, self.tensor_rank = place.rank // tp, place.rank % tp
        backend = {"cuda": "nccl", "npu": "hccl"}.get(device.type, "gloo")
        if not dist.is_initialized():
            bound = {"device_id": device} if device.type == "cuda" else {}
            dist.init_process_group(backend, timeout=_COLLECTIVE_LIMIT, **bound, **_meeting(place))
        self._grid: DeviceMesh = init_device_mesh(device.type, (dp, tp), mesh_dim_names=("dp", "tp"))

    @property
    def data(self) -> DeviceMesh:
        """The ranks with this rank's place on the tensor axis."""
        return self._grid["dp"]

    @property
    def tensor(self) -> DeviceMesh:
        """The ranks with this rank's place on the data axis."""
        return self._grid["tp"]

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Adds values over all ranks, in place."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def all(self, ok: bool) -> bool:
        """Reports whether ok holds on every rank."""
        bad = torch.tensor([0.0 if ok else 1.0], device=self.device)
        return self.sum(bad).item() == 0

    def close(self) -> None:
        """Leaves the other ranks."""
        if dist.is_initialized():
            dist.destroy_process_group()
