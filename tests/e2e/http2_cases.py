"""Calls and connections over HTTP/2, well-formed and malformed, frame by frame: what a client may send to a gRPC server. `CASES` maps each one's name to
the frames and to the streams whose end the client waits for; `outcome` sends one to a port and says what happened."""
import gzip
import socket
import zlib

import hpack
from raw_http2 import ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, SETTINGS, frame
from tritonclient.grpc import service_pb2

PRIORITY, RST_STREAM, PUSH_PROMISE, WINDOW_UPDATE, CONTINUATION = 2, 3, 5, 8, 9
PADDED, PRIORITY_FLAG = 8, 32
SERVICE = b"/inference.GRPCInferenceService/"
LIVE, INFER, STREAM = SERVICE + b"ServerLive", SERVICE + b"ModelInfer", SERVICE + b"ModelStreamInfer"
MAX_MESSAGE_BYTES = 1 << 20
PROBE = 2001  # the stream of a last, valid call
DEFAULT = {b":method": b"POST", b":scheme": b"http", b":path": LIVE, b":authority": b"x", b"content-type": b"application/grpc", b"te": b"trailers"}


def length(value):
    """An integer of HPACK with a prefix of 7 bits."""
    if value < 127:
        return bytes([value])
    value -= 127
    encoded = b"\x7f"
    while value >= 128:
        encoded += bytes([value % 128 + 128])
        value //= 128
    return encoded + bytes([value])


def block(*fields):
    """Fields as literals that enter no table."""
    return b"".join(b"\0" + length(len(name)) + name + length(len(value)) + value for name, value in fields)


def fields(changes=(), more=()):
    """The default fields with some of them changed (None: left out), and more fields behind them."""
    changed = {**DEFAULT, **dict(changes)}
    return [(name, value) for name, value in changed.items() if value is not None] + list(more)


def headers(changes=(), more=(), stream=1, flags=END_HEADERS):
    return frame(HEADERS, flags, stream, block(*fields(changes, more)))


def message(body=b"", flag=0, claimed=None):
    return bytes([flag]) + (len(body) if claimed is None else claimed).to_bytes(4, "big") + body


def data(body, stream=1, flags=END_STREAM):
    parts = [body[at:at + 16384] for at in range(0, len(body), 16384)] or [b""]
    return b"".join(frame(DATA, flags if part is parts[-1] else 0, stream, part) for part in parts)


def call(changes=(), more=(), body=None, stream=1):
    return headers(changes, more, stream) + data(message() if body is None else body, stream)


def tensor(num_values=2):
    request = service_pb2.ModelInferRequest(model_name="identity_fp32", raw_input_contents=[bytes(4 * num_values)])
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[num_values])
    return request.SerializeToString()


def settings(*entries):
    return frame(SETTINGS, 0, 0, b"".join(name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in entries))


def number(value):
    return value.to_bytes(4, "big")


def show(text):
    return "absent" if text is None else repr(text)[2:-1] or "empty"


def header_cases():
    yield "a plain call", call()
    for text in (None, b"gzip", b"trailers, deflate", b""):
        yield f"te {show(text)}", call({b"te": text})
    for text in (None, b"", b"application/grpc+proto", b"application/grpc;charset=utf-8", b"application/grpc+json", b"application/grpcx",
                 b"application/grpc-web", b"application/json", b"text/html", b"APPLICATION/GRPC"):
        yield f"content-type {show(text)}", call({b"content-type": text})
    for text in (None, b"", b"GET", b"PUT", b"HEAD", b"OPTIONS", b"post"):
        yield f"method {show(text)}", call({b":method": text})
    for text in (None, b"", b"*", b"x", b"/", b"/x", b"/x/y", LIVE + b"/", LIVE + b"?a=b", SERVICE + b"Nothing", b"/inference.Other/ServerLive", LIVE[1:],
                 LIVE.lower(), LIVE.replace(b"S", b"%53"), b"http://x" + LIVE):
        yield f"path {show(text)}", call({b":path": text})
    for text in (None, b"", b"https", b"ftp"):
        yield f"scheme {show(text)}", call({b":scheme": text})
    for text in (None, b"", b"other:80"):
        yield f"authority {show(text)}", call({b":authority": text})
    yield "host without authority", call({b":authority": None}, [(b"host", b"x")])
    yield "host beside authority", call((), [(b"host", b"y")])
    yield "path twice", call((), [(b":path", LIVE)])
    yield "an unknown pseudo-header", call({b":other": b"x"})
    yield "a pseudo-header after a header", frame(HEADERS, END_HEADERS, 1, block((b"a", b"b"), *fields())) + data(message())
    yield "the pseudo-header of a response", call({b":status": b"200"})
    for name in (b"Upper", b"", b"with space", b"colon:inside", b"a_b.c-d", b"nul\0", b"connection", b"transfer-encoding", b"upgrade", b"keep-alive"):
        yield f"header name {show(name)}", call((), [(name, b"close")])
    for value in (b"", b" blanks ", b"\tx", b"a\0b", b"a\r\nb", b"a\nb", b"\xff\xfe", "ä".encode(), b"\x7f", b"\x01"):
        yield f"header value {show(value)}", call((), [(b"name", value)])
    for value in (b"", b"AAEC", b"AAE", b"AAE=", b"AA", b"A", b"AAEC,/w==", b"!!!!", b"AA=A", b" AAEC", b"-_-_"):
        yield f"binary header {show(value)}", call((), [(b"name-bin", value)])
    for name in (b"grpc-internal", b"grpc-status", b"grpc-message", b"grpc-tags-bin", b"grpc-trace-bin", b"grpc-previous-rpc-attempts", b"user-agent"):
        yield f"reserved header {show(name)}", call((), [(name, b"1")])
    yield "user-agent twice", call((), [(b"user-agent", b"a"), (b"user-agent", b"b")])
    yield "content-type twice", call((), [(b"content-type", b"application/grpc")])
    for text in (b"5", b"4", b"6", b"x", b"-1"):
        yield f"content-length {show(text)}", call((), [(b"content-length", text)])
    for size in (4_000, 30_000, 60_000, 100_000):
        yield f"a header of {size} bytes", large_headers([(b"long", b"x" * size)])
    yield "700 headers", large_headers([(b"name%d" % index, b"value") for index in range(700)])
    yield "50 headers", call((), [(b"name%d" % index, b"value") for index in range(50)])


def large_headers(more):
    whole = block(*fields((), more))
    parts = [whole[at:at + 16384] for at in range(0, len(whole), 16384)]
    return b"".join(frame(CONTINUATION if index else HEADERS, END_HEADERS if index + 1 == len(parts) else 0, 1, part)
                    for index, part in enumerate(parts)) + data(message())


def timeout_cases():
    # Long enough for a call that ends at once.
    for text in (b"1H", b"1M", b"100S", b"99999S", b"99999999m", b"99999999u", b"00000100S", b"99999999H"):
        yield f"timeout {show(text)}", call((), [(b"grpc-timeout", text)])
    for text in (b"", b"S", b"1", b"-1S", b"1.5S", b"1s", b"1h", b"1X", b"abc", b"0x10S", b"100 S", b" 100S", b"100S ", b"100000000S", b"99999999999999999999H",
                 b"+1S", b"100SS", b"1S1S"):
        yield f"timeout {show(text)}", call((), [(b"grpc-timeout", text)])
    yield "timeout twice", call((), [(b"grpc-timeout", b"100S"), (b"grpc-timeout", b"200S")])
    # A stream that waits ends at its deadline.
    for text in (b"20m", b"20000u", b"20000000n", b"1n", b"0S", b"0n", b"0H"):
        yield f"timeout {show(text)} of a stream", headers({b":path": STREAM}, [(b"grpc-timeout", text)])


def message_cases():
    yield "no message, the headers end the call", headers(flags=END_HEADERS | END_STREAM)
    yield "no message, an empty frame ends the call", headers() + data(b"")
    yield "part of a prefix", call(body=message()[:3])
    yield "part of a message", call(body=message(b"", claimed=10) + b"123")
    yield "bytes behind the message", call(body=message() + b"\0\0")
    yield "two messages", call(body=message() * 2)
    yield "two messages in two frames", headers() + data(message(), flags=0) + data(message())
    yield "a message byte by byte", headers() + b"".join(data(bytes([byte]), flags=0) for byte in message()) + data(b"")
    yield "not protobuf", call({b":path": INFER}, body=message(b"\xff\xff\xff"))
    yield "bytes that are no field of an empty message", call(body=message(b"\x08\x01"))
    yield "not protobuf in an empty message", call(body=message(b"\x08"))
    yield "text that is not UTF-8", call({b":path": INFER}, body=message(tensor() + b"\x1a\x02\xff\xfe"))
    yield "a tensor", call({b":path": INFER}, body=message(tensor()))
    yield "a tensor of many frames", call({b":path": INFER}, body=message(tensor(50_000)))
    yield "a message above the limit", call({b":path": INFER}, body=message(bytes(MAX_MESSAGE_BYTES + 1)))
    for claimed in (MAX_MESSAGE_BYTES + 1, 0x7fffffff, 0xffffffff):
        yield f"a prefix that claims {claimed} bytes", call(body=message(b"", claimed=claimed))
    for flag in (1, 2, 127, 255):
        yield f"flag {flag} without an encoding", call(body=message(b"", flag))
    packed, deflated = gzip.compress(tensor()), zlib.compress(tensor())
    bodies = {"plain": message(tensor()), "gzip": message(packed, 1), "deflate": message(deflated, 1), "raw deflate": message(deflated[2:-4], 1),
              "garbage": message(b"garbage", 1), "cut gzip": message(packed[:-9], 1), "gzip with bytes behind it": message(packed + b"x", 1),
              "gzip with a wrong checksum": message(packed[:-8] + bytes(8), 1), "gzip twice": message(packed + packed, 1), "nothing": message(b"", 1)}
    for encoding in (b"gzip", b"deflate", b"identity", b"snappy", b"", b"GZIP", b"gzip, deflate"):
        for name, body in bodies.items():
            if encoding in (b"gzip", b"deflate") or name in ("plain", "gzip"):
                yield f"grpc-encoding {show(encoding)}, {name}", call({b":path": INFER}, [(b"grpc-encoding", encoding)], body)
    yield "grpc-encoding twice", call({b":path": INFER}, [(b"grpc-encoding", b"gzip"), (b"grpc-encoding", b"gzip")], message(packed, 1))
    yield "unpacks to more than the limit", call({b":path": INFER}, [(b"grpc-encoding", b"gzip")], message(gzip.compress(bytes(2 * MAX_MESSAGE_BYTES)), 1))
    yield "grpc-accept-encoding nonsense", call((), [(b"grpc-accept-encoding", b",,x;q=1,")])
    # Streams.
    stream = {b":path": STREAM}
    yield "a stream without messages", headers(stream) + data(b"")
    yield "a stream that its headers end", headers(stream, flags=END_HEADERS | END_STREAM)
    yield "a stream with three messages", call(stream, body=3 * message(tensor()))
    yield "a stream that ends in a prefix", call(stream, body=message(tensor()) + b"\0\0")
    yield "a stream that ends in a message", call(stream, body=message(tensor()) + message(b"", claimed=9) + b"1")
    yield "a stream with flag 2", call(stream, body=message(tensor(), 2))
    yield "a stream with a compressed and a plain message", call(stream, [(b"grpc-encoding", b"gzip")], message(packed, 1) + message(tensor()))
    yield "a stream with a message above the limit", call(stream, body=message(bytes(MAX_MESSAGE_BYTES + 1)))
    yield "a stream with bytes that are not protobuf", call(stream, body=message(b"\xff\xff\xff"))
    # Trailers of the client.
    trailers = [(b"a", b"b")]
    yield "trailers of the client", headers() + data(message(), flags=0) + frame(HEADERS, END_HEADERS | END_STREAM, 1, block(*trailers))
    yield "empty trailers of the client", headers() + data(message(), flags=0) + frame(HEADERS, END_HEADERS | END_STREAM, 1, b"")
    yield "trailers with a pseudo-header", headers() + data(message(), flags=0) + frame(HEADERS, END_HEADERS | END_STREAM, 1, block((b":path", b"/x")))
    yield "second headers that do not end the call", headers() + frame(HEADERS, END_HEADERS, 1, block(*trailers)) + data(message())


WITHOUT_PROBE = "goaway, then the rest of the call"


def frame_cases():
    """(name, frames, streams whose end the client waits for)"""
    one, none = (1,), ()
    yield "ping of 7 bytes", frame(PING, 0, 0, bytes(7)), none
    yield "ping on a stream", frame(PING, 0, 1, bytes(8)), none
    yield "a ping", frame(PING, 0, 0, bytes(8)), none
    yield "an unexpected answer to a ping", frame(PING, ACK, 0, bytes(8)), none
    yield "1000 pings", frame(PING, 0, 0, bytes(8)) * 1000, none
    yield "settings of 5 bytes", frame(SETTINGS, 0, 0, bytes(5)), none
    yield "settings on a stream", frame(SETTINGS, 0, 1, b""), none
    yield "an acknowledgement with settings", frame(SETTINGS, ACK, 0, bytes(6)), none
    yield "unknown settings", settings((0x99, 7)) + call(), one
    yield "a window of 2^31", settings((4, 1 << 31)), none
    yield "frames of at most 1 byte", settings((5, 1)), none
    yield "frames of at most 16 MiB", settings((5, 1 << 24)), none
    yield "push set to 2", settings((2, 2)), none
    yield "push set to 1", settings((2, 1)) + call(), one
    yield "no header table", settings((1, 0)) + call(), one
    yield "a header table of 4 GiB", settings((1, 0xffffffff)) + call(), one
    yield "no concurrent streams of the server", settings((3, 0)) + call(), one
    yield "header lists of at most 0 bytes", settings((6, 0)), none
    yield "200 settings", settings((4, 65535)) * 200 + call(), one
    yield "a window of 0 that opens later", settings((4, 0)) + call() + frame(WINDOW_UPDATE, 0, 1, number(1000)) + settings((4, 1)) + settings((4, 65535)), one
    yield "a window that shrinks and opens", settings((4, 1)) + call() + settings((4, 65535)), one
    for stream in (0, 1):
        opening = headers({b":path": STREAM})
        yield f"window update of 0 on {stream}", opening + frame(WINDOW_UPDATE, 0, stream, number(0)), none
        yield f"window update beyond 2^31 on {stream}", opening + 2 * frame(WINDOW_UPDATE, 0, stream, number(0x7fffffff)), none
        yield f"window update of 3 bytes on {stream}", opening + frame(WINDOW_UPDATE, 0, stream, bytes(3)), none
    yield "window update of an idle stream", frame(WINDOW_UPDATE, 0, 5, number(1)), none
    yield "window update after the end", headers({b":path": b"/x"}, flags=END_HEADERS | END_STREAM) + frame(WINDOW_UPDATE, 0, 1, number(1)), one
    yield "reset of an idle stream", frame(RST_STREAM, 0, 5, number(8)), none
    yield "reset of stream 0", frame(RST_STREAM, 0, 0, number(8)), none
    yield "reset of 3 bytes", headers() + frame(RST_STREAM, 0, 1, bytes(3)), none
    yield "reset of an open stream", headers({b":path": STREAM}) + frame(RST_STREAM, 0, 1, number(8)), none
    yield "reset after the end", call() + frame(RST_STREAM, 0, 1, number(8)), none
    yield WITHOUT_PROBE, headers() + frame(GOAWAY, 0, 0, bytes(8)) + data(message()), one
    yield "goaway of 4 bytes", frame(GOAWAY, 0, 0, bytes(4)), none
    yield "goaway on a stream", frame(GOAWAY, 0, 1, bytes(8)), none
    yield "an even stream", call(stream=2), none
    yield "headers on stream 0", frame(HEADERS, END_HEADERS | END_STREAM, 0, block(*fields())), none
    yield "a lower stream than before", call(stream=5) + call(stream=3), none
    yield "the stream ids 5 and 9", call(stream=5) + call(stream=9), (5, 9)
    yield "headers on an ended stream", headers({b":path": b"/x"}, flags=END_HEADERS | END_STREAM) + headers(flags=END_HEADERS | END_STREAM), none
    whole = block(*fields())
    yield "headers in three frames", (frame(HEADERS, 0, 1, whole[:9]) + frame(CONTINUATION, 0, 1, whole[9:50]) +
                                      frame(CONTINUATION, END_HEADERS, 1, whole[50:]) + data(message())), one
    yield "another frame within headers", frame(HEADERS, 0, 1, whole[:9]) + frame(PING, 0, 0, bytes(8)) + frame(CONTINUATION, END_HEADERS, 1, whole[9:]), none
    yield "continuation of another stream", frame(HEADERS, 0, 1, whole[:9]) + frame(CONTINUATION, END_HEADERS, 3, whole[9:]), none
    yield "continuation without headers", frame(CONTINUATION, END_HEADERS, 1, whole), none
    yield "padded headers", frame(HEADERS, END_HEADERS | PADDED, 1, b"\x05" + whole + bytes(5)) + data(message()), one
    yield "padding longer than the headers", frame(HEADERS, END_HEADERS | PADDED, 1, b"\xff" + whole[:100]), none
    yield "headers with a priority", frame(HEADERS, END_HEADERS | PRIORITY_FLAG, 1, number(0) + b"\x10" + whole) + data(message()), one
    yield "headers that depend on themselves", frame(HEADERS, END_HEADERS | PRIORITY_FLAG, 1, number(1) + b"\x10" + whole) + data(message()), one
    yield "headers with a cut priority", frame(HEADERS, END_HEADERS | PRIORITY_FLAG, 1, b"\0\0"), none
    yield "padded data", headers() + frame(DATA, END_STREAM | PADDED, 1, b"\x03" + message() + bytes(3)), one
    yield "padding longer than the data", headers() + frame(DATA, END_STREAM | PADDED, 1, b"\xff" + message()), none
    yield "data on stream 0", frame(DATA, 0, 0, b"x"), none
    yield "data of an idle stream", frame(DATA, 0, 5, b"x"), none
    yield "data after the end", headers({b":path": STREAM}) + data(b"") + data(b"x"), none
    yield "a frame above the limit", headers() + (1 << 23).to_bytes(3, "big") + bytes([DATA, 0]) + number(1) + bytes(1 << 20), none
    yield "an unknown frame", frame(0x77, 0xff, 0, b"anything") + call(), one
    yield "an unknown frame on a stream", headers() + frame(0x77, 0, 1, b"anything") + data(message()), one
    yield "a push promise", frame(PUSH_PROMISE, END_HEADERS, 1, number(2) + whole), none
    yield "a priority frame", frame(PRIORITY, 0, 3, number(0) + b"\x10") + call(), one
    yield "a priority frame of 4 bytes", frame(PRIORITY, 0, 3, bytes(4)), none
    yield "a priority frame on stream 0", frame(PRIORITY, 0, 0, bytes(5)), none
    for name, bytes_ in {"index 0": b"\x80", "an index that is not in the table": b"\xff\x7f", "a table size of 2^20": b"\x3f\xe1\xff\x3f",
                         "an endless integer": b"\xff" * 12, "a cut string": b"\x00\x05ab", "invalid Huffman code": b"\x00\x01a\x84\xff\xff\xff\xff"}.items():
        yield f"HPACK: {name}", frame(HEADERS, END_HEADERS | END_STREAM, 1, bytes_), none
    yield "three calls at once", call(stream=1) + call({b":path": INFER}, body=message(tensor()), stream=3) + call({b":path": b"/x"}, stream=5), (1, 3, 5)


CASES = {name: (frames, (1,)) for cases in (header_cases, timeout_cases, message_cases) for name, frames in cases()}
CASES.update((name, (frames, streams)) for name, frames, streams in frame_cases())


class Connection:
    """What a server sends on one connection: per stream its HTTP status, the status of the call, the number of messages, and a reset."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._windows, self._initial_window, self._has_settings = {0: 65535}, 65535, False
        self._decoder = hpack.Decoder()
        self._decoder.max_header_list_size = 1 << 20
        self._left = b""
        self.streams, self.ended, self.goaway, self.closed = {}, set(), None, False

    def close(self):
        self._socket.close()

    def send(self, frames):
        try:
            self._socket.sendall(frames)
        except (BrokenPipeError, ConnectionResetError):
            pass  # what the server has sent before is still read

    def begin(self, start):
        """Sends the beginning of a connection and waits for that of the server."""
        self.send(start)
        while not self.closed and not self._has_settings:
            self._read_frame()

    def send_in_windows(self, frames):
        """Sends the frames; DATA waits until the server's windows allow it, or its stream has ended."""
        at = ready = 0
        while at + 9 <= len(frames):
            size, kind, stream = int.from_bytes(frames[at:at + 3], "big"), frames[at + 3], int.from_bytes(frames[at + 5:at + 9], "big")
            if at + 9 + size > len(frames):
                break
            if kind == DATA:
                if self._window(stream) < size:
                    self.send(frames[ready:at])
                    ready = at
                while self._window(stream) < size and stream not in self.ended and not self.closed:
                    self._read_frame()
                if stream in self.ended:
                    ready = at + 9 + size  # this frame is not sent
                for each in (0, stream):
                    self._windows[each] = self._windows.get(each, self._initial_window) - size
            at += 9 + size
        self.send(frames[ready:])

    def _window(self, stream):
        return min(self._windows[0], self._windows.get(stream, self._initial_window))

    def wait_for(self, streams):
        """Reads until these streams have ended or the connection is closed."""
        while not self.closed and not self.ended.issuperset(streams):
            self._read_frame()

    def _read(self, count):
        while len(self._left) < count:
            try:
                more = self._socket.recv(1 << 16)
            except ConnectionResetError:
                more = b""
            if not more:
                raise EOFError
            self._left += more
        found, self._left = self._left[:count], self._left[count:]
        return found

    def _read_frame(self):
        try:
            head = self._read(9)
            payload = self._read(int.from_bytes(head[:3], "big"))
        except EOFError:
            self.closed = True
            return
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:9], "big")
        seen = self.streams.setdefault(stream, {"bytes": b""}) if stream else {}
        if kind == HEADERS:
            for name, value in self._decoder.decode(payload):
                if name in (":status", "grpc-status"):
                    seen[name] = value
        elif kind == DATA:
            seen["bytes"] += payload
            self.send(b"".join(frame(WINDOW_UPDATE, 0, each, number(len(payload))) for each in (0, stream) if payload))
        elif kind == RST_STREAM and stream not in self.ended:
            seen["reset"] = int.from_bytes(payload, "big")
        elif kind == GOAWAY:
            self.goaway = int.from_bytes(payload[4:8], "big")
        elif kind == WINDOW_UPDATE:
            self._windows[stream] = self._windows.get(stream, self._initial_window) + int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & ACK:
            self._has_settings = True
            for begin in range(0, len(payload), 6):
                if payload[begin:begin + 2] == b"\0\4":
                    self._initial_window = int.from_bytes(payload[begin + 2:begin + 6], "big")
            self.send(frame(SETTINGS, ACK, 0, b""))
        if kind == RST_STREAM or kind in (HEADERS, DATA) and flags & END_STREAM:
            self.ended.add(stream)


def count_messages(data_):
    count = 0
    while len(data_) >= 5:
        count, data_ = count + 1, data_[5 + int.from_bytes(data_[1:5], "big"):]
    return count


def describe(stream):
    if "grpc-status" in stream:
        messages = count_messages(stream["bytes"])
        return f"grpc-status {stream['grpc-status']}" + (f" with {messages} messages" if messages else "")
    if ":status" in stream and "reset" not in stream:
        return f"HTTP {stream[':status']}"
    return "reset" if "reset" in stream else "no end"


def outcome(port, frames, streams, has_probe=True):
    """Sends the frames, waits for the streams, and makes another call. Returns what happened, as one line."""
    connection = Connection(port)
    try:
        connection.begin(PREFACE + settings())
        connection.send_in_windows(frames)
        connection.wait_for(streams)
        found = [describe(connection.streams.get(stream, {})) for stream in streams]
        if not has_probe:
            return "; ".join(found)
        connection.send(call(stream=PROBE))
        connection.wait_for((PROBE,))
        probe = describe(connection.streams.get(PROBE, {}))
        if connection.closed and probe == "no end":
            return "connection closed"  # whether what was sent before still arrives is a race
        found.append("the next call succeeds" if probe == "grpc-status 0 with 1 messages" else f"the next call: {probe}")
        return "; ".join(found)
    except TimeoutError:
        return "no answer"
    finally:
        connection.close()
