"""SpinReader: spinning before a thread sleeps, on pipes of the test."""
import os
import threading
import time

import pytest



@pytest.fixture
def spin_reader(worker, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.delenv("NEREID_SPIN_US", raising=False)
    from nereid_worker import spin_reader
    return spin_reader


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def test_data_that_has_arrived_is_read(spin_reader, pipe):
    reader = spin_reader.SpinReader(pipe[0])
    for text in (b"one", b"two"):
        os.write(pipe[1], text)
        assert reader.read(100) == text
    assert reader._num_to_skip == 0


def test_spins_without_data_become_rare(spin_reader, pipe):
    reader = spin_reader.SpinReader(pipe[0])
    skipped = []
    for _ in range(12):
        reader._spin(time.monotonic_ns())
        skipped.append(reader._num_to_skip)
    assert skipped[0] >= 1 and skipped[-1] == spin_reader._MAX_TO_SKIP


def test_a_short_sleep_enables_spinning_again(spin_reader, pipe):
    reader = spin_reader.SpinReader(pipe[0])
    reader._limit_ns = 10**12
    reader._num_to_skip = 7
    os.write(pipe[1], b"soon")
    assert reader.read(100) == b"soon" and reader._num_to_skip == 0


def test_a_shared_core_disables_spinning(spin_reader, pipe):
    reader = spin_reader.SpinReader(pipe[0])
    reader._limit_ns = 1  # any spin takes longer
    reader._spin(time.monotonic_ns() - 100)
    assert reader._num_to_skip == spin_reader._MAX_TO_SKIP
    reader._limit_ns = 10**12
    os.write(pipe[1], b"soon")
    assert reader.read(100) == b"soon" and reader._num_to_skip == spin_reader._MAX_TO_SKIP


@pytest.mark.parametrize("setting", ["0", "-3", "soon"])
def test_a_setting_disables_spinning(spin_reader, pipe, monkeypatch, setting):
    monkeypatch.setenv("NEREID_SPIN_US", setting)
    reader = spin_reader.SpinReader(pipe[0])
    assert reader._limit_ns == 0
    writer = threading.Thread(target=os.write, args=(pipe[1], b"later"))
    writer.start()
    assert reader.read(100) == b"later"
    writer.join()


def test_one_core_disables_spinning(spin_reader, pipe, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert spin_reader.SpinReader(pipe[0])._limit_ns == 0


def test_reading_after_close_raises(spin_reader, pipe):
    reader = spin_reader.SpinReader(pipe[0])
    reader.close()
    with pytest.raises(OSError):
        reader.read(100)
