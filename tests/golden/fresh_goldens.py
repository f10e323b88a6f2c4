"""Runs fresh_checkpoints.py once per test session, with an interpreter that has torch and transformers.

NEREID_TORCH_PYTHON names the interpreter. Otherwise it is that of build/torch-venv, which scripts/test creates from Debian's torch, or the current
one. If none has the packages, the tests that need them are skipped. The seeds are fixed; NEREID_FRESH_SEEDS="7 8" uses others.
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


# The first version of transformers that can create these cases, or creates them as newer ones do.
SINCE = {"llama-yarn": (5,), "qwen2-window": (5,), "qwen3": (4, 51), "qwen3_moe": (4, 51), "gemma3": (4, 50), "qwen3-drawn": (5,), "qwen3_moe-drawn": (4, 51),
         "gemma3-drawn": (5,)}
CHANGED = ("llama-untied llama-head-alone llama-both-spellings llama-stray-part mistral-layer-types mixtral-layer-types phi3-older-name gemma3-both-spellings "
           "gpt2-other-names gpt_neox-odd").split()
SINCE |= dict.fromkeys(CHANGED, (5,))


def candidates():
    named = os.environ.get("NEREID_TORCH_PYTHON")
    return [named] if named else [str(ROOT / "build/torch-venv/bin/python"), sys.executable]


@functools.cache
def version():
    """The version of transformers as numbers, or none if it is not installed. Does not import it."""
    for python in candidates():
        script = "from importlib.metadata import version; print(version('transformers'))"
        try:
            found = subprocess.run([python, "-c", script], capture_output=True, text=True, timeout=100)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if found.returncode == 0:
            return tuple(int(part) for part in found.stdout.split(".")[:2])
    return ()


def can_make(name):
    """False if the installed version is too old for the case. True if it is not installed, so that the tests exist and report why they are skipped.
    """
    return not version() or version() >= SINCE.get(name, ())


@functools.cache
def interpreter():
    """The path of the interpreter, or None."""
    for python in candidates():
        try:
            found = subprocess.run([python, "-c", "import torch, transformers"], capture_output=True, timeout=100).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            found = False
        if found:
            return python
    return None


@functools.cache
def folder():
    """The folder that contains SEED/NAME/. It is kept until the process ends."""
    if interpreter() is None:
        return None
    out = tempfile.mkdtemp(prefix="nereid-fresh-")
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    script = str(ROOT / "tests/golden/fresh_checkpoints.py")
    done = subprocess.run([interpreter(), script, out, ",".join(SEEDS)], capture_output=True, text=True, timeout=600, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    return pathlib.Path(out)


def directory(name, seed):
    """The checkpoint directory with its golden.json."""
    if folder() is None:
        pytest.skip("no interpreter with torch and transformers")
    made = json.loads((folder() / "made.json").read_text())
    assert not made["not_made"][name], f"transformers {made['transformers']}: {made['not_made'][name]}"
    return folder() / seed / name


def golden(name, seed):
    return json.loads((directory(name, seed) / "golden.json").read_text())
