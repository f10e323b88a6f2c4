"""The model in this process: loading it, and answering what the host asks."""
import importlib.util
import json
import os
import sys
import threading
import types

from . import calls, channel, protocol
from .errors import Fault, TritonModelException, describe
from .request import RELEASE_RESCHEDULE, InferenceRequest
from .response import InferenceResponse
from .tensor import give_back

_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_RESCHEDULED = 2  # in the place of a response

_model_dir = ""
_class = _model = None
_instance_name = ""
_is_decoupled = False
_loop = None
_kept = []  # what answers name in the host's memory, until the next question: then the host has read it


def model_dir():
    return _model_dir


def free_memory():
    return channel.outgoing.free_bytes()


def serve():
    """Answers until the host finalizes the model or is gone."""
    handlers = {protocol.LOAD: _load, protocol.COMPLETE: _complete, protocol.INITIALIZE: _initialize, protocol.EXECUTE: _execute,
                protocol.FINALIZE: _finalize}
    while True:
        question = channel.next_question()
        if question is None:
            return
        _kept.clear()
        try:
            answer = (0, handlers[question[0]](*question[1:]))
        except Exception as error:  # noqa: BLE001 whatever a model raises is its answer
            answer = (1, _text(error))
        try:
            channel.answer(answer)
        except TritonModelException as error:  # no room for it
            if question[0] == protocol.EXECUTE:
                _give_back(answer[1][2])
            channel.answer((1, _text(error)))
        if question[0] == protocol.FINALIZE:
            return


def _text(error):
    return describe(error, _OWN_FOLDER)


def _load(path, version, folder):
    """`version` is the package in which the model's own files can import each other; "" for a backend's model.py."""
    global _class, _model_dir
    _model_dir = folder
    home = os.path.dirname(path)
    name = os.path.splitext(os.path.basename(path))[0]
    if version:
        sys.path.extend([home, os.path.dirname(home)])
        package = types.ModuleType(version)
        package.__path__ = [home]
        sys.modules.setdefault(version, package)
        name = f"{version}.{name}"
    else:
        sys.path.append(home)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    _class = getattr(module, "TritonPythonModel", None)
    if _class is None:
        raise TritonModelException(f"'{path}' has no class TritonPythonModel")
    if not callable(getattr(_class, "execute", None)):
        raise TritonModelException(f"class TritonPythonModel of '{path}' has no execute")


def _complete(config):
    if not hasattr(_class, "auto_complete_config"):
        return None
    from .model_config import ModelConfig
    completed = _class.auto_complete_config(ModelConfig(json.loads(config)))
    if not isinstance(completed, ModelConfig):
        raise TritonModelException(
            f"auto_complete_config must return a ModelConfig object, got {type(completed).__name__}")
    return json.dumps(completed.as_dict())


def _initialize(arguments, instance_name, is_decoupled):
    global _model, _instance_name, _is_decoupled
    _instance_name, _is_decoupled = instance_name, is_decoupled
    _model = _class()
    if hasattr(_model, "initialize"):
        _model.initialize(dict(arguments))
    if hasattr(_model, "is_ready"):
        calls.on_is_ready = _ask_is_ready
        calls.start_pump()
    calls.is_allowed = True
    return hasattr(_model, "is_ready")


def _finalize():
    calls.is_allowed = False
    if _model is not None and hasattr(_model, "finalize"):
        _model.finalize()


# ---- requests

def _execute(packed):
    """(messages posted so far, error or None, responses): the host handles the posted ones first."""
    requests = [InferenceRequest.received(each) for each in packed]
    try:
        responses = _model.execute(requests)
        if isinstance(responses, types.CoroutineType):
            responses = _run(responses, requests)
        return (channel.num_posted, None, _packed(requests, responses))
    except Exception as error:  # noqa: BLE001
        return (channel.num_posted, _failed(error), ())


def _failed(error):
    return f"Failed to process the request(s) for model '{_instance_name}', message: {_text(error)}"


def _packed(requests, responses):
    if _is_decoupled:
        if responses is not None:
            raise Fault(
                f"Python model '{_instance_name}' is using the decoupled mode and the execute function must return None.")
        return tuple([_RESCHEDULED if each._release_flags == RELEASE_RESCHEDULE else None for each in requests])
    if responses is None:
        responses = [None] * len(requests)
    if not isinstance(responses, (list, tuple)):
        raise Fault(f"Expected a list in the execute return, found type '{type(responses)}'.")
    if len(responses) != len(requests):
        raise Fault(
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(responses)}")
    packed = []
    try:
        for each in zip(requests, responses):
            packed.append(_packed_one(*each))
    except BaseException:
        _give_back(packed)
        raise
    return tuple(packed)


def _give_back(responses):
    for each in responses:
        if type(each) is tuple:
            give_back(each[0])


def _packed_one(request, response):
    if response is not None:
        if type(response) is not InferenceResponse and not isinstance(response, InferenceResponse):
            raise Fault("Expected an 'InferenceResponse' object in the execute function return list, "
                                       f"found type '{type(response)}'.")
        if request._sender is not None and request._sender.is_closed():
            raise Fault("A response was returned for a request whose response sender has been closed.")
        return response.packed(_kept, _kept)
    if request._release_flags == RELEASE_RESCHEDULE:
        return _RESCHEDULED
    if request._sender is None:
        raise Fault("Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'NoneType'>'.")
    return None


# ---- coroutines

def _event_loop():
    global _loop
    if _loop is None:
        import asyncio
        _loop = asyncio.new_event_loop()
        threading.Thread(target=_loop.run_forever, name="nereid-loop", daemon=True).start()
    return _loop


def _run(coroutine, requests):
    """A decoupled model goes on while the next requests come; another one is waited for."""
    import asyncio
    future = asyncio.run_coroutine_threadsafe(coroutine, _event_loop())
    if not _is_decoupled:
        return future.result()
    future.add_done_callback(lambda done: _fail_open(done, requests))
    return None


def _fail_open(future, requests):
    """Answers what a coroutine that raised has left open."""
    if future.cancelled() or future.exception() is None:
        return
    from .errors import TritonError
    response = InferenceResponse(error=TritonError(_failed(future.exception())))
    for request in requests:
        try:
            request.get_response_sender().send(response, 1)
        except TritonModelException:  # closed
            pass


def _ask_is_ready(query):
    threading.Thread(target=_answer_is_ready, args=(query,), daemon=True).start()


def _answer_is_ready(query):
    try:
        ready = _model.is_ready()
        if isinstance(ready, types.CoroutineType):
            import asyncio
            ready = asyncio.run_coroutine_threadsafe(ready, _event_loop()).result()
        if not isinstance(ready, bool):
            raise TritonModelException(f"is_ready: expected a bool, got {type(ready).__name__}")
        text = ""
    except Exception as error:  # noqa: BLE001
        ready, text = False, _text(error)
    channel.post((protocol.READINESS, query, ready, text))
