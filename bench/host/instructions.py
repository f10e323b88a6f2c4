#!/usr/bin/env python3
"""Counts the instructions that servers execute outside the kernel for a request, with valgrind's callgrind. Other work on the machine does not change
these counts, as it changes rates.

    instructions.py --backends build/release/tests/backends before=BEFORE/bin/nereid after=dist/bin/nereid >bench/results/host_instructions.csv

Each server gets the same bytes from one client, one request after the other, without spinning. A value is the least of the rounds. Prints CSV; the
ratio is that of the last server to the first one. With --profiles callgrind's files of the last round stay in that folder, for callgrind_annotate.
"""
import argparse
import csv
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile

import loads
import servers

MIB = 1 << 20
NO_WINDOW = (1 << 31) - 1


class Http1Client:
    """Sends one request again and again on one connection."""

    def __init__(self, server, model, body):
        content, headers = body
        lines = [f"POST /v2/models/{model}/infer HTTP/1.1", "Host: 127.0.0.1", "User-Agent: bench", "Accept: */*", f"Content-Length: {len(content)}",
                 *(f"{name}: {value}" for name, value in headers.items())]
        self.request = "\r\n".join([*lines, "", ""]).encode() + content
        self.connection = socket.create_connection(("127.0.0.1", server.http), timeout=600)
        self.received = b""

    def read_to(self, size):
        while len(self.received) < size:
            more = self.connection.recv(MIB)
            assert more, "the server has closed the connection"
            self.received += more

    def call(self):
        self.connection.sendall(self.request)
        while b"\r\n\r\n" not in self.received:
            self.read_to(len(self.received) + 1)
        head, _, _ = self.received.partition(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n")[0], head
        size = len(head) + 4 + int(re.search(rb"(?i)content-length: *(\d+)", head).group(1))
        self.read_to(size)
        self.received = self.received[size:]


class GrpcClient:
    """Calls one method again and again on one connection, with frames of its own. It has a window that never ends for what it receives."""

    def __init__(self, server, method, message):
        self.method, self.message = method, message
        self.connection = socket.create_connection(("127.0.0.1", server.grpc), timeout=600)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        self.stream = 1
        self.windows = {0: 65535}
        self.initial_window = 65535
        settings = struct.pack(">HI", 4, NO_WINDOW)
        self.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(4, 0, 0, settings) +
                  self.frame(8, 0, 0, struct.pack(">I", NO_WINDOW - 65535)) + self.frame(6, 0, 0, bytes(8)))
        while self.next_frame()[0] != 6:
            pass

    def send(self, data):
        self.connection.sendall(data)

    @staticmethod
    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def headers(self):
        """The first request's fields are literals that enter the table; those of the others refer to it, as those of gRPC's clients do."""
        def literal(name, value):
            return bytes([0x40, len(name)]) + name + bytes([len(value)]) + value

        fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/inference.GRPCInferenceService/" + self.method.encode()),
                  (b":authority", b"bench"), (b"content-type", b"application/grpc"), (b"te", b"trailers"), (b"user-agent", b"bench")]
        if self.stream == 1:
            return b"".join(literal(*field) for field in fields)
        return bytes(0x80 | 61 + len(fields) - index for index in range(len(fields)))

    def next_frame(self):
        """Returns kind, flags, stream and payload of the next frame, and keeps the windows."""
        def take(size):
            while len(self.received) < size:
                more = self.connection.recv(MIB)
                assert more, "the server has closed the connection"
                self.received += more
            taken, self.received = self.received[:size], self.received[size:]
            return taken

        head = take(9)
        kind, flags, stream = head[3], head[4], struct.unpack(">I", head[5:])[0]
        payload = take(int.from_bytes(head[:3], "big"))
        if kind == 4 and not flags & 1:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at:at + 6])
                if name == 4:
                    self.initial_window = value
            self.send(self.frame(4, 1, 0, b""))
        if kind == 8:
            self.windows[stream] = self.windows.get(stream, self.initial_window) + struct.unpack(">I", payload)[0]
        assert kind not in (3, 7), f"the server has sent a frame of type {kind}"
        return kind, flags, stream, payload

    def send_message(self, ends):
        for at in range(0, len(self.message), 16384):
            part = self.message[at:at + 16384]
            while min(self.windows[0], self.windows[self.stream]) < len(part):
                self.next_frame()
            self.windows[0] -= len(part)
            self.windows[self.stream] -= len(part)
            self.send(self.frame(0, ends and at + len(part) == len(self.message), self.stream, part))

    def open(self):
        self.windows[self.stream] = self.initial_window
        self.send(self.frame(1, 4, self.stream, self.headers()))

    def read_message(self):
        data = b""
        while len(data) < 5 or len(data) < 5 + int.from_bytes(data[1:5], "big"):
            kind, flags, stream, payload = self.next_frame()
            assert kind != 1 or not flags & 1, f"the call ended without a message: {payload}"
            if kind == 0 and stream == self.stream:
                data += payload


class UnaryClient(GrpcClient):
    def __init__(self, server, model, message):
        super().__init__(server, "ModelInfer", message)

    def call(self):
        self.open()
        self.send_message(ends=True)
        self.read_message()
        while not self.next_frame()[1] & 1:
            pass
        self.stream += 2


class StreamClient(GrpcClient):
    def __init__(self, server, model, message):
        super().__init__(server, "ModelStreamInfer", message)
        self.open()

    def call(self):
        self.send_message(ends=False)
        self.read_message()


def grpc_body(model, num_floats):
    """A ModelInferRequest with gRPC's 5-byte prefix."""
    def varint(value):
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    def field(number, data):
        return bytes([number << 3 | 2]) + varint(len(data)) + data

    tensor = field(1, b"INPUT0") + field(2, b"FP32") + field(3, varint(num_floats))
    message = field(1, model.encode()) + field(5, tensor) + field(7, bytes(4 * num_floats))
    return b"\0" + struct.pack(">I", len(message)) + message


def cases():
    """Yields (name, client's class, model, body)."""
    for size, count in (("16 floats", 16), ("64 KiB", 16384)):
        yield f"HTTP, JSON, {size}", Http1Client, "identity", loads.json_body(count if count == 16 else 8192)
        yield f"HTTP, binary, {size}", Http1Client, "identity", loads.binary_body(count)
        yield f"gRPC, unary, {size}", UnaryClient, "identity", grpc_body("identity", count)
        yield f"gRPC, stream, {size}", StreamClient, "identity", grpc_body("identity", count)
    yield "HTTP, binary, 1 MiB", Http1Client, "identity", loads.binary_body(MIB // 4)
    yield "two-step ensemble, HTTP, binary, 16 floats", Http1Client, "chain", loads.binary_body(16)
    yield "two-step ensemble, gRPC, unary, 16 floats", UnaryClient, "chain", grpc_body("chain", 16)


def control(server, client, *arguments):
    """Runs callgrind_control while the client goes on, because a server that is idle for a second returns memory to the system."""
    process = subprocess.Popen(["callgrind_control", *arguments, str(server.process.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        client.call()
    assert process.returncode == 0, "callgrind_control failed"


def count_instructions(server, folder, client, arguments):
    """Returns the server's instructions for one request, the least of the rounds, and callgrind's file of the last one."""
    for _ in range(50):
        client.call()
    control(server, client, "-i", "on")
    counts = []
    for _ in range(arguments.rounds):
        control(server, client, "-z")
        before = set(folder.glob("callgrind.*"))
        for _ in range(arguments.requests):
            client.call()
        # Counts nothing once the instrumentation is off. callgrind_control returns when the file is complete.
        subprocess.run(["callgrind_control", "-d", str(server.process.pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (new,) = set(folder.glob("callgrind.*")) - before
        counts.append(int(re.search(r"^totals: (\d+)", new.read_text(), re.M).group(1)) // arguments.requests)
    control(server, client, "-i", "off")
    return min(counts), new


def measure(name, program, repository, arguments, profiles):
    """Returns the instructions of each case."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/callgrind.%p", program]
        server = servers.Server(command, repository, arguments.backends, ["--spin-us=0"])
        counts = {}
        try:
            for case, client, model, body in cases():
                if arguments.only not in case:
                    continue
                counts[case], profile = count_instructions(server, folder, client(server, model, body), arguments)
                print(f"{name}: {case}: {counts[case]}", file=sys.stderr)
                if profiles:
                    profile.replace(profiles / f"{name}-{re.sub('[^0-9A-Za-z]+', '-', case)}")
        finally:
            server.stop()
        return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+", metavar="NAME=PROGRAM", type=lambda text: text.split("=", 1))
    parser.add_argument("--backends", required=True, type=pathlib.Path)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--profiles", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.profiles:
        arguments.profiles.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        repository = pathlib.Path(folder) / "models"
        servers.write_repository(repository)
        counts = {name: measure(name, program, repository, arguments, arguments.profiles) for name, program in arguments.servers}
    table = csv.writer(sys.stdout)
    table.writerow(["case", *counts, "ratio"])
    for case in next(iter(counts.values())):
        row = [of_server[case] for of_server in counts.values()]
        table.writerow([case, *row, f"{row[-1] / row[0]:.3f}"])


if __name__ == "__main__":
    main()
