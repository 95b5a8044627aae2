"""Policies against easyrl's own kernels, for the families that both know."""

import json
import os
import subprocess

import numpy as np
import pytest

from easyrl_torch.layout import Layout
from easyrl_torch.policy import Policy
from families import VOCABULARY, make

BINARY = os.environ.get("EASYRL_BIN")


@pytest.mark.skipif(not BINARY, reason="EASYRL_BIN names no easyrl binary")
@pytest.mark.parametrize("family, changes", [
    ("llama", {}), ("qwen2", {}), ("qwen3", {}), ("mistral", dict(sliding_window=None))])
def test_same_logprobs(family, changes, tmp_path):
    folder = make(family, tmp_path, **changes)
    sequences = [np.random.default_rng(i).integers(0, VOCABULARY, n).tolist() for i, n in enumerate((2, 17, 90))]
    lines = "\n".join(json.dumps({"ids": ids}) for ids in sequences)
    done = subprocess.run([BINARY, "logprobs", "-model", folder, "-threads", "1"], input=lines, text=True,
                          capture_output=True, check=True, timeout=60)
    policy = Policy.from_folder(folder)
    for ids, line in zip(sequences, done.stdout.splitlines(), strict=True):
        rows = np.arange(len(ids) - 1)
        forest = Layout.build(ids, np.arange(len(ids)), [(0, len(ids), -1)], rows, ids[1:])
        np.testing.assert_allclose(policy(forest)[0].detach(), json.loads(line)["logprobs"], rtol=0, atol=1e-4)
