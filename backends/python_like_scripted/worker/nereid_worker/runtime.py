"""Runs the model in this process: executes the host's commands and answers them."""
import atexit
import collections
import gc
import importlib.util
import json
import os
import sys
import threading
import time
import types
from collections.abc import Coroutine

import numpy

from . import calls, channel, dataclass_defaults, event_loop, models, process, protocol, response
from .errors import InvalidModelOutput, TritonModelException
from .logger import Logger
from .region import are_unreferenced
from .request import RELEASE_RESCHEDULE, InferenceRequest
from .response import FINAL, InferenceResponse
from .tensor import release_packed

_RESCHEDULED, _CANCELLED = 2, 3  # outcomes in place of a response
_SHORT_EXECUTION_S = 0.001  # after a longer execution, the commands that were sent ahead may have requests that were cancelled meanwhile
_MAX_CANCEL_CHECKS = 16
_MAX_EXIT_S = 5
_MAX_TEXT_CHARS = 10_000  # longest text of a message that must not need shared memory

_model_path = _model_dir = _module_name = ""
_class = _model = None
_instance_name = ""
_num_cancel_checks = 0  # how many of the next commands are checked for cancellation
_kept: "collections.deque[list]" = collections.deque()  # the arrays and GPU memory of each answer that the host may not have read yet


def model_dir():
    return _model_dir


def free_memory():
    return channel.outgoing.free_bytes()


def serve():
    """Executes commands until the host finalizes the model or is gone."""
    handlers = {protocol.LOAD: _load, protocol.COMPLETE: _complete, protocol.INITIALIZE: _initialize, protocol.EXECUTE: _execute,
                protocol.FINALIZE: _finalize}
    while True:
        command = channel.next_command()
        if command is None:
            return
        num_unread = command[2] if command[0] == protocol.EXECUTE else None
        while len(_kept) > (num_unread or 0):
            _kept.popleft()
        try:
            answer = (0, handlers[command[0]](*command[1:]))
        except BaseException as error:  # noqa: BLE001 any exception of a model is its answer, also sys.exit()
            if isinstance(error, SystemExit) and not channel.is_model_process():
                raise  # ends a process that the model forked
            answer = (1, process.text_of_error(error))
        process.exit_if_forked()
        if command[0] == protocol.FINALIZE or (answer[0] and command[0] in (protocol.LOAD, protocol.COMPLETE, protocol.INITIALIZE)):
            _destroy_model(answer)  # the host kills this process after the answer
            process.exit_if_forked()
        try:
            channel.answer(answer)
        except TritonModelException as error:  # no shared memory for it
            if command[0] == protocol.EXECUTE:
                _release_responses(answer[1][2])
            channel.answer((1, process.text_of_error(error)))
        if command[0] == protocol.FINALIZE:
            return


def _load(path, version, folder):
    """Imports the model's file. `version` is the package in which the model's files can import each other; "" for the model.py of a backend."""
    global _class, _module_name, _model_path, _model_dir
    _model_path, _model_dir = path, folder
    folder_of_file = os.path.dirname(path)
    name = os.path.splitext(os.path.basename(path))[0]
    if version:
        sys.path.extend([folder_of_file, os.path.dirname(folder_of_file)])
        package = types.ModuleType(version)
        package.__path__ = [folder_of_file]
        sys.modules.setdefault(version, package)
        name = f"{version}.{name}"
    else:
        sys.path.append(folder_of_file)
    _module_name = name
    dataclass_defaults.install(folder_of_file)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    _class = getattr(module, "TritonPythonModel", None)
    if _class is None:
        raise TritonModelException(f"'{path}' has no class TritonPythonModel")


def _complete(config):
    if not _has(_class, "auto_complete_config"):
        return None
    from .model_config import ModelConfig
    completed = _class.auto_complete_config(ModelConfig(config))
    if not isinstance(completed, ModelConfig):
        name = json.loads(config).get("name", "")
        raise InvalidModelOutput(f"auto_complete_config function in model '{name}' must return a valid pb.ModelConfig object.")
    return json.dumps(completed.as_dict())


def _initialize(arguments, instance_name, is_decoupled):
    global _model, _instance_name
    _instance_name = calls.instance_name = instance_name
    response.is_decoupled = is_decoupled
    _model = _class()
    if _has(_model, "initialize"):
        _model.initialize(dict(arguments))
    asks_ready = _has(_model, "is_ready")
    if asks_ready:
        models.own_name, models.own_version = dict(arguments)["model_name"], dict(arguments)["model_version"]
        calls.on_is_ready = _ask_is_ready
        calls.start_reader_thread()
    calls.is_allowed = True
    return asks_ready


def _finalize():
    calls.is_allowed = False
    if _model is not None and _has(_model, "finalize"):
        _model.finalize()


def _destroy_model(answer):
    """Runs the exit functions and deletes the model, in the order and on the thread of an interpreter's shutdown. The process is ended
    afterwards, whatever threads the model left. Exit functions may wait for processes of the model without end: after a time limit the host gets
    its answer without them."""
    global _class, _model
    _model = None
    is_done = threading.Event()
    try:
        threading.Thread(target=_exit_after_timeout, args=(is_done, answer), name="nereid-end", daemon=True).start()
    except RuntimeError:  # no more threads: the host has a time limit, too
        pass
    try:
        atexit._run_exitfuncs()
    except BaseException as error:  # noqa: BLE001
        process.exit_if_forked()
        process.say(f"at exit: {process.text_of_error(error)}")
    _class = None
    sys.modules.pop(_module_name, None)
    gc.collect()  # a model in a reference cycle, and the globals of its module
    process.flush()
    is_done.set()


def _exit_after_timeout(is_done, answer):
    if is_done.wait(_MAX_EXIT_S):
        return
    process.flush()
    try:
        os.write(2, f"exit functions of the model took longer than {_MAX_EXIT_S} s: they are cut off\n".encode())
        channel.answer(answer)
    finally:
        os._exit(0)


def _has(target, name):
    """Whether the attribute exists. One that raises counts as absent, as in Python's C API."""
    try:
        getattr(target, name)
    except Exception:  # noqa: BLE001
        return False
    return True


# ---- requests

def _execute(packed, num_unread):
    """Returns (number of messages posted so far, error or None, responses): the host handles those messages first."""
    global _num_cancel_checks
    requests = [InferenceRequest.received(each) for each in packed]
    began = time.perf_counter()
    try:
        if _num_cancel_checks and num_unread is not None:
            _num_cancel_checks -= 1
            is_cancelled = requests[0].is_cancelled()
            began = time.perf_counter()  # the cancellation check is not part of the execution
            if is_cancelled:
                requests[0]._close()
                return (channel.num_posted, None, (_CANCELLED,))
        execute = getattr(_model, "execute", None)
        if execute is None:
            raise InvalidModelOutput(f"Python model {_model_path} does not implement `execute` method.")
        responses = execute(list(requests))  # a copy, because models remove requests from it
        if type(responses) is not list and event_loop.is_coroutine(responses):
            responses = _run_execute_coroutine(responses, requests)
        kept = []
        # Other references to GPU memory cannot be counted. It is sent by its location only if the host reads this answer before the model can write
        # there again.
        packed = _packed(requests, responses, kept, kept if num_unread is None else None)
        requests = responses = None
        if not are_unreferenced(kept):
            packed = _with_copies(packed, kept)
        _kept.append(kept)
        return (channel.num_posted, None, packed)
    except BaseException as error:  # noqa: BLE001
        if isinstance(error, SystemExit) and not channel.is_model_process():
            raise
        for each in requests or ():
            each._close()
        return (channel.num_posted, _failure_text(error), ())
    finally:
        if time.perf_counter() - began > _SHORT_EXECUTION_S:
            _num_cancel_checks = _MAX_CANCEL_CHECKS


def _failure_text(error):
    return f"Failed to process the request(s) for model '{_instance_name}', message: {process.text_of_error(error)}"


def _packed(requests, responses, kept, kept_on_gpu):
    """The outcome of each request: a response, None if a sender answers it, or _RESCHEDULED."""
    if responses is None:
        return tuple([_outcome_without_response(each) for each in requests])
    if response.is_decoupled:
        raise InvalidModelOutput(f"Python model '{_instance_name}' is using the decoupled mode and the execute function must return None.")
    if not isinstance(responses, list):
        raise InvalidModelOutput(f"Expected a list in the execute return, found type '{type(responses)}'.")
    if len(responses) != len(requests):
        raise InvalidModelOutput(
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(responses)}\n")
    for each in zip(requests, responses):
        _check(*each)
    packed = []
    try:
        for request, each in zip(requests, responses):
            packed.append(_outcome_without_response(request) if each is None else each.packed(request._outputs, kept, kept_on_gpu))
    except BaseException:
        _release_responses(packed)
        raise
    return tuple(packed)


def _check(request, made):
    if made is None:
        return
    if request._release_flags == RELEASE_RESCHEDULE:
        raise InvalidModelOutput(f"Expected a None object in the execute function return list for reschduled request, found type '{type(made)}'.")
    if not isinstance(made, InferenceResponse):
        raise InvalidModelOutput(f"Expected an 'InferenceResponse' object in the execute function return list, found type '{type(made)}'.")
    if request._sender is None:
        request._is_answered = True
        return
    try:
        request._sender._count(made, FINAL)
    except TritonModelException as error:
        raise InvalidModelOutput(str(error)) from None


def _with_copies(responses, kept):
    """The responses with copies of the arrays that the model still refers to and may overwrite before the host reads them."""
    arrays = iter([each for each in kept if isinstance(each, numpy.ndarray)])
    copies = []

    def copied(tensor):
        if type(tensor[3]) is not tuple or len(tensor[3]) != 3:
            return tensor
        copies.append((*tensor[:3], channel.outgoing.write(next(arrays))))
        return copies[-1]
    try:
        return tuple([(tuple([copied(tensor) for tensor in each[0]]), *each[1:]) if type(each) is tuple else each for each in responses])
    except BaseException:
        release_packed(copies)
        _release_responses(responses)
        raise


def _outcome_without_response(request):
    if request._release_flags == RELEASE_RESCHEDULE:
        request._close()
        return _RESCHEDULED
    request.get_response_sender()  # a sender tells the host when it is deleted without an answer
    return None


def _release_responses(responses):
    for each in responses:
        if type(each) is tuple:
            release_packed(each[0])


# ---- coroutines

def _run_execute_coroutine(coroutine, requests):
    """The result of a coroutine of execute(). A decoupled model is not awaited: it runs on while the next requests arrive."""
    if not response.is_decoupled:
        return event_loop.result_of(event_loop.start(coroutine))
    event_loop.start(coroutine).add_done_callback(lambda done: _fail_open(done, requests))
    return None


def _fail_open(future, requests):
    """Fails the requests that a coroutine which raised or was cancelled has not answered."""
    from asyncio import CancelledError
    if not future.cancelled() and future.exception() is None:
        return
    from .errors import TritonError
    raised = CancelledError() if future.cancelled() else future.exception()
    failure = _failure_text(raised)
    Logger.log_error(failure)  # logged, because its requests may have been answered before
    error = InferenceResponse(error=TritonError(failure))
    for request in requests:
        try:
            request.get_response_sender().send(error, FINAL)
        except TritonModelException:  # answered before
            pass


def _ask_is_ready(query):
    """Starts a thread that calls is_ready(). [the thread that reads, which must go on]"""
    try:
        threading.Thread(target=_answer_is_ready, args=(query,), daemon=True).start()
    except RuntimeError as error:  # no more threads
        channel.post((protocol.READINESS, query, False, process.text_of_error(error)))


def _answer_is_ready(query):
    models.in_readiness_check.set(True)
    try:
        ready = _model.is_ready()
        if isinstance(ready, Coroutine):
            ready = event_loop.result_of(event_loop.start(ready))
        if not isinstance(ready, bool):
            raise InvalidModelOutput("is_ready() must return a boolean value")
        text = ""
    except BaseException as error:  # noqa: BLE001 also SystemExit: the host needs an answer
        ready, text = False, process.text_of_error(error)
    channel.post((protocol.READINESS, query, ready, text[:_MAX_TEXT_CHARS]))
