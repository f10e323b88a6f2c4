"""Failures of a server's environment: ports in use, loads that never end, memory that disappears."""
import concurrent.futures
import functools
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import socket
import struct
import subprocess
import time
import unittest.mock
import urllib.error
import urllib.request
from multiprocessing import shared_memory

import grpc
import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils
from tritonclient.grpc import service_pb2, service_pb2_grpc
from waiting import wait_for

CONFIG = """backend: "hostile"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
parameters { key: "fault" value { string_value: "model_initialize_hangs" } }
"""


@pytest.mark.parametrize("taken", ["http", "grpc", "metrics"])
def test_a_taken_port_ends_the_start_and_is_named(dist, tmp_path, taken):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        ports = {"http": 0, "grpc": 0, "metrics": 0, taken: port}
        done = subprocess.run([str(dist / "bin/nereid"), f"--model-repository={tmp_path}", *[f"--{name}-address=127.0.0.1" for name in ports],
                               *[f"--{name}-port={number}" for name, number in ports.items()]], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    service = {"http": "HTTP", "grpc": "GRPC", "metrics": "Metrics"}[taken]
    assert f"failed to start {service} service: Unavailable - Socket '127.0.0.1:{port}' already in use" in done.stderr


def names(protocol, port, wanted):
    """Returns the names of the servers that answer at the port, each on a new connection, until all of `wanted` answered or a minute has passed."""
    seen = set()
    deadline = time.monotonic() + 60
    while seen != wanted and time.monotonic() < deadline:
        try:
            if protocol == "http":
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2", timeout=60) as answer:
                    seen.add(json.load(answer)["name"])
            else:
                alone = [("grpc.use_local_subchannel_pool", 1)]  # separate connections for each channel
                with grpc.insecure_channel(f"127.0.0.1:{port}", alone) as channel:
                    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                    seen.add(stub.ServerMetadata(service_pb2.ServerMetadataRequest(), timeout=60).name)
        except (OSError, grpc.RpcError):
            pass  # the connection was assigned to a server that is about to exit
    return seen


def test_servers_may_share_their_ports(start_server, dist, tmp_path):
    shared = ["--reuse-http-port=true", "--reuse-grpc-port=true"]
    first = start_server(tmp_path, ["--id=first", *shared])
    second = subprocess.Popen([str(dist / "bin/nereid"), f"--model-repository={tmp_path}", "--id=second", *shared,
                               *[f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")], f"--http-port={first.http}",
                               f"--grpc-port={first.grpc}", "--metrics-port=0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for protocol, port in (("http", first.http), ("grpc", first.grpc)):
            assert names(protocol, port, {"first", "second"}) == {"first", "second"}
        assert first.stop() == 0
        assert names("http", first.http, {"second"}) == {"second"}
    finally:
        second.terminate()
        second.wait(timeout=60)


def num_loading(server):
    request = urllib.request.Request(server.url + "/v2/repository/index", b"", method="POST")
    models = json.loads(urllib.request.urlopen(request, timeout=60).read())
    return sum(model.get("state") == "LOADING" for model in models)


def control(server, protocol, action, model):
    """Loads or unloads a model. Returns the error's status and text, or None."""
    try:
        if protocol == "http":
            urllib.request.urlopen(urllib.request.Request(f"{server.url}/v2/repository/models/{model}/{action}", b""), timeout=300).close()
        else:
            with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
                getattr(client, f"{action}_model")(model)
    except urllib.error.HTTPError as error:
        return str(error.code), json.loads(error.read())["error"]
    except tritonclient.utils.InferenceServerException as error:
        return error.status(), error.message()
    except OSError as error:
        return "closed", str(error)
    return None


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_loads_that_never_end_keep_the_server_from_nothing_else(start_server, test_backends, tmp_path, protocol):
    stuck = [f"stuck{number}" for number in range(5)]
    for name in (*stuck, "good"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(CONFIG if name != "good" else WAITS_FOR_TWO)
    server = start_server(tmp_path, [test_backends, "--model-control-mode=explicit", "--exit-timeout-secs=1", "--model-load-wait-secs=0"])
    with concurrent.futures.ThreadPoolExecutor(5) as clients:
        loads = [clients.submit(control, server, protocol, "load", name) for name in stuck]
        wait_for(lambda: num_loading(server) == 5, "five loads")
        for action in ("load", "unload"):
            assert control(server, protocol, action, "good") is None
            status, text = control(server, protocol, action, "stuck0")
            assert status in ("503", "StatusCode.UNAVAILABLE") and "model 'stuck0' is being loaded: its load began" in text
        assert urllib.request.urlopen(server.url + "/v2/health/ready", timeout=60).status == 200
        assert server.stop() == 1, server.text()[-2000:]
        assert "a model is still being loaded or unloaded" not in server.text(), "the core waited beyond its exit timeout"
        assert all(load.result() is not None for load in loads)
    assert "5 models have not ended: 'stuck0' (its load, begun" in server.text()


def test_a_load_that_never_ends_delays_neither_polls_nor_the_stop(start_server, test_backends, tmp_path):
    def add(name, config):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(config)
        (tmp_path / name).rename(tmp_path / "models" / name)

    (tmp_path / "models").mkdir()
    server = start_server(tmp_path / "models", [test_backends, "--model-control-mode=poll", "--repository-poll-secs=1", "--exit-timeout-secs=1"])
    add("stuck", CONFIG)
    wait_for(lambda: num_loading(server) == 1, "one load")
    add("late", WAITS_FOR_TWO)
    wait_for(lambda: "successfully loaded 'late'" in server.text(), "the load of the late model")
    assert server.stop() == 1
    assert "1 models have not ended: 'stuck' (its load, begun" in server.text()


def reports_crashes_itself(dist):
    host = (dist / "bin/nereid").read_bytes()
    return b"__asan_init" in host or b"__tsan_init" in host


@pytest.mark.parametrize("crash", [signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_leaves_its_trace_in_the_log(start_server, dist, tmp_path, crash):
    if reports_crashes_itself(dist):
        pytest.skip("the sanitizer reports crashes itself")
    log = tmp_path / "log"
    (tmp_path / "models").mkdir()
    server = start_server(tmp_path / "models", [f"--log-file={log}"])
    resource.prlimit(server.process.pid, resource.RLIMIT_CORE, (0, 0))
    server.process.send_signal(crash)
    assert server.process.wait(timeout=60) == -crash
    for said in (pathlib.Path(server.log).read_text(), log.read_text()):
        trace = said[said.index(f"Signal ({crash.value}) received.\n"):].splitlines()
        assert any("bin/nereid(" in line for line in trace[1:]), said


@pytest.mark.parametrize("fault", ["model_initialize", "execute", "instance_ready"])
def test_a_stack_overflow_leaves_its_trace_in_the_log(start_server, test_backends, dist, tmp_path, fault):
    """The handler of crashes cannot run on the exhausted stack of a load thread, an instance thread, or a thread of the frontend."""
    if reports_crashes_itself(dist):
        pytest.skip("the sanitizer reports crashes itself")
    (tmp_path / "models/m/1").mkdir(parents=True)
    (tmp_path / "models/m/config.pbtxt").write_text(CONFIG.replace("model_initialize_hangs", f"{fault}_overflows"))
    log = tmp_path / "log"
    server = start_server(tmp_path / "models", [test_backends, "--model-control-mode=explicit", f"--log-file={log}"])
    resource.prlimit(server.process.pid, resource.RLIMIT_CORE, (0, 0))
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}]}).encode()
    calls = [("repository/models/m/load", b""), ("models/m/infer", body), ("models/m/ready", None)]
    with pytest.raises(OSError):
        for path, data in calls:
            urllib.request.urlopen(urllib.request.Request(f"{server.url}/v2/{path}", data), timeout=60)
    assert server.process.wait(timeout=60) == -signal.SIGSEGV
    for said in (pathlib.Path(server.log).read_text(), log.read_text()):
        assert f"Signal ({signal.SIGSEGV.value}) received.\n" in said
        assert "libtriton_hostile.so" in said


WAITS_FOR_TWO = """backend: "identity_c"
max_batch_size: 2
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 600000000 }
"""


def num_waiting(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=60) as answer:
        return float(re.search(r'^nv_inference_pending_request_count{model="m",version="1"} (.*)$', answer.read().decode(), re.M)[1])


def wait_until_it_waits(server, request):
    wait_for(lambda: request.done() or num_waiting(server) == 1, "the request waits")
    assert not request.done()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("tensor", ["input", "output"])
def test_shared_memory_truncated_by_its_client_fails_only_that_request(start_server, test_backends, tmp_path, tensor, protocol):
    """Access to a page that was truncated away would end the process with SIGBUS. Zeros in its place are not the client's data: the request fails,
    and so do later ones."""
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/config.pbtxt").write_text(WAITS_FOR_TWO)
    server = start_server(tmp_path, [test_backends, "--allow-client-shm=true"])
    kind = tritonclient.http if protocol == "http" else tritonclient.grpc
    address = f"127.0.0.1:{server.http if protocol == 'http' else server.grpc}"
    page = resource.getpagesize()

    def infer(values=(5, 6), shares=False):
        given = kind.InferInput("INPUT0", [1, 2], "FP32")
        wanted = kind.InferRequestedOutput("OUTPUT0")
        if shares and tensor == "input":
            given.set_shared_memory("r", 8, page)
        else:
            given.set_data_from_numpy(numpy.array([values], numpy.float32))
        if shares and tensor == "output":
            wanted.set_shared_memory("r", 8, page)
        with kind.InferenceServerClient(address) as own:  # an HTTP client serves only one thread
            return own.infer("m", [given], outputs=[wanted])

    memory = shared_memory.SharedMemory(create=True, size=2 * page)
    client = kind.InferenceServerClient(address)
    try:
        client.register_system_shared_memory("r", memory.name, 2 * page)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            first = pool.submit(infer, shares=True)
            wait_until_it_waits(server, first)
            os.truncate(f"/dev/shm/{memory.name}", page)
            assert infer([1, 2]).as_numpy("OUTPUT0").tolist() == [[1, 2]]
            with pytest.raises(tritonclient.utils.InferenceServerException, match="'r': .* lost pages: register it again"):
                first.result()
            os.truncate(f"/dev/shm/{memory.name}", 2 * page)
            with pytest.raises(tritonclient.utils.InferenceServerException, match="'r': .* lost pages: register it again"):
                infer(shares=True)
            client.unregister_system_shared_memory("r")
            client.register_system_shared_memory("r", memory.name, 2 * page)
            memory.buf[page:page + 8] = struct.pack("<2f", 5, 6)
            second = pool.submit(infer, shares=True)
            wait_until_it_waits(server, second)
            client.unregister_system_shared_memory("r")  # takes effect when the request ends
            assert "r" in str(client.get_system_shared_memory_status())
            infer([1, 2])
            answer = second.result()
            values = answer.as_numpy("OUTPUT0") if tensor == "input" else numpy.frombuffer(memory.buf, numpy.float32, 2, page).copy()
            assert values.ravel().tolist() == [5, 6]

            def is_unregistered():
                try:
                    client.get_system_shared_memory_status("r")
                except tritonclient.utils.InferenceServerException as error:
                    return "Unable to find system shared memory region: 'r'" in str(error)
                return False

            wait_for(is_unregistered, "the region's last request to end")
    finally:
        client.close()
        memory.close()
        memory.unlink()
    assert server.stop() == 0


def test_sighup_does_not_end_a_server_without_a_terminal(start_server, tmp_path):
    (tmp_path / "models").mkdir()
    with open(os.devnull) as nothing, unittest.mock.patch("subprocess.Popen", functools.partial(subprocess.Popen, stdin=nothing)):
        server = start_server(tmp_path / "models")
    server.process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert server.process.poll() is None and server.stop() == 0


def test_sighup_opens_a_rotated_log_file_again(start_server, tmp_path):
    (tmp_path / "models").mkdir()
    log = tmp_path / "log"
    server = start_server(tmp_path / "models", [f"--log-file={log}"])
    log.rename(tmp_path / "log.1")
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: log.exists() and "reloaded log file" in log.read_text(), "the line of the reload")
    for path, port in (("/health", server.http), ("/metrics", server.metrics)):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("HEAD", path)
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read() == b""
