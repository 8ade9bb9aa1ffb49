"""The programs of this suite: the DNS server alone, and a validating resolver."""
import os
import re
import subprocess

import orrery_lab as lab
from wire import ORIGIN


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    return path


class Ours:
    def __init__(self, build, zone, key=None):
        path = write(os.path.join(lab.scratch("ours"), "zone"), zone)
        self.child = subprocess.Popen([os.path.join(build, "tests", "conformance", "dns_serve"), "0", ORIGIN, path] + ([key] if key else []),
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.child.stdout.readline()
        if not line:
            raise lab.Failed("the DNS server did not start")
        self.port = int(line)

    def command(self, what):
        self.child.stdin.write(what + "\n")
        self.child.stdin.flush()
        return self.child.stdout.readline().strip()

    def ds(self):
        return self.command("ds")

    def queries(self):
        return int(self.command("queries"))

    def stop(self):
        self.child.stdin.close()
        self.child.wait(10)


def ds_text(data):
    """A DS record's data in hex, as zone files have it."""
    return f"{int(data[:4], 16)} {int(data[4:6], 16)} {int(data[6:8], 16)} {data[8:]}"


class Resolver:
    """unbound, which queries one server for each zone and validates with the zone's DS. Names in any case (0x20), networks of clients."""

    def __init__(self, folder, name, zones):
        self.port = lab.free_port()
        anchors = write(f"{folder}/{name}.anchors", "".join(f"{zone}. IN DS {ds}\n" for zone, (ds, _) in zones.items()))
        write(f"{folder}/{name}.conf", f"""server:
 interface: 127.0.0.1@{self.port}
 do-daemonize: no
 username: ""
 chroot: ""
 directory: "{folder}"
 pidfile: "{folder}/{name}.run"
 do-not-query-localhost: no
 use-syslog: no
 trust-anchor-file: "{anchors}"
 local-zone: "test." nodefault
 val-log-level: 2
 qname-minimisation: no
 use-caps-for-id: yes
 module-config: "subnetcache validator iterator"
 send-client-subnet: 127.0.0.0/8
 client-subnet-always-forward: yes
remote-control:
 control-enable: no
""" + "".join(f"stub-zone:\n name: {zone}\n stub-addr: 127.0.0.1@{port}\n" for zone, (_, port) in zones.items()))
        self.process = lab.Process(name, ["/usr/sbin/unbound", "-d", "-c", f"{folder}/{name}.conf"])
        lab.wait_until(f"{name} answers", lambda: self.resolve(next(iter(zones)), "SOA") != "?", 20)

    def resolve(self, of, qtype="A", *more):
        """Code and whether it is validated; with options of dig its whole output."""
        done = subprocess.run(["dig", "@127.0.0.1", "-p", str(self.port), of, qtype, "+dnssec", "+tries=1", "+time=5", *more], capture_output=True, text=True, timeout=20).stdout
        if more:
            return done
        status = re.search(r"status: (\w+)", done)
        flags = re.search(r"flags: ([^;]*)", done)
        return (status[1] if status else "?") + (" ad" if flags and "ad" in flags[1].split() else "")
