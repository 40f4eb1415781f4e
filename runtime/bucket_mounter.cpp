#include "runtime/bucket_mounter.hpp"

#include "runtime/egress/address.hpp"
#include "runtime/spawner/fuse_process.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <vector>

namespace insula::runtime {

namespace {

using spawner::fuse_cache_directory;
using spawner::fuse_mount_directory;

std::string secret_path() {
  return "/proc/self/fd/" + std::to_string(spawner::fuse_secret_fd);
}

/// The host of a URL, without its port.
std::string_view host_of(std::string_view url) {
  const auto scheme = url.find("://");
  auto host = scheme == std::string_view::npos ? url : url.substr(scheme + 3);
  host = host.substr(0, host.find('/'));
  const auto colon = host.rfind(':');
  return host.ends_with(']') || colon == std::string_view::npos ? host : host.substr(0, colon);
}

bool is_below(std::string_view host, std::string_view domain) {
  return host == domain || (host.ends_with(domain) && host[host.size() - domain.size() - 1] == '.');
}

std::uint16_t port_of(std::string_view url) {
  const bool tls = url.starts_with("https://");
  std::uint16_t port = tls ? 443 : 80;
  const auto host = host_of(url);
  const auto rest = url.substr(static_cast<std::size_t>(host.data() + host.size() - url.data()));
  if (rest.starts_with(':')) // One that says none may end with a colon.
    std::from_chars(rest.data() + 1, rest.data() + rest.size(), port);
  return port;
}

error bad_endpoint(const bucket_source& from, std::string_view why) {
  return {errc::invalid_request,
          "The endpoint \"" + from.endpoint + "\" is not allowed: " + std::string{why}};
}

/// An address in one of the old forms, such as 2130706433 or 0x7f.1, which programs read as they
/// like. No domain's last label begins with a digit.
bool is_odd_number(std::string_view host) {
  if (host.ends_with('.'))
    host.remove_suffix(1);
  const auto dot = host.rfind('.');
  const auto last = host.substr(dot == std::string_view::npos ? 0 : dot + 1);
  return last.empty() || std::isdigit(static_cast<unsigned char>(last.front())) != 0;
}

/// Where a program may connect to: to the endpoint, and to the bucket as a name below that. Nothing
/// else is dialled, and no other name is asked for, whatever a service redirects to. Errors:
/// invalid_request.
result<egress_policy> reach_of(const bucket_source& from, const mount_place& to) {
  auto host = std::string{host_of(from.endpoint)};
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  auto reach = egress_policy::deny_all();
  const auto allow = [&reach](const std::string& target) {
    const auto normal = normalise_target(target);
    if (normal)
      reach.rules.push_back({true, *normal});
    return static_cast<bool>(normal);
  };
  egress::reserved_addresses reserved;
  for (const auto& each : to.allowed_private)
    if (const auto net = egress::subnet::parse(each))
      reserved.allowed.push_back(*net);
  const auto address = egress::ip_address::parse(host);
  const bool local = host == "localhost" || host.ends_with(".localhost");
  const auto judged = local ? egress::ip_address::parse("127.0.0.1") : address;
  if (const char* kind = judged ? reserved.kind_of(*judged) : nullptr)
    return bad_endpoint(from,
                        std::string{kind} + ". The operator can open it by network.allow_private.");
  if (!address && is_odd_number(host))
    return bad_endpoint(from, "its host is neither a name nor an address in its usual form.");
  if (local) // Programs know by themselves where that is. What they say there does not matter.
    for (const char* each : {"127.0.0.1", "::1"})
      allow(each);
  if (!allow(address ? address->text() : host))
    return bad_endpoint(from, "its host is no name of a domain.");
  if (!address)
    allow(from.bucket + "." + host);
  if (is_below(host, "amazonaws.com")) // A bucket of another region is redirected to.
    for (const char* each : {"s3.amazonaws.com", "s3.*.amazonaws.com"}) {
      allow(each);
      allow(from.bucket + "." + each);
    }
  reach.rules.push_back({false, "*"});
  return reach;
}

result<mount_spec> usual(const bucket_source& from, const mount_place& to, std::string_view type) {
  auto reach = reach_of(from, to);
  if (!reach)
    return reach.reason();
  mount_spec plan;
  plan.reach = std::move(*reach);
  plan.port = port_of(from.endpoint);
  plan.path = to.path;
  plan.source = from.bucket + (from.prefix.empty() ? "" : ":" + from.prefix);
  plan.type = type;
  plan.cache_bytes = to.cache_bytes;
  plan.read_only = from.read_only;
  plan.owner = to.user.uid;
  return plan;
}

// ---- s3fs

/// What a user may say of a mount. None of these names a file of the machine's, sends what is
/// stored elsewhere, or writes secrets to a log.
constexpr std::array<std::string_view, 48> s3fs_options{"bucket_size",
                                                        "compat_dir",
                                                        "complement_stat",
                                                        "connect_timeout",
                                                        "default_acl",
                                                        "disable_noobj_cache",
                                                        "enable_content_md5",
                                                        "enable_noobj_cache",
                                                        "enable_unsigned_payload",
                                                        "endpoint",
                                                        "gid",
                                                        "list_object_max_keys",
                                                        "listobjectsv2",
                                                        "max_dirty_data",
                                                        "max_stat_cache_size",
                                                        "max_thread_count",
                                                        "mp_umask",
                                                        "multipart_copy_size",
                                                        "multipart_size",
                                                        "multireq_max",
                                                        "no_check_certificate",
                                                        "nocopyapi",
                                                        "nomixupload",
                                                        "nomultipart",
                                                        "nonempty",
                                                        "norenameapi",
                                                        "notsup_compat_dir",
                                                        "noua",
                                                        "noxmlns",
                                                        "parallel_count",
                                                        "readwrite_timeout",
                                                        "requester_pays",
                                                        "retries",
                                                        "ro",
                                                        "rw",
                                                        "sigv2",
                                                        "sigv4",
                                                        "singlepart_copy_limit",
                                                        "ssl_verify_hostname",
                                                        "stat_cache_expire",
                                                        "stat_cache_interval_expire",
                                                        "storage_class",
                                                        "streamupload",
                                                        "uid",
                                                        "umask",
                                                        "use_path_request_style",
                                                        "use_rrs",
                                                        "use_xattr"};

/// These are the node's own. That a user says them, too, changes nothing.
constexpr std::array<std::string_view, 2> overridden{"passwd_file", "url"};

/// With the credentials of the node's environment these would have it sign what is good elsewhere
/// as well (signature 2 does not cover the host), for what the node pays, or to a host that nobody
/// has looked at.
constexpr std::array<std::string_view, 6> not_for_node{
  "enable_unsigned_payload", "no_check_certificate",  "requester_pays", "sigv2",
  "ssl_verify_hostname",     "use_path_request_style"};

/// Commas and backslashes are of the list that it stands in; what ends a line could begin another
/// field of the requests that s3fs signs.
bool can_be_passed_on(std::string_view option) {
  return std::none_of(option.begin(), option.end(), [](char c) {
    return c == ',' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

error not_allowed(std::string_view name) {
  return {errc::invalid_request, "The s3fs option \"" + std::string{name} + "\" is not allowed."};
}

class s3fs_mounter final : public bucket_mounter {
public:
  std::string_view name() const override { return "s3fs"; }

  result<mount_spec> plan(const bucket_source& from, const mount_place& to) const override {
    auto planned = usual(from, to, name());
    if (!planned)
      return planned;
    auto& made = *planned;
    const auto uid = std::to_string(to.user.uid), gid = std::to_string(to.user.gid);
    std::map<std::string, std::optional<std::string>, std::less<>> options{
      {"uid", uid},
      {"gid", gid},
      {"mp_umask", "022"},
      // What somebody else writes is seen after a minute, not after a quarter of an hour.
      {"stat_cache_expire", "60"},
      {"connect_timeout", "10"},
    };
    const auto host = host_of(from.endpoint);
    if (is_below(host, "r2.cloudflarestorage.com"))
      options.emplace("nomixupload", std::nullopt);
    else if (!is_below(host, "amazonaws.com") && host != "storage.googleapis.com")
      options.emplace("use_path_request_style", std::nullopt);
    for (const auto& each : from.options) {
      const auto equals = each.find('=');
      const auto option = std::string_view{each}.substr(0, equals);
      // What it is set to may be a secret: it is not repeated.
      if (!can_be_passed_on(each))
        return error{errc::invalid_request, "An s3fs option has no commas, no backslashes and no "
                                            "control characters: \"" +
                                              std::string{option} + "\"."};
      if (std::find(overridden.begin(), overridden.end(), option) != overridden.end())
        continue;
      if (std::find(s3fs_options.begin(), s3fs_options.end(), option) == s3fs_options.end())
        return not_allowed(option);
      if (from.signed_by_node &&
          std::find(not_for_node.begin(), not_for_node.end(), option) != not_for_node.end())
        return error{errc::invalid_request, "The s3fs option \"" + std::string{option} +
                                              "\" is not allowed with the node's own credentials."};
      if (option == "nonempty")
        made.over_files = true;
      else if (option == "ro")
        made.read_only = true;
      else if (option != "rw")
        options.insert_or_assign(std::string{option}, equals == std::string::npos
                                                        ? std::nullopt
                                                        : std::optional{each.substr(equals + 1)});
    }
    options.insert_or_assign("allow_other", std::nullopt);
    options.insert_or_assign("url", from.endpoint);
    options.insert_or_assign("passwd_file", secret_path());
    options.insert_or_assign("use_cache", fuse_cache_directory);
    options.insert_or_assign("logfile", spawner::fuse_log);
    options.insert_or_assign("dbglevel", "err");
    // Some room is left: what s3fs may not use it does not, and goes on in parts.
    options.insert_or_assign("ensure_diskfree", "8");
    if (made.read_only)
      options.insert_or_assign("ro", std::nullopt);
    if (from.signed_by_node) // Else s3fs falls back to signature 2 by itself, at a 400 or a 403.
      options.insert_or_assign("sigv4", std::nullopt);
    std::string list;
    for (const auto& [option, value] : options)
      list += (list.empty() ? "" : ",") + option + (value ? "=" + *value : "");
    made.argv = {"s3fs", made.source, fuse_mount_directory, "-f", "-o", list};
    made.secret = from.bucket + ":" + from.credentials.access_key_id + ":" +
                  from.credentials.secret_access_key + "\n";
    return planned;
  }
};

// ---- rclone

class rclone_mounter final : public bucket_mounter {
public:
  std::string_view name() const override { return "rclone"; }

  result<mount_spec> plan(const bucket_source& from, const mount_place& to) const override {
    auto planned = usual(from, to, name());
    if (!planned)
      return planned;
    auto& made = *planned;
    for (const auto& each : from.options)
      if (each == "nonempty")
        made.over_files = true;
      else if (each == "ro")
        made.read_only = true;
      else
        return error{errc::invalid_request,
                     "This node mounts buckets with rclone, which has no s3fs options: \"" +
                       each.substr(0, each.find('=')) + "\"."};
    made.is_listed = true;
    const bool virtual_hosts = is_below(host_of(from.endpoint), "amazonaws.com");
    made.secret =
      "[bucket]\ntype = s3\nprovider = Other\nenv_auth = false\nendpoint = " + from.endpoint +
      "\naccess_key_id = " + from.credentials.access_key_id +
      "\nsecret_access_key = " + from.credentials.secret_access_key +
      "\nforce_path_style = " + (virtual_hosts ? "false" : "true") + "\n";
    made.argv = {"rclone", "mount", "bucket:" + from.bucket + from.prefix, fuse_mount_directory,
                 "--config=" + secret_path(), "--allow-other",
                 "--uid=" + std::to_string(to.user.uid), "--gid=" + std::to_string(to.user.gid),
                 "--umask=022", "--cache-dir=" + std::string{fuse_cache_directory},
                 "--vfs-cache-mode=writes",
                 "--vfs-cache-max-size=" + std::to_string(to.cache_bytes / 4 * 3),
                 // What has been closed is on its way, and waited for by an unmount.
                 "--vfs-write-back=0s", "--dir-cache-time=60s", "--contimeout=10s", "--retries=3",
                 "--log-level=ERROR"};
    if (made.read_only)
      made.argv.emplace_back("--read-only");
    return planned;
  }
};

} // namespace

std::shared_ptr<const bucket_mounter> make_s3fs_mounter() {
  return std::make_shared<s3fs_mounter>();
}

std::shared_ptr<const bucket_mounter> make_rclone_mounter() {
  return std::make_shared<rclone_mounter>();
}

std::shared_ptr<const bucket_mounter> find_bucket_mounter(std::string_view name) {
  for (auto each : {make_s3fs_mounter(), make_rclone_mounter()})
    if (each->name() == name)
      return each;
  return nullptr;
}

} // namespace insula::runtime
