#include "apps/config.hpp"

#include "apps/yaml_document.hpp"
#include "base/network.hpp"
#include "storage/images/image_record.hpp"
#include "storage/registry/allow.hpp"
#include "storage/registry/reference.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <string_view>
#include <sys/stat.h>
#include <tuple>

namespace insula {

namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr std::uint64_t KiB = 1ull << 10, MiB = 1ull << 20, GiB = 1ull << 30, TiB = 1ull << 40;

/// What sandbox.env may have: names and values, with two bytes for each.
constexpr std::size_t most_variables_bytes = 16 * KiB;

/// uids from 1879048192 up to the last, in ranges of 65,536.
constexpr unsigned first_sandbox_uid = 1'879'048'192;
constexpr unsigned all_slots = 36'863;

template <class T>
struct range {
  T least;
  T most;
};

constexpr range<unsigned> instances{1, all_slots};
constexpr range<unsigned> warm{0, all_slots};
constexpr range<milliseconds> refresh{100ms, 1h};
constexpr range<unsigned> batch_size{1, 20};

// ---- Texts to values ----

struct unit {
  std::string_view name;
  std::uint64_t is;
};

constexpr unit sizes[] = {{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"", 1}};
constexpr unit durations[] = {{"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}};

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number n{};
  const auto* end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data(), end, n);
  return bad == std::errc{} && stop == end ? std::optional{n} : std::nullopt;
}

std::optional<double> decimal(std::string_view text) {
  // What else from_chars takes: signs, exponents, infinities.
  if (text.find_first_not_of("0123456789.") != text.npos)
    return std::nullopt;
  return number<double>(text);
}

/// The kernel is told in hundredths: less than one would be none, and none is no limit.
std::optional<double> cpus(std::string_view text) {
  const auto n = decimal(text);
  return n && (*n == 0 || (*n >= 0.01 && *n <= 4096)) ? n : std::nullopt;
}

/// Digits and one of the units, as a multiple of the smallest.
template <std::size_t N>
std::optional<std::uint64_t> with_unit(std::string_view text, const unit (&units)[N]) {
  const auto digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto count = number<std::uint64_t>(text.substr(0, digits));
  const auto* found = std::find_if(std::begin(units), std::end(units),
                                   [&](auto& u) { return u.name == text.substr(digits); });
  if (!count || found == std::end(units) ||
      *count > std::numeric_limits<std::int64_t>::max() / found->is)
    return std::nullopt;
  return *count * found->is;
}

template <std::size_t N>
std::string in_units(std::uint64_t value, const unit (&units)[N]) {
  const auto* largest = std::find_if(std::begin(units), std::end(units),
                                     [&](auto& u) { return value != 0 && value % u.is == 0; });
  if (largest == std::end(units))
    return std::to_string(value);
  return std::to_string(value / largest->is) + std::string{largest->name};
}

std::optional<milliseconds> duration(std::string_view text) {
  const auto ms = text == "0" ? 0 : with_unit(text, durations);
  return ms ? std::optional{milliseconds{*ms}} : std::nullopt;
}

std::optional<endpoint> listening(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == text.npos)
    return std::nullopt;
  const auto port = number<std::uint16_t>(text.substr(colon + 1));
  auto host = text.substr(0, colon);
  const bool six = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (six)
    host = host.substr(1, host.size() - 2);
  in6_addr room{};
  if (!port || inet_pton(six ? AF_INET6 : AF_INET, std::string{host}.c_str(), &room) != 1)
    return std::nullopt;
  return endpoint{std::string{host}, *port};
}

/// The outer one says whether it can be understood, the inner one whether there is any.
std::optional<std::optional<endpoint>> perhaps_listening(std::string_view text) {
  const auto where = text.empty() ? std::nullopt : listening(text);
  if (!where && !text.empty())
    return std::nullopt;
  return std::make_optional<std::optional<endpoint>>(where);
}

std::optional<std::string> user(std::string_view text) {
  if (const auto uid = number<std::uint64_t>(text))
    return *uid < first_sandbox_uid ? std::optional{std::string{text}} : std::nullopt;
  constexpr std::string_view first = "abcdefghijklmnopqrstuvwxyz_";
  constexpr std::string_view later = "abcdefghijklmnopqrstuvwxyz_0123456789-";
  if (text.empty() || text.size() > 32 || first.find(text.front()) == first.npos ||
      text.find_first_not_of(later) != text.npos)
    return std::nullopt;
  return std::string{text};
}

std::optional<std::string> host_name(const std::string& text) {
  constexpr std::string_view letters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
  const bool good =
    !text.empty() && text.size() <= 253 && text.find_first_not_of(letters) == text.npos;
  return good ? std::optional{text} : std::nullopt;
}

std::optional<std::string> network_subnet(const std::string& text) {
  auto normal = normalise_target(text);
  return normal && is_subnet(*normal) ? std::optional{std::move(*normal)} : std::nullopt;
}

std::optional<std::string> address(const std::string& text) {
  std::array<unsigned char, 16> bytes;
  const bool good = ::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
                    ::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
  return good ? std::optional{text} : std::nullopt;
}

std::optional<std::string> image_name(const std::string& text) {
  return storage::images::is_image_name(text) ? std::optional{text} : std::nullopt;
}

std::optional<std::string> image_pattern(const std::string& text) {
  return storage::registry::check_pattern(text) ? std::optional{text} : std::nullopt;
}

std::optional<std::string> registry_host(const std::string& text) {
  const auto image = storage::registry::parse_reference(text + "/any");
  return image && image->host == text ? std::optional{text} : std::nullopt;
}

/// Has it only these characters, and at least one of them?
bool is_made_of(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == text.npos;
}

/// http:// or https://, a host and perhaps a port; a slash behind it is cut.
std::optional<std::string> service_url(std::string_view text) {
  const auto scheme = text.starts_with("http://") ? 7u : text.starts_with("https://") ? 8u : 0u;
  if (text.ends_with('/'))
    text.remove_suffix(1);
  auto host = text.substr(std::min<std::size_t>(scheme, text.size()));
  const auto colon = host.find_last_of(":]");
  if (colon != host.npos && host[colon] == ':') {
    const auto port = number<std::uint16_t>(host.substr(colon + 1));
    if (!port || *port == 0)
      return std::nullopt;
    host = host.substr(0, colon);
  }
  in6_addr room{};
  const bool six = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const auto inside = std::string{six ? host.substr(1, host.size() - 2) : host};
  const bool good = scheme != 0 && (six ? ::inet_pton(AF_INET6, inside.c_str(), &room) == 1
                                        : host_name(inside).has_value());
  return good ? std::optional{std::string{text}} : std::nullopt;
}

/// Its last word becomes a part of this server's paths.
std::optional<std::string> issuer_url(std::string_view text) {
  constexpr std::string_view scheme = "https://";
  constexpr std::string_view words =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-";
  const auto slash = text.find('/', scheme.size());
  if (!text.starts_with(scheme) || text.size() > 255 || slash == text.npos ||
      !service_url(text.substr(0, slash)))
    return std::nullopt;
  for (auto rest = text.substr(slash + 1);;) {
    const auto end = std::min(rest.find('/'), rest.size());
    const auto word = rest.substr(0, end);
    if (!is_made_of(word, words) || word.find_first_not_of('.') == word.npos)
      return std::nullopt;
    if (end == rest.size())
      return std::string{text};
    rest.remove_prefix(end + 1);
  }
}

std::optional<std::string> bucket_name(std::string_view text) {
  constexpr std::string_view ends = "abcdefghijklmnopqrstuvwxyz0123456789";
  constexpr std::string_view all = "abcdefghijklmnopqrstuvwxyz0123456789.-";
  const bool good = is_made_of(text, all) && text.size() <= 63 &&
                    ends.find(text.front()) != ends.npos && ends.find(text.back()) != ends.npos;
  return good ? std::optional{std::string{text}} : std::nullopt;
}

/// A host's name, short enough for a certificate's common name.
bool is_node_name(std::string_view text) {
  constexpr std::string_view ends = "abcdefghijklmnopqrstuvwxyz0123456789";
  constexpr std::string_view all = "abcdefghijklmnopqrstuvwxyz0123456789.-";
  return is_made_of(text, all) && text.size() <= 63 && ends.find(text.front()) != ends.npos &&
         ends.find(text.back()) != ends.npos;
}

std::optional<std::string> key_prefix(std::string_view text) {
  constexpr std::string_view all =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return is_made_of(text, all) && text.size() <= 63 ? std::optional{std::string{text}}
                                                    : std::nullopt;
}

/// One that others can connect to.
std::optional<endpoint> reachable(std::string_view text) {
  auto where = listening(text);
  return where && where->port != 0 && where->address != "0.0.0.0" && where->address != "::"
           ? where
           : std::nullopt;
}

std::optional<std::string> region_name(std::string_view text) {
  const bool good = is_made_of(text, "abcdefghijklmnopqrstuvwxyz0123456789-") && text.size() <= 63;
  return good ? std::optional{std::string{text}} : std::nullopt;
}

/// Also of a bucket that the configuration lends.
bool is_variable_name(std::string_view text) {
  constexpr std::string_view first = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
  constexpr std::string_view later =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  return is_made_of(text, later) && first.find(text.front()) != first.npos;
}

// ---- Kinds of values ----

/// Sets a value from its text, or says what was expected instead.
template <class Into>
using setter_of = std::function<std::optional<std::string>(Into&, const std::string&)>;

/// A field, as a function of what it is in, and how it is set from a text.
template <class Where, class Set>
struct field {
  Where where;
  Set set;

  template <class Into>
  std::optional<std::string> operator()(Into& into, const std::string& text) const {
    return set(into, text);
  }
};

bool are_same(const bucket_binding& a, const bucket_binding& b) {
  return std::tie(a.endpoint, a.bucket, a.read_only, a.credentials) ==
         std::tie(b.endpoint, b.bucket, b.read_only, b.credentials);
}

bool are_same(const std::map<std::string, bucket_binding>& a,
              const std::map<std::string, bucket_binding>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.first == other.first && are_same(one.second, other.second);
  });
}

bool are_same(const bucket_settings& a, const bucket_settings& b) {
  return std::tie(a.credentials, a.credentials_for, a.driver, a.cache_bytes) ==
           std::tie(b.credentials, b.credentials_for, b.driver, b.cache_bytes) &&
         are_same(a.bindings, b.bindings);
}

template <class T>
bool are_same(const T& a, const T& b) {
  return a == b;
}

template <class Where, class Set>
field<Where, Set> settable(Where where, Set set) {
  return {std::move(where), std::move(set)};
}

/// A value that `parse` understands.
template <class Where, class Parse>
auto parsed(Where where, Parse parse, std::string expected) {
  return settable(where, [=](auto& into, const std::string& text) -> std::optional<std::string> {
    auto value = parse(text);
    if (!value)
      return expected;
    where(into) = std::move(*value);
    return std::nullopt;
  });
}

/// The same between two ends, which `spell` can write.
template <class Where, class Parse, class T, class Spell>
auto ranged(Where where, Parse parse, range<T> allowed, std::string kind, std::string example,
            Spell spell) {
  return settable(where, [=](config& into, const std::string& text) -> std::optional<std::string> {
    const auto value = parse(text);
    if (!value)
      return kind + " " + example;
    if (*value < allowed.least || *value > allowed.most)
      return kind + " from " + spell(allowed.least) + " to " + spell(allowed.most);
    where(into) = *value;
    return std::nullopt;
  });
}

template <class Where>
auto count(Where where, range<unsigned> allowed) {
  const auto spell = [](unsigned n) { return std::to_string(n); };
  return ranged(where, number<unsigned>, allowed, "a whole number",
                "from " + spell(allowed.least) + " to " + spell(allowed.most), spell);
}

template <class Where>
auto size(Where where, range<std::uint64_t> allowed) {
  return ranged(
    where, [](auto& text) { return with_unit(text, sizes); }, allowed, "a size", "such as 2GiB",
    [](std::uint64_t bytes) { return in_units(bytes, sizes); });
}

template <class Where>
auto time(Where where, range<milliseconds> allowed) {
  return ranged(
    where, duration, allowed, "a duration", "such as 500ms, 30s, 10m or 2h",
    [](milliseconds ms) { return in_units(static_cast<std::uint64_t>(ms.count()), durations); });
}

template <class Where>
auto yes_or_no(Where where) {
  return parsed(
    where,
    [](const std::string& text) {
      return text == "true"    ? std::optional{true}
             : text == "false" ? std::optional{false}
                               : std::nullopt;
    },
    "true or false");
}

/// One value more for each text of a list.
template <class Where, class Parse>
auto appended(Where where, Parse parse, std::string expected) {
  return settable(where, [=](config& into, const std::string& text) -> std::optional<std::string> {
    auto value = parse(text);
    if (!value)
      return expected;
    where(into).push_back(std::move(*value));
    return std::nullopt;
  });
}

/// What stands below it has names that the operator chooses: see file_reader.
template <class Where>
auto only_section(Where where, std::string expected) {
  return settable(where, [=](config&, const std::string&) { return std::optional{expected}; });
}

template <class T>
using choices = std::vector<std::pair<std::string, T>>;

template <class Where, class T>
auto one_of(Where where, choices<T> values, std::string expected) {
  return parsed(
    where,
    [values](const std::string& text) {
      const auto found =
        std::find_if(values.begin(), values.end(), [&](auto& v) { return v.first == text; });
      return found == values.end() ? std::nullopt : std::optional<T>{found->second};
    },
    std::move(expected));
}

template <class Where>
auto path(Where where, bool may_be_empty) {
  return parsed(
    where,
    [=](const std::string& text) {
      const bool good = text.empty() ? may_be_empty : text.front() == '/';
      return good && text.find('\0') == text.npos ? std::optional{text} : std::nullopt;
    },
    may_be_empty ? "an absolute path or \"\"" : "an absolute path");
}

std::optional<std::string> printable(const std::string& text) {
  const auto in_header = [](char c) { return c > ' ' && c <= '~'; };
  const bool good = text.size() <= 4096 && std::all_of(text.begin(), text.end(), in_header);
  return good ? std::optional{text} : std::nullopt;
}

std::optional<std::string> credential(const std::string& text) {
  return text.empty() ? std::nullopt : printable(text);
}

// ---- The table ----

struct key {
  template <class Where, class Set>
  key(std::string name, field<Where, Set> how, bool is_secret = false, bool is_list = false)
      : path(std::move(name))
      , set(how)
      , same([where = how.where](const config& a, const config& b) {
        return are_same(where(a), where(b));
      })
      , secret(is_secret)
      , list(is_list) {}

  std::string path;
  setter_of<config> set;
  std::function<bool(const config&, const config&)> same;
  bool secret; ///< Errors do not repeat its value.
  bool list;   ///< `set` is called for every element.
};

/// Below this one stand names that the operator chooses, each with the members of a binding.
const std::string bindings_path = "buckets.bindings";

/// The same for variables, each with its value.
const std::string env_path = "sandbox.env";

/// The same for runtimes, each with its image.
const std::string runtimes_path = "runtimes";

/// The same for the cluster's nodes.
const std::string nodes_path = "cluster.nodes";

/// The same for keys beside server.api_key.
const std::string named_keys_path = "keys";

constexpr std::size_t most_named_keys = 1000;
constexpr std::array<std::string_view, 3> apis_of_keys{"bridge", "opensandbox", "vercel"};

constexpr std::array<std::string_view, 5> kept_variables{"HOME", "LOGNAME", "PATH", "SHELL",
                                                         "USER"};

std::optional<unsigned> process_count(const std::string& text) {
  const auto n = number<unsigned>(text);
  return n && (*n == 0 || (*n >= 8 && *n <= 4'194'304)) ? n : std::nullopt;
}

struct node_member {
  std::string name;
  setter_of<cluster_node_config> set;
};

struct named_key_member {
  std::string name;
  setter_of<named_key_config> set;
  bool secret = false; ///< As of key.
  bool list = false;   ///< As of key.
};

/// A binding while it is read.
struct binding_draft {
  bucket_binding is;
  bucket_credentials credentials;
};

constexpr const char* project_names = "a list of names of 1 to 128 of a-z, A-Z, 0-9, '_' and '-'";

/// A team's or a project's.
std::optional<std::string> project_name(const std::string& text) {
  const bool good =
    text.size() <= 128 && is_made_of(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                           "0123456789_-");
  return good ? std::optional{text} : std::nullopt;
}

struct binding_member {
  std::string name;
  setter_of<binding_draft> set;
  bool secret = false; ///< As of key.
};

#define FIELD(name)                                                                                \
  [](auto& c) -> auto& {                                                                           \
    return c.name;                                                                                 \
  }

/// Every key there is, in the order of cluster.yaml.
const std::vector<key>& keys() {
  static const std::vector<key> table = {
    {"server.listen", parsed(FIELD(server.listen), listening,
                             "an address and a port such as 127.0.0.1:8787 or [::1]:8787")},
    {"server.metrics_listen",
     parsed(FIELD(server.metrics_listen), perhaps_listening,
            "\"\", or an address and a port such as 127.0.0.1:9464 or [::1]:9464")},
    {"server.execd_listen",
     parsed(FIELD(server.execd_listen), perhaps_listening,
            "\"\", or an address and a port such as 127.0.0.1:44772 or [::1]:44772")},
    {"server.allow_open", yes_or_no(FIELD(server.allow_open))},
    {"server.api_key",
     parsed(FIELD(server.api_key), printable,
            "at most 4096 printable ASCII characters without spaces"),
     true},
    {"server.allowed_hosts",
     appended(FIELD(server.allowed_hosts), host_name, "a list of names such as [insula.example]"),
     false, true},
    {"server.threads", count(FIELD(server.threads), {1, 256})},
    {"server.max_connections", count(FIELD(server.max_connections), {1, 1'000'000})},
    {"server.tls.certificate", path(FIELD(server.tls_certificate), true)},
    {"server.tls.key", path(FIELD(server.tls_key), true)},

    {named_keys_path,
     only_section(FIELD(keys), "a section of keys by name, such as {ci: {key: \"...\", apis: "
                               "[bridge]}}"),
     true},

    {"state.directory", path(FIELD(state.directory), false)},
    {"state.user",
     parsed(FIELD(state.user), user, "a user's name, root or a uid below 1879048192")},

    {"runtime.first_slot", count(FIELD(runtime.first_slot), {0, all_slots - 1})},
    {"runtime.slots", count(FIELD(runtime.slots), {1, all_slots})},
    {"runtime.disk.backend", one_of(FIELD(runtime.backend),
                                    choices<disk_backend>{{"auto", disk_backend::automatic},
                                                          {"btrfs", disk_backend::btrfs},
                                                          {"tmpfs", disk_backend::tmpfs}},
                                    "auto, btrfs or tmpfs")},
    {"runtime.disk.pool", size(FIELD(runtime.pool_bytes), {0, 1024 * TiB})},

    {"node.memory_reserve", size(FIELD(node.memory_reserve), {0, 64 * TiB})},
    {"node.kept_logs", size(FIELD(node.kept_log_bytes), {0, 64 * TiB})},

    {"sandbox.max_instances", count(FIELD(sandbox.max_instances), instances)},
    {"sandbox.freeze_after", time(FIELD(sandbox.freeze_after), {0ms, 8760h})},
    {"sandbox.stop_after", time(FIELD(sandbox.stop_after), {0ms, 8760h})},
    {"sandbox.seccomp_filters", yes_or_no(FIELD(sandbox.seccomp_filters))},
    {"sandbox.privileges", parsed(FIELD(sandbox.gains), privileges_of, "none or sudo")},
    {"sandbox.allow_sudo", yes_or_no(FIELD(sandbox.allow_sudo))},
    {env_path, only_section(FIELD(sandbox.env),
                            "a section of variables with their values, such as {http_proxy: "
                            "\"http://proxy.example:3128\"}")},
    {"sandbox.ca_file", path(FIELD(sandbox.ca_file), true)},
    {"sandbox.limits.memory", size(FIELD(sandbox.memory_bytes), {16 * MiB, 64 * TiB})},
    {"sandbox.limits.cpus",
     parsed(FIELD(sandbox.cpus), cpus,
            "a number of CPUs from 0.01 to 4096, such as 2 or 0.5, or 0 for no limit")},
    {"sandbox.limits.processes",
     parsed(FIELD(sandbox.processes), process_count, "a whole number from 8 to 4194304, or 0")},
    {"sandbox.limits.disk", size(FIELD(sandbox.disk_bytes), {1 * MiB, 1024 * TiB})},
    {"sandbox.limits.shm", size(FIELD(sandbox.shm_bytes), {64 * KiB, 64 * TiB})},
    {"sandbox.limits.log", size(FIELD(sandbox.log_bytes), {1 * MiB, 1 * TiB})},
    {"sandbox.limits.kept_logs", size(FIELD(sandbox.kept_log_bytes), {0, 1 * TiB})},
    {"sandbox.limits.open_files", count(FIELD(sandbox.open_files), {64, 1'048'576})},

    {"image.default", parsed(FIELD(image.default_name), image_name,
                             "host or the name of an imported image: at most 63 of a-z, 0-9, '.', "
                             "'_' and '-'")},
    {"image.available",
     appended(FIELD(image.available), image_name,
              "a list of names of imported images such as [bookworm]"),
     false, true},
    {"image.unknown",
     one_of(FIELD(image.replaces_unknown), choices<bool>{{"refuse", false}, {"default", true}},
            "refuse or default")},
    {"images.pull", one_of(FIELD(images.pull),
                           choices<image_pull>{{"never", image_pull::never},
                                               {"missing", image_pull::missing},
                                               {"always", image_pull::always}},
                           "never, missing or always")},
    {"images.allow",
     appended(FIELD(images.allow), image_pattern,
              "a list of patterns such as [docker.io/library/*, \"ghcr.io/acme/**\"]"),
     false, true},
    {"images.insecure",
     appended(FIELD(images.insecure), registry_host,
              "a list of registries such as [registry.example:5000]"),
     false, true},
    {"images.auth_file", path(FIELD(images.auth_file), true)},
    {"images.max_size", size(FIELD(images.max_bytes), {1 * MiB, 1 * TiB})},
    {"images.keep_unused", time(FIELD(images.keep_unused), {0ms, 8760h})},
    {runtimes_path, only_section(FIELD(runtimes),
                                 "a section of names with their images, such as {node24: node24}")},
    {"network.default",
     one_of(FIELD(network.allow_all), choices<bool>{{"allow-all", true}, {"deny-all", false}},
            "allow-all or deny-all")},
    {"network.allow_private",
     appended(FIELD(network.allow_private), network_subnet,
              "a list of subnets such as [10.1.0.0/16, fd00:1::/32]"),
     false, true},
    {"network.ca",
     one_of(FIELD(network.ca_always), choices<bool>{{"on_demand", false}, {"always", true}},
            "on_demand or always")},
    {"network.ca_file", path(FIELD(network.ca_file), true)},
    {"network.resolvers",
     appended(FIELD(network.resolvers), address, "a list of addresses such as [9.9.9.9]"), false,
     true},

    {"buckets.driver",
     parsed(
       FIELD(buckets.driver),
       [](
         const std::string&
           text) { return text == "s3fs" || text == "rclone" ? std::optional{text} : std::nullopt; },
       "s3fs or rclone")},
    {"buckets.cache", size(FIELD(buckets.cache_bytes), {64 * MiB, 64 * GiB})},
    {"buckets.credentials_for",
     appended(FIELD(buckets.credentials_for), service_url,
              "a list of http or https URLs without a path such as [https://s3.example.com]"),
     false, true},
    {bindings_path, only_section(FIELD(buckets.bindings),
                                 "a section of buckets by name, such as {DATA: {endpoint: "
                                 "\"https://s3.example.com\", bucket: my-data}}")},

    {"snapshots.directory", path(FIELD(snapshots.directory), true)},
    {"snapshots.endpoint",
     parsed(
       FIELD(snapshots.endpoint),
       [](const std::string&
            text) { return text.empty() ? std::optional{text} : service_url(text); },
       "\"\", or an http or https URL without a path, such as http://10.77.0.1:9000")},
    {"snapshots.bucket",
     parsed(
       FIELD(snapshots.bucket),
       [](const std::string&
            text) { return text.empty() ? std::optional{text} : bucket_name(text); },
       "a bucket's name: at most 63 of a-z, 0-9, '.' and '-', with a letter or digit at both "
       "ends")},
    {"snapshots.region", parsed(FIELD(snapshots.region), region_name,
                                "a region's name such as us-east-1: at most 63 of a-z, 0-9 and "
                                "'-'")},
    {"snapshots.interval", time(FIELD(snapshots.interval), {0ms, 24h})},
    {"snapshots.all", yes_or_no(FIELD(snapshots.all))},
    {"snapshots.acknowledge",
     one_of(FIELD(snapshots.acknowledges_copies), choices<bool>{{"node", false}, {"shared", true}},
            "node or shared")},
    {"snapshots.cache", size(FIELD(snapshots.cache_bytes), {0, 1024 * TiB})},

    {"preview.domain", parsed(FIELD(preview.domain), host_name, "a name such as preview.example")},
    {"preview.public", yes_or_no(FIELD(preview.is_public))},

    {"cluster.etcd.endpoints",
     appended(FIELD(cluster.etcd_endpoints), service_url,
              "a list of http or https URLs such as [http://10.0.0.1:2379]"),
     false, true},
    {"cluster.etcd.authority", path(FIELD(cluster.etcd_authority), true)},
    {"cluster.etcd.certificate", path(FIELD(cluster.etcd_certificate), true)},
    {"cluster.etcd.key", path(FIELD(cluster.etcd_key), true)},
    {"cluster.etcd.prefix",
     parsed(FIELD(cluster.prefix), key_prefix, "at most 63 letters, digits, '.', '_' and '-'")},
    {"cluster.authority", path(FIELD(cluster.authority), true)},
    {"cluster.certificate", path(FIELD(cluster.certificate), true)},
    {"cluster.key", path(FIELD(cluster.key), true)},
    {nodes_path,
     only_section(FIELD(cluster.nodes), "a section of nodes by name, such as {n1: {internal: "
                                        "\"10.0.0.1:8788\", link: \"10.0.0.1:8789\"}}")},

    {"pool.target", count(FIELD(pool.target), warm)},
    {"pool.refresh_interval", time(FIELD(pool.refresh_interval), refresh)},
    {"pool.scale_batch_size", count(FIELD(pool.scale_batch_size), batch_size)},

    {"bridge.default_session", yes_or_no(FIELD(default_session))},

    {"vercel.projects", appended(FIELD(vercel.projects), project_name, project_names), false, true},
    {"vercel.drive_size", size(FIELD(vercel.drive_bytes), {1 * MiB, 1024 * TiB})},

    {"secrets.key_file", path(FIELD(secrets.key_file), true)},

    {"oidc.key_file", path(FIELD(oidc.key_file), true)},
    {"oidc.issuer", parsed(FIELD(oidc.issuer), issuer_url,
                           "an https URL of at most 255 characters whose path ends with a word, "
                           "such as https://oidc.vercel.com/insula")},
    {"oidc.token_lifetime", time(FIELD(oidc.token_lifetime), {1min, 24h})},

    {"log.level", one_of(FIELD(log_level),
                         choices<log::level>{{"debug", log::level::debug},
                                             {"info", log::level::info},
                                             {"warning", log::level::warning},
                                             {"error", log::level::error}},
                         "debug, info, warning or error")},
  };
  return table;
}

#undef FIELD

#define FIELD(name)                                                                                \
  [](binding_draft & b) -> auto& {                                                                 \
    return b.name;                                                                                 \
  }

const std::vector<binding_member>& binding_members() {
  const std::string printed = "1 to 4096 printable ASCII characters without spaces";
  static const std::vector<binding_member> table = {
    {"endpoint", parsed(FIELD(is.endpoint), service_url,
                        "an http or https URL without a path, such as https://s3.example.com")},
    {"bucket", parsed(FIELD(is.bucket), bucket_name,
                      "a bucket's name: at most 63 of a-z, 0-9, '.' and '-', with a letter or "
                      "digit at both ends")},
    {"access_key_id", parsed(FIELD(credentials.access_key_id), credential, printed), true},
    {"secret_access_key", parsed(FIELD(credentials.secret_access_key), credential, printed), true},
    {"read_only", yes_or_no(FIELD(is.read_only))},
  };
  return table;
}

#undef FIELD

#define FIELD(name)                                                                                \
  [](named_key_config & k) -> auto& {                                                              \
    return k.name;                                                                                 \
  }

template <class Where, class Parse>
auto appended_to_key(Where where, Parse parse, std::string expected) {
  return settable(
    where, [=](named_key_config& into, const std::string& text) -> std::optional<std::string> {
      auto value = parse(text);
      if (!value)
        return expected;
      where(into).push_back(std::move(*value));
      return std::nullopt;
    });
}

std::optional<std::string> api_of_keys(const std::string& text) {
  const bool known =
    std::find(apis_of_keys.begin(), apis_of_keys.end(), text) != apis_of_keys.end();
  return known ? std::optional{text} : std::nullopt;
}

std::optional<unsigned> ceiling(const std::string& text) {
  const auto n = number<unsigned>(text);
  return n && *n >= 1 && *n <= 1'000'000 ? n : std::nullopt;
}

std::optional<double> vcpus_ceiling(const std::string& text) {
  const auto n = decimal(text);
  return n && *n >= 0.01 && *n <= 1'000'000 ? n : std::nullopt;
}

/// Those below `limits` as well, with a point.
const std::vector<named_key_member>& named_key_members() {
  const std::string whole = "a whole number from 1 to 1000000";
  static const std::vector<named_key_member> table = {
    {"key", parsed(FIELD(key), credential, "1 to 4096 printable ASCII characters without spaces"),
     true},
    {"apis", appended_to_key(FIELD(apis), api_of_keys, "a list of bridge, opensandbox and vercel"),
     false, true},
    {"teams", appended_to_key(FIELD(teams), project_name, project_names), false, true},
    {"projects", appended_to_key(FIELD(projects), project_name, project_names), false, true},
    {"limits.sandboxes", parsed(FIELD(sandboxes), ceiling, whole)},
    {"limits.vcpus", parsed(FIELD(vcpus), vcpus_ceiling,
                            "a number of CPUs from 0.01 to 1000000, such as 8 or 0.5")},
    {"limits.creates_per_minute", parsed(FIELD(creates_per_minute), ceiling, whole)},
  };
  return table;
}

#undef FIELD

#define FIELD(name)                                                                                \
  [](cluster_node_config & n) -> auto& {                                                           \
    return n.name;                                                                                 \
  }

const std::vector<node_member>& node_members() {
  const std::string others = "an address that the others can reach, such as 10.0.0.1:8788";
  static const std::vector<node_member> table = {
    {"internal", parsed(FIELD(internal), reachable, others)},
    {"link", parsed(FIELD(link), reachable, others)},
    {"listen", parsed(FIELD(listen), perhaps_listening, "address:port such as 10.0.0.1:8787")},
    {"state", parsed(
                FIELD(state),
                [](const std::string& text) {
                  const bool good = text.starts_with('/') && text.find('\0') == text.npos;
                  return good ? std::optional{text} : std::nullopt;
                },
                "an absolute path")},
    {"first_slot", parsed(
                     FIELD(first_slot),
                     [](const std::string& text) {
                       const auto n = number<unsigned>(text);
                       return n && *n < all_slots ? std::optional{std::optional{*n}} : std::nullopt;
                     },
                     "a whole number from 0 to 36862")},
  };
  return table;
}

#undef FIELD

/// What keys were called before, and are still called in somebody's file.
const std::map<std::string, std::string>& earlier_names() {
  static const std::map<std::string, std::string> table = {
    {"sandbox.idle_timeout", "sandbox.stop_after"},
  };
  return table;
}

/// Variables with a number: a leading integer counts, as C's strtol reads it, and is brought into
/// the key's range. What is not above 0 leaves the key as it is.
struct variable {
  std::string name;
  std::function<void(config&, long)> set;
};

template <class T>
T within(range<T> allowed, T value) {
  return std::clamp(value, allowed.least, allowed.most);
}

unsigned within(range<unsigned> allowed, long value) {
  return static_cast<unsigned>(
    std::clamp<long>(value, static_cast<long>(allowed.least), static_cast<long>(allowed.most)));
}

const std::vector<variable>& variables() {
  static const std::vector<variable> table = {
    {"WARM_POOL_TARGET", [](config& c, long n) { c.pool.target = within(warm, n); }},
    {"WARM_POOL_REFRESH_INTERVAL",
     [](config& c, long ms) { c.pool.refresh_interval = within(refresh, milliseconds{ms}); }},
    {"WARM_POOL_MAX_INSTANCES",
     [](config& c, long n) { c.sandbox.max_instances = within(instances, n); }},
    {"WARM_POOL_SCALE_BATCH_SIZE",
     [](config& c, long n) { c.pool.scale_batch_size = within(batch_size, n); }},
  };
  return table;
}

/// What no key can see alone.
struct agreement {
  std::string path; ///< The key to look at first.
  std::function<bool(const config&)> holds;
  std::string otherwise;
};

const std::vector<agreement>& agreements() {
  static const std::vector<agreement> table = {
    {"server.listen",
     [](const config& c) {
       return is_loopback(c.server.listen) || !c.server.api_key.empty() || c.server.allow_open;
     },
     "others can reach this address and no key is asked for; set server.api_key (or "
     "SANDBOX_API_KEY), or server.allow_open to true"},
    {"server.metrics_listen",
     [](const config& c) {
       return !c.server.metrics_listen || is_loopback(*c.server.metrics_listen) ||
              !c.server.api_key.empty() || c.server.allow_open;
     },
     "others can reach this address and no key is asked for; set server.api_key (or "
     "SANDBOX_API_KEY), or server.allow_open to true, or listen on this machine alone"},
    {"server.execd_listen",
     [](const config& c) {
       return !c.server.execd_listen || is_loopback(*c.server.execd_listen) ||
              !c.server.api_key.empty() || c.server.allow_open;
     },
     "others can reach this address and no key is asked for; set server.api_key (or "
     "SANDBOX_API_KEY), or server.allow_open to true, or listen on this machine alone"},
    {"server.execd_listen",
     [](const config& c) {
       const auto& mine = c.server.execd_listen;
       return !mine || mine->port == 0 ||
              (*mine != c.server.listen && mine != c.server.metrics_listen);
     },
     "another of server's listeners is there already"},
    {"server.metrics_listen",
     [](const config& c) {
       return !c.server.metrics_listen || c.server.metrics_listen->port == 0 ||
              *c.server.metrics_listen != c.server.listen;
     },
     "server.listen is there already, and has /metrics too"},
    {named_keys_path, [](const config& c) { return c.keys.empty() || !c.server.api_key.empty(); },
     "beside named keys there is a main one: set SANDBOX_API_KEY or server.api_key"},
    {named_keys_path,
     [](const config& c) {
       std::vector<std::string> all{c.server.api_key};
       for (const auto& [name, each] : c.keys)
         all.push_back(each.key);
       std::sort(all.begin(), all.end());
       return std::adjacent_find(all.begin(), all.end()) == all.end();
     },
     "two keys are the same, or one is server.api_key; each has to be different from all others"},
    {"server.tls.certificate",
     [](const config& c) { return c.server.tls_certificate.empty() == c.server.tls_key.empty(); },
     "expected both server.tls.certificate and server.tls.key, or neither"},
    {"runtime.slots",
     [](const config& c) { return c.runtime.first_slot + c.runtime.slots <= all_slots; },
     "expected runtime.first_slot and runtime.slots to be at most 36863 together"},
    {"cluster.etcd.endpoints",
     [](const config& c) { return c.cluster.nodes.empty() || !c.cluster.etcd_endpoints.empty(); },
     "a cluster needs etcd: expected its endpoints, such as [http://10.0.0.1:2379]"},
    {"cluster.etcd.certificate",
     [](const config& c) {
       return c.cluster.etcd_certificate.empty() == c.cluster.etcd_key.empty();
     },
     "expected both cluster.etcd.certificate and cluster.etcd.key, or neither"},
    {"cluster.certificate",
     [](const config& c) {
       return c.cluster.nodes.empty() || (!c.cluster.authority.empty() &&
                                          !c.cluster.certificate.empty() && !c.cluster.key.empty());
     },
     "the nodes of a cluster know each other by certificates: expected cluster.authority, "
     "cluster.certificate and cluster.key"},
    {nodes_path,
     [](const config& c) {
       std::vector<std::pair<std::string, std::uint16_t>> all;
       for (const auto& [name, node] : c.cluster.nodes)
         for (const auto& each : {node.internal, node.link})
           all.emplace_back(each.address, each.port);
       std::sort(all.begin(), all.end());
       return std::adjacent_find(all.begin(), all.end()) == all.end();
     },
     "two listeners have the same address"},
    {"snapshots.directory",
     [](const config& c) { return c.snapshots.directory.empty() || c.snapshots.endpoint.empty(); },
     "expected either this or snapshots.endpoint, not both"},
    {"snapshots.bucket",
     [](const config& c) { return c.snapshots.endpoint.empty() == c.snapshots.bucket.empty(); },
     "expected both snapshots.endpoint and snapshots.bucket, or neither"},
    {"snapshots.all",
     [](const config& c) {
       return !c.snapshots.all || !c.snapshots.directory.empty() || !c.snapshots.endpoint.empty() ||
              c.cluster.nodes.empty();
     },
     "expected snapshots.directory or snapshots.endpoint, where they are to be"},
    {"snapshots.acknowledge",
     [](const config& c) {
       return !c.snapshots.acknowledges_copies || !c.snapshots.directory.empty() ||
              !c.snapshots.endpoint.empty();
     },
     "shared: expected snapshots.directory or snapshots.endpoint, where copies are to be"},
    {"sandbox.max_instances",
     [](const config& c) { return c.sandbox.max_instances <= c.runtime.slots; },
     "expected at most runtime.slots, since each sandbox needs one"},
    {"sandbox.privileges",
     [](const config& c) { return c.sandbox.gains == privileges::none || c.sandbox.allow_sudo; },
     "sudo needs sandbox.allow_sudo: true"},
  };
  return table;
}

// ---- The file ----

/// How many letters have to change to make one of the other (Levenshtein).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const auto changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string_view last_part(std::string_view path) {
  return path.substr(path.rfind('.') + 1);
}

/// The known path that was meant: misspelled, or right by name and in the wrong section.
std::string nearest(const std::string& path) {
  std::string best;
  auto closest = std::numeric_limits<std::size_t>::max();
  const auto consider = [&](const std::string& known) {
    const bool misplaced = last_part(path) == last_part(known);
    const auto far = misplaced ? std::size_t{1} : distance(path, known);
    if (far < closest) {
      closest = far;
      best = known;
    }
  };
  for (const auto& one : keys()) {
    for (auto dot = one.path.find('.'); dot != one.path.npos; dot = one.path.find('.', dot + 1))
      consider(one.path.substr(0, dot));
    consider(one.path);
  }
  return best;
}

bool is_section(const std::string& path) {
  return std::any_of(keys().begin(), keys().end(),
                     [&](auto& one) { return one.path.starts_with(path + "."); });
}

error refused(std::string why) {
  return {errc::invalid_request, std::move(why)};
}

/// Reads one file into a config, and remembers the lines.
class file_reader {
public:
  file_reader(std::string name, config& into)
      : name_(std::move(name))
      , into_(into) {}

  result<void> read(const std::string& text) try {
    const auto document = yaml_document(text, name_);
    if (!document)
      return document.reason();
    if (!*document || document->IsNull())
      return {};
    if (!document->IsMap())
      return refused(at(document->Mark().line) + ": expected sections such as server:, got " +
                     spelled(*document));
    return read_section(*document, "");
  } catch (const YAML::Exception& e) {
    return refused(at(e.mark.line) + ": not YAML: " + e.msg);
  }

  bool holds_secrets() const { return holds_secrets_; }

  /// Where the key was set: "file:line: ", or nothing when it was not.
  std::string place(const std::string& path) const {
    const auto found = lines_.find(path);
    return found == lines_.end() ? "" : at(found->second) + ": ";
  }

private:
  std::string at(int line) const { return name_ + ":" + std::to_string(line + 1); }

  result<void> read_section(const YAML::Node& section, const std::string& prefix) {
    for (const auto& item : section) {
      const auto line = item.first.Mark().line;
      if (!item.first.IsScalar())
        return refused(at(line) + ": expected a key, got " + spelled(item.first));
      const auto path = prefix + item.first.Scalar();
      if (auto good = read_item(path, item.second, line); !good)
        return good;
    }
    return {};
  }

  result<void> read_item(const std::string& path, const YAML::Node& value, int line) {
    const auto here = at(line) + ": " + path + ": ";
    const auto [first, fresh] = lines_.emplace(path, line);
    if (!fresh)
      return refused(here + "given twice, first in line " + std::to_string(first->second + 1));
    if (path == bindings_path && (value.IsMap() || value.IsNull()))
      return read_bindings(value);
    if (path == env_path && (value.IsMap() || value.IsNull()))
      return read_variables(value);
    if (path == runtimes_path && (value.IsMap() || value.IsNull()))
      return read_runtimes(value);
    if (path == nodes_path && (value.IsMap() || value.IsNull()))
      return read_nodes(value);
    if (path == named_keys_path && (value.IsMap() || value.IsNull()))
      return read_named_keys(value);
    if (is_section(path)) {
      if (value.IsMap())
        return read_section(value, path + ".");
      if (value.IsNull()) // All of its keys are comments.
        return {};
      return refused(here + "expected a section, got " + spelled(value));
    }
    const auto renamed = earlier_names().find(path);
    if (renamed != earlier_names().end())
      if (const auto [other, alone] = lines_.emplace(renamed->second, line); !alone)
        return refused(here + "is the same as " + renamed->second + ", which stands in line " +
                       std::to_string(other->second + 1));
    const auto& name = renamed != earlier_names().end() ? renamed->second : path;
    const auto known =
      std::find_if(keys().begin(), keys().end(), [&](auto& one) { return one.path == name; });
    if (known == keys().end())
      return refused(here + "no such key; the nearest is " + nearest(path));
    if (known->list && value.IsSequence()) {
      for (const auto& element : value)
        if (const auto wrong = known->set(into_, element.IsScalar() ? element.Scalar() : ""))
          return refused(here + "expected " + *wrong + ", got " + spelled(element) + " in it");
      return {};
    }
    // A text that nothing can be parsed from, where there is none at all: to hear what is expected.
    const auto wrong = value.IsScalar() && !known->list ? known->set(into_, value.Scalar())
                                                        : known->set(into_, std::string{'\0'});
    if (!wrong) {
      holds_secrets_ = holds_secrets_ || (known->secret && !value.Scalar().empty());
      return {};
    }
    return refused(here + "expected " + *wrong + (known->secret ? "" : ", got " + spelled(value)));
  }

  result<void> read_bindings(const YAML::Node& bindings) {
    for (const auto& item : bindings) {
      const auto line = item.first.Mark().line;
      const auto here = at(line) + ": " + bindings_path + ": ";
      if (!item.first.IsScalar() || !is_variable_name(item.first.Scalar()))
        return refused(here + "expected names of letters, digits and '_' that begin with no " +
                       "digit, got " + spelled(item.first));
      const auto path = bindings_path + "." + item.first.Scalar();
      if (const auto [first, fresh] = lines_.emplace(path, line); !fresh)
        return refused(at(line) + ": " + path + ": given twice, first in line " +
                       std::to_string(first->second + 1));
      if (!item.second.IsMap())
        return refused(at(line) + ": " + path +
                       ": expected a section with endpoint and bucket, got " +
                       spelled(item.second));
      auto draft = read_binding(path, item.second);
      if (!draft)
        return draft.reason();
      if (auto why = missing_in(*draft))
        return refused(at(line) + ": " + path + ": " + *why);
      if (!draft->credentials.access_key_id.empty())
        draft->is.credentials = std::move(draft->credentials);
      into_.buckets.bindings.emplace(item.first.Scalar(), std::move(draft->is));
    }
    return {};
  }

  /// Values may hold passwords: no error repeats one.
  result<void> read_variables(const YAML::Node& variables) {
    std::size_t bytes = 0;
    for (const auto& item : variables) {
      const auto line = item.first.Mark().line;
      const auto here = at(line) + ": " + env_path;
      if (!item.first.IsScalar() || !is_variable_name(item.first.Scalar()))
        return refused(here + ": expected names of letters, digits and '_' that begin with no " +
                       "digit, got " + spelled(item.first));
      const auto& name = item.first.Scalar();
      const auto path = env_path + "." + name;
      if (const auto [first, fresh] = lines_.emplace(path, line); !fresh)
        return refused(at(line) + ": " + path + ": given twice, first in line " +
                       std::to_string(first->second + 1));
      if (std::find(kept_variables.begin(), kept_variables.end(), name) != kept_variables.end())
        return refused(at(line) + ": " + path +
                       ": is the sandbox's own, as its image and its user have it");
      if (!item.second.IsScalar() || item.second.Scalar().find('\0') != std::string::npos)
        return refused(at(line) + ": " + path + ": expected a text without NUL");
      bytes += name.size() + item.second.Scalar().size() + 2;
      if (bytes > most_variables_bytes)
        return refused(here + ": expected at most 16KiB of names and values");
      into_.sandbox.env.emplace(name, item.second.Scalar());
    }
    return {};
  }

  result<void> read_runtimes(const YAML::Node& runtimes) {
    constexpr std::size_t most = 64;
    for (const auto& item : runtimes) {
      const auto line = item.first.Mark().line;
      const auto here = at(line) + ": " + runtimes_path;
      if (!item.first.IsScalar() || !image_name(item.first.Scalar()))
        return refused(here + ": expected names such as node24, got " + spelled(item.first));
      const auto& name = item.first.Scalar();
      const auto path = runtimes_path + "." + name;
      if (const auto [first, fresh] = lines_.emplace(path, line); !fresh)
        return refused(at(line) + ": " + path + ": given twice, first in line " +
                       std::to_string(first->second + 1));
      if (!item.second.IsScalar() ||
          !(item.second.Scalar().empty() || image_name(item.second.Scalar()) ||
            storage::registry::parse_reference(item.second.Scalar())))
        return refused(at(line) + ": " + path +
                       ": expected the name of an image, a reference of a registry's, or \"\" for "
                       "the default image, got " +
                       spelled(item.second));
      into_.runtimes[name] = item.second.Scalar();
      if (into_.runtimes.size() > most)
        return refused(here + ": expected at most 64 runtimes");
    }
    return {};
  }

  result<void> read_nodes(const YAML::Node& nodes) {
    for (const auto& item : nodes) {
      const auto line = item.first.Mark().line;
      if (!item.first.IsScalar() || !is_node_name(item.first.Scalar()))
        return refused(at(line) + ": " + nodes_path +
                       ": expected names of a-z, 0-9, '.' and '-', with a letter or digit at both "
                       "ends, got " +
                       spelled(item.first));
      const auto path = nodes_path + "." + item.first.Scalar();
      if (const auto [first, fresh] = lines_.emplace(path, line); !fresh)
        return refused(at(line) + ": " + path + ": given twice, first in line " +
                       std::to_string(first->second + 1));
      if (!item.second.IsMap())
        return refused(at(line) + ": " + path +
                       ": expected a section with internal and link, got " + spelled(item.second));
      auto node = read_node(path, item.second);
      if (!node)
        return node.reason();
      if (node->internal.port == 0 || node->link.port == 0)
        return refused(at(line) + ": " + path + ": expected both internal and link");
      into_.cluster.nodes.emplace(item.first.Scalar(), std::move(*node));
    }
    return {};
  }

  result<void> read_named_keys(const YAML::Node& named) {
    for (const auto& item : named) {
      const auto line = item.first.Mark().line;
      const auto here = at(line) + ": " + named_keys_path;
      // What stands in its place may be a key.
      if (!item.first.IsScalar() || !is_name_of_key(item.first.Scalar()))
        return refused(here + ": expected names of 1 to 63 of a-z, A-Z, 0-9, '_' and '-'");
      const auto path = named_keys_path + "." + item.first.Scalar();
      if (const auto [first, fresh] = lines_.emplace(path, line); !fresh)
        return refused(at(line) + ": " + path + ": given twice, first in line " +
                       std::to_string(first->second + 1));
      if (!item.second.IsMap())
        return refused(at(line) + ": " + path + ": expected a section with key");
      named_key_config key;
      if (auto good = read_named_key(path, item.second, "", key); !good)
        return good;
      if (key.key.empty())
        return refused(at(line) + ": " + path + ".key: expected 1 to 4096 printable ASCII " +
                       "characters without spaces, got none");
      // The other APIs know no projects: they would show all of them.
      for (const auto& [name, list] : {std::pair{"teams", &key.teams}, {"projects", &key.projects}})
        if (!list->empty() && key.apis != std::vector<std::string>{"vercel"})
          return refused(at(line) + ": " + path + "." + name +
                         ": needs apis: [vercel], since the other APIs know none");
      into_.keys.emplace(item.first.Scalar(), std::move(key));
      if (into_.keys.size() > most_named_keys)
        return refused(here + ": expected at most 1000 keys");
    }
    return {};
  }

  /// `prefix`: what the section is below, with a point behind it.
  result<void> read_named_key(const std::string& path, const YAML::Node& section,
                              const std::string& prefix, named_key_config& key) {
    for (const auto& item : section) {
      const auto line = item.first.Mark().line;
      if (!item.first.IsScalar())
        return refused(at(line) + ": " + path + ": expected a key, got " + spelled(item.first));
      const auto name = prefix + item.first.Scalar();
      const auto here = at(line) + ": " + path + "." + name + ": ";
      if (const auto [first, fresh] = lines_.emplace(path + "." + name, line); !fresh)
        return refused(here + "given twice, first in line " + std::to_string(first->second + 1));
      const auto& value = item.second;
      if (name == "limits") {
        if (!value.IsMap())
          return refused(here +
                         "expected a section with sandboxes, vcpus and "
                         "creates_per_minute, got " +
                         spelled(value));
        if (auto good = read_named_key(path, value, "limits.", key); !good)
          return good;
        continue;
      }
      const auto& members = named_key_members();
      const auto known =
        std::find_if(members.begin(), members.end(), [&](auto& one) { return one.name == name; });
      if (known == members.end())
        return refused(here + "no such key; a named key has key, apis, teams, projects and limits "
                              "with sandboxes, vcpus and creates_per_minute");
      holds_secrets_ = holds_secrets_ || known->secret;
      const auto set = [&](const YAML::Node& one) -> result<void> {
        const bool fits = one.IsScalar();
        if (const auto wrong = known->set(key, fits ? one.Scalar() : std::string{'\0'}))
          return refused(here + "expected " + *wrong +
                         (known->secret ? "" : ", got " + spelled(one)));
        return {};
      };
      if (known->list && !(value.IsSequence() && value.size() > 0))
        return refused(here + "expected " + *known->set(key, std::string{'\0'}) + ", got " +
                       spelled(value));
      if (!known->list) {
        if (auto good = set(value); !good)
          return good;
        continue;
      }
      for (const auto& element : value)
        if (auto good = set(element); !good)
          return good;
    }
    return {};
  }

  static bool is_name_of_key(std::string_view text) {
    return text.size() <= 63 && is_made_of(text, "abcdefghijklmnopqrstuvwxyz"
                                                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
  }

  result<cluster_node_config> read_node(const std::string& path, const YAML::Node& section) {
    cluster_node_config node;
    for (const auto& item : section) {
      const auto line = item.first.Mark().line;
      if (!item.first.IsScalar())
        return refused(at(line) + ": expected a key, got " + spelled(item.first));
      const auto& name = item.first.Scalar();
      const auto here = at(line) + ": " + path + "." + name + ": ";
      const auto& members = node_members();
      const auto known =
        std::find_if(members.begin(), members.end(), [&](auto& one) { return one.name == name; });
      if (known == members.end())
        return refused(here + "no such key; a node has internal, link, listen, state and "
                              "first_slot");
      if (const auto [first, fresh] = lines_.emplace(path + "." + name, line); !fresh)
        return refused(here + "given twice, first in line " + std::to_string(first->second + 1));
      const auto& value = item.second;
      if (const auto wrong =
            known->set(node, value.IsScalar() ? value.Scalar() : std::string{'\0'}))
        return refused(here + "expected " + *wrong + ", got " + spelled(value));
    }
    return node;
  }

  result<binding_draft> read_binding(const std::string& path, const YAML::Node& binding) {
    binding_draft draft;
    for (const auto& item : binding) {
      const auto line = item.first.Mark().line;
      if (!item.first.IsScalar())
        return refused(at(line) + ": expected a key, got " + spelled(item.first));
      const auto& name = item.first.Scalar();
      const auto here = at(line) + ": " + path + "." + name + ": ";
      const auto& members = binding_members();
      const auto known =
        std::find_if(members.begin(), members.end(), [&](auto& one) { return one.name == name; });
      if (known == members.end())
        return refused(here + "no such key; a binding has endpoint, bucket, access_key_id, "
                              "secret_access_key and read_only");
      if (const auto [first, fresh] = lines_.emplace(path + "." + name, line); !fresh)
        return refused(here + "given twice, first in line " + std::to_string(first->second + 1));
      const auto& value = item.second;
      if (const auto wrong =
            known->set(draft, value.IsScalar() ? value.Scalar() : std::string{'\0'}))
        return refused(here + "expected " + *wrong +
                       (known->secret ? "" : ", got " + spelled(value)));
      holds_secrets_ = holds_secrets_ || known->secret;
    }
    return draft;
  }

  static std::optional<std::string> missing_in(const binding_draft& draft) {
    if (draft.is.endpoint.empty())
      return "expected an endpoint";
    if (draft.is.bucket.empty())
      return "expected a bucket";
    if (draft.credentials.access_key_id.empty() != draft.credentials.secret_access_key.empty())
      return "expected both access_key_id and secret_access_key, or neither";
    return std::nullopt;
  }

  std::string name_;
  config& into_;
  std::map<std::string, int> lines_; ///< From 0, as YAML counts.
  bool holds_secrets_ = false;
};

result<std::string> text_of(const std::string& file) {
  errno = 0;
  std::ifstream in{file, std::ios::binary};
  std::string text(max_config_bytes + 1, '\0');
  if (!in.is_open() || (in.read(text.data(), static_cast<std::streamsize>(text.size())), in.bad()))
    return error{errc::io_failed, file + ": cannot be read: " + std::strerror(errno)};
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

bool others_can_read(const std::string& file) {
  struct stat is {};
  return ::stat(file.c_str(), &is) == 0 && (is.st_mode & (S_IRGRP | S_IROTH)) != 0;
}

/// Of several prefixes of variables, the first pair of which both are there.
result<std::optional<bucket_credentials>>
credentials_of(const environment& env, std::initializer_list<std::string> prefixes) {
  for (const auto& whose : prefixes) {
    const auto id = env.find(whose + "_ACCESS_KEY_ID");
    const auto secret = env.find(whose + "_SECRET_ACCESS_KEY");
    if (id == env.end() || secret == env.end() || id->second.empty() || secret->second.empty())
      continue;
    for (const auto& each : {id, secret})
      if (!credential(each->second))
        return refused(each->first + ": expected 1 to 4096 printable ASCII characters without "
                                     "spaces");
    return std::optional{bucket_credentials{id->second, secret->second}};
  }
  return std::optional<bucket_credentials>{};
}

result<void> read_environment(const environment& env, config& into) {
  auto of_mounts = credentials_of(env, {"AWS", "R2"}); // For those that bring none.
  if (!of_mounts)
    return of_mounts.reason();
  into.buckets.credentials = std::move(*of_mounts);
  auto of_snapshots = credentials_of(env, {"SNAPSHOTS"});
  if (!of_snapshots)
    return of_snapshots.reason();
  into.snapshots.credentials = std::move(*of_snapshots);
  if (const auto found = env.find("SANDBOX_API_KEY");
      found != env.end() && !found->second.empty()) {
    const auto key = printable(found->second);
    if (!key)
      return refused("SANDBOX_API_KEY: expected at most 4096 printable ASCII characters without "
                     "spaces");
    into.server.api_key = *key;
  }
  for (const auto& [name, set] : variables())
    if (const auto found = env.find(name); found != env.end())
      if (const long n = std::strtol(found->second.c_str(), nullptr, 10); n > 0)
        set(into, n);
  return {};
}

/// `place` says in front of an error where a key was set.
result<void> check(const config& values,
                   const std::function<std::string(const std::string&)>& place) {
  for (const auto& [path, holds, otherwise] : agreements())
    if (!holds(values))
      return refused(place(path) + path + ": " + otherwise);
  return {};
}

std::string with_name(std::string text, const std::string& node) {
  constexpr std::string_view place = "{node}";
  for (auto at = text.find(place); at != text.npos; at = text.find(place, at + node.size()))
    text.replace(at, place.size(), node);
  return text;
}

/// What the file says for this node goes before what it says for all.
result<void> become_node(const std::optional<std::string>& typed, config& into) {
  auto& cluster = into.cluster;
  if (!typed && cluster.nodes.empty())
    return {};
  if (cluster.nodes.empty())
    return refused("--node: the configuration has no cluster.nodes");
  std::string names;
  for (const auto& [name, node] : cluster.nodes)
    names += (names.empty() ? "" : ", ") + name;
  if (!typed)
    return refused("the configuration is that of a cluster: say by --node which of its nodes this "
                   "is: " +
                   names);
  const auto found = cluster.nodes.find(*typed);
  if (found == cluster.nodes.end())
    return refused("--node: there is no node \"" + *typed + "\" in cluster.nodes, only " + names);
  const auto& mine = found->second;
  cluster.self = *typed;
  if (mine.listen)
    into.server.listen = *mine.listen;
  if (!mine.state.empty())
    into.state.directory = mine.state;
  if (mine.first_slot)
    into.runtime.first_slot = *mine.first_slot;
  for (auto* each : {&cluster.authority, &cluster.certificate, &cluster.key,
                     &cluster.etcd_authority, &cluster.etcd_certificate, &cluster.etcd_key})
    *each = with_name(*each, *typed);
  return {};
}

} // namespace

result<config> load_config(std::optional<std::string> file, const environment& env,
                           const command_line& typed) {
  const config_origin from{std::move(file), env, typed};
  if (!from.file)
    return read_config(from, {});
  auto text = text_of(*from.file);
  if (!text)
    return text.reason();
  return read_config(from, {std::move(*text), others_can_read(*from.file)});
}

result<config> read_config(const config_origin& from, const config_text& file) {
  const auto& typed = from.typed;
  config values;
  file_reader reader{from.file.value_or(""), values};
  if (file.text.size() > max_config_bytes)
    return refused(*from.file + ": expected at most 1MiB of configuration");
  if (const auto good = reader.read(file.text); !good)
    return good.reason();
  if (reader.holds_secrets() && file.others_can_read)
    values.exposed_file = *from.file;
  if (const auto good = read_environment(from.env, values); !good)
    return good.reason();
  if (const auto good = become_node(typed.node, values); !good)
    return good.reason();
  if (typed.listen) {
    const auto where = listening(*typed.listen);
    if (!where)
      return refused("--listen: expected ADDR:PORT in numbers, such as 127.0.0.1:8787 or "
                     "[::1]:8787, got \"" +
                     *typed.listen + "\"");
    values.server.listen = *where;
  }
  if (typed.execd) {
    const auto where = listening(*typed.execd);
    if (!where)
      return refused("--execd: expected ADDR:PORT in numbers, such as 127.0.0.1:44772 or "
                     "[::1]:44772, got \"" +
                     *typed.execd + "\"");
    values.server.execd_listen = *where;
  }
  if (typed.state_directory)
    values.state.directory = *typed.state_directory;
  if (const auto good = check(values, [&](auto& path) { return reader.place(path); }); !good)
    return good.reason();
  return values;
}

bool config::operator==(const config& other) const {
  const auto rest = [](const config& c) {
    return std::tie(c.server, c.keys, c.state, c.runtime, c.node, c.sandbox, c.image, c.images,
                    c.runtimes, c.network, c.preview, c.snapshots, c.cluster, c.pool,
                    c.default_session, c.vercel, c.secrets, c.oidc, c.log_level, c.exposed_file);
  };
  return rest(*this) == rest(other) && are_same(buckets, other.buckets);
}

std::string key_file_of_secrets(const config& values) {
  return values.secrets.key_file.empty() ? values.state.directory + "/secrets.key"
                                         : values.secrets.key_file;
}

std::string key_file_of_tokens(const config& values) {
  return values.oidc.key_file.empty() ? values.state.directory + "/oidc-keys.json"
                                      : values.oidc.key_file;
}

bool is_loopback(const endpoint& where) {
  return where.address == "::1" || where.address.starts_with("127.");
}

result<void> check(const config& values) {
  return check(values, [](auto&) { return ""; });
}

std::vector<std::string> changed_keys(const config& before, const config& after) {
  std::vector<std::string> paths;
  for (const auto& one : keys())
    if (!one.same(before, after))
      paths.push_back(one.path);
  return paths;
}

std::vector<std::string> config_keys() {
  std::vector<std::string> paths;
  for (const auto& one : keys())
    paths.push_back(one.path);
  return paths;
}

} // namespace insula
