"""How ranks find each other, and how they are started."""

import os
import subprocess
import sys
from pathlib import Path

import torch.distributed as dist

import easyrl_torch
from easyrl_torch import mesh


def test_one_rank_needs_no_port(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "nowhere")
    assert isinstance(mesh._meeting(mesh.Place(0, 1, 0))["store"], dist.HashStore)


def test_ranks_meet_through_a_file(monkeypatch, tmp_path):
    monkeypatch.setenv("EASYRL_MEETING", str(tmp_path / "meeting"))
    ways = [mesh._meeting(mesh.Place(rank, 2, rank)) for rank in range(2)]
    assert [(way["rank"], way["world_size"]) for way in ways] == [(0, 2), (1, 2)]
    ways[0]["store"].set("key", "value")
    assert ways[1]["store"].get("key") == b"value"


def test_ranks_meet_where_torchrun_says(monkeypatch):
    monkeypatch.delenv("EASYRL_MEETING", raising=False)
    assert mesh._meeting(mesh.Place(1, 2, 1)) == {}


def test_runs_as_a_file(tmp_path):
    """Without the package on Python's path. Idle threads wait passively unless the user says otherwise."""
    path = Path(easyrl_torch.__file__).with_name("__main__.py")
    script = f"import os, runpy\ntry: runpy.run_path({str(path)!r}, run_name='__main__')\nfinally: print(os.environ['OMP_WAIT_POLICY'])"
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "EASYRL_ADDRESS", "OMP_WAIT_POLICY")}
    for given, expected in (({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")):
        done = subprocess.run([sys.executable, "-c", script], env=environment | given, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 1 and "EASYRL_ADDRESS is empty" in done.stderr, done.stderr
        assert done.stdout.strip() == expected
