#!/usr/bin/python3
"""Programs of checks run as another account: they cannot read the store, the key of the secrets or a checker's token, gain no privileges and inherit nothing.
If the server may not change the account, they do not run, unless the configuration names the server's own account. Needs root, to start servers as other users."""
import os
import pwd
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
import orrery_lab as lab  # noqa: E402
from networks import own_network  # noqa: E402

PROBE = """#!/bin/sh
{
  echo "uid=$(id -u) groups=$(id -G) cwd=$(pwd)"
  grep -E '^(NoNewPrivs|CapEff|CapPrm|CapInh|CapAmb):' /proc/self/status
  echo "descriptors=$(ls /proc/self/fd | tr '\\n' ' ')"
  echo "environment=$(env | cut -d= -f1 | sort | tr '\\n' ' ')"
  for file in "$@"; do cat "$file" >/dev/null && echo "read $file"; done
} >OUT.new 2>&1
mv OUT.new OUT
echo OK
"""


class Site:
    def __init__(self, orrery, name, arguments=(), prefix=()):
        os.chmod(lab.scratch(), 0o755)
        self.folder = lab.scratch(f"programs-{name}")
        os.chmod(self.folder, 0o777)  # the program writes what it saw here
        self.out = os.path.join(self.folder, "out")
        self.program = lab.write_file(os.path.join(self.folder, "probe"), PROBE.replace("OUT", self.out), 0o755)
        self.server = lab.Server(orrery, name, arguments=["--health-programs", f"probe={self.program}", *arguments])
        self.orrery = orrery
        command = self.server.command
        self.server.command = lambda: [*prefix, *command()]

    def run(self, *files):
        self.server.start()
        self.api = self.server.api()
        folder = self.server.folder
        self.secrets = [os.path.join(folder, "secrets.key"), os.path.join(folder, "store.db"), *files]
        for file in self.secrets:
            lab.check(f"there is {os.path.basename(file)}", os.path.exists(file), os.listdir(folder))
        self.api.put("/v1/monitors/probe", {"spec": {"kind": "plugin", "command": ["probe", *self.secrets], "interval": "1s", "rise": 1, "fall": 1}})
        self.api.put("/v1/pools/p", {"spec": {"monitors": ["probe"]}})
        self.api.put("/v1/members/m", {"spec": {"pool": "p", "addresses": ["192.0.2.1"]}})
        self.api.put("/v1/loadbalancers/p", {"spec": {"fqdn": "p.names.example", "pools": [{"pool": "p"}]}})
        return self

    def saw(self):
        lab.wait_until("the program has run", lambda: os.path.exists(self.out), 10)
        with open(self.out) as file:
            return file.read()

    def status(self):
        return self.api.get("/v1/members/m").get("status", {})


def without_privileges(what, text, uid, secrets):
    lab.contains(f"{what}: the account, no other group, the folder", text, f"uid={uid} groups={pwd.getpwuid(uid).pw_gid} cwd=/\n")
    lab.contains(f"{what}: no new privileges, no capability", text, "NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000")
    lab.contains(f"{what}: only standard streams, and the one that ls opens", text, "descriptors=0 1 2 3 \n")
    lab.contains(f"{what}: a minimal environment", text, "environment=LC_ALL PATH PWD ")
    for file in secrets:
        lab.contains(f"{what}: {os.path.basename(file)} cannot be read", text, f"{file}: Permission denied")
    lab.check(f"{what}: nothing was read", "read /" not in text, text)


def as_root(orrery):
    nobody = pwd.getpwnam("nobody").pw_uid
    site = Site(orrery, "root").run()
    without_privileges("server as root", site.saw(), nobody, site.secrets)
    lab.wait_until("its result counts", lambda: site.status().get("state") == "up", 10)
    token = lab.write_file(os.path.join(lab.scratch(), "checker.token"), site.server.token() + "\n")
    folder = site.folder
    os.remove(site.out)
    site.api.put("/v1/monitors/probe", {"spec": {"kind": "plugin", "command": ["from-afar", *site.secrets, token], "interval": "1s", "rise": 1, "fall": 1}})
    checker = lab.Process("afar", [orrery, "checker", "--join", site.server.url, "--token-file", token, "--name", "afar", "--program", f"from-afar={site.program}"])
    without_privileges("checker as root", site.saw(), nobody, [*site.secrets, token])
    checker.stop()
    # A program that does not end in time is killed, although it runs as another user.
    slow = lab.write_file(os.path.join(folder, "slow"), f"#!/bin/sh\necho $$ >{folder}/slow.pid\nsleep 600\n", 0o755)
    site.server.stop()
    site.server.arguments[1] = f"probe={site.program};slow={slow}"
    site.server.start()
    site.api = site.server.api()
    site.api.put("/v1/monitors/probe", {"spec": {"kind": "plugin", "command": ["slow"], "interval": "2s", "timeout": "1s", "rise": 1, "fall": 1}})
    lab.wait_until("a slow program has started", lambda: os.path.exists(f"{folder}/slow.pid") and open(f"{folder}/slow.pid").read().strip(), 10)
    pid = int(open(f"{folder}/slow.pid").read())
    lab.wait_until("and is ended at its deadline", lambda: not os.path.exists(f"/proc/{pid}") or "\nState:\tZ" in open(f"/proc/{pid}/status").read(), 10)
    site.server.stop()
    site.server.arguments += ["--health-programs-user", "root"]
    site.server.start()
    site.api = site.server.api()
    lab.wait_until("root is refused as the account of programs", lambda: "never run as root" in site.status().get("unchecked", ""), 10)
    site.server.stop()


def as_service_account(orrery):
    """Like the systemd unit: the server does not run as root."""
    daemon = pwd.getpwnam("daemon")
    nobody = pwd.getpwnam("nobody").pw_uid

    def site(name, *arguments, capabilities=""):
        prefix = ["setpriv", f"--reuid={daemon.pw_uid}", f"--regid={daemon.pw_gid}", "--clear-groups"]
        prefix += ["--inh-caps=-all" + capabilities, "--ambient-caps=-all" + capabilities] if capabilities else ["--inh-caps=-all"]
        made = Site(orrery, name, arguments, prefix)
        for path in (made.server.folder, made.server.password_file):
            os.chown(path, daemon.pw_uid, daemon.pw_gid)
        return made

    plain = site("plain").run()
    status = lab.wait_until("without the right to change the account nothing runs", lambda: (lambda s: s if "unchecked" in s else None)(plain.status()), 10)
    lab.contains("and the member gives the reason", status["unchecked"], "may not start programs as nobody", "health.programs_user")
    lab.equal("neither up nor down", status["state"], "unknown")
    time.sleep(2)
    lab.check("the program did not run", not os.path.exists(plain.out))
    lab.contains("the log reports it at the start", plain.server.log_text(), "health.programs disabled")
    plain.server.stop()

    own = site("own", "--health-programs-user", "daemon").run()
    text = own.saw()
    lab.contains("the server's own account runs them if the configuration names it", text, f"uid={daemon.pw_uid} ", "NoNewPrivs:\t1", "read ")
    lab.contains("with a warning", own.server.log_text(), "the account of this server")
    own.server.stop()

    able = site("able", capabilities=",+setuid,+setgid,+kill").run()
    without_privileges("unit with capabilities", able.saw(), nobody, able.secrets)
    able.server.stop()


def main(options):
    own_network(__file__)
    lab.skip_unless(os.geteuid() == 0, "only root can start servers as other accounts")
    lab.program("setpriv", "util-linux")
    os.chmod(lab.scratch(), 0o755)
    as_root(options.orrery)
    as_service_account(options.orrery)


if __name__ == "__main__":
    lab.run(main)
