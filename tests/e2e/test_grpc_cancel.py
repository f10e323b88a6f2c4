"""gRPC clients that disconnect, wait too long, read too slowly or send too much. The `patient` backend answers after the requested time and counts
running and cancelled requests."""
import asyncio
import socket
import threading

import grpc
import pytest
from patient_client import connect, counters, expect_cancelled, request, wait_running
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from waiting import wait_for

FOREVER_MS = 3_600_000


@pytest.fixture(scope="module")
def server(start_server, patient_repository, test_backends):
    return start_server(patient_repository, [test_backends])


@pytest.fixture
def stub(server):
    with connect(server) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def test_a_cancelled_call_cancels_its_request(stub):
    before = counters(stub)[1]
    call = stub.ModelInfer.future(request("waiter", interval_ms=FOREVER_MS))
    wait_running(stub, 1)
    call.cancel()
    expect_cancelled(stub, before, 1)


def test_a_deadline_cancels_its_request(stub):
    before = counters(stub)[1]
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(request("waiter", interval_ms=FOREVER_MS), timeout=0.3)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    expect_cancelled(stub, before, 1)


def test_a_lost_connection_cancels_its_requests(server, stub):
    before = counters(stub)[1]
    channel = connect(server)
    other = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    _calls = [other.ModelInfer.future(request("waiter", interval_ms=FOREVER_MS)) for _ in range(5)]  # kept alive until the channel closes
    wait_running(stub, 5)
    channel.close()
    expect_cancelled(stub, before, 5)


@pytest.mark.parametrize("num_heard", [0, 3])
def test_a_cancelled_stream_cancels_its_requests(stub, num_heard):
    before = counters(stub)[1]
    hold = threading.Event()

    def requests():
        yield request("ticker", count=num_heard, id_="done")
        yield request("ticker", count=-1, interval_ms=FOREVER_MS)
        yield request("waiter", interval_ms=FOREVER_MS)
        hold.wait(60)

    call = stub.ModelStreamInfer(requests())
    for _ in range(num_heard):
        next(call)
    wait_running(stub, 2)
    call.cancel()
    hold.set()
    expect_cancelled(stub, before, 2)


def test_a_half_closed_stream_still_gets_its_responses(stub):
    answers = stub.ModelStreamInfer(iter([request("ticker", count=3, interval_ms=50)]), timeout=60)
    assert len(list(answers)) == 3


def test_a_stopping_server_takes_no_more_requests_of_a_stream(start_server, patient_repository, test_backends):
    server = start_server(patient_repository, [test_backends])
    is_stopping = threading.Event()

    def requests():
        yield request("waiter", interval_ms=2000, id_="before")
        is_stopping.wait(60)
        yield request("waiter", id_="after")

    with connect(server) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        answers = stub.ModelStreamInfer(requests(), timeout=60)
        wait_running(stub, 1)
        server.process.terminate()
        wait_for(lambda: "Waiting for in-flight requests" in server.text(), "the server stops")
        is_stopping.set()
        heard = [next(answers) for _ in range(2)]
    assert [one.infer_response.id for one in heard] == ["before", "after"]
    assert [one.error_message for one in heard] == [
        "", "[request id: after] Server is stopping, scheduler for model has stopped accepting new inference requests"]
    assert server.process.wait(timeout=60) == 0


def test_a_strict_error_cancels_the_rest_of_its_stream(stub):
    before = counters(stub)[1]

    def requests():
        yield request("ticker", count=-1, interval_ms=FOREVER_MS)
        wait_running(stub, 1)
        yield pb.ModelInferRequest(model_name="nosuch")

    answers = stub.ModelStreamInfer(requests(), metadata=(("triton_grpc_error", "true"),), timeout=60)
    with pytest.raises(grpc.RpcError) as caught:
        list(answers)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    expect_cancelled(stub, before, 1)


def test_a_storm_of_cancels_leaves_nothing_behind(server, stub):
    async def storm():
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc}")
        other = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        async def one(index):
            model = "ticker" if index % 2 else "waiter"
            if index % 4 < 2:
                call = other.ModelInfer(request("waiter", interval_ms=FOREVER_MS))
            else:
                call = other.ModelStreamInfer(iter([request(model, count=-1, interval_ms=1 + index % 7)] * 3))
            await asyncio.sleep(0.001 * (index % 50))
            call.cancel()

        await asyncio.gather(*[one(index) for index in range(600)])
        await channel.close()

    asyncio.run(storm())
    wait_running(stub, 0)
    assert server.alive()


def test_sockets_closed_in_mid_message_do_no_harm(server, stub):
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    for tail in (b"", b"\x00\x00\xff\x01\x04", b"\xff" * 100, bytes([0, 0, 4, 8, 0, 0, 0, 0, 0, 255, 255, 255, 255])):
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", server.grpc)) as one:
                one.sendall(preface + tail)
    assert counters(stub)[0] == 0


def test_a_request_above_the_limit_is_refused_with_the_limit(start_server, patient_repository, test_backends):
    small = start_server(patient_repository, [test_backends, "--grpc-max-message-size=100000"])
    with connect(small) as channel:
        one = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        large = request("waiter", id_="x" * 200_000)
        for call in (lambda: one.ModelInfer(large, timeout=60), lambda: list(one.ModelStreamInfer(iter([large]), timeout=60))):
            with pytest.raises(grpc.RpcError) as caught:
                call()
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "100000" in caught.value.details()
        assert counters(one) == (0, 0)


def test_a_reader_that_is_too_slow_loses_its_stream(start_server, patient_repository, test_backends):
    strict = start_server(patient_repository, [test_backends, "--grpc-max-unsent-size=4000000", "--grpc-write-timeout=300"])
    with connect(strict) as channel, connect(strict) as other:
        watcher = service_pb2_grpc.GRPCInferenceServiceStub(other)
        answers = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(
            iter([request("ticker", count=-1, interval_ms=1, size=1_000_000)]))
        wait_running(watcher, 1)
        expect_cancelled(watcher, 0, 1)  # `answers` is not read
        with pytest.raises(grpc.RpcError) as caught:
            list(answers)
        assert caught.value.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED)


def test_a_stream_takes_so_many_requests_at_once_and_no_more(start_server, patient_repository, test_backends):
    narrow = start_server(patient_repository, [test_backends, "--grpc-max-requests-per-stream=4"])
    with connect(narrow) as channel, connect(narrow) as other:
        watcher = service_pb2_grpc.GRPCInferenceServiceStub(other)
        answers = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(
            iter([request("waiter", interval_ms=1500, id_=str(index)) for index in range(6)]), timeout=120)
        wait_running(watcher, 4)
        assert [counters(watcher)[0] for _ in range(50)] == [4] * 50
        assert [answer.infer_response.id for answer in answers] == [str(index) for index in range(6)]


def test_a_stop_waits_for_requests_and_ends_idle_streams(start_server, patient_repository, test_backends):
    stopping = start_server(patient_repository, [test_backends, "--exit-timeout-secs=3600"])  # more than the test's timeout
    with connect(stopping) as channel:
        one = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        hold = threading.Event()

        def requests():
            yield request("ticker", count=1)
            hold.wait(60)

        idle = one.ModelStreamInfer(requests())
        next(idle)
        busy = one.ModelInfer.future(request("waiter", interval_ms=1500))
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        assert next(watch) == b"\x08\x01"
        wait_running(one, 1)
        assert stopping.stop() == 0
        assert busy.result(timeout=60).raw_output_contents
        for stream in (idle, watch):
            with pytest.raises(grpc.RpcError) as caught:
                list(stream)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        hold.set()
