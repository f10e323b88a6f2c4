"""Runs NVIDIA's perf_analyzer with our server, and in process with our library. Its measurements are not evaluated."""
import re
import subprocess

import processes
import pytest
import wheels

# A fixed number of requests: perf_analyzer does not wait for stable measurements, which a busy machine may never give.
LOAD = ["--concurrency-range=2", "--request-count=40", "--stability-percentage=1000000000", "--shape=INPUT0:16", "--input-data=zero"]


@pytest.fixture(scope="module")
def analyze():
    """analyze(*flags): returns the output."""
    program = wheels.unpacked("tritonclient==2.49.0", ["--platform=manylinux1_x86_64"]) / "content/tritonclient-2.49.0.data/data/bin/perf_analyzer"
    runtime = wheels.unpacked("nvidia-cuda-runtime-cu12==12.9.79") / "content/nvidia/cuda_runtime/lib"
    program.chmod(0o755)

    def run(*flags):
        environment = processes.foreign_environment(LD_LIBRARY_PATH=str(runtime))
        done = subprocess.run([program, "-m", "identity", *LOAD, *flags], env=environment, capture_output=True, text=True, timeout=400,
                              check=False)
        return done.stdout + done.stderr

    return run


def requests_in(output):
    count = re.search(r"Request count: (\d+)", output)
    assert count, output
    return int(count[1])


def test_over_http(analyze, nereid):
    assert requests_in(analyze("-u", f"127.0.0.1:{nereid.http}")) == 40


def test_over_grpc(analyze, nereid):
    assert requests_in(analyze("-i", "grpc", "-u", f"127.0.0.1:{nereid.grpc}")) == 40


def test_in_process(analyze, dist, backends, identity_repository, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libtritonserver.so").symlink_to(dist / "lib/libtritonserver.so")
    (tmp_path / "backends").symlink_to(backends)
    output = analyze("--service-kind=triton_c_api", f"--triton-server-directory={tmp_path}", f"--model-repository={identity_repository}")
    assert requests_in(output) == 40
