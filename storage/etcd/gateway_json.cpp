#include "storage/etcd/gateway_json.hpp"

#include "base/base64.hpp"

#include <charconv>
#include <rapidjson/document.h>
#include <rapidjson/error/en.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

namespace insula::storage::etcd {

namespace {

using rapidjson::Value;
using writer = rapidjson::Writer<rapidjson::StringBuffer>;

constexpr std::size_t longest_words = 300;

const Value* member(const Value* of, const char* name) {
  if (of == nullptr || !of->IsObject())
    return nullptr;
  const auto at = of->FindMember(name);
  return at == of->MemberEnd() ? nullptr : &at->value;
}

std::int64_t number(const Value* of, const char* name) {
  const auto* found = member(of, name);
  if (found == nullptr)
    return 0;
  if (found->IsInt64())
    return found->GetInt64();
  std::int64_t value = 0;
  if (found->IsString())
    std::from_chars(found->GetString(), found->GetString() + found->GetStringLength(), value);
  return value;
}

std::string bytes(const Value* of, const char* name) {
  const auto* found = member(of, name);
  if (found == nullptr || !found->IsString())
    return {};
  return from_base64({found->GetString(), found->GetStringLength()}).value_or("");
}

std::string words(const Value* of, const char* name) {
  const auto* found = member(of, name);
  return found != nullptr && found->IsString()
           ? std::string{found->GetString(), std::min<std::size_t>(found->GetStringLength(), 300)}
           : std::string{};
}

result<rapidjson::Document> parse(std::string_view text) {
  rapidjson::Document document;
  document.Parse<rapidjson::kParseIterativeFlag>(text.data(), text.size());
  if (document.HasParseError() || !document.IsObject())
    return error{errc::io_failed,
                 "etcd's answer is no JSON object: " + std::string{text.substr(0, longest_words)}};
  return document;
}

key_value read_key(const Value* from) {
  return {bytes(from, "key"), bytes(from, "value"), number(from, "create_revision"),
          number(from, "mod_revision"), number(from, "lease")};
}

void text(writer& to, const char* name, std::string_view value) {
  to.Key(name);
  to.String(value.data(), static_cast<rapidjson::SizeType>(value.size()));
}

void step(writer& to, const operation& what) {
  to.StartObject();
  switch (what.what) {
    case operation::of::put: to.Key("request_put"); break;
    case operation::of::remove: to.Key("request_delete_range"); break;
    case operation::of::read: to.Key("request_range"); break;
  }
  to.StartObject();
  text(to, "key", base64(what.key));
  if (!what.end.empty())
    text(to, "range_end", base64(what.end));
  if (what.what == operation::of::put) {
    text(to, "value", base64(what.value));
    if (what.lease != 0)
      text(to, "lease", std::to_string(what.lease));
  }
  if (what.limit != 0)
    text(to, "limit", std::to_string(what.limit));
  if (what.keys_only) {
    to.Key("keys_only");
    to.Bool(true);
  }
  if (what.count_only) {
    to.Key("count_only");
    to.Bool(true);
  }
  to.EndObject();
  to.EndObject();
}

std::string made(const rapidjson::StringBuffer& buffer) {
  return {buffer.GetString(), buffer.GetSize()};
}

} // namespace

std::string question(const transaction& what) {
  rapidjson::StringBuffer buffer;
  writer to{buffer};
  to.StartObject();
  to.Key("compare");
  to.StartArray();
  for (const auto& each : what.conditions) {
    const bool created = each.what == condition::of::created;
    to.StartObject();
    text(to, "result", "EQUAL");
    text(to, "target", created ? "CREATE" : "MOD");
    text(to, "key", base64(each.key));
    text(to, created ? "create_revision" : "mod_revision", std::to_string(each.is));
    to.EndObject();
  }
  to.EndArray();
  to.Key("success");
  to.StartArray();
  for (const auto& each : what.then)
    step(to, each);
  to.EndArray();
  to.Key("failure");
  to.StartArray();
  for (const auto& each : what.otherwise)
    step(to, each);
  to.EndArray();
  to.EndObject();
  return made(buffer);
}

std::string grant_question(std::chrono::seconds lives) {
  return R"({"TTL":")" + std::to_string(lives.count()) + "\"}";
}

std::string lease_question(lease_id which) {
  return R"({"ID":")" + std::to_string(which) + "\"}";
}

std::string watch_question(std::string_view prefix, revision from) {
  return R"({"create_request":{"key":")" + base64(prefix) + R"(","range_end":")" +
         base64(end_of_prefix(prefix)) + R"(","start_revision":")" + std::to_string(from) + "\"}}";
}

result<outcome> read_outcome(std::string_view answer) {
  const auto document = parse(answer);
  if (!document)
    return document.reason();
  const Value* root = &*document;
  const auto* held = member(root, "succeeded");
  outcome read;
  read.held = held != nullptr && held->IsBool() && held->GetBool();
  read.at = number(member(root, "header"), "revision");
  read.in = number(member(root, "header"), "raft_term");
  if (read.at == 0)
    return error{errc::io_failed, "etcd's answer has no revision"};
  const auto* responses = member(root, "responses");
  if (responses == nullptr || !responses->IsArray())
    return read;
  for (const auto& each : responses->GetArray()) {
    auto& found = read.found.emplace_back();
    const auto* range = member(&each, "response_range");
    read.counts.push_back(number(range, "count"));
    const auto* keys = member(range, "kvs");
    if (keys == nullptr || !keys->IsArray())
      continue;
    for (const auto& one : keys->GetArray())
      found.push_back(read_key(&one));
  }
  return read;
}

result<lease_id> read_grant(std::string_view answer) {
  const auto document = parse(answer);
  if (!document)
    return document.reason();
  if (const auto id = number(&*document, "ID"); id != 0)
    return id;
  return error{errc::io_failed, "etcd has granted a lease without a number"};
}

result<renewal> read_renewal(std::string_view answer) {
  const auto document = parse(answer.substr(0, answer.find('\n')));
  if (!document)
    return document.reason();
  const auto* told = member(&*document, "result");
  if (told == nullptr)
    return error{errc::io_failed, "etcd has not said whether a lease lives"};
  return renewal{std::chrono::seconds{number(told, "TTL")},
                 number(member(told, "header"), "raft_term")};
}

std::string read_version(std::string_view answer) {
  const auto document = parse(answer);
  return document ? words(&*document, "version") : std::string{};
}

result<watch_news> read_news(std::string_view line) {
  const auto document = parse(line);
  if (!document)
    return document.reason();
  watch_news news;
  const auto* told = member(&*document, "result");
  if (told == nullptr) {
    news.ended = error{errc::io_failed, "the watch has failed: " + read_refusal(line).words};
    return news;
  }
  news.at = number(member(told, "header"), "revision");
  if (const auto* over = member(told, "canceled");
      over != nullptr && over->IsBool() && over->GetBool())
    news.ended = error{number(told, "compact_revision") != 0 ? errc::result_gone : errc::io_failed,
                       "etcd has ended the watch: " + words(told, "cancel_reason")};
  const auto* events = member(told, "events");
  if (events != nullptr && events->IsArray())
    for (const auto& each : events->GetArray())
      news.events.push_back({words(&each, "type") == "DELETE", read_key(member(&each, "kv"))});
  return news;
}

refusal read_refusal(std::string_view text) {
  const auto document = parse(text);
  if (!document)
    return {2, std::string{text.substr(0, longest_words)}};
  const Value* root = &*document;
  if (const auto* inner = member(root, "error"); inner != nullptr && inner->IsObject())
    root = inner;
  auto said = words(root, "message");
  if (said.empty())
    said = words(root, "error");
  auto code = number(root, "code");
  if (code == 0)
    code = number(root, "grpc_code");
  return {static_cast<int>(code), std::move(said)};
}

std::string end_of_prefix(std::string_view prefix) {
  while (!prefix.empty() && prefix.back() == '\xff')
    prefix.remove_suffix(1);
  if (prefix.empty())
    return std::string(1, '\0');
  std::string end{prefix};
  end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return end;
}

} // namespace insula::storage::etcd
