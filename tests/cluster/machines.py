#!/usr/bin/env -S python3 -B
"""Machines on this one: each a network namespace with an address of its own, a member of etcd and a node of Insula.

They hang on a bridge that is in a namespace too. Of all this the host sees one interface, by which its programs reach
the nodes. Everything that is made here carries the number of the process that made it, and is removed when that ends;
what one left that was killed, the next one removes.
"""

import argparse
import base64
import contextlib
import fcntl
import glob
import http.client
import ipaddress
import json
import os
import platform
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time

PLACE = "/var/tmp"
PREFIX = "insula-cluster-"

CLIENT_PORT, PEER_PORT = 2379, 2380  # etcd's
LISTEN_PORT, INTERNAL_PORT, LINK_PORT = 8787, 8788, 8789

START_PATIENCE = 120  # A first start makes the image from this machine's /usr.
STOP_PATIENCE = 60


class Failed(Exception):
    """What could not be done, in words for whoever started this."""


def run(*words, check=True, **options):
    """Runs a short command and returns what it printed."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, **options)
    if check and done.returncode != 0:
        raise Failed(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def eventually(condition, seconds, what, pause=0.05):
    """Waits until it is true, and returns what it was; after so many seconds it is an error."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f"after {seconds} s: {what() if callable(what) else what}")
        time.sleep(pause)


def content_of(path, mode="r"):
    try:
        with open(path, mode, errors=None if "b" in mode else "replace") as file:
            return file.read()
    except OSError:  # Processes and groups come and go.
        return b"" if "b" in mode else ""


def start_of(pid):
    """When a process began, in the kernel's ticks; "" if there is none. Numbers of processes are used again."""
    fields = content_of(f"/proc/{pid}/stat").rpartition(") ")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def node_key(state):
    """By which a server names its cgroups: a hash of its state directory (runtime/spawner_client.cpp)."""
    hash_ = 0xCBF29CE484222325
    for byte in os.path.realpath(state).encode():
        hash_ = ((hash_ ^ byte) * 0x100000001B3) & (1 << 64) - 1
    return base64.b32encode(hash_.to_bytes(8, sys.byteorder)).decode().rstrip("=").lower()


def groups_of(key):
    """The directories of a node's cgroups, one in each hierarchy."""
    found = []
    for path, below, _ in os.walk("/sys/fs/cgroup"):
        if f"insula-{key}" in below:
            found.append(os.path.join(path, f"insula-{key}"))
        # Sandboxes have many groups, and none of them is what is looked for.
        below[:] = [name for name in below if not name.startswith("insula-")]
    return found


def processes_of(keys, states, namespaces):
    """Processes of these nodes and of all that runs in these network namespaces."""
    signs = [f"/insula-{key}" for key in keys]
    arguments = [os.path.realpath(state).encode() for state in states]
    inodes = set()
    for name in namespaces:
        with contextlib.suppress(OSError):
            inodes.add(os.stat(f"/run/netns/{name}").st_ino)
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        where = f"/proc/{name}"
        try:
            ours = os.stat(f"{where}/ns/net").st_ino in inodes
        except OSError:
            continue  # It has ended.
        if not ours:
            groups = content_of(f"{where}/cgroup")
            ours = any(sign + "/" in groups or sign + "\n" in groups for sign in signs)
        if not ours:
            words = content_of(f"{where}/cmdline", "rb").split(b"\0")
            ours = any(argument in words for argument in arguments)
        if ours and start_of(name):
            found.append(int(name))
    return found


def thaw(group):
    """So that what is in there can die."""
    for path, _, files in os.walk(group):
        for name, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            if name in files:
                with contextlib.suppress(OSError), open(os.path.join(path, name), "w") as file:
                    file.write(word)


def thaw_disks(where):
    """File systems below it that were frozen go on: until then, what has written to one cannot even be killed."""
    for line in content_of("/proc/self/mounts").splitlines():
        _, point, kind, *_ = line.split()
        if kind == "ext4" and point.startswith(where + "/"):
            run("fsfreeze", "--unfreeze", point, check=False)


def signal_all(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def remove_groups(keys):
    for key in keys:
        for group in groups_of(key):
            for path, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(path)


def remove_all(where):
    """Ends and removes all that belongs to the machines in this directory, whoever made them."""
    thaw_disks(where)
    pid = os.path.basename(where)[len(PREFIX):]
    namespaces = [name for name in os.listdir("/run/netns") if name.startswith(f"{PREFIX}{pid}-")] \
        if os.path.isdir("/run/netns") else []
    states = glob.glob(f"{where}/*/state")
    keys = [node_key(state) for state in states]

    def all_ended():
        for key in keys:
            for group in groups_of(key):
                thaw(group)
        left = processes_of(keys, states, namespaces)
        signal_all(left, signal.SIGKILL)
        return not left

    eventually(all_ended, STOP_PATIENCE, f"processes of {where} do not end")
    remove_groups(keys)
    for line in reversed(content_of("/proc/self/mounts").splitlines()):
        point = line.split()[1]
        if point.startswith(where + "/"):
            run("umount", "-l", point, check=False)
    for file in glob.glob("/sys/block/loop*/loop/backing_file"):
        if content_of(file).startswith(where + "/"):
            run("losetup", "-d", "/dev/" + file.split("/")[3], check=False)
    for name in namespaces:
        run("ip", "netns", "delete", name, check=False)
    run("ip", "link", "delete", f"ic{pid}", check=False)  # It goes with the bridge's namespace, a bit later.
    shutil.rmtree(where, ignore_errors=True)


def sweep():
    """Removes what others left that have ended."""
    for where in glob.glob(f"{PLACE}/{PREFIX}*"):
        pid, _, began = content_of(f"{where}/owner").partition(" ")
        if not pid and time.time() - os.stat(where).st_mtime < 60:
            continue  # Somebody makes it just now.
        if not pid or start_of(pid) != began:
            remove_all(where)


@contextlib.contextmanager
def ends_on_signals():
    """Turns the signals that end a program into SystemExit, so that what is made is removed."""
    def leave(number, _):
        for each in before:
            signal.signal(each, signal.SIG_IGN)  # The removing is not to be cut short.
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, leave) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class Answer:
    """An HTTP answer that has been read to its end."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class Etcd:
    """A member of etcd on one machine."""

    def __init__(self, machine):
        self.machine = machine
        self.url = f"https://{machine.address}:{CLIENT_PORT}"
        self.peer = f"https://{machine.address}:{PEER_PORT}"
        self.directory = f"{machine.where}/etcd"
        self.process = None

    def start(self, members, state="new"):
        environment = dict(os.environ)
        if platform.machine() == "aarch64":
            environment["ETCD_UNSUPPORTED_ARCH"] = "arm64"
        base, authority = (f"{self.machine.all.certificates}/{each}" for each in (f"etcd-{self.machine.name}", "etcd-ca.crt"))
        self.process = self.machine.launch("etcd", [
            "etcd", "--name", self.machine.name, "--data-dir", self.directory,
            "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
            "--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer,
            "--initial-cluster", ",".join(f"{each.machine.name}={each.peer}" for each in members),
            "--initial-cluster-token", f"insula-{os.getpid()}", "--initial-cluster-state", state,
            "--cert-file", f"{base}.crt", "--key-file", f"{base}.key", "--trusted-ca-file", authority, "--client-cert-auth",
            "--peer-cert-file", f"{base}.crt", "--peer-key-file", f"{base}.key", "--peer-trusted-ca-file", authority,
            "--peer-client-cert-auth", "--max-request-bytes=33554432", "--max-txn-ops=4096",
            # Without it a member that lacks the last entry can keep the others from electing one for seconds.
            "--pre-vote", "--heartbeat-interval=50", "--election-timeout=500",
            "--auto-compaction-mode=periodic", "--auto-compaction-retention=5m", "--log-level=warn",
        ], env=environment)

    def call(self, path, body=None, timeout=2):
        """Asks etcd's JSON gateway. Errors: OSError, Failed."""
        answer = self.machine.request("POST", path, json.dumps(body or {}), timeout=timeout, port=CLIENT_PORT,
                                      tls=self.machine.all.as_etcds_client())
        if answer.status != 200:
            raise Failed(f"etcd at {self.machine.name}: {path}: {answer.body[:300]!r}")
        return answer.json()

    def status(self):
        """What it says of itself, or None when it does not answer."""
        try:
            return self.call("/v3/maintenance/status")
        except (OSError, http.client.HTTPException, Failed, ValueError):
            return None

    def healthy(self):
        status = self.status()
        return status is not None and int(status.get("leader", 0)) != 0

    def kill(self):
        if self.process is not None:
            self.thaw()
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self):
        """Its disk hangs: whatever writes to it waits, until thaw(). Only with disks of its own."""
        run("fsfreeze", "--freeze", self.directory)

    def thaw(self):
        if self.machine.all.etcd_disks:
            run("fsfreeze", "--unfreeze", self.directory, check=False)  # It may not be frozen.

    def metrics(self):
        """Its counters, by their names with labels."""
        text = self.machine.request("GET", "/metrics", port=CLIENT_PORT, tls=self.machine.all.as_etcds_client()).body.decode()
        values = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                values[name] = float(value)
        return values


class Machine:
    """One namespace, with a node of Insula in it."""

    def __init__(self, all_, number):
        self.all, self.number, self.name = all_, number, f"n{number}"
        self.where = f"{all_.where}/{self.name}"
        self.state = f"{self.where}/state"
        self.namespace = f"{all_.prefix}-{self.name}"
        self.address = str(all_.network[number])
        self.url = f"http://{self.address}:{LISTEN_PORT}"
        self.server = None
        self.etcd = Etcd(self)
        os.makedirs(self.state)
        self.key = node_key(self.state)

    def inside(self, *words, **options):
        """Runs a short command in the namespace."""
        return run("nsenter", f"--net=/run/netns/{self.namespace}", *words, **options)

    def launch(self, name, words, **options):
        """Starts a program in the namespace, as a group of its own: a terminal's Ctrl-C is not for it."""
        with open(f"{self.all.logs}/{self.name}-{name}.log", "ab") as log:
            return subprocess.Popen(["nsenter", f"--net=/run/netns/{self.namespace}", *words], stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log, start_new_session=True, **options)

    def request(self, method, path, body=None, headers=None, timeout=10, port=LISTEN_PORT, tls=None):
        """One request over a connection of its own. The time counts for each read. Errors: OSError, HTTPException."""
        connection = http.client.HTTPSConnection(self.address, port, timeout=timeout, context=tls) if tls else \
            http.client.HTTPConnection(self.address, port, timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    # ---- The node

    def start(self, wait=True, failpoint=None):
        """`failpoint`: a step at which the server does something to itself; see base/failpoint.hpp."""
        environment = {**os.environ, "INSULA_FAILPOINT": failpoint} if failpoint else None
        self.server = self.launch("insula", self.all.command(self), env=environment)
        if wait:
            self.wait_until_ready()

    def answers(self):
        try:
            return self.request("GET", "/health", timeout=2).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def wait_until_ready(self, patience=START_PATIENCE):
        def ready():
            if self.server.poll() is not None:
                raise Failed(f"{self.name} has ended with {self.server.returncode}: {self.end_of_log()}")
            return self.answers()
        eventually(ready, patience, lambda: f"{self.name} does not answer: {self.end_of_log()}")

    def end_of_log(self, name="insula", lines=8):
        return "\n".join(content_of(f"{self.all.logs}/{self.name}-{name}.log").splitlines()[-lines:])

    def running(self):
        return self.server is not None and self.server.poll() is None

    def stop(self, number=signal.SIGINT):
        """SIGINT ends the sandboxes too, SIGTERM leaves them to the next server."""
        if self.running():
            self.server.send_signal(number)
            try:
                self.server.wait(STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                raise Failed(f"{self.name} does not end: {self.end_of_log()}") from None

    def processes(self):
        """All of the node: server, spawner, gateway, and what runs in its sandboxes. Not etcd."""
        found = set(processes_of([self.key], [self.state], []))
        if self.running():
            found.add(self.server.pid)
        return sorted(found)

    def own_processes(self):
        """Those that are Insula's: server, spawner, gateway."""
        return [pid for pid in self.processes() if pid == self.server_pid() or is_insulas(pid)]

    def stands_still(self):
        """Has the server been stopped, as by SIGSTOP?"""
        return content_of(f"/proc/{self.server_pid()}/stat").rpartition(") ")[2].startswith("T")

    def server_pid(self):
        return self.server.pid if self.running() else 0

    def kill_server(self):
        if self.server is not None:
            self.server.kill()
            self.server.wait()

    def kill_own(self):
        """Server, spawner and gateway at once. What ran in the sandboxes is left to itself."""
        signal_all(self.own_processes(), signal.SIGKILL)
        self.kill_server()

    def kill_everything(self):
        """As when the machine has lost its power, without etcd."""
        def all_ended():
            left = self.processes()
            signal_all(left, signal.SIGKILL)
            for group in groups_of(self.key) if left else []:
                thaw(group)
            if self.server is not None:
                self.server.poll()
            return not left
        eventually(all_ended, STOP_PATIENCE, f"processes of {self.name} do not end")
        remove_groups([self.key])


def is_insulas(pid):
    """Is it the spawner or the gateway? Agents in sandboxes have the spawner's words until they have their own."""
    words = content_of(f"/proc/{pid}/cmdline", "rb").split(b"\0")
    if words[0] not in (b"insula-spawner", b"insula-gateway"):
        return False
    try:
        return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
    except OSError:
        return False


class Machines:
    """All of them. A context: whatever happens inside, nothing stays."""

    def __init__(self, insula, count=3, clustered=True, settings=None, extra="", small_disks="", logs=None, etcd_disks=False):
        """`settings` are sections of the configuration, and `extra` are lines behind it: indented by two blanks they go on
        with the cluster's section. `small_disks`, such as "256m": each state is in memory, and so big. `etcd_disks`: each
        member of etcd has a file system that can be made to hang."""
        self.insula = os.path.abspath(insula)
        self.count, self.clustered, self.small_disks = count, clustered, small_disks
        self.settings, self.extra, self.etcd_disks = settings or {}, extra, etcd_disks
        self.logs = os.path.abspath(logs) if logs else None
        self.prefix = f"{PREFIX}{os.getpid()}"
        self.where = f"{PLACE}/{self.prefix}"
        self.certificates = f"{self.where}/certificates"
        self.etcd_tls = None
        self.link = f"ic{os.getpid()}"
        self.machines = []
        self.lock = threading.Lock()

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def __iter__(self):
        return iter(self.machines)

    def __getitem__(self, name):
        return next(each for each in self.machines if each.name == name)

    # ---- Making and removing

    def make(self):
        if os.geteuid() != 0:
            raise Failed("making machines needs root")
        for program in ("ip", "nsenter", "nft", "openssl") + (("etcd",) if self.clustered else ()) + \
                (("fsfreeze", "mkfs.ext4") if self.etcd_disks else ()):
            if shutil.which(program) is None:
                raise Failed(f"there is no {program} here")
        if not os.access(self.insula, os.X_OK):
            raise Failed(f"there is no program {self.insula}")
        with open("/run/insula-cluster.lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # Two that begin at once do not choose the same network.
            sweep()
            os.mkdir(self.where, 0o755)
            with open(f"{self.where}/owner", "w", encoding="ascii") as file:
                file.write(f"{os.getpid()} {start_of(os.getpid())}")
            self.network = free_network()
            self.make_network()
        self.logs = self.logs or f"{self.where}/logs"
        os.makedirs(self.logs, exist_ok=True)
        self.machines = [Machine(self, number) for number in range(1, self.count + 1)]
        for each in self.machines:
            self.connect(each)
        if self.small_disks:
            for each in self.machines:
                run("mount", "-t", "tmpfs", "-o", f"size={self.small_disks},mode=711", "insula-cluster", each.state)
        if self.clustered:
            self.make_certificates()
            for each in self.machines:  # They share a disk here, with all else on this machine, and leases do not wait for it.
                os.mkdir(each.etcd.directory, 0o700)
                if self.etcd_disks:
                    self.make_etcd_disk(each)
                else:
                    run("mount", "-t", "tmpfs", "-o", "size=1g,mode=700", "insula-cluster", each.etcd.directory)
        self.configuration = f"{self.where}/cluster.yaml"
        with open(self.configuration, "w", encoding="utf-8") as file:
            file.write(self.configuration_text())

    def make_etcd_disk(self, machine):
        """In memory all the same, as a file system in a file."""
        disk = f"{machine.where}/disk"
        os.mkdir(disk, 0o700)
        run("mount", "-t", "tmpfs", "-o", "size=600m,mode=700", "insula-cluster", disk)
        run("truncate", "--size", "512m", f"{disk}/image")
        run("mkfs.ext4", "-q", "-F", f"{disk}/image")
        run("mount", "-o", "loop", f"{disk}/image", machine.etcd.directory)
        os.rmdir(f"{machine.etcd.directory}/lost+found")  # etcd would wonder what it is.

    def make_network(self):
        bridge = f"{self.prefix}-b"
        run("ip", "netns", "add", bridge)
        run("ip", "-n", bridge, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", bridge, "link", "set", "br0", "up")
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "host", "netns", bridge)
        run("ip", "-n", bridge, "link", "set", "host", "master", "br0", "up")
        run("ip", "address", "add", f"{self.network[254]}/{self.network.prefixlen}", "dev", self.link)
        run("ip", "link", "set", self.link, "up")

    def connect(self, machine):
        bridge, name = f"{self.prefix}-b", machine.namespace
        run("ip", "netns", "add", name)
        run("ip", "-n", bridge, "link", "add", machine.name, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "-n", bridge, "link", "set", machine.name, "master", "br0", "up")
        run("ip", "-n", name, "address", "add", f"{machine.address}/{self.network.prefixlen}", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")

    def make_certificates(self):
        """By the lines of the guide, for these machines."""
        os.mkdir(self.certificates, 0o700)
        guide = content_of(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/cluster.md"))
        lines, loop, _ = guide.partition("<!-- certificates -->\n```sh\n")[2].partition("for i in ")
        if not loop:
            raise Failed("docs/cluster.md does not say how certificates are made")
        for each in self.machines:
            for authority, name, whose in (("insula", each.name, each.name), ("etcd", f"etcd-{each.name}", each.name),
                                           ("etcd", f"etcd-client-{each.name}", f"insula-{each.name}")):
                lines += f"certificate {authority} {name} {whose} {each.address}\n"
        run("sh", "-euc", lines, cwd=self.certificates)

    def as_etcds_client(self):
        """How whoever looks after etcd speaks to it."""
        if self.etcd_tls is None:
            base = f"{self.certificates}/etcd-client-{self.machines[0].name}"
            self.etcd_tls = ssl.create_default_context(cafile=f"{self.certificates}/etcd-ca.crt")
            self.etcd_tls.load_cert_chain(f"{base}.crt", f"{base}.key")
        return self.etcd_tls

    def configuration_text(self):
        # Other servers of this machine have slots as well, those of tests for example.
        slots = 1000
        first = [(os.getpid() * 3 + each.number) % 36 * slots for each in self.machines]
        sections = {"server": {"allow_open": True}, "sandbox": {"max_instances": slots - 100}, "runtime": {"slots": slots}}
        if self.clustered:  # All of them see this machine's directories.
            sections["snapshots"] = {"directory": f"{self.where}/snapshots"}
            sections["secrets"] = {"key_file": f"{self.where}/secrets.key"}  # The first one makes them.
            sections["oidc"] = {"key_file": f"{self.where}/oidc-keys.json"}
        for name, values in self.settings.items():
            sections[name] = {**sections.get(name, {}), **values}
        text = "".join(f"{name}: {json.dumps(values)}\n" for name, values in sections.items())
        if not self.clustered:
            return text + self.extra
        base = self.certificates
        text += "cluster:\n  etcd:\n"
        text += f"    endpoints: [{', '.join(each.etcd.url for each in self.machines)}]\n"
        text += f"    authority: {base}/etcd-ca.crt\n"
        text += f"    certificate: {base}/etcd-client-{{node}}.crt\n    key: {base}/etcd-client-{{node}}.key\n"
        text += f"  authority: {base}/insula-ca.crt\n"
        text += f"  certificate: {base}/{{node}}.crt\n  key: {base}/{{node}}.key\n  nodes:\n"
        for each, slot in zip(self.machines, first):
            text += (f"    {each.name}: {{internal: {each.address}:{INTERNAL_PORT}, link: {each.address}:{LINK_PORT}, "
                     f"listen: {each.address}:{LISTEN_PORT}, state: {each.state}, first_slot: {slot}}}\n")
        return text + self.extra

    def command(self, machine):
        if self.clustered:
            return [self.insula, "serve", "--config", self.configuration, "--node", machine.name]
        slot = (os.getpid() * 3 + machine.number) % 36 * 1000
        own = f"{machine.where}/cluster.yaml"
        with open(own, "w", encoding="utf-8") as file:
            file.write(content_of(self.configuration).replace('"slots": ', f'"first_slot": {slot}, "slots": '))
        return [self.insula, "serve", "--config", own, "--listen", f"{machine.address}:{LISTEN_PORT}",
                "--state", machine.state]

    def start(self):
        """Everything, until all answer."""
        if self.clustered:
            self.start_etcd()
        for each in self.machines:
            each.start(wait=False)
        for each in self.machines:
            each.wait_until_ready()

    def start_etcd(self):
        members = [each.etcd for each in self.machines]
        for each in members:
            each.start(members)
        self.wait_for_etcd()

    def wait_for_etcd(self):
        for each in self.machines:
            eventually(each.etcd.healthy, START_PATIENCE,
                       lambda each=each: f"etcd of {each.name} is not ready: {each.end_of_log('etcd')}")

    def etcd_leader(self):
        """The machine with etcd's leader, or None."""
        for each in self.machines:
            status = each.etcd.status()
            if status and status.get("leader") == status["header"]["member_id"]:
                return each
        return None

    def wipe_etcd(self, machine, between=lambda: None):
        """A member that has lost its disk: it leaves the cluster and comes back with nothing."""
        other = next(each for each in self.machines if each is not machine and each.etcd.healthy())
        members = other.etcd.call("/v3/cluster/member/list")["members"]
        gone = next(each["ID"] for each in members if machine.etcd.peer in each["peerURLs"])
        machine.etcd.kill()
        shutil.rmtree(machine.etcd.directory, ignore_errors=True)  # All but the directory, which is a disk of its own.
        between()

        def done(path, body):
            try:
                other.etcd.call(path, body, timeout=10)
                return True
            except (OSError, http.client.HTTPException, Failed):
                return False  # It has no leader for a moment, or the member's loss is not settled.
        eventually(lambda: done("/v3/cluster/member/remove", {"ID": gone}), 60, "etcd does not remove a member", 0.5)
        eventually(lambda: done("/v3/cluster/member/add", {"peerURLs": [machine.etcd.peer]}), 60,
                   "etcd does not add a member", 0.5)
        machine.etcd.start([each.etcd for each in self.machines], "existing")

    def close(self):
        """Ends and removes everything. Once is enough."""
        with self.lock:
            if not os.path.isdir(self.where):
                return
            thaw_disks(self.where)
            for each in self.machines:
                signal_all(each.own_processes(), signal.SIGCONT)
                if each.running():
                    each.server.send_signal(signal.SIGINT)
            for each in self.machines:
                if each.server is not None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        each.server.wait(20)
                each.etcd.kill()
            remove_all(self.where)


def free_network():
    """A network of 254 addresses that nothing here leads to."""
    taken = []
    for line in run("ip", "-o", "-4", "route", "show", "table", "all").splitlines():
        for word in line.split()[:2]:
            with contextlib.suppress(ValueError):
                taken.append(ipaddress.ip_network(word))
    for second in (77, 78, 79, 70, 71, 72, 73, 74, 75, 76):
        network = ipaddress.ip_network(f"10.{second}.0.0/24")
        if not any(network.overlaps(each) for each in taken if each.prefixlen > 0):
            return network
    raise Failed("all networks from 10.70.0.0 to 10.79.0.0 are in use here")


def main():
    parser = argparse.ArgumentParser(description="Runs a cluster on this machine until Ctrl-C, which ends all of it.")
    parser.add_argument("--insula", default="build/release/insula", help="the program")
    parser.add_argument("--nodes", type=int, default=3, metavar="N")
    parser.add_argument("--logs", metavar="DIRECTORY", help="where what they say is kept")
    parser.add_argument("--extra", metavar="FILE", help="more lines for the configuration's end, where the section cluster is")
    options = parser.parse_args()
    extra = content_of(options.extra) if options.extra else ""
    with ends_on_signals(), Machines(options.insula, options.nodes, extra=extra, logs=options.logs) as all_:
        print(f"starting {options.nodes} members of etcd and {options.nodes} nodes", flush=True)
        all_.start()
        for each in all_:
            print(f"  {each.name}  {each.url}")
        first, second = all_.machines[0], all_.machines[-1]
        print(f"""
the cluster is ready. Configuration: {all_.configuration}  Logs: {all_.logs}
Any node answers for any sandbox:

  curl -sN {first.url}/v1/sandbox/hello/exec -d '{{"argv":["sh","-c","echo hello > note; cat note"]}}'
  curl -sN {second.url}/v1/sandbox/hello/exec -d '{{"argv":["cat","note"]}}'
  curl -s {first.url}/v1/cluster

In a machine:  nsenter --net=/run/netns/{first.namespace} sh
Ctrl-C ends all of it.""", flush=True)
        while True:
            for each in all_:
                if not each.running():
                    raise Failed(f"{each.name} has ended: {each.end_of_log()}")
            time.sleep(1)


if __name__ == "__main__":
    try:
        main()
    except Failed as why:
        sys.exit(f"cluster: {why}")
