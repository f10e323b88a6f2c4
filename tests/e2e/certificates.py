"""Temporary certificates, made with the openssl command, and Python ssl contexts for them."""
import ssl
import subprocess


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    """A certificate authority for servers and clients. Its files are in `folder`."""

    def __init__(self, folder, name):
        self.folder = folder
        self.key, self.cert = folder / f"{name}.key", folder / f"{name}.pem"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3650", "-subj", f"/CN={name}",
                "-keyout", self.key, "-out", self.cert)

    def sign(self, name):
        """Returns (certificate, key) for 127.0.0.1 and localhost."""
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        key, cert = self.folder / f"{name}.key", self.folder / f"{name}.pem"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out",
                request)
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial", "-days", "3650", "-extfile", extensions, "-out",
                cert)
        return cert, key

    def context(self, client=None):
        """Returns an ssl context that trusts this authority. `client`: (certificate, key) of the client."""
        context = ssl.create_default_context(cafile=str(self.cert))
        if client:
            context.load_cert_chain(*map(str, client))
        return context


class Certificates:
    def __init__(self, folder):
        self.folder = folder
        self.authority, self.untrusted = Authority(folder, "authority"), Authority(folder, "untrusted")
        self.server, self.client = self.authority.sign("server"), self.authority.sign("client")
        self.untrusted_client = self.untrusted.sign("untrusted_client")
        self.nonsense = folder / "nonsense.pem"
        self.nonsense.write_text("-----BEGIN NONSENSE-----\n")
        self.locked_key = folder / "locked.key"
        openssl("ec", "-in", self.server[1], "-aes256", "-passout", "pass:secret", "-out", self.locked_key)

    def flags(self, port, mutual=False):
        """Returns the flags that enable TLS for `port`, "http" or "grpc"."""
        flags = [f"--{port}-use-ssl=true", f"--{port}-server-cert={self.server[0]}", f"--{port}-server-key={self.server[1]}"]
        return flags + ([f"--{port}-use-ssl-mutual=true", f"--{port}-root-cert={self.authority.cert}"] if mutual else [])

    def bad_flags(self, port):
        """Returns (flags, what the server's error must name) for every kind of wrong flag."""
        cert, key = self.server
        missing = self.folder / "missing.pem"

        def given(cert, key, *others):
            return [f"--{port}-use-ssl=true", f"--{port}-server-cert={cert}", f"--{port}-server-key={key}", *others]

        return [
            ([f"--{port}-use-ssl=true"], f"--{port}-use-ssl: needs --{port}-server-cert and --{port}-server-key"),
            (given(missing, key), f"--{port}-server-cert '{missing}'"),
            (given(self.nonsense, key), f"--{port}-server-cert '{self.nonsense}'"),
            (given(cert, missing), f"--{port}-server-key '{missing}'"),
            (given(cert, self.nonsense), f"--{port}-server-key '{self.nonsense}'"),
            (given(cert, self.locked_key), f"--{port}-server-key '{self.locked_key}'"),
            (given(cert, self.client[1]), f"--{port}-server-key '{self.client[1]}': key values mismatch"),
            (given(cert, key, f"--{port}-use-ssl-mutual=true"), f"--{port}-use-ssl-mutual: needs --{port}-root-cert"),
            (given(cert, key, f"--{port}-use-ssl-mutual=true", f"--{port}-root-cert={self.nonsense}"), f"--{port}-root-cert '{self.nonsense}'"),
        ]
