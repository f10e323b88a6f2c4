"""Compares the gRPC port with a server on gRPC's own C++ library (tests/grpc_oracle), which implements the same methods: calls frame by frame, well-formed
and malformed (http2_cases.py), and calls of gRPC's C++ client and of Python's grpcio. Skipped where that library was not installed when the tests were
built. Where Nereid answers otherwise, grpc_differences.toml says why."""
import os
import pathlib
import subprocess
import threading
import tomllib

import grpc
import pytest
from http2_cases import CASES, MAX_MESSAGE_BYTES, WITHOUT_PROBE, outcome
from tritonclient.grpc import service_pb2, service_pb2_grpc

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden/repo"


@pytest.fixture(scope="module")
def programs(test_backends):
    folder = pathlib.Path(os.environ["NEREID_TEST_BACKENDS"]).parent / "programs"
    if not (folder / "grpc_oracle_server").exists():
        pytest.skip("tests/grpc_oracle is not built: libgrpc++-dev and protobuf-compiler-grpc are not installed")
    return folder


class Oracle:
    def __init__(self, program):
        self.process = subprocess.Popen([program, str(MAX_MESSAGE_BYTES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)
        self.grpc = int(self.process.stdout.readline())

    def begin_stop(self):
        self.process.stdin.close()

    def wait(self):
        return self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def oracle(programs):
    running = Oracle(programs / "grpc_oracle_server")
    yield running
    running.begin_stop()
    assert running.wait() == 0


@pytest.fixture(scope="module")
def start(start_server, test_backends):
    return lambda: start_server(GOLDEN, [test_backends, "--model-control-mode=explicit", "--load-model=identity_fp32",
                                         f"--grpc-max-message-size={MAX_MESSAGE_BYTES}"])


@pytest.fixture(scope="module")
def server(start):
    return start()


def test_frames_are_answered_as_by_grpc(server, oracle):
    differences = {case: entry for entry in tomllib.loads((HERE / "grpc_differences.toml").read_text())["difference"] for case in entry["cases"]}
    assert differences.keys() <= CASES.keys()
    surprises = []
    for name, (frames, streams) in CASES.items():
        expected, found = (outcome(port, frames, streams, name != WITHOUT_PROBE) for port in (oracle.grpc, server.grpc))
        if name in differences:
            expected = differences[name]["nereid"]
        if found != expected:
            surprises.append(f"{name}: expected '{expected}', got '{found}'")
    assert server.alive() and not surprises, "\n".join(surprises)


# What the two C++ clients see may differ only here. The second value is Nereid's.
CLIENT_DIFFERENCES = {
    # nghttp2 takes a header of more than 64 KiB for an error of compression, which ends the connection.
    "metadata of 100000 bytes": "metadata of 100000 bytes: code 14, no tensor",
}


def test_the_cpp_client_sees_the_same_as_with_grpc(server, oracle, programs):
    seen = []
    for port in (oracle.grpc, server.grpc):
        done = subprocess.run([programs / "grpc_oracle_client", f"127.0.0.1:{port}", str(MAX_MESSAGE_BYTES)], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        seen.append(done.stdout.splitlines())
    expected = [CLIENT_DIFFERENCES.get(line.split(":")[0], line) for line in seen[0]]
    assert len(expected) > 20 and seen[1] == expected


def stop_during_a_stream(running, program):
    """Begins to stop the server while the client has a stream open. Returns the client's lines and the server's exit code."""
    with subprocess.Popen([program, f"127.0.0.1:{running.grpc}", str(MAX_MESSAGE_BYTES), "shutdown"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as client:
        assert client.stdout.readline() == "open\n"
        running.begin_stop()
        # The server no longer accepts connections once it stops.
        while connects(running.grpc):
            pass
        lines, _ = client.communicate("go on\n", timeout=60)
        return lines.splitlines(), running.wait()


def connects(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ServerLive(service_pb2.ServerLiveRequest(), timeout=5)
            return True
        except grpc.RpcError:
            return False


def test_a_stop_refuses_what_is_new(start, programs):
    """gRPC's server would answer further messages of a stream. Nereid ends a stream that has no request in flight, or answers with an error."""
    ends = stop_during_a_stream(Oracle(programs / "grpc_oracle_server"), programs / "grpc_oracle_client")
    assert ends == (["stream during a stop: code 0, first response, second response", "call after a stop: code 14"], 0)
    (stream, call), code = stop_during_a_stream(start(), programs / "grpc_oracle_client")
    assert stream in [f"stream during a stop: code {each}, first response" for each in (0, 14)]
    assert (call, code) == ("call after a stop: code 14", 0)


def request(num_values=2, size=None):
    """An inference request, padded to `size` bytes."""
    message = service_pb2.ModelInferRequest(model_name="identity_fp32", id="i" * 200, raw_input_contents=[bytes(4 * num_values)])
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[num_values])
    message.id += "i" * ((size or 0) - message.ByteSize() if size else 0)
    return message


def what_grpcio_sees(port, attempts=1):
    """Yields (name, what happened) of calls with Python's client. A call that ends with UNAVAILABLE is repeated until the last of the attempts."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]

    def ends(name, invoke):
        for attempt in range(attempts):
            try:
                return name, "OK", invoke()
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE or attempt == attempts - 1:
                    return name, error.code().name, None

    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        def infer(message, **more):
            return list(stub.ModelInfer(message, **{"timeout": 30, **more}).raw_output_contents) == list(message.raw_input_contents)

        def stream(count, **more):
            return sum(not each.error_message for each in stub.ModelStreamInfer(iter([request()] * count), **{"timeout": 30, **more}))

        def open_stream(messages, timeout):
            """Sends the messages and then neither sends nor ends the stream."""
            end = threading.Event()

            def send():
                yield from messages
                end.wait()

            call = stub.ModelStreamInfer(send(), timeout=timeout)
            call.add_callback(end.set)
            return call

        def cancelled():
            call = open_stream([request()], 30)
            next(call)
            call.cancel()
            return list(call)

        yield ends("infer", lambda: infer(request(100_000)))
        for algorithm in (grpc.Compression.Gzip, grpc.Compression.Deflate, grpc.Compression.NoCompression):
            yield ends(f"compression {algorithm.name}", lambda: infer(request(100_000), compression=algorithm))
            yield ends(f"compression {algorithm.name} of a stream", lambda: stream(3, compression=algorithm))
        metadata = (("a", "b"), ("a", "c"), ("empty", ""), ("x-bin", bytes(range(256))), ("empty-bin", b""))
        yield ends("metadata", lambda: infer(request(), metadata=metadata))
        for size in (6_000, 40_000):
            yield ends(f"metadata of {size} bytes", lambda: infer(request(), metadata=(("long", "x" * size),)))
        for size in (MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES + 1):
            yield ends(f"a message of {size} bytes", lambda: infer(request(size=size)))
        for count in (0, 1, 20):
            yield ends(f"a stream of {count}", lambda: stream(count))
        yield ends("a deadline in the past", lambda: infer(request(), timeout=-1))
        yield ends("a deadline of a silent stream", lambda: list(open_stream([], 0.1)))
        yield ends("a cancelled stream", cancelled)
        yield ends("an unknown method", lambda: channel.unary_unary("/inference.GRPCInferenceService/Nothing")(b"", timeout=30))
        yield ends("not protobuf", lambda: channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"\xff\xff", timeout=30))
        calls = [stub.ModelInfer.future(request(1000), timeout=30) for _ in range(300)]
        yield ends("300 calls at once", lambda: sum(len(call.result().raw_output_contents[0]) for call in calls))


def test_grpcio_sees_the_same_as_with_grpc(server, oracle):
    # gRPC's own server sometimes resets a call that it refuses while its message still arrives; the client then sees UNAVAILABLE.
    expected, found = list(what_grpcio_sees(oracle.grpc, attempts=5)), list(what_grpcio_sees(server.grpc))
    assert found == expected
