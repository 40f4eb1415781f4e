#include "benchmarks/scenario.hpp"

#include "benchmarks/load/interrupt.hpp"

#include <algorithm>
#include <atomic>
#include <latch>
#include <mutex>
#include <thread>

namespace insula::bench {

std::unique_ptr<insula_server> bench::start_insula(const std::string& yaml) const {
  return std::make_unique<insula_server>(insula, scratch + "/insula", yaml);
}

std::vector<std::unique_ptr<scenario>> all_scenarios() {
  std::vector<std::unique_ptr<scenario>> all;
  all.push_back(make_cold_create());
  all.push_back(make_privileges());
  all.push_back(make_live_exec());
  all.push_back(make_live_shell());
  all.push_back(make_thaw());
  all.push_back(make_restart());
  all.push_back(make_durable_store());
  all.push_back(make_burst());
  all.push_back(make_churn());
  all.push_back(make_files());
  all.push_back(make_archives());
  all.push_back(make_idle_memory());
  all.push_back(make_request_cpu());
  all.push_back(make_network());
  all.push_back(make_previews());
  all.push_back(make_execd());
  all.push_back(make_mounts());
  all.push_back(make_abuse());
  all.push_back(make_image_import());
  all.push_back(make_lists());
  return all;
}

void run_in_random_order(bench& with, std::vector<step> steps) {
  std::shuffle(steps.begin(), steps.end(), with.random);
  for (const auto& each : steps) {
    load::throw_if_interrupted();
    try {
      each.go();
    } catch (const load::interrupted&) {
      throw;
    } catch (const std::exception& why) {
      each.fails->fail(why.what());
    }
  }
}

clock::time_point run_at_once(std::size_t count, const std::function<void(std::size_t)>& prepare,
                              const std::function<void(std::size_t)>& go, series& fails) {
  std::latch prepared{static_cast<std::ptrdiff_t>(count) + 1}, gun{1};
  std::mutex mutex;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      const auto guarded = [&](const std::function<void(std::size_t)>& what) {
        try {
          if (what)
            what(i);
          return true;
        } catch (const load::interrupted&) {
          stop = true;
        } catch (const std::exception& why) {
          const std::lock_guard lock{mutex};
          fails.fail(why.what());
        }
        return false;
      };
      const bool able = guarded(prepare);
      prepared.count_down();
      gun.wait();
      if (able)
        guarded(go);
    });
  prepared.arrive_and_wait();
  const auto began = clock::now();
  gun.count_down();
  for (auto& each : threads)
    each.join();
  if (stop)
    throw load::interrupted{};
  return began;
}

command echo_hi() {
  return {{"echo", "hi"}, "aGkK"};
}
command true_command() {
  return {{"true"}, ""};
}
command node_version() {
  return {{"node", "-v"}, ""};
}

std::vector<std::string> shell_command(const command& what) {
  std::string line;
  for (const auto& each : what.argv)
    line += (line.empty() ? "" : " ") + each;
  return {"/bin/bash", "-c", line};
}

} // namespace insula::bench
