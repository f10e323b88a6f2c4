"""Where Nereid's answer differs from the recorded one on purpose: differences.toml says where and why."""
import fnmatch
import os
import pathlib
import tomllib

HERE = pathlib.Path(__file__).parent

# The harness itself is proved against Triton: then nothing differs on purpose.
AGAINST_TRITON = os.environ.get("NEREID_GOLDEN_AGAINST") == "triton"


def load(name):
    return tomllib.loads((HERE / name).read_text())


DIFFERENCES = load("differences.toml")["difference"]


def covers(entry, recording):
    return any(fnmatch.fnmatchcase(recording, pattern) for pattern in entry["recordings"])


def expected(recording):
    """What is expected instead of the recorded answer; the first entry that covers the recording wins. {} when nothing."""
    if AGAINST_TRITON:
        return {}
    return next((entry for entry in DIFFERENCES if covers(entry, recording)), {})


def reason_to_skip(recording):
    if AGAINST_TRITON:
        crash = next((entry for entry in DIFFERENCES if covers(entry, recording) and entry.get("harms_triton")), None)
        return crash and f"harms Triton: {crash['reason']}"
    return None
