#!/usr/bin/python3 -B
"""The ansible executor against the distribution's Ansible: the exit matrix, live events, check mode, cancel, kill -9, secrets."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import orrery_lab  # noqa: E402
from executors import Call, Driver, add_options, nodes_of  # noqa: E402
from hosts import Hosts  # noqa: E402
from orrery_lab import check, contains, equal, say, write_file  # noqa: E402

CANARY = "canary-51b2d8"
PLAYBOOKS = {
    "ok.yml": "- hosts: all\n  gather_facts: false\n  tasks:\n  - {name: write, copy: {content: '{{ greeting }}', dest: /srv/f}}\n  - {name: look, command: cat /srv/f, changed_when: false}\n",
    "fails.yml": "- hosts: all\n  gather_facts: false\n  tasks:\n  - {name: h2 fails, command: '{{ \"false\" if inventory_hostname == \"h2\" else \"true\" }}'}\n",
    "ignored.yml": "- hosts: all\n  gather_facts: false\n  tasks:\n  - {name: fails, command: 'false', ignore_errors: true}\n",
    "syntax.yml": "- hosts: all\n  tasks:\n  - {name: x, no_such_module_here: {}}\n",
    "broken.yml": "- hosts: all\n  tasks: [\n",
    "nobody.yml": "- hosts: databases\n  gather_facts: false\n  tasks: []\n",
    "role.yml": "- hosts: lab\n  gather_facts: false\n  roles: [greet]\n",
    "roles/greet/tasks/main.yml": "- {name: greet, lineinfile: {path: /srv/greet, line: 'hello {{ inventory_hostname }}', create: true}}\n",
    "slow.yml": "- hosts: all\n  gather_facts: false\n  tasks:\n  - {name: count, shell: 'echo run >>/srv/slow'}\n  - {name: wait, command: sleep 5}\n",
    "secret.yml": "- hosts: all\n  gather_facts: false\n  tasks:\n  - {name: write, copy: {content: '{{ token }}', dest: /srv/token}, no_log: true}\n  - {name: wait, command: sleep 1}\n",
}


def main(options):
    orrery_lab.program("ansible-playbook", "ansible-core")
    hosts = Hosts(3)
    hosts.enter()
    content = orrery_lab.scratch("content")
    for name, text in PLAYBOOKS.items():
        os.makedirs(os.path.dirname(os.path.join(content, name)), exist_ok=True)
        write_file(os.path.join(content, name), text, 0o644)
    runs = orrery_lab.scratch("r")
    driver = Driver(os.path.abspath(options.driver), nodes_of(hosts), hosts.key_file, content, runs)
    names = [host.name for host in hosts]

    def play(playbook, nodes=names, **more):
        body = {"playbook": playbook, **more.pop("body", {})}
        return driver.start("ansible", nodes, body, timeout=120, **more)

    preview = driver.ask("plan", "ansible", names, {"playbook": "ok.yml"}, values={"greeting": "hi"}, timeout=120).wait(120)
    check("check mode says what would change", preview.get("change") == "changed" and len(preview["differences"]) == 3, preview)
    equal("and changes nothing", hosts[0].run("ls", "/srv"), "")
    call = play("ok.yml", values={"greeting": "hi"})
    outcome = call.outcome(120)
    check("0: all went well, and something changed", outcome["ended"] == "succeeded" and outcome["change"] == "changed", (outcome, call.err))
    equal("each host's task is a step, first running, then done", [s["result"] for s in call.steps if s["host"] == "h2" and s["name"] == "write"], ["running", "changed"])
    contains("the log is for people", call.text(), "TASK write", "h3: changed")
    equal("a second time nothing changes", play("ok.yml", values={"greeting": "hi"}).outcome(120)["change"], "unchanged")
    outcome = play("role.yml").outcome(120)
    check("roles below the content folder are found, groups come from labels", outcome["change"] == "changed", outcome)
    outcome = play("fails.yml").outcome(120)
    check("2: one host failed", outcome["error"] == "failed" and outcome["exit_code"] == 2 and "failed on h2" in outcome["words"], outcome)
    outcome = play("ignored.yml").outcome(120)
    check("0: a failure that is ignored is none", outcome["ended"] == "succeeded", outcome)
    outcome = play("syntax.yml").outcome(120)
    check("4 without statistics: an unknown module is refused, not unreachable", outcome["error"] == "refused" and outcome["exit_code"] == 4 and "no_such_module" in outcome["words"], outcome)
    outcome = play("broken.yml").outcome(120)
    check("4: what is no YAML is refused", outcome["error"] == "refused", outcome)
    outcome = play("nobody.yml").outcome(120)
    check("0: a playbook that touches nobody is no success", outcome["error"] == "refused", outcome)
    done = play("missing.yml").wait(120)
    check("a playbook that is not there is refused before anything is begun", "failed" in done and "no playbook" in done["failed"]["message"], done)

    hosts[2].freeze()
    hosts[2].cut()
    outcome = play("ok.yml", values={"greeting": "there"}).outcome(120)
    check("4: a host that cannot be reached", outcome["exit_code"] == 4 and "could not reach h3" in outcome["words"] and outcome["change"] == "changed", outcome)
    outcome = play("fails.yml").outcome(120)
    check("4: failed and unreachable at once are both named", outcome["error"] == "failed" and "failed on h2" in outcome["words"] and "could not reach h3" in outcome["words"], outcome)
    outcome = play("ok.yml", nodes=["h3"], values={"greeting": "x"}).outcome(120)
    equal("where nobody could be reached it is a matter of connections", outcome["error"], "connect")
    hosts[2].heal()
    hosts[2].thaw()

    call = play("secret.yml", body={"variables": {"token": "${secret.lab.token}"}}, secrets={"lab.token": CANARY})
    orrery_lab.wait_until("the first task is done", lambda: any(s["name"] == "write" and s["result"] == "changed" for s in call.steps), 60)
    arguments = [line for pid in os.listdir("/proc") if pid.isdigit() for line in [read(f"/proc/{pid}/cmdline")] if CANARY in line]
    equal("a secret is in no argument at the server", arguments, [])
    loose = [path for folder, _, files in os.walk(runs) for path in (os.path.join(folder, file) for file in files) if os.stat(path).st_mode & 0o077 and CANARY in read(path)]
    equal("and in no file that others may read", loose, [])
    check("the task is done", call.outcome(120)["ended"] == "succeeded", call.done)
    equal("it came where it belongs", hosts[0].run("cat", "/srv/token"), CANARY)
    left = [path for folder, _, files in os.walk(runs) for path in (os.path.join(folder, file) for file in files) if CANARY in read(path)]
    equal("when it has ended no file holds it", left, [])

    call = play("slow.yml")
    orrery_lab.wait_until("it waits", lambda: any(s["name"] == "wait" for s in call.steps), 60)
    cancelled = driver.ask("cancel", "ansible", names, {"playbook": "slow.yml"}, id=call.id).wait(60)
    check("cancel ends the whole group", "failed" not in cancelled and call.outcome(60)["error"] == "cancelled", (cancelled, call.done))
    equal("nothing of it is left at the server", [pid for pid in os.listdir("/proc") if pid.isdigit() and "slow.yml" in read(f"/proc/{pid}/cmdline")], [])

    for host in hosts:
        host.run("rm", "-f", "/srv/slow")
    call = play("slow.yml")
    orrery_lab.wait_until("it waits", lambda: any(s["name"] == "wait" for s in call.steps), 60)
    driver.kill()
    driver = Driver(os.path.abspath(options.driver), nodes_of(hosts), hosts.key_file, content, runs)
    driver.ask("reattach", "ansible", names, {"playbook": "slow.yml"}, id=call.id, call=call, kept=[len(call.out), len(call.err)], timeout=60)
    done = call.wait(60)
    check("after kill -9 of the server the playbook is taken up again", done.get("what") == "ended" and done["outcome"]["ended"] == "succeeded", done)
    contains("its log is whole", call.text(), "PLAY all\nTASK count", "h1: ok 2")
    equal("and it ran once", hosts[0].run("cat", "/srv/slow"), "run\n")
    driver.finish()
    hosts.down()


def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


if __name__ == "__main__":
    orrery_lab.run(main, add_options)
