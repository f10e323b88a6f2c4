"""Loading of Python models: errors of a failed load, the interpreter that runs a model, and Python-based backends."""
import json
import pathlib
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
from python_support import MODELS, PATIENCE_S, load_by_request, log_of, post, python_flags, unload, wait_for, write_model


@pytest.mark.parametrize("code, text", [
    (None, "found no such file"),
    ("import nosuch_module\n", "ModuleNotFoundError: No module named 'nosuch_module'\n\nAt:\n  {path}(1): <module>\n"),
    ("def broken(:\n", "SyntaxError: invalid syntax"),
    ("class Model: pass\n", "has no class TritonPythonModel"),
    ("class TritonPythonModel:\n  def initialize(self, args):\n    raise ValueError('no weights')\n  def execute(self, requests): pass\n",
     "ValueError: no weights\n\nAt:\n  {path}(3): initialize\n"),
    ("import os\nos._exit(9)\n", "Stub process 'broken' is not healthy. The Python worker exited with code 9"),
    ("import os\nclass TritonPythonModel:\n  def initialize(self, args):\n    os._exit(9)\n  def execute(self, requests): pass\n",
     "Stub process 'broken_0_0' is not healthy. The Python worker exited with code 9"),
])
def test_failed_load_of_a_python_model_reports_the_reason(own_server, own_repository, code, text):
    write_model(own_repository, "broken", code)
    try:
        status, answer = post(own_server, "/v2/repository/models/broken/load", {})
        assert status >= 400
        assert text.format(path=own_repository / "broken/1/model.py") in answer["error"], answer
    finally:
        shutil.rmtree(own_repository / "broken")


def test_a_model_with_the_dataclasses_of_older_pythons_is_served(own_server, own_repository):
    """tensorrt_llm_bls of TensorRT-LLM 0.9 and 0.13 has such fields, in files beside its model.py."""
    write_model(own_repository, "dated", "from lib.parts import Parts\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n"
                "class TritonPythonModel:\n  def execute(self, requests):\n"
                "    return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', Parts().values + Parts().inner.count)]) for _ in requests]\n")
    (own_repository / "dated/1/lib").mkdir()
    (own_repository / "dated/1/lib/parts.py").write_text(
        "from dataclasses import dataclass\nimport numpy as np\n@dataclass\nclass Inner:\n  count: int = 2\n"
        "@dataclass\nclass Parts:\n  values: np.ndarray = np.ones(2, np.float32)\n  inner: Inner = Inner()\n")
    try:
        load_by_request(own_server, "dated")
        status, answer = post(own_server, "/v2/models/dated/infer", {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [2], "data": [0, 0]}]})
        assert status == 200 and answer["outputs"][0]["data"] == [3, 3], answer
        unload(own_server, "dated")
    finally:
        shutil.rmtree(own_repository / "dated")


def test_a_load_that_hangs_is_ended_in_time(start_server, tmp_path):
    stages = {"import": "print('reads')\nimport time\ntime.sleep(600)\n",
              "complete": "class TritonPythonModel:\n  @staticmethod\n  def auto_complete_config(config):\n    import time\n    print('completes')\n"
                          "    time.sleep(600)\n  def execute(self, requests): pass\n",
              "initialize": "import triton_python_backend_utils as pb_utils\nclass TritonPythonModel:\n  def initialize(self, args):\n    import time\n"
                            "    pb_utils.Logger.log_info('initializes')\n    time.sleep(600)\n  def execute(self, requests): pass\n"}
    for name, code in stages.items():
        write_model(tmp_path / "models", name, code)
    running = start_server(tmp_path / "models", python_flags("--model-control-mode=explicit", "--backend-config=python,stub-timeout-seconds=4"))
    answers = {}
    loads = [threading.Thread(target=lambda name=name: answers.update({name: post(running, f"/v2/repository/models/{name}/load", {})})) for name in stages]
    for each in loads:
        each.start()
    for each in loads:
        each.join()
    for name, task in (("import", "read the model's file within 4000 ms; its last line: 'reads'"),
                       ("complete", "finish auto_complete_config within 4000 ms; its last line: 'completes'"),
                       ("initialize", "finish initialize within 4000 ms; its last line: 'initializes'")):
        status, answer = answers[name]
        assert status >= 400 and f"model '{name}'" in answer["error"] and f"it did not {task}" in answer["error"], answer
    assert running.stop() == 0


def test_a_wrong_parameter_of_the_model_is_named(own_server, own_repository):
    config = (MODELS / "doubler/config.pbtxt").read_text() + 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "%s" } }\n'
    write_model(own_repository, "forced", "class TritonPythonModel:\n  def execute(self, requests): pass\n", config % "perhaps")
    status, answer = post(own_server, "/v2/repository/models/forced/load", {})
    assert status >= 400 and "FORCE_CPU_ONLY_INPUT_TENSORS: expected yes or no, got 'perhaps'" in answer["error"], answer
    (own_repository / "forced/config.pbtxt").write_text(config % "no")
    load_by_request(own_server, "forced")
    unload(own_server, "forced")
    shutil.rmtree(own_repository / "forced")


def test_an_unknown_setting_is_named_in_the_log(start_server, tmp_path):
    write_model(tmp_path / "models", "plain", "class TritonPythonModel:\n  def execute(self, requests): pass\n")
    running = start_server(tmp_path / "models", python_flags("--model-control-mode=explicit", "--backend-config=python,thread-pool-sise=4"))
    assert post(running, "/v2/repository/models/plain/load", {})[0] == 200
    assert "--backend-config=python,thread-pool-sise is ignored: expected one of interpreter, " in log_of(running)
    assert running.stop() == 0


def test_a_stub_of_the_model_names_the_interpreter(own_server, own_repository):
    """The version follows from the Python library that the stub file is linked to."""
    code = ("import sys\nclass TritonPythonModel:\n  def initialize(self, args):\n    raise ValueError('Python %d.%d' % sys.version_info[:2])\n"
            "  def execute(self, requests): pass\n")
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version, text in ((own, f"ValueError: Python {own}"), ("3.1", "cannot start interpreter 'python3.1'")):
        write_model(own_repository, "stubbed", code)
        (own_repository / "stubbed/triton_python_backend_stub").write_bytes(b"\x7fELF\0libpython3.so\0libpython%s.so.1.0\0" % version.encode())
        try:
            status, answer = post(own_server, "/v2/repository/models/stubbed/load", {})
            assert status >= 400 and text in answer["error"], answer
        finally:
            shutil.rmtree(own_repository / "stubbed")


@pytest.mark.parametrize("code, text", [
    ("    return None\n", "auto_complete_config function in model 'completed' must return a valid pb.ModelConfig object."),
    ("    config.set_max_batch_size(-1)\n", "ValueError: configuration specified max_batch_size 0, but in auto-complete-config function for model "
                                            "'completed' specified max_batch_size -1"),
    ("    config.add_input({'name': 'IN', 'data_type': 'TYPE_INT8', 'dims': [1]})\n",
     "ValueError: unable to load model 'completed', configuration expects datatype TYPE_FP32 for input 'IN', model provides TYPE_INT8"),
])
def test_a_configuration_that_contradicts_the_file_is_refused(own_server, own_repository, code, text):
    write_model(own_repository, "completed", "class TritonPythonModel:\n  @staticmethod\n  def auto_complete_config(config):\n" + code +
                "    return config\n  def execute(self, requests): pass\n")
    try:
        status, answer = post(own_server, "/v2/repository/models/completed/load", {})
        assert status >= 400 and text in answer["error"], answer
    finally:
        shutil.rmtree(own_repository / "completed")


def test_execute_may_be_made_by_initialize(own_server, own_repository):
    code = ("import triton_python_backend_utils as pb_utils\nclass TritonPythonModel:\n  def initialize(self, args):\n    {}\n"
            "  def run(self, requests):\n"
            "    return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', each.inputs()[0].as_numpy())]) for each in requests]\n")
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [3]}]}
    for line, expected, text in (("self.execute = self.run", 200, '"data":[3.0]'), ("pass", 500, "does not implement `execute` method.")):
        write_model(own_repository, "made", code.format(line))
        try:
            load_by_request(own_server, "made")
            status, answer = post(own_server, "/v2/models/made/infer", body)
            assert status == expected and text in json.dumps(answer, separators=(",", ":")), answer
            unload(own_server, "made")
        finally:
            shutil.rmtree(own_repository / "made")


def test_an_interpreter_without_numpy_is_named(own_server, own_repository, tmp_path):
    environment = tmp_path / "env"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python3").write_text(f"#!/bin/sh\nexec {sys.executable} -S -E \"$@\"\n")
    (environment / "bin/python3").chmod(0o755)
    config = (MODELS / "doubler/config.pbtxt").read_text() + f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}\n'
    write_model(own_repository, "bare", (MODELS / "doubler/1/model.py").read_text(), config)
    status, answer = post(own_server, "/v2/repository/models/bare/load", {})
    assert status >= 400 and "interpreter '" in answer["error"] and "-m pip install numpy" in answer["error"], answer
    shutil.rmtree(own_repository / "bare")


@pytest.mark.parametrize("is_packed", [False, True], ids=["folder", "archive"])
def test_a_model_brings_its_environment(own_server, own_repository, tmp_path, is_packed):
    environment = tmp_path / "env"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python3").symlink_to(sys.executable)
    (environment / "bin/activate").write_text(
        f'export FROM_ENVIRONMENT="it was activated"\npython3() {{ :; }}\nunset -f python3\nexport PATH="{pathlib.Path(sys.executable).parent}:$PATH"\n')
    name = "environment_archive" if is_packed else "environment_folder"
    place = str(environment)
    config = (MODELS / "caller/config.pbtxt").read_text()
    code = (MODELS / "caller/1/model.py").read_text().replace("return self.early", "import os\n        return os.environ.get('FROM_ENVIRONMENT')")
    if is_packed:
        place = "$$TRITON_MODEL_DIRECTORY/env.tar.gz"
    config += f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{place}" }} }}\n'
    write_model(own_repository, name, code, config)
    if is_packed:
        subprocess.run(["tar", "-C", environment, "-czf", own_repository / name / "env.tar.gz", "."], check=True)
    load_by_request(own_server, name)
    body = {"inputs": [{"name": "CASE", "datatype": "BYTES", "shape": [1], "data": ["early"]},
                       {"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}
    status, answer = post(own_server, f"/v2/models/{name}/infer", body)
    assert status == 200 and json.loads(answer["outputs"][0]["data"][0]) == "it was activated", answer
    unload(own_server, name)
    shutil.rmtree(own_repository / name)


PACKED_MODEL = """
import json
import os
import sys

import numpy as np
import packed_module
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        seen = {"prefix": sys.prefix, "module": packed_module.NAME, "conda": os.environ.get("CONDA_PREFIX"),
                "libraries": os.environ.get("LD_LIBRARY_PATH", "").split(":")[0]}
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([json.dumps(seen).encode()], object))]) for each in requests]
"""


def test_a_packed_environment_is_unpacked_once_and_removed_with_its_last_model(own_server, own_repository, tmp_path):
    """The archive has conda-pack's layout: interpreter, activation script, libraries and packages, unpacked to any folder."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    interpreter = pathlib.Path(sys.executable).resolve()
    environment = tmp_path / "env"
    packages = environment / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (environment / "bin").mkdir()
    (environment / "bin/python3").symlink_to(interpreter)
    (environment / "bin/activate").write_text(
        'CONDA_PREFIX="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"\nexport CONDA_PREFIX\nexport PATH="$CONDA_PREFIX/bin:$PATH"\n')
    (environment / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\n")
    (packages / "packed_module.py").write_text("NAME = 'from the archive'\n")
    (packages / "numpy.pth").write_text(f"{pathlib.Path(np.__file__).parents[1]}\n")
    archive = tmp_path / "env.tar.gz"
    subprocess.run(["tar", "-C", environment, "-czf", archive, "."], check=True)
    config = 'backend: "python"\noutput [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]\ninstance_group [ { kind: KIND_CPU } ]\n' \
             f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{archive}" }} }}\n'
    seen = {}
    for name in ("packed_one", "packed_two"):
        write_model(own_repository, name, PACKED_MODEL, config)
        load_by_request(own_server, name)
        status, answer = post(own_server, f"/v2/models/{name}/infer", {"inputs": []})
        assert status == 200, answer
        seen[name] = json.loads(answer["outputs"][0]["data"][0])
    prefix = seen["packed_one"]["prefix"]
    assert seen["packed_one"] == seen["packed_two"] == {"prefix": prefix, "module": "from the archive", "conda": prefix, "libraries": prefix + "/lib"}
    assert pathlib.Path(prefix).resolve() != environment.resolve()
    for name in seen:
        assert pathlib.Path(prefix).is_dir()
        unload(own_server, name)
        shutil.rmtree(own_repository / name)
    wait_for(lambda: not pathlib.Path(prefix).exists(), "the unpacked environment is removed")


def test_workers_start_concurrently(start_server, tmp_path):
    """Instances of one model and several models. Each worker continues only after all have begun, which would fail if they started one after the
    other."""
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    code = f"""
import os
import time

class TritonPythonModel:
    def initialize(self, args):
        open(os.path.join({str(meeting)!r}, args["model_instance_name"]), "w").close()
        deadline = time.monotonic() + {PATIENCE_S}
        while len(os.listdir({str(meeting)!r})) < 4:
            if time.monotonic() > deadline:
                raise TimeoutError("only " + ", ".join(os.listdir({str(meeting)!r})) + " have begun")
            time.sleep(0.01)

    def execute(self, requests): pass
"""
    config = (MODELS / "doubler/config.pbtxt").read_text().split("instance_group")[0]
    write_model(tmp_path / "models", "three", code, config + "instance_group [ { kind: KIND_CPU count: 3 } ]\n")
    write_model(tmp_path / "models", "one", code, config + "instance_group [ { kind: KIND_CPU count: 1 } ]\n")
    running = start_server(tmp_path / "models", python_flags("--model-control-mode=explicit", "--model-load-thread-count=2",
                                                             f"--backend-config=python,stub-timeout-seconds={3 * PATIENCE_S}"))
    answers = {}

    def load(name):
        answers[name] = post(running, f"/v2/repository/models/{name}/load", {}, timeout_s=3 * PATIENCE_S)
    loads = [threading.Thread(target=load, args=(name,)) for name in ("three", "one")]
    for each in loads:
        each.start()
    for each in loads:
        each.join()
    assert {name: status for name, (status, _) in answers.items()} == {"three": 200, "one": 200}, answers
    assert running.stop() == 0


def test_a_backend_may_be_written_in_python(start_server, tmp_path):
    (tmp_path / "backends/triple").mkdir(parents=True)
    (tmp_path / "backends/triple/model.py").write_text("""
import json
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(0)
        return config

    def initialize(self, args):
        self.factor = int(json.loads(args["model_config"])["parameters"]["factor"]["string_value"])
        assert open(pb_utils.get_model_dir() + "/name").read() == args["model_name"], "the model's own files"

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each.inputs()[0].as_numpy() * self.factor)]) for each in requests]
""")
    for name, factor in (("three", 3), ("four", 4)):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "1/name").write_text(name)
        (tmp_path / "models" / name / "config.pbtxt").write_text(
            f'backend: "triple"\nparameters {{ key: "factor" value {{ string_value: "{factor}" }} }}\n')
    running = start_server(tmp_path / "models", python_flags(f"--backend-directory={tmp_path}/backends"))
    for name, expected in (("three", [3.0, 6.0]), ("four", [4.0, 8.0])):
        status, answer = post(running, f"/v2/models/{name}/infer", {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [2], "data": [1, 2]}]})
        assert status == 200 and answer["outputs"][0]["data"] == expected, answer
    assert running.stop() == 0
