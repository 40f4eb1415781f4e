#include "tests/abuse/neighbourhood.hpp"

#include "runtime/machine_memory.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>

namespace insula::test {

namespace {

using clock_type = std::chrono::steady_clock;

constexpr const char* far_resolver = "203.0.113.3";

const std::string settings =
  std::string{"network: {resolvers: ["} + far_resolver +
  "]}\nnode: {memory_reserve: " + std::to_string(uncharged_allowed >> 20) + "MiB}\n";

double ms_since(clock_type::time_point then) {
  return std::chrono::duration<double, std::milli>(clock_type::now() - then).count();
}

/// The sum of the numbers behind these names, each at the beginning of a line. Files of groups have
/// a blank behind a name, /proc/meminfo a colon.
std::uint64_t sum_of(const std::string& file, std::initializer_list<const char*> names) {
  std::ifstream text{file};
  std::uint64_t sum = 0, value = 0;
  std::string name;
  for (std::string line; std::getline(text, line);)
    if (std::istringstream{line} >> name >> value &&
        std::find(names.begin(), names.end(), name) != names.end())
      sum += value;
  return sum;
}

std::uint64_t number_in(const std::string& file) {
  std::ifstream text{file};
  std::uint64_t value = 0;
  text >> value;
  return value;
}

std::int64_t between(std::uint64_t now, std::uint64_t then) {
  return static_cast<std::int64_t>(now) - static_cast<std::int64_t>(then);
}

/// "12 EAGAIN\n" -> "EAGAIN"
std::string second_word(const std::string& line) {
  std::istringstream words{line};
  std::string count, why;
  words >> count >> why;
  return why;
}

/// "…outside of its limit (file locks: 2.1 GiB)…" -> "ended: file locks"
std::string kind_in(const std::string& text) {
  constexpr std::string_view before = "kernel memory outside of its limit (";
  const auto at = text.find(before);
  if (at == std::string::npos)
    return "not ended: " + text;
  const auto from = at + before.size();
  return "ended: " + text.substr(from, text.find(':', from) - from);
}

/// How many sandboxes the node has ended, by its log.
std::size_t ends_in(const std::string& log) {
  constexpr std::string_view mark = "sandbox.ended_by_node";
  std::size_t count = 0;
  for (auto at = log.find(mark); at != std::string::npos; at = log.find(mark, at + 1))
    ++count;
  return count;
}

} // namespace

std::int64_t memory_reading::lost_since(const memory_reading& then) const {
  const auto others = between(programs, then.programs) - between(inside, then.inside);
  return between(unavailable, then.unavailable) - std::max<std::int64_t>(others, 0);
}

std::int64_t memory_reading::charged_since(const memory_reading& then) const {
  return between(charged, then.charged);
}

neighbourhood::neighbourhood()
    : internet(INSULA_NETWORK_SITES)
    , battlefield(settings)
    , far_(beside_sites({INSULA_NEIGHBOURS, "serve", far_resolver})) {
  REQUIRE(far_.read_line(60s) == "ready");
  // Names count in the victim, and are dialled by where they lead.
  const auto set = server.ask("PUT", "/v1/sandbox/victim/network",
                              R"({"default":"allow","rules":[)"
                              R"({"action":"deny","target":"10.0.0.0/8"},)"
                              R"({"action":"allow","target":"*.silent.example"}]})");
  INFO(set.body);
  REQUIRE(set.status == 200);
}

done_things neighbourhood::executes(int times) const {
  done_things all;
  for (int i = 0; i < times; ++i) {
    const auto began = clock_type::now();
    const auto got = server.exec("neighbour", {"echo", "here"});
    all.ms.push_back(ms_since(began));
    if (got.out != "here\n" || got.exit_code != 0)
      all.wrong.push_back("exec: " + got.refusal + got.out + got.err + got.error);
  }
  return all;
}

done_things neighbourhood::starts(int times) const {
  done_things all;
  for (int i = 0; i < times; ++i) {
    const std::string id{'n', 'e', 'w', static_cast<char>('a' + i / 26 % 26),
                         static_cast<char>('a' + i % 26)};
    const auto began = clock_type::now();
    const auto got = server.exec(id, {"echo", "there"});
    all.ms.push_back(ms_since(began));
    if (got.out != "there\n" || got.exit_code != 0)
      all.wrong.push_back("start: " + got.refusal + got.out + got.err + got.error);
    if (const auto status = server.remove(id); status != 204)
      all.wrong.push_back("DELETE: " + std::to_string(status));
  }
  return all;
}

done_things neighbourhood::by_neighbour(const char* what, int times) const {
  const auto got = server.exec("neighbour", {"./neighbours", what, std::to_string(times)});
  done_things all;
  std::istringstream lines{got.out};
  for (double us = 0; lines >> us;)
    if (us > 0)
      all.ms.push_back(us / 1000);
    else
      all.wrong.push_back(std::string{what} + ": it has failed");
  if (all.ms.size() + all.wrong.size() != static_cast<std::size_t>(times))
    all.wrong.push_back(std::string{what} + ": " + got.refusal + got.err + got.error);
  return all;
}

std::string neighbourhood::uses(const std::string& command) const {
  auto running = server.open("neighbour", {"bash", "-c", "exec " + command});
  std::string said;
  while (const auto next = running.next())
    if (next->name == "stdout") {
      said = second_word(next->data);
      break;
    }
  running.connection().close();
  server.sh("neighbour", "pkill -KILL -x attack; while pgrep -x attack; do sleep 0.01; done");
  return said;
}

memory_reading neighbourhood::memory() const {
  memory_reading now;
  const runtime::machine_meter meter;
  const auto machine = meter.read();
  REQUIRE(machine);
  now.unavailable = machine->all - machine->available - meter.pages_at_hand();
  now.programs = sum_of("/proc/meminfo", {"AnonPages:", "Shmem:"}) * 1024;
  for (const auto& group : server.sandbox_groups()) {
    now.charged += number_in(group + "/memory.current") +
                   number_in(group + "/memory.usage_in_bytes") +
                   number_in(group + "/memory.kmem.tcp.usage_in_bytes");
    // With the groups below it: version 1 has names of their own for that.
    const auto stat = group + "/memory.stat";
    const auto with_others = sum_of(stat, {"total_rss", "total_shmem"});
    now.inside += with_others > 0 ? with_others : sum_of(stat, {"anon", "shmem"});
  }
  return now;
}

running_attack::running_attack(const battlefield& field, const table_attack& what)
    : field_(field)
    , what_(what)
    , ended_before_(ends_in(field.server.log())) {
  const auto command = "exec " + what.command;
  if (what.who == table_attack::by::user) {
    as_user_ = std::make_unique<exec_stream>(
      field.server.port(), "victim", exec_body({"bash", "-c", "exec " + field.by + what.command}));
    return;
  }
  // Who speaks execd's language may be root inside.
  as_root_ = std::make_unique<http_connection>(field.server.port());
  as_root_->send(
    http_request("POST", "/sandboxes/victim/proxy/44772/command",
                 R"({"command":)" + json_string(command) + R"(,"cwd":"/workspace","uid":0})"));
  REQUIRE(as_root_->receive_head().status == 200);
}

std::string running_attack::hear() {
  if (what_.ends())
    return hear_end();
  REQUIRE(as_user_);
  std::string said;
  while (const auto next = as_user_->next()) {
    said += next->data;
    if (next->name == "stdout") {
      if (!what_.read)
        as_user_->connection().abandon();
      return second_word(next->data);
    }
  }
  // What stays when a process is gone may leave the kernel nobody else to end.
  return said.find("Command killed: out of memory") != std::string::npos ? "killed"
                                                                         : "nothing: " + said;
}

std::string running_attack::hear_end() {
  // Its stream would stay open for ever.
  if (!eventually([this] { return ends_in(field_.server.log()) > ended_before_; }, 60s))
    return "not ended";
  if (as_user_)
    return kind_in(as_user_->rest().err);
  std::string all;
  while (const auto some = as_root_->more())
    all += *some;
  return kind_in(all);
}

} // namespace insula::test
