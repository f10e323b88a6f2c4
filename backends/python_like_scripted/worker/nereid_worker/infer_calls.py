"""Inference calls of other models: InferenceRequest.exec and async_exec."""
from . import calls, channel, protocol
from .errors import TritonError, TritonModelException
from .response import InferenceResponse
from .response_iterator import ResponseIterator, call_soon
from .tensor import release_packed


def _begin_infer(request, decoupled, pending):
    """Starts the call and returns its number. If there is no shared memory for it, the call ends at once with that error as its response, as in
    Triton."""
    if channel.is_model_process():  # in a forked process, the model's process checks this
        calls.check_allowed()
    channel.check_connected()
    kept = []
    packed = None
    try:
        packed = request.packed(kept)
        number = calls.begin_call(protocol.INFER, (packed, bool(decoupled)), pending)
    except BaseException as error:
        if packed is not None:
            release_packed(packed[8])
        if not isinstance(error, TritonModelException):
            raise
        number = _answer_with_error(pending, str(error))
    if kept:
        try:
            calls.await_handled()
        except BaseException:
            calls.end_call(number, pending)
            raise
    return number


def _packed_error(text):
    return (), (int(TritonError.INTERNAL), text), ()


def _answer_with_error(pending, text):
    """Adds an error response in place of the host, which does not know the call."""
    pending.is_over = True
    pending.messages.append((protocol.STREAM, 0, _packed_error(text), True))
    return 0


def _single_response(pending):
    """The response of a call that is not decoupled."""
    packed = pending.messages.popleft()[2]
    return InferenceResponse.received(_packed_error("Unexpected empty response.") if packed is None else packed)


def infer(request, decoupled):
    pending = calls.PendingCall()
    number = _begin_infer(request, decoupled, pending)
    if decoupled:
        return ResponseIterator.of(number, pending)
    try:
        calls.wait(pending)
        return _single_response(pending)
    finally:
        calls.end_call(number, pending)


def infer_async(request, decoupled):
    """A future of what infer() returns. As in Triton, the iterator of a decoupled model is set when the first response has arrived. A plain `for`
    loop over it then blocks no other coroutine while it waits for that response."""
    import asyncio
    async_call = _AsyncCall(asyncio.get_running_loop(), decoupled)
    channel.check_connected()  # before the reader thread uses the connection
    calls.start_reader_thread()
    async_call.begin(request)
    return async_call.future


class _AsyncCall:
    """A call and the future that its first message completes."""
    __slots__ = ("loop", "decoupled", "future", "number", "pending")

    def __init__(self, loop, decoupled):
        self.loop, self.decoupled = loop, decoupled
        self.future = loop.create_future()
        self.pending = calls.PendingCall()
        self.pending.callbacks.append(self.on_message)
        self.number = 0

    def begin(self, request):
        """[in the loop]"""
        try:
            self.number = _begin_infer(request, self.decoupled, self.pending)
        except BaseException:
            self.future.cancel()  # the caller does not get the future; an answer that has arrived finds it done
            raise
        self.future.add_done_callback(self.on_done)
        if self.pending.messages:  # also for an error that does not come from the host
            self.pending.wake()

    def on_message(self):
        """[the thread that reads]"""
        callback = _LoopCallback(self)
        call_soon(self.loop, callback)
        if self.loop.is_closed():  # it may have been closed before the callback was queued, and would keep it without calling it
            callback.drop()

    def complete(self):
        """[in the loop]"""
        if self.future.done():  # cancelled
            return
        try:
            result = ResponseIterator.of(self.number, self.pending) if self.decoupled else _single_response(self.pending)
        except Exception as error:  # noqa: BLE001 the awaiting coroutine gets it
            self.abandon()
            self.future.set_exception(error)
            return
        if not self.decoupled:
            calls.end_call(self.number, self.pending)
        self.future.set_result(result)

    def on_done(self, future):
        if future.cancelled():
            self.abandon()

    def abandon(self):
        """Ends the call: its result is not needed. [any thread]"""
        if not (self.pending.is_over or self.pending.is_ended):
            _try_cancel(self.number)
        calls.end_call(self.number, self.pending)


class _LoopCallback:
    """Completes a call in its event loop. A loop that is closed deletes the callbacks that it has not called; the call is then abandoned."""
    __slots__ = ("async_call",)

    def __init__(self, async_call):
        self.async_call = async_call

    def __call__(self):
        async_call, self.async_call = self.async_call, None
        async_call.complete()

    def drop(self):
        async_call, self.async_call = self.async_call, None
        if async_call is not None:
            async_call.abandon()

    __del__ = drop


def _try_cancel(number):
    try:
        channel.post((protocol.CANCEL, number))
    except Exception:  # noqa: BLE001 the host is gone, or the interpreter is shutting down
        pass
