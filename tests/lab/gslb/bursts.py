#!/usr/bin/python3
"""Many queries at once over a link: answers that are sent as one message arrive separately, each at its client and from the queried address; also where the MTU is too small for an answer.

The client is in its own network namespace. The server is stopped while the queries arrive, so that they are one batch."""
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
import networks  # noqa: E402
import orrery_lab as lab  # noqa: E402

UDP_GRO = 104
SIZES = {"short": 40, "middle": 500, "long": 1000}
ZONE = "ns1 A 127.0.0.1\n" + "".join(f"{name} TXT {' '.join([chr(34) + name[0] * 100 + chr(34)] * (size // 100 + 1))}\n" for name, size in SIZES.items())
BURST = 60


def question(identity, name):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in (name + ".bursts.example").split("."))
    return struct.pack(">HHHHHH", identity, 0, 1, 0, 0, 1) + labels + b"\0\0\x10\0\1" + b"\0\0\x29" + struct.pack(">HIH", 1232, 0, 0)


def ask(port, servers):
    """Queries each server for all names one at a time, waits until the test resumes the server, and reports the result: answers, how many belonged to another query or were incomplete, and the number of messages."""
    asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asker.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    asked = {}
    for i in range(BURST):
        name, server = list(SIZES)[i % len(SIZES)], servers[i // len(SIZES) % len(servers)]
        asked[i] = (name, server)
        asker.sendto(question(i, name), (server, port))
    print("asked", flush=True)
    good = bad = messages = 0
    while good < BURST and select.select([asker], [], [], 5)[0]:
        data, control, _, (server, _) = asker.recvmsg(65536, 256)
        messages += 1
        size = next((struct.unpack("i", value[:4])[0] for level, kind, value in control if (level, kind) == (socket.IPPROTO_UDP, UDP_GRO)), len(data))
        for start in range(0, len(data), size):
            one = data[start:start + size]
            name, expected = asked.pop(struct.unpack(">H", one[:2])[0], ("", ""))
            text = name[:1].encode() * 100
            whole = name and one.count(text) == SIZES[name] // 100 + 1 and struct.unpack(">H", one[6:8]) == (1,)
            good, bad = good + bool(whole and server == expected), bad + (not whole or server != expected)
    print(json.dumps({"good": good, "bad": bad, "messages": messages}), flush=True)


def burst(server, network, port, *addresses):
    asker = subprocess.Popen(network.within([sys.executable, "-B", os.path.abspath(__file__), "--ask", str(port), *addresses]), stdout=subprocess.PIPE, text=True, env=lab.clean_environment())
    try:
        os.kill(server.process.pid, signal.SIGSTOP)
        asker.stdout.readline()
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    report = asker.stdout.readline()
    asker.wait(10)
    return json.loads(report or "{}")


def flood(port, server):
    """Sends 8,000 queries of one kind as fast as they are answered or dropped; reports whole and truncated responses."""
    asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    whole = truncated = 0
    for start in range(0, 8000, 50):
        for i in range(start, start + 50):
            asker.sendto(question(i, "short"), (server, port))
        while select.select([asker], [], [], 0.002)[0]:
            one = asker.recv(4096)
            truncated, whole = truncated + bool(one[2] & 2), whole + (not one[2] & 2)
    print(json.dumps({"whole": whole, "truncated": truncated}), flush=True)


def limited(orrery, network):
    """The default of a server that serves DNS beyond loopback."""
    port = lab.free_port()
    server = lab.Server(orrery, "limited", arguments=["--dns-listen", f"*:{port}"])
    server.start()
    server.api().put("/v1/zones/bursts", {"spec": {"origin": "bursts.example", "nameservers": ["ns1.bursts.example"], "records": ZONE}})
    flooded = [sys.executable, "-B", os.path.abspath(__file__), "--flood", str(port)]
    seen = json.loads(subprocess.run(network.within([*flooded, "198.19.1.1"]), capture_output=True, text=True, env=lab.clean_environment(), timeout=60).stdout)
    counts = server.metrics()
    lab.check("a flood from one network is limited by default: some are dropped, some are sent to TCP", 2500 <= seen["whole"] < 7000 and seen["truncated"] > 100, seen)
    lab.check("the limit and the dropped queries are in the metrics", counts["orrery_zone_rate_limit"] == 1000 and counts["orrery_zone_rate_limited_total"] > 100 and counts["orrery_zone_slipped_total"] >= seen["truncated"], counts)
    seen = json.loads(subprocess.run([*flooded, "127.0.0.1"], capture_output=True, text=True, env=lab.clean_environment(), timeout=60).stdout)
    lab.check("clients on loopback are exempt", seen["whole"] > 7900 and seen["truncated"] == 0, seen)
    lab.check("the limited server stops on SIGTERM", server.stop() == 0)


def main(options):
    networks.own_network(__file__)
    wide, narrow = networks.Network("wide", 1), networks.Network("narrow", 2)
    try:
        networks.ip("link", "set", "narrow", "mtu", "600")
        networks.ip("link", "set", "eth0", "mtu", "600", inside=narrow.holder.pid)
        port = lab.free_port()
        server = lab.Server(options.orrery, arguments=["--dns-listen", f"*:{port}", "--dns-rate-limit", "0"])
        server.start()
        server.api().put("/v1/zones/bursts", {"spec": {"origin": "bursts.example", "nameservers": ["ns1.bursts.example"], "records": ZONE}})
        for attempt in range(3):
            seen = burst(server, wide, port, "198.19.1.1", "198.19.2.1")
            lab.check(f"{BURST} concurrent queries to two addresses: every answer is right and comes from the queried address", (seen["good"], seen["bad"]) == (BURST, 0), seen)
            lab.check(f"they left in fewer messages ({seen['messages']})", seen["messages"] < BURST // 2, seen)
        for attempt in range(3):
            seen = burst(server, narrow, port, "198.19.2.1")
            lab.check(f"over a link with a small MTU every answer is right ({seen['messages']} messages)", (seen["good"], seen["bad"]) == (BURST, 0), seen)
        lab.check("the server stops on SIGTERM", server.stop() == 0)
        limited(options.orrery, wide)
    finally:
        wide.end()
        narrow.end()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        ask(int(sys.argv[2]), sys.argv[3:])
    elif sys.argv[1:2] == ["--flood"]:
        flood(int(sys.argv[2]), sys.argv[3])
    else:
        lab.run(main)
