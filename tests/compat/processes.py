"""A server process of these tests, ours or another with Triton's flags, and what programs of others need beside it."""
import os
import pathlib
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from server_process import ServerProcess  # noqa: E402

PATIENCE_S = 180


def foreign_environment(**further):
    """For a program of others that loads our library: where that was built with sanitizers, their runtime has to come first
    (NEREID_SANITIZER_RUNTIME, which our own programs hold themselves), and what the program leaks is its own affair. So is that
    perf_analyzer gives to free() what it has from new. ThreadSanitizer reports nothing there: it does not see how such a program
    synchronises its threads."""
    runtime = os.environ.get("NEREID_SANITIZER_RUNTIME")
    if not runtime:
        return {**os.environ, **further}
    options = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0:alloc_dealloc_mismatch=0"
    silent = os.environ.get("TSAN_OPTIONS", "") + ":report_bugs=0"
    return {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": options, "TSAN_OPTIONS": silent, **further}


class Server(ServerProcess):
    """`command` is the executable; `environment` the whole of it. Ready once constructed."""

    def __init__(self, command, repository, backends, log, environment, flags=()):
        super().__init__([command], [f"--model-repository={repository}", f"--backend-directory={backends}", *flags], log, environment,
                         patience_s=PATIENCE_S)

    def get(self, path, port=None):
        with urllib.request.urlopen(f"http://127.0.0.1:{port or self.http}{path}", timeout=60) as answer:
            return answer.read().decode()
