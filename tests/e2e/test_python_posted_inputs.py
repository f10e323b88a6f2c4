"""Posted input buffers: large inputs of Python models, which are received directly into shared memory of the model's worker. Models get the
client's bytes, whatever happens to client, worker and model while a body arrives."""
import concurrent.futures
import itertools
import json
import os
import threading

import numpy as np
import pytest
import tritonclient.http as httpclient
from python_support import (binary_output, binary_request, check_no_leaks, is_ready, is_running, load_by_request, post, python_flags, unload, wait_for,
                            workers_of, write_model)
from raw_http import Raw

PREFIX = f"nereid_offers_{os.getpid()}"
MIB = 1 << 18  # in floats
MAX_BLOCKS, MAX_BLOCK = 16, 16 * MIB
REGION = 1 << 20  # in bytes, before it grows

DIE = -1
ONE_INPUT = """
import os
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    kept = None

    def execute(self, requests):
        responses = []
        for each in requests:
            values = each.inputs()[0].as_numpy()
            if values[0] == -1:
                os._exit(1)
            {body}
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)]))
        return responses
"""
MODELS = {
    "mirror": "pass",
    "doubler": "values *= 2",  # modifies the input in place
    "keeper": "if self.kept is not None: self.kept[:] = -2\n            self.kept = values",
}
# Overwrites all memory that the host gave the worker: the worst that an invalid pointer could do.
SCRIBBLER = """
import mmap
import os
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    count = 0

    def execute(self, requests):
        self.count += 1
        for each in os.listdir("/proc/self/fd"):
            try:
                if "_to_worker" not in os.readlink(f"/proc/self/fd/{each}"):
                    continue
            except OSError:
                continue
            size = os.fstat(int(each)).st_size
            with mmap.mmap(int(each), size) as memory:
                memory[:] = bytes([(0, 255, 1, 2, 128)[self.count % 5]]) * size
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each.inputs()[0].as_numpy())]) for each in requests]
"""
SEVERAL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for each in requests:
            tensors = each.inputs()[::-1]  # the last one dies first
            outputs = [pb_utils.Tensor(tensor.name().replace("IN", "OUT"), tensor.as_numpy()) for tensor in tensors]
            answers.append(pb_utils.InferenceResponse(outputs))
        return answers
"""
CONFIG = """backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: %d } ]
"""


def tensors(kind, names):
    return "".join(f'{kind} [ {{ name: "{name}" data_type: TYPE_UINT8 dims: [ -1 ] }} ]\n' for name in names)


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("offers") / "models"
    for name, body in MODELS.items():
        write_model(root, name, ONE_INPUT.format(body=body), CONFIG % 1)
    write_model(root, "two_instances", ONE_INPUT.format(body="pass"), CONFIG % 2)
    write_model(root, "batched", ONE_INPUT.format(body="pass").replace("values[0] ==", "values.flat[0] =="),
                CONFIG % 1 + "max_batch_size: 8\ndynamic_batching { }\n")
    write_model(root, "text", ONE_INPUT.format(body="pass"), (CONFIG % 1).replace("FP32", "STRING"))
    write_model(root, "scribbler", SCRIBBLER, CONFIG % 1)
    write_model(root, "several", SEVERAL, 'backend: "python"\n' + tensors("input", ("IN0", "IN1", "IN2")) + tensors("output", ("OUT0", "OUT1", "OUT2")))
    running = start_server(root, python_flags(f"--backend-config=python,shm-region-prefix-name={PREFIX}",
                                              f"--backend-config=python,shm-default-byte-size={REGION}",
                                              "--model-control-mode=explicit", "--load-model=*"))
    yield running
    assert running.stop() == 0
    check_no_leaks(running, PREFIX)


def floats(count, seed):
    return np.random.default_rng(seed).random(count, np.float32)


def largest_region(server):
    """Returns the size of the largest region that the host writes for a worker."""
    sizes = [0]
    for each in os.listdir(f"/proc/{server.process.pid}/fd"):
        path = f"/proc/{server.process.pid}/fd/{each}"
        try:
            if f"{PREFIX}_to_worker" in os.readlink(path):
                sizes.append(os.stat(path).st_size)
        except FileNotFoundError:
            pass
    return max(sizes)


@pytest.fixture
def fresh(server):
    """The server, with workers whose memory has not grown."""
    def reload(model):
        unload(server, model)
        wait_for(lambda: not is_ready(server, model), "the model is gone")
        load_by_request(server, model)

    with concurrent.futures.ThreadPoolExecutor() as threads:
        list(threads.map(reload, (*MODELS, "two_instances", "batched", "text", "several")))
    wait_for(lambda: largest_region(server) == REGION, "the old workers are gone")
    return server


def answered(server, model, values):
    with Raw(server.http) as one:
        one.send(binary_request(model, values))
        return binary_output(one)


class SlowUpload:
    """Has sent half of its request."""

    def __init__(self, server, model, values):
        self.raw = Raw(server.http)
        self.request = binary_request(model, values)
        self.raw.send(self.request[:len(self.request) // 2])

    def output(self):
        self.raw.send(self.request[len(self.request) // 2:])
        return binary_output(self.raw)


@pytest.mark.parametrize("count", [(1 << 14) - 1, 1 << 14, (1 << 14) + 1, MIB, MAX_BLOCK, MAX_BLOCK + 1])
def test_inputs_equal_the_clients_data(server, count):
    for seed in range(3):
        values = floats(count, (count, seed))
        assert np.array_equal(answered(server, "mirror", values), values)
        assert np.array_equal(answered(server, "doubler", values), 2 * values)
        assert np.array_equal(answered(server, "keeper", values), values)
        assert np.array_equal(answered(server, "two_instances", values), values)


def test_a_stock_client_sends_head_and_body_apart(server):
    values = floats(3 * MIB, 0).reshape(1, -1)
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}") as client:
        for model, compression in (("batched", None), ("batched", "gzip")):
            given = httpclient.InferInput("IN", values.shape, "FP32")
            given.set_data_from_numpy(values)
            result = client.infer(model, [given], request_compression_algorithm=compression)
            assert np.array_equal(result.as_numpy("OUT"), values)


def test_a_raw_request_is_all_input(server):
    values = floats(MIB, 0)
    with Raw(server.http) as one:
        one.send(b"POST /v2/models/doubler/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 0\r\nContent-Length: %d\r\n\r\n"
                 % values.nbytes + values.tobytes())
        assert np.array_equal(binary_output(one), 2 * values)


def test_strings_equal_the_clients_data(server):
    texts = np.array([b"x" * 100_000, b"", b"y" * 300_000], np.object_)
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}") as client:
        given = httpclient.InferInput("IN", texts.shape, "BYTES")
        given.set_data_from_numpy(texts)
        assert client.infer("text", [given]).as_numpy("OUT").tolist() == texts.tolist()


# The inputs fill the whole buffer or parts of it, aligned or not; some are so short that they are passed otherwise.
@pytest.mark.parametrize("sizes", [(1 << 20, 1 << 20, 1 << 20), (1 << 20, 100, 1 << 18), ((1 << 20) + 1, 1 << 20, 1 << 17), (0, 1 << 20, 0),
                                   (64, 1 << 20, 70_000), (9000, 9024, 60_001)])
def test_several_inputs_of_one_body_keep_apart(server, sizes):
    with Raw(server.http) as one:
        for seed in range(4):
            data = [np.random.default_rng((seed, i)).integers(0, 256, size, np.uint8) for i, size in enumerate(sizes)]
            head = json.dumps({"inputs": [{"name": f"IN{i}", "datatype": "UINT8", "shape": [size], "parameters": {"binary_data_size": size}}
                                          for i, size in enumerate(sizes)], "parameters": {"binary_data_output": True}}).encode()
            body = head + b"".join(each.tobytes() for each in data)
            one.send(b"POST /v2/models/several/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
                     % (len(head), len(body)) + body)
            status, headers, answer = one.answer()
            assert status == 200, answer
            head_bytes = int(headers["inference-header-content-length"])
            rest = answer[head_bytes:]
            for output in json.loads(answer[:head_bytes])["outputs"]:
                size = output["parameters"]["binary_data_size"]
                assert rest[:size] == data[int(output["name"][3:])].tobytes(), output["name"]
                rest = rest[size:]
            assert not rest


def test_a_body_is_received_into_the_workers_memory_while_it_comes(fresh):
    values = floats(4 * MIB, 1)
    assert np.array_equal(answered(fresh, "mirror", values), values)
    assert values.nbytes < largest_region(fresh) < 2 * values.nbytes
    one = SlowUpload(fresh, "mirror", values)

    def has_its_place():
        other = floats(4 * MIB, 2)
        assert np.array_equal(answered(fresh, "mirror", other), other)
        return largest_region(fresh) > 2 * values.nbytes  # the other input had to be placed after it

    wait_for(has_its_place, "the half body lies in the worker's memory")
    for seed in range(4):
        other = floats(2 * MIB, (3, seed))
        assert np.array_equal(answered(fresh, "mirror", other), other)
    assert np.array_equal(one.output(), values)


def test_memory_grows_by_the_concurrent_bodies(fresh):
    values = floats(MIB, 1)
    for _ in range(8):
        waiting = [SlowUpload(fresh, "mirror", values) for _ in range(4)]
        for one in waiting:
            assert np.array_equal(one.output(), values)
            one.raw.close()
    assert 4 * values.nbytes < largest_region(fresh) < 16 * values.nbytes


def test_no_body_is_received_there_for_several_instances_and_texts(fresh):
    short = floats(16, 1)
    waiting = [SlowUpload(fresh, model, floats(4 * MIB, 1)) for model in ("two_instances", "two_instances", "text", "text")]
    with httpclient.InferenceServerClient(f"127.0.0.1:{fresh.http}") as client:
        given = httpclient.InferInput("IN", [1], "BYTES")
        given.set_data_from_numpy(np.array([b"x"], np.object_))
        for _ in range(8):
            assert np.array_equal(answered(fresh, "two_instances", short), short)
            assert client.infer("text", [given]).as_numpy("OUT").tolist() == [b"x"]
    assert largest_region(fresh) == REGION  # no buffer could be posted; otherwise the region would have grown
    for each in waiting:
        each.raw.close()


def test_clients_that_stop_in_the_middle_give_the_memory_back(fresh):
    values = floats(2 * MIB, 1)
    for _ in range(2 * MAX_BLOCKS):
        SlowUpload(fresh, "mirror", values).raw.close()
        assert np.array_equal(answered(fresh, "mirror", values), values)
    assert largest_region(fresh) <= 4 * values.nbytes


def test_more_slow_clients_than_have_a_place(fresh):
    values = [floats(4 * MIB, seed) for seed in range(MAX_BLOCKS + 4)]
    waiting = [SlowUpload(fresh, "mirror", each) for each in values]
    for one, each in reversed(list(zip(waiting, values))):
        assert np.array_equal(one.output(), each)
    assert largest_region(fresh) <= (64 << 20) + 4 * values[0].nbytes


def test_memory_grows_to_the_limit_for_slow_clients(fresh):
    values = floats(MAX_BLOCK, 1)
    for _ in range(6):  # each region has space for one more
        waiting = [SlowUpload(fresh, "mirror", values) for _ in range(7)]
        for one in reversed(waiting):
            assert np.array_equal(one.output(), values)
            one.raw.close()
    assert (64 << 20) < largest_region(fresh) <= (64 << 20) + 3 * values.nbytes  # two inputs are copied at the same time


def test_a_worker_that_dies_takes_no_body_with_it(server):
    values = floats(4 * MIB, 1)
    one = SlowUpload(server, "mirror", values)
    assert post(server, "/v2/models/mirror/infer", {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [DIE]}]})[0] == 503
    wait_for(lambda: is_ready(server, "mirror"), "the worker is back")
    assert np.array_equal(one.output(), values)
    check_no_leaks(server, PREFIX)


def test_no_body_is_lost_or_changed_while_workers_are_killed(server):
    """A worker dies after half of a body has arrived, or while the request runs; then its client gets an error."""
    stop, outcomes = threading.Event(), []

    def client(number):
        for seed in itertools.count():
            values = floats(MIB, (number, seed))
            one = SlowUpload(server, "mirror", values)
            one.raw.send(one.request[len(one.request) // 2:])
            status, headers, body = one.raw.answer()
            one.raw.close()
            if status == 200:
                outcomes.append(np.array_equal(np.frombuffer(body[int(headers["inference-header-content-length"]):], np.float32), values))
            else:
                assert status == 503 and b"is not healthy. The Python worker" in body, body
            if stop.is_set():
                return

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        clients = [pool.submit(client, number) for number in range(6)]
        for _ in range(5):
            post(server, "/v2/models/mirror/infer", {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [DIE]}]})
            wait_for(lambda: is_ready(server, "mirror"), "the worker is back")
        stop.set()
        for each in clients:
            each.result(60)
    assert outcomes and all(outcomes)
    check_no_leaks(server, PREFIX)


def test_worker_that_overwrites_its_memory_affects_no_other_model(server):
    for seed in range(10):
        values = floats(MIB, seed)
        waiting, other = SlowUpload(server, "scribbler", values), SlowUpload(server, "mirror", values)
        with Raw(server.http) as one:
            one.send(binary_request("scribbler", floats(2 * MIB, seed)))
            one.answer()  # any answer will do
        waiting.raw.send(waiting.request[len(waiting.request) // 2:])
        waiting.raw.answer()
        assert np.array_equal(other.output(), values)
    unload(server, "scribbler")
    check_no_leaks(server, PREFIX)


def test_a_body_holds_up_no_unload_and_finds_the_model_that_came_after(server):
    values = floats(4 * MIB, 1)
    [worker] = workers_of(server, "doubler")
    late, later = SlowUpload(server, "doubler", values), SlowUpload(server, "doubler", values)
    unload(server, "doubler")
    wait_for(lambda: not is_running(worker), "the worker is gone")
    late.raw.send(late.request[len(late.request) // 2:])
    assert late.raw.answer()[0] == 404
    load_by_request(server, "doubler")
    assert np.array_equal(later.output(), 2 * values)
    check_no_leaks(server, PREFIX)


@pytest.mark.parametrize("claimed", [0, MIB * 4 - 4, MIB * 4 + 4, 1 << 40])
def test_wrong_input_size_is_refused(server, claimed):
    request = binary_request("mirror", floats(MIB, 1))
    head, body = request.split(b"\r\n\r\n", 1)
    lie = body.replace(b'"binary_data_size": %d' % (MIB * 4), b'"binary_data_size": %d' % claimed, 1)
    longer = len(lie) - len(body)
    lines = [line.split(b": ") for line in head.split(b"\r\n")[1:]]
    lengths = b"\r\n".join(b"%s: %d" % (name, int(value) + longer) if name.endswith(b"Length") else b"%s: %s" % (name, value) for name, value in lines)
    with Raw(server.http) as one:
        one.send(head.split(b"\r\n")[0] + b"\r\n" + lengths + b"\r\n\r\n" + lie)
        assert one.answer()[0] == 400
        one.send(request)
        assert np.array_equal(binary_output(one), floats(MIB, 1))
