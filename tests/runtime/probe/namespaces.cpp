#include "tests/runtime/probe/probe.hpp"

#include <sched.h>
#include <sys/mount.h>

namespace insula::probe {

void namespaces_and_mounts() {
  attempt("unshare_user", [] { return ::unshare(CLONE_NEWUSER); });
  attempt("unshare_mount", [] { return ::unshare(CLONE_NEWNS); });
  attempt("unshare_net", [] { return ::unshare(CLONE_NEWNET); });
  attempt("unshare_files", [] { return ::unshare(CLONE_FILES); });
  attempt("unshare_fs", [] { return ::unshare(CLONE_FS); });
  attempt("unshare_high_bits", [] { return call(SYS_unshare, CLONE_NEWUSER | 1L << 40); });
  attempt("clone_high_bits", [] {
    const long child = call(SYS_clone, CLONE_NEWUSER | SIGCHLD | 1L << 40, 0, 0, 0, 0);
    if (child == 0)
      ::_exit(0);
    return child;
  });
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
  attempt("unshare_time", [] { return ::unshare(0x80); });
  attempt("unshare_cgroup", [] { return ::unshare(CLONE_NEWCGROUP); });
  attempt("setns_pidfd",
          [] { return ::setns(static_cast<int>(call(SYS_pidfd_open, 1, 0)), 0x20000); });
  attempt("umount_root", [] { return ::umount2("/", MNT_DETACH); });
  attempt("mount_cgroup", [] { return ::mount("c", "/tmp", "cgroup", 0, "memory"); });
  attempt("mount_devpts", [] { return ::mount("d", "/tmp", "devpts", 0, nullptr); });
  attempt("mount_ptmx",
          [] { return ::mount("/dev/pts/ptmx", "/dev/null", nullptr, MS_BIND, nullptr); });
  attempt("mount_sysfs_rw",
          [] { return ::mount(nullptr, "/sys", nullptr, MS_REMOUNT | MS_BIND, nullptr); });
  attempt("fsmount", [] { return call(SYS_fsmount, -1, 0, 0); });
  attempt("fsconfig", [] { return call(SYS_fsconfig, -1, 6, nullptr, nullptr, 0); });
  attempt("open_tree_attr", [] { return call(467, AT_FDCWD, "/", 1, bytes, 32); });
  attempt("statmount", [] { return call(457, bytes, bytes, 64, 0); });
  attempt("listmount", [] { return call(458, bytes, bytes, 8, 0); });
}

} // namespace insula::probe
