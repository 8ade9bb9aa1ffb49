#!/usr/bin/python3 -B
"""Hostile values through every executor and the real programs: each must arrive byte for byte, and nothing else may run.

Values with quotes, substitutions, templates, references to secrets, line ends, odd UTF-8 and great length enter as answers of an HTTP server, as `with`,
parameters, env, arguments, labels of nodes, and as data of members of a service. Programs at the other end record their input. Every
payload that any interpreter could run would leave a file in a folder that must stay empty, on the server and on the node.

    hostile_values.py ORRERY [--seconds N] [--seed S] [--ansible] [--puppet]
"""
import atexit
import http.server
import json
import os
import random
import re
import shutil
import sys
import threading
import time
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import orrery_lab  # noqa: E402
from hosts import Hosts  # noqa: E402
from orrery_lab import Failed, Problem, Server, check, equal, log, run, scratch, wait_until, write_file  # noqa: E402

CANARIES = f"/tmp/orrery-canaries-{os.getpid()}"  # on the server, and in the /tmp of the host
TOKEN = "the-token-that-no-value-may-name"
COUNT = 14  # values a round

# Records arguments, variables V* and standard input, as hexadecimal: recv PATH ARGUMENT...
RECEIVER = r"""#!/usr/bin/python3
import json, os, sys
record = {"arguments": [os.fsencode(a).hex() for a in sys.argv[2:]],
          "environment": {k.decode(): v.hex() for k, v in os.environb.items() if k.startswith(b"V")},
          "input": sys.stdin.buffer.read().hex() if "V_READS" in os.environ else ""}
with open(sys.argv[1] + ".new", "w") as file:
    json.dump(record, file)
os.rename(sys.argv[1] + ".new", sys.argv[1])
"""


def commands():
    """Values that would leave a canary, in the language of each interpreter."""
    touch = f"touch {CANARIES}/x"
    return [f"$({touch})", f"`{touch}`", f"; {touch};", f"| {touch} #", f"&& {touch} ||", f"\n{touch}\n", f"'; {touch}; '", f"\"; {touch}; \"", f"'$({touch})'", f"\"$({touch})\"",
            f"a[$({touch})]", f"<({touch})", f"${{x:-$({touch})}}", f"\\$({touch})", f"x=$({touch})", f"EOF\n{touch}\nEOF", f"END\n{touch}\nEND\n", f") {touch} (", f"\r\n{touch}\r\n",
            "{{ lookup('pipe', '%s') }}" % touch, "{%% for x in lookup('pipe', '%s') %%}{%% endfor %%}" % touch, "{# {{ lookup('pipe','%s') }} #}" % touch, "!unsafe {{ lookup('pipe','%s') }}" % touch,
            "{\"__ansible_unsafe\": \"{{ lookup('pipe','%s') }}\"}" % touch, "[\"{{ lookup('pipe','%s') }}\"]" % touch,
            f"${{generate('/usr/bin/touch', '{CANARIES}/x')}}", f"%{{lookup('x')}} $(`{touch}`)", f"#{{`{touch}`}}", f"<%= `{touch}` %>", f"' , exec {{ '/usr/bin/{touch}': }} '"]


PLAIN = [
    "", " ", "  a  b  ", "plain", "two words", "'", "\"", "\\", "\\\\", "\\n", "\\'", "'\\''", "\"\"", "''", "$", "$$", "$$$", "${", "$${", "${}", "$${x}", "$$${x}", "${secret.lab.token}",
    "$${secret.lab.token}", "x${secret.lab.token}y", "${with.w0}", "${task.source.values.v0}", "${param.p0}", "${node.name}", "${ORRERY_VALUE_1}", "$ORRERY_VALUE_1", "$HOME", "~", "~root", "*", "/*", "?", "[a-z]*",
    "{a,b}", "!!", "!1", "^a^b", "-", "--", "-n", "-e", "-rf", "--help", "-oProxyCommand=x", "--extra-vars=@/etc/passwd", "@/etc/passwd", "%", "%s%n%s", "%{", "%{}", "%{facts.os}", "%{literal('%')}{", "%%{x}", "%{lookup('w0')}",
    "{{", "}}", "{{ w0 }}", "{% if", "{#", "#}", "{{ ansible_user }}", "#", "# no comment", "a#b", ";", "&", "|", "<", ">", "(", ")", "`", "\n", "\n\n", "a\n", "\na", "a\n\nb\n\n", "\r", "\r\n", "a\r\nb", "\t", "\ta\t", "\x01",
    "\x07\x08\x0b\x0c", "\x1b[2J\x1b]0;x\x07", "\x7f", "\x80", "\u0085", "\u2028\u2029", "\ufeff", "\ufeffa", "\ufffe\uffff", "\U0010ffff", "\U0001f426", "é", "e\u0301", "\u202eabc", "\u200b", "ß", "ñ" * 63, "null", "true",
    "True", "no", "1", "01", "1e9", "1_000", "0x10", ".5", "~x", "2026-11-17", "[]", "{}", "[1, 2]", "{'a': 1}", "{\"a\": 1}", "a: b", "- a", "& a", "* a", "!x", "|", "> ", "---", "...", "undef", "$1", "$@", "$*", "$?", "$!", "$-", "$#",
    "a=b", "=", "a b=c", "../../etc/passwd", "/etc/passwd", "a/../b", "http://x/", "a?b&c=d#e", "%2e%2e%2f", "%00", "+", "a+b c", "x" * 5000, "$" * 300, "'" * 300, "\\" * 301, "\n" * 50, "a" * 20000, "é" * 3000,
]


class Values:
    """Hand-picked ones first, each a few times in the course of a run; then pieces of them and characters at random."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.picked = PLAIN + commands()
        self.left = []

    def character(self):
        r = self.random
        while True:
            code = r.choice((r.randrange(1, 0x80), r.randrange(1, 0x20), r.randrange(0x80, 0x800), r.randrange(0x800, 0x10000), r.randrange(0x10000, 0x110000)))
            if not 0xD800 <= code < 0xE000:
                return chr(code)

    def one(self):
        r = self.random
        if r.random() < 0.5:
            if not self.left:
                self.left = list(self.picked)
                r.shuffle(self.left)
            return self.left.pop()
        pieces = [r.choice(self.picked)[:400] if r.random() < 0.5 else "".join(self.character() for _ in range(r.randrange(1, 12))) for _ in range(r.randrange(1, 7))]
        return "".join(pieces)

    def batch(self):
        """Their JSON is less than what a task may publish."""
        while True:
            values = [self.one() for _ in range(COUNT)]
            if sum(len(json.dumps(value)) for value in values) < 50_000:
                return values


class Origin(http.server.BaseHTTPRequestHandler):
    """GET /values: those of the round. Records other requests."""

    values, seen = [], {}

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urllib.parse.urlsplit(self.path)
        if url.path != "/values":
            Origin.seen[url.path.split("/")[1]] = (self.path, {name: value.encode("latin-1") for name, value in self.headers.items()}, body)
        data = json.dumps({f"v{i}": value for i, value in enumerate(Origin.values)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET

    def log_message(self, *_):
        pass


def written(value):
    """A value as a job's author writes it; None if that is not possible."""
    return None if "$${" in value else value.replace("${", "$${")


def is_line(value):
    return not any(ord(c) < 0x20 or c == "\x7f" for c in value)


class Round:
    """One job that sends a batch of values in all positions, and the comparison of what arrived."""

    def __init__(self, lab, number, values):
        self.lab, self.number, self.values, self.random = lab, number, values, lab.values.random
        self.name = f"round-{number}"
        self.expected = []  # (executor, way, how to get what arrived, what it must be)
        self.tasks = [{"name": "source", "run": {"http": {"url": lab.origin + "/values", "values": {f"v{i}": f"/v{i}" for i in range(COUNT)}}}}]
        self.literal = [i for i, value in enumerate(values) if written(value) is not None]
        self.lines = [i for i, value in enumerate(values) if is_line(value)]

    def reference(self, i):
        return self.random.choice((f"${{task.source.values.v{i}}}", f"${{with.w{i}}}", f"${{param.p{i}}}") + ((f"${{with.l{i}}}",) if i in self.literal else ()))

    def bound(self):
        out = {f"w{i}": f"${{task.source.values.v{i}}}" for i in range(COUNT)}
        out.update({f"l{i}": written(self.values[i]) for i in self.literal})
        return out

    def add(self, name, run, on_host=True, **more):
        self.tasks.append({"name": name, **({"on": ["h1"]} if on_host else {}), "after": ["source"], "with": self.bound(), "run": run, **more})

    def expect(self, executor, way, get, wanted):
        self.expected.append((executor, way, get, [value.encode() if isinstance(value, str) else value for value in wanted]))

    # --- what arrived

    def on_host(self, path):
        with open(os.path.join(self.lab.got, path), "rb") as file:
            return file.read()

    def record(self, path, here=False):
        with open(os.path.join(self.lab.here if here else self.lab.got, path)) as file:
            return json.load(file)

    def arguments(self, path, here=False):
        return lambda: [bytes.fromhex(one) for one in self.record(path, here)["arguments"]]

    def environment(self, path, here=False, names=None):
        return lambda: [bytes.fromhex(self.record(path, here)["environment"][name]) for name in (names or [f"V{i}" for i in range(COUNT)])]

    def standard_input(self, path, here=False):
        return lambda: [bytes.fromhex(self.record(path, here)["input"])]

    # --- the ways

    def script(self, phase, shell):
        """Arguments in every quoting of a script."""
        path = f"script-{phase}-{shell}"
        words, wanted, lines = [], [], []
        for i, value in enumerate(self.values):
            form = self.random.randrange(6)
            if form == 5:
                lines.append(f"x{i}={self.reference(i)}")
                words.append(f'"$x{i}"')
                wanted.append(value)
                continue
            word, text = ((f"{self.reference(i)}", value), (f"\"{self.reference(i)}\"", value), (f"pre{self.reference(i)}post", f"pre{value}post"),
                          (f"\"a {self.reference(i)} b\"", f"a {value} b"), (f"\"$(printf '%s.' {self.reference(i)})\"", value + "."))[form]
            words.append(word)
            wanted.append(text)
        lines.append(f"/srv/recv /srv/got/{path} " + " ".join(words))
        i = self.random.randrange(COUNT)
        lines.append(f"cat >/srv/got/{path}-here <<END\n{self.reference(i)}\nEND")
        self.expect("ssh", f"{phase} of {shell}", self.arguments(path), wanted)
        self.expect("ssh", f"here-document in {phase} of {shell}", lambda: [self.on_host(f"{path}-here")], [self.values[i] + "\n"])
        return {"ssh": {"script": "\n".join(lines) + ("\nexit 1\n" if phase == "check" else "\n"), **({} if shell == "sh" else {"shell": shell})}}

    def ssh(self):
        for shell in ("sh", "bash"):
            self.add(f"script-{shell}", self.script("run", shell), check=self.script("check", shell), verify=self.script("verify", shell))
        i, k, m = (self.random.randrange(COUNT) for _ in range(3))
        environment = {f"V{n}": self.reference(n) for n in range(COUNT)} | {"V_READS": "1"}
        self.add("command", {"ssh": {"command": ["/srv/recv", "/srv/got/command", *(self.reference(n) for n in range(COUNT))], "input": self.reference(i)}}, env=environment)
        self.expect("ssh", "arguments of a command", self.arguments("command"), self.values)
        self.expect("ssh", "environment", self.environment("command"), self.values)
        self.expect("ssh", "standard input", self.standard_input("command"), [self.values[i]])
        self.add("arguments", {"ssh": {"script": "import os, sys\nos.execv('/srv/recv', ['recv', '/srv/got/arguments'] + sys.argv[1:])\n", "shell": "python3", "arguments": [self.reference(n) for n in range(COUNT)]}})
        self.expect("ssh", "arguments of a program in Python", self.arguments("arguments"), self.values)
        self.add("push", {"ssh": {"push": {"content": f"<{self.reference(k)}>", "to": "/srv/got/push"}}})
        self.expect("ssh", "a pushed file", lambda: [self.on_host("push")], [f"<{self.values[k]}>"])
        blocks = [{"template": {"path": "/srv/got/template", "content": "".join(f"<{{{{ w{n} }}}}>" for n in range(COUNT)) + f"[{self.reference(m)}]"}},
                  {"file": {"path": "/srv/got/file", "content": self.reference(k)}},
                  {"command": {"argv": ["/srv/recv", "/srv/got/block", *(self.reference(n) for n in range(COUNT))]}}]
        self.expect("ssh", "a template", lambda: [self.on_host("template")], ["".join(f"<{value}>" for value in self.values) + f"[{self.values[m]}]"])
        self.expect("ssh", "a file", lambda: [self.on_host("file")], [self.values[k]])
        self.expect("ssh", "arguments of a block", self.arguments("block"), self.values)
        lines = [n for n in self.lines if self.values[n] and len(self.values[n]) < 4000]
        if lines:
            n = self.random.choice(lines)
            blocks.append({"line": {"path": "/srv/got/line", "line": self.reference(n), "create": True}})
            self.expect("ssh", "a line", lambda: [self.on_host("line")], [self.values[n] + "\n"])
        self.add("blocks", {"ssh": {"blocks": blocks}})

    def http(self):
        i = self.random.randrange(COUNT)
        at = self.lab.origin
        self.add("http-json", {"http": {"url": at + "/json", "json": {"all": [self.reference(n) for n in range(COUNT)], "in": {"text": f"<{self.reference(i)}>"}}}}, on_host=False)
        self.expect("http", "JSON", lambda: [one.encode() for one in json.loads(Origin.seen["json"][2])["all"]], self.values)
        self.expect("http", "JSON within a text", lambda: [json.loads(Origin.seen["json"][2])["in"]["text"].encode()], [f"<{self.values[i]}>"])
        self.add("http-body", {"http": {"url": at + "/body", "method": "POST", "body": f"{self.reference(i)}\n"}}, on_host=False)
        self.expect("http", "a body", lambda: [Origin.seen["body"][2]], [self.values[i] + "\n"])
        heads = [n for n in self.lines if self.values[n] and self.values[n] == self.values[n].strip() and len(self.values[n].encode()) < 3000]
        if heads:
            n = self.random.choice(heads)
            self.add("http-header", {"http": {"url": at + "/header", "headers": {"X-Value": self.reference(n)}}}, on_host=False)
            self.expect("http", "a header", lambda: [Origin.seen["header"][1]["X-Value"]], [self.values[n]])
        short = [n for n in range(COUNT) if self.values[n] not in ("", ".", "..") and len(self.values[n].encode()) < 700]
        n, m = self.random.choice(short), self.random.choice(short)
        self.add("http-url", {"http": {"url": f"{at}/url/{self.reference(n)}/end?a={self.reference(m)}&b=1"}}, on_host=False)

        def parts():
            path, _, query = Origin.seen["url"][0].partition("?")
            segments = path.split("/")
            equal_silently("segments of the path", segments[:2] + segments[3:], ["", "url", "end"])
            asked = query.split("&")
            equal_silently("parameters of the query", asked[1:], ["b=1"])
            return [urllib.parse.unquote_to_bytes(segments[2]), urllib.parse.unquote_to_bytes(asked[0][2:])]
        self.expect("http", "path and query", parts, [self.values[n], self.values[m]])

    def local(self):
        i = self.random.randrange(COUNT)
        self.add("local", {"local": {"program": "recv", "arguments": [os.path.join(self.lab.here, "local"), *(self.reference(n) for n in range(COUNT))], "input": self.reference(i)}}, on_host=False,
                 env={f"V{n}": self.reference(n) for n in range(COUNT)} | {"V_READS": "1"})
        self.expect("local", "arguments", self.arguments("local", here=True), self.values)
        self.expect("local", "environment", self.environment("local", here=True), self.values)
        self.expect("local", "standard input", self.standard_input("local", here=True), [self.values[i]])

    def ansible(self):
        self.add("ansible", {"ansible": {"playbook": "play.yml", "variables": {"nested": {"list": [self.reference(n) for n in range(COUNT)]}}}}, env={f"V{n}": self.reference(n) for n in range(COUNT)})
        self.expect("ansible", "variables", lambda: [bytes.fromhex(one) for one in self.on_host("play-with").decode().split(",")], self.values)
        self.expect("ansible", "nested variables", lambda: [bytes.fromhex(one) for one in self.on_host("play-nested").decode().split(",")], self.values)
        # The module `command` of Ansible itself expands "~" and "$NAME" in its arguments: those values are compared elsewhere only.
        kept = [n for n, value in enumerate(self.values) if not value.startswith("~") and "$" not in value]
        arguments = self.arguments("play-arguments")
        self.expect("ansible", "arguments of a module", lambda: [arguments()[n] for n in kept], [self.values[n] for n in kept])
        self.expect("ansible", "environment", self.environment("play-arguments"), self.values)

    def puppet(self):
        self.add("puppet", {"puppet": {"manifest": "site.pp", "data": {"nested": {"list": [self.reference(n) for n in range(COUNT)]}}}}, env={f"V{n}": self.reference(n) for n in range(COUNT)})
        self.expect("puppet", "Hiera data", lambda: [self.on_host(f"puppet-{n}") for n in range(COUNT)], self.values)
        self.expect("puppet", "nested Hiera data", lambda: [self.on_host(f"puppet-nested-{n}") for n in range(COUNT)], self.values)

    def members(self):
        """Tags of a member, and invalid names and addresses."""
        hostile = self.random.sample([value for value in self.values if value and len(value) < 200 and not value.replace(".", "").isalnum()] or ["a b"], 1)[0]
        self.lab.consul_register("good-1", "192.0.2.1", [value[:200] for value in self.values if is_line(value) and value][:5])
        # A value such as "-e" would make a valid host name, and so a member.
        harmless = re.fullmatch(r"[A-Za-z0-9._-]*", hostile) is not None
        self.lab.consul_register(f"x-{';' if harmless else ''}{hostile}", "192.0.2.66", [])
        self.add("members", {"ssh": {"script": "/srv/recv /srv/got/members ${service.web.registered.nodes} ${service.web.registered.addresses} ${service.web.endpoints} ${service.web.count} ${node.labels.hostile} ${node.name}"}})
        self.expect("ssh", "members and labels", self.arguments("members"), ["good-1", "192.0.2.1", "192.0.2.1:80", "1", self.lab.label, "h1"])

    # --- the job

    def run(self):
        lab = self.lab
        for folder in (lab.got, lab.here):
            for name in os.listdir(folder):
                os.unlink(os.path.join(folder, name))
        Origin.values, Origin.seen = self.values, {}
        lab.relabel(self.random.choice([value for value in self.values if is_line(value) and len(value.encode()) <= 256] or ["x"]))
        for way in lab.ways:
            getattr(self, way)()
        parameters = {f"p{i}": value for i, value in enumerate(self.values)}
        try:
            lab.api.post("/v1/jobs", {"kind": "Job", "name": self.name, "spec": {"parameters": parameters, "limits": {"per_host": 8}, "tasks": self.tasks}})
        except Problem as problem:
            raise Failed(f"{self.name}: {problem.status} {json.dumps(problem.document)[:3000]}") from None
        state = lambda: lab.api.get(f"/v1/jobs/{self.name}")["status"].get("state")  # noqa: E731
        wait_until(f"{self.name} is over", lambda: state() in ("succeeded", "failed", "cancelled", "converged", "done"), 240, every=0.1)
        bad = [(task["task"], task["state"], task.get("message")) for task in lab.api.get(f"/v1/jobs/{self.name}/tasks?limit=5000")["tasks"] if task["state"] != "succeeded"]
        equal_silently(f"{self.name}: tasks that did not succeed, with {self.values!r}", bad, [])
        for executor, way, get, wanted in self.expected:
            for got, value in zip(get(), wanted, strict=True):
                equal_silently(f"{self.name}: {executor}, {way}", got, value)
                lab.sent[executor] = lab.sent.get(executor, 0) + 1
        lab.no_canaries()
        lab.api.delete(f"/v1/jobs/{self.name}")


def equal_silently(what, seen, expected):
    if seen != expected:
        raise Failed(f"{what}: expected {expected!r}, saw {seen!r}")


class Lab:
    def __init__(self, given):
        self.values = Values(given.seed)
        self.ways = ["ssh", "http", "local", "members", *(["ansible"] if given.ansible else []), *(["puppet"] if given.puppet else [])]
        self.sent, self.label = {}, ""
        hosts = self.hosts = Hosts(1)
        hosts.enter()
        self.got = os.path.join(hosts[0].folder, "srv", "got")
        self.here = scratch("got-here")
        os.makedirs(self.got)
        self.canaries = [CANARIES, os.path.join(hosts[0].folder, CANARIES.lstrip("/"))]
        for folder in self.canaries:
            os.makedirs(folder)
        atexit.register(shutil.rmtree, CANARIES, ignore_errors=True)
        write_file(os.path.join(hosts[0].folder, "srv", "recv"), RECEIVER, 0o755)
        program = write_file(os.path.join(scratch("programs"), "recv"), RECEIVER, 0o755)
        content = scratch("content")
        each = ", ".join(f"w{i}" for i in range(COUNT))
        write_file(os.path.join(content, "play.yml"), f"""- hosts: all
  gather_facts: false
  tasks:
  - {{name: with, copy: {{content: "{{{{ [{each}] | map('to_hex') | join(',') }}}}", dest: /srv/got/play-with}}}}
  - {{name: nested, copy: {{content: "{{{{ nested.list | map('to_hex') | join(',') }}}}", dest: /srv/got/play-nested}}}}
  - name: arguments
    command:
      argv: "{{{{ ['/srv/recv', '/srv/got/play-arguments'] + [{each}] }}}}"
""", 0o644)
        os.makedirs(os.path.join(content, "filter_plugins"))
        write_file(os.path.join(content, "filter_plugins", "to_hex.py"), "class FilterModule:\n    def filters(self):\n        return {'to_hex': lambda text: text.encode().hex()}\n", 0o644)
        write_file(os.path.join(content, "site.pp"), "".join(f"file {{ '/srv/got/puppet-{i}': content => lookup('w{i}') }}\nfile {{ '/srv/got/puppet-nested-{i}': content => lookup('nested')['list'][{i}] }}\n" for i in range(COUNT)), 0o644)
        origin = http.server.ThreadingHTTPServer(("10.77.255.1", 0), Origin)
        threading.Thread(target=origin.serve_forever, daemon=True).start()
        self.origin = f"http://10.77.255.1:{origin.server_port}"
        self.consul = f"http://127.0.0.1:{orrery_lab.free_port()}"
        self.server = Server(given.orrery, arguments=["--jobs-programs", f"recv={program}", "--jobs-content", content, "--catalog-http-listen", self.consul[7:], "--catalog-http-anonymous", "operator"])
        self.server.start()
        self.api = self.server.api(seconds=60)
        self.api.put("/v1/secrets/lab", {"spec": {"values": {"token": TOKEN}}})
        self.api.put("/v1/secrets/lab-key", {"spec": {"values": {"private_key": hosts.private_key()}}})
        self.api.put("/v1/services/web", {"spec": {"port": 80}})
        self.relabel("first")

    def relabel(self, value):
        node = self.hosts.node(self.hosts[0])
        node["labels"]["hostile"] = value
        self.api.put("/v1/nodes/h1", node)
        self.label = value

    def consul_register(self, node, address, tags):
        """Like Consul, the facade accepts any text as the name of a node; it may refuse an invalid one, such as a control character."""
        body = json.dumps({"Node": node, "Address": address, "Service": {"Service": "web", "ID": "web", "Tags": tags}}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.consul + "/v1/catalog/register", data=body, method="PUT"), timeout=10) as answer:
                answer.read()
        except urllib.error.HTTPError as refused:
            equal_silently(f"only hostile values are refused: {refused.read()[:300]!r}", (node.startswith("x-"), refused.code < 500 or refused.code == 500), (True, True))

    def no_canaries(self):
        for folder in self.canaries:
            equal_silently(f"files that a value made in {folder}", os.listdir(folder), [])


def invalid_members(lab):
    """Registrations of nodes with invalid names are kept, are not members, and are explained."""
    why = lab.api.get("/v1/why/service/web")
    check("why of the service names instances that are not members", "not a valid host name" in json.dumps(why) and why.get("invalid_instances", 0) > 0, json.dumps(why)[:1500])
    status = lambda: lab.api.get("/v1/services/web")["status"]  # noqa: E731
    wait_until("its status too, and counts one", lambda: status().get("registered") == 1 and re.search("(is|are) not (a )?member", status().get("message", "")), 10)
    lines = [line for line in lab.server.log_text().splitlines() if "is not a member" in line]
    check("each is logged", len(lines) > 0)
    equal("once", len(lines), len(set(line.partition("message=")[2] for line in lines)))
    problem = lab.api.refused("our own API refuses such a name", 400, "PUT", "/v1/instances/bad", {"spec": {"service": "web", "node": "x;reboot"}})
    check("and names the field", "spec.node" in json.dumps(problem.document), problem.document)
    for address in ("fe80::1%{{ lookup('pipe', 'touch " + CANARIES + "/x') }}", f"fe80::1%0;touch {CANARIES}/x", "::1%"):
        lab.api.refused(f"an address whose zone is no interface is refused: {address[:12]}", 400, "PUT", "/v1/nodes/zone", {"spec": {"address": address}})


def refusals(lab):
    """A value in a forbidden position ends the task before it sends anything."""
    Origin.values, Origin.seen = ["a\r\nX-Injected: 1", "..", "../../etc/passwd", *["x"] * (COUNT - 3)], {}
    tasks = [{"name": "source", "run": {"http": {"url": lab.origin + "/values", "values": {f"v{i}": f"/v{i}" for i in range(COUNT)}}}},
             {"name": "header", "after": ["source"], "run": {"http": {"url": lab.origin + "/header", "headers": {"X-Value": "${task.source.values.v0}"}}}},
             {"name": "path", "after": ["source"], "run": {"http": {"url": lab.origin + "/path/${task.source.values.v1}/x"}}},
             {"name": "push", "on": ["h1"], "after": ["source"], "run": {"ssh": {"push": {"from": "${task.source.values.v2}", "to": "/srv/got/pushed"}}}}]
    wanted = {"header": "one line", "path": "leads out of the path", "push@h1": "plain path"}
    if "ansible" in lab.ways:
        os.symlink("/etc/hostname", os.path.join(scratch("content"), "out.yml"))
        tasks += [{"name": "playbook", "on": ["h1"], "after": ["source"], "run": {"ansible": {"playbook": "${task.source.values.v2}"}}},
                  {"name": "linked-playbook", "on": ["h1"], "run": {"ansible": {"playbook": "out.yml"}}}]
        wanted |= {"playbook@h1": "plain path", "linked-playbook@h1": "leads out of the folder of content"}
    if "puppet" in lab.ways:
        os.symlink("/etc", os.path.join(scratch("content"), "out"))
        tasks += [{"name": "manifest", "on": ["h1"], "after": ["source"], "run": {"puppet": {"manifest": "${task.source.values.v2}"}}},
                  {"name": "linked-manifest", "on": ["h1"], "run": {"puppet": {"manifest": "out/hostname"}}},
                  {"name": "linked-module", "on": ["h1"], "run": {"puppet": {"manifest": "site.pp", "modules": ["out"]}}}]
        wanted |= {"manifest@h1": "plain path", "linked-manifest@h1": "leads out of the folder of content", "linked-module@h1": "leads out of the folder of content"}
    lab.api.post("/v1/jobs", {"kind": "Job", "name": "refusals", "spec": {"tasks": tasks}})
    wait_until("that job has ended", lambda: lab.api.get("/v1/jobs/refusals")["status"].get("state") == "failed", 60)
    for task in lab.api.get("/v1/jobs/refusals/tasks")["tasks"]:
        if task["task"] != "source":
            check(f"{task['task']} is refused", task["state"] == "failed" and wanted[task["task"]] in task["message"], task)
    equal("and nothing was sent", [name for name in Origin.seen if name in ("header", "path")], [])


def main(given):
    if given.ansible:
        orrery_lab.program("ansible-playbook", "ansible-core")
    if given.puppet:
        orrery_lab.program("puppet", "puppet-agent")
    log(f"      seed {given.seed}")
    lab = Lab(given)
    end = time.monotonic() + given.seconds
    rounds = 0
    while rounds == 0 or time.monotonic() < end:
        rounds += 1
        Round(lab, rounds, lab.values.batch()).run()
        if rounds % 10 == 0:
            log(f"      {rounds} rounds; values that arrived: {lab.sent}")
    check(f"{rounds} rounds: every value arrived byte for byte, and nothing else ran; seed {given.seed}, values by executor: {lab.sent}", True)
    invalid_members(lab)
    refusals(lab)
    lab.no_canaries()
    check("no secret that a value named is in the server's log", TOKEN not in lab.server.log_text())
    equal("it stops on SIGTERM", lab.server.stop(), 0)


def options(parser):
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--ansible", action="store_true")
    parser.add_argument("--puppet", action="store_true")


if __name__ == "__main__":
    run(main, options)
