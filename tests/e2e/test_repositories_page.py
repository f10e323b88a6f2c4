"""Runs the commands of docs/repositories.md, with the demo model in the place of a larger one."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from http_request import send_http

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCKS = [block.splitlines() for block in re.findall(r"^```\n(.*?)^```$", (ROOT / "docs/repositories.md").read_text(), re.MULTILINE | re.DOTALL)]
COMMANDS = [line for block in BLOCKS for line in block if line.startswith("nereid")]
PARAMETERS = [line for block in BLOCKS for line in block if line.startswith("parameters")]


@pytest.fixture(scope="module")
def place(tmp_path_factory, dist):
    """A folder in which each `nereid-repo new` of the page has been run."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(ROOT / "demo/model", folder / "Qwen3-8B")
    made = [command for command in COMMANDS if " new " in command]
    assert [command.split()[2] for command in made] == ["llm", "inflight", "qaic-style"]
    for command in made:
        done = run(dist, folder, command)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run(dist, folder, command):
    """With the interpreter that runs the tests, because Python models need NumPy."""
    environment = {**os.environ, "PATH": f"{dist / 'bin'}:{os.environ['PATH']}", "NEREID_PYTHON": sys.executable}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("repository, number", [("models", 4), ("inflight", 5), ("stories_repo", 5)])
def test_what_a_command_writes_has_no_faults(place, dist, repository, number):
    done = run(dist, place, f"nereid-repo check {repository}")
    assert (done.returncode, done.stdout.strip()) == (0, f"{number} models, no faults"), done.stderr


def test_a_changed_repository_serves_under_another_name(place, start_server):
    assert "nereid-repo check models" in COMMANDS and "nereid --model-repository=models" in COMMANDS
    changed = place / "changed"
    shutil.copytree(place / "models", changed)
    (changed / "ensemble").rename(changed / "mine")
    with open(changed / "tensorrt_llm/config.pbtxt", "a") as config:
        config.write("\n".join(PARAMETERS))
    server = start_server(changed)
    _, _, answer = send_http(f"http://127.0.0.1:{server.http}/v1/completions", {"model": "mine", "prompt": "Once upon a time", "max_tokens": 4})
    assert json.loads(answer)["usage"]["completion_tokens"] == 4, answer


def test_a_misspelt_parameter_is_found_as_printed(place, dist):
    wrong = place / "wrong/models"
    shutil.copytree(place / "models", wrong)
    config = wrong / "tensorrt_llm/config.pbtxt"
    config.write_text(config.read_text().replace("sampling_defaults", "sampling_default"))
    done = run(dist, place / "wrong", "nereid-repo check models")
    printed = next(block for block in BLOCKS if block[0].startswith("error: "))
    assert (done.returncode, (done.stdout + done.stderr).splitlines()) == (1, printed)


def test_a_running_server_is_changed(place, start_server):
    server = start_server(place / "models", ["--model-control-mode=explicit", "--load-model=ensemble"])
    load, unload, index = (line for block in BLOCKS for line in block if line.startswith("curl "))

    def states(command):
        done = run(place, place, command.replace("localhost:8000", f"localhost:{server.http}").replace("curl ", "curl -sSf "))
        assert done.returncode == 0, done.stderr
        listed = json.loads(run(place, place, index.replace("localhost:8000", f"localhost:{server.http}").replace("curl ", "curl -sSf ")).stdout)
        return {model["state"] for model in listed}

    assert states(load) == {"READY"} and states(unload) == {"UNAVAILABLE"} and states(load) == {"READY"}
