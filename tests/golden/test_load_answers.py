"""The answers to model loads. Environment: NEREID_TEST_BACKENDS, the folder of the test backends."""
import json
import shutil
import urllib.error
import urllib.request

import pytest

import differences
import load_answers


def post(server, path, body=""):
    """Returns (status, text)."""
    request = urllib.request.Request(f"http://127.0.0.1:{server.http}/v2/repository/models/{path}", data=body.encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]


@pytest.mark.parametrize("case", load_answers.CASES, ids=lambda case: case["name"])
def test_load_answers_as_triton_does(loading_server, case):
    if differences.AGAINST_TRITON and case["triton"] == 0:
        pytest.skip("harms Triton")
    folder = loading_server.repository / case["name"]
    load_answers.write(folder, case)
    status, text = post(loading_server, case["name"] + "/load", case.get("body", ""))
    assert status == (case["triton"] if differences.AGAINST_TRITON else load_answers.expected_status(case)), text
    if not differences.AGAINST_TRITON:
        assert case.get("words", "") in text
    if status == 200:
        assert post(loading_server, case["name"] + "/unload")[0] == 200
    shutil.rmtree(folder)
