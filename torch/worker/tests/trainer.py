"""A small trainer: it starts ranks as processes and orders them about over real connections."""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
import time
from pathlib import Path

import numpy as np

from easyrl_torch import wire

TOKEN = "secret"
# A large eps keeps rounding errors of tiny gradients from growing to whole updates.
SETTINGS = dict(state="", updates=0, reference="", dp=1, tp=1, dtype="float32", mode="free", recompute=False, temperature=1.0,
                optimizer=dict(beta1=0.9, beta2=0.999, eps=1e-3, weight_decay=0.1), lora=dict(rank=0, alpha=1.0))

# The server that forks ranks imports what they need once. It finds modules by PYTHONPATH alone.
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
_ranks = multiprocessing.get_context("forkserver")
_ranks.set_forkserver_preload(["rank"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def rank_main(environment: dict[str, str], prepare) -> None:
    """Runs one rank in a fresh process."""
    from easyrl_torch import worker

    os.environ.update(environment)
    errors = os.open(environment["ERRORS"], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(errors, 2)
    if prepare is not None:
        prepare()
    worker.main()


class Trainer:
    """The ranks of one job. Use it as a context."""

    beats = True

    def __init__(self, folder: Path, model: Path, prepare=None, **settings):
        self.settings = {**SETTINGS, "model": str(model), **settings}
        self.world, self.tp = self.settings["dp"] * self.settings["tp"], self.settings["tp"]
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(60)
        self.errors = Path(folder) / "errors.txt"
        port = free_port()
        environments = [self._environment(rank, port) for rank in range(self.world)]
        self.processes = [_ranks.Process(target=rank_main, args=(e, prepare), daemon=True) for e in environments]
        self.ranks: list[wire.Connection] = []
        self.ready: list[wire.Message] = []
        self._closed = threading.Event()

    def _environment(self, rank: int, port: int) -> dict[str, str]:
        return {
            "EASYRL_ADDRESS": f"127.0.0.1:{self.server.getsockname()[1]}", "EASYRL_TOKEN": TOKEN, "EASYRL_DEVICE": "cpu",
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(self.world), "LOCAL_WORLD_SIZE": str(self.world),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "ERRORS": str(self.errors),
        }

    def __enter__(self):
        try:
            self.start()
            self.welcome()
        except BaseException as err:
            self.__exit__(type(err))
            raise
        return self

    def start(self) -> None:
        """Starts the ranks and receives their hellos."""
        for process in self.processes:
            process.start()
        self.ranks = self._accept()
        threading.Thread(target=self._beat, daemon=True).start()

    def welcome(self) -> None:
        """Has the ranks load their models."""
        self.order("welcome", **self.settings)
        self.ready = [self.answer(r, "ready") for r in range(self.world)]

    def _accept(self) -> list[wire.Connection]:
        found = {}
        while len(found) < self.world:
            sock, _ = self.server.accept()
            connection = wire.Connection(sock, 60)
            hello = connection.receive()
            assert hello.kind == "hello" and hello.fields["token"] == TOKEN and hello.fields["world"] == self.world
            found[hello.fields["rank"]] = connection
        return [found[rank] for rank in range(self.world)]

    def _beat(self) -> None:
        while self.beats and not self._closed.wait(1):
            for connection in self.ranks:
                try:
                    connection.send("beat")
                except OSError:
                    return

    def order(self, kind, arrays=None, ranks=None, **fields):
        for rank in range(self.world) if ranks is None else ranks:
            self.ranks[rank].send(kind, arrays, **fields)

    def answer(self, rank: int, kind: str) -> wire.Message:
        while True:
            message = self.ranks[rank].receive()
            if message is None:
                raise AssertionError(f"rank {rank} closed the connection: {self.errors.read_text()}")
            if message.kind == "failed":
                raise AssertionError(f"rank {rank} failed: {message.fields['error']}\n{self.errors.read_text()}")
            if message.kind != "beat":
                assert message.kind == kind
                return message

    def replica(self, place: int) -> range:
        return range(place * self.tp, (place + 1) * self.tp)

    def forward(self, place: int, number: int, layout=None) -> dict[str, np.ndarray]:
        self.order("forward", arrays(layout), self.replica(place), id=number)
        return self.logprobs(place, number)

    def logprobs(self, place: int, number: int) -> dict[str, np.ndarray]:
        message = self.answer(place * self.tp, "logprobs")
        assert message.fields["id"] == number
        return message.arrays

    def backward(self, place: int, number: int, gradient=None) -> None:
        self.order("backward", None if gradient is None else {"gradient": gradient}, self.replica(place), id=number)
        assert self.answer(place * self.tp, "passed").fields["id"] == number

    def step(self, update: int, scale=0.1, lr=1e-2, clip=1.0) -> dict:
        self.order("step", update=update, scale=scale, lr=lr, clip=clip)
        results = [self.answer(rank, "stepped").fields for rank in range(self.world)]
        for name in ("update", "norm", "finite", "weights_finite"):
            assert len({result[name] for result in results}) == 1, f"ranks disagree about {name}: {results}"
        return results[0]

    def write(self, what: str, folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        self.order("write", what=what, folder=str(folder))
        for rank in range(self.world):
            self.answer(rank, "written")
        return folder

    def score(self, layout, model="", temperature=1.0) -> np.ndarray:
        self.order("score", arrays(layout), id=1, model=str(model), temperature=temperature)
        return self.answer(0, "logprobs").arrays["policy"]

    def end(self) -> None:
        """Ends the ranks and checks that they exit with status 0."""
        self.order("end")
        assert self.exits() == [0] * len(self.processes), self.errors.read_text()

    def exits(self) -> list[int | None]:
        """Waits for the ranks and returns their statuses."""
        for process in self.processes:
            process.join(30)
        return [process.exitcode for process in self.processes]

    def failure(self, rank: int) -> str:
        """Returns the line that a rank fails with."""
        while True:
            message = self.ranks[rank].receive()
            assert message is not None, self.errors.read_text()
            if message.kind == "failed":
                return message.fields["error"]

    def __exit__(self, kind, *_) -> None:
        self._closed.set()
        if kind is None and self.ready and all(process.exitcode is None for process in self.processes):
            self.end()
        for connection in self.ranks:
            connection.close()
        self.server.close()
        for process in self.processes:
            if process.is_alive():
                process.kill()
            if process.pid is not None:
                process.join(30)


def arrays(layout):
    if layout is None:
        return None
    names = ("tokens", "positions", "segments", "rows", "targets")
    return {name: getattr(layout, name).reshape(-1).astype(np.int32) for name in names}
