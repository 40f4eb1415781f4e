#!/usr/bin/env -S python3 -B
"""The rules by which the nemesis judges: what may be, and what must not."""

import contextlib
import io
import types
import unittest

from history import History, SessionHistory, Verdict
from nemesis import Directory


class Rules(unittest.TestCase):
    def setUp(self):
        quiet = contextlib.redirect_stdout(io.StringIO())
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)
        self.verdict, self.why_not = Verdict(), ""

    def history(self, persistent=False):
        return History("box", persistent, self.verdict, lambda *_: self.why_not)

    def appended(self, history, *numbers, incarnation="a"):
        for number in numbers:
            while history.count < number:
                history.next_append()
            history.acknowledge(number, incarnation)

    def good(self):
        self.assertEqual(self.verdict.violations, [])

    def bad(self, word):
        self.assertEqual(len(self.verdict.violations), 1, self.verdict.violations)
        self.assertIn(word, self.verdict.violations[0])

    def test_appends_without_an_answer_may_be_there_or_not(self):
        history = self.history()
        self.appended(history, 1, 3)
        history.next_append()
        history.check("a", [(1, "a"), (3, "a")])
        history.check("a", [(1, "a"), (2, "a"), (3, "a"), (4, "a")])
        self.good()

    def test_a_snapshot_has_what_was_acknowledged_before_it(self):
        history = self.history()
        self.appended(history, 1, 2)
        before = history.before_snapshot()
        self.appended(history, 3)
        history.took_snapshot("s", before)
        history.check_snapshot("s", [(1, "a"), (2, "a")])
        history.check_snapshot("s", [(1, "a"), (2, "a")])
        self.good()
        history.took_snapshot("t", history.before_snapshot())
        history.check_snapshot("t", [(1, "a"), (3, "a")])
        self.bad("lacks [(2, 'a')]")

    def in_sessions(self):
        return SessionHistory("box", self.verdict, lambda *_: self.why_not)

    def test_a_session_whose_end_was_asked_for_may_end(self):
        self.why_not = "no faults"
        history = self.in_sessions()
        self.appended(history, 1)
        history.may_have_ended = True
        self.appended(history, 2, incarnation="b")
        self.good()
        self.appended(history, 3, incarnation="a")
        self.bad("answers, after")

    def test_a_session_that_ends_by_itself_is_lost(self):
        self.why_not = "no faults"
        history = self.in_sessions()
        self.appended(history, 1)
        self.appended(history, 2, incarnation="b")
        self.bad("was lost between")

    def test_what_a_session_had_at_its_acknowledged_end_stays(self):
        history = self.in_sessions()
        self.appended(history, 1, 2)
        history.may_have_ended = True
        history.ended_with([(1, "a"), (2, "a")])
        history.check("b", [(1, "a"), (2, "a")])
        self.good()
        history.check("b", [(1, "a")])
        self.bad("was acknowledged")

    def test_a_snapshot_reads_the_same_each_time(self):
        history = self.history()
        self.appended(history, 1)
        history.took_snapshot("s", history.before_snapshot())
        self.appended(history, 2)
        history.check_snapshot("s", [(1, "a")])
        history.check_snapshot("s", [(1, "a"), (2, "a")])
        self.bad("other lines")

    def test_a_snapshot_of_a_later_incarnation_need_not_have_what_was_before(self):
        history = self.history()
        self.appended(history, 1)
        before = history.before_snapshot()
        self.appended(history, 2, incarnation="b")
        history.took_snapshot("s", before)
        history.check_snapshot("s", [])
        self.good()

    def test_an_acknowledged_append_is_there(self):
        history = self.history()
        self.appended(history, 1, 2)
        history.check("a", [(2, "a")])
        history.check("a", [(2, "a")])  # It is said once.
        self.bad("append 1, acknowledged")

    def test_files_of_a_persistent_sandbox_are_kept_but_for_the_last_moments(self):
        for since, kept in ((60, False), (30, True)):
            history = self.history(persistent=True)
            self.appended(history, 1, 2)
            history.times[1] -= since
            history.times[2] -= since
            self.appended(history, 3, incarnation="b")
            history.check("b", [(2, "a"), (3, "b")])
            if kept:
                self.good()
            else:
                self.bad("is in no snapshot")
                self.verdict.violations.clear()

    def test_nothing_is_done_twice(self):
        history = self.history()
        history.next_append()
        history.check("a", [(1, "a"), (1, "a")])
        self.bad("twice")

    def test_nothing_is_invented(self):
        self.history().check("a", [(1, "a")])
        self.bad("never asked for")

    def test_acknowledged_appends_are_in_order(self):
        history = self.history()
        self.appended(history, 1, 2)
        history.check("a", [(2, "a"), (1, "a")])
        self.bad("before an earlier one")

    def test_contents_may_be_lost_with_their_owner(self):
        history = self.history()
        self.appended(history, 1)
        history.check("b", [])
        self.good()
        self.assertEqual(history.losses, 1)

    def test_contents_may_not_be_lost_otherwise(self):
        history = self.history()
        self.appended(history, 1)
        self.why_not = "no fault"
        history.check("b", [])
        self.bad("no fault")

    def test_an_incarnation_does_not_come_back(self):
        history = self.history()
        self.appended(history, 1)
        history.observe("b")
        history.observe("a")
        self.bad("incarnation a answers, after b had answered")

    def test_a_persistent_sandbox_goes_back_to_its_snapshot(self):
        history = self.history(persistent=True)
        self.appended(history, 1, 2, 3)
        history.next_append()
        history.check("b", [(1, "a"), (4, "b")])
        self.good()
        self.assertEqual(history.rolled_back, 2)
        history.acknowledge(3, "b")
        history.check("b", [(1, "a"), (3, "a"), (4, "b"), (3, "b")])  # Answered after the loss, and done again.
        self.assertEqual(history.repeated, 1)

    def test_the_register_holds_what_was_acknowledged(self):
        history = self.history()
        history.read(0)
        history.wrote(history.next_write())
        history.read(1)
        self.good()
        history.read(0)
        self.bad("the policy was 1")

    def test_a_write_without_an_answer_holds_once(self):
        history = self.history()
        history.next_write()
        history.wrote(history.next_write())
        history.read(2)
        history.read(1)  # It was on its way until now.
        self.good()
        history.read(2)
        self.bad("the policy was 1")

    def directory(self):
        return Directory(types.SimpleNamespace(verdict=self.verdict))

    @staticmethod
    def machine(name, pid=1):
        return types.SimpleNamespace(name=name, server_pid=lambda: pid)

    def test_an_epoch_has_one_owner(self):
        directory = self.directory()
        directory.take(self.machine("n1"), [{"id": "box", "node": "n1", "epoch": 5}])
        directory.take(self.machine("n2"), [{"id": "box", "node": "n2", "epoch": "7"}])
        self.good()
        self.assertEqual(directory.owner("box", 1e12), ("n2", 7))
        directory.take(self.machine("n3"), [{"id": "box", "node": "n3", "epoch": 7}])
        self.bad("epoch 7 is n2's")

    def test_no_node_goes_back_to_an_earlier_epoch(self):
        directory = self.directory()
        directory.take(self.machine("n1"), [{"id": "box", "node": "n1", "epoch": 7}])
        directory.take(self.machine("n2"), [{"id": "box", "node": "n2", "epoch": 5}])  # It has not heard of it yet.
        self.good()
        directory.take(self.machine("n1"), [{"id": "box", "node": "n2", "epoch": 5}])
        self.bad("epoch 5 after 7")


if __name__ == "__main__":
    unittest.main()
