#include "tests/runtime/probe/probe.hpp"

#include <cstdlib>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>

namespace insula::probe {

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
  attempt("pidfd_getfd_pid1",
          [] { return call(SYS_pidfd_getfd, call(SYS_pidfd_open, 1, 0), 0, 0); });
  attempt("proc_1_exe_write", [] { return ::open("/proc/1/exe", O_WRONLY); });
  attempt("proc_1_ns", [] { return ::open("/proc/1/ns/mnt", O_RDONLY); });
  attempt("proc_1_task_mem", [] { return ::open("/proc/1/task/1/mem", O_RDONLY); });
  attempt("proc_1_map_files", [] { return list("/proc/1/map_files"); });
  attempt("proc_1_oom_score", [] { return write_to("/proc/1/oom_score_adj", "-500"); });
  attempt("starter_mem", [] { return ::open("/proc/2/mem", O_RDWR); });
  attempt("starter_exe", [] { return ::open("/proc/2/exe", O_RDONLY); });
  attempt("starter_fd", [] { return ::open("/proc/2/fd/3", O_RDWR); });
  attempt("starter_root", [] { return ::open("/proc/2/root/", O_RDONLY); });
  attempt("cwd_is_inside", [] {
    char where[PATH_MAX] = "";
    return ::readlink("/proc/self/cwd", where, sizeof where - 1) > 0 && where[0] == '/' &&
               ::access(where, F_OK) == 0
             ? 0
             : -1;
  });
  attempt("cwd_leads_out",
          [] { return ::access("/proc/self/cwd/../../../../../proc/1/root/etc", F_OK); });
  attempt("directory_descriptor_leaked", [] {
    struct stat info {};
    for (int fd = 0; fd < 1024; ++fd)
      if (::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode))
        return 0;
    errno = EBADF;
    return -1;
  });
  attempt("ptrace_own_child", [] {
    const pid_t child = ::fork();
    if (child == 0)
      for (;;)
        ::pause();
    const long seized = ::ptrace(PTRACE_SEIZE, child, 0, 0);
    ::kill(child, SIGKILL);
    return seized;
  });
  attempt("run_from_memory", [] {
    const int file = ::memfd_create("x", 0);
    const int self = ::open("/proc/self/exe", O_RDONLY);
    for (ssize_t n; (n = ::read(self, bytes, sizeof bytes)) > 0;)
      if (::write(file, bytes, static_cast<std::size_t>(n)) != n)
        return -1L;
    char name[] = "x", nothing[] = "nothing";
    char* argv[] = {name, nothing, nullptr};
    char* env[] = {nullptr};
    const pid_t child = ::fork();
    if (child == 0) {
      ::fexecve(file, argv, env);
      ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status == 0 ? 0L : -1L;
  });
  attempt("seccomp_off", [] { return ::prctl(PR_SET_SECCOMP, 0, 0, 0, 0); });
  attempt("securebits", [] { return ::prctl(PR_SET_SECUREBITS, 0, 0, 0, 0); });
  attempt("bounding_raise", [] {
    errno = EPERM;
    return ::prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) > 0 ? 0 : -1;
  });
}

} // namespace insula::probe
