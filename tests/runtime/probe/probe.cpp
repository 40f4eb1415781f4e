// Tries from inside of a sandbox what must not work, and what must. One line each: name=ALLOWED, or
// name=<errno>. Every attempt is a child, so that none spoils the next.

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

template <class Attempt>
void attempt(const char* name, Attempt what) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(5);
    errno = 0;
    const long worked = what();
    const char* why = ::strerrorname_np(errno);
    std::printf("%s=%s\n", name, worked >= 0 ? "ALLOWED" : why != nullptr ? why : "UNKNOWN");
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    std::printf("%s=KILLED(%d)\n", name, WTERMSIG(status));
}

long write_to(const char* path, const char* text) {
  const int file = ::open(path, O_WRONLY);
  return file < 0 ? -1 : ::write(file, text, std::strlen(text));
}

/// A file that reads as empty counts as nothing to be seen.
long read_from(const char* path) {
  const int file = ::open(path, O_RDONLY);
  char bytes[16];
  const ssize_t n = file < 0 ? -1 : ::read(file, bytes, sizeof bytes);
  if (n == 0)
    errno = ENODATA;
  return n > 0 ? n : -1;
}

long list(const char* path) {
  DIR* directory = ::opendir(path);
  if (directory == nullptr)
    return -1;
  int names = 0;
  while (const dirent* entry = ::readdir(directory))
    names += entry->d_name[0] != '.';
  if (names == 0)
    errno = ENODATA;
  return names > 0 ? names : -1;
}

template <class... Arguments>
long call(long number, Arguments... arguments) {
  return ::syscall(number, arguments...);
}

/// The entry for 32-bit programs: another table of numbers, another filter.
long old_entry(long number) {
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

char bytes[4096];

void namespaces_and_mounts() {
  attempt("unshare_user", [] { return ::unshare(CLONE_NEWUSER); });
  attempt("unshare_mount", [] { return ::unshare(CLONE_NEWNS); });
  attempt("unshare_net", [] { return ::unshare(CLONE_NEWNET); });
  attempt("unshare_files", [] { return ::unshare(CLONE_FILES); });
  attempt("clone_user", [] {
    const long child = call(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
      ::_exit(0);
    return child;
  });
  attempt("clone_pid", [] {
    const long child = call(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
      ::_exit(0);
    return child;
  });
  attempt("clone3", [] { return call(SYS_clone3, bytes, 64); });
  attempt("setns_self", [] { return ::setns(::open("/proc/self/ns/mnt", O_RDONLY), 0); });
  attempt("setns_pid1", [] { return ::setns(::open("/proc/1/ns/net", O_RDONLY), 0); });
  attempt("mount_tmpfs", [] { return ::mount("t", "/tmp", "tmpfs", 0, nullptr); });
  attempt("mount_bind", [] { return ::mount("/etc", "/tmp", nullptr, MS_BIND, nullptr); });
  attempt("mount_proc", [] { return ::mount("proc", "/tmp", "proc", 0, nullptr); });
  attempt("remount_proc_sys",
          [] { return ::mount(nullptr, "/proc/sys", nullptr, MS_REMOUNT | MS_BIND, nullptr); });
  attempt("umount_mask", [] { return ::umount2("/proc/kcore", MNT_DETACH); });
  attempt("umount_proc_sys", [] { return ::umount2("/proc/sys", MNT_DETACH); });
  attempt("pivot_root", [] { return call(SYS_pivot_root, ".", "."); });
  attempt("open_tree", [] { return call(SYS_open_tree, AT_FDCWD, "/", 1); });
  attempt("move_mount", [] { return call(SYS_move_mount, AT_FDCWD, "/tmp", AT_FDCWD, "/mnt", 0); });
  attempt("mount_setattr", [] { return call(SYS_mount_setattr, AT_FDCWD, "/", 0, bytes, 32); });
  attempt("fsopen", [] { return call(SYS_fsopen, "tmpfs", 0); });
  attempt("fspick", [] { return call(433, AT_FDCWD, "/", 0); });
  attempt("chroot", [] { return ::chroot("/tmp"); });
}

void kernel_interfaces() {
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
  attempt("unknown_call", [] { return call(9999); });
  attempt("futex", [] { return call(SYS_futex, bytes, 1, 0, 0, 0, 0); });
}

void sockets() {
  const auto open = [](const char* name, long family, long type, long protocol) {
    attempt(name, [=] { return call(SYS_socket, family, type, protocol); });
  };
  open("socket_unix", AF_UNIX, SOCK_STREAM, 0);
  open("socket_inet", AF_INET, SOCK_STREAM, 0);
  open("socket_inet6", AF_INET6, SOCK_DGRAM, 0);
  open("socket_netlink_route", AF_NETLINK, SOCK_RAW, 0);
  open("socket_netlink_audit", AF_NETLINK, SOCK_RAW, 9);
  open("socket_netlink_netfilter", AF_NETLINK, SOCK_RAW, 12);
  open("socket_netlink_kobject", AF_NETLINK, SOCK_RAW, 15);
  open("socket_packet", AF_PACKET, SOCK_RAW, 0);
  open("socket_raw_icmp", AF_INET, SOCK_RAW, 1);
  open("socket_ping", AF_INET, SOCK_DGRAM, 1);
  open("socket_vsock", AF_VSOCK, SOCK_STREAM, 0);
  open("socket_alg", AF_ALG, SOCK_SEQPACKET, 0);
  open("socket_xdp", 44, SOCK_RAW, 0);
  open("socket_rds", 21, SOCK_SEQPACKET, 0);
  open("socket_tipc", 30, SOCK_SEQPACKET, 0);
  open("socket_bluetooth", 31, SOCK_RAW, 0);
  open("socket_can", 29, SOCK_RAW, 1);
  open("socket_key", 15, SOCK_RAW, 2);
  // The kernel looks at 32 bits of an argument, a filter at 64.
  open("socket_packet_high_bits", AF_PACKET | 1L << 32, SOCK_RAW, 0);
  open("socket_audit_high_bits", AF_NETLINK, SOCK_RAW, 9 | 1L << 32);
  open("socket_negative", -1, SOCK_STREAM, 0);
  attempt("socketpair_vsock", [] {
    int ends[2];
    return call(SYS_socketpair, AF_VSOCK, SOCK_STREAM, 0, ends);
  });
}

void processes() {
  attempt("ptrace_traceme", [] { return ::ptrace(PTRACE_TRACEME, 0, 0, 0); });
  attempt("ptrace_seize_pid1", [] { return ::ptrace(PTRACE_SEIZE, 1, 0, 0); });
  attempt("process_vm_readv", [] { return call(SYS_process_vm_readv, 1, bytes, 1, bytes, 1, 0); });
  attempt("process_vm_writev",
          [] { return call(SYS_process_vm_writev, 1, bytes, 1, bytes, 1, 0); });
  attempt("pidfd_open_pid1", [] { return call(SYS_pidfd_open, 1, 0); });
  attempt("kill_pid1", [] { return ::kill(1, SIGKILL); });
  attempt("stop_pid1", [] { return ::kill(1, SIGSTOP); });
  attempt("proc_1_environ", [] { return read_from("/proc/1/environ"); });
  attempt("proc_1_mem", [] { return ::open("/proc/1/mem", O_RDWR); });
  attempt("proc_1_maps", [] { return read_from("/proc/1/maps"); });
  attempt("proc_1_exe", [] { return ::open("/proc/1/exe", O_RDONLY); });
  attempt("proc_1_root", [] { return ::open("/proc/1/root/", O_RDONLY); });
  attempt("proc_1_cwd", [] { return ::open("/proc/1/cwd/", O_RDONLY); });
  attempt("proc_1_fd", [] { return list("/proc/1/fd"); });
  attempt("proc_1_fd_control", [] { return ::open("/proc/1/fd/3", O_RDWR); });
  attempt("proc_1_fd_cgroup", [] { return ::open("/proc/1/fd/4", O_WRONLY); });
  attempt("proc_2_seen", [] { return read_from("/proc/sys/kernel/ns_last_pid"); });
  attempt("self_exe_write", [] { return ::open("/proc/self/exe", O_WRONLY); });
  attempt("setuid_root", [] { return ::getuid() == 0 ? -1 : ::setuid(0); });
  attempt("setuid_other", [] { return ::setuid(1001); });
  attempt("setuid_outside", [] { return ::setuid(65'536); });
  attempt("setgid_root", [] { return ::getgid() == 0 ? -1 : ::setgid(0); });
  attempt("setgroups", [] {
    const unsigned zero = 0;
    return call(SYS_setgroups, 1, &zero);
  });
  attempt("write_uid_map", [] { return write_to("/proc/self/uid_map", "0 0 1\n"); });
  attempt("rlimit_raise", [] {
    const rlimit more{1 << 20, 1 << 20};
    return ::setrlimit(RLIMIT_NOFILE, &more);
  });
  attempt("core_raise", [] {
    const rlimit more{1 << 20, 1 << 20};
    return ::setrlimit(RLIMIT_CORE, &more);
  });
  attempt("sched_fifo", [] {
    const sched_param wanted{10};
    return ::sched_setscheduler(0, SCHED_FIFO, &wanted);
  });
  attempt("nice_lower", [] { return ::setpriority(PRIO_PROCESS, 0, -5); });
  attempt("ioprio_realtime", [] { return call(SYS_ioprio_set, 1, 0, 1 << 13); });
  attempt("oom_score_lower", [] { return write_to("/proc/self/oom_score_adj", "-500"); });
  attempt("no_new_privs_off", [] { return ::prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0); });
  attempt("ambient_raise",
          [] { return ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0); });
  attempt("capset_sys_admin", [] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct data[2] = {{1u << CAP_SYS_ADMIN, 1u << CAP_SYS_ADMIN, 0},
                                            {0, 0, 0}};
    return call(SYS_capset, &header, data);
  });
  attempt("tiocsti", [] { return ::ioctl(0, TIOCSTI, "x"); });
}

void files() {
  attempt("mknod_block", [] { return ::mknod("/tmp/probe-b", S_IFBLK | 0600, makedev(254, 0)); });
  attempt("mknod_char", [] { return ::mknod("/tmp/probe-c", S_IFCHR | 0666, makedev(1, 3)); });
  attempt("mknod_fifo", [] { return ::mkfifo("/tmp/probe-f", 0600); });
  for (const char* name : {"fuse", "kvm", "mem", "kmsg", "port", "loop-control", "loop0", "vda",
                           "vhost-net", "net/tun", "snapshot", "userfaultfd"}) {
    char path[64], title[64];
    std::snprintf(path, sizeof path, "/dev/%s", name);
    std::snprintf(title, sizeof title, "dev_%s", name);
    attempt(title, [&] { return ::open(path, O_RDWR); });
  }
  attempt("dev_null", [] { return ::open("/dev/null", O_RDWR); });
  attempt("dev_ptmx", [] { return ::open("/dev/ptmx", O_RDWR | O_NOCTTY); });
  attempt("dev_new", [] { return ::open("/dev/new", O_CREAT | O_WRONLY, 0600); });
  attempt("shm_new", [] { return ::open("/dev/shm/probe", O_CREAT | O_WRONLY, 0600); });
  attempt("core_pattern_write", [] { return write_to("/proc/sys/kernel/core_pattern", "|/x"); });
  attempt("modprobe_write", [] { return write_to("/proc/sys/kernel/modprobe", "/x"); });
  attempt("sysrq_write", [] { return write_to("/proc/sysrq-trigger", "h"); });
  attempt("ip_forward_write", [] { return write_to("/proc/sys/net/ipv4/ip_forward", "1"); });
  attempt("hostname_write", [] { return write_to("/proc/sys/kernel/hostname", "x"); });
  attempt("binfmt_misc", [] { return ::open("/proc/sys/fs/binfmt_misc/register", O_WRONLY); });
  for (const char* name :
       {"kcore", "keys", "kallsyms", "timer_list", "interrupts", "sched_debug"}) {
    char path[64], title[64];
    std::snprintf(path, sizeof path, "/proc/%s", name);
    std::snprintf(title, sizeof title, "proc_%s", name);
    attempt(title, [&] { return read_from(path); });
  }
  attempt("proc_kpagecount", [] { return read_from("/proc/kpagecount"); });
  attempt("proc_acpi", [] { return list("/proc/acpi"); });
  attempt("proc_scsi", [] { return list("/proc/scsi"); });
  attempt("sys_firmware", [] { return list("/sys/firmware"); });
  attempt("sys_powercap", [] { return list("/sys/devices/virtual/powercap"); });
  attempt("sys_write", [] { return write_to("/sys/kernel/profiling", "1"); });
  attempt("sys_uevent_helper", [] { return write_to("/sys/kernel/uevent_helper", "/x"); });
  attempt("sys_debug", [] { return list("/sys/kernel/debug"); });
  attempt("sys_security", [] { return list("/sys/kernel/security"); });
  attempt("cgroup_fs", [] { return list("/sys/fs/cgroup"); });
  attempt("cgroup_mkdir", [] { return ::mkdir("/sys/fs/cgroup/x", 0700); });
  attempt("apparmor", [] { return write_to("/proc/self/attr/current", "x"); });
  attempt("shadow", [] { return read_from("/etc/shadow"); });
  attempt("root_home", [] { return list("/root"); });
  attempt("usr_write", [] { return ::open("/usr/probe", O_CREAT | O_WRONLY, 0644); });
  attempt("etc_write", [] { return ::open("/etc/probe", O_CREAT | O_WRONLY, 0644); });
  attempt("chown_root", [] {
    const int file = ::open("/tmp/probe-o", O_CREAT | O_WRONLY, 0644);
    return ::fchown(file, 0, 0);
  });
  attempt("setuid_bit", [] {
    const int file = ::open("/tmp/probe-s", O_CREAT | O_WRONLY, 0755);
    return ::fchmod(file, 04755);
  });
  attempt("overlay_xattr",
          [] { return call(SYS_setxattr, "/tmp", "trusted.overlay.opaque", "y", 1, 0); });
}

void facts() {
  std::FILE* status = std::fopen("/proc/self/status", "r");
  char line[512];
  while (status != nullptr && std::fgets(line, sizeof line, status) != nullptr)
    for (const char* wanted :
         {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp:"})
      if (std::strncmp(line, wanted, std::strlen(wanted)) == 0) {
        line[std::strcspn(line, "\n")] = '\0';
        char* colon = std::strchr(line, ':');
        *colon = '\0';
        std::printf("%s=%s\n", line, colon + 2);
      }
  int fds = 0;
  for (int fd = 0; fd < 1024; ++fd)
    fds += ::fcntl(fd, F_GETFD) >= 0 && (status == nullptr || fd != ::fileno(status));
  std::printf("descriptors=%d\n", fds);
  std::FILE* map = std::fopen("/proc/self/uid_map", "r");
  unsigned inside = 0, outside = 0, count = 0;
  if (map != nullptr && std::fscanf(map, "%u %u %u", &inside, &outside, &count) == 3)
    std::printf("uid_map=%u %s %u\n", inside, outside >= 65'536 ? "shifted" : "HOST", count);
  struct stat info {};
  for (const char* name : {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}) {
    char path[32];
    std::snprintf(path, sizeof path, "/proc/self/ns/%s", name);
    if (::stat(path, &info) == 0)
      std::printf("ns_%s=%lu\n", name, static_cast<unsigned long>(info.st_ino));
  }
}

} // namespace

int main() {
  namespaces_and_mounts();
  kernel_interfaces();
  sockets();
  processes();
  files();
  facts();
  return 0;
}
