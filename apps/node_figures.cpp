#include "apps/node_figures.hpp"

#include "benchmarks/this_machine.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <dirent.h>
#include <fstream>
#include <memory>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace insula {

namespace {

/// The fields of /proc/self/stat from the third on; the second, a name, may have anything in it.
std::vector<std::uint64_t> stat_fields() {
  std::ifstream file{"/proc/self/stat"};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  const auto name_end = text.rfind(") ");
  if (name_end == std::string::npos)
    return {};
  std::istringstream rest{text.substr(name_end + 4)}; // The third is a letter.
  std::vector<std::uint64_t> fields{0};
  for (std::int64_t each; rest >> each;)
    fields.push_back(static_cast<std::uint64_t>(each));
  return fields;
}

std::uint64_t field(const std::vector<std::uint64_t>& fields, std::size_t number) {
  return number - 3 < fields.size() ? fields[number - 3] : 0;
}

std::uint64_t open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory{::opendir("/proc/self/fd"), &::closedir};
  std::uint64_t count = 0;
  while (directory && ::readdir(directory.get()) != nullptr)
    ++count;
  constexpr std::uint64_t not_ours = 3; // Two names of directories, and the one that is read.
  return count > not_ours ? count - not_ours : 0;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double seconds(clockid_t which) {
  timespec now{};
  ::clock_gettime(which, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

} // namespace

void write_build_info(metrics::text& into, const node_description& of) {
  const auto commit = bench::built_commit();
  const auto kernel = bench::kernel_release();
  const auto cpus = std::to_string(bench::usable_cpus());
  const auto memory = std::to_string(static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                                     static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  const auto instances = std::to_string(of.max_instances);
  const auto slots = std::to_string(of.slots);
  into.family("insula_build_info", metrics::kind::gauge, "What runs here, and on what.");
  into.sample(std::uint64_t{1}, {{"version", of.version},
                                 {"commit", commit},
                                 {"kernel", kernel},
                                 {"cpus", cpus},
                                 {"memory_bytes", memory},
                                 {"cgroups", of.cgroups},
                                 {"image", of.image},
                                 {"max_instances", instances},
                                 {"slots", slots}});
}

void write_network_totals(metrics::text& into, const network_totals& of) {
  using metrics::kind;
  into.single("insula_egress_refusals_total", kind::counter,
              "What sandboxes' policies have not let out, dry runs included.", of.refusals);
  into.family("insula_egress_failures_total", kind::counter,
              "Connections out of sandboxes that came to nothing at the other end, by reason.");
  for (std::size_t i = 0; i < of.failures.size(); ++i)
    into.sample(of.failures[i], {{"reason", to_text(static_cast<connection_failure>(i))}});
}

void write_image_figures(metrics::text& into, const image_supply::figures& of) {
  using metrics::kind;
  into.single("insula_images", kind::gauge, "Images that sandboxes can start from.",
              std::uint64_t{of.images});
  into.single("insula_images_bytes", kind::gauge, "What their files have.", of.image_bytes);
  into.single("insula_images_on_their_way", kind::gauge, "Images that are on their way.",
              std::uint64_t{of.on_their_way});
  into.family("insula_image_pulls_total", kind::counter, "Pulls that are over, by outcome.");
  into.sample(of.pulled, {{"outcome", "here"}});
  into.sample(of.failed, {{"outcome", "failed"}});
  into.single("insula_image_pulled_bytes_total", kind::counter, "Of layers, packed.", of.bytes);
  into.single("insula_images_removed_total", kind::counter, "Images that the node has removed.",
              of.removed);
}

void write_key_figures(metrics::text& into, const std::map<std::string, unsigned>& sandboxes) {
  if (sandboxes.empty())
    return;
  into.family("insula_key_sandboxes", metrics::kind::gauge,
              "Sandboxes of this node that run, by the API key that has made them.");
  for (const auto& [key, count] : sandboxes)
    into.sample(std::uint64_t{count}, {{"key", key}});
}

void write_process_figures(metrics::text& into) {
  using metrics::kind;
  const auto stat = stat_fields();
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  into.single("process_cpu_seconds_total", kind::counter,
              "Time that the server itself has computed, in user and system mode.",
              seconds(used.ru_utime) + seconds(used.ru_stime));
  into.single("process_open_fds", kind::gauge, "Open file descriptors.", open_descriptors());
  into.single("process_max_fds", kind::gauge, "The most of them that there may be.",
              std::uint64_t{files.rlim_cur});
  into.single("process_virtual_memory_bytes", kind::gauge, "Size of the address space.",
              field(stat, 23));
  into.single("process_resident_memory_bytes", kind::gauge, "Memory that is in use.",
              field(stat, 24) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  into.single("process_threads", kind::gauge, "Threads.", field(stat, 20));
  const auto since_boot =
    static_cast<double>(field(stat, 22)) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  into.single("process_start_time_seconds", kind::gauge, "When the server was started, since 1970.",
              seconds(CLOCK_REALTIME) - seconds(CLOCK_BOOTTIME) + since_boot);
}

} // namespace insula
