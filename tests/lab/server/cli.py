#!/usr/bin/python3
"""The command line as its users run it, against a real server: every command, every form of output, exit codes, and errors that are
sentences with a remedy and never JSON. And everything in examples/ applies."""
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Cli, Failed, Server, check, contains, equal, log, run, scratch, wait_until, write_file  # noqa: E402

# docs/cli.md
OK, OTHER, USAGE, NOT_FOUND, DENIED, CONFLICT, UNAVAILABLE, INVALID, DIFFERENCES = 0, 1, 2, 3, 4, 5, 6, 7, 10

SITE = """\
kind: Node
name: n1
labels: {role: web, rack: a1}
spec:
  address: 192.0.2.11
  ssh: {user: deploy, key: site-key}
---
kind: Node
name: n2
labels: {role: db, rack: a1}
spec: {address: 192.0.2.12}
---
kind: Secret
name: site-key
spec:
  description: how we log in
  values: {private_key: not-a-real-key}
"""


def refused(cli, what, status, *arguments, **named):
    """Expects a failure: this exit code, a sentence on standard error, no JSON, nothing on standard output."""
    ran = cli(*arguments, **named)
    if ran.status != status:
        raise Failed(f"{what}: expected exit code {status}\n{ran}")
    if not ran.err.strip() or not ran.err.startswith("error: "):
        raise Failed(f"{what}: no sentence on standard error\n{ran}")
    if '{"' in ran.err or '"code"' in ran.err or "terminate called" in ran.err:
        raise Failed(f"{what}: the error is not a readable sentence\n{ran}")
    log(f"ok    {what}: {status}, {ran.err.strip().splitlines()[0][:150]}")
    return ran.err


def logging_in(cli, server):
    refused(cli, "without a login", DENIED, "get", "nodes")
    wrong = write_file(os.path.join(scratch(), "wrong"), "not-the-password\n")
    refused(cli, "a wrong password", DENIED, "login", "admin", "--password-file", wrong)
    refused(cli, "no such password file", INVALID, "login", "admin", "--password-file", "/nonexistent")
    refused(cli, "a server that does not answer", UNAVAILABLE, "login", "admin", "--password-file", wrong, ORRERY_SERVER="http://127.0.0.1:9")
    refused(cli, "an invalid server URL", USAGE, "get", "nodes", "--server", "nonsense:")
    cli.login(server)
    contains("whoami", cli.ok("whoami"), "admin", server.url)
    equal("whoami -o json", json.loads(cli.ok("whoami", "-o", "json"))["user"], "admin")
    contains("a password from standard input", cli.ok("login", "admin", "--password-file", "-", stdin=server.admin_password + "\n") + "admin", "admin")


def first_login(orrery):
    """Without a password file: one made at the first start, shown once, changed at the first login."""
    server = Server(orrery, "fresh")
    command = server.command()
    at = command.index("--identity-admin-password-file")
    server.command = lambda: command[:at] + command[at + 2:]
    server.start()
    path = os.path.join(server.folder, "first-login")
    check("the file of the first login is readable only by its owner", os.path.exists(path) and os.stat(path).st_mode & 0o077 == 0, path)
    with open(path) as file:
        password = re.search(r"password (\S+)", file.read()).group(1)
    check("and not in the log", password not in server.log_text())
    home = scratch("home-fresh")
    cli = Cli(orrery, server, HOME=home, XDG_CONFIG_HOME=home)
    given = write_file(os.path.join(scratch(), "one-time"), password + "\n")
    chosen = write_file(os.path.join(scratch(), "chosen"), "a-password-of-my-own\n")
    refused(cli, "a one-time password alone", DENIED, "login", "admin", "--password-file", given)
    cli.ok("login", "admin", "--password-file", given, "--new-password-file", chosen)
    contains("with a new one it logs in", cli.ok("whoami"), "admin")
    wait_until("the file of the first login is removed", lambda: not os.path.exists(path), 5)
    refused(cli, "the one-time password is used up", DENIED, "login", "admin", "--password-file", given)
    server.stop()
    server.start()
    contains("the session outlives a restart", cli.ok("whoami"), "admin")
    check("and no new first login appears", not os.path.exists(path))
    cli.ok("logout")
    refused(cli, "after logout", DENIED, "get", "nodes")
    server.stop()


def applying(cli):
    folder = scratch("site")
    site = write_file(os.path.join(folder, "site.yaml"), SITE)
    ran = cli("diff", "-f", site)
    equal("diff of a missing resource: 10", ran.status, DIFFERENCES)
    contains("reports the new resource", ran.out, "n1", "site-key")
    out = cli.ok("apply", "-f", site, "--dry-run")
    contains("apply --dry-run", out, "n1")
    equal("changes nothing", cli.ok("get", "nodes", "-o", "name"), "")
    out = cli.ok("apply", "-f", site, "--reason", "the lab needs it")
    for line in ("node/n1 created", "node/n2 created", "secret/site-key created"):
        contains(f"apply: {line}", out, line)
    out = cli.ok("apply", "-f", site)
    check("applied again, nothing changes", out.count("unchanged") == 3 and "updated" not in out, out)
    equal("diff is empty: 0", cli("diff", "-f", site).status, OK)
    changed = SITE.replace("address: 192.0.2.12", "address: 192.0.2.99")
    ran = cli("diff", "-f", "-", stdin=changed)
    equal("diff of a change: 10", ran.status, DIFFERENCES)
    contains("shows before and after", ran.out, "spec.address", "192.0.2.12", "192.0.2.99")
    contains("apply from standard input prints what changed", cli.ok("apply", "-f", "-", stdin=changed), "node/n2 updated", "192.0.2.99")
    below = os.path.join(folder, "more", "deep")
    os.makedirs(below)
    write_file(os.path.join(below, "n3.json"), json.dumps({"kind": "Node", "name": "n3", "labels": {"role": "web"}, "spec": {"address": "192.0.2.13"}}))
    write_file(os.path.join(below, "readme.txt"), "not a resource")
    out = cli.ok("apply", "-f", folder)
    contains("apply of a folder is recursive and accepts JSON", out, "node/n3 created")
    yaml = cli.ok("get", "node", "n3", "-o", "yaml")
    equal("the output of get -o yaml can be applied", cli("apply", "-f", "-", stdin=yaml).status, OK)
    text = cli.ok("get", "node", "n3", "-o", "json")
    equal("and that of get -o json", cli("apply", "-f", "-", stdin=text).status, OK)
    equal("and a list of them", cli("apply", "-f", "-", stdin=cli.ok("get", "nodes", "-o", "yaml")).status, OK)

    err = refused(cli, "a misspelt field", INVALID, "apply", "-f", "-", stdin="kind: Node\nname: bad\nspec: {adress: 192.0.2.1, ssh: {port: 99999}}\n")
    contains("all errors at once, with their paths and the nearest name", err, "spec.adress", "address", "spec.ssh.port", "65535")
    err = refused(cli, "a misspelt kind", INVALID, "apply", "-f", "-", stdin="kind: Nod\nname: bad\n")
    contains("with the nearest", err, "did you mean node?")
    refused(cli, "broken YAML", INVALID, "apply", "-f", "-", stdin="kind: Node\n name: [\n")
    refused(cli, "a missing file", INVALID, "apply", "-f", "/nonexistent.yaml")
    err = refused(cli, "a reference to a missing resource", INVALID, "apply", "-f", "-", stdin="kind: Node\nname: bad\nspec: {address: 192.0.2.1, ssh: {key: nobody}}\n")
    contains("names it", err, "nobody")
    ran = cli("apply", "-f", "-", stdin="kind: Node\nname: n9\nspec: {address: 192.0.2.9}\n---\nkind: Node\nname: bad\nspec: {}\n")
    check("one bad document of two: the good one is created and the exit code shows the error", ran.status == INVALID and "node/n9 created" in ran.out, str(ran))


def looking(cli):
    table = cli.ok("get", "nodes")
    lines = table.splitlines()
    check("a table with a head", lines[0].split()[:2] == ["NAME", "ADDRESS"], table)
    check("without colour where there is no terminal", "\x1b" not in table)
    equal("a row each", len(lines) - 1, 4)
    contains("wide has more", cli.ok("get", "nodes", "-o", "wide").splitlines()[0], "PORT")
    equal("names for scripts", cli.ok("get", "nodes", "-o", "name").split(), ["node/n1", "node/n2", "node/n3", "node/n9"])
    items = json.loads(cli.ok("get", "nodes", "-o", "json"))["items"]
    equal("json", [item["name"] for item in items], ["n1", "n2", "n3", "n9"])
    contains("yaml", cli.ok("get", "node", "n1", "-o", "yaml"), "kind: Node", "name: n1", "address: 192.0.2.11")
    equal("one as json is an object", json.loads(cli.ok("get", "node/n1", "-o", "json"))["spec"]["address"], "192.0.2.11")
    equal("by label", cli.ok("get", "nodes", "-l", "role=web", "-o", "name").split(), ["node/n1", "node/n3"])
    equal("by label, not", cli.ok("get", "nodes", "-l", "role!=web", "-o", "name").split(), ["node/n2", "node/n9"])
    equal("sorted", cli.ok("get", "nodes", "--sort", "-spec.address", "-o", "name").split()[0], "node/n9")
    equal("limited", len(cli.ok("get", "nodes", "--limit", "2", "-o", "name").split()), 2)
    for name in ("node", "nodes", "Node", "no"):
        equal(f"a kind's name may be {name}", cli.ok("get", name, "n1", "-o", "name").strip(), "node/n1")
    secret = cli.ok("get", "secret", "site-key", "-o", "yaml")
    check("the value of a Secret is not returned", "not-a-real-key" not in secret and "private_key" in secret, secret)
    refused(cli, "a missing resource", NOT_FOUND, "get", "node", "nobody")
    err = refused(cli, "a kind that does not exist", NOT_FOUND, "get", "noodes")
    contains("with the nearest", err, "nodes")
    refused(cli, "a bad selector", INVALID, "get", "nodes", "-l", "a=b=c,,")
    text = cli.ok("describe", "node", "n1")
    contains("describe", text, "Node n1", "192.0.2.11", "Events", "the lab needs it")
    refused(cli, "describe of a missing resource", NOT_FOUND, "describe", "node", "nobody")
    contains("kinds", cli.ok("kinds"), "Node", "Secret", "User", "Token", "Event")
    contains("explain", cli.ok("explain", "node"), "spec.address", "required", "22")
    contains("explain a part", cli.ok("explain", "node.spec.ssh"), "spec.ssh.port")
    contains("events of a node", cli.ok("events", "--subject", "node/n1"), "created", "admin", "the lab needs it")
    events = json.loads(cli.ok("events", "--since", "1h", "-o", "json"))["items"]
    check(f"events as json ({len(events)})", len(events) > 5)
    context = events[-1]["spec"]["context"]
    check("events of one request", all(e["spec"]["context"] == context for e in json.loads(cli.ok("events", "--context", context, "-o", "json"))["items"]))
    refused(cli, "an invalid time", USAGE, "events", "--since", "yesterday")
    contains("store status", cli.ok("store", "status"), "sqlite")


def watching(cli, orrery):
    process = subprocess.Popen([orrery, "watch", "nodes", "-o", "json", "--count", "3"], env=cli.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(0.7)
    cli.ok("apply", "-f", "-", stdin="kind: Node\nname: seen\nspec: {address: 192.0.2.50}\n")
    cli.ok("apply", "-f", "-", stdin="kind: Node\nname: seen\nspec: {address: 192.0.2.51}\n")
    cli.ok("delete", "node", "seen")
    out, err = process.communicate(timeout=15)
    changes = [json.loads(line) for line in out.splitlines()]
    equal("watch shows creation, change and removal", [c["event"] for c in changes if c["event"] != "listed"], ["created", "updated", "removed"])
    equal("and ends after --count", process.returncode, 0)
    process = subprocess.Popen([orrery, "watch", "nodes", "-o", "name"], env=cli.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(0.5)
    process.send_signal(2)
    process.communicate(timeout=10)
    equal("Ctrl-C ends it with 130", process.returncode, 130)


def watching_through_a_restart(cli, orrery, server):
    process = subprocess.Popen([orrery, "watch", "nodes", "-o", "name", "--count", "3"], env=cli.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(0.7)
    cli.ok("apply", "-f", "-", stdin="kind: Node\nname: r1\nspec: {address: 192.0.2.50}\n")
    server.kill()
    server.start()
    cli.ok("apply", "-f", "-", stdin="kind: Node\nname: r2\nspec: {address: 192.0.2.50}\n")
    time.sleep(2)
    cli.ok("delete", "node", "r1")
    try:
        out, err = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failed(f"the watch did not continue after the server was killed and started: {process.communicate()}") from None
    equal("a watch survives a killed server without losing a change", out.splitlines(), ["node/r1 created", "node/r2 created", "node/r1 removed"])


def deleting(cli):
    err = refused(cli, "deleting a referenced resource", CONFLICT, "delete", "secret", "site-key")
    contains("names the referrer", err, "n1")
    contains("--dry-run", cli.ok("delete", "node", "n9", "--dry-run"), "n9")
    equal("changes nothing", cli("get", "node", "n9").status, OK)
    contains("delete", cli.ok("delete", "node", "n9", "--reason", "sold"), "removed")
    refused(cli, "deleting it again", NOT_FOUND, "delete", "node", "n9")
    contains("the reason is kept", cli.ok("events", "--subject", "node/n9"), "sold")
    cli.ok("delete", "-f", scratch("site"))
    equal("delete of a folder, referring resources first", cli.ok("get", "nodes", "-o", "name") + cli.ok("get", "secrets", "-o", "name"), "")


def users_and_tokens(cli, server, orrery):
    password = write_file(os.path.join(scratch(), "alice"), "alices-own-password\n")
    weak = write_file(os.path.join(scratch(), "weak"), "short\n")
    refused(cli, "a weak password", INVALID, "user", "create", "alice", "--role", "viewer", "--password-file", weak)
    cli.ok("user", "create", "alice", "--role", "viewer", "--password-file", password, "--full-name", "Alice Arden")
    contains("user list", cli.ok("user", "list"), "alice", "viewer", "admin")
    home = scratch("home-alice")
    alice = Cli(orrery, server, HOME=home, XDG_CONFIG_HOME=home)
    alice.ok("login", "alice", "--password-file", password)
    refused(alice, "a viewer may not write", DENIED, "apply", "-f", "-", stdin="kind: Node\nname: x\nspec: {address: 192.0.2.1}\n")
    refused(alice, "nor see users", DENIED, "get", "users")
    new = write_file(os.path.join(scratch(), "alice2"), "another-password-of-hers\n")
    alice.ok("user", "password", "--password-file", new, "--current-password-file", password)
    refused(alice, "the old password is invalid", DENIED, "login", "alice", "--password-file", password)
    alice.ok("login", "alice", "--password-file", new)
    cli.ok("user", "disable", "alice", "--reason", "on leave")
    refused(alice, "a disabled user", DENIED, "get", "nodes")
    cli.ok("user", "enable", "alice")
    alice.ok("login", "alice", "--password-file", new)
    err = refused(cli, "the last admin stays", CONFLICT, "user", "delete", "admin")
    contains("with a reason", err, "last")
    token = cli.ok("token", "create", "inventory", "--role", "viewer", "--kind", "node", "--ttl", "30d", "--description", "the lab")
    check("token create prints the token only", re.fullmatch(r"orr_\S+\n", token) is not None, repr(token[:8]))
    file = write_file(os.path.join(scratch(), "token"), token)
    home = scratch("home-robot")
    robot = Cli(orrery, server, HOME=home, XDG_CONFIG_HOME=home, ORRERY_TOKEN_FILE=file)
    equal("a token from a file works", robot("get", "nodes").status, OK)
    refused(robot, "within its kinds", DENIED, "get", "secrets")
    refused(robot, "and its role", DENIED, "delete", "node", "x")
    contains("token list", cli.ok("token", "list"), "inventory", "viewer")
    check("does not show it", token.strip() not in cli.ok("token", "list", "-o", "json"))
    cli.ok("token", "revoke", "inventory")
    refused(robot, "a revoked token", DENIED, "get", "nodes")
    cli.ok("user", "delete", "alice")
    refused(alice, "a deleted user's session", DENIED, "get", "nodes")


def backing_up(cli, server, orrery):
    cli.ok("apply", "-f", "-", stdin=SITE)
    backup = os.path.join(scratch(), "backup.db")
    cli.ok("store", "backup", backup)
    check("a backup is readable only by its owner", os.stat(backup).st_mode & 0o077 == 0, oct(os.stat(backup).st_mode))
    refused(cli, "an existing file is not overwritten", CONFLICT, "store", "backup", backup)
    contains("it verifies", cli.ok("store", "verify", backup), "revision")
    cli.ok("delete", "node", "n1")
    kept = set(cli.ok("get", "nodes", "-o", "name").split())
    check("n1 does not exist", "node/n1" not in kept)
    store = os.path.join(server.folder, "store.db")
    ran = cli("store", "restore", backup, "--data-folder", server.folder, "--config", "/dev/null")
    check("restore over a running server is refused", ran.status != 0 and "node/n1" not in cli.ok("get", "nodes", "-o", "name"), str(ran))
    log("      " + ran.err.strip().replace("\n", " / "))
    server.stop()
    ran = cli("store", "restore", backup, "--data-folder", server.folder, "--config", "/dev/null")
    if ran.status != 0:  # an existing store is not overwritten without --force
        check("restore over a store that is not empty requires --force", "force" in ran.err, str(ran))
        cli.ok("store", "restore", backup, "--data-folder", server.folder, "--config", "/dev/null", "--force")
    server.start()
    contains("the backup is in force", cli.ok("get", "nodes", "-o", "name"), "node/n1")
    cli.ok("apply", "-f", "-", stdin="kind: Node\nname: after\nspec: {address: 192.0.2.60}\n")
    server.stop()
    contains("the store verifies", cli.ok("store", "verify", store), "revision")
    damaged = os.path.join(scratch(), "damaged.db")
    with open(backup, "rb") as file:
        data = bytearray(file.read())
    for at in range(len(data) // 2, len(data) // 2 + 300):
        data[at] ^= 0x55
    write_file(damaged, bytes(data))
    before = bytes(data)
    refused(cli, "a damaged backup", OTHER, "store", "verify", damaged)
    refused(cli, "is not restored", OTHER, "store", "restore", damaged, "--data-folder", scratch("other"), "--config", "/dev/null")
    with open(damaged, "rb") as file:
        equal("and is not changed", file.read() == before, True)
    ran = cli("store", "verify", "/etc/passwd")
    check("a file that is not a store", ran.status != 0 and ran.err.startswith("error: "), str(ran))
    log("      " + ran.err.strip().replace("\n", " / "))
    server.start()


def helps_with_every_command(cli):
    """`orrery --help` is made from the table of commands, as the manual page is."""
    commands = [re.sub(r" +(\\\[|\[|[A-Z]).*", "", line) for line in re.findall(r"^\.SS orrery (.*)$", cli.ok("man").replace("\\-", "-"), re.M)]
    check(f"the manual has {len(commands)} commands", len(commands) > 50 and "job submit" in commands and "gslb why" in commands, commands)
    help_text = cli.ok("--help")
    equal("bare orrery and orrery help print the same", [cli("help").out == help_text, help_text in cli().out + cli().err], [True, True])
    lines = {}
    for line in help_text.splitlines():
        if line.startswith("  ") and len(line.split()) > 1:
            lines[line.split()[0]] = lines.get(line.split()[0], "") + line
    missing = [command for command in [*commands, "server", "checker"] if not all(word in lines.get(command.split()[0], "").replace("|", " ").split() for word in command.split())]
    equal("orrery --help lists every command", missing, [])


def typing_errors(cli):
    err = refused(cli, "a misspelt command", USAGE, "aply", "-f", "x")
    contains("with the nearest", err, "apply")
    refused(cli, "no command below", USAGE, "user", "nonsense")
    err = refused(cli, "a misspelt option", USAGE, "get", "nodes", "--outptu", "json")
    contains("with the nearest", err, "--output")
    refused(cli, "an unknown output format", USAGE, "get", "nodes", "-o", "xml")
    refused(cli, "an argument too few", USAGE, "get")
    helps_with_every_command(cli)
    contains("help of a command", cli.ok("apply", "--help"), "--dry-run", "orrery apply -f site/")
    check("version with its commit", re.search(r"\d+\.\d+\.\d+.*[0-9a-f]{7}", cli.ok("--version")) is not None, cli.ok("--version"))
    ran = cli("server", "--data-foldr", "/tmp/x")
    check("a misspelt setting of the server", ran.status == INVALID or ran.status == USAGE, str(ran))
    contains("with the nearest", ran.err, "--data-folder")


def completing(cli):
    for shell in ("bash", "zsh", "fish"):
        script = cli.ok("completion", shell)
        contains(f"completion for {shell}", script, "orrery")
        found = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True) if shell == "bash" else None
        if found:
            equal("it is a script", found.returncode, 0)
    contains("completion of the names of a kind", cli.ok("__complete", "get", ""), "nodes")
    contains("names", cli.ok("__complete", "get", "node", ""), "n1")
    config = write_file(os.path.join(scratch(), "orrery.yaml"), "server:\n  lissten: 127.0.0.1:1\nlog: {level: loud}\n")
    err = refused(cli, "config check of a wrong file", INVALID, "config", "check", "-f", config)
    contains("all errors at once, with lines", err, "listen", "loud", "orrery.yaml:2", "orrery.yaml:3")
    contains("config show", cli.ok("config", "show", "-f", "/dev/null"), "server.listen", "127.0.0.1:8421")
    default = write_file(os.path.join(scratch(), "default.yaml"), cli.ok("config", "default"))
    equal("config default gives a valid file", cli("config", "check", "-f", default).status, OK)


def examples(cli, folder):
    files = sorted(name for name in os.listdir(folder) if name.endswith((".yaml", ".yml", ".json")))
    check(f"examples/ has {len(files)} files", bool(files))
    # What the example's machines log in with.
    cli.ok("apply", "-f", "-", stdin="{kind: Secret, name: site-key, spec: {values: {private_key: none}}}")
    for name in files:
        path = os.path.join(folder, name)
        if name == "jiocloud.yaml":  # its job would log in to machines that are not there; lab.jiocloud runs it on some
            cli.ok("apply", "-f", os.path.join(folder, "jiocloud-nodes.yaml"))
            out = cli.ok("apply", "-f", path, "--dry-run")
            check(f"examples/{name} would apply, its job too", "job/jiocloud" in out, out)
            cli.ok("delete", "-f", os.path.join(folder, "jiocloud-nodes.yaml"))
            continue
        out = cli.ok("apply", "-f", path, "--reason", f"examples/{name}")
        check(f"examples/{name} applies", "created" in out or "updated" in out, out)
        equal(f"examples/{name} then equals the stored resources", cli("diff", "-f", path).status, OK)
        if name == "gates.yaml":
            cli.ok("job", "cancel", "gates", "--reason", "it was shown")
            wait_until("the job is cancelled", lambda: "cancelled" in cli.ok("get", "job", "gates"), 10)
        cli.ok("delete", "-f", path)
    cli.ok("delete", "secret", "site-key")


def main(given):
    server = Server(given.orrery)
    server.start()
    cli = Cli(given.orrery, server)
    logging_in(cli, server)
    applying(cli)
    looking(cli)
    watching(cli, given.orrery)
    deleting(cli)
    users_and_tokens(cli, server, given.orrery)
    typing_errors(cli)
    watching_through_a_restart(cli, given.orrery, server)
    examples(cli, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "examples"))
    backing_up(cli, server, given.orrery)
    completing(cli)
    first_login(given.orrery)
    equal("the log has no errors", server.error_lines(), [])
    server.stop()
    refused(cli, "a stopped server", UNAVAILABLE, "get", "nodes")


if __name__ == "__main__":
    run(main)
