"""A small model hub on this machine: the routes of Hugging Face's hub that a download uses, with a file store at another address, as theirs has."""
import hashlib
import http.server
import json
import pathlib
import threading

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE_FROM = 1_000_000  # bytes; larger files are in the file store


def git_hash(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    """Serves `files` ({name: bytes}) as the model `name`. Attributes change its behaviour; `requests` has (method, path, headers) of every request."""

    def __init__(self, name, files):
        self.name, self.files = name, dict(files)
        self.listed = None  # names in place of those of the files
        self.commit = COMMIT
        self.gated_for = None  # the token that may read the model; None: everybody
        self.cuts = 0  # so many downloads from the file store end half-way
        self.failures = 0  # so many requests get 503
        self.extra_bytes = b""  # sent after the announced end of a file of the store
        self.damaged = set()  # names of files that are sent with a wrong byte
        self.has_ranges = True
        self.requests = []
        self.hub, self.store = self._start("hub"), self._start("store")

    def _start(self, role):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"hub_state": self, "role": role}))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.hub.server_port}"

    def of(self, role):
        """The requests that the hub or the store has received."""
        return [each for each in self.requests if each[0] == role]

    def stop(self):
        for server in (self.hub, self.store):
            server.shutdown()
            server.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    hub_state, role = None, None
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        hub = self.hub_state
        hub.requests.append((self.role, self.command, self.path, dict(self.headers)))
        if hub.failures > 0:
            hub.failures -= 1
            return self.reply(503, b"busy")
        return self.answer_as_store() if self.role == "store" else self.answer_as_hub()

    def answer_as_hub(self):
        hub = self.hub_state
        if self.path.startswith(f"/api/models/{hub.name}/revision/"):
            if self.path.rpartition("/")[2] not in ("main", hub.commit):
                return self.reply(404, b"", {"X-Error-Code": "RevisionNotFound"})
            names = hub.listed if hub.listed is not None else list(hub.files)
            return self.reply(200, json.dumps({"sha": hub.commit, "siblings": [{"rfilename": name} for name in names]}).encode())
        prefix = f"/{hub.name}/resolve/{hub.commit}/"
        name = self.path.removeprefix(prefix)
        if not self.path.startswith(prefix) or name not in hub.files:
            return self.reply(401 if not self.path.startswith(f"/{hub.name}/") else 404, b"")
        if hub.gated_for and self.headers.get("Authorization") != f"Bearer {hub.gated_for}":
            return self.reply(401, b"", {"X-Error-Code": "GatedRepo"})
        content = hub.files[name]
        if len(content) < LARGE_FROM:
            return self.send_content(name, {"ETag": f'"{git_hash(content)}"', "X-Repo-Commit": hub.commit})
        return self.reply(302, b"", {"Location": f"http://127.0.0.1:{hub.store.server_port}/store/{name}", "X-Repo-Commit": hub.commit,
                                     "X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Linked-Size": str(len(content))})

    def answer_as_store(self):
        self.send_content(self.path.removeprefix("/store/"), {"ETag": '"another-hash"'})

    def send_content(self, name, headers):
        hub = self.hub_state
        content = hub.files[name]
        if name in hub.damaged:
            content = content[:-1] + bytes([content[-1] ^ 1])
        begin, status = 0, 200
        if hub.has_ranges and self.headers.get("Range"):
            begin, status = int(self.headers["Range"].removeprefix("bytes=").rstrip("-")), 206
            headers = {**headers, "Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"}
        body = content[begin:]
        if self.role == "store" and self.command == "GET" and hub.cuts > 0:
            hub.cuts -= 1
            self.reply(status, body[:len(body) // 2], {**headers, "Content-Length": str(len(body))})
            self.close_connection = True
            return None
        return self.reply(status, body + (hub.extra_bytes if self.role == "store" else b""), headers)

    def reply(self, status, body, headers=None):
        headers = {"Content-Length": str(len(body)), **(headers or {})}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def files_of(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir() if path.is_file()}
