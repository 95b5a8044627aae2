"""A rank of easyrl's PyTorch training backend."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # a model's configuration may name kernels, which transformers would download and run
