"""Servers for the end-to-end tests. Environment: NEREID_DIST, the installed tree; NEREID_TEST_BACKENDS, the folder of the test backends. Without
NEREID_DIST every test here is skipped."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "support")]
from certificates import Certificates  # noqa: E402
from python_support import MODELS, python_flags  # noqa: E402
from server_process import ServerProcess  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Server(ServerProcess):
    """A running server of the installed tree. `flags` are additional command-line flags; `program` is the name under which it runs."""

    def __init__(self, repository, log, flags=(), wait_for="/v2/health/ready", tls=None, environment=None, program="nereid", address="127.0.0.1"):
        # Python models run in the interpreter that runs the tests, because it has NumPy.
        super().__init__([os.environ["NEREID_DIST"] + "/bin/" + program], [f"--model-repository={repository}", *flags], log,
                         {"NEREID_PYTHON": sys.executable, **os.environ, **(environment or {})}, wait_for, tls, address=address)


@pytest.fixture(scope="session")
def dist():
    if not os.environ.get("NEREID_DIST"):
        pytest.skip("NEREID_DIST names no installed tree")
    return pathlib.Path(os.environ["NEREID_DIST"])


@pytest.fixture(scope="session")
def start_server(tmp_path_factory, dist):
    """start_server(repository, flags=[], wait_for=path, ...): returns a Server, which is stopped at the end of the session."""
    running = []

    def start(repository, flags=(), wait_for="/v2/health/ready", tls=None, environment=None, **more):
        running.append(Server(repository, tmp_path_factory.mktemp("log") / "server.log", flags, wait_for, tls, environment, **more))
        return running[-1]

    yield start
    for server in running:
        server.begin_stop()
    for server in running:
        server.wait()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def test_backends():
    """The flag that adds the test backends."""
    if not os.environ.get("NEREID_TEST_BACKENDS"):
        pytest.skip("NEREID_TEST_BACKENDS names no folder of test backends")
    return f"--backend-directory={os.environ['NEREID_TEST_BACKENDS']}"


@pytest.fixture(scope="session")
def demo(start_server, dist):
    """A server with the demo repository."""
    return start_server(dist / "share/demo_repository")


@pytest.fixture(scope="session")
def chat_repository(dist, tmp_path_factory):
    """chat_repository(template, *flags): returns a new repository of the demo model with this chat template. `flags` are those of nereid-repo.
    `json_whitespace` is the longest run of white space in JSON that the model may write: the stories of the demo like long ones."""
    def make(template, *flags, json_whitespace=None):
        folder = tmp_path_factory.mktemp("chat")
        shutil.copytree(ROOT / "demo/model", folder / "model")
        (folder / "model/chat_template.jinja").write_text(template)
        subprocess.run([dist / "bin/nereid-repo", "new", "llm", "--checkpoint", folder / "model", "--out", folder / "models", "--copy", *flags], check=True)
        if json_whitespace is not None:
            config = folder / "models/tensorrt_llm/config.pbtxt"
            config.write_text(config.read_text() + f'parameters {{ key: "json_whitespace" value {{ string_value: "{json_whitespace}" }} }}\n')
        return folder / "models"

    return make


@pytest.fixture(scope="module")
def patient_repository(tmp_path_factory):
    """Models of the test backends `patient` and `ticker`, which answer after the requested time."""
    target = tmp_path_factory.mktemp("patient") / "repo"
    shutil.copytree(ROOT / "tests/support/repositories/patient", target)
    return target


@pytest.fixture(scope="session")
def python_repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("python") / "models"
    shutil.copytree(MODELS, root)
    shutil.copytree(MODELS / "doubler", root / "spare")
    for model in ("speaker", "loose"):
        shutil.copytree(MODELS / model, root / f"{model}_stream")
        with open(root / f"{model}_stream/config.pbtxt", "a") as config:
            config.write("model_transaction_policy { decoupled: true }\n")
    return root


@pytest.fixture(scope="session")
def python_server(start_server, python_repository):
    """A server with every Python model except "spare". Models are loaded and unloaded by request. All modules share it, because each of its models
    starts a process: a test that adds a model removes it."""
    models = [f"--load-model={each.name}" for each in python_repository.iterdir() if each.name != "spare"]
    return start_server(python_repository, python_flags("--model-control-mode=explicit", *models))


@pytest.fixture(scope="module")
def own_repository(tmp_path_factory):
    """An empty repository for models that a test writes."""
    root = tmp_path_factory.mktemp("own") / "models"
    root.mkdir()
    return root


@pytest.fixture(scope="module")
def own_server(start_server, own_repository):
    """A server for the models in own_repository, which are loaded by request."""
    running = start_server(own_repository, python_flags("--model-control-mode=explicit", "--log-verbose=1"))
    yield running
    assert running.stop() == 0
