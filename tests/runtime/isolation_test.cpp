// What a program inside can do, as the sandbox's user and as its root: all of it written down.
#include "tests/support/catch.hpp"
#include "tests/support/file_channel.hpp"
#include "tests/support/live_node.hpp"

#include <fstream>
#include <iterator>
#include <map>
#include <netinet/in.h>
#include <sstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;

namespace {

constexpr sandbox_user root{0, 0};

/// "refused": any errno, since kernels differ. A third column where root inside fares otherwise;
/// "-": not looked at.
struct expectation {
  const char* name;
  const char* as_user;
  const char* as_root = nullptr;
};

// clang-format off
constexpr expectation expectations[] = {
  {"unshare_user", "ENOSYS"},
  {"unshare_mount", "ENOSYS"},
  {"unshare_net", "ENOSYS"},
  {"unshare_files", "ENOSYS"},
  {"clone_user", "ENOSYS"},
  {"clone_pid", "ENOSYS"},
  {"clone3", "ENOSYS"},
  {"setns_self", "ENOSYS"},
  {"setns_pid1", "ENOSYS"},
  {"mount_tmpfs", "ENOSYS"},
  {"mount_bind", "ENOSYS"},
  {"mount_proc", "ENOSYS"},
  {"remount_proc_sys", "ENOSYS"},
  {"umount_mask", "ENOSYS"},
  {"umount_proc_sys", "ENOSYS"},
  {"pivot_root", "ENOSYS"},
  {"open_tree", "ENOSYS"},
  {"move_mount", "ENOSYS"},
  {"mount_setattr", "ENOSYS"},
  {"fsopen", "ENOSYS"},
  {"fspick", "ENOSYS"},
  {"chroot", "EPERM", "ALLOWED"},
  {"bpf", "ENOSYS"},
  {"perf_event_open", "ENOSYS"},
  {"io_uring_setup", "ENOSYS"},
  {"io_uring_enter", "ENOSYS"},
  {"userfaultfd", "ENOSYS"},
  {"userfaultfd_user", "ENOSYS"},
  {"keyctl_join", "ENOSYS"},
  {"keyctl_read_session", "ENOSYS"},
  {"add_key", "ENOSYS"},
  {"request_key", "ENOSYS"},
  {"name_to_handle_at", "ENOSYS"},
  {"open_by_handle_at", "ENOSYS"},
  {"kexec_load", "ENOSYS"},
  {"init_module", "ENOSYS"},
  {"finit_module", "ENOSYS"},
  {"delete_module", "ENOSYS"},
  {"reboot", "ENOSYS"},
  {"swapon", "ENOSYS"},
  {"syslog", "ENOSYS"},
  {"quotactl", "ENOSYS"},
  {"acct", "ENOSYS"},
  {"fanotify_init", "ENOSYS"},
  {"lookup_dcookie", "ENOSYS"},
  {"pidfd_getfd", "ENOSYS"},
  {"memfd_secret", "ENOSYS"},
  {"vmsplice", "ENOSYS"},
  {"migrate_pages", "ENOSYS"},
  {"move_pages", "ENOSYS"},
  {"kcmp", "ENOSYS"},
  {"set_mempolicy", "ENOSYS"},
  {"clock_settime", "ENOSYS"},
  {"settimeofday", "ENOSYS"},
  {"adjtimex_read", "ALLOWED"},
  {"adjtimex_set", "EPERM"},
  {"sethostname", "ENOSYS"},
  {"personality_no_randomize", "ALLOWED"},
  {"personality_read_implies_exec", "ENOSYS"},
  {"iopl", "ENOSYS"},
  {"ioperm", "ENOSYS"},
  {"modify_ldt", "ENOSYS"},
  {"x32_getpid", "ENOSYS"},
  {"x32_mount", "ENOSYS"},
  {"int80_getpid", "ENOSYS"},
  {"int80_mount", "ENOSYS"},
  {"unknown_call", "ENOSYS"},
  {"futex", "ALLOWED"},
  {"socket_unix", "ALLOWED"},
  {"socket_inet", "ALLOWED"},
  {"socket_inet6", "ALLOWED"},
  {"socket_netlink_route", "ALLOWED"},
  {"socket_netlink_audit", "EINVAL"},
  {"socket_netlink_netfilter", "EINVAL"},
  {"socket_netlink_kobject", "EINVAL"},
  {"socket_packet", "EAFNOSUPPORT"},
  {"socket_raw_icmp", "refused"},
  {"socket_ping", "refused"},
  {"socket_vsock", "EAFNOSUPPORT"},
  {"socket_alg", "EAFNOSUPPORT"},
  {"socket_xdp", "EAFNOSUPPORT"},
  {"socket_rds", "EAFNOSUPPORT"},
  {"socket_tipc", "EAFNOSUPPORT"},
  {"socket_bluetooth", "EAFNOSUPPORT"},
  {"socket_can", "EAFNOSUPPORT"},
  {"socket_key", "EAFNOSUPPORT"},
  {"socket_packet_high_bits", "EAFNOSUPPORT"},
  {"socket_audit_high_bits", "EINVAL"},
  {"socket_negative", "EAFNOSUPPORT"},
  {"socketpair_vsock", "refused"},
  {"ptrace_traceme", "ALLOWED"},
  {"ptrace_seize_pid1", "EPERM"},
  {"process_vm_readv", "ENOSYS"},
  {"process_vm_writev", "ENOSYS"},
  {"pidfd_open_pid1", "ALLOWED"},
  {"kill_pid1", "EPERM", "ALLOWED"},
  {"stop_pid1", "EPERM", "ALLOWED"},
  {"proc_1_environ", "refused"},
  {"proc_1_mem", "refused"},
  {"proc_1_maps", "refused"},
  {"proc_1_exe", "refused"},
  {"proc_1_root", "refused"},
  {"proc_1_cwd", "refused"},
  {"proc_1_fd", "refused", "ALLOWED"},
  {"proc_1_fd_control", "refused"},
  {"proc_1_fd_cgroup", "refused"},
  {"proc_2_seen", "ALLOWED"},
  {"self_exe_write", "refused"},
  {"setuid_root", "EPERM", "-"},
  {"setuid_other", "EPERM", "ALLOWED"},
  {"setuid_outside", "EINVAL"},
  {"setgid_root", "EPERM", "-"},
  {"setgroups", "EPERM", "ALLOWED"},
  {"write_uid_map", "refused"},
  {"rlimit_raise", "EPERM"},
  {"core_raise", "EPERM"},
  {"sched_fifo", "EPERM"},
  {"nice_lower", "refused"},
  {"ioprio_realtime", "refused"},
  {"oom_score_lower", "refused"},
  {"no_new_privs_off", "EINVAL"},
  {"ambient_raise", "refused"},
  {"capset_sys_admin", "EPERM"},
  {"tiocsti", "refused"},
  {"mknod_block", "EPERM"},
  {"mknod_char", "EPERM"},
  {"mknod_fifo", "ALLOWED"},
  {"dev_fuse", "ENOENT"},
  {"dev_kvm", "ENOENT"},
  {"dev_mem", "ENOENT"},
  {"dev_kmsg", "ENOENT"},
  {"dev_port", "ENOENT"},
  {"dev_loop-control", "ENOENT"},
  {"dev_loop0", "ENOENT"},
  {"dev_vda", "ENOENT"},
  {"dev_vhost-net", "ENOENT"},
  {"dev_net/tun", "ENOENT"},
  {"dev_snapshot", "ENOENT"},
  {"dev_userfaultfd", "ENOENT"},
  {"dev_null", "ALLOWED"},
  {"dev_ptmx", "ALLOWED"},
  {"dev_new", "EACCES", "ALLOWED"},
  {"shm_new", "ALLOWED"},
  {"core_pattern_write", "refused"},
  {"modprobe_write", "refused"},
  {"sysrq_write", "refused"},
  {"ip_forward_write", "refused"},
  {"hostname_write", "refused"},
  {"binfmt_misc", "refused"},
  {"proc_kcore", "refused"},
  {"proc_keys", "refused"},
  {"proc_kallsyms", "refused"},
  {"proc_timer_list", "refused"},
  {"proc_interrupts", "refused"},
  {"proc_sched_debug", "refused"},
  {"proc_kpagecount", "refused"},
  {"proc_acpi", "refused"},
  {"proc_scsi", "refused"},
  {"sys_firmware", "refused"},
  {"sys_powercap", "refused"},
  {"sys_write", "refused"},
  {"sys_uevent_helper", "refused"},
  {"sys_debug", "refused"},
  {"sys_security", "refused"},
  {"cgroup_fs", "refused"},
  {"cgroup_mkdir", "refused"},
  {"apparmor", "refused"},
  {"shadow", "EACCES", "ENODATA"},
  {"root_home", "EACCES", "ENODATA"},
  {"usr_write", "EACCES", "ALLOWED"},
  {"etc_write", "EACCES", "ALLOWED"},
  {"chown_root", "EPERM", "ALLOWED"},
  {"setuid_bit", "ALLOWED"},
  {"overlay_xattr", "refused"},
};
// clang-format on

std::map<std::string, std::string> probed(live_sandbox& box, sandbox_user user) {
  std::ifstream file{INSULA_PROBE, std::ios::binary};
  const std::string program{std::istreambuf_iterator<char>{file}, {}};
  REQUIRE(write_file(*box, "/workspace/probe", program).head.error == 0);
  REQUIRE(box.run("chmod 755 probe").exited(0));
  const auto ran = box.run("./probe", user);
  REQUIRE(ran.exited(0));
  std::map<std::string, std::string> got;
  std::istringstream lines{ran.out};
  for (std::string line; std::getline(lines, line);)
    got[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
  return got;
}

void compare(std::map<std::string, std::string> got, bool as_root) {
  for (const auto& each : expectations) {
    const std::string wanted = as_root && each.as_root != nullptr ? each.as_root : each.as_user;
    const auto found = got.contains(each.name) ? got[each.name] : "not tried";
    INFO(each.name << " is " << found << " and should be " << wanted);
    if (wanted == "refused")
      CHECK((found.starts_with("E") && found != "EFAULT"));
    else if (wanted != "-")
      CHECK(found == wanted);
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
    const auto value = got[name];
    got.erase(name);
    return value;
  };
  CHECK(take("uid_map") == "0 shifted 65536");
  CHECK(take("descriptors") == "3");
  CHECK(take("NoNewPrivs") == "1");
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
          .run("ls -A /root /home/sandbox /tmp /var/tmp /opt /srv /mnt /run/lock /workspace | grep "
               "-v :$ | grep .",
               root)
          .out.empty());
  CHECK(box.run("cat /etc/shadow /etc/gshadow; stat -c %s /etc/shadow", root).out == "0\n");
  CHECK(box.run("cut -d: -f1 /etc/passwd").out == "root\ndaemon\nbin\nsandbox\n_apt\nnobody\n");
  CHECK(box.run("ls /etc/ssh /etc/machine-id /etc/sudoers /etc/ssl/private 2>/dev/null", root)
          .out.empty());
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
  CHECK(one.run("ps -e --no-headers | wc -l").out == "4\n"); // The agent, the shell, ps, wc.
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
