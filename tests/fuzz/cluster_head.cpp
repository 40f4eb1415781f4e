// The header of a request on its way to the node that has its sandbox: what one node's parser has
// taken is written anew, and the other's finds the same request in it, and one alone.
#include "base/io_pool.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "http/cluster/gateway.hpp"
#include "http/preview/message.hpp"
#include "http/text/header_text.hpp"
#include "http/transport/front_door.hpp"
#include "http/transport/node_fields.hpp"
#include "http/transport/request_semantics.hpp"
#include "tests/fuzz/conversation.hpp"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace insula;
using namespace insula::fuzz;
using namespace insula::http;

namespace {

constexpr std::size_t fields_of_nodes = 8;

/// A header as a node has understood it.
struct understood {
  std::string method, path;
  std::optional<std::string> query;
  std::optional<std::uint64_t> length;
  bool chunked = false, upgrade = false;
  std::vector<std::pair<std::string, std::string>> fields;
  std::string written; ///< For the next node.
};

class node {
public:
  explicit node(bool first)
      : first_(first)
      , door_(pool_, options(), [this](const request_head& head) { return admit(head); }) {
    must(static_cast<bool>(door_.start()), "the door opens");
  }

  std::uint16_t port() const { return door_.port(); }
  std::vector<understood> take() {
    const std::lock_guard hold{guard_};
    return std::exchange(seen_, {});
  }

private:
  static front_door_options options() {
    front_door_options chosen;
    chosen.address = "127.0.0.1";
    return chosen;
  }

  admission admit(const request_head& head) {
    understood is{std::string{head.method_name},
                  std::string{head.path},
                  {},
                  head.content_length,
                  head.chunked,
                  wants_upgrade(head),
                  {},
                  {}};
    if (head.query.data() != nullptr)
      is.query = std::string{head.query};
    head.each_field(
      [&](std::string_view name, std::string_view value) { is.fields.emplace_back(name, value); });
    if (first_)
      is.written = cluster::gateway{nullptr, cluster::gateway::door::own, true, "execd"}.write_head(
        head, "id");
    const std::lock_guard hold{guard_};
    seen_.push_back(std::move(is));
    admission plan;
    plan.refusal = response{404, "no"};
    return plan;
  }

  const bool first_;
  io_pool pool_{1};
  std::mutex guard_;
  std::vector<understood> seen_; ///< Guarded by guard_.
  front_door door_;
};

/// Of the client's fields, those that are told to the other node, in their order.
std::vector<std::pair<std::string, std::string>> passed_on(const understood& of) {
  std::string connection;
  for (const auto& [name, value] : of.fields)
    if (same_letters(name, "Connection"))
      connection += value + ",";
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& each : of.fields) {
    const auto& name = each.first;
    const bool of_connection =
      is_of_one_connection(name) || (names(connection, name) && !same_letters(name, "Host"));
    if (!of_connection && !is_of_nodes(name) && !same_letters(name, "Expect") &&
        !same_letters(name, "X-Request-Id"))
      all.push_back(each);
  }
  return all;
}

void check(const understood& sent, const understood& got) {
  must(got.method == sent.method && got.path == sent.path && got.query == sent.query,
       "it asks for the same");
  must(got.chunked == sent.chunked && got.length.value_or(0) == sent.length.value_or(0),
       "its body is as long");
  must(got.upgrade == sent.upgrade, "it becomes something else if it did");
  auto wanted = passed_on(sent);
  const auto is_host = [](const auto& each) { return same_letters(each.first, "Host"); };
  if (std::none_of(wanted.begin(), wanted.end(), is_host))
    wanted.emplace_back("Host", "localhost");
  wanted.emplace_back("X-Request-Id", "id");
  const auto told = [&](std::size_t i) {
    return got.fields[i].first == wanted[i].first && got.fields[i].second == wanted[i].second;
  };
  must(got.fields.size() > wanted.size(), "all of it is told");
  for (std::size_t i = 0; i < wanted.size(); ++i)
    must(told(i), "what is told is what was said");
  std::size_t doors = 0, schemes = 0;
  for (auto i = wanted.size(); i < got.fields.size(); ++i) {
    const auto& [name, value] = got.fields[i];
    doors += name == node_fields::door_field && value == "execd";
    schemes += name == node_fields::scheme_field && value == "https";
    must(is_of_nodes(name) || is_of_one_connection(name) || name == "Expect",
         "the rest is the node's own");
  }
  must(doors == 1 && schemes == 1, "a node says what it knows, and nobody else does");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto& first = *new node{true};
  static auto& second = *new node{false};
  log::set_level(log::level::error);
  converse(first.port(), text_of(data, size));
  for (const auto& sent : first.take()) {
    if (sent.fields.size() + fields_of_nodes > limits::header_fields)
      continue; // Another node's listener takes more than this one.
    converse(second.port(), sent.written);
    const auto got = second.take();
    must(got.size() == 1, "there is one request in it");
    check(sent, got.front());
  }
  return 0;
}
