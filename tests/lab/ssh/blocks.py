#!/usr/bin/python3 -B
"""The blocks `package` and `service` with the real programs: apt and dpkg on a host whose /usr and /var are its own, with a repository of packages made here, and
services of SysV init with start-stop-daemon and update-rc.d. (systemd, OpenRC, dnf, yum, zypper and apk are not run here: they need another distribution.)"""
import hashlib
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import orrery_lab  # noqa: E402
from executors import Driver, add_options, nodes_of  # noqa: E402
from hosts import Hosts  # noqa: E402
from orrery_lab import check, contains, equal, write_file  # noqa: E402

INIT = """#!/bin/sh
### BEGIN INIT INFO
# Provides:          %(name)s
# Required-Start:    $remote_fs
# Required-Stop:     $remote_fs
# Default-Start:     2 3 4 5
# Default-Stop:      0 1 6
# Short-Description: a service of the lab
### END INIT INFO
pid=/run/%(name)s.pid
case $1 in
start) echo "starting %(name)s"; %(start)s ;;
stop) start-stop-daemon --stop --oknodo --retry 5 --pidfile $pid; rm -f $pid ;;
restart) $0 stop; $0 start ;;
reload) echo "$(date +%%s%%N)" >>/srv/%(name)s.reloads; %(reload)s ;;
status) start-stop-daemon --status --pidfile $pid ;;
*) exit 2 ;;
esac
"""
WELL = "start-stop-daemon --start --background --make-pidfile --pidfile $pid --exec /bin/sleep -- 86400"
RUDE = "/bin/sleep 86400 & echo $! >$pid"  # keeps its caller's standard output open, as many do


def package(folder, name, version, depends="", broken=False):
    """A .deb, and its paragraph for the repository's list."""
    root = os.path.join(folder, f"{name}-{version}")
    os.makedirs(os.path.join(root, "DEBIAN"))
    os.makedirs(os.path.join(root, "usr/share/lab"))
    write_file(os.path.join(root, f"usr/share/lab/{name}"), version + "\n", 0o644)
    control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: lab <lab@example.org>\nDescription: of the lab\n" + (f"Depends: {depends}\n" if depends else "")
    write_file(os.path.join(root, "DEBIAN/control"), control, 0o644)
    if broken:
        write_file(os.path.join(root, "DEBIAN/postinst"), "#!/bin/sh\necho this postinst fails; exit 1\n", 0o755)
    os.chmod(root, 0o755)
    file = os.path.join(folder, f"{name}_{version}_all.deb")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", root, file], check=True, capture_output=True)
    with open(file, "rb") as data:
        whole = data.read()
    return control + f"Filename: ./{os.path.basename(file)}\nSize: {len(whole)}\nSHA256: {hashlib.sha256(whole).hexdigest()}\n\n"


def packages(host, driver):
    repository = os.path.join(host.folder, "srv", "repository")
    os.makedirs(repository)
    first = package(repository, "lab-tool", "1.0", "lab-base") + package(repository, "lab-base", "1.0") + package(repository, "lab-bad", "1.0", broken=True)
    write_file(os.path.join(repository, "Packages"), first, 0o644)
    host.run("sh", "-c", "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d /var/lib/apt/lists/*; echo 'deb [trusted=yes] file:/srv/repository ./' >/etc/apt/sources.list")
    version = lambda name: host.run("dpkg-query", "-W", "-f=${db:Status-Status} ${Version}", name, check=False)  # noqa: E731

    def ask(block, op="start"):
        return driver.ask(op, "ssh", "h1", {"blocks": [{"package": block}]}, timeout=120)

    both = {"names": ["lab-tool", "bash"]}
    preview = ask(both, "plan").wait()
    equal("a plan names the absent package", [(d["before"], d["after"]) for d in preview["differences"]], [("absent: lab-tool", "present")])
    equal("and installs nothing", version("lab-tool"), "")
    call = ask(both)
    outcome = call.outcome()
    check("a missing package is installed by apt, after an update of its lists", outcome["change"] == "changed" and version("lab-tool") == "installed 1.0", (outcome, call.text()))
    equal("with its dependencies", version("lab-base"), "installed 1.0")
    contains("the output of apt is in the log", call.text(), "| ", "Setting up lab-tool", "= 1 changed package lab-tool bash: installed lab-tool")
    equal("the second run changes nothing", ask(both).outcome()["change"], "unchanged")
    equal("state latest with the newest version installed", ask({"name": "lab-tool", "state": "latest"}).outcome()["change"], "unchanged")
    write_file(os.path.join(repository, "Packages"), first + package(repository, "lab-tool", "1.1", "lab-base"), 0o644)
    host.run("apt-get", "update", "-q")
    outcome = ask({"name": "lab-tool", "state": "latest"}).outcome()
    check("and with a newer version available", outcome["change"] == "changed" and version("lab-tool") == "installed 1.1", (outcome, version("lab-tool")))
    outcome = ask({"name": "lab-nowhere"}).outcome()
    check("a package that does not exist fails, by name", outcome["error"] == "failed" and "lab-nowhere" in outcome["message"], outcome)
    call = ask({"name": "lab-bad"})
    outcome = call.outcome()
    check("so does a package whose installation fails, with the reason in the log", outcome["error"] == "failed" and "this postinst fails" in call.text(), (outcome, call.text()))
    host.run("sh", "-c", "dpkg --purge lab-bad")
    outcome = ask({"names": ["lab-base", "lab-tool"], "state": "absent"}).outcome()
    check("a package with state absent is removed", outcome["change"] == "changed" and not version("lab-base").startswith("installed"), (outcome, version("lab-base")))
    equal("once", ask({"names": ["lab-base", "lab-tool"], "state": "absent"}).outcome()["change"], "unchanged")
    # Another process holds the lock of dpkg for a moment: the block waits for it.
    holder = subprocess.Popen(host.inside("python3", "-c", "import fcntl,time; f=open('/var/lib/dpkg/lock-frontend','w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); time.sleep(2)"),
                              stdout=subprocess.PIPE)
    holder.stdout.readline()
    outcome = ask({"name": "lab-base"}).outcome()
    holder.wait()
    check("the block waits for dpkg's lock", outcome["change"] == "changed" and version("lab-base") == "installed 1.0", outcome)


def services(host, driver):
    for name, start, reload in (("well", WELL, "true"), ("rude", RUDE, "false")):
        host.run("sh", "-c", f"cat >/etc/init.d/{name}; chmod 755 /etc/init.d/{name}", input=INIT % {"name": name, "start": start, "reload": reload})

    def ask(op="start", **service):
        return driver.ask(op, "ssh", "h1", {"blocks": [{"service": service}]}, timeout=20)

    pid = lambda name: host.run("sh", "-c", f"p=$(cat /run/{name}.pid 2>/dev/null) && kill -0 $p && echo $p || true").strip()  # noqa: E731
    for name in ("well", "rude"):
        preview = ask("plan", name=name, state="running", enabled=True).wait()
        equal(f"{name}: a plan reports the change", preview.get("change"), "changed")
        equal(f"{name}: and starts nothing", pid(name), "")
        begun = time.monotonic()
        call = ask(name=name, state="running", enabled=True)
        outcome = call.outcome()
        check(f"{name}: it is started and enabled", outcome["change"] == "changed" and pid(name) != "", (outcome, call.text()))
        contains(f"{name}: with a message", call.text(), f"= 1 changed service {name}: enabled, started")
        check(f"{name}: without waiting for the end of the service", time.monotonic() - begun < 10)
        check(f"{name}: the links of the runlevels are there", "/etc/rc3.d/S" in host.run("sh", "-c", f"echo /etc/rc3.d/S??{name}").replace("??", ""))
        equal(f"{name}: the second run changes nothing", ask(name=name, state="running", enabled=True).outcome()["change"], "unchanged")
        before = pid(name)
        equal(f"{name}: a restart", ask(name=name, state="restarted").outcome()["change"], "changed")
        check(f"{name}: the process changed", pid(name) not in ("", before))
    equal("a reload", ask(name="well", state="reloaded").outcome()["change"], "changed")
    equal("reached the service", len(host.run("cat", "/srv/well.reloads").splitlines()), 1)
    outcome = ask(name="rude", state="reloaded").outcome()
    check("a service without reload fails", outcome["error"] == "failed" and "service rude" in outcome["message"], outcome)
    for name in ("well", "rude"):
        equal(f"{name}: it is stopped and disabled", ask(name=name, state="stopped", enabled=False).outcome()["change"], "changed")
        equal(f"{name}: its process has ended", pid(name), "")
        equal(f"{name}: once", ask(name=name, state="stopped", enabled=False).outcome()["change"], "unchanged")
    outcome = ask(name="nobody", state="running").outcome()
    check("a missing service fails, by name", outcome["error"] == "failed" and "nobody" in outcome["message"], outcome)


def background(host, driver):
    begun = time.monotonic()
    call = driver.start("ssh", "h1", {"blocks": [{"command": {"argv": ["sh", "-c", "echo begun; sleep 600 & printf 'no end of line'"]}}, {"file": {"path": "/srv/after", "content": "x"}}]}, timeout=30)
    outcome = call.outcome(20)
    check("a command that leaves a background process ends with itself", outcome["change"] == "changed" and time.monotonic() - begun < 10, (outcome, call.text()))
    equal("and its last output does not swallow the next line", [line for line in call.text().splitlines()], ["| begun", "| no end of line", "= 1 changed command sh: ran", "= 2 changed file /srv/after: created"])
    contains("the background process continues", "\n".join(host.processes()), "sleep 600")


def main(options):
    orrery_lab.program("dpkg-deb", "dpkg")
    orrery_lab.program("update-rc.d", "init-system-helpers")
    hosts = Hosts(1, own=("usr", "var"))
    hosts.enter()
    driver = Driver(os.path.abspath(options.driver), nodes_of(hosts), hosts.key_file)
    background(hosts[0], driver)
    packages(hosts[0], driver)
    services(hosts[0], driver)
    driver.finish()


if __name__ == "__main__":
    orrery_lab.run(main, add_options)
