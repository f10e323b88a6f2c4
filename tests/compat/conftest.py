"""Runs third-party programs with our library, and our programs with Triton's library. Environment: NEREID_DIST, the installed tree;
NEREID_TEST_BACKENDS, the folder of the test backends. Without them every test here is skipped."""
import ctypes
import os
import pathlib
import shutil
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
pytest.register_assert_rewrite("processes")
import processes  # noqa: E402
import wheels  # noqa: E402

THEIR_CORE = "libtritonserver-717102f0.so"  # the file name under which the wheel's libraries load it
IDENTITY = """backend: "identity_c"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""


def pytest_collection_modifyitems(items):
    """The first test that uses a wheel waits for its download, so its time limit is longer."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def dist():
    if not os.environ.get("NEREID_DIST"):
        pytest.skip("NEREID_DIST names no installed tree")
    return pathlib.Path(os.environ["NEREID_DIST"]).resolve()


@pytest.fixture(scope="session")
def backends():
    if not os.environ.get("NEREID_TEST_BACKENDS"):
        pytest.skip("NEREID_TEST_BACKENDS names no folder")
    return pathlib.Path(os.environ["NEREID_TEST_BACKENDS"]).resolve()


@pytest.fixture(scope="session")
def their_wheel():
    """Returns the CPU version of Triton 2.51.0 from PyPI: `pytriton/tritonserver` and `nvidia_pytriton.libs`."""
    return wheels.unpacked("nvidia-pytriton==0.7.0") / "content"


@pytest.fixture(scope="session")
def their_server_on_our_core(their_wheel, dist, tmp_path_factory):
    """Builds a tree with the wheel's executable and backends, and our library under the wheel's library name. Their run path is relative, so the
    folder layout is the wheel's."""
    root = tmp_path_factory.mktemp("theirs_on_ours")
    shutil.copytree(their_wheel / "pytriton/tritonserver", root / "pytriton/tritonserver")
    libraries = root / "nvidia_pytriton.libs"
    libraries.mkdir()
    for library in (their_wheel / "nvidia_pytriton.libs").iterdir():
        (libraries / library.name).symlink_to(dist / "lib/libtritonserver.so" if library.name == THEIR_CORE else library)
    (root / "pytriton/tritonserver/bin/tritonserver").chmod(0o755)
    return root / "pytriton/tritonserver"


@pytest.fixture(scope="session")
def python_environment(their_server_on_our_core):
    """Returns the environment for the wheel's Python backend: its stub for our Python version, and our NumPy."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = their_server_on_our_core / f"python_backend_stubs/{version}/triton_python_backend_stub"
    if not stub.exists():
        pytest.skip(f"the wheel has no stub for Python {version}")
    try:
        ctypes.CDLL(f"libpython{version}.so.1.0", mode=os.RTLD_LOCAL)
    except OSError as error:
        pytest.skip(f"the stub needs a shared Python library: {error}")
    numpy = pytest.importorskip("numpy")
    shutil.copy(stub, their_server_on_our_core / "backends/python/triton_python_backend_stub")
    (their_server_on_our_core / "backends/python/triton_python_backend_stub").chmod(0o755)
    # Some stubs find packages only by PYTHONPATH, others only those of the first python3 on the path.
    folder = pathlib.Path(sys.executable).parent
    return dict(os.environ, PYTHONPATH=str(pathlib.Path(numpy.__file__).parents[1]), PATH=f"{folder}:{os.environ['PATH']}")


@pytest.fixture(scope="session")
def identity_repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("identity")
    (root / "identity/1").mkdir(parents=True)
    (root / "identity/config.pbtxt").write_text(IDENTITY)
    return root


@pytest.fixture(scope="session")
def start(tmp_path_factory):
    """start(command, repository, backends, environment=None, flags=()): returns a processes.Server, which is stopped after the test."""
    running = []

    def start_one(command, repository, backends, environment=None, flags=()):
        log = tmp_path_factory.mktemp("log") / "server.log"
        running.append(processes.Server(command, repository, backends, log, environment or dict(os.environ), flags))
        return running[-1]

    yield start_one
    for server in running:
        server.stop()


@pytest.fixture(scope="session")
def nereid(start, dist, identity_repository, backends):
    """Our server with the model `identity`."""
    return start(dist / "bin/nereid", identity_repository, backends)
