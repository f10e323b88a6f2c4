"""Intended differences from the recorded answers. differences.toml lists each with its reason."""
import fnmatch
import os
import pathlib
import tomllib

HERE = pathlib.Path(__file__).parent

# With NEREID_GOLDEN_AGAINST=triton, the harness itself is tested against Triton: no difference is expected.
AGAINST_TRITON = os.environ.get("NEREID_GOLDEN_AGAINST") == "triton"


def load(name):
    return tomllib.loads((HERE / name).read_text())


DIFFERENCES = load("differences.toml")["difference"]


def covers(entry, recording):
    return any(fnmatch.fnmatchcase(recording, pattern) for pattern in entry["recordings"])


def expected(recording):
    """The expected difference of a recording: the first entry that covers it, or {} for none."""
    if AGAINST_TRITON:
        return {}
    return next((entry for entry in DIFFERENCES if covers(entry, recording)), {})


def reason_to_skip(recording):
    if AGAINST_TRITON:
        crash = next((entry for entry in DIFFERENCES if covers(entry, recording) and entry.get("harms_triton")), None)
        return crash and f"harms Triton: {crash['reason']}"
    return None
