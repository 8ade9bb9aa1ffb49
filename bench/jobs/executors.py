#!/usr/bin/python3 -B
"""The cost of a host: five small tasks on ten hosts with our ssh blocks and with Ansible, in one run on the same hosts, and a trivial command on a hundred hosts.

bench/jobs/run calls `rows(build)`; standalone: executors.py BUILD_FOLDER [--json FILE]. Needs root (the hosts are namespaces) and ansible-core."""
import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, ".."), os.path.join(here, "..", "..", "tests", "lab")]
import orrery_lab  # noqa: E402
from executors import Driver, nodes_of  # noqa: E402
from hosts import Hosts  # noqa: E402
from table import median, row, show  # noqa: E402

PLAYBOOK = """
- hosts: lab
  gather_facts: false
  vars: {peers: [10.0.0.1, 10.0.0.2]}
  tasks:
  - {name: command, command: "true"}
  - {name: copy, copy: {content: "hello\\n", dest: /srv/copy, mode: "0644"}}
  - {name: template, template: {src: t.j2, dest: /srv/template, mode: "0644"}}
  - {name: line, lineinfile: {path: /srv/line, line: "a=1", regexp: "^a=", create: true, mode: "0644"}}
  - {name: shell, shell: "echo x >/srv/shell"}
"""
BLOCKS = {"blocks": [
    {"command": {"argv": ["true"]}},
    {"file": {"path": "/srv/copy", "content": "hello\n", "mode": "0644"}},
    {"template": {"path": "/srv/template", "content": "peers {{ join(peers, \",\") }}\n", "mode": "0644"}},
    {"line": {"path": "/srv/line", "line": "a=1", "match": "^a=", "create": True}},
    {"command": {"argv": ["sh", "-c", "echo x >/srv/shell"]}}]}
TASKS = 5


def clear(hosts):
    for host in hosts:
        host.run("sh", "-c", "rm -rf /srv/*")


def made(hosts):
    for host in hosts:
        seen = host.run("sh", "-c", "cd /srv; cat copy template line shell")
        if seen != "hello\npeers 10.0.0.1,10.0.0.2\na=1\nx\n":
            raise orrery_lab.Failed(f"{host.name} has other files than expected: {seen!r}")


def by_ansible(hosts, folder, tuned):
    """(wall seconds, controller's CPU seconds) of one run, without connections of an earlier run."""
    environment = orrery_lab.clean_environment(ANSIBLE_HOME=tempfile.mkdtemp(dir=folder), ANSIBLE_HOST_KEY_CHECKING="True")
    if tuned:
        environment.update(ANSIBLE_PIPELINING="1", ANSIBLE_FORKS=str(len(hosts)))
    environment["ANSIBLE_SSH_CONTROL_PATH_DIR"] = tempfile.mkdtemp(prefix="cp", dir="/tmp")
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(["ansible-playbook", "-i", hosts.inventory(), os.path.join(folder, "five.yml")], env=environment, capture_output=True, text=True)
    wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    for socket in os.listdir(environment["ANSIBLE_SSH_CONTROL_PATH_DIR"]):
        subprocess.run(["ssh", "-o", f"ControlPath={environment['ANSIBLE_SSH_CONTROL_PATH_DIR']}/{socket}", "-O", "exit", "x"], capture_output=True)
    shutil.rmtree(environment["ANSIBLE_SSH_CONTROL_PATH_DIR"], ignore_errors=True)
    if done.returncode != 0:
        raise orrery_lab.Failed(f"ansible-playbook failed: {done.stdout[-1000:]} {done.stderr[-500:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def by_us(hosts, path, body, values=None):
    """The same for our executor, from the start of the program to the last answer, with logins."""
    begun = time.monotonic()
    driver = Driver(path, nodes_of(hosts), hosts.key_file, quiet=True)
    calls = [driver.start("ssh", host.name, body, values=values or {}) for host in hosts]
    outcomes = [call.outcome(120) for call in calls]
    wall = time.monotonic() - begun
    bad = [outcome for outcome in outcomes if outcome["ended"] != "succeeded"]
    if bad:
        raise orrery_lab.Failed(f"{len(bad)} failed: {bad[0]}")
    return wall, driver.finish()["cpu"]


def rows(build, repeats=3):
    path = os.path.join(build, "tests", "lab", "executors", "executor_driver")
    version = subprocess.run(["ansible-playbook", "--version"], capture_output=True, text=True).stdout.split("]")[0].split()[-1]
    folder = orrery_lab.scratch("bench-jobs")
    orrery_lab.write_file(os.path.join(folder, "five.yml"), PLAYBOOK)
    orrery_lab.write_file(os.path.join(folder, "t.j2"), "peers {{ peers | join(',') }}\n")
    hosts = Hosts(10)
    seen = {"ours": [], "default": [], "tuned": []}
    hosts.enter()
    values = {"peers": ["10.0.0.1", "10.0.0.2"]}
    by_us(hosts, path, {"command": ["true"]})  # warms the page cache
    for _ in range(repeats):
        for name in seen:
            clear(hosts)
            seen[name].append(by_us(hosts, path, BLOCKS, values) if name == "ours" else by_ansible(hosts, folder, name == "tuned"))
            made(hosts)
            print(f"five tasks on ten hosts, {name}: {seen[name][-1][0]:.2f} s wall, {seen[name][-1][1] * 1000:.0f} ms CPU on the controller", file=sys.stderr)
    wall = {name: median([one[0] for one in runs]) for name, runs in seen.items()}
    cpu = {name: median([one[1] for one in runs]) * 1000 / (TASKS * len(hosts)) for name, runs in seen.items()}
    out = []
    for name, settings in (("default", "default settings"), ("tuned", "forks and pipelining")):
        peer = f"Ansible {version}, {settings}"
        out.append(row(f"five small tasks on 10 hosts, {settings}", "s", wall["ours"], wall[name], peer, 20, larger_is_better=False))
        out.append(row(f"controller's CPU for each task and host, {settings}", "ms", cpu["ours"], cpu[name], peer, 100, larger_is_better=False))
    hosts.down()
    return out


def hundred(build, repeats=3):
    path = os.path.join(build, "tests", "lab", "executors", "executor_driver")
    hosts = Hosts(100)
    hosts.enter()
    runs = [by_us(hosts, path, {"command": ["true"]}) for _ in range(repeats)]
    for wall, cpu in runs:
        print(f"a trivial command on 100 hosts: {wall:.2f} s wall, {cpu * 1000:.0f} ms CPU on the controller", file=sys.stderr)
    hosts.down()
    return [row("a trivial command on 100 hosts, logins included", "s", median([one[0] for one in runs]), goal=3, larger_is_better=False),
            row("the same, controller's CPU for each host", "ms", median([one[1] for one in runs]) * 10)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--json")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["ten", "hundred"])
    given = parser.parse_args()
    build = os.path.abspath(given.build)
    try:
        found = []
        if given.only != "hundred":
            found += rows(build, given.repeats)
        if given.only != "ten":
            found += hundred(build, given.repeats)
        show("jobs: hosts", found, given.json)
    finally:
        if orrery_lab.scratch.path:
            shutil.rmtree(orrery_lab.scratch.path, ignore_errors=True)


if __name__ == "__main__":
    main()
