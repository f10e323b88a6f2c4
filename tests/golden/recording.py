"""Reads one recorded exchange: the bytes or the message of a request, and Triton's answer.

A file contains the request after `>>> REQUEST` and the answer after `<<< RESPONSE`. HTTP bytes are escaped as in Python (\\r, \\xNN, \\\\; line feeds
are not escaped). gRPC messages are in protobuf's text format.
"""
import ast
import dataclasses
import pathlib
import re

RECORDED = pathlib.Path(__file__).parent / "recorded"


def unescape(text):
    """The bytes of an escaped text."""
    out = bytearray()
    position = 0
    for escape in re.finditer(r"\\(x[0-9a-fA-F]{2}|.)", text, re.DOTALL):
        out += text[position:escape.start()].encode()
        code = escape.group(1)
        simple = {"r": b"\r", "n": b"\n", "t": b"\t", "\\": b"\\", "'": b"'", '"': b'"'}
        out += bytes([int(code[1:], 16)]) if code[0] == "x" else simple[code]
        position = escape.end()
    return bytes(out + text[position:].encode())


@dataclasses.dataclass
class HttpRecording:
    name: str
    request: bytes
    response: bytes
    note: str  # "", or why the response is incomplete: "connection closed by peer", "no more data within 30s"


@dataclasses.dataclass
class GrpcRecording:
    name: str
    method: str  # "ModelInfer", or the full path of a call given as bytes
    metadata: list
    timeout: float | None
    requests: list  # texts of messages; bytes for a full path
    status: str
    details: str
    messages: list  # texts of messages; bytes for a full path


def split(name):
    text = (RECORDED / f"{name}.txt").read_text()
    found = re.fullmatch(r">>> REQUEST\n(.*)\n<<< RESPONSE(?: \[(.*?)\])?\n(.*)\n", text, re.DOTALL)
    assert found, f"{name}: not a recording"
    return found.group(1), found.group(2) or "", found.group(3)


def read_http(name):
    request, note, response = split(name)
    return HttpRecording(name, unescape(request), unescape(response), note)


def read_grpc(name):
    request, _, response = split(name)
    head, _, body = request.partition("\n")
    if head.startswith("/"):
        return read_raw_call(name, request, response)
    found = re.fullmatch(r"rpc (\w+) metadata=(.*?)(?: timeout=([\d.]+))?", head)
    assert found, f"{name}: {head}"
    metadata = list(ast.literal_eval(found.group(2)) or ())
    timeout = float(found.group(3)) if found.group(3) else None
    is_stream = timeout is None
    requests = re.split(r"^---\n", body, flags=re.MULTILINE) if is_stream else [body]
    if is_stream and not body.strip():
        requests = []
    status, details, messages = read_stream_answer(response) if is_stream else read_answer(response)
    return GrpcRecording(name, found.group(1), metadata, timeout, requests, status, details, messages)


def read_raw_call(name, request, response):
    path, _, payload = request.partition(" ")
    status = re.search(r"^status: (\w+)", response, re.MULTILINE).group(1)
    details = re.search(r"^details: (.*)$", response, re.MULTILINE)
    answer = re.search(r"^bytes: (.*)$", response, re.MULTILINE)
    return GrpcRecording(name, path, [], 10, [ast.literal_eval(payload.strip())], status,
                         ast.literal_eval(details.group(1)) if details else "", [ast.literal_eval(answer.group(1))] if answer else [])


def read_answer(response):
    status = re.match(r"status: (\w+)", response).group(1)
    details = re.search(r"^details: (.*)$", response, re.MULTILINE)
    message = re.search(r"^message \w+:\n(.*)", response, re.DOTALL | re.MULTILINE)
    return status, ast.literal_eval(details.group(1)) if details else "", [message.group(1)] if message else []


def read_stream_answer(response):
    messages = re.findall(r"^--- message \d+\n(.*?)(?=^--- )", response, re.DOTALL | re.MULTILINE)
    end = re.search(r"^--- status: (\w+)\ndetails: (.*)$", response, re.MULTILINE)
    return end.group(1), ast.literal_eval(end.group(2)), messages


def names(prefix):
    return sorted(path.stem for path in RECORDED.glob(f"{prefix}_*.txt"))
