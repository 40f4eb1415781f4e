#include "apps/find_images.hpp"

#include "base/log.hpp"
#include "runtime/host_image.hpp"
#include "storage/images/authorities.hpp"
#include "storage/images/digest.hpp"
#include "storage/images/image_source.hpp"
#include "storage/images/image_store.hpp"
#include "storage/images/programs.hpp"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <filesystem>

namespace insula {

namespace {

namespace images = storage::images;

std::int64_t unix_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
           std::chrono::system_clock::now().time_since_epoch())
    .count();
}

const images::image_account host_account{"sandbox", "/home/sandbox", "/bin/bash"};

/// What the image of the machine is made from, for `insula image ls`: as long as that stays the
/// same, so does its record.
result<void> record_host(images::image_store& store, const runtime::host_image& made) {
  const unique_fd machine{::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)};
  images::image_record record;
  record.name = record.format = "host";
  record.root = made.root;
  record.digest = images::digest_of(made.identity);
  record.base = images::pretty_name(machine.get());
  record.architecture = images::machine_architecture();
  record.account = host_account;
  const auto before = store.find("host");
  record.created_ms = before ? before->created_ms : 0;
  record.used_ms = before ? before->used_ms : 0;
  if (before && *before == record)
    return {};
  record.created_ms = unix_ms();
  log::info("image.host", {{"base", record.base}, {"digest", record.digest}});
  return store.write_record(record);
}

/// Programs can be installed without root: they go below the home, and are found there.
void install_below_home(std::map<std::string, std::string>& env) {
  const auto& home = env["HOME"];
  auto& path = env["PATH"];
  if (path.empty())
    path = default_path;
  for (const char* each : {"/go/bin:", "/.cargo/bin:", "/.local/bin:"})
    path.insert(0, home + each);
  env.try_emplace("NPM_CONFIG_PREFIX", home + "/.local");
  // pip of some distributions refuses to install anything beside their packages.
  env.try_emplace("PIP_BREAK_SYSTEM_PACKAGES", "1");
}

/// For programs that bring certificates of their own and ask for those of the system by a variable.
void trust_also(std::map<std::string, std::string>& env, const std::string& bundle) {
  env.try_emplace("NODE_EXTRA_CA_CERTS", images::authorities_file); // Beside its own.
  env.try_emplace("REQUESTS_CA_BUNDLE", bundle);                    // In their place; pip as well.
}

/// What the image says about its programs' environment. Commands run as the sandbox's user.
std::map<std::string, std::string> environment_of(const images::image_record& from) {
  std::map<std::string, std::string> env;
  for (const auto& each : from.settings.env) {
    const auto sign = each.find('=');
    env[each.substr(0, sign)] = each.substr(sign + 1);
  }
  env["HOME"] = from.account.home;
  env["LOGNAME"] = env["USER"] = from.account.name;
  env["SHELL"] = from.account.shell;
  install_below_home(env);
  return env;
}

} // namespace

actors::sandbox_image image_from(const images::image_record& record, const std::string& tree,
                                 const std::string& bundle,
                                 const std::map<std::string, std::string>& env) {
  actors::sandbox_image made{{tree, false}, environment_of(record)};
  if (!record.account.shell.empty())
    made.shell = record.account.shell;
  else
    made.shell = "/bin/sh";
  if (!bundle.empty())
    trust_also(made.env, bundle);
  for (const auto& [variable, value] : env)
    made.env[variable] = value;
  made.digest = record.digest;
  made.reference = record.reference;
  made.by_node = record.by_node;
  made.base = record.base;
  made.size_bytes = record.size_bytes;
  made.created_ms = record.created_ms;
  made.used_ms = record.used_ms;
  return made;
}

result<images::authorities> trusted_authorities(const config& values) {
  const auto& ca_file = values.sandbox.ca_file;
  auto trusted = ca_file.empty() ? result<images::authorities>{images::authorities{}}
                                 : images::read_authorities(ca_file);
  if (!trusted)
    return error{trusted.reason().code, "sandbox.ca_file: " + trusted.reason().message};
  return trusted;
}

result<std::map<std::string, actors::sandbox_image>>
find_images(const std::string& state_directory, const config& values,
            const images::authorities& trusted) {
  images::image_store store{state_directory};
  auto host = runtime::prepare_host_image(state_directory + "/images/host");
  if (!host)
    return host.reason();
  if (auto ok = record_host(store, *host); !ok)
    return ok.reason();
  const auto imported = store.list();
  if (!imported)
    return imported.reason();
  const auto is_there = [&](const std::string& name) {
    return std::any_of(imported->begin(), imported->end(),
                       [&](const auto& each) { return each.name == name; });
  };
  const auto need = [&](const char* key, const std::string& name) -> result<void> {
    if (name == "host" || is_there(name))
      return {};
    const auto found = store.find(name);
    return {{errc::invalid_request,
             std::string{key} + ": " +
               (found ? "the image \"" + name + "\" cannot be read" : found.reason().message)}};
  };
  if (auto ok = need("image.default", values.image.default_name); !ok)
    return ok.reason();
  for (const auto& each : values.image.available)
    if (auto ok = need("image.available", each); !ok)
      return ok.reason();

  std::map<std::string, actors::sandbox_image> all;
  for (const auto& each : *imported) {
    const bool is_host = each.name == "host";
    const auto tree = is_host ? host->layers.tree
                              : std::filesystem::path{each.root}.parent_path().filename().string();
    auto bundle = images::trust(state_directory + "/images/" + tree, trusted);
    if (!bundle && is_host)
      return bundle.reason();
    if (!bundle) { // One image does not keep all others from being served.
      log::warning("image.authorities",
                   {{"image", each.name}, {"reason", bundle.reason().message}});
      bundle = std::string{};
    }
    auto& made = all[each.name] = image_from(each, tree, *bundle, values.sandbox.env);
    if (is_host)
      made.layers = host->layers;
    const unique_fd root{
      ::open(is_host ? "/" : each.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
    made.programs = images::programs_of(root.get());
  }
  return all;
}

} // namespace insula
