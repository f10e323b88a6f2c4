"""Waiting for what a server does after it has answered, such as a reload, a metric or the end of a worker."""
import time

import pytest

PATIENCE_S = 60


def wait_for(condition, what):
    """Returns the result of `condition` once it is true. Fails the test after PATIENCE_S with `what`, a text or a function that returns it."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what() if callable(what) else what}: not within {PATIENCE_S} s")
        time.sleep(0.01)
    return value
