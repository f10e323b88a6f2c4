"""Random sequences of HTTP/1 requests, well-formed and malformed, and what h11 (an HTTP/1 parser from PyPI) makes of them."""
import h11

# Each list begins with the plain form.
METHODS = (b"POST", b"GET", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"M-SEARCH", b"get", b"", b"GE T", b"G\0T", b"G\xc4T", b"(GET)")
TARGETS = (b"/", b"/a/b?x=y&z", b"/a%20b", b"/a?b?c", b"//", b"/\xc3\xa4", b"*", b"x", b"http://x/a", b"", b"/a b", b"/a\tb", b"/a\0b", b"/a#b", b"/\x7f")
VERSIONS = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/0.9", b"HTTP/2.0", b"http/1.1", b"HTTP/11", b"HTTP/1.1 ", b"HTTP/1.1\t", b"", b"HTTP/1.10", b"HTTP/01.1")
GAPS = (b" ", b"  ", b"\t", b"")
LINE_ENDS = (b"\r\n", b"\n", b"\r", b"\r\r\n", b"\n\r")
HOSTS = ([b"Host: x"], [], [b"Host: x", b"Host: x"], [b"Host:"], [b"Host: x", b"host: y"], [b"HOST: x:80"], [b"Host: a b"], [b"Host: x\0"])
OTHERS = (b"A: b", b"a:b", b"a-b_c.d!: x", b"Name:\tvalue\t", b"Empty:", b"Empty: ", b"Comma: a, b,,c", b"Accept: */*", b"Cookie: a=b", b"Utf8: \xc3\xa4",
          b"Latin: \xe4", b" folded: x", b"\tfolded", b"space : x", b"na me: x", b": x", b"noname", b"Nul: a\0b", b"Del: \x7f", b"Bell: \x07", b"Cr: a\rb",
          b"Tab\t: x", b"na(me: x", b"Caf\xc3\xa9: x", b"Expect: 100-continue", b"Connection: keep-alive", b"Connection: close", b"Connection: Close, x",
          b"Upgrade: h2c", b"Connection: upgrade", b"Long: " + b"x" * 4000)
LENGTHS = (b"%d", b"0%d", b"+%d", b"-%d", b"0x%d", b"%d ", b" %d", b"%d,%d", b"%d, %d", b"%d,4", b"", b"%d.0", b"99999999999999999999999", b"\xb2", b"1%d")
CODINGS = (b"chunked", b"Chunked", b"identity", b"gzip, chunked", b"chunked, chunked", b"chunked, gzip", b"xchunked", b"chunked;a=b", b"chunked ", b"\tchunked",
           b"\x0bchunked", b"", b"\"chunked\"", b"chunked,")
CHUNK_SIZES = (b"%x", b"%X", b"0%x", b"00000%x", b"+%x", b"-%x", b"0x%x", b" %x", b"%x ", b"%x\t", b"g", b"", b"%x;a=b", b"%x;a=\"b c\"", b"%x;", b"%x ;a", b"%x;a\rb",
               b"%x;\0", b"fffffffffffffffff", b"%x,")
TRAILERS = (b"", b"A: b\r\n", b"A: b\r\nC: d\r\n", b"nonsense\r\n", b" A: b\r\n", b"A : b\r\n", b"A: \0\r\n", b"A: b\n", b"Content-Length: 5\r\n")


class Generator:
    def __init__(self, chance):
        self._chance = chance

    def _any(self, forms, malformed=0.04):
        """Mostly the plain form, else any of them."""
        return self._chance.choice(forms) if self._chance.random() < malformed else forms[0]

    def _chunked(self):
        text = b""
        for _ in range(self._chance.randrange(4)):
            data = self._chance.randbytes(self._chance.choice((1, 5, 16, 300)))
            size = self._any(CHUNK_SIZES, 0.1)
            text += (size % len(data) if b"%" in size else size) + self._any(LINE_ENDS, 0.02) + data + self._any(LINE_ENDS, 0.02)
        return text + self._any((b"0", b"000", b"0;a", b"0 ", b""), 0.1) + self._any(LINE_ENDS, 0.02) + self._any(TRAILERS, 0.2) + self._any(LINE_ENDS, 0.02)

    def _framing(self):
        """Returns header lines and the body."""
        kind = self._chance.randrange(4)
        if kind == 0:
            return [], b""
        body = self._chance.randbytes(self._chance.choice((0, 1, 7, 2000)))
        length = self._any(LENGTHS, 0.1)
        lines = [b"Content-Length: " + (length.replace(b"%d", b"%d" % len(body)))]
        if kind == 1:
            return lines * self._any((1, 2), 0.05) + self._any(([], [b"Content-Length: 3"]), 0.05), body
        coding = [b"Transfer-Encoding: " + self._any(CODINGS, 0.1)]
        return self._any((coding, coding + lines, coding * 2), 0.06), self._chunked()

    def _request(self):
        method = self._chance.choice(METHODS[:5]) if self._chance.random() < 0.9 else self._chance.choice(METHODS)
        target = self._chance.choice(TARGETS[:5]) if self._chance.random() < 0.9 else self._chance.choice(TARGETS)
        lines = [method + self._any(GAPS, 0.02) + target + self._any(GAPS, 0.02) + self._any(VERSIONS)]
        framing, body = self._framing()
        headers = [*self._any(HOSTS), *(self._any(OTHERS[:9], 1) for _ in range(self._chance.randrange(4))), *framing]
        if self._chance.random() < 0.15:
            headers.append(self._chance.choice(OTHERS))
        self._chance.shuffle(headers)
        head = b"".join(line + self._any(LINE_ENDS, 0.005) for line in lines + headers)
        return self._any((b"", b"\r\n", b"\n", b" "), 0.03) + head + self._any(LINE_ENDS, 0.01) + body

    def connection(self):
        """All bytes that a client sends on one connection, before it ends its side."""
        requests = b"".join(self._request() for _ in range(self._chance.choice((1, 1, 2, 4))))
        return requests[:-self._chance.randrange(1, 9)] if self._chance.random() < 0.03 else requests


class Understood:
    """One request as a server understands it."""

    def __init__(self, method, target, headers, body):
        self.method, self.target, self.headers, self.body = method, target, headers, body

    def __eq__(self, other):
        return (self.method, self.target, self.headers, self.body) == (other.method, other.target, other.headers, other.body)

    def __repr__(self):
        return repr(vars(self))


def understood_by_h11(sent):
    """Returns the requests that h11 accepts, and why it refuses what follows: None if nothing follows."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 16)
    connection.receive_data(sent)
    connection.receive_data(b"")
    accepted, request, body = [], None, b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                accepted.append(Understood(request.method, request.target, [(bytes(name), bytes(value)) for name, value in request.headers], body))
                connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is h11.MUST_CLOSE or connection.their_state in (h11.MUST_CLOSE, h11.CLOSED):
                    return accepted, None
                connection.start_next_cycle()
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                return accepted, None
    except h11.RemoteProtocolError as error:
        return accepted, str(error)
