"""Spins for a short time before a thread sleeps in read(), as base/spin_wait.h does in the host. While calls of models follow each other closely,
the answer often arrives sooner than a sleeping process wakes up."""
import os
import select
from time import monotonic_ns

# A spin takes at most this many times NEREID_SPIN_US, because a call wakes several threads one after the other. Equal to kSpinFactor in worker.cc.
_SPIN_FACTOR = 4
_MAX_TO_SKIP = 1023


def _limit_ns():
    """0, which disables spinning, on a single core: no message can arrive while this thread spins."""
    if len(os.sched_getaffinity(0)) < 2:
        return 0
    try:
        return max(0, min(int(os.environ.get("NEREID_SPIN_US", "50")), 1000)) * 1000 * _SPIN_FACTOR
    except ValueError:
        return 0


class SpinReader:
    """Reads one descriptor. [one thread at a time]"""
    __slots__ = ("_fd", "_poll", "_limit_ns", "_num_to_skip", "_num_skipped", "_is_contended")

    def __init__(self, fd):
        self._fd = fd
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        self._poll = poller.poll
        self._limit_ns = _limit_ns()
        self._num_to_skip = self._num_skipped = 0
        self._is_contended = False  # whether the last spin had to share its core

    def close(self):
        """The descriptor was closed: read() raises OSError from now on."""
        self._fd, self._limit_ns = -1, 0

    def read(self, size):
        """os.read of the descriptor, after spinning."""
        if not self._limit_ns:
            return os.read(self._fd, size)
        start = monotonic_ns()
        if self._num_skipped >= self._num_to_skip:
            self._spin(start)
            return os.read(self._fd, size)
        self._num_skipped += 1
        data = os.read(self._fd, size)
        if not self._is_contended and monotonic_ns() - start <= self._limit_ns + self._limit_ns // _SPIN_FACTOR:
            self._num_to_skip = 0  # a spin would have avoided that sleep; the second term allows for the time of waking up
        return data

    def _spin(self, start):
        poll, limit = self._poll, self._limit_ns
        is_there, spent = poll(0), 0
        while not is_there and spent < limit:
            os.sched_yield()
            is_there, spent = poll(0), monotonic_ns() - start
        self._num_skipped = 0
        self._is_contended = spent > 2 * limit
        if self._is_contended:  # another thread used the core: a sleeping thread gets it back sooner
            self._num_to_skip = _MAX_TO_SKIP
        else:
            self._num_to_skip = 0 if is_there else min(2 * self._num_to_skip + 1, _MAX_TO_SKIP)
