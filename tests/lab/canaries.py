"""Secrets that can be distinguished from everything else, and the search for them."""
import base64
import json
import os
import urllib.parse

from orrery_lab import Api

canaries = {}  # what it is → the text


def canary(what, text=None):
    """A new canary; `text` has a %s for the unique part."""
    canaries[what] = (text or f"Canary-{len(canaries)}-%s") % os.urandom(12).hex()
    return canaries[what]


def disguises(text):
    """The encodings in which a text could occur."""
    raw = text.encode()
    forms = {raw, raw.hex().encode(), raw.hex().upper().encode(), raw[::-1], json.dumps(text)[1:-1].encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode()}
    forms |= {quote(text, safe=safe).encode() for quote in (urllib.parse.quote, urllib.parse.quote_plus) for safe in ("", "/")}
    for pad in range(3):  # base64 at each alignment, without the ends that depend on the neighbours
        code = base64.b64encode(b"\0" * pad + raw)
        forms.add(code[4 if pad else 0:len(code) - 4])
    return forms


def leaks(data, except_for=()):
    return [what for what, text in canaries.items() if what not in except_for and any(form in data for form in disguises(text))]


class Ear(Api):
    """An Api that records all responses, except values that are shown once by design."""

    received = bytearray()
    answers = 0

    def raw(self, method, path, body=None, headers=None):
        status, fields, data = super().raw(method, path, body, headers)
        Ear.answers += 1
        Ear.received += f"{method} {path} {status}\n{fields}\n".encode() + data
        return status, fields, data

    def quietly(self, method, path, body):
        """A response that shows a secret once, by design."""
        kept = bytes(Ear.received)
        answer = self.request(method, path, body)
        Ear.received[:] = kept
        return answer
