"""Shared helpers for the tests of Python models. The interpreter that runs the tests also runs the models."""
import json
import os
import pathlib
import sys
import urllib.error
import urllib.request

import numpy as np
from http_request import send_http
from streams import stream_of  # noqa: F401 (re-exported for the tests of Python models)
from waiting import PATIENCE_S, wait_for

MODELS = pathlib.Path(__file__).parent / "python_models"


def python_flags(*further):
    return [f"--backend-config=python,interpreter={sys.executable}", *further]


def post(server, path, body, timeout_s=PATIENCE_S):
    """Returns the status and the parsed answer."""
    status, _, answer = send_http(server.url + path, body, method="POST", timeout_s=timeout_s)
    return status, json.loads(answer or b"null")


def binary_request(model, values):
    """Returns the bytes of an HTTP request with the float input IN and binary output."""
    head = json.dumps({"inputs": [{"name": "IN", "datatype": "FP32", "shape": [values.size], "parameters": {"binary_data_size": values.nbytes}}],
                       "parameters": {"binary_data_output": True}}).encode()
    return (b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
            % (model.encode(), len(head), len(head) + values.nbytes) + head + values.tobytes())


def binary_output(raw):
    """Returns the only output of the answer to a binary_request."""
    status, headers, body = raw.answer()
    assert status == 200, body
    return np.frombuffer(body[int(headers["inference-header-content-length"]):], np.float32)


def ask_caller(server, case, values=(1.0, 2.0), **further):
    body = {"inputs": [{"name": "CASE", "datatype": "BYTES", "shape": [1], "data": [case]},
                       {"name": "IN", "datatype": "FP32", "shape": [len(values)], "data": list(values)}], **further}
    status, answer = post(server, "/v2/models/caller/infer", body)
    assert status == 200, answer
    return json.loads(answer["outputs"][0]["data"][0])


def run_fragile(server, case):
    return post(server, "/v2/models/fragile/infer", {"inputs": [{"name": "CASE", "datatype": "BYTES", "shape": [1], "data": [case]}]})


def is_ready(server, model):
    try:
        return urllib.request.urlopen(f"{server.url}/v2/models/{model}/ready", timeout=PATIENCE_S).status == 200
    except urllib.error.HTTPError:
        return False


def log_of(server):
    return pathlib.Path(server.log).read_text(errors="replace")


def load_by_request(server, name):
    status, answer = post(server, f"/v2/repository/models/{name}/load", {})
    assert status == 200, answer


def unload(server, name):
    assert post(server, f"/v2/repository/models/{name}/unload", {})[0] == 200


def config_of(server, name):
    with urllib.request.urlopen(f"{server.url}/v2/models/{name}/config", timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


def recovered_pid(server):
    """Returns the worker's process id of the model "fragile", once it answers."""
    def pid():
        status, answer = run_fragile(server, "pid")
        return int(answer["outputs"][0]["data"][0]) if status == 200 else None
    return wait_for(pid, "the worker is back")


def fresh_pid(server):
    """Loads the model "fragile" again, and returns its worker's process id. The next worker starts at once when this one ends: only a model whose
    workers have ended again and again waits longer each time."""
    unload(server, "fragile")
    load_by_request(server, "fragile")
    return recovered_pid(server)


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_stopped(pid):
    """Whether every thread of the process is stopped, which happens some time after SIGSTOP."""
    states = [each.read_text().rsplit(")", 1)[1].split()[0] for each in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")]
    return bool(states) and set(states) == {"T"}


def children(pid):
    found = []
    for each in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if each.read_text().rsplit(")", 1)[1].split()[1] == str(pid):
                found.append(int(each.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return sorted(found)


def workers_of(server, model):
    """Returns the process ids of the model's workers, which have its name as an argument."""
    found = []
    for pid in children(server.process.pid):
        try:
            if model.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            pass
    return found


def check_no_leaks(server, prefix):
    """Checks that no shared-memory file has a name and that the server has only the memory of live workers: two regions each."""
    if os.path.isdir("/dev/shm"):
        assert not [each for each in os.listdir("/dev/shm") if prefix in each]
    if server.alive():
        wait_for(lambda: open_regions(server, prefix) == 2 * len(children(server.process.pid)), "the memory of dead workers is given back")


def num_descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def open_regions(server, prefix):
    found = 0
    for each in pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir():
        try:
            found += prefix in os.readlink(each)
        except FileNotFoundError:
            pass
    return found


def write_model(root, name, code, config=""):
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(config or (MODELS / "doubler/config.pbtxt").read_text())
    if code is not None:
        (root / name / "1/model.py").write_text(code)
