#!/usr/bin/env python3
"""Compares the host with another server that accepts Triton's flags, in one run with the same models, backend library and clients.

    compare.py --nereid dist/bin/nereid --backends build/release/tests/backends --peer "tritonserver" [--perf-analyzer PATH]

Requires wrk, and h2load for gRPC (Debian: wrk, nghttp2-client); rows of perf_analyzer are omitted without it. Each cell is measured on one
server directly after the other, so that machine conditions are the same. With --rounds they alternate; each value is then a median, and each
ratio the median of the ratios of the rounds. A ratio is Nereid's value divided by the other server's. CPU is the server's CPU time per request.
A load that does not end is stopped, and its cell says so. Prints Markdown. Never asserts.
"""
import argparse
import datetime
import os
import pathlib
import re
import resource
import shlex
import socket
import statistics
import sys
import tempfile

import loads
import servers

HEAD = b"GET /v2/health/live HTTP/1.1\r\nHost: bench\r\n\r\n"


def cpu_name():
    return re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text()).group(1)


def cases(folder, perf_analyzer):
    """Yields (name, concurrencies, load)."""
    infer = "/v2/models/identity/infer"
    yield "health/ready, wrk", (1, 8, 64), loads.wrk(folder, "/v2/health/ready")
    yield "identity 16 floats, JSON, wrk", (1, 8, 64), loads.wrk(folder, infer, loads.json_body(16))
    yield "identity 16 floats, binary, wrk", (1, 8, 64), loads.wrk(folder, infer, loads.binary_body(16))
    yield "identity 1 MiB, binary, wrk", (1, 8, 64), loads.wrk(folder, infer, loads.binary_body(1 << 18))
    yield "two-step ensemble, binary, wrk", (1, 64), loads.wrk(folder, "/v2/models/chain/infer", loads.binary_body(16))
    yield "dynamic batching, binary, wrk", (64,), loads.wrk(folder, "/v2/models/batched/infer", loads.binary_body(16, (1,)))
    yield "identity 16 floats, gRPC, h2load", (1, 8, 64), loads.h2load(folder, "identity", loads.grpc_body("identity", 16))
    yield "two-step ensemble, gRPC, h2load", (64,), loads.h2load(folder, "chain", loads.grpc_body("chain", 16))
    yield "dynamic batching, gRPC, h2load", (64,), loads.h2load(folder, "batched", loads.grpc_body("batched", 16, (1,)))
    if perf_analyzer:
        # With 64 connections over HTTP, perf_analyzer 2.49 does not end on two cores, with either server.
        yield "identity 16 floats, HTTP, perf_analyzer", (1, 8), loads.perf_analyzer(perf_analyzer, "http", "identity")
        yield "identity 16 floats, gRPC, perf_analyzer", (1, 8, 64), loads.perf_analyzer(perf_analyzer, "grpc", "identity")
        yield "two-step ensemble, gRPC, perf_analyzer", (64,), loads.perf_analyzer(perf_analyzer, "grpc", "chain")
        yield "dynamic batching, gRPC, perf_analyzer", (64,), loads.perf_analyzer(perf_analyzer, "grpc", "batched")


def measure(server, load, concurrency, seconds):
    """Returns the load's result and the server's CPU time per request in microseconds."""
    before = server.cpu_seconds()
    try:
        result = load(server, concurrency, seconds)
    except OSError:
        if server.process.poll() is None:
            raise
        raise loads.LoadFailed(f"the server ended by itself with {server.process.returncode}") from None
    return result, (server.cpu_seconds() - before) / result.requests * 1e6 if result.requests else 0


def cell(measured):
    rate, p50_ms, p99_ms, cpu_us = (statistics.median(values) for values in zip(*((f.rate, f.p50_ms, f.p99_ms, cpu) for f, cpu in measured)))
    return f"{rate:,.0f}, {p50_ms:.2f}/{p99_ms:.2f}, {cpu_us:.0f}"


def ratios(ours, peers):
    """Ratios of rate, p99 and CPU: each is the median over the rounds."""
    pairs = [(our.rate / peer.rate, our.p99_ms / peer.p99_ms, cpu / peer_cpu) for (our, cpu), (peer, peer_cpu) in zip(ours, peers)]
    return [f"{statistics.median(values):.2f}" for values in zip(*pairs)]


def print_loads(running, folder, arguments):
    print("| case | connections | " + " | ".join(f"{name}: req/s, p50/p99 ms, CPU us" for name in running) + " | rate | p99 | CPU |")
    print("|---|---|" + "---|" * (len(running) + 3))
    for case, concurrencies, load in cases(folder, arguments.perf_analyzer):
        if arguments.only not in case:
            continue
        for concurrency in concurrencies:
            measured = {name: [] for name in running}
            stopped = {}
            for round_index in range(arguments.rounds):
                for name in list(running) if round_index % 2 == 0 else reversed(running):
                    try:
                        measured[name].append(measure(running[name], load, concurrency, arguments.seconds))
                    except loads.LoadFailed as why:
                        stopped[name] = str(why)
                        if running[name].process.poll() is not None:
                            running[name] = running[name].restart()
                if stopped:
                    break
            cells = [stopped[name] if name in stopped else cell(measured[name]) for name in running]
            ends = [""] * 3 if stopped or len(running) < 2 else ratios(measured["nereid"], measured["peer"])
            print(f"| {case} | {concurrency} | {' | '.join(cells)} | {' | '.join(ends)} |", flush=True)


def idle_connection(server):
    """Returns a connection after one request, to stay idle."""
    client = socket.create_connection(("127.0.0.1", server.http), timeout=60)
    client.sendall(HEAD)
    if b" 200 " not in client.recv(4096):
        raise OSError("the server does not answer")
    return client


def print_idle_clients(what, count, running, connect):
    """Prints memory and threads with count idle clients, each created by connect(server). The row reports a refused connection; a server that ended
    is restarted."""
    print(f"\n| {count:,} {what} | before | with them | threads before / with |\n|---|---|---|---|")
    for name in running:
        if running[name].process.poll() is not None:
            running[name] = running[name].restart()
        server = running[name]
        before, threads = server.resident_mb(), server.status("Threads")
        clients, end = [], ""
        try:
            while len(clients) < count:
                clients.append(connect(server))
        except OSError as why:
            end = f" (stopped after {len(clients):,}: {why})"
        if server.process.poll() is None:
            held = f"{server.resident_mb():.0f} MB{end} | {threads} / {server.status('Threads')}"
        else:
            held = f"the server ended by itself with {server.process.returncode}, with {len(clients):,} of them | {threads} / none"
        print(f"| {name} | {before:.0f} MB | {held} |", flush=True)
        for client in clients:
            client.close()


def print_starts(commands, backends, num_models, rounds=7):
    """Prints the time until ready with num_models models that load at almost no cost: median and minimum of the rounds. The servers
    alternate."""
    print(f"\n| start with {num_models} models | ready after, median / least of {rounds} | threads | resident |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for i in range(num_models):
            servers.write_model(pathlib.Path(temporary), f"identity_{i}", servers.C_MODEL + "max_batch_size: 0\n" + servers.IO.format(dims=-1))
        seen = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                server = servers.Server(command, temporary, backends)
                seen[name].append((server.ready_s, server.status("Threads"), server.resident_mb()))
                server.stop()
        for name, starts in seen.items():
            ready_s, threads, resident_mb = (statistics.median(values) for values in zip(*starts))
            print(f"| {name} | {ready_s:.3f} / {min(starts)[0]:.3f} s | {threads:.0f} | {resident_mb:.0f} MB |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nereid", required=True)
    parser.add_argument("--backends", required=True, help="folder that holds identity_c/libtriton_identity_c.so")
    parser.add_argument("--peer", help="command of the other server, without flags")
    parser.add_argument("--perf-analyzer", help="path of perf_analyzer")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1, help="number of repetitions, whose median is printed")
    parser.add_argument("--only", default="", help="measure only rows whose names contain this text")
    parser.add_argument("--idle", type=int, default=10000, help="number of idle connections to open")
    parser.add_argument("--streams", type=int, default=1000, help="number of idle gRPC streams to open")
    parser.add_argument("--models", type=int, default=50, help="number of models for the start test")
    arguments = parser.parse_args()
    backends = os.path.abspath(arguments.backends)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    commands = {"nereid": [arguments.nereid]} | ({"peer": shlex.split(arguments.peer)} if arguments.peer else {})
    print(f"\n## {datetime.date.today()}, {os.cpu_count()} x {cpu_name()}, load {os.getloadavg()[0]:.1f}\n\n"
          f"`{shlex.join(['compare.py', *sys.argv[1:]])}`; "
          f"{arguments.seconds} s a cell, medians of {arguments.rounds}; the clients share the cores.\n")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        servers.write_repository(folder / "models")
        running = {name: servers.Server(command, folder / "models", backends) for name, command in commands.items()}
        try:
            print_loads(running, folder, arguments)
            print_idle_clients("idle HTTP connections", min(arguments.idle, limit - 200), running, idle_connection)
            # The streams are opened with hand-made frames, because a gRPC client library would need more threads than the server.
            print_idle_clients("open gRPC streams", min(arguments.streams, limit - 200), running, lambda server: loads.open_stream(server.grpc))
        finally:
            for server in running.values():
                server.stop()
    print_starts(commands, backends, arguments.models)


if __name__ == "__main__":
    main()
