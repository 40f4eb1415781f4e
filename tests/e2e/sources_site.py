"""Sources of sandboxes, as a part of the tests' internet: a git repository over HTTP, tarballs, and redirections.

/git/app.git          a small application: the branches main (two commits) and feature (one more), the tag v1 at the first
/private/app.git      the same, for the user "reader" with PASSWORD
/tarballs/NAME        what make_tarballs() has; another name is 404
/to/URL               redirects to URL, with what comes behind it
"""
import base64
import gzip
import http.client
import io
import os
import subprocess
import tarfile
import threading

PASSWORD = "s3cret-of-the-reader"

# What a registry needs to be known for, and a development server that needs a package from there.
APPLICATION = {
    ".npmrc": "registry=http://a.example/\nfund=false\naudit=false\n",
    "package.json": '{"name":"app","private":true,"scripts":{"dev":"node server.js"},"dependencies":{"tiny":"1.0.0"}}\n',
    "server.js": "const text = `tiny says: ${require('tiny')}`;\n"
    "require('node:http').createServer((_, answer) => answer.end(text)).listen(3000, () => console.log('listening on 3000'));\n",
}


def git(where, *words):
    environment = {
        "PATH": os.environ["PATH"], "HOME": where, "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": f"{what.lower()}@a.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    subprocess.run(["git", "-C", where, *words], env=environment, check=True, stdout=subprocess.DEVNULL)


def make_repository(where):
    work = os.path.join(where, "work")
    os.makedirs(work)
    git(work, "init", "-q", "-b", "main")

    def commit(which):
        with open(os.path.join(work, "which"), "w", encoding="ascii") as file:
            file.write(which + "\n")
        git(work, "add", "-A")
        git(work, "commit", "-q", "-m", which)

    for name, text in APPLICATION.items():
        with open(os.path.join(work, name), "w", encoding="ascii") as file:
            file.write(text)
    commit("first")
    git(work, "tag", "v1")
    commit("second")
    git(work, "checkout", "-q", "-b", "feature")
    commit("feature")
    git(work, "checkout", "-q", "main")
    git(where, "clone", "-q", "--bare", work, os.path.join(where, "app.git"))


def tar_of(*members):
    """Of (name, content or link target, kind)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, value, kind in members:
            member = tarfile.TarInfo(name)
            member.type, member.uid, member.gid = kind, 4242, 4242
            member.mode = 0o755 if name.startswith("bin/") else 0o644
            if kind == tarfile.REGTYPE:
                member.size = len(value)
                archive.addfile(member, io.BytesIO(value))
            else:
                member.linkname = value
                archive.addfile(member)
    return packed.getvalue()


def make_tarballs():
    file, symbolic, hard = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
    plain = tar_of(("hello.txt", b"hello\n", file), ("bin/tool", b"#!/bin/sh\necho ran\n", file), ("link", "hello.txt", symbolic))
    return {
        "app.tar": plain,
        "app.tgz": gzip.compress(plain),
        "climbing.tgz": gzip.compress(tar_of(("../../climbed.txt", b"x", file))),
        "climbing-by-link.tgz": gzip.compress(tar_of(("up", "../..", symbolic), ("up/climbed.txt", b"x", file))),
        "absolute-links.tgz": gzip.compress(tar_of(("absolute", "/etc/passwd", symbolic), ("hello.txt", b"hello\n", file))),
        "absolute-hard-link.tgz": gzip.compress(tar_of(("hard", "/etc/passwd", hard))),
        "absolute-name.tgz": gzip.compress(tar_of(("/tmp/absolute.txt", b"x", file))),
        "text.tgz": b"This is no archive.\n" * 100,
        "half.tgz": gzip.compress(tar_of(("big", os.urandom(200_000), file)))[:100_000],
    }


class Sources:
    """Made when they are first asked for, in a directory that somebody else removes."""

    def __init__(self, directory):
        self.directory = os.path.join(directory, "sources")
        self.lock = threading.Lock()
        self.tarballs = {}

    def make(self):
        with self.lock:
            if not self.tarballs:
                make_repository(self.directory)
                self.tarballs = make_tarballs()

    def answer(self, site):
        """True: `site`, a request's handler, has been answered."""
        area = site.path.split("/")[1]
        if area == "to":
            self.send(site, 302, b"", [("Location", site.path[len("/to/"):])])
        elif area == "tarballs":
            self.make()
            packed = self.tarballs.get(site.path.split("/")[2])
            self.send(site, 404 if packed is None else 200, packed or b"no such tarball\n")
        elif area in ("git", "private"):
            self.make()
            if area == "private" and site.headers.get("Authorization") != self.credentials():
                self.send(site, 401, b"who are you?\n", [("WWW-Authenticate", 'Basic realm="private"')])
            else:
                self.send_repository(site, area)
        else:
            return False
        return True

    @staticmethod
    def credentials():
        return "Basic " + base64.b64encode(f"reader:{PASSWORD}".encode()).decode()

    @staticmethod
    def send(site, status, body, more=()):
        site.send_response(status)
        for field, value in more:
            site.send_header(field, value)
        site.send_header("Content-Length", str(len(body)))
        site.end_headers()
        site.wfile.write(body)

    def send_repository(self, site, area):
        path, _, query = site.path[len(area) + 1:].partition("?")
        body = site.rfile.read(int(site.headers.get("Content-Length") or 0))
        environment = {
            "PATH": os.environ["PATH"], "HOME": self.directory, "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_PROJECT_ROOT": self.directory, "GIT_HTTP_EXPORT_ALL": "1", "GIT_PROTOCOL": site.headers.get("Git-Protocol", ""),
            "REQUEST_METHOD": site.command, "PATH_INFO": path, "QUERY_STRING": query, "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": site.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": site.headers.get("Content-Encoding", ""),
        }
        said = subprocess.run(["git", "http-backend"], input=body, env=environment, check=True, capture_output=True).stdout
        head, _, content = said.partition(b"\r\n\r\n")
        fields = http.client.parse_headers(io.BytesIO(head + b"\r\n\r\n"))
        status = int(fields.get("Status", "200").split()[0])
        self.send(site, status, content, [each for each in fields.items() if each[0] not in ("Status", "Content-Length")])
