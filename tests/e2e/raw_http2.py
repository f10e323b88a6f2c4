"""A low-level gRPC client: sends single HTTP/2 frames to a port and reads frames. Headers are sent uncompressed."""
import socket

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def request_headers(path, *others):
    def literal(name, value):
        return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value

    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"), (b"content-type", b"application/grpc"),
              (b"te", b"trailers"), *others]
    return b"".join(literal(name, value) for name, value in fields)


def call(path, message, *headers):
    """Returns the frames of a complete call on stream 1."""
    data = b"\0" + len(message).to_bytes(4, "big") + message
    parts = [data[at:at + 16384] for at in range(0, len(data), 16384)]
    return frame(HEADERS, END_HEADERS, 1, request_headers(path, *headers)) + b"".join(
        frame(DATA, END_STREAM if part is parts[-1] else 0, 1, part) for part in parts)


class RawHttp2:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def read_exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def read_frame(self):
        """Returns (kind, flags, payload)."""
        head = self.read_exactly(9)
        return head[3], head[4], self.read_exactly(int.from_bytes(head[:3], "big"))

    def wait_for(self, kind, flags=None):
        """Returns the payload of the next frame of this kind; other frames are skipped."""
        while True:
            found, found_flags, payload = self.read_frame()
            if found == kind and flags in (None, found_flags):
                return payload
