#include "tests/abuse/tables.hpp"

namespace insula::test {

// Where two answers stand, the second is that of cgroups of version 2, or of a kernel that charges
// more: memory that is charged ends with the limit of memory, by which the process is killed.
const std::vector<table_attack>& all_table_attacks() {
  using by = table_attack::by;
  static const std::vector<table_attack> all{
    // ---- Memory that no group is charged for
    {"file locks",
     "locks",
     "./attack locks 3000000",
     {"ended: file locks"},
     {},
     {},
     by::user,
     true,
     true},
    {"file locks of open files", "locks", "./attack open_locks 3000000", {"ended: file locks"}},
    {"flock and leases", "locks", "./attack descriptors lease", {"EMFILE"}},
    {"names of merged directories, as root",
     "directories",
     "./attack directories /etc 60 15000",
     {"ended: names of open directories"},
     {},
     {},
     by::root,
     true},
    {"names of the user's directories", "directories", "./attack directories . 60 15000", {"0"}},
    {"queues of netlink sockets",
     "sockets",
     "./attack buffers netlink",
     {"ended: queues of netlink sockets"}},
    {"buffers of TCP", "sockets", "./attack buffers tcp", {"EMFILE", "killed"}},
    {"buffers of UDP", "sockets", "./attack buffers udp", {"EMFILE", "killed"}},
    {"errors of UDP", "sockets", "./attack buffers errors", {"ended: errors of sockets"}},
    {"buffers of unix sockets", "sockets", "./attack buffers unix", {"EMFILE", "killed"}},
    {"options of sockets", "sockets", "./attack ask options", {"EPERM"}},
    {"filters of sockets", "filters", "./attack ask filter", {"EPERM"}},
    {"filters of system calls", "filters", "./attack filters 100", {"0"}},

    // ---- Descriptors and what is behind them
    {"open files", "descriptors", "./attack descriptors files", {"EMFILE"}},
    {"contexts of timerfd", "descriptors", "./attack descriptors timers 40", {"0"}},
    {"contexts of epoll and eventfd", "descriptors", "./attack descriptors epoll 40", {"0"}},
    {"instances of inotify",
     "descriptors",
     "./attack descriptors inotify",
     {"EMFILE"},
     "./attack descriptors inotify",
     "EMFILE"},
    {"watches of inotify",
     "descriptors",
     "./attack table watches",
     {"ENOSPC", "EDQUOT", "ENOMEM", "killed"}},
    {"buffers of pipes", "descriptors", "./attack buffers pipes", {"EMFILE", "killed"}},
    {"descriptors in flight",
     "descriptors",
     "./attack descriptors rights",
     {"ETOOMANYREFS"},
     "./attack descriptors rights",
     "ETOOMANYREFS"},
    {"terminals", "descriptors", "./attack terminals", {"ENOSPC"}, "./attack terminals", "ENOSPC"},

    // ---- Nothing hostile, for comparison: two programs that compute
    {"two processors, computing",
     "processors",
     "bash -c 'for i in 1 2; do while :; do :; done & done; echo 2 begun; wait'",
     {"begun"},
     {},
     {},
     by::user,
     true,
     true},

    // ---- Numbers and queues
    {"asynchronous I/O", "numbers", "./attack table aio", {"ENOSYS"}},
    {"process numbers", "numbers", "./attack fork_bomb", {"EAGAIN"}},
    {"POSIX message queues",
     "numbers",
     "./attack table queues",
     {"EMFILE"},
     "./attack table queues",
     "EMFILE"},
    {"queued signals",
     "numbers",
     "./attack table signals",
     {"EAGAIN"},
     "./attack table signals",
     "EAGAIN"},
    {"timers", "numbers", "./attack table timers", {"EAGAIN"}},
    {"segments of System V", "numbers", "./attack table segments", {"killed", "ENOMEM", "ENOSPC"}},
    {"messages of System V", "numbers", "./attack table messages", {"killed", "ENOMEM", "ENOSPC"}},
    {"semaphores of System V",
     "numbers",
     "./attack table semaphores",
     {"killed", "ENOMEM", "ENOSPC"}},
    {"keyrings", "numbers", "./attack ask key", {"ENOSYS"}},
    {"mounts", "numbers", "./attack ask mount", {"ENOSYS"}},

    // ---- The gateway
    {"questions to the DNS", "gateway", "./neighbours flood questions 3600", {"begun"}},
    {"names that are dialled", "gateway", "./neighbours flood names 3600", {"begun"}},
    {"connections to the outside", "gateway", "./neighbours flood connections 3600", {"begun"}},
    {"connections that never come to be", "gateway", "./neighbours flood nowhere 3600", {"begun"}},
    {"records of connections", "gateway", "./neighbours flood refused 3600", {"begun"}},
    {"open connections", "gateway", "./neighbours hold", {"ECONNREFUSED", "ECONNRESET", "closed"}},

    // ---- Memory and disk
    {"memory", "storage", "./attack again memory", {"0"}},
    {"bytes of the disk", "storage", "./attack bytes .", {"EDQUOT", "ENOSPC"}},
    {"inodes of the disk",
     "storage",
     "./attack inodes .",
     {"EDQUOT", "ENOSPC"},
     {},
     {},
     by::user,
     true,
     true},
    {"shared memory", "storage", "./attack bytes /dev/shm", {"ENOSPC"}},
    {"inodes of shared memory", "storage", "./attack inodes /dev/shm", {"ENOSPC"}},
    {"kept output", "storage", "./attack chatter", {"0"}, {}, {}, by::user, false},
  };
  return all;
}

} // namespace insula::test
