#!/usr/bin/env -S python3 -B
"""A workload on a cluster, a fault every few seconds, and whether all that was promised has held.

Ends with 0, or with 1 if something was violated.
"""

import argparse
import base64
import collections
import http.client
import json
import os
import random
import re
import signal
import sys
import threading
import time

from faults import Faults
from history import History, SessionHistory, Verdict
from machines import Failed, Machines, content_of, ends_on_signals, start_of

ATTEMPT_SECONDS = 3  # After which a client tries another node.
OPERATION_SECONDS = 60  # After which it gives up.
SNAPSHOT_SECONDS = 2  # Between two of a persistent sandbox that is being used.
RECOVERY_SECONDS = 90  # In which all nodes have to answer again once a fault is healed.

# Each script is given a number, a word for the case that the sandbox has no incarnation yet, and the sandbox's id. The
# word is in memory, which no snapshot has; a name comes to be with its content by a link. A process that goes on is what
# is looked for at several nodes at once.
BEGIN = """
f=/dev/shm/new.$$
echo "$2" > $f
if ln $f /dev/shm/incarnation 2>/dev/null; then
  setsid sh -c 'while :; do sleep 0.2; done' "beat-$3" "$2" >/dev/null 2>&1 </dev/null &
fi
rm $f
read -r i < /dev/shm/incarnation
"""
APPEND = BEGIN + 'echo "$1 $i" >> log\necho "$i"\n'
SHOW = "cat log 2>/dev/null || true\n"  # In a sandbox that begins with a snapshot.
PROJECT = "nemesis"  # Of the sandboxes with sessions, which are those of the Vercel Sandbox service's API.
KEPT_SNAPSHOTS = 2  # Of each sandbox; older ones are deleted.
READ = BEGIN + 'echo "$i"\ncat log 2>/dev/null || true\n'


class Refused(Exception):
    """An answer that is not what was asked for."""


class Ended(Refused):
    """An event stream that ended with an error. Under an idempotency key that may be the answer for good."""


def run_command(machine, sandbox, script, words, headers):
    """What the script printed. Errors: OSError, HTTPException: nobody knows whether it ran; Refused."""
    body = json.dumps({"argv": ["sh", "-c", script, "sh", *map(str, words)], "timeout_ms": 20000})
    answer = machine.request("POST", f"/v1/sandbox/{sandbox}/exec", body, headers, timeout=ATTEMPT_SECONDS)
    text = answer.body.decode(errors="replace")
    if answer.status != 200:
        raise Refused(f"{answer.status} {text[:200]}")
    out, event = b"", ""
    for line in text.splitlines():
        if line.startswith("event: "):
            event = line[7:]
        elif line.startswith("data: ") and event == "stdout":
            out += base64.b64decode(line[6:])
        elif line.startswith("data: ") and event == "exit":
            if json.loads(line[6:])["exit_code"] != 0:
                raise Refused(f"exit {line[6:]}")
            return out.decode()
        elif line.startswith("data: ") and event == "error":
            raise Ended(line[6:206])
    raise Ended("the stream ended without an end")


class Figures:
    """Counts of operations, and which fault made whom wait."""

    def __init__(self):
        self.lock, self.counts = threading.Lock(), collections.Counter()
        self.words = collections.Counter()  # Refusals, by what they say.
        self.faults = []  # Also of the one that is on.

    def add(self, operation, outcome, began=None):
        now = time.monotonic()
        with self.lock:
            self.counts[operation, outcome] += 1
            touched = [each for each in self.faults if began is not None and each.touches(began, now, rest=0)]
            for each in touched:
                each.longest_wait = max(each.longest_wait, now - began)
            if began is not None and not touched:
                self.counts["longest wait without a fault", "ms"] = max(
                    self.counts["longest wait without a fault", "ms"], round(1000 * (now - began)))

    def refuse(self, text):
        text = re.sub(r"[a-z2-7]{26}|\b\d{4,}\b", "...", text)[:120]
        with self.lock:
            self.words[text] += 1


class Client(threading.Thread):
    """One client with sandboxes of its own, each of which it uses for one thing at a time."""

    def __init__(self, number, run, count):
        super().__init__(daemon=True, name=f"client {number}")
        self.random = random.Random(f"{run.seed}/client/{number}")
        self.run_, self.machines, self.figures = run, run.machines, run.figures
        self.refusal = ""  # The last one.
        self.histories = [self.make_history(number, each) for each in range(count)]
        if run.clustered:
            self.histories.append(SessionHistory(f"client-{number}", run.verdict, run.cause_of_loss))

    def make_history(self, number, each):
        name = base64.b32encode(self.random.randbytes(16)).decode().lower().rstrip("=")
        history = History(name, self.run_.clustered and each % 2 == 1, self.run_.verdict, self.run_.cause_of_loss)
        history.home = self.machines.machines[(number + each) % len(self.machines.machines)]
        return history

    def run(self):
        while not self.run_.ending.is_set():
            history = self.random.choice(self.histories)
            if isinstance(history, SessionHistory):
                operation = self.random.choices((self.append_in_session, self.check_in_session, self.end_session, self.begin), (12, 4, 3, 1))[0]
            else:
                operation = self.random.choices((self.append, self.check, self.write, self.read, self.snapshot, self.begin),
                                                (12, 4, 2, 2, *((1, 1) if self.run_.clustered else (0, 0))))[0]
            try:
                operation(history)
            except Exception as why:  # Else the thread ends, and nobody looks any more.
                self.run_.verdict.violation(f"the client itself: {type(why).__name__}: {why}")
            self.run_.ending.wait(self.random.uniform(0.01, 0.15))

    def headers(self, history, key=None):
        headers = {"Insula-Persistent": "true"} if history.persistent and not isinstance(history, SessionHistory) else {}
        if key is not None:
            headers["Idempotency-Key"] = key
        return headers

    def attempts(self, history, retries):
        """Nodes to try, one after the other, never the same twice in a row."""
        began, last = time.monotonic(), None
        while last is None or (retries and time.monotonic() - began < OPERATION_SECONDS):
            if last is not None:
                time.sleep(0.05)
            nodes = self.machines.machines if self.run_.anywhere else [history.home]
            last = self.random.choice([each for each in nodes if each is not last] or nodes)
            yield last

    def carry(self, history, operation, retries, attempt):
        """Tries until it has an answer. Returns that, or None; what it was is counted."""
        began, outcome, ends = time.monotonic(), "unknown", collections.Counter()
        for machine in self.attempts(history, retries):
            try:
                answer = attempt(machine)
                self.figures.add(operation, "acknowledged", began)
                return answer
            except Refused as why:
                outcome = "refused"
                self.refusal = str(why)
                self.figures.refuse(self.refusal)
                ends[str(why)] += isinstance(why, Ended)
                if str(why).startswith(("409", "410")) or ends[str(why)] == 3:
                    break  # It has run and its end is not known any more, or that is how it ended.
            except (OSError, http.client.HTTPException):
                outcome = "unknown"
        self.figures.add(operation, outcome, began)
        return None

    def command(self, history, operation, script, number, retries):
        word = base64.b32encode(self.random.randbytes(5)).decode().lower()
        key = f"{operation}-{history.name}-{self.random.randbytes(6).hex()}" if retries else None
        return self.carry(history, operation, retries, lambda machine: run_command(
            machine, history.name, script, (number, word, history.name), self.headers(history, key)))

    def append(self, history):
        number = history.next_append()
        # Now and then somebody does not ask again: then it is done once or not at all.
        out = self.command(history, "append", APPEND, number, self.random.random() < 0.8)
        if out is not None:
            history.acknowledge(number, out.strip())

    def check(self, history):
        out = self.carry(history, "check", True, lambda machine: run_command(
            machine, history.name, READ, (0, base64.b32encode(self.random.randbytes(5)).decode().lower(), history.name),
            self.headers(history)))
        if out is None:
            return False
        incarnation, *lines = out.splitlines()
        lines = [(int(number), where) for number, _, where in (line.partition(" ") for line in lines)]
        history.check(incarnation, lines)
        return lines or True

    def ask(self, history, operation, method, path, headers, good=200):
        """The JSON of an answer that is as it should be, or None. What makes something has a key, and is asked for again."""
        def attempt(machine):
            answer = machine.request(method, path, headers=headers, timeout=4 * ATTEMPT_SECONDS)
            if answer.status != good and (method, answer.status) != ("DELETE", 404):  # An earlier attempt has done it.
                raise Refused(f"{answer.status} {answer.body.decode(errors='replace')[:200]}")
            return json.loads(answer.body or b"true")

        return self.carry(history, operation, True, attempt)

    # ---- Sandboxes with sessions

    def begin_session(self, history):
        """Has a session, which it had or has begun; the sandbox is made first if it is not there. False: nobody knows."""
        if history.session is None and self.carry(history, "make", True, lambda machine: self.made(history, machine)) is None:
            return False
        path = f"/v2/sandboxes/{history.label}?resume=true&projectId={PROJECT}"
        answer = self.ask(history, "resume", "GET", path, {})
        if answer is None and self.is_lost_for_good(history):
            # Its first session went with its node before anything was kept: clients delete it and make another one.
            self.ask(history, "delete", "DELETE", f"/v2/sandboxes/{history.label}?projectId={PROJECT}", {})
            if self.carry(history, "make", True, lambda machine: self.made(history, machine)) is None:
                return False
            answer = self.ask(history, "resume", "GET", path, {})
        if answer is None:
            return False
        history.session = answer["sandbox"]["currentSessionId"]
        history.name = history.session[4:30]
        return True

    def is_lost_for_good(self, history):
        """No end of a session was ever acknowledged, and a fault may have cost a node what it had in memory."""
        faults = [each for each in self.figures.faults if each.name not in Faults.harmless | Faults.only_etcd]
        return self.refusal.startswith("410") and "no snapshot available" in self.refusal and history.ends == 0 and faults

    def made(self, history, machine):
        wanted = {"projectId": PROJECT, "name": history.label, "timeout": 3_600_000, "ports": []}
        answer = machine.request("POST", "/v3/sandboxes", json.dumps(wanted), {}, timeout=4 * ATTEMPT_SECONDS)
        text = answer.body.decode(errors="replace")
        if answer.status != 200 and not (answer.status == 400 and "already exists" in text):
            raise Refused(f"{answer.status} {text[:200]}")
        return True

    def append_in_session(self, history):
        if self.begin_session(history):
            self.append(history)

    def check_in_session(self, history):
        return self.begin_session(history) and self.check(history)

    def end_session(self, history):
        lines = self.check_in_session(history)
        if not lines:
            return
        history.may_have_ended = True
        answer = self.ask(history, "stop", "POST", f"/v2/sandboxes/sessions/{history.session}/stop", {})
        if answer is None:
            return
        if answer["session"]["status"] != "stopped":
            return  # Its disk was not kept: what it has lost is not what was promised.
        lines = [] if lines is True else lines
        history.ended_with(lines)
        snapshot = answer["snapshot"]["id"].removeprefix("snap_")
        history.snapshots[snapshot] = {"least": set(lines), "lines": None}
        self.delete_older(history)

    def look_at_sessions(self, history):
        """In the end: no two are alive, and no id is that of two."""
        answer = self.ask(history, "sessions", "GET", f"/v2/sandboxes/sessions?project={PROJECT}&name={history.label}&limit=50", {})
        if answer is None:
            return False
        alive = [each["id"] for each in answer["sessions"] if each["status"] in ("pending", "running", "stopping", "snapshotting")]
        if len(alive) > 1:
            history.fail("sessions", f"sessions {alive} are alive at once")
        if len({each["id"] for each in answer["sessions"]}) < len(answer["sessions"]):
            history.fail("session ids", "two sessions have one id")
        return True

    # ---- Snapshots

    def snapshot(self, history):
        before = history.before_snapshot()
        key = {"Idempotency-Key": f"snapshot-{self.random.randbytes(8).hex()}"}
        taken = self.ask(history, "snapshot", "POST", f"/v1/sandbox/{history.name}/snapshot", {**self.headers(history), **key})
        if taken is None or not self.check(history):
            return
        history.took_snapshot(taken["id"], before)
        self.delete_older(history)

    def delete_older(self, history):
        for old in list(history.snapshots)[:-KEPT_SNAPSHOTS]:
            del history.snapshots[old]
            self.ask(history, "delete", "DELETE", f"/v1/snapshot/{old}", {}, good=204)

    def begin(self, history):
        """A sandbox with one of the snapshots, looked at and deleted."""
        if history.snapshots:
            self.look_into(history, self.random.choice(list(history.snapshots)))

    def look_into(self, history, snapshot):
        key = {"Idempotency-Key": f"begin-{self.random.randbytes(8).hex()}", "Insula-Snapshot": snapshot}
        made = self.ask(history, "begin", "POST", "/v1/sandbox", key)
        if made is None:
            return False
        out = self.carry(history, "look", True, lambda machine: run_command(machine, made["id"], SHOW, (), {}))
        if out is not None:
            lines = [line.partition(" ") for line in out.splitlines()]
            history.check_snapshot(snapshot, [(int(number), where) for number, _, where in lines])
        self.ask(history, "delete", "DELETE", f"/v1/sandbox/{made['id']}", {}, good=204)
        return out is not None

    def write(self, history):
        value = history.next_write()
        body = json.dumps({"default": "deny", "rules": [{"action": "allow", "target": f"w{value}.example.org"}]})

        def put(machine):
            answer = machine.request("PUT", f"/v1/sandbox/{history.name}/network", body, self.headers(history),
                                     timeout=ATTEMPT_SECONDS)
            if answer.status != 200:
                raise Refused(f"{answer.status} {answer.body.decode(errors='replace')[:200]}")
            return True

        if self.carry(history, "write", False, put):
            history.wrote(value)

    def read(self, history):
        def get(machine):
            answer = machine.request("GET", f"/v1/sandbox/{history.name}/network", timeout=ATTEMPT_SECONDS)
            if answer.status != 200:
                raise Refused(f"{answer.status} {answer.body.decode(errors='replace')[:200]}")
            found = re.search(rb"w(\d+)\.example\.org", answer.body)
            return (int(found[1]) if found else 0,)

        value = self.carry(history, "read", True, get)
        if value is not None:
            history.read(value[0])
        return value is not None


class Sampler(threading.Thread):
    """Looks at the machine's processes: does a sandbox run at two nodes at the same time?"""

    def __init__(self, run):
        super().__init__(daemon=True, name="sampler")
        self.run_, self.samples, self.seen = run, 0, 0
        self.nodes = {f"/insula-{each.key}/": each.name for each in run.machines}
        self.told = set()

    def run(self):
        while not self.run_.ending.wait(0.1):
            beats = {}
            for name in os.listdir("/proc"):
                words = content_of(f"/proc/{name}/cmdline", "rb") if name.isdigit() else b""
                if b"\0beat-" not in words or not words.startswith(b"sh\0"):
                    continue
                sandbox = words.split(b"\0beat-")[1].split(b"\0")[0].decode()
                groups = content_of(f"/proc/{name}/cgroup")
                node = next((node for sign, node in self.nodes.items() if sign in groups), None)
                if node is not None:
                    beats.setdefault(sandbox, {}).setdefault(node, []).append(name)
            self.samples += 1
            self.seen = max(self.seen, len(beats))
            for sandbox, nodes in beats.items():
                if len(nodes) < 2 or sandbox in self.told:
                    continue
                # One that was seen to run may have been stopped before the other began, and one that dies takes a moment:
                # both have to be seen again.
                for _ in range(3):
                    time.sleep(0.005)
                    active = [node for node, pids in nodes.items() if any(runs(pid) for pid in pids)]
                    if len(active) < 2:
                        break
                else:
                    self.told.add(sandbox)
                    self.run_.verdict.violation(f"{sandbox}: its processes run at {' and '.join(sorted(active))} at once")


EXITING = 0x4  # PF_EXITING, in the kernel's include/linux/sched.h.


def runs(pid):
    """Does the process live, and neither a signal nor the freezer holds it? One that is killed leaves the freezer to die."""
    fields = content_of(f"/proc/{pid}/stat").rpartition(") ")[2].split()
    if not fields or fields[0] in "TtZX" or int(fields[6]) & EXITING:
        return False
    for line in content_of(f"/proc/{pid}/status").splitlines():
        if line.startswith(("SigPnd:", "ShdPnd:")) and int(line.split()[1], 16) & 1 << signal.SIGKILL - 1:
            return False
    for line in content_of(f"/proc/{pid}/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names == "":
            for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                if "frozen 1" in content_of(f"{root}{path}/cgroup.events"):
                    return False
        elif "freezer" in names.split(",") and content_of(f"/sys/fs/cgroup/freezer{path}/freezer.state").startswith("FROZEN"):
            return False
    return bool(start_of(pid))


class Directory(threading.Thread):
    """Asks every node for owners and epochs: an epoch has one owner, and none goes back."""

    def __init__(self, run):
        super().__init__(daemon=True, name="directory")
        self.run_, self.lock = run, threading.Lock()
        self.owners = {}  # (sandbox, epoch): node
        self.latest = {}  # (asked, its process, sandbox): epoch
        self.times = collections.defaultdict(list)  # sandbox: (time, epoch, node), when that was first seen
        self.answers = self.failures = 0

    def run(self):
        while not self.run_.ending.wait(0.3):
            for machine in self.run_.machines:
                try:
                    answer = machine.request("GET", "/v1/cluster", timeout=1)
                    if answer.status != 200:
                        raise ValueError(answer.status)
                    self.take(machine, answer.json()["sandboxes"])
                    self.answers += 1
                except (OSError, http.client.HTTPException, ValueError, KeyError):
                    self.failures += 1

    def take(self, machine, sandboxes):
        now, process = time.monotonic(), machine.server_pid()
        with self.lock:
            for each in sandboxes:
                name, node, epoch = each["id"], each["node"], int(each["epoch"])
                owner = self.owners.setdefault((name, epoch), node)
                if owner != node:
                    self.run_.verdict.violation(f"{name}: epoch {epoch} is {owner}'s, and {node}'s as {machine.name} says")
                before = self.latest.get((machine.name, process, name), 0)
                if epoch < before:
                    self.run_.verdict.violation(f"{name}: {machine.name} says epoch {epoch} after {before}")
                self.latest[machine.name, process, name] = epoch
                if all(known != epoch for _, known, _ in self.times[name]):
                    self.times[name].append((now, epoch, node))

    def owner(self, sandbox, when):
        """Who had it then, as far as that is known, and in which epoch."""
        with self.lock:
            known = [(epoch, node) for seen, epoch, node in self.times.get(sandbox, []) if seen <= when]
        return max(known)[::-1] if known else (None, None)


class Run:
    """One run, from the first start to the verdict."""

    def __init__(self, options, machines):
        self.options, self.machines, self.seed = options, machines, options.seed
        self.clustered = machines.clustered
        # Without a cluster each sandbox is one node's. Spoken to at all of them, it is several: the checker has to see that.
        self.anywhere = self.clustered or options.mistake
        self.verdict, self.figures, self.ending = Verdict(), Figures(), threading.Event()
        self.short = options.minutes < 3
        self.faults = Faults(machines, random.Random(f"{self.seed}/faults"), self.short)
        self.random = random.Random(f"{self.seed}/order")
        self.sampler, self.directory = Sampler(self), Directory(self)
        self.clients = [Client(each, self, options.sandboxes) for each in range(options.clients)]
        self.began = time.monotonic()
        self.unexpected_ends = 0

    def cause_of_loss(self, history, since, until):
        """Which fault has cost the sandbox its contents. "" if one may have, or the sandbox was orderly moved."""
        touching = [each for each in self.figures.faults if each.touches(since - 1, until)]
        owner, epoch = self.directory.owner(history.name, since)
        if owner is None and not self.anywhere:
            owner = history.home.name
        for each in reversed(touching):  # The one that began last is the likeliest.
            if each.name in Faults.costs_all or \
                    each.name not in Faults.harmless | Faults.only_etcd and owner in (None, each.node):
                each.losses += 1
                return ""
        time.sleep(1.5)  # The directory is asked now and then only.
        moved_to, later = self.directory.owner(history.name, time.monotonic())
        what = f"{owner} had it in epoch {epoch}, {moved_to} in epoch {later}; on were " + \
            (", ".join(f"{each.name} at {each.node}" for each in touching) or "no faults")
        if epoch is not None and later != epoch:
            self.verdict.remark(f"{history.name} lost its contents, with its owner's lease: {what}")
            return ""
        return what

    def start(self):
        self.verdict.began = self.began = time.monotonic()
        for each in [*self.clients, self.sampler, *([self.directory] if self.clustered else [])]:
            each.start()

    def wait_for_recovery(self, patience=RECOVERY_SECONDS):
        """All members and nodes answer, each node for a sandbox. Returns in how many seconds."""
        began, missing = time.monotonic(), "nothing was asked"
        while time.monotonic() - began < patience:
            missing = self.missing()
            if not missing:
                return time.monotonic() - began
            time.sleep(0.1)
        self.verdict.violation(f"after {patience} s without a fault: {missing}")
        return patience

    def missing(self):
        for each in self.machines:
            if not each.running():
                self.unexpected_ends += 1
                self.verdict.violation(f"the server of {each.name} has ended with {each.server.returncode}: "
                                       f"{each.end_of_log(lines=3)}")
                each.start(wait=False)
                return f"{each.name} had ended"
            if self.clustered and not each.etcd.healthy():
                return f"etcd of {each.name} is not healthy"
            try:
                # Its sandbox is called after it, and with a cluster it need not be its own.
                run_command(each, f"probe{'abc'[each.number % 3]}", "true", (), {})
            except (OSError, http.client.HTTPException, Refused) as why:
                return f"{each.name} does not answer: {why}"
        return ""

    def disturb(self):
        """Faults until the time is over. Each kind comes once before one comes again."""
        names = [each for each in self.faults.kinds if not self.options.faults or each in self.options.faults]
        if not names:
            raise Failed(f"no such fault; there are: {', '.join(self.faults.kinds)}")
        end, bag = self.began + 60 * self.options.minutes, []
        time.sleep(1)
        while time.monotonic() < end:
            bag = bag or self.random.sample(names, len(names))
            fault, steps = self.faults.choose(bag.pop())
            with self.figures.lock:
                self.figures.faults.append(fault)
            try:
                next(steps)
                print(f"nemesis: {fault.began - self.began:6.1f} s: {fault.name} at {fault.node} {fault.note}", flush=True)
                time.sleep(self.faults.duration(fault.name))
                for _ in steps:
                    pass
            except (Failed, OSError, http.client.HTTPException) as why:
                self.verdict.violation(f"{fault.name} at {fault.node}: {type(why).__name__}: {why}")
                steps.close()
                self.faults.undo()
            fault.healed = time.monotonic()
            self.wait_for_recovery()
            fault.recovered = time.monotonic()
            print(f"nemesis: {fault.healed - self.began:6.1f} s: healed, all answer after "
                  f"{fault.recovered - fault.healed:.1f} s", flush=True)
            time.sleep(self.random.uniform(1, 3))

    def finish(self):
        """Everything is healed: what the sandboxes and the registers hold in the end."""
        self.wait_for_recovery()
        time.sleep(1)
        self.ending.set()
        for each in self.clients:
            each.join(2 * OPERATION_SECONDS)
            if each.is_alive():
                self.verdict.violation(f"{each.name} has had no answer for {2 * OPERATION_SECONDS} s")
                continue
            for history in each.histories:
                for snapshot in list(history.snapshots):
                    if not each.look_into(history, snapshot):
                        self.verdict.violation(f"nothing begins with snapshot {snapshot} of {history.name} in the end")
                in_sessions = isinstance(history, SessionHistory)
                if not (each.check_in_session(history) if in_sessions else each.check(history)):
                    self.verdict.violation(f"{history.name} cannot be read in the end")
                if in_sessions:
                    if not each.look_at_sessions(history):
                        self.verdict.violation(f"the sessions of {history.name} cannot be listed in the end")
                elif not each.read(history):
                    self.verdict.violation(f"the policy of {history.name} cannot be read in the end")
        for each in (self.sampler, self.directory):
            if each.ident is not None:
                each.join(30)
        if self.sampler.seen == 0:
            self.verdict.violation("no process of a sandbox was ever seen: the sampler is blind")
        if self.clustered and self.directory.answers == 0:
            self.verdict.violation("no node ever answered GET /v1/cluster")
        for operation in ("append", "check", "write", "read", *(("snapshot", "begin", "look", "resume", "stop") if self.clustered else ())):
            if self.figures.counts[operation, "acknowledged"] == 0:
                self.verdict.violation(f"no {operation} was ever acknowledged")

    # ---- What is said of it

    def report(self):
        counts, histories = self.figures.counts, [each for client in self.clients for each in client.histories]
        wrong = self.verdict.violations
        again = f"./dev nemesis --minutes {self.options.minutes:g} --seed {self.seed}"
        lines = ["# Nemesis", "",
                 f"`{again}`, on {time.strftime('%Y-%m-%d')}, {os.cpu_count()} processors, Linux {os.uname().release.partition('-')[0]}.", "",
                 f"**{'No violation.' if not wrong else 'One violation.' if len(wrong) == 1 else f'{len(wrong)} violations.'}** "
                 f"{len(self.figures.faults)} faults in {(time.monotonic() - self.began) / 60:.1f} minutes, on "
                 f"{len(self.machines.machines)} nodes{' and as many members of etcd' if self.clustered else ', each alone'}; "
                 f"{len(self.clients)} clients with {len(histories)} sandboxes, "
                 f"{sum(each.persistent for each in histories)} of them persistent.", ""]
        if wrong:
            lines += ["## Violations", "", *(f"- {each}" for each in wrong), ""]
        if self.verdict.remarks:
            lines += ["## Remarks", "", "Nothing that is promised, but worth a look.", "",
                      *(f"- {each}" for each in self.verdict.remarks), ""]
        lines += ["## Operations", "",
                  f"An attempt without an answer is given up after {ATTEMPT_SECONDS} s and made at another node. Of those in the "
                  "last two columns nobody knows, or need know, whether they were done.", "",
                  "| | acknowledged | refused | without an answer |", "| --- | --- | --- | --- |"]
        for operation, text in (("append", "appends to a counter file, with idempotency keys or a single attempt"),
                                ("check", "reads of the whole file"), ("write", "writes of the register, one attempt"),
                                ("read", "reads of the register"),
                                ("snapshot", "snapshots of the whole disk, with idempotency keys"),
                                ("begin", "sandboxes that begin with one, with idempotency keys"),
                                ("look", "reads of the file in these"),
                                ("resume", "sessions of the Vercel Sandbox service, which are found or begun"),
                                ("stop", "ends of these, with a snapshot"), ("delete", "deletions of snapshots and of these")):
            lines.append(f"| {text} | " + " | ".join(
                str(counts[operation, each]) for each in ("acknowledged", "refused", "unknown")) + " |")
        lines += ["", f"- Incarnations lost with their nodes: {sum(each.losses for each in histories)}. Appends that persistent "
                  f"sandboxes had acknowledged and then lacked: {sum(each.rolled_back for each in histories)}; done again after "
                  f"such a loss: {sum(each.repeated for each in histories)}.",
                  f"- Sessions whose end was acknowledged: {sum(each.ends for each in histories if isinstance(each, SessionHistory))}.",
                  f"- Longest wait for an answer while no fault was on: {counts['longest wait without a fault', 'ms'] / 1000:.1f} s.",
                  f"- Looks at all processes of the machine: {self.sampler.samples}, with up to {self.sampler.seen} sandboxes "
                  "at once in sight.",
                  f"- Answers of `GET /v1/cluster` that were compared: {self.directory.answers}; that did not come: "
                  f"{self.directory.failures}.", ""]
        if self.figures.words:
            lines += ["What refusals of single attempts said, the most frequent first:", "",
                      *(f"- {count} × `{text}`" for text, count in self.figures.words.most_common(12)), ""]
        lines += ["## Faults", "",
                  "The wait is that of an operation that began, went on or ended while the fault was there, from its first attempt "
                  "to its answer: a client's patience with nodes that say nothing is in it. Recovered is when, after the healing, "
                  "each node has run a command again. Lost are incarnations of sandboxes.", "",
                  "| at | fault | where | for | recovered | longest wait | lost |", "| --- | --- | --- | --- | --- | --- | --- |"]
        for each in self.figures.faults:
            healed, recovered = each.healed or time.monotonic(), each.recovered or time.monotonic()
            what = f"{each.name} ({each.note})" if each.note else each.name
            lines.append(f"| {each.began - self.began:.0f} s | {what} | {each.node} | "
                         f"{healed - each.began:.1f} s | {recovered - healed:.1f} s | {each.longest_wait:.1f} s | {each.losses} |")
        lines += ["", "## How it is judged", "",
                  "- An append that was acknowledged is in the file, once and in order, for as long as the incarnation lives in "
                  "which it was done; one without an answer is there once or not at all. An incarnation is a word in the sandbox's "
                  "memory.",
                  "- A snapshot that was acknowledged has what was acknowledged before it, and all that begins with it reads the same, "
                  "whatever becomes of the nodes.",
                  "- An incarnation ends only where a fault may have cost its owner the lease, or where the owner is another "
                  "than before; and once another one has answered, it never answers again.",
                  "- What a session had when its end was acknowledged, every later session of its sandbox has. Of the sessions of a "
                  "sandbox one is alive at a time, and each has an id of its own.",
                  "- The register, which is the sandbox's network policy, reads as it was last acknowledged, whatever became of "
                  "the node; a write without an answer comes to hold once or never.",
                  "- No two nodes have processes of the same sandbox that are neither frozen, stopped nor killed, seen three times in turn.",
                  "- An epoch has one owner, and no node goes back to an earlier epoch.",
                  f"- After each fault all nodes answer again within {RECOVERY_SECONDS} s, and no server has ended by itself.",
                  "- A machine that stands still (`stop node`) goes on with its spawner and server first, its sandboxes 0.3 s later: "
                  "all on one machine, nothing else tells a stopped process that time has passed.",
                  "- What members of etcd keep is in memory, one apart from the other: here they would share a disk with everything else.", ""]
        return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--insula", default="build/release/insula", help="the program")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 32))
    parser.add_argument("--report", metavar="FILE", help="where to write it, in Markdown")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--sandboxes", type=int, default=3, help="of each client")
    parser.add_argument("--faults", type=lambda text: text.split(","), help="only these, with commas between")
    parser.add_argument("--logs", metavar="DIRECTORY", help="where what the programs say is kept")
    parser.add_argument("--extra", metavar="FILE", help="more lines for the configuration's end, where the section cluster is")
    parser.add_argument("--alone", action="store_true", help="no cluster: each sandbox is used at one node only")
    parser.add_argument("--mistake", action="store_true",
                        help="no cluster, and sandboxes are used at all nodes: ends with 0 if that is found")
    options = parser.parse_args()
    print(f"nemesis: seed {options.seed}", flush=True)
    # A disk that is full is a small one in memory. In there the disks of sandboxes would be one more file.
    all_ = Machines(options.insula, clustered=not (options.alone or options.mistake), small_disks="256m", logs=options.logs,
                    settings={"runtime": {"slots": 1000, "disk": {"backend": "tmpfs"}},
                              "snapshots": {"interval": f"{SNAPSHOT_SECONDS}s",
                                            **({} if options.alone or options.mistake else {"acknowledge": "shared"})}},
                    extra=content_of(options.extra) if options.extra else "",
                    etcd_disks=not options.faults or "etcd disk hangs" in options.faults)
    with ends_on_signals(), all_ as machines:
        machines.start()
        run = Run(options, machines)
        run.start()
        run.disturb()
        run.finish()
    text = run.report()
    if options.report:
        with open(options.report, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        print(text)
    wrong = run.verdict.violations
    if options.mistake:
        found = [sum(word in each for each in wrong) for word in ("at once", "answers, after")]
        sys.exit("nemesis: the mistake was not found" if not all(found) else 0)
    for each in wrong:
        print(f"nemesis: violation: {each}")
    print(f"nemesis: {len(wrong)} violations, {len(run.figures.faults)} faults, seed {options.seed}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    try:
        main()
    except Failed as problem:
        sys.exit(f"nemesis: {problem}")
