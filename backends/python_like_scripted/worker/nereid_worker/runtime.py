"""The model in this process: loading it, and answering what the host asks."""
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

from . import calls, channel, models, protocol, response
from .errors import Fault, TritonModelException, describe
from .logger import Logger
from .region import are_alone
from .request import RELEASE_RESCHEDULE, InferenceRequest
from .response import FINAL, InferenceResponse
from .tensor import give_back

_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_RESCHEDULED, _CANCELLED = 2, 3  # in the place of a response
_QUICK_S = 0.001  # of an execution; while a longer one ran, requests that this process has in hand may have been cancelled
_MOST_IN_HAND = 16
_LONGEST_EXIT_S = 5
_LONGEST_TEXT = 10_000  # of what has to be said without shared memory

_model_path = _model_dir = _module_name = ""
_class = _model = None
_instance_name = ""
_loop = None
_making_loop = threading.Lock()
_num_to_ask = 0  # how many of the next requests in turn have waited for a long one
_kept = collections.deque()  # what each answer that the host may not have read yet names in its memory


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
        num_unread = question[2] if question[0] == protocol.EXECUTE else None
        while len(_kept) > (num_unread or 0):
            _kept.popleft()
        try:
            answer = (0, handlers[question[0]](*question[1:]))
        except BaseException as error:  # noqa: BLE001 whatever a model raises is its answer, sys.exit() too
            if isinstance(error, SystemExit) and not channel.is_own():
                raise  # the end of a process that it forked
            answer = (1, _text(error))
        _end_if_forked()
        if question[0] == protocol.FINALIZE or (answer[0] and question[0] in (protocol.LOAD, protocol.COMPLETE, protocol.INITIALIZE)):
            _end_model(answer)  # the host ends this process when it has the answer
            _end_if_forked()
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


def _say(text):
    try:
        print(text, file=sys.stderr, flush=True)
    except Exception:  # noqa: BLE001 closed, or none
        pass


def _end_if_forked():
    """For where only the model's own process goes on."""
    if not channel.is_own():
        _say("a process that the model forked came back from the model's code: it ends here")
        os._exit(1)


def _load(path, version, folder):
    """`version` is the package in which the model's own files can import each other; "" for a backend's model.py."""
    global _class, _module_name, _model_path, _model_dir
    _model_path, _model_dir = path, folder
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
    _module_name = name
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
        raise Fault(f"auto_complete_config function in model '{name}' must return a valid pb.ModelConfig object.")
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
        calls.start_pump()
    calls.is_allowed = True
    return asks_ready


def _finalize():
    calls.is_allowed = False
    if _model is not None and _has(_model, "finalize"):
        _model.finalize()


def _end_model(answer):
    """What an interpreter does at its end, in its order and on its thread: the process is ended afterwards, whatever threads a model left
    behind. An exit function that waits for processes of the model may wait for ever: after a while the host gets its answer without it."""
    global _class, _model
    _model = None
    is_done = threading.Event()
    try:
        threading.Thread(target=_cut_off, args=(is_done, answer), name="nereid-end", daemon=True).start()
    except RuntimeError:  # no more threads: the host has a limit, too
        pass
    try:
        atexit._run_exitfuncs()
    except BaseException as error:  # noqa: BLE001
        _end_if_forked()
        _say(f"at exit: {_text(error)}")
    _class = None
    sys.modules.pop(_module_name, None)
    gc.collect()  # a model that names itself, and the globals of its module
    _flush()
    is_done.set()


def _cut_off(is_done, answer):
    if is_done.wait(_LONGEST_EXIT_S):
        return
    _flush()
    try:
        os.write(2, f"exit functions of the model took longer than {_LONGEST_EXIT_S} s: they are cut off\n".encode())
        channel.answer(answer)
    finally:
        os._exit(0)


def _flush():
    for each in (sys.stdout, sys.stderr):
        try:
            each.flush()
        except Exception:  # noqa: BLE001 closed, or none
            pass


def _has(target, name):
    """What raises is not there, as for the C API."""
    try:
        getattr(target, name)
    except Exception:  # noqa: BLE001
        return False
    return True


# ---- requests

def _execute(packed, num_unread):
    """(messages posted so far, error or None, responses): the host handles the posted ones first."""
    global _num_to_ask
    requests = [InferenceRequest.received(each) for each in packed]
    began = time.perf_counter()
    try:
        if _num_to_ask and num_unread is not None:
            _num_to_ask -= 1
            is_cancelled = requests[0].is_cancelled()
            began = time.perf_counter()  # the question is no part of the execution
            if is_cancelled:
                requests[0]._close()
                return (channel.num_posted, None, (_CANCELLED,))
        execute = getattr(_model, "execute", None)
        if execute is None:
            raise Fault(f"Python model {_model_path} does not implement `execute` method.")
        responses = execute(list(requests))  # models take requests out of it
        if type(responses) is not list and _is_coroutine(responses):
            responses = _run(responses, requests)
        kept = []
        # Who else has memory of a GPU is not known: it is named where the host reads the answer before the model can write there again.
        packed = _packed(requests, responses, kept, kept if num_unread is None else None)
        requests = responses = None
        if not are_alone(kept):
            packed = _copied(packed, kept)
        _kept.append(kept)
        return (channel.num_posted, None, packed)
    except BaseException as error:  # noqa: BLE001
        if isinstance(error, SystemExit) and not channel.is_own():
            raise
        for each in requests or ():
            each._close()
        return (channel.num_posted, _failed(error), ())
    finally:
        if time.perf_counter() - began > _QUICK_S:
            _num_to_ask = _MOST_IN_HAND


def _failed(error):
    return f"Failed to process the request(s) for model '{_instance_name}', message: {_text(error)}"


def _packed(requests, responses, kept, kept_on_gpu):
    """What the host does with each request: a response, none yet because a sender answers, or _RESCHEDULED."""
    if responses is None:
        return tuple([_packed_none(each) for each in requests])
    if response.is_decoupled:
        raise Fault(f"Python model '{_instance_name}' is using the decoupled mode and the execute function must return None.")
    if not isinstance(responses, list):
        raise Fault(f"Expected a list in the execute return, found type '{type(responses)}'.")
    if len(responses) != len(requests):
        raise Fault(
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(responses)}\n")
    for each in zip(requests, responses):
        _check(*each)
    packed = []
    try:
        for request, each in zip(requests, responses):
            packed.append(_packed_none(request) if each is None else each.packed(request._outputs, kept, kept_on_gpu))
    except BaseException:
        _give_back(packed)
        raise
    return tuple(packed)


def _check(request, made):
    if made is None:
        return
    if request._release_flags == RELEASE_RESCHEDULE:
        raise Fault(f"Expected a None object in the execute function return list for reschduled request, found type '{type(made)}'.")
    if not isinstance(made, InferenceResponse):
        raise Fault(f"Expected an 'InferenceResponse' object in the execute function return list, found type '{type(made)}'.")
    if request._sender is None:
        request._is_answered = True
        return
    try:
        request._sender._count(made, FINAL)
    except TritonModelException as error:
        raise Fault(str(error)) from None


def _copied(responses, kept):
    """The same, with copies of what the host would read where the model, who has it still, may write."""
    arrays = iter([each for each in kept if isinstance(each, numpy.ndarray)])
    copies = []

    def copied(tensor):
        if type(tensor[3]) is not tuple or len(tensor[3]) != 3:
            return tensor
        copies.append((*tensor[:3], channel.outgoing.place(next(arrays))))
        return copies[-1]
    try:
        return tuple([(tuple([copied(tensor) for tensor in each[0]]), *each[1:]) if type(each) is tuple else each for each in responses])
    except BaseException:
        give_back(copies)
        _give_back(responses)
        raise


def _packed_none(request):
    if request._release_flags == RELEASE_RESCHEDULE:
        request._close()
        return _RESCHEDULED
    request.get_response_sender()  # which tells the host when nobody is left who could answer
    return None


def _give_back(responses):
    for each in responses:
        if type(each) is tuple:
            give_back(each[0])


# ---- coroutines

def _event_loop():
    global _loop
    with _making_loop:
        if _loop is None or _loop.is_closed():
            import asyncio
            loop = asyncio.new_event_loop()
            try:
                threading.Thread(target=_run_loop, args=(loop,), name="nereid-loop", daemon=True).start()
            except BaseException:  # no more threads
                loop.close()
                raise
            _loop = loop  # once it runs
    return _loop


def _run_loop(loop):
    """What a task raises to end its process (sys.exit) comes out of the loop, and one may stop it; the others go on, and who waits for that
    task hears of it."""
    while not loop.is_closed():
        try:
            loop.run_forever()
        except BaseException as error:  # noqa: BLE001
            if isinstance(error, SystemExit) and not channel.is_own():
                _exit(error.code)
            _say(f"a task of the model's coroutines raised {_text(error)}")
        _end_if_forked()


def _exit(code):
    """Ends a forked process as sys.exit() does on its main thread."""
    if code is not None and not isinstance(code, int):
        _say(code)
        code = 1
    _flush()
    os._exit((code or 0) & 0xFF)


async def _to_its_end(coroutine):
    """A process that the coroutine forks and that comes back to its end would go on as a second worker."""
    try:
        result = await coroutine
    except SystemExit:  # out of the loop, which knows what becomes of it
        raise
    except BaseException:
        _end_if_forked()
        raise
    _end_if_forked()
    return result


def _start(coroutine):
    """In the loop."""
    import asyncio
    return asyncio.run_coroutine_threadsafe(_to_its_end(coroutine), _event_loop())


def _is_coroutine(value):
    """Also a generator that types.coroutine() made one."""
    if not isinstance(value, types.GeneratorType):
        return isinstance(value, Coroutine)
    import inspect
    return bool(value.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE)


def _result_of(future):
    """Raises what the coroutine raised where that was raised: result() would add places of its own."""
    try:
        error = future.exception()
        if error is not None:
            raise error
        return future.result()
    finally:
        error = future = None  # else it would keep, by its traceback, itself and the requests


def _run(coroutine, requests):
    """A decoupled model goes on while the next requests come; another one is waited for."""
    if not response.is_decoupled:
        return _result_of(_start(coroutine))
    _start(coroutine).add_done_callback(lambda done: _fail_open(done, requests))
    return None


def _fail_open(future, requests):
    """Answers what a coroutine that raised, or was cancelled, has left open."""
    from asyncio import CancelledError
    if not future.cancelled() and future.exception() is None:
        return
    from .errors import TritonError
    raised = CancelledError() if future.cancelled() else future.exception()
    failure = _failed(raised)
    Logger.log_error(failure)  # its requests may have been answered before
    error = InferenceResponse(error=TritonError(failure))
    for request in requests:
        try:
            request.get_response_sender().send(error, FINAL)
        except TritonModelException:  # closed
            pass


def _ask_is_ready(query):
    """On the thread that reads, which goes on whatever happens."""
    try:
        threading.Thread(target=_answer_is_ready, args=(query,), daemon=True).start()
    except RuntimeError as error:  # no more threads
        channel.post((protocol.READINESS, query, False, _text(error)))


def _answer_is_ready(query):
    models.is_asked.set(True)
    try:
        ready = _model.is_ready()
        if isinstance(ready, Coroutine):
            ready = _result_of(_start(ready))
        if not isinstance(ready, bool):
            raise Fault("is_ready() must return a boolean value")
        text = ""
    except BaseException as error:  # noqa: BLE001 also what ends a thread: an answer must come
        ready, text = False, _text(error)
    channel.post((protocol.READINESS, query, ready, text[:_LONGEST_TEXT]))
