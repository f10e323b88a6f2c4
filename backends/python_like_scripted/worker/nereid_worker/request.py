"""InferenceRequest: received by the model, or made by it to call another model."""
import threading

from . import calls, channel, infer_calls, protocol
from .arguments import HostHandle, NamedInt, bool_of, int_of, list_of, text_of
from .errors import TritonModelException
from .response import InferenceResponseSender, parameters_text, parameters_tuple
from .tensor import Tensor, packed_all

RELEASE_ALL, RELEASE_RESCHEDULE = 1, 2
_sender_lock = threading.Lock()  # prevents a second sender, which would end the request when it is deleted


def _reset_after_fork():
    """In a forked process: a thread that does not exist there may have held the lock."""
    global _sender_lock
    _sender_lock = threading.Lock()


channel.after_fork_in_child.append(_reset_after_fork)


class MemoryType(NamedInt):
    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1


TRITONSERVER_MEMORY_GPU, TRITONSERVER_MEMORY_CPU = MemoryType


class PreferredMemory:
    """The preferred memory of a called model's outputs. BYTES outputs are in host memory, and all outputs if there is no such GPU."""

    def __init__(self, preferred_memory_type, preferred_device_id=0):
        if not isinstance(preferred_memory_type, MemoryType):
            raise TypeError(f"PreferredMemory: expected TRITONSERVER_MEMORY_CPU or _GPU, got {preferred_memory_type!r}")
        self._memory_type = preferred_memory_type
        self._device_id = int_of(preferred_device_id, "PreferredMemory: expected preferred_device_id", 64, is_signed=True)

    def preferred_memory_type(self):
        return self._memory_type

    def preferred_device_id(self):
        return self._device_id


class InferenceTrace(HostHandle):
    """The trace of a received request. Pass it to a request that the model makes, and that call is traced as its child."""
    __slots__ = ("_request_key", "__weakref__")

    @classmethod
    def of(cls, request_key):
        self = cls.__new__(cls)
        self._request_key = request_key
        return self

    def get_context(self):
        if not self._request_key:
            return None
        return calls.call(protocol.TRACE_CONTEXT, (self._request_key,))


class InferenceRequest(HostHandle):
    __slots__ = ("_key", "_id", "_correlation_id", "_flags", "_timeout", "_parameters", "_outputs", "_inputs", "_sender",
                 "_is_answered", "_release_flags", "_model_name", "_model_version", "_preferred_memory", "_trace", "_priority", "__weakref__")

    def __init__(self, request_id="", correlation_id=0, inputs=None, requested_output_names=None, model_name=None, model_version=-1,
                 flags=0, timeout=0, preferred_memory=None, trace=None, parameters=None):
        model_name = text_of(model_name, "InferenceRequest: expected model_name")
        if correlation_id is None:
            raise TypeError("InferenceRequest: expected correlation_id as int or str, got None")
        if not isinstance(correlation_id, (int, str)):
            raise TritonModelException("Correlation ID must be integer or string")
        if preferred_memory is not None and not isinstance(preferred_memory, PreferredMemory):
            raise TypeError(f"InferenceRequest: expected a PreferredMemory, got {type(preferred_memory).__name__}")
        if trace is not None and not isinstance(trace, InferenceTrace):
            raise TypeError(f"InferenceRequest: expected an InferenceTrace, got {type(trace).__name__}")
        self._key = 0
        self._id = text_of(request_id, "InferenceRequest: expected request_id")
        what = "InferenceRequest: expected correlation_id"
        self._correlation_id = int_of(correlation_id, what, 64) if isinstance(correlation_id, int) else text_of(correlation_id, what)
        self._inputs = list_of(inputs, "InferenceRequest: expected inputs")
        for each in self._inputs:
            if each is None:
                raise TritonModelException(f"Input tensor for request with id '{self._id}' and model name '{model_name}' should not be empty.")
            if not isinstance(each, Tensor):
                raise TypeError(f"InferenceRequest: expected inputs of type Tensor, got {type(each).__name__}")
        self._outputs = tuple(text_of(each, "InferenceRequest: expected names of outputs")
                              for each in list_of(requested_output_names, "InferenceRequest: expected requested_output_names"))
        if "" in self._outputs:
            raise TritonModelException(f"Requested output name for request with id '{self._id}' and model name '{model_name}' "
                                       "should not be empty.")
        self._model_name = model_name
        self._model_version = int_of(model_version, "InferenceRequest: expected model_version", 64, is_signed=True)
        self._flags = int_of(flags, "InferenceRequest: expected flags", 32)
        self._timeout = int_of(timeout, "InferenceRequest: expected timeout", 64)
        self._preferred_memory = preferred_memory
        self._trace = trace if trace is not None else InferenceTrace.of(0)
        self._parameters = parameters_text(parameters) or "{}"
        self._sender = None
        self._is_answered = False
        self._release_flags = RELEASE_ALL
        self._priority = 0

    @classmethod
    def received(cls, packed):
        self = cls.__new__(cls)
        (self._key, self._id, self._correlation_id, self._flags, self._timeout, self._parameters, self._outputs, inputs) = packed
        received = Tensor.received
        self._inputs = [received(*each) for each in inputs]
        self._sender = None
        self._is_answered = False
        self._release_flags = RELEASE_ALL
        self._trace = None
        return self

    def inputs(self):
        return self._inputs[:]  # a copy, because models remove tensors from it

    def request_id(self):
        return self._id

    def correlation_id(self):
        return self._correlation_id

    def flags(self):
        return self._flags

    def set_flags(self, flags):
        self._flags = int_of(flags, "set_flags: expected flags", 32)

    def timeout(self):
        return self._timeout

    def parameters(self):
        return self._parameters

    def trace(self):
        if self._trace is None:
            self._trace = InferenceTrace.of(self._key)
        return self._trace

    def requested_output_names(self):
        return set(self._outputs)

    def get_response_sender(self):
        if self._sender is None:
            with _sender_lock:
                if self._sender is None:
                    sender = InferenceResponseSender.of(self._key, self._outputs)
                    if self._is_answered:
                        sender._close()
                    self._sender = sender
        return self._sender

    def _close(self):
        """The request is answered without a sender."""
        with _sender_lock:
            self._is_answered = True
            if self._sender is not None:
                self._sender._close()

    def is_cancelled(self):
        return calls.call(protocol.IS_CANCELLED, (self._key,)) if self._key else False

    def set_release_flags(self, flags):
        if int_of(flags, "set_release_flags: expected flags", 32) not in (RELEASE_ALL, RELEASE_RESCHEDULE):
            raise TritonModelException(f"set_release_flags: expected TRITONSERVER_REQUEST_RELEASE_ALL or _RESCHEDULE, got {flags!r}")
        self._release_flags = int(flags)

    # ---- calling another model

    def exec(self, decoupled=False):
        return infer_calls.infer(self, bool_of(decoupled, "exec: expected decoupled"))

    def async_exec(self, decoupled=False):
        return infer_calls.infer_async(self, bool_of(decoupled, "async_exec: expected decoupled"))

    def packed(self, kept_on_gpu):
        """The encoded call of another model; `kept_on_gpu` as in Tensor.packed."""
        return (self._model_name, self._model_version, self._id, self._correlation_id, self._flags, self._timeout,
                parameters_tuple(self._parameters), self._outputs, packed_all(self._inputs, None, kept_on_gpu),
                self._trace._request_key if self._trace is not None else 0, self._preferred_gpu())

    def _preferred_gpu(self):
        """The GPU that should hold the outputs; -1 for host memory."""
        preferred = self._preferred_memory
        if preferred is None or preferred.preferred_memory_type() != TRITONSERVER_MEMORY_GPU:
            return -1
        return preferred.preferred_device_id()
