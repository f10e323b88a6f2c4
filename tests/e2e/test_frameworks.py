"""LangChain and LlamaIndex from PyPI, unchanged, against the server. NEREID_FRAMEWORKS names an interpreter that has them, in versions of their own; without
it every test here is skipped (`scripts/test --all` sets it)."""
import json
import os
import pathlib
import subprocess

import pytest
from test_openai import TOOL_PIECES, cancelled, server  # noqa: F401 - fixtures

pytestmark = pytest.mark.skipif(not os.environ.get("NEREID_FRAMEWORKS"), reason="NEREID_FRAMEWORKS names no interpreter")


def test_agent_frameworks_are_answered(server):  # noqa: F811
    script = pathlib.Path(__file__).with_name("framework_clients.py")
    outcome = subprocess.run([os.environ["NEREID_FRAMEWORKS"], script, server.url, json.dumps(TOOL_PIECES)], capture_output=True, text=True, timeout=240)
    assert outcome.stdout.strip() == "all answered", outcome.stdout + outcome.stderr[-6000:]
