"""What the tests' internet has: names, web sites with and without TLS, and a server that never speaks.

    network_sites.py CERTIFICATE ADDRESS...

serves on each address, at port 9000 an S3 service, and on the first answers the DNS as well. CERTIFICATE: a file with the key, too;
sources of sandboxes are made beside it when they are asked for (sources_site.py). Prints "ready".
"""
import hashlib
import http.server
import io
import json
import os
import socket
import socketserver
import ssl
import struct
import sys
import tarfile
import threading

sys.dont_write_bytecode = True
import sources_site

NAMES = {
    "a.example": ["203.0.113.2"],
    "b.example": ["203.0.113.3"],
    "deep.sub.a.example": ["203.0.113.2"],
    "six.example": ["2001:db8::2"],
    "both.example": ["203.0.113.2", "2001:db8::2"],
    "rebound.example": ["127.0.0.1"],
    "inner.example": ["10.1.2.3"],
    "metadata.example": ["169.254.169.254"],
    "empty.example": [],
    "moving.example": ["203.0.113.2"],
    # Clients of the Vercel Sandbox service find these at the server beside them.
    "vercel.com": ["127.0.0.1"],
    "*.vercel.run": ["127.0.0.1"],
}
A, AAAA, TXT, HTTPS = 1, 28, 16, 65


def make_package():
    """A registry with the package "tiny" in it."""
    files = {
        "package/package.json": b'{"name":"tiny","version":"1.0.0","main":"index.js"}',
        "package/index.js": b'module.exports = "it works";',
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    where = "/tiny/-/tiny-1.0.0.tgz"
    version = json.loads(files["package/package.json"])
    version["dist"] = {"tarball": "http://a.example" + where, "shasum": hashlib.sha1(packed.getvalue()).hexdigest()}
    about = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    return {"/tiny": json.dumps(about).encode(), where: packed.getvalue()}


PACKAGES = make_package()


def question_of(message):
    at, labels = 12, []
    while message[at]:
        labels.append(message[at + 1 : at + 1 + message[at]].decode("latin-1"))
        at += 1 + message[at]
    kind = struct.unpack(">H", message[at + 1 : at + 3])[0]
    return ".".join(labels).lower(), kind, message[12 : at + 5]


def answer(message):
    name, kind, question = question_of(message)
    addresses = NAMES.get(name, NAMES.get("*." + name.partition(".")[2]))
    known = addresses is not None
    records = []
    for address in addresses or []:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if kind == (AAAA if ":" in address else A):
            records.append((kind, socket.inet_pton(family, address)))
    if known and kind == HTTPS:
        records.append((HTTPS, b"\0\1\0"))
    if known and kind == TXT:
        records.append((TXT, b"\5hello"))
    body = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", k, 1, 0 if name == "moving.example" else 60, len(d)) + d for k, d in records)
    head = message[:2] + struct.pack(">HHHHH", 0x8180 | (0 if known else 3), 1, len(records), 0, 0)
    return head + question + body


class Datagram(socketserver.BaseRequestHandler):
    def handle(self):
        message, to = self.request
        to.sendto(answer(message), self.client_address)


class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path.startswith("/big/"):
            return self.send_much(int(self.path[5:]))
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://b.example/")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if self.path in PACKAGES:
            return self.send_package(PACKAGES[self.path])
        if SOURCES.answer(self):
            return None
        where = self.connection.getsockname()[0]
        text = "site %s host %s\n" % (where, self.headers.get("Host", "none"))
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self):
        if not SOURCES.answer(self):
            self.send_error(405)

    def do_PUT(self):
        left = int(self.headers["Content-Length"])
        while left > 0:
            left -= len(self.rfile.read(min(left, 65536)))
        self.do_GET()

    def send_package(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if body[:1] == b"{" else "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_much(self, size):
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        block = b"x" * 65536
        while size > 0:
            self.wfile.write(block[: min(size, len(block))])
            size -= min(size, len(block))


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024

    def __init__(self, address, handler, context=None):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.context = context
        super().__init__(address, handler)

    def handle_error(self, *_):
        pass

    def finish_request(self, request, client):
        if self.context:
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client)


class Secret(Site):
    """Over TLS: says which name was asked for."""

    def do_GET(self):
        text = "site %s tls %s\n" % (self.connection.getsockname()[0], self.connection.asked_for)
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


class Bucket(http.server.BaseHTTPRequestHandler):
    """Of an S3 service that has the bucket "data" and looks at no signature: every object is there. One whose name begins
    with "away" is found on the loopback of the one who asks, they say. /move/NAME/ADDRESS is where NAME is from then on."""

    def log_message(self, *_):
        pass

    def send(self, status, body=b"", more=()):
        self.send_response(status)
        for field, value in more:
            self.send_header(field, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.send(200, b"content\n", [("ETag", '"1"'), ("Last-Modified", "Sat, 01 Jan 2022 00:00:00 GMT")])

    def do_GET(self):
        path = self.path.split("?")[0]
        if path.startswith("/move/"):
            _, _, name, address = path.split("/")
            NAMES[name] = [address]
            return self.send(200)
        if path in ("/data", "/data/"):
            return self.send(200, b"<ListBucketResult><Name>data</Name><IsTruncated>false</IsTruncated></ListBucketResult>")
        if path.startswith("/data/away"):
            return self.send(307, b"", [("Location", "http://127.0.0.1:9000/any/path?role=1")])
        self.do_HEAD()


class Echo(socketserver.BaseRequestHandler):
    """Speaks first, then says what it hears; it hears the end before it ends."""

    def handle(self):
        self.request.sendall(b"hello\n")
        while True:
            heard = self.request.recv(65536)
            if not heard:
                self.request.sendall(b"bye\n")
                return
            self.request.sendall(heard)


class Silent(socketserver.BaseRequestHandler):
    """Takes nothing and says nothing, for as long as the test lives."""

    def handle(self):
        threading.Event().wait()


def note_name(connection, name, _):
    connection.asked_for = name


def main(words):
    certificate = words[1]
    addresses = words[2:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.sni_callback = note_name
    servers = [socketserver.ThreadingUDPServer((addresses[0], 53), Datagram)]
    for address in addresses:
        servers.append(Server((address, 80), Site))
        servers.append(Server((address, 443), Secret, context))
        servers.append(Server((address, 7), Echo))
        servers.append(Server((address, 9), Silent))
        servers.append(Server((address, 9000), Bucket))
    for each in servers:
        threading.Thread(target=each.serve_forever, daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait()


ssl.SSLSocket.asked_for = None
SOURCES = sources_site.Sources(os.path.dirname(os.path.abspath(sys.argv[1])))
main(sys.argv)
