"""A short look for a message before the thread sleeps, as nereid/spin_wait.h has it in the host: while calls of models follow each other
closely the answer is often there sooner than a sleeping process is awake."""
import os
import select
from time import monotonic_ns

_TIMES = 4  # a look is that many times as long as NEREID_SPIN_US says: a call is several hand-overs. The host's kLookTimes
_MAX_TO_SKIP = 1023


def _limit_ns():
    """On one core nothing comes while one looks."""
    if len(os.sched_getaffinity(0)) < 2:
        return 0
    try:
        return max(0, min(int(os.environ.get("NEREID_SPIN_US", "50")), 1000)) * 1000 * _TIMES
    except ValueError:
        return 0


class Looker:
    """Of one descriptor and one thread at a time."""
    __slots__ = ("_fd", "_poll", "_limit_ns", "_num_to_skip", "_num_skipped", "_is_crowded")

    def __init__(self, fd):
        self._fd = fd
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        self._poll = poller.poll
        self._limit_ns = _limit_ns()
        self._num_to_skip = self._num_skipped = 0
        self._is_crowded = False  # at the last look

    def leave(self):
        """The descriptor is closed: who reads gets an error."""
        self._fd, self._limit_ns = -1, 0

    def read(self, size):
        """os.read of the descriptor."""
        if not self._limit_ns:
            return os.read(self._fd, size)
        start = monotonic_ns()
        if self._num_skipped >= self._num_to_skip:
            self._look(start)
            return os.read(self._fd, size)
        self._num_skipped += 1
        data = os.read(self._fd, size)
        if not self._is_crowded and monotonic_ns() - start <= self._limit_ns + self._limit_ns // _TIMES:
            self._num_to_skip = 0  # a look would have spared that sleep, with the time to wake up
        return data

    def _look(self, start):
        poll, limit = self._poll, self._limit_ns
        is_there, spent = poll(0), 0
        while not is_there and spent < limit:
            os.sched_yield()
            is_there, spent = poll(0), monotonic_ns() - start
        self._num_skipped = 0
        self._is_crowded = spent > 2 * limit
        if self._is_crowded:  # another had the core: sleepers get it back sooner
            self._num_to_skip = _MAX_TO_SKIP
        else:
            self._num_to_skip = 0 if is_there else min(2 * self._num_to_skip + 1, _MAX_TO_SKIP)
