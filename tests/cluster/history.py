"""What clients have done to one sandbox and were told, and whether that can be.

A sandbox has a counter file, to which each append adds one line of its own; and a register, which is its network policy.
Its incarnation is a word that is only in its memory: the same word, the same processes and files. Contents may be lost
with their node, and a new incarnation begins then; a persistent sandbox has its files again, as of some moment before,
which is no further back than KEPT_SECONDS. A snapshot of its disk has the counter file as it was, for whatever begins with it.
"""

import threading
import time

# Between two snapshots of one that is used are 2 s; one that fails is tried again after 10 s. Faults may cost a few of them.
KEPT_SECONDS = 45


class Verdict:
    """All that was found. Violations are of what is promised; remarks are what somebody should look at."""

    def __init__(self):
        self.lock, self.violations, self.remarks = threading.Lock(), [], []
        self.began = time.monotonic()

    def violation(self, text):
        self.add(self.violations, text)

    def remark(self, text):
        self.add(self.remarks, text)

    def add(self, to, text):
        line = f"{time.monotonic() - self.began:.1f} s: {text}"
        with self.lock:
            to.append(line)
        print(f"nemesis: {'VIOLATION' if to is self.violations else 'remark'}: {line}", flush=True)


class History:
    """Of one sandbox. One client at a time uses it."""

    def __init__(self, name, persistent, verdict, cause_of_loss):
        """`cause_of_loss` is asked (sandbox, since, until) whether contents may be lost then: "", or why not."""
        self.name, self.persistent, self.verdict, self.cause_of_loss = name, persistent, verdict, cause_of_loss
        self.count = 0
        self.incarnation, self.seen, self.ended = None, time.monotonic(), {}  # When it was heard of last.
        self.acknowledged = {}  # Appends: number to incarnation.
        self.times = {}  # When they were.
        self.sent = set()
        self.told = set()  # What has been said once is not said again.
        self.register, self.open_writes, self.writes = 0, set(), 0
        self.losses = self.rolled_back = self.repeated = 0
        self.snapshots = {}  # Those that are there: what is known of each.

    def fail(self, what, text):
        if what not in self.told:
            self.told.add(what)
            self.verdict.violation(f"{self.name}: {text}")

    # ---- The counter file

    def next_append(self):
        self.count += 1
        self.sent.add(self.count)
        return self.count

    def observe(self, incarnation):
        """An answer of this incarnation has come, to a request that was sent after all earlier answers."""
        now = time.monotonic()
        if incarnation == self.incarnation:
            self.seen = now
            return
        if incarnation in self.ended:
            self.fail(("back", incarnation), f"incarnation {incarnation} answers, after {self.incarnation} had answered")
            return
        if self.incarnation is not None:
            self.losses += 1
            self.ended[self.incarnation] = self.seen
            why_not = self.cause_of_loss(self, self.seen, now)
            if why_not:
                self.fail(("lost", incarnation), f"incarnation {self.incarnation} was lost between "
                          f"{self.seen - self.verdict.began:.1f} and {now - self.verdict.began:.1f} s: {why_not}")
        self.incarnation, self.seen = incarnation, now

    def acknowledge(self, number, incarnation):
        self.acknowledged[number], self.times[number] = incarnation, time.monotonic()
        self.observe(incarnation)

    def check(self, incarnation, lines):
        """The whole file, as it was read. Lines are pairs: number, incarnation in which it was written."""
        self.observe(incarnation)
        places, earlier, repeated = {}, {}, 0
        for place, line in enumerate(lines):
            if line in places:
                self.fail(("twice", line), f"append {line[0]} was done twice in incarnation {line[1]}")
            places[line] = place
            if line[0] not in self.sent:
                self.fail(("invented", line), f"append {line[0]} was never asked for")
            # Done, and done again by another incarnation, because the answer was lost with the first.
            repeated += earlier.setdefault(line[0], line[1]) != line[1]
        self.repeated = max(self.repeated, repeated)
        last = -1
        for number in sorted(each for each, where in self.acknowledged.items() if where == incarnation):
            place = places.get((number, incarnation))
            if place is None:
                self.fail(("missing", number), f"append {number}, acknowledged in incarnation {incarnation}, is not there")
            elif place < last:
                self.fail(("order", number), f"append {number} stands before an earlier one")
            else:
                last = place
        if not self.persistent:
            return
        lacking = [number for number, where in self.acknowledged.items() if where != incarnation and (number, where) not in places]
        self.rolled_back = max(self.rolled_back, len(lacking))
        for number in lacking:
            where = self.acknowledged[number]
            if where in self.ended and self.ended[where] - self.times[number] > KEPT_SECONDS:
                self.fail(("not kept", number), f"append {number}, acknowledged {self.ended[where] - self.times[number]:.0f} s "
                          f"before incarnation {where} was heard of last, is in no snapshot")

    # ---- Snapshots of its disk

    def before_snapshot(self):
        """What the file has to have in a snapshot that is taken from now on, unless this incarnation is lost meanwhile."""
        return self.incarnation, {(number, where) for number, where in self.acknowledged.items() if where == self.incarnation}

    def took_snapshot(self, snapshot, before):
        """It was acknowledged, and the sandbox has been looked at since."""
        incarnation, lines = before
        self.snapshots[snapshot] = {"least": lines if incarnation == self.incarnation else set(), "lines": None}

    def check_snapshot(self, snapshot, lines):
        """The file in a sandbox that has just begun with it."""
        known = self.snapshots[snapshot]
        for number, _ in lines:
            if number not in self.sent:
                self.fail(("invented", snapshot, number), f"append {number} in snapshot {snapshot} was never asked for")
        lacking = known["least"] - set(lines)
        if lacking:
            self.fail(("not in it", snapshot), f"snapshot {snapshot} lacks {sorted(lacking)}, acknowledged before it was taken")
        if known["lines"] is not None and known["lines"] != lines:
            self.fail(("other", snapshot), f"snapshot {snapshot} has other lines than the first time")
        known["lines"] = lines

    # ---- The register

    def next_write(self):
        self.writes += 1
        self.open_writes.add(self.writes)
        return self.writes

    def wrote(self, value):
        self.open_writes.discard(value)
        self.register = value

    def read(self, value):
        """A write without an answer may come to hold whenever it likes, but once."""
        if value == self.register:
            return
        if value in self.open_writes:
            self.open_writes.discard(value)
            self.register = value
            return
        self.fail(("register", value, self.register),
                  f"the policy was {self.register}, as acknowledged or read, and {value} is read")


class SessionHistory(History):
    """Of a sandbox whose sessions end and begin: each is an incarnation. What a session had when its end was acknowledged stays."""

    def __init__(self, label, verdict, cause_of_loss):
        super().__init__(label, True, verdict, cause_of_loss)
        self.label, self.session = label, None  # It has its name, which is the sandbox's id, once it is made.
        self.may_have_ended = False  # Its end was asked for.
        self.kept, self.ends = set(), 0

    def observe(self, incarnation):
        if self.may_have_ended and incarnation not in (self.incarnation, *self.ended):
            if self.incarnation is not None:
                self.ended[self.incarnation] = self.seen
            self.incarnation = incarnation
            self.may_have_ended = False
        super().observe(incarnation)

    def check(self, incarnation, lines):
        super().check(incarnation, lines)
        for line in sorted(self.kept - set(lines)):
            self.fail(("kept", line), f"append {line[0]} of incarnation {line[1]} is not there, and the end of a session that had it "
                      "was acknowledged")

    def ended_with(self, lines):
        """The end of its session was acknowledged, and these lines were read in that session."""
        self.ends += 1
        self.kept |= set(lines)
