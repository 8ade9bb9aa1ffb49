"""Tests on the wire: packets that no library sends, waiting connections, and the settings of a real `orrery server`."""
import contextlib
import os
import re
import resource
import socket
import struct
import subprocess
import threading
import time

import orrery_lab as lab
from secondaries import dig, put_zone
from servers import Ours
from wire import ORIGIN, ZONE, holds, is_closed, opt, option, options_of, query, records


def connect(port, source="127.0.0.1"):
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    one.settimeout(5)
    one.bind((source, 0))
    one.connect(("127.0.0.1", port))
    return one


def ask(one, packet):
    """The answer over a connection, or nothing if it is closed."""
    try:
        one.sendall(struct.pack(">H", len(packet)) + packet)
        head = one.recv(2, socket.MSG_WAITALL)
        return one.recv(struct.unpack(">H", head)[0], socket.MSG_WAITALL) if len(head) == 2 else b""
    except (ConnectionError, socket.timeout):
        return b""


def raw_packets(ours):
    """Source port 0, and the headers of response packets."""
    try:
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
    except PermissionError:
        raise lab.Failed("packets with source port 0 need a raw socket: run this as root")
    with raw, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        raw.settimeout(0.5)
        send = lambda port: raw.sendto(struct.pack(">4H", port, ours.port, 8 + len(query()), 0) + query(), ("127.0.0.1", 0))  # noqa: E731

        def received_from(port):
            """The IP packet that answers to this port."""
            end = time.monotonic() + 1
            while time.monotonic() < end:
                with contextlib.suppress(socket.timeout):
                    packet = raw.recv(65535)
                    at = (packet[0] & 15) * 4
                    if struct.unpack(">2H", packet[at:at + 4]) == (ours.port, port):
                        return packet
            return None
        plain.bind(("127.0.0.1", 0))
        port = plain.getsockname()[1]
        received, answered = int(ours.command("received")), ours.queries()
        send(port)
        packet = received_from(port)
        holds("a handmade query is answered", packet is not None)
        holds("answers may be fragmented: DF is off", packet is not None and not packet[6] & 0x40, packet and packet[:20].hex())
        send(0)
        holds("source port 0 is dropped", received_from(0) is None)
        holds("it arrived, and was not processed", int(ours.command("received")) == received + 2 and ours.queries() == answered + 1, (received, answered, ours.command("received"), ours.queries()))


def crowds(ours):
    """Limits on the connections of one client and of all clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096) if hard != resource.RLIM_INFINITY else 4096, hard))
    other = connect(ours.port, "127.0.0.9")
    holds("a client sends a query", len(ask(other, query())) > 12)
    greedy = []
    for _ in range(120):
        greedy.append(connect(ours.port))
        ask(greedy[-1], query())
    holds("of 120 connections of one client the 20 that were idle longest are closed", all(is_closed(one) for one in greedy[:20]))
    holds("and the other 100 are not", all(len(ask(one, query())) > 12 for one in greedy[20:]))
    holds("nor is the connection of another client", len(ask(other, query())) > 12)
    # 101 by now; a thousand is the limit.
    crowd = []
    for host in range(1, 11):
        for _ in range(95):
            crowd.append(connect(ours.port, f"127.0.1.{host}"))
            ask(crowd[-1], query())
    holds("beyond a thousand connections those idle longest are closed", all(is_closed(one) for one in greedy[20:70]))
    holds("and the newest are served", all(len(ask(one, query())) > 12 for one in crowd[-50:]))
    for one in (other, *greedy, *crowd):
        one.close()


class Waiting:
    """Slow clients: silent, sending in pieces, and never reading. Each is closed after 30 s."""

    def __init__(self, build):
        self.ours = Ours(build, ZONE)
        self.begin = time.monotonic()
        self.silent, self.pieces, self.deaf = (connect(self.ours.port) for _ in range(3))
        ask(self.silent, query())
        packet = query(of=f"big.{ORIGIN}")
        self.deaf.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(20000):
                self.deaf.send(struct.pack(">H", len(packet)) + packet)
        threading.Thread(target=self.dribble, daemon=True).start()

    def dribble(self):
        with contextlib.suppress(OSError):
            for byte in struct.pack(">H", 200) + query():
                self.pieces.send(bytes([byte]))
                time.sleep(2)

    def check(self):
        time.sleep(max(0, self.begin + 33 - time.monotonic()))
        holds("a client that is silent for 30 s is closed", is_closed(self.silent))
        holds("a client that sends a query in pieces for 30 s is closed", is_closed(self.pieces))
        self.deaf.settimeout(5)
        got = 0
        with contextlib.suppress(ConnectionError, socket.timeout):
            while part := self.deaf.recv(65536):
                got += len(part)
                if got > 50_000_000:
                    break
        holds("a client that does not read for 30 s is closed", got < 50_000_000 and self.closed(self.deaf), got)
        self.ours.stop()

    @staticmethod
    def closed(one):
        try:
            return one.recv(1) == b""
        except ConnectionError:
            return True
        except socket.timeout:
            return False


def settings(build, folder):
    """A real server on all addresses, with every setting."""
    dns, log = lab.free_port(), f"{folder}/questions"
    server = lab.Server(os.path.join(build, "orrery"), "open", arguments=[
        "--dns-listen", f"*:{dns}", "--dns-threads", "2", "--dns-id", "pop1", "--dns-version", "ours 1", "--dns-rate-limit", "20", "--dns-rate-limit-exempt", "127.0.0.8/32",
        "--dns-query-log", log, "--dns-query-log-size", "64KiB"])
    server.start()
    put_zone(server.api(), "open.test", "www A 192.0.2.1\n")
    for address in ("127.0.0.1", "127.0.0.77", "::1"):
        for more in ((), ("+tcp",)):
            lab.wait_until("the zone is served", lambda: "192.0.2.1" in dig(dns, "www.open.test"), 10)
            holds(f"answered from the address that was queried: {address} {' '.join(more)}", "192.0.2.1" in dig(dns, "www.open.test", "A", *more, server=address), address)
    sockets = subprocess.run(["ss", "-uanmH", f"sport = :{dns}"], capture_output=True, text=True).stdout
    holds("a socket for each of two threads", len(re.findall(rf"^UNCONN.*:{dns} ", sockets, re.M)) == 2, sockets)
    buffers = [int(one) for one in re.findall(r"rb(\d+)", sockets)]
    with open("/proc/sys/net/core/rmem_max") as file:
        holds("with a receive buffer as large as the host allows", buffers and all(one >= min(8 << 20, 2 * int(file.read())) for one in buffers[:1]), sockets)
    holds("version.bind as set", '"ours 1"' in dig(dns, "version.bind", "TXT", "-c", "CH"), dig(dns, "version.bind", "TXT", "-c", "CH"))
    for name in ("id.server", "hostname.bind"):
        holds(f"{name} as set", '"pop1"' in dig(dns, name, "TXT", "-c", "CH"), dig(dns, name, "TXT", "-c", "CH"))
    holds("other names of CH are refused", "REFUSED" in dig(dns, "authors.bind", "TXT", "-c", "CH"))
    refused = dig(dns, "open.test", "AXFR", "+edns=0")
    holds("a transfer that is not allowed is refused", "Transfer failed" in refused, refused)
    refused = dig(dns, "www.other.test")
    holds("dig shows why: not authoritative (EDE 20)", "EDE: 20 (Not Authoritative)" in refused, refused)

    # The limit: 20 a second, 50 at once.
    def burst(source, packet, count=400):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.bind((source, 0))
            one.settimeout(0.3)
            one.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE: all of the answers
            for _ in range(count):
                one.sendto(packet, ("127.0.0.1", dns))
            got = []
            with contextlib.suppress(socket.timeout):
                while True:
                    got.append(one.recv(4096))
        return [sum(not one[2] & 2 for one in got), sum(bool(one[2] & 2) for one in got), got]
    time.sleep(3)
    question = query(of="www.open.test", ar=1, tail=opt())
    whole, cut, got = burst("127.0.0.1", question)
    holds("beyond the limit some are truncated, others are dropped", 50 <= whole <= 70 and 100 <= cut <= 250 and whole + cut < 300, (whole, cut))
    slipped = next(one for one in got if one[2] & 2)
    holds("and get the reason (EDE 0)", options_of(slipped).get(15) == b"\0\0rate limit" and not records(slipped)[0], options_of(slipped))
    whole, cut, _ = burst("127.0.0.8", question)
    holds("an exempt network is not limited", (whole, cut) == (400, 0), (whole, cut))
    time.sleep(3)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        one.settimeout(2)
        one.sendto(query(of="www.open.test", ar=1, tail=opt(options=option(10, b"clientck"))), ("127.0.0.1", dns))
        cookie = options_of(one.recv(4096))[10]
    whole, cut, _ = burst("127.0.0.1", query(of="www.open.test", ar=1, tail=opt(options=option(10, cookie))))
    holds("nor is a client with a valid server cookie", (whole, cut) == (400, 0), (whole, cut))

    # What was asked is in the log, in two files of a bounded size.
    time.sleep(0.3)
    burst("127.0.0.8", query(of="Last.open.test"), 1000)
    time.sleep(0.3)
    burst("127.0.0.8", query(of="Last.open.test"), 10)
    time.sleep(0.3)
    lines = [line for name in (log + ".1", log) if os.path.exists(name) for line in open(name).read().splitlines()]
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (udp|tcp) \S+ \S+ [A-Z0-9]+ (IN|CH) [A-Z]+ \d+"
    holds("each query is a line in the log", lines and all(re.fullmatch(pattern, line) for line in lines) and re.search(r" udp 127\.0\.0\.8 Last\.open\.test A IN NXDOMAIN \d+$", lines[-1]), lines[-1:])
    sizes = [os.path.getsize(name) for name in (log, log + ".1")]
    holds("in two files of at most 64 KiB", all(size <= 64 * 1024 for size in sizes), sizes)
    metrics = server.metrics()
    logged, lost, asked = (metrics.get(f"orrery_zone_{what}_total", -1) for what in ("queries_logged", "query_log_dropped", "queries"))
    holds("logged and lost queries add up to all queries", logged > 2000 and lost >= 0 and logged + lost == asked, (logged, lost, asked))
    server.stop()


def run(build, folder):
    waiting = Waiting(build)
    ours = Ours(build, ZONE)
    raw_packets(ours)
    crowds(ours)
    ours.stop()
    settings(build, folder)
    waiting.check()
