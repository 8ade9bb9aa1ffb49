#!/usr/bin/python3
"""TLS with server and client certificates, the command line with --ca, the refusal to listen beyond loopback without TLS, and a
shutdown that completes requests in progress and ends streams with an event."""
import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Cli, Failed, Server, Stream, check, contains, equal, log, node, program, run, scratch, tls_context, wait_until, write_file  # noqa: E402


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, name):
        self.openssl = program("openssl", "openssl")
        self.folder = scratch(name)
        self.certificate, self.key = self.path("ca.pem"), self.path("ca.key")
        self.run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", self.key, "-out", self.certificate)

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, *arguments):
        subprocess.run([self.openssl, *arguments], check=True, capture_output=True)

    def issue(self, name, extension, days="2"):
        key, request, certificate = self.path(f"{name}.key"), self.path(f"{name}.csr"), self.path(f"{name}.pem")
        self.run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        extensions = write_file(self.path(f"{name}.ext"), extension + "\n")
        self.run("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", days, "-extfile", extensions, "-out", certificate)
        os.chmod(key, 0o600)
        return certificate, key


def starts_not(orrery, what, *arguments):
    """The message of the refusal."""
    folder = scratch("refused")
    done = subprocess.run([orrery, "server", "--config", "/dev/null", "--data-folder", folder, *arguments], capture_output=True, text=True, timeout=20)
    check(f"{what} is refused", done.returncode != 0, f"it ended with {done.returncode}")
    return done.stdout + done.stderr


def encrypted(given, authority, certificate, key):
    server = Server(given.orrery, "tls", arguments=["--server-tls-certificate", certificate, "--server-tls-key", key])
    server.ssl = tls_context(authority.certificate)
    server.url = f"https://127.0.0.1:{server.port}"
    server.start()
    api = server.api()
    api.put("/v1/nodes/n1", node("n1"))
    equal("a client that trusts the authority is served", api.get("/v1/nodes/n1")["name"], "n1")
    with socket.create_connection(("127.0.0.1", server.port), 5) as plain:
        with server.ssl.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped:
            check(f"with {wrapped.version()}", wrapped.version() in ("TLSv1.2", "TLSv1.3"), wrapped.version())
    warnings.simplefilter("ignore", DeprecationWarning)  # old versions are named only to see them refused
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    try:
        with socket.create_connection(("127.0.0.1", server.port), 5) as plain:
            old.wrap_socket(plain)
        raise Failed("TLS 1.1 is accepted")
    except (ssl.SSLError, ConnectionError):
        check("TLS 1.1 is refused", True)
    with socket.create_connection(("127.0.0.1", server.port), 5) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        plain.settimeout(5)
        answer = plain.recv(1000)
    check("a client without TLS gets no answer of the API", b"200" not in answer[:20], repr(answer))
    equal("and the server is alive", server.probe("/healthz")[0], 200)

    cli = Cli(given.orrery, server)
    ran = cli("get", "nodes")
    check("the command line refuses a server it cannot verify", ran.status != 0, str(ran))
    ran = cli("login", "admin", "--password-file", server.password_file)
    check("and sends it no password", ran.status != 0, str(ran))
    log("      " + ran.err.strip().replace("\n", " / "))
    cli.ok("--ca", authority.certificate, "login", "admin", "--password-file", server.password_file)
    contains("with --ca it logs in and reads", cli.ok("--ca", authority.certificate, "get", "nodes", "-o", "name"), "n1")
    contains("with ORRERY_CA too", cli.ok("get", "nodes", "-o", "name", ORRERY_CA=authority.certificate), "n1")
    stream = Stream(server, "/v1/nodes?watch=now")
    api.put("/v1/nodes/n2", node("n2"))
    equal("streams go over TLS", next(e for e in stream if e[0] != "started")[0], "created")
    stream.close()
    # Silent connections must not block other clients.
    silent = [socket.create_connection(("127.0.0.1", server.port), 5) for _ in range(50)]
    equal("50 silent connections block no client", server.probe("/healthz")[0], 200)
    for one in silent:
        one.close()
    equal("it stops on SIGTERM", server.stop(), 0)


def client_certificates(given, authority, certificate, key):
    client, client_key = authority.issue("robot", "extendedKeyUsage=clientAuth")
    stranger, stranger_key = Authority("stranger").issue("robot", "extendedKeyUsage=clientAuth")
    server = Server(given.orrery, "mutual", arguments=["--server-tls-certificate", certificate, "--server-tls-key", key, "--server-tls-client-ca", authority.certificate])
    server.ssl = tls_context(authority.certificate, client, client_key)
    server.start()
    equal("a client with a certificate is served", server.api().get("/v1/whoami")["user"], "admin")
    for what, context in {"without a certificate": tls_context(authority.certificate), "with a stranger's": tls_context(authority.certificate, stranger, stranger_key)}.items():
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=5, context=context)
        try:
            connection.request("GET", "/healthz")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            status = None
        equal(f"one {what} is not", status, None)
    server.stop()


def beyond_loopback(given, certificate, key):
    text = starts_not(given.orrery, "listening on all addresses without TLS", "--server-listen", "0.0.0.0:0")
    contains("with a remedy", text, "server.tls.certificate", "server.allow_plaintext")
    check("and no JSON", "{" not in text, text)
    text = starts_not(given.orrery, "a key without its certificate", "--server-tls-key", key)
    contains("names the missing setting", text, "certificate")
    empty = write_file(os.path.join(scratch(), "empty.pem"), "")
    text = starts_not(given.orrery, "an invalid certificate", "--server-listen", "127.0.0.1:0", "--server-tls-certificate", empty, "--server-tls-key", key)
    contains("names the file", text, "empty.pem")
    server = Server(given.orrery, "plain", arguments=["--server-listen", "0.0.0.0:0", "--server-allow-plaintext"])
    server.start()
    check("with an explicit setting it listens", True)
    server.stop()


def good_bye(given):
    log("a shutdown")
    server = Server(given.orrery, "leaving", arguments=["--server-shutdown-grace", "4s"])
    server.start()
    api = server.api()
    api.put("/v1/nodes/n1", node("n1"))
    stream = Stream(server, "/v1/nodes?watch=now", seconds=20)
    ended = {}

    def listen():
        events = []
        try:
            for event in stream:
                events.append(event)
            ended["stream"] = "whole"
        except http.client.IncompleteRead:
            ended["stream"] = "cut"
        except OSError as error:
            ended["stream"] = f"broken: {error}"
        ended["events"] = events
        ended["at"] = time.monotonic()
    listener = threading.Thread(target=listen)
    listener.start()
    time.sleep(0.3)
    body = b'{"kind": "Node", "name": "slow", "spec": {"address": "192.0.2.9"}}'
    slow = socket.create_connection(("127.0.0.1", server.port), 10)
    slow.sendall(f"PUT /v1/nodes/slow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token()}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body[:20])
    time.sleep(0.2)
    begin = time.monotonic()
    server.process.signal(signal.SIGTERM)
    time.sleep(0.7)
    check("it does not exit during a request", server.process.alive())
    try:
        socket.create_connection(("127.0.0.1", server.port), 2).close()
        refused = False
    except OSError:
        refused = True
    check("new connections are refused", refused)
    slow.sendall(body[20:])
    slow.settimeout(5)
    answer = slow.recv(65536)
    check("the request in progress is answered", answer.startswith(b"HTTP/1.1 201"), repr(answer[:200]))
    contains("with the announcement that the connection closes", answer.decode().lower(), "connection: close")
    listener.join(10)
    equal("the stream ends with an event", ended.get("stream"), "whole")
    log(f"      its last event: {ended['events'][-1][0] if ended['events'] else 'none'}")
    equal("it ends with 0", server.process.wait(10), 0)
    check(f"{time.monotonic() - begin:.1f} s after SIGTERM, within its grace", time.monotonic() - begin < 4)
    server.start()
    equal("the completed write is stored", server.api().get("/v1/nodes/slow")["name"], "slow")

    log("a client that never finishes")
    slow = socket.create_connection(("127.0.0.1", server.port), 10)
    slow.sendall(f"PUT /v1/nodes/slow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token()}\r\nContent-Length: 100\r\n\r\n".encode())
    time.sleep(0.2)
    begin = time.monotonic()
    status = server.stop(10)
    took = time.monotonic() - begin
    equal("does not delay the stop", status, 0)
    check(f"beyond its grace ({took:.1f} s)", 2 < took < 6, f"{took:.1f} s")
    equal("the log has no errors", server.error_lines(), [])


def reload(given, authority):
    """SIGHUP reads certificates and the log level again, and never ends the server."""
    certificate, key = authority.issue("first", "subjectAltName=IP:127.0.0.1")
    config = write_file(os.path.join(scratch("reload"), "orrery.yaml"), "log: {level: info}\n")
    server = Server(given.orrery, "reload", arguments=["--server-tls-certificate", certificate, "--server-tls-key", key])
    command = server.command()
    command[command.index("--config") + 1] = config
    server.command = lambda: command
    server.ssl = tls_context(authority.certificate)
    server.url = f"https://127.0.0.1:{server.port}"
    server.start()

    def served():
        with socket.create_connection(("127.0.0.1", server.port), 5) as plain, server.ssl.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped:
            return wrapped.getpeercert()["subject"][0][0][1]
    equal("it begins with the first certificate", served(), "first")
    open_since_before = server.api()
    open_since_before.get("/v1/whoami")
    for source, target in zip(authority.issue("second", "subjectAltName=IP:127.0.0.1"), (certificate, key)):
        os.replace(source, target)
    write_file(config, "log: {level: debug}\n")
    server.process.signal(signal.SIGHUP)
    wait_until("SIGHUP reloads the certificate", lambda: served() == "second", 5)
    equal("open connections continue", open_since_before.get("/v1/whoami")["user"], "admin")
    check("SIGHUP reloads the log level", "level=debug" in server.log_text(), server.log_text()[-800:])
    write_file(key, "not a key\n")
    server.process.signal(signal.SIGHUP)
    wait_until("a certificate that is not usable is reported", lambda: "reload of certificates failed" in server.log_text(), 5)
    equal("and the last good one stays", served(), "second")
    write_file(config, "log: {level: nonsense}\n")
    server.process.signal(signal.SIGHUP)
    wait_until("so is a configuration", lambda: "reload failed" in server.log_text(), 5)
    check("SIGHUP never ends the server", server.process.alive())
    equal("it stops on SIGTERM", server.stop(), 0)


def main(given):
    authority = Authority("authority")
    certificate, key = authority.issue("server", "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth")
    encrypted(given, authority, certificate, key)
    client_certificates(given, authority, certificate, key)
    beyond_loopback(given, certificate, key)
    good_bye(given)
    reload(given, authority)


if __name__ == "__main__":
    run(main)
