#!/usr/bin/env -S python3 -B
"""What distance costs in a cluster: three nodes on this machine, and one alone beside them.

Everything shares the processors, so the ratios say more than the numbers. Ends with 2 where a target was missed.
"""

import argparse
import base64
import contextlib
import http.client
import json
import os
import signal
import statistics
import sys
import threading
import time

from machines import Failed, Machines, ends_on_signals, eventually

EXEC = json.dumps({"argv": ["true"]})


def new_id():
    return base64.b32encode(os.urandom(16)).decode().lower().rstrip("=")


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


class Client:
    """A connection to one node that is kept."""

    def __init__(self, machine, timeout=30):
        self.connection = http.client.HTTPConnection(machine.address, 8787, timeout=timeout)

    def request(self, method, path, body=None):
        self.connection.request(method, path, body)
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def execute(self, sandbox):
        status, body = self.request("POST", f"/v1/sandbox/{sandbox}/exec", EXEC)
        if status != 200 or b'{"exit_code":0}' not in body:
            raise Failed(f"exec: {status} {body[:200]!r}")

    def close(self):
        self.connection.close()


def try_exec(machine, sandbox, timeout):
    """Did it run?"""
    try:
        answer = machine.request("POST", f"/v1/sandbox/{sandbox}/exec", EXEC, timeout=timeout)
        return answer.status == 200 and b'{"exit_code":0}' in answer.body
    except (OSError, http.client.HTTPException):
        return False


def owner_of(machines, sandbox):
    """The machine whose node has it, as any node says."""
    def ask():
        for each in machines:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError, KeyError):
                for known in each.request("GET", "/v1/cluster", timeout=2).json()["sandboxes"]:
                    if known["id"] == sandbox:
                        return machines[known["node"]]
        return None
    return eventually(ask, 30, f"no node says who has {sandbox}")


def exec_times(machines, rounds):
    """p50 of a command through its owner, and through another node; turn by turn, in seconds."""
    sandbox = new_id()
    eventually(lambda: try_exec(machines.machines[0], sandbox, 30), 60, "the first command does not run")
    owner = owner_of(machines, sandbox)
    ways = {"owner": Client(owner), "other": Client(next(each for each in machines if each is not owner))}
    times = {name: [] for name in ways}
    for turn in range(rounds + 20):
        for name, client in ways.items():
            began = time.monotonic()
            client.execute(sandbox)
            if turn >= 20:  # The first ones warm up.
                times[name].append(time.monotonic() - began)
    for client in ways.values():
        client.close()
    return times


def creates(machines, seconds, threads):
    """Sandboxes made, used for one command and deleted in a second, over all nodes."""
    counts, end, failures = [0] * threads, time.monotonic() + seconds, []

    def work(number):
        client = Client(machines.machines[number % len(machines.machines)])
        try:
            while time.monotonic() < end:
                sandbox = new_id()
                client.execute(sandbox)
                client.request("DELETE", f"/v1/sandbox/{sandbox}")
                counts[number] += 1
        except (Failed, OSError, http.client.HTTPException) as why:
            failures.append(str(why))
        finally:
            client.close()

    workers = [threading.Thread(target=work, args=(each,)) for each in range(threads)]
    began = time.monotonic()
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    return sum(counts) / (time.monotonic() - began), failures


def etcd_requests(machines):
    """What etcd's members have been asked, by method: requests, and for streams what came on them."""
    totals = {}
    for each in machines:
        for name, value in each.etcd.metrics().items():
            if name.startswith("grpc_server_msg_received_total{"):
                labels = dict(part.split("=", 1) for part in name[name.index("{") + 1:-1].split(","))
                method = labels["grpc_method"].strip('"')
                totals[method] = totals.get(method, 0) + value
    return totals


def etcd_cost(machines, work, count):
    """Requests of etcd for each of so many pieces of work, by method, beyond what it is asked anyway."""
    def during(seconds_or_work):
        before, began = etcd_requests(machines), time.monotonic()
        if callable(seconds_or_work):
            for _ in range(count):
                seconds_or_work()
        else:
            time.sleep(seconds_or_work)
        after = etcd_requests(machines)
        return {method: after[method] - before.get(method, 0) for method in after}, time.monotonic() - began

    asked, seconds = during(work)
    idle, idle_seconds = during(max(seconds, 3))
    cost = {method: (value - idle.get(method, 0) * seconds / idle_seconds) / count for method, value in asked.items()}
    return {method: value for method, value in cost.items() if abs(value) >= 0.05}


def node_losses(machines, losses, say):
    """From the loss of a sandbox's node to its first command elsewhere, in seconds. Nobody starts anything meanwhile."""
    times = []
    for turn in range(losses):
        sandbox = new_id()
        eventually(lambda: try_exec(machines.machines[turn % 3], sandbox, 10), 60, "a sandbox does not start")
        owner = owner_of(machines, sandbox)
        others = [each for each in machines if each is not owner]
        began = time.monotonic()
        owner.kill_everything()
        while not try_exec(others[turn % 2], sandbox, 10):
            if time.monotonic() - began > 60:
                raise Failed(f"{sandbox} has not answered for 60 s since {owner.name} was lost")
            time.sleep(0.02)
        times.append(time.monotonic() - began)
        say(f"loss {turn + 1} of {losses}: {times[-1]:.2f} s")
        owner.start()
        # It is a member again, so that the next loss finds three.
        eventually(lambda: try_exec(owner, new_id(), 10), 60, f"{owner.name} does not make sandboxes again")
    return times


def leader_loss(machines, seconds=8):
    """Commands and creates while etcd loses its leader: how many, how many failed, the longest stall of each, in seconds."""
    kept = new_id()
    eventually(lambda: try_exec(machines.machines[0], kept, 10), 60, "a sandbox does not start")
    ending, results = threading.Event(), {"exec": [], "create": []}

    def work(kind):
        turn = 0
        while not ending.is_set():
            began, sandbox = time.monotonic(), kept if kind == "exec" else new_id()
            good = try_exec(machines.machines[turn % 3], sandbox, 30)
            results[kind].append((time.monotonic() - began, good))
            turn += 1
            if kind == "create":  # Or the nodes would be full after some losses.
                with contextlib.suppress(OSError, http.client.HTTPException):
                    machines.machines[turn % 3].request("DELETE", f"/v1/sandbox/{sandbox}", timeout=30)

    workers = [threading.Thread(target=work, args=(each,)) for each in results]
    for each in workers:
        each.start()
    time.sleep(seconds / 4)
    leader = eventually(machines.etcd_leader, 30, "etcd has no leader")
    leader.etcd.kill()
    time.sleep(seconds * 3 / 4)
    ending.set()
    for each in workers:
        each.join()
    leader.etcd.start([each.etcd for each in machines], "existing")
    machines.wait_for_etcd()
    return {kind: (len(all_), sum(not good for _, good in all_), max(took for took, _ in all_)) for kind, all_ in results.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--insula", default="build/release/insula", help="the program")
    parser.add_argument("--losses", type=int, default=50, help="of a node; of etcd's leader a fifth of them")
    parser.add_argument("--rounds", type=int, default=300, help="commands for each p50")
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement of creates")
    parser.add_argument("--threads", type=int, default=6, help="that make sandboxes")
    parser.add_argument("--report", metavar="FILE", help="where to write the table, in Markdown")
    parser.add_argument("--json", metavar="FILE", help="where to write the numbers")
    parser.add_argument("--logs", metavar="DIRECTORY", help="where what the programs say is kept")
    options = parser.parse_args()

    def say(text):
        print(f"distances: {text}", flush=True)

    rows, numbers, missed = [], {}, []

    def row(what, value, beside, target="", met=True):
        """`target`: how it is to be, in words; `met`: whether it is."""
        rows.append(f"| {what} | {value} | {beside} | {target + (': met' if met else ': **missed**') if target else ''} |")
        say(f"{what}: {value}; {beside}")
        if not met:
            missed.append(what)

    with ends_on_signals():
        with Machines(options.insula, 1, clustered=False, logs=options.logs) as alone:
            alone.start()
            creates(alone, 1, options.threads)
            one, wrong = creates(alone, options.seconds, options.threads)
            if wrong:
                raise Failed(f"creates at one node: {wrong[0]}")
            alone["n1"].stop(signal.SIGINT)
        with Machines(options.insula, 3, logs=options.logs) as machines:
            machines.start()
            times = exec_times(machines, options.rounds)
            near, far = (1000 * statistics.median(times[each]) for each in ("owner", "other"))
            numbers["exec_ms"] = {"owner": near, "other": far}
            row("a command through a node that does not own its sandbox, p50", f"{far:.2f} ms",
                f"{far / near:.2f} x through its owner ({near:.2f} ms)", "at most 1.6 x", far <= 1.6 * near)
            creates(machines, 1, options.threads)
            three, wrong = creates(machines, options.seconds, options.threads)
            if wrong:
                raise Failed(f"creates at three nodes: {wrong[0]}")
            numbers["creates_per_second"] = {"one": one, "three": three}
            row("creates with a command and the deletion, in a second, three nodes", f"{three:.0f}",
                f"{three / one:.2f} x one node without a cluster ({one:.0f}), on the same processors")
            client, kept = Client(machines.machines[0]), new_id()
            client.execute(kept)
            for name, work, count in (("exec", lambda: client.execute(kept), 200),
                                      ("create", lambda: client.execute(new_id()), 60)):
                cost = etcd_cost(machines, work, count)
                numbers[f"etcd_requests_per_{name}"] = cost
                row(f"requests of etcd for each {name}", f"{sum(cost.values()):.1f}",
                    ", ".join(f"{value:.1f} {method}" for method, value in sorted(cost.items())) or "none",
                    "0" if name == "exec" else "", name != "exec" or not cost)
            client.close()
            stalls = [leader_loss(machines) for _ in range(max(1, options.losses // 5))]
            numbers["leader_losses"] = stalls
            for kind in ("exec", "create"):
                total, failed = (sum(each[kind][i] for each in stalls) for i in (0, 1))
                row(f"etcd's leader lost, {kind}: the longest stall", f"{max(each[kind][2] for each in stalls):.2f} s",
                    f"{failed} of {total} failed, in {len(stalls)} losses", "at most 1.5 s, and none fails",
                    failed == 0 and max(each[kind][2] for each in stalls) <= 1.5)
            lost = node_losses(machines, options.losses, say)
            numbers["node_losses_s"] = lost
            row("a node lost, until a command under the same id, p99", f"{percentile(lost, 99):.2f} s",
                f"p50 {percentile(lost, 50):.2f} s, {len(lost)} losses", "at most 5 s", percentile(lost, 99) <= 5)
    text = "\n".join(["| | Insula | Beside it | Target |", "| --- | --- | --- | --- |", *rows, ""])
    print(text)
    if options.report:
        with open(options.report, "w", encoding="utf-8") as file:
            file.write(f"# What distance costs\n\n`./dev distances --losses {options.losses}`, on {time.strftime('%Y-%m-%d')}, "
                       f"{os.cpu_count()} processors for all nodes, etcd and the clients.\n\n{text}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(numbers, file, indent=2)
    if missed:
        say(f"missed: {'; '.join(missed)}")
        sys.exit(2)


if __name__ == "__main__":
    try:
        main()
    except Failed as why:
        sys.exit(f"distances: {why}")
