#!/usr/bin/python3 -B
"""Commands, blocks and durable attempts on real hosts, with typical faults of hosts."""
import os
import random
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import orrery_lab  # noqa: E402
from executors import Call, Driver, add_options, nodes_of  # noqa: E402
from hosts import Hosts  # noqa: E402
from orrery_lab import check, contains, equal, log  # noqa: E402

CANARY = "canary-7f3a9c"


def many_commands(hosts, driver):
    begun = time.monotonic()
    calls = [driver.start("ssh", host.name, {"command": ["hostname"]}) for host in hosts for _ in range(5)]
    names = [call.outcome() and call.text().strip() for call in calls]
    equal("50 commands on 10 hosts return, each with the result of its host", names, [host.name for host in hosts for _ in range(5)])
    log(f"      in {time.monotonic() - begun:.2f} s")


def blocks(hosts, driver):
    body = {"blocks": [
        {"file": {"path": "/srv/app", "state": "directory", "mode": "0750"}},
        {"template": {"path": "/srv/app/conf", "content": "peers {{ join(peers, \",\") }}\n", "mode": "0640", "group": "adm"}},
        {"line": {"path": "/etc/hosts.allow", "line": "sshd: 10.77.", "match": "^sshd:", "create": True}},
        {"user": {"name": "labuser", "groups": ["adm"], "shell": "/bin/sh"}},
        {"package": {"names": ["coreutils", "bash"]}},
        {"command": {"argv": ["cp", "/srv/app/conf", "/srv/app/copy"], "creates": "/srv/app/copy"}}]}
    values = {"peers": [host.address for host in hosts]}
    preview = driver.ask("plan", "ssh", "h1", body, values=values).wait()
    check("a plan changes nothing and shows the changes", preview.get("change") == "changed" and hosts[0].run("ls", "/srv").strip() == "", preview)
    equal("and has a difference for each block that would change", len(preview["differences"]), 5)
    first = [driver.start("ssh", host.name, body, values=values) for host in hosts]
    check("six blocks on ten hosts", all([call.outcome()["ended"] == "succeeded" and call.outcome()["change"] == "changed" for call in first]),
          [(call.done, call.text()) for call in first])
    second = [driver.start("ssh", host.name, body, values=values) for host in hosts]
    check("and the second run changes nothing", all([call.outcome()["change"] == "unchanged" for call in second]), [call.text() for call in second])
    contains("the template was rendered", hosts[3].run("cat", "/srv/app/conf"), "peers 10.77.")
    contains("the user exists, in its group", hosts[3].run("id", "labuser"), "adm")
    body["blocks"][1]["template"]["content"] = "other\n"
    preview = driver.ask("plan", "ssh", "h1", body, values=values).wait()
    equal("a change of content is shown as before and after", [(d["before"][:6], d["after"]) for d in preview["differences"]], [("peers ", "other\n")])


def secrets(hosts, driver):
    body = {"script": f"sleep 0.6; printf '%s' \"$TOKEN\" | sha256sum; echo '{CANARY}' >/srv/secret-file\n"}
    call = driver.start("ssh", "h2", body, secrets={"lab.token": CANARY}, environment={"TOKEN": CANARY})
    blocks_call = driver.start("ssh", "h2", {"blocks": [{"command": {"argv": ["sleep", "0.6"]}}, {"file": {"path": "/srv/s", "content": CANARY}}]},
                               secrets={"lab.token": CANARY})
    time.sleep(0.35)
    seen = [line for line in hosts[1].processes() if CANARY in line]
    files = hosts[1].run("grep", "-rl", CANARY, "/root", check=False)
    call.outcome(), blocks_call.outcome()
    equal("a secret is in no argument of any process on the host", seen, [])
    equal("and in no file of the attempt", files + hosts[1].run("grep", "-rl", CANARY, "/root", check=False), "")
    equal("but it reached its destination", hosts[1].run("cat", "/srv/s"), CANARY)


def many_sessions(hosts, driver):
    calls = [driver.start("ssh", "h9", {"command": ["sleep", "0.2"]}) for _ in range(40)]
    check("40 commands at once on a host with MaxSessions 10 all run", all(call.outcome()["ended"] == "succeeded" for call in calls))
    calls = [driver.start("ssh", "h10", {"command": ["sleep", "0.05"]}) for _ in range(12)]
    check("and on one with MaxSessions 2", all(call.outcome()["ended"] == "succeeded" for call in calls), [call.done for call in calls][:3])


def many_logins(hosts, path, nodes, key_file):
    # h8 has MaxStartups 2:100:2: it refuses new connections while two are unauthenticated.
    drivers = [Driver(path, nodes, key_file) for _ in range(8)]
    calls = [driver.start("ssh", "h8", {"command": ["true"]}) for driver in drivers]
    outcomes = [call.outcome() for call in calls]
    check("eight servers that log in to a host with MaxStartups 2 all succeed", all(outcome["ended"] == "succeeded" for outcome in outcomes), outcomes)
    for driver in drivers:
        driver.finish()


def cancelling(hosts, driver):
    call = driver.start("ssh", "h3", {"command": ["sh", "-c", "sleep 611 & sleep 611"]})
    orrery_lab.wait_until("it runs", lambda: sum("sleep 611" in line for line in hosts[2].processes()) >= 2, 10)
    cancelled = driver.ask("cancel", "ssh", "h3", {"command": ["x"]}, id=call.id).wait()
    check("cancel returns", "failed" not in cancelled, cancelled)
    equal("the outcome reports it", call.outcome()["error"], "cancelled")
    equal("no process and file of it is left", [line for line in hosts[2].processes() if "sleep 611" in line], [])


def disk_full(hosts, driver):
    hosts[6].run("sh", "-c", "head -c 10000000 /dev/zero >/root/fill; true", check=False)
    outcome = driver.start("ssh", "h7", {"command": ["true"]}).outcome()
    equal("a full disk of a host is reported before the attempt starts", outcome["error"], "no_space")
    contains("with a message", outcome["message"], "disk of h7 is full")
    hosts[6].run("rm", "/root/fill")
    # The disk becomes full while it runs: the exit code still comes.
    outcome = driver.start("ssh", "h7", {"command": ["sh", "-c", "head -c 10000000 /dev/zero; exit 9"]}).outcome()
    check("a command that fills the disk still reports its exit code", outcome["exit_code"] == 9 and outcome["error"] == "no_space", outcome)
    driver.ask("clean", "ssh", "h7", {}, id="none").wait()
    hosts[6].run("sh", "-c", "rm -rf /root/.orrery/attempts/*")


def becoming_root(hosts, path, key_file):
    host = hosts[3]
    host.run("sh", "-c", "useradd -m -d /srv/deploy -s /bin/sh -p '*' deploy && mkdir /srv/deploy/.ssh && cp /root/.ssh/authorized_keys /srv/deploy/.ssh/ && chown -R deploy /srv/deploy")
    nodes = nodes_of(hosts)
    nodes["h4"].update(user="deploy", sudo=True)
    driver = Driver(path, nodes, key_file)
    refused = driver.start("ssh", "h4", {"command": ["id", "-u"]}).outcome()
    check("an account that may not become root without a password is refused with a message", refused["error"] == "refused" and "NOPASSWD" in refused["message"], refused)
    host.run("sh", "-c", "echo 'deploy ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/deploy")
    call = driver.start("ssh", "h4", {"command": ["id", "-u"]})
    check("and runs as root by sudo, without a terminal, once sudo permits it", call.outcome()["ended"] == "succeeded" and call.text() == "0\n", (call.done, call.text()))
    call = driver.start("ssh", "h4", {"command": ["sh", "-c", "id -un; pwd"], "sudo": False})
    check("or as the login user, if the task asks for it", call.outcome()["ended"] == "succeeded" and call.text().startswith("deploy\n"), (call.done, call.text()))
    call = driver.start("ssh", "h4", {"command": ["sleep", "300"]})
    orrery_lab.wait_until("it runs", lambda: any("sleep 300" in line for line in host.processes()), 10)
    driver.ask("cancel", "ssh", "h4", {"command": ["x"]}, id=call.id).wait()
    equal("and a command that runs as root is cancelled as root", call.outcome()["error"], "cancelled")
    driver.finish()


def jumping(hosts, path, key_file):
    nodes = nodes_of(hosts)
    for name in ("h2", "h3", "h4"):
        nodes[name]["jump"] = "h1"
    driver = Driver(path, nodes, key_file)
    calls = [driver.start("ssh", name, {"command": ["sh", "-c", "echo $SSH_CONNECTION; hostname"]}) for name in ("h2", "h3", "h4")]
    check("three hosts are reached through a fourth", all(call.outcome()["ended"] == "succeeded" and call.text().startswith(hosts[0].address + " ") for call in calls),
          [(call.done, call.text()) for call in calls])
    driver.finish()


def changed_key(hosts, path, key_file):
    nodes = nodes_of(hosts)
    before = hosts[5].host_key
    hosts[5].change_key()
    driver = Driver(path, nodes, key_file)
    outcome = driver.start("ssh", "h6", {"command": ["true"]}).outcome()
    equal("a changed host key is refused", outcome["error"], "refused")

    def fingerprint(key):
        return subprocess.run(["ssh-keygen", "-lf", "-"], input=key, capture_output=True, text=True).stdout.split()[1]
    contains("with both fingerprints", outcome["message"], fingerprint(before), fingerprint(hosts[5].host_key))
    driver.finish()


def cut_off(hosts, driver):
    calls = [driver.start("ssh", host.name, {"command": ["sh", "-c", "echo x >>/srv/cut-runs; echo one; sleep 4; echo two"]}, timeout=90) for host in hosts[0:4]]
    for call in calls:
        call.first_output.wait(10)
    for host in hosts[0:3]:
        host.cut()
    begun = time.monotonic()
    check("a host that is not isolated continues", calls[3].outcome(20)["ended"] == "succeeded")
    time.sleep(max(0, 20 - (time.monotonic() - begun)))
    for host in hosts[0:3]:
        host.heal()
    for call in calls[:3]:
        check("an attempt on a host isolated for 20 s is reattached, with complete output", call.outcome(90)["ended"] == "succeeded" and call.text() == "one\ntwo\n", (call.done, call.text()))
    equal("and nothing ran twice", [host.run("cat", "/srv/cut-runs") for host in hosts[0:4]], ["x\n"] * 4)


def rebooting(hosts, driver):
    call = driver.start("ssh", "h5", {"command": ["sh", "-c", "echo begun; sleep 60"]}, timeout=60)
    call.first_output.wait(10)
    hosts[4].reboot()
    outcome = call.outcome(60)
    check("an attempt on a rebooted host is lost, with a message", outcome["ended"] == "lost" and "rebooted" in outcome["message"], outcome)


def killed_controllers(hosts, path, nodes, key_file, rounds, seed):
    """kill -9 of the driver at random times; another one reattaches to each attempt. Nothing runs twice, no output is lost."""
    chance = random.Random(seed)
    kills = never = 0
    for round in range(rounds):
        body = {"command": ["sh", "-c", "echo run >>/srv/runs; for i in 1 2 3 4 5; do echo line $i; sleep 0.05; done; echo err >&2"]}
        pending = {}
        driver = Driver(path, nodes, key_file)
        for host in hosts:
            call = Call(f"k{os.getpid()}-{round}-{host.name}")
            pending[host.name] = driver.start("ssh", host.name, body, id=call.id, call=call)
        time.sleep(chance.uniform(0, 0.6))
        driver.kill()
        kills += 1
        while True:
            open_ = {name: call for name, call in pending.items() if call.done is None or "outcome" not in call.done}
            if not open_:
                break
            driver = Driver(path, nodes, key_file)
            for name, call in open_.items():
                driver.ask("reattach", "ssh", name, body, id=call.id, call=call, kept=[len(call.out), len(call.err)])
            if chance.random() < 0.4:
                time.sleep(chance.uniform(0, 0.4))
                driver.kill()
                kills += 1
                for call in open_.values():  # outcomes that the killed driver did not report
                    if call.done is not None and call.done.get("state") == "not_started":
                        call.done = None
                continue
            for name, call in open_.items():
                done = call.wait()
                if done.get("state") == "not_started":
                    never += 1
                    driver.start("ssh", name, body, id=call.id, call=call)
            for call in open_.values():
                call.wait()
            driver.finish()
        expected = "".join(f"line {i}\n" for i in range(1, 6))
        for name, call in pending.items():
            if call.text() != expected or call.err.decode() != "err\n":
                raise orrery_lab.Failed(f"round {round}: the output of {call.id} is not complete: {call.text()!r} {bytes(call.err)!r} {call.done}")
        for host in hosts:
            runs = host.run("cat", "/srv/runs").count("run")
            if runs != round + 1:
                raise orrery_lab.Failed(f"round {round}: {host.name} ran it {runs} times in {round + 1} rounds")
    check(f"{kills} times kill -9 at random instants over {rounds * len(hosts)} attempts: each ran once, no output lost ({never} had not started and were started again)", kills >= rounds)


def main(options):
    path = os.path.abspath(options.driver)
    if options.seed is None:
        options.seed = random.randrange(10**6)
    log(f"seed {options.seed}")

    def each(number):
        return {7: ["MaxStartups 2:100:2"], 8: ["MaxSessions 10"], 9: ["MaxSessions 2"]}.get(number, ["MaxSessions 64", "MaxStartups 100:30:200"])
    hosts = Hosts(10, settings=(), each=each, small=lambda number: "2m" if number == 6 else None)
    hosts.enter()
    nodes = nodes_of(hosts)
    driver = Driver(path, nodes, hosts.key_file)
    many_commands(hosts, driver)
    blocks(hosts, driver)
    secrets(hosts, driver)
    many_sessions(hosts, driver)
    many_logins(hosts, path, nodes, hosts.key_file)
    cancelling(hosts, driver)
    if shutil.which("sudo"):
        becoming_root(hosts, path, hosts.key_file)
    jumping(hosts, path, hosts.key_file)
    disk_full(hosts, driver)
    killed_controllers(list(hosts)[:4], path, nodes, hosts.key_file, options.rounds, options.seed)
    cut_off(list(hosts), driver)
    rebooting(hosts, driver)
    changed_key(hosts, path, hosts.key_file)
    driver.finish()
    hosts.down()


def options_of(parser):
    add_options(parser)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int)


if __name__ == "__main__":
    orrery_lab.run(main, options_of)
