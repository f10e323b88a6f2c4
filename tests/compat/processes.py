"""A server process of these tests, ours or another one with Triton's flags, and the environment for third-party programs."""
import os
import pathlib
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from server_process import ServerProcess  # noqa: E402

PATIENCE_S = 180


def foreign_environment(**further):
    """Returns the environment for a third-party program that loads our library. If the library was built with sanitizers, their runtime must be
    loaded first (NEREID_SANITIZER_RUNTIME; our own programs link it). Leaks of the program are not reported, nor that perf_analyzer frees
    memory from new with free(). ThreadSanitizer reports nothing at all, because it does not see how the program synchronises its threads."""
    runtime = os.environ.get("NEREID_SANITIZER_RUNTIME")
    if not runtime:
        return {**os.environ, **further}
    options = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0:alloc_dealloc_mismatch=0"
    silent = os.environ.get("TSAN_OPTIONS", "") + ":report_bugs=0"
    return {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": options, "TSAN_OPTIONS": silent, **further}


class Server(ServerProcess):
    """`command` is the executable and its first arguments; `environment` is the complete environment. The server is ready after construction."""

    def __init__(self, command, repository, backends, log, environment, flags=()):
        super().__init__([command], [f"--model-repository={repository}", f"--backend-directory={backends}", *flags], log, environment,
                         timeout_s=PATIENCE_S)

    def get(self, path, port=None):
        with urllib.request.urlopen(f"http://127.0.0.1:{port or self.http}{path}", timeout=60) as answer:
            return answer.read().decode()
