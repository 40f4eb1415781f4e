// What a program inside can do, as the sandbox's user and as its root: all of it written down.
#include "tests/support/catch.hpp"
#include "tests/support/file_channel.hpp"
#include "tests/support/live_node.hpp"

#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <netinet/in.h>
#include <sstream>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
using namespace std::string_literals;

namespace {

constexpr sandbox_user root{0, 0};

/// One line of expected.tsv.
struct expectation {
  std::string name, as_user, as_root, with_sudo, by_sudo;
};

std::vector<expectation> expectations() {
  std::ifstream file{INSULA_EXPECTED};
  std::vector<expectation> all;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#'))
      continue;
    std::istringstream columns{line};
    auto& each = all.emplace_back();
    std::getline(columns, each.name, '\t');
    std::getline(columns, each.as_user, '\t');
    std::getline(columns, each.as_root, '\t');
    std::getline(columns, each.with_sudo, '\t');
    std::getline(columns, each.by_sudo, '\t');
  }
  REQUIRE(all.size() > 200);
  return all;
}

/// `by`: what runs the probe.
std::map<std::string, std::string> probed(live_sandbox& box, sandbox_user user,
                                          const std::string& by = {}) {
  std::ifstream file{INSULA_PROBE, std::ios::binary};
  const std::string program{std::istreambuf_iterator<char>{file}, {}};
  REQUIRE(write_file(*box, "/workspace/probe", program).head.error == 0);
  REQUIRE(box.run("chmod 755 probe").exited(0));
  // A server of the host's in the abstract space of names, which the probe looks for.
  const unique_fd listener{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  constexpr char name[] = "\0insula-probe-host";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name, sizeof name - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + sizeof name - 1);
  const bool listens =
    ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
    ::listen(listener.get(), 1) == 0;
  CHECK((listens || errno == EADDRINUSE)); // Another test's does as well.
  const auto ran = box.run(by + "./probe", user);
  REQUIRE(ran.exited(0));
  std::map<std::string, std::string> got;
  std::istringstream lines{ran.out};
  for (std::string line; std::getline(lines, line);)
    got[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
  return got;
}

/// `wanted`: one word, or some with " or " between.
bool is_one_of(const std::string& found, const std::string& wanted) {
  constexpr std::string_view between = " or ";
  for (std::size_t from = 0;;) {
    const auto end = wanted.find(between, from);
    if (wanted.substr(from, end - from) == found)
      return true;
    if (end == std::string::npos)
      return false;
    from = end + between.size();
  }
}

void compare(std::map<std::string, std::string> got, bool as_root, bool gains = false) {
  for (const auto& each : expectations()) {
    const auto& wanted =
      gains ? (as_root ? each.by_sudo : each.with_sudo) : (as_root ? each.as_root : each.as_user);
    const auto found = got.contains(each.name) ? got[each.name] : "not tried";
    INFO(each.name << " is " << found << " and should be " << wanted);
    if (wanted != "-")
      CHECK(is_one_of(found, wanted));
    got.erase(each.name);
  }
  for (const char* name : {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}) {
    CAPTURE(name);
    struct stat ours {};
    REQUIRE(::stat(("/proc/self/ns/" + std::string{name}).c_str(), &ours) == 0);
    CHECK(got["ns_" + std::string{name}] != std::to_string(ours.st_ino));
    got.erase("ns_" + std::string{name});
  }
  const auto take = [&](const std::string& name) {
    auto value = got[name];
    got.erase(name);
    return value;
  };
  CHECK(take("uid_map") == "0 shifted 65536");
  CHECK(take("descriptors") == "3");
  CHECK(take("interfaces") == "1");
  CHECK(take("NoNewPrivs") == (gains ? "0" : "1"));
  CHECK(take("Seccomp") == "2");
  // chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service,
  // sys_chroot, audit_write, setfcap
  const std::string kept = "00000000a00405fb", none = "0000000000000000";
  CHECK(take("CapBnd") == kept);
  CHECK(take("CapPrm") == (as_root ? kept : none));
  CHECK(take("CapEff") == (as_root ? kept : none));
  CHECK(take("CapInh") == none);
  CHECK(take("CapAmb") == none);
  for (const auto& [name, value] : got)
    FAIL_CHECK(name << "=" << value << " is not in the table");
}

} // namespace

TEST_CASE("the sandbox's user can do what the table says, and nothing else",
          "[runtime][isolation]") {
  live_sandbox box{shared_node()};
  compare(probed(box, {}), false);
  CHECK(box.run("echo works").out == "works\n");
}

TEST_CASE("root inside can do what the table says, and nothing else", "[runtime][isolation]") {
  live_sandbox box{shared_node()};
  compare(probed(box, root), true);
  CHECK(box.run("echo works").out == "works\n");
}

TEST_CASE("where users may become root, they and it can do what the table says, and nothing else",
          "[runtime][isolation]") {
  auto spec = shared_node().spec();
  spec.may_gain_rights = true;
  // One for each, as the probe leaves things behind.
  live_sandbox box{shared_node(), spec}, other{shared_node(), spec}, third{shared_node(), spec};
  compare(probed(box, {}), false, true);
  compare(probed(other, root), true, true);
  compare(probed(third, {}, "sudo "), true, true);
  CHECK(third.run("echo works").out == "works\n");
}

TEST_CASE("where the configuration says so, processes inside load no filters of system calls",
          "[runtime][isolation]") {
  native_options options;
  options.seccomp_filters = false;
  live_node node{std::move(options)};
  live_sandbox box{node};
  auto got = probed(box, {});
  CHECK(got["own_filter"] == "EINVAL");
  CHECK(got["own_filter_by_prctl"] == "EINVAL");
  CHECK(got["unknown_call"] == "ENOSYS"); // Its own filter is there all the same.
}

TEST_CASE("a browser says that it cannot sandbox itself, and runs without",
          "[runtime][isolation]") {
  constexpr const char* program = "/usr/lib/chromium/chromium"; // /usr/bin has a script for it.
  REQUIRE(::access(program, X_OK) == 0);
  sandbox_limits roomy = shared_node().spec().limits;
  roomy.memory_bytes = 1u << 30;
  roomy.processes = 512;
  live_sandbox box{shared_node(), roomy};
  const auto browse = [&](const std::string& with) {
    return box.run(std::string{program} +
                   " --headless --disable-gpu --disable-dev-shm-usage --user-data-dir=/tmp/b " +
                   with + " --dump-dom 'data:text/html,<p>shown</p>'");
  };
  const auto sandboxed = browse("");
  CHECK(sandboxed.how.status != 0);
  CHECK(sandboxed.err.find("No usable sandbox!") != std::string::npos);
  const auto shown = browse("--no-sandbox");
  CAPTURE(shown.err);
  CHECK(shown.exited(0));
  CHECK(shown.out.find("<p>shown</p>") != std::string::npos);
}

TEST_CASE("nothing of the host is there but its /usr", "[runtime][isolation]") {
  live_sandbox box{shared_node()};
  const auto secret = shared_node().state() + "/host-file";
  { std::ofstream{secret} << "secret"; }
  CHECK(box.run("ls -A /", root).out == [] {
    std::string all = "bin\ndev\netc\nhome\nlib\n";
    for (const char* name : {"lib32", "lib64", "libx32"})
      if (std::filesystem::is_symlink(std::string{"/"} + name))
        all += name + std::string{"\n"};
    return all + "media\nmnt\nopt\nproc\nroot\nrun\nsbin\nsrv\nsys\ntmp\nusr\nvar\nworkspace\n";
  }());
  CHECK_FALSE(box.run("ls " + secret, root).exited(0));
  CHECK(box
          .run("ls -A /root /tmp /var/tmp /opt /srv /mnt /run/lock /workspace | grep "
               "-v :$ | grep .",
               root)
          .out.empty());
  // Nobody has a password, and of the machine's people there is none.
  CHECK(box.run("cut -d: -f2 /etc/shadow /etc/gshadow | sort -u", root).out == "*\n");
  CHECK(box.run("stat -c '%a %u %g' /etc/shadow /etc/gshadow").out == "640 0 42\n640 0 42\n");
  CHECK(box.run("cut -d: -f1 /etc/passwd").out.starts_with("root\ndaemon\nbin\nsandbox\nnobody\n"));
  CHECK(box.run("awk -F: '$3 >= 1000 { print $1 }' /etc/passwd").out == "sandbox\nnobody\n");
  CHECK(box
          .run("for field in 1 3; do for each in passwd group; do cut -d: -f$field /etc/$each | "
               "sort | uniq -d; done; done")
          .out.empty());
  CHECK(box.run("ls -A /home/sandbox").out == ".local\n.profile\n");
  CHECK(
    box.run("grep -vxe 'root ALL=(ALL:ALL) ALL' -e '@includedir /etc/sudoers.d' /etc/sudoers",
            root)
      .out.empty()); // Not the machine's, if there is one.
  CHECK(box.run("ls /etc/ssh/ssh_host_* /etc/ssl/private 2>/dev/null", root).out.empty());
  std::string machine_id;
  std::getline(std::ifstream{"/etc/machine-id"}, machine_id);
  CHECK(box.run("cat /etc/machine-id").out.size() == 33);
  CHECK(box.run("cat /etc/machine-id").out != machine_id + "\n");
  CHECK(box
          .run("grep -rl insula-nodes /proc/self/mountinfo /proc/self/mounts /proc/1/mountinfo "
               "/proc/self/cgroup",
               root)
          .out.empty());
  std::filesystem::remove(secret);
}

TEST_CASE("what is written over the host's /usr stays in the sandbox", "[runtime][isolation]") {
  live_sandbox box{shared_node()};
  live_sandbox other{shared_node()};
  REQUIRE(
    box
      .run("echo changed > /usr/share/insula-probe; rm /usr/bin/env; ls /usr/share/insula-probe",
           root)
      .exited(0));
  CHECK(std::filesystem::exists("/usr/bin/env"));
  CHECK_FALSE(std::filesystem::exists("/usr/share/insula-probe"));
  CHECK_FALSE(other.run("ls /usr/share/insula-probe").exited(0));
  CHECK(other.run("ls /usr/bin/env").exited(0));
}

TEST_CASE("sandboxes see neither each other nor the host", "[runtime][isolation]") {
  live_sandbox one{shared_node()}, other{shared_node()};
  auto there = other.start("echo up; exec sleep 4715");
  there.says("up");
  CHECK(one.run("pgrep -f 'sleep 471[5]'", root).out.empty());
  CHECK(one.run("ps -e --no-headers | wc -l").out ==
        "5\n"); // The agent and its starter, the shell, ps, wc.
  CHECK(one.run("cat /proc/self/uid_map").out != other.run("cat /proc/self/uid_map").out);
  one.run("ipcmk -M 1000; echo here > /tmp/x; echo here > /dev/shm/x");
  CHECK(other.run("ls /tmp /dev/shm | grep x").out.empty());
  CHECK(other.run("ipcs -m | grep -c 0x").out == "0\n");
  CHECK(one.run("hostname").out == "test\n");

  // A server on the host's loopback, and one by a name in the abstract space.
  const unique_fd listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  socklen_t size = sizeof address;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const auto port = std::to_string(ntohs(address.sin_port));
  CHECK_FALSE(one.run("exec 5<>/dev/tcp/127.0.0.1/" + port).exited(0));
  CHECK(one.run("cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '").out == "lo\n");
  // Its own loopback is up.
  CHECK(one
          .run("python3 -c \"import socket; s = socket.create_server(('127.0.0.1', 8080)); "
               "c = socket.create_connection(('127.0.0.1', 8080)); print('connected')\"")
          .out == "connected\n");
}

TEST_CASE("locks, watches and times of devices stay in their sandbox", "[runtime][isolation]") {
  live_sandbox one{shared_node()}, other{shared_node()};
  auto watcher = one.start(R"(exec python3 -c "
import ctypes, os, time
watch = ctypes.CDLL(None).inotify_init1(os.O_NONBLOCK)
ctypes.CDLL(None).inotify_add_watch(watch, b'/dev/full', 0xfff)
print('up', flush=True)
while not os.path.exists('/workspace/go'): time.sleep(.01)
try: print(len(os.read(watch, 65536)))
except BlockingIOError: print('nothing', flush=True)
")");
  watcher.says("up");
  std::vector<unique_fd> ours;
  std::vector<live_command> holders;
  const std::vector<std::string> nodes{"null", "zero", "full", "random", "urandom", "tty"};
  for (const auto& name : nodes)
    if (name != "full") {
      holders.push_back(
        one.start("exec 9</dev/" + name + " && flock -n 9 && echo up; exec sleep 99"));
      if (name == "tty") // It cannot be opened without one.
        continue;
      holders.back().says("up");
      ours.emplace_back(::open(("/dev/" + name).c_str(), O_RDONLY | O_CLOEXEC));
      CHECK(::flock(ours.back().get(), LOCK_SH | LOCK_NB) == 0);
      CHECK(other.run("flock -n /dev/" + name + " echo free").out == "free\n");
      CHECK(one.run("flock -n /dev/" + name + " echo free").out.empty());
    }
  // What a command is given as its stdin, and what covers files of /proc, is not the machine's
  // either.
  CHECK(other.run("flock -n 0 && echo free").out == "free\n");
  CHECK(other.run("flock -n /proc/kallsyms echo free").out == "free\n");
  for (int i = 0; i < 20; ++i)
    ours.emplace_back(::open("/dev/full", O_RDONLY | O_CLOEXEC));
  CHECK(other.run("for i in {1..20}; do : </dev/full; done").exited(0));
  CHECK(one.run("touch go").exited(0));
  CHECK(watcher.finish().out == "up\nnothing\n");

  for (const auto& name : nodes) {
    struct stat machines {};
    CHECK_FALSE(one.run("touch -d @1000 /dev/" + name, root).exited(0));
    REQUIRE(::stat(("/dev/" + name).c_str(), &machines) == 0);
    CHECK(machines.st_mtim.tv_sec != 1000);
    CHECK(other.run("stat -c %Y /dev/" + name).out != "1000\n");
  }
  CHECK(other.run("stat -c '%A %t:%T %n' /dev/{null,zero,full,random,urandom,tty}").out ==
        "crw-rw-rw- 1:3 /dev/null\ncrw-rw-rw- 1:5 /dev/zero\n"
        "crw-rw-rw- 1:7 /dev/full\ncrw-rw-rw- 1:8 /dev/random\n"
        "crw-rw-rw- 1:9 /dev/urandom\ncrw-rw-rw- 5:0 /dev/tty\n");
}

TEST_CASE("root inside adds files to /dev, and takes no device away", "[runtime][isolation]") {
  live_sandbox box{shared_node()};
  for (const auto* each : {"null", "zero", "full", "random", "urandom", "tty", "pts", "stdin"}) {
    const auto path = "/dev/"s + each;
    CAPTURE(path);
    CHECK_FALSE(box.run("rm -rf " + path, root).exited(0));
    CHECK_FALSE(box.run("mv " + path + " /dev/other", root).exited(0));
    CHECK_FALSE(box.run(": >/dev/file; mv -T /dev/file " + path, root).exited(0));
  }
  CHECK_FALSE(box.run("chmod 0 /dev/null", root).exited(0));
  CHECK_FALSE(box.run("chmod 0777 /dev", root).exited(0));
  CHECK(box.run("echo x >/dev/new && rm /dev/new && mkdir /dev/d && rmdir /dev/d", root).exited(0));
  CHECK_FALSE(box.run("echo x >/dev/new").exited(0));
  CHECK(box.run("cat; head -c 2 /dev/zero | wc -c; echo x >/dev/null; echo works").out ==
        "2\nworks\n");
}

TEST_CASE("/sys has what programs look for, and nothing of disks or of other sandboxes",
          "[runtime][isolation]") {
  live_sandbox box{shared_node()};
  CHECK(
    box.run("ls /sys; ls /sys/class /sys/fs /sys/kernel/ /sys/devices /sys/devices/virtual", root)
      .out ==
    "class\ndevices\nfs\nkernel\n/sys/class:\nnet\n\n/sys/devices:\nsystem\nvirtual\n\n"
    "/sys/devices/virtual:\nnet\n\n/sys/fs:\nbpf\ncgroup\nsandboxes\n\n/sys/kernel/:\nmm\n");
  CHECK(box.run("ls /sys/class/net; cat /sys/class/net/lo/address").out ==
        "lo\n00:00:00:00:00:00\n");
  for (const auto& gone : {"block", "fs/btrfs", "firmware", "kernel/vmcoreinfo", "kernel/btf",
                           "kernel/slab", "module", "bus", "dev", "devices/virtual/block"})
    CHECK_FALSE(box.run("ls -d /sys/"s + gone, root).exited(0));
  // Neither the place of the node's files nor the device that they are on.
  CHECK(box
          .run("find /sys /proc/[!0-9]* -maxdepth 6 -type f -size -1M ! -name kmsg "
               "-exec timeout 2 grep -lsE 'insula-nodes|disk.btrfs' {} +",
               root)
          .out.empty());
  for (const char* name :
       {"cmdline", "diskstats", "partitions", "modules", "iomem", "ioports", "locks", "swaps",
        "zoneinfo", "buddyinfo", "config.gz", "schedstat", "mdstat"})
    CHECK(box.run("test ! -e /proc/"s + name + " || wc -c </proc/" + name, root)
            .out.find_first_not_of("0\n") == std::string::npos);
  for (const char* name : {"fs", "bus", "irq", "acpi"})
    CHECK(box.run("ls -A /proc/"s + name, root).out.empty());
  for (const char* name : {"slabinfo", "vmallocinfo", "pagetypeinfo", "kpagecount"})
    CHECK(box.run("cat /proc/"s + name, root).out.empty());
  CHECK_FALSE(
    box.run("mkdir /sys/x || mkdir /sys/fs/cgroup/x || mkdir /proc/irq/x", root).exited(0));
  // The controllers, but not how many groups the machine has.
  CHECK(box.run("awk 'NR > 1 && $3 != 1' /proc/cgroups; head -c 7 /proc/cgroups", root).out ==
        "#subsys");
}

TEST_CASE("a sandbox sees its own group alone and changes nothing there", "[runtime][isolation]") {
  live_sandbox box{shared_node()};
  live_sandbox other{shared_node()};
  // Groups are directories, and there is none below.
  CHECK(box.run("find -L /sys/fs/cgroup -mindepth 2 -type d", root).out.empty());
  CHECK(box.run("cat /sys/fs/cgroup/pids.current").out.size() <= 3);
  // Also by the path that the kernel tells, which some programs follow.
  CHECK(box.run("cat /sys/fs/cgroup/$(sed -n 's/^0:://p' /proc/self/cgroup)/memory.max").out ==
        box.run("cat /sys/fs/cgroup/memory.max").out);
  const auto writable = box.run("find -L /sys/fs/cgroup /sys/devices/system/cpu -writable", root);
  CHECK(writable.out.empty());
  CHECK_FALSE(box
                .run("for each in $(find -L /sys/fs/cgroup -type f) "
                     "/sys/devices/system/cpu/online; do "
                     "echo 0 2>/dev/null >>$each && echo $each && exit 0; done; exit 1",
                     root)
                .exited(0));
}

TEST_CASE("programs that look at the machine find what they need", "[runtime][isolation]") {
  live_sandbox box{shared_node()};
  const auto count = std::to_string(::sysconf(_SC_NPROCESSORS_ONLN)) + "\n";
  CHECK(box.run("nproc").out == count);
  CHECK(box.run("lscpu -p=CPU | grep -vc '#'").out == count);
  CHECK(box.run("lscpu | grep -c 'Model name'").out == "1\n");
  CHECK(box.run("free -b | awk '/^Mem/ { print ($2 > 0) }'").out == "1\n");
  CHECK(box.run("ps -e | grep -c ps").exited(0));
  CHECK(box.run("top -bn1 | head -3 | grep -c Tasks").out == "1\n");
  CHECK(box.run("vmstat | wc -l").out == "3\n");
  CHECK(
    box.run("uptime && df -h / /dev/shm && mount && cat /proc/loadavg /proc/meminfo").exited(0));
  CHECK(box.run("python3 -c 'import os, multiprocessing; print(os.cpu_count())'").out == count);
  if (box.run("command -v ip").exited(0))
    CHECK(box.run("ip -o link | wc -l; ip route").out.starts_with("1\n"));
  if (box.run("command -v node").exited(0))
    CHECK(box.run("node -p 'os.cpus().length'").out == count);
  CHECK(box.run("test -e /sys/devices/system/cpu/online && cat /proc/cmdline | wc -c").out ==
        "0\n");
}

namespace {

/// A directory below the machine's /usr, gone when this is.
struct part_of_usr {
  part_of_usr() {
    REQUIRE(::mkdtemp(path.data()) != nullptr);
    ::chmod(path.c_str(), 0755);
  }
  ~part_of_usr() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  void file(const std::string& name, mode_t mode) const {
    std::ofstream{path + "/" + name} << "text";
    REQUIRE(::chmod((path + "/" + name).c_str(), mode) == 0);
  }
  void directory(const std::string& name, mode_t mode) const {
    std::filesystem::create_directory(path + "/" + name);
    REQUIRE(::chmod((path + "/" + name).c_str(), mode) == 0);
  }
  std::string path = "/usr/local/share/insula-test-XXXXXX";
};

} // namespace

TEST_CASE("root inside reads nothing below /usr that only the machine's root may read",
          "[runtime][isolation]") {
  const part_of_usr usr;
  usr.file("open", 0644);
  usr.file("secret", 0600);
  usr.file("of a group", 0640);
  usr.file("setuid", 04711);
  usr.directory("closed", 0700);
  usr.file("closed/inner", 0644);
  usr.directory("unlisted", 0711);
  usr.directory("sub", 02775);
  usr.file("sub/secret", 0400);
  usr.file("sub/open", 0444);
  std::filesystem::create_symlink("/etc/shadow", usr.path + "/link");
  const timespec long_ago[] = {{1000, 0}, {1000, 0}};
  REQUIRE(::utimensat(AT_FDCWD, (usr.path + "/sub").c_str(), long_ago, 0) == 0);
  REQUIRE(::chown((usr.path + "/sub").c_str(), 3, 4) == 0);
  REQUIRE(::chmod((usr.path + "/sub").c_str(), 02775) == 0);

  live_node node;
  live_sandbox box{node};
  CHECK(box.run("cd " + usr.path + " && find . | sort && cat open sub/open", root).out ==
        ".\n./link\n./open\n./sub\n./sub/open\ntexttext");
  CHECK(box.run("stat -c '%a %u %g %Y' " + usr.path + "/sub", root).out == "2775 3 4 1000\n");
  CHECK(box.run("stat -c '%a %u %g' /usr " + usr.path, root).out == "755 0 0\n755 0 0\n");
  CHECK(
    box.run("find /usr -xdev ! -type l ! -perm -o+r ! -path '*/insula-test-*'", root).out.empty());
  for (const auto* name : {"secret", "closed", "closed/inner", "setuid", "sub/secret"}) {
    CHECK_FALSE(box.run("cat '" + usr.path + "/" + name + "'", root).exited(0));
    CHECK_FALSE(box.run("ln '" + usr.path + "/" + name + "' /usr/x", root).exited(0));
  }
  // The names are the sandbox's to use.
  CHECK(box
          .run("cd " + usr.path +
                 " && echo mine >secret && mkdir closed && echo mine "
                 ">closed/inner && cat secret closed/* && rm -r secret closed sub && ls",
               root)
          .out == "mine\nmine\nlink\nopen\n");
  CHECK(std::filesystem::file_size(usr.path + "/secret") == 4);
}

TEST_CASE("a setuid program gives nothing", "[runtime][isolation]") {
  live_sandbox box{shared_node()};
  REQUIRE(
    box.run("cp /usr/bin/id /usr/local/bin/suid-id && chmod 4755 /usr/local/bin/suid-id", root)
      .exited(0));
  CHECK(box.run("/usr/local/bin/suid-id -u").out == "1000\n");
}

TEST_CASE("a thousand sockets, terminals and files in /dev are the sandbox's own trouble",
          "[runtime][isolation]") {
  live_sandbox box{shared_node()}, other{shared_node()};
  box.run("python3 -c \"import os\nfor i in range(5000):\n try: os.openpty()\n except OSError as "
          "e: print(e); break\"");
  box.run("python3 -c \"import socket\na = []\nfor i in range(5000): a.append(socket.socket())\"");
  const auto inodes = box.run("cd /dev/shm; for i in {1..70000}; do : > $i; done 2>&1 | head -1");
  CHECK(inodes.out.find("No space left") != std::string::npos);
  box.run("for i in {1..100}; do : > /dev/file$i; done", root);
  CHECK(box.run("echo works").out == "works\n");
  CHECK(other.run("echo works > /dev/shm/x; cat /dev/shm/x").out == "works\n");
}
