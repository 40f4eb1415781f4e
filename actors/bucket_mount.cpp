#include "actors/bucket_mount.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <deque>

namespace insula::actors {

namespace {

/// Of an absolute path. As the spawner takes it, with a NUL.
constexpr std::size_t max_path_bytes = 500;
constexpr std::size_t max_word_bytes = 1024;

error refused(std::string why) {
  return {errc::io_failed, std::move(why)};
}

bool is_letter_or_digit(char c, bool upper = true) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (upper && c >= 'A' && c <= 'Z');
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

std::string lower(std::string_view text) {
  std::string made{text};
  std::transform(made.begin(), made.end(), made.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return made;
}

/// Of "host:port" and "[::1]:port"; one that says no port may end with a colon.
bool has_good_port(std::string_view host) {
  const auto end_of_address = host.front() == '[' ? host.find(']') : 0;
  if (end_of_address == std::string_view::npos)
    return false;
  const auto colon = host.find(':', end_of_address);
  if (colon == std::string_view::npos)
    return true;
  const auto port = host.substr(colon + 1);
  constexpr std::size_t most_digits = 5;
  constexpr int last_port = 65'535;
  return port.size() <= most_digits &&
         std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         (port.empty() || std::stoi(std::string{port}) <= last_port);
}

/// The credentials of a mount must not be in it, nor anything that a program's list of options
/// would be ended by.
bool is_endpoint(std::string_view url) {
  const auto scheme = url.find("://");
  if (url.size() > max_word_bytes || scheme == std::string_view::npos ||
      (lower(url.substr(0, scheme)) != "http" && lower(url.substr(0, scheme)) != "https"))
    return false;
  const auto rest = url.substr(scheme + 3);
  const auto host = rest.substr(0, rest.find('/'));
  constexpr std::string_view others = ".-:[]_~/";
  return !host.empty() && is_letter_or_digit(host.front() == '[' ? 'x' : host.front()) &&
         has_good_port(host) && std::all_of(rest.begin(), rest.end(), [&](char c) {
           return is_letter_or_digit(c) || others.find(c) != std::string_view::npos;
         });
}

/// Programs know schemes and services by their names in lower case.
std::string normalised_endpoint(std::string_view url) {
  const auto path = std::min(url.find('/', url.find("://") + 3), url.size());
  auto made = lower(url.substr(0, path)) + std::string{url.substr(path)};
  while (made.ends_with('/'))
    made.pop_back();
  return made;
}

std::string with_single_slashes(std::string_view path) {
  std::string made;
  for (const char each : path)
    if (each != '/' || !made.ends_with('/'))
      made += each;
  return made;
}

bool is_bucket_name(std::string_view name) {
  constexpr std::size_t longest = 63;
  return !name.empty() && name.size() <= longest && is_letter_or_digit(name.front(), false) &&
         is_letter_or_digit(name.back(), false) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_letter_or_digit(c, false) || c == '.' || c == '-'; });
}

bool is_binding_name(std::string_view name) {
  return !name.empty() && name.size() <= max_word_bytes && !std::isdigit(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_letter_or_digit(c) || c == '_'; });
}

error bad_bucket(const std::string& name) {
  const auto colon = name.find(':');
  if (colon == std::string::npos)
    return refused("Invalid bucket name: \"" + name +
                   "\". It has 1 to 63 lowercase letters, digits, dots and hyphens, and begins and "
                   "ends with a letter or a digit.");
  auto prefix = name.substr(colon + 1);
  if (!prefix.starts_with('/'))
    prefix.insert(0, "/");
  return refused("Bucket name cannot contain ':'. To mount a prefix, use the 'prefix' option:\n"
                 "  {\"bucket\": \"" +
                 name.substr(0, colon) + "\", \"options\": {\"prefix\": \"" + prefix + "\"}}");
}

std::optional<error> bad_path(const std::string& path) {
  if (path.size() > max_path_bytes || has_control(path))
    return refused("The mount path is too long, or has control characters in it.");
  for (const std::string_view top : {"/proc", "/sys", "/dev"})
    if (path == top || path.starts_with(std::string{top} + "/"))
      return refused("Nothing can be mounted at \"" + path + "\": " + std::string{top} +
                     " is the system's own.");
  if (path == "/")
    return refused("Nothing can be mounted at \"/\": it is the root of the file system.");
  return std::nullopt;
}

bool has_dots(std::string_view prefix) {
  for (std::size_t at = 0; at < prefix.size();) {
    const auto end = std::min(prefix.find('/', at), prefix.size());
    const auto part = prefix.substr(at, end - at);
    if (part == "." || part == "..")
      return true;
    at = end + 1;
  }
  return false;
}

/// Ports that a scheme has by itself need not be said.
std::string without_usual_port(const std::string& url) {
  auto made = normalised_endpoint(url);
  const std::string_view usual = made.starts_with("https://") ? ":443" : ":80";
  if (made.ends_with(usual))
    made.resize(made.size() - usual.size());
  else if (made.ends_with(':'))
    made.pop_back();
  return made;
}

/// What the node signs is good there, whatever an API client does with it.
bool trusts(const bucket_settings& node, const std::string& endpoint) {
  const auto wanted = without_usual_port(endpoint);
  return std::any_of(node.credentials_for.begin(), node.credentials_for.end(),
                     [&](const auto& each) { return without_usual_port(each) == wanted; });
}

/// They would lead round the way by which the node signs for the sandbox.
constexpr std::array<std::string_view, 4> ways_round{"passwd_file", "url", "ahbe_conf",
                                                     "use_path_request_style"};

constexpr std::string_view format = "1"; ///< Of the text in the record.

} // namespace

std::string normalised_path(std::string_view path) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    const auto part = path.substr(at, end - at);
    if (part == ".." && !parts.empty())
      parts.pop_back();
    else if (!part.empty() && part != "." && part != "..")
      parts.push_back(part);
    at = end + 1;
  }
  std::string whole;
  for (const auto part : parts)
    (whole += '/') += part;
  return whole.empty() ? "/" : whole;
}

result<bucket_mount> read_mount(const mount_bucket_request& wanted) {
  bucket_mount made;
  made.path = normalised_path(wanted.path);
  made.prefix = wanted.prefix;
  if (!made.prefix.empty() && !made.prefix.starts_with('/'))
    return refused("Prefix must start with '/': \"" + wanted.prefix + "\"");
  if (has_dots(made.prefix) || has_control(made.prefix) || made.prefix.size() > max_word_bytes)
    return refused("Prefix must be a plain path: \"" + wanted.prefix + "\"");
  made.prefix = with_single_slashes(made.prefix);
  if (made.prefix.ends_with('/'))
    made.prefix.pop_back();
  made.binding = wanted.binding;
  made.read_only = wanted.read_only;
  made.options = wanted.options;
  if (made.binding.empty()) {
    if (!is_endpoint(wanted.endpoint))
      return refused("Invalid endpoint URL: \"" + wanted.endpoint +
                     "\". Must be a valid HTTP(S) URL.");
    if (!is_bucket_name(wanted.bucket))
      return bad_bucket(wanted.bucket);
    made.endpoint = normalised_endpoint(wanted.endpoint);
    made.bucket = wanted.bucket;
    made.credentials = wanted.credentials;
  } else if (!is_binding_name(made.binding)) {
    return refused("Invalid R2 binding name: \"" + made.binding +
                   "\". It has letters, digits and underscores, and does not begin with a digit.");
  }
  if (const auto why = bad_path(made.path))
    return *why;
  if (wanted.by_proxy)
    for (const auto& each : wanted.options)
      for (const auto way : ways_round)
        if (each.substr(0, each.find('=')) == way)
          return refused("s3fsOptions cannot set " + std::string{way} + " with credentialProxy.");
  return made;
}

result<bucket_source> source_of(const bucket_mount& mount, const bucket_settings& node) {
  bucket_source source;
  source.endpoint = mount.endpoint;
  source.bucket = mount.bucket;
  source.prefix = mount.prefix;
  source.read_only = mount.read_only;
  source.options = mount.options;
  auto credentials = mount.credentials;
  if (!mount.binding.empty()) {
    const auto at = node.bindings.find(mount.binding);
    if (at == node.bindings.end())
      return error{errc::not_found, "R2 binding \"" + mount.binding +
                                      "\" not found in Worker env. Ensure that the server's "
                                      "configuration has it under buckets.bindings."};
    source.endpoint = at->second.endpoint;
    source.bucket = at->second.bucket;
    source.read_only |= at->second.read_only;
    credentials = at->second.credentials;
  }
  const bool brings_none = !credentials;
  if (brings_none && mount.binding.empty() && node.credentials && !trusts(node, mount.endpoint))
    return refused("No credentials found. Those of the server's environment are not for the "
                   "endpoint \"" +
                   mount.endpoint +
                   "\". Give options.credentials, or have the operator add it to "
                   "buckets.credentials_for.");
  if (brings_none)
    credentials = node.credentials;
  if (!credentials)
    return refused("No credentials found. Give options.credentials, or start the server with "
                   "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or R2_ACCESS_KEY_ID and "
                   "R2_SECRET_ACCESS_KEY, in its environment.");
  source.signed_by_node = brings_none || !mount.binding.empty();
  for (const auto* each : {&credentials->access_key_id, &credentials->secret_access_key})
    if (each->empty() || each->size() > max_word_bytes || has_control(*each) ||
        each->find(':') != std::string::npos)
      return refused("The credentials have characters that credentials do not have.");
  source.credentials = std::move(*credentials);
  return source;
}

// ---- In the record: words, each with a NUL behind it.

std::string bucket_mount::text() const {
  std::string all;
  const auto add = [&all](std::string_view word) { (all += word) += '\0'; };
  add(format);
  add(binding);
  add(endpoint);
  add(bucket);
  add(prefix);
  add(read_only ? "ro" : "rw");
  add(credentials ? "own" : "");
  add(credentials ? credentials->access_key_id : "");
  add(credentials ? credentials->secret_access_key : "");
  for (const auto& each : options)
    add(each);
  return all;
}

std::optional<bucket_mount> bucket_mount::read(std::string_view path, std::string_view text) {
  std::vector<std::string> words;
  for (auto end = text.find('\0'); end != std::string_view::npos; end = text.find('\0')) {
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  constexpr std::size_t before_options = 9;
  if (words.size() < before_options || words[0] != format)
    return std::nullopt;
  bucket_mount made;
  made.path = path;
  made.binding = std::move(words[1]);
  made.endpoint = std::move(words[2]);
  made.bucket = std::move(words[3]);
  made.prefix = std::move(words[4]);
  made.read_only = words[5] == "ro";
  if (!words[6].empty())
    made.credentials = bucket_credentials{std::move(words[7]), std::move(words[8])};
  made.options.assign(words.begin() + before_options, words.end());
  return made;
}

std::optional<std::string_view> mount_trouble(std::string_view said) {
  struct known {
    std::string_view phrase; ///< In lower case.
    std::string_view sentence;
  };
  constexpr std::string_view credentials = "The service refuses the credentials.",
                             nowhere =
                               "There is no such bucket at the endpoint, or no such prefix in it.",
                             certificate = "The endpoint's certificate is not valid for it.",
                             silent = "The endpoint has not answered in time.",
                             unreachable =
                               "The endpoint cannot be reached, or does not answer as an S3 "
                               "service does. Private addresses and those of the node are not "
                               "allowed, unless network.allow_private lists them.",
                             request = "The service does not accept the request: look at the "
                                       "options for its region and its signatures.",
                             option = "The program does not accept an option.";
  // What s3fs concludes comes first, then what services say, then what connections come to.
  constexpr auto all = std::to_array<known>({
    {"invalid credentials(", credentials},
    {"bucket or key not found(", nowhere},
    {"bad request(", request},
    {"accessdenied", credentials},
    {"invalidaccesskeyid", credentials},
    {"signaturedoesnotmatch", credentials},
    {"status code: 403", credentials},
    {"forbidden", credentials},
    {"nosuchbucket", nowhere},
    {"status code: 404", nowhere},
    {"directory not found", nowhere},
    {"authorizationheadermalformed", request},
    {"status code: 400", request},
    {"unknown option", option},
    {"argument should", option},
    {"option must", option},
    {"certificate", certificate},
    {"x509:", certificate},
    {"timed out", silent},
    {"timeout", silent},
    {"deadline exceeded", silent},
    {"curle_operation_timedout", silent},
    {"curle_couldnt_", unreachable},
    {"curle_recv_error", unreachable},
    {"unable to connect(", unreachable},
    {"could not resolve", unreachable},
    {"no such host", unreachable},
    {"connection refused", unreachable},
    {"connection reset", unreachable},
    {"dial tcp", unreachable},
  });
  const auto plain = lower(said);
  for (const auto& each : all)
    if (plain.find(each.phrase) != std::string::npos)
      return each.sentence;
  return std::nullopt;
}

std::string without_secrets(std::string_view said, const bucket_credentials& of) {
  constexpr std::size_t most_lines = 20;
  std::deque<std::string_view> lines;
  for (std::size_t at = 0; at < said.size();) {
    const auto end = std::min(said.find('\n', at), said.size());
    const auto line = said.substr(at, end - at);
    if (!line.empty() && line.find("[INF]") == std::string_view::npos) // What is no fault.
      lines.push_back(line);
    if (lines.size() > most_lines)
      lines.pop_front();
    at = end + 1;
  }
  std::string text;
  for (const auto line : lines)
    (text += text.empty() ? "" : "\n") += line;
  for (const auto* secret : {&of.secret_access_key, &of.access_key_id})
    for (auto at = text.find(*secret); !secret->empty() && at != std::string::npos;
         at = text.find(*secret, at + 3))
      text.replace(at, secret->size(), "***");
  return text;
}

} // namespace insula::actors
