"""The web console without a browser: its files and their headers, and who may use the routes behind it."""
import json
import re
import shutil
import subprocess

import pytest
from http_request import send_http
from python_support import python_flags
from raw_http import Raw, post
from test_openai import ROOT
from serve_process import Serving
from waiting import wait_for

POLICY = {"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
          "frame-ancestors 'none'", "require-trusted-types-for 'script'"}


def http(url, method="GET", body=None, **headers):
    """Returns (status, headers, body) of one request."""
    status, answered, text = send_http(url, body, {name.replace("_", "-"): value for name, value in headers.items()}, method)
    return status, answered, text.decode()


@pytest.fixture(scope="module")
def serving(dist, tmp_path_factory):
    running = Serving(dist, tmp_path_factory.mktemp("console"), "demo")
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def keyed(start_server, dist, tmp_path_factory):
    repository = tmp_path_factory.mktemp("repository") / "models"
    shutil.copytree(ROOT / "tests/e2e/openai_models/oracle", repository / "oracle")
    entries, keys = [], {}
    for name, rights in (("operator", ["infer", "metadata", "statistics", "metrics", "model-control"]), ("reader", ["statistics"]), ("user", ["infer"])):
        lines = subprocess.run([dist / "bin/nereid-repo", "new", "key", f"--name={name}", *[f"--right={right}" for right in rights], "--model=*"],
                               capture_output=True, text=True, check=True).stdout.splitlines()
        keys[name] = {"Authorization": f"Bearer {lines[1]}"}
        entries.append(json.loads(lines[4]))
    (repository.parent / "keys.json").write_text(json.dumps({"keys": entries}))
    server = start_server(repository, python_flags("--console=on", "--model-control-mode=explicit", "--load-model=oracle",
                                                   f"--api-key-file={repository.parent / 'keys.json'}"),
                          environment={"ORACLE_CANCELLED": str(repository.parent / "cancelled")})
    return server, keys


def test_serve_names_the_console_which_is_on(serving):
    assert f"console   {serving.url}/console\n" in serving.output
    for path in ("/", "/console"):
        status, headers, _ = http(serving.url + path)
        assert (status, headers["Location"]) == (302, "console/")
    status, headers, page = http(serving.url + "/console/")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8" and "<title>Nereid console</title>" in page
    assert http(serving.url + "/console/absent.js")[0] == 404
    assert http(serving.url + "/console/", method="POST", body=b"")[0] == 404
    assert http(serving.url + "/console/", method="HEAD")[::2] == (200, "")


def test_every_file_of_the_console_is_the_servers_own_and_may_load_nothing_else(serving):
    files, seen = ["/console/"], {}
    while files:
        path = files.pop()
        status, headers, text = http(serving.url + path)
        seen[path] = text
        assert status == 200 and headers["X-Content-Type-Options"] == "nosniff", path
        assert set(headers["Content-Security-Policy"].split("; ")) == POLICY
        links = re.findall(r'(?:src|href)="([^"#]+)"', text) if path == "/console/" else re.findall(r'from "\./([^"]+)"', text)
        files += [f"/console/{link}" for link in links if f"/console/{link}" not in seen]
    folder = ROOT / "host/frontend/openai/console"
    names = {path.removeprefix("/console/") or "console.html": text for path, text in seen.items()}
    assert names == {path.name: path.read_text() for path in folder.iterdir() if path.suffix not in (".h", ".cc")}
    # Nothing in the page or its scripts runs or interprets a text.
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", names["console.html"])
    for name, text in names.items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|https?://(?!www\.w3\.org/2000/svg)", text), name


def test_pages_of_other_servers_and_hosts_reach_nothing(serving):
    own = {"Origin": serving.url}
    assert http(serving.url + "/requests", **own)[0] == 200
    assert http(serving.url + "/requests", Origin="http://evil.example")[0] == 403
    for path in ("/console/", "/requests", "/metrics"):
        assert http(serving.url + path, Host="evil.example")[0] == 403
    cancel = serving.url + "/requests/x/cancel"
    assert http(cancel, method="POST", body=b"", **own)[0] == 404  # permitted, but there is no such request
    assert http(cancel, method="POST", body=b"", Origin="http://evil.example")[0] == 403
    unload = serving.url + "/v2/repository/models/absent/unload"
    assert http(unload, method="POST", body=b"{}", **own)[0] not in (200, 403)
    assert http(unload, method="POST", body=b"{}", Origin="http://evil.example")[0] == 403
    rebound = {"Origin": "http://evil.example", "Host": "evil.example"}
    assert http(unload, method="POST", body=b"{}", **rebound)[0] == 403


def test_a_model_is_unloaded_and_loaded_again_by_the_console(serving):
    def change(action, **body):
        return http(f"{serving.url}/v2/repository/models/demo/{action}", method="POST", body=json.dumps(body).encode(), Origin=serving.url)[0]

    assert change("unload", parameters={"unload_dependents": True}) == 200
    assert json.loads(http(serving.url + "/v1/models")[2])["data"] == []
    assert change("load") == 200
    assert [model["id"] for model in json.loads(http(serving.url + "/v1/models")[2])["data"]] == ["demo"]


def test_requests_in_flight_are_listed_by_counts_and_cancelled(keyed):
    server, keys = keyed
    raw = Raw(server.http)
    body = {"model": "oracle", "messages": [{"role": "user", "content": "forever"}], "stream": True}
    headers = f"Host: localhost\r\nX-Request-Id: my-secret\r\nAuthorization: {keys['user']['Authorization']}\r\n".encode()
    raw.send(post("/v1/chat/completions", body).replace(b"Host: x\r\n", headers))
    raw.read_until(b"more ")
    text = http(server.url + "/requests", **keys["reader"])[2]
    listed = json.loads(text)
    assert listed["num_requests"] == 1 and "secret" not in text and "forever" not in text and "more" not in text
    request = listed["requests"][0]
    assert set(request) == {"id", "model", "route", "seconds", "prompt_tokens", "output_tokens"}
    assert request["model"] == "oracle" and request["route"] == "/v1/chat/completions" and request["id"].startswith("chatcmpl-")
    cancel = f"{server.url}/requests/{request['id']}/cancel"
    assert http(cancel, method="POST", body=b"")[0] == 401
    assert http(cancel, method="POST", body=b"", **keys["reader"])[0] == http(cancel, method="POST", body=b"", **keys["user"])[0] == 403
    assert http(cancel, method="POST", body=b"", **keys["operator"])[0] == 200
    assert b"an operator has cancelled request" in raw.read_until(b"0\r\n\r\n")
    raw.close()
    wait_for(lambda: json.loads(http(server.url + "/requests", **keys["reader"])[2])["num_requests"] == 0, "the request is listed no more")
    assert http(cancel, method="POST", body=b"", **keys["operator"])[0] == 404


def test_a_key_decides_who_reads_metrics_and_requests(keyed):
    server, keys = keyed
    assert http(server.url + "/console/")[0] == 200  # the page has no data; its user enters a key there
    for path, permitted in (("/metrics", {"operator"}), ("/requests", {"operator", "reader"})):
        assert http(server.url + path)[0] == 401
        for name in ("operator", "reader", "user"):
            assert http(server.url + path, **keys[name])[0] == (200 if name in permitted else 403), (path, name)
    assert "nv_inference_request_success" in http(server.url + "/metrics", **keys["operator"])[2]
    for action in ("load", "unload"):  # as models; here is no model that takes adapters
        change = {"method": "POST", "body": json.dumps({"lora_name": "x"} | ({"lora_path": "/x"} if action == "load" else {})).encode()}
        answers = {name: http(f"{server.url}/v1/{action}_lora_adapter", **change, **keys.get(name, {}))[0] for name in ("operator", "reader", "user", "none")}
        assert answers == {"operator": 400, "reader": 403, "user": 403, "none": 401}, action


@pytest.mark.parametrize("flags, is_on", [(["--console=off"], False), (["--host=0.0.0.0"], False)])
def test_the_console_is_off_where_it_was_not_asked_for(dist, tmp_path, flags, is_on):
    running = Serving(dist, tmp_path, "demo", *flags)
    assert ("console" in running.output) == is_on
    assert http(running.url + "/console/")[0] == 404
    assert running.stop() == 0


def test_a_console_that_others_reach_needs_keys(dist):
    refused = subprocess.run([dist / "bin/nereid", "serve", "demo", "--host=0.0.0.0", "--console=on"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2 and "--console=on: other machines reach the HTTP port at 0.0.0.0, which needs --api-key-file" in refused.stderr
