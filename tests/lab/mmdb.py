"""Writes MaxMind DB files (format 2.0), minimal ones for tests: networks and their data."""
import ipaddress
import struct


def _head(kind, size):
    first = size if size < 29 else 29 if size < 285 else 30
    out = bytes([first]) + bytes([kind - 7]) if kind > 7 else bytes([kind << 5 | first])
    if first == 29:
        out += bytes([size - 29])
    elif first == 30:
        out += (size - 285).to_bytes(2, "big")
    return out


class _Whole(int):
    """A number with the type that the format wants for it."""
    kind = 6


def whole(value, kind=6):
    out = _Whole(value)
    out.kind = kind  # 5: 16 bits, 6: 32 bits, 9: 64 bits
    return out


def encode(value):
    if isinstance(value, dict):
        return _head(7, len(value)) + b"".join(encode(str(k)) + encode(v) for k, v in value.items())
    if isinstance(value, list):
        return _head(11, len(value)) + b"".join(encode(v) for v in value)
    if isinstance(value, str):
        return _head(2, len(value.encode())) + value.encode()
    if isinstance(value, bool):
        return _head(14, int(value))
    if isinstance(value, float):
        return _head(3, 8) + struct.pack(">d", value)
    digits = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return _head(getattr(value, "kind", 6), len(digits)) + digits


def city(continent, country, latitude, longitude, subdivision=None):
    out = {"continent": {"code": continent}, "country": {"iso_code": country}, "location": {"latitude": float(latitude), "longitude": float(longitude)}}
    if subdivision:
        out["subdivisions"] = [{"iso_code": subdivision}]
    return out


def database(networks, kind="Test-City", record_size=28, built=1_700_000_000):
    """`networks`: {"192.0.2.0/24": {...}}, IPv4 and IPv6. Networks must not overlap."""
    nodes, data, places = [[None, None]], b"", {}
    for network, value in networks.items():
        encoded = encode(value)
        if encoded not in places:
            places[encoded] = len(data)
            data += encoded
        prefix = ipaddress.ip_network(network)
        bits = [int(b) for b in f"{int(prefix.network_address):0{prefix.max_prefixlen}b}"[:prefix.prefixlen]]
        if prefix.version == 4:
            bits = [0] * 96 + bits
        at = 0
        for bit in bits[:-1]:
            if not isinstance(nodes[at][bit], tuple):
                nodes[at][bit] = ("node", len(nodes))
                nodes.append([None, None])
            at = nodes[at][bit][1]
        nodes[at][bits[-1]] = places[encoded]

    def number(record):
        return len(nodes) if record is None else record[1] if isinstance(record, tuple) else len(nodes) + 16 + record

    tree = b""
    for left, right in ((number(a), number(b)) for a, b in nodes):
        if record_size == 28:
            tree += (left & 0xFFFFFF).to_bytes(3, "big") + bytes([left >> 24 << 4 | right >> 24]) + (right & 0xFFFFFF).to_bytes(3, "big")
        else:
            tree += left.to_bytes(record_size // 8, "big") + right.to_bytes(record_size // 8, "big")
    about = {"node_count": whole(len(nodes)), "record_size": whole(record_size, 5), "ip_version": whole(6, 5), "database_type": kind, "languages": ["en"],
             "binary_format_major_version": whole(2, 5), "binary_format_minor_version": whole(0, 5), "build_epoch": whole(built, 9), "description": {"en": "for tests"}}
    return tree + bytes(16) + data + b"\xab\xcd\xefMaxMind.com" + encode(about)
