"""Compares docs/compatibility.md with the library: every function is listed exactly once, its row is true, and it survives null pointers."""
import json
import pathlib
import re
import subprocess
import sys

import processes
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests/backend_api/abi/functions.tsv"
# For these functions null is valid (nothing to delete; the log belongs to the process), or they return no error.
NULL_IS_FINE = re.compile(r"(Delete|SetLog\w+|LogIsEnabled|ErrorNew|ErrorCode|ErrorCodeString|ErrorMessage|ParameterNew|ParameterBytesNew"
                          r"|\w*String|DataTypeByteSize|StringToDataType)$")


def documented():
    rows = re.findall(r"^\| `(TRITON\w+)` \| (\w+) \| (.*) \|$", (ROOT / "docs/compatibility.md").read_text(), re.MULTILINE)
    return {name: (verdict, how) for name, verdict, how in rows}, [name for name, _, _ in rows]


@pytest.fixture(scope="module")
def answers(dist):
    """Returns each function's answer to null pointers."""
    done = subprocess.run([sys.executable, str(pathlib.Path(__file__).parent / "call_with_nulls.py"), str(dist / "lib/libtritonserver.so"), str(TABLE)],
                          capture_output=True, text=True, timeout=100, check=False, env=processes.foreign_environment())
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"{lines[-1]}: {done.stderr[-500:]}"
    return {line["function"]: line["error"] for line in lines if "function" in line}


def test_every_function_is_listed_once():
    listed, names = documented()
    host = [line.split("\t")[2] for line in TABLE.read_text().splitlines()[1:] if line.endswith("host")]
    additions = {"TRITONSERVER_ServerOptionsSetLogCallback", "TRITONCACHE_CacheEntryNew", "TRITONCACHE_CacheEntryDelete"}
    assert len(names) == len(listed)
    assert set(listed) == set(host) | additions


def test_verdicts_have_their_reasons():
    for name, (verdict, how) in documented()[0].items():
        assert verdict in ("works", "differs", "refused"), name
        assert bool(how) == (verdict != "works"), name


def test_nulls_are_refused_by_name(answers):
    for name, error in answers.items():
        assert error is not None or NULL_IS_FINE.search(name), f"{name} takes null pointers for granted"
        assert error is None or name in error or "must not be null" in error or "not supported" in error, f"{name}: {error}"


def test_unsupported_functions_are_listed_as_such(answers):
    for name, (verdict, _) in documented()[0].items():
        if "not supported by this server yet" in (answers.get(name) or ""):
            assert verdict == "refused", f"{name}: the page says {verdict}, the library {answers.get(name)!r}"
