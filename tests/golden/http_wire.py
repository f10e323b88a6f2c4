"""Sends bytes over a socket and reads one HTTP response, so that a replay sends the recorded bytes unchanged."""
import contextlib
import dataclasses
import gzip
import json
import re
import socket
import time


@dataclasses.dataclass
class HttpAnswer:
    status: int | None  # None: there was no response
    headers: dict
    body: bytes


def parse(data):
    """Parses the bytes of a whole response; the chunks of a chunked body are joined."""
    head, separator, body = data.partition(b"\r\n\r\n")
    if not separator:
        return HttpAnswer(None, {}, data)
    lines = head.decode("latin-1").split("\r\n")
    headers = {key.strip().lower(): value.strip() for key, _, value in (line.partition(":") for line in lines[1:])}
    if headers.get("transfer-encoding") == "chunked":
        body = join_chunks(body)
    if headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    return HttpAnswer(int(lines[0].split()[1]), headers, body)


def join_chunks(body):
    """Does not use the chunk sizes: a recording may contain a folder name that was replaced by a shorter one."""
    return b"".join(re.split(rb"(?:^|\r\n)[0-9a-fA-F]+\r\n", body.removesuffix(b"0\r\n\r\n").removesuffix(b"\r\n")))


def is_whole(data, is_head):
    head, separator, body = data.partition(b"\r\n\r\n")
    if not separator:
        return False
    status = int(head.split()[1])
    fields = {line.partition(b":")[0].strip().lower(): line.partition(b":")[2].strip() for line in head.split(b"\r\n")[1:]}
    if fields.get(b"transfer-encoding") == b"chunked":
        return body.endswith(b"0\r\n\r\n")
    if status == 100:
        return False  # the caller waits for more data
    return is_head or b"content-length" in fields and len(body) >= int(fields[b"content-length"])


def exchange(port, request, patience=20.0):
    """Returns what the server sends until the response is complete, the connection closes, or nothing arrives for `patience` seconds."""
    data = b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.settimeout(patience)
        connection.sendall(request)
        while not is_whole(data, request.startswith(b"HEAD ")):
            try:
                piece = connection.recv(1 << 20)
            except (TimeoutError, ConnectionResetError):
                break
            if not piece:
                break
            data += piece
    return parse(data)


@contextlib.contextmanager
def busy(port, model, seconds):
    """Occupies the only instance of a model, which sleeps as long as its input says, while the body of the `with` runs."""
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [seconds]}]}).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (model.encode(), len(body), body))
        time.sleep(seconds / 2)
        yield
        connection.settimeout(60)
        connection.recv(1 << 16)
