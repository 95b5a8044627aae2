"""Folders that somebody else has prepared."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from easyrl_torch.policy import Policy
from easyrl_torch.safetensors_stream import Writer
from families import make


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_pickled_weights_are_refused(tmp_path):
    folder = Path(make("qwen3", tmp_path / "model"))
    (folder / "model.safetensors").unlink()
    torch.save({"lm_head.weight": Payload(tmp_path / "ran")}, folder / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        Policy.from_folder(folder)
    assert not (tmp_path / "ran").exists()


def test_hub_is_out_of_reach():
    """transformers downloads no kernels that a configuration names."""
    ask = "import easyrl_torch.policy; from huggingface_hub import constants; print(constants.HF_HUB_OFFLINE)"
    env = dict(os.environ, PYTHONPATH=str(Path(__file__).parents[1]), HF_HUB_OFFLINE="0")
    assert subprocess.check_output([sys.executable, "-c", ask], env=env, text=True) == "True\n"


def test_writer_follows_no_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("content")
    path = tmp_path / "model.safetensors"
    path.with_name(f".{path.name}.{os.getpid()}").symlink_to(victim)
    with Writer(path, torch.float32, [("a", (2,))]) as file:
        file.write("a", torch.ones(2))
    assert victim.read_text() == "content"
    assert path.is_file() and not path.is_symlink()
