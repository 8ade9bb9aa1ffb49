"""Shared code of this suite: handmade packets and their responses."""
import socket
import struct

import orrery_lab as lab

ORIGIN = "example.test"
ZONE = """$TTL 300
@ SOA ns1 host 2026 7200 900 604800 60
@ NS ns1
ns1 A 127.0.0.1
www A 192.0.2.1
alias CNAME www
a.b.c A 192.0.2.9
*.wild A 192.0.2.77
x.deep.wild A 192.0.2.78
dangling CNAME nothing
outside CNAME www.other.test.
round CNAME round2
round2 CNAME round
sub NS ns.sub
ns.sub A 192.0.2.99
@ MX 10 www
odd TYPE65280 \\# 3 010203
""" + "".join(f"big A 10.0.0.{i}\n" for i in range(1, 61))
passed = failed = 0


def holds(what, condition, seen=""):
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        lab.log(f"FAILED {what}: {seen}")


# --- packets ---------------------------------------------------------------------------------------------------------

def name(text):
    return b"".join(bytes([len(label)]) + label.encode() for label in text.split(".") if label) + b"\0"


def query(of=f"www.{ORIGIN}", qtype=1, flags=0x0100, qclass=1, qd=1, ar=0, tail=b"", question=None):
    return struct.pack(">6H", 0x1234, flags, qd, 0, 0, ar) + (name(of) + struct.pack(">2H", qtype, qclass) if question is None else question) + tail


def opt(size=1232, ttl=0, options=b"", owner=b"\0"):
    return owner + struct.pack(">2HIH", 41, size, ttl, len(options)) + options


def option(code, data):
    return struct.pack(">2H", code, len(data)) + data


CODES = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED", 9: "NOTAUTH", 16: "BADVERS"}


def exchange(port, packet):
    """The response in short: drop, or code, AA, TC, and how many records an answer has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(0.4)
        one.sendto(packet, ("127.0.0.1", port))
        try:
            reply = one.recv(65535)
        except socket.timeout:
            return "drop"
    flags, _, answers, authority, additional = struct.unpack(">5H", reply[2:12])
    code = flags & 15
    at = reply.rfind(b"\0\0\x29")
    if additional and at >= 0 and at + 11 <= len(reply):
        code |= reply[at + 5] << 4
    bits = "".join(text for bit, text in ((0x0400, " aa"), (0x0200, " tc"), (0x0080, " ra"), (0x0040, " z"), (0x0020, " ad")) if flags & bit)
    return f"{CODES.get(code, code)}{bits} {answers}"


def ask(port, packet, tcp=False, address="127.0.0.1"):
    """The whole reply."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as one:
        one.settimeout(2)
        one.connect((address, port))
        one.sendall(struct.pack(">H", len(packet)) + packet if tcp else packet)
        if not tcp:
            return one.recv(65535)
        file = one.makefile("rb")
        return file.read(struct.unpack(">H", file.read(2))[0])


def skip_name(reply, at):
    while reply[at] not in (0, *range(0xC0, 0x100)):
        at += 1 + reply[at]
    return at + (2 if reply[at] >= 0xC0 else 1)


def records(reply):
    """Sections of records, each as (offset of its owner, type, TTL, data)."""
    counts = struct.unpack(">4H", reply[4:12])
    at = 12
    for _ in range(counts[0]):
        at = skip_name(reply, at) + 4
    sections = []
    for count in counts[1:]:
        section = []
        for _ in range(count):
            owner, at = at, skip_name(reply, at)
            kind, _, ttl, length = struct.unpack(">2HIH", reply[at:at + 10])
            section.append((reply[owner:at], kind, ttl, reply[at + 10:at + 10 + length]))
            at += 10 + length
        sections.append(section)
    return sections


def options_of(reply):
    found = {}
    for _, kind, _, data in records(reply)[2]:
        while kind == 41 and data:
            code, length = struct.unpack(">2H", data[:4])
            found[code], data = data[4:4 + length], data[4 + length:]
    return found


def is_closed(one):
    try:
        return one.recv(10) == b""
    except ConnectionError:
        return True
    except socket.timeout:
        return False
