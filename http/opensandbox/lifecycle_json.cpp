#include "http/opensandbox/lifecycle_json.hpp"

#include "base/id.hpp"

#include "http/json/document.hpp"
#include "http/json/writer.hpp"
#include "http/opensandbox/execd_json.hpp"
#include "http/opensandbox/policy_json.hpp"
#include "http/text/iso_time.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>

namespace insula::http::opensandbox {

namespace {

using json::string_of;
using json::value;
using texts = std::map<std::string, std::string>;

constexpr std::string_view reserved = "opensandbox.io/";
constexpr std::int64_t least_timeout_s = 60;
constexpr std::int64_t longest_timeout_s = 365ll * 24 * 3600;

/// A member that is null counts as not there.
const value* find(const value& object, std::string_view name) {
  return json::find(object, name, {.null_is_absent = true});
}

bool parse_object(std::string_view text, json::document& into) {
  return json::parse(text, into) && into.IsObject();
}

void text_map(json::writer& out, std::string_view name, const texts& all) {
  out.key(name).begin_object();
  for (const auto& [key, content] : all)
    out.member(key, content);
  out.end_object();
}

void text_list(json::writer& out, std::string_view name, const std::vector<std::string>& all) {
  out.key(name).begin_array();
  for (const auto& each : all)
    out.text(each);
  out.end_array();
}

refusal malformed(std::string why) {
  return {422, "GENERAL::INVALID_REQUEST", std::move(why)};
}

/// Values may be null if `nulls`: then they are left out.
bool read_texts(const value* from, texts& into, bool nulls) {
  if (from == nullptr)
    return true;
  if (!from->IsObject())
    return false;
  for (const auto& each : from->GetObject()) {
    if (each.value.IsNull() && nulls)
      continue;
    if (!each.value.IsString())
      return false;
    into[string_of(each.name)] = string_of(each.value);
  }
  return true;
}

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// As Kubernetes has its labels: at most 63 of letters, digits and -_., the ends no sign.
bool is_label(std::string_view text) {
  return text.size() <= 63 &&
         (text.empty() || (is_alphanumeric(text.front()) && is_alphanumeric(text.back()))) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

bool is_label_key(std::string_view key) {
  const auto slash = key.find('/');
  const auto name = slash == std::string_view::npos ? key : key.substr(slash + 1);
  const auto domain = slash == std::string_view::npos ? std::string_view{} : key.substr(0, slash);
  return !name.empty() && is_label(name) && domain.size() <= 253 &&
         (slash == std::string_view::npos || !domain.empty());
}

std::optional<refusal> check_label(const std::string& key, const std::string& content) {
  if (key.starts_with(reserved))
    return refusal{400, "SANDBOX::INVALID_METADATA_LABEL",
                   "metadata keys that begin with opensandbox.io/ are reserved"};
  if (!is_label_key(key) || !is_label(content))
    return refusal{400, "SANDBOX::INVALID_METADATA_LABEL",
                   "metadata \"" + key +
                     "\" is no label: letters, digits, '-', '_' and '.', at most "
                     "63, with a letter or digit at both ends"};
  return std::nullopt;
}

/// A quantity as Kubernetes writes it: "500m", "1.5", "512Mi", "2G". None: it is none.
std::optional<double> read_quantity(const std::string& text) {
  double number = 0;
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (why != std::errc{} || !(number >= 0))
    return std::nullopt;
  const std::string_view unit{end, text.size() - static_cast<std::size_t>(end - text.data())};
  constexpr std::array<std::pair<std::string_view, double>, 10> units{{{"", 1},
                                                                       {"m", 0.001},
                                                                       {"k", 1e3},
                                                                       {"M", 1e6},
                                                                       {"G", 1e9},
                                                                       {"T", 1e12},
                                                                       {"Ki", 1024.0},
                                                                       {"Mi", 1048576.0},
                                                                       {"Gi", 1073741824.0},
                                                                       {"Ti", 1099511627776.0}}};
  for (const auto& [name, factor] : units)
    if (unit == name)
      return number * factor;
  return std::nullopt;
}

/// What is not known here limits nothing.
std::optional<refusal> read_limits(const value* from, create_body& into) {
  texts limits;
  if (!read_texts(from, limits, true))
    return malformed("resourceLimits must be an object of strings");
  constexpr double least_memory = 16 << 20, least_cpu = 0.01, most = 1e15;
  const auto wrong = [](const std::string& name, std::string_view why) {
    return refusal{400, "SANDBOX::INVALID_PARAMETER",
                   "resourceLimits." + name + " " + std::string{why}};
  };
  for (const auto& [name, text] : limits) {
    if (name != "memory" && name != "cpu" && name != "gpu")
      continue;
    const auto amount = read_quantity(text);
    if (!amount || *amount > most)
      return wrong(name, "must be a quantity such as 500m or 512Mi");
    if (name == "gpu" && *amount > 0)
      return wrong(name, "is not supported");
    if (name == "memory" && *amount < least_memory)
      return wrong(name, "must be at least 16Mi");
    if (name == "cpu" && *amount < least_cpu)
      return wrong(name, "must be at least 10m");
    if (name == "memory")
      into.memory_bytes = static_cast<std::uint64_t>(*amount);
    if (name == "cpu") // More than any machine has says nothing.
      into.cpu_percent = static_cast<std::uint32_t>(std::min(*amount * 100, 1e6));
  }
  return std::nullopt;
}

/// `may_idle`: it need not be there, and is then one that does nothing.
std::optional<refusal> read_entrypoint(const value* words, bool may_idle, create_body& into) {
  if (words == nullptr && may_idle) {
    into.notes.entrypoint = {"tail", "-f", "/dev/null"};
    return std::nullopt;
  }
  if (words == nullptr || !words->IsArray() || words->Empty())
    return malformed("entrypoint must be an array of at least one string");
  for (const auto& each : words->GetArray()) {
    if (!each.IsString())
      return malformed("entrypoint must be an array of strings");
    into.notes.entrypoint.push_back(string_of(each));
  }
  return std::nullopt;
}

std::optional<refusal> read_env(const value* from, create_body& into) {
  if (!read_texts(from, into.env, true))
    return malformed("env must be an object of strings");
  for (const auto& [name, content] : into.env)
    if (name.empty() || name.find_first_of(std::string_view{"=\0", 2}) != std::string::npos ||
        content.find('\0') != std::string::npos)
      return malformed("env has a name or value that no environment can have");
  return std::nullopt;
}

std::optional<refusal> read_metadata(const value* from, create_body& into) {
  into.metadata_given = from != nullptr;
  if (!read_texts(from, into.notes.metadata, false))
    return malformed("metadata must be an object of strings");
  for (const auto& [key, content] : into.notes.metadata)
    if (auto wrong = check_label(key, content))
      return wrong;
  return std::nullopt;
}

std::optional<refusal> read_timeout(const value* from, create_body& into) {
  if (from == nullptr)
    return std::nullopt;
  if (!from->IsInt64() || from->GetInt64() < least_timeout_s)
    return malformed("timeout must be a whole number of seconds, 60 or more");
  if (from->GetInt64() > longest_timeout_s)
    return refusal{400, "SANDBOX::INVALID_PARAMETER", "timeout is at most a year"};
  into.timeout_s = from->GetInt64();
  return std::nullopt;
}

std::optional<refusal> read_network(const value* from, create_body& into) {
  if (from == nullptr)
    return std::nullopt;
  auto read = read_policy(*from);
  if (!read)
    return refusal{400, "SANDBOX::INVALID_PARAMETER", read.reason().message};
  into.network = std::move(*read);
  return std::nullopt;
}

/// None: `object` has members of these names alone.
std::optional<refusal> check_members(const value& object,
                                     std::initializer_list<std::string_view> known) {
  for (const auto& each : object.GetObject())
    if (std::find(known.begin(), known.end(), json::text_of(each.name)) == known.end())
      return malformed("there is no member " + string_of(each.name));
  return std::nullopt;
}

std::string_view name_of(fork_state is) {
  switch (is) {
    case fork_state::pending: return "Pending";
    case fork_state::snapshotting: return "Snapshotting";
    case fork_state::provisioning: return "Provisioning";
    case fork_state::succeeded: return "Succeeded";
    case fork_state::failed: return "Failed";
  }
  return "?";
}

} // namespace

std::string text_of_notes(const sandbox_description& of) {
  const auto at = of.metadata.find(metadata_api);
  return at == of.metadata.end() ? std::string{} : at->second;
}

sandbox_notes read_notes(std::string_view text) {
  sandbox_notes notes;
  json::document document;
  if (!parse_object(text, document))
    return notes;
  if (const auto* image = find(document, "image"); image != nullptr && image->IsString())
    notes.image = string_of(*image);
  if (const auto* words = find(document, "entrypoint"); words != nullptr && words->IsArray())
    for (const auto& each : words->GetArray())
      if (each.IsString())
        notes.entrypoint.push_back(string_of(each));
  if (const auto* from = find(document, "snapshot"); from != nullptr && from->IsString())
    notes.snapshot = string_of(*from);
  read_texts(find(document, "metadata"), notes.metadata, true);
  if (const auto* from = find(document, "fork"); from != nullptr && from->IsObject()) {
    const auto* source = find(*from, "source");
    const auto* request = find(*from, "request");
    const auto* began = find(*from, "began_ms");
    if (source != nullptr && source->IsString() && request != nullptr && request->IsString() &&
        began != nullptr && began->IsInt64())
      notes.fork = fork_note{string_of(*source), string_of(*request), began->GetInt64()};
  }
  return notes;
}

std::string write_notes(const sandbox_notes& notes) {
  json::writer out;
  out.begin_object();
  out.member("image", notes.image);
  if (!notes.snapshot.empty())
    out.member("snapshot", notes.snapshot);
  text_list(out, "entrypoint", notes.entrypoint);
  text_map(out, "metadata", notes.metadata);
  if (const auto& from = notes.fork)
    out.key("fork")
      .begin_object()
      .member("source", from->source)
      .member("request", from->request)
      .member("began_ms", from->began_ms)
      .end_object();
  out.end_object();
  return out.str();
}

told_start start_of_create_body(std::string_view body) {
  json::document document;
  if (!parse_object(body, document))
    return {};
  const auto text = [](const json::value* of) {
    return of != nullptr && of->IsString() ? string_of(*of) : std::string{};
  };
  const auto* image = find(document, "image");
  return {image != nullptr && image->IsObject() ? text(find(*image, "uri")) : std::string{},
          text(find(document, "snapshotId"))};
}

std::optional<refusal> read_create_body(std::string_view body, create_body& into) {
  json::document document;
  if (!parse_object(body, document))
    return malformed("the body must be a JSON object");
  const auto* image = find(document, "image");
  if (const auto* snapshot = find(document, "snapshotId")) {
    if (image != nullptr)
      return malformed("image and snapshotId cannot be there both");
    if (snapshot->IsString() && snapshot->GetStringLength() == 0)
      return refusal{400, "SANDBOX::INVALID_PARAMETER",
                     "snapshotId is empty, and there is no image"};
    if (!snapshot->IsString())
      return malformed("snapshotId must be a string");
    if (!sandbox_id::parse(json::text_of(*snapshot)))
      return refusal{404, "SNAPSHOT::NOT_FOUND",
                     "Snapshot " + string_of(*snapshot) + " not found."};
    into.notes.snapshot = string_of(*snapshot);
  } else {
    if (image == nullptr || !image->IsObject())
      return malformed("image is required");
    const auto* uri = find(*image, "uri");
    if (uri == nullptr || !uri->IsString() || uri->GetStringLength() == 0)
      return malformed("image.uri is required");
    into.notes.image = string_of(*uri);
  }
  const bool may_idle = !into.notes.snapshot.empty();
  if (auto wrong = read_entrypoint(find(document, "entrypoint"), may_idle, into))
    return wrong;
  if (find(document, "resourceLimits") == nullptr)
    return malformed("resourceLimits must be an object of strings");
  if (auto wrong = read_limits(find(document, "resourceLimits"), into))
    return wrong;
  if (auto wrong = read_env(find(document, "env"), into))
    return wrong;
  if (auto wrong = read_metadata(find(document, "metadata"), into))
    return wrong;
  texts extensions;
  if (!read_texts(find(document, "extensions"), extensions, true))
    return malformed("extensions must be an object of strings");
  if (const auto at = extensions.find("insula.privileges"); at != extensions.end()) {
    into.gains = privileges_of(at->second);
    if (!into.gains)
      return refusal{400, "SANDBOX::INVALID_PARAMETER",
                     "extensions[\"insula.privileges\"] is none or sudo"};
  }
  if (auto wrong = read_timeout(find(document, "timeout"), into))
    return wrong;
  if (auto wrong = read_network(find(document, "networkPolicy"), into))
    return wrong;
  for (const auto* name : {"volumes", "credentialProxy", "platform"}) {
    const auto* unsupported = find(document, name);
    if (unsupported != nullptr && !(unsupported->IsArray() && unsupported->Empty()))
      return refusal{400, "SANDBOX::INVALID_PARAMETER", std::string{name} + " is not supported"};
  }
  if (const auto* secure = find(document, "secureAccess"); secure != nullptr && secure->IsTrue())
    return refusal{400, "SANDBOX::INVALID_PARAMETER", "secureAccess is not supported"};
  return std::nullopt;
}

std::optional<refusal> read_fork_body(std::string_view body, fork_body& into) {
  json::document document;
  if (!parse_object(body, document))
    return malformed("the body must be a JSON object");
  if (auto wrong = check_members(document, {"timeout", "overrides"}))
    return wrong;
  auto& with = into.with;
  const auto* timeout = find(document, "timeout");
  if (timeout == nullptr)
    return malformed("timeout is required: how many seconds the fork is to be there");
  if (auto wrong = read_timeout(timeout, with))
    return wrong;
  const value nothing{rapidjson::kObjectType};
  const auto* given = json::find(document, "overrides");
  const auto& overrides = given == nullptr ? nothing : *given;
  if (!overrides.IsObject())
    return malformed("overrides must be an object");
  if (auto wrong = check_members(overrides, {"env", "resourceLimits", "resourceRequests",
                                             "networkPolicy", "metadata", "entrypoint"}))
    return wrong;
  for (const auto& each : overrides.GetObject())
    if (each.value.IsNull())
      return malformed("overrides." + string_of(each.name) +
                       " is null: what is the source's is left out");
  if (find(overrides, "resourceRequests") != nullptr)
    return refusal{409, "FORK::UNSUPPORTED_CONFIG",
                   "resourceRequests is not supported: nothing is reserved for a sandbox"};
  into.env = find(overrides, "env") != nullptr;
  into.limits = find(overrides, "resourceLimits") != nullptr;
  if (auto wrong = read_env(find(overrides, "env"), with))
    return wrong;
  if (auto wrong = read_limits(find(overrides, "resourceLimits"), with))
    return wrong;
  if (auto wrong = read_network(find(overrides, "networkPolicy"), with))
    return wrong;
  if (auto wrong = read_metadata(find(overrides, "metadata"), with))
    return wrong;
  return read_entrypoint(find(overrides, "entrypoint"), true, with);
}

std::string write_fork(const fork_operation& is) {
  json::writer out;
  out.begin_object().member("id", is.id).member("sourceSandboxId", is.from.source);
  out.key("status").begin_object().member("state", name_of(is.state));
  if (!is.reason.empty())
    out.member("reason", is.reason);
  if (!is.message.empty())
    out.member("message", is.message);
  out.end_object();
  if (!is.snapshot.empty())
    out.member("snapshotId", is.snapshot);
  if (is.state == fork_state::succeeded)
    out.member("sandboxId", is.id);
  out.member("createdAt", iso_time(is.from.began_ms)).member("updatedAt", iso_time(is.updated_ms));
  return out.member("cleanupPending", is.cleanup_pending).end_object().str();
}

std::optional<fork_operation> fork_of(const std::string& id, const sandbox_description& is) {
  auto notes = read_notes(text_of_notes(is));
  if (!is.exists || !notes.fork)
    return std::nullopt;
  fork_operation told{id, std::move(*notes.fork), fork_state::succeeded};
  told.snapshot = std::move(notes.snapshot);
  told.updated_ms = is.created_ms;
  return told;
}

std::optional<refusal> patch_metadata(std::string_view body, texts& metadata) {
  json::document document;
  if (!parse_object(body, document))
    return malformed("the body must be a JSON object");
  for (const auto& each : document.GetObject()) {
    const auto key = string_of(each.name);
    if (!each.value.IsString() && !each.value.IsNull())
      return malformed("metadata must be strings or null");
    if (auto wrong = check_label(key, each.value.IsNull() ? "" : string_of(each.value)))
      return wrong;
    if (each.value.IsNull())
      metadata.erase(key);
    else
      metadata[key] = string_of(each.value);
  }
  return std::nullopt;
}

result<std::int64_t> read_expiration(std::string_view body) {
  const error wrong{errc::invalid_request, "expiresAt must be a time such as 2026-01-01T00:00:00Z"};
  json::document document;
  if (!parse_object(body, document))
    return wrong;
  const auto* when = find(document, "expiresAt");
  if (when == nullptr || !when->IsString())
    return wrong;
  const auto text = string_of(*when);
  std::tm time{};
  int read = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &time.tm_year, &time.tm_mon,
                  &time.tm_mday, &time.tm_hour, &time.tm_min, &time.tm_sec, &read) != 6 ||
      read == 0)
    return wrong;
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  auto rest = std::string_view{text}.substr(static_cast<std::size_t>(read));
  std::int64_t ms = 0;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    std::int64_t unit = 100;
    for (; !rest.empty() && rest.front() >= '0' && rest.front() <= '9'; rest.remove_prefix(1)) {
      ms += (rest.front() - '0') * unit;
      unit /= 10;
    }
  }
  std::int64_t offset_s = 0;
  if (!rest.empty() && rest != "Z") {
    int hours = 0, minutes = 0;
    char sign = 0;
    if (std::sscanf(std::string{rest}.c_str(), "%c%2d:%2d", &sign, &hours, &minutes) != 3 ||
        (sign != '+' && sign != '-'))
      return wrong;
    offset_s = (sign == '+' ? 1 : -1) * (hours * 3600 + minutes * 60);
  }
  return (static_cast<std::int64_t>(::timegm(&time)) - offset_s) * 1000 + ms;
}

std::string_view state_of(const sandbox_description& of) {
  return of.paused ? "Paused" : of.run && !is_alive(of.run->state) ? "Terminated" : "Running";
}

namespace {

void append_sandbox(json::writer& out, const std::string& id, const sandbox_description& of,
                    bool created) {
  const auto notes = read_notes(text_of_notes(of));
  out.begin_object();
  out.member("id", id);
  if (!created && !notes.snapshot.empty()) {
    out.member("snapshotId", notes.snapshot);
  } else if (!created) {
    out.key("image").begin_object();
    out.member("uri", notes.image.empty() ? of.image : notes.image);
    out.end_object();
  }
  out.key("status").begin_object();
  const auto state = state_of(of);
  out.member("state", state);
  out.member("reason", state == "Paused"    ? "CONTAINER_PAUSED"
                       : state == "Running" ? "CONTAINER_RUNNING"
                                            : "CONTAINER_EXITED");
  out.member("message", "");
  out.member("lastTransitionAt", iso_time(of.created_ms));
  out.end_object();
  if (!notes.metadata.empty())
    text_map(out, "metadata", notes.metadata);
  text_list(out, "entrypoint", notes.entrypoint);
  if (of.expires_ms)
    out.member("expiresAt", iso_time(*of.expires_ms));
  out.member("createdAt", iso_time(of.created_ms));
  out.end_object();
}

} // namespace

std::string write_sandbox(const std::string& id, const sandbox_description& of, bool created) {
  json::writer out;
  append_sandbox(out, id, of, created);
  return out.str();
}

void append_pagination(json::writer& out, std::uint64_t page, std::uint64_t page_size,
                       std::uint64_t total) {
  const auto pages = (total + page_size - 1) / page_size;
  out.key("pagination").begin_object();
  for (const auto& [name, number] : {std::pair{"page", page},
                                     {"pageSize", page_size},
                                     {"totalItems", total},
                                     {"totalPages", pages}})
    out.member(name, number);
  out.member("hasNextPage", page < pages);
  out.end_object();
}

std::string write_list(const std::vector<described_sandbox>& items, std::uint64_t page,
                       std::uint64_t page_size, std::uint64_t total) {
  json::writer out;
  out.begin_object();
  out.key("items").begin_array();
  for (const auto& each : items)
    append_sandbox(out, each.id, each.is, false);
  out.end_array();
  append_pagination(out, page, page_size, total);
  out.end_object();
  return out.str();
}

std::string write_expiration(std::int64_t expires_ms) {
  return R"({"expiresAt":")" + iso_time(expires_ms) + R"("})";
}

std::string write_endpoint(const std::string& endpoint, const texts& headers) {
  json::writer out;
  out.begin_object();
  out.member("endpoint", endpoint);
  if (!headers.empty())
    text_map(out, "headers", headers);
  out.end_object();
  return out.str();
}

} // namespace insula::http::opensandbox
