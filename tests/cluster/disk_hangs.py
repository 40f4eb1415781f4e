#!/usr/bin/env -S python3 -B
"""Has the disk of etcd's leader hang for a while, and looks whether two nodes ever answer for one sandbox.

Each node is asked for commands in the same sandbox all the time. A command says in which incarnation it ran, by a word that
is only in the sandbox's memory. Once a new incarnation has answered, no command that is sent later may be acknowledged by an
older one. Some versions of etcd end all leases when the disk goes on (docs/cluster.md): with them, only commands count that
were sent before. Ends with 0, with 1 if that, or something else that is promised, did not hold, or with 77 where this machine
has no disks that can hang.
"""

import argparse
import base64
import http.client
import os
import re
import shutil
import subprocess
import sys
import threading
import time

from machines import Failed, Machines, ends_on_signals, eventually
from nemesis import BEGIN, Refused, run_command

SANDBOX = "hangs"
BEFORE, AFTER = 2, 12  # Seconds that are looked at beside the hanging.


class Client(threading.Thread):
    """Asks one node, as fast as it answers."""

    def __init__(self, machine, ending):
        super().__init__(daemon=True, name=machine.name)
        self.machine, self.ending = machine, ending
        self.answers, self.failures = [], 0  # Of the answers: when it was sent, when answered, of which incarnation.

    def run(self):
        while not self.ending.is_set():
            sent = time.monotonic()
            try:
                word = base64.b32encode(os.urandom(5)).decode().lower()
                said = run_command(self.machine, SANDBOX, BEGIN + 'echo "$i"', (0, word, SANDBOX), {}).strip()
                self.answers.append((sent, time.monotonic(), said))
            except (OSError, http.client.HTTPException, Refused):
                self.failures += 1
                time.sleep(0.02)


def ends_leases_early():
    """Whether this machine's etcd has the fault of issue 15247."""
    said = subprocess.run(["etcd", "--version"], check=True, capture_output=True, text=True).stdout
    version = tuple(int(each) for each in re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", said).groups())
    return version < (3, 4, 31) or (3, 5, 0) <= version < (3, 5, 13)


def overlaps(answers):
    """Those of an incarnation that were sent when a later one had already answered."""
    first = {}
    for _, answered, word in sorted(answers, key=lambda each: each[1]):
        first.setdefault(word, answered)
    return [(sent, answered, word) for sent, answered, word in answers
            if any(first[word] < began < sent for other, began in first.items() if other != word)]


def own_machine(machines, leader):
    """The sandbox is made where etcd's leader is: that node asks it first."""
    def is_there():
        try:
            run_command(leader, SANDBOX, "true", (), {})
            seen = leader.request("GET", "/v1/cluster").json()["sandboxes"]
            if any(each["id"] == SANDBOX and each["node"] == leader.name for each in seen):
                return True
            leader.request("DELETE", f"/v1/sandbox/{SANDBOX}")
        except (OSError, http.client.HTTPException, Refused):
            pass
        return False
    eventually(is_there, 30, f"{leader.name} does not get the sandbox")


def try_it(machines, seconds, busy, until_thaw):
    """One hanging, of so many seconds. `busy`: etcd is written to all the time. `until_thaw`: what is sent after it does not
    count as too late. Returns what was wrong."""
    leader = eventually(machines.etcd_leader, 60, "etcd has no leader")
    own_machine(machines, leader)
    ending, clients = threading.Event(), []
    for each in machines:
        clients.append(Client(each, ending))
        clients[-1].start()
    other = next(each for each in machines if each is not leader)
    try:
        time.sleep(BEFORE)
        began = time.monotonic()
        leader.etcd.freeze()
        try:
            while time.monotonic() - began < seconds:
                try:  # Without a write nothing hangs.
                    other.etcd.call("/v3/kv/put", {"key": "aGFuZ3M=", "value": "eA=="}, timeout=1)
                except (OSError, http.client.HTTPException, Failed):
                    pass
                time.sleep(0.1 if busy else seconds)
        finally:
            leader.etcd.thaw()
        thawed = time.monotonic()
        time.sleep(AFTER)
    finally:
        ending.set()
    for each in clients:
        each.join(30)
    answers = [answer for each in clients for answer in each.answers]
    words = {word for _, _, word in answers}
    late = [each for each in overlaps(answers) if each[0] < thawed or not until_thaw]
    longest = {each.name: max(after[1] - before[1] for before, after in zip(each.answers, each.answers[1:]))
               for each in clients if len(each.answers) > 1}
    print(f"disk_hangs: {leader.name} for {seconds} s{' with writes' if busy else ''}: {len(answers)} answers, "
          f"{sum(each.failures for each in clients)} failures, {len(words)} incarnations, {len(late)} answers too late; "
          f"longest without one: {', '.join(f'{name} {gap:.1f} s' for name, gap in longest.items())}", flush=True)
    wrong = []
    if late:
        wrong.append(f"{len(late)} commands were acknowledged by an incarnation after a later one had answered, from "
                     f"{min(each[1] for each in late) - began:.2f} to {max(each[1] for each in late) - began:.2f} s after the "
                     f"disk began to hang, which it did for {thawed - began:.2f} s")
    for each in clients:
        if not any(sent < began for sent, _, _ in each.answers):
            wrong.append(f"{each.name} has answered nothing before the disk hung")
        if not any(sent > thawed for sent, _, _ in each.answers):
            wrong.append(f"{each.name} answers nothing any more")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--insula", default="build/release/insula", help="the program")
    parser.add_argument("--seconds", type=float, default=10, help="that the disk hangs")
    parser.add_argument("--times", type=int, default=2, help="how often; every other time etcd is written to meanwhile")
    parser.add_argument("--logs", metavar="DIRECTORY", help="where what the programs say is kept")
    options = parser.parse_args()
    missing = [each for each in ("fsfreeze", "mkfs.ext4") if shutil.which(each) is None]
    if missing:
        print(f"disk_hangs: skipped, there is no {' and no '.join(missing)} here")
        return 77
    until_thaw = ends_leases_early()
    wrong = []
    with ends_on_signals(), Machines(options.insula, logs=options.logs, etcd_disks=True,
                                     settings={"runtime": {"slots": 1000, "disk": {"backend": "tmpfs"}}}) as machines:
        machines.start()
        for time_ in range(options.times):
            wrong += try_it(machines, options.seconds, time_ % 2 == 1, until_thaw)
            for each in machines:
                if not each.running():
                    raise Failed(f"{each.name} has ended: {each.end_of_log()}")
                eventually(each.etcd.healthy, 60, f"etcd of {each.name} is not healthy any more")
                each.wait_until_ready(60)
    for each in wrong:
        print(f"disk_hangs: WRONG: {each}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as why:
        sys.exit(f"disk_hangs: {why}")
