"""Unchanged clients of Consul with orrery as their server."""
import json
import os
import subprocess
import threading
import time

import differential
import orrery_lab as lab


def consul_cli(peers, ours):
    program = os.path.join(peers, "bin", "consul")
    environment = {"PATH": os.environ["PATH"], "HOME": lab.scratch("home"), "CONSUL_HTTP_ADDR": ours.http}

    def cli(*words, status=0, stdin=None, seconds=30):
        done = subprocess.run([program, *words], env=environment, capture_output=True, text=True, timeout=seconds, input=stdin)
        lab.check(f"consul {' '.join(words)}", done.returncode == status, f"ended with {done.returncode}: {done.stdout} {done.stderr}")
        return done.stdout

    lab.contains("members shows this server", cli("members"), "agent1", "alive")
    lab.contains("nodes are listed", cli("catalog", "nodes"), "agent1", "ext1")
    lab.contains("nodes of a service", cli("catalog", "nodes", "-service=many", "-detailed"), "m1", "10.1.0.1")
    lab.contains("a filter", cli("catalog", "nodes", "-filter", 'Node == "m2"'), "m2")
    lab.contains("services with tags", cli("catalog", "services", "-tags"), "many", "Even,Odd")
    lab.contains("datacenters", cli("catalog", "datacenters"), "dc1")
    cli("kv", "put", "cli/one", "first")
    lab.equal("a key is read back", cli("kv", "get", "cli/one").strip(), "first")
    cli("kv", "put", "-cas", "-modify-index=0", "cli/two", "second")
    cli("kv", "put", "-cas", "-modify-index=1", "cli/two", "third", status=1)
    lab.equal("keys below", cli("kv", "get", "-keys", "cli/").split(), ["cli/one", "cli/two"])
    lab.contains("details", cli("kv", "get", "-detailed", "cli/one"), "CreateIndex", "ModifyIndex", "cli/one")
    exported = cli("kv", "export", "cli/")
    cli("kv", "delete", "-recurse", "cli/")
    cli("kv", "get", "cli/one", status=1)
    cli("kv", "import", "-", stdin=exported)
    lab.equal("an export can be imported", cli("kv", "get", "cli/two").strip(), "second")
    definition = lab.write_file(os.path.join(lab.scratch(), "web.json"), json.dumps({"service": {"name": "fromcli", "port": 8088, "tags": ["x"], "check": {"ttl": "60s"}}}))
    cli("services", "register", definition)
    lab.contains("it is there", cli("catalog", "services"), "fromcli")
    cli("services", "deregister", definition)
    lab.check("it is gone", "fromcli" not in cli("catalog", "services"))
    cli("maint", "-enable", "-reason", "by hand")
    lab.contains("maintenance is shown", cli("maint"), "by hand")
    cli("maint", "-disable")
    marker = os.path.join(lab.scratch(), "locked")
    cli("lock", "cli/lock", f"touch {marker}")
    lab.check("a lock was taken and the command run", os.path.exists(marker))
    # Two who want the same lock: the second waits for the first.
    first = subprocess.Popen([program, "lock", "cli/lock2", "sleep 2"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lab.wait_until("the first client has the lock", lambda: "Session" in str(differential.as_value(differential.request(ours.http, "GET", "kv/cli/lock2/.lock")[2])), 10)
    begin = time.monotonic()
    cli("lock", "cli/lock2", "true", seconds=40)
    lab.check(f"the second client waited {time.monotonic() - begin:.1f} s for it", time.monotonic() - begin > 0.7)
    first.wait(10)
    watch = subprocess.Popen([program, "watch", "-type=key", "-key=cli/watched", "cat"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(0.5)
    cli("kv", "put", "cli/watched", "seen")
    deadline, seen = time.monotonic() + 10, ""
    os.set_blocking(watch.stdout.fileno(), False)
    while time.monotonic() < deadline and "c2Vlbg==" not in seen and "seen" not in seen:
        seen += watch.stdout.read() or ""
        time.sleep(0.05)
    watch.terminate()
    watch.wait(10)
    lab.check("watch -type=key saw the change", "c2Vlbg==" in seen or "seen" in seen, seen)


def consul_template(peers, ours):
    folder = lab.scratch("template")
    template, out = os.path.join(folder, "t.ctmpl"), os.path.join(folder, "out.conf")
    lab.write_file(template, 'app={{ key "app/x" }}\n{{ range service "many" }}server {{ .Node }} {{ .Address }}:{{ .Port }}\n{{ end }}{{ range ls "app" }}{{ .Key }}={{ .Value }}\n{{ end }}'
                             '{{ range services }}{{ .Name }} {{ end }}\n{{ range nodes }}{{ .Node }} {{ end }}\n')
    differential.request(ours.http, "PUT", "kv/app/x", "hello")
    program = os.path.join(peers, "bin", "consul-template")
    address = ours.http.removeprefix("http://")
    done = subprocess.run([program, "-consul-addr", address, "-template", f"{template}:{out}", "-once"], capture_output=True, text=True, timeout=30)
    text = open(out).read() if os.path.exists(out) else ""
    lab.check("consul-template renders once", done.returncode == 0 and "app=hello" in text and "server m1 10.1.0.1:8001" in text and "x=hello" in text and " large " in f" {text} ",
              f"{done.returncode} {done.stderr[-500:]} {text[:300]}")
    process = lab.Process("consul-template", [program, "-consul-addr", address, "-template", f"{template}:{out}"])
    differential.request(ours.http, "PUT", "kv/app/x", "changed")
    begin = time.monotonic()
    lab.wait_until("a changed key is rendered", lambda: "app=changed" in open(out).read(), 15)
    differential.request(ours.http, "PUT", "catalog/register", {"Node": "m9", "Address": "10.1.0.9", "Service": {"ID": "many9", "Service": "many", "Port": 8009}})
    lab.wait_until("a new member is rendered", lambda: "server m9 10.1.0.9:8009" in open(out).read(), 15)
    differential.request(ours.http, "PUT", "catalog/register", {"Node": "m9", "Address": "10.1.0.9", "Check": {"Name": "c", "Status": "critical"}})
    lab.wait_until("a failing member is removed", lambda: "server m9" not in open(out).read(), 15)
    lab.log(f"consul-template followed three changes within {time.monotonic() - begin:.1f} s")
    process.kill()


def prometheus(peers, ours):
    """Prometheus's own discovery code with the settings of consul_sd_configs (Debian's Prometheus is built without it)."""
    child = subprocess.Popen([os.path.join(peers, "bin", "discover"), ours.http.removeprefix("http://"), "many"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found = {}

    def follow():
        nonlocal found
        for line in child.stdout:
            found = json.loads(line)

    threading.Thread(target=follow, daemon=True).start()
    lab.wait_until("Prometheus finds all members", lambda: set(found) >= {"m1", "m2", "m3", "m4", "m5"}, 30)
    lab.equal("with address and tags", (found["m1"]["__address__"], found["m1"]["__meta_consul_tags"]), ("10.1.0.1:8001", ",Odd,"))
    differential.request(ours.http, "PUT", "catalog/deregister", {"Node": "m5"})
    lab.wait_until("and removes a member that is deregistered", lambda: "m5" not in found, 30)
    child.stdin.close()
    child.wait(10)
