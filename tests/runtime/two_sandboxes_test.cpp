// Two sandboxes at once, as two that agreed to meet or to be in each other's way would do it: what
// one holds, watches and offers by all names that both have, the other one does not find.
#include "tests/support/catch.hpp"
#include "tests/support/live_node.hpp"

#include <csignal>
#include <string>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;

namespace {

constexpr sandbox_user root{0, 0}, user{};

/// What both know, for python3.
constexpr const char* both = R"(
import ctypes, errno, fcntl, os, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
files = ['/dev/null', '/dev/zero', '/dev/full', '/dev/random', '/dev/urandom', '/usr/bin/env', '/usr/bin/bash',
         '/etc/passwd', '/etc/hosts', '/proc/version', '/proc/self/status', '/sys/devices/system/cpu/online',
         '/proc/cgroups', '/sys/fs/cgroup/cpu.max', '/sys/fs/cgroup/memory.max', '/usr', '/etc', '/tmp', '/dev/shm', '/']
files += [each for each in ('/sys/fs/cgroup/cpuset', '/sys/fs/cgroup/cpuacct') if os.path.isdir(each)]
key, name = 0x5157, b'/insula-two'
def check(call, *words):
    got = call(*words)
    return errno.errorcode[ctypes.get_errno()] if got < 0 else 'found'
)";

/// Locks, watches, listens, has segments, queues and semaphores; says "up", at SIGUSR1 what its
/// watches and signals have told it, and stays.
constexpr const char* holder = R"(
held = []
for path in files:
    file = os.open(path, os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    held.append(file)
    # Of another open file, so that the one above stays as it is.
    file = os.open(path, os.O_RDWR if path in ('/dev/null', '/dev/zero', '/dev/full') else os.O_RDONLY)
    try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError: # Read-only: nobody else may write.
        try: fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError: pass
    held.append(file)
watch = libc.inotify_init1(os.O_NONBLOCK)
for path in files:
    # Into the directories of groups the machine's own programs look as well.
    if path.startswith('/sys/fs/cgroup/') and os.path.isdir(path): continue
    if not path.startswith('/proc/self') and libc.inotify_add_watch(watch, path.encode(), 0xfff) < 0: sys.exit(path)
abstract = socket.socket(socket.AF_UNIX); abstract.bind('\0insula-two'); abstract.listen()
loopback = socket.create_server(('127.0.0.1', 4712))
segment = libc.shmget(key, 4096, 0o1666); libc.semget(key, 1, 0o1666); libc.msgget(key, 0o1666)
libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o666, None)
try: os.read(watch, 1 << 20) # Its own doings so far.
except BlockingIOError: pass
got = []
for number in signal.SIGIO, signal.SIGUSR1: signal.signal(number, lambda number, _: got.append(number))
print('up', segment, os.getpid(), flush=True)
while signal.SIGUSR1 not in got: time.sleep(.01)
got.remove(signal.SIGUSR1)
try: print('seen', os.read(watch, 1 << 20).hex(), *got, 'end', flush=True)
except BlockingIOError: print('seen nothing', *got, 'end', flush=True)
while True: time.sleep(600)
)";

/// The other one's: prints whatever is in its way.
constexpr const char* seeker = R"(
for path in files:
    for how in (os.O_RDONLY, os.O_RDWR if path in ('/dev/null', '/dev/zero', '/dev/full') else os.O_RDONLY):
        file = os.open(path, how)
        try: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as why: print('flock', path, why)
        asked = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)
        if struct.unpack('hhqqi4x', fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK: print('lock', path)
        os.close(file)
    try: os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(16)
    except OSError: pass
for place in ('/tmp', '/dev/shm', '/workspace'):
    open(place + '/made', 'w').write('x'); os.rename(place + '/made', place + '/moved'); os.remove(place + '/moved')
for path in files[:3]: open(path, 'rb').close()
for family, where in (socket.AF_UNIX, '\0insula-two'), (socket.AF_INET, ('127.0.0.1', 4712)):
    try: socket.socket(family).connect(where); print('connected', where)
    except ConnectionRefusedError: pass
for what, said in (('shmget', check(libc.shmget, key, 0, 0)), ('semget', check(libc.semget, key, 0, 0)),
                   ('msgget', check(libc.msgget, key, 0)), ('mq_open', check(libc.mq_open, name, os.O_RDWR))):
    if said != 'ENOENT': print(what, said)
if libc.shmctl(int(sys.argv[1]), 2, ctypes.create_string_buffer(512)) >= 0: print('shmctl found it')
for number in range(0, 100000): # As the machine numbers them, or as the other one does.
    if number in (0, os.getpid(), os.getppid(), 1, 2): continue
    try: os.kill(number, 0); print('kill', number)
    except OSError as why:
        if why.errno != errno.ESRCH: print('kill', number, why)
for number in map(int, sys.argv[2:]):
    if number == os.getpid(): continue # Both may have the same.
    for what, said in (('pidfd_open', check(libc.syscall, 434, number, 0)),
                       ('tgkill', check(libc.syscall, 234, number, number, signal.SIGIO)),
                       ('ptrace', check(libc.ptrace, 16, number, 0, 0))):
        if said != 'ESRCH': print(what, number, said)
    pair = socket.socketpair()
    try: fcntl.fcntl(pair[0], fcntl.F_SETOWN, number); print('owner', number)
    except OSError as why:
        if why.errno != errno.ESRCH: print('owner', number, why)
for path in '/proc/locks', '/proc/net/unix', '/proc/net/tcp', '/proc/sysvipc/shm', '/proc/sysvipc/sem', '/proc/sysvipc/msg', '/proc/keys':
    try: text = open(path).read()
    except OSError: continue
    for mark in 'insula-two', '0100007F:1268', ' %d ' % key, '%08x' % key, 'POSIX', 'FLOCK':
        if mark in text: print(path, mark)
print('done')
)";

std::string python(const std::string& program, const std::string& words = "") {
  return "exec python3 - " + words + " <<'PROGRAM'\n" + both + program + "\nPROGRAM";
}

/// All that /sys says, but for what the machine as a whole is busy with and for the sandbox's own
/// use: reading counts there.
constexpr const char* all_of_sys =
  "find /sys -type f ! -path '/sys/devices/system/node/*' ! -path '*/cpufreq/*' "
  "! -path '*/cpuidle/*' ! -path '*/thermal_throttle/*' ! -path '/sys/class/net/*/statistics/*' "
  "! -path '/sys/devices/virtual/net/*/statistics/*' "
  "! -path '/sys/fs/cgroup/memory*' ! -path '/sys/fs/cgroup/pids*' ! -path '/sys/fs/cgroup/cpu/*' "
  "! -path '/sys/fs/cgroup/cpu.*' ! -path '/sys/fs/cgroup/cgroup.*' -print "
  "-exec timeout 5 head -c 4096 {} \\; 2>/dev/null | sha256sum";

} // namespace

TEST_CASE("what one sandbox locks, watches and offers, the other does not find",
          "[runtime][isolation]") {
  for (const auto who : {user, root}) {
    CAPTURE(who.uid);
    live_sandbox one{shared_node()}, other{shared_node()};
    auto there = one.start(python(holder), who);
    const auto up = there.says("\n");
    REQUIRE(up.starts_with("up "));
    const auto segment = up.substr(3, up.find(' ', 3) - 3);
    const auto own_number = up.substr(up.rfind(' ') + 1, up.size() - up.rfind(' ') - 2);
    // Processes of the machine: this one, and others at the beginning.
    const auto words = segment + " " + own_number + " " + std::to_string(::getpid());
    const auto sought = other.run(python(seeker, words), who);
    CAPTURE(sought.err);
    CHECK(sought.out == "done\n");
    there.process().signal(SIGUSR1);
    CHECK_THAT(there.says("end\n"), Catch::Matchers::EndsWith("seen nothing end\n"));
    // Whoever is in the same sandbox finds all of it.
    const auto found = one.run(python(seeker, words), who).out;
    for (const auto* each :
         {"flock /dev/null", "flock /usr/bin/env", "lock /dev/full", "connected", "shmget",
          "semget", "msgget", "mq_open", "shmctl", "kill ", "pidfd_open"})
      CHECK(found.find(each) != std::string::npos);
  }
}

TEST_CASE("who kills everybody kills nobody in another sandbox", "[runtime][isolation]") {
  live_sandbox one{shared_node()}, other{shared_node()};
  auto there = one.start("trap 'echo hit' TERM HUP IO USR1; echo up; sleep 600 & wait");
  there.says("up\n");
  REQUIRE(eventually([&] { return one.run("pgrep -c sleep").out == "1\n"; }));
  for (const auto who : {user, root})
    other.run("kill -TERM -1; kill -IO -1; kill -KILL -1", who);
  CHECK(one.run("pgrep -c sleep").out == "1\n");
  CHECK(other.run("echo works").out == "works\n");
  CHECK(one.run("pkill sleep").exited(0));
  CHECK(there.finish().out == "up\n");
}

TEST_CASE("nothing in /sys tells what another sandbox does", "[runtime][isolation]") {
  live_sandbox one{shared_node()}, other{shared_node()};
  const auto before = other.run(all_of_sys, root).out;
  auto busy = one.start("head -c 20000000 /dev/zero > file; head -c 10000000 /dev/zero > "
                        "/dev/shm/file; for i in {1..20}; do sleep 600 & done; echo up; wait");
  busy.says("up\n");
  CHECK(other.run(all_of_sys, root).out == before);
  CHECK(before.size() > 64);
}
