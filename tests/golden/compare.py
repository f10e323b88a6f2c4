"""Compares an answer with the recorded one, or with the intended difference."""
import re

import normal_form


def error_of(body):
    return body.get("error") if isinstance(body, dict) else None


def http(recording, recorded, answer, paths, instead):
    """Asserts that `answer` is the recorded one, except for the differences in `instead` (an entry of differences.toml)."""
    assert answer.status == instead.get("status", recorded.status), f"{answer.status}: {answer.body[:500]!r}"
    if answer.status is None:
        return
    compare_content_type(recorded, answer, instead)
    if "body" in instead:
        assert answer.body.decode() == instead["body"]
        return
    body = normal_form.http_body(answer, paths)
    before = normal_form.http_body(recorded, paths)
    compare_values(body, before, instead)


def compare_content_type(recorded, answer, instead):
    """Error bodies are JSON and are declared as JSON here; Triton declares some of them as plain text."""
    wanted = instead.get("content_type", recorded.headers.get("content-type"))
    got = answer.headers.get("content-type")
    is_json_error = answer.body.startswith(b'{"error"')
    assert got == wanted or is_json_error and got == "application/json", f"content type {got}, recorded {wanted}"


def compare_values(value, before, instead):
    if "error" in instead:
        text = error_of(value) if not isinstance(value, str) else value
        assert text is not None and re.fullmatch(instead["error"], text, re.DOTALL), f"{value!r} is not {instead['error']!r}"
        return
    if "json" in instead:
        before = instead["json"]
    if "models" in instead:
        value, before = index_with(value, instead["models"]), index_with(before, instead["models"])
        before = sorted([model for model in before if model["name"] not in instead["models"]]
                        + [{"name": name, "state": state} for name, state in instead["models"].items()], key=lambda model: model["name"])
    if "ignore_lines" in instead:
        value, before = ([line for line in lines if not re.search(instead["ignore_lines"], line)] for lines in (value, before))
    for path in instead.get("ignore", []):
        value, before = without(value, path.split(".")), without(before, path.split("."))
    assert value == before


def index_with(models, differing):
    """A repository index in which only name and state of the differing models are compared. A failed model must have a reason."""
    for model in models:
        assert model["name"] not in differing or model.get("state") != "UNAVAILABLE" or model["reason"]
    return [{key: model.get(key) for key in ("name", "state")} if model["name"] in differing else model for model in models]


def without(value, path):
    """Returns a copy without the members at `path`; `*` means every member or element."""
    if isinstance(value, list):
        return [without(element, path[1:] if path[0] == "*" else path) for element in value]
    if not isinstance(value, dict):
        return value
    name, rest = path[0], path[1:]
    if name == "*":
        return {key: without(item, rest) for key, item in value.items()}
    if not rest:
        return {key: item for key, item in value.items() if key != name}
    return {key: without(item, rest) if key == name else item for key, item in value.items()}
