"""The event loop in which coroutines of the model run: one thread, which starts with the first coroutine."""
import os
import threading
import types
from collections.abc import Coroutine

from . import channel, process

_loop = None
_loop_lock = threading.Lock()


def _event_loop():
    global _loop
    with _loop_lock:
        if _loop is None or _loop.is_closed():
            import asyncio
            loop = asyncio.new_event_loop()
            try:
                threading.Thread(target=_run_loop, args=(loop,), name="nereid-loop", daemon=True).start()
            except BaseException:  # no more threads
                loop.close()
                raise
            _loop = loop  # set once its thread runs
    return _loop


def _run_loop(loop):
    """The main function of the event loop's thread. An exception that ends a process (sys.exit) leaves the loop, and code of the model may stop
    the loop. The loop then goes on, so that other tasks finish; whatever awaits the failed task gets its exception."""
    while not loop.is_closed():
        try:
            loop.run_forever()
        except BaseException as error:  # noqa: BLE001
            if isinstance(error, SystemExit) and not channel.is_model_process():
                _exit(error.code)
            process.say(f"a task of the model's coroutines raised {process.text_of_error(error)}")
        process.exit_if_forked()


def _exit(code):
    """Ends a forked process as sys.exit() does on the main thread."""
    if code is not None and not isinstance(code, int):
        process.say(code)
        code = 1
    process.flush()
    os._exit((code or 0) & 0xFF)


async def _run_to_end(coroutine):
    """Awaits the coroutine. A process that the coroutine forks and that returns from it is ended, because it would go on as a second worker."""
    try:
        result = await coroutine
    except SystemExit:  # _run_loop handles it
        raise
    except BaseException:
        process.exit_if_forked()
        raise
    process.exit_if_forked()
    return result


def start(coroutine):
    """Starts the coroutine in the event loop; returns a concurrent future."""
    import asyncio
    return asyncio.run_coroutine_threadsafe(_run_to_end(coroutine), _event_loop())


def is_coroutine(value):
    """Also true for a generator of types.coroutine()."""
    if not isinstance(value, types.GeneratorType):
        return isinstance(value, Coroutine)
    import inspect
    return bool(value.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE)


def result_of(future):
    """The result of the future. Raises a coroutine's exception with its own traceback, to which result() would add frames."""
    try:
        error = future.exception()
        if error is not None:
            raise error
        return future.result()
    finally:
        error = future = None  # breaks the cycle of the exception and its traceback, which would keep the requests alive
