#!/usr/bin/python3 -B
"""Secrets that tasks of every executor use are searched for: in the arguments and environments of all processes while the tasks run, in attempts'
files on the nodes, and at the end in every answer, event, file and log, on the server and on the nodes. Tasks print them in all the forms that
programs print things in, fail with them, and are reattached after kill -9 of the server.
With --ansible and --puppet also by these, where they are installed."""
import base64
import contextlib
import http.server
import json
import os
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import orrery_lab  # noqa: E402
from canaries import Ear, canaries, canary, disguises, leaks  # noqa: E402
from hosts import Hosts  # noqa: E402
from orrery_lab import Cli, Failed, Problem, Server, Stream, check, contains, equal, log, run, scratch, wait_until, write_file  # noqa: E402

TOKEN, PASSWORD, KEY = "${secret.lab.token}", "${secret.lab.password}", "${secret.lab.key}"

# Prints its environment's TOKEN and PASSWORD in every encoding, slowly, so that the test can inspect processes and kill a server meanwhile.
PRINTS = r"""
import base64, json, os, sys, time, urllib.parse
for turn in range(int(sys.argv[1])):
    for name in ("TOKEN", "PASSWORD", "KEY"):
        value = os.environ.get(name, "")
        print(turn, value, json.dumps(value), json.dumps({name: value}, ensure_ascii=False), urllib.parse.quote(value, safe=""), urllib.parse.quote_plus(value), value.encode().hex(),
              value.encode().hex().upper(), flush=True)
        print(base64.b64encode(b"Basic u:" + value.encode()).decode(), base64.encodebytes(value.encode()).decode(), file=sys.stderr, flush=True)
    time.sleep(0.3)
print("printed", flush=True)
"""


class Echo(http.server.BaseHTTPRequestHandler):
    """Echoes the request in every encoding; with status 500 if the path asks for it."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        echo = {"authorization": self.headers.get("Authorization"), "body": body, "path": self.path, "escaped": urllib.parse.quote(body), "base64": base64.b64encode(body.encode()).decode()}
        data = json.dumps(echo).encode()
        self.send_response(500 if "fail" in self.path else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST

    def log_message(self, *_):
        pass


def job(url, given):
    everything = {"TOKEN": TOKEN, "PASSWORD": PASSWORD, "KEY": KEY}
    both = ["h1", "h2"]
    tasks = [
        {"name": "script", "on": both, "env": everything, "run": {"ssh": {"script": "python3 /srv/prints.py 2", "input": PASSWORD}},
         "verify": {"ssh": {"script": "echo verified with \"$TOKEN\""}}},
        {"name": "inline", "on": both, "run": {"ssh": {"script": f"x={TOKEN}; sleep 0.4; echo \"$x\"", "shell": "bash"}}},
        {"name": "command", "on": both, "run": {"ssh": {"command": ["cat"], "input": f"{TOKEN} {PASSWORD}\n{KEY}\n"}}},
        {"name": "push", "on": both, "run": {"ssh": {"push": {"content": f"{PASSWORD}\n", "to": "/srv/wanted-push", "mode": "0600"}}}},
        {"name": "blocks", "on": both, "env": {"TOKEN": TOKEN}, "with": {"password": PASSWORD, "key": KEY}, "run": {"ssh": {"blocks": [
            {"template": {"path": "/srv/wanted-template", "content": "pw {{ password }}\n{{ key }}\n", "mode": "0600"}},
            {"file": {"path": "/srv/wanted-file", "content": f"{TOKEN}\n", "mode": "0600"}},
            {"line": {"path": "/srv/wanted-line", "line": f"password={PASSWORD}", "match": "^password=", "create": True}},
            {"command": {"argv": ["sh", "-c", "sleep 0.4; echo \"$TOKEN\""]}}]}}},
        {"name": "fails", "on": ["h1"], "env": everything, "run": {"ssh": {"script": "printf %270s; echo \"login with $PASSWORD as $TOKEN failed\" >&2; exit 3"}}},
        {"name": "cut", "on": ["h1"], "env": everything, "run": {"ssh": {"script": "{ printf %290s | tr ' ' x; echo \"$TOKEN\"; } >&2; exit 4"}}},
        {"name": "block-fails", "on": ["h1"], "env": {"TOKEN": TOKEN}, "run": {"ssh": {"blocks": [{"command": {"argv": ["sh", "-c", "echo \"no $TOKEN\" >&2; exit 5"]}}]}}},
        {"name": "argument", "on": ["h1"], "run": {"ssh": {"command": ["echo", TOKEN]}}},
        {"name": "package", "on": ["h1"], "run": {"ssh": {"blocks": [{"package": {"name": TOKEN}}]}}},
        {"name": "slow", "on": both, "env": everything, "run": {"ssh": {"script": "python3 /srv/prints.py 10"}}},
        {"name": "killed", "on": ["h2"], "env": everything, "run": {"ssh": {"script": "trap '' TERM; echo \"$TOKEN\"; sleep 300"}}},
        {"name": "local", "env": everything, "run": {"local": {"program": "prints", "arguments": ["10"]}}},
        {"name": "local-fails", "env": everything, "run": {"local": {"program": "fails", "input": PASSWORD}}},
        {"name": "local-argument", "run": {"local": {"program": "prints", "arguments": [PASSWORD]}}},
        {"name": "http", "run": {"http": {"url": f"{url}/ok?token={TOKEN}", "headers": {"Authorization": f"Bearer {TOKEN}"}, "json": {"password": PASSWORD, "key": KEY},
                                          "values": {"leak": "/authorization", "path": "/escaped"}}}},
        {"name": "http-fails", "run": {"http": {"url": f"{url}/fail?token={TOKEN}", "body": PASSWORD}}},
        {"name": "http-nobody", "run": {"http": {"url": f"http://127.0.0.1:9/{TOKEN}", "body": PASSWORD}}},
        {"name": "http-wrong", "run": {"http": {"url": f"{TOKEN}://x", "body": PASSWORD}}},
    ]
    if given.ansible:
        tasks += [{"name": "play", "on": both, "together": True, "env": {"PLAIN": "no secret"}, "with": {"token": TOKEN}, "run": {"ansible": {"playbook": "play.yml", "variables": {"password": PASSWORD}}}},
                  {"name": "play-fails", "on": ["h1"], "with": {"token": TOKEN}, "run": {"ansible": {"playbook": "fails.yml"}}},
                  {"name": "play-env", "on": ["h1"], "env": everything, "run": {"ansible": {"playbook": "fails.yml"}}},
                  {"name": "play-tags", "on": ["h1"], "run": {"ansible": {"playbook": "fails.yml", "tags": [TOKEN]}}}]
    if given.puppet:
        tasks += [{"name": "apply", "on": ["h1"], "with": {"password": PASSWORD}, "run": {"puppet": {"manifest": "site.pp", "data": {"token": TOKEN}}}},
                  {"name": "apply-fails", "on": ["h1"], "with": {"token": TOKEN}, "run": {"puppet": {"code": "notify { lookup('token'): }\nfile { \"/srv/none/${lookup('token')}\": ensure => file }\n".replace("${", "$${")}}},
                  {"name": "apply-tags", "on": ["h1"], "run": {"puppet": {"manifest": "site.pp", "tags": [TOKEN]}}}]
    return {"kind": "Job", "name": "uses", "spec": {"limits": {"per_host": 8}, "tasks": tasks}}


CONTENT = {
    "play.yml": "- hosts: all\n  gather_facts: false\n  tasks:\n  - {name: write, copy: {content: '{{ token }} {{ password }}', dest: /srv/wanted-play, mode: '0600'}}\n"
                "  - {name: say, debug: {msg: '{{ password }}'}}\n  - {name: print, command: cat /srv/wanted-play}\n  - {name: wait, command: sleep 1}\n",
    "fails.yml": "- hosts: all\n  gather_facts: false\n  tasks:\n  - {name: 'fails with {{ token }}', fail: {msg: 'bad {{ token }}'}}\n",
    "site.pp": "file { '/srv/wanted-manifest': content => Sensitive(lookup('password')), mode => '0600' }\nfile { '/srv/wanted-plain': content => lookup('token'), mode => '0600' }\n"
               "notify { 'said': message => lookup('password') }\n",
}


class Spy(threading.Thread):
    """Inspects every process of this host and of the lab hosts, and the files of attempts on the hosts, repeatedly."""

    PRINTING = ("out", "err", "printed")  # what a task prints is there until the server has it

    def __init__(self, hosts, runs):
        super().__init__(daemon=True)
        self.hosts, self.runs, self.over = hosts, runs, threading.Event()
        self.arguments, self.environments, self.files = set(), set(), set()
        self.rounds = self.seen = 0
        self.holders = set()  # tasks whose processes have a secret in their environment
        self.forms = [form for text in canaries.values() for form in disguises(text)]

    def shows(self, data):
        return any(form in data for form in self.forms)

    def inspect(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    line = file.read()
                self.seen += 1
                if self.shows(line):
                    self.arguments.add(line[:300])
                with open(f"/proc/{pid}/environ", "rb") as file:
                    environment = file.read()
                if self.shows(environment):
                    mine = dict(item.split(b"=", 1) for item in environment.split(b"\0") if b"=" in item)
                    self.holders.add(mine.get(b"ORRERY_TASK", b"nobody's").decode())
                    for name, value in mine.items():
                        if self.shows(value) and name not in (b"TOKEN", b"PASSWORD", b"KEY", b"ORRERY_VALUE_1"):
                            self.environments.add((name, line[:100]))
        for folder in [os.path.join(host.folder, "root", ".orrery") for host in self.hosts] + [self.runs]:
            for below, _, names in os.walk(folder):
                for name in names:
                    if name in self.PRINTING or {"work", "private"} & set(os.path.relpath(below, folder).split(os.sep)[:-1]):
                        continue
                    with contextlib.suppress(OSError), open(os.path.join(below, name), "rb") as file:
                        if self.shows(file.read()):
                            self.files.add(os.path.join(below, name))
        self.rounds += 1

    def run(self):
        while not self.over.is_set():
            self.inspect()
            time.sleep(0.01)

    def stop(self):
        self.over.set()
        self.join()


def hear_all(server, api, name):
    """Every route that jobs have."""
    def tries(method, path, body=None):
        with contextlib.suppress(Problem):
            api.request(method, path, body)
    for path in ("", "/tasks", "/progress", "/missing", "/graph", "/graph?form=dot", "/graph?form=svg"):
        tries("GET", f"/v1/jobs/{name}{path}")
    tasks = [task["task"] for task in api.get(f"/v1/jobs/{name}/tasks?limit=5000")["tasks"]]
    for task in tasks:
        of = urllib.parse.quote(task)
        tries("GET", f"/v1/jobs/{name}/why?task={of}")
        for phase in ("check", "run", "verify", "undo"):
            tries("GET", f"/v1/jobs/{name}/output?task={of}&phase={phase}&limit=4194304")
        stream = Stream(server, f"/v1/jobs/{name}/output?task={of}&follow=true", seconds=5)
        for event in stream:
            Ear.received += repr(event).encode()
        stream.close()
    return tasks


def prepare(given):
    hosts = Hosts(2, settings=("MaxSessions 64", "MaxStartups 100:30:200", "LogLevel DEBUG3"))
    hosts.enter()
    hosts[1].run("sh", "-c", "useradd -m -d /srv/deploy -s /bin/sh -p '*' deploy && mkdir /srv/deploy/.ssh && cp /root/.ssh/authorized_keys /srv/deploy/.ssh/ && chown -R deploy /srv/deploy"
                 " && printf 'Defaults logfile=/srv/sudo.log\\nDefaults loglinelen=0\\ndeploy ALL=(ALL) NOPASSWD: ALL\\n' >/etc/sudoers.d/deploy")
    for host in hosts:
        write_file(os.path.join(host.folder, "srv", "prints.py"), PRINTS, 0o644)
    programs = scratch("programs")
    prints = write_file(os.path.join(programs, "prints"), "#!/usr/bin/python3\n" + PRINTS, 0o700)
    fails = write_file(os.path.join(programs, "fails"), "#!/bin/sh\nread -r line; echo \"no $line\"; echo \"bad $TOKEN\" >&2; exit 2\n", 0o700)
    content = scratch("content")
    for name, text in CONTENT.items():
        write_file(os.path.join(content, name), text, 0o644)
    server = Server(given.orrery, arguments=["--log-level", "debug", "--jobs-programs", f"prints={prints};fails={fails}", "--jobs-content", content])
    server.start()
    canary("a token")
    canary("a password with all that is ever escaped", "p%s \"q\" 'x' & <y> / \\ é🐦 +z")
    canary("a key of many lines", "-----BEGIN-----\n%s" + os.urandom(40).hex() + "\n" + os.urandom(40).hex() + "\n-----END-----")
    api = Ear(server, server.token())
    api.put("/v1/secrets/lab", {"spec": {"values": dict(zip(("token", "password", "key"), canaries.values()))}})
    api.put("/v1/secrets/lab-key", {"spec": {"values": {"private_key": hosts.private_key()}}})
    api.put("/v1/nodes/h1", hosts.node(hosts[0]))
    api.put("/v1/nodes/h2", hosts.node(hosts[1], user="deploy", sudo=True))
    return hosts, server, api


def outcomes(api, given):
    tasks = {task["task"]: task for task in api.get("/v1/jobs/uses/tasks?limit=5000")["tasks"]}
    wrong = {"fails@h1", "cut@h1", "block-fails@h1", "argument@h1", "package@h1", "killed@h2", "local-fails", "local-argument", "http-fails", "http-nobody", "http-wrong"}
    wrong |= {"play-fails@h1", "play-tags@h1", "play-env@h1"} if given.ansible else set()
    wrong |= {"apply-fails@h1", "apply-tags@h1"} if given.puppet else set()
    equal("exactly the expected tasks failed", {name for name, task in tasks.items() if task["state"] != "succeeded"}, wrong)
    for name in ("argument@h1", "package@h1", "local-argument", *(["play-tags@h1", "play-env@h1"] if given.ansible else []), *(["apply-tags@h1"] if given.puppet else [])):
        contains(f"{name} is refused, for it would be an argument", tasks[name]["message"], "secret", "argument")
    equal("killed tasks are cancelled, not lost", tasks["killed@h2"]["state"], "cancelled")
    contains("failure messages are masked", tasks["fails@h1"]["message"], "exit code 3", "(secret)")
    contains("also where they are cut", tasks["cut@h1"]["message"], "exit code 4", "xx(secret)")


def files_of(what, folder, wanted=()):
    count = 0
    found = []
    for below, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(below, name)
            if os.path.islink(path) or not os.path.isfile(path) or name in wanted:
                continue
            count += 1
            with open(path, "rb") as file:
                found += [(os.path.relpath(path, folder), leak) for leak in leaks(file.read())]
    equal(f"{what}: none in {count} files", found, [])
    check(f"{what}: there are files", count > 0)


def main(given):
    if given.ansible:
        orrery_lab.program("ansible-playbook", "ansible-core")
    if given.puppet:
        orrery_lab.program("puppet", "puppet-agent")
    hosts, server, api = prepare(given)
    if given.ansible or given.puppet:
        api.close()
        api.seconds = 180  # their previews begin them for real
    echo = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=echo.serve_forever, daemon=True).start()
    revision = api.get("/v1/store")["revision"]
    document = job(f"http://127.0.0.1:{echo.server_port}", given)
    answer = api.post("/v1/job-plans?preview=true", document)
    previews = {one["task"]: one for one in answer["previews"]}
    contains("a preview of a file with a secret does not show it", json.dumps(previews["blocks@h1"]), "holds a secret")

    spy = Spy(hosts, os.path.join(server.folder, "runs"))
    spy.start()
    api.post("/v1/jobs", document)
    running = lambda: {task["task"] for task in api.get("/v1/jobs/uses/tasks?state=running")["tasks"]}  # noqa: E731
    wait_until("the slow tasks run", lambda: {"slow@h1", "slow@h2", "local"} <= running(), 20)
    for _ in range(2):
        time.sleep(0.4)
        server.kill()
        server.start()
        api.close()
    state = lambda: api.get("/v1/jobs/uses")["status"].get("state")  # noqa: E731
    wait_until("only the endless task runs", lambda: running() == {"killed@h2"}, 180 if given.ansible or given.puppet else 60, every=0.2)
    api.post("/v1/jobs/uses/cancel", {"reason": "it never ends"})
    wait_until("the job has ended", lambda: state() == "cancelled", 30, every=0.2)
    wait_until("and nothing is left of its attempts", lambda: api.get("/v1/jobs/uses")["status"].get("cleaned"), 30)
    spy.stop()
    outcomes(api, given)
    cli = Cli(given.orrery, server, HOME=scratch("home"), XDG_CONFIG_HOME=scratch("home")).login(server)
    for task in ("slow@h1", "slow@h2", "local"):
        lines = cli.ok("job", "logs", "uses", task).splitlines()
        equal(f"{task}, reattached after two kill -9, printed all of it once", sum(line.startswith(tuple("0123456789")) and "(secret)" in line for line in lines), 30)

    log(f"      {spy.rounds} inspections of {spy.seen // max(1, spy.rounds)} processes")
    check("processes were inspected often enough", spy.rounds > 20)
    equal("no argument of any process showed a secret", spy.arguments, set())
    check("some process had one in its environment, or the search proves nothing", {"slow@h1", "local"} <= spy.holders, spy.holders)
    allowed = {f"{task}@{host}" for task in ("script", "inline", "blocks", "fails", "cut", "block-fails", "slow", "killed") for host in ("h1", "h2")} | {"local", "local-fails", "play"}
    equal("only processes of tasks whose env or script names it", spy.holders - allowed, set())
    equal("and only as the variable that env names, or that the script uses for it", spy.environments, set())
    equal("no file of an attempt showed one, except the output of tasks", spy.files, set())
    for name in ("push", "template", "file", "line"):
        check(f"/srv/wanted-{name} has it", leaks(hosts[1].run("cat", f"/srv/wanted-{name}").encode()) != [])

    tasks = hear_all(server, api, "uses")
    printed = cli("job", "show", "uses").out + cli("job", "watch", "uses").out + "".join(cli("job", "why", "uses", task).out + cli("job", "logs", "uses", task).out for task in tasks)
    equal("the output of the command line is free of them", leaks(printed.encode()), [])
    for kind in api.get("/v1/kinds")["items"]:
        stream = Stream(server, f"/v1/{kind['plural']}?watch={revision}", seconds=0.2)
        with contextlib.suppress(TimeoutError, Problem):
            for event in stream:
                Ear.received += repr(event).encode()
        stream.close()
        for item in api.all(kind["plural"]):
            Ear.received += json.dumps(item).encode()
    for path in ("/metrics", "/v1/store"):
        with contextlib.suppress(Problem, ValueError):
            api.request("GET", path)
    equal(f"every answer and event is free of them ({Ear.answers} answers, {len(Ear.received) >> 10} KiB)", leaks(bytes(Ear.received)), [])
    status, _, backup = api.raw("POST", "/v1/store/backup")
    check("a backup", status == 200 and leaks(backup) == [], leaks(backup))
    equal("it stops on SIGTERM", server.stop(), 0)
    equal("without an error in its log", server.error_lines(), [])

    files_of("the data folder", server.folder)
    files_of("the server's logs at level debug", scratch("logs"))
    wanted = {name for host in hosts for name in os.listdir(os.path.join(host.folder, "srv")) if name.startswith("wanted-")}
    for host in hosts:
        files_of(f"{host.name}: /root, /tmp, /srv, /etc, sshd's log at DEBUG3 and sudo's", host.folder, wanted)
    contains("sudo wrote its log", hosts[1].run("cat", "/srv/sudo.log"), "COMMAND=")
    for temporary in ("/tmp", "/var/tmp"):
        mine = [entry.path for entry in os.scandir(temporary) if entry.stat(follow_symlinks=False).st_mtime > started and entry.path != scratch() and entry.is_file(follow_symlinks=False)]
        equal(f"{temporary} of the server's host", [path for path in mine if leaks(open(path, "rb").read())], [])


def options(parser):
    parser.add_argument("--ansible", action="store_true")
    parser.add_argument("--puppet", action="store_true")


started = time.time()
if __name__ == "__main__":
    run(main, options)
