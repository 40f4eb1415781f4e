// Kernel memory that no cgroup is charged for: what keeps sandboxes from it, and what becomes of
// one that takes it all the same.
#include "runtime/machine_memory.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/given_back.hpp"
#include "tests/support/live_node.hpp"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t MiB = 1 << 20;

/// The watch takes seconds, and more where others on the machine give memory back meanwhile.
constexpr std::chrono::seconds patience{180};

/// Does something, takes COUNT locks, 400 of each file, says so, and waits. `and_more`: it takes 19
/// MiB of them every second then, for some seconds, since what others on the machine give back
/// hides as much.
std::string takes_locks(int count, bool and_more = false, const std::string& first = {}) {
  return "exec python3 -c \"\n"
         "import fcntl,os,time\n" +
         first +
         "files=[]\n"
         "def take(count):\n"
         " files.append(open(f'/tmp/lock{len(files)}','w'))\n"
         " for j in range(count):\n"
         "  fcntl.lockf(files[-1], fcntl.LOCK_EX|fcntl.LOCK_NB, 1, 2*(count-j))\n"
         "for i in range(" +
         std::to_string(count / 400) +
         "): take(400)\n"
         "print('taken', flush=True)\n" +
         (and_more ? "while len(files)<1000: take(10000); time.sleep(0.1)\n" : "") +
         "time.sleep(600)\"";
}

std::uint64_t kernel_memory() {
  return machine_meter{}.read().value().kernel;
}

} // namespace

TEST_CASE("a sandbox that takes the machine's memory by file locks is ended and told why",
          "[runtime][memory]") {
  wait_until_given_back();
  live_node node{{}, 32 * MiB};
  live_sandbox neighbour{node}, innocent{node};
  auto bystander = neighbour.start("echo here; exec sleep 600");
  bystander.says("here\n");
  auto database = innocent.start(takes_locks(100'000));
  database.says("taken\n");
  {
    live_sandbox culprit{node};
    auto attack = culprit.start(takes_locks(360'000, true));
    const auto how = attack.ended(patience);
    CHECK_FALSE(how.lost);
    CHECK(WIFSIGNALED(how.status));
    CHECK(WTERMSIG(how.status) == SIGKILL);
    CHECK(how.ended_for.starts_with("Sandbox ended: it holds kernel memory outside of its limit "
                                    "(file locks: "));
    CHECK(attack.finish().err == how.ended_for + "\n");
    culprit.wait_until_ended();
  }
  CHECK(neighbour.run("echo goes on").out == "goes on\n");
  CHECK(innocent.run("pgrep -c python3").out == "1\n");
  live_sandbox next{node};
  CHECK(next.run("ls /tmp").out.empty());
}

TEST_CASE("a directory deeper than a path can be long is no way out of a look",
          "[runtime][memory]") {
  wait_until_given_back();
  live_node node{{}, 32 * MiB};
  live_sandbox neighbour{node};
  {
    live_sandbox culprit{node};
    auto attack = culprit.start(takes_locks(360'000, true,
                                            "for i in range(3000):\n"
                                            " os.mkdir('d'); os.chdir('d')\n"
                                            "deep=os.open('.',os.O_RDONLY)\n"));
    const auto how = attack.ended(patience);
    CHECK(how.ended_for.starts_with("Sandbox ended: it holds kernel memory outside of its limit "
                                    "(file locks: "));
    culprit.wait_until_ended();
  }
  CHECK(neighbour.run("echo goes on").out == "goes on\n");
}

TEST_CASE("locks of files in memory and of processes that are gone are their sandbox's",
          "[runtime][memory]") {
  wait_until_given_back();
  live_node node{{}, 32 * MiB};
  live_sandbox neighbour{node};
  auto bystander = neighbour.start("exec sleep 600");
  const std::string lock =
    "import ctypes,fcntl,os,struct,time\n"
    "def lock(f,how):\n"
    " for j in range(1500): " // 260 MB of them: others on the machine give some memory back.
    "fcntl.fcntl(f,how,struct.pack('hhqqi',fcntl.F_WRLCK,0,2*(1500-j),1,0))\n";
  std::string script;
  SECTION("open file description locks of files in memory") {
    script = lock + "held=[]\n"
                    "for i in range(900): held.append(os.memfd_create('x')); lock(held[-1],37)\n"
                    "time.sleep(600)";
  }
  SECTION("by a child with the same descriptors, which has ended") {
    script = lock + "libc=ctypes.CDLL(None)\n"
                    "held=[open(f'/tmp/{i}','w') for i in range(900)]\n"
                    "if libc.syscall(56,0x400|17,0,0,0,0)==0:\n"
                    " for f in held: lock(f.fileno(),fcntl.F_SETLK)\n"
                    " os._exit(0)\n"
                    "os.wait()\n"
                    "time.sleep(600)";
  }
  {
    live_sandbox culprit{node};
    auto attack = culprit.start("exec python3 -c \"\n" + script + "\"");
    const auto how = attack.ended(patience);
    CHECK(how.ended_for.starts_with("Sandbox ended: it holds kernel memory outside of its limit "
                                    "(file locks: "));
    culprit.wait_until_ended();
  }
  CHECK(neighbour.run("echo goes on").out == "goes on\n");
}

TEST_CASE("root inside that has the machine remember the names of an image is ended and told why",
          "[runtime][memory]") {
  wait_until_given_back();
  live_node node{{}, 32 * MiB};
  live_sandbox box{node};
  auto attack =
    box.start("exec python3 -c \"\n"
              "import os,time\n"
              "place=max((d for d in os.scandir('/usr/lib') if d.is_dir(follow_symlinks=False)),"
              "key=lambda d:len(os.listdir(d.path))).path\n"
              "held=[]\n"
              "for h in range(900):\n"
              " os.close(os.open(f'{place}/change',os.O_CREAT|os.O_WRONLY))\n"
              " held.append(os.open(place,os.O_RDONLY)); os.listdir(held[-1])\n"
              " os.unlink(f'{place}/change')\n"
              "print('held',len(held),flush=True)\n"
              "time.sleep(600)\"",
              {0, 0});
  const auto how = attack.ended(patience);
  CHECK(how.ended_for.starts_with("Sandbox ended: it holds kernel memory outside of its limit "
                                  "(names of open directories: "));
  box.wait_until_ended();
}

TEST_CASE("names in the directories that the user may write take none of the machine's memory",
          "[runtime][memory]") {
  live_node node;
  live_sandbox box{node};
  const auto before = kernel_memory();
  // 20,000 long names in each, and 60 handles that have read them after a change.
  auto attack = box.start("exec python3 -c \"\n"
                          "import os,time\n"
                          "held=[]\n"
                          "for place in '/tmp','/workspace':\n"
                          " top=place+'/names'\n"
                          " for d in (top,place):\n"
                          "  os.makedirs(d,exist_ok=True)\n"
                          " for i in range(20000): os.mkdir(f'{place}/{i:0200}') if i%2 else "
                          "os.symlink('x',f'{place}/{i:0200}')\n"
                          " for h in range(60):\n"
                          "  os.close(os.open(f'{place}/change{h}',os.O_CREAT|os.O_WRONLY))\n"
                          "  held.append(os.open(place,os.O_RDONLY)); os.listdir(held[-1])\n"
                          "print('held',len(held),flush=True)\n"
                          "time.sleep(600)\"");
  attack.says("held 120\n");
  const auto after = kernel_memory();
  CAPTURE(before, after);
  CHECK(after < before + 400 * MiB); // Merged, they are over a GiB.
}

TEST_CASE("root inside that has the machine remember names is ended and told why",
          "[runtime][memory]") {
  wait_until_given_back();
  live_node node{{}, 32 * MiB};
  live_sandbox box{node};
  auto attack = box.start("exec python3 -c \"\n"
                          "import os,time\n"
                          "held=[]\n"
                          "for i in range(15000): os.symlink('x',f'/etc/{i:0200}')\n"
                          "for h in range(40):\n"
                          " os.close(os.open(f'/etc/change{h}',os.O_CREAT|os.O_WRONLY))\n"
                          " held.append(os.open('/etc',os.O_RDONLY)); os.listdir(held[-1])\n"
                          "time.sleep(600)\"",
                          {0, 0});
  const auto how = attack.ended(patience);
  CHECK(how.ended_for.starts_with("Sandbox ended: it holds kernel memory outside of its limit "
                                  "(names of open directories: "));
  box.wait_until_ended();
}

TEST_CASE("root by way of sudo that has the machine remember names is ended and told why",
          "[runtime][memory]") {
  wait_until_given_back();
  live_node node{{}, 32 * MiB};
  // An image without a place for sudo: of the layers below, that with sudo alone has it.
  const fs::path root = node.state() + "/images/.tree-7/root";
  for (const char* each : {"dev", "etc", "proc", "sys", "tmp", "usr", "workspace"})
    fs::create_directories(root / each);
  fs::copy_file(INSULA_ATTACK, root / "attack");
  auto spec = node.spec();
  spec.image = {".tree-7", false};
  spec.may_gain_rights = true;
  live_sandbox box{node, spec};
  process_spec attack;
  attack.argv = {"/attack", "directories", "/etc/sudoers.d", "40", "15000"};
  attack.user = {0, 0};
  const auto how = box.start(attack).ended(patience);
  CHECK(how.ended_for.starts_with("Sandbox ended: it holds kernel memory outside of its limit "
                                  "(names of open directories: "));
  box.wait_until_ended();
}

TEST_CASE(
  "root by way of sudo that has the machine remember lists of packages is ended and told why",
  "[runtime][memory]") {
  if (!fs::exists("/var/lib/dpkg/info"))
    return;
  wait_until_given_back();
  live_node node{{}, 32 * MiB};
  auto spec = node.spec();
  spec.may_gain_rights = true;
  live_sandbox box{node, spec};
  // The image has no names there: they come from the layer with the lists.
  auto attack = box.start("exec sudo python3 -c \"\n"
                          "import os,time\n"
                          "place='/var/lib/dpkg/info'\n"
                          "held=[]\n"
                          "for h in range(900):\n"
                          " os.close(os.open(f'{place}/change',os.O_CREAT|os.O_WRONLY))\n"
                          " held.append(os.open(place,os.O_RDONLY)); os.listdir(held[-1])\n"
                          " os.unlink(f'{place}/change')\n"
                          "print('held',len(held),flush=True)\n"
                          "time.sleep(600)\"");
  const auto how = attack.ended(patience);
  CHECK(how.ended_for.starts_with("Sandbox ended: it holds kernel memory outside of its limit "
                                  "(names of open directories: "));
  box.wait_until_ended();
}

TEST_CASE("files that an image has where the user may write are there", "[runtime][memory]") {
  live_node node;
  const fs::path root = node.state() + "/images/host/root";
  std::ofstream{root / "workspace/given"} << "in the workspace\n";
  std::ofstream{root / "home/sandbox/.profile"} << "at home\n";
  fs::create_directory(root / "srv/many");
  REQUIRE(::chown((root / "srv/many").c_str(), 1000, 1000) == 0);
  for (int i = 0; i < 100; ++i)
    std::ofstream{root / "srv/many" / std::to_string(i)};
  live_sandbox box{node};
  CHECK(box.run("cat /workspace/given /home/sandbox/.profile").out ==
        "in the workspace\nat home\n");
  CHECK(box.run("ls /srv/many | wc -l").out == "100\n");
  CHECK(box.run("stat -c '%a %u %g' /tmp /var/tmp /workspace /home/sandbox /home").out ==
        "1777 0 0\n1777 0 0\n755 1000 1000\n755 1000 1000\n755 0 0\n");
  CHECK(box.run("rm /workspace/given && ls -A /workspace").out.empty());
  CHECK(fs::exists(root / "workspace/given"));
}

TEST_CASE("buffers of sockets are within a sandbox's memory or a limit of the same size",
          "[runtime][memory]") {
  live_node node;
  auto limits = node.spec().limits;
  limits.memory_bytes = 128 * MiB;
  live_sandbox box{node, limits};
  // Both ends fill up what the kernel gives them.
  const auto got = box.run("exec python3 -c \"\n"
                           "import socket\n"
                           "s=socket.create_server(('127.0.0.1',0)); held=[]; sent=0\n"
                           "for i in range(200):\n"
                           " c=socket.create_connection(s.getsockname()); p,_=s.accept()\n"
                           " held+=[c,p]; c.setblocking(False)\n"
                           " try:\n"
                           "  while True: sent+=c.send(b'x'*65536)\n"
                           " except BlockingIOError: pass\n"
                           "print(sent>>20)\"");
  CAPTURE(got.out, got.err, got.how.status);
  // It goes on with less, or has met the limit of its memory.
  const bool ended = got.killed_by(SIGKILL) || got.exited(137);
  // Each socket has a little in any case. Without a limit it is 2 GiB.
  CHECK((ended || std::stoul(got.out) <= 192));
}
