#include "runtime/spawner/protocol.hpp"

#include <ctime>

namespace insula::runtime::spawner {

const char* name_of(launch_step step) {
  switch (step) {
    case launch_step::none: return "nothing";
    case launch_step::request: return "reading the request";
    case launch_step::cgroup: return "making the cgroups";
    case launch_step::disk: return "making the disk";
    case launch_step::socket: return "making the control socket";
    case launch_step::clone: return "making the namespaces";
    case launch_step::id_maps: return "writing the id maps";
    case launch_step::layers: return "mapping the image's layers";
    case launch_step::hand_over: return "handing over the layers";
    case launch_step::become_root: return "becoming the sandbox's root";
    case launch_step::private_mounts: return "making the mounts private";
    case launch_step::attach_layers: return "attaching the layers";
    case launch_step::overlay: return "mounting the overlay";
    case launch_step::proc: return "mounting /proc";
    case launch_step::sys: return "mounting /sys";
    case launch_step::dev: return "making /dev";
    case launch_step::pivot: return "changing the root";
    case launch_step::masks: return "masking /proc and /sys";
    case launch_step::network: return "raising the loopback";
    case launch_step::host_name: return "setting the host name";
    case launch_step::keyring: return "joining a new keyring";
    case launch_step::capabilities: return "dropping capabilities";
    case launch_step::seccomp: return "loading the system call filter";
    case launch_step::agent: return "starting the agent";
    case launch_step::limits: return "setting the limits";
    case launch_step::permission: return "having permission";
    case launch_step::epoch: return "holding its id";
  }
  return "an unknown step";
}

const char* name_of(mount_step step) {
  switch (step) {
    case mount_step::none: return "nothing";
    case mount_step::request: return "the request";
    case mount_step::cgroup: return "making a cgroup";
    case mount_step::visit: return "entering the sandbox";
    case mount_step::device: return "opening /dev/fuse";
    case mount_step::file_system: return "making the file system";
    case mount_step::directory: return "making the directory";
    case mount_step::not_empty: return "the directory is not empty";
    case mount_step::program: return "the program has ended";
    case mount_step::answer: return "the file system never appeared";
    case mount_step::place: return "putting the file system into its place";
    case mount_step::not_there: return "nothing is mounted there any more";
    case mount_step::detach: return "unmounting";
    case mount_step::epoch: return "holding its id";
    case mount_step::network: return "making its network";
    case mount_step::drive: return "finding the drive";
    case mount_step::in_use: return "another sandbox writes to the drive";
  }
  return "?";
}

std::uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

} // namespace insula::runtime::spawner
