"""docs/compatibility.md agrees with the server."""
import os
import re

import grpc
import pytest
from tritonclient.grpc import service_pb2

import compatibility_page
import differences
import http_wire

@pytest.fixture(scope="session")
def installed():
    if not os.environ.get("NEREID_DIST"):
        pytest.skip("NEREID_DIST names no installed tree")
    return os.environ["NEREID_DIST"] + "/bin/nereid"


def test_the_table_of_differences_is_that_of_the_replay():
    assert compatibility_page.table_on_page("differences") == compatibility_page.difference_table(), \
        "regenerate the tables: NEREID_DIST=dist python tests/golden/compatibility_page.py"
    for entry in differences.DIFFERENCES:
        assert entry["reason"], entry


def test_flags_on_the_page_are_as_the_server_says(installed):
    for name in ("flags", "flags-that-differ"):
        assert compatibility_page.table_on_page(name) == compatibility_page.TABLES[name](), \
            "regenerate the tables: NEREID_DIST=dist python tests/golden/compatibility_page.py"


def test_every_flag_of_triton_is_known(installed):
    known = {name for name, _, _ in compatibility_page.flags()} | {"--help"}
    assert set(compatibility_page.TRITON_FLAGS) <= known
    assert set(compatibility_page.FLAGS_THAT_DIFFER) <= known


def fields_of_the_proto():
    """(message, field) of each field of a model configuration in the proto file."""
    text = re.sub(r"//.*", "", (compatibility_page.PAGE.parents[1] / "host/frontend/proto/model_config.proto").read_text())
    scopes = []
    for line in re.findall(r"[^{};]*[{};]", text):
        line = line.strip()
        if opened := re.match(r"(message|enum|oneof)\s+(\w+)\s*{", line):
            scopes.append(opened.groups())
        elif line.endswith("{"):
            scopes.append(("other", ""))
        elif line == "}":
            scopes.pop()
        elif scopes and scopes[-1][0] in ("message", "oneof") and (field := re.search(r"(\w+)\s*=\s*\d+\s*(\[.*\])?;$", line)):
            yield next(name for kind, name in reversed(scopes) if kind == "message"), field[1]


def fields_on_the_page():
    """(message, field) and its support, row by row."""
    page = compatibility_page.PAGE.read_text()
    for message, fields, verdict in re.findall(r"^\| `(\w+)` \| (`.*?) \| (\w+)", page, re.MULTILINE):
        for field in re.findall(r"`(\w+)`", fields):
            yield (message, field), verdict


def test_every_field_of_a_configuration_is_on_the_page_once():
    page = [field for field, _ in fields_on_the_page()]
    assert sorted(page) == sorted(fields_of_the_proto())


def test_no_field_of_a_configuration_is_refused():
    assert {verdict for _, verdict in fields_on_the_page()} == {"works", "differs"}


def test_what_differs_stands_before_what_works():
    """The lists behind name no flag, field or function that differs or is refused."""
    before, _, behind = compatibility_page.PAGE.read_text().partition("\n## What works\n")
    assert "| works |" not in before
    assert re.findall(r"^\| `.*\| (?:differs|refused) \|", behind, re.MULTILINE) == []


def test_every_call_is_on_the_page_and_none_is_unimplemented(server):
    page = compatibility_page.PAGE.read_text()
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        for method in service.methods:
            assert f"`{method.name}`" in page
            if method.client_streaming:
                continue
            call = channel.unary_unary(f"/{service.full_name}/{method.name}", request_serializer=lambda message: message,
                                       response_deserializer=lambda data: data)
            try:
                call(b"", timeout=30)
            except grpc.RpcError as error:
                assert error.code() != grpc.StatusCode.UNIMPLEMENTED, method.name


def endpoints():
    section = compatibility_page.PAGE.read_text().split("### Endpoints over HTTP", 1)[1].split("\n### ", 1)[0]
    for row in re.findall(r"^\| (`.*?) \| (.*?) \|", section, re.MULTILINE):
        for path in re.findall(r"`([^`]+)`", row[0]):
            for method in row[1].split(", "):
                yield method, path


def test_every_endpoint_on_the_page_is_there(server):
    wrong = {"GET": "DELETE", "POST": "DELETE"}
    for method, path in endpoints():
        port = server.metrics if path == "/metrics" else server.http
        path = path.replace("{model}", "nosuch").replace("{version}", "1").replace("{region}", "none")
        request = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()
        answer = http_wire.exchange(port, request)
        assert answer.status not in (405, 501) and b'"Not Found"' not in answer.body, (method, path, answer)
        refused = http_wire.exchange(port, request.replace(method.encode(), wrong[method].encode(), 1))
        assert refused.status == 405, (method, path, refused)


def test_every_metric_of_the_core_is_on_the_page():
    page = compatibility_page.PAGE.read_text()
    sources = (compatibility_page.PAGE.parents[1] / "host/core/observe").glob("*.cc")
    shown = {name for source in sources for name in re.findall(r'"(nv_[a-z_]+)"', source.read_text())}
    assert len(shown) > 20 and {name for name in shown if f"`{name}`" not in page} == set()
