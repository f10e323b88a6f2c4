"""Calls of the host, with what comes from it made up here: moments that threads meet only now and then."""
import pathlib
import sys

import pytest

pytest.importorskip("numpy")
WORKER = pathlib.Path(__file__).parents[3] / "backends/python_like_scripted/worker"


@pytest.fixture
def calls(monkeypatch):
    monkeypatch.syspath_prepend(str(WORKER))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    from nereid_worker import calls, response  # noqa: F401 which says how a response is made
    yield calls
    for name in [each for each in sys.modules if each.split(".")[0] == "nereid_worker"]:
        del sys.modules[name]


def waiting(calls, number, messages=()):
    """The slot of a call that a thread waits for."""
    slot = calls._slots[number] = calls._Slot()
    slot.messages.extend(messages)
    slot.is_waiting = True
    return slot


def test_who_reads_next_has_no_answer_yet(calls):
    """One whose answer has come goes without reading, and so without waking another."""
    answered = waiting(calls, 1, ["answer"])
    unanswered = waiting(calls, 2)
    calls._wake_another()
    assert answered.event.locked() and not unanswered.event.locked()
