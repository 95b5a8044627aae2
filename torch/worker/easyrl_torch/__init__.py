"""A rank of easyrl's PyTorch training backend."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle threads leave their cores to samplers; read when torch loads
os.environ["HF_HUB_OFFLINE"] = "1"  # a model's configuration may name kernels, which transformers would download and run
