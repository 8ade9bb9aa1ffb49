"""Real ExternalDNS programs, one for each cluster, send their addresses to the server (their webhook protocol, with orrery as the provider). Called by `run`.

What a cluster wants is a file; `external-dns-wanted` passes it to ExternalDNS by its connector source, so that the test chooses the names.
"""
import contextlib
import http.client
import json
import os
import socket
import subprocess
import threading
import time

import orrery_lab as lab
from publishing_lab import holds

DOMAIN = "apps.test"


def endpoint(name, *targets, kind="A", ttl=0):
    return {"dnsName": f"{name}.{DOMAIN}", "targets": list(targets), "recordType": kind, "recordTTL": ttl}


class Cluster:
    """A Kubernetes cluster, as far as ExternalDNS sees it."""

    def __init__(self, programs, api, name, site, monitors=()):
        self.programs, self.name, self.site = programs, name, site
        made = api.post("/v1/clusters", {"name": name, "spec": {"site": site, "domains": [DOMAIN], "monitors": list(monitors)}})
        self.path = made["once"]["path"]
        self.file = os.path.join(lab.scratch("clusters"), f"{name}.json")
        self.want()
        self.source = subprocess.Popen([os.path.join(programs, "external-dns-wanted"), self.file], stdout=subprocess.PIPE, text=True)
        self.port = int(self.source.stdout.readline())

    def want(self, *endpoints):
        lab.write_file(self.file, json.dumps(endpoints))

    def round(self, server, path=None, seconds=60):
        """One synchronization of ExternalDNS with its wanted records."""
        return subprocess.run([os.path.join(self.programs, "external-dns"), "--source=connector", f"--connector-source-server=127.0.0.1:{self.port}", "--provider=webhook",
                               f"--webhook-provider-url={server.url}{path or self.path}", f"--txt-owner-id={self.name}", "--registry=txt", "--policy=sync", "--metrics-address=127.0.0.1:0",
                               "--managed-record-types=A", "--managed-record-types=AAAA", "--managed-record-types=CNAME", "--once"],
                              capture_output=True, text=True, timeout=seconds, env={"PATH": os.environ.get("PATH", ""), "HOME": lab.scratch("home")})

    def token(self):
        return self.path.rpartition("/")[2]

    def post(self, server, what, seconds=60):
        """The request by itself: (status, seconds)."""
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=seconds)
        with contextlib.closing(connection):
            begin = time.monotonic()
            connection.request("POST", self.path + "/records", json.dumps(what), {"Content-Type": "application/external.dns.webhook+json;version=1", "Accept": "application/external.dns.webhook+json;version=1"})
            answer = connection.getresponse()
            answer.read()
            return answer.status, time.monotonic() - begin

    def end(self):
        self.source.kill()
        self.source.wait()


class Service:
    """Something that listens at an address of loopback: an ingress."""

    def __init__(self, address, port):
        self.address, self.port = address, port
        self.start()

    def start(self):
        self.listener = socket.create_server((self.address, self.port), backlog=64)
        threading.Thread(target=self._serve, args=(self.listener,), daemon=True).start()

    @staticmethod
    def _serve(listener):
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def answers(port, name):
    done = subprocess.run(["dig", "+short", "+time=1", "+tries=2", "-p", str(port), "@127.0.0.1", f"{name}.{DOMAIN}"], capture_output=True, text=True, env=lab.clean_environment())
    return sorted(done.stdout.split()) if done.returncode == 0 else None


def soon(what, condition, seen, seconds=15):
    """Waits until it holds, and checks it."""
    with contextlib.suppress(lab.Failed):
        lab.wait_until(what, condition, seconds, 0.1)
    return holds(what, condition(), seen())


def one_server(orrery, programs):
    dns = lab.free_port()
    server = lab.Server(orrery, name="source", arguments=["--log-level", "debug", "--dns-listen", f"127.0.0.1:{dns}"])
    server.start()
    api = server.api()
    port = lab.free_port()
    api.post("/v1/zones", {"name": "apps", "spec": {"origin": DOMAIN, "nameservers": ["ns1.example.net"]}})
    api.post("/v1/monitors", {"name": "ingress", "spec": {"kind": "tcp", "port": port, "interval": "1s", "timeout": "500ms", "rise": 1, "fall": 2}})
    ams, nyc, sfo = clusters = [Cluster(programs, api, name, site, ["ingress"]) for name, site in (("ams", "amsterdam"), ("nyc", "new-york"), ("sfo", "san-francisco"))]
    services = {cluster.name: Service(f"127.0.{i + 1}.1", port) for i, cluster in enumerate(clusters)}

    def members(of):
        return {one["name"]: one for one in api.all("members") if one["spec"]["pool"] == f"{of}.{DOMAIN}"}

    def changes(cluster):
        return api.get(f"/v1/clusters/{cluster.name}")["status"].get("changes", 0)

    for i, cluster in enumerate(clusters):
        cluster.want(endpoint("www", f"127.0.{i + 1}.1", ttl=20), endpoint(f"only-{cluster.name}", f"127.0.{i + 1}.1"), endpoint("alias", "elsewhere.example", kind="CNAME"),
                     {**endpoint("x", "192.0.2.1"), "dnsName": "www.elsewhere.test"})
        done = cluster.round(server)
        holds(f"a synchronization of {cluster.name}'s ExternalDNS succeeds", done.returncode == 0, done.stderr[-1500:])
    everyone = ["127.0.1.1", "127.0.2.1", "127.0.3.1"]
    soon("a name in three clusters is answered with the addresses of all three", lambda: answers(dns, "www") == everyone, lambda: answers(dns, "www"))
    holds("each address is a member at its cluster's site", {one["spec"]["site"] for one in members("www").values()} == {"amsterdam", "new-york", "san-francisco"}, members("www"))
    soon("a name of one cluster is answered, too", lambda: answers(dns, "only-nyc") == ["127.0.2.1"], lambda: answers(dns, "only-nyc"))
    holds("the status lists the names that the cluster may not own", any("alias.apps.test" in one for one in api.get("/v1/clusters/ams")["status"]["left_out"]), api.get("/v1/clusters/ams"))
    holds("and such a name is not answered", answers(dns, "alias") == [], answers(dns, "alias"))
    texts = [one for one in api.all("clusterrecords") if one["spec"]["type"] == "TXT"]
    holds("the TXT records of its registry are stored unchanged", len(texts) >= 6 and all("heritage=external-dns" in one["spec"]["endpoint"]["targets"][0] for one in texts), texts)
    before = {cluster.name: changes(cluster) for cluster in clusters}
    rounds = [cluster.round(server).returncode for cluster in clusters]
    holds("the next synchronization finds the records that it owns and changes nothing", rounds == [0, 0, 0] and before == {cluster.name: changes(cluster) for cluster in clusters}, (rounds, before))

    # What happens in a cluster.
    services["nyc"].stop()
    soon("an ingress that fails is withdrawn, although its cluster still lists it", lambda: answers(dns, "www") == ["127.0.1.1", "127.0.3.1"], lambda: answers(dns, "www"))
    why = api.get(f"/v1/loadbalancers/www.{DOMAIN}/decisions?limit=1")["items"]
    holds("a record gives the reason", why and "nyc-127-0-2-1" in json.dumps(why[0]), why)
    services["nyc"].start()
    soon("and comes back", lambda: answers(dns, "www") == everyone, lambda: answers(dns, "www"))
    moved = Service("127.0.2.9", port)
    nyc.want(endpoint("www", "127.0.2.9", ttl=20), endpoint("only-nyc", "127.0.2.1"))
    done = nyc.round(server)
    soon("a changed ingress address is answered", lambda: answers(dns, "www") == ["127.0.1.1", "127.0.2.9", "127.0.3.1"], lambda: (done.stderr[-500:], answers(dns, "www")))
    nyc.want(endpoint("only-nyc", "127.0.2.1"))
    done = nyc.round(server)
    soon("an address that a cluster removes is withdrawn; those of other clusters stay", lambda: answers(dns, "www") == ["127.0.1.1", "127.0.3.1"], lambda: (done.stderr[-500:], answers(dns, "www")))
    nyc.want()
    done = nyc.round(server)
    holds("the last member of a name is removed together with its pool and load balancer", done.returncode == 0 and answers(dns, "only-nyc") == [] and not members("only-nyc")
          and not [one for kind in ("pools", "loadbalancers") for one in api.all(kind) if one["name"].startswith("only-nyc")], (done.stderr[-500:], answers(dns, "only-nyc")))

    # What happens to us.
    server.kill()
    done = ams.round(server)
    holds("a synchronization fails while the server is down, and ExternalDNS gets the error", done.returncode != 0, done.stderr[-300:])
    server.start()
    api = server.api()
    soon("after SIGKILL the server answers as before, without a new synchronization", lambda: answers(dns, "www") == ["127.0.1.1", "127.0.3.1"], lambda: answers(dns, "www"))
    before = changes(ams)
    done = ams.round(server)
    holds("and the next synchronization changes nothing", done.returncode == 0 and changes(ams) == before, (done.stderr[-500:], before, changes(ams)))

    # Many at once, and cut off in the middle.
    many = [endpoint(f"n{i}", f"127.1.{i // 250}.{i % 250 + 1}") for i in range(1000)]
    whole = {"create": many + [{"dnsName": f"a-{one['dnsName']}", "recordType": "TXT", "targets": ["\"heritage=external-dns,external-dns/owner=nyc\""]} for one in many]}
    status, seconds = nyc.post(server, whole)
    holds(f"1,000 names in one request, with their registry: {seconds:.1f} s, ExternalDNS waits 5 s", status == 204 and seconds < 5, (status, seconds))
    status, seconds = nyc.post(server, {"delete": whole["create"]})
    holds(f"and removed: {seconds:.1f} s", status == 204 and seconds < 5 and not any(one["name"].startswith("nyc-") for one in api.all("members")), (status, seconds))
    nyc.want(*many)
    begin = time.monotonic()
    done = nyc.round(server)
    holds(f"the same in one synchronization of ExternalDNS: {time.monotonic() - begin:.1f} s with its start", done.returncode == 0, done.stderr[-1500:])
    soon("all of them are answered", lambda: answers(dns, "n999") == ["127.1.3.250"] or api.get(f"/v1/loadbalancers/n999.{DOMAIN}")["status"].get("panic"), lambda: answers(dns, "n999"))
    nyc.want()
    for after in (0.15, 0.4, 0.8):
        asking = threading.Thread(target=lambda: nyc.round(server))
        asking.start()
        began = changes(nyc)
        with contextlib.suppress(lab.Failed):
            lab.wait_until("the change begins", lambda: changes(nyc) > began, 10, 0.01)
        time.sleep(after)
        server.kill()
        asking.join()
        server.start()
        api = server.api()
        nyc.want(*many[:300] if after == 0.15 else ())
    left = nyc.round(server).returncode
    nyc.want()
    left += nyc.round(server).returncode
    stray = [one["name"] for kind in ("members", "pools", "loadbalancers", "clusterrecords") for one in api.all(kind) if one["name"].startswith("nyc") or one["name"].startswith("n")]
    holds("killed three times in the middle of a change: two synchronizations later nothing is left over", left == 0 and not stray, (left, stray[:10], len(stray)))

    # A cluster that is no more.
    sfo.end()
    services["sfo"].stop()
    soon("the addresses of a cluster that fails are withdrawn by their probes", lambda: answers(dns, "www") == ["127.0.1.1"], lambda: answers(dns, "www"))
    refused = 0
    try:
        api.delete("/v1/clusters/sfo")
    except lab.Problem as problem:
        refused = problem.status
    holds("its Cluster cannot be removed while it has members", refused == 409, refused)
    api.post("/v1/clusters/sfo/forget")
    api.delete("/v1/clusters/sfo")
    holds("and can be removed after them", not [one for one in api.all("members") if one["spec"].get("site") == "san-francisco"] and answers(dns, "www") == ["127.0.1.1"], answers(dns, "www"))

    done = ams.round(server, ams.path[:-1] + ("0" if ams.path[-1] != "0" else "1"))
    holds("a wrong token is refused", done.returncode != 0, done.stderr[-500:])
    holds("no token is in a log", not any(cluster.token() in server.log_text() for cluster in clusters))
    holds("the server's log has no errors", not server.error_lines(), server.error_lines()[:3])
    holds("it stops cleanly", server.stop() == 0)
    for cluster in (ams, nyc):
        cluster.end()
    for service in (services["ams"], services["nyc"], moved):
        service.stop()


def two_servers(orrery, programs):
    """Two servers change the same cluster concurrently, repeatedly: the later change gets a conflict, and the stored result is complete."""
    etcd = lab.Etcd()
    key = os.path.join(lab.scratch("shared"), "secrets.key")
    servers = [lab.Server(orrery, name=f"both-{i}", store_url=etcd.url("both"), arguments=["--secrets-key-file", key]) for i in range(2)]
    for server in servers:
        server.start(40)
    api = servers[0].api()
    cluster = Cluster(programs, api, "ams", "amsterdam")
    lab.wait_until("both servers have the Cluster", lambda: cluster.post(servers[1], {})[0] == 204, 20)
    seen = {204: 0, 503: 0}

    def change(server, turn):
        for i in range(turn, 40, 2):
            some = [endpoint(f"n{k}", f"192.0.2.{i + 1}") for k in range(8)]
            status = cluster.post(server, {"create": some} if i % 3 else {"delete": some})[0]
            seen[status] = seen.get(status, 0) + 1

    threads = [threading.Thread(target=change, args=(server, i)) for i, server in enumerate(servers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = [endpoint(f"n{k}", "192.0.2.200") for k in range(4)]
    done = lab.wait_until("a last change is accepted", lambda: cluster.post(servers[1], {"create": last, "delete": [endpoint(f"n{k}") for k in range(4, 8)]})[0] == 204, 20)
    lab.wait_until("both servers have it", lambda: api.get("/v1/clusters/ams?consistent")["status"]["records"] == 4, 20)
    wanted = {f"ams-192-0-2-200.n{k}.{DOMAIN}" for k in range(4)}
    members = {one["name"] for one in api.all("members")}
    holds(f"two servers that change one cluster at once: {seen.get(204)} changes made, {seen.get(503)} asked to retry, and the stored result is complete",
          done and set(seen) == {204, 503} and members == wanted, (seen, members ^ wanted))
    for server in servers:
        server.stop()
    cluster.end()
    etcd.stop()


def main(orrery, programs):
    one_server(orrery, programs)
    two_servers(orrery, programs)
