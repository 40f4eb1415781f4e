#include "benchmarks/bridge_client.hpp"

#include <cstdio>
#include <stdexcept>

namespace insula::bench {

namespace {

[[noreturn]] void refused(const std::string& what, int status, const std::string& body) {
  throw std::runtime_error(what + ": " + std::to_string(status) + " " + body.substr(0, 200));
}

std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    char escaped[8];
    if (c == '"' || c == '\\')
      (json += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20)
      json.append(escaped,
                  static_cast<std::size_t>(std::snprintf(escaped, sizeof escaped, "\\u%04x", c)));
    else
      json += c;
  }
  return json += '"';
}

/// Server-sent events out of pieces of text.
class event_reader {
public:
  explicit event_reader(clock::time_point since)
      : since_(since) {}

  void feed(std::string_view piece) {
    text_.append(piece);
    for (std::size_t end; (end = text_.find("\n\n")) != std::string::npos; text_.erase(0, end + 2))
      take(std::string_view{text_}.substr(0, end));
  }

  exec_times times;
  bool exited = false;
  std::string failure; ///< The data of an exit that is not 0, or of an error event.

private:
  void take(std::string_view block) {
    constexpr std::string_view before_name = "event: ", before_data = "\ndata: ";
    const auto at = block.find(before_data);
    if (block.substr(0, before_name.size()) != before_name || at == std::string_view::npos)
      return; // A comment that keeps the connection alive.
    const auto name = block.substr(before_name.size(), at - before_name.size());
    const auto data = block.substr(at + before_data.size());
    const auto now = ms_since(since_);
    if (times.first_ms == 0)
      times.first_ms = now;
    if (name == "stdout") {
      times.output += data;
    } else if (name == "exit" || name == "error") {
      exited = name == "exit";
      times.exit_ms = now;
      if (data != R"({"exit_code":0})")
        failure = data;
    }
  }

  clock::time_point since_;
  std::string text_;
};

} // namespace

std::string exec_body(const std::vector<std::string>& argv) {
  std::string json = R"({"argv":[)";
  for (const auto& each : argv)
    json += (&each == &argv.front() ? "" : ",") + quoted(each);
  return json + "]}";
}

std::string bridge_client::create() {
  std::string body;
  const auto status = http_.ask("POST", "/v1/sandbox", {}, body);
  constexpr std::string_view before = R"("id":")";
  const auto begin = body.find(before);
  if (status != 200 || begin == std::string::npos)
    refused("create", status, body);
  const auto id = begin + before.size();
  return body.substr(id, body.find('"', id) - id);
}

exec_times bridge_client::exec(const std::string& id, const command& what, clock::time_point since,
                               std::string_view fields) {
  event_reader events{since};
  std::string refusal;
  const auto status = http_.ask(
    "POST", "/v1/sandbox/" + id + "/exec", exec_body(what.argv),
    [&](std::string_view piece) {
      events.feed(piece);
      if (!events.exited)
        refusal.append(piece.substr(0, 200));
    },
    fields);
  if (status != 200)
    refused("exec", status, refusal);
  if (!events.exited || !events.failure.empty())
    refused("exec", status, events.failure.empty() ? "no exit event" : events.failure);
  if (!what.output.empty() && events.times.output != what.output)
    refused("exec printed something else", status, events.times.output);
  return events.times;
}

void bridge_client::remove(const std::string& id) {
  std::string body;
  if (const auto status = http_.ask("DELETE", "/v1/sandbox/" + id, {}, body); status != 204)
    refused("delete", status, body);
}

void bridge_client::write_file(const std::string& id, const std::string& path,
                               std::string_view bytes) {
  std::string body;
  const auto status = http_.ask("PUT", "/v1/sandbox/" + id + "/file" + path, bytes, body);
  if (status != 200)
    refused("write", status, body);
}

void bridge_client::read_file(const std::string& id, const std::string& path,
                              response_reader::body_fn on_bytes) {
  const auto status =
    http_.ask("GET", "/v1/sandbox/" + id + "/file" + path, {}, std::move(on_bytes));
  if (status != 200)
    refused("read", status, path);
}

std::size_t bridge_client::persist(const std::string& id) {
  std::size_t size = 0;
  const auto status = http_.ask("POST", "/v1/sandbox/" + id + "/persist", {},
                                [&size](std::string_view piece) { size += piece.size(); });
  if (status != 200)
    refused("persist", status, {});
  return size;
}

void bridge_client::hydrate(const std::string& id, std::string_view archive) {
  std::string body;
  const auto status = http_.ask("POST", "/v1/sandbox/" + id + "/hydrate", archive, body);
  if (status != 200)
    refused("hydrate", status, body);
}

} // namespace insula::bench
