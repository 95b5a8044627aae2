"""Ranks end with one line and status 1 whatever goes wrong, and leave no process behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import families
from easyrl_torch import wire, worker
from test_worker import layouts
from trainer import Trainer, arrays, free_port


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return families.make("llama", tmp_path_factory.mktemp("model"))


@contextmanager
def started(folder, model, **settings):
    """Ranks that have said hello."""
    trainer = Trainer(folder, model, **settings)
    try:
        trainer.start()
        yield trainer
    finally:
        trainer.__exit__(RuntimeError)


def test_torchrun_starts_ranks(model, tmp_path):
    """The command line that users have, with nothing prepared."""
    trainer = Trainer(tmp_path, model, dp=2)
    trainer.processes = []
    environment = {**os.environ, **{k: v for k, v in trainer._environment(0, free_port()).items() if k.startswith(("EASYRL", "OMP"))}}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()), "-m", "easyrl_torch"]
    with open(trainer.errors, "w") as errors:
        launcher = subprocess.Popen(command, env=environment, stderr=errors, cwd=Path(__file__).parents[1])
    try:
        with trainer:
            for place in range(2):
                values = trainer.forward(place, place, layouts(1)[place])["policy"]
                trainer.backward(place, place, np.ones_like(values))
            assert trainer.step(1)["norm"] > 0
        assert launcher.wait(60) == 0, trainer.errors.read_text()
    finally:
        launcher.kill()
        launcher.wait()


def test_refused(model, tmp_path):
    with started(tmp_path, model) as trainer:
        trainer.order("refused", error="rank 0 is taken")
        assert trainer.failure(0) == "the trainer refused this rank: rank 0 is taken"
        assert trainer.exits() == [1]


@pytest.mark.parametrize("change, line", [
    (dict(dp=3), "dp is 3 and tp is 1, expected a product of 1, the number of ranks"),
    (dict(dtype="float16"), "dtype is float16, expected one of auto, float32, bfloat16"),
    (dict(mode="fast"), "mode is fast, expected auto, free or lockstep"),
    (dict(model="/nowhere"), "/nowhere"),
    (dict(state="/nowhere"), "read /nowhere: no model.safetensors, nor its index"),
    (dict(optimizer=dict(beta1=0.9)), "welcome.optimizer: beta2 is None, expected float"),
    (dict(temperature="hot"), "welcome: temperature is 'hot', expected float"),
])
def test_welcomes_that_cannot_be(change, line, model, tmp_path):
    with started(tmp_path, model) as trainer:
        trainer.order("welcome", **{**trainer.settings, **change})
        assert line in trainer.failure(0)
        assert trainer.exits() == [1]


LAYOUT = arrays(layouts(1)[0])


@pytest.mark.parametrize("kind, sent, fields, line", [
    ("dance", {}, {}, "kind is 'dance', expected an order"),
    ("hello", {}, {}, "kind is 'hello', expected an order"),
    ("forward", LAYOUT, {}, "forward: id is None, expected int"),
    ("forward", {**LAYOUT, "tokens": LAYOUT["tokens"] + 60}, dict(id=1), "layout: token"),
    ("forward", {**LAYOUT, "segments": LAYOUT["segments"][:-1]}, dict(id=1), "layout: segments has"),
    ("forward", {"tokens": LAYOUT["tokens"]}, dict(id=1), "forward: array positions is missing or not i32"),
    ("forward", {**LAYOUT, "rows": LAYOUT["rows"].astype(np.float32)}, dict(id=1), "forward: array rows is missing or not i32"),
    ("backward", {"gradient": np.ones(1, np.float32)}, dict(id=5), "backward 5: this micro-batch has not been computed"),
    ("score", {}, dict(id=1, model=""), "score: arrays are missing"),
    ("score", LAYOUT, dict(id=1, model="/nowhere"), "read /nowhere: no model.safetensors, nor its index"),
    ("step", {}, dict(update=1, scale=1.0, lr=0.1), "step: clip is None, expected float"),
    ("write", {}, dict(what="poems", folder="/tmp"), "write poems, expected one of weights, state, adapter"),
    ("write", {}, dict(what="adapter", folder="/tmp"), "write adapter: the policy has none"),
    ("write", {}, dict(what="weights", folder="/nowhere"), "No such file or directory"),
])
def test_orders_that_cannot_be(kind, sent, fields, line, model, tmp_path):
    with started(tmp_path, model) as trainer:
        trainer.welcome()
        trainer.order(kind, sent, **fields)
        assert line in trainer.failure(0)
        assert trainer.exits() == [1]


def test_gradients_of_another_length(model, tmp_path):
    with started(tmp_path, model) as trainer:
        trainer.welcome()
        trainer.forward(0, 1, layouts(1)[0])
        trainer.order("backward", {"gradient": np.ones(3, np.float32)}, id=1)
        assert trainer.failure(0) == "backward 1: 3 gradients, expected 18, one per target"


def test_a_step_before_all_gradients(model, tmp_path):
    with started(tmp_path, model) as trainer:
        trainer.welcome()
        trainer.forward(0, 1, layouts(1)[0])
        trainer.order("step", update=1, scale=1.0, lr=0.1, clip=0.0)
        assert trainer.failure(0) == "step 1: 1 micro-batches have no gradient yet"


def test_bytes_that_are_no_frame(model, tmp_path):
    with started(tmp_path, model) as trainer:
        trainer.welcome()
        trainer.ranks[0]._sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert trainer.failure(0).startswith("magic is b'GET '")
        assert trainer.exits() == [1]


@pytest.mark.parametrize("moment", ["before the welcome", "when idle", "in a collective"])
def test_the_trainer_dies(moment, model, tmp_path):
    with started(tmp_path, model, dp=2) as trainer:
        if moment != "before the welcome":
            trainer.welcome()
        if moment == "in a collective":
            trainer.order("step", ranks=[0], update=1, scale=1.0, lr=0.1, clip=0.0)
        for connection in trainer.ranks:
            connection.close()
        assert trainer.exits() == [1, 1]


def short_silence():
    worker.SILENCE = 0.5


def test_the_trainer_is_silent(model, tmp_path):
    with started(tmp_path, model, prepare=short_silence) as trainer:
        trainer.beats = False
        trainer.order("welcome", **trainer.settings)
        assert trainer.failure(0) == "the peer sent nothing for 0.5 s"
        assert trainer.exits() == [1]


def test_sigterm(model, tmp_path):
    with started(tmp_path, model) as trainer:
        trainer.welcome()
        os.kill(trainer.processes[0].pid, signal.SIGTERM)
        assert trainer.exits() == [-signal.SIGTERM]


def leave_child_alone():
    """Goes on as the child of a process that exits once the file "leave" is there."""
    if os.fork():
        while not Path(os.environ["ERRORS"]).with_name("leave").exists():
            time.sleep(0.05)
        os._exit(0)


def test_orphans_exit(model, tmp_path):
    with started(tmp_path, model, prepare=leave_child_alone) as trainer:
        trainer.welcome()
        (tmp_path / "leave").touch()
        trainer.ranks[0].set_silence(30)
        while True:
            try:
                if trainer.ranks[0].receive() is None:
                    break
            except ConnectionResetError:
                break


def test_beats_come_while_a_rank_waits(model, tmp_path):
    """A rank in a collective that another does not join still beats."""
    with started(tmp_path, model, dp=2) as trainer:
        trainer.welcome()
        trainer.order("step", ranks=[0], update=1, scale=1.0, lr=0.1, clip=0.0)
        for _ in range(3):
            assert trainer.ranks[0].receive().kind == "beat"


def test_a_flood_of_random_frames(model, tmp_path):
    """Whatever is in a well-formed frame, the rank answers or ends with one line."""
    rng = np.random.default_rng(3)
    kinds = ["forward", "backward", "discard", "score", "step", "write", "beat"]
    values = [None, -1, 0, 1, 1.5, "", "x", True, [], {}, 1 << 70]
    names = ["id", "model", "update", "scale", "lr", "clip", "what", "folder", "temperature"]
    for _ in range(6):
        with started(tmp_path, model) as trainer:
            trainer.welcome()
            try:
                for _ in range(30):
                    fields = {name: values[rng.integers(len(values))] for name in names if rng.random() < 0.7}
                    sent = {name: rng.integers(-2, 70, rng.integers(0, 9)).astype(np.int32) for name in LAYOUT if rng.random() < 0.8}
                    trainer.order(kinds[rng.integers(len(kinds))], sent, **fields)
            except OSError:
                pass
            try:
                line = trainer.failure(0)
                assert line and "\n" not in line
            except ConnectionResetError:
                pass
            assert trainer.exits() == [1]


def test_no_trainer_there():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionError, match=f"connect to 127.0.0.1:{port}"):
        wire.dial(f"127.0.0.1:{port}", 0.1)
