"""InferenceResponse, and the sender of responses that a model sends one by one."""
import threading

from . import calls, channel, protocol
from .arguments import HostHandle, int_of, is_text, list_of
from .errors import TritonError, TritonModelException
from .tensor import Tensor, release_packed, packed_all, shared_bytes

FINAL = 1  # TRITONSERVER_RESPONSE_COMPLETE_FINAL
is_decoupled = False  # whether this worker's model is decoupled; set once
# After so many responses of a stream, or so many bytes of them, its sender waits until their reader can take further ones.
_PACE_RESPONSES = 128
_PACE_BYTES = 4 << 20


def parameters_text(parameters):
    """A model's dict of parameters as JSON; "" for none."""
    if parameters is None:
        return ""
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect dict, got {type(parameters)}")
    if not parameters:
        return ""
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not is_text(key) or isinstance(value, str) and not is_text(value):
            raise TypeError(f"parameter {key!r}: expected texts that are UTF-8, got {value!r}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
        if isinstance(value, int) and not -1 << 63 <= value < 1 << 63:
            raise TritonModelException(f"parameter '{key}': expected an integer of 64 bits, got {int(value)}")
    import json
    return json.dumps(parameters)


def _received_text(parameters):
    """The parameters of a received response as JSON, formatted as the host does it."""
    if not parameters:
        return ""
    import json
    return json.dumps(dict(parameters), separators=(",", ":"), ensure_ascii=False)


def parameters_tuple(text):
    """The encoded parameters: ((name, value), ...)."""
    if not text:
        return ()
    import json
    return tuple(json.loads(text).items())


class InferenceResponse:
    __slots__ = ("_outputs", "_error", "_parameters", "__weakref__")

    def __init__(self, output_tensors=(), error=None, parameters=None):
        outputs = list_of(output_tensors, "InferenceResponse: expected output_tensors")
        for each in outputs:
            if each is None:
                raise TritonModelException("Output tensor for inference response should not be empty.")
            if not isinstance(each, Tensor):
                raise TypeError(f"InferenceResponse: expected output_tensors of type Tensor, got {type(each).__name__}")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"InferenceResponse: expected the error as TritonError, got {type(error).__name__}")
        self._outputs = outputs
        self._error = error
        self._parameters = parameters_text(parameters)

    @classmethod
    def received(cls, packed):
        outputs, error, parameters = packed
        self = cls.__new__(cls)
        self._outputs = [Tensor.received(*each) for each in outputs]
        self._error = None if error is None else TritonError(error[1], error[0])
        self._parameters = _received_text(parameters)
        return self

    def output_tensors(self):
        return self._outputs[:]

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error

    def parameters(self):
        return self._parameters or "{}"

    def packed(self, names, kept=None, kept_on_gpu=None):
        """The encoded response: (outputs, error, parameters), with the outputs that the request names. The lists as in Tensor.packed."""
        error, parameters = self._error, parameters_tuple(self._parameters)
        if error is not None:
            return ((), (int(error.code()), error.message()), parameters)
        outputs = [each for each in self._outputs if each._name in names]
        return (packed_all(outputs, kept, kept_on_gpu), None, parameters)


_send_lock = threading.RLock()  # for all senders, whose messages are sent one by one anyway; reentrant, because finalizers may send


def _reset_after_fork():
    """In a forked process: a thread that does not exist there may have held the lock."""
    global _send_lock
    _send_lock = threading.RLock()


channel.after_fork_in_child.append(_reset_after_fork)


class InferenceResponseSender(HostHandle):
    """Sends the responses of one request. If it is deleted before the final flag was sent, it sends the flag, so that the request ends. [any
    thread]"""
    __slots__ = ("_key", "_names", "_num_sent", "_is_closed", "_num_unpaced", "_unpaced_bytes", "__weakref__")

    @classmethod
    def of(cls, request_key, output_names):
        self = cls.__new__(cls)
        self._key = request_key  # 0: for a request that the model made itself
        self._names = output_names
        self._num_sent = self._num_unpaced = self._unpaced_bytes = 0
        self._is_closed = False
        return self

    def is_closed(self):
        return self._is_closed

    def is_cancelled(self):
        return calls.call(protocol.IS_CANCELLED, (self._key,)) if self._key else False

    def _close(self):
        """The request is answered without this sender."""
        self._is_closed = True

    def _count(self, response, flags):
        """Records that a response is sent, or raises because it must not be."""
        if not self._key:
            raise TritonModelException("Unable to send response. Response sender has no reference to the decoupled state of the model.")
        if not is_decoupled:
            if response is not None and self._num_sent:
                raise TritonModelException("Unable to send response. Non-decoupled model cannot send more than one response.")
            if response is None and not self._num_sent:
                raise TritonModelException("Unable to send response. Non-decoupled model cannot send complete final before sending a response.")
        if self._is_closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")
        self._is_closed = flags == FINAL
        self._num_sent += 1

    def send(self, response=None, flags=0):
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"send: expected an InferenceResponse, got {type(response).__name__}")
        if type(flags) is not int or flags not in (0, FINAL):
            flags = int_of(flags, "send: expected flags", 32)
        if flags not in (0, FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and not flags:
            raise TritonModelException("Inference Response object must be provided when the response flags is set to zero.")
        kept = []
        packed = None if response is None else response.packed(self._names, kept_on_gpu=kept)
        try:
            with _send_lock:
                self._count(response, flags)
                try:
                    channel.post((protocol.RESPOND, self._key, packed, int(flags)))
                except BaseException:  # no shared memory for it: it was not sent
                    self._num_sent -= 1
                    self._is_closed = False
                    raise
        except BaseException:
            if packed is not None:
                release_packed(packed[0])
            raise
        if kept or not channel.is_model_process():  # in a forked process: the parent may end the request after this
            calls.await_handled()
        if packed is not None and flags != FINAL and is_decoupled:
            self._pace(packed[0])

    def _pace(self, outputs):
        """Counts a sent response, and waits now and then until its reader can take further ones, was cut off or has cancelled."""
        with _send_lock:
            self._num_unpaced += 1
            self._unpaced_bytes += shared_bytes(outputs)
            if self._num_unpaced < _PACE_RESPONSES and self._unpaced_bytes < _PACE_BYTES:
                return
            self._num_unpaced = self._unpaced_bytes = 0
        calls.call(protocol.AWAIT_ROOM, (self._key,))

    def __del__(self):
        if not getattr(self, "_is_closed", True) and self._key and channel.is_model_process():
            try:
                channel.post((protocol.RESPOND, self._key, None, FINAL))
            except Exception:  # noqa: BLE001 the interpreter may be shutting down
                pass
