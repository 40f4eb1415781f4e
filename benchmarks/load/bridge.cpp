#include "benchmarks/load/bridge.hpp"

#include "benchmarks/load/event_parser.hpp"

#include <rapidjson/document.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <array>
#include <charconv>
#include <cstdlib>

namespace insula::load {

namespace {

constexpr std::size_t kept_output = 64 * 1024;
constexpr std::size_t largest_archive = 32u << 20;
constexpr std::size_t removals_at_once = 16;
constexpr std::chrono::seconds removal_patience{60};
constexpr std::chrono::seconds question_patience{5};

std::string status_failure(int status) {
  return "status " + std::to_string(status);
}

/// "" for an answer that is as it should be.
std::string failure_of(const http_answer& got, int wanted) {
  if (!got.failure.empty())
    return got.failure;
  return got.status == wanted ? std::string{} : status_failure(got.status);
}

/// What others have written, however deep it nests.
rapidjson::Document parsed(std::string_view text) {
  rapidjson::Document said;
  said.Parse<rapidjson::kParseIterativeFlag>(text.data(), text.size());
  return said;
}

constexpr auto base64_values = [] {
  std::array<std::int8_t, 256> values{};
  for (auto& each : values)
    each = -1;
  constexpr std::string_view letters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < letters.size(); ++i)
    values[static_cast<unsigned char>(letters[i])] = static_cast<std::int8_t>(i);
  return values;
}();

/// Whether it was base64. Padding ends it.
bool append_base64(std::string& to, std::string_view text) {
  std::uint32_t bits = 0;
  int count = 0;
  for (const char each : text) {
    if (each == '=')
      break;
    const auto value = base64_values[static_cast<unsigned char>(each)];
    if (value < 0)
      return false;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if ((count += 6) >= 8) {
      count -= 8;
      to += static_cast<char>(bits >> count & 0xff);
    }
  }
  return true;
}

/// What the events of one exec say, one after the other.
class exec_events {
public:
  explicit exec_events(exec_ending& to)
      : to_(to)
      , parser_([this](std::string_view name, std::string_view data) { take(name, data); }) {}

  void feed(std::string_view bytes) {
    if (!parser_.feed(bytes))
      wrong(failure::malformed);
  }

  /// After the stream's proper end.
  void finish(const command& what) {
    if (!to_.failure.empty())
      return;
    if (!ended_)
      to_.failure = "no exit event";
    else if (to_.exit_code != 0)
      to_.failure = "exit " + std::to_string(to_.exit_code);
    else if (what.output && to_.output != *what.output)
      to_.failure = failure::wrong_bytes;
  }

private:
  void wrong(const char* why) {
    if (to_.failure.empty())
      to_.failure = why;
  }

  void take(std::string_view name, std::string_view data) {
    if (ended_)
      return wrong(failure::malformed); // Nothing comes behind the last event.
    if (name == "stdout") {
      if (to_.first_output == clock::time_point::max())
        to_.first_output = clock::now();
      to_.bytes += data.size() / 4 * 3;
      if (to_.output.size() < kept_output && !append_base64(to_.output, data))
        wrong(failure::malformed);
    } else if (name == "exit") {
      ended_ = true;
      to_.at = clock::now();
      const auto said = parsed(data);
      if (said.HasParseError() || !said.IsObject() || !said.HasMember("exit_code") ||
          !said["exit_code"].IsInt())
        return wrong(failure::malformed);
      to_.exit_code = said["exit_code"].GetInt();
    } else if (name == "error") {
      ended_ = true;
      to_.at = clock::now();
      wrong("error event");
    }
  }

  exec_ending& to_;
  event_parser parser_;
  bool ended_ = false;
};

/// The path of a file's URL. Only what the generator itself writes: nothing to encode.
std::string file_target(const std::string& id, const std::string& path) {
  return "/v1/sandbox/" + id + "/file" + path;
}

} // namespace

std::string exec_body(const std::vector<std::string>& argv) {
  rapidjson::StringBuffer text;
  rapidjson::Writer<rapidjson::StringBuffer> json{text};
  json.StartObject();
  json.Key("argv");
  json.StartArray();
  for (const auto& each : argv)
    json.String(each.data(), static_cast<rapidjson::SizeType>(each.size()));
  json.EndArray();
  json.EndObject();
  return {text.GetString(), text.GetSize()};
}

http_request bridge::asking(std::string_view method, std::string target) const {
  http_request request;
  request.method = method;
  request.target = std::move(target);
  request.patience = patience_;
  return request;
}

task<created> bridge::create() {
  auto request = asking("POST", "/v1/sandbox");
  const auto got = co_await http_.ask(std::move(request));
  created made;
  made.at = clock::now();
  made.failure = failure_of(got, 200);
  if (!made.ok())
    co_return made;
  const auto said = parsed(got.body);
  if (said.HasParseError() || !said.IsObject() || !said.HasMember("id") || !said["id"].IsString()) {
    made.failure = failure::malformed;
    co_return made;
  }
  made.id = said["id"].GetString();
  made_.insert(made.id);
  co_return made;
}

task<exec_ending> bridge::exec(std::string id, command what) {
  exec_ending end;
  exec_events events{end};
  auto request = asking("POST", "/v1/sandbox/" + id + "/exec");
  request.body = exec_body(what.argv);
  request.session = what.session;
  request.patience = what.patience;
  request.on_body = [&events](std::string_view bytes) { events.feed(bytes); };
  const auto got = co_await http_.ask(std::move(request));
  if (const auto failed = failure_of(got, 200); !failed.empty()) {
    end.failure = failed;
    end.at = clock::now();
  } else {
    events.finish(what);
  }
  co_return end;
}

task<ending> bridge::remove(std::string id) {
  auto request = asking("DELETE", "/v1/sandbox/" + id);
  request.cleaning_up = true;
  const auto got = co_await http_.ask(std::move(request));
  ending end{failure_of(got, 204)};
  if (end.ok())
    made_.erase(id);
  co_return end;
}

task<ending> bridge::write_file(std::string id, std::string path, pattern bytes) {
  auto request = asking("PUT", file_target(id, path));
  request.upload = bytes;
  const auto got = co_await http_.ask(std::move(request));
  ending end{failure_of(got, 200)};
  end.bytes = bytes.size();
  co_return end;
}

task<ending> bridge::read_file(std::string id, std::string path, pattern bytes) {
  std::uint64_t offset = 0;
  bool same = true;
  auto request = asking("GET", file_target(id, path));
  request.on_body = [&](std::string_view piece) {
    same = same && bytes.matches(offset, piece);
    offset += piece.size();
  };
  const auto got = co_await http_.ask(std::move(request));
  ending end{failure_of(got, 200)};
  end.bytes = offset;
  if (end.ok() && (!same || offset != bytes.size()))
    end.failure = failure::wrong_bytes;
  co_return end;
}

task<ending> bridge::persist(std::string id, std::string& archive) {
  archive.clear();
  auto request = asking("POST", "/v1/sandbox/" + id + "/persist");
  request.on_body = [&archive](std::string_view piece) {
    if (archive.size() + piece.size() <= largest_archive)
      archive += piece;
  };
  const auto got = co_await http_.ask(std::move(request));
  ending end{failure_of(got, 200)};
  end.bytes = got.body_bytes;
  if (end.ok() && got.body_bytes != archive.size())
    end.failure = "archive too large";
  co_return end;
}

task<ending> bridge::hydrate(std::string id, const std::string& archive) {
  auto request = asking("POST", "/v1/sandbox/" + id + "/hydrate");
  request.body = archive;
  const auto got = co_await http_.ask(std::move(request));
  ending end{failure_of(got, 200)};
  end.bytes = archive.size();
  co_return end;
}

task<ending> bridge::create_session(std::string id, std::string session) {
  auto request = asking("POST", "/v1/sandbox/" + id + "/session");
  request.body = R"({"id":")" + session + R"("})"; // Letters and digits, nothing to escape.
  const auto got = co_await http_.ask(std::move(request));
  ending end{failure_of(got, 200)};
  if (!end.ok())
    co_return end;
  const auto said = parsed(got.body);
  if (said.HasParseError() || !said.IsObject() || !said.HasMember("id") || !said["id"].IsString() ||
      said["id"].GetString() != session)
    end.failure = failure::malformed;
  co_return end;
}

task<ending> bridge::remove_session(std::string id, std::string session) {
  auto request = asking("DELETE", "/v1/sandbox/" + id + "/session/" + session);
  const auto got = co_await http_.ask(std::move(request));
  // The contract says 204, and what it is taken from answers 200.
  co_return ending{failure_of(got, got.status == 200 ? 200 : 204)};
}

task<http_answer> bridge::health() {
  auto request = asking("GET", "/health");
  request.with_key = false;
  request.patience = question_patience;
  request.cleaning_up = true;
  auto got = co_await http_.ask(std::move(request));
  co_return got;
}

task<pool_stats> bridge::pool() {
  auto request = asking("GET", "/v1/pool/stats");
  request.patience = question_patience;
  const auto got = co_await http_.ask(std::move(request));
  pool_stats stats;
  if (const auto failed = failure_of(got, 200); !failed.empty()) {
    stats.missing = "GET /v1/pool/stats: " + failed;
    co_return stats;
  }
  const auto said = parsed(got.body);
  const auto number = [](const rapidjson::Value& in, const char* name, std::uint64_t& to) {
    if (!in.IsObject() || !in.HasMember(name) || !in[name].IsUint64())
      return false;
    to = in[name].GetUint64();
    return true;
  };
  if (said.HasParseError() || !number(said, "warm", stats.warm) || !said.HasMember("config") ||
      !number(said["config"], "warmTarget", stats.target))
    stats.missing = "GET /v1/pool/stats answers something else";
  co_return stats;
}

task<ending> bridge::prime_pool() {
  auto request = asking("POST", "/v1/pool/prime");
  request.patience = question_patience;
  const auto got = co_await http_.ask(std::move(request));
  co_return ending{failure_of(got, 200)};
}

namespace {

task<std::string> read_metrics(http_client& http, std::chrono::milliseconds patience) {
  std::string text;
  constexpr std::size_t largest = 8u << 20;
  http_request request;
  request.method = "GET";
  request.target = "/metrics";
  request.patience = patience;
  request.cleaning_up = true;
  request.on_body = [&text](std::string_view piece) {
    if (text.size() < largest)
      text += piece;
  };
  const auto got = co_await http.ask(std::move(request));
  if (!failure_of(got, 200).empty())
    text.clear();
  co_return text;
}

} // namespace

task<std::map<std::string, std::string>> bridge::build_info() {
  const auto text = co_await read_metrics(http_, question_patience);
  auto found = find_metric(text, "insula_build_info");
  if (!found)
    co_return std::map<std::string, std::string>{};
  co_return std::move(found->labels);
}

task<std::optional<double>> bridge::metric(std::string name) {
  const auto text = co_await read_metrics(http_, question_patience);
  const auto found = find_metric(text, name);
  if (!found)
    co_return std::nullopt;
  co_return found->value;
}

task<std::size_t> bridge::remove_all(std::set<std::string> kept) {
  std::vector<std::string> left;
  for (const auto& each : made_)
    if (kept.count(each) == 0)
      left.push_back(each);
  const auto until = clock::now() + removal_patience;
  const auto one_by_one = [](bridge& of, std::vector<std::string>& from,
                             clock::time_point end) -> task<> {
    while (!from.empty() && clock::now() < end) {
      auto id = std::move(from.back());
      from.pop_back();
      co_await of.remove(std::move(id));
    }
  };
  auto executor = co_await asio::this_coro::executor;
  auto& io = static_cast<asio::io_context&>(executor.context());
  task_group group{io};
  for (std::size_t i = 0; i < removals_at_once; ++i)
    group.start(one_by_one(*this, left, until));
  co_await group.wait();
  const auto before = made_.size();
  std::erase_if(made_, [&kept](const auto& each) { return kept.count(each) == 0; });
  co_return before - made_.size();
}

std::optional<metric_line> find_metric(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(name))
      continue;
    line.remove_prefix(name.size());
    metric_line found;
    if (line.starts_with('{')) {
      line.remove_prefix(1);
      while (!line.empty() && line.front() != '}') {
        const auto sign = line.find("=\"");
        if (sign == std::string_view::npos)
          return std::nullopt;
        std::string label{line.substr(0, sign)}, value;
        line.remove_prefix(sign + 2);
        while (!line.empty() && line.front() != '"') {
          if (line.front() == '\\' && line.size() > 1)
            line.remove_prefix(1);
          value += line.front();
          line.remove_prefix(1);
        }
        found.labels[label] = value;
        line.remove_prefix(std::min<std::size_t>(1, line.size()));
        if (line.starts_with(','))
          line.remove_prefix(1);
      }
      line.remove_prefix(std::min<std::size_t>(1, line.size()));
    }
    if (!line.starts_with(' '))
      continue; // A longer name.
    found.value = std::strtod(std::string{line}.c_str(), nullptr);
    return found;
  }
  return std::nullopt;
}

} // namespace insula::load
