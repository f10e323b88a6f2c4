"""Every way in which a Python model may hurt its host."""
import json
import os
import pathlib
import random
import shutil
import signal
import threading
import time

import pytest
from python_support import (MODELS, PATIENCE_S, ask_caller, check_nothing_stays, children, hurt, is_running, post, python_flags, recovered_pid,
                            wait_for)

PREFIX = f"nereid_faults_{os.getpid()}"


def flags(*further):
    return python_flags(f"--backend-config=python,shm-region-prefix-name={PREFIX}", *further)


@pytest.fixture(scope="module")
def python_server(start_server, python_repository):
    models = [f"--load-model={each.name}" for each in python_repository.iterdir() if each.name != "spare"]
    running = start_server(python_repository, flags("--model-control-mode=explicit", *models))
    yield running
    assert running.stop() == 0
    check_nothing_stays(running, PREFIX)


@pytest.fixture(autouse=True)
def nothing_stays(python_server):
    yield
    check_nothing_stays(python_server, PREFIX)


@pytest.mark.parametrize("case, text", [
    ("segv", "was killed by signal 11 (SIGSEGV)"),
    ("exit", "exited with code 3"),
    ("sys_exit", "exited with code 4"),
    ("abort", "was killed by signal 6 (SIGABRT)"),
    ("oom_killed", "was killed by signal 9 (SIGKILL), as the kernel does where memory runs out"),
    ("fork_then_die", "exited with code 5"),
    ("close_all", "the Python worker"),
    ("garbage_answer", "it sent garbage: "),
    ("garbage_place", "it sent garbage: a message names 16384 bytes at 1099511627776"),
    ("garbage_handed_back", "it sent garbage: a message names 16384 bytes at 1099511627776"),
    ("garbage_posted", "it sent garbage: "),
])
def test_a_worker_that_ends_answers_with_how(python_server, case, text):
    before = recovered_pid(python_server)
    status, answer = hurt(python_server, case)
    assert status == 503 and text in answer["error"] and "fragile" in answer["error"], answer
    assert recovered_pid(python_server) != before
    assert not is_running(before)
    assert ask_caller(python_server, "exec") == [2.0, 4.0]


@pytest.mark.parametrize("case, text", [
    ("wrong_type", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'str'>'."),
    ("unprintable", "Unprintable: <MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>"),
    ("recursion", "RecursionError: "),
    ("out_of_memory", "MemoryError: <EMPTY MESSAGE>"),
])
def test_a_model_that_errs_goes_on(python_server, case, text):
    before = recovered_pid(python_server)
    status, answer = hurt(python_server, case)
    assert status == 500 and text in answer["error"], answer
    assert recovered_pid(python_server) == before


def test_a_model_that_prints_blocks_nobody(python_server):
    recovered_pid(python_server)
    status, answer = hurt(python_server, "stdout")
    assert (status, answer["outputs"][0]["data"]) == (200, ["printed"])


def test_shared_memory_cannot_be_taken_away(python_server):
    recovered_pid(python_server)
    assert hurt(python_server, "garbage_memory")[1]["outputs"][0]["data"] == ["PermissionError"]


def test_a_killed_worker_is_replaced_while_it_idles(python_server):
    before = recovered_pid(python_server)
    os.kill(before, signal.SIGKILL)
    assert recovered_pid(python_server) != before


def test_a_worker_killed_from_outside_answers_with_how(python_server):
    """As the kernel does it: in the middle of a request."""
    before = recovered_pid(python_server)
    answers = []
    request = threading.Thread(target=lambda: answers.append(hurt(python_server, "hang")))
    request.start()
    wait_for(lambda: f"worker {before} hangs" in pathlib.Path(python_server.log).read_text(errors="replace"), "the model runs")
    os.kill(before, signal.SIGKILL)
    request.join(PATIENCE_S)
    [(status, answer)] = answers
    assert status == 503 and "was killed by signal 9 (SIGKILL), as the kernel does where memory runs out" in answer["error"], answer
    assert recovered_pid(python_server) != before
    assert ask_caller(python_server, "exec") == [2.0, 4.0]


def test_nothing_that_a_worker_forked_stays(python_server):
    before = recovered_pid(python_server)
    child = int(hurt(python_server, "fork")[1]["outputs"][0]["data"][0])
    assert is_running(child)
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: not is_running(child), "the child's end")
    recovered_pid(python_server)


def test_a_worker_that_hangs_is_ended_in_time(start_server, tmp_path):
    shutil.copytree(MODELS / "fragile", tmp_path / "models/fragile")
    running = start_server(tmp_path / "models", flags("--backend-config=python,execute-timeout-seconds=1"))
    for case in ("hang", "stop"):
        before = recovered_pid(running)
        status, answer = hurt(running, case)
        assert status == 503 and "it did not answer within 1000 ms" in answer["error"], answer
        assert recovered_pid(running) != before
        check_nothing_stays(running, PREFIX)
    assert running.stop() == 0


def test_workers_end_with_their_host(start_server, tmp_path):
    shutil.copytree(MODELS / "fragile", tmp_path / "models/fragile")
    running = start_server(tmp_path / "models", flags())
    worker = recovered_pid(running)
    child = int(hurt(running, "fork")[1]["outputs"][0]["data"][0])
    running.process.kill()
    running.process.wait()
    wait_for(lambda: not is_running(worker) and not is_running(child), "the end of the workers")
    check_nothing_stays(running, PREFIX)


def test_a_host_that_is_stopped_leaves_nothing(start_server, tmp_path):
    shutil.copytree(MODELS / "fragile", tmp_path / "models/fragile")
    running = start_server(tmp_path / "models", flags())
    worker = recovered_pid(running)
    assert running.stop() == 0
    assert not is_running(worker)
    check_nothing_stays(running, PREFIX)


def test_no_reply_is_lost_while_workers_are_killed(python_server):
    """Clients call a model that calls another, while workers of both are killed at random. Every request is answered, rightly or with an
    error that says what happened, and in the end everything works. NEREID_SOAK_SECONDS is how long."""
    stop, answers, faults = threading.Event(), [], []

    def ask(number):
        count = 0
        while not stop.is_set():
            value = float(number * 1000 + count % 1000)
            count += 1
            body = {"inputs": [{"name": "CASE", "datatype": "BYTES", "shape": [1], "data": ["exec"]},
                               {"name": "IN", "datatype": "FP32", "shape": [1], "data": [value]}]}
            status, answer = post(python_server, "/v2/models/caller/infer", body)
            if status == 200:
                output = json.loads(answer["outputs"][0]["data"][0])
                if output != [2 * value] and "error" not in output:
                    faults.append((value, output))
            elif "the Python worker" not in answer["error"]:
                faults.append((value, answer))
            answers.append(status)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    chance = random.Random(7)
    deadline = time.monotonic() + float(os.environ.get("NEREID_SOAK_SECONDS", "15"))
    while time.monotonic() < deadline:
        workers = children(python_server.process.pid)
        if workers:
            try:
                os.kill(chance.choice(workers), signal.SIGKILL)
            except ProcessLookupError:
                pass
        stop.wait(chance.uniform(0.05, 0.6))
    stop.set()
    for each in threads:
        each.join(timeout=PATIENCE_S)
        assert not each.is_alive(), "a reply was lost"
    assert not faults, faults[:3]
    assert python_server.alive() and 200 in answers

    def works():
        status, _ = post(python_server, "/v2/models/caller/infer", {"inputs": [
            {"name": "CASE", "datatype": "BYTES", "shape": [1], "data": ["exec"]}, {"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]})
        return status == 200
    wait_for(works, "the models work again")
