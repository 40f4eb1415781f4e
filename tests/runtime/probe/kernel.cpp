#include "tests/runtime/probe/probe.hpp"

#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/uio.h>

namespace insula::probe {

/// The entry for 32-bit programs: another table of numbers, another filter.
static long old_entry(long number) {
#ifdef __x86_64__
  long result = number;
  asm volatile("int $0x80"
               : "+a"(result)
               : "b"(0), "c"(0), "d"(0)
               : "memory", "r8", "r9", "r10", "r11");
  if (result < 0 && result > -4096) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
#else
  errno = ENOSYS;
  return number < 0 ? 0 : -1;
#endif
}

/// Pages that are shared between sandboxes, and those of the machine's pool of huge ones.
static void memory() {
  constexpr int merge = 67; // PR_SET_MEMORY_MERGE
  constexpr std::size_t huge = 2u << 20;
  static void* const own =
    ::mmap(nullptr, huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  attempt("madvise_mergeable", [] { return ::madvise(own, huge, MADV_MERGEABLE); });
  attempt("madvise_mergeable_high_bits",
          [] { return call(SYS_madvise, own, huge, MADV_MERGEABLE | 1L << 32); });
  attempt("madvise_dont_need", [] { return ::madvise(own, huge, MADV_DONTNEED); });
  attempt("process_madvise_mergeable", [] {
    const iovec part{own, huge};
    return call(SYS_process_madvise, call(SYS_pidfd_open, ::getpid(), 0), &part, 1, MADV_MERGEABLE,
                0);
  });
  attempt("prctl_memory_merge", [] { return ::prctl(merge, 1, 0, 0, 0); });
  const auto map = [](const char* name, int flags) {
    attempt(name, [=] {
      return ::mmap(nullptr, huge, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0) ==
                 MAP_FAILED
               ? -1
               : 0;
    });
  };
  map("mmap_plain", 0);
  map("mmap_huge", MAP_HUGETLB);
  map("mmap_huge_gigabyte", MAP_HUGETLB | 30 << MAP_HUGE_SHIFT);
  attempt("memfd_huge", [] { return ::memfd_create("x", MFD_HUGETLB); });
  const auto share = [](const char* name, int flags) {
    attempt(name, [=] {
      const int made = ::shmget(IPC_PRIVATE, huge, IPC_CREAT | 0600 | flags);
      return made < 0 ? -1 : ::shmctl(made, IPC_RMID, nullptr);
    });
  };
  share("shmget_plain", 0);
  share("shmget_huge", SHM_HUGETLB);
}

/// Which programs load for themselves.
static void own_filters() {
  static sock_filter everything[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  static const sock_fprog filter{1, everything};
  const auto give_up_rights = [] { return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); };
  attempt("own_filter", [] { return call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter); });
  attempt("own_filter_without_new_rights", [=] { // As programs load them.
    return give_up_rights() != 0 ? -1 : call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
  });
  attempt("own_filter_by_prctl", [=] {
    return give_up_rights() != 0 ? -1 : ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
  });
  attempt("own_filter_listener", [=] { // A descriptor that keeps it when its process has ended.
    return give_up_rights() != 0 ? -1
                                 : call(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                        SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
  });
  attempt("own_filters_without_end", [=] { // The kernel itself lets a process have 32,768.
    give_up_rights();
    static sock_filter many[4096];
    for (auto& each : many)
      each = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const sock_fprog large{sizeof many / sizeof *many, many};
    for (int i = 0; i < 3; ++i) // Two instructions of the kernel's for one.
      if (call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &large) != 0)
        return -1L;
    return 0L;
  });
}

void kernel_interfaces() {
  attempt("aio_setup", [] {
    static unsigned long made = 0;
    return call(SYS_io_setup, 16, &made);
  });
  attempt("bpf", [] { return call(SYS_bpf, 0, bytes, 64); });
  attempt("perf_event_open", [] { return call(SYS_perf_event_open, bytes, 0, -1, -1, 0); });
  attempt("io_uring_setup", [] {
    io_uring_params parameters{};
    return call(SYS_io_uring_setup, 4, &parameters);
  });
  attempt("io_uring_enter", [] { return call(SYS_io_uring_enter, -1, 0, 0, 0, 0, 0); });
  attempt("userfaultfd", [] { return call(SYS_userfaultfd, 0); });
  attempt("userfaultfd_user", [] { return call(SYS_userfaultfd, 1); });
  attempt("keyctl_join", [] { return call(SYS_keyctl, 1, 0); });
  attempt("keyctl_read_session", [] { return call(SYS_keyctl, 11, -3, bytes, sizeof bytes); });
  attempt("add_key", [] { return call(SYS_add_key, "user", "x", "y", 1, -3); });
  attempt("request_key", [] { return call(SYS_request_key, "user", "x", nullptr, -3); });
  attempt("name_to_handle_at",
          [] { return call(SYS_name_to_handle_at, AT_FDCWD, "/", bytes, bytes, 0); });
  attempt("open_by_handle_at", [] { return call(SYS_open_by_handle_at, AT_FDCWD, bytes, 0); });
  attempt("kexec_load", [] { return call(SYS_kexec_load, 0, 0, 0, 0); });
  attempt("init_module", [] { return call(SYS_init_module, 0, 0, ""); });
  attempt("finit_module", [] { return call(SYS_finit_module, -1, "", 0); });
  attempt("delete_module", [] { return call(SYS_delete_module, "x", 0); });
  attempt("reboot", [] { return call(SYS_reboot, 0, 0, 0, 0); });
  attempt("swapon", [] { return call(SYS_swapon, "/x", 0); });
  attempt("syslog", [] { return call(SYS_syslog, 3, bytes, 100); });
  attempt("quotactl", [] { return call(SYS_quotactl, 0, 0, 0, 0); });
  attempt("acct", [] { return call(SYS_acct, 0); });
  attempt("fanotify_init", [] { return call(SYS_fanotify_init, 0, 0); });
  attempt("lookup_dcookie", [] { return call(212, 0, bytes, 16); });
  attempt("pidfd_getfd", [] { return call(SYS_pidfd_getfd, -1, 0, 0); });
  attempt("memfd_secret", [] { return call(447, 0); });
  attempt("vmsplice", [] { return call(SYS_vmsplice, -1, 0, 0, 0); });
  attempt("migrate_pages", [] { return call(SYS_migrate_pages, 0, 0, 0, 0); });
  attempt("move_pages", [] { return call(SYS_move_pages, 0, 0, 0, 0, 0, 0); });
  attempt("kcmp", [] { return call(SYS_kcmp, 1, 1, 0, 0, 0); });
  attempt("set_mempolicy", [] { return call(SYS_set_mempolicy, 0, 0, 0); });
  attempt("clock_settime", [] { return call(SYS_clock_settime, 0, bytes); });
  attempt("settimeofday", [] { return call(SYS_settimeofday, bytes, 0); });
  attempt("adjtimex_read", [] {
    std::memset(bytes, 0, sizeof bytes);
    return call(SYS_adjtimex, bytes);
  });
  attempt("adjtimex_set", [] {
    const unsigned modes = 0x4000; // ADJ_TICK
    std::memcpy(bytes, &modes, sizeof modes);
    return call(SYS_adjtimex, bytes);
  });
  attempt("sethostname", [] { return ::sethostname("x", 1); });
  attempt("personality_no_randomize", [] { return ::personality(ADDR_NO_RANDOMIZE); });
  attempt("personality_read_implies_exec", [] { return ::personality(READ_IMPLIES_EXEC); });
#ifdef __x86_64__
  attempt("iopl", [] { return call(SYS_iopl, 3); });
  attempt("ioperm", [] { return call(SYS_ioperm, 0, 8, 1); });
  attempt("modify_ldt", [] { return call(SYS_modify_ldt, 0, bytes, 16); });
  attempt("x32_getpid", [] { return call(0x40000000L | SYS_getpid); });
  attempt("x32_mount", [] { return call(0x40000000L | SYS_mount, 0, 0, 0, 0, 0); });
#endif
  attempt("int80_getpid", [] { return old_entry(20); });
  attempt("int80_mount", [] { return old_entry(21); });
  attempt("int80_socketcall", [] { return old_entry(102); });
  attempt("int80_setsockopt", [] { return old_entry(366); });
  attempt("unknown_call", [] { return call(9999); });
  attempt("futex", [] { return call(SYS_futex, bytes, 1, 0, 0, 0, 0); });
  attempt("kexec_file_load", [] { return call(SYS_kexec_file_load, -1, -1, 0, "", 0); });
  attempt("swapoff", [] { return call(SYS_swapoff, "/x"); });
  attempt("setdomainname", [] { return call(SYS_setdomainname, "x", 1); });
  attempt("vhangup", [] { return call(SYS_vhangup); });
  attempt("mbind", [] { return call(SYS_mbind, 0, 0, 0, 0, 0, 0); });
  attempt("fanotify_mark", [] { return call(SYS_fanotify_mark, -1, 0, 0, -1, 0); });
  attempt("io_uring_register", [] { return call(SYS_io_uring_register, -1, 0, 0, 0); });
  attempt("quotactl_fd", [] { return call(443, -1, 0, 0, 0); });
  attempt("process_madvise_pid1", [] {
    const long pid1 = call(SYS_pidfd_open, 1, 0);
    return call(SYS_process_madvise, pid1, bytes, 1, 4, 0);
  });
  memory();
  own_filters();
  attempt("landlock", [] { return call(444, nullptr, 0, 1); });
#ifdef __x86_64__
  attempt("ustat", [] { return call(SYS_ustat, 0, bytes); });
  attempt("sysfs", [] { return call(SYS_sysfs, 3); });
  attempt("uselib", [] { return call(SYS_uselib, "/x"); });
  attempt("nfsservctl", [] { return call(SYS_nfsservctl, 0, 0, 0); });
#endif
}

} // namespace insula::probe
