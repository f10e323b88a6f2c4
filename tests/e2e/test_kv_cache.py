"""What stays in the prefix cache: retention priorities of requests, by tensors, by request parameters and through the ensemble; a file that survives the
model; events for readers."""
import json
import pathlib
import urllib.error
import urllib.request

import pytest
from waiting import wait_for

DEMO = pathlib.Path(__file__).resolve().parents[2] / "demo" / "model"
CONFIG = f"""backend: "cpu_reference"
max_batch_size: 0
parameters {{ key: "gpt_model_path" value {{ string_value: "{DEMO}" }} }}
parameters {{ key: "max_seq_len" value {{ string_value: "128" }} }}
parameters {{ key: "max_num_sequences" value {{ string_value: "2" }} }}
parameters {{ key: "max_tokens_in_paged_kv_cache" value {{ string_value: "160" }} }}
parameters {{ key: "enable_kv_cache_reuse" value {{ string_value: "true" }} }}
"""
RANGE = {"retention_token_range_starts": [0], "retention_token_range_ends": [-1], "retention_token_range_priorities": [90]}


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    (root / "llm" / "1").mkdir(parents=True)
    (root / "llm" / "config.pbtxt").write_text(CONFIG)
    return start_server(root)


def prompt(first):
    return [first + i for i in range(65)]


def ask(server, ids, parameters=None, model="llm", **tensors):
    """The number of the prompt's tokens that were cached, or the text of the error."""
    tensors = {"input_ids": ids, "input_lengths": [len(ids)], "request_output_len": [1], **tensors}
    body = {"parameters": parameters or {}, "inputs": [{"name": name, "datatype": "INT32", "shape": [len(data)], "data": data} for name, data in tensors.items()]}
    request = urllib.request.Request(f"{server.url}/v2/models/{model}/infer", data=json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return next(each["data"][0] for each in json.load(answer)["outputs"] if each["name"] == "num_cached_tokens")
    except urllib.error.HTTPError as error:
        assert error.code == 400
        return json.load(error)["error"]


@pytest.mark.parametrize("first, form", [(1, "tensors"), (2, "parameters")])
def test_a_prompt_with_a_higher_priority_outlives_later_ones(server, first, form):
    texts = {name: ",".join(map(str, values)) for name, values in RANGE.items()}
    assert ask(server, prompt(first), **(RANGE if form == "tensors" else {"parameters": texts})) == 0
    plain = prompt(first + 70)
    assert ask(server, plain) == 0
    for other in range(3):
        ask(server, prompt(first + 10 + 20 * other))
    assert ask(server, plain) == 0
    lowered = {"retention_token_range_priorities": [0]}
    assert ask(server, prompt(first), **RANGE | lowered) == 64
    ask(server, prompt(first + 100))
    ask(server, prompt(first + 120))
    assert ask(server, prompt(first)) == 0


@pytest.mark.parametrize("change, message", [
    ({"retention_token_range_starts": [65]}, "'retention_token_range_starts' has 65, expected 0 to 64: the prompt has 65 tokens"),
    ({"retention_token_range_ends": [66]}, "'retention_token_range_ends' has 66 for the start 0, expected 1 to 65"),
    ({"retention_token_range_priorities": [101]}, "'retention_token_range_priorities' is 101, expected 0 to 100"),
    ({"retention_token_range_priorities": [1, 2]}, "'retention_token_range_priorities' has 2 values and 'retention_token_range_starts' has 1"),
    ({"retention_token_range_durations_ms": [0]}, "'retention_token_range_durations_ms' is 0, expected 1 or more"),
    ({"retention_decode_priority": [-1]}, "'retention_decode_priority' is -1, expected 0 to 100"),
    ({"retention_decode_duration_ms": [5]}, "'retention_decode_duration_ms' is 5 without 'retention_decode_priority'"),
    ({"parameters": {"retention_decode_priority": "high"}}, "request parameter 'retention_decode_priority' has 'high', expected integers"),
    ({"parameters": {"retention_decode_priority": 1.5}}, "request parameter 'retention_decode_priority': expected an integer"),
])
def test_a_wrong_retention_is_refused_with_both_values(server, change, message):
    assert message in ask(server, prompt(1), **RANGE | change)


def test_the_ensemble_passes_the_retention_on(demo):
    fields = {"text_input": "Once upon a time", "max_tokens": 2, "retention_token_range_starts": [0], "retention_token_range_ends": [-1],
              "retention_token_range_priorities": [90], "retention_token_range_durations_ms": [60000], "retention_decode_priority": 80, "retention_decode_duration_ms": 1000}

    def generate(**more):
        request = urllib.request.Request(f"{demo.url}/v2/models/ensemble/generate", data=json.dumps(fields | more).encode())
        return urllib.request.urlopen(request, timeout=60).status

    assert generate() == 200
    for name in fields.keys() - {"text_input", "max_tokens"}:
        with pytest.raises(urllib.error.HTTPError) as caught:
            generate(**{name: -7 if name.startswith("retention_decode") else [-7]})
        assert name in json.load(caught.value)["error"]


def parameters(**values):
    return "".join(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in values.items())


def control(server, model, action):
    request = urllib.request.Request(f"{server.url}/v2/repository/models/{model}/{action}", data=b"{}")
    try:
        return urllib.request.urlopen(request, timeout=60).status
    except urllib.error.HTTPError as error:
        return json.load(error)["error"]


def write_model(root, name, more):
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(CONFIG + more)


def test_a_model_that_is_loaded_again_has_what_it_had_computed(own_server, own_repository, tmp_path):
    write_model(own_repository, "kept", parameters(kv_cache_disk_path=tmp_path / "blocks", kv_cache_disk_bytes=1 << 24))
    assert control(own_server, "kept", "load") == 200
    assert ask(own_server, prompt(1), model="kept") == 0
    assert control(own_server, "kept", "unload") == 200
    wait_for(lambda: "successfully unloaded 'kept'" in own_server.text(), "the model to be unloaded")
    assert control(own_server, "kept", "load") == 200
    assert ask(own_server, prompt(1), model="kept") == 64
    assert ask(own_server, prompt(2), model="kept") == 0


@pytest.mark.parametrize("more, message", [
    ({"kv_cache_host_memory_bytes": -1}, "parameter 'kv_cache_host_memory_bytes' is '-1', expected 0 or more"),
    ({"kv_cache_host_memory_bytes": 1000}, "parameter 'kv_cache_host_memory_bytes' is 1000, expected 0 or at least 114688, the size of a KV block"),
    ({"kv_cache_disk_bytes": 1000}, "parameter 'kv_cache_disk_path' is '' and 'kv_cache_disk_bytes' is 1000, expected both or none"),
    ({"kv_cache_disk_path": "blocks", "kv_cache_disk_bytes": 1000}, "1000 bytes hold no KV block, expected at least "),
    ({"kv_cache_disk_path": "config.pbtxt", "kv_cache_disk_bytes": 10000000}, "config.pbtxt' is not a file of KV blocks; it is left as it is"),
    ({"kv_events_form": "xml"}, "parameter 'kv_events_form' is 'xml', expected one of: maps lists"),
    ({"kv_events_endpoint": "tcp://nowhere"}, "parameter 'kv_events_endpoint' is 'tcp://nowhere': "),
])
def test_a_wrong_parameter_is_refused_with_both_values(own_server, own_repository, request, more, message):
    name = f"wrong_{request.node.callspec.indices['more']}"
    write_model(own_repository, name, parameters(**more))
    assert message in control(own_server, name, "load")


@pytest.fixture(scope="module")
def events(start_server, tmp_path_factory):
    """A server whose model publishes events, and the two addresses."""
    folder = tmp_path_factory.mktemp("events")
    addresses = [f"ipc://{folder}/{name}" for name in ("e", "r")]
    write_model(folder / "models", "llm", parameters(kv_events_endpoint=addresses[0], kv_events_replay_endpoint=addresses[1], kv_events_topic="kv@here",
                                                     kv_cache_host_memory_bytes=1 << 20))
    return start_server(folder / "models"), *addresses


def test_events_tell_what_the_prefix_cache_has(events):
    zmq, msgpack = pytest.importorskip("zmq"), pytest.importorskip("msgpack")
    server, endpoint, replay = events
    context = zmq.Context()
    subscriber, client = context.socket(zmq.SUB), context.socket(zmq.DEALER)
    subscriber.connect(endpoint)
    subscriber.subscribe(b"kv@")
    client.connect(replay)
    published = None
    for first in range(20):  # until the subscription has arrived
        assert ask(server, prompt(first)) == 0
        if published is None and subscriber.poll(100):
            published = subscriber.recv_multipart()
        if published is not None and first > 4:
            break
    topic, number, batch = published
    assert topic == b"kv@here" and len(number) == 8

    def missed_from(begin):
        client.send_multipart([b"", begin.to_bytes(8, "big")])
        answers = []
        while not answers or answers[-1][1] != (-1).to_bytes(8, "big", signed=True):
            assert client.poll(5000)
            answers.append(client.recv_multipart())
        assert answers.pop()[2] == b"" and all(empty == b"" for empty, _, _ in answers)
        return {int.from_bytes(number, "big"): batch for _, number, batch in answers}

    everything = missed_from(0)
    assert list(everything) == list(range(len(everything)))
    assert everything[int.from_bytes(number, "big")] == batch
    assert list(missed_from(2))[: len(everything) - 2] == list(everything)[2:]  # the last request may have changed something since
    cached = {"GPU": set(), "CPU": set()}
    stored = []
    for number, batch in everything.items():
        seconds, changes, rank = msgpack.unpackb(batch)
        assert seconds > 1.7e9 and rank is None
        for change in changes:
            if change["type"] == "AllBlocksCleared":
                assert number == 0 and change == {"type": "AllBlocksCleared"}
            elif change["type"] == "BlockStored":
                assert change["block_size"] == 16 and len(change["token_ids"]) == 16 * len(change["block_hashes"]) and change["lora_id"] is None
                cached[change["medium"]] |= set(change["block_hashes"])
                stored.append(change)
            else:
                assert change["type"] == "BlockRemoved" and set(change["block_hashes"]) <= cached[change["medium"]]
                cached[change["medium"]] -= set(change["block_hashes"])
    assert stored[0]["token_ids"] == prompt(0)[:len(stored[0]["token_ids"])] and stored[0]["parent_block_hash"] is None
    assert 0 < len(cached["GPU"]) <= 10 and 0 < len(cached["CPU"]) <= 9
    context.destroy(linger=0)
