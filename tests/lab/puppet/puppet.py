#!/usr/bin/python3 -B
"""The puppet executor against the distribution's Puppet: the exit matrix, noop, the package phase, Hiera data, kill -9, secrets."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import orrery_lab  # noqa: E402
from executors import Driver, add_options, nodes_of  # noqa: E402
from hosts import Hosts  # noqa: E402
from orrery_lab import check, contains, equal, write_file  # noqa: E402

CANARY = "canary-93e0aa"
FILES = {
    "site.pp": "node 'h1' { include lab }\nnode default { fail('not this node') }\n",
    "modules/lab/manifests/init.pp": "class lab($peers, $password = 'none') {\n  package { 'bash': ensure => installed }\n"
                                     "  -> file { '/srv/conf': content => epp('lab/conf.epp', { peers => $peers }), mode => '0640' }\n"
                                     "  file { '/srv/secret': content => Sensitive($password), mode => '0600' }\n}\n",
    "modules/lab/templates/conf.epp": "<%- | $peers | -%>\npeers <%= $peers.join(',') %>\n",
    "fails.pp": "exec { 'bad': command => '/bin/false' }\nnotify { 'after': require => Exec['bad'] }\n",
    "both.pp": "file { '/srv/both': content => 'x' }\n-> exec { 'bad': command => '/bin/false' }\n",
    "compile.pp": "include no_such_class\n",
    "context.pp": "notify { \"fact ${facts['orrery_context']}\": }\n",
    "slow.pp": "exec { '/bin/sh -c \"echo run >>/srv/slow; sleep 4\"': }\n",
}


def main(options):
    orrery_lab.program("puppet", "puppet-agent")
    hosts = Hosts(1)
    hosts.enter()
    host = hosts[0]
    content = orrery_lab.scratch("content")
    for name, text in FILES.items():
        os.makedirs(os.path.dirname(os.path.join(content, name)), exist_ok=True)
        write_file(os.path.join(content, name), text, 0o644)
    path, nodes = os.path.abspath(options.driver), nodes_of(hosts)
    driver = Driver(path, nodes, hosts.key_file, content)

    def apply(body, **more):
        return driver.start("puppet", "h1", body, timeout=120, **more)

    site = {"manifest": "site.pp", "modules": ["modules/lab"], "data": {"lab::password": CANARY}}
    bound = {"values": {"lab::peers": ["10.0.0.1", "10.0.0.2"]}, "secrets": {"lab.p": CANARY}}
    preview = driver.ask("plan", "puppet", "h1", site, timeout=120, **bound).wait(120)
    check("noop reports what would change, although it exits with 0", preview.get("change") == "changed" and any("/srv/conf" in d["name"] for d in preview["differences"]), preview)
    equal("and changes nothing", host.run("ls", "/srv"), "")
    call = apply({**site, "phase": "packages"}, **bound)
    check("the phase of packages touches packages only", call.outcome(120)["ended"] == "succeeded" and host.run("ls", "/srv") == "", (call.done, call.err))
    call = apply(site, **bound)
    outcome = call.outcome(120)
    check("2: changed", outcome["ended"] == "succeeded" and outcome["change"] == "changed" and outcome["exit_code"] == 2, (outcome, call.err))
    equal("values of the task are Hiera's highest layer", host.run("cat", "/srv/conf"), "peers 10.0.0.1,10.0.0.2\n")
    equal("a secret reaches its destination", host.run("cat", "/srv/secret"), CANARY)
    equal("and is stored nowhere else", host.run("grep", "-rl", CANARY, "/root", "/tmp", "/var/tmp", "/run", check=False), "")
    check("changed resources are steps", any(s["name"] == "File[/srv/conf]" and s["result"] == "changed" for s in call.steps), call.steps)
    check("the report is not in the log", "report of attempt" not in call.text() and "resource_statuses" not in call.text())
    contains("the output of Puppet is", call.text(), "Notice: ")
    outcome = apply(site, **bound).outcome(120)
    check("0: nothing to do", outcome["ended"] == "succeeded" and outcome["change"] == "unchanged" and outcome["exit_code"] == 0, outcome)
    call = apply({"manifest": "fails.pp"})
    outcome = call.outcome(120)
    check("4: failures, nothing changed", outcome["error"] == "failed" and outcome["exit_code"] == 4 and outcome["change"] == "unchanged", outcome)
    contains("the cause is named", outcome["message"], "Exec[bad]")
    check("dependent resources were skipped", any(s["name"] == "Notify[after]" and s["result"] == "skipped" for s in call.steps), call.steps)
    outcome = apply({"manifest": "both.pp"}).outcome(120)
    check("6: failures and changes", outcome["error"] == "failed" and outcome["exit_code"] == 6 and outcome["change"] == "changed", outcome)
    outcome = apply({"manifest": "compile.pp"}).outcome(120)
    check("1: did not compile", outcome["error"] == "refused" and outcome["exit_code"] == 1 and "no_such_class" in outcome["message"], outcome)
    outcome = apply({"code": "file { '/srv/code': content => lookup('x') }"}, values={"x": "from hiera"}).outcome(120)
    check("a job can contain its manifest", outcome["ended"] == "succeeded" and host.run("cat", "/srv/code") == "from hiera", outcome)

    call = apply({"manifest": "slow.pp"})
    orrery_lab.wait_until("it runs", lambda: host.run("cat", "/srv/slow", check=False) == "run\n", 60)
    driver.kill()
    driver = Driver(path, nodes, hosts.key_file, content)
    driver.ask("reattach", "puppet", "h1", {"manifest": "slow.pp"}, id=call.id, call=call, kept=[len(call.out), len(call.err)], timeout=60)
    done = call.wait(60)
    check("after kill -9 of the server the run is reattached, with its report",
          done.get("state") == "ended" and done["outcome"]["ended"] == "succeeded" and done["outcome"]["values"]["changed"] == 1, done)
    equal("and it ran once", host.run("cat", "/srv/slow"), "run\n")
    driver.finish()
    context_of_a_job(options, hosts)
    hosts.down()


def context_of_a_job(options, hosts):
    """A server that was given no setting about Puppet, and two jobs."""
    server = orrery_lab.Server(options.orrery)
    os.makedirs(os.path.join(server.folder, "content"), mode=0o700)
    write_file(os.path.join(server.folder, "content", "context.pp"), FILES["context.pp"], 0o644)
    server.start()
    api = server.api()
    api.put("/v1/secrets/lab-key", {"spec": {"values": {"private_key": hosts.private_key()}}})
    api.put("/v1/nodes/h1", hosts.node(hosts[0]))
    cli = orrery_lab.Cli(options.orrery, server).login(server)
    for name in ("one", "two"):
        api.post("/v1/jobs", {"name": name, "spec": {"tasks": [{"name": "apply", "on": ["h1"], "run": {"puppet": {"manifest": "context.pp"}}}]}}, **{"X-Request-Id": f"trace-{name}"})
    for name in ("one", "two"):
        equal(f"job {name} succeeds", cli("job", "wait", name, seconds=120).status, 0)
        contains("the context of the request that submitted the job is a fact of its Puppet runs", cli.ok("job", "logs", name, "apply@h1"), f"fact trace-{name}")
    server.stop()


if __name__ == "__main__":
    orrery_lab.run(main, add_options)
