#!/usr/bin/python3 -B
"""Things that the server refuses and hides, with the real program: connections without TLS beyond loopback, by every way in; passwords in URLs, in every answer, log line and event; core dumps and
debuggers; a restore that was killed at each of its steps; sessions of a restored backup. `./dev` leaves nothing behind where apt fails."""
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from networks import own_network  # noqa: E402
from orrery_lab import Cli, Problem, Server, check, clean_environment, contains, equal, log, run, scratch, write_file  # noqa: E402

TREE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
SECRET = "hunter2"
FAR = "198.51.100.7"

# Ends the process before its Nth rename, as a loss of power would.
KILL = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
int rename(const char* from, const char* to) {
    static int count;
    const char* at = getenv("LAB_KILL_AT");
    if (at && ++count == atoi(at)) kill(getpid(), SIGKILL);
    return ((int (*)(const char*, const char*))dlsym(RTLD_NEXT, "rename"))(from, to);
}
"""


def runs(arguments, seconds=20, **environment):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=seconds, env=clean_environment(**environment))


def plaintext_is_refused(orrery):
    folder = scratch("refused")
    server = [orrery, "server", "--config", "/dev/null", "--data-folder", folder, "--server-listen", "127.0.0.1:0"]
    user = ["--store-etcd-user", "root", "--store-etcd-password-file", write_file(os.path.join(scratch(), "etcd-password"), "x\n")]
    file = write_file(os.path.join(scratch(), "far.yaml"), f"data: {{folder: {folder}}}\nstore: {{url: 'etcd://{FAR}:2379'}}\n")
    ways = {
        "a flag": runs([*server, "--store-url", f"etcd://{FAR}:2379"]),
        "a flag, with a login": runs([*server, "--store-url", f"etcd://127.0.0.1:2379,{FAR}:2379", *user]),
        "a name": runs([*server, "--store-url", "etcd://etcd.example:2379"]),
        "the environment": runs(server, ORRERY_STORE_URL=f"etcd://{FAR}:2379"),
        "the file": runs([orrery, "server", "--config", file]),
        "config check": runs([orrery, "config", "check", "-f", file]),
        "reset-admin": runs([orrery, "store", "reset-admin", "-f", file]),
    }
    for way, ended in ways.items():
        check(f"etcd beyond loopback without TLS is refused: {way}", ended.returncode != 0, ended)
        contains(f"with a remedy: {way}", ended.stderr, "without TLS", "etcds://", "store.etcd.allow_plaintext")
    consul = runs([*server, "--catalog-consul-url", f"http://{FAR}:8500"])
    check("a Consul beyond loopback without TLS is refused", consul.returncode != 0, consul)
    contains("with a remedy", consul.stderr, "catalog.consul.url must be https://")
    token = write_file(os.path.join(scratch(), "checker.token"), "x\n")
    joined = runs([orrery, "checker", "--join", f"http://{FAR}:8421", "--token-file", token, "--name", "x"])
    check("a checker does not send its token in plaintext", joined.returncode != 0, joined)
    contains("and reports a remedy", joined.stderr, "https://", "--allow-plaintext")
    equal("nothing was written", sorted(os.listdir(folder)), [])


def a_move_in_plaintext_is_refused(server):
    cli = Cli(server.orrery, server)
    cli.login(server)
    refused = cli("store", "migrate", "--to", f"etcd://{FAR}:2379")
    check("a migration to such an etcd is refused", refused.status != 0, refused)
    contains("with a remedy", refused.err, "without TLS", "store.etcd.allow_plaintext")


def passwords_of_urls_stay_out(server):
    api, cli = server.api(), Cli(server.orrery, server)
    cli.login(server)
    seen = []
    bodies = [
        ("POST", "/v1/store/migrate", {"to": f"etcd://root:{SECRET}@h:2379"}),
        ("POST", "/v1/store/migrate", {"to": f"etcds://root:pa/{SECRET}@h:2379"}),
        ("POST", "/v1/store/migrate", {"to": f"mysql://root:{SECRET}@h"}),
        ("POST", "/v1/store/migrate", {"to": f"root:{SECRET}@h"}),
        ("POST", "/v1/publishers", {"name": "p", "spec": {"driver": "externaldns", "url": f"https://root:{SECRET}@h/"}}),
        ("POST", "/v1/publishers", {"name": "q", "spec": {"driver": "designate", "keystone": {"url": f"https://root:{SECRET}@h/", "user": "u", "project": "p", "password": "s"}}}),
        ("POST", "/v1/sources", {"name": "s", "spec": {"driver": "prometheus", "url": f"https://root:{SECRET}@h/"}}),
        ("POST", "/v1/instances", {"name": "i", "spec": {"service": "web", "node": "n", "checks": [{"id": "c", "kind": "http", "url": f"http://root:{SECRET}@h/"}]}}),
        ("POST", "/v1/jobs", {"name": "j", "spec": {"tasks": {"a": {"run": {"http": {"url": f"http://root:{SECRET}@h/"}}}}}}),
        ("POST", "/v1/jobs", {"name": "k", "spec": {"with": {"host": "h"}, "tasks": {"a": {"run": {"http": {"url": f"http://root:{SECRET}@${{with.host}}/"}}}}}}),
    ]
    for method, path, body in bodies:
        try:
            answer = api.request(method, path, body)
            check(f"{path} refuses a URL with a password", False, answer)
        except Problem as problem:
            check(f"{path} refuses a URL with a password", 400 <= problem.status < 500, str(problem))
            seen.append(str(problem.document))
    for arguments in (["store", "migrate", "--to", f"etcd://root:{SECRET}@h:2379"], ["--server", f"http://root:{SECRET}@127.0.0.1:1", "whoami"],
                      ["login", "admin", "--server", f"https://root:{SECRET}@127.0.0.1:1", "--password-file", server.password_file],
                      ["config", "show", "--store-url", f"etcds://root:{SECRET}@h:2379"], ["config", "check", "--catalog-consul-url", f"http://root:{SECRET}@127.0.0.1:1"]):
        ended = cli(*arguments)
        seen.append(ended.out + ended.err)
    for arguments in (["checker", "--join", f"https://root:{SECRET}@h:1", "--token-file", server.password_file], ["server", "--store-url", f"etcd://root:{SECRET}@h:1", "--config", "/dev/null"],
                      ["store", "restore", "none", "--store-url", f"etcds://root:{SECRET}@h:1"], ["store", "reset-admin", "--store-url", f"etcd://root:{SECRET}@h:1"]):
        ended = runs([server.orrery, *arguments])
        check(f"orrery {arguments[0]} refuses it", ended.returncode != 0, ended)
        seen.append(ended.stdout + ended.stderr)
    seen += [str(api.get(path)) for path in ("/v1/events?limit=1000", "/v1/store", "/v1/logs?limit=1000", "/v1/jobs", "/v1/publishers")]
    seen += [server.log_text(), server.probe("/metrics")[1], server.probe("/readyz")[1]]
    equal("no answer, event, log line or error has the password", [text for text in seen if SECRET in text], [])
    equal("a refused migration leaves no event", [event for event in api.get("/v1/events?limit=1000")["items"] if event["spec"]["action"] == "migration-started"], [])


def names_nobody_has(server):
    try:
        server.api(None).post("/v1/login", {"user": "MyRealPassw0rd!", "password": "x"})
    except Problem as problem:
        equal("a wrong login is refused", problem.status, 401)
    refused = [event["spec"]["subject"] for event in server.api().get("/v1/events?limit=1000")["items"] if event["spec"]["action"] == "login-refused"]
    check("a user name that does not exist is recorded as a hash", len(refused) == 1 and re.fullmatch(r"User/unknown-[0-9a-f]{12}", refused[0]), refused)


def not_dumpable(orrery):
    nobody, server = pwd.getpwnam("nobody"), Server(orrery, "confined")
    os.chmod(scratch(), 0o711)  # the way to its files
    for path in (server.folder, server.password_file):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    program = os.path.join(scratch("as-nobody"), "orrery")
    shutil.copy(orrery, program)
    for path in (os.path.dirname(program), program):
        os.chmod(path, 0o755)
    as_nobody = ["setpriv", "--reuid", "nobody", "--clear-groups"]
    command = [*as_nobody, program, *server.command()[1:]]
    server.command = lambda: command
    server.start()
    own = f"/proc/{server.process.child.pid}"
    with open(f"{own}/limits") as file:
        equal("the server writes no core file", re.search(r"Max core file size +(\S+) +(\S+)", file.read()).groups(), ("0", "0"))
    with open(f"{own}/status") as file:
        equal("it does not run as root", int(re.search(r"Uid:\s+(\d+)", file.read()).group(1)), nobody.pw_uid)
    equal("its memory belongs to root, not to its user", os.stat(f"{own}/mem").st_uid, 0)
    read = subprocess.run([*as_nobody, "cat", f"{own}/environ"], capture_output=True, text=True)
    check("a process of the same user cannot read its memory", read.returncode != 0, read)
    server.stop()
    with open(os.path.join(TREE, "share", "systemd", "orrery.service")) as file:
        contains("the unit sets it, too", file.read(), "LimitCORE=0")


class Restored:
    """A server's folder, a backup of it, and a store with later writes."""

    def __init__(self, orrery, name):
        self.orrery = orrery
        self.server = Server(orrery, name)
        self.server.start()
        self.store = os.path.join(self.server.folder, "store.db")
        self.cli = Cli(orrery, self.server)
        self.cli.login(self.server)
        self.backup = os.path.join(scratch(), f"{name}.backup")
        self.revoked = self.server.api().post("/v1/tokens", {"name": "ci", "spec": {"role": "operator", "ttl": "30d"}})["once"]["token"]
        self.cli.ok("store", "backup", self.backup)
        self.cli.ok("token", "revoke", "ci")
        self.server.api().put("/v1/nodes/later", {"spec": {"address": "192.0.2.1"}})
        self.server.stop()

    def restore(self, *arguments, **environment):
        return runs([self.orrery, "store", "restore", self.backup, "--config", "/dev/null", "--data-folder", self.server.folder, "--force", *arguments], **environment)

    def start_refused(self):
        ended = runs(self.server.command())
        return ended if ended.returncode != 0 and "a restore of the store" in ended.stderr else None

    def files(self):
        return sorted(name for name in os.listdir(self.server.folder) if name.startswith("store.db") and not name.endswith(".lock"))


def killed_at_each_step(orrery):
    compiler = shutil.which("cc") or shutil.which("clang-19")
    if not compiler:
        log("no C compiler: the restore is not killed at each step")
        return
    source, library = write_file(os.path.join(scratch("kill"), "kill.c"), KILL), os.path.join(scratch("kill"), "kill.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    of = Restored(orrery, "killed")
    kept = scratch("kept")
    shutil.copytree(of.server.folder, kept, dirs_exist_ok=True)
    killed = 0
    for step in range(1, 10):
        shutil.rmtree(of.server.folder)
        shutil.copytree(kept, of.server.folder)
        ended = of.restore("--end-sessions", LD_PRELOAD=library, LAB_KILL_AT=str(step))
        if ended.returncode == 0:
            break
        equal(f"step {step}: it was killed", ended.returncode, -signal.SIGKILL)
        killed += 1
        log(f"step {step} leaves {of.files()}")
        refused = of.start_refused()
        check(f"step {step}: the server refuses to start", refused is not None, of.files())
        contains(f"step {step}: and reports a remedy", refused.stderr, "orrery store restore BACKUP --force", ".restoring")
        again = of.restore("--end-sessions")
        equal(f"step {step}: a second run succeeds", (again.returncode, again.stderr), (0, ""))
        equal(f"step {step}: one store is left", of.files(), ["store.db"])
    check("one step leaves the old store complete, and another leaves no store", killed >= 2, killed)
    of.server.start()
    of.server._token = None  # its session was ended by the restore
    try:
        of.server.api().get("/v1/nodes/later")
        check("the store equals the backup", False)
    except Problem as problem:
        equal("the store equals the backup", problem.status, 404)
    of.server.stop()


def sessions_of_a_backup(orrery):
    of = Restored(orrery, "sessions")
    equal("a restore", of.restore().returncode, 0)
    of.server.start()
    equal("makes a revoked token valid again", of.server.api(of.revoked).get("/v1/whoami")["user"], "admin")
    of.server.stop()
    ended = of.restore("--end-sessions")
    contains("with --end-sessions it reports how many it ended", ended.stdout, "tokens and sessions of the backup were ended")
    of.server.start()
    try:
        of.server.api(of.revoked).get("/v1/whoami")
        check("with --end-sessions it does not", False)
    except Problem as problem:
        equal("with --end-sessions it does not", problem.status, 401)
    check("the earlier session has ended, too", of.cli("whoami").status != 0)
    of.server._token = None  # the lab logs in again
    events = of.server.api().get("/v1/events?limit=1000")["items"]
    check("an event reports it", any(event["spec"]["action"] == "sessions-ended" and event["spec"]["evidence"]["tokens"] >= 2 for event in events), events[:3])
    equal("the Nodes are those of the backup", of.server.api().get("/v1/nodes")["items"], [])
    of.server.stop()


def apt_fails():
    tools, guard = scratch("apt"), os.path.join(scratch("apt"), "policy-rc.d")
    for name, text in {"apt-get": "test -e \"$POLICY_RC_D\" && echo guarded >&2; exit 100", "dpkg-query": "exit 1"}.items():
        write_file(os.path.join(tools, name), f"#!/bin/sh\n{text}\n", 0o755)
    ended = runs(["bash", os.path.join(TREE, "dev"), "build", "release", "none"], PATH=f"{tools}:{os.environ['PATH']}", POLICY_RC_D=guard)
    check("./dev fails if apt fails", ended.returncode != 0 and "guarded" in ended.stderr, ended)
    check("and removes its guard against service starts", not os.path.exists(guard))


def main(given):
    own_network(__file__)  # a connection attempt would find no route
    plaintext_is_refused(given.orrery)
    server = Server(given.orrery, "server", arguments=["--log-level", "debug"])
    server.start()
    a_move_in_plaintext_is_refused(server)
    passwords_of_urls_stay_out(server)
    names_nobody_has(server)
    server.stop()
    not_dumpable(given.orrery)
    killed_at_each_step(given.orrery)
    sessions_of_a_backup(given.orrery)
    apt_fails()


if __name__ == "__main__":
    run(main)
