"""The lifecycle of a Python model: readiness, shutdown, workers that cannot be restarted, log lines, and models that it loads itself."""
import contextlib
import os
import pathlib
import re
import signal
import threading

import pytest
from python_support import (children, config_of, is_ready, is_running, load_by_request, log_of, post, python_flags, unload, wait_for,
                            write_model)

CONFIG = """backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
MIRROR = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each.inputs()[0].as_numpy())]) for each in requests]
"""


def load(server, repository, name, methods):
    write_model(repository, name, MIRROR + methods, CONFIG)
    load_by_request(server, name)


def signal_children(server, number):
    """Workers of unloaded models may exit meanwhile."""
    for each in children(server.process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, number)


def ask(server, name, values=(1.0,)):
    status, answer = post(server, f"/v2/models/{name}/infer",
                          {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [len(values)], "data": list(values)}]})
    return (status, answer["outputs"][0]["data"]) if status == 200 else (status, answer["error"])


def test_a_process_has_the_name_of_its_model(own_server, own_repository):
    load(own_server, own_repository, "named_in_top_and_ps", "")
    processes = [pathlib.Path(f"/proc/{each}") for each in children(own_server.process.pid)]
    assert "named_in_top_an" in [(each / "comm").read_text().strip() for each in processes]
    assert any(b"\0named_in_top_and_ps\0" in (each / "cmdline").read_bytes() for each in processes)
    unload(own_server, "named_in_top_and_ps")


@pytest.mark.parametrize("name, method, expected", [
    ("says_yes", "    def is_ready(self):\n        return True\n", True),
    ("says_no", "    def is_ready(self):\n        return False\n", False),
    ("says_yes_later", "    async def is_ready(self):\n        import asyncio\n        await asyncio.sleep(0.01)\n        return True\n", True),
    ("says_no_later", "    async def is_ready(self):\n        import asyncio\n        await asyncio.sleep(0.01)\n        return False\n", False),
    ("raises", "    def is_ready(self):\n        raise ValueError('no opinion')\n", False),
    ("raises_later", "    async def is_ready(self):\n        raise ValueError('no opinion')\n", False),
    ("says_one", "    def is_ready(self):\n        return 1\n", False),
    ("hangs", "    def is_ready(self):\n        import time\n        time.sleep(600)\n", False),
    ("asks_of_another", "    def is_ready(self):\n        return not pb_utils.is_model_ready('no_such')\n", True),
    ("exits_asked", "    def is_ready(self):\n        raise SystemExit(1)\n", False),
    ("exits_asked_later", "    async def is_ready(self):\n        raise SystemExit(1)\n", False),
])
def test_is_ready_of_a_model_decides_its_readiness(own_server, own_repository, name, method, expected):
    """It answers requests whatever is_ready() returns."""
    load(own_server, own_repository, name, method)
    if expected:
        wait_for(lambda: is_ready(own_server, name), "it is asked and answers in time")
    else:
        assert not is_ready(own_server, name)
    assert ask(own_server, name, [2.0]) == (200, [2.0])
    unload(own_server, name)


@pytest.mark.parametrize("name, definition, asked", [
    ("waits_for_itself", "def", '"waits_for_itself"'),
    ("waits_for_itself_later", "async def", '"waits_for_itself_later"'),
    ("waits_for_its_version", "def", '"waits_for_its_version", "1"'),
    ("waits_for_its_bytes", "def", 'b"waits_for_its_bytes"'),
])
def test_model_that_checks_its_own_readiness_is_answered_at_once(own_server, own_repository, name, definition, asked):
    load(own_server, own_repository, name, f"""    {definition} is_ready(self):
        try:
            return pb_utils.is_model_ready({asked})
        except pb_utils.TritonModelException as error:
            print("told:", error)
            return True
""")
    wait_for(lambda: is_ready(own_server, name), "it goes on")
    told = f"told: Failed to check model readiness: is_ready() of model '{name}' asks for itself"
    wait_for(lambda: told in log_of(own_server), "its line")
    unload(own_server, name)


def test_model_version_checks_readiness_of_another_version(own_server, own_repository):
    code = MIRROR + """    def initialize(self, args):
        self.version = args["model_version"]

    def is_ready(self):
        return self.version == "1" or pb_utils.is_model_ready("two_versions", "1")
"""
    write_model(own_repository, "two_versions", code, CONFIG + "version_policy { all {} }\n")
    (own_repository / "two_versions/2").mkdir()
    (own_repository / "two_versions/2/model.py").write_text(code)
    load_by_request(own_server, "two_versions")
    wait_for(lambda: is_ready(own_server, "two_versions/versions/2"), "it is told of the other")
    unload(own_server, "two_versions")


def test_signals_to_all_processes_let_the_host_end_the_workers(own_server, own_repository):
    """A service manager sends signals to all processes. Programs that a model starts and processes that it forks are still ended by signals."""
    load(own_server, own_repository, "signalled", """    def execute(self, requests):
        import multiprocessing
        import signal
        import subprocess
        import time
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        started = subprocess.Popen(["sleep", "600"])
        forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        forked.start()
        started.terminate()
        forked.terminate()
        forked.join()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([started.wait(), forked.exitcode], np.float32))])]

    def finalize(self):
        print("signalled is finalized")
""")
    assert ask(own_server, "signalled") == (200, [-signal.SIGTERM, -signal.SIGTERM])
    signal_children(own_server, signal.SIGTERM)
    assert ask(own_server, "signalled") == (200, [-signal.SIGTERM, -signal.SIGTERM])
    unload(own_server, "signalled")
    wait_for(lambda: "model 'signalled': signalled is finalized" in log_of(own_server), "its end")


def test_concurrent_readiness_checks_are_all_answered(own_server, own_repository):
    """Several at the same time, while a request runs."""
    load(own_server, own_repository, "asked", "    def is_ready(self):\n        return True\n")
    answers = []

    def ask_both():
        wait_for(lambda: is_ready(own_server, "asked"), "it answers in time")
        answers.append(ask(own_server, "asked")[0])
    threads = [threading.Thread(target=ask_both) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert answers == [200] * 8
    unload(own_server, "asked")


@pytest.mark.parametrize("name, definition", [("self_aware", "def"), ("self_aware_later", "async def")])
def test_running_model_may_check_its_own_readiness(own_server, own_repository, name, definition):
    """From its own thread and from others. The thread that reads the model's answer must not wait for it."""
    load(own_server, own_repository, name, f"""    {definition} is_ready(self):
        return True

    def initialize(self, args):
        assert not pb_utils.is_model_ready(args["model_name"])

    def execute(self, requests):
        import concurrent.futures
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            ready = [pb_utils.is_model_ready({name!r}), *threads.map(pb_utils.is_model_ready, [{name!r}] * 4)]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(ready, np.float32))]) for each in requests]
""")
    wait_for(lambda: ask(own_server, name) == (200, [1.0] * 5), "it is told in time")
    unload(own_server, name)


def test_model_that_cannot_start_a_thread_is_not_ready_but_serves(own_server, own_repository):
    """The thread that reads the host's messages is not affected."""
    load(own_server, own_repository, "threadless", """    def is_ready(self):
        return True

    def execute(self, requests):
        import threading
        def start(thread):
            raise RuntimeError("can't start new thread")
        if requests[0].inputs()[0].as_numpy()[0]:
            self.start, threading.Thread.start = threading.Thread.start, start
        else:
            threading.Thread.start = self.start
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([pb_utils.is_model_ready("threadless")], np.float32))])]
""")
    assert ask(own_server, "threadless", [1.0]) == (200, [0.0])
    assert not is_ready(own_server, "threadless")
    ask(own_server, "threadless", [0.0])
    wait_for(lambda: is_ready(own_server, "threadless"), "it is asked again")
    unload(own_server, "threadless")


def test_worker_restarts_while_its_loads_continue(own_server, own_repository, tmp_path):
    begun, barrier = tmp_path / "begun", tmp_path / "barrier"
    write_model(own_repository, "takes_long", MIRROR + f"""    def initialize(self, args):
        import time
        open({str(begun)!r}, "w").close()
        while not os.path.exists({str(barrier)!r}):
            time.sleep(0.01)
""", CONFIG)
    load(own_server, own_repository, "dies_loading", f"""    def execute(self, requests):
        import signal
        import threading
        import time
        if requests[0].inputs()[0].as_numpy()[0]:
            threading.Thread(target=pb_utils.load_model, args=("takes_long",)).start()
            while not os.path.exists({str(begun)!r}):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each.inputs()[0].as_numpy())]) for each in requests]
""")
    assert ask(own_server, "dies_loading", [1.0])[0] == 503
    wait_for(lambda: ask(own_server, "dies_loading", [0.0]) == (200, [0.0]), "the worker is back")
    assert not is_ready(own_server, "takes_long")
    barrier.touch()
    wait_for(lambda: is_ready(own_server, "takes_long"), "the load is done")
    unload(own_server, "takes_long")
    unload(own_server, "dies_loading")


def test_finalize_is_called_once_and_may_fail(own_server, own_repository, tmp_path):
    file = tmp_path / "ended"
    method = f"""    def finalize(self):
        with open({str(file)!r}, "a") as file:
            file.write("ended ")
        self.execute([])
        try:
            pb_utils.InferenceRequest(model_name="m", inputs=[], requested_output_names=[]).exec()
        except pb_utils.TritonModelException as error:
            print("told:", error)
        pb_utils.Logger.log_info("a last line")
        {{}}
"""
    for name, end in (("ends", "pass"), ("ends_badly", "raise ValueError('no end')"), ("exits", "os._exit(7)")):
        file.unlink(missing_ok=True)
        load(own_server, own_repository, name, method.format(end))
        unload(own_server, name)

        def is_unloaded():
            index = post(own_server, "/v2/repository/index", {})[1]
            return [each for each in index if each["name"] == name and each.get("state") == "UNAVAILABLE"]
        wait_for(is_unloaded, f"{name} is unloaded")
        assert file.read_text() == "ended "
        log = log_of(own_server)
        assert f"model '{name}': told: BLS is only supported during the 'execute' function." in log
        assert f"model '{name}': a last line" in log
    assert "model 'ends_badly': finalize: ValueError: no end" in log_of(own_server)
    assert "exited with code 7" in log_of(own_server)


def test_exit_functions_of_a_model_run(own_server, own_repository, tmp_path):
    """The exit functions run as in an interpreter that exits, although threads of the model continue."""
    load(own_server, own_repository, "tidies_up", f"""    def initialize(self, args):
        import atexit
        import tempfile
        import threading
        import time
        import weakref
        self.folder = tempfile.TemporaryDirectory(dir={str(tmp_path)!r})
        self.is_ended = False
        atexit.register(print, "the first to be left, the last to be done")
        atexit.register(lambda: 1 / 0)
        weakref.finalize(self, print, "its finalizer")
        threading.Thread(target=time.sleep, args=(600,)).start()

    def __del__(self):
        print("its __del__, finalized:", self.is_ended)

    def finalize(self):
        self.is_ended = True
""")
    assert len(list(tmp_path.iterdir())) == 1
    unload(own_server, "tidies_up")
    wait_for(lambda: "model 'tidies_up': the first to be left, the last to be done" in log_of(own_server), "the last line")
    lines = re.findall(r"model 'tidies_up': (its __del__, finalized: True|its finalizer|ZeroDivisionError: division by zero|the first to be left)", log_of(own_server))
    assert lines == ["its __del__, finalized: True", "its finalizer", "ZeroDivisionError: division by zero", "the first to be left"]
    assert list(tmp_path.iterdir()) == []


GLOBAL = """
class Last:
    def __del__(self):
        print("the global's end")
last = Last()
"""


@pytest.mark.parametrize("name, end", [("names_itself", "pass"), ("names_itself_and_ends_badly", "raise ValueError('no end')")])
def test_model_in_a_reference_cycle_and_its_globals_are_destroyed(own_server, own_repository, name, end):
    """Exit functions run on the main thread, the only one that may set signal handlers."""
    load(own_server, own_repository, name, f"""    def initialize(self, args):
        import atexit
        import signal
        self.run = self.execute
        atexit.register(lambda: print("handler set:", int(signal.signal(signal.SIGUSR1, signal.SIG_IGN))))

    def __del__(self):
        print("the model's end")

    def finalize(self):
        {end}
""" + GLOBAL)
    unload(own_server, name)
    for line in ("handler set: 0", "the model's end", "the global's end"):
        wait_for(lambda: f"model '{name}': {line}" in log_of(own_server), line)


def test_a_model_that_cannot_initialize_ends_as_others_do(own_server, own_repository):
    write_model(own_repository, "begins_badly", MIRROR + """    def initialize(self, args):
        import atexit
        atexit.register(print, "its exit function")
        raise ValueError("no beginning")

    def __del__(self):
        print("the model's end")
""", CONFIG)
    status, answer = post(own_server, "/v2/repository/models/begins_badly/load", {})
    assert status != 200 and "ValueError: no beginning" in answer["error"], answer
    for line in ("the model's end", "its exit function"):
        wait_for(lambda: f"model 'begins_badly': {line}" in log_of(own_server), line)


def test_running_child_process_does_not_block_unload(own_server, own_repository):
    """An interpreter that exits would wait for the child process."""
    load(own_server, own_repository, "has_children", """    def initialize(self, args):
        import multiprocessing
        import time
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        child.start()
        print("child", child.pid, "of", os.getpid())
""")
    [[child, worker]] = wait_for(lambda: re.findall(r"model 'has_children': child (\d+) of (\d+)", log_of(own_server)), "its line")
    unload(own_server, "has_children")
    wait_for(lambda: not is_running(int(child)) and not is_running(int(worker)), "their end")
    wait_for(lambda: "model 'has_children': exit functions of the model took longer than 5 s: they are cut off" in log_of(own_server), "a line")


def test_attributes_that_raise_are_not_there(own_server, own_repository):
    load(own_server, own_repository, "raises_for_attributes", """    def __getattr__(self, name):
        raise RuntimeError(name)
""")
    assert ask(own_server, "raises_for_attributes") == (200, [1.0])
    unload(own_server, "raises_for_attributes")


def test_failed_worker_restart_is_repeated(own_server, own_repository, tmp_path):
    """Meanwhile its model is not ready, and requests fail with the reason."""
    bar = tmp_path / "bar"
    load(own_server, own_repository, "barred", f"    def initialize(self, args):\n        if os.path.exists({str(bar)!r}):\n            raise ValueError('barred')\n"
                                       f"        print('worker', os.getpid(), 'begins')\n")
    wait_for(lambda: is_ready(own_server, "barred"), "the model is ready")
    worker = wait_for(lambda: re.findall(r"model 'barred': worker (\d+) begins", log_of(own_server)), "its line")[-1]
    bar.touch()
    os.kill(int(worker), signal.SIGKILL)
    wait_for(lambda: "'barred_0_0' could not be started again: ValueError: barred" in log_of(own_server), "a first attempt")
    assert not is_ready(own_server, "barred")
    wait_for(lambda: log_of(own_server).count("'barred_0_0' could not be started again") >= 3, "further attempts")

    def is_refused():
        status, text = ask(own_server, "barred")
        assert status == 503, text
        return "could not be started again: ValueError: barred" in text and "it will be started again" in text
    wait_for(is_refused, "a request is told")
    bar.unlink()
    wait_for(lambda: is_ready(own_server, "barred"), "the model is back")
    assert ask(own_server, "barred", [3.0]) == (200, [3.0])
    unload(own_server, "barred")


def test_model_whose_worker_cannot_restart_can_be_unloaded(own_server, own_repository, tmp_path):
    bar = tmp_path / "bar"
    load(own_server, own_repository, "gone", f"    def initialize(self, args):\n        if os.path.exists({str(bar)!r}):\n            os._exit(1)\n")
    bar.touch()
    signal_children(own_server, signal.SIGKILL)
    wait_for(lambda: "'gone_0_0' could not be started again" in log_of(own_server), "an attempt")
    unload(own_server, "gone")
    wait_for(lambda: not any(is_running(each) for each in children(own_server.process.pid)), "the end of the workers")
    assert not is_ready(own_server, "gone")


def test_hanging_model_blocks_neither_unload_nor_shutdown(start_server, tmp_path):
    """As in Triton, the unload continues in the background; the server exits without waiting for it."""
    write_model(tmp_path / "models", "hangs", MIRROR + "    def execute(self, requests):\n        print('worker', os.getpid(), 'hangs')\n"
                                                       "        import time\n        time.sleep(600)\n", CONFIG)
    running = start_server(tmp_path / "models", python_flags("--model-control-mode=explicit", "--load-model=hangs", "--exit-timeout-secs=1"))

    def ask_it():
        try:
            ask(running, "hangs")
        except OSError:  # the server exited
            pass
    request = threading.Thread(target=ask_it)
    request.start()
    [worker] = wait_for(lambda: re.findall(r"worker (\d+) hangs", log_of(running)), "the model runs")
    unload(running, "hangs")
    assert [each["state"] for each in post(running, "/v2/repository/index", {})[1]] == ["UNLOADING"]
    assert not is_ready(running, "hangs")
    assert running.stop() is not None
    wait_for(lambda: not is_running(int(worker)), "the end of the worker")
    request.join()


def test_lines_of_the_log_have_level_and_place(own_server, own_repository):
    load(own_server, own_repository, "talks", """    def initialize(self, args):
        logger = pb_utils.Logger
        logger.log_info("by its name: info")
        logger.log_warn("by its name: warning")
        logger.log_error("by its name: error")
        logger.log_verbose("by its name: verbose")
        for level in (logger.INFO, logger.WARNING, logger.ERROR, logger.VERBOSE):
            logger.log("by its level: " + level.name, level)
        logger.log("without a level")
        logger.log(message="two\\nlines", level=logger.LogLevel.WARNING)
        for wrong in (lambda: logger.log_info(5), lambda: logger.log(), lambda: logger.log("x", "INFO")):
            try:
                wrong()
            except TypeError:
                logger.log_info("refused")
""")
    wait_for(lambda: log_of(own_server).count("model 'talks': refused") == 3, "the last line is in the log")
    lines = [line for line in log_of(own_server).splitlines() if "model 'talks'" in line]
    found = [(line[0], re.search(r"model\.py:(\d+)\]", line) is not None, line.rpartition("model 'talks': ")[2].rstrip('"')) for line in lines]
    expected = [("I", "by its name: info"), ("W", "by its name: warning"), ("E", "by its name: error"), ("I", "by its name: verbose"),
                ("I", "by its level: INFO"), ("W", "by its level: WARNING"), ("E", "by its level: ERROR"), ("I", "by its level: VERBOSE"),
                ("I", "without a level"), ("W", "two\\nlines"), *[("I", "refused")] * 3]
    assert [(letter, text) for letter, has_place, text in found if has_place] == expected, lines
    unload(own_server, "talks")


def test_a_model_loads_others_with_their_files_and_configuration(own_server, own_repository):
    """The other model's folder is different: the files and configuration of the load request replace it."""
    write_model(own_repository, "given", MIRROR, CONFIG)
    load(own_server, own_repository, "gives", """    def execute(self, requests):
        import json
        code = '''
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each.inputs()[0].as_numpy() * 10)]) for each in requests]
'''
        config = {"backend": "python", "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
                  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}], "parameters": {"k": {"string_value": "given"}}}
        responses = []
        for request in requests:
            case = request.inputs()[0].as_numpy()[0]
            if case == 1:
                pb_utils.load_model("given", files={"file:1/model.py": code.encode()}, config=json.dumps(config))
            elif case == 2:
                pb_utils.load_model("given")
            elif case == 3:
                pb_utils.load_model(model_name="given", files={"file:1/model.py": code.encode()})
            elif case == 4:
                pb_utils.unload_model("given")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([pb_utils.is_model_ready("given")], np.float32))]))
        return responses
""")
    assert ask(own_server, "gives", [1.0]) == (200, [1.0])
    assert ask(own_server, "given", [2.0]) == (200, [20.0])
    assert config_of(own_server, "given")["parameters"]["k"]["string_value"] == "given"
    assert ask(own_server, "gives", [2.0]) == (200, [1.0])
    assert ask(own_server, "given", [2.0]) == (200, [2.0])
    status, text = ask(own_server, "gives", [3.0])
    assert status == 500 and "Failed to load model: " in text and "'given'" in text, text
    assert ask(own_server, "gives", [4.0]) == (200, [0.0])
    unload(own_server, "gives")


def test_threads_of_a_model_call_one_that_batches(own_server, own_repository):
    """Several answers arrive at once, without an event loop: only the waiting threads read them."""
    config = CONFIG.replace("dims: [ -1 ]", "dims: [ 1 ]") + "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 500 }\n"
    write_model(own_repository, "batches", MIRROR, config)
    load_by_request(own_server, "batches")
    load(own_server, own_repository, "has_threads", """    def execute(self, requests):
        import threading
        wrong = []

        def call(number):
            for each in range(300):
                value = np.array([[number * 1000 + each]], np.float32)
                request = pb_utils.InferenceRequest(model_name="batches", inputs=[pb_utils.Tensor("IN", value)], requested_output_names=["OUT"])
                if pb_utils.get_output_tensor_by_name(request.exec(), "OUT").as_numpy() != value:
                    wrong.append(value)
        threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([len(wrong)], np.float32))]) for _ in requests]
""")
    assert ask(own_server, "has_threads") == (200, [0.0])
    unload(own_server, "has_threads")
    unload(own_server, "batches")
