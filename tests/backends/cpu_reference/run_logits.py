"""Runs logits_driver, which the build puts next to the test programs; NEREID_TEST_BACKENDS names that folder."""
import json
import os
import pathlib
import subprocess

import numpy
import pytest


def path():
    root = pathlib.Path(__file__).parents[3]
    folder = pathlib.Path(os.environ.get("NEREID_TEST_BACKENDS", root / "build/release/tests/backends"))
    program = folder / "cpu_reference" / "logits_driver"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    return program


def run(directory, prompts, max_positions=0, num_greedy=0, rows=None):
    """Returns the lines of the driver: each prompt once for every instruction set of this machine. `rows`: a file of embeddings for ids above the vocabulary."""
    text = "".join(" ".join(map(str, prompt)) + "\n" for prompt in prompts)
    done = subprocess.run([str(path()), str(directory), str(max_positions), str(num_greedy), *([str(rows)] if rows else [])], input=text, capture_output=True, text=True, timeout=300)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode in (0, 3), done.stdout[-2000:] + done.stderr[-2000:]
    return answers


def check_argmax(answer, logits):
    """Compares the most likely token of each position if its lead is large enough; otherwise rounding may decide."""
    assert len(answer["argmax"]) == len(logits), answer["isa"]
    second, first = numpy.sort(logits, -1)[:, -2:].T
    for position in numpy.flatnonzero(first - second > 1e-3):
        assert answer["argmax"][position] == logits[position].argmax(), (answer["isa"], position)
