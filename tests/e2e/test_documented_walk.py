"""The commands of docs/from-tensorrt-llm.md, run as they are printed, with an AWQ checkpoint of the form of Llama-3-8B's (4 bits, random weights, tiny)."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest
from server_process import free_ports
from test_nereid_repo import cut_tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def awq_checkpoint(tmp_path):
    folder = pathlib.Path(os.environ.get("NEREID_TEST_DATA", "")) / "tiny/llama-awq"
    if not folder.is_dir():
        pytest.skip("NEREID_TEST_DATA names no folder of tiny checkpoints")
    shutil.copytree(folder, tmp_path / "checkpoint")
    (tmp_path / "checkpoint/tokenizer.json").write_text(cut_tokenizer())
    return tmp_path / "checkpoint"


def documented_commands():
    text = (ROOT / "docs/from-tensorrt-llm.md").read_text()
    return next(block for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) if "launch_triton_server.py" in block)


def test_the_walk_answers_as_printed(dist, tmp_path, awq_checkpoint):
    http, grpc, metrics = free_ports(3)
    commands = documented_commands()
    for printed, here in (("/checkpoints/Llama-3-8B", str(awq_checkpoint)), ("dist/share", f"{dist.resolve()}/share"), ("localhost:8000", f"localhost:{http}"),
                          # The ports are this test's own, and the first request waits for the server.
                          ("launch_triton_server.py", f"launch_triton_server.py --force --http_port {http} --grpc_port {grpc} --metrics_port {metrics}"),
                          ("curl ", "curl -sSf --retry 100 --retry-delay 0 --retry-max-time 60 --retry-all-errors ")):
        assert printed in commands
        commands = commands.replace(printed, here)
    with open(tmp_path / "output", "w+") as output:
        shell = subprocess.Popen(["bash", "-e", "-c", commands], cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = shell.wait(120)
        finally:
            os.killpg(shell.pid, signal.SIGTERM)  # the launcher leaves the server running
        output.seek(0)
        text = output.read()
    assert status == 0, text
    answer, _ = json.JSONDecoder().raw_decode(text, re.search(r'^{"', text, re.MULTILINE).start())  # the server's log may follow on the same line
    assert answer["model_name"] == "ensemble" and len(answer["text_output"]) > 10
    assert "has no placeholder" not in text
