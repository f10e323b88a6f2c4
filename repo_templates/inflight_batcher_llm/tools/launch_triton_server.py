#!/usr/bin/env python3
"""Starts the server under the name `tritonserver` for a model repository, and leaves it running.

The command line is that of TensorRT-LLM's script of the same name. One process serves everything: there is no mpirun, no rank besides 0, and no worker
process, so the options that concern them change nothing. With --world_size N, a model whose configuration names no GPUs (gpu_device_ids) is divided
among the GPUs 0 to N-1.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

WITHOUT_EFFECT = {
    "oversubscribe": "there is no mpirun",
    "disable_spawn_processes": "no processes are spawned",
    "no_mpi": "there is no mpirun",
    "trtllm_llmapi_launch": "there is no mpirun",
    "multimodal_gpu0_cuda_mem_pool_bytes": "multimodal models are not supported",
}


def default_server():
    """The installed server beside this tool (<prefix>/share/nereid/tools), or the one in PATH."""
    own = pathlib.Path(__file__).resolve().parents[3] / "bin/tritonserver"
    return str(own) if own.exists() else shutil.which("tritonserver") or "/opt/tritonserver/bin/tritonserver"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world_size", type=int, default=1, help="number of GPUs among which a model is divided (default 1)")
    parser.add_argument("--tritonserver", default=default_server(), help="the program to start (default: %(default)s)")
    parser.add_argument("--grpc_port", default="8001", help="(default %(default)s)")
    parser.add_argument("--http_port", default="8000", help="(default %(default)s)")
    parser.add_argument("--metrics_port", default="8002", help="(default %(default)s)")
    parser.add_argument("--force", "-f", action="store_true", help="start although another tritonserver runs")
    parser.add_argument("--log", action="store_true", help="write a verbose log to --log-file")
    parser.add_argument("--log-file", default="triton_log.txt", help="(default: %(default)s)")
    parser.add_argument("--model_repo", required=True, help="the model repository")
    parser.add_argument("--tensorrt_llm_model_name", default="tensorrt_llm", help="names of the engines' models; all models of the repository are loaded")
    parser.add_argument("--multi-model", action="store_true", help="several engines in one repository, which always works")
    parser.add_argument("--exit_timeout", type=int, help="seconds for requests in flight when the server is stopped")
    parser.add_argument("--oversubscribe", action="store_true", help="no effect")
    parser.add_argument("--disable-spawn-processes", action="store_true", help="no effect")
    parser.add_argument("--no-mpi", action="store_true", help="no effect")
    parser.add_argument("--trtllm_llmapi_launch", action="store_true", help="no effect")
    parser.add_argument("--multimodal_gpu0_cuda_mem_pool_bytes", type=int, default=0, help="no effect")
    arguments = parser.parse_args()
    if arguments.world_size < 1:
        parser.error(f"--world_size: expected 1 or more, got {arguments.world_size}")
    if not pathlib.Path(arguments.model_repo).is_dir():
        parser.error(f"--model_repo: '{arguments.model_repo}' is not a folder")
    return arguments


def running_servers():
    found = []
    for comm in pathlib.Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text().strip() == "tritonserver":
                found.append(comm.parent.name)
        except OSError:
            pass  # the process has ended
    return found


def command_of(arguments):
    command = [arguments.tritonserver, f"--model-repository={arguments.model_repo}", f"--grpc-port={arguments.grpc_port}",
               f"--http-port={arguments.http_port}", f"--metrics-port={arguments.metrics_port}", "--disable-auto-complete-config",
               "--backend-config=python,shm-region-prefix-name=prefix0_"]
    if arguments.log:
        command += ["--log-verbose=3", f"--log-file={arguments.log_file}"]
    if arguments.exit_timeout is not None:
        command.append(f"--exit-timeout-secs={arguments.exit_timeout}")
    return command


def main():
    arguments = parse_arguments()
    running = running_servers()
    if running:
        message = f"tritonserver process(es) already found with PID(s): {' '.join(running)}. Use `kill {' '.join(running)}` to stop them."
        if not arguments.force:
            sys.exit(f"{message} Or use --force.")
        print(message, file=sys.stderr)
    for name, reason in WITHOUT_EFFECT.items():
        if getattr(arguments, name):
            print(f"launch_triton_server.py: --{name} has no effect: {reason}", file=sys.stderr)
    environment = dict(os.environ)
    if arguments.world_size > 1:
        environment.setdefault("NEREID_GPU_DEVICE_IDS", ",".join(map(str, range(arguments.world_size))))
    try:
        server = subprocess.Popen(command_of(arguments), env=environment)
    except OSError as error:
        sys.exit(f"launch_triton_server.py: '{arguments.tritonserver}': {error.strerror}")
    time.sleep(1)
    if server.poll():
        sys.exit(f"launch_triton_server.py: the server ended with status {server.returncode}")


if __name__ == "__main__":
    main()
