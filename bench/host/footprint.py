#!/usr/bin/env python3
"""Measures an idle server: time until ready, resident memory, threads, and the size of the installed tree.

Usage: footprint.py DIST [REPOSITORY] [--runs 7]. REPOSITORY defaults to DIST/share/demo_repository.
The time until ready is from the start of the process to the first status 200 of /v2/health/ready. Prints one JSON object with medians. Never
asserts.
"""
import argparse
import json
import pathlib
import signal
import socket
import statistics
import subprocess
import time


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def ready(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as s:
            s.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
            return s.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def one_run(dist, repository):
    http, grpc, metrics = free_ports(3)
    started = time.perf_counter()
    server = subprocess.Popen([dist / "bin/nereid", f"--model-repository={repository}", f"--http-port={http}", f"--grpc-port={grpc}",
                               f"--metrics-port={metrics}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not ready(http):
        if server.poll() is not None:
            raise SystemExit(f"the server ended with code {server.returncode}")
        time.sleep(0.002)
    seconds = time.perf_counter() - started
    fields = dict(line.split(":", 1) for line in open(f"/proc/{server.pid}/status") if ":" in line)
    server.send_signal(signal.SIGTERM)
    stopping = time.perf_counter()
    server.wait(60)
    return seconds, int(fields["VmRSS"].split()[0]) / 1024, int(fields["Threads"]), time.perf_counter() - stopping


def size_mb(folder):
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink() and p.suffix != ".safetensors") / 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dist", type=pathlib.Path)
    parser.add_argument("repository", type=pathlib.Path, nargs="?")
    parser.add_argument("--runs", type=int, default=7)
    args = parser.parse_args()
    runs = [one_run(args.dist, args.repository or args.dist / "share/demo_repository") for _ in range(args.runs)]
    ready_s, rss, threads, stop_s = (statistics.median(column) for column in zip(*runs))
    print(json.dumps({"runs": args.runs, "ready_s": round(ready_s, 3), "rss_mb": round(rss, 1), "threads": threads,
                      "shutdown_s": round(stop_s, 3), "installed_mb_without_weights": round(size_mb(args.dist), 1)}, indent=1))


if __name__ == "__main__":
    main()
