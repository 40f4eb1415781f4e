#!/usr/bin/env -S python3 -B
"""Makes the images of `./dev images`, and imports them: a Debian with a Node.js.

An image has two layers. The first is a Debian, which mmdebstrap makes from the mirrors that this machine uses; all
images that have it share it. The second is Node.js with npm and corepack, out of the packages of npm's registry that
runtimes.lock names. The same packages give the same layers, byte for byte: nothing of a layer is of this machine, or of
the time when it is made.

Everything is kept below build/images: `layout`, the OCI layout with one tag per image; `downloads`; and `layers`, a
record of each layer, by a hash of its inputs. Files that are kept are verified before they are used.
"""

import argparse
import base64
import contextlib
import fcntl
import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
TREE = os.path.dirname(HERE)

SUITE = "bookworm"
# 2026-07-11, a day of a point release. Newer files get this time in a layer, and passwords are of this day.
EPOCH = 1783728000

SLIM = "ca-certificates curl git login openssl passwd procps sudo unzip xz-utils zip zstd".split()
TOOLS = "build-essential python3 python3-pip python3-venv".split()
DEBIANS = {"debian": sorted(SLIM + TOOLS), "debian-slim": SLIM}

# Each image with its Debian and its runtime in the lock file.
IMAGES = {
    "node22": ("debian", "node22"),
    "node24": ("debian", "node24"),
    "node26": ("debian", "node26"),
    "slim": ("debian-slim", "node24"),
}

# An architecture as the kernel, npm, and Debian and OCI call it.
ARCHITECTURES = {"x86_64": ("x64", "amd64"), "aarch64": ("arm64", "arm64")}

# Programs of npm's packages in /usr/local/bin.
PROGRAMS = {"npm": {"npm": "bin/npm-cli.js", "npx": "bin/npx-cli.js"}, "corepack": {"corepack": "dist/corepack.js"}}

# Where apt in a sandbox finds packages. Mirrors of this machine's own stay out: their names can contain a password.
SOURCES = "".join(f"deb http://deb.debian.org/{where} main\n" for where in
                  (f"debian {SUITE}", f"debian {SUITE}-updates", f"debian-security {SUITE}-security"))

ENVIRONMENT = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"]

# Words of apt and npm when a network or a mirror is in disorder. Anything else fails the same way the second time.
OF_THE_NETWORK = re.compile(
    r"Failed to fetch|Unable to fetch|Could not (connect|resolve)|Temporary failure|Connection (failed|timed out)|"
    r"Hash Sum mismatch|File has unexpected size|is not valid yet|"
    r"npm (ERR!|error) (code|errno) (E5\d\d|E408|E429|EAI_AGAIN|ENOTFOUND|ECONN\w+|E(SOCKET)?TIMEDOUT|ERR_SOCKET_TIMEOUT|"
    r"EPIPE|FETCH_ERROR|UND_ERR\w+|EINTEGRITY|Z_BUF_ERROR|TAR_BAD_ARCHIVE)")

MADE_BY = 1  # To be raised when layers come out differently: those that are kept are then made again.

OCI = "application/vnd.oci.image"


class Failed(Exception):
    """Something that could not be done, in words for the operator."""


def say(words):
    print(f"images: {words}", file=sys.stderr, flush=True)


# ---- Programs

def as_root(*words):
    return [*words] if os.geteuid() == 0 else ["sudo", "--", *words]


def family_of(pid):
    """A process and all that come from it."""
    found = [pid]
    for each in found:  # It grows meanwhile.
        found += map(int, text_of(f"/proc/{each}/task/{each}/children").split())
    return found


def end(child):
    """Ends a program that was started here with all that it has started, as Ctrl-C does, and waits until it has tidied up.

    mmdebstrap alone would wait until apt has ended, which may be a minute.
    """
    subprocess.run(as_root("kill", *map(str, family_of(child.pid))), stderr=subprocess.DEVNULL, check=False)
    child.wait()


def run(title, log, words, to=None, lock=None, cwd=None):
    """Runs a program whose words go to a log, and tells of it every now and then. Returns its status.

    Its output goes to a file, if one is named. The lock stays held for as long as the program lives, even if this one is
    killed.
    """
    began, pause = time.monotonic(), 5
    with open(log, "wb") as said, open(to or os.devnull, "wb") as out:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out if to else said, stderr=said, cwd=cwd, umask=0o022,
                                 pass_fds=() if lock is None else (lock,))
        try:
            while True:
                try:
                    return child.wait(pause)
                except subprocess.TimeoutExpired:
                    pause = 15
                    say(f"{title}: {time.monotonic() - began:.0f} s, {last_line(log)}")
        except BaseException:
            end(child)
            raise


def text_of(path):
    with contextlib.suppress(OSError), open(path, errors="replace") as file:
        return file.read()
    return ""


def last_line(log):
    lines = text_of(log).strip().splitlines()
    return "".join(each for each in lines[-1] if each.isprintable())[:90] if lines else ""


def run_from_outside(title, log, where, words, **options):
    """Runs a program that fetches something, three times at most where it is the network that fails."""
    pause = int(os.environ.get("INSULA_PAUSE", "10"))
    for attempt in (1, 2, 3):
        status = run(title, log, words, **options)
        if status == 0:
            return
        said = text_of(log)
        if not OF_THE_NETWORK.search(said):
            break
        if attempt < 3:
            say(f"{title}: no good answer from {where}; asking again in {pause * attempt} s")
            time.sleep(pause * attempt)
    sys.stderr.write("".join(line + "\n" for line in said.strip().splitlines()[-15:]))
    raise Failed(f"{title} failed with {status}; all it said is in {log}")


@contextlib.contextmanager
def ends_on_signals():
    """Turns the signals that end a program into SystemExit, so that half an image is removed."""
    def leave(number, _):
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)  # The removing is not to be cut short.
        raise SystemExit(128 + number)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, leave)
    yield


# ---- Files

def digest_of(path):
    sum_ = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            sum_.update(piece)
    return f"sha256:{sum_.hexdigest()}"


def write_json(path, value):
    """In one step: a reader sees all of it, or the file that was there before."""
    with open(path + ".new", "w") as file:
        json.dump(value, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)


def read_json(path):
    """None: there is none that can be read."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


# ---- The lock file

class Package:
    """One package of npm's registry: name, version and integrity, "sha512-" and the sum in Base64."""

    def __init__(self, name, version, integrity):
        self.name, self.version, self.integrity = name, version, integrity

    def __str__(self):
        return f"{self.name}@{self.version}"


def read_lock(path, runtime, architecture):
    """The packages of a runtime: Node's own, npm, and corepack. Errors: Failed."""
    found = {}
    with open(path) as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 5:
                raise Failed(f"{path}:{number}: expected a runtime, an architecture, a package, its version and its integrity")
            *whose, name, version, integrity = words
            if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or not re.fullmatch(r"\d+\.\d+\.\d+", version):
                raise Failed(f'{path}:{number}: "{name}" in version "{version}" is no pinned package')
            if not re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", integrity):
                raise Failed(f'{path}:{number}: "{integrity}" is no integrity of SHA-512')
            if whose[0] != runtime or whose[1] not in (architecture, "any"):
                continue
            if name in found:
                raise Failed(f"{path}:{number}: {runtime} has {name} twice")
            found[name] = Package(name, version, integrity)
    wanted = [f"node-linux-{architecture}", "npm", "corepack"]
    if sorted(found) != sorted(wanted):
        raise Failed(f"{path}: {runtime} on {architecture} has to have {', '.join(wanted)}, "
                     f"and has {', '.join(found) or 'nothing'}")
    return [found[each] for each in wanted]


def integrity_of(path):
    sum_ = hashlib.sha512()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            sum_.update(piece)
    return "sha512-" + base64.b64encode(sum_.digest()).decode()


def fetch(package, downloads, work, log):
    """A package's file, verified: one that is here, or else as npm fetches it. Errors: Failed."""
    path = f"{downloads}/{package.name}-{package.version}.tgz"
    if os.path.exists(path):
        if integrity_of(path) == package.integrity:
            return path
        say(f"{package}: the file in {downloads} does not have the integrity of the lock file, and is fetched again")
    say(f"{package}: fetching it")
    into = tempfile.mkdtemp(prefix="npm.", dir=work)
    run_from_outside(f"npm pack {package}", log, "npm's registry",
                     ["npm", "pack", str(package), "--pack-destination", into, "--ignore-scripts", "--loglevel=error"],
                     cwd=into)
    names = os.listdir(into)
    if len(names) != 1:
        raise Failed(f"{package}: npm brought {len(names)} files in place of one")
    brought = integrity_of(f"{into}/{names[0]}")
    if brought != package.integrity:
        raise Failed(f"{package} is refused: the lock file has {package.integrity}, and npm brought {brought}")
    os.rename(f"{into}/{names[0]}", path)
    return path


# ---- Layers

def members_of(path, package):
    """(name, mode, content) of each file of a package, without the directory that they are all in. Errors: Failed."""
    with gzip.open(path) as packed, tarfile.open(fileobj=io.BytesIO(packed.read())) as archive:
        for member in archive:
            if member.isdir():
                continue
            names = member.name.split("/")
            if not member.isfile() or len(names) < 2 or any(each in ("", ".", "..") for each in names):
                raise Failed(f'{package}: "{member.name}" is refused: it is no plain file below one directory')
            yield "/".join(names[1:]), 0o755 if member.mode & 0o111 else 0o644, archive.extractfile(member).read()


def files_of_runtime(packages, paths):
    """The files of a runtime's layer, by name: (mode, content), or (None, target) of a symlink."""
    files = {}
    for package, path in zip(packages, paths):
        is_node = package.name.startswith("node-linux-")
        for name, mode, content in members_of(path, package):
            if not is_node:
                files[f"usr/local/lib/node_modules/{package.name}/{name}"] = mode, content
            elif name.startswith(("bin/", "include/", "share/")):
                files[f"usr/local/{name}"] = mode, content
            elif name == "LICENSE":
                files[f"usr/local/share/doc/node/{name}"] = mode, content
        for program, script in PROGRAMS.get(package.name, {}).items():
            target = f"lib/node_modules/{package.name}/{script}"
            if f"usr/local/{target}" not in files:
                raise Failed(f"{package} has no {script}")
            files[f"usr/local/{target}"] = 0o755, files[f"usr/local/{target}"][1]
            files[f"usr/local/bin/{program}"] = None, f"../{target}"
    if "usr/local/bin/node" not in files:
        raise Failed(f"{packages[0]} has no bin/node")
    return files


def pack(files, path):
    """Writes a tar that depends on names, modes and contents alone: sorted, all of root's, all of one time."""
    directories = {name[:i] for name in files for i, each in enumerate(name) if each == "/"}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(directories | set(files)):
            member = tarfile.TarInfo(name)
            member.mtime = EPOCH
            if name in directories:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(member)
                continue
            mode, content = files[name]
            if mode is None:
                member.type, member.mode, member.linkname = tarfile.SYMTYPE, 0o777, content
                archive.addfile(member)
            else:
                member.mode, member.size = mode, len(content)
                archive.addfile(member, io.BytesIO(content))


def installed_packages(path):
    """["NAME=VERSION", ...] of the Debian in a tar."""
    with tarfile.open(path) as archive:
        status = archive.extractfile("./var/lib/dpkg/status").read().decode()
    found = []
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Status): (.*)$", paragraph, re.M))
        if fields.get("Status", "").endswith(" installed"):
            found.append(f"{fields['Package']}={fields['Version']}")
    return sorted(found)


def make_debian(title, packages, path, work, log, lock):
    """Writes a Debian with these packages as a tar. Errors: Failed."""
    sources, settings = (subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout for words in
                         ([f"{TREE}/tests/images/debian_sources"], ["apt-config", "dump", "--no-empty", "Acquire"]))
    of_fetching = re.compile(r"Acquire::(http|https|Check-|Retries|Force|AllowInsecure|AllowDowngrade)")
    for name, content in (("machine.list", sources), ("sources.list", SOURCES),
                          ("apt.conf", "".join(each for each in settings.splitlines(True) if of_fetching.match(each)))):
        with open(f"{work}/{name}", "w") as file:
            file.write(content)
    # This machine's name and its settings for fetching stay out; a sandbox has its own.
    forget = 'cd "$1/etc" && rm -f apt/apt.conf.d/99mmdebstrap apt/sources.list.d/* hostname resolv.conf && ' \
             f"cat >apt/sources.list <<'end' && chmod 644 apt/sources.list\n{SOURCES}end\n"
    run_from_outside(
        title, log, "the Debian mirrors",
        as_root("env", f"TMPDIR={work}", f"SOURCE_DATE_EPOCH={EPOCH}", "PYTHONHASHSEED=0", "LC_ALL=C.UTF-8", "mmdebstrap",
                "--mode=root", "--variant=minbase", "--format=tar", "--skip=output/dev", f"--include={','.join(packages)}",
                f"--aptopt={work}/apt.conf", f"--customize-hook={forget}", SUITE, "-", f"{work}/machine.list"),
        to=path, lock=lock)


class Store:
    """The directory below build/ where layers and downloads are kept."""

    def __init__(self, where):
        self.where, self.layout, self.blobs = where, f"{where}/layout", f"{where}/layout/blobs/sha256"
        self.downloads, self.records, self.logs = f"{where}/downloads", f"{where}/layers", f"{where}/logs"
        for each in (self.blobs, self.downloads, self.records, self.logs):
            os.makedirs(each, exist_ok=True)
        self.lock = None
        self.work = None

    @contextlib.contextmanager
    def working(self):
        """Holds the store's lock, and has a directory for half-made files, which goes at the end."""
        self.lock = os.open(f"{self.where}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("images are being made here already; waiting for that to end")
                fcntl.flock(self.lock, fcntl.LOCK_EX)
            for name in os.listdir(self.where):
                if name.startswith("making."):
                    remove_tree(f"{self.where}/{name}")  # Of one that was killed.
            self.work = tempfile.mkdtemp(prefix="making.", dir=self.where)
            os.chmod(self.work, 0o755)  # apt fetches as a user without rights.
            try:
                yield self
            finally:
                remove_tree(self.work)
        finally:
            os.close(self.lock)

    def add(self, path, digest=None):
        """Moves a file in as a blob. Returns its digest and size."""
        digest, size = digest or digest_of(path), os.path.getsize(path)
        os.chmod(path, 0o644)
        os.rename(path, self.path_of(digest))
        return digest, size

    def add_json(self, value):
        path = f"{self.work}/document"
        with open(path, "w") as file:
            json.dump(value, file, sort_keys=True, separators=(",", ":"))
        return self.add(path)

    def path_of(self, digest):
        return f"{self.blobs}/{digest.removeprefix('sha256:')}"

    def kept(self, key):
        """The record of a layer that was made from this before and is as it was; else None."""
        record = read_json(f"{self.records}/{key}.json")
        if record is None:
            return None
        path = self.path_of(record["digest"])
        if os.path.exists(path) and digest_of(path) == record["digest"]:
            return record
        say(f"{record['title']}: the layer that was kept is damaged, and is made again")
        return None

    def layer(self, title, made_from, make, again=False):
        """The record of a layer: one that is kept, or else of the tar that make(path) writes, with all that it returns."""
        key = hashlib.sha256(json.dumps([MADE_BY, EPOCH, made_from], sort_keys=True).encode()).hexdigest()[:32]
        record = self.kept(key)
        if record and not again:
            say(f"{title}: as made on {time.strftime('%Y-%m-%d', time.localtime(record['made']))}, {record['digest'][:19]}")
            return record
        began, path = time.monotonic(), f"{self.work}/layer.tar"
        more = make(path)
        # One thread: the digest must not hang on the number of processors.
        status = run(f"{title}: compressing", f"{self.logs}/zstd.log",
                     ["zstd", "-q", "-f", "-6", "--single-thread", "--no-progress", "-o", path + ".zst", path])
        if status != 0:
            raise Failed(f"zstd failed with {status}: {last_line(f'{self.logs}/zstd.log')}")
        diff_id, unpacked = digest_of(path), os.path.getsize(path)
        os.unlink(path)
        digest, size = self.add(path + ".zst")
        say(f"{title}: {unpacked >> 20} MiB, {size >> 20} MiB packed, {time.monotonic() - began:.0f} s, {digest[:19]}"
            f"{', as before' if record and record['digest'] == digest else ''}")
        record = {"title": title, "made": int(time.time()), "digest": digest, "size": size, "diff_id": diff_id, **more}
        write_json(f"{self.records}/{key}.json", record)
        return record

    def tag(self, images):
        """Puts the manifests under their names, beside those of other names, and removes blobs that nothing uses any more."""
        write_json(f"{self.layout}/oci-layout", {"imageLayoutVersion": "1.0.0"})
        name_of = "org.opencontainers.image.ref.name"
        index = read_json(f"{self.layout}/index.json") or {"manifests": []}
        manifests = {each["annotations"][name_of]: each for each in index["manifests"]}
        for name, (digest, size) in images.items():
            manifests[name] = {"mediaType": f"{OCI}.manifest.v1+json", "digest": digest, "size": size,
                               "annotations": {name_of: name}}
        write_json(f"{self.layout}/index.json", {
            "schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json",
            "manifests": [manifests[each] for each in sorted(manifests)]})
        used = set()
        for each in manifests.values():
            manifest = read_json(self.path_of(each["digest"])) or {"config": {"digest": ""}, "layers": []}
            used |= {each["digest"], manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])}
        for name in os.listdir(self.blobs):
            if f"sha256:{name}" not in used:
                os.unlink(f"{self.blobs}/{name}")
        for name in os.listdir(self.records):
            if (read_json(f"{self.records}/{name}") or {}).get("digest") not in used:
                os.unlink(f"{self.records}/{name}")


def remove_tree(path):
    try:
        shutil.rmtree(path)
    except PermissionError:  # mmdebstrap's root was not removed by itself.
        subprocess.run(as_root("rm", "-rf", "--one-file-system", "--", path), check=False)


# ---- Images

def make_image(store, name, layers, architecture):
    """Writes an image's configuration and manifest. Returns the manifest's digest and size."""
    debian, runtime = layers
    config, size = store.add_json({
        "architecture": architecture, "os": "linux", "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH)),
        "config": {
            # The user and the directory of every sandbox.
            "User": "1000:1000", "WorkingDir": "/workspace", "Cmd": ["/bin/bash"],
            "Env": [*ENVIRONMENT, f"NODE_VERSION={runtime['version']}"],
            "Labels": {"org.opencontainers.image.title": name, "insula.debian.packages": " ".join(debian["packages"]),
                       "insula.npm.packages": " ".join(runtime["packages"])},
        },
        "rootfs": {"type": "layers", "diff_ids": [each["diff_id"] for each in layers]},
    })
    return store.add_json({
        "schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json",
        "config": {"mediaType": f"{OCI}.config.v1+json", "digest": config, "size": size},
        "layers": [{"mediaType": f"{OCI}.layer.v1.tar+zstd", "digest": each["digest"], "size": each["size"]}
                   for each in layers],
    })


def make_all(store, names, lock_file, machine, update=False):
    """Makes the images, and returns the digests of their manifests by name. Errors: Failed."""
    of_npm, of_debian = ARCHITECTURES[machine]
    wanted = {IMAGES[name][1] for name in names}
    packages = {runtime: read_lock(lock_file, runtime, of_npm) for runtime in sorted(wanted)}
    # The quick part first: a wrong lock file is known before Debian is made.
    paths = {runtime: [fetch(each, store.downloads, store.work, f"{store.logs}/npm.log") for each in all_]
             for runtime, all_ in packages.items()}

    def runtime_layer(runtime):
        all_ = packages[runtime]

        def make(path):
            pack(files_of_runtime(all_, paths[runtime]), path)
            return {"version": all_[0].version, "packages": [str(each) for each in all_]}

        return store.layer(f"{runtime} ({all_[0].version}, npm {all_[1].version})",
                           [[str(each), each.integrity] for each in all_], make)

    def debian_layer(debian):
        def make(path):
            make_debian(debian, DEBIANS[debian], path, store.work, f"{store.logs}/{debian}.log", store.lock)
            return {"packages": installed_packages(path)}

        return store.layer(debian, [SUITE, of_debian, DEBIANS[debian], SOURCES], make, again=update)

    runtimes = {each: runtime_layer(each) for each in sorted(wanted)}
    debians = {each: debian_layer(each) for each in sorted({IMAGES[name][0] for name in names})}
    made = {name: make_image(store, name, (debians[IMAGES[name][0]], runtimes[IMAGES[name][1]]), of_debian) for name in names}
    store.tag(made)
    return {name: digest for name, (digest, _) in made.items()}


def import_image(store, program, state, name, digest):
    """Errors: Failed."""
    shown = subprocess.run(as_root(program, "image", "show", name, "--state", state), stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True, check=False)
    with contextlib.suppress(ValueError, AttributeError):
        if shown.returncode == 0 and json.loads(shown.stdout).get("digest") == digest:
            say(f"{name}: {digest[:19]} is in {state} already")
            return
    log = f"{store.logs}/import.log"
    status = run(f"importing {name}", log, as_root(program, "image", "import", store.layout, "--tag", name, "--name", name,
                                                   "--replace", "--state", state), lock=store.lock)
    if status != 0:
        sys.stderr.write(text_of(log))
        raise Failed(f"importing {name} into {state} failed with {status}")
    say(f"{name}: {digest[:19]} is imported into {state}")


def arguments_of(words):
    parser = argparse.ArgumentParser(
        prog="./dev images", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Makes images with Node.js on Debian, and imports them into the state directory of a server.",
        epilog="""images:
  node22, node24, node26  Node.js with npm and corepack, git, curl, sudo, Python with pip, and a compiler
  slim                    Node.js 24 without Python and the compiler

Versions are in images/runtimes.lock; Debian's are those of the mirrors that this machine uses. Layers and downloads are kept
below build/images, and used again. A server that runs finds new images when it is started next.""")
    parser.add_argument("names", nargs="*", metavar="name", help="which images; all of them unless told")
    parser.add_argument("--state", default=f"{TREE}/build/state", metavar="DIR",
                        help="the server's state directory; that of ./dev serve unless told")
    parser.add_argument("--update", action="store_true", help="make Debian anew, with the packages that its mirrors have today")
    parser.add_argument("--insula", metavar="PROGRAM", default=f"{TREE}/build/release/insula", help=argparse.SUPPRESS)
    parser.add_argument("--store", metavar="DIR", default=f"{TREE}/build/images", help=argparse.SUPPRESS)
    parser.add_argument("--lock", metavar="FILE", default=f"{HERE}/runtimes.lock", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)  # The arguments only.
    arguments = parser.parse_args(words)
    for each in arguments.names:
        if each not in IMAGES:
            parser.error(f'there is no image "{each}"; there are: {", ".join(IMAGES)}')
    arguments.names = list(dict.fromkeys(arguments.names)) or list(IMAGES)
    arguments.state, arguments.store = os.path.abspath(arguments.state), os.path.abspath(arguments.store)
    return arguments


def main(words):
    arguments = arguments_of(words)
    machine = platform.machine()
    try:
        if machine not in ARCHITECTURES:
            raise Failed(f"npm's registry has Node.js for {' and '.join(ARCHITECTURES)}, and this machine is {machine}")
        if arguments.check:
            return 0
        began = time.monotonic()
        with ends_on_signals(), Store(arguments.store).working() as store:
            digests = make_all(store, arguments.names, arguments.lock, machine, arguments.update)
            for name, digest in digests.items():
                import_image(store, arguments.insula, arguments.state, name, digest)
        say(f"{', '.join(digests)}: done in {time.monotonic() - began:.0f} s; to have new sandboxes start from one, configure "
            f"image: {{default: {arguments.names[0]}}}")
        return 0
    except (Failed, OSError, subprocess.CalledProcessError) as error:
        say(error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
