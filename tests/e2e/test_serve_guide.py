"""Runs every command of docs/serve.md, with free ports, a hub on this machine and the demo model in the place of larger ones."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from hub_server import Hub, files_of
from serve_process import Serving

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/serve.md").read_text()
COMMANDS = [block.strip() for block in re.findall(r"^```\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)]
CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"
KEYS = '{"keys": []}'


@pytest.fixture(scope="module")
def place(tmp_path_factory, dist):
    """The folder in which the commands run, and their environment."""
    folder = tmp_path_factory.mktemp("guide")
    shutil.copytree(ROOT / "demo/model", folder / "Qwen3-8B")
    (folder / "Qwen3-8B/chat_template.jinja").write_text(CHAT_TEMPLATE)
    (folder / "keys.json").write_text(KEYS)
    hub = Hub("Qwen/Qwen3-8B", files_of(folder / "Qwen3-8B"))
    environment = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "hf"), "HF_TOKEN": "", "HF_HUB_CACHE": "", "no_proxy": "127.0.0.1",
                   "PATH": f"{dist / 'bin'}:{os.environ['PATH']}"}
    yield folder, environment
    hub.stop()


@pytest.fixture(scope="module")
def guide_server(place, dist):
    """Serves the models that the commands of clients name."""
    folder, environment = place
    serving = Serving(dist, folder, "demo", folder / "Qwen3-8B", environment=environment)
    yield serving
    assert serving.stop() == 0


def test_the_guide_has_commands_of_every_kind():
    assert {command.split()[1] for command in COMMANDS if command.startswith("nereid ")} == {"serve", "pull", "chat", "generate", "top"}
    assert all(command.startswith(("nereid ", "curl ", "echo ")) and "\n" not in command for command in COMMANDS)


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.startswith("nereid serve")])
def test_a_command_that_serves(place, dist, command, monkeypatch):
    folder, environment = place
    monkeypatch.chdir(folder)
    arguments = re.sub(r" --port \d+", "", command).split()[2:]
    serving = Serving(dist, folder, *arguments, environment=environment)
    if "--api-key-file" not in arguments:
        model = re.search(r"model +(\S+):", serving.output)[1]
        assert json.loads(serving.ask(model))["num_output_tokens"] == 8
    assert serving.stop() == 0


@pytest.mark.parametrize("command", [each for each in COMMANDS if not each.startswith("nereid serve")])
def test_a_command_that_asks(place, guide_server, command):
    folder, environment = place
    command = command.replace("http://127.0.0.1:8000", guide_server.url)
    if "nereid chat" in command:
        command = re.sub(r"nereid chat( Qwen3-8B)?", f"nereid chat Qwen3-8B --url {guide_server.url}", command)
    if "nereid top" in command:
        command += " --url " + re.search(r"metrics (\S+)", guide_server.output)[1]
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command.replace('curl ', 'curl -sSf ')}"], cwd=folder, env={**os.environ, **environment}, input="",
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    if command.startswith("curl"):
        assert "Once" in command and len(json.loads(done.stdout)) > 3
    elif command.startswith("echo"):
        assert len(done.stdout) > 5


def test_the_line_that_serve_prints_is_that_of_the_guide(guide_server):
    printed = guide_server.curl.strip().replace(guide_server.url, "http://127.0.0.1:8000")
    assert printed in COMMANDS
