"""The KV cache utilization of an engine in a response header (ORCA load report)."""
import json
import re
import urllib.request

import pytest


def generate(server, action, **headers):
    body = json.dumps({"text_input": "Once", "max_tokens": 1}).encode()
    request = urllib.request.Request(f"{server.url}/v2/models/ensemble/{action}", body, {key.replace("_", "-"): value for key, value in headers.items()})
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()
        return answer.headers.get("endpoint-load-metrics")


@pytest.mark.parametrize("action", ["generate", "generate_stream"])
def test_answer_has_the_load_header_on_request(demo, action):
    assert generate(demo, action) is None
    text = generate(demo, action, endpoint_load_metrics_format="text")
    found = re.fullmatch(r"TEXT named_metrics\.kv_cache_utilization=([\d.e-]+), named_metrics\.max_token_capacity=(\d+)", text)
    assert 0 <= float(found[1]) <= 1 and int(found[2]) > 0
    as_json = generate(demo, action, endpoint_load_metrics_format="json")
    metrics = json.loads(as_json.removeprefix("JSON "))["named_metrics"]
    assert metrics["max_token_capacity"] == int(found[2])
