// A server that has been taken over speaks to the spawner, which is root. After each attempt the
// spawner makes a sandbox as ever.
#include "runtime/gateway/protocol.hpp"
#include "tests/runtime/bare_node.hpp"
#include "tests/support/eventually.hpp"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;

namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using namespace std::chrono_literals;
using runtime::spawner::launch_step;
using runtime::spawner::mount_step;
using spawner_event = runtime::spawner::event;
using spawner_op = runtime::spawner::op;
using spawner_request = runtime::spawner::request;

constexpr std::uint32_t good_slot = 1000, other_slot = 1001, empty_slot = 1002;

struct hostile_server : bare_node {
  /// As a server of another process would: what is in there already is not asked.
  void send(const spawner_request& wanted, const std::string& text = {},
            std::vector<int> fds = {}) const {
    REQUIRE(spawner.send(std::string{as_bytes(wanted)} + text, std::move(fds)));
  }
  runtime::spawner::notice ask(const spawner_request& wanted, const std::string& text = {}) const {
    send(wanted, text);
    return answer().first;
  }
  spawner_request from_tree(const std::string& name) const {
    auto wanted = request(spawner_op::create, other_slot);
    std::memset(wanted.tree, 0, sizeof wanted.tree);
    REQUIRE(name.copy(wanted.tree, sizeof wanted.tree - 1) == name.size());
    return wanted;
  }
  fs::path images() const { return fs::path{node.state()} / "images"; }

  void makes_sandboxes() {
    const auto agent = make(good_slot);
    CHECK(works(agent));
    const auto ended = ask(request(spawner_op::destroy, good_slot));
    CHECK(ended.what == spawner_event::destroyed);
    CHECK(ended.slot == good_slot);
  }
  void is_hung_up_on() {
    CHECK(spawner.next().bytes.empty());
    spawner = plain_end{connected()};
    makes_sandboxes();
  }
};

std::string mount_text(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& each : words)
    (text += each) += '\0';
  return text;
}

bool is_refused(const runtime::spawner::notice& said, spawner_event what, int error) {
  return said.what == what && said.error == error &&
         said.step == static_cast<std::uint32_t>(what == spawner_event::mounted
                                                   ? static_cast<int>(mount_step::request)
                                                   : static_cast<int>(launch_step::request));
}

} // namespace

TEST_CASE("no name and no link of an image leads a sandbox to other files of the machine",
          "[runtime][hostile]") {
  hostile_server n;
  const auto outside = fs::path{n.node.state()} / "outside";
  fs::create_directories(outside / "root/usr");
  // An image with links to the machine, as an import keeps them.
  fs::create_directories(n.images() / ".tree-1/root/inner");
  fs::create_symlink("/", n.images() / ".tree-1/root/x");
  fs::create_symlink("../../../..", n.images() / ".tree-1/root/inner/up");
  fs::create_symlink(".tree-1", n.images() / "linky");

  // What is no name of a tree.
  {
    for (const auto& each : std::vector<std::string>{"",
                                                     ".",
                                                     "..",
                                                     "/",
                                                     "/etc",
                                                     "/usr",
                                                     "linky",
                                                     "linky/root/x",
                                                     ".tree-1/root/x",
                                                     ".tree-1/root/inner/up",
                                                     ".tree-1/root",
                                                     ".tree-1/",
                                                     ".tree-1/..",
                                                     ".tree-x/../..",
                                                     ".tree-",
                                                     ".tree-1x",
                                                     ".tree-123456789012345678901",
                                                     ".new-it",
                                                     ".lock",
                                                     "host/",
                                                     "host/root",
                                                     "host/../.tree-1",
                                                     "../logs",
                                                     "../outside",
                                                     "../../..",
                                                     "hosts",
                                                     "HOST"}) {
      CAPTURE(each);
      CHECK(is_refused(n.ask(n.from_tree(each)), spawner_event::create_failed, EPERM));
    }
    // As a path, which is how the machine's root was once lent.
    auto wanted = n.from_tree("");
    const auto path = (n.images() / "linky/root/x").string();
    path.copy(wanted.tree, sizeof wanted.tree - 1);
    CHECK(is_refused(n.ask(wanted), spawner_event::create_failed, EPERM));
  }
  // A tree that is a link, or whose files are.
  {
    fs::create_directories(n.images() / ".tree-2");
    fs::create_symlink("/", n.images() / ".tree-2/root");
    fs::create_symlink("/", n.images() / ".tree-3");
    fs::create_symlink(outside, n.images() / ".tree-4");
    fs::create_symlink(".tree-1", n.images() / ".tree-5");
    fs::create_directories(n.images() / ".tree-6");
    fs::create_symlink("../../outside/root", n.images() / ".tree-6/root");
    fs::create_symlink("/proc/self/root", n.images() / ".tree-7");
    for (const auto& each : {".tree-2", ".tree-3", ".tree-4", ".tree-5", ".tree-6", ".tree-7"}) {
      CAPTURE(each);
      const auto said = n.ask(n.from_tree(each));
      CHECK(said.what == spawner_event::create_failed);
      CHECK(said.error == ELOOP);
      CHECK(said.step == static_cast<std::uint32_t>(launch_step::layers));
    }
    std::ofstream{n.images() / ".tree-8"} << "a file";
    CHECK(n.ask(n.from_tree(".tree-8")).error == ENOTDIR);
    CHECK(n.ask(n.from_tree(".tree-9")).error == ENOENT);
  }
  // Flags that there are not.
  {
    auto wanted = n.from_tree("host");
    wanted.flags = ~0u;
    CHECK(is_refused(n.ask(wanted), spawner_event::create_failed, EINVAL));
  }
  // Another directory in the place of the images, once the spawner runs.
  {
    fs::rename(n.images(), n.images().string() + "-away");
    fs::create_directory_symlink("/", n.images());
    n.makes_sandboxes();
    fs::create_directory_symlink("/", outside / "host");
    fs::remove(n.images());
    fs::create_directory_symlink(outside, n.images());
    n.makes_sandboxes();
  }
  n.makes_sandboxes();
  CHECK(n.node.agents().empty());
}

TEST_CASE("an image whose /dev, /proc or /sys is a link or a file is refused with that step",
          "[runtime][hostile]") {
  hostile_server n;
  const auto root = n.images() / ".tree-1/root";
  fs::create_directories(root.parent_path());
  const auto outside = fs::path{n.node.state()} / "outside";
  fs::create_directories(outside);
  const struct {
    const char* name;
    launch_step step;
  } places[] = {{"dev", launch_step::dev}, {"proc", launch_step::proc}, {"sys", launch_step::sys}};
  for (const auto& [name, step] : places)
    for (const auto& target : {outside.string(), "usr"s, "nowhere"s, "a file"s}) {
      CAPTURE(name, target);
      fs::remove_all(root);
      fs::copy(n.images() / "host/root", root,
               fs::copy_options::recursive | fs::copy_options::copy_symlinks);
      fs::remove_all(root / name);
      if (target == "a file")
        std::ofstream{root / name} << target;
      else
        fs::create_symlink(target, root / name);
      auto wanted = n.from_tree(".tree-1");
      wanted.flags = runtime::spawner::create_with_machines_usr;
      n.send(wanted);
      auto [made, ends] = n.answer();
      REQUIRE(made.what == spawner_event::created);
      const plain_end sandbox{std::move(ends[0])};
      runtime::agent::notice said{};
      REQUIRE(from_bytes(sandbox.next().bytes, said));
      CHECK(said.what == runtime::agent::event::launch_failed);
      CHECK(said.value == (step == launch_step::proc ? ENOTDIR : EINVAL));
      CHECK(said.step == static_cast<std::uint32_t>(step));
      CHECK(n.answer().first.what == spawner_event::ended);
      CHECK(n.ask(n.request(spawner_op::destroy, other_slot)).what == spawner_event::destroyed);
      CHECK(fs::is_empty(outside));
    }
  n.makes_sandboxes();
  CHECK(n.node.agents().empty());
}

TEST_CASE("an image that is imported again is another tree, and both are started from",
          "[runtime][hostile]") {
  hostile_server n;
  for (const auto& each : {".tree-1", ".tree-2"})
    fs::copy(n.images() / "host", n.images() / each,
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  fs::create_symlink(".tree-1", n.images() / "again");
  const auto start = [&](const std::string& name) {
    auto wanted = n.from_tree(name);
    wanted.flags = runtime::spawner::create_with_machines_usr;
    const auto agent = n.make(wanted);
    CHECK(works(agent));
    REQUIRE(n.ask(n.request(spawner_op::destroy, other_slot)).what == spawner_event::destroyed);
  };
  start(".tree-1");
  fs::create_symlink(".tree-2", n.images() / ".new-again");
  fs::rename(n.images() / ".new-again", n.images() / "again");
  start(".tree-1");
  start(".tree-2");
}

TEST_CASE("numbers that are too large are refused, and nothing is made", "[runtime][hostile]") {
  hostile_server n;
  const auto agent = n.make(other_slot);
  for (int each = 0; each < 12; ++each) {
    const int spoil = each / 2;
    const auto what = each % 2 == 0 ? spawner_op::create : spawner_op::claim;
    auto wanted = n.request(what, what == spawner_op::create ? empty_slot : other_slot);
    constexpr auto huge = std::numeric_limits<std::uint64_t>::max();
    constexpr auto large = std::numeric_limits<std::uint32_t>::max();
    auto& to = wanted.ceilings;
    if (spoil == 0)
      to.memory_bytes = huge;
    if (spoil == 1)
      to.disk_bytes = huge - 4094; // Rounded up to pages this is none.
    if (spoil == 2)
      to.shm_bytes = huge - 1;
    if (spoil == 3)
      to.cpu_percent = large;
    if (spoil == 4)
      to.processes = large;
    if (spoil == 5)
      to.open_files = large;
    CAPTURE(spoil, static_cast<std::uint32_t>(what));
    CHECK(is_refused(
      n.ask(wanted),
      what == spawner_op::create ? spawner_event::create_failed : spawner_event::claimed, EINVAL));
  }
  CHECK(works(agent));
  CHECK(n.ask(n.request(spawner_op::claim, other_slot)).error == 0);
  for (const auto count : {0u, 17u, std::numeric_limits<std::uint32_t>::max()}) {
    auto wanted = n.request(spawner_op::open_sockets, other_slot);
    wanted.count = count;
    CHECK(is_refused(n.ask(wanted), spawner_event::sockets, EINVAL));
  }
  n.makes_sandboxes();
}

TEST_CASE("a mount that is not as it should be is refused", "[runtime][hostile]") {
  hostile_server n;
  const auto agent = n.make(other_slot);
  const std::vector<std::string> good{"/workspace/bucket",        "bucket", "s3fs", "secret",
                                      "port 443\ndefault deny\n", "s3fs",   "x"};
  auto wanted = n.request(spawner_op::mount, other_slot);
  const auto is_bad = [&](const std::string& text) {
    return is_refused(n.ask(wanted, text), spawner_event::mounted, EINVAL);
  };
  // Its path.
  {
    for (const auto& path :
         std::vector<std::string>{"", "/", "//", "relative", "/..", "/a/../b", "/a/..", "/a/.",
                                  "/a//b", "/a/", "/../../etc", "/" + std::string(5000, 'x')}) {
      CAPTURE(path);
      auto words = good;
      words[0] = path;
      CHECK(is_bad(mount_text(words)));
    }
  }
  // Its type and its program.
  {
    for (const auto& type : {"", "s3fs,dev", "a b", "../x", "S"}) {
      auto words = good;
      words[2] = type;
      CHECK(is_bad(mount_text(words)));
    }
    for (const auto& program : {"", "sh", "/bin/sh", "../bin/sh", "s3fs/../sh", "rclone "}) {
      auto words = good;
      words[5] = program;
      CHECK(is_bad(mount_text(words)));
    }
    for (const auto& reach : {""s, std::string(runtime::gateway::max_reach + 1, 'x')}) {
      auto words = good;
      words[4] = reach;
      CHECK(is_bad(mount_text(words)));
    }
  }
  // Its text.
  {
    CHECK(is_bad(""));
    CHECK(is_bad("\0"s));
    CHECK(is_bad(std::string(runtime::spawner::max_text, '\0')));
    CHECK(is_bad(std::string(runtime::spawner::max_text, 'x')));
    CHECK(is_bad("/a\0b\0s3fs\0c\0port 1\n\0s3fs"s)); // Its last word has no end.
    CHECK(is_bad(mount_text({good.begin(), good.begin() + 5})));
  }
  // Its numbers.
  {
    wanted.owner = runtime::spawner::uids_per_slot;
    CHECK(is_bad(mount_text(good)));
    wanted.owner = 0;
    wanted.flags = ~0u;
    CHECK(is_bad(mount_text(good)));
    wanted.flags = 0;
    wanted.count = std::numeric_limits<std::uint32_t>::max();
    CHECK(is_bad(mount_text(good)));
  }
  // For nobody.
  {
    wanted = n.request(spawner_op::mount, empty_slot);
    const auto said = n.ask(wanted, mount_text(good));
    CHECK(said.what == spawner_event::mounted);
    CHECK(said.error == ESRCH);
  }
  CHECK(works(agent));
  n.ask(n.request(spawner_op::destroy, other_slot));
  n.makes_sandboxes();
}

TEST_CASE("a drive is attached as it is asked for well, and else not at all",
          "[runtime][hostile]") {
  hostile_server n;
  const auto agent = n.make(other_slot);
  auto wanted = n.request(spawner_op::attach_drive, other_slot);
  wanted.count = empty_slot;
  const auto is_refused_with = [&](int error, const std::string& text = "/data") {
    return is_refused(n.ask(wanted, text), spawner_event::mounted, error);
  };
  for (const auto& path : {""s, "/"s, "data"s, "/a/../b"s, "/a//b"s, "/proc"s, "/proc/1/root"s,
                           "/sys/fs"s, "/dev/shm"s, "/"s + std::string(8'192, 'x')})
    CHECK(is_refused_with(EINVAL, path));
  INFO("of a slot that nobody has, of one without a drive, and of itself");
  CHECK(n.ask(wanted, "/data").error == ENOENT);
  wanted.count = other_slot;
  CHECK(n.ask(wanted, "/data").error == ENOENT);
  wanted.count = runtime::spawner::max_slots;
  CHECK(is_refused_with(EINVAL));
  wanted.count = empty_slot;
  for (const std::string name : {"..", "../sb-1001", "A", "a b"}) {
    std::memset(wanted.snapshot, 0, sizeof wanted.snapshot);
    name.copy(wanted.snapshot, sizeof wanted.snapshot - 1);
    CHECK(is_refused_with(EINVAL));
  }
  std::memset(wanted.snapshot, 0, sizeof wanted.snapshot);
  std::string{"none"}.copy(wanted.snapshot, sizeof wanted.snapshot - 1);
  CHECK(n.ask(wanted, "/data").error == ENOENT);
  wanted.flags = ~0u;
  CHECK(is_refused_with(EINVAL));
  wanted.flags = 0;
  wanted.owner = runtime::spawner::uids_per_slot;
  CHECK(is_refused_with(EINVAL));
  CHECK(works(agent));
  n.ask(n.request(spawner_op::destroy, other_slot));
  n.makes_sandboxes();
}

TEST_CASE("what is asked of slots that nobody has changes nothing", "[runtime][hostile]") {
  hostile_server n;
  const auto agent = n.make(other_slot);
  const auto at = [&](spawner_op what) {
    auto wanted = n.request(what, empty_slot);
    wanted.count = 1;
    return wanted;
  };
  CHECK(n.ask(at(spawner_op::destroy)).what == spawner_event::destroyed);
  CHECK(n.ask(at(spawner_op::claim)).error == ESRCH);
  CHECK(n.ask(at(spawner_op::open_sockets)).error == ESRCH);
  CHECK(n.ask(at(spawner_op::unmount)).error == ESRCH);
  CHECK(n.ask(at(spawner_op::charge_logs)).error == ESRCH);
  CHECK(n.ask(at(spawner_op::attach_drive), "/data").error == ESRCH);
  CHECK(n.ask(at(spawner_op::broker)).error == ESRCH);
  auto too_many = n.request(spawner_op::broker, other_slot);
  too_many.count = 2;
  CHECK(n.ask(too_many).error == EINVAL);
  n.send(at(spawner_op::hold), "label", {0});
  n.send(at(spawner_op::release));
  n.send(at(spawner_op::adopt));
  const auto of_disk = [&](spawner_op what, const std::string& name) {
    auto wanted = at(what);
    name.copy(wanted.snapshot, sizeof wanted.snapshot - 1);
    return n.ask(wanted);
  };
  CHECK(of_disk(spawner_op::flush_disk, "name").error == ESRCH);
  CHECK(of_disk(spawner_op::take_snapshot, "name").error == ESRCH);
  CHECK(of_disk(spawner_op::show_snapshot, "name").error == ESRCH);
  CHECK(of_disk(spawner_op::drop_snapshot, "name").error == 0);
  for (const auto what : {0u, 21u, 55u, 1u << 31, ~0u})
    n.send(n.request(static_cast<spawner_op>(what), other_slot), "text");
  CHECK(works(agent));
  n.ask(n.request(spawner_op::destroy, other_slot));
  n.makes_sandboxes();
}

TEST_CASE("a snapshot's name leads to no other volume", "[runtime][hostile]") {
  hostile_server n;
  const auto agent = n.make(other_slot);
  for (const std::string name : {"", ".", "..", "../sb-1001", "/etc", "sb_1", "A", "a b"}) {
    CAPTURE(name);
    for (const auto what : {spawner_op::flush_disk, spawner_op::take_snapshot,
                            spawner_op::show_snapshot, spawner_op::drop_snapshot}) {
      auto wanted = n.request(what, other_slot);
      name.copy(wanted.snapshot, sizeof wanted.snapshot - 1);
      CHECK(n.ask(wanted).error == EINVAL);
    }
    auto wanted = n.request(spawner_op::create, empty_slot);
    name.copy(wanted.snapshot, sizeof wanted.snapshot - 1);
    if (!name.empty())
      CHECK(is_refused(n.ask(wanted), spawner_event::create_failed, EINVAL));
  }
  auto wanted = n.request(spawner_op::create, empty_slot);
  std::memset(wanted.snapshot, 'a', sizeof wanted.snapshot); // Without an end.
  n.send(wanted);
  n.is_hung_up_on();
}

TEST_CASE("more descriptors, or more of a label, than are kept is not kept", "[runtime][hostile]") {
  hostile_server n;
  const auto agent = n.make(other_slot);
  const unique_fd null{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  const auto hold = [&](std::uint64_t name, std::size_t label, std::size_t count) {
    auto wanted = n.request(spawner_op::hold, other_slot);
    wanted.name = name;
    n.send(wanted, std::string(label, 'x'), std::vector<int>(count, null.get()));
  };
  hold(1, runtime::spawner::max_label, 4);
  hold(2, runtime::spawner::max_label + 1, 1);
  hold(3, 1, 5);
  hold(4, 1, 16);
  hold(5, 1, 60);
  hold(6, 1, 0);
  // Descriptors beside what takes none, and beside what cannot be read.
  n.send(n.request(spawner_op::adopt, other_slot), {}, {null.get()});
  n.send(n.request(spawner_op::release, other_slot), {}, {null.get()});
  CHECK(works(agent));
  const auto link = connect_to_spawner({n.node.state(), n.node.key()});
  REQUIRE(link);
  REQUIRE(link->survivors.size() == 1);
  REQUIRE(link->survivors[0].held.size() == 1);
  CHECK(link->survivors[0].held[0].name == 1);
  CHECK(link->survivors[0].held[0].fds.size() == 4);
}

TEST_CASE("a server whose packets cannot be read is hung up on", "[runtime][hostile]") {
  hostile_server n;
  const auto agent = n.make(other_slot); // The spawner has somebody, and does not end.
  const auto pid = n.node.spawner();
  const auto good = n.request(spawner_op::create, empty_slot);
  const auto hangs_up = [&](const std::string& packet, std::vector<int> fds = {}) {
    REQUIRE(n.spawner.send(packet, std::move(fds)));
    n.is_hung_up_on();
  };
  const auto changed = [&](auto change) {
    auto bad = good;
    change(bad);
    return std::string{as_bytes(bad)};
  };
  hangs_up(std::string(sizeof good - 1, '\0'));
  hangs_up(std::string(sizeof good + runtime::spawner::max_text + 1, '\0'));
  hangs_up("x", {0, 1, 2});
  hangs_up(changed([](auto& bad) { bad.slot = runtime::spawner::max_slots; }));
  hangs_up(changed([](auto& bad) { bad.slot = std::numeric_limits<std::uint32_t>::max(); }));
  hangs_up(changed([](auto& bad) { std::memset(bad.tree, 'x', sizeof bad.tree); }));
  hangs_up(changed([](auto& bad) { std::memset(bad.host_name, 'x', sizeof bad.host_name); }));
  hangs_up(changed([](auto& bad) { std::memset(bad.tag, 'x', sizeof bad.tag); }));
  hangs_up(changed([](auto& bad) { bad.what = spawner_op::hello; })); // Its second one.
  CHECK(n.node.spawner() == pid);
  CHECK(works(agent));
}

TEST_CASE("the end of a sandbox that is still to be made comes in place of its making",
          "[runtime][hostile]") {
  hostile_server n;
  const auto agent = n.make(other_slot); // The spawner has somebody, and does not end.
  auto wanted = n.request(spawner_op::create, good_slot),
       late = n.request(spawner_op::destroy, good_slot);
  wanted.epoch = 7;
  wanted.tag[0] = 'x';
  late.epoch = 6;
  auto older = n.request(spawner_op::create, empty_slot);
  older.epoch = 5;
  older.tag[0] = 'x';
  auto last = late;
  last.epoch = 7;
  // All of it is there before the spawner has time for a create.
  REQUIRE(::kill(n.node.spawner(), SIGSTOP) == 0);
  for (const auto& each : {wanted, wanted, late, older, last, wanted})
    n.send(each);
  REQUIRE(::kill(n.node.spawner(), SIGCONT) == 0);
  const auto is = [&](spawner_event what, std::uint32_t slot, int error) {
    const auto said = n.answer().first;
    CHECK(said.what == what);
    CHECK(said.slot == slot);
    CHECK(said.error == error);
  };
  is(spawner_event::create_failed, good_slot, EBUSY); // There is one that waits.
  is(spawner_event::destroyed, good_slot, ESTALE);
  is(spawner_event::create_failed, empty_slot, ESTALE);
  is(spawner_event::create_failed, good_slot, ECANCELED);
  is(spawner_event::destroyed, good_slot, 0);
  is(spawner_event::created, good_slot, 0);
  CHECK(works(agent));
  CHECK(n.ask(last).what == spawner_event::destroyed);
  n.makes_sandboxes();
}

TEST_CASE("a server that asks and does not read does not hold the next one up",
          "[runtime][hostile]") {
  hostile_server n;
  const auto agent = n.make(other_slot);
  auto wanted = n.request(spawner_op::destroy, empty_slot);
  for (int i = 0; i < 100'000; ++i)
    if (!n.spawner.send(as_bytes(wanted), {}, MSG_DONTWAIT))
      break; // The spawner waits for us to read.
  const auto link = connect_to_spawner({n.node.state(), n.node.key()});
  REQUIRE(link);
  CHECK(link->survivors.size() == 1);
  CHECK(works(agent));
}
