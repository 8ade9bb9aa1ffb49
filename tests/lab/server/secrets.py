#!/usr/bin/python3
"""Secrets, passwords and tokens are stored in the server and then searched for: in every answer, event, metric, log line, process list
and file, as they are and in the usual encodings. None may be found."""
import os
import subprocess
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from canaries import Ear, canaries, canary, leaks  # noqa: E402
from orrery_lab import Cli, Etcd, Problem, Server, Stream, check, equal, log, run, scratch, wait_until, write_file  # noqa: E402

def tries(api, method, path, body, headers=None):
    """An Api whose responses are searched at the end."""
    try:
        return api.request(method, path, body, headers)
    except Problem:
        return None


def put_in(server, api):
    """Sends secrets in every kind of request, valid and invalid."""
    values = {"private_key": canary("a secret's value"), "long": canary("a long secret's beginning") + "x" * 5000 + canary("a long secret's end")}
    secret = {"kind": "Secret", "name": "s1", "spec": {"description": "a test", "values": values}}
    tries(api, "POST", "/v1/secrets?dry_run=true", secret)
    api.post("/v1/secrets", secret)
    api.put("/v1/secrets/s1?reason=rotation", {**secret, "spec": {"values": {**values, "second": canary("a value added by PUT")}}})
    tries(api, "PUT", "/v1/secrets/s1?dry_run=true", {**secret, "spec": {"values": {"private_key": canary("a dry run's value")}}})
    tries(api, "PATCH", "/v1/secrets/s1?dry_run=true", {"spec": {"values": {"private_key": canary("a dry-run patch")}}})
    api.patch("/v1/secrets/s1", {"spec": {"values": {"private_key": canary("a patched value")}}})
    api.put("/v1/secrets/gone", {**secret, "name": "gone"})
    api.delete("/v1/secrets/gone")
    api.put("/v1/nodes/n1", {"kind": "Node", "name": "n1", "spec": {"address": "192.0.2.1", "ssh": {"key": "s1"}}})
    api.refused("a secret in use stays", 409, "DELETE", "/v1/secrets/s1")

    log("wrong bodies, whose answers must not quote them")
    for what, body in {
        "a value of the wrong type": {"kind": "Secret", "name": "bad", "spec": {"values": {"a": [canary("in a list")]}}},
        "a value in an object": {"kind": "Secret", "name": "bad", "spec": {"values": {"a": {"b": canary("in an object")}}}},
        "values that are a text": {"kind": "Secret", "name": "bad", "spec": {"values": canary("instead of a map")}},
        "a good value beside a wrong field": {"kind": "Secret", "name": "bad", "spec": {"values": {"a": canary("beside an error")}, "wrong": 1}},
    }.items():
        api.refused(what, 400, "POST", "/v1/secrets", body)
    api.refused("a broken body", 400, "POST", "/v1/secrets", '{"kind": "Secret", "spec": {"values": {"a": "' + canary("in broken JSON") + '"', {"Content-Type": "application/json"})
    api.refused("broken YAML", 400, "POST", "/v1/secrets", "kind: Secret\nspec:\n  values: {a: '" + canary("in broken YAML") + "\n", {"Content-Type": "application/yaml"})

    log("users, passwords, tokens")
    password = canary("a user's password")
    api.post("/v1/users", {"kind": "User", "name": "alice", "spec": {"role": "operator", "password": password}})
    tries(api, "PUT", "/v1/users/alice?dry_run=true", {"kind": "User", "name": "alice", "spec": {"role": "operator", "password": canary("a dry run's password")}})
    tries(api, "POST", "/v1/users", {"kind": "User", "name": "bob", "spec": {"role": "king", "password": canary("password of a refused user")}})
    tries(api, "POST", "/v1/users", {"kind": "User", "name": "bob", "spec": {"password": [canary("password in a list")]}})
    tries(api, "POST", "/v1/users/alice/password", {"password": canary("a changed password"), "curent": canary("in a misspelt field")})
    changed = canary("alice's second password")
    tries(api, "POST", "/v1/users/alice/password", {"password": changed})
    anonymous = Ear(server)
    for wrong in (canary("a wrong password"), canary("another wrong password")):
        anonymous.refused("a wrong password", 401, "POST", "/v1/login", {"user": "alice", "password": wrong})
    tries(anonymous, "POST", "/v1/login", {"user": "nobody-of-that-name", "password": canary("an unknown user's password")})
    anonymous.refused("a misspelt field", 400, "POST", "/v1/login", {"user": "alice", "pasword": canary("password in a misspelt field")})
    login = anonymous.quietly("POST", "/v1/login", {"user": "alice", "password": changed})
    canaries["a session's token"] = login["token"]
    made = api.quietly("POST", "/v1/tokens", {"kind": "Token", "name": "t1", "spec": {"user": "alice", "role": "viewer"}})
    canaries["a made token"] = made["once"]["token"]
    canaries["the admin's session"] = server.token()
    Ear(server, canary("a wrong token")).refused("a wrong token", 401, "GET", "/v1/nodes")
    Ear(server, None).refused("a password in the wrong header", 401, "GET", "/v1/nodes", headers={"Authorization": "Basic " + canary("basic credentials")})
    alice = Ear(server, login["token"])
    tries(alice, "GET", "/v1/whoami", None)
    tries(alice, "GET", "/v1/secrets", None)
    tries(alice, "GET", "/v1/users", None)
    tries(Ear(server, made["once"]["token"]), "GET", "/v1/nodes", None)


def take_out(server, api, revision):
    """Reads all that each role can read."""
    kinds = api.get("/v1/kinds")["items"]
    streams = []
    for kind in kinds:
        stream = Stream(server, f"/v1/{kind['plural']}?watch={revision}", seconds=1)
        streams.append(stream)
        for query in ("", "?limit=5000", "?order=newest", "?consistent=true"):
            tries(api, "GET", f"/v1/{kind['plural']}{query}", None)
        for item in api.all(kind["plural"]):
            tries(api, "GET", f"/v1/{kind['plural']}/{urllib.parse.quote(item['name'])}", None)
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/v1/store", "/v1/whoami", "/v1/kinds", "/v1/nothing"):
        tries(api, "GET", path, None)
    changes = 0
    for stream in streams:
        try:
            for event, ident, data in stream:
                changes += 1
                Ear.received += f"{event} {ident} {data}\n".encode()
        except TimeoutError:
            pass
        stream.close()
    equal("every answer, list, event stream, metric and page is free of them", leaks(Ear.received), [])
    log(f"      {Ear.answers} answers and {changes} streamed changes, {len(Ear.received) / 1024:.0f} KiB, {len(canaries)} canaries")


def processes(server, cli):
    for name in ("cmdline", "environ"):
        with open(f"/proc/{server.process.pid}/{name}", "rb") as file:
            equal(f"the server's {name} is free of them", leaks(file.read()), [])
    watching = subprocess.Popen([cli.orrery, "watch", "secrets"], env=cli.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_until("the command line watches", lambda: server.metrics()["orrery_event_streams"] >= 1, 10)
        for name in ("cmdline", "environ"):
            with open(f"/proc/{watching.pid}/{name}", "rb") as file:
                equal(f"the command line's {name} is free of them", leaks(file.read()), [])
    finally:
        watching.terminate()
        out, err = watching.communicate(timeout=10)
    equal("the output of the server is free of them", leaks(out + err), [])


def command_line(server):
    cli = Cli(server.orrery, server).login(server)
    password = write_file(os.path.join(scratch(), "carol.password"), canary("carol's password") + "\n")
    ran = cli("user", "create", "carol", "--role", "viewer", "--password-file", password)
    check("a user is created with a password from a file", ran.status == 0, str(ran))
    printed = ran.out + ran.err
    text = f"kind: Secret\nname: from-file\nspec:\n  values:\n    key: {canary('a secret applied from a file')}\n"
    file = write_file(os.path.join(scratch(), "secret.yaml"), text)
    changed = write_file(os.path.join(scratch(), "secret2.yaml"), text.replace(canaries["a secret applied from a file"], canary("a secret that differs")))
    broken = write_file(os.path.join(scratch(), "secret3.yaml"), f"kind: Secret\nname: broken\nspec:\n  values:\n    key: [{canary('a secret in a wrong file')}]\n")
    for arguments in (["diff", "-f", file], ["apply", "-f", file], ["diff", "-f", changed], ["apply", "-f", changed, "--dry-run"], ["apply", "-f", broken],
                      *(["get", "secrets", "-o", form] for form in ("table", "wide", "yaml", "json", "name")), ["describe", "secret", "from-file"],
                      ["get", "users", "-o", "yaml"], ["get", "tokens", "-o", "json"], ["describe", "user", "carol"], ["events"], ["events", "-o", "json"]):
        ran = cli(*arguments)
        printed += f"{ran}\n"
    equal("the output of the command line is free of them", leaks(printed.encode()), [])
    home = cli.environment["HOME"]
    for folder, _, names in os.walk(home):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as kept:
                data = kept.read()
            if b"orr_" in data:
                check("the file that keeps its session is readable by its owner only", os.stat(path).st_mode & 0o077 == 0, oct(os.stat(path).st_mode))
            equal(f"its file {os.path.relpath(path, home)} has no password", leaks(data, ("the admin's session",)), [])
    return cli


def files(what, folder):
    count = size = 0
    for below, _, names in os.walk(folder):
        for name in names:
            try:
                with open(os.path.join(below, name), "rb") as file:
                    data = file.read()
            except FileNotFoundError:  # of a running server: a copy for a backup that has just been sent
                continue
            count, size = count + 1, size + len(data)
            equal(f"{what}: {name}", leaks(data), [])
    check(f"{what}: {count} files, {size / 1024:.0f} KiB", count > 0)


def main(given):
    bind = write_file(os.path.join(scratch(), "bind.password"), canary("the directory's bind password") + "\n")
    # A directory that does not answer: its password is read, and every login of an unknown user tries to use it.
    server = Server(given.orrery, admin_password=canary("the first administrator's password"), arguments=[
        "--log-level", "debug", "--identity-ldap-url", "ldap://127.0.0.1:9", "--identity-ldap-bind-dn", "cn=orrery,dc=example,dc=org",
        "--identity-ldap-bind-password-file", bind, "--identity-ldap-user-base", "dc=example,dc=org", "--identity-ldap-roles", "admins=admin"])
    server.start()
    api = Ear(server, server.token())
    revision = api.get("/v1/store")["revision"]
    # Logins of directory users cannot be checked while it is unavailable.
    try:
        Ear(server).post("/v1/login", {"user": "somebody", "password": canary("a password for the directory")})
    except Problem as problem:
        check(f"an unavailable directory: {problem.status}", problem.status in (401, 503, 504), str(problem))
    put_in(server, api)
    cli = command_line(server)
    take_out(server, api, revision)
    processes(server, cli)
    status, _, backup = api.raw("POST", "/v1/store/backup")
    check("a backup", status == 200 and len(backup) > 4096, f"{status}, {len(backup)} bytes")
    equal("the backup is free of them", leaks(backup), [])
    files("the data folder of a running server", server.folder)
    equal("the log at level debug is free of them", leaks(server.log_text().encode()), [])
    check("though it was at level debug", "level=debug" in server.log_text())
    equal("it stops on SIGTERM", server.stop(), 0)
    files("the data folder at rest", server.folder)

    if not os.path.exists("/usr/bin/etcd"):
        log("      etcd is not installed: its files are not searched")
        return
    log("the same on etcd")
    canaries.clear()
    Ear.received.clear()
    etcd = Etcd(1)
    server = Server(given.orrery, "on-etcd", store_url=etcd.url("secrets"), admin_password=canary("the first administrator's password"))
    server.start()
    put_in(server, Ear(server, server.token()))
    equal("every answer is free of them", leaks(Ear.received), [])
    equal("the log is free of them", leaks(server.log_text().encode()), [])
    server.stop()
    time.sleep(0.2)
    etcd.stop()
    files("etcd's files", os.path.join(scratch(), "etcd"))
    files("the server's own files", server.folder)


if __name__ == "__main__":
    run(main)
