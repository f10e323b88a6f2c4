"""Crashes or damages the worker in the way that CASE names."""
import asyncio
import ctypes
import os
import resource
import signal
import sys
import time
import types

import numpy as np
import triton_python_backend_utils as pb_utils


async def exit_later(code):
    await asyncio.sleep(0)
    sys.exit(code)


async def exit_of_a_task(model):
    task = asyncio.create_task(exit_later(6))
    await asyncio.wait([task])
    return [model.answer("goes on")]


async def fork(model, end):
    child = os.fork()
    if child == 0:
        return end()
    return [model.answer(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))]


async def stop_the_loop(model):
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    return [model.answer("goes on")]


async def fail():
    raise ValueError("in a coroutine")


@types.coroutine
def generator_coroutine(model):
    yield from asyncio.sleep(0).__await__()
    return [model.answer("of a generator")]


COROUTINES = {
    "raises_in_a_coroutine": lambda model: fail(),
    "generator_coroutine": generator_coroutine,
    "sys_exit_of_a_coroutine": lambda model: exit_later(5),
    "sys_exit_of_a_task": exit_of_a_task,
    "fork_of_a_coroutine_exits": lambda model: fork(model, lambda: sys.exit(7)),
    "fork_of_a_coroutine_returns": lambda model: fork(model, lambda: None),
    "stops_the_loop": stop_the_loop,
}


class TritonPythonModel:
    def execute(self, requests):
        cases = [pb_utils.get_input_tensor_by_name(each, "CASE").as_numpy()[0].decode() for each in requests]
        if cases[0] in COROUTINES:
            return COROUTINES[cases[0]](self)
        return [getattr(self, "case_" + each)() for each in cases]

    def answer(self, text):
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([str(text).encode()], object))])

    def case_pid(self):
        return self.answer(os.getpid())

    def case_segv(self):
        ctypes.string_at(0)

    def case_exit(self):
        os._exit(3)

    def case_sys_exit(self):
        sys.exit(4)

    def case_interrupt(self):
        raise KeyboardInterrupt

    def case_cancelled(self):
        raise asyncio.CancelledError

    def case_fork_exits(self):
        child = os.fork()
        if child == 0:
            sys.exit(7)
        return self.answer(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def case_abort(self):
        os.abort()

    def case_oom_killed(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def case_out_of_memory(self):
        """Limits the worker's memory to what it has and allocates more."""
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (64 << 20)
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (size, before[1]))
        try:
            return self.answer(len(bytearray(1 << 30)))
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    def case_hang(self):
        print(f"worker {os.getpid()} hangs")
        while True:
            time.sleep(1)

    def case_stop(self):
        os.kill(os.getpid(), signal.SIGSTOP)

    def case_stdout(self):
        for _ in range(3000):
            print("x" * 100)
        os.write(1, b"\xff\xfe no line end")
        return self.answer("printed")

    def case_fork(self):
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        return self.answer(child)

    def case_fork_then_die(self):
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        os._exit(5)

    def case_fork_returns(self):
        """The forked child returns from execute(), as its parent does."""
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        return self.answer("child" if child == 0 else "parent")

    def case_close_all(self):
        os.closerange(0, 256)
        while True:
            time.sleep(1)

    def case_garbage_answer(self):
        os.write(self.descriptors()[0], b"(\xff\xff\xff\x7fgarbage")
        return self.answer("not reached")

    def case_garbage_place(self):
        import marshal
        os.write(self.descriptors()[0], marshal.dumps((0, (0, None, (((("OUT", 11, (4096,), (1 << 40, 16384)),), None, ()),))), 2))
        return self.answer("not reached")

    def case_garbage_handed_back(self):
        import marshal
        os.write(self.descriptors()[0], marshal.dumps((0, (0, None, (((("OUT", 11, (4096,), (1 << 40, 16384, True)),), None, ()),))), 2))
        return self.answer("not reached")

    def case_garbage_posted(self):
        os.write(self.descriptors()[1], b"garbage")
        time.sleep(600)

    def case_garbage_memory(self):
        """Shrinking the shared memory would cause a SIGBUS in the host, so it must be impossible. Overwriting it may only cause wrong answers."""
        from nereid_worker import channel
        try:
            os.ftruncate(channel.outgoing._fd, 0)
        except OSError as error:
            return self.answer(type(error).__name__)

    def case_wrong_type(self):
        return "not a response"

    def case_unprintable(self):
        class Unprintable(Exception):
            def __str__(self):
                raise ValueError("no text")
        raise Unprintable()

    def case_half_text(self):
        raise ValueError("half \ud800")

    def case_caused_by_itself(self):
        error = ValueError("mine")
        raise error from error

    def case_recursion(self):
        return self.case_recursion()

    def descriptors(self):
        from nereid_worker import channel
        return channel.command_fd, channel.posted_fd
