"""A client that can misbehave: sends raw bytes to an HTTP port and reads the answer."""
import json
import socket


class Raw:
    def __init__(self, port, receive_buffer=None, timeout=60):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", port))
        self.left = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.socket.sendall(data)

    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)

    def close(self):
        self.socket.close()

    def read_until(self, marker):
        while marker not in self.left:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError(self.left[-300:])
            self.left += data
        found, self.left = self.left.split(marker, 1)
        return found + marker

    def read_exactly(self, count):
        received = bytearray(self.left)  # grows without a copy of what was received before
        while len(received) < count:
            data = self.socket.recv(1 << 20)
            if not data:
                raise EOFError(bytes(received[-300:]))
            received += data
        self.left = bytes(received[count:])
        return bytes(received[:count])

    def answer(self):
        """Returns (status, headers, body) of the next answer. The chunks of a chunked body are joined."""
        head = self.read_until(b"\r\n\r\n").decode()
        lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines[1:] if line)}
        if headers.get("transfer-encoding") != "chunked":
            return int(lines[0].split()[1]), headers, self.read_exactly(int(headers.get("content-length", 0)))
        body = b""
        while size := int(self.read_until(b"\r\n"), 16):
            body += self.read_exactly(size)
            self.read_exactly(2)
        self.read_exactly(2)
        return int(lines[0].split()[1]), headers, body

    def closed(self):
        """True if the server closes the connection without another byte."""
        try:
            return self.left == b"" and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


def post(path, body, *headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(data)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data
