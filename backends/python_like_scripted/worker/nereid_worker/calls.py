"""Calls of the host and its answers, which arrive as messages on the posted socket. A thread that waits for an answer reads these messages, one
thread at a time; it wakes the others when their answers arrive. A separate reader thread is started only if something that cannot read waits: an
event loop, or the host's question whether the model is ready."""
import itertools
import os
import sys
import threading
import _thread
from collections import deque

from . import channel, protocol
from .errors import TritonModelException
from .tensor import Tensor

_next_call = itertools.count(1)
_pending: "dict[int, PendingCall]" = {}  # by call number
_read_lock = threading.Lock()  # held by the thread that reads
_pending_lock = threading.RLock()  # reentrant, because finalizers that run inside it lock it again
_reader_thread = None
instance_name = ""
is_allowed = False  # other models can be called only after initialize() and before finalize()
on_is_ready = None  # set by runtime.py: handles the host's readiness query
_abandoned: "set[int]" = set()  # numbers of calls that were ended before their last answer arrived
_is_reading_abandoned = False


class PendingCall:
    """The messages that have arrived for one call. The waiting thread is woken for each; functions in `callbacks` are called once, with the next
    message."""
    __slots__ = ("messages", "event", "callbacks", "is_waiting", "is_over", "is_ended", "is_inherited")

    def __init__(self):
        self.messages = deque()
        self.event = threading.Lock()
        self.event.acquire()
        self.callbacks = deque()  # they raise nothing: the reading thread must go on
        self.is_waiting = False
        self.is_over = False  # the last answer has arrived
        self.is_ended = False  # answers are no longer read
        self.is_inherited = False  # it belongs to the parent of this forked process

    def wake(self):
        try:
            self.event.release()
        except RuntimeError:  # it was woken before
            pass
        while self.callbacks:
            try:
                callback = self.callbacks.popleft()
            except IndexError:  # another thread has taken it
                return
            callback()


def _reset_after_fork():
    """In a forked process: pending calls and the reader belong to the parent."""
    global _read_lock, _pending_lock, _reader_thread, _is_reading_abandoned
    _read_lock, _pending_lock = threading.Lock(), threading.RLock()  # first, because finalizers that run here lock them
    for each in list(_pending.values()):
        each.is_inherited = each.is_ended = True
    _pending.clear()
    _abandoned.clear()
    _reader_thread = None
    _is_reading_abandoned = False


channel.after_fork_in_child.append(_reset_after_fork)


def check_not_inherited(pending):
    if pending.is_inherited:
        raise TritonModelException(f"process {os.getpid()} cannot have answers to a call of the process that forked it")


def _read_one():
    message = channel.next_posted()
    if message is None:
        _exit()
    if message[0] == protocol.IS_READY:
        on_is_ready(message[1])
        return
    pending = _pending.get(message[1])
    if pending is None:
        _discard(message)
        return
    if message[0] == protocol.REPLY or message[3]:
        pending.is_over = True
    pending.messages.append(message)
    if pending.is_ended:  # ended by another thread since the lookup
        _discard_all(pending)
    else:
        pending.wake()


def _exit():
    """Ends this process: the host, or for a forked process the model's process, is gone."""
    if channel.is_model_process():
        os._exit(0)
    try:
        print(f"process {os.getpid()} ends: the model's process, which forked it, is gone", file=sys.stderr, flush=True)
        sys.stdout.flush()
    finally:
        os._exit(1)


def _discard(message):
    """Drops an unread message and releases its memory."""
    if message[0] != protocol.STREAM:
        return
    if message[2] is not None:
        try:
            _release_response(message[2])
        except Exception:  # noqa: BLE001 the reading thread must go on
            pass
    if message[3]:
        _abandoned.discard(message[1])


def _release_response(packed):
    """Releases the memory of an unread response: each tensor releases its own when it is deleted."""
    for each in packed[0]:
        Tensor.received(*each)


def _discard_all(pending):
    while True:
        try:
            message = pending.messages.popleft()
        except IndexError:
            return
        _discard(message)


def _wake_another():
    """Makes a waiting thread the reader. Skips threads whose answer has arrived, because they return without reading."""
    with _pending_lock:
        for pending in list(_pending.values()):  # a copy: finalizers may end calls meanwhile
            if pending.is_waiting and not pending.messages:
                pending.wake()
                return


def wait(pending):
    """Returns when a message has arrived or the call was ended. One thread for each call."""
    check_not_inherited(pending)
    try:
        while not (pending.messages or pending.is_ended):
            pending.is_waiting = True  # set before the lock is tried, so that a thread that releases it sees it
            if _reader_thread is None and _read_lock.acquire(blocking=False):
                pending.is_waiting = False
                _read_for(pending)
            else:
                pending.event.acquire()
    except BaseException:  # raised by a signal handler or by reading
        pending.is_waiting = False
        _wake_another()  # this thread may have been woken to read
        raise
    pending.is_waiting = False


def _read_for(pending):
    """Reads until this call has a message. The caller holds _read_lock, which is released."""
    try:
        while not (pending.messages or pending.is_over) and _reader_thread is None:  # another thread may have taken the last message
            _read_one()
    finally:
        _read_lock.release()
        _wake_another()


def start_reader_thread():
    """Starts the thread that reads all messages from now on, so that callbacks are called without a waiting thread."""
    global _reader_thread
    with _pending_lock:
        if _reader_thread is not None:
            return
        thread = threading.Thread(target=_read_forever, name="nereid-calls", daemon=True)
        thread.start()  # raises RuntimeError if there are no more threads
        _reader_thread = thread


def _read_forever():
    global _reader_thread
    try:
        while True:
            with _read_lock:
                _read_one()
    finally:  # reading failed: waiting threads read themselves again
        with _pending_lock:
            _reader_thread = None
        _wake_another()


def _read_abandoned():
    """Reads until all abandoned calls have received their last answer."""
    global _is_reading_abandoned
    while True:
        with _read_lock:
            while _abandoned:
                _read_one()
        _wake_another()
        with _pending_lock:
            if not _abandoned:
                _is_reading_abandoned = False
                return


def begin_call(operation, arguments, pending):
    number = next(_next_call)
    with _pending_lock:
        _pending[number] = pending
    try:
        channel.post((protocol.CALL, number, operation, arguments))
    except BaseException:  # the host did not get the call
        with _pending_lock:
            _pending.pop(number, None)
        raise
    return number


def end_call(number, pending):
    """Ends a call: its further answers are dropped. Has no effect if it was ended before."""
    global _is_reading_abandoned
    with _pending_lock:
        if pending.is_ended:
            return
        pending.is_ended = True
    pending.wake()
    if not pending.is_over:
        _abandoned.add(number)  # added before _pending loses the call, so that a last answer that arrives then removes it
    with _pending_lock:
        _pending.pop(number, None)
    if pending.is_over:
        _abandoned.discard(number)  # the last answer had arrived
    if pending.messages:
        _discard_all(pending)
    if pending.is_over or _reader_thread is not None:
        return
    with _pending_lock:
        if _is_reading_abandoned:
            return
        _is_reading_abandoned = True
    try:
        _thread.start_new_thread(_read_abandoned, ())  # finalizers may call this, so it must take no lock of the threading module
    except Exception:  # noqa: BLE001 no more threads: the next ended call tries again
        _is_reading_abandoned = False


def call(operation, arguments):
    """The host's answer. Raises TritonModelException if the host answers with an error."""
    pending = PendingCall()
    number = begin_call(operation, arguments, pending)
    try:
        wait(pending)
        _, _, is_ok, value = pending.messages.popleft()
    finally:
        pending.is_over = True  # the answer has no shared memory to release
        end_call(number, pending)
    if not is_ok:
        raise TritonModelException(f"Failed to process the request for model '{instance_name}', message: {value[1]}")
    return value


def await_handled():
    """Returns when the host has handled, and so copied, everything that was posted before: it handles messages in order."""
    call(protocol.IS_CANCELLED, (0,))


def post_without_reply(operation, arguments):
    """A call that needs no answer. Dropped in a forked process that has no connection."""
    if channel.is_connected():
        channel.post((protocol.CALL, 0, operation, arguments))


def check_allowed():
    if not is_allowed:
        raise TritonModelException("BLS is only supported during the 'execute' function.")
