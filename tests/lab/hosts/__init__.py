"""Many SSH hosts on one computer: each a network, mount, UTS and PID namespace with a sshd, a host key, a /root, /home, /srv, /tmp and /etc of its own, on a
bridge of their own. Needs root and the packages iproute2 and openssh-server.

    hosts = Hosts(10)
    hosts.enter()                       # this process and its children are now in the network of the hosts, without a route outside
    hosts[0].address, hosts[0].host_key, hosts.key_file
    hosts[0].run("cat", "/srv/file")    # reads a file
    hosts[0].cut(); hosts[0].heal(); hosts[0].crash(); hosts[0].reboot(); hosts[0].freeze(); hosts[0].thaw(); hosts[0].change_key()
    hosts.down()                        # also at exit
"""
import atexit
import contextlib
import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import orrery_lab  # noqa: E402

CLONE_NEWNET = 0x40000000
_turns = itertools.count()  # one process may have several sets of hosts, one after the other


def quiet(*argv, check=True):
    done = subprocess.run(argv, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


class Host:
    def __init__(self, hosts, number, settings, small, own):
        self.hosts, self.number, self.settings, self.small, self.own = hosts, number, settings, small, own
        self.name = f"h{number + 1}"
        self.space = f"{hosts.prefix}{self.name}"
        self.wire = f"v{number}"  # the bridge's end, in the middle's namespace
        self.address = f"10.77.{(number + 10) // 250}.{(number + 10) % 250 + 1}"
        self.folder = os.path.join(hosts.folder, self.name)
        self.shell = None  # the unshare process; its child is the host's first process
        for part in ("root/.ssh", "srv", "tmp", "etc", "etc-work", "vartmp", *own, *(f"{part}-work" for part in own)):
            os.makedirs(os.path.join(self.folder, part), exist_ok=True)
        os.chmod(os.path.join(self.folder, "root"), 0o700)
        os.chmod(os.path.join(self.folder, "root/.ssh"), 0o700)
        for part in ("tmp", "vartmp"):
            os.chmod(os.path.join(self.folder, part), 0o1777)
        shutil.copy(hosts.key_file + ".pub", os.path.join(self.folder, "root/.ssh/authorized_keys"))
        os.chmod(os.path.join(self.folder, "root/.ssh/authorized_keys"), 0o600)
        self.make_key()

    def make_key(self):
        path = os.path.join(self.folder, "hostkey")
        for old in (path, path + ".pub"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(old)
        quiet("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", path)

    @property
    def host_key(self):
        with open(os.path.join(self.folder, "hostkey.pub")) as file:
            return " ".join(file.read().split()[:2])

    def wire_up(self):
        quiet("ip", "netns", "add", self.space)
        quiet("ip", "link", "add", self.wire, "netns", self.hosts.middle, "type", "veth", "peer", "name", "eth0", "netns", self.space)
        quiet("ip", "-n", self.hosts.middle, "link", "set", self.wire, "master", "br0", "up")
        quiet("ip", "-n", self.space, "addr", "add", f"{self.address}/16", "dev", "eth0")
        quiet("ip", "-n", self.space, "link", "set", "eth0", "up")
        quiet("ip", "-n", self.space, "link", "set", "lo", "up")

    def start(self):
        d = self.folder
        config = ["Port 22", f"ListenAddress {self.address}", "HostKey /run/hostkey", "PidFile none", "UsePAM no", "UseDNS no", "StrictModes no",
                  "PermitRootLogin prohibit-password", "PasswordAuthentication no", "Subsystem sftp internal-sftp", *self.settings]
        orrery_lab.write_file(os.path.join(d, "sshd_config"), "\n".join(config) + "\n")
        orrery_lab.write_file(os.path.join(d, "boot_id"), str(uuid.uuid4()) + "\n", 0o644)
        root = f"mount -t tmpfs -o size={self.small},mode=0700 small /root; cp -a {d}/root/.ssh /root/" if self.small else f"mount --bind {d}/root /root"
        own = "\n".join(f"mount -t overlay overlay -o lowerdir=/{part},upperdir={d}/{part},workdir={d}/{part}-work /{part}" for part in self.own)
        # Files below /tmp are copied before the host's own /tmp covers it.
        orrery_lab.write_file(os.path.join(d, "start.sh"), f"""
hostname {self.name}
mount --make-rprivate /
mount --bind {d}/boot_id /proc/sys/kernel/random/boot_id
mount -t overlay overlay -o lowerdir=/etc,upperdir={d}/etc,workdir={d}/etc-work /etc
{own}
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /home
mount -t tmpfs tmpfs /var/mail
mkdir -p /run/sshd; cp {d}/sshd_config {d}/hostkey /run/; chmod 600 /run/hostkey
{root}
mount --bind {d}/srv /srv
mount --bind {d}/vartmp /var/tmp
mount --bind {d}/tmp /tmp
cd /
/usr/sbin/sshd -D -e -f /run/sshd_config & echo $! >/run/sshd.pid
while :; do sleep 3600 & wait $!; done
""")
        with open(os.path.join(d, "log"), "ab") as log:
            self.shell = subprocess.Popen(["ip", "netns", "exec", self.space, "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc",
                                           "--propagation", "private", "bash", os.path.join(d, "start.sh")],
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                          env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"})
        return self

    def first_process(self):
        return int(quiet("pgrep", "-P", str(self.shell.pid)).split()[0])

    def inside(self, *argv):
        """The command line that runs a program inside."""
        return ["nsenter", "-t", str(self.first_process()), "-m", "-u", "-p", "-n", *argv]

    def run(self, *argv, check=True, input=None):
        done = subprocess.run(self.inside(*argv), capture_output=True, text=True, input=input)
        if check and done.returncode != 0:
            raise RuntimeError(f"{self.name}: {' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def processes(self):
        """Command lines of all processes inside."""
        return self.run("sh", "-c", "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null").splitlines()

    # --- faults

    def cut(self):
        """Drops packets; open sessions hang."""
        quiet("ip", "-n", self.hosts.middle, "link", "set", self.wire, "down")

    def heal(self):
        quiet("ip", "-n", self.hosts.middle, "link", "set", self.wire, "up")

    def crash(self):
        """Kills all of its processes at once; they have ended when this returns."""
        with contextlib.suppress(Exception):
            os.kill(self.first_process(), signal.SIGKILL)
            self.shell.wait(10)  # ends when the last of them has
        self.shell.kill()
        self.shell.wait()

    def reboot(self):
        """Crashes and starts with a new boot id."""
        self.crash()
        self.start()
        self.hosts.wait_for(self)

    def sshd(self):
        return int(self.run("cat", "/run/sshd.pid"))

    def freeze(self):
        """sshd accepts and then stays silent."""
        self.run("kill", "-STOP", str(self.sshd()))

    def thaw(self):
        self.run("kill", "-CONT", str(self.sshd()))

    def change_key(self):
        self.make_key()
        self.reboot()

    def remove(self):
        if self.shell:
            self.crash()
        quiet("ip", "netns", "del", self.space, check=False)


class Hosts:
    def __init__(self, count, settings=("MaxSessions 64", "MaxStartups 100:30:200"), each=None, small=None, own=()):
        """`settings`: lines of sshd_config; `each(number)`: further ones of one host; `small(number)`: size of its /root, as in "1m", or None;
        `own`: further folders ("usr", "var") that a host can change without an effect outside."""
        orrery_lab.skip_unless(os.geteuid() == 0, "network namespaces need root")
        for name, package in (("ip", "iproute2"), ("sshd", "openssh-server"), ("ssh-keygen", "openssh-client"), ("unshare", "util-linux"), ("pgrep", "procps")):
            orrery_lab.program(name, package)
        turn = next(_turns)
        self.prefix = f"orr{os.getpid()}{'' if turn == 0 else chr(96 + turn)}"
        self.middle = self.prefix + "m"
        self.folder = orrery_lab.scratch(f"hosts{turn or ''}")
        self.key_file = os.path.join(self.folder, "id")
        quiet("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", self.key_file)
        self.all = []
        atexit.register(self.down)
        if subprocess.run(["ip", "netns", "add", self.middle], capture_output=True).returncode != 0:
            raise orrery_lab.Skip("this machine does not let us make network namespaces")
        quiet("ip", "-n", self.middle, "link", "set", "lo", "up")
        quiet("ip", "-n", self.middle, "link", "add", "br0", "type", "bridge")
        quiet("ip", "-n", self.middle, "addr", "add", "10.77.255.1/16", "dev", "br0")
        quiet("ip", "-n", self.middle, "link", "set", "br0", "up")
        self.all = [Host(self, number, [*settings, *(each(number) if each else [])], small(number) if small else None, own) for number in range(count)]
        for host in self.all:
            host.wire_up()
            host.start()
        for host in self.all:
            self.wait_for(host)

    def wait_for(self, host, seconds=30):
        end = time.monotonic() + seconds
        attempt = ["ip", "netns", "exec", self.middle, "bash", "-c", f"exec 3<>/dev/tcp/{host.address}/22"]
        while subprocess.run(attempt, capture_output=True).returncode != 0:
            if host.shell.poll() is not None or time.monotonic() > end:
                with open(os.path.join(host.folder, "log"), errors="replace") as log:
                    raise RuntimeError(f"{host.name} did not come up: {log.read()[-1000:]}")
            time.sleep(0.02)

    def __getitem__(self, number):
        return self.all[number]

    def __len__(self):
        return len(self.all)

    def __iter__(self):
        return iter(self.all)

    def enter(self):
        """Moves this process and its later children into the network of the hosts."""
        with open(f"/var/run/netns/{self.middle}") as space:
            if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def private_key(self):
        with open(self.key_file) as file:
            return file.read()

    def node(self, host, **ssh):
        """A Node resource; its key is the Secret "lab-key"."""
        return {"kind": "Node", "name": host.name, "labels": {"lab": "hosts"},
                "spec": {"address": host.address, "ssh": {"user": "root", "key": "lab-key", "host_key": host.host_key, **ssh}}}

    def inventory(self):
        """An Ansible inventory's path, for the peer in benches."""
        known = orrery_lab.write_file(os.path.join(self.folder, "known_hosts"), "".join(f"{host.address} {host.host_key}\n" for host in self.all))
        lines = ["[lab]", *(f"{host.name} ansible_host={host.address}" for host in self.all), "[lab:vars]", "ansible_user=root",
                 f"ansible_ssh_private_key_file={self.key_file}", "ansible_python_interpreter=/usr/bin/python3",
                 f"ansible_ssh_common_args=-o UserKnownHostsFile={known}"]
        return orrery_lab.write_file(os.path.join(self.folder, "inventory"), "\n".join(lines) + "\n")

    def down(self):
        for host in self.all:
            host.remove()
        self.all = []
        quiet("ip", "netns", "del", self.middle, check=False)
