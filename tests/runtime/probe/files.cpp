#include "tests/runtime/probe/probe.hpp"

#include <initializer_list>
#include <string>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace insula::probe {

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
  for (const char* name : {"console", "tty0", "vcs", "initctl", "hwrng", "rtc0", "cpu/0/msr",
                           "dri/card0", "input/event0", "nvram", "sda", "mapper/control",
                           "btrfs-control", "vfio/vfio", "uinput", "autofs", "log"}) {
    char path[64], title[64];
    std::snprintf(path, sizeof path, "/dev/%s", name);
    std::snprintf(title, sizeof title, "dev_%s", name);
    attempt(title, [&] { return ::open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY); });
  }
  attempt("dev_null_replace", [] { return ::unlink("/dev/null"); });
  attempt("mask_rename", [] { return ::rename("/proc/kcore", "/proc/other"); });
  attempt("mask_unlink", [] { return ::unlink("/proc/sysrq-trigger"); });
  attempt("proc_replace", [] { return ::rename("/proc", "/proc2"); });
  attempt("mask_by_descriptor", [] { // The file below a mask, by way of its directory's descriptor.
    const int proc = ::open("/proc", O_PATH | O_DIRECTORY);
    const int file = ::openat(proc, "kcore", O_RDONLY);
    const ssize_t n = file < 0 ? -1 : ::read(file, bytes, 16);
    if (n == 0)
      errno = ENODATA;
    return n > 0 ? n : -1;
  });
  for (const char* controller : {"memory", "pids", "cpu", "unified", "rdma", "."}) {
    char path[96], title[64];
    const char* const shown = controller[0] == '.' ? "top" : controller;
    std::snprintf(path, sizeof path, "/sys/fs/cgroup/%s/release_agent", controller);
    std::snprintf(title, sizeof title, "release_agent_%s", shown);
    attempt(title, [&] { return ::open(path, O_WRONLY); });
  }
  attempt("notify_on_release",
          [] { return ::open("/sys/fs/cgroup/memory/notify_on_release", O_WRONLY); });
  attempt("cgroup_procs", [] { return ::open("/sys/fs/cgroup/cgroup.procs", O_WRONLY); });
  for (const char* name :
       {"kernel/panic", "kernel/randomize_va_space", "kernel/pid_max", "kernel/domainname",
        "kernel/yama/ptrace_scope", "kernel/unprivileged_bpf_disabled", "kernel/poweroff_cmd",
        "kernel/hotplug", "vm/overcommit_memory", "vm/drop_caches", "fs/file-max",
        "fs/suid_dumpable", "user/max_user_namespaces", "net/core/somaxconn"}) {
    char path[96], title[96];
    std::snprintf(path, sizeof path, "/proc/sys/%s", name);
    std::snprintf(title, sizeof title, "sysctl_%s", name);
    attempt(title, [&] { return ::open(path, O_WRONLY); });
  }
  for (const char* name :
       {"power/state", "kernel/kexec_loaded", "kernel/tracing", "kernel/mm/ksm/run", "module",
        "fs/fuse/connections", "fs/bpf", "block", "class/net/lo/mtu"}) {
    char path[96], title[96];
    std::snprintf(path, sizeof path, "/sys/%s", name);
    std::snprintf(title, sizeof title, "sys_%s_write", name);
    attempt(title, [&] {
      struct stat info {};
      if (::stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return ::mkdir((std::string{path} + "/probe").c_str(), 0700);
      return ::open(path, O_WRONLY);
    });
  }
  attempt("proc_kmsg", [] { return ::open("/proc/kmsg", O_RDONLY | O_NONBLOCK); });
  attempt("proc_vmcore", [] { return read_from("/proc/vmcore"); });
  attempt("proc_slabinfo", [] { return read_from("/proc/slabinfo"); });
  attempt("proc_irq_write", [] { return ::open("/proc/irq/default_smp_affinity", O_WRONLY); });
  attempt("proc_mtrr", [] { return ::open("/proc/mtrr", O_WRONLY); });
  attempt("file_capability", [] { // A version 2 capability: cap_net_raw, permitted and effective.
    const unsigned capability[] = {0x02000001, 1u << 13, 0, 0, 0};
    const int file = ::open("/tmp/probe-x", O_CREAT | O_WRONLY, 0755);
    return call(SYS_fsetxattr, file, "security.capability", capability, sizeof capability, 0);
  });
  attempt("immutable_flag", [] {
    const int file = ::open("/tmp/probe-i", O_CREAT | O_RDWR, 0644);
    long flags = 0x10;
    return ::ioctl(file, 0x40086602, &flags);
  });
}

} // namespace insula::probe
