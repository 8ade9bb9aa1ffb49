#!/usr/bin/python3
"""The disk fills up: writes fail with 507 and give the reason, reads continue, /readyz reports it, and all recovers when there is room again."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Cli, Problem, Process, Server, check, contains, equal, log, node, run, scratch, skip_unless, wait_until  # noqa: E402


def fill(folder, leave):
    """Fills the disk except for a number of bytes."""
    path = os.path.join(folder, "ballast")
    with open(path, "ab") as file:
        while True:
            free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize - leave
            if free <= 0:
                return path
            try:
                file.write(b"\0" * min(free, 1 << 20))
                file.flush()
            except OSError:
                return path


def write_until_full(api, kept, most=20000):
    for i in range(most):
        name = f"n-{len(kept)}"
        try:
            api.put(f"/v1/nodes/{name}", node(name, {f"label-{k}": "x" * 200 for k in range(20)}))
            kept.append(name)
        except Problem as problem:
            return problem
    return None


def apply_stops(given, server):
    """The command line does not try every document of a file when the store is full."""
    documents = "\n---\n".join(f"{{kind: Node, name: bulk-{i}, labels: {{text: {'x' * 200}}}, spec: {{address: 192.0.2.1}}}}" for i in range(1000))
    ran = Cli(given.orrery, server, ORRERY_TOKEN=server.token())("apply", "-f", "-", stdin=documents)  # no login: it would write to the store
    equal("apply ends with the exit code for an unavailable store", ran.status, 6)
    contains("and reports how many documents it did not try", ran.err, "not tried")
    check("after the first document that the store has no space for", len(ran.err.splitlines()) < 10, ran.err[-1500:])
    return [line.split()[0].removeprefix("node/") for line in ran.out.splitlines() if line.endswith(" created")]


def main(given):
    skip_unless(os.geteuid() == 0, "a small disk can be mounted by root only")
    disk = scratch("disk")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "orrery-lab", disk], capture_output=True, text=True)
    skip_unless(mounted.returncode == 0, f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        on_small_disk(given, disk)
    finally:
        for process in list(Process.running):
            process.kill()
        subprocess.run(["umount", disk], check=False)


def on_small_disk(given, disk):
    server = Server(given.orrery, folder=os.path.join(disk, "data"))
    server.start()
    api = server.api()
    kept = []
    for i in range(50):
        api.put(f"/v1/nodes/n-{i}", node(f"n-{i}", {"before": "yes"}))
        kept.append(f"n-{i}")
    for turn in (1, 2):
        log(f"turn {turn}: the disk fills up")
        ballast = fill(disk, 200 * 1024)
        problem = write_until_full(api, kept)
        check("writes begin to fail", problem is not None)
        equal("with 507", (problem.status, problem.code), (507, "no_space"))
        check("a sentence that names the reason", any(word in problem.detail.lower() for word in ("space", "full", "room")), problem.detail)
        check("and a remedy", bool(problem.remedy), str(problem.document))
        log(f"      {problem.detail} ({problem.remedy})")
        api.refused("the next write", 507, "PUT", "/v1/nodes/other", node("other", {f"label-{k}": "x" * 200 for k in range(20)}))
        kept += apply_stops(given, server)
        equal("reads continue", {item["name"] for item in api.all("nodes")}, set(kept))
        equal("a refused write is not stored", api.refused("reading it", 404, "GET", "/v1/nodes/other").status, 404)
        status, text = server.probe("/readyz")
        equal("/readyz is not ready", status, 503)
        check("and gives the reason", any(word in text.lower() for word in ("space", "full", "room")), text)
        equal("/healthz is good", server.probe("/healthz")[0], 200)
        os.unlink(ballast)

        def writes_again():
            try:
                api.put("/v1/nodes/again", node("again", {"turn": str(turn)}))
                return True
            except Problem as refused:
                if refused.status != 507:
                    raise
                return False
        wait_until("writes work again once there is room", writes_again, 15, 0.2)
        check("writes work again once there is room", True)
        kept += [] if "again" in kept else ["again"]
        wait_until("/readyz is ready again", lambda: server.probe("/readyz")[0] == 200, 15)
        check("/readyz is ready again", True)

    log("a server that is killed while the disk is full, and started")
    fill(disk, 100 * 1024)
    write_until_full(api, kept)
    server.kill()
    os.unlink(os.path.join(disk, "ballast"))
    server.start()
    equal("everything acknowledged is there", {item["name"] for item in server.api().all("nodes")}, set(kept))
    equal("it stops on SIGTERM", server.stop(), 0)
    verified = Cli(given.orrery)("store", "verify", os.path.join(server.folder, "store.db"))
    check("the file verifies", verified.status == 0, str(verified))
    contains("and prints its revision", verified.out, "revision")


if __name__ == "__main__":
    run(main)
