"""Every way in which a Python model may harm its host."""
import json
import os
import random
import shutil
import signal
import threading
import time
import urllib.error
import urllib.request

import pytest
from python_support import (MODELS, PATIENCE_S, ask_caller, check_no_leaks, children, fresh_pid, is_running, is_stopped, log_of, num_descriptors, post,
                            python_flags, recovered_pid, run_fragile, wait_for)

PREFIX = f"nereid_faults_{os.getpid()}"


def flags(*further):
    return python_flags(f"--backend-config=python,shm-region-prefix-name={PREFIX}", *further)


@pytest.fixture(scope="module")
def python_server(start_server, python_repository):
    models = [f"--load-model={each.name}" for each in python_repository.iterdir() if each.name != "spare"]
    running = start_server(python_repository, flags("--model-control-mode=explicit", *models))
    running.num_workers, running.num_descriptors = len(children(running.process.pid)), num_descriptors(running)
    yield running
    assert running.stop() == 0
    check_no_leaks(running, PREFIX)


@pytest.fixture(autouse=True)
def no_leaks(python_server):
    yield
    check_no_leaks(python_server, PREFIX)


@pytest.mark.parametrize("case, text", [
    ("segv", "was killed by signal 11 (SIGSEGV)"),
    ("exit", "exited with code 3"),
    ("abort", "was killed by signal 6 (SIGABRT)"),
    ("oom_killed", "was killed by signal 9 (SIGKILL), as the kernel does where memory runs out"),
    ("fork_then_die", "exited with code 5"),
    ("close_all", "is not healthy. The Python worker"),
    ("garbage_answer", "it sent an invalid message: "),
    ("garbage_place", "it sent an invalid message: a message names 16384 bytes at 1099511627776"),
    ("garbage_handed_back", "it sent an invalid message: a message names 16384 bytes at 1099511627776"),
    ("garbage_posted", "it sent an invalid message: "),
])
def test_a_worker_that_ends_answers_with_how(python_server, case, text):
    before = fresh_pid(python_server)
    status, answer = run_fragile(python_server, case)
    # Triton's message up to here, which scripts search for.
    lost = "Failed to process the request(s) for model instance 'fragile_0_0', message: Stub process 'fragile_0_0' is not healthy. The Python worker "
    assert status == 503 and text in answer["error"] and answer["error"].startswith(lost), answer
    assert recovered_pid(python_server) != before
    assert not is_running(before)
    assert ask_caller(python_server, "exec") == [2.0, 4.0]


def test_a_forked_process_that_comes_back_ends(python_server):
    before = recovered_pid(python_server)
    assert run_fragile(python_server, "fork_returns")[1]["outputs"][0]["data"] == ["parent"]
    assert run_fragile(python_server, "pid")[1]["outputs"][0]["data"] == [str(before)]


@pytest.mark.parametrize("case, text", [
    ("wrong_type", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'str'>'."),
    ("unprintable", "Unprintable: <MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>"),
    ("unprintable", "\n\nMESSAGE UNAVAILABLE DUE TO EXCEPTION: ValueError: no text\n\nAt:\n  "),
    ("half_text", "ValueError: half \\ud800"),
    ("caused_by_itself", "ValueError: mine"),
    ("recursion", "RecursionError: "),
    ("out_of_memory", "MemoryError: <EMPTY MESSAGE>"),
    ("sys_exit", "SystemExit: 4"),
    ("sys_exit_of_a_coroutine", "SystemExit: 5"),
    ("interrupt", "KeyboardInterrupt: <EMPTY MESSAGE>"),
    ("cancelled", "CancelledError: <EMPTY MESSAGE>"),
])
def test_a_model_that_errs_goes_on(python_server, case, text):
    before = recovered_pid(python_server)
    status, answer = run_fragile(python_server, case)
    assert status == 500 and text in answer["error"], answer
    assert recovered_pid(python_server) == before


def test_task_that_exits_ends_no_other_task(python_server):
    """Neither does the event loop of the tasks end."""
    before = recovered_pid(python_server)
    assert run_fragile(python_server, "sys_exit_of_a_task")[1]["outputs"][0]["data"] == ["goes on"]
    assert recovered_pid(python_server) == before


def test_exception_of_a_coroutine_has_its_own_traceback(python_server):
    status, answer = run_fragile(python_server, "raises_in_a_coroutine")
    assert status == 500 and "ValueError: in a coroutine\n\nAt:\n" in answer["error"], answer
    places = answer["error"].split("At:\n")[1].splitlines()
    assert len(places) == 1 and places[0].endswith(": fail"), places


def test_a_generator_may_be_a_coroutine(python_server):
    assert run_fragile(python_server, "generator_coroutine")[1]["outputs"][0]["data"] == ["of a generator"]


def test_a_coroutine_that_stops_the_loop_ends_no_other(python_server):
    before = recovered_pid(python_server)
    for _ in range(2):
        assert run_fragile(python_server, "stops_the_loop")[1]["outputs"][0]["data"] == ["goes on"]
    assert recovered_pid(python_server) == before


@pytest.mark.parametrize("case, code", [("fork_exits", 7), ("fork_of_a_coroutine_exits", 7), ("fork_of_a_coroutine_returns", 1)])
def test_a_forked_process_may_exit(python_server, case, code):
    """The child does not continue as a second worker when it returns."""
    before = recovered_pid(python_server)
    assert run_fragile(python_server, case)[1]["outputs"][0]["data"] == [str(code)]
    assert recovered_pid(python_server) == before


def test_model_output_blocks_no_other_model(python_server):
    recovered_pid(python_server)
    status, answer = run_fragile(python_server, "stdout")
    assert (status, answer["outputs"][0]["data"]) == (200, ["printed"])


def test_shared_memory_cannot_be_taken_away(python_server):
    recovered_pid(python_server)
    assert run_fragile(python_server, "garbage_memory")[1]["outputs"][0]["data"] == ["PermissionError"]


def test_a_killed_worker_is_replaced_while_it_idles(python_server):
    before = fresh_pid(python_server)
    os.kill(before, signal.SIGKILL)
    assert recovered_pid(python_server) != before


def test_killed_worker_is_reported_with_its_signal(python_server):
    """As the kernel does when memory runs out: in the middle of a request."""
    before = fresh_pid(python_server)
    answers = []
    request = threading.Thread(target=lambda: answers.append(run_fragile(python_server, "hang")))
    request.start()
    wait_for(lambda: f"worker {before} hangs" in log_of(python_server), "the model runs")
    os.kill(before, signal.SIGKILL)
    request.join(PATIENCE_S)
    [(status, answer)] = answers
    assert status == 503 and "was killed by signal 9 (SIGKILL), as the kernel does where memory runs out" in answer["error"], answer
    assert recovered_pid(python_server) != before
    assert ask_caller(python_server, "exec") == [2.0, 4.0]


def test_a_stopped_worker_delays_no_unload(start_server, tmp_path):
    shutil.copytree(MODELS / "fragile", tmp_path / "models/fragile")
    running = start_server(tmp_path / "models", flags("--model-control-mode=explicit", "--load-model=fragile"))
    worker = recovered_pid(running)
    os.kill(worker, signal.SIGSTOP)
    wait_for(lambda: is_stopped(worker), "the worker stands still")
    assert post(running, "/v2/repository/models/fragile/unload", {})[0] == 200
    wait_for(lambda: not is_running(worker), "the end of the worker")
    assert "finalize is not called: the Python worker is stopped" in log_of(running)
    assert running.stop() == 0


def test_nothing_that_a_worker_forked_stays(python_server):
    before = fresh_pid(python_server)
    child = int(run_fragile(python_server, "fork")[1]["outputs"][0]["data"][0])
    assert is_running(child)
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: not is_running(child), "the child's end")
    recovered_pid(python_server)


def test_a_worker_that_hangs_is_ended_in_time(start_server, tmp_path):
    shutil.copytree(MODELS / "fragile", tmp_path / "models/fragile")
    running = start_server(tmp_path / "models", flags("--backend-config=python,execute-timeout-seconds=1"))
    for case in ("hang", "stop"):
        before = recovered_pid(running)
        status, answer = run_fragile(running, case)
        assert status == 503 and "it did not answer within 1000 ms" in answer["error"], answer
        assert recovered_pid(running) != before
        check_no_leaks(running, PREFIX)
    assert running.stop() == 0


def test_workers_end_with_their_host(start_server, tmp_path):
    shutil.copytree(MODELS / "fragile", tmp_path / "models/fragile")
    running = start_server(tmp_path / "models", flags())
    worker = recovered_pid(running)
    child = int(run_fragile(running, "fork")[1]["outputs"][0]["data"][0])
    running.process.kill()
    running.process.wait()
    wait_for(lambda: not is_running(worker) and not is_running(child), "the end of the workers")
    check_no_leaks(running, PREFIX)


def test_a_host_that_is_stopped_leaves_nothing(start_server, tmp_path):
    shutil.copytree(MODELS / "fragile", tmp_path / "models/fragile")
    running = start_server(tmp_path / "models", flags())
    worker = recovered_pid(running)
    assert running.stop() == 0
    assert not is_running(worker)
    check_no_leaks(running, PREFIX)


def is_worker_error(answer):
    """Whether a part of an answer is the error for a called model whose worker was killed."""
    return isinstance(answer, dict) and set(answer) == {"error", "code"} and "is not healthy. The Python worker" in answer["error"]


def is_correct(case, value, answer):
    """Whether each call of another model has its value or an error that explains the failure. A stream ends with its last value or such an error."""
    if case == "exec":
        return answer == [2 * value] or is_worker_error(answer)
    if not isinstance(answer, list) or not answer:
        return False
    if case == "async":
        return len(answer) == 20 and all(each == [2 * i] or is_worker_error(each) for i, each in enumerate(answer))
    whole = [*([float(i)] for i in range(int(value))), "empty"]
    return answer == whole or (is_worker_error(answer[-1]) and answer[:-1] == whole[:len(answer) - 1])


def send_until(stop, server, number, answers, faults):
    """Sends plain calls, concurrent calls, streams, and streams of the client's own in turn. A missing answer also counts as a fault."""
    count = number
    while not stop.is_set():
        case = ("exec", "async", "stream", "exec", "async_stream", "own_stream")[count % 6]
        value = float(count % 6) if "stream" in case else float(number * 1000 + count % 1000)
        count += 1
        try:
            seen = own_stream(server, value) if case == "own_stream" else answer_of_caller(server, case, value)
            if isinstance(seen, str):
                is_expected = "is not healthy. The Python worker" in seen
            else:
                is_expected = is_correct(case, value, seen)
                if is_expected:
                    answers.add(case)
        except Exception as error:  # noqa: BLE001 also one of an answer that looks like nothing
            faults.append((case, value, repr(error)))
            return
        if not is_expected:
            faults.append((case, value, seen))


def answer_of_caller(server, case, value):
    """Returns the answer in the form for is_correct, or the error message."""
    body = {"inputs": [{"name": "CASE", "datatype": "BYTES", "shape": [1], "data": [case]},
                       {"name": "IN", "datatype": "FP32", "shape": [1], "data": [value]}]}
    status, answer = post(server, "/v2/models/caller/infer", body)
    return json.loads(answer["outputs"][0]["data"][0]) if status == 200 else answer["error"]


def own_stream(server, value):
    """Returns the events of generate_stream in the form for is_correct, or the error message if the whole stream failed."""
    request = urllib.request.Request(f"{server.url}/v2/models/counter/generate_stream", data=json.dumps({"IN": value}).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            events = [json.loads(line[6:]) for line in answer.read().decode().splitlines() if line.startswith("data: ")]
    except urllib.error.HTTPError as error:
        return json.loads(error.read())["error"]
    seen = [{"error": each["error"], "code": None} if "error" in each else [each["OUT"]] for each in events]
    return seen if seen and isinstance(seen[-1], dict) else [*seen, "empty"]


def test_no_reply_is_lost_while_workers_are_killed(python_server):
    """Clients call a model that calls other models, while random workers are killed. Every request must get a correct answer or an error that
    explains the failure, and everything must work afterwards. NEREID_SOAK_SECONDS is the duration."""
    stop, answers, faults = threading.Event(), set(), []
    threads = [threading.Thread(target=send_until, args=(stop, python_server, number, answers, faults)) for number in range(6)]
    for each in threads:
        each.start()
    chance = random.Random(7)
    deadline = time.monotonic() + float(os.environ.get("NEREID_SOAK_SECONDS", "8"))
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
        each.join(timeout=2 * PATIENCE_S)
        assert not each.is_alive(), "a reply was lost"
    assert not faults, faults[:3]
    assert python_server.alive() and answers

    def works():
        status, _ = post(python_server, "/v2/models/caller/infer", {"inputs": [
            {"name": "CASE", "datatype": "BYTES", "shape": [1], "data": ["exec"]}, {"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]})
        return status == 200
    wait_for(works, "the models work again")
    wait_for(lambda: len(children(python_server.process.pid)) == python_server.num_workers, "every worker is back")
    few = 4  # processes that others start permanently; a worker has more
    wait_for(lambda: num_descriptors(python_server) <= python_server.num_descriptors + few, "the descriptors of dead workers are closed")
