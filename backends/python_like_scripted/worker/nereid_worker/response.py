"""What a model answers: a response, and the sender of responses that come one by one."""
import threading

from . import calls, channel, protocol
from .errors import TritonError, TritonModelException
from .tensor import Tensor, give_back, packed_all

FINAL = 1  # TRITONSERVER_RESPONSE_COMPLETE_FINAL


def parameters_text(parameters):
    """The JSON text of a dict of parameters; "" for none."""
    if parameters is None or parameters == {} or parameters == "":
        return ""
    import json
    if isinstance(parameters, str):
        parameters = json.loads(parameters)
    if not isinstance(parameters, dict):
        raise TypeError(f"parameters: expected a dict, got {type(parameters).__name__}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TypeError(f"parameters: expected keys of type str, got {key!r}")
        if not isinstance(value, (bool, int, str, float)):
            raise TypeError(f"parameters: expected a str, int, bool or float as '{key}', got {type(value).__name__}")
    return json.dumps(parameters, separators=(",", ":"))


def parameters_tuple(text):
    """As they travel: ((name, value), ...)."""
    if not text:
        return ()
    import json
    return tuple(json.loads(text).items())


class InferenceResponse:
    __slots__ = ("_outputs", "_error", "_parameters")

    def __init__(self, output_tensors=None, error=None, parameters=None):
        outputs = [] if output_tensors is None else list(output_tensors)
        for each in outputs:
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
        self._parameters = parameters_text(dict(parameters))
        return self

    def output_tensors(self):
        return self._outputs

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error

    def parameters(self):
        return self._parameters or "{}"

    def packed(self, kept=None, kept_on_gpu=None):
        """As it travels: (outputs, error, parameters); the lists as Tensor.packed says."""
        error = self._error
        if error is not None:
            return ((), (error.code(), error.message()), parameters_tuple(self._parameters))
        return (packed_all(self._outputs, kept, kept_on_gpu), None, parameters_tuple(self._parameters))


calls.make_response = InferenceResponse.received


class InferenceResponseSender:
    """Of one request. [any thread]"""

    def __init__(self, request):
        self._request = request
        self._lock = threading.Lock()
        self._is_closed = False

    def is_closed(self):
        return self._is_closed

    def is_cancelled(self):
        return self._request.is_cancelled()

    def send(self, response=None, flags=0):
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"send: expected an InferenceResponse, got {type(response).__name__}")
        if flags not in (0, FINAL):
            raise TritonModelException(
                f"Unable to send response. Unsupported flag provided: {flags}; 0 and TRITONSERVER_RESPONSE_COMPLETE_FINAL are supported.")
        if response is None and not flags:
            raise TritonModelException("Inference Response object must be provided when the response flags is set to zero.")
        kept = []
        packed = None if response is None else response.packed(kept_on_gpu=kept)
        try:
            with self._lock:
                if self._is_closed:
                    raise TritonModelException("Unable to send response. Response sender has been closed.")
                channel.post((protocol.RESPOND, self._request._key, packed, int(flags)))
                self._is_closed = flags == FINAL
        except BaseException:
            if packed is not None:
                give_back(packed[0])
            raise
        if kept:
            calls.await_handled()
