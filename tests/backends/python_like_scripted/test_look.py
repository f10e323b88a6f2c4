"""A look for a message before a thread sleeps, on pipes of its own."""
import os
import pathlib
import sys
import threading
import time

import pytest

WORKER = pathlib.Path(__file__).parents[3] / "backends/python_like_scripted/worker"


@pytest.fixture
def look(monkeypatch):
    monkeypatch.syspath_prepend(str(WORKER))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.delenv("NEREID_SPIN_US", raising=False)
    from nereid_worker import look
    yield look
    for name in [each for each in sys.modules if each.split(".")[0] == "nereid_worker"]:
        del sys.modules[name]


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def test_what_is_there_is_read(look, pipe):
    looker = look.Looker(pipe[0])
    for text in (b"one", b"two"):
        os.write(pipe[1], text)
        assert looker.read(100) == text
    assert looker._num_to_skip == 0


def test_looks_in_vain_become_rare(look, pipe):
    looker = look.Looker(pipe[0])
    skipped = []
    for _ in range(12):
        looker._look(time.monotonic_ns())
        skipped.append(looker._num_to_skip)
    assert skipped[0] >= 1 and skipped[-1] == look._MAX_TO_SKIP


def test_a_sleep_that_a_look_would_have_spared_brings_looks_back(look, pipe):
    looker = look.Looker(pipe[0])
    looker._limit_ns = 10**12
    looker._num_to_skip = 7
    os.write(pipe[1], b"soon")
    assert looker.read(100) == b"soon" and looker._num_to_skip == 0


def test_a_crowded_core_is_left_to_others(look, pipe):
    looker = look.Looker(pipe[0])
    looker._limit_ns = 1  # whatever happens takes longer
    looker._look(time.monotonic_ns() - 100)
    assert looker._num_to_skip == look._MAX_TO_SKIP
    looker._limit_ns = 10**12
    os.write(pipe[1], b"soon")
    assert looker.read(100) == b"soon" and looker._num_to_skip == look._MAX_TO_SKIP


@pytest.mark.parametrize("setting", ["0", "-3", "soon"])
def test_it_sleeps_at_once_if_it_is_told_to(look, pipe, monkeypatch, setting):
    monkeypatch.setenv("NEREID_SPIN_US", setting)
    looker = look.Looker(pipe[0])
    assert looker._limit_ns == 0
    writer = threading.Thread(target=os.write, args=(pipe[1], b"later"))
    writer.start()
    assert looker.read(100) == b"later"
    writer.join()


def test_on_one_core_it_sleeps_at_once(look, pipe, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert look.Looker(pipe[0])._limit_ns == 0


def test_a_closed_channel_is_an_error(look, pipe):
    looker = look.Looker(pipe[0])
    looker.leave()
    with pytest.raises(OSError):
        looker.read(100)
