"""Ranks of mpirun and srun: rank 0 serves, the others open no port and end with it."""
import json
import os
import pathlib
import shutil
import subprocess
import urllib.request
import uuid

import pytest
from server_process import free_ports

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAUNCHERS = {
    "Open MPI": {"OMPI_COMM_WORLD_RANK": "{rank}", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "{job}"},
    "Slurm": {"SLURM_PROCID": "{rank}", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_JOB_ID": "{job}", "SLURM_STEP_ID": "0"},
    "MPICH": {"PMI_RANK": "{rank}", "PMI_SIZE": "2", "PMI_PORT": "{job}"},
}


def environment(launcher, rank, job):
    return {name: value.format(rank=rank, job=job) for name, value in LAUNCHERS[launcher].items()}


@pytest.fixture
def empty_repository(tmp_path):
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_other_ranks_open_no_port_and_end_with_rank_0(start_server, dist, empty_repository, launcher):
    job = uuid.uuid4().hex
    server = start_server(empty_repository, environment=environment(launcher, 0, job))
    # With the ports of rank 0, on which a server could not start.
    follower = subprocess.Popen([dist / "bin/tritonserver", f"--model-repository={empty_repository}", f"--http-port={server.http}",
                                 f"--grpc-port={server.grpc}", f"--metrics-port={server.metrics}"], stderr=subprocess.PIPE, text=True,
                                env=os.environ | environment(launcher, 1, job))
    assert follower.stderr.readline() == "nereid: rank 1 of 2 opens no port and waits: rank 0 serves\n"
    with pytest.raises(subprocess.TimeoutExpired):
        follower.wait(0.3)
    assert server.stop() == 0
    assert follower.wait(60) == 0


def test_independent_ranks_all_serve(start_server, empty_repository):
    more = environment("Slurm", 1, uuid.uuid4().hex) | {"NEREID_RANKS": "independent"}
    assert start_server(empty_repository, environment=more).alive()


def test_several_models_and_instances_share_one_process(start_server, tmp_path):
    """The orchestrator mode of TensorRT-LLM, as launch_triton_server.py --multi-model sets it. GPUs have no effect on the CPU."""
    engine = f'backend: "cpu_reference"\nmax_batch_size: 0\nparameters {{ key: "gpt_model_path" value {{ string_value: "{ROOT}/demo/model" }} }}\n'
    for name, gpu, count in (("first", 0, 1), ("second", 1, 2)):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(
            engine + f'parameters {{ key: "gpu_device_ids" value {{ string_value: "{gpu}" }} }}\ninstance_group [ {{ count: {count} kind: KIND_CPU }} ]\n')
    server = start_server(tmp_path, environment={"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1"}, program="tritonserver")
    inputs = {"input_ids": [5, 6, 7, 8], "input_lengths": [4], "request_output_len": [6]}
    body = json.dumps({"inputs": [{"name": name, "datatype": "INT32", "shape": [len(data)], "data": data} for name, data in inputs.items()],
                       "outputs": [{"name": "output_ids"}]}).encode()
    answers = []
    for model in ("first", "second", "second"):
        with urllib.request.urlopen(urllib.request.Request(f"{server.url}/v2/models/{model}/infer", data=body), timeout=60) as reply:
            answers.append(json.load(reply)["outputs"][0]["data"])
    assert answers[0] == answers[1] == answers[2] and len(answers[0]) == 10


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_mpirun_ends_when_its_server_ends(dist, empty_repository):
    http, grpc, metrics = free_ports(3)
    job = subprocess.Popen([ROOT / "deploy/mpirun.sh", "2", empty_repository, f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"],
                           stderr=subprocess.PIPE, text=True, env=os.environ | {"TRITONSERVER": str(dist / "bin/tritonserver"), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                                                                                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    lines = []
    for line in job.stderr:
        lines.append(line)
        if "Started HTTPService" in line or "listening" in line.lower() or "http " in line and "metrics " in line:
            break
    assert job.poll() is None, "".join(lines)
    job.terminate()
    job.stderr.read()
    job.wait(60)
    assert not any("in use" in line for line in lines)
