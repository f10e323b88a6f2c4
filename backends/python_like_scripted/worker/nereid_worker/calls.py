"""Calls of the host, which answers by messages of its own. Whoever waits for an answer reads those messages, one thread at a time;
the others are told when theirs has come. A thread of its own reads only when something waits that cannot: an event loop, or the host
that asks whether the model is ready."""
import itertools
import os
import threading
import _thread
from collections import deque

from . import channel, protocol
from .arguments import HostsOwn
from .errors import TritonModelException
from .tensor import give_back

_next_call = itertools.count(1)
_slots = {}  # by call
_read_lock = threading.Lock()  # who holds it reads
_slots_lock = threading.RLock()  # what the garbage collector ends inside it takes it again
_pump = None
instance_name = ""
is_allowed = False  # only execute() may call other models
on_is_ready = None  # takes the query
make_response = None  # of a packed one; response.py, which calls the host too, sets it
_orphans = set()  # calls that were ended before their last answer came
_is_draining = False


class _Slot:
    """What came for one call. `notify`, if any, is told instead of a waiting thread."""
    __slots__ = ("messages", "event", "notify", "is_waiting", "is_over", "is_ended")

    def __init__(self, notify=None):
        self.messages = deque()
        self.event = threading.Lock()
        self.event.acquire()
        self.notify = notify
        self.is_waiting = False
        self.is_over = False  # the last answer came
        self.is_ended = False  # nobody takes answers any more

    def wake(self):
        try:
            self.event.release()
        except RuntimeError:  # woken before
            pass


def _read_one():
    message = channel.next_posted()
    if message is None:
        os._exit(0)  # the host is gone
    if message[0] == protocol.IS_READY:
        on_is_ready(message[1])
        return
    slot = _slots.get(message[1])
    if slot is None:
        _discard(message)
        return
    if message[0] == protocol.REPLY or message[3]:
        slot.is_over = True
    slot.messages.append(message)
    if slot.is_ended:  # meanwhile
        _discard_all(slot)
    elif slot.notify is None:
        slot.wake()
    else:
        slot.notify()


def _discard(message):
    """What nobody takes gives its memory back."""
    if message[0] != protocol.STREAM:
        return
    if message[2] is not None:
        try:
            make_response(message[2])
        except Exception:  # noqa: BLE001 whoever reads goes on
            pass
    if message[3]:
        _orphans.discard(message[1])


def _discard_all(slot):
    while True:
        try:
            message = slot.messages.popleft()
        except IndexError:
            return
        _discard(message)


def _wake_another():
    """Lets a thread that still waits become the reader; one whose answer has come goes without reading."""
    with _slots_lock:
        for slot in list(_slots.values()):  # the garbage collector may end calls in between
            if slot.is_waiting and not slot.messages:
                slot.wake()
                return


def _wait(slot):
    channel.check_own()  # in a forked process whoever read is gone
    slot.is_waiting = True  # before the lock is tried: whoever gives it up sees this
    while not slot.messages:
        if _read_lock.acquire(blocking=False):
            slot.is_waiting = False
            try:
                while not slot.messages:
                    _read_one()
            finally:
                _read_lock.release()
                _wake_another()
        else:
            slot.event.acquire()
    slot.is_waiting = False
    return slot.messages.popleft()


def start_pump():
    """Reads from now on, so that nobody has to wait to be told."""
    global _pump
    with _slots_lock:
        if _pump is not None:
            return
        pump = threading.Thread(target=_pump_all, name="nereid-calls", daemon=True)
        pump.start()  # or an error, without more threads
        _pump = pump


def _pump_all():
    while True:
        with _read_lock:
            _read_one()


def _drain():
    """Reads until nothing comes any more for calls that were ended."""
    global _is_draining
    while True:
        with _read_lock:
            while _orphans:
                _read_one()
        _wake_another()
        with _slots_lock:
            if not _orphans:
                _is_draining = False
                return


def _begin(operation, arguments, notify=None):
    channel.check_own()
    number = next(_next_call)
    slot = _Slot(notify)
    with _slots_lock:
        _slots[number] = slot
    try:
        channel.post((protocol.CALL, number, operation, arguments))
    except BaseException:
        slot.is_over = True
        _end(number, slot)
        raise
    return number, slot


def _end(number, slot):
    """Nobody takes its answers any more."""
    global _is_draining
    slot.is_ended = True
    if not slot.is_over:
        _orphans.add(number)  # before the last answer finds no slot
    with _slots_lock:
        _slots.pop(number, None)
    if slot.is_over:
        _orphans.discard(number)  # it came before
    if slot.messages:
        _discard_all(slot)
    if slot.is_over or _pump is not None:
        return
    with _slots_lock:
        if _is_draining:
            return
        _is_draining = True
    try:
        _thread.start_new_thread(_drain, ())  # the garbage collector may be here: nothing that takes a lock of threading
    except Exception:  # noqa: BLE001 no more threads: the next call that is ended tries again
        _is_draining = False


def call(operation, arguments):
    """The host's answer; raises what it calls an error."""
    number, slot = _begin(operation, arguments)
    try:
        _, _, is_ok, value = _wait(slot)
    finally:
        slot.is_over = True  # an answer without shared memory: nothing is lost with it
        _end(number, slot)
    if not is_ok:
        raise TritonModelException(f"Failed to process the request for model '{instance_name}', message: {value[1]}")
    return value


def await_handled():
    """Until the host has handled, and so copied, what was posted before: it takes messages in their order."""
    call(protocol.IS_CANCELLED, (0,))


# ---- other models


def _begin_infer(request, decoupled, notify=None):
    if not is_allowed:
        raise TritonModelException("BLS is only supported during the 'execute' function.")
    kept = []
    packed = request.packed(kept)
    try:
        begun = _begin(protocol.INFER, (packed, bool(decoupled)), notify)
    except BaseException:
        give_back(packed[8])
        raise
    if kept:
        await_handled()
    return begun


def infer(request, decoupled):
    number, slot = _begin_infer(request, decoupled)
    if decoupled:
        return ResponseIterator.of(number, slot)
    try:
        message = _wait(slot)
    finally:
        _end(number, slot)
    return make_response(message[2])


def infer_async(request, decoupled):
    import asyncio
    channel.check_own()
    loop = asyncio.get_running_loop()
    start_pump()
    if decoupled:
        return _infer_stream_async(request, loop)
    future = loop.create_future()

    def arrived():  # on the thread that reads, which has to go on
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop was closed: nobody waits any more
            _end(number, slot)

    def settle():
        if not future.done():  # else its end took the answer
            future.set_result(make_response(slot.messages.popleft()[2]))

    def forget(done):
        if done.cancelled() and not slot.is_over:
            channel.post((protocol.CANCEL, number))
        _end(number, slot)

    number, slot = _begin_infer(request, False, arrived)
    future.add_done_callback(forget)
    return future


def _infer_stream_async(request, loop):
    """The iterator is there with its first response, as there: a loop over it that is no `async for` then holds up no other coroutine until
    that one comes."""
    future = loop.create_future()

    def arrived():  # on the thread that reads, once for each message until settle() was there
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop was closed: nobody waits any more
            _end(number, slot)

    def settle():
        slot.notify = None  # whoever reads wakes from now on; what came before lies in the slot
        if not future.done():
            future.set_result(ResponseIterator.of(number, slot))

    def forget(done):
        if done.cancelled():
            if not slot.is_over:
                channel.post((protocol.CANCEL, number))
            _end(number, slot)

    number, slot = _begin_infer(request, True, arrived)
    future.add_done_callback(forget)
    return future


class ResponseIterator(HostsOwn):
    """The responses of a decoupled model, in order; made by InferenceRequest.exec(decoupled=True)."""

    @classmethod
    def of(cls, number, slot):
        self = cls.__new__(cls)
        self._number = number
        self._slot = slot
        self._is_done = False
        self._seen = []
        self._position = 0
        return self

    def __iter__(self):
        if self._is_done and self._position == len(self._seen):  # next() before a loop takes the first response, and it stays taken
            self._position = 0
        return self

    def __next__(self):
        while self._position >= len(self._seen):
            if self._is_done:
                raise StopIteration("Iteration is done for the responses.")
            _, _, packed, is_final = _wait(self._slot)
            if is_final:
                self._is_done = True
                _end(self._number, self._slot)
            if packed is not None:
                self._seen.append(make_response(packed))
            elif is_final:
                self._seen.append(make_response(((), None, ())))  # as there, a stream that is ended by a flag alone has an empty last one
        self._position += 1
        return self._seen[self._position - 1]

    def __aiter__(self):
        return self

    async def __anext__(self):
        import asyncio
        response = await asyncio.get_running_loop().run_in_executor(None, next, self, None)
        if response is None:
            raise StopAsyncIteration
        return response

    def cancel(self):
        if not self._is_done:
            channel.post((protocol.CANCEL, self._number))

    def __del__(self):
        if not getattr(self, "_is_done", True):
            try:
                channel.post((protocol.CANCEL, self._number))
                _end(self._number, self._slot)
            except Exception:  # noqa: BLE001 the interpreter may be at its end
                pass


def tell(operation, arguments):
    """A call whose answer nobody waits for."""
    channel.post((protocol.CALL, 0, operation, arguments))
