"""Calls every method of NVIDIA's Python client on our server: HTTP and gRPC, blocking and asyncio."""
import asyncio
import json
import queue

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcaio
import tritonclient.http as httpclient
import tritonclient.http.aio as httpaio
from tritonclient.utils import InferenceServerException

MODULES = [pytest.param(httpclient, id="http"), pytest.param(grpcclient, id="grpc")]
TYPES = {"BOOL": bool, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "INT8": np.int8, "INT16": np.int16,
         "INT32": np.int32, "INT64": np.int64, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_}
BATCHED = """backend: "identity_c"
max_batch_size: 4
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ 2 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 2 ] } ]
dynamic_batching { }
"""


@pytest.fixture(scope="module")
def server(start, dist, backends, tmp_path_factory):
    repository = tmp_path_factory.mktemp("client_models")
    for name in TYPES:
        model = repository / f"identity_{name.lower()}"
        (model / "1").mkdir(parents=True)
        proto = "STRING" if name == "BYTES" else name
        (model / "config.pbtxt").write_text(
            f'backend: "identity_c"\ninput [ {{ name: "INPUT0" data_type: TYPE_{proto} dims: [ -1, 2 ] }} ]\n'
            f'output [ {{ name: "OUTPUT0" data_type: TYPE_{proto} dims: [ -1, 2 ] }} ]\n')
    (repository / "batched/1").mkdir(parents=True)
    (repository / "batched/config.pbtxt").write_text(BATCHED)
    running = start(dist / "bin/tritonserver", repository, backends, flags=["--model-control-mode=explicit", "--load-model=*"])
    yield running
    assert running.stop() == 0


def connect(module, server):
    port = server.http if module in (httpclient, httpaio) else server.grpc
    return module.InferenceServerClient(f"127.0.0.1:{port}")


def values_of(name):
    if name == "BYTES":
        return np.array([[b"a", b""], ["grüße".encode(), b"\x00\xff"]], dtype=np.object_)
    if name == "BOOL":
        return np.array([[True, False], [False, True]])
    return np.array([[0, 1], [2, 3]], dtype=TYPES[name])


def tensor_of(module, array, name, **how):
    tensor = module.InferInput("INPUT0", list(array.shape), name)
    tensor.set_data_from_numpy(array, **how)
    return tensor


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("module", MODULES)
def test_every_type_comes_back(server, module, name):
    array = values_of(name)
    with connect(module, server) as client:
        result = client.infer(f"identity_{name.lower()}", [tensor_of(module, array, name)], request_id="42")
    assert np.array_equal(result.as_numpy("OUTPUT0"), array)
    response = result.get_response()
    assert (response["id"] if module is httpclient else response.id) == "42"


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("name", ["FP32", "INT64", "BOOL"])
def test_http_carries_json_and_binary_either_way(server, name, binary_in, binary_out):
    array = values_of(name)
    with connect(httpclient, server) as client:
        result = client.infer(f"identity_{name.lower()}", [tensor_of(httpclient, array, name, binary_data=binary_in)],
                              outputs=[httpclient.InferRequestedOutput("OUTPUT0", binary_data=binary_out)])
    assert np.array_equal(result.as_numpy("OUTPUT0"), array)


@pytest.mark.parametrize("module", MODULES)
def test_health_and_descriptions(server, module):
    as_dict = {"as_json": True} if module is grpcclient else {}
    with connect(module, server) as client:
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready("batched") and client.is_model_ready("batched", "1")
        assert not client.is_model_ready("nosuch")
        assert "extensions" in client.get_server_metadata(**as_dict)
        metadata = client.get_model_metadata("batched", **as_dict)
        assert metadata["inputs"][0]["name"] == "INPUT0" and [int(dim) for dim in metadata["inputs"][0]["shape"]] == [-1, 2]
        config = client.get_model_config("batched", **as_dict)
        assert (config["config"] if module is grpcclient else config)["max_batch_size"] == 4
        index = client.get_model_repository_index(**as_dict)
        names = [model["name"] for model in (index["models"] if module is grpcclient else index)]
        assert set(names) == {"batched", *(f"identity_{name.lower()}" for name in TYPES)}
        statistics = client.get_inference_statistics("batched", **as_dict)
        assert statistics["model_stats"][0]["name"] == "batched"


@pytest.mark.parametrize("module", MODULES)
def test_settings_of_the_log(server, module):
    with connect(module, server) as client:
        settings = client.get_log_settings() if module is httpclient else client.get_log_settings(as_json=True)["settings"]
        assert "log_verbose_level" in settings
        client.update_log_settings({"log_verbose_level": 1})
        client.update_log_settings({"log_verbose_level": 0})


@pytest.mark.parametrize("module", MODULES)
def test_models_are_loaded_and_unloaded(server, module):
    with connect(module, server) as client:
        client.unload_model("batched")
        assert not client.is_model_ready("batched")
        client.load_model("batched", config=json.dumps({
            "backend": "identity_c", "max_batch_size": 2, "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [2]}],
            "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [2]}]}))
        array = np.ones((3, 2), dtype=np.int32)
        with pytest.raises(InferenceServerException, match="2"):
            client.infer("batched", [tensor_of(module, array, "INT32")])
        client.load_model("batched")  # nothing changed on disk: the override of the previous call remains
        with pytest.raises(InferenceServerException, match="2"):
            client.infer("batched", [tensor_of(module, array, "INT32")])
        client.unload_model("batched")
        client.load_model("batched")
        assert client.infer("batched", [tensor_of(module, array, "INT32")]).as_numpy("OUTPUT0").shape == (3, 2)
        with pytest.raises(InferenceServerException):
            client.load_model("nosuch")


@pytest.mark.parametrize("module", MODULES)
def test_errors_name_the_fault(server, module):
    with connect(module, server) as client:
        with pytest.raises(InferenceServerException, match="nosuch"):
            client.infer("nosuch", [tensor_of(module, values_of("FP32"), "FP32")])
        with pytest.raises(InferenceServerException, match="INPUT0"):
            client.infer("batched", [tensor_of(module, values_of("FP32"), "FP32")])
        with pytest.raises(InferenceServerException, match="NO_OUTPUT"):
            client.infer("batched", [tensor_of(module, values_of("INT32"), "INT32")], outputs=[module.InferRequestedOutput("NO_OUTPUT")])


@pytest.mark.parametrize("module", MODULES)
def test_many_requests_at_once(server, module):
    with (httpclient.InferenceServerClient(f"127.0.0.1:{server.http}", concurrency=8) if module is httpclient else connect(module, server)) as client:
        answers = queue.Queue()
        arrays = [np.full((1, 2), i, dtype=np.int32) for i in range(40)]
        if module is httpclient:
            pending = [client.async_infer("batched", [tensor_of(module, array, "INT32")], request_id=str(i)) for i, array in enumerate(arrays)]
            results = [each.get_result() for each in pending]
        else:
            for i, array in enumerate(arrays):
                client.async_infer("batched", [tensor_of(module, array, "INT32")], lambda result, error: answers.put((result, error)),
                                   request_id=str(i))
            got = [answers.get(timeout=90) for _ in arrays]
            assert not [error for _, error in got if error]
            results = sorted((result for result, _ in got), key=lambda result: int(result.get_response().id))
    assert [result.as_numpy("OUTPUT0")[0, 0] for result in results] == list(range(40))


def test_a_stream_of_requests(server):
    answers = queue.Queue()
    with connect(grpcclient, server) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for i in range(20):
            client.async_stream_infer("batched", [tensor_of(grpcclient, np.full((1, 2), i, dtype=np.int32), "INT32")], request_id=str(i))
        got = [answers.get(timeout=90) for _ in range(20)]
        client.stop_stream()
    assert not [error for _, error in got if error]
    assert {int(result.get_response().id): result.as_numpy("OUTPUT0")[0, 0] for result, _ in got} == {i: i for i in range(20)}


@pytest.mark.parametrize("module", [pytest.param(httpaio, id="http"), pytest.param(grpcaio, id="grpc")])
def test_asyncio(server, module):
    blocking = httpclient if module is httpaio else grpcclient

    async def talk():
        async with connect(module, server) as client:
            assert await client.is_server_ready() and await client.is_model_ready("batched")
            assert (await client.get_model_metadata("batched")) is not None
            arrays = [np.full((1, 2), i, dtype=np.int32) for i in range(20)]
            results = await asyncio.gather(*(client.infer("batched", [tensor_of(blocking, array, "INT32")]) for array in arrays))
            with pytest.raises(InferenceServerException, match="nosuch"):
                await client.infer("nosuch", [tensor_of(blocking, arrays[0], "INT32")])
            return [result.as_numpy("OUTPUT0")[0, 0] for result in results]

    assert asyncio.run(talk()) == list(range(20))


def test_asyncio_streams(server):
    async def talk():
        async def requests():
            for i in range(5):
                yield {"model_name": "batched", "inputs": [tensor_of(grpcclient, np.full((1, 2), i, dtype=np.int32), "INT32")]}

        async with connect(grpcaio, server) as client:
            answers = []
            async for result, error in client.stream_infer(requests()):
                assert error is None
                answers.append(result.as_numpy("OUTPUT0")[0, 0])
                if len(answers) == 5:
                    break
            return answers

    assert sorted(asyncio.run(talk())) == list(range(5))


@pytest.mark.parametrize("module", MODULES)
def test_priority_timeout_and_parameters_pass(server, module):
    with connect(module, server) as client:
        assert client.infer("batched", [tensor_of(module, np.ones((1, 2), dtype=np.int32), "INT32")], priority=1, timeout=60_000_000,
                            parameters={"mine": "yes"}).as_numpy("OUTPUT0").tolist() == [[1, 1]]
