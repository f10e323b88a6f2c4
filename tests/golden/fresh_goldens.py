"""Runs fresh_checkpoints.py once a session with an interpreter that has torch and transformers.

NEREID_TORCH_PYTHON names it; else that of build/torch-venv, which scripts/test makes from Debian's torch, else this one. Where none has them, tests that
ask are skipped. The seeds are fixed; NEREID_FRESH_SEEDS="7 8" takes others.
"""
import atexit
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

SEEDS = os.environ.get("NEREID_FRESH_SEEDS", "1 2").split()
ROOT = pathlib.Path(__file__).parents[2]


@functools.cache
def interpreter():
    """Its path, or None."""
    named = os.environ.get("NEREID_TORCH_PYTHON")
    for python in [named] if named else [str(ROOT / "build/torch-venv/bin/python"), sys.executable]:
        try:
            found = subprocess.run([python, "-c", "import torch, transformers"], capture_output=True, timeout=100).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            found = False
        if found:
            return python
    return None


@functools.cache
def folder():
    """Where SEED/NAME/ are; kept until the process ends."""
    if interpreter() is None:
        return None
    out = tempfile.mkdtemp(prefix="nereid-fresh-")
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    script = str(ROOT / "tests/golden/fresh_checkpoints.py")
    done = subprocess.run([interpreter(), script, out, ",".join(SEEDS)], capture_output=True, text=True, timeout=600, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    return pathlib.Path(out)


def directory(name, seed):
    """The checkpoint with its golden.json."""
    if folder() is None:
        pytest.skip("no interpreter with torch and transformers")
    made = json.loads((folder() / "made.json").read_text())
    if made["not_made"][name]:
        pytest.skip(f"transformers {made['transformers']}: {made['not_made'][name]}")
    return folder() / seed / name


def golden(name, seed):
    return json.loads((directory(name, seed) / "golden.json").read_text())
