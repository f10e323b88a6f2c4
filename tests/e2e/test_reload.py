"""Models that are replaced while they serve: no request is dropped, and the last change takes effect."""
import json
import threading
import time
import urllib.error
import urllib.request

import pytest
from waiting import wait_for

CONFIG = """backend: "identity_c"
max_batch_size: 4
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
instance_group [ {{ kind: KIND_CPU count: {count} }} ]
"""
BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}).encode()


def write_model(repository, count, versions=("1",)):
    for version in versions:
        (repository / "model" / version).mkdir(parents=True, exist_ok=True)
    (repository / "model/config.pbtxt").write_text(CONFIG.format(count=count))


def post(server, path, body=b"{}"):
    with urllib.request.urlopen(urllib.request.Request(server.url + path, body), timeout=60) as answer:
        return json.loads(answer.read() or b"{}")


def get(server, path):
    with urllib.request.urlopen(server.url + path, timeout=60) as answer:
        return json.load(answer)


class Clients:
    """Threads that send requests without pause until the block ends. `failures` contains every wrong or missing answer."""

    def __init__(self, server, count=4):
        self.server, self.failures, self.answered, self.stopping = server, [], 0, threading.Event()
        self.threads = [threading.Thread(target=self._run) for _ in range(count)]

    def _run(self):
        while not self.stopping.is_set():
            try:
                answer = post(self.server, "/v2/models/model/infer", BODY)
                if answer["outputs"][0]["data"] != [1, 2]:
                    self.failures.append(answer)
                self.answered += 1
            except Exception as error:  # each counts as a dropped request
                self.failures.append(repr(error))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *unused):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def test_reloading_on_request_drops_nothing(start_server, test_backends, tmp_path):
    write_model(tmp_path, 1)
    server = start_server(tmp_path, [test_backends, "--model-control-mode=explicit", "--load-model=model"])
    with Clients(server) as clients:
        for count in (2, 3, 1, 2, 1, 3, 2, 1):
            before = clients.answered
            write_model(tmp_path, count)
            post(server, "/v2/repository/models/model/load")
            assert get(server, "/v2/models/model/config")["instance_group"][0]["count"] == count
            wait_for(lambda: clients.answered > before or clients.failures, "an answer")
    assert not clients.failures and server.alive()


def test_polling_follows_the_disk_and_drops_nothing(start_server, test_backends, tmp_path):
    write_model(tmp_path, 1)
    server = start_server(tmp_path, [test_backends, "--model-control-mode=poll", "--repository-poll-secs=1"])
    with Clients(server) as clients:
        write_model(tmp_path, 2)
        wait_for(lambda: get(server, "/v2/models/model/config")["instance_group"][0]["count"] == 2, "the new configuration")
        write_model(tmp_path, 2, versions=("1", "2"))
        wait_for(lambda: get(server, "/v2/models/model")["versions"] == ["2"], "the new version")
    assert not clients.failures
    write_model(tmp_path / "other", 1)
    (tmp_path / "other/model").rename(tmp_path / "late")
    (tmp_path / "other").rmdir()
    wait_for(lambda: any(entry["name"] == "late" and entry.get("state") == "READY" for entry in post(server, "/v2/repository/index")),
             "the late model is ready")


def counts(server):
    return {entry["version"]: entry["inference_count"] for entry in get(server, "/v2/models/model/stats")["model_stats"]}


def test_versions_that_did_not_change_stay_and_drop_nothing(start_server, test_backends, tmp_path):
    write_model(tmp_path, 1, versions=("1", "2"))
    config = tmp_path / "model/config.pbtxt"
    config.write_text(CONFIG.format(count=1) + "version_policy { all { } }")
    server = start_server(tmp_path, [test_backends, "--model-control-mode=explicit", "--load-model=model"])
    for version in ("1", "2"):
        post(server, f"/v2/models/model/versions/{version}/infer", BODY)
    with Clients(server) as clients:
        wait_for(lambda: clients.answered, "an answer")
        (tmp_path / "model/3").mkdir()
        post(server, "/v2/repository/models/model/load")
        assert counts(server)["1"] == 1 and counts(server)["2"] >= 1 and "3" in counts(server)
        (tmp_path / "model/2/weights").write_text("new")
        post(server, "/v2/repository/models/model/load")
        assert counts(server)["1"] == 1 and counts(server)["2"] == 0
        config.write_text(CONFIG.format(count=1) + "version_policy { specific { versions: [ 1, 3 ] } }")
        post(server, "/v2/repository/models/model/load")
        assert sorted(counts(server)) == ["1", "3"] and counts(server)["1"] == 1
        config.write_text(CONFIG.format(count=1) + 'version_policy { all { } } parameters { key: "k" value { string_value: "v" } }')
        post(server, "/v2/repository/models/model/load")
        assert counts(server)["1"] == 0
    assert not clients.failures and server.alive()


def test_a_server_that_never_polls_serves_as_it_started(start_server, test_backends, tmp_path):
    write_model(tmp_path, 1)
    server = start_server(tmp_path, [test_backends, "--model-control-mode=poll", "--repository-poll-secs=0"])
    (tmp_path / "model").rename(tmp_path / "late")
    time.sleep(2)
    assert [(entry["name"], entry.get("state")) for entry in post(server, "/v2/repository/index")] == [("late", None), ("model", "READY")]


def test_a_change_that_is_broken_leaves_the_old_model_serving(start_server, test_backends, tmp_path):
    write_model(tmp_path, 1)
    server = start_server(tmp_path, [test_backends, "--model-control-mode=explicit", "--load-model=model"])
    with Clients(server) as clients:
        for text in ("backend: \"nosuch\"", "max_batch_size: -3", "{{{", "", CONFIG.format(count=1) + "runtime: \"../x.so\""):
            (tmp_path / "model/config.pbtxt").write_text(text)
            try:
                post(server, "/v2/repository/models/model/load")
                pytest.fail(f"{text!r} was loaded")
            except urllib.error.HTTPError as error:
                assert error.code >= 400
    assert not clients.failures
    assert post(server, "/v2/models/model/infer", BODY)["outputs"][0]["data"] == [1, 2]


def test_a_folder_that_changes_all_the_time_ends_as_it_was_left(start_server, test_backends, tmp_path):
    write_model(tmp_path, 1)
    server = start_server(tmp_path, [test_backends, "--model-control-mode=explicit", "--load-model=model"])
    stop = threading.Event()

    def scribble():
        turn = 0
        while not stop.is_set():
            turn += 1
            (tmp_path / "model/1/data").write_text("x" * (turn % 100))
            (tmp_path / f"model/{turn % 3 + 2}").mkdir(exist_ok=True)
            for version in (2, 3, 4):
                if version != turn % 3 + 2 and (tmp_path / f"model/{version}").exists():
                    (tmp_path / f"model/{version}").rmdir()

    writer = threading.Thread(target=scribble)
    writer.start()
    try:
        for _ in range(20):
            try:
                post(server, "/v2/repository/models/model/load")
            except urllib.error.HTTPError as error:
                assert error.code in (400, 404)  # the version to be loaded no longer exists
    finally:
        stop.set()
        writer.join()
    for version in (2, 3, 4):
        if (tmp_path / f"model/{version}").exists():
            (tmp_path / f"model/{version}").rmdir()
    post(server, "/v2/repository/models/model/load")
    assert get(server, "/v2/models/model")["versions"] == ["1"]
    assert post(server, "/v2/models/model/infer", BODY)["outputs"][0]["data"] == [1, 2]
