from .factory import DATASETS


def create_dataset(name, size, seed):
    if name not in DATASETS:
        raise ValueError(f"Dataset '{name}' not registered")
    return DATASETS[name][0](size, seed)
