#!/usr/bin/python3 -B
"""The first minutes at a terminal, with the real program on a pty against the real server: a one-time password is exchanged at the login; a first
failed start locks no user out; a lost password is reset; an emptied store is refused; several servers have a session each."""
import json
import os
import re
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Cli, Failed, Problem, Process, Server, at_terminal, check, clean_environment, contains, equal, run, scratch, write_file  # noqa: E402

TREE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))


def without_password_file(server):
    """The server as the package starts it: it makes the first password itself."""
    command = server.command()
    at = command.index("--identity-admin-password-file")
    server.command = lambda: command[:at] + command[at + 2:]
    return server


def one_time_password(server):
    with open(os.path.join(server.folder, "first-login")) as file:
        return re.search(r"password (\S+)", file.read()).group(1)


def environment_of(name, server):
    home = scratch(name)
    return clean_environment(HOME=home, XDG_CONFIG_HOME=home, ORRERY_SERVER=server.url)


def first_login(orrery):
    server = without_password_file(Server(orrery, "fresh"))
    server.start()
    own = environment_of("home-admin", server)
    status, screen = at_terminal([orrery, "login", "admin"], own, [("Password of admin", one_time_password(server)), ("New password", "a-password-of-my-own"),
                                                                 ("Repeat the new password", "a-password-of-my-own")])
    equal("a login with the one-time password asks for a new one and succeeds", status, 0)
    contains("and reports it", screen, "this is a one-time password", "logged in to")
    check("no password is echoed", "a-password-of-my-own" not in screen)
    check("the file of the first login is removed", not os.path.exists(os.path.join(server.folder, "first-login")))
    cli = Cli(orrery, server, HOME=own["HOME"], XDG_CONFIG_HOME=own["XDG_CONFIG_HOME"])
    given = write_file(os.path.join(scratch(), "for-alice"), "alice-begins-with-this\n")
    cli.ok("user", "create", "alice", "--role", "operator", "--one-time", "--password-file", given)
    of_alice = environment_of("home-alice", server)
    status, screen = at_terminal([orrery, "login", "alice"], of_alice, [("Password of alice", "alice-begins-with-this"), ("New password", "alice-goes-on-with-this"),
                                                                      ("Repeat the new password", "alice-goes-on-with-this")])
    equal("the same after user create --one-time", (status, "logged in to" in screen), (0, True))
    status, screen = at_terminal([orrery, "login", "alice"], of_alice, [("Password of alice", "alice-goes-on-with-this")])
    equal("the next login asks for nothing more", status, 0)
    return server, cli


def recorded(name):
    """A constant of src/cli/recorded_answers.h: what the client's unit tests take for the responses of the server."""
    with open(os.path.join(TREE, "src", "cli", "recorded_answers.h")) as file:
        return json.loads(re.search(name + r' = R"json\((.*?)\)json"', file.read(), re.S).group(1))


def answers_of_the_fake(server, cli):
    """Errors that the fake sends are those of the server, with the same texts."""
    given = write_file(os.path.join(scratch(), "for-bob"), "bob-begins-with-this\n")
    cli.ok("user", "create", "bob", "--one-time", "--password-file", given)
    for name, exchange in recorded("recorded_answers").items():
        request = exchange["request"]
        body = json.loads(json.dumps(request.get("body")).replace("USER", "bob").replace("one-time", "bob-begins-with-this"))
        try:
            server.api(token=request.get("token")).request(request["method"], request["path"], body)
            raise Failed(f"{name} was not refused")
        except Problem as problem:
            seen = {key: value for key, value in problem.document.items() if key != "request_id"}
        wanted = json.loads(json.dumps(exchange["answer"]).replace("{path}", request["path"]))
        equal(f"the fake answers as the server does: {name}", seen, wanted)


def lacks(wanted, seen, path):
    """The first member of `wanted` that `seen` does not have with the same JSON type; None if it has all. Items of lists are compared by their first member."""
    if type(wanted) is not type(seen):
        return f"{path}: {json.dumps(seen)[:80]}"
    if isinstance(wanted, dict):
        return next(filter(None, (f"{path}.{key}" if key not in seen else lacks(value, seen[key], f"{path}.{key}") for key, value in wanted.items())), None)
    for item in wanted if isinstance(wanted, list) else ():
        if isinstance(item, dict):
            key = next(iter(item))
            found = next((one for one in seen if one.get(key) == item[key]), None)
            problem = f"{path}: no {key} {item[key]}" if found is None else lacks(item, found, f"{path}[{item[key]}]")
            if problem:
                return problem
    return None


def members_of_the_fake(server, cli):
    """Successful responses of the server have the members that the fake sends and the client reads."""
    token = cli.ok("token", "create", "members").strip()
    for name, exchange in recorded("recorded_responses").items():
        request = exchange["request"]
        seen = server.api(token=token).request(request["method"], request["path"], request.get("body"))
        equal(f"the server sends the members of the fake: {name}", lacks(exchange["answer"], seen, name), None)


def failed_first_start(orrery):
    server = without_password_file(Server(orrery, "locked"))
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", server.port))
        taken.listen()
        server.spawn()
        check("a first start whose port is taken fails", server.process.wait(20) != 0)
    server.start()
    contains("the next start reports where the first login is", server.log_text(), "first-login")
    own = environment_of("home-locked", server)
    status, screen = at_terminal([orrery, "login", "admin"], own, [("Password of admin", one_time_password(server)), ("New password", "after-the-failed-start"),
                                                                 ("Repeat the new password", "after-the-failed-start")])
    equal("and admin can log in after a first start that failed", (status, "logged in" in screen), (0, True))
    server.stop()
    return server, own


def lost_password(orrery, server, own):
    cli = Cli(orrery, server, HOME=own["HOME"], XDG_CONFIG_HOME=own["XDG_CONFIG_HOME"])
    flags = ("--data-folder", server.folder, "--config", "/dev/null")
    server.start()
    ran = cli("store", "reset-admin", *flags)
    check("reset-admin is refused while the server runs", ran.status == 5 and "in use by another running server" in ran.err, str(ran))
    server.stop()
    ran = cli("store", "reset-admin", "--data-folder", scratch("nothing-here"), "--config", "/dev/null")
    check("and where there is no store", ran.status == 3 and "no store at" in ran.err, str(ran))
    password = re.search(r"one-time password (\S+)", cli.ok("store", "reset-admin", *flags)).group(1)
    server.start()
    equal("the sessions of admin have ended", cli("whoami").status, 4)
    status, screen = at_terminal([orrery, "login", "admin"], own, [("Password of admin", password), ("New password", "chosen-after-the-reset"), ("Repeat the new password", "chosen-after-the-reset")])
    equal("admin logs in with the one-time password of reset-admin", (status, "logged in" in screen), (0, True))
    contains("the reset is in the events", cli.ok("events", "--subject", "user/admin"), "store reset-admin")
    server.stop()
    chosen = write_file(os.path.join(scratch(), "chosen"), "chosen-in-a-file-now\n")
    cli.ok("store", "reset-admin", "--password-file", chosen, *flags)
    # A password file that is ignored is warned of; one that holds admin's password is not.
    for text, warned in (("chosen-in-a-file-now\n", False), ("another-one-altogether\n", True)):
        file = write_file(os.path.join(scratch(), "ignored"), text)
        command = server.command()
        server.command = lambda line=command, path=file: [*line, "--identity-admin-password-file", path]
        server.start()
        end = time.monotonic() + 5
        while time.monotonic() < end and warned and "has no effect" not in server.log_text():
            time.sleep(0.05)
        cli.ok("login", "admin", "--password-file", chosen)
        equal("a password file without effect is warned of" if warned else "one that holds the right password is not", "has no effect" in server.log_text(), warned)
        server.stop()
        server.command = lambda line=command: line
    return cli


def emptied_store(orrery, server, cli):
    server.start()
    backup = os.path.join(scratch(), "backup.db")
    cli.ok("store", "backup", backup)
    server.stop()
    store = os.path.join(server.folder, "store.db")
    for name in ("store.db-wal", "store.db-shm"):
        if os.path.exists(os.path.join(server.folder, name)):
            os.unlink(os.path.join(server.folder, name))
    write_file(store, "")
    server.spawn()
    check("a store of 0 bytes beside its key is refused", server.process.wait(20) != 0)
    contains("as damage, with a remedy", server.start_error(), "is damaged", "restore")
    equal("and not changed", os.path.getsize(store), 0)
    cli.ok("store", "restore", backup, "--data-folder", server.folder, "--config", "/dev/null", "--force")
    server.start()
    equal("a backup restores it", cli("whoami").status, 0)
    server.stop()
    fresh = os.path.join(scratch(), "new-machine", "orrery")
    contains("restore creates the data folder of a new server", cli.ok("store", "restore", backup, "--data-folder", fresh, "--config", "/dev/null"), "restored")
    equal("accessible to its owner only", os.stat(fresh).st_mode & 0o077, 0)


def two_servers(orrery, first, cli):
    second = Server(orrery, "second")
    second.start()
    plain = {**cli.environment}
    plain.pop("ORRERY_SERVER")

    def orrery_run(*arguments):
        done = subprocess.run([orrery, *arguments], env=plain, capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise Failed(f"orrery {arguments}: {done.stderr}")
        return done.stdout
    orrery_run("login", "admin", "-s", second.url, "--name", "second", "--password-file", second.password_file)
    contains("a login to a second server is used next", orrery_run("whoami"), second.url)
    contains("and keeps the session at the first", orrery_run("whoami", "-s", first.url), first.url)
    name = first.url.removeprefix("http://")
    orrery_run("context", "use", name)
    contains("context use returns to it", orrery_run("whoami"), first.url)
    contains("context list shows both", orrery_run("context", "list"), name, "second", "*")
    second.stop()


def main(given):
    server, cli = first_login(given.orrery)
    answers_of_the_fake(server, cli)
    members_of_the_fake(server, cli)
    two_servers(given.orrery, server, cli)
    server.stop()
    locked, own = failed_first_start(given.orrery)
    emptied_store(given.orrery, locked, lost_password(given.orrery, locked, own))
    check("nothing is left running", not Process.running)


if __name__ == "__main__":
    run(main)
