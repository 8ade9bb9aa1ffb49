"""A first playbook on the nodes of the tutorial, with the default settings of a server: nothing of Ansible is configured. Used by ../docs/first_minutes.py and
../package/package.py with --ansible."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import check, contains, equal  # noqa: E402

PLAYBOOK = """- hosts: all
  gather_facts: false
  tasks:
  - {name: greet, debug: {msg: "hello {{ inventory_hostname }}"}}
  - {name: lines, shell: "echo first; echo second", changed_when: false}
  - {name: write, copy: {content: new, dest: /tmp/orrery-tutorial/by-ansible}}
"""
JOB = "{kind: Job, name: play, spec: {tasks: [{name: play, on: frontend, run: {ansible: {playbook: first.yml}}}]}}"


def first_play(name, shell, content):
    """`shell` is logged in to the server, in the folder of the tutorial; `content` is the folder of the server's playbooks."""
    os.makedirs(content, exist_ok=True)
    os.chmod(content, 0o755)
    path = os.path.join(content, "first.yml")
    with open(path, "w") as file:
        file.write(PLAYBOOK)
    os.chmod(path, 0o644)

    def ran(command):
        status, printed = shell(command)
        check(f"{name}: {command[:70]}", status == 0, printed)
        return printed
    ran("./nodes start && orrery secret create tutorial-key --from-file private_key=/tmp/orrery-tutorial/key && orrery apply -f /tmp/orrery-tutorial/nodes.yaml")
    try:
        preview = ran(f"echo '{JOB}' | orrery job plan -f - --preview")
        contains(f"{name}: a preview names the file on the node", preview, "web1: /tmp/orrery-tutorial/by-ansible")
        check(f"{name}: and no temporary file of the server", "ansible-tmp" not in preview and "/cp/" not in preview, preview)
        ran(f"echo '{JOB}' | orrery job submit -f - --wait")
        output = ran("orrery job logs play play@web1")
        equal(f"{name}: messages and output of a playbook are shown once", [output.count(word) for word in ("hello web1", "first", "second", "TASK write")], [1, 1, 1, 1])
        equal(f"{name}: the playbook changed the node", ran("cat /tmp/orrery-tutorial/by-ansible"), "new")
    finally:
        shell("./nodes stop")
    ran("orrery delete job play && orrery delete node/db1 node/web1 secret/tutorial-key")
