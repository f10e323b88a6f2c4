"""GPU tensors of Python models, from the client to the model and back. By default with a driver without a GPU that enforces the real driver's
restrictions; with NEREID_TEST_GPU=1 with the machine's driver. Only copies by the driver reach the memory, so that every byte that arrives was
copied correctly."""
import base64
import contextlib
import ctypes
import json
import os
import pathlib

import numpy as np
import pytest
import tritonclient.http as httpclient
from python_support import PATIENCE_S, binary_output, binary_request, python_flags
from raw_http import Raw

IS_REAL = os.environ.get("NEREID_TEST_GPU") == "1"
MODELS = pathlib.Path(__file__).parent / "python_gpu_models"
REGION_BYTES = 1 << 20


class Client:
    """GPU memory of this process, registered with the server as region "r": inputs at the start, outputs after them."""

    def __init__(self, driver, url):
        self.url = url
        self.driver, self.http = driver, httpclient.InferenceServerClient(url, network_timeout=PATIENCE_S)
        self.base, handle = ctypes.c_uint64(), (ctypes.c_char * 64)()
        context = ctypes.c_void_p()
        assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and driver.cuCtxSetCurrent(context) == 0
        assert driver.cuMemAlloc_v2(ctypes.byref(self.base), ctypes.c_size_t(REGION_BYTES)) == 0
        assert driver.cuIpcGetMemHandle(handle, self.base) == 0
        self.http.register_cuda_shared_memory("r", base64.b64encode(handle.raw), 0, REGION_BYTES)

    def close(self):
        self.http.unregister_cuda_shared_memory("r")
        self.http.close()
        self.driver.cuMemFree_v2(self.base)

    def ask(self, model, values, outputs):
        """`outputs`: the target of each output by name: an offset in the region, or None for the answer's body."""
        assert self.driver.cuMemcpy(self.base, ctypes.c_uint64(values.ctypes.data), ctypes.c_size_t(values.nbytes)) == 0
        tensor = httpclient.InferInput("IN", list(values.shape), "FP32")
        tensor.set_shared_memory("r", values.nbytes)
        wanted = []
        for name, (offset, size) in outputs.items():
            wanted.append(httpclient.InferRequestedOutput(name))
            if offset is not None:
                wanted[-1].set_shared_memory("r", size, offset=offset)
        answer = self.http.infer(model, [tensor], outputs=wanted)
        return {name: answer.as_numpy(name) if offset is None else self.read(offset, size) for name, (offset, size) in outputs.items()}

    def read(self, offset, size):
        values = np.empty(size // 4, np.float32)
        assert self.driver.cuMemcpy(ctypes.c_uint64(values.ctypes.data), ctypes.c_uint64(self.base.value + offset), ctypes.c_size_t(size)) == 0
        return values


@contextlib.contextmanager
def own_driver(memory):
    """Returns the driver without a GPU, whose memory is in the folder `memory`, and the environment for a server that uses it."""
    library = pathlib.Path(os.environ.get("NEREID_TEST_BACKENDS", "")).parent / "cuda/libcuda.so.1"
    if not library.exists():
        pytest.skip("NEREID_TEST_BACKENDS names no folder with the driver of this test")
    os.environ["NEREID_FAKE_CUDA_DIR"] = str(memory)
    try:
        yield ctypes.CDLL(str(library)), {"LD_LIBRARY_PATH": f"{library.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")}
    finally:
        del os.environ["NEREID_FAKE_CUDA_DIR"]


@pytest.fixture(scope="module")
def client(start_server, tmp_path_factory):
    with contextlib.nullcontext((ctypes.CDLL("libcuda.so.1"), {})) if IS_REAL else own_driver(tmp_path_factory.mktemp("device")) as (driver, environment):
        assert driver.cuInit(0) == 0
        server = start_server(MODELS, python_flags("--allow-client-shm=true"), environment=environment)
        client = Client(driver, f"127.0.0.1:{server.http}")
        yield client
        client.close()
        assert server.stop() == 0


@pytest.mark.parametrize("size", [10, 30_000])
def test_tensors_stay_on_the_gpu_where_the_model_takes_them(client, size):
    half = size // 2
    for start in (0, 1000):  # the second round uses memory that the first one has freed
        values = np.arange(start, start + size, dtype=np.float32)
        answer = client.ask("device", values, {"IS_CPU": (None, 1), "SAME": (200_000, 4 * size), "LAST": (400_000, 4 * (size - half)),
                                               "OWN": (600_000, 4 * size), "TEXT": (None, 0)})
        assert not answer["IS_CPU"][0]
        assert answer["TEXT"][0] == b"Tensor is stored in GPU and cannot be converted to NumPy."
        assert np.array_equal(answer["SAME"], values)
        assert np.array_equal(answer["LAST"], values[half:])
        assert np.array_equal(answer["OWN"], 2 * values)


@pytest.mark.parametrize("size", [10, 30_000])
def test_outputs_on_the_gpu_reach_a_client_that_has_none(client, size):
    values = np.arange(size, dtype=np.float32)
    answer = client.ask("device", values, {"SAME": (None, 0), "OWN": (None, 0)})
    assert np.array_equal(answer["SAME"], values)
    assert np.array_equal(answer["OWN"], 2 * values)


def test_serial_execution_does_not_change_previous_answers(client):
    """The model writes each answer to the same memory, and may receive the next requests before the host has read it."""
    clients = [Raw(int(client.url.rsplit(":", 1)[1])) for _ in range(16)]
    for seed in range(20):
        asked = [np.full(100, 16 * seed + i, np.float32) for i in range(len(clients))]
        for one, values in zip(clients, asked):
            one.send(binary_request("rewriter", values))
        for one, values in zip(clients, asked):
            assert np.array_equal(binary_output(one), values)
    for one in clients:
        one.close()


@pytest.mark.parametrize("size", [10, 30_000])
def test_a_model_that_takes_host_memory_gets_it(client, size):
    values = np.arange(size, dtype=np.float32)
    assert np.array_equal(client.ask("plain", values, {"OUT": (200_000, 4 * size)})["OUT"], 3 * values)
    assert np.array_equal(client.ask("plain", values, {"OUT": (None, 0)})["OUT"], 3 * values)


@pytest.mark.parametrize("size", [10, 30_000])
def test_calls_and_senders_leave_tensors_on_the_gpu(client, size):
    for start in (0, 1000):
        values = np.arange(start, start + size, dtype=np.float32)
        answer = client.ask("calls", values, {"SAME": (200_000, 4 * size), "OWN": (400_000, 4 * size), "SEEN": (None, 0)})
        assert np.array_equal(answer["SAME"], values)
        assert np.array_equal(answer["OWN"], 2 * values)
        on_host = {"SAME": "host", "OWN": "host", "TEXT": "host"}
        assert json.loads(answer["SEEN"][0]) == {
            "on_gpu": {"SAME": "gpu", "OWN": "gpu", "TEXT": "host"}, "on_host": on_host, "no_gpu": on_host,
            "text": "Tensor is stored in GPU and cannot be converted to NumPy.", "callee_is_cpu": False,
            "same": float(values.astype(np.float64).sum())}
