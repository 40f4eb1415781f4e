// Snapshots of the disks of real sandboxes, and sandboxes that begin with them. Needs root.
#include "tests/contract/snapshot_contract.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/events.hpp"
#include "tests/support/live_node.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

using names = std::vector<std::string>;

result<disk_snapshot> take(sandbox& of, const std::string& name) {
  std::promise<result<disk_snapshot>> told;
  of.take_snapshot(name, [&](const result<disk_snapshot>& got) { told.set_value(got); });
  return told.get_future().get();
}
result<void> drop(live_node& node, const std::string& name) {
  std::promise<result<void>> told;
  node.engine().drop_snapshot(name, [&](const result<void>& got) { told.set_value(got); });
  return told.get_future().get();
}
names all_of(live_node& node) {
  std::promise<result<names>> told;
  node.engine().list_snapshots([&](const result<names>& got) { told.set_value(got); });
  const auto all = told.get_future().get();
  REQUIRE(all);
  return *all;
}
sandbox_spec from(live_node& node, const std::string& snapshot) {
  auto spec = node.spec();
  spec.disk_from = snapshot;
  return spec;
}

} // namespace

TEST_CASE("a sandbox begins with the disk that another one had", "[runtime][snapshots]") {
  live_node node;
  {
    live_sandbox box{node};
    CHECK(box
            .run("echo mine > file; mkdir -p d/empty; ln -s file link; ln file other; mkfifo f; "
                 "chmod 640 file; touch -d @1000000000 d; setfattr -n user.note -v word file "
                 "2>/dev/null; truncate -s 1G holes; rm -rf /usr/share/doc 2>/dev/null; true")
            .exited(0));
    CHECK(box
            .run("echo root > /etc/own; chown 5:6 /etc/own; chmod 4711 /etc/own; rm /etc/hostname "
                 "/etc/issue; rm -rf /usr/share/zoneinfo; echo new > /usr/local/bin/tool",
                 {0, 0})
            .exited(0));
    auto writer = box.start("i=0; while :; do echo $((i += 1)) >> log; done");
    REQUIRE(writer.started());
    REQUIRE(box.run("until [ -s log ]; do sleep 0.01; done").exited(0));
    const auto made = take(*box, "one");
    REQUIRE(made);
    CHECK(made->bytes > 0);
    CHECK(made->stood_still > 0ns);
    CHECK_FALSE((*box).stands_still());
    CHECK(box.run("l=$(wc -l < log); sleep 0.2; [ $(wc -l < log) -gt $l ]").exited(0));
    CHECK(take(*box, "one").reason().code == errc::already_exists);
    box.run("echo changed > file; rm link");
    writer.process().signal(9);
  }
  CHECK(all_of(node) == names{"one"});

  live_sandbox fork{node, from(node, "one")}, other{node, from(node, "one")};
  CHECK(fork
          .run("cat file; readlink link; stat -c '%a %h' file other; stat -c '%F %Y' f d/empty/..; "
               "stat -c %s holes; du -k holes | cut -f1")
          .out.starts_with("mine\nfile\n640 2\n640 2\nfifo "));
  CHECK(fork
          .run("stat -c '%a %u %g' /etc/own; ls /etc/issue /usr/share/zoneinfo 2>&1 | grep -c "
               "'No such'; cat /usr/local/bin/tool")
          .out == "4711 5 6\n2\nnew\n");
  CHECK(fork.run("pgrep -x sleep; tail -n 1 log | grep -c '^[0-9]*$'").out == "1\n");
  fork.run("echo fork > file; rm -rf d");
  CHECK(other.run("cat file; ls d").out == "mine\nempty\n");

  INFO("a fork of a fork, of a snapshot that is gone by then");
  REQUIRE(take(*fork, "two"));
  CHECK(drop(node, "one"));
  CHECK(drop(node, "one"));
  fork.destroy();
  live_sandbox third{node, from(node, "two")};
  CHECK(
    third.run("cat file; readlink link; stat -c %a /etc/own; ls d 2>&1 | grep -c 'No such'").out ==
    "fork\nfile\n4711\n1\n");
  CHECK(other.run("cat file").out == "mine\n");
  CHECK(drop(node, "two"));
  CHECK(all_of(node).empty());
}

namespace {

result<disk_changes> compare(live_sandbox& in, const compare_request& wanted) {
  std::promise<result<disk_changes>> told;
  (*in).compare_disks(wanted, [&](const result<disk_changes>& got) { told.set_value(got); });
  return told.get_future().get();
}

/// "A d /path" for each.
std::vector<std::string> lines_of(const result<disk_changes>& got) {
  std::vector<std::string> all;
  if (!got)
    return {got.reason().message};
  for (const auto& each : got->changes)
    all.push_back(std::string{"AMD"[static_cast<int>(each.what)]} + ' ' +
                  "-dlo"[static_cast<int>(each.type)] + ' ' + each.path);
  return all;
}

} // namespace

TEST_CASE("what differs between two disks is told path by path", "[runtime][snapshots]") {
  live_node node;
  live_sandbox box{node};
  REQUIRE(box
            .run("cd /root; echo a > same; echo a > grows; echo a > chmod; ln -s x link; mkdir -p "
                 "gone/below was; echo a > gone/file; echo a > was/file; echo a > type; echo a > "
                 "'b c'; mkdir swapped; echo a > swapped/old; echo abc > touched; echo a > "
                 "/usr/share/tool; setfattr -n user.a -v 1 same 2>/dev/null; true",
                 {0, 0})
            .exited(0));
  REQUIRE(take(*box, "older"));
  REQUIRE(box
            .run("cd /root; echo b >> grows; chmod 600 chmod; ln -sfn y link; rm -r gone; mkdir -p "
                 "new/deep; echo a > new/deep/file; rm type; mkdir type; echo a > type/file; rm -r "
                 "swapped; mkdir swapped; echo b > swapped/new; touch -r /etc/passwd touched; "
                 "mkfifo fifo; echo b > /usr/share/tool; rm /etc/issue; rm -r /etc/skel; mkdir "
                 "/etc/skel; echo a >> /etc/services; cp -a /etc/passwd p && cp -a p /etc/passwd; "
                 "rm p; head -c 1000 /dev/zero > $(printf 'not\\377utf')",
                 {0, 0})
            .exited(0));
  REQUIRE(take(*box, "newer"));
  live_sandbox helper{node};
  const std::vector<std::string> all{
    "D - /etc/issue",          "M - /etc/services",      "D - /etc/skel/.bash_logout",
    "D - /etc/skel/.bashrc",   "D - /etc/skel/.profile", "M - /root/chmod",
    "A o /root/fifo",          "D d /root/gone",         "M - /root/grows",
    "M l /root/link",          "A d /root/new",          "A d /root/new/deep",
    "A - /root/new/deep/file", "A - /root/not\377utf",   "A - /root/swapped/new",
    "D - /root/swapped/old",   "M - /root/touched",      "M d /root/type",
    "A - /root/type/file",     "M - /usr/share/tool"};
  auto told = compare(helper, {"newer", "older", {}, 1'000});
  REQUIRE(told);
  CHECK_FALSE(told->more);
  auto sorted = lines_of(told);
  CHECK(sorted == all);
  CHECK(lines_of(compare(helper, {"older", "older"})).empty());

  INFO("page by page");
  std::vector<std::string> paged;
  std::string after;
  for (bool more = true; more;) {
    const auto page = compare(helper, {"newer", "older", after, 3});
    REQUIRE(page);
    REQUIRE(page->changes.size() <= 3);
    more = page->more;
    REQUIRE((!more || page->changes.size() == 3));
    for (auto& each : lines_of(page))
      paged.push_back(std::move(each));
    if (more)
      after = page->changes.back().path;
  }
  CHECK(paged == all);

  INFO("against the image");
  const auto whole = lines_of(compare(helper, {"newer", {}, {}, 1'000}));
  for (const auto* each : {"D - /etc/issue", "A - /root/same", "A - /usr/share/tool"})
    CHECK(std::count(whole.begin(), whole.end(), each) == 1);
  CHECK(std::count(whole.begin(), whole.end(), "M - /etc/passwd") == 0);

  INFO("what is not there, and a sandbox that has ended");
  CHECK(compare(helper, {"none"}).reason().code == errc::not_found);
  CHECK(compare(helper, {"newer", "none"}).reason().code == errc::not_found);
  CHECK(drop(node, "older"));
  CHECK(compare(helper, {"newer", "older"}).reason().code == errc::not_found);
  CHECK(drop(node, "newer"));
  helper.destroy();
  CHECK(compare(helper, {"newer"}).reason().code == errc::sandbox_not_running);
}

TEST_CASE("the engine has snapshots as its contract says", "[runtime][snapshots]") {
  live_node node;
  std::vector<std::unique_ptr<live_sandbox>> all;
  check_snapshot_contract(
    node.engine(),
    [&](const std::string& disk_from) -> std::shared_ptr<sandbox> {
      try {
        return all.emplace_back(std::make_unique<live_sandbox>(node, from(node, disk_from)))
          ->handle();
      } catch (const std::runtime_error&) {
        return nullptr;
      }
    },
    [&](const std::shared_ptr<sandbox>& which) {
      for (auto& each : all)
        if (each->handle() == which)
          each->destroy();
    },
    from(node, {}));
}

TEST_CASE("snapshots outlive server, spawner and a kill of both", "[runtime][snapshots]") {
  live_node node;
  {
    live_sandbox box{node};
    box.run("echo kept > file");
    REQUIRE(take(*box, "kept"));
    box.run("echo lost > file");
  }
  SECTION("in order") {
    node.shut_down();
  }
  SECTION("by kill -9") {
    ::kill(node.spawner(), SIGKILL);
    CHECK(eventually([&] { return node.agents().empty(); }));
    node.drop_server();
  }
  SECTION("and one that has its disks in memory") {
    node.shut_down();
    node.serve("tmpfs");
    CHECK(all_of(node).empty());
    node.shut_down();
  }
  SECTION("and one that cannot start") {
    node.shut_down();
    std::ofstream{node.state() + "/disk"} << "no directory";
    CHECK_THROWS(node.serve());
    REQUIRE(std::filesystem::remove(node.state() + "/disk"));
  }
  node.serve();
  CHECK(all_of(node) == names{"kept"});
  live_sandbox again{node, from(node, "kept")};
  CHECK(again.run("cat file").out == "kept\n");
  CHECK(drop(node, "kept"));
}

TEST_CASE("a snapshot of one that stands still leaves it so", "[runtime][snapshots]") {
  live_sandbox box{shared_node()};
  box.run("echo a > file");
  std::promise<bool> still;
  (*box).freeze([&](bool is) { still.set_value(is); });
  REQUIRE(still.get_future().get());
  REQUIRE(take(*box, "still"));
  CHECK((*box).stands_still());
  REQUIRE((*box).thaw());
  CHECK(box.run("cat file").out == "a\n");
  CHECK(drop(shared_node(), "still"));
}

TEST_CASE("two snapshots at once are both taken, and one of what ends is taken or refused",
          "[runtime][snapshots]") {
  live_sandbox box{shared_node()};
  box.run("head -c 20M /dev/urandom > file; md5sum file > sum");
  events<result<disk_snapshot>> told;
  for (const auto* name : {"a", "b", "c"})
    (*box).take_snapshot(name, [&](const result<disk_snapshot>& got) { told.tell(got); });
  for (int i = 0; i < 3; ++i)
    CHECK(told.next(30s));
  for (const auto* name : {"a", "c"}) {
    live_sandbox fork{shared_node(), from(shared_node(), name)};
    CHECK(fork.run("md5sum -c sum").exited(0));
  }
  (*box).take_snapshot("late", [&](const result<disk_snapshot>& got) { told.tell(got); });
  box.destroy();
  const auto late = told.next(30s);
  const auto all = all_of(shared_node());
  CHECK(std::count(all.begin(), all.end(), "late") == (late ? 1 : 0));
  for (const auto& each : all)
    CHECK(drop(shared_node(), each));
  CHECK(take(*box, "later").reason().code == errc::sandbox_not_running);
}

TEST_CASE("a sandbox does not begin with what is no snapshot", "[runtime][snapshots]") {
  auto& node = shared_node();
  for (const std::string name : {"none", "../sb-1", "x/y"}) {
    std::promise<error> told;
    sandbox_listener heard;
    heard.on_failed = [&](const error& why) { told.set_value(why); };
    heard.on_ready = [](const auto&) {};
    node.engine().create(from(node, name), heard);
    CHECK(told.get_future().get().code == (name == "none" ? errc::not_found : errc::launch_failed));
  }
  live_sandbox box{node};
  for (const std::string name : {"", "A", "a/b", "..", "a b"})
    CHECK_FALSE(take(*box, name));
  CHECK(all_of(node).empty());
}

TEST_CASE("where disks are memory, a sandbox begins with all of a snapshot or not at all",
          "[runtime][snapshots]") {
  live_node node;
  node.shut_down();
  node.serve("tmpfs");
  live_sandbox box{node};
  box.run("head -c 20M /dev/urandom > file; md5sum file > sum");
  REQUIRE(take(*box, "large"));
  for (int i = 0; i < 10; ++i) {
    auto spec = from(node, "large");
    spec.limits.disk_bytes = 8u << 20;
    CHECK_THROWS(live_sandbox{node, spec});
  }
  live_sandbox fork{node, from(node, "large")};
  CHECK(fork.run("md5sum -c sum").exited(0));
}
