"""The worker's package for tests of its modules."""
import pathlib
import sys

import pytest

WORKER = pathlib.Path(__file__).parents[3] / "backends/python_like_scripted/worker"


@pytest.fixture
def worker(monkeypatch):
    """The test can import modules of nereid_worker. Each test imports them anew, because they keep state."""
    monkeypatch.syspath_prepend(str(WORKER))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    for name in [each for each in sys.modules if each.split(".")[0] == "nereid_worker"]:
        del sys.modules[name]
