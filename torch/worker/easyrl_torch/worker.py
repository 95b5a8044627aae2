"""The process of one rank: it connects to the trainer and does what it orders, until the end."""

from __future__ import annotations

import importlib
import os
import platform
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from . import installed, mesh, wire
from .layout import Layout

if TYPE_CHECKING:  # imported later, when missing packages can be reported to the trainer
    from .engine import Engine, Job

SILENCE = 60.0  # seconds without a byte from the trainer after which a rank exits
PATIENCE = 900.0  # the same before the welcome, while other ranks still start
_MEMORY_SIGNS = ("out of memory", "can't allocate memory", "alloc_failed")  # CUDA and NPU; the CPU; cuBLAS and cuDNN
_LAYOUT = ("tokens", "positions", "segments", "rows", "targets")


def main() -> NoReturn:
    """Runs the rank and exits: 0 after the trainer's end, otherwise 1."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    address, token = _address(), _token()
    place = mesh.Place.from_environment()
    connection = wire.Connection(wire.dial(address), PATIENCE)
    Worker(connection, token, place).run()


def _address() -> str:
    address = os.environ.get("EASYRL_ADDRESS", "")
    if not address:
        sys.exit("EASYRL_ADDRESS is empty, expected host:port of the trainer")
    return address


def _token() -> str:
    path = os.environ.get("EASYRL_TOKEN_FILE")
    return Path(path).read_text().strip() if path else os.environ.get("EASYRL_TOKEN", "")


class Worker:
    """One rank. A thread reads messages and a thread sends beats; run handles messages in order."""

    def __init__(self, connection: wire.Connection, token: str, place: mesh.Place) -> None:
        self._connection, self._token, self._place = connection, token, place
        self._parent = os.getppid()
        self._inbox: queue.Queue[wire.Message] = queue.Queue()
        self._engine: Engine | None = None
        self._passing: int | None = None  # the micro-batch or score that a pass computes
        self._handlers: dict[str, Callable[[wire.Message], None]] = {
            "forward": self._forward, "backward": self._backward, "discard": self._discard,
            "score": self._score, "step": self._step, "write": self._write,
        }

    def run(self) -> NoReturn:
        """Serves the trainer and exits the process."""
        try:
            self._start()
            while True:
                message = self._inbox.get()
                if message.kind == "end":
                    leave(0)
                self._handle(message)
        except BaseException as err:
            self._fail(err)

    def _start(self) -> None:
        device = mesh.choose_device(self._place)
        self._connection.send("hello", **self._introduction(device))
        threading.Thread(target=self._beat, name="beat", daemon=True).start()
        welcome = self._connection.receive()
        if welcome is not None and welcome.kind == "beat":
            welcome = self._wait_for_welcome()
        if welcome is None:
            raise ConnectionError("the trainer closed the connection before its welcome")
        if welcome.kind == "refused":
            raise ConnectionError(f"the trainer refused this rank: {welcome.fields.get('error')}")
        if welcome.kind != "welcome":
            raise wire.ProtocolError(f"kind is {welcome.kind!r:.80}, expected welcome")
        self._connection.set_silence(SILENCE)
        threading.Thread(target=self._read, name="read", daemon=True).start()
        self._engine = self._load(welcome, device)
        self._connection.send("ready", **self._engine.description())

    def _load(self, welcome: wire.Message, device: torch.device) -> Engine:
        """Loads what a welcome asks for, once the installed packages are known to suffice."""
        engine = installed.importing(lambda: importlib.import_module(".engine", __package__))
        asked, dp, tp = job(welcome), welcome.get("dp", int), welcome.get("tp", int)
        float32 = asked.compute_dtype(device) == torch.float32
        installed.check(installed.needs(device.type, dp, tp, float32, asked.recompute))
        return engine.Engine(asked, mesh.Mesh(self._place, device, dp, tp))

    def _wait_for_welcome(self) -> wire.Message | None:
        while True:
            message = self._connection.receive()
            if message is None or message.kind != "beat":
                return message

    def _introduction(self, device: torch.device) -> dict[str, Any]:
        return {
            "token": self._token, "rank": self._place.rank, "world": self._place.world,
            "host": platform.node(), "pid": os.getpid(), "device": str(device),
            "device_name": mesh.device_name(device), "memory": mesh.device_memory(device),
            "versions": {"python": platform.python_version(), **installed.versions()},
        }

    def _read(self) -> None:
        """Passes messages on. The end of the connection ends the process, whatever the main thread waits for."""
        try:
            while True:
                message = self._connection.receive()
                if message is None:
                    raise ConnectionError("the trainer closed the connection")
                if message.kind == "beat":
                    continue
                if message.kind not in self._handlers and message.kind != "end":
                    raise wire.ProtocolError(f"kind is {message.kind!r:.80}, expected an order")
                self._inbox.put(message)
                if message.kind == "end":
                    return
        except BaseException as err:
            self._fail(err)

    def _beat(self) -> None:
        """Shows that the process lives, every second, and ends it if its parent is gone."""
        while True:
            if os.getppid() != self._parent:
                leave(1)
            try:
                self._connection.send("beat")
            except (OSError, wire.Silence):
                leave(1)
            time.sleep(1)

    def _fail(self, err: BaseException) -> NoReturn:
        line = describe(err)
        traceback.print_exception(err, file=sys.stderr)
        fields = {"out_of_memory": self._in_flight()} if self._passing is not None and out_of_memory(err) else {}
        try:
            self._connection.set_silence(5)
            self._connection.send("failed", error=line, **fields)
        except BaseException:
            pass
        leave(1)

    def _in_flight(self) -> list[int]:
        """Returns the micro-batches and the score whose activations the rank holds."""
        return sorted({self._passing, *self._engine.in_flight()})

    def _handle(self, message: wire.Message) -> None:
        self._handlers[message.kind](message)

    def _forward(self, message: wire.Message) -> None:
        start, number = time.monotonic(), message.get("id", int)
        layout = self._layout(message)
        self._passing = number
        arrays = self._engine.forward(number, layout)
        self._passing = None
        self._answer("logprobs", start, arrays, id=number)

    def _backward(self, message: wire.Message) -> None:
        start, number = time.monotonic(), message.get("id", int)
        gradient = message.array("gradient", "f32") if message.arrays else None
        self._passing = number
        self._engine.backward(number, gradient)
        self._passing = None
        self._answer("passed", start, {}, id=number)

    def _discard(self, message: wire.Message) -> None:
        self._engine.discard()

    def _score(self, message: wire.Message) -> None:
        start, number = time.monotonic(), message.get("id", int)
        layout = self._layout(message)
        if layout is None:
            raise wire.ProtocolError("score: arrays are missing")
        temperature = message.get("temperature", float) if "temperature" in message.fields else 1.0
        self._passing = number
        values = self._engine.score(message.get("model", str), layout, temperature)
        self._passing = None
        if self._place.rank == 0:
            self._connection.send("logprobs", {"policy": values}, id=number, seconds=time.monotonic() - start)

    def _step(self, message: wire.Message) -> None:
        start, update = time.monotonic(), message.get("update", int)
        result = self._engine.step(update, message.get("scale", float), message.get("lr", float), message.get("clip", float))
        self._connection.send(
            "stepped", update=update, norm=result.norm if result.finite else None, finite=result.finite,
            weights_finite=result.weights_finite, memory=self._engine.memory(), seconds=time.monotonic() - start)

    def _write(self, message: wire.Message) -> None:
        start = time.monotonic()
        self._engine.write(message.get("what", str), message.get("folder", str))
        self._connection.send("written", seconds=time.monotonic() - start)

    def _answer(self, kind: str, start: float, arrays: dict[str, np.ndarray], **fields: Any) -> None:
        """Answers for this rank's replica, if this is its first rank."""
        if self._engine.mesh.tensor_rank == 0:
            self._connection.send(kind, arrays, seconds=time.monotonic() - start, **fields)

    def _layout(self, message: wire.Message) -> Layout | None:
        if not message.arrays:
            return None
        policy = self._engine.policy.policy
        return Layout.build(
            *(message.array(name, "i32") for name in _LAYOUT),
            vocabulary=policy.vocabulary, max_positions=policy.max_positions)


def job(welcome: wire.Message) -> Job:
    """Returns what a welcome asks for."""
    from . import lora
    from .engine import Job
    from .optimizer import Settings

    optimizer = wire.Message("welcome.optimizer", welcome.get("optimizer", dict))
    adapter = wire.Message("welcome.lora", welcome.get("lora", dict))
    rank = adapter.get("rank", int)
    return Job(
        model=welcome.get("model", str), state=welcome.get("state", str), reference=welcome.get("reference", str),
        mode=welcome.get("mode", str), dtype=welcome.get("dtype", str), recompute=welcome.get("recompute", bool),
        temperature=welcome.get("temperature", float),
        optimizer=Settings(*(optimizer.get(name, float) for name in ("beta1", "beta2", "eps", "weight_decay"))),
        lora=lora.Settings(rank, adapter.get("alpha", float)) if rank > 0 else None,
    )


def describe(err: BaseException) -> str:
    """Returns an error as one line."""
    text = " ".join(str(err).split()) or type(err).__name__
    if not isinstance(err, (ValueError, OSError, wire.ProtocolError, wire.Silence, installed.Lacking)):
        text = f"{type(err).__name__}: {text}"
    return text[:2000]


def out_of_memory(err: BaseException) -> bool:
    """Whether err, or what caused it, is a lack of memory on the device or the host.

    Libraries below PyTorch report it as an error of their own, recognizable only by its text.
    """
    seen: set[int] = set()
    while err is not None and id(err) not in seen:
        seen.add(id(err))
        text = str(err).lower()
        if isinstance(err, (torch.OutOfMemoryError, MemoryError)):
            return True
        if isinstance(err, RuntimeError) and any(sign in text for sign in _MEMORY_SIGNS):
            return True
        err = err.__cause__ or err.__context__
    return False


def leave(status: int) -> NoReturn:
    """Ends the process at once: other ranks may never answer a collective that a normal exit waits for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
