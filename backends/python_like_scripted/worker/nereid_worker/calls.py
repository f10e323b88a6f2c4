"""Calls of the host, which answers by messages of its own. Whoever waits for an answer reads those messages, one thread at a time;
the others are told when theirs has come. A thread of its own reads only when something waits that cannot: an event loop, or the host
that asks whether the model is ready."""
import itertools
import os
import sys
import threading
import weakref
import _thread
from collections import deque

from . import channel, protocol
from .arguments import HostsOwn
from .errors import TritonError, TritonModelException
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
_iterators = weakref.WeakSet()  # those that there are


class _Slot:
    """What came for one call. Beside the thread that waits, whoever put a function into `to_tell` is told, once."""
    __slots__ = ("messages", "event", "to_tell", "is_waiting", "is_over", "is_ended", "is_left")

    def __init__(self):
        self.messages = deque()
        self.event = threading.Lock()
        self.event.acquire()
        self.to_tell = deque()  # they raise nothing: whoever reads goes on
        self.is_waiting = False
        self.is_over = False  # the last answer came
        self.is_ended = False  # nobody takes answers any more
        self.is_left = False  # it belongs to the process that forked this one

    def wake(self):
        try:
            self.event.release()
        except RuntimeError:  # woken before
            pass
        while self.to_tell:
            try:
                tell_one = self.to_tell.popleft()
            except IndexError:  # another thread took it
                return
            tell_one()


def _leave():
    """In a process that the model forked: the calls, and whoever read, are the model's."""
    global _read_lock, _slots_lock, _pump, _is_draining
    _read_lock, _slots_lock = threading.Lock(), threading.RLock()  # first: what the garbage collector ends here takes them
    for each in list(_slots.values()):
        each.is_left = each.is_ended = True
    _slots.clear()
    for each in _iterators:
        each._lock, each._waiting = threading.Lock(), threading.Lock()
    _orphans.clear()
    _pump = None
    _is_draining = False


channel.on_leave.append(_leave)


def _check_own(slot):
    if slot.is_left:
        raise TritonModelException(f"process {os.getpid()} cannot have answers to a call of the process that forked it")


def _read_one():
    message = channel.next_posted()
    if message is None:
        _exit()
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
    else:
        slot.wake()


def _exit():
    """The host, or the model's process, is gone."""
    if channel.is_own():
        os._exit(0)
    try:
        print(f"process {os.getpid()} ends: the model's process, which forked it, does not hear it any more", file=sys.stderr, flush=True)
        sys.stdout.flush()
    finally:
        os._exit(1)


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
    """Until a message is there, or nobody takes them any more. One thread of a slot at a time."""
    _check_own(slot)
    try:
        while not (slot.messages or slot.is_ended):
            slot.is_waiting = True  # before the lock is tried: whoever gives it up sees this
            if _pump is None and _read_lock.acquire(blocking=False):
                slot.is_waiting = False
                _read_for(slot)
            else:
                slot.event.acquire()
    except BaseException:  # of a signal handler, or whoever reads
        slot.is_waiting = False
        _wake_another()  # this one may have been woken to read
        raise
    slot.is_waiting = False


def _read_for(slot):
    """With _read_lock, which is free afterwards."""
    try:
        while not (slot.messages or slot.is_over) and _pump is None:  # another thread may have taken the last
            _read_one()
    finally:
        _read_lock.release()
        _wake_another()


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
    global _pump
    try:
        while True:
            with _read_lock:
                _read_one()
    finally:  # an error: who waits reads again
        with _slots_lock:
            _pump = None
        _wake_another()


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


def _begin(operation, arguments, slot):
    number = next(_next_call)
    with _slots_lock:
        _slots[number] = slot
    try:
        channel.post((protocol.CALL, number, operation, arguments))
    except BaseException:  # the host does not hear of it
        with _slots_lock:
            _slots.pop(number, None)
        raise
    return number


def _end(number, slot):
    """Nobody takes its answers any more. A second time it does nothing."""
    global _is_draining
    with _slots_lock:
        if slot.is_ended:
            return
        slot.is_ended = True
    slot.wake()
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
    slot = _Slot()
    number = _begin(operation, arguments, slot)
    try:
        _wait(slot)
        _, _, is_ok, value = slot.messages.popleft()
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


def check_allowed():
    if not is_allowed:
        raise TritonModelException("BLS is only supported during the 'execute' function.")


def _begin_infer(request, decoupled, slot):
    """The call's number. One for which there is no room is over: as there, its answer says so."""
    if channel.is_own():  # the process that forked this one may be allowed to meanwhile
        check_allowed()
    channel.reach()
    kept = []
    packed = None
    try:
        packed = request.packed(kept)
        number = _begin(protocol.INFER, (packed, bool(decoupled)), slot)
    except BaseException as error:
        if packed is not None:
            give_back(packed[8])
        if not isinstance(error, TritonModelException):
            raise
        number = _answer_with_error(slot, str(error))
    if kept:
        try:
            await_handled()
        except BaseException:
            _end(number, slot)
            raise
    return number


def _packed_error(text):
    return (), (int(TritonError.INTERNAL), text), ()


def _answer_with_error(slot, text):
    """In place of the host, which knows of no such call."""
    slot.is_over = True
    slot.messages.append((protocol.STREAM, 0, _packed_error(text), True))
    return 0


def _single_response(slot):
    """Of a call that takes one."""
    packed = slot.messages.popleft()[2]
    return make_response(_packed_error("Unexpected empty response.") if packed is None else packed)


def infer(request, decoupled):
    slot = _Slot()
    number = _begin_infer(request, decoupled, slot)
    if decoupled:
        return ResponseIterator.of(number, slot)
    try:
        _wait(slot)
        return _single_response(slot)
    finally:
        _end(number, slot)


def infer_async(request, decoupled):
    """A future of what infer() returns. A stream's iterator is there with its first response, as there: a loop over it that is no
    `async for` then holds up no other coroutine until that one comes."""
    import asyncio
    awaited = _Awaited(asyncio.get_running_loop(), decoupled)
    channel.reach()  # before a thread reads from there
    start_pump()
    awaited.begin(request)
    return awaited.future


class _Awaited:
    """A call whose first message a future waits for."""
    __slots__ = ("loop", "decoupled", "future", "number", "slot")

    def __init__(self, loop, decoupled):
        self.loop, self.decoupled = loop, decoupled
        self.future = loop.create_future()
        self.slot = _Slot()
        self.slot.to_tell.append(self.arrived)
        self.number = 0

    def begin(self, request):
        """In the loop."""
        try:
            self.number = _begin_infer(request, self.decoupled, self.slot)
        except BaseException:
            self.future.cancel()  # nobody has it: an answer that came meanwhile finds it done
            raise
        self.future.add_done_callback(self.forget)
        if self.slot.messages:  # also where nobody reads it from the host
            self.slot.wake()

    def arrived(self):
        """On the thread that reads."""
        turn = _Turn(self)
        _call_soon(self.loop, turn)
        if self.loop.is_closed():  # perhaps before the turn was in its queue, where it would lie for ever
            turn.drop()

    def settle(self):
        """In the loop."""
        if self.future.done():  # cancelled
            return
        try:
            result = ResponseIterator.of(self.number, self.slot) if self.decoupled else _single_response(self.slot)
        except Exception as error:  # noqa: BLE001 it is the model's: whoever waits gets it
            self.abandon()
            self.future.set_exception(error)
            return
        if not self.decoupled:
            _end(self.number, self.slot)
        self.future.set_result(result)

    def forget(self, future):
        if future.cancelled():
            self.abandon()

    def abandon(self):
        """Nobody waits any more. [any thread]"""
        if not (self.slot.is_over or self.slot.is_ended):
            _try_cancel(self.number)
        _end(self.number, self.slot)


class _Turn:
    """Of a call, in the queue of its loop. A loop that is closed drops what it did not come to."""
    __slots__ = ("awaited",)

    def __init__(self, awaited):
        self.awaited = awaited

    def __call__(self):
        awaited, self.awaited = self.awaited, None
        awaited.settle()

    def drop(self):
        awaited, self.awaited = self.awaited, None
        if awaited is not None:
            awaited.abandon()

    __del__ = drop


def _call_soon(loop, function):
    """In a loop of another thread, unless it was closed."""
    try:
        loop.call_soon_threadsafe(function)
    except Exception:  # noqa: BLE001 whoever reads goes on; a closed one raises RuntimeError
        pass


def _try_cancel(number):
    try:
        channel.post((protocol.CANCEL, number))
    except Exception:  # noqa: BLE001 the host is gone, or the interpreter at its end
        pass


class ResponseIterator(HostsOwn):
    """The responses of a decoupled model, in order; made by InferenceRequest.exec and async_exec with decoupled=True."""

    @classmethod
    def of(cls, number, slot):
        self = cls.__new__(cls)
        self._number = number
        self._slot = slot
        self._is_done = False
        self._seen = []
        self._position = 0
        self._lock = threading.Lock()  # of all of these; nobody waits with it
        self._waiting = threading.Lock()  # of the thread that waits
        _iterators.add(self)
        return self

    def __iter__(self):
        if self._is_done and self._position == len(self._seen):  # next() before a loop takes the first response, and it stays taken
            self._position = 0
        return self

    def __next__(self):
        while True:
            response = self._next_that_came()
            if response is not None:
                return response
            with self._waiting:
                _wait(self._slot)

    def __aiter__(self):
        return self

    async def __anext__(self):
        """One that is cancelled takes nothing."""
        import asyncio
        loop = asyncio.get_running_loop()
        if self._slot.messages:
            await asyncio.sleep(0)  # a fast stream holds up no other coroutine
        while True:
            try:
                response = self._next_that_came()
            except StopIteration:
                raise StopAsyncIteration from None
            if response is not None:
                return response
            await self._message(loop)

    async def _message(self, loop):
        """Until one came, or another took the last."""
        start_pump()
        came = loop.create_future()

        def arrived():  # on the thread that reads, or on one that takes the last
            _call_soon(loop, lambda: came.done() or came.set_result(None))

        to_tell = self._slot.to_tell
        to_tell.append(arrived)
        try:
            if not (self._slot.messages or self._slot.is_ended):  # meanwhile
                await came
        finally:
            try:
                to_tell.remove(arrived)
            except (ValueError, IndexError):  # it was told, or another thread changes them; then it is told in vain
                pass

    def _next_that_came(self):
        """None if it did not yet."""
        with self._lock:
            while self._position == len(self._seen):
                if self._is_done:
                    raise StopIteration("Iteration is done for the responses.")
                _check_own(self._slot)
                if not self._slot.messages:
                    return None
                self._take(*self._slot.messages.popleft()[2:])
            self._position += 1
            return self._seen[self._position - 1]

    def _take(self, packed, is_final):
        if is_final:
            self._is_done = True
            _end(self._number, self._slot)
        if packed is not None:
            self._seen.append(make_response(packed))
        elif is_final:
            self._seen.append(make_response(((), None, ())))  # as there, a stream that is ended by a flag alone has an empty last one

    def cancel(self):
        if not self._is_done:
            channel.post((protocol.CANCEL, self._number))

    def __del__(self):
        if not getattr(self, "_is_done", True) and not self._slot.is_left:
            try:
                channel.post((protocol.CANCEL, self._number))
                _end(self._number, self._slot)
            except Exception:  # noqa: BLE001 the interpreter may be at its end
                pass


def tell(operation, arguments):
    """A call whose answer nobody waits for."""
    if channel.can_tell():
        channel.post((protocol.CALL, 0, operation, arguments))
