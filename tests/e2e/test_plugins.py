"""The plug-ins that ship with the host, the cache `local` and the repository agent `checksum`, used only through flags and configuration."""
import hashlib
import json
import os
import urllib.error
import urllib.request

import pytest

CONFIG = """backend: "identity_c"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def add_model(repository, name, config):
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(CONFIG + config)


def infer(server, model, values):
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [len(values)], "data": values}]}
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/v2/models/{model}/infer", json.dumps(body).encode()), timeout=60) as answer:
        return json.load(answer)["outputs"][0]["data"]


@pytest.mark.parametrize("flag", ["--cache-config=local,size=1048576", "--response-cache-byte-size=1048576"])
def test_cache_answers_repeated_requests(start_server, test_backends, tmp_path, flag):
    add_model(tmp_path, "cached", "response_cache { enable: true }\n")
    server = start_server(tmp_path, [test_backends, flag])
    for _ in range(3):
        assert infer(server, "cached", [1, 2]) == [1, 2]
    assert infer(server, "cached", [3]) == [3]
    with urllib.request.urlopen(f"{server.url}/v2/models/cached/stats", timeout=60) as answer:
        statistics = json.load(answer)["model_stats"][0]["inference_stats"]
    assert statistics["cache_hit"]["count"] == 2 and statistics["cache_miss"]["count"] == 2
    assert statistics["success"]["count"] == statistics["queue"]["count"] == 4 and statistics["compute_infer"]["count"] == 2
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=60) as answer:
        page = answer.read().decode().splitlines()
    assert 'nv_cache_num_hits_per_model{model="cached",version="1"} 2' in page
    for line in ("hits 2", "misses 2", "lookups 4", "entries 2", "evictions 0"):
        assert f"nv_cache_num_{line}" in page
    assert 0 < next(float(line.split()[1]) for line in page if line.startswith("nv_cache_util ")) < 1


def test_the_checksum_agent_guards_a_model(start_server, test_backends, tmp_path):
    good, bad = hashlib.md5(b"weights").hexdigest(), hashlib.md5(b"others").hexdigest()
    for name, digest in (("good", good), ("bad", bad), ("fifo", good)):
        add_model(tmp_path, name, f'model_repository_agents {{ agents [ {{ name: "checksum" parameters {{ key: "MD5:1/data" value: "{digest}" }} }} ] }}\n')
        if name == "fifo":
            os.mkfifo(tmp_path / name / "1/data")
        else:
            (tmp_path / name / "1/data").write_bytes(b"weights")
    server = start_server(tmp_path, [test_backends, "--exit-on-error=false", "--strict-readiness=false"])
    assert infer(server, "good", [5]) == [5]
    with pytest.raises(urllib.error.HTTPError):
        infer(server, "bad", [5])
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/v2/repository/index", b""), timeout=60) as answer:
        reasons = {entry["name"]: entry.get("reason", "") for entry in json.load(answer)}
    assert good in reasons["bad"] and bad in reasons["bad"]
    assert "1/data' cannot be read" in reasons["fifo"]
