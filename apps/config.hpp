#pragma once

#include "base/bucket.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/privileges.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace insula {

/// An address to listen at.
struct endpoint {
  std::string address;    ///< In numbers, IPv4 or IPv6, without brackets.
  std::uint16_t port = 0; ///< 0: any free one.

  bool operator==(const endpoint&) const = default;
};

struct server_config {
  endpoint listen{"127.0.0.1", 8787};
  std::optional<endpoint> metrics_listen; ///< For /metrics alone. None: there is no such listener.
  std::optional<endpoint> execd_listen;   ///< For OpenSandbox's execd, of one sandbox. The same.
  bool allow_open = false;                ///< Without a key, and yet not only for this machine.
  std::string api_key;                    ///< Empty: nobody is asked for a key.
  std::vector<std::string> allowed_hosts; ///< Without a key: names of this server.
  unsigned threads = 2;
  unsigned max_connections = 8192;
  std::string tls_certificate; ///< A path; both or neither. Neither: plain HTTP.
  std::string tls_key;

  bool operator==(const server_config&) const = default;
};

/// A key beside server.api_key, for a part of the server. Empty lists: all.
struct named_key_config {
  std::string key;
  std::vector<std::string> apis;  ///< bridge, opensandbox, vercel.
  std::vector<std::string> teams; ///< Of the Vercel API, as the next.
  std::vector<std::string> projects;
  // Of what it makes. 0: no ceiling.
  unsigned sandboxes = 0; ///< At once, in the whole cluster.
  double vcpus = 0;       ///< Of these, together. To hundredths.
  unsigned creates_per_minute = 0;

  bool operator==(const named_key_config&) const = default;
};

struct vercel_config {
  std::vector<std::string> projects; ///< Their ids. Empty: any.
  std::uint64_t drive_bytes = 10ull << 30;

  bool operator==(const vercel_config&) const = default;
};

struct state_config {
  std::string directory = "/var/lib/insula";
  std::string user = "1879048191"; ///< A name or a uid; "root": stay root.

  bool operator==(const state_config&) const = default;
};

enum class disk_backend : std::uint8_t { automatic, btrfs, tmpfs };

struct runtime_config {
  unsigned first_slot = 0;
  unsigned slots = 4096;
  disk_backend backend = disk_backend::automatic;
  std::uint64_t pool_bytes = 0; ///< 0: 80 % of the free space.

  bool operator==(const runtime_config&) const = default;
};

struct node_config {
  std::uint64_t memory_reserve = 0;          ///< Bytes; 0: 5 % of the machine's, 256 MiB to 2 GiB.
  std::uint64_t kept_log_bytes = 4ull << 30; ///< Of commands whose run is over. 0: none.

  bool operator==(const node_config&) const = default;
};

struct sandbox_config {
  unsigned max_instances = 1000;
  std::chrono::milliseconds freeze_after = std::chrono::minutes{10}; ///< 0: never, as the next.
  std::chrono::milliseconds stop_after = std::chrono::hours{24};
  bool seccomp_filters = true;         ///< Processes inside may load filters of system calls.
  privileges gains = privileges::none; ///< Of new ones of which nothing else is said.
  bool allow_sudo = true;              ///< Some may have the privileges `sudo`.
  std::uint64_t memory_bytes = 2ull << 30;
  double cpus = 2.0;         ///< 0: no limit.
  unsigned processes = 4096; ///< 0: as many as the machine's processors bear.
  std::uint64_t disk_bytes = 10ull << 30;
  std::uint64_t shm_bytes = 256ull << 20;
  std::uint64_t log_bytes = 64ull << 20;       ///< Per command.
  std::uint64_t kept_log_bytes = 256ull << 20; ///< Of those whose run is over. 0: none.
  unsigned open_files = 65'536;
  std::map<std::string, std::string> env; ///< Of every command, over what its image has.
  std::string ca_file; ///< A path: certificates that are trusted beside the image's. Empty: none.

  bool operator==(const sandbox_config&) const = default;
};

struct image_config {
  std::string default_name = "host";  ///< Of sandboxes that are new.
  std::vector<std::string> available; ///< Others that have to be there.
  bool replaces_unknown = false;      ///< By the default, for clients that name one.

  bool operator==(const image_config&) const = default;
};

/// Does the node fetch images from registries?
enum class image_pull : std::uint8_t {
  never,
  missing, ///< Those that are not here.
  always,  ///< Also to see whether the registry has another one of that name by now.
};

struct images_config {
  image_pull pull = image_pull::never;
  std::vector<std::string> allow;        ///< Patterns over references. None: nothing is fetched.
  std::vector<std::string> insecure;     ///< Registries: also by HTTP, or with a bad certificate.
  std::string auth_file;                 ///< A path, as docker's config.json. Empty: none.
  std::uint64_t max_bytes = 64ull << 30; ///< Of one image, packed and unpacked.
  std::chrono::milliseconds keep_unused{0}; ///< A fetched image goes after so long. 0: it stays.

  bool operator==(const images_config&) const = default;
};

/// Images by the name of what they run, such as node24. Empty: the image of that name, or else the
/// default one.
using runtimes_config = std::map<std::string, std::string>;

struct pool_config {
  unsigned target = 0;
  std::chrono::milliseconds refresh_interval = std::chrono::seconds{10};
  unsigned scale_batch_size = 5;

  bool operator==(const pool_config&) const = default;
};

struct preview_config {
  std::string domain = "localhost"; ///< What names of previews end in.
  bool is_public = false;           ///< Nobody needs a key or a token.

  bool operator==(const preview_config&) const = default;
};

struct network_config {
  bool allow_all = true; ///< Of sandboxes for which nobody has said another policy; else deny-all.
  std::vector<std::string> allow_private; ///< Subnets, as normalise_target() gives them.
  std::vector<std::string> resolvers;     ///< Addresses. None: those of the machine.
  /// A path: authorities by which servers are known to which requests with rules go, beside the
  /// machine's. Empty: none.
  std::string ca_file = {};
  bool ca_always = false; ///< Sandboxes have an authority of their own though they have no rules.

  bool operator==(const network_config&) const = default;
};

/// One machine of a cluster, or what stands for one.
struct cluster_node_config {
  endpoint internal; ///< Where it takes over requests that others have received.
  endpoint link;     ///< Where the others talk to it.
  // In the place of what the file says for all:
  std::optional<endpoint> listen = {};
  std::string state = {}; ///< Empty: as for all.
  std::optional<unsigned> first_slot = {};

  bool operator==(const cluster_node_config&) const = default;
};

/// Several nodes as one. Without nodes there is no cluster.
struct cluster_config {
  std::vector<std::string> etcd_endpoints;
  std::string etcd_authority; ///< Paths of PEM files. Empty: none, or the system's.
  std::string etcd_certificate;
  std::string etcd_key;
  std::string prefix = "insula"; ///< Of all keys in etcd.
  std::string authority;         ///< Paths of PEM files, in which "{node}" is the node's name.
  std::string certificate;
  std::string key;
  std::map<std::string, cluster_node_config> nodes;
  std::string self; ///< Which of them this is; only the command line says that.

  bool operator==(const cluster_config&) const = default;
};

/// Where the files of persistent sandboxes are kept. Neither directory nor endpoint: nowhere.
struct snapshot_config {
  std::string directory; ///< A path.
  std::string endpoint;  ///< Of an S3 service: http://host[:port] or https://host[:port].
  std::string bucket;
  std::string region = "us-east-1";
  std::optional<bucket_credentials> credentials;                ///< From the environment alone.
  std::chrono::milliseconds interval = std::chrono::minutes{1}; ///< 0: at stop and hand-over only.
  bool all = false;                                             ///< Every sandbox is persistent.
  /// A snapshot of a whole disk is acknowledged when there is a copy of it. Else the copy is made
  /// later.
  bool acknowledges_copies = false;
  /// In a cluster: so much of snapshots whose objects other nodes have stays on this one's disk.
  std::uint64_t cache_bytes = 10ull << 30;

  bool operator==(const snapshot_config&) const = default;
};

struct secrets_config {
  std::string key_file; ///< A path. Empty: see key_file_of_secrets().

  bool operator==(const secrets_config&) const = default;
};

/// The issuer of tokens about sandboxes.
struct oidc_config {
  std::string key_file; ///< A path. Empty: see key_file_of_tokens().
  std::string issuer = "https://oidc.vercel.com/insula";
  std::chrono::milliseconds token_lifetime = std::chrono::minutes{15};

  bool operator==(const oidc_config&) const = default;
};

/// What cluster.yaml can say. What each key means, and why it is what it is, stands in that file;
/// the values here are its defaults.
struct config {
  server_config server;
  std::map<std::string, named_key_config> keys; ///< By their names.
  state_config state;
  runtime_config runtime;
  node_config node;
  sandbox_config sandbox;
  image_config image;
  images_config images;
  runtimes_config runtimes = {{"node22", {}}, {"node24", {}}, {"node26", {}}, {"python3.13", {}}};
  network_config network;
  preview_config preview;
  bucket_settings buckets; ///< Its credentials come from the environment alone.
  snapshot_config snapshots;
  pool_config pool;
  cluster_config cluster;
  bool default_session = false; ///< Of the bridge API.
  vercel_config vercel;
  secrets_config secrets;
  oidc_config oidc;
  log::level log_level = log::level::info;
  /// The file, if it holds secrets and others than its owner can read it. Empty: all is well.
  std::string exposed_file;

  bool operator==(const config& other) const;
};

using environment = std::map<std::string, std::string>;

/// What the command line says, as it was typed.
struct command_line {
  std::optional<std::string> listen = {};
  std::optional<std::string> execd = {};
  std::optional<std::string> state_directory = {};
  std::optional<std::string> node = {};
};

/// The defaults, then the file when there is one, then the environment, then the command line: the
/// later wins. See check(). Errors: invalid_request, naming file and line, the key and what was
/// expected, and never a secret; io_failed.
result<config> load_config(std::optional<std::string> file, const environment& env,
                           const command_line& typed = {});

/// All that a configuration is made of, but the file's text.
struct config_origin {
  std::optional<std::string> file; ///< Its path.
  environment env;
  command_line typed;
};

/// cluster.yaml with all of its comments has a hundredth of this.
inline constexpr std::size_t max_config_bytes = 1u << 20;

struct config_text {
  std::string text; ///< Empty: there is no file.
  bool others_can_read = false;
};

/// The same of a file that has been read. Without io_failed.
result<config> read_config(const config_origin& from, const config_text& file);

/// The keys whose values differ, dotted, in the order of cluster.yaml.
std::vector<std::string> changed_keys(const config& before, const config& after);

/// Where the key is with which secrets are sealed: secrets.key_file, or else a file in the state
/// directory.
std::string key_file_of_secrets(const config& values);
/// The same of the keys that sign tokens.
std::string key_file_of_tokens(const config& values);

/// Can only this machine reach it?
bool is_loopback(const endpoint& where);

/// Do the values go together? load_config() has asked already; for those who change them
/// afterwards. Errors: invalid_request, naming the key.
result<void> check(const config& values);

/// Every key that cluster.yaml may have, dotted, in its order.
std::vector<std::string> config_keys();

} // namespace insula
