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
  }
  return "an unknown step";
}

std::uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

} // namespace insula::runtime::spawner
