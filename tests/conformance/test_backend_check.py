"""Tests nereid-backend-check on correct and on faulty backends."""
import os
import pathlib
import subprocess

import pytest

TENSORS = """input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
FAULT = TENSORS + 'parameters { key: "fault" value { string_value: "WHICH" } }\n'


@pytest.fixture(scope="module")
def check():
    """check(backend, config, *flags): exit status, verdicts by check, and the output."""
    dist, backends = os.environ.get("NEREID_DIST"), os.environ.get("NEREID_TEST_BACKENDS")
    if not dist or not backends:
        pytest.skip("NEREID_DIST or NEREID_TEST_BACKENDS names no folder")

    def run(tmp_path, backend, config, *flags):
        (tmp_path / "config.pbtxt").write_text(config)
        command = [f"{dist}/bin/nereid-backend-check", "--config", str(tmp_path / "config.pbtxt"),
                   f"{backends}/{backend}/libtriton_{backend}.so", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        verdicts = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()[:-1]}
        return done.returncode, verdicts, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("batch", ["", "max_batch_size: 8\n", "max_batch_size: 8\ndynamic_batching { }\n"], ids=["plain", "batched", "dynamic"])
def test_a_sound_backend_passes(check, tmp_path, batch):
    code, verdicts, output = check(tmp_path, "identity_c", batch + TENSORS)
    assert code == 0, output
    assert len(verdicts) == 13 and set(verdicts.values()) <= {"ok", "skipped"}, output
    assert verdicts["instances"] == "ok"
    assert (verdicts["batch"] == "ok") == bool(batch)


def test_the_example_of_a_stream_passes(check, tmp_path):
    config = pathlib.Path(__file__).parents[2] / "backend_api/stream_template/config.pbtxt"
    code, verdicts, output = check(tmp_path, "word_stream", config.read_text().replace("my_backend", "word_stream"))
    assert code == 0 and set(verdicts.values()) <= {"ok", "skipped"}, output


@pytest.mark.parametrize("fault, failing, said", [
    ("model_initialize", "load", "model_initialize fails as told"),
    ("execute", "answer", "execute fails as told"),
    ("no_response", "answer", "without sending a final response"),
    ("unknown_output", "answer", "NO_SUCH_OUTPUT"),
    ("none", "statistics", "TRITONBACKEND_ModelInstanceReportStatistics"),
])
def test_a_fault_is_found_and_named(check, tmp_path, fault, failing, said):
    code, verdicts, output = check(tmp_path, "hostile", FAULT.replace("WHICH", fault))
    assert code == 1 and verdicts[failing] == "FAILED" and said in output, output


def test_what_the_author_means_is_a_quirk(check, tmp_path):
    code, verdicts, output = check(tmp_path, "hostile", FAULT.replace("WHICH", "none"), "--quirk", "statistics")
    assert code == 0 and verdicts["statistics"] == "quirk", output


def test_what_is_no_backend_is_said_so(check, tmp_path):
    code, _, output = check(tmp_path, "no_entry_points", TENSORS)
    assert code == 1 and "TRITONBACKEND_ModelInstanceExecute" in output
    code, _, output = check(tmp_path, "nosuch", TENSORS)
    assert code == 2 and "no such file" in output


def test_a_model_folder_may_be_given(check, tmp_path):
    model = pathlib.Path(tmp_path / "models/mine")
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text('backend: "identity_c"\n' + TENSORS)
    code, _, output = check(tmp_path, "identity_c", "", "--model", str(model))
    assert code == 0, output
