"""The servers of the replay tests. Environment: NEREID_DIST is the installed tree; NEREID_SERVER_COMMAND is another server with Triton's flags, to
test instead of Nereid. The interpreter that runs these tests also runs the Python models.
"""
import os
import pathlib
import secrets
import shlex
import shutil
import struct
import sys
from multiprocessing import shared_memory

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "support")]
pytest.register_assert_rewrite("compare", "grpc_wire")  # so that a failing assertion shows both values
import load_answers  # noqa: E402
import normal_form  # noqa: E402
from server_process import ServerProcess  # noqa: E402

HERE = pathlib.Path(__file__).parent
FORWARDED = ["--http-header-forward-pattern=x-fwd-.*", "--grpc-header-forward-pattern=x-fwd-.*"]


def server_command():
    given = os.environ.get("NEREID_SERVER_COMMAND")
    if given:
        return shlex.split(given)
    if not os.environ.get("NEREID_DIST"):
        pytest.skip("NEREID_DIST names no installed tree")
    # Under this name the server has Triton's defaults. The recordings are of a version that permitted shared memory by default.
    return [os.environ["NEREID_DIST"] + "/bin/tritonserver", "--allow-client-shm=true"]


class Server(ServerProcess):
    """A running server with the models of the recordings."""

    def __init__(self, root, flags, wait_for):
        self.paths = normal_form.Paths({"repo_bad": root / "repo_bad", "repo": root / "repo", "trace.json": root / "trace.json"})
        super().__init__(server_command(), [f"--model-repository={root}/repo", f"--trace-config=triton,file={root}/trace.json", *FORWARDED, *flags],
                         root / "server.log", {**os.environ, "NEREID_PYTHON": sys.executable}, wait_for, timeout_s=100)


def copy_models(root):
    for folder in ("repo", "repo_bad"):
        shutil.copytree(HERE / folder, root / folder)
    (root / "repo/ens/1").mkdir()  # an empty folder, which git cannot store
    for model in (root / "repo_bad").iterdir():
        if model.name not in ("noversion", "badname"):
            (model / "1").mkdir(exist_ok=True)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """All models are loaded at the start, without model control."""
    root = tmp_path_factory.mktemp("models")
    copy_models(root)
    running = Server(root, [], "/v2/health/ready")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def patient_server(tmp_path_factory):
    """Only the sequence model, with an idle timeout of an hour."""
    root = tmp_path_factory.mktemp("sequences")
    shutil.copytree(HERE / "repo/seq", root / "repo/seq")
    config = root / "repo/seq/config.pbtxt"
    config.write_text(config.read_text().replace("2000000", "3600000000"))
    running = Server(root, [], "/v2/health/ready")
    yield running
    running.stop()


class SharedObjects:
    """The two shared-memory objects of the recordings, under names of the same length that are unique to this run."""

    def __init__(self, paths):
        self.name = "g" + secrets.token_hex(3)[:5]
        paths.renamed["/" + self.name + "_"] = "/golden_"
        values = struct.pack("<16f", *range(16))
        self.objects = [self.create("in", values + bytes(64)), self.create("out", bytes(64))]

    def create(self, role, content):
        made = shared_memory.SharedMemory(f"{self.name}_{role}", create=True, size=len(content))
        made.buf[:len(content)] = content
        return made

    def rename(self, data):
        return data.replace(b"/golden_", f"/{self.name}_".encode())

    def remove(self):
        for made in self.objects:
            made.close()
            made.unlink()


@pytest.fixture(scope="session")
def shared_objects(server):
    objects = SharedObjects(server.paths)
    yield objects
    objects.remove()


@pytest.fixture(scope="session")
def controlled_server(tmp_path_factory):
    """Models are loaded by request; one is loaded at the start."""
    root = tmp_path_factory.mktemp("controlled")
    copy_models(root)
    running = Server(root, [f"--model-repository={root}/repo_bad", "--model-control-mode=explicit", "--load-model=identity_fp32"],
                     "/v2/models/identity_fp32/ready")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def loading_server(tmp_path_factory):
    """Models of the test backends, loaded by request from `repository`."""
    if not os.environ.get("NEREID_TEST_BACKENDS"):
        pytest.skip("NEREID_TEST_BACKENDS names no folder")
    root = tmp_path_factory.mktemp("loads")
    load_answers.write_steps(root / "repo")
    running = Server(root, ["--model-control-mode=explicit", f"--backend-directory={os.environ['NEREID_TEST_BACKENDS']}"], "/v2/health/live")
    running.repository = root / "repo"
    yield running
    running.stop()
