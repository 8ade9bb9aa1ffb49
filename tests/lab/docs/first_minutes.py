#!/usr/bin/python3 -B
"""The first minutes as a new user has them, on one computer: the README and the tutorial are run literally from `./dev run`, command by command, and the
output is compared with the pages. ../package/package.py does the same with the installed package."""
import contextlib
import os
import re
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, ".."), os.path.join(here, "..", "ansible")]
import orrery_lab as lab  # noqa: E402
from first_play import first_play  # noqa: E402
from literally import TREE, Shell, follow, page  # noqa: E402
from orrery_lab import check, equal, run, scratch, wait_until, write_file  # noqa: E402

NODES = "/tmp/orrery-tutorial"


def own_network_and_folder():
    """The lab gets its own network, so that every port is free, and a folder of its own for the tutorial's nodes."""
    for name, package in (("ip", "iproute2"), ("unshare", "util-linux"), ("ssh-keygen", "openssh-client"), ("sshd", "openssh-server"), ("mount", "mount")):
        lab.program(name, package)
    lab.skip_unless(os.geteuid() == 0, "a network namespace needs root")
    if os.environ.get("LAB_INSIDE") != "yes":
        enter = ["unshare", "--net", "--mount", "--propagation", "private"]
        lab.skip_unless(subprocess.run([*enter, "true"], capture_output=True).returncode == 0, "network namespaces cannot be created here")
        os.execvpe("unshare", [*enter, sys.executable, "-B", os.path.abspath(__file__), *sys.argv[1:]], {**os.environ, "LAB_INSIDE": "yes"})
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    os.makedirs(NODES, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", NODES], check=True)


def from_the_source(orrery, ansible):
    home = scratch("home-of-a-developer")
    environment = lab.clean_environment(HOME=home, XDG_CONFIG_HOME=home)
    session = os.path.join(home, "orrery", "session.yaml")
    os.makedirs(os.path.dirname(session))
    mine = "server: https://production.example.org:8421\ntoken: orr_mine\n"
    write_file(session, mine)
    folder = scratch("run")
    out = write_file(os.path.join(scratch(), "dev-run.out"), "")
    with open(out, "wb") as file:
        equal("./dev run", subprocess.run([os.path.join(TREE, "dev"), "run", "--program", orrery, "--folder", folder], cwd=TREE, env=environment, stdout=file,
                                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=60).returncode, 0)
    try:
        export = re.search(r"^  (export PATH=.*)$", page(scratch(), "dev-run.out"), re.M)
        check("./dev run prints the line that puts orrery on the path", export is not None, page(scratch(), "dev-run.out"))
        equal("and does not change the user's own session", page(os.path.dirname(session), "session.yaml"), mine)
        shell = Shell(TREE, environment)
        status, printed = shell(f"{export.group(1)}; env")
        equal("the line can be run", status, 0)
        shell.environment = dict(line.split("=", 1) for line in printed.splitlines() if re.match(r"\w+=", line))
        follow("./dev run", shell, TREE, TREE)
        if ansible:
            first_play("./dev run", shell, os.path.join(folder, "data", "content"))
    finally:
        server = int(page(folder, "pid"))
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, 15)
        wait_until("the server has stopped", lambda: not os.path.exists(f"/proc/{server}") or "\nState:\tZ" in page(f"/proc/{server}", "status"), 20)


def main(given):
    own_network_and_folder()
    from_the_source(given.orrery, given.ansible)


if __name__ == "__main__":
    run(main, lambda parser: parser.add_argument("--ansible", action="store_true", help="also run a playbook (package ansible-core)"))
