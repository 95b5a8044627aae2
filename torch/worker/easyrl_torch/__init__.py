"""A rank of easyrl's PyTorch training backend."""
