#include "http/bridge/bridge_json.hpp"

#include "base/limits.hpp"
#include "http/json/json.hpp"
#include "http/json/writer.hpp"

#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

namespace insula::http::bridge {

using json::number_text;
using json::writer;

namespace {

/// Takes an exec body in one pass. What the contract ignores is not kept, so that a body costs
/// about its own size whatever is in it.
class exec_reader {
public:
  bool Null() { return other(); }
  bool Bool(bool) { return other(); }
  bool Int(int i) { return number(i); }
  bool Uint(unsigned i) { return number(i); }
  bool Int64(std::int64_t i) { return number(static_cast<double>(i)); }
  bool Uint64(std::uint64_t i) { return number(static_cast<double>(i)); }
  bool Double(double d) { return number(d); }
  bool RawNumber(const char*, rapidjson::SizeType, bool) { return other(); }
  bool String(const char* s, rapidjson::SizeType n, bool) {
    if (is_element())
      return append({s, n});
    if (begin_member() == member::cwd)
      body_.cwd.emplace(s, n);
    return true;
  }
  bool Key(const char* s, rapidjson::SizeType n, bool) {
    if (depth_ > 1)
      return true;
    const std::string_view name{s, n};
    member_ = name == "argv"         ? member::argv
              : name == "timeout_ms" ? member::timeout
              : name == "cwd"        ? member::cwd
                                     : member::unknown;
    return true;
  }
  bool StartObject() {
    other();
    return ++depth_ <= limits::json_depth;
  }
  bool StartArray() {
    if (is_element())
      only_strings_ = false;
    else
      in_argv_ = begin_member() == member::argv;
    return ++depth_ <= limits::json_depth;
  }
  bool EndObject(rapidjson::SizeType) { return leave(); }
  bool EndArray(rapidjson::SizeType) { return leave(); }

  /// After the reader has taken all of the text, or (`whole` is false) has been stopped.
  result<exec_body> finish(bool whole) {
    if (too_many_)
      return error{errc::invalid_request,
                   "argv must have at most " + std::to_string(limits::argv_elements) + " elements"};
    if (!whole)
      return error{errc::invalid_request, "Invalid JSON body"};
    if (!only_strings_)
      return error{errc::invalid_request, "argv must contain only strings"};
    if (body_.argv.empty())
      return error{errc::invalid_request, "argv must be a non-empty array"};
    return std::move(body_);
  }

private:
  enum class member : std::uint8_t { unknown, argv, timeout, cwd };

  /// Is the value that comes one of argv's?
  bool is_element() const { return in_argv_ && depth_ == 2; }

  /// A value that is no element: of several members of one name the last counts, so what an earlier
  /// one said is forgotten.
  member begin_member() {
    const auto now = depth_ == 1 ? member_ : member::unknown;
    if (now == member::argv) {
      body_.argv.clear();
      only_strings_ = true;
    } else if (now == member::timeout) {
      body_.timeout_ms.reset();
    } else if (now == member::cwd) {
      body_.cwd.reset();
    }
    return now;
  }

  bool append(std::string element) {
    too_many_ = body_.argv.size() == limits::argv_elements;
    if (!too_many_)
      body_.argv.push_back(std::move(element));
    return !too_many_;
  }

  bool number(double value) {
    if (is_element())
      return append(number_text(value));
    if (begin_member() == member::timeout)
      body_.timeout_ms = value;
    return true;
  }

  bool other() {
    if (is_element())
      only_strings_ = false;
    else
      begin_member();
    return true;
  }

  bool leave() {
    --depth_;
    in_argv_ = in_argv_ && depth_ > 1;
    return true;
  }

  exec_body body_;
  std::size_t depth_ = 0;
  member member_ = member::unknown; ///< Of the outermost object.
  bool in_argv_ = false;
  bool only_strings_ = true;
  bool too_many_ = false;
};

/// Takes what it knows from the outermost object, and from its member `env`.
class session_reader : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, session_reader> {
public:
  bool Default() {
    begin_value();
    return true;
  }
  bool Int(int value) { return number(value); }
  bool Uint(unsigned value) { return number(value); }
  bool Int64(std::int64_t value) { return number(static_cast<double>(value)); }
  bool Uint64(std::uint64_t value) { return number(static_cast<double>(value)); }
  bool Double(double value) { return number(value); }
  bool String(const char* bytes, rapidjson::SizeType count, bool) {
    begin_value();
    const std::string value(bytes, count);
    if (depth_ == 2 && in_env_)
      body_.env[name_] = value;
    else if (depth_ == 1 && name_ == "id")
      body_.id = value;
    else if (depth_ == 1 && name_ == "cwd")
      body_.cwd = value;
    return true;
  }
  bool Key(const char* bytes, rapidjson::SizeType count, bool) {
    if (depth_ <= 2)
      name_.assign(bytes, count);
    return true;
  }
  bool StartObject() {
    if (depth_ == 0)
      is_object_ = true;
    begin_value();
    in_env_ = in_env_ || (depth_ == 1 && is_object_ && name_ == "env");
    return ++depth_ <= limits::json_depth;
  }
  bool EndObject(rapidjson::SizeType) { return leave(); }
  bool StartArray() {
    begin_value();
    return ++depth_ <= limits::json_depth;
  }
  bool EndArray(rapidjson::SizeType) { return leave(); }

  session_body finish(bool whole) {
    return whole && is_object_ ? std::move(body_) : session_body{};
  }

private:
  bool number(double value) {
    begin_value();
    if (depth_ == 1 && name_ == "commandTimeoutMs")
      body_.command_timeout_ms = value;
    return true;
  }

  /// Of several members of one name the last counts, so what an earlier one said is forgotten.
  void begin_value() {
    if (depth_ == 2 && in_env_)
      body_.env.erase(name_);
    if (depth_ != 1)
      return;
    if (name_ == "id")
      body_.id.reset();
    else if (name_ == "cwd")
      body_.cwd.reset();
    else if (name_ == "env")
      body_.env.clear();
    else if (name_ == "commandTimeoutMs")
      body_.command_timeout_ms.reset();
  }

  bool leave() {
    --depth_;
    in_env_ = in_env_ && depth_ > 1;
    return true;
  }

  session_body body_;
  std::string name_; ///< Of the member that comes.
  std::size_t depth_ = 0;
  bool is_object_ = false;
  bool in_env_ = false;
};

/// Takes a terminal's control message in one pass; of several members of one name the last counts.
class control_reader {
public:
  bool Null() { return value(none, true); }
  bool Bool(bool) { return value(); }
  bool Int(int i) { return value(i); }
  bool Uint(unsigned i) { return value(i); }
  bool Int64(std::int64_t i) { return value(static_cast<double>(i)); }
  bool Uint64(std::uint64_t i) { return value(static_cast<double>(i)); }
  bool Double(double d) { return value(d); }
  bool RawNumber(const char*, rapidjson::SizeType, bool) { return value(); }
  bool String(const char* s, rapidjson::SizeType n, bool) {
    const bool names_resize = std::string_view{s, n} == "resize";
    if (depth_ == 1 && member_ == member::type)
      resize_ = names_resize;
    else
      value();
    return true;
  }
  bool Key(const char* s, rapidjson::SizeType n, bool) {
    if (depth_ > 1)
      return true;
    const std::string_view name{s, n};
    member_ = name == "type"   ? member::type
              : name == "cols" ? member::columns
              : name == "rows" ? member::rows
                               : member::unknown;
    return true;
  }
  bool StartObject() {
    object_ = object_ || depth_ == 0;
    return enter();
  }
  bool StartArray() { return enter(); }
  bool EndObject(rapidjson::SizeType) { return leave(); }
  bool EndArray(rapidjson::SizeType) { return leave(); }

  terminal_control finish(bool whole) const {
    using kind = terminal_control::kind;
    if (!whole || null_)
      return {kind::malformed};
    if (!object_ || !resize_)
      return {kind::ignored};
    if (!columns_ || !rows_)
      return {kind::malformed};
    return {kind::resize, *columns_, *rows_};
  }

private:
  enum class member : std::uint8_t { unknown, type, columns, rows };
  static constexpr std::nullopt_t none = std::nullopt;

  bool value(std::optional<double> number = none, bool is_null = false) {
    null_ = is_null && depth_ == 0;
    if (depth_ != 1)
      return true;
    if (member_ == member::type)
      resize_ = false;
    else if (member_ == member::columns)
      columns_ = number;
    else if (member_ == member::rows)
      rows_ = number;
    return true;
  }
  bool enter() {
    if (depth_ == 1)
      value();
    return ++depth_ <= limits::json_depth;
  }
  bool leave() {
    --depth_;
    return true;
  }

  std::size_t depth_ = 0;
  member member_ = member::unknown; ///< Of the outermost object.
  bool object_ = false;
  bool null_ = false; ///< That is all of it.
  bool resize_ = false;
  std::optional<double> columns_;
  std::optional<double> rows_;
};

/// False: not JSON, or the handler wanted no more.
template <class Handler>
bool parse(std::string_view text, Handler& handler) {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  if (text.substr(0, byte_order_mark.size()) == byte_order_mark)
    text.remove_prefix(byte_order_mark.size());
  // The reader takes a NUL for the end of the text, whatever comes after it.
  if (text.find('\0') != std::string_view::npos)
    return false;
  rapidjson::MemoryStream stream{text.data(), text.size()};
  rapidjson::Reader reader;
  constexpr unsigned flags = rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag;
  return !reader.Parse<flags>(stream, handler).IsError();
}

} // namespace

result<exec_body> read_exec_body(std::string_view text) {
  exec_reader handler;
  const bool whole = parse(text, handler);
  return handler.finish(whole);
}

session_body read_session_body(std::string_view text) {
  session_reader handler;
  const bool whole = parse(text, handler);
  return handler.finish(whole);
}

terminal_control read_terminal_control(std::string_view text) {
  control_reader handler;
  const bool whole = parse(text, handler);
  return handler.finish(whole);
}

std::string write_terminal_ready() {
  return R"({"type":"ready"})";
}

std::string write_terminal_exit(int code, std::string_view signal) {
  writer out;
  out.begin_object().member("type", "exit").member("code", code);
  if (!signal.empty())
    out.member("signal", signal);
  return out.end_object().str();
}

std::string write_terminal_error(std::string_view message) {
  return writer{}
    .begin_object()
    .member("type", "error")
    .member("message", message)
    .end_object()
    .str();
}

std::string write_id(std::string_view id) {
  return writer{}.begin_object().member("id", id).end_object().str();
}

std::string write_description(std::string_view id, const sandbox_description& is) {
  const auto& profile = is.profile;
  writer out;
  out.begin_object().member("id", id).member("state", is.state).member("image", is.image);
  out.member("privileges", word_of(profile.gains)).key("user").begin_object();
  out.member("uid", profile.user.uid).member("gid", profile.user.gid).end_object();
  if (!profile.home.empty())
    out.member("home", profile.home);
  out.member("cwd", profile.cwd).key("limits").begin_object();
  out.member("memory_bytes", is.memory_limit_bytes).member("cpu_percent", is.cpu_limit_percent);
  out.member("processes", is.process_limit).member("disk_bytes", is.disk_limit_bytes).end_object();
  out.member("created_ms", is.created_ms);
  if (is.expires_ms)
    out.member("expires_ms", *is.expires_ms);
  if (!is.snapshot.empty())
    out.member("snapshot", is.snapshot);
  return out.end_object().str();
}

namespace {

void put(writer& out, const node_image& is) {
  out.begin_object().member("name", is.name);
  if (!is.reference.empty())
    out.member("reference", is.reference);
  out.member("digest", is.digest).member("base", is.base).member("size_bytes", is.size_bytes);
  out.member("created_ms", is.created_ms);
  if (is.used_ms > 0)
    out.member("used_ms", is.used_ms);
  out.member("default", is.is_default).key("programs").begin_object();
  for (const auto& [program, version] : is.programs)
    out.member(program, version);
  out.end_object().end_object();
}

void put(writer& out, const image_on_its_way& is) {
  out.begin_object().member("reference", is.reference).member("bytes", is.bytes);
  out.member("total_bytes", is.total_bytes).end_object();
}

} // namespace

std::string write_images(const node_images& all) {
  writer out;
  out.begin_object().key("images").begin_array();
  for (const auto& each : all.list())
    put(out, each);
  out.end_array().key("pulling").begin_array();
  for (const auto& each : all.on_their_way())
    put(out, each);
  out.end_array().key("runtimes").begin_array();
  for (const auto& each : all.runtimes()) {
    out.begin_object().member("name", each.name).member("image", each.image);
    out.member("version", each.version).end_object();
  }
  return out.end_array().end_object().str();
}

std::string write_image(const node_image& is) {
  writer out;
  put(out, is);
  return out.str();
}

std::string write_pull(const image_on_its_way& is) {
  writer out;
  put(out, is);
  return out.str();
}

std::string write_running(bool running) {
  return writer{}.begin_object().member("running", running).end_object().str();
}

std::string write_missing_parts(const std::vector<std::string>& errors) {
  writer out;
  out.begin_object().member("ok", false).key("errors").begin_array();
  for (const auto& what : errors)
    out.text(what);
  return out.end_array().end_object().str();
}

std::string write_cluster(const cluster_status& seen) {
  json::writer to;
  to.begin_object().member("self", seen.self).key("nodes").begin_array();
  for (const auto& each : seen.nodes)
    to.begin_object()
      .member("name", each.name)
      .member("address", each.address)
      .member("state", each.state)
      .member("version", each.version)
      .member("lease", std::to_string(each.lease)) // More than JavaScript's numbers hold.
      .member("sandboxes", each.sandboxes)
      .member("capacity", each.capacity)
      .member("warm", each.warm)
      .member("clockAheadMs", each.clock_ahead_ms)
      .end_object();
  to.end_array().key("sandboxes").begin_array();
  for (const auto& each : seen.sandboxes)
    to.begin_object()
      .member("id", each.id)
      .member("node", each.node)
      .member("epoch", each.epoch)
      .end_object();
  return to.end_array().end_object().str();
}

std::string write_pool_stats(const pool_stats& of) {
  return writer{}
    .begin_object()
    .member("warm", of.warm)
    .member("assigned", of.assigned)
    .member("total", of.warm + of.assigned)
    .key("config")
    .begin_object()
    .member("warmTarget", of.settings.target)
    .member("refreshInterval", of.settings.refresh_interval.count())
    .member("maxInstances", of.limit)
    .member("scaleBatchSize", of.settings.scale_batch_size)
    .end_object()
    .member("maxInstances", of.limit)
    .end_object()
    .str();
}

std::string write_exit_code(int exit_code) {
  return writer{}.begin_object().member("exit_code", exit_code).end_object().str();
}

} // namespace insula::http::bridge
