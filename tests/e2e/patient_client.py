"""Requests over gRPC to the models of the test backends `patient` and `ticker` (the fixture patient_repository), which answer after the requested
time and count running and cancelled requests."""
import grpc
from tritonclient.grpc import service_pb2 as pb
from waiting import wait_for


def connect(server):
    return grpc.insecure_channel(f"127.0.0.1:{server.grpc}", options=[("grpc.use_local_subchannel_pool", 1),
                                                                      ("grpc.max_receive_message_length", -1)])


def request(model, count=1, interval_ms=0, size=0, id_=""):
    one = pb.ModelInferRequest(model_name=model, id=id_)
    for name, value in (("COUNT", count), ("INTERVAL_MS", interval_ms), ("SIZE", size)):
        one.inputs.add(name=name, datatype="INT32", shape=[1]).contents.int_contents.append(value)
    return one


def counters(stub):
    """Returns the running and the cancelled requests of the whole server."""
    response = stub.ModelInfer(pb.ModelInferRequest(model_name="counters"), timeout=60)
    values = {output.name: int.from_bytes(data, "little") for output, data in zip(response.outputs, response.raw_output_contents)}
    return values["RUNNING"], values["CANCELLED"]


def expect_cancelled(stub, before, count):
    wait_running(stub, 0)
    assert counters(stub)[1] == before + count


def wait_running(stub, count):
    wait_for(lambda: counters(stub)[0] == count, lambda: f"{count} running requests, now {counters(stub)[0]}")
