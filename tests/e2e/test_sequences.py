"""Sequences over HTTP and gRPC: the recordings' models `seq` (direct) and `seq_oldest`, which sum the values of each sequence."""
import itertools
import pathlib
import queue
import shutil
import threading

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

ROOT = pathlib.Path(__file__).resolve().parents[2]
FRESH = itertools.count(1000)


@pytest.fixture(scope="module")
def server(start_server, test_backends, tmp_path_factory):
    repository = tmp_path_factory.mktemp("sequences")
    for model in ("seq", "seq_oldest"):
        shutil.copytree(ROOT / "tests/golden/repo" / model, repository / model)
        config = repository / model / "config.pbtxt"
        # An idle timeout of an hour, so that no sequence times out in a slow test.
        config.write_text(config.read_text().replace("2000000", "3600000000"))
    return start_server(repository, [test_backends, "--model-control-mode=explicit", "--load-model=*"])


@pytest.fixture
def http(server):
    with http_client.InferenceServerClient(f"127.0.0.1:{server.http}") as one:
        yield one


@pytest.fixture
def grpc(server):
    with grpc_client.InferenceServerClient(f"127.0.0.1:{server.grpc}") as one:
        yield one


def value_of(module, value):
    one = module.InferInput("INPUT", [1, 1], "INT32")
    one.set_data_from_numpy(np.array([[value]], np.int32))
    return [one]


def send(client, module, model, value, **sequence):
    return int(client.infer(model, value_of(module, value), **sequence).as_numpy("OUTPUT")[0, 0])


@pytest.mark.parametrize("model", ["seq", "seq_oldest"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_sequence_has_a_sum_of_its_own(model, protocol, request):
    client, module = request.getfixturevalue(protocol), {"http": http_client, "grpc": grpc_client}[protocol]
    first, second = next(FRESH), next(FRESH)
    assert send(client, module, model, 5, sequence_id=first, sequence_start=True) == 5
    assert send(client, module, model, 70, sequence_id=second, sequence_start=True) == 70
    assert send(client, module, model, 7, sequence_id=first) == 12
    assert send(client, module, model, 1, sequence_id=first, sequence_end=True) == 13
    assert send(client, module, model, 1, sequence_id=second, sequence_end=True) == 71
    with pytest.raises(InferenceServerException, match=f"inference request for sequence {first} to model '{model}' must specify the START"):
        send(client, module, model, 1, sequence_id=first)


def test_more_sequences_than_slots_take_turns(server):
    """Eight concurrent sequences with four slots: each keeps its own sum, and none starves."""
    length, sums = 6, {}

    def run(sequence):
        with grpc_client.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
            for i in range(length):
                sums[sequence] = send(client, grpc_client, "seq", sequence, sequence_id=sequence, sequence_start=i == 0,
                                      sequence_end=i == length - 1)

    ids = [next(FRESH) for _ in range(8)]
    threads = [threading.Thread(target=run, args=(one,)) for one in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == {one: one * length for one in ids}


def test_a_stream_carries_several_sequences(grpc):
    answers = queue.Queue()
    grpc.start_stream(lambda result, error: answers.put((result, error)))
    ids = [next(FRESH) for _ in range(3)]
    for i in range(4):
        for one in ids:
            grpc.async_stream_infer("seq_oldest", value_of(grpc_client, one), request_id=f"{one} {i}", sequence_id=one,
                                    sequence_start=i == 0, sequence_end=i == 3)
    sums = {}
    for _ in range(12):
        result, error = answers.get(timeout=60)
        assert error is None, error
        sums[result.get_response().id] = int(result.as_numpy("OUTPUT")[0, 0])
    grpc.stop_stream()
    assert sums == {f"{one} {i}": one * (i + 1) for one in ids for i in range(4)}


def test_texts_name_sequences_of_a_numeric_control(http):
    texts = [f"text {next(FRESH)}" for _ in range(2)]
    for i in range(3):
        for value, text in enumerate(texts, 1):
            assert send(http, http_client, "seq", value, sequence_id=text, sequence_start=i == 0, sequence_end=i == 2) == value * (i + 1)


def test_open_sequences_do_not_hold_up_an_unload(http):
    one = next(FRESH)
    assert send(http, http_client, "seq", 1, sequence_id=one, sequence_start=True) == 1
    http.unload_model("seq")
    http.load_model("seq")
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        send(http, http_client, "seq", 1, sequence_id=one)
