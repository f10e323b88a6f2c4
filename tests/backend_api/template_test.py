"""Tests backend_api/template like a third party: copies it, builds it against the installed package, loads it and sends requests.

NEREID_DIST is the installed tree. NEREID_SERVER_COMMAND may name another server that takes Triton's flags, for comparison.
"""
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest
from server_process import ServerProcess

DIST = os.environ.get("NEREID_DIST")
pytestmark = pytest.mark.skipif(not DIST, reason="NEREID_DIST names no installed tree")


def run(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds a copy of the template against a copy of the installed package, which proves that the package can be moved."""
    folder = tmp_path_factory.mktemp("template")
    prefix = folder / "moved"
    for part in ("include", "lib/cmake", "lib/stubs"):
        shutil.copytree(pathlib.Path(DIST) / part, prefix / part)
    source = folder / "source"
    shutil.copytree(pathlib.Path(DIST) / "share/nereid/backend_template", source)
    run("cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}", cwd=source)
    run("cmake", "--build", "build", cwd=source)
    return source


def add_model(repository, name, config):
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)


@pytest.fixture(scope="module")
def url(built, tmp_path_factory):
    repository = tmp_path_factory.mktemp("repository")
    config = (built / "config.pbtxt").read_text()
    add_model(repository, "doubled", config)
    add_model(repository, "completed", 'backend: "my_backend"')
    command = shlex.split(os.environ.get("NEREID_SERVER_COMMAND", f"{DIST}/bin/nereid"))
    server = ServerProcess(command, [f"--model-repository={repository}", f"--backend-directory={built}/build/backends"],
                           tmp_path_factory.mktemp("log") / "server.log")
    yield server.url
    server.stop()


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def infer(url, model, shape, data, datatype="FP32"):
    body = {"inputs": [{"name": "INPUT", "datatype": datatype, "shape": shape, "data": data}]}
    request = urllib.request.Request(f"{url}/v2/models/{model}/infer", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["outputs"][0]


def test_the_library_exports_entry_points_alone(built):
    library = built / "build/backends/my_backend/libtriton_my_backend.so"
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1] for line in symbols.splitlines()]
    assert "TRITONBACKEND_ModelInstanceExecute" in names
    assert all(name.startswith("TRITONBACKEND_") for name in names), names
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "[libtritonserver.so]" in needed


def test_it_serves_a_batch(url):
    output = infer(url, "doubled", [2, 3], [1, 2, 3, 4, 5, 6])
    assert output == {"name": "OUTPUT", "datatype": "FP32", "shape": [2, 3], "data": [2, 4, 6, 8, 10, 12]}


def test_it_completes_the_configuration(url):
    metadata = get(f"{url}/v2/models/completed")
    assert [tensor["name"] for tensor in metadata["inputs"] + metadata["outputs"]] == ["INPUT", "OUTPUT"]
    assert infer(url, "completed", [3], [1, 2, 3])["data"] == [1, 2, 3]


def test_it_reports_statistics_by_itself(url):
    def stats():
        return get(f"{url}/v2/models/doubled/stats")["model_stats"][0]

    before = stats()
    infer(url, "doubled", [4, 1], [1, 2, 3, 4])
    after = stats()
    assert after["inference_count"] - before["inference_count"] == 4
    assert after["execution_count"] - before["execution_count"] == 1
    assert after["inference_stats"]["success"]["count"] - before["inference_stats"]["success"]["count"] == 1


def test_a_wrong_type_is_refused_and_the_next_request_served(url):
    with pytest.raises(urllib.error.HTTPError) as refused:
        infer(url, "doubled", [1, 1], [1], datatype="INT32")
    assert refused.value.code == 400
    assert "INPUT" in refused.value.read().decode()
    assert infer(url, "doubled", [1, 1], [1])["data"] == [2]


@pytest.fixture(scope="module")
def word_url(tmp_path_factory):
    """A server with the example of a stream, which the tree builds under the name word_stream, and with an option of this backend."""
    backends = os.environ.get("NEREID_TEST_BACKENDS")
    if not backends:
        pytest.skip("NEREID_TEST_BACKENDS names no folder of test backends")
    repository = tmp_path_factory.mktemp("words")
    config = pathlib.Path(__file__).parents[2] / "backend_api/stream_template/config.pbtxt"
    add_model(repository, "words", config.read_text().replace("my_backend", "word_stream"))
    add_model(repository, "completed", 'backend: "word_stream"')
    server = ServerProcess([f"{DIST}/bin/nereid"], [f"--model-repository={repository}", f"--backend-directory={backends}",
                                                    "--backend-config=word_stream,max-words=4"], tmp_path_factory.mktemp("log") / "server.log")
    yield server.url
    server.stop()


def words(url, text, model="words"):
    request = urllib.request.Request(f"{url}/v2/models/{model}/generate_stream", json.dumps({"TEXT": text}).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return [json.loads(event[6:]) for event in answer.read().decode().split("\n\n") if event]


@pytest.mark.parametrize("model", ["words", "completed"])
def test_the_stream_has_a_response_for_each_word(word_url, model):
    assert [(event["POSITION"], event["WORD"]) for event in words(word_url, " once upon  a time ", model)] == list(enumerate(["once", "upon", "a", "time"]))
    assert words(word_url, " ", model) == []


def test_the_option_of_the_backend_limits_the_stream(word_url):
    events = words(word_url, "there was once upon a time")
    assert [event.get("WORD") for event in events] == ["there", "was", "once", "upon", None]
    assert "input 'TEXT': expected at most 4 words" in events[-1]["error"]
    stats = get(f"{word_url}/v2/models/words/stats")["model_stats"][0]
    assert stats["inference_stats"]["fail"]["count"] == 1
