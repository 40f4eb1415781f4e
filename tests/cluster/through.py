#!/usr/bin/env -S python3 -B
"""Runs a command against a node of a cluster that has no sandbox itself: tests/cluster/through.py --insula FILE -- COMMAND...

Three machines, of which the first is drained: whatever is asked of it is another one's. The command finds it in INSULA_URL,
with the key in INSULA_API_KEY and SANDBOX_API_KEY, and the program in INSULA_PROGRAM. Ends with the command's status; with 1
if a sandbox was ever at the first node, or if a server has ended meanwhile.
"""

import argparse
import contextlib
import http.client
import os
import secrets
import subprocess
import sys
import threading

from machines import Failed, Machines, ends_on_signals, eventually


class Watch(threading.Thread):
    """Looks who has which sandbox."""

    def __init__(self, gateway, headers):
        super().__init__(daemon=True)
        self.gateway, self.headers = gateway, headers
        self.ending = threading.Event()
        self.owners, self.at_gateway = set(), set()

    def run(self):
        while not self.ending.wait(0.1):
            with contextlib.suppress(OSError, http.client.HTTPException):
                for each in cluster_seen_by(self.gateway, self.headers)["sandboxes"]:
                    self.owners.add(each["node"])
                    if each["node"] == self.gateway.name:
                        self.at_gateway.add(each["id"])


def cluster_seen_by(machine, headers):
    return machine.request("GET", "/v1/cluster", headers=headers).json()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--insula", default="build/release/insula", help="the program")
    parser.add_argument("--logs", metavar="DIRECTORY", help="where what the programs say is kept")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    key = secrets.token_hex(16)
    os.environ["SANDBOX_API_KEY"] = key
    headers = {"Authorization": f"Bearer {key}"}
    with ends_on_signals(), Machines(options.insula, logs=options.logs) as machines:
        machines.start()
        gateway, others = machines.machines[0], machines.machines[1:]
        answer = gateway.request("POST", f"/v1/cluster/drain/{gateway.name}", headers=headers)
        if answer.status != 202:
            raise Failed(f"{gateway.name} cannot be drained: {answer.status} {answer.body!r}")

        def all_know():
            return all({each["name"]: each["state"] for each in cluster_seen_by(other, headers)["nodes"]}[gateway.name] ==
                       "draining" for other in others)
        eventually(all_know, 30, f"not all nodes know that {gateway.name} is drained")
        watch = Watch(gateway, headers)
        watch.start()
        del os.environ["SANDBOX_API_KEY"]
        environment = {**os.environ, "INSULA_URL": gateway.url, "INSULA_API_KEY": key, "SANDBOX_API_KEY": key,
                       "INSULA_GATEWAY": gateway.name, "INSULA_PROGRAM": os.path.abspath(options.insula)}
        for name in ("NO_PROXY", "no_proxy"):
            environment[name] = f"{gateway.address},127.0.0.1,localhost"
        status = subprocess.run(options.command, env=environment, check=False).returncode
        watch.ending.set()
        watch.join()
        for each in machines:
            if not each.running():
                raise Failed(f"{each.name} has ended: {each.end_of_log()}")
        if status == 0 and watch.at_gateway:
            raise Failed(f"{gateway.name} had sandboxes itself: {', '.join(sorted(watch.at_gateway))}")
        if status == 0 and not watch.owners:
            raise Failed("no sandbox was ever seen: the command has used none")
    sys.exit(status)


if __name__ == "__main__":
    try:
        main()
    except Failed as why:
        sys.exit(f"through: {why}")
