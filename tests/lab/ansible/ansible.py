#!/usr/bin/python3 -B
"""The ansible executor against the distribution's Ansible: the exit matrix, live events, check mode, cancel, kill -9, secrets."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import orrery_lab  # noqa: E402
from executors import Call, Driver, add_options, nodes_of  # noqa: E402
from hosts import Hosts  # noqa: E402
from orrery_lab import check, contains, equal, log, write_file  # noqa: E402

CANARY = "canary-51b2d8"
PLAYBOOKS = {
    "ok.yml": "- hosts: all\n  gather_facts: false\n  tasks:\n  - {name: write, copy: {content: '{{ greeting }}', dest: /srv/f}}\n  - {name: look, command: cat /srv/f, changed_when: false}\n",
    "prints.yml": """- hosts: all
  gather_facts: false
  vars: {release: {major: 7}}
  tasks:
  - {name: greet, debug: {msg: "hello {{ inventory_hostname }}"}}
  - {name: variable, debug: {var: release}}
  - {name: lines, shell: "echo first; echo second; echo careful >&2", changed_when: false}
  - {name: each, command: "echo item {{ item }}", loop: [a, b], changed_when: false}
  - {name: hidden, debug: {msg: "never shown"}, no_log: true}
""",
    "files.yml": """- hosts: all
  gather_facts: false
  tasks:
  - {name: by content, copy: {content: one, dest: /srv/by-content}}
  - {name: by template, template: {src: t.j2, dest: /srv/by-template}}
""",
    "context.yml": """- hosts: all
  gather_facts: false
  tasks:
  - {name: variable, debug: {msg: "variable {{ orrery_context }}"}}
  - {name: environment, shell: 'echo "environment $ORRERY_CONTEXT of $ORRERY_JOB"', changed_when: false}
""",
    "t.j2": "host {{ inventory_hostname }}\n",
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
    check("check mode reports what would change", preview.get("change") == "changed" and len(preview["differences"]) == 3, preview)
    equal("and changes nothing", hosts[0].run("ls", "/srv"), "")
    call = play("ok.yml", values={"greeting": "hi"})
    outcome = call.outcome(120)
    check("0: success with changes", outcome["ended"] == "succeeded" and outcome["change"] == "changed", (outcome, call.err))
    equal("each host's task is a step, first running, then done", [s["result"] for s in call.steps if s["host"] == "h2" and s["name"] == "write"], ["running", "changed"])
    contains("the log is readable", call.text(), "TASK write", "h3: changed")
    call = play("prints.yml", nodes=["h1"])
    check("a playbook that prints succeeds", call.outcome(120)["ended"] == "succeeded", (call.done, call.err))
    text = call.text()
    contains("debug messages, variables and the output of programs are in the log", text, "  h1: ok\n    hello h1\n", '    release: {"major": 7}\n', "    first\n    second\n    stderr: careful\n",
             "    a: item a\n    b: item b\n")
    equal("each of them once", [text.count(word) for word in ("hello h1", "second", "item a", "TASK greet")], [1, 1, 1, 1])
    check("output that no_log hides is not there", "never shown" not in text + str(call.steps), text)
    preview = driver.ask("plan", "ansible", ["h1"], {"playbook": "files.yml"}, timeout=120).wait(120)
    equal("a preview names the files of the host, not those of the server", sorted(d["name"] for d in preview["differences"]), ["h1: /srv/by-content", "h1: /srv/by-template"])
    check("and shows their new contents", any("host h1" in d["after"] for d in preview["differences"]), preview)
    equal("the second run changes nothing", play("ok.yml", values={"greeting": "hi"}).outcome(120)["change"], "unchanged")
    outcome = play("role.yml").outcome(120)
    check("roles below the content folder are found, groups come from labels", outcome["change"] == "changed", outcome)
    outcome = play("fails.yml").outcome(120)
    check("2: one host failed", outcome["error"] == "failed" and outcome["exit_code"] == 2 and "failed on h2" in outcome["message"], outcome)
    outcome = play("ignored.yml").outcome(120)
    check("0: an ignored failure is not a failure", outcome["ended"] == "succeeded", outcome)
    outcome = play("syntax.yml").outcome(120)
    check("4 without statistics: an unknown module is refused, not unreachable", outcome["error"] == "refused" and outcome["exit_code"] == 4 and "no_such_module" in outcome["message"], outcome)
    outcome = play("broken.yml").outcome(120)
    check("4: a file that is not YAML is refused", outcome["error"] == "refused", outcome)
    outcome = play("nobody.yml").outcome(120)
    check("0: a playbook that matches no host is refused", outcome["error"] == "refused", outcome)
    done = play("missing.yml").wait(120)
    check("a missing playbook is refused before the start", "failed" in done and "playbook: the server has no " in done["failed"]["message"], done)

    hosts[2].freeze()
    hosts[2].cut()
    outcome = play("ok.yml", values={"greeting": "there"}).outcome(120)
    check("4: a host that cannot be reached", outcome["exit_code"] == 4 and "could not reach h3" in outcome["message"] and outcome["change"] == "changed", outcome)
    outcome = play("fails.yml").outcome(120)
    check("4: failed and unreachable at once are both named", outcome["error"] == "failed" and "failed on h2" in outcome["message"] and "could not reach h3" in outcome["message"], outcome)
    outcome = play("ok.yml", nodes=["h3"], values={"greeting": "x"}).outcome(120)
    equal("if no host is reachable, it is a connection error", outcome["error"], "connect")
    hosts[2].heal()
    hosts[2].thaw()

    call = play("secret.yml", body={"variables": {"token": CANARY}}, secrets={"lab.token": CANARY})
    orrery_lab.wait_until("the first task is done", lambda: any(s["name"] == "write" and s["result"] == "changed" for s in call.steps), 60)
    arguments = [line for pid in os.listdir("/proc") if pid.isdigit() for line in [read(f"/proc/{pid}/cmdline")] if CANARY in line]
    equal("a secret is in no argument on the server", arguments, [])
    loose = [path for folder, _, files in os.walk(runs) for path in (os.path.join(folder, file) for file in files) if os.stat(path).st_mode & 0o077 and CANARY in read(path)]
    equal("and in no file that others may read", loose, [])
    check("the task is done", call.outcome(120)["ended"] == "succeeded", call.done)
    equal("it reached its destination", hosts[0].run("cat", "/srv/token"), CANARY)
    left = [path for folder, _, files in os.walk(runs) for path in (os.path.join(folder, file) for file in files) if CANARY in read(path)]
    equal("when it has ended no file holds it", left, [])

    call = play("slow.yml")
    orrery_lab.wait_until("it waits", lambda: any(s["name"] == "wait" for s in call.steps), 60)
    cancelled = driver.ask("cancel", "ansible", names, {"playbook": "slow.yml"}, id=call.id).wait(60)
    check("cancel ends the whole group", "failed" not in cancelled and call.outcome(60)["error"] == "cancelled", (cancelled, call.done))
    equal("nothing of it is left on the server", [pid for pid in os.listdir("/proc") if pid.isdigit() and "slow.yml" in read(f"/proc/{pid}/cmdline")], [])

    for host in hosts:
        host.run("rm", "-f", "/srv/slow")
    call = play("slow.yml")
    orrery_lab.wait_until("it waits", lambda: any(s["name"] == "wait" for s in call.steps), 60)
    driver.kill()
    driver = Driver(os.path.abspath(options.driver), nodes_of(hosts), hosts.key_file, content, runs)
    driver.ask("reattach", "ansible", names, {"playbook": "slow.yml"}, id=call.id, call=call, kept=[len(call.out), len(call.err)], timeout=60)
    done = call.wait(60)
    check("after kill -9 of the server the playbook is reattached", done.get("state") == "ended" and done["outcome"]["ended"] == "succeeded", done)
    contains("its log is complete", call.text(), "PLAY all\nTASK count", "h1: ok 2")
    equal("and it ran once", hosts[0].run("cat", "/srv/slow"), "run\n")
    driver.finish()
    with_default_settings(options, hosts)
    hosts.down()


def with_default_settings(options, hosts):
    """A server that was given no setting about Ansible, and the command line."""
    server = orrery_lab.Server(options.orrery)
    content = os.path.join(server.folder, "content")
    os.makedirs(content, mode=0o700)
    for name in ("prints.yml", "files.yml", "context.yml", "t.j2"):
        write_file(os.path.join(content, name), PLAYBOOKS[name], 0o644)
    server.start()
    api = server.api()
    api.put("/v1/secrets/lab-key", {"spec": {"values": {"private_key": hosts.private_key()}}})
    api.put("/v1/nodes/h1", hosts.node(hosts[0]))
    cli = orrery_lab.Cli(options.orrery, server).login(server)
    job = "kind: Job\nname: {}\nspec:\n  tasks:\n  - {{name: play, on: [h1], run: {{ansible: {{playbook: {}}}}}}}\n"
    done = cli("job", "submit", "-f", "-", "--wait", stdin=job.format("prints", "prints.yml"), seconds=120)
    printed = cli.ok("job", "logs", "prints", "play@h1")
    equal("Ansible works with the default settings of the server", done.status, 0)
    contains("job logs shows debug messages and stdout", printed, "  h1: ok\n    hello h1\n", "    first\n    second\n")
    equal("and each event once", [printed.count("hello h1"), printed.count("first"), printed.count("[h1]"), printed.count("TASK lines")], [1, 1, 0, 1])
    contains("--steps prints the steps instead", cli.ok("job", "logs", "prints", "play@h1", "--steps"), "[h1] greet: ok")
    shown = cli.ok("job", "plan", "-f", "-", "--preview", stdin=job.format("files", "files.yml"), seconds=120)
    contains("job plan --preview names the files of the host", shown, "h1: /srv/by-content", "h1: /srv/by-template")
    check("and no file of the server", server.folder not in shown and "ansible-local" not in shown, shown)
    for name in ("one", "two"):
        api.post("/v1/jobs", {"name": name, "spec": {"tasks": [
            {"name": "script", "on": ["h1"], "run": f'echo "$ORRERY_CONTEXT of $ORRERY_JOB" >>/srv/context-{name}'},
            {"name": "play", "on": ["h1"], "after": "script", "run": {"ansible": {"playbook": "context.yml"}}}]}}, **{"X-Request-Id": f"trace-{name}"})
    for name in ("one", "two"):
        equal(f"job {name} succeeds", cli("job", "wait", name, seconds=120).status, 0)
        equal("the context of the request that submitted the job is in the environment of its scripts on nodes", hosts[0].run("cat", f"/srv/context-{name}"), f"trace-{name} of {name}\n")
        contains("and in the variables and the environment of its playbooks", cli.ok("job", "logs", name, "play@h1"), f"variable trace-{name}\n", f"environment trace-{name} of {name}\n")
    server.stop()


def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


if __name__ == "__main__":
    orrery_lab.run(main, add_options)
