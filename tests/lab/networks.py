"""Network namespaces, each with a veth pair to the lab's namespace, and checkers that probe from them."""
import os
import subprocess
import sys

import orrery_lab as lab


def ip(*arguments, inside=None):
    enter = ["nsenter", "--net", "--target", str(inside)] if inside else []
    done = subprocess.run([*enter, "ip", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise lab.Failed(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def own_network(script):
    """Runs the lab in its own network namespace, without routes to the outside: returns inside of it."""
    for name, package in (("ip", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")):
        lab.program(name, package)
    lab.skip_unless(os.geteuid() == 0, "network namespaces need root")
    if os.environ.get("LAB_INSIDE") != "yes":
        lab.skip_unless(subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0, "network namespaces cannot be created on this host")
        os.execvpe("unshare", ["unshare", "--net", sys.executable, "-B", os.path.abspath(script), *sys.argv[1:]], {**os.environ, "LAB_INSIDE": "yes"})
    ip("link", "set", "lo", "up")


class Network:
    """A network namespace with the address 198.19.NUMBER.2; its default route is the lab's end of the veth pair."""

    def __init__(self, name, number):
        self.name, self.address, self.dead_end = name, f"198.19.{number}.2", f"198.19.{number}.99"
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "1000"])
        lab.wait_until(f"{name} has its own network namespace", lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != os.readlink("/proc/self/ns/net"), 10, 0.01)
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        ip("addr", "add", f"198.19.{number}.1/24", "dev", name)
        ip("link", "set", name, "up")
        for arguments in (["link", "set", "lo", "up"], ["addr", "add", f"{self.address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"],
                      ["route", "add", "default", "via", f"198.19.{number}.1"]):
            ip(*arguments, inside=self.holder.pid)

    def within(self, command):
        return ["nsenter", "--net", "--target", str(self.holder.pid), *command]

    def cut(self, to):
        """Drops packets to these addresses; other routes stay."""
        ip("route", "add", to, "via", self.dead_end, inside=self.holder.pid)

    def restore(self, to):
        ip("route", "del", to, inside=self.holder.pid)

    def end(self):
        self.holder.kill()


class Checker(Network):
    """`orrery checker` in its own network namespace."""

    def __init__(self, orrery, name, number, url, token_file, *arguments):
        super().__init__(name, number)
        self.process = lab.Process(name, self.within([orrery, "checker", "--join", url, "--allow-plaintext", "--token-file", token_file, "--name", name, *arguments]))

    def end(self):
        self.process.kill()
        super().end()


def vantages(api):
    return {one["name"]: one for one in api.get("/v1/health/vantages")["items"]}
