"""Requests that schemathesis makes from /openapi.json: none is answered with a 5xx. NEREID_SCHEMATHESIS names the program; without it every test here is
skipped (`scripts/test --all` sets it)."""
import os
import pathlib
import re
import subprocess
import urllib.request

import pytest
from test_openai import TEMPLATE
from serve_process import Serving

pytestmark = pytest.mark.skipif(not os.environ.get("NEREID_SCHEMATHESIS"), reason="NEREID_SCHEMATHESIS names no program")


@pytest.mark.timeout(1200)
def test_no_request_that_the_description_allows_is_answered_with_a_5xx(dist, tmp_path):
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    serving = Serving(dist, tmp_path, "demo", "--max-model-len=32", f"--chat-template={tmp_path / 'template.jinja'}")
    flags = ["--checks=not_a_server_error", f"--max-examples={os.environ.get('NEREID_SCHEMATHESIS_EXAMPLES', '100')}", "--phases=examples,coverage,fuzzing",
             "--request-timeout=60"]
    outcome = subprocess.run([os.environ["NEREID_SCHEMATHESIS"], "run", f"{serving.url}/openapi.json", *flags], cwd=tmp_path, capture_output=True, text=True,
                             env={**os.environ, "NEREID_MODEL": "demo", "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
                                  "PYTHONPATH": str(pathlib.Path(__file__).parent)})
    assert outcome.returncode == 0, outcome.stdout[-6000:]
    with urllib.request.urlopen(f"{serving.url}/metrics", timeout=60) as reply:
        answered = re.search(r'nv_inference_request_success\{model="demo",version="1"\} (\d+)', reply.read().decode())
    assert int(answered[1]) > 20  # requests have reached the model
    assert serving.stop() == 0
