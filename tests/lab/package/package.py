#!/usr/bin/python3 -B
"""The life of the Debian package with the real dpkg and debconf: install as the README describes, start the server from the installed files, follow README
and tutorial literally with them, remove, purge with each answer, and upgrade from the package of an earlier version with its configuration and its store. All of it
happens in a copy-on-write layer over the root of this host, in its own namespaces: nothing is installed on the host."""
import glob
import gzip
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, ".."), os.path.join(here, "..", "docs"), os.path.join(here, "..", "ansible")]
import orrery_lab as lab  # noqa: E402
from first_play import first_play  # noqa: E402
from hardening import check_hardening  # noqa: E402
from literally import TREE, Shell, follow, page  # noqa: E402
from orrery_lab import Failed, check, contains, equal, run, scratch, wait_until, write_file  # noqa: E402

DATA = "/var/lib/orrery"
DOCUMENTS = "/usr/share/doc/orrery"
PASSWORD = "a-password-of-my-own"
WANTED = "/etc/systemd/system/multi-user.target.wants/orrery.service"
EARLIER = os.path.join(here, "earlier")
RECORDED = os.path.join(TREE, "tests", "lab", "server", "recorded_store")


def own_namespaces():
    for name, package in (("unshare", "util-linux"), ("setpriv", "util-linux"), ("ip", "iproute2"), ("dig", "bind9-dnsutils"), ("dh", "debhelper"), ("mount", "mount"),
                          ("sshd", "openssh-server"), ("ssh-keygen", "openssh-client")):
        lab.program(name, package)
    lab.skip_unless(os.geteuid() == 0, "a chroot needs root")
    if os.environ.get("LAB_INSIDE") != "yes":
        enter = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
        lab.skip_unless(subprocess.run([*enter, "true"], capture_output=True).returncode == 0, "namespaces cannot be created here")
        os.execvpe("unshare", [*enter, sys.executable, "-B", os.path.abspath(__file__), *sys.argv[1:]], {**os.environ, "LAB_INSIDE": "yes"})
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def mount(*arguments):
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    lab.skip_unless(done.returncode == 0, f"mount {' '.join(arguments)}: {done.stderr.strip()}")


class Root:
    """A root file system that begins as a copy of this host's and keeps its changes in memory. It has its own devices, and no folder of the host is
    mounted into it writable. It is not in the scratch folder, which is removed with all that it contains: `close` unmounts it."""

    DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}

    def __init__(self):
        self.layers = tempfile.mkdtemp(prefix="orrery-package-")
        mount("-t", "tmpfs", "tmpfs", self.layers)
        for name in ("upper", "work", "root"):
            os.mkdir(os.path.join(self.layers, name))
        self.path = os.path.join(self.layers, "root")
        mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={self.layers}/upper,workdir={self.layers}/work", self.path)
        # The host's /run is not mounted, so its systemd cannot be reached: no script of the package starts or stops anything.
        for folder in ("run", "tmp", "dev"):
            mount("-t", "tmpfs", "-o", "mode=755" if folder == "dev" else "mode=1777", "tmpfs", self.file(folder))
        os.mkdir(self.file("dev/shm"))
        mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", self.file("dev/shm"))  # Ansible needs it
        mount("-t", "proc", "proc", self.file("proc"))
        for name, (major, minor) in self.DEVICES.items():
            os.mknod(self.file(f"dev/{name}"), stat.S_IFCHR | 0o666, os.makedev(major, minor))
            os.chmod(self.file(f"dev/{name}"), 0o666)
        for name, target in (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")):
            os.symlink(target, self.file(f"dev/{name}"))
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "TERM": "dumb", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}
        lab.skip_unless(self("dpkg-query", "-W", "orrery", fail=None).returncode != 0 and not self.exists(DATA), "orrery is installed on this host")

    def close(self):
        subprocess.run(["umount", "--recursive", "--lazy", self.layers], check=True)
        os.rmdir(self.layers)

    def file(self, path):
        return os.path.join(self.path, path.lstrip("/"))

    def exists(self, path):
        return os.path.lexists(self.file(path))

    def read(self, path):
        with open(self.file(path)) as file:
            return file.read()

    def __call__(self, *command, stdin="", fail=False):
        """Runs a command; fail=None accepts any exit status."""
        done = subprocess.run(["chroot", self.path, *command], input=stdin, capture_output=True, text=True, timeout=120, env=self.environment)
        if fail is not None and (done.returncode != 0) != fail:
            raise Failed(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def shell(self, folder, user="root"):
        """A shell in this root, of a user and with the environment that a login gives."""
        home = "/root" if user == "root" else f"/home/{user}"
        environment = {**self.environment, "HOME": home, "PATH": "/usr/local/bin:/usr/bin:/bin" if user != "root" else self.environment["PATH"]}
        return Shell(folder, environment, ["/usr/sbin/chroot", *([] if user == "root" else [f"--userspec={user}"]), self.path])

    def bring(self, path):
        shutil.copy(path, self.file("tmp"))
        return os.path.join("/tmp", os.path.basename(path))

    def user(self):
        return self("getent", "passwd", "orrery", fail=None).stdout.strip()

    def version(self):
        return self("dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", "orrery", fail=None).stdout


class Installed:
    """The server as the installed unit starts it: its command line, user, state folder and capabilities, without systemd."""

    def __init__(self, root):
        self.root = root
        unit = dict(re.findall(r"^(\w+)=(.*)$", root.read("/lib/systemd/system/orrery.service"), re.M))
        root("install", "-d", "-m", unit["StateDirectoryMode"], "-o", unit["User"], "-g", unit["Group"], f"/var/lib/{unit['StateDirectory']}")
        granted = unit["AmbientCapabilities"].lower().replace("cap_", "+").replace(" ", ",")
        bounded = unit["CapabilityBoundingSet"].lower().replace("cap_", "+").replace(" ", ",")
        self.command = ["chroot", root.path, "setpriv", f"--reuid={unit['User']}", f"--regid={unit['Group']}", "--init-groups", f"--inh-caps=-all,{granted}",
                        f"--ambient-caps=-all,{granted}", f"--bounding-set=-all,{bounded}", "--no-new-privs", *shlex.split(unit["ExecStart"])]

    def start(self):
        self.process = lab.Process("installed", self.command, self.root.environment)
        wait_until("the installed server is ready", lambda: subprocess.run(["curl", "-sf", "-o", "/dev/null", "http://127.0.0.1:8421/readyz"]).returncode == 0, 30)

    def stop(self):
        equal("the installed server stops", self.process.stop(20), 0)


def build(orrery):
    packages = scratch("packages")
    built = subprocess.run([os.path.join(TREE, "tools", "package"), os.path.dirname(orrery), packages], capture_output=True, text=True, timeout=200,
                           env={**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"})
    check("the package is built", built.returncode == 0, built.stderr)
    return built.stdout.strip().splitlines()[-1]


def build_earlier():
    """The package as the version before debhelper laid it out (earlier/README.md), with a placeholder as the program."""
    tree = os.path.join(scratch("earlier"), "tree")
    shutil.copytree(os.path.join(EARLIER, "DEBIAN"), os.path.join(tree, "DEBIAN"))
    control = os.path.join(tree, "DEBIAN", "control")
    with open(control) as file:
        text = file.read()
    architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    write_file(control, text.replace("@ARCHITECTURE@", architecture), 0o644)
    with gzip.open(os.path.join(EARLIER, "orrery.yaml.gz"), "rt") as file:
        configuration = file.read()
    with open(os.path.join(EARLIER, "orrery.service")) as file:
        unit = file.read()
    recorded = {"etc/orrery/orrery.yaml": configuration, "lib/systemd/system/orrery.service": unit, "usr/bin/orrery": "#!/bin/sh\nexit 1\n"}
    for path in page(EARLIER, "files.txt").split():
        os.makedirs(os.path.dirname(os.path.join(tree, path)), exist_ok=True)
        write_file(os.path.join(tree, path), recorded.get(path, "of the earlier package\n"), 0o755 if path.startswith("usr/bin") else 0o644)
    package = os.path.join(scratch("packages"), "earlier.deb")
    subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", tree, package], check=True, stdout=subprocess.DEVNULL)
    return package


def files_of(package):
    listed = subprocess.run(["dpkg-deb", "-c", package], capture_output=True, text=True, check=True).stdout
    return {line.split(maxsplit=5)[5].split(" -> ")[0].removeprefix(".") for line in listed.splitlines() if not line.startswith("d")}


def contents(package):
    root = scratch("contents")
    subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    for path in ("usr/bin/orrery", "lib/systemd/system/orrery.service", "etc/orrery/orrery.yaml", "usr/share/man/man1/orrery.1.gz",
                 "usr/share/bash-completion/completions/orrery", "usr/share/zsh/vendor-completions/_orrery", "usr/share/fish/vendor_completions.d/orrery.fish",
                 "usr/share/orrery/alerts/orrery.rules.yml", "usr/share/orrery/programs/orrery-programs.conf", "usr/share/doc/orrery/copyright", "usr/share/doc/orrery/changelog.gz"):
        check(f"the package has {path}", os.path.exists(os.path.join(root, path)))
    check_hardening(os.path.join(root, "usr/bin/orrery"))
    if shutil.which("man"):
        rendered = subprocess.run(["man", "--warnings", "-l", os.path.join(root, "usr/share/man/man1/orrery.1.gz")], capture_output=True, text=True,
                                  env={**os.environ, "MANWIDTH": "100"})
        check("the manual page renders without warnings", rendered.returncode == 0 and not rendered.stderr and "orrery job submit" in rendered.stdout, rendered.stderr)
    symbols = glob.glob(os.path.join(os.path.dirname(package), "orrery-dbgsym_*.deb"))
    equal("there is one package of debug symbols", len(symbols), 1)
    sizes = os.path.join(root, "usr/bin/orrery")
    note = re.search(r"Build ID: ([0-9a-f]+)", subprocess.run(["readelf", "-n", sizes], capture_output=True, text=True).stdout)
    check("the program has a build id", note is not None)
    listed = subprocess.run(["dpkg-deb", "-c", symbols[0]], capture_output=True, text=True).stdout
    contains("the debug symbols are those of the program", listed, f"/usr/lib/debug/.build-id/{note[1][:2]}/{note[1][2:]}.debug")
    for script in ("postinst", "postrm"):
        text = subprocess.run(["dpkg-deb", "-I", package, script], capture_output=True, text=True, check=True).stdout
        check(f"{script} does not detach from debconf, which would kill it before its last message", re.search(r"^\s*db_stop", text, re.M) is None, text)
    version = subprocess.run(["dpkg-deb", "-f", package, "Version"], capture_output=True, text=True).stdout.strip()
    check(f"the version {version} orders by the time of the commit", re.fullmatch(r"\d+\.\d+\.\d+\+git\d{14}\.[0-9a-f]+(\.changed)?", version) is not None)
    if shutil.which("lintian"):
        done = subprocess.run(["lintian", "--fail-on", "error,warning", "--allow-root", package, *symbols], capture_output=True, text=True, timeout=200)
        check("lintian finds no error and no warning", done.returncode == 0, done.stdout + done.stderr)
    return version


def links(package):
    """Every relative link of every page leads to a file of the package."""
    documents = os.path.join(scratch("contents"), DOCUMENTS.lstrip("/"))
    seen = 0
    for folder, _, names in os.walk(documents):
        for name in names:
            if not name.endswith(".md"):
                continue
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page(folder, name)):
                if "://" in target:
                    continue
                seen += 1
                if not os.path.exists(os.path.join(folder, target)):
                    raise Failed(f"{os.path.relpath(os.path.join(folder, name), documents)} links to {target}, which {package} does not have")
    check(f"all {seen} links of the package's pages work", seen > 50)


def install(root, package):
    root("useradd", "--create-home", "--shell", "/bin/bash", "--password", "*", "reader")
    root.bring(package)
    done = root.shell("/tmp")(readme_commands()[0])
    equal("README: the package is installed", done[0], 0)
    contains("the installation reports where the server listens and where its password is", done[1], "http://127.0.0.1:8421", f"{DATA}/first-login")
    contains("the user exists, without a shell", root.user(), f":{DATA}:/usr/sbin/nologin")
    folder = os.stat(root.file("/etc/orrery"))
    equal("only root and the server read /etc/orrery", (stat.S_IMODE(folder.st_mode), folder.st_uid, folder.st_gid), (0o750, 0, int(root.user().split(":")[3])))
    check("the unit is enabled", root.exists(WANTED))
    tutorial = page(root.file(DOCUMENTS), "docs/tutorial.md")
    with open(root.file("/etc/orrery/orrery.yaml"), "a") as file:
        file.write("\ndns:\n  listen: 127.0.0.1:53\n" + re.search(r"^```yaml\n(net: .*\n)```", tutorial, re.M)[1])
    return Installed(root)


def readme_commands():
    """The commands of README with which a user installs the package and logs in."""
    text = page(TREE, "README.md")
    block = re.search(r"^From the package .*?:\n\n((?:    .*\n)+)", text, re.M)[1]
    return [line.split("  #")[0].strip() for line in block.splitlines()]


def first_minutes(root, server, ansible):
    """README and tutorial, literally, with the installed files; commands that need no root are run by another user."""
    server.start()
    answer = subprocess.run(["dig", "+time=2", "+tries=1", "@127.0.0.1", "example.org", "SOA"], capture_output=True, text=True).stdout
    contains("the server answers on port 53 without being root", answer, "status: REFUSED")
    equal("it runs as the user orrery", os.stat(root.file(f"/proc/{server.process.pid}")).st_uid, int(root.user().split(":")[2]))
    _, show, login, enter, load = readme_commands()
    status, printed = root.shell("/tmp")(show)
    equal(f"README: {show}", status, 0)
    one_time = re.search(r"password (\S+)", printed)[1]
    user = root.shell("/home/reader", "reader")
    check("only root and the server read the one-time password", user(show)[0] != 0)
    status, screen = lab.at_terminal(user.line(login), user.environment, [("Password of admin", one_time), ("New password", PASSWORD), ("Repeat the new password", PASSWORD)])
    check(f"README: {login} asks for a new password", status == 0 and "logged in to" in screen, screen)
    check("the file with the one-time password is removed", not root.exists(f"{DATA}/first-login"))
    equal(f"README: {enter}", enter, f"cd {DOCUMENTS}")
    user.folder = DOCUMENTS
    equal(f"README: {load}", user(load)[0], 0)
    follow("package", user, root.file(DOCUMENTS), DOCUMENTS)
    if ansible:
        first_play("package", user, root.file(f"{DATA}/content"))


def stored(root, server):
    """Stores data that the upgrade and the removal must keep."""
    write_file(root.file("/tmp/mine"), PASSWORD + "\n")
    root("orrery", "login", "admin", "--password-file", "/tmp/mine")
    root("orrery", "apply", "-f", "-", stdin="{kind: Secret, name: seal, spec: {values: {token: kept-over-all}}}\n---\n{kind: Node, name: n-1, spec: {address: 192.0.2.1}}\n")
    server.stop()


def install_again(root, package, version, server):
    root("dpkg", "-i", root.bring(package))
    equal("the package is installed over itself", root.version(), f"installed {version}")
    contains("the edited configuration is kept", root.read("/etc/orrery/orrery.yaml"), "listen: 127.0.0.1:53")
    server.start()
    contains("the stored data exists", root("orrery", "get", "nodes").stdout, "n-1")
    server.stop()
    os.unlink(root.file(WANTED))  # as systemctl disable does
    root("dpkg", "-i", root.bring(package))
    check("a disabled unit stays disabled", not root.exists(WANTED))


def install_earlier(root, earlier):
    """The earlier package after its server has run: with an edited configuration and the store that it wrote."""
    root("dpkg", "-i", root.bring(earlier))
    with open(root.file("/etc/orrery/orrery.yaml"), "a") as file:
        file.write("\ndns:\n  listen: 127.0.0.1:53\njobs:\n  slots: 7\n  ansible_plugins: /usr/share/orrery/ansible/callback\n")
    root("install", "-d", "-m", "700", DATA)
    with gzip.open(os.path.join(RECORDED, "store.db.gz")) as file:
        write_file(root.file(f"{DATA}/store.db"), file.read())
    with open(os.path.join(RECORDED, "secrets.key"), "rb") as file:
        write_file(root.file(f"{DATA}/secrets.key"), file.read())
    root("chown", "-R", "orrery:orrery", DATA)


def upgrade_from_earlier(root, earlier, newer, version):
    install_earlier(root, earlier)
    os.symlink("/lib/systemd/system/orrery.service", root.file(WANTED))  # its postinst enables the unit where systemd runs
    edited = root.read("/etc/orrery/orrery.yaml")
    done = root("dpkg", "--force-confold", "-i", root.bring(newer))
    equal("the newer version is installed over the earlier package", root.version(), f"installed {version}")
    check("dpkg sees an upgrade", "downgrading" not in done.stdout + done.stderr, done.stderr)
    equal("the edited configuration is kept", root.read("/etc/orrery/orrery.yaml"), edited)
    contains("the new configuration file is beside it", root.read("/etc/orrery/orrery.yaml.dpkg-dist"), "outbound:")
    check("the unit is still enabled", root.exists(WANTED))
    replaced = files_of(earlier) - files_of(newer)
    check(f"{len(replaced)} files are in the earlier package only", "/usr/share/orrery/ansible/callback/orrery.py" in replaced, replaced)
    equal("the upgrade removes them", [path for path in sorted(replaced) if root.exists(path)], [])
    done = root("orrery", "config", "check")
    contains("a setting without effect is reported with its line and what replaces it", done.stdout + done.stderr,
             "/etc/orrery/orrery.yaml:", "jobs.ansible_plugins has no effect", "part of the program")
    contains("the other settings are read", root("orrery", "config", "show").stdout, "jobs.slots")
    server = Installed(root)
    server.start()
    write_file(root.file("/tmp/recorded"), lab.Server.admin_password + "\n")
    root("orrery", "login", "admin", "--password-file", "/tmp/recorded")
    for plural, name in (("nodes", "node-1"), ("pools", "eu"), ("loadbalancers", "www"), ("jobs", "finished")):
        contains(f"{plural} of the earlier version are there", root("orrery", "get", plural).stdout, name)
    contains("fields have their new names", root("orrery", "get", "monitor", "web", "-o", "yaml").stdout, "fast_interval", "down_interval")
    answer = subprocess.run(["dig", "+short", "+time=2", "+tries=1", "@127.0.0.1", "fixed.gslb.test", "A"], capture_output=True, text=True).stdout
    equal("the unit of the newer package may bind port 53, and the stored zone is served", answer.strip(), "192.0.2.1")
    server.stop()
    done = root("dpkg", "--purge", "orrery")
    contains("after the upgrade a purge keeps the data", done.stderr, f"kept the store and the sealing key in {DATA}")
    check("the sealing key is there", root.exists(f"{DATA}/secrets.key"))
    shutil.rmtree(root.file(DATA))

    install_earlier(root, earlier)
    root("dpkg", "--force-confold", "-i", root.bring(newer))
    check("a unit that was disabled in the earlier package stays disabled", not root.exists(WANTED))
    root("dpkg", "--purge", "orrery")


def remove_and_purge(root, newer, server):
    key = root.read(f"{DATA}/secrets.key")
    root("dpkg", "--remove", "orrery")
    check("remove keeps the configuration and the data", root.exists("/etc/orrery/orrery.yaml") and root.read(f"{DATA}/secrets.key") == key)
    check("and removes the program", not root.exists("/usr/bin/orrery"))

    done = root("dpkg", "--purge", "orrery")
    contains("a purge without a terminal reports the data that it keeps", done.stderr, f"kept the store and the sealing key in {DATA}")
    check("it keeps the data, the key and the user", root.read(f"{DATA}/secrets.key") == key and root.user() != "")
    check("and removes the configuration", not root.exists("/etc/orrery/orrery.yaml"))

    done = root("dpkg", "-i", root.bring(newer))
    contains("a new installation reports that it continues with the data", done.stderr, f"continues with the data in {DATA}")
    server.start()
    contains("and does so", root("orrery", "get", "nodes").stdout, "n-1")
    server.stop()

    asked(root, "no")
    check("the answer no keeps the data", root.read(f"{DATA}/secrets.key") == key)
    root("dpkg", "-i", root.bring(newer))
    asked(root, "yes")
    check("the answer yes removes the data, the key and the user", not root.exists(DATA) and root.user() == "")

    root("dpkg", "-i", root.bring(newer))
    Installed(root)
    root("debconf-set-selections", stdin="orrery orrery/purge_data boolean true\n")
    root("dpkg", "--purge", "orrery")
    check("a preseeded answer is used", not root.exists(DATA))
    equal("nothing of the package is left", [path for path in ("/etc/orrery", "/usr/share/doc/orrery", "/lib/systemd/system/orrery.service",
                                                               "/etc/systemd/system/multi-user.target.wants/orrery.service") if root.exists(path)], [])


def asked(root, answer):
    """Purges at a terminal and types the answer."""
    status, screen = lab.at_terminal(["/usr/sbin/chroot", root.path, "dpkg", "--purge", "orrery"], {**root.environment, "DEBIAN_FRONTEND": "readline"},
                                     [("Remove the data of orrery and the sealing key? [yes/no]", answer)], 60)
    check(f"a purge at a terminal asks, and accepts {answer}", status == 0 and "lost for good" in screen, screen)


def main(given):
    own_namespaces()
    package = build(given.orrery)
    version = contents(package)
    links(package)
    earlier = os.path.abspath(given.earlier) if given.earlier else build_earlier()
    root = Root()
    try:
        server = install(root, package)
        first_minutes(root, server, given.ansible)
        stored(root, server)
        install_again(root, package, version, server)
        remove_and_purge(root, package, server)
        upgrade_from_earlier(root, earlier, package, version)
    finally:
        root.close()


if __name__ == "__main__":
    def options(parser):
        parser.add_argument("--earlier", help="upgrade from this .deb in place of the recorded layout")
        parser.add_argument("--ansible", action="store_true", help="also run a playbook with the installed package (package ansible-core)")
    run(main, options)
