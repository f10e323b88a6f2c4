"""ResponseIterator: the responses of a call of a decoupled model, for threads and coroutines."""
import threading
import weakref

from . import calls, channel, protocol
from .arguments import HostHandle
from .response import InferenceResponse
from .tensor import shared_bytes

# The host learns after so many responses, or so many bytes of them, that they were read. Until then the called model may have to wait.
_REPORTED_RESPONSES = 32
_REPORTED_BYTES = 4 << 20

_iterators: "weakref.WeakSet[ResponseIterator]" = weakref.WeakSet()


def _reset_after_fork():
    """In a forked process: a thread that does not exist there may have held the locks."""
    for each in _iterators:
        each._lock, each._waiting = threading.Lock(), threading.Lock()


channel.after_fork_in_child.append(_reset_after_fork)


def call_soon(loop, function):
    """Calls `function` in the loop of another thread, unless the loop is closed."""
    try:
        loop.call_soon_threadsafe(function)
    except Exception:  # noqa: BLE001 the reading thread must go on; a closed loop raises RuntimeError
        pass


class ResponseIterator(HostHandle):
    """The responses of a decoupled model, in order; made by InferenceRequest.exec and async_exec with decoupled=True."""

    @classmethod
    def of(cls, number, pending):
        self = cls.__new__(cls)
        self._number = number
        self._pending_call = pending
        self._is_done = False
        self._seen = []
        self._position = 0
        self._num_unreported = self._unreported_bytes = 0
        self._lock = threading.Lock()  # guards the members above; not held while waiting
        self._waiting = threading.Lock()  # held by the thread that waits for a message
        _iterators.add(self)
        return self

    def __iter__(self):
        if self._is_done and self._position == len(self._seen):  # a response that next() has taken before a loop is not repeated
            self._position = 0
        return self

    def __next__(self):
        while True:
            response = self._next_arrived()
            if response is not None:
                return response
            with self._waiting:
                calls.wait(self._pending_call)

    def __aiter__(self):
        return self

    async def __anext__(self):
        """If it is cancelled, no response is lost."""
        import asyncio
        loop = asyncio.get_running_loop()
        if self._pending_call.messages:
            await asyncio.sleep(0)  # lets other coroutines run between the responses of a fast stream
        while True:
            try:
                response = self._next_arrived()
            except StopIteration:
                raise StopAsyncIteration from None
            if response is not None:
                return response
            await self._wait_for_message(loop)

    async def _wait_for_message(self, loop):
        """Returns when a response has arrived or another reader has taken the last one."""
        calls.start_reader_thread()
        arrived = loop.create_future()

        def on_message():  # [the thread that reads, or the one that takes the last response]
            call_soon(loop, lambda: arrived.done() or arrived.set_result(None))

        callbacks = self._pending_call.callbacks
        callbacks.append(on_message)
        try:
            if not (self._pending_call.messages or self._pending_call.is_ended):  # which may have changed since the check
                await arrived
        finally:
            try:
                callbacks.remove(on_message)
            except (ValueError, IndexError):  # it was called, or is being called by another thread, which has no effect then
                pass

    def _next_arrived(self):
        """The next response that has arrived; None if there is none yet."""
        with self._lock:
            while self._position == len(self._seen):
                if self._is_done:
                    raise StopIteration("Iteration is done for the responses.")
                calls.check_not_inherited(self._pending_call)
                if not self._pending_call.messages:
                    return None
                self._take(*self._pending_call.messages.popleft()[2:])
            self._position += 1
            return self._seen[self._position - 1]

    def _take(self, packed, is_final):
        if is_final:
            self._is_done = True
            calls.end_call(self._number, self._pending_call)
        if packed is not None:
            self._seen.append(InferenceResponse.received(packed))
        elif is_final:
            # As in Triton, a stream that ends with a flag alone has an empty last response.
            self._seen.append(InferenceResponse.received(((), None, ())))
        if packed is not None and not is_final:
            self._report_read(packed[0])

    def _report_read(self, outputs):
        self._num_unreported += 1
        self._unreported_bytes += shared_bytes(outputs)
        if self._num_unreported < _REPORTED_RESPONSES and self._unreported_bytes < _REPORTED_BYTES:
            return
        channel.post((protocol.CONSUMED, self._number, self._num_unreported))
        self._num_unreported = self._unreported_bytes = 0

    def cancel(self):
        if not self._is_done:
            channel.post((protocol.CANCEL, self._number))

    def __del__(self):
        if not getattr(self, "_is_done", True) and not self._pending_call.is_inherited:
            try:
                channel.post((protocol.CANCEL, self._number))
                calls.end_call(self._number, self._pending_call)
            except Exception:  # noqa: BLE001 the interpreter may be shutting down
                pass
