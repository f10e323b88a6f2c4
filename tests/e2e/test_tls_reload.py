"""TLS of both ports: the lowest version, and certificates that are replaced while the server runs."""
import http.client
import pathlib
import shutil
import socket
import ssl

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from waiting import wait_for

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/repo"


class Files:
    """The files that the server reads, and with which it is started."""

    def __init__(self, folder, certificates):
        self.cert, self.key, self.root = (folder / name for name in ("cert.pem", "key.pem", "root.pem"))
        self.put(certificates.server, certificates.authority)

    def put(self, server, authority):
        """Replaces the certificate first, so that for a moment it does not belong to the key."""
        for source, target in ((server[0], self.cert), (server[1], self.key), (authority.cert, self.root)):
            new = target.with_suffix(".new")
            shutil.copy(source, new)
            new.rename(target)

    def flags(self, mutual):
        flags = [f"--{port}-{name}={value}" for port in ("http", "grpc") for name, value in
                 (("use-ssl", "true"), ("server-cert", self.cert), ("server-key", self.key), ("root-cert", self.root))]
        return flags + [f"--{port}-use-ssl-mutual=true" for port in ("http", "grpc") if mutual]


def issuer(port, context):
    """Who signed the certificate that a new connection to the port gets; None if the handshake fails."""
    try:
        with context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=60), server_hostname="127.0.0.1") as one:
            return dict(pair for group in one.getpeercert()["issuer"] for pair in group)["commonName"]
    except ssl.SSLError:
        return None


def h2(context):
    context.set_alpn_protocols(["h2"])
    return context


def is_live(channel):
    return service_pb2_grpc.GRPCInferenceServiceStub(channel).ServerLive(service_pb2.ServerLiveRequest(), timeout=60).live


def test_replaced_certificates_serve_new_connections_and_keep_the_old_ones(start_server, certificates, test_backends, tmp_path):
    files = Files(tmp_path, certificates)
    old, new = certificates.authority.context(), certificates.untrusted.context()
    server = start_server(GOLDEN, [test_backends, "--model-control-mode=explicit", *files.flags(mutual=False)], tls=old)
    connection = http.client.HTTPSConnection("127.0.0.1", server.http, context=old, timeout=60)
    channel = grpc.secure_channel(f"127.0.0.1:{server.grpc}", grpc.ssl_channel_credentials(certificates.authority.cert.read_bytes()))

    def answers():
        connection.request("GET", "/v2/health/live")
        reply = connection.getresponse()
        reply.read()
        return reply.status == 200 and is_live(channel)

    assert answers()
    kept = connection.sock
    files.put(certificates.untrusted.sign("replacement"), certificates.untrusted)
    for port, context in ((server.http, new), (server.grpc, h2(certificates.untrusted.context()))):
        wait_for(lambda port=port, context=context: issuer(port, context) == "untrusted", "the new certificate")
    assert issuer(server.http, old) is None
    assert answers() and connection.sock is kept
    files.cert.write_text("-----BEGIN NONSENSE-----\n")
    wait_for(lambda: server.text().count("kept the previous TLS files") >= 2, "the lines of both ports")
    assert f"--http-server-cert '{files.cert}'" in server.text() and f"--grpc-server-cert '{files.cert}'" in server.text()
    assert issuer(server.http, new) == "untrusted" and answers()
    connection.close()
    channel.close()
    assert server.stop() == 0


def test_replaced_roots_decide_which_new_clients_are_known(start_server, certificates, test_backends, tmp_path):
    files = Files(tmp_path, certificates)
    context = certificates.authority.context(certificates.client)
    server = start_server(GOLDEN, [test_backends, "--model-control-mode=explicit", *files.flags(mutual=True)], tls=context)
    stranger = certificates.authority.context(certificates.untrusted_client)

    def status(context):
        connection = http.client.HTTPSConnection("127.0.0.1", server.http, context=context, timeout=60)
        try:
            connection.request("GET", "/v2/health/live")
            return connection.getresponse().status
        except (ssl.SSLError, ConnectionError, http.client.BadStatusLine):
            return None
        finally:
            connection.close()

    assert status(context) == 200 and status(stranger) is None
    shutil.copy(certificates.untrusted.cert, files.root.with_suffix(".new"))
    files.root.with_suffix(".new").rename(files.root)
    wait_for(lambda: status(stranger) == 200, "the new list of authorities")
    assert status(context) is None
    server.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("flags, accepted", [([], {"1.1": False, "1.2": True, "1.3": True}), (["--tls-minimum=1.3"], {"1.1": False, "1.2": False, "1.3": True})])
def test_the_lowest_version_of_tls(start_server, certificates, test_backends, tmp_path, flags, accepted):
    server = start_server(GOLDEN, [test_backends, "--model-control-mode=explicit", *Files(tmp_path, certificates).flags(mutual=False), *flags],
                          tls=certificates.authority.context())
    versions = {"1.1": ssl.TLSVersion.TLSv1_1, "1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
    for name, version in versions.items():
        for port in (server.http, server.grpc):
            context = h2(certificates.authority.context())
            context.minimum_version = ssl.TLSVersion.TLSv1_1
            context.maximum_version = version
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
            assert (issuer(port, context) == "authority") == accepted[name], (name, port == server.http)
    server.stop()
