"""What the nemesis does to machines, and undoes."""

import contextlib
import os
import shutil
import signal
import sys
import time

from machines import CLIENT_PORT, INTERNAL_PORT, LINK_PORT, PEER_PORT, Failed, content_of, eventually, is_insulas, signal_all

DELAY_PORT, DELAY_MARK = 9, 7


class Fault:
    """One fault on its way: what, where, from when until when. `node`: whose sandboxes it may cost."""

    def __init__(self, name, node, note=""):
        self.name, self.node, self.note = name, node, note
        self.began = time.monotonic()
        self.healed = self.recovered = None
        self.longest_wait = 0.0
        self.losses = 0

    def touches(self, since, until, rest=5):
        """Was it, or its consequences, there in that time?"""
        return self.began <= until and (self.recovered is None or since <= self.recovered + rest)


class Faults:
    """All kinds. Each is a generator: what it does until its first yield is the fault, what follows heals it."""

    def __init__(self, machines, random, short):
        self.machines, self.random, self.short = machines, random, short
        self.kinds = {
            "kill server": self.kill_server,
            "kill node": self.kill_node,
            "stop server": self.stop_server,
            "stop node": self.stop_node,
            "stop at a step": self.stop_at_step,
            "restart": self.restart,
            "disk full": self.disk_full,
        }
        if machines.clustered:
            self.kinds |= {
                "drain": self.drain,
                "lose machine": self.lose_machine,
                "partition": self.partition,
                "one-way partition": self.partition_one_way,
                "partition from etcd": self.partition_from_etcd,
                "partition of a pair": self.partition_pair,
                "loss": self.loss,
                "delay": self.delay,
                "rate": self.rate,
                "kill etcd leader": self.kill_etcd_leader,
                "wipe etcd member": self.wipe_etcd_member,
            }
        if machines.clustered and machines.etcd_disks:
            self.kinds["etcd disk hangs"] = self.etcd_disk_hangs
        if not machines.small_disks:
            del self.kinds["disk full"]  # It is the machine's own.

    # A node whose lease ends loses its sandboxes. The first leave all leases alone; the second should.
    harmless = {"partition of a pair"}
    only_etcd = {"kill etcd leader", "wipe etcd member"}
    # When an etcd before 3.4.31, or of 3.5 before 3.5.13, goes on, it ends the leases of all nodes.
    costs_all = {"etcd disk hangs"}

    def choose(self, name):
        """A fault at some machine, and the generator that does it."""
        machine = self.random.choice(self.machines.machines)
        fault = Fault(name, machine.name)
        return fault, self.kinds[name](machine, fault)

    def duration(self, name):
        """How long it holds. A lease is 3 s: shorter and longer ones are both of interest."""
        if name in ("restart", "wipe etcd member"):
            return 0
        if name == "etcd disk hangs":
            return self.random.uniform(4, 12)
        if name.startswith("stop"):
            return self.random.uniform(4, 7) if self.short else self.random.uniform(10, 30)
        return self.random.uniform(0.2, 5 if self.short else 12)

    # ---- Processes

    def kill_server(self, machine, _):
        machine.kill_server()
        yield
        machine.start(wait=False)

    def kill_node(self, machine, _):
        machine.kill_own()
        yield
        machine.start(wait=False)

    def lose_machine(self, machine, _):
        machine.etcd.kill()
        machine.kill_everything()
        yield
        machine.etcd.start([each.etcd for each in self.machines], "existing")
        machine.start(wait=False)

    def stop_server(self, machine, _):
        machine.server.send_signal(signal.SIGSTOP)
        yield
        machine.server.send_signal(signal.SIGCONT)

    def stop_node(self, machine, fault):
        """All of it, its sandboxes too, as when a machine stands still. They go on last, so that who guards them is awake."""
        own = machine.own_processes()
        others = [pid for pid in machine.processes() if pid not in own]
        signal_all(own + others, signal.SIGSTOP)
        others = [pid for pid in machine.processes() if pid not in own]  # Those that began meanwhile.
        signal_all(others, signal.SIGSTOP)
        fault.note = f"{len(own)} processes of the node, {len(others)} of its sandboxes"
        yield
        signal_all(own, signal.SIGCONT)
        time.sleep(0.3)
        signal_all([pid for pid in machine.processes() if not is_insulas(pid)], signal.SIGCONT)

    # What follows them is an effect: a command, a write that is acknowledged. What went before are all looks at the lease.
    steps = ("exec.start", "exec.sent", "object.write", "object.durable")

    def stop_at_step(self, machine, fault):
        """The server stands still where it has looked at its lease already, and goes on with what it was about to do."""
        step = self.random.choice(self.steps)
        machine.stop(signal.SIGTERM)
        which = self.random.randrange(1, 8) if step.startswith("exec") else 1  # Of the others there are few.
        machine.start(wait=False, failpoint=f"stop:{step}#{which}")  # It may come to it on its way up.
        end = time.monotonic() + 20
        while not machine.stands_still() and machine.running() and time.monotonic() < end:
            time.sleep(0.05)
        fault.note = step if machine.stands_still() else f"{step}, which it did not come to"
        yield
        if machine.stands_still():
            return machine.server.send_signal(signal.SIGCONT)
        machine.kill_server()  # It could stop later on, and nobody would have it go on.
        machine.start(wait=False)

    def restart(self, machine, _):
        machine.stop(signal.SIGTERM)
        yield
        machine.start(wait=False)

    def drain(self, machine, fault):
        """Its sandboxes are sent to the others, then it is restarted, as for an upgrade."""
        other = self.random.choice([each for each in self.machines if each is not machine])
        answer = other.request("POST", f"/v1/cluster/drain/{machine.name}", timeout=60)
        fault.note = f"asked at {other.name}: {answer.status}"
        yield
        machine.stop(signal.SIGTERM)
        machine.start(wait=False)

    # ---- Disks

    def disk_full(self, machine, fault):
        path = f"{machine.state}/nemesis"
        with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
            size = 1 << 20
            while size > 0:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2  # So that not even a page is left.
        fault.note = f"{os.stat(path).st_size >> 20} MiB filled, {shutil.disk_usage(machine.state).free} bytes left"
        yield
        os.unlink(path)

    # ---- The network

    def others(self, machine):
        return ", ".join(each.address for each in self.machines if each is not machine)

    def firewall(self, machine, rules):
        """Rules in the machine's namespace, until they are removed."""
        machine.inside("nft", "-f", "-", input=f"table inet nemesis {{ {rules} }}")
        return lambda: machine.inside("nft", "delete", "table", "inet", "nemesis")

    # Before connections are followed, and for loopback too.
    arrive = "chain arrive { type filter hook input priority -300; policy accept; %s }\n"
    leave = "chain leave { type filter hook output priority -300; policy accept; %s }\n"

    def partition(self, machine, _):
        others = self.others(machine)
        heal = self.firewall(machine, self.arrive % f"ip saddr {{ {others} }} drop;" +
                             self.leave % f"ip daddr {{ {others} }} drop;")
        yield
        heal()

    def partition_one_way(self, machine, fault):
        others = self.others(machine)
        if self.random.random() < 0.5:
            fault.note = "it hears nothing"
            heal = self.firewall(machine, self.arrive % f"ip saddr {{ {others} }} drop;")
        else:
            fault.note = "it is not heard"
            heal = self.firewall(machine, self.leave % f"ip daddr {{ {others} }} drop;")
        yield
        heal()

    def partition_from_etcd(self, machine, _):
        """The node from all members, also from the one beside it; the members go on among themselves."""
        heal = self.firewall(machine, self.leave % f"tcp dport {CLIENT_PORT} drop;")
        yield
        heal()

    def partition_pair(self, machine, fault):
        other = self.random.choice([each for each in self.machines if each is not machine])
        ports = f"{{ {INTERNAL_PORT}, {LINK_PORT} }}"
        fault.note = f"{machine.name} and {other.name}"
        heal = self.firewall(machine, self.arrive % (
            f"ip saddr {other.address} tcp dport {ports} drop; ip saddr {other.address} tcp sport {ports} drop;") +
            self.leave % (
            f"ip daddr {other.address} tcp dport {ports} drop; ip daddr {other.address} tcp sport {ports} drop;"))
        yield
        heal()

    def loss(self, machine, fault):
        percent = self.random.choice((5, 15, 30))
        fault.note = f"{percent} % of what arrives"
        heal = self.firewall(machine, self.arrive %
                             f"ip saddr {{ {self.others(machine)} }} numgen random mod 100 < {percent} drop;")
        yield
        heal()

    def rate(self, machine, fault):
        kbit = self.random.choice((128, 512, 2048))
        fault.note = f"{kbit} kbit/s out"
        machine.inside("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{kbit}kbit", "burst", "16kb",
                       "latency", "400ms")
        yield
        machine.inside("tc", "qdisc", "delete", "dev", "eth0", "root")

    def delay(self, machine, fault):
        """Connections to other members go through a proxy; those that are open break, as they would at a real one."""
        least = self.random.choice((20, 60, 200))
        fault.note = f"{least} to {2 * least} ms"
        log = f"{self.machines.logs}/{machine.name}-delay.log"
        before = content_of(log).count("ready")
        proxy = machine.launch("delay", [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "delay.py"),
                                         str(DELAY_PORT), str(DELAY_MARK), str(least), str(least)])
        try:
            eventually(lambda: content_of(log).count("ready") > before, 30, "the delaying proxy does not start")
            machine.inside("nft", "-f", "-", input=f"""table ip nemesis_delay {{
              chain leave {{ type nat hook output priority -100;
                ip daddr {{ {self.others(machine)} }} meta mark != {DELAY_MARK}
                  tcp dport {{ {CLIENT_PORT}, {PEER_PORT}, {INTERNAL_PORT}, {LINK_PORT} }} redirect to :{DELAY_PORT}
              }}
            }}""")
            yield
            machine.inside("nft", "delete", "table", "ip", "nemesis_delay")
        finally:
            proxy.kill()
            proxy.wait()

    # ---- etcd

    def kill_etcd_leader(self, _, fault):
        leader = eventually(self.machines.etcd_leader, 60, "etcd has no leader")
        fault.node = leader.name
        leader.etcd.kill()
        yield
        leader.etcd.start([each.etcd for each in self.machines], "existing")

    def etcd_disk_hangs(self, _, fault):
        """Its leader does not know that it is deposed, and goes on answering what it can without writing."""
        leader = eventually(self.machines.etcd_leader, 60, "etcd has no leader")
        fault.node = leader.name
        leader.etcd.freeze()
        yield
        leader.etcd.thaw()

    def wipe_etcd_member(self, machine, _):
        self.machines.wipe_etcd(machine)
        yield
        self.machines.wait_for_etcd()

    def undo(self):
        """Whatever a fault has left that was cut short."""
        for each in self.machines:
            for words in (("nft", "delete", "table", "inet", "nemesis"), ("nft", "delete", "table", "ip", "nemesis_delay"),
                          ("tc", "qdisc", "delete", "dev", "eth0", "root")):
                with contextlib.suppress(Failed):
                    each.inside(*words)
            with contextlib.suppress(OSError):
                os.unlink(f"{each.state}/nemesis")
            signal_all(each.processes(), signal.SIGCONT)
            if self.machines.clustered:
                each.etcd.thaw()
            if not each.running():
                each.start(wait=False)
            if self.machines.clustered and each.etcd.process is None:
                each.etcd.start([other.etcd for other in self.machines], "existing")
