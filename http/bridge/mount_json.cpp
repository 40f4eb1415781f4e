#include "http/bridge/mount_json.hpp"

#include "base/limits.hpp"
#include "http/json/document.hpp"
#include "http/json/writer.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>

namespace insula::http::json {

namespace {

constexpr strictness as_javascript{.byte_order_mark = true};

bool is_text(const value* given) {
  return given != nullptr && given->IsString();
}

bool is_some_text(const value* given) {
  return is_text(given) && given->GetStringLength() > 0;
}

bool is_texts(const value& given) {
  return given.IsArray() &&
         std::all_of(given.Begin(), given.End(), [](const value& each) { return each.IsString(); });
}

/// What both requests have. Errors: numbers 3 and 4 of the contract.
result<std::string> read_path(const value& body) {
  const auto* path = find(body, "mountPath");
  if (!is_some_text(path))
    return wrong("mountPath must be a non-empty string");
  if (*path->GetString() != '/')
    return wrong("mountPath must be an absolute path (start with /)");
  return string_of(*path);
}

/// The members of a mount's body, and its options' ones; null: not there.
struct members {
  explicit members(const value& body)
      : bucket(find(body, "bucket"))
      , binding(find(body, "binding"))
      , options(find(body, "options")) {
    if (options == nullptr)
      return;
    endpoint = find(*options, "endpoint");
    s3fs_options = find(*options, "s3fsOptions");
    read_only = find(*options, "readOnly");
    prefix = find(*options, "prefix");
    by_proxy = find(*options, "credentialProxy");
    credentials = find(*options, "credentials");
  }

  const value *bucket, *binding, *options;
  const value *endpoint = nullptr, *s3fs_options = nullptr, *read_only = nullptr, *prefix = nullptr,
              *by_proxy = nullptr, *credentials = nullptr;
};

/// What is wrong with the options' own members: numbers 10 to 14 of the contract.
std::optional<error> objection_to_options(const members& of) {
  if (of.s3fs_options != nullptr && !is_texts(*of.s3fs_options))
    return wrong("options.s3fsOptions must be an array of strings when provided");
  if (of.read_only != nullptr && !of.read_only->IsBool())
    return wrong("options.readOnly must be a boolean when provided");
  if (of.prefix != nullptr && !of.prefix->IsString())
    return wrong("options.prefix must be a string when provided");
  if (of.by_proxy != nullptr && !of.by_proxy->IsBool())
    return wrong("options.credentialProxy must be a boolean when provided");
  if (of.credentials != nullptr && (!is_text(find(*of.credentials, "accessKeyId")) ||
                                    !is_text(find(*of.credentials, "secretAccessKey"))))
    return wrong("options.credentials must include string accessKeyId and secretAccessKey");
  return std::nullopt;
}

/// Whether they are those of one mount: numbers 5 to 16 of the contract.
std::optional<error> objection_to(const members& of) {
  if (of.options == nullptr || !of.options->IsObject())
    return wrong("options must be an object");
  if (of.endpoint != nullptr && !of.endpoint->IsString())
    return wrong("options.endpoint must be a string when provided");
  if (of.binding != nullptr && !of.binding->IsString())
    return wrong("binding must be a string when provided");
  if (of.binding != nullptr && of.binding->GetStringLength() == 0)
    return wrong("binding must be a non-empty string when provided");
  if (of.binding != nullptr && of.endpoint != nullptr)
    return wrong("Provide either binding or options.endpoint, not both");
  if (auto why = objection_to_options(of))
    return why;
  if (of.endpoint != nullptr && of.bucket == nullptr)
    return wrong("bucket must be a non-empty string for remote mounts");
  // The name of a binding may stand in `bucket`, as the documentation of the original has it.
  if (of.endpoint == nullptr && of.binding == nullptr && of.bucket == nullptr)
    return wrong("binding must be a non-empty string for R2 binding mounts");
  return std::nullopt;
}

/// Texts that become arguments and paths: C would read only what is before a NUL.
std::optional<error>
objection_to_nul(std::initializer_list<std::pair<std::string_view, const std::string*>> texts) {
  for (const auto& [name, text] : texts)
    if (text->find('\0') != text->npos)
      return wrong(std::string{name} + " must not contain NUL");
  return std::nullopt;
}

/// What no table of the contract has: what is too much, or cannot be passed on.
std::optional<error> objection_to(const mount_bucket_request& wanted) {
  if (auto why = objection_to_nul({{"mountPath", &wanted.path},
                                   {"bucket", &wanted.bucket},
                                   {"binding", &wanted.binding},
                                   {"options.endpoint", &wanted.endpoint},
                                   {"options.prefix", &wanted.prefix}}))
    return why;
  if (wanted.credentials)
    if (auto why = objection_to_nul(
          {{"options.credentials.accessKeyId", &wanted.credentials->access_key_id},
           {"options.credentials.secretAccessKey", &wanted.credentials->secret_access_key}}))
      return why;
  if (wanted.options.size() > limits::mount_options)
    return wrong("options.s3fsOptions must have at most " + std::to_string(limits::mount_options) +
                 " elements");
  for (const auto& each : wanted.options) {
    if (each.size() > limits::mount_option_bytes)
      return wrong("options.s3fsOptions must have elements of at most " +
                   std::to_string(limits::mount_option_bytes) + " bytes");
    if (auto why = objection_to_nul({{"options.s3fsOptions", &each}}))
      return why;
  }
  return std::nullopt;
}

mount_bucket_request request_of(std::string path, const members& of) {
  mount_bucket_request wanted;
  wanted.path = std::move(path);
  if (of.endpoint != nullptr) {
    wanted.endpoint = string_of(*of.endpoint);
    wanted.bucket = string_of(*of.bucket);
  } else {
    wanted.binding = string_of(of.binding != nullptr ? *of.binding : *of.bucket);
  }
  if (of.prefix != nullptr)
    wanted.prefix = string_of(*of.prefix);
  wanted.read_only = of.read_only != nullptr && of.read_only->GetBool();
  wanted.by_proxy = of.by_proxy != nullptr && of.by_proxy->GetBool();
  if (of.credentials != nullptr)
    wanted.credentials = {string_of(*find(*of.credentials, "accessKeyId")),
                          string_of(*find(*of.credentials, "secretAccessKey"))};
  if (of.s3fs_options != nullptr)
    for (const auto& each : of.s3fs_options->GetArray())
      wanted.options.push_back(string_of(each));
  return wanted;
}

/// Without empty, `.` and `..` segments nothing is left of it. `path` is absolute.
bool is_root(std::string_view path) {
  std::size_t depth = 0;
  while (!path.empty()) {
    path.remove_prefix(1); // The slash.
    const auto segment = path.substr(0, path.find('/'));
    path.remove_prefix(segment.size());
    if (segment == "..")
      depth -= std::min<std::size_t>(depth, 1);
    else if (!segment.empty() && segment != ".")
      ++depth;
  }
  return depth == 0;
}

/// Of null as well; of other texts that are no object only the members are missed.
const error no_json{errc::invalid_request, "Invalid JSON body"};

void text_if_any(writer& out, std::string_view name, std::string_view given) {
  if (!given.empty())
    out.member(name, given);
}

} // namespace

result<mount_bucket_request> read_mount_body(std::string_view body) {
  document parsed;
  if (!parse(body, parsed, as_javascript) || parsed.IsNull())
    return no_json;
  const members of{parsed};
  if (of.bucket != nullptr && !is_some_text(of.bucket))
    return wrong("bucket must be a non-empty string");
  auto path = read_path(parsed);
  if (!path)
    return path.reason();
  if (auto why = objection_to(of))
    return std::move(*why);
  auto wanted = request_of(std::move(*path), of);
  if (auto why = objection_to(wanted))
    return std::move(*why);
  return wanted;
}

result<unmount_bucket_request> read_unmount_body(std::string_view body) {
  document parsed;
  if (!parse(body, parsed, as_javascript) || parsed.IsNull())
    return no_json;
  auto path = read_path(parsed);
  if (!path)
    return path.reason();
  if (is_root(*path))
    return wrong("mountPath must not resolve to / (filesystem root)");
  if (auto why = objection_to_nul({{"mountPath", &*path}}))
    return std::move(*why);
  return unmount_bucket_request{std::move(*path)};
}

std::string write_mounts(const std::vector<mounted_bucket>& mounts) {
  writer out;
  out.begin_object();
  out.key("mounts");
  out.begin_array();
  for (const auto& each : mounts) {
    out.begin_object();
    out.member("mountPath", each.path);
    out.member("bucket", each.bucket);
    text_if_any(out, "binding", each.binding);
    text_if_any(out, "endpoint", each.endpoint);
    text_if_any(out, "prefix", each.prefix);
    out.member("readOnly", each.read_only);
    out.member("mounted", each.live);
    out.end_object();
  }
  out.end_array();
  out.end_object();
  return out.str();
}

} // namespace insula::http::json
