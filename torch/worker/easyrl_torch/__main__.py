"""Runs a rank: `python -m easyrl_torch`, or this file's path where the package is not on Python's path."""

if not __package__:
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from easyrl_torch.worker import main

main()
