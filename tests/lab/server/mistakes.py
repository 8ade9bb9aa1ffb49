#!/usr/bin/python3
"""Mistakes that new users make, with the real program: each error names the object and the remedy, once."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Cli, Failed, Server, check, contains, equal, log, run, scratch, tls_context, wait_until, write_file  # noqa: E402

OTHER, USAGE, NOT_FOUND, DENIED, CONFLICT, UNAVAILABLE, INVALID = 1, 2, 3, 4, 5, 6, 7


class Mistakes:
    def __init__(self, cli):
        self.cli = cli

    def __call__(self, what, status, arguments, *parts, without=(), **named):
        """The command ends with this status; its message has all parts and none of `without`."""
        ran = self.cli(*arguments, **named)
        if ran.status != status or any(part not in ran.err for part in parts) or any(part in ran.err for part in without):
            raise Failed(f"{what}: expected {status}, {parts}, without {without}\n{ran}")
        log(f"ok    {what}")


def documents(mistake):
    mistake("a number as a name", INVALID, ["apply", "-f", "-"], "is a Node whose name is not a string", 'write it in quotes: name: "123"', stdin="kind: Node\nname: 123\nspec: {}\n")
    mistake("a document of Kubernetes", INVALID, ["apply", "-f", "-"], 'it has "metadata", as in Kubernetes', "omit apiVersion",
            stdin="apiVersion: v1\nkind: Node\nmetadata: {name: x}\nspec: {address: 192.0.2.1}\n")
    mistake("one wrong field is reported once", INVALID, ["apply", "-f", "-"], "spec.ssh.port must be between 1 and 65535, got 0", "orrery explain node", without=["\n  "],
            stdin="kind: Node\nname: a\nspec: {address: 192.0.2.1, ssh: {port: 0}}\n")
    nodes = "\n---\n".join(f"{{kind: Node, name: n{i}, labels: {{rack: a1}}, spec: {{address: 192.0.2.{i}, ssh: {{key: k}}}}}}" for i in range(1, 6))
    mistake.cli.ok("apply", "-f", "-", stdin="{kind: Secret, name: k, spec: {values: {private_key: x}}}\n---\n" + nodes)
    mistake("many referrers are listed once", CONFLICT, ["delete", "secret", "k"], "is referred to by 5 resources\n  Node/n1: spec.ssh.key\n", "  Node/n5: spec.ssh.key\n",
            without=["by Node/n1"])
    mistake.cli.ok("apply", "-f", "-", stdin="{kind: Zone, name: z1, spec: {origin: example.org, nameservers: [ns1.example.org]}}")
    mistake("a zone with the origin of another", INVALID, ["apply", "-f", "-"], "spec.origin is already the origin of Zone z1",
            stdin="{kind: Zone, name: z2, spec: {origin: example.org, nameservers: [ns1.example.org]}}")
    mistake.cli.ok("apply", "-f", "-", stdin="{kind: Service, name: web, spec: {port: 80}}\n---\n{kind: Instance, name: web-1, spec: {service: web, node: n1}}")
    wait_until("get instances shows the address of the node and the port of the service", lambda: " 192.0.2.1 " in mistake.cli.ok("get", "instances") and " 80 " in mistake.cli.ok("get", "instances"), 10)


def command_line(mistake):
    for word in ("rollout", "top"):
        mistake(f"{word} suggests no other command", USAGE, [word], f'there is no command "{word}"', "--help", without=["did you mean"])
    mistake("pods suggests no other kind", NOT_FOUND, ["get", "pods"], 'there is no kind "pods"', without=["did you mean"])
    mistake("an option of one letter suggests no other one", USAGE, ["describe", "-w"], "orrery describe has no option -w", without=["did you mean"])
    mistake("delete -l without a kind", USAGE, ["delete", "-l", "a=b"], "orrery delete nodes -l rack=12")
    for arguments in (["get", "nodes", "--limit", "abc"], ["events", "--since", "yesterday"], ["get", "nodes", "-s", "ftp://x"], ["get", "nodes", "-s", "127.0.0.1:8421"],
                      ["get", "nodes", "-o", "xml"], ["user", "create", "x", "--role", "boss"]):
        mistake(f"a wrong value is a usage error: {' '.join(arguments)}", USAGE, arguments, arguments[-1])


def jobs(mistake):
    def job(tasks):
        return f"kind: Job\nname: gates\nspec:\n  tasks:\n{tasks}"
    submit = ["job", "submit", "-f", "-"]
    mistake("a program that the server does not allow", INVALID, submit, "setting jobs.programs", stdin=job("    - {name: a, run: {local: {program: nope}}}\n"))
    mistake("mistakes of form and of the graph are reported together", INVALID, submit, "the job has 2 errors", "rnu: task a: is not known; did you mean run?", "task b: there is no task bsae",
            stdin=job("    - {name: a, rnu: {}}\n    - {name: b, after: bsae}\n"))
    mistake("a value that no task publishes", INVALID, submit, "${task.a.values.x}: task a publishes no values",
            stdin=job("    - {name: a, run: {local: {program: hello}}}\n    - {name: b, after: a, run: {local: {program: hello, arguments: ['${task.a.values.x}']}}}\n"))
    digest = mistake.cli.ok(*submit, stdin=job("    - {name: go, approve: true}\n    - {name: next, after: go, run: {local: {program: hello, arguments: [hi, there]}}}\n")).split("plan ")[1].strip()
    mistake("an approval without the digest", USAGE, ["job", "approve", "gates", "go"], "--digest is missing", "orrery job show gates")
    mistake("the output of a task that has not started", NOT_FOUND, ["job", "logs", "gates", "next"], "next has never started", "orrery job why gates next")
    contains("describe shows nested fields line by line", mistake.cli.ok("describe", "job", "gates"), "        local:\n          program: hello\n          arguments:\n            - hi\n")
    equal("tasks of a job are completed", mistake.cli.ok("__complete", "job", "why", "gates", "").split(), ["go", "next"])
    equal("labels after -l", mistake.cli.ok("__complete", "get", "nodes", "-l", "ra").split(), ["rack=a1"])
    equal("and names after KIND/", mistake.cli.ok("__complete", "describe", "job/").split(), ["job/gates"])
    mistake.cli.ok("job", "approve", "gates", "go", "--digest", digest)
    mistake.cli.ok("job", "wait", "gates")
    mistake.cli.ok(*submit, stdin="{kind: Job, name: held, spec: {tasks: [{name: a, run: {local: {program: hello}}}], done: {service: web, state: registered, hold: 1h}}}")
    wait_until("a job whose done must hold names the hold", lambda: "1 of web registered for 1h: met, but not for 1h yet" in mistake.cli("job", "wait", "held", "--now").out, 10)
    mistake.cli.ok("job", "cancel", "held")
    mistake("cancelling a job that has ended", CONFLICT, ["job", "cancel", "gates"], "job gates has ended: its state is succeeded", "orrery job undo gates")


def tokens(mistake):
    file = write_file(os.path.join(scratch(), "token"), mistake.cli.ok("token", "create", "low", "--role", "viewer"))
    os.chmod(file, 0o644)
    mistake("a token of a lower role", DENIED, ["delete", "node", "n1", "--token-file", file], "is readable by every user: chmod 600", "token low of admin has the role viewer",
            without=["admin is viewer"])
    short = mistake.cli.ok("token", "create", "short", "--ttl", "1s").strip()
    time.sleep(1.2)
    mistake("an expired token", DENIED, ["get", "nodes"], "the token has expired", ORRERY_TOKEN=short)
    mistake("an unknown or revoked token", DENIED, ["get", "nodes"], "is unknown or was revoked", ORRERY_TOKEN=short[:-4] + "aaaa")


def tls(orrery):
    folder = scratch("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{folder}/key", "-out", f"{folder}/certificate", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    server = Server(orrery, "tls", arguments=["--server-tls-certificate", f"{folder}/certificate", "--server-tls-key", f"{folder}/key"])
    server.ssl = tls_context(f"{folder}/certificate")
    server.start()
    mistake = Mistakes(Cli(orrery))
    mistake("http to a server with TLS", UNAVAILABLE, ["get", "nodes", "-s", f"http://127.0.0.1:{server.port}"], f"use https://127.0.0.1:{server.port}")
    mistake("https without the CA of the server", DENIED, ["get", "nodes", "-s", f"https://127.0.0.1:{server.port}"], "is not trusted", "--ca FILE")
    server.stop()


def files(mistake, orrery):
    backup = os.path.join(scratch(), "backup.db")
    mistake.cli.ok("store", "backup", backup)
    os.truncate(backup, os.path.getsize(backup) // 2)
    mistake("a damaged backup is not answered with the advice to restore a backup only", OTHER, ["store", "verify", backup], "is damaged", "of a backup, use another one")
    foreign = scratch("foreign")
    os.chmod(scratch(), 0o755)
    if os.geteuid() == 0:
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", orrery, "server", "--config", "/dev/null", "--data-folder", foreign], capture_output=True, text=True, timeout=20)
        check("a data folder of another user", done.returncode != 0 and "does it belong to another user?" in done.stdout + done.stderr, done)


def main(given):
    server = Server(given.orrery, arguments=["--jobs-programs", "hello=/bin/echo"])
    server.start()
    mistake = Mistakes(Cli(given.orrery, server).login(server))
    documents(mistake)
    command_line(mistake)
    jobs(mistake)
    tokens(mistake)
    files(mistake, given.orrery)
    equal("it stops on SIGTERM", server.stop(), 0)
    tls(given.orrery)


if __name__ == "__main__":
    run(main)
