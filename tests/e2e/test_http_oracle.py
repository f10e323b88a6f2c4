"""Compares the HTTP/1 port with h11: what h11 refuses, Nereid refuses, and what both accept they understand in the same way. Random requests, well-formed
and malformed, go to a small server on Nereid's transport (tests/host/frontend/http/echo_server.cc) and through h11. NEREID_HTTP1_CASES is the number of
connections."""
import os
import pathlib
import random
import subprocess

import pytest
from http1_cases import Generator, Understood, understood_by_h11
from raw_http import Raw

COUNT = int(os.environ.get("NEREID_HTTP1_CASES", "3000"))
SEED = 20261126
pytestmark = pytest.mark.timeout(0 if COUNT > 3000 else 120)


@pytest.fixture(scope="module")
def port(test_backends):
    program = pathlib.Path(os.environ["NEREID_TEST_BACKENDS"]).parent / "programs/frontend_http_echo_server"
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        yield int(running.stdout.readline())
        running.stdin.close()
        assert running.wait(timeout=60) == 0


def understood_by_nereid(port, sent):
    """Returns the requests that the server accepts, and the answer to the first that it refuses: None if it refuses none."""
    accepted = []
    with Raw(port) as client:
        try:
            client.send(sent)
            client.half_close()
            while True:
                status, _, body = client.answer()
                if status == 100:
                    continue
                if status != 200:
                    return accepted, f"{status} {body.decode(errors='replace')}"
                method, path, query, content, *headers = body.decode().split("\n")[:-1]
                target = bytes.fromhex(path) + (b"?" + bytes.fromhex(query) if query else b"")
                fields = [tuple(bytes.fromhex(part) for part in line.split("=")) for line in headers]
                accepted.append(Understood(method.encode(), target, [(name.lower(), value) for name, value in fields], bytes.fromhex(content)))
        except (EOFError, ConnectionError):
            return accepted, None


# h11 accepts more than Nereid, which refuses every form that two servers could read in different ways. Other refusals would be surprises.
STRICTER = {
    "malformed chunked request body": "h11 takes a bare LF for the end of a trailer's line, and a CR within a chunk's extension for a part of it.",
    "line does not end in CR LF": "h11 takes a bare LF for the end of a line.",
    "control character in a header": "h11 accepts control characters except NUL, CR and LF.",
    "malformed header line": "h11 accepts folded headers, which RFC 9112 (5.2) has withdrawn.",
    "malformed request target": "h11 accepts targets that are neither a path, nor `*`, nor a URL.",
    "malformed Content-Length": "h11 accepts a list of equal lengths; RFC 9112 (6.3) permits both.",
    "both Transfer-Encoding and Content-Length": "h11 ignores the length; RFC 9112 (6.1) permits both.",
    "malformed Host header": "h11 does not look into the header.",
    "unsupported Transfer-Encoding": "h11 accepts `chunked` from clients of HTTP/1.0; RFC 9112 (6.1) calls it faulty.",
    "HTTP version not supported": "h11 accepts every HTTP/1.x.",
}


def is_valid_for_rfc(sent, reason):
    """True for what h11 refuses although RFC 9112 permits it, or although no two servers can read it in different ways."""
    return (reason == "no request line received" and b"\n" in sent  # an empty line before the request line (2.2)
            or reason.startswith("illegal chunk header") and b" ;" in sent  # blanks before a chunk's extension (7.1.1)
            or reason.startswith("illegal request line") and b"/\\xc3\\xa4 " in reason.encode())  # UTF-8 in the path, as users type it


def normalized(request, knows_method):
    """Both sides in one form. h11 keeps the host of a URL in the target, changes the case of codings, and drops all but the first of equal lengths."""
    method = request.method if knows_method(request.method) else b"another"
    target = request.target.removeprefix(b"http://x")
    fields = [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in request.headers]
    fields = [field for at, field in enumerate(fields) if field[0] != b"content-length" or field not in fields[:at]]
    return Understood(method, target, fields, request.body)


def difference(port, sent):
    """Returns in which way the two servers understand these bytes differently: None if they do not, or if the difference has a reason."""
    accepted, refusal = understood_by_h11(sent)
    found, answer = understood_by_nereid(port, sent)
    known = (b"GET", b"PUT", b"POST", b"HEAD", b"DELETE", b"OPTIONS").__contains__
    for ours, theirs in zip(found, accepted):
        if normalized(ours, known) != normalized(theirs, known):
            return f"h11 understands {theirs}, Nereid {ours}"
    if len(found) > len(accepted):
        if refusal is not None and is_valid_for_rfc(sent, refusal):
            return None
        return f"h11 refuses ({refusal or 'it closes the connection'}), Nereid understands {found[len(accepted)]}"
    if len(found) < len(accepted) and not (answer and any(reason in answer for reason in STRICTER)):
        return f"h11 understands {accepted[len(found)]}, Nereid answers {answer}"
    return None


def test_nereid_understands_what_h11_understands(port):
    generator = Generator(random.Random(SEED))
    num_both = 0
    for _ in range(COUNT):
        sent = generator.connection()
        found = difference(port, sent)
        assert found is None, f"{sent!r}: {found}"
        num_both += bool(understood_by_h11(sent)[0])
    assert num_both > COUNT / 4  # most connections are not refused at once


@pytest.mark.parametrize("reason, sent", [
    ("malformed chunked request body", b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;a\rb\r\nx\r\n0\r\n\r\n"),
    ("line does not end in CR LF", b"GET / HTTP/1.1\nHost: x\r\n\r\n"),
    ("control character in a header", b"GET / HTTP/1.1\r\nHost: x\r\nA: \x7f\r\n\r\n"),
    ("malformed header line", b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n"),
    ("malformed request target", b"GET x HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("malformed Content-Length", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\na"),
    ("both Transfer-Encoding and Content-Length", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"),
    ("malformed Host header", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    ("unsupported Transfer-Encoding", b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("HTTP version not supported", b"GET / HTTP/1.2\r\nHost: x\r\n\r\n")])
def test_nereid_is_stricter_than_h11(port, reason, sent):
    assert len(understood_by_h11(sent)[0]) == 1
    accepted, answer = understood_by_nereid(port, sent)
    assert not accepted and reason in answer and reason in STRICTER
