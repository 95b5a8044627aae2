"""Imported before ranks are forked, so that they start at once."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

import easyrl_torch.engine  # noqa: F401
import easyrl_torch.worker  # noqa: F401
from transformers.models import gemma3, llama, qwen3, qwen3_moe  # noqa: F401

torch.set_num_threads(1)
