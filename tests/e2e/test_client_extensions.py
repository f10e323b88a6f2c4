"""The functions of NVIDIA's Python client other than plain inference (shared memory, classification, sequences, settings, compression, plugins,
TLS, keepalive) with each of its four clients: HTTP and gRPC, blocking and asyncio. The models are those of the recordings."""
import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import ssl

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcaio
import tritonclient.http as httpclient
import tritonclient.http.aio as httpaio
import tritonclient.utils.shared_memory as system_memory
from tritonclient.grpc.auth import BasicAuth as GrpcBasicAuth
from tritonclient.http.auth import BasicAuth as HttpBasicAuth
from tritonclient.utils import InferenceServerException, serialize_byte_tensor, serialized_byte_size

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/repo"
CLIENTS = {"http": (httpclient, httpclient), "grpc": (grpcclient, grpcclient), "http_aio": (httpaio, httpclient), "grpc_aio": (grpcaio, grpcclient)}
MODELS = ("identity_fp32", "identity_batch", "identity_string", "params", "seq")
FRESH = itertools.count(1)


class Caller:
    """A client of any kind whose methods return results directly. Those of asyncio clients run in the Caller's own event loop."""

    def __init__(self, kind, server, **options):
        self.kind = kind
        module, self.types = CLIENTS[kind]
        self.is_http = kind.startswith("http")
        self.loop = asyncio.new_event_loop() if kind.endswith("aio") else None
        host = options.pop("host", "127.0.0.1")

        async def create():  # aiohttp requires a running event loop
            return module.InferenceServerClient(f"{host}:{server.http if self.is_http else server.grpc}", **options)

        self.client = self.loop.run_until_complete(create()) if self.loop else module.InferenceServerClient(
            f"{host}:{server.http if self.is_http else server.grpc}", **options)

    def __getattr__(self, name):
        method = getattr(self.client, name)
        if not self.loop or not asyncio.iscoroutinefunction(method):
            return method
        return lambda *args, **kwargs: self.loop.run_until_complete(method(*args, **kwargs))

    def described(self, name, *args):
        """Returns the result of a describing method as Python values."""
        return getattr(self, name)(*args, **({} if self.is_http else {"as_json": True}))

    def tensor(self, name, array, datatype):
        one = self.types.InferInput(name, list(array.shape), datatype)
        one.set_data_from_numpy(array)
        return one

    def close(self):
        self.__getattr__("close")()
        if self.loop:
            self.loop.close()


@contextlib.contextmanager
def connected(kind, server, **options):
    one = Caller(kind, server, **options)
    try:
        yield one
    finally:
        one.close()


@pytest.fixture(scope="module")
def flags(test_backends):
    return [test_backends, "--model-control-mode=explicit", *(f"--load-model={name}" for name in MODELS)]


@pytest.fixture(scope="module")
def server(start_server, flags, tmp_path_factory):
    forward = ["--http-header-forward-pattern=auth", "--grpc-header-forward-pattern=auth"]
    trace = f"--trace-config=triton,file={tmp_path_factory.mktemp('trace') / 'trace.json'}"
    return start_server(GOLDEN, [*flags, *forward, trace, "--allow-client-shm=true"], "/v2/models/seq/ready")


@pytest.fixture(params=CLIENTS)
def caller(request, server):
    with connected(request.param, server) as one:
        yield one


@pytest.fixture
def region(caller):
    """make(size): a system shared-memory region that this client registered; returns (handle, name)."""
    made = []

    def make(size_bytes):
        name = f"nereid_client_{os.getpid()}_{next(FRESH)}"
        handle = system_memory.create_shared_memory_region(name, "/" + name, size_bytes)
        made.append((handle, name))
        caller.register_system_shared_memory(name, "/" + name, size_bytes)
        return handle, name

    yield make
    for handle, name in made:
        caller.unregister_system_shared_memory(name)
        system_memory.destroy_shared_memory_region(handle)


def test_tensors_in_system_shared_memory(caller, region):
    array = np.arange(8, dtype=np.float32)
    handle, name = region(128)
    system_memory.set_shared_memory_region(handle, [array])
    given = caller.types.InferInput("INPUT0", [8], "FP32")
    given.set_shared_memory(name, 32)
    wanted = caller.types.InferRequestedOutput("OUTPUT0")
    wanted.set_shared_memory(name, 32, offset=64)
    result = caller.infer("identity_fp32", [given], outputs=[wanted])
    assert np.array_equal(system_memory.get_contents_as_numpy(handle, np.float32, [8], offset=64), array)
    assert result.get_output("OUTPUT0") is not None


def test_strings_in_system_shared_memory(caller, region):
    texts = np.array([b"one", b"", "grüße".encode()], dtype=np.object_)
    packed = serialize_byte_tensor(texts)
    size_bytes = serialized_byte_size(packed)
    handle, name = region(2 * size_bytes)
    system_memory.set_shared_memory_region(handle, [packed])
    given = caller.types.InferInput("INPUT0", [3], "BYTES")
    given.set_shared_memory(name, size_bytes)
    wanted = caller.types.InferRequestedOutput("OUTPUT0")
    wanted.set_shared_memory(name, size_bytes, offset=size_bytes)
    caller.infer("identity_string", [given], outputs=[wanted])
    assert system_memory.get_contents_as_numpy(handle, np.object_, [3], offset=size_bytes).tolist() == texts.tolist()


def test_regions_are_described_and_unregistered(caller, region):
    _, name = region(64)
    status = caller.described("get_system_shared_memory_status", name)
    entry = status[0] if caller.is_http else status["regions"][name]
    assert (entry["name"], entry["key"], int(entry["byte_size"])) == (name, "/" + name, 64)
    with pytest.raises(InferenceServerException, match="already in manager"):
        caller.register_system_shared_memory(name, "/" + name, 64)
    caller.unregister_cuda_shared_memory(name)  # of the wrong kind: has no effect
    assert caller.described("get_system_shared_memory_status", name)
    caller.unregister_system_shared_memory(name)
    with pytest.raises(InferenceServerException, match="Unable to find"):
        caller.get_system_shared_memory_status(name)
    given = caller.types.InferInput("INPUT0", [8], "FP32")
    given.set_shared_memory(name, 32)
    with pytest.raises(InferenceServerException, match=f"Unable to find shared memory region: '{name}'"):
        caller.infer("identity_fp32", [given])


def test_cuda_regions_of_no_device_are_refused(caller):
    regions = caller.described("get_cuda_shared_memory_status")
    assert (regions if caller.is_http else regions.get("regions", {})) in ([], {})
    handle = b"QUJD"  # base64 of three bytes: not a CUDA handle
    with pytest.raises(InferenceServerException):
        caller.register_cuda_shared_memory("none", handle, 0, 64)
    with pytest.raises(InferenceServerException, match="Unable to find cuda shared memory region: 'none'"):
        caller.get_cuda_shared_memory_status("none")
    caller.unregister_cuda_shared_memory()


def test_outputs_are_classified(caller):
    array = np.zeros((2, 16), dtype=np.float32)
    array[0, 3], array[0, 7], array[1, 1], array[1, 2] = 9, 8, 7, 6
    result = caller.infer("identity_batch", [caller.tensor("INPUT0", array, "FP32")],
                          outputs=[caller.types.InferRequestedOutput("OUTPUT0", class_count=2)])
    classes = [[each.decode().split(":")[:2] for each in row] for row in result.as_numpy("OUTPUT0")]
    assert [[(float(value), int(index)) for value, index in row] for row in classes] == [[(9, 3), (8, 7)], [(7, 1), (6, 2)]]


@pytest.mark.parametrize("text", [False, True])
def test_sequences_keep_their_sums(caller, text):
    sequence = 7000 + next(FRESH)
    sequence = f"sequence {sequence}" if text else sequence

    def send(value, sequence=sequence, **flags):
        given = [caller.tensor("INPUT", np.array([[value]], np.int32), "INT32")]
        return int(caller.infer("seq", given, sequence_id=sequence, **flags).as_numpy("OUTPUT")[0, 0])

    if text:
        with pytest.raises(InferenceServerException, match="string correlation ID cannot be longer than 128 characters"):
            send(5, "x" * 129, sequence_start=True)
    assert [send(5, sequence_start=True), send(6), send(7, sequence_end=True)] == [5, 11, 18]
    with pytest.raises(InferenceServerException, match="START"):
        send(1)


def test_statistics_are_of_models_that_serve(caller):
    with pytest.raises(InferenceServerException, match="requested model 'nosuch' is not available") as error:
        caller.get_inference_statistics("nosuch", "1")
    assert error.value.status() in ("404", "StatusCode.NOT_FOUND")
    with pytest.raises(InferenceServerException, match="requested model version is not available for model 'params'"):
        caller.get_inference_statistics("params", "7")
    assert {each["name"] for each in caller.described("get_inference_statistics")["model_stats"]} == set(MODELS)


def test_trace_settings_change_and_are_cleared(caller):
    def settings(**change):
        name = "update_trace_settings" if change else "get_trace_settings"
        answer = getattr(caller, name)("identity_fp32", **change, **({} if caller.is_http else {"as_json": True}))
        if caller.is_http:
            return answer
        return {key: value["value"] if key == "trace_level" else value["value"][0] for key, value in answer["settings"].items()}

    assert settings()["trace_level"] == ["OFF"]
    changed = settings(settings={"trace_level": ["TIMESTAMPS", "TENSORS"], "trace_rate": "7", "log_frequency": "2"})
    assert (changed["trace_level"], changed["trace_rate"], changed["log_frequency"]) == (["TIMESTAMPS", "TENSORS"], "7", "2")
    cleared = settings(settings={"trace_level": None, "trace_rate": None, "log_frequency": None})
    assert (cleared["trace_level"], cleared["trace_rate"], cleared["log_frequency"]) == (["OFF"], "1000", "0")
    with pytest.raises(InferenceServerException, match="BOGUS"):
        settings(settings={"trace_level": ["BOGUS"]})
    with pytest.raises(InferenceServerException, match="unknown model"):
        caller.get_trace_settings("nosuch")


def test_log_settings_change(caller):
    def level(settings):
        return settings["log_verbose_level"] if caller.is_http else settings["settings"]["log_verbose_level"].get("uint32_param", 0)

    before = level(caller.described("get_log_settings"))
    assert level(caller.described("update_log_settings", {"log_verbose_level": 1})) == 1
    assert level(caller.described("update_log_settings", {"log_verbose_level": before})) == before


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_messages_are_compressed(caller, algorithm):
    array = np.tile(np.arange(4, dtype=np.float32), 5000)
    how = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm} if caller.is_http else \
        {"compression_algorithm": algorithm}
    result = caller.infer("identity_fp32", [caller.tensor("INPUT0", array, "FP32")], **how)
    assert np.array_equal(result.as_numpy("OUTPUT0"), array)


def test_a_plugin_adds_headers_to_every_call(caller):
    plugin = (HttpBasicAuth if caller.is_http else GrpcBasicAuth)("user", "pass")
    caller.client.register_plugin(plugin)
    given = [caller.tensor("INPUT0", np.array([1], np.int32), "INT32")]
    seen = json.loads(caller.infer("params", given).as_numpy("OUTPUT0")[0])
    assert seen["parameters"]["authorization"] == "Basic dXNlcjpwYXNz"
    caller.client.unregister_plugin()
    assert "authorization" not in json.loads(caller.infer("params", given).as_numpy("OUTPUT0")[0])["parameters"]


@pytest.mark.parametrize("kind", ["grpc", "grpc_aio"])
def test_grpc_keepalive_options_and_channel_arguments(server, kind):
    alive = grpcclient.KeepAliveOptions(keepalive_time_ms=2**31 - 1, keepalive_timeout_ms=20000, keepalive_permit_without_calls=False,
                                        http2_max_pings_without_data=2)
    for options in ({"keepalive_options": alive}, {"channel_args": [("grpc.max_receive_message_length", -1), ("grpc.primary_user_agent", "me")]}):
        with connected(kind, server, **options) as one:
            assert one.is_server_ready()
            assert one.infer("identity_fp32", [one.tensor("INPUT0", np.ones(3, np.float32), "FP32")]).as_numpy("OUTPUT0").sum() == 3


@pytest.fixture(scope="module")
def tls_server(start_server, test_backends, certificates):
    flags = [test_backends, "--model-control-mode=explicit", "--load-model=identity_fp32", *certificates.flags("http", mutual=True),
             *certificates.flags("grpc", mutual=True)]
    return start_server(GOLDEN, flags, "/v2/models/identity_fp32/ready", tls=certificates.authority.context(certificates.client))


@pytest.mark.parametrize("kind", CLIENTS)
def test_tls_with_certificates_of_both_sides(tls_server, certificates, kind):
    cert, key = map(str, certificates.client)
    root = str(certificates.authority.cert)
    if kind == "http":
        import gevent.ssl

        def context(**_):
            made = gevent.ssl.create_default_context(cafile=root)
            made.load_cert_chain(cert, key)
            return made

        options = {"ssl": True, "ssl_context_factory": context}
    elif kind == "http_aio":
        made = ssl.create_default_context(cafile=root)
        made.load_cert_chain(cert, key)
        options = {"ssl": True, "ssl_context": made}
    else:
        options = {"ssl": True, "root_certificates": root, "private_key": key, "certificate_chain": cert}
    with connected(kind, tls_server, host="localhost", **options) as one:
        assert one.is_server_ready()
        array = np.arange(5000, dtype=np.float32)
        assert np.array_equal(one.infer("identity_fp32", [one.tensor("INPUT0", array, "FP32")]).as_numpy("OUTPUT0"), array)
