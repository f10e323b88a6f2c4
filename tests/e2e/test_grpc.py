"""gRPC with standard clients, for behaviour that the recorded answers do not cover. The models are those of the recordings; the `golden` backend
replaces the Python backend."""
import asyncio
import pathlib
import queue
import shutil
import threading

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client
import tritonclient.grpc.aio as aio_client
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server(start_server, test_backends, tmp_path_factory):
    repository = tmp_path_factory.mktemp("grpc") / "repo"
    shutil.copytree(ROOT / "tests/golden/repo", repository, ignore=shutil.ignore_patterns("seq*"))
    (repository / "ens/1").mkdir(exist_ok=True)
    return start_server(repository, [test_backends, "--allow-inline-models", "--model-control-mode=explicit", "--load-model=*",
                                     "--grpc-header-forward-pattern=x-fwd-.*"])


@pytest.fixture
def triton(server):
    with client.InferenceServerClient(f"127.0.0.1:{server.grpc}") as one:
        yield one


@pytest.fixture
def stub(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}", options=[("grpc.max_receive_message_length", -1),
                                                                   ("grpc.max_send_message_length", -1)]) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def tensor(name, array, datatype):
    one = client.InferInput(name, list(array.shape), datatype)
    one.set_data_from_numpy(array)
    return one


def typed_request(model, name, datatype, shape, **contents):
    request = pb.ModelInferRequest(model_name=model)
    one = request.inputs.add(name=name, datatype=datatype, shape=shape)
    for field, values in contents.items():
        getattr(one.contents, field).extend(values)
    return request


def identity(value=1.0, **fields):
    request = typed_request("identity_fp32", "INPUT0", "FP32", [1], fp32_contents=[value])
    request.MergeFrom(pb.ModelInferRequest(**fields))
    return request


def refusal(call, *args, **kwargs):
    with pytest.raises(grpc.RpcError) as caught:
        call(*args, timeout=60, **kwargs)
    return caught.value.code(), caught.value.details()


# ---- inference

def test_sync_client_gets_its_tensor_back(triton):
    data = np.arange(16, dtype=np.float32)
    result = triton.infer("identity_fp32", [tensor("INPUT0", data, "FP32")], request_id="7")
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), data)
    assert result.get_response().id == "7"


def test_async_client_runs_many_requests_at_once(server):
    async def run():
        async with aio_client.InferenceServerClient(f"127.0.0.1:{server.grpc}") as one:
            async def infer(value):
                result = await one.infer("identity_fp32", [tensor("INPUT0", np.array([value], np.float32), "FP32")])
                return result.as_numpy("OUTPUT0")[0]
            return await asyncio.gather(*[infer(value) for value in range(200)])
    assert asyncio.run(run()) == list(range(200))


@pytest.mark.parametrize("count", [1, 2_000, 70_000, 1_000_003, 8 << 20])
def test_tensors_of_every_size_are_returned_completely(stub, count):
    request = pb.ModelInferRequest(model_name="identity_fp32", id="big")
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[count])
    data = np.random.default_rng(count).random(count, dtype=np.float32).tobytes()
    request.raw_input_contents.append(data)
    response = stub.ModelInfer(request, timeout=60)
    assert list(response.outputs[0].shape) == [count]
    assert response.raw_output_contents[0] == data


def test_string_tensors_keep_any_bytes(triton):
    strings = np.array([b"", b"\x00\xff", "Grüße".encode(), b"x" * 100_000], dtype=np.object_)
    result = triton.infer("identity_string", [tensor("INPUT0", strings, "BYTES")])
    assert list(result.as_numpy("OUTPUT0")) == list(strings)


def test_an_empty_tensor_comes_back_empty(stub):
    request = pb.ModelInferRequest(model_name="identity_fp32")
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[0])
    assert list(stub.ModelInfer(request, timeout=60).outputs[0].shape) == [0]


def test_parameters_of_every_type_reach_the_backend(triton):
    given = {"number": 3, "text": "ü", "flag": True, "real": 0.25}
    result = triton.infer("params", [tensor("INPUT0", np.array([1], np.int32), "INT32")], parameters=given,
                          headers={"x-fwd-who": "me", "x-other": "no"}, timeout=5_000_000)
    text = result.as_numpy("OUTPUT0")[0].decode()
    for part in ('"number": 3', '"flag": true', '"real": 0.25', '"x-fwd-who": "me"', '"timeout": 5000000'):
        assert part in text
    assert "x-other" not in text


def test_metadata_may_have_blanks_at_its_ends(triton):
    inputs = [tensor("INPUT0", np.array([1], np.int32), "INT32")]
    text = triton.infer("params", inputs, headers={"x-fwd-who": "a backslash\\ "}).as_numpy("OUTPUT0")[0].decode()
    assert '"x-fwd-who": "a backslash\\\\' in text


@pytest.mark.parametrize("key, value, status", [
    ("sequence_id", {"bool_param": True}, "INVALID_ARGUMENT"), ("sequence_start", {"int64_param": 1}, "INVALID_ARGUMENT"),
    ("priority", {"int64_param": -1}, "INVALID_ARGUMENT"), ("timeout", {"int64_param": -1}, "INVALID_ARGUMENT"),
    ("timeout", {"string_param": "1"}, "INVALID_ARGUMENT"), ("triton_own", {"int64_param": 1}, "INVALID_ARGUMENT"),
    ("triton_enable_empty_final_response", {"string_param": "x"}, "INVALID_ARGUMENT"), ("custom", {}, "INVALID_ARGUMENT"),
    ("custom", {"uint64_param": 1}, "INVALID_ARGUMENT"), ("timeout", {"uint64_param": 1}, "INVALID_ARGUMENT")])
def test_a_bad_parameter_is_named(stub, key, value, status):
    request = typed_request("params", "INPUT0", "INT32", [1], int_contents=[1])
    request.parameters[key].CopyFrom(pb.InferParameter(**value))
    code, details = refusal(stub.ModelInfer, request)
    # As in Triton, the error names the prefix of the reserved name.
    assert code.name == status and f"'{'triton_' if key == 'triton_own' else key}'" in details


def test_classification_ranks_ties_by_index_and_nan_last(stub):
    request = typed_request("identity_fp32", "INPUT0", "FP32", [4], fp32_contents=[1.0, float("nan"), 2.0, 1.0])
    request.outputs.add(name="OUTPUT0").parameters["classification"].int64_param = 9
    response = stub.ModelInfer(request, timeout=60)
    assert response.outputs[0].datatype == "BYTES" and list(response.outputs[0].shape) == [4]
    assert response.raw_output_contents[0] == b"".join(
        len(text).to_bytes(4, "little") + text for text in (b"2.000000:2", b"1.000000:0", b"1.000000:3", b"nan:1"))


def test_classification_of_an_empty_tensor_is_empty(stub):
    request = typed_request("identity_fp32", "INPUT0", "FP32", [0], fp32_contents=[])
    request.outputs.add(name="OUTPUT0").parameters["classification"].int64_param = 1
    response = stub.ModelInfer(request, timeout=60)
    assert list(response.outputs[0].shape) == [0] and response.raw_output_contents[0] == b""


def test_classification_of_strings_is_refused(stub):
    request = typed_request("identity_string", "INPUT0", "BYTES", [1], bytes_contents=[b"a"])
    request.outputs.add(name="OUTPUT0").parameters["classification"].int64_param = 1
    code, details = refusal(stub.ModelInfer, request)
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "unsupported type 'BYTES'" in details


# ---- refusals

def surplus_raw():
    request = pb.ModelInferRequest(model_name="identity_fp32", raw_input_contents=[b"1234", b"5678"])
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[1])
    return request


def raw(shape, data, datatype="FP32", model="identity_fp32"):
    request = pb.ModelInferRequest(model_name=model, raw_input_contents=[data])
    request.inputs.add(name="INPUT0", datatype=datatype, shape=shape)
    return request


def with_shared_memory(side, **more):
    request = identity()
    one = request.inputs[0] if side == "input" else request.outputs.add(name="OUTPUT0")
    one.parameters["shared_memory_region"].string_param = "region"
    for key, value in more.items():
        setattr(one.parameters[key], "string_param" if isinstance(value, str) else "int64_param", value)
    return request


@pytest.mark.parametrize("request_, status, part", [
    (surplus_raw(), "INVALID_ARGUMENT", "expected 1 entries, one an input, got 2"),
    (raw([1 << 62], b"1234"), "INVALID_ARGUMENT", "'INPUT0'"),
    (raw([1 << 31, 1 << 31, 1 << 31], b"1234"), "INVALID_ARGUMENT", "'INPUT0'"),
    (raw([-1], b"1234"), "INVALID_ARGUMENT", "'INPUT0'"),
    (raw([-(1 << 63)], b"1234"), "INVALID_ARGUMENT", "'INPUT0'"),
    (raw([2], b"1234"), "INVALID_ARGUMENT", "'INPUT0'"),
    (raw([1], b"1234", datatype="FP99"), "INVALID_ARGUMENT", "'INPUT0'"),
    (raw([1], b"1234", datatype=""), "INVALID_ARGUMENT", "'<invalid>'"),
    (raw([1], b"\x05\0\0\0hi", "BYTES", "identity_string"), "INVALID_ARGUMENT", "'INPUT0'"),
    (raw([1], b"\xff\xff\xff\xffhi", "BYTES", "identity_string"), "INVALID_ARGUMENT", "'INPUT0'"),
    (raw([3], b"\x01\0\0\0h", "BYTES", "identity_string"), "INVALID_ARGUMENT", "'INPUT0'"),
    (typed_request("identity_fp32", "INPUT0", "FP32", [1]), "INVALID_ARGUMENT", "'INPUT0'"),
    (typed_request("identity_fp32", "INPUT0", "FP32", [1], fp32_contents=[1], int_contents=[1]), "INVALID_ARGUMENT", "'INT32'"),
    (typed_request("dtypes", "I_INT8", "INT8", [1], int_contents=[128]), "INVALID_ARGUMENT", "128 does not fit INT8"),
    (with_shared_memory("input"), "INVALID_ARGUMENT", "'shared_memory_byte_size'"),
    (with_shared_memory("output"), "INVALID_ARGUMENT", "'shared_memory_byte_size'"),
    (with_shared_memory("output", shared_memory_offset=-1), "INVALID_ARGUMENT", "'shared_memory_byte_size' must be specified"),
    (with_shared_memory("output", shared_memory_offset=-1, shared_memory_byte_size=4), "NOT_FOUND", "Unable to find shared memory region: 'region'"),
    (with_shared_memory("output", shared_memory_offset=-1, shared_memory_byte_size=-4), "NOT_FOUND", "Unable to find shared memory region: 'region'"),
    (with_shared_memory("output", shared_memory_byte_size=4, classification=1), "INVALID_ARGUMENT", "can't set both"),
    (with_shared_memory("output", shared_memory_byte_size=4, classification="1"), "INVALID_ARGUMENT", "invalid value type for 'classification'"),
    (identity(model_version="1x"), "INVALID_ARGUMENT", "'1x'"),
    (identity(model_version="-3"), "INVALID_ARGUMENT", "'-3'"),
    (identity(model_version="9"), "NOT_FOUND", "version 9"),
    (identity(model_version="9" * 40), "INVALID_ARGUMENT", "version string"),
])
def test_a_bad_request_is_refused_and_the_next_one_served(stub, request_, status, part):
    code, details = refusal(stub.ModelInfer, request_)
    assert code.name == status and part in details
    assert stub.ModelInfer(identity(), timeout=60).raw_output_contents


def with_parameter(key, text):
    return identity(parameters={key: pb.InferParameter(string_param=text)})


# The core takes strings that end at the first zero byte, so the part before it names something else.
@pytest.mark.parametrize("method, request_", [
    ("ModelInfer", raw([1], b"1234", model="identity_fp32\0x")), ("ModelInfer", identity(id="a\0b")),
    ("ModelInfer", typed_request("identity_fp32", "INPUT0\0x", "FP32", [1], fp32_contents=[1])),
    ("ModelInfer", identity(outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="OUTPUT0\0x")])),
    ("ModelInfer", with_parameter("sequence_id", "a\0b")), ("ModelInfer", with_parameter("custom", "a\0b")), ("ModelInfer", with_parameter("a\0b", "c")),
    ("ModelReady", pb.ModelReadyRequest(name="identity_fp32\0x")), ("ModelMetadata", pb.ModelMetadataRequest(name="identity_fp32\0x")),
    ("ModelConfig", pb.ModelConfigRequest(name="identity_fp32\0x")), ("ModelStatistics", pb.ModelStatisticsRequest(name="identity_fp32\0x")),
    ("TraceSetting", pb.TraceSettingRequest(model_name="identity_fp32\0x")),
    ("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="identity_fp32\0x")),
    ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="identity_fp32\0x")),
    ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="identity_fp32", parameters={
        "config": pb.ModelRepositoryParameter(string_param="{}\0")})),
])
def test_a_zero_byte_does_not_cut_a_text_short(stub, method, request_):
    code, details = refusal(getattr(stub, method), request_)
    assert code.name == "INVALID_ARGUMENT" and "holds a zero byte" in details
    assert stub.ModelInfer(identity(), timeout=60).raw_output_contents


def test_a_zero_byte_of_forwarded_metadata_is_refused(stub):
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(identity(), timeout=60, metadata=[("x-fwd-text-bin", b"a\0b")])
    assert refused.value.code().name == "INVALID_ARGUMENT" and "'x-fwd-text-bin' holds a zero byte" in refused.value.details()


@pytest.mark.parametrize("body", [b"\xff\xff\xff", b"\x3a\xff\xff\xff\xff\x0f", b"\x2a\x05ab", b"\x0a\x02\xff\xfe", bytes(1000)])
def test_garbage_is_no_request(server, body):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        for method in ("ModelInfer", "ModelMetadata", "RepositoryModelLoad"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(f"/inference.GRPCInferenceService/{method}")(body, timeout=60)
            assert caught.value.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)
        with pytest.raises(grpc.RpcError) as caught:
            list(channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(iter([body]), timeout=60))
        assert caught.value.code() == grpc.StatusCode.INTERNAL
    assert server.alive()


def test_an_unknown_method_is_unimplemented(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        code, _ = refusal(channel.unary_unary("/inference.GRPCInferenceService/NoSuchMethod"), b"")
    assert code == grpc.StatusCode.UNIMPLEMENTED


# ---- health, reflection, log, repository

def health(server, service):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        request = bytes([0x0a, len(service)]) + service.encode() if service else b""
        return channel.unary_unary("/grpc.health.v1.Health/Check")(request, timeout=60)


@pytest.mark.parametrize("service", ["", "inference.GRPCInferenceService", "identity_fp32"])
def test_health_reports_serving_for_ready_models(server, service):
    assert health(server, service) == b"\x08\x01"


@pytest.mark.parametrize("service", ["nosuch", "identity_fp32\0x"])
def test_health_knows_no_other_service(server, service):
    with pytest.raises(grpc.RpcError) as caught:
        health(server, service)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND and f"'{service}'" in caught.value.details()


def test_watch_reports_unload_and_load_of_a_model(server, triton):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
        states = watch(b"\x0a\x05autoc", timeout=60)
        assert next(states) == b"\x08\x01"
        triton.unload_model("autoc")
        assert next(states) == b"\x08\x02"
        triton.load_model("autoc")
        assert next(states) == b"\x08\x01"
        states.cancel()
        unknown = watch(b"\x0a\x06nosuch", timeout=60)
        assert next(unknown) == b"\x08\x03"
        unknown.cancel()


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_lists_the_services(server, version):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        call = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
        answer = next(iter(call(iter([b"\x3a\x00"]), timeout=60)))  # reflection's list_services
    assert b"inference.GRPCInferenceService" in answer and b"grpc.health.v1.Health" in answer


def test_binary_metadata_is_forwarded_decoded(stub):
    request = typed_request("params", "INPUT0", "INT32", [1], int_contents=[1])
    response = stub.ModelInfer(request, timeout=60, metadata=[("x-fwd-who-bin", b"me, and more"), ("x-fwd-plain", "text")])
    assert b'"x-fwd-who-bin": "me, and more"' in response.raw_output_contents[0]
    assert b'"x-fwd-plain": "text"' in response.raw_output_contents[0]


def test_log_settings_change_and_refuse(triton):
    before = triton.get_log_settings(as_json=True)["settings"]
    changed = triton.update_log_settings({"log_verbose_level": 1, "log_info": False}, as_json=True)["settings"]
    assert changed["log_verbose_level"] == {"uint32_param": 1} and changed["log_info"] == {"bool_param": False}
    triton.update_log_settings({"log_verbose_level": before["log_verbose_level"].get("uint32_param", 0), "log_info": True})
    for bad in ({"log_nosuch": True}, {"log_info": None}, {"log_format": "x"}):
        with pytest.raises(InferenceServerException, match="INVALID_ARGUMENT"):
            triton.update_log_settings(bad)


def test_a_model_is_loaded_with_another_config(triton):
    triton.load_model("identity_int32", config="""{"backend": "python", "max_batch_size": 4,
        "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [2]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [2]}]}""")
    assert triton.get_model_config("identity_int32").config.max_batch_size == 4
    triton.load_model("identity_int32")  # its folder is unchanged
    assert triton.get_model_config("identity_int32").config.max_batch_size == 4
    triton.unload_model("identity_int32")
    triton.load_model("identity_int32")
    assert triton.get_model_config("identity_int32").config.max_batch_size == 0


@pytest.mark.parametrize("parameters, part", [({"config": pb.ModelRepositoryParameter(int64_param=1)}, "'config'"),
                                              ({"zzz": pb.ModelRepositoryParameter(int64_param=1)}, "'zzz'"),
                                              ({"file:1/x": pb.ModelRepositoryParameter(string_param="x")}, "'file:1/x'"),
                                              ({"config": pb.ModelRepositoryParameter(string_param="{")}, "JSON")])
def test_a_bad_load_is_refused_and_the_model_stays(stub, parameters, part):
    request = pb.RepositoryModelLoadRequest(model_name="identity_fp32", parameters=parameters)
    code, details = refusal(stub.RepositoryModelLoad, request)
    assert code == grpc.StatusCode.INVALID_ARGUMENT and part in details
    assert stub.ModelInfer(identity(), timeout=60).raw_output_contents


def test_a_repository_cannot_be_named(stub):
    code, _ = refusal(stub.RepositoryIndex, pb.RepositoryIndexRequest(repository_name="x"))
    assert code == grpc.StatusCode.UNIMPLEMENTED


# ---- streams

def repeat(count, id_="r", **parameters):
    request = typed_request("repeat", "IN", "INT32", [1], int_contents=[count])
    request.id = id_
    for key, value in parameters.items():
        request.parameters[key].bool_param = value
    return request


def slow(seconds, id_):
    request = typed_request("slow", "INPUT0", "FP32", [1, 1], fp32_contents=[seconds])
    request.id = id_
    return request


def test_stream_client_gets_every_response(triton):
    heard = queue.Queue()
    triton.start_stream(callback=lambda result, error: heard.put(error or result))
    for sequence in range(3):
        triton.async_stream_infer("repeat", [tensor("IN", np.array([5], np.int32), "INT32")], request_id=str(sequence),
                                  enable_empty_final_response=True)
    messages = [heard.get(timeout=60).get_response() for _ in range(18)]
    triton.stop_stream()
    for sequence in range(3):
        own = [message for message in messages if message.id == str(sequence)]
        assert [message.parameters["triton_final_response"].bool_param for message in own] == [False] * 5 + [True]
        assert [np.frombuffer(message.raw_output_contents[0], np.int32)[0] for message in own[:5]] == list(range(5))


def test_async_stream_ends_with_its_requests(server):
    async def run():
        async with aio_client.InferenceServerClient(f"127.0.0.1:{server.grpc}") as one:
            async def requests():
                for count in range(4):
                    yield {"model_name": "repeat", "inputs": [tensor("IN", np.array([count], np.int32), "INT32")]}
            return [result.as_numpy("OUT")[0] async for result, error in one.stream_infer(requests()) if error is None]
    assert sorted(asyncio.run(run())) == [0, 0, 0, 1, 1, 2]


def test_responses_keep_the_order_of_requests_unless_decoupled(stub):
    requests = [slow(0.5, "slow"), repeat(2, "decoupled"), identity(id="fast"), identity(model_version="9", id="refused"),
                identity(id="last")]
    answers = list(stub.ModelStreamInfer(iter(requests), timeout=60))
    assert [answer.infer_response.id for answer in answers] == ["decoupled", "decoupled", "slow", "fast", "refused", "last"]
    assert "version 9" in answers[4].error_message


def test_an_error_leaves_the_stream_open(stub):
    fail = typed_request("fail", "INPUT0", "INT32", [1], int_contents=[5])
    fail.id = "failing"
    answers = list(stub.ModelStreamInfer(iter([fail, identity(id="next")]), timeout=60))
    assert [(answer.error_message, answer.infer_response.id) for answer in answers] == [("error 5", "failing"), ("", "next")]


def test_an_error_ends_a_strict_stream_with_its_status(stub):
    responses = stub.ModelStreamInfer(iter([repeat(-2)]), metadata=(("triton_grpc_error", "true"),), timeout=60)
    assert [next(responses).infer_response.id for _ in range(2)] == ["r", "r"]
    with pytest.raises(grpc.RpcError) as caught:
        next(responses)
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.INTERNAL, "stream error")
    assert stub.ModelInfer(identity(), timeout=60).raw_output_contents


def test_a_refused_request_ends_a_strict_stream_too(stub):
    hold = threading.Event()

    def requests():
        yield identity(model_version="9")
        hold.wait(20)  # the client keeps its side open

    code, details = None, None
    try:
        list(stub.ModelStreamInfer(requests(), metadata=(("triton_grpc_error", "true"),), timeout=60))
    except grpc.RpcError as error:
        code, details = error.code(), error.details()
    hold.set()
    assert code == grpc.StatusCode.NOT_FOUND and "version 9" in details


def test_hundreds_of_streams_share_the_server(server):
    async def run():
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc}")
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        async def one(index):
            call = stub.ModelStreamInfer(iter([repeat(20, str(index))]), timeout=60)
            return [message.infer_response.id async for message in call]

        answers = await asyncio.gather(*[one(index) for index in range(300)])
        await channel.close()
        return answers
    for index, ids in enumerate(asyncio.run(run())):
        assert ids == [str(index)] * 20
