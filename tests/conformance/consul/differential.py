"""The same requests to a real Consul and to orrery, in step. The responses must be equal except for differences that are listed here with a reason."""
import http.client
import json
import re
import time
import urllib.parse

import orrery_lab as lab

# (request, place in the answer, why). Both are regular expressions. The list is repeated for people in docs/consul-api.md.
HTTP_DIFFERENCES = [
    (r".*", r"(.*\.)?(CreateIndex|ModifyIndex)$", "indexes count the writes of another store"),
    (r".*", r"(.*\.)?(ID|NodeID)$", "ids of nodes and sessions are made up by each"),
    (r".*", r"(.*\.)?(Address|Addr|ServiceAddress|lan|wan|lan_ipv4|wan_ipv4)$", "each listens at an address of its own, where it is the agent's"),
    (r"GET /v1/agent/self", r"(DebugConfig|Stats|Coord|xDS|Config\.Revision|Config\.Server|Member|Meta).*", "internals of the program"),
    (r"GET /v1/agent/members", r".*(Tags|Port).*", "gossip: there is none"),
    (r"GET /v1/catalog/(services|node)", r"(Services\.)?consul$", "the service of Consul's own servers: we have no such port"),
    (r"GET /v1/(health|agent)/", r".*\.Output$", "we probe within a second of the registration, Consul within the first interval; and we show what a check says at once, where Consul waits up to five minutes if its status is the same"),
    (r"GET /v1/(health|agent)/", r"(.*\.)?(Interval|Timeout)$", "Consul shows a ttl check's interval as 0s where it was registered by itself, and as nothing where it came with its service: here it is always nothing"),
    (r"GET /v1/agent/service/", r"ContentHash$", "a sum over internals"),
    (r"GET /v1/status/", r".*", "the address of Consul's servers among themselves"),
]

OWN_ADDRESSES = next(i for i, difference in enumerate(HTTP_DIFFERENCES) if "lan_ipv4" in difference[1])

STEPS = [
    # --- registering
    ("PUT", "agent/service/register", {"Name": "web", "Port": 8080, "Tags": ["v1", "real"], "Check": {"TTL": "30s"}}),
    ("PUT", "agent/service/register", {"ID": "web2", "Name": "web", "Address": "10.5.0.9", "Port": 8081, "Checks": [{"TTL": "30s"}, {"TCP": "127.0.0.1:1", "Interval": "3600s"}],
                                       "Meta": {"a": "b"}, "Weights": {"Passing": 5, "Warning": 2}}),
    ("PUT", "agent/service/register", {"name": "snake", "id": "s1", "port": 7, "enable_tag_override": True, "check": {"ttl": "1m", "status": "passing", "notes": "words"}}),
    ("PUT", "agent/service/register", {}),
    ("PUT", "agent/service/register", {"Name": "bad", "Check": {"TTL": "x"}}),
    ("PUT", "agent/service/register", {"Name": "bad", "Check": {"Status": "zz", "TTL": "10s"}}),
    ("PUT", "catalog/register", {"Node": "ext1", "Address": "10.0.0.5", "NodeMeta": {"k": "v"},
                                 "Service": {"ID": "db1", "Service": "db", "Tags": ["primary"], "Port": 3306, "Meta": {"m": "1"}},
                                 "Check": {"CheckID": "service:db1", "Name": "db up", "Status": "passing", "ServiceID": "db1", "Output": "ok"}}),
    ("PUT", "catalog/register", {"Node": "ext2", "Address": "10.0.0.6", "Service": {"Service": "db", "Tags": ["replica"], "Port": 3306},
                                 "Checks": [{"CheckID": "c1", "Name": "one", "Status": "warning", "ServiceID": "db"}, {"CheckID": "n1", "Name": "node", "Status": "passing"}]}),
    ("PUT", "catalog/register", {"Node": "a"}),
    ("PUT", "catalog/register", {"Address": "10.0.0.1"}),
    ("PUT", "catalog/register", {"Node": "ext1", "Address": "10.0.0.5", "Check": {"CheckID": "zz", "Status": "passing", "ServiceID": "nobody"}}),
    # --- reading
    ("GET", "catalog/datacenters", None), ("GET", "catalog/nodes", None), ("GET", "catalog/nodes?node-meta=k:v", None), ("GET", "catalog/services", None),
    ("GET", "catalog/services?node-meta=k:v", None),
    ("GET", "catalog/service/web", None), ("GET", "catalog/service/web?tag=v1", None), ("GET", "catalog/service/web?tag=V1", None), ("GET", "catalog/service/web?tag=v1&tag=real", None),
    ("GET", "catalog/service/WEB", None), ("GET", "catalog/service/db", None), ("GET", "catalog/service/none", None),
    ("GET", "catalog/node/agent1", None), ("GET", "catalog/node/ext1", None), ("GET", "catalog/node/EXT1", None), ("GET", "catalog/node/none", None),
    ("GET", "catalog/node-services/ext1", None), ("GET", "catalog/node-services/none", None),
    ("GET", "health/service/web", None), ("GET", "health/service/web?passing", None), ("GET", "health/service/db", None), ("GET", "health/service/db?passing", None),
    ("GET", "health/service/db?passing=false", None), ("GET", "health/service/db?passing=zz", None), ("GET", "health/service/db?tag=primary", None), ("GET", "health/service/none", None),
    ("GET", "health/node/agent1", None), ("GET", "health/node/ext2", None), ("GET", "health/node/none", None), ("GET", "health/checks/web", None), ("GET", "health/checks/none", None),
    ("GET", "health/state/any", None), ("GET", "health/state/passing", None), ("GET", "health/state/warning", None), ("GET", "health/state/critical", None), ("GET", "health/state/zz", None),
    ("GET", "catalog/nodes?dc=zz", None), ("GET", "catalog/nodes?index=abc", None), ("GET", "catalog/nodes?wait=abc", None), ("GET", "catalog/nodes?stale", None), ("GET", "catalog/nodes?consistent", None),
    ("GET", "catalog/nodes?filter=Node+%3D%3D+ext1", None), ("GET", "catalog/service/web?filter=%22v1%22+in+ServiceTags", None),
    ("GET", "health/service/db?filter=Service.Port+%3D%3D+3306+and+Checks+is+not+empty", None), ("GET", "catalog/nodes?filter=Node+%3D%3D", None),
    ("GET", "health/state/any?filter=Status+%21%3D+passing", None), ("GET", "agent/services?filter=Service+%3D%3D+web", None),
    ("GET", "catalog/nodes?ns=x", None),
    ("GET", "nope", None), ("POST", "catalog/services", None), ("GET", "catalog/register", None), ("DELETE", "session/list", None),
    ("GET", "status/leader", None), ("GET", "status/peers", None),
    # --- the agent
    ("GET", "agent/self", None), ("GET", "agent/members", None), ("GET", "agent/services", None), ("GET", "agent/checks", None), ("GET", "agent/service/web2", None), ("GET", "agent/service/none", None),
    ("PUT", "agent/check/pass/service:web?note=hello", None), ("GET", "health/checks/web", None), ("GET", "health/service/web?passing", None),
    ("PUT", "agent/check/warn/service:web", None), ("GET", "health/checks/web", None), ("GET", "agent/health/service/id/web", None), ("GET", "agent/health/service/id/web?format=text", None),
    ("PUT", "agent/check/fail/service:web?note=broken", None), ("GET", "health/checks/web", None), ("GET", "agent/health/service/name/web", None),
    ("PUT", "agent/check/update/service:web", {"Status": "passing", "Output": "by update"}), ("GET", "agent/health/service/id/web", None), ("GET", "agent/health/service/name/web?format=text", None),
    ("PUT", "agent/check/update/service:web", {"Status": "zz"}), ("PUT", "agent/check/pass/none", None), ("PUT", "agent/check/pass/service:web2:2", None),
    ("PUT", "agent/check/update/service:web", {"Status": "passing", "Output": "x" * 5000}), ("GET", "health/checks/web", None),
    ("GET", "agent/health/service/id/none", None), ("GET", "agent/health/service/name/none", None), ("GET", "agent/health/service/name/none?format=text", None),
    ("PUT", "agent/service/maintenance/web?enable=true&reason=disks", None), ("GET", "health/checks/web", None), ("GET", "health/service/web?passing", None), ("GET", "agent/health/service/id/web?format=text", None),
    ("PUT", "agent/service/maintenance/web?enable=false", None), ("GET", "health/checks/web", None), ("PUT", "agent/service/maintenance/web", None), ("PUT", "agent/service/maintenance/none?enable=true", None),
    ("PUT", "agent/maintenance?enable=true&reason=move", None), ("GET", "health/node/agent1", None), ("PUT", "agent/maintenance?enable=false", None), ("GET", "health/node/agent1", None),
    ("PUT", "agent/check/register", {"ID": "mem", "Name": "memory", "TTL": "1m", "Notes": "of the node"}), ("GET", "agent/checks", None), ("PUT", "agent/check/pass/mem", None), ("GET", "health/node/agent1", None),
    ("PUT", "agent/check/register", {"Name": "extra", "ServiceID": "web", "TTL": "1m", "Status": "passing"}), ("GET", "health/checks/web", None),
    ("PUT", "agent/check/register", {"Name": "extra", "ServiceID": "none", "TTL": "1m"}), ("PUT", "agent/check/register", {"TTL": "1m"}), ("PUT", "agent/check/register", {"Name": "none"}),
    ("PUT", "agent/check/deregister/mem", None), ("PUT", "agent/check/deregister/extra", None), ("PUT", "agent/check/deregister/none", None), ("GET", "agent/checks", None),
    ("PUT", "agent/service/register", {"Name": "web", "Port": 9090, "Check": {"TTL": "30s"}}), ("GET", "health/service/web", None),
    ("PUT", "agent/service/register?replace-existing-checks=true", {"ID": "web2", "Name": "web", "Port": 8081}), ("GET", "health/service/web", None),
    ("PUT", "agent/service/deregister/web2", None), ("PUT", "agent/service/deregister/web2", None), ("GET", "catalog/service/web", None),
    # --- keys
    ("PUT", "kv/a/b", "hello"), ("PUT", "kv/a/c?flags=42", "x"), ("GET", "kv/a/b", None), ("GET", "kv/a?recurse", None), ("GET", "kv/a?keys", None), ("GET", "kv/?keys&separator=/", None),
    ("GET", "kv/a/?keys&separator=/", None), ("GET", "kv/a/b?raw", None), ("GET", "kv/none", None), ("GET", "kv/none?keys", None), ("GET", "kv/none?recurse", None), ("GET", "kv/none?raw", None),
    ("PUT", "kv/a/b?cas=0", "y"), ("PUT", "kv/new?cas=0", "y"), ("PUT", "kv/a/b?cas=xx", "y"), ("PUT", "kv/a/b?flags=xx", "y"), ("PUT", "kv/a/b?acquire=zzz", "y"), ("DELETE", "kv/a/b?cas=0", None),
    ("DELETE", "kv/a/b?cas=1", None), ("DELETE", "kv/zz", None), ("PUT", "kv/", "x"), ("PUT", "kv/empty", ""), ("GET", "kv/empty", None), ("PUT", "kv/a%20b/%C3%BC", "z"), ("GET", "kv/a%20b?recurse", None),
    ("PUT", "kv/dir/", ""), ("GET", "kv/dir/", None), ("PUT", "kv/a/b?flags=18446744073709551615", "big"), ("GET", "kv/a/b", None), ("PUT", "kv/large", "x" * (512 * 1024)), ("PUT", "kv/larger", "x" * (512 * 1024 + 1)),
    ("DELETE", "kv/large", None), ("GET", "kv/?keys", None), ("DELETE", "kv/a?recurse", None), ("GET", "kv/?keys", None),
    # --- sessions and locks
    ("PUT", "session/create", {"Name": "s1", "TTL": "15s", "LockDelay": "1s"}, "S1"), ("PUT", "session/create", {"Name": "s2", "Behavior": "delete", "LockDelay": "0s"}, "S2"), ("PUT", "session/create", None, "S3"),
    ("GET", "session/info/$S1", None), ("GET", "session/info/$S2", None), ("GET", "session/info/$S3", None), ("PUT", "session/renew/$S1", None), ("PUT", "session/renew/$S3", None),
    ("PUT", "kv/lock?acquire=$S1", "v"), ("GET", "kv/lock", None), ("PUT", "kv/lock?acquire=$S2", "w"), ("PUT", "kv/lock?acquire=$S1", "v2"), ("GET", "kv/lock", None), ("PUT", "kv/lock", "plain"), ("GET", "kv/lock", None),
    ("PUT", "kv/lock?release=$S2", "v"), ("PUT", "kv/lock?release=$S1", "v3"), ("GET", "kv/lock", None), ("PUT", "kv/lock?acquire=$S2", "w"), ("GET", "kv/lock", None),
    ("PUT", "session/destroy/$S2", None), ("GET", "kv/lock", None), ("PUT", "kv/lock?acquire=$S1", "v"), ("PUT", "session/destroy/$S1", None), ("GET", "kv/lock", None), ("PUT", "kv/lock?acquire=$S3", "delayed"),
    ("GET", "session/info/$S1", None), ("PUT", "session/renew/$S1", None), ("PUT", "session/destroy/$S1", None), ("GET", "session/node/agent1", None), ("GET", "session/list", None),
    ("PUT", "session/create", {"TTL": "1s"}), ("PUT", "session/create", {"TTL": "48h"}), ("PUT", "session/create", {"TTL": "x"}), ("PUT", "session/create", {"Behavior": "zz"}), ("PUT", "session/create", {"Node": "zz"}),
    ("PUT", "session/create", {"NodeChecks": ["zz"]}), ("PUT", "session/create", {"Node": "ext2", "NodeChecks": ["n1"]}, "S4"), ("GET", "session/info/$S4", None),
    ("PUT", "catalog/register", {"Node": "ext2", "Address": "10.0.0.6", "Check": {"CheckID": "n1", "Name": "node", "Status": "critical"}}), ("WAIT", 0.5), ("GET", "session/info/$S4", None),
    ("PUT", "session/destroy/$S3", None),
    # --- transactions
    ("PUT", "txn", [{"KV": {"Verb": "set", "Key": "t1", "Value": "aGVsbG8="}}, {"KV": {"Verb": "get", "Key": "t1"}}]), ("PUT", "txn", [{"KV": {"Verb": "cas", "Key": "t1", "Value": "eA==", "Index": 1}}]),
    ("PUT", "txn", [{"KV": {"Verb": "cas", "Key": "t2", "Value": "eA==", "Index": 0}}]), ("PUT", "txn", [{"KV": {"Verb": "zz", "Key": "t1"}}]), ("PUT", "txn", [{"KV": {"Verb": "get", "Key": "none"}}]), ("PUT", "txn", []),
    ("PUT", "txn", [{"KV": {"Verb": "get-tree", "Key": "t"}}]), ("PUT", "txn", [{"KV": {"Verb": "check-not-exists", "Key": "t1"}}]), ("PUT", "txn", [{"KV": {"Verb": "check-index", "Key": "none", "Index": 3}}]),
    ("PUT", "txn", [{"KV": {"Verb": "check-session", "Key": "t1", "Session": "x"}}]), ("PUT", "txn", [{"KV": {"Verb": "delete", "Key": "t1"}}, {"KV": {"Verb": "get-or-empty", "Key": "t1"}}]),
    ("PUT", "txn", [{"KV": {"Verb": "set", "Key": "u1", "Value": "eA=="}}, {"KV": {"Verb": "get", "Key": "none"}}]), ("GET", "kv/u1", None), ("PUT", "txn", [{"KV": {"Verb": "delete-tree", "Key": "t"}}]), ("GET", "kv/?keys", None),
    ("PUT", "txn", [{"KV": {"Verb": "delete-cas", "Key": "empty", "Index": 1}}]), ("PUT", "txn", [{"KV": {"Verb": "unlock", "Key": "empty", "Session": "x"}}]),
    ("PUT", "txn", "not json"), ("PUT", "txn", [{"KV": {"Verb": "set", "Key": f"k{i}", "Value": "eA=="}} for i in range(129)]),
    # --- taking out
    ("PUT", "catalog/deregister", {"Node": "ext1", "CheckID": "service:db1"}), ("GET", "health/service/db", None), ("PUT", "catalog/deregister", {"Node": "ext1", "ServiceID": "db1"}), ("GET", "catalog/service/db", None),
    ("GET", "catalog/node/ext1", None), ("PUT", "catalog/deregister", {"Node": "ext2"}), ("GET", "catalog/nodes", None), ("GET", "catalog/services", None), ("PUT", "catalog/deregister", {"Node": "none"}), ("PUT", "catalog/deregister", {}),
]

SEEN_HEADERS = ["X-Consul-Knownleader", "X-Consul-Lastcontact", "X-Consul-Effective-Consistency", "X-Consul-Reason", "Allow"]


def request(url, method, path, body=None, seconds=30):
    """(status, headers, bytes)"""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=seconds)
    try:
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        connection.request(method, "/v1/" + path, body.encode() if isinstance(body, str) else body)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def leader(url, registered=True):
    """A leader exists, and (if anonymous clients may read) the server's own node is in the catalog."""
    try:
        status, _, body = request(url, "GET", "status/leader")
        return status == 200 and json.loads(body) != "" and (not registered or request(url, "GET", "health/node/agent1")[2] not in (b"[]", b"null"))
    except (OSError, ValueError, http.client.HTTPException):
        return False


def differences(left, right, path=""):
    """The paths at which two JSON values differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(set(left) | set(right)):
            here = f"{path}.{key}" if path else key
            if key not in left or key not in right:
                yield here, left.get(key, "(not there)"), right.get(key, "(not there)")
            else:
                yield from differences(left[key], right[key], here)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for i, (a, b) in enumerate(zip(left, right)):
            yield from differences(a, b, f"{path}[{i}]")
    elif left != right:
        yield path, left, right


def as_value(body):
    try:
        return json.loads(body)
    except ValueError:
        return None


def compare_http(consul, ours):
    names = [{}, {}]  # what $S1 is at each
    same = different = 0
    used = set()
    for step in STEPS:
        if step[0] == "WAIT":
            time.sleep(step[1])
            continue
        method, path, body = step[:3]
        answers = []
        for which, side in enumerate((consul, ours)):
            filled = path
            for name, value in names[which].items():
                filled = filled.replace("$" + name, value)
            status, headers, data = request(side.http, method, filled, body)
            if len(step) > 3:
                names[which][step[3]] = (as_value(data) or {}).get("ID", "?")
            text = data.decode(errors="replace")
            for name, value in names[which].items():
                text = text.replace(value, "$" + name)
            answers.append((status, headers, text))
        # What Consul writes to its catalog a moment later must be there before the next step reads it.
        if method == "PUT" and path.startswith("agent/"):
            time.sleep(0.15)
        found = []
        if answers[0][0] != answers[1][0]:
            found.append(("status", answers[0][0], answers[1][0]))
        refused = answers[0][0] >= 400 and answers[0][2].strip() != ""  # then headers are what came of it until then
        for header in SEEN_HEADERS:
            if not (refused and header.startswith("X-Consul") and header != "X-Consul-Reason") and answers[0][1].get(header) != answers[1][1].get(header):
                found.append((header, answers[0][1].get(header), answers[1][1].get(header)))
        if not refused and (answers[0][1].get("X-Consul-Index") is None) != (answers[1][1].get("X-Consul-Index") is None):
            found.append(("X-Consul-Index", answers[0][1].get("X-Consul-Index"), answers[1][1].get("X-Consul-Index")))
        values = [as_value(answer[2]) for answer in answers]
        if answers[0][2] and answers[1][2] and values[0] is None and values[1] is None:
            if answers[0][2].strip() != answers[1][2].strip() and answers[0][0] < 400:
                found.append(("text: " + answers[0][2][:80], answers[0][2], answers[1][2]))
        else:
            found += list(differences(in_order(path, values[0]), in_order(path, values[1])))
        asked = f"{method} /v1/{path}"
        left = []
        for place, a, b in found:
            reasons = [i for i, (r, p, _) in enumerate(HTTP_DIFFERENCES) if re.match(r, asked) and re.match(p, place) and not (i == OWN_ADDRESSES and address_matters(a, b, consul, ours))]
            if reasons:
                used.add(reasons[0])
                continue
            left.append((place, a, b))
        if left:
            different += 1
            shown = json.dumps(body)[:100] if body is not None else ""
            lab.log(f"DIFFERS {asked} {shown}")
            for place, a, b in left[:6]:
                lab.log(f"          {place}: Consul {str(a)[:160]!r}, we {str(b)[:160]!r}")
        else:
            same += 1
    for i, (r, p, why) in enumerate(HTTP_DIFFERENCES):
        lab.check(f"a listed difference occurs: {why[:90]}", i in used, f"nothing differs any more at {r} {p}: take it off the list")
    return same, different


def in_order(path, value):
    """Sorts lists whose order follows random ids or a map."""
    if isinstance(value, list) and value and isinstance(value[0], dict) and "LockDelay" in value[0]:
        return sorted(value, key=lambda s: (s["Name"], s["LockDelay"], s["Behavior"]))
    if path.startswith("catalog/services") and isinstance(value, dict):
        return {name: sorted(tags) for name, tags in value.items()}
    if path.startswith("agent/health/service/name/") and isinstance(value, list):
        for one in value:
            one["Checks"] = sorted(one["Checks"], key=lambda c: c["CheckID"])
        return sorted(value, key=lambda s: s["Service"]["ID"])
    return value


def address_matters(a, b, consul, ours):
    """Addresses may differ only if each side has its own."""
    return not (consul.dns[0] in str(a) and ours.dns[0] in str(b))


# --- DNS ---------------------------------------------------------------------------------------------------------------

SOA = "consul. 0 SOA ns.consul. hostmaster.consul. serial 3600 600 86400 0"

# (question, {place: (Consul's, ours)}, why). Every difference must be listed with both exact values; the list is repeated for people in docs/consul-api.md.
DNS_DIFFERENCES = [
    (r"db\.service\.consul (TXT|MX) .*", {"answer": (["db.service.consul. 0 A 10.0.0.5"], []), "authority": ([], [SOA])},
     "Consul answers a question for TXT or MX of a service with its addresses; that does not answer the query: we return NODATA"),
    (r"(service\.|node\.)?consul A .*", {"rcode": ("NXDOMAIN", "NOERROR")},
     "names with others below them exist: NXDOMAIN would deny those too (RFC 8020), and ends the search of resolvers that ask label by label"),
    (r"many\.service\.consul A-CH .*", {"rcode": ("NOERROR", "REFUSED"), "aa": (True, False), "answer": (lambda shown: shown == 3 or len(shown) == 5, lambda shown: shown in (0, [])), "additional": (0, [])}, "Consul answers other classes with records of class IN; we refuse"),
    (r"large\.service\.consul A udp 1232", {"answer": (74, 73), "tc": (False, True), "edns": (False, True)},
     "a truncated answer has TC (RFC 2181 9); Consul sets it only with enable_truncate, and leaves out EDNS, whose bytes are one member"),
    (r"large\.service\.consul SRV udp 1232", {"answer": (lambda shown: 0 < shown < 30, 30), "additional": (lambda shown: shown > 0, 0), "tc": (False, True), "edns": (False, True)},
     "as above; and members come before the addresses of their nodes: an answer that does not fit has as many members as do"),
    (r"many\.service\.consul A udp 512", {"edns": (False, True)}, "an answer to a query with EDNS has EDNS (RFC 6891 6.1.1); Consul leaves it out when it trims"),
    (r"zz\.addr\.dc1\.consul A .*", {"rcode": ("NOERROR", "NXDOMAIN"), "authority": ([], [SOA])}, "a name that is no address does not exist; Consul answers NOERROR without records"),
    (r"1\.1\.1\.1\.in-addr\.arpa PTR .*", {"rcode": ("SERVFAIL", "REFUSED"), "ra": (True, False)},
     "a reverse name that is not ours is refused; Consul, which has no recursor, answers SERVFAIL with RA"),
    (r"example\.org A udp 1232", {"edns": (False, True)}, "an answer to a query with EDNS has EDNS (RFC 6891 6.1.1)"),
]

DNS_SETUP = [
    *[{"Node": f"m{i}", "Address": f"10.1.0.{i}", "Service": {"ID": f"many{i}", "Service": "many", "Port": 8000 + i, "Tags": ["Odd" if i % 2 else "Even"]}} for i in range(1, 6)],
    *[{"Node": f"l{i}", "Address": f"10.2.{i // 200}.{i % 200 + 1}", "Service": {"Service": "large", "Port": 9000}} for i in range(1, 121)],
    {"Node": "v6", "Address": "2001:db8::5", "NodeMeta": {"k": "v", "rfc1035-x": "raw words"}, "Service": {"Service": "six", "Port": 3306}},
    {"Node": "h1", "Address": "host.example.org", "Service": {"Service": "hosty", "Port": 80}},
    {"Node": "h2", "Address": "10.9.9.9", "Service": {"Service": "other", "Port": 80, "Address": "10.8.8.8", "Tags": ["a.b"]}},
    {"Node": "h3", "Address": "10.9.9.8", "Service": {"Service": "cname", "Port": 80, "Address": "www.example.org"}},
    {"Node": "ext1", "Address": "10.0.0.5", "NodeMeta": {"rack": "r1"}, "Service": {"Service": "db", "Port": 3306, "Weights": {"Passing": 7, "Warning": 3}}, "Check": {"CheckID": "c", "Name": "c", "Status": "warning", "ServiceID": "db"}},
    {"Node": "ext9", "Address": "10.0.0.9", "Service": {"Service": "down", "Port": 1}, "Check": {"CheckID": "c", "Name": "c", "Status": "critical", "ServiceID": "down"}},
    {"Node": "two", "Address": "10.3.0.1", "Service": {"ID": "d1", "Service": "double", "Port": 1}}, {"Node": "two", "Address": "10.3.0.1", "Service": {"ID": "d2", "Service": "double", "Port": 2}},
]

DNS_QUESTIONS = [(name, kind, edns, tcp) for name, kind in [
    ("many.service.consul", "A"), ("many.service.consul", "SRV"), ("many.service.consul", "ANY"), ("odd.many.service.consul", "A"), ("ODD.Many.Service.Consul", "A"), ("zz.many.service.consul", "A"),
    ("many.service.dc1.consul", "A"), ("many.service.dc1.dc.consul", "A"), ("many.service.dc2.consul", "A"), ("_many._odd.service.consul", "SRV"), ("_many._tcp.service.consul", "SRV"),
    ("_many._tcp.consul", "SRV"), ("_many._even.dc1.consul", "SRV"), ("_many._odd.service.consul", "A"), ("six.service.consul", "A"), ("six.service.consul", "AAAA"), ("six.service.consul", "SRV"), ("six.service.consul", "ANY"),
    ("hosty.service.consul", "A"), ("hosty.service.consul", "SRV"), ("hosty.service.consul", "AAAA"), ("other.service.consul", "A"), ("other.service.consul", "SRV"), ("a.b.other.service.consul", "A"), ("cname.service.consul", "A"), ("cname.service.consul", "SRV"),
    ("db.service.consul", "A"), ("db.service.consul", "SRV"), ("db.service.consul", "AAAA"), ("down.service.consul", "A"), ("down.service.consul", "SRV"), ("double.service.consul", "A"), ("double.service.consul", "SRV"),
    ("nope.service.consul", "A"), ("nope.service.consul", "SRV"), ("ext1.node.consul", "A"), ("EXT1.node.dc1.consul", "A"), ("ext1.node.consul", "AAAA"), ("ext1.node.consul", "ANY"), ("v6.node.consul", "AAAA"),
    ("v6.node.consul", "A"), ("h1.node.consul", "A"), ("nope.node.consul", "A"), ("ext1.node.dc2.consul", "A"), ("0a080808.addr.dc1.consul", "A"), ("0a080808.addr.consul", "A"), ("zz.addr.dc1.consul", "A"),
    ("20010db8000000000000000000000005.addr.dc1.consul", "AAAA"), ("5.0.0.10.in-addr.arpa", "PTR"), ("5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", "PTR"), ("8.8.8.10.in-addr.arpa", "PTR"),
    ("1.1.1.1.in-addr.arpa", "PTR"), ("consul", "SOA"), ("consul", "NS"), ("foo.consul", "A"), ("service.consul", "A"), ("node.consul", "A"), ("x.query.consul", "A"), ("example.org", "A"), ("large.service.consul", "A"), ("large.service.consul", "SRV"),
    ("db.service.consul", "TXT"), ("db.service.consul", "MX"), ("many.service.consul", "A-CH"), ("consul", "A"), ("v6.node.consul", "TXT"), ("agent1.node.consul", "A")]
    for edns, tcp in [(None, False), (1232, False), (None, True)]] + [("many.service.consul", "A", 512, False), ("many.service.consul", "A", 4096, False), ("nope.service.consul", "A", 100, False)]


def ask(side, name, kind, edns, tcp):
    import dns.flags
    import dns.message
    import dns.query
    import dns.rcode
    kind, _, of_class = kind.partition("-")
    query = dns.message.make_query(name, kind, of_class or "IN", use_edns=0 if edns else -1, payload=edns or 0)
    method = dns.query.tcp if tcp else dns.query.udp
    answer = method(query, side.dns[0], 5, side.dns[1], ignore_trailing=True)

    def records(section):
        out = []
        for rrset in section:
            for record in rrset:
                text = f"{rrset.name} {rrset.ttl} {record.rdtype.name} {record}".replace(side.dns[0], "(own)")
                out.append(re.sub(r"( SOA \S+ \S+) \d+ ", r"\1 serial ", text))
        return sorted(out)
    return {"rcode": dns.rcode.to_text(answer.rcode()), "aa": bool(answer.flags & dns.flags.AA), "tc": bool(answer.flags & dns.flags.TC), "ra": bool(answer.flags & dns.flags.RA),
            "edns": answer.edns >= 0, "answer": records(answer.answer), "authority": records(answer.authority), "additional": records(answer.additional)}


def without_choice(answer, whole):
    """A trimmed answer has a random choice of members, but a fixed number."""
    if len(answer["answer"]) < whole:
        return {**answer, "answer": len(answer["answer"]), "additional": len(answer["additional"])}
    return answer


def allowed_dns(asked, found):
    """The listed reason for exactly these differences, or None."""
    fits = lambda wanted, seen: wanted(seen) if callable(wanted) else wanted == seen  # noqa: E731
    for i, (pattern, places, _) in enumerate(DNS_DIFFERENCES):
        if re.fullmatch(pattern, asked) and {place for place, _, _ in found} <= set(places) and \
                all(fits(places[place][0], a) and fits(places[place][1], b) for place, a, b in found):
            return i
    return None


def compare_dns(consul, ours):
    """(answers that are the same, that differ for a listed reason, that differ)"""
    for body in DNS_SETUP:
        for side in (consul, ours):
            status, _, text = request(side.http, "PUT", "catalog/register", body)
            lab.check(f"{body['Node']} is registered", status == 200, text) if status != 200 else None
    time.sleep(0.5)
    same = different = 0
    used = []
    for name, kind, edns, tcp in DNS_QUESTIONS:
        asked = f"{name} {kind} {'tcp' if tcp else 'udp'} {edns or 'plain'}"
        left, right = (without_choice(ask(side, name, kind, edns, tcp), 0 if tcp else len(ask(side, name, kind, None, True)["answer"])) for side in (consul, ours))
        if left == right:
            same += 1
            continue
        found = [(place, left[place], right[place]) for place in left if left[place] != right[place]]
        reason = allowed_dns(asked, found)
        if reason is not None:
            used.append(reason)
            continue
        different += 1
        lab.log(f"DIFFERS {asked}")
        for place, a, b in found:
            lab.log(f"          {place}: Consul {str(a)[:200]}, we {str(b)[:200]}")
    for i, (pattern, _, why) in enumerate(DNS_DIFFERENCES):
        lab.check(f"a listed difference occurs ({used.count(i)} times): {why[:90]}", i in used, f"nothing differs any more at {pattern}: take it off the list")
    return same, len(used), different


# --- blocking ----------------------------------------------------------------------------------------------------------


def compare_blocking(consul, ours):
    """Both block until the queried object changes, and at most for the requested time."""
    import threading
    for which, side in (("Consul", consul), ("we", ours)):
        request(side.http, "PUT", "catalog/register", {"Node": "b1", "Address": "10.4.0.1", "Service": {"Service": "blocked", "Port": 1}})
        for path, change in [("health/service/blocked", ("catalog/register", {"Node": "b2", "Address": "10.4.0.2", "Service": {"Service": "blocked", "Port": 1}})),
                             ("catalog/service/blocked", ("catalog/register", {"Node": "b3", "Address": "10.4.0.3", "Service": {"Service": "blocked", "Port": 1}})),
                             ("catalog/nodes", ("catalog/register", {"Node": "b4", "Address": "10.4.0.4"})),
                             ("catalog/services", ("catalog/register", {"Node": "b4", "Address": "10.4.0.4", "Service": {"Service": f"fresh{which == 'we'}"}})),
                             ("kv/blocked", ("kv/blocked", "now")), ("kv/blocked?recurse", ("kv/blocked/x", "now")), ("session/list", ("session/create", {"Name": "b"})),
                             ("health/state/any", ("catalog/register", {"Node": "b4", "Address": "10.4.0.4", "Check": {"Name": "x", "Status": "passing"}}))]:
            _, headers, _ = request(side.http, "GET", path)
            index = headers["X-Consul-Index"]
            result = {}

            def wait(into=result):
                begin = time.monotonic()
                into["answer"] = request(side.http, "GET", path + ("&" if "?" in path else "?") + f"index={index}&wait=20s")
                into["end"] = time.monotonic()
                into["took"] = into["end"] - begin

            thread = threading.Thread(target=wait)
            thread.start()
            time.sleep(0.3)
            lab.check(f"{which}: {path} blocks", "answer" not in result)
            begin = time.monotonic()
            request(side.http, "PUT", *change)
            thread.join(25)
            lab.check(f"{which}: {path} returns with the change, {1000 * (result['end'] - begin):.0f} ms after", result["took"] < 10 and int(result["answer"][1]["X-Consul-Index"]) > int(index))
        begin = time.monotonic()
        _, headers, _ = request(side.http, "GET", "kv/blocked")
        _, again, _ = request(side.http, "GET", f"kv/blocked?index={headers['X-Consul-Index']}&wait=1s")
        took = time.monotonic() - begin
        lab.check(f"{which}: a wait of 1 s took {took:.2f} s", 1.0 <= took < 1.5 and again["X-Consul-Index"] == headers["X-Consul-Index"])
