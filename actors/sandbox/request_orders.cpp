#include "actors/sandbox/request_orders.hpp"

#include "actors/run_record.hpp"
#include "actors/sandbox_metadata.hpp"
#include "base/inner_places.hpp"
#include "base/log.hpp"
#include "base/packed_text.hpp"

#include <tuple>
#include <utility>

namespace insula::actors::inside_sandbox {

namespace {

constexpr const char* requests_key = "requests";
constexpr const char* authority_key = "authority";
constexpr const char* trusted_key = "authority_trusted";

/// Two texts, as a value of the record.
std::pair<std::string, std::string> pair_in(const core& of, const char* key) {
  const auto* text = of.record().find(key);
  if (text == nullptr)
    return {};
  packed_reader from{*text};
  std::pair<std::string, std::string> both;
  both.first = from.text();
  both.second = from.text();
  if (from.is_over())
    return both;
  log::error("sandbox.record_unreadable", {{"id", of.id()}, {"key", key}});
  return {};
}

std::string text_of_pair(const std::string& first, const std::string& second) {
  packed_writer to;
  return to.text(first).text(second).take();
}

} // namespace

result<std::vector<storage::change>> changes_of(const sealed_rules& wanted, const core& of) {
  std::vector<storage::change> changes;
  if (wanted.empty()) {
    if (of.record().find(requests_key) != nullptr)
      changes.push_back({requests_key, std::nullopt});
    return changes;
  }
  changes.push_back({requests_key, text_of_pair(wanted.shape, wanted.sealed)});
  const auto authority = changes_of_authority(of);
  if (!authority)
    return authority.reason();
  changes.insert(changes.end(), authority->begin(), authority->end());
  return changes;
}

result<std::vector<storage::change>> changes_of_authority(const core& of) {
  if (has_authority(of))
    return std::vector<storage::change>{};
  const auto made = of.options().engine->make_authority();
  if (!made)
    return made.reason();
  return std::vector<storage::change>{
    {authority_key, text_of_pair(made->certificate, made->sealed_key)}};
}

sealed_rules recorded_rules(const core& of) {
  auto [shape, sealed] = pair_in(of, requests_key);
  return {std::move(shape), std::move(sealed)};
}

runtime::request_orders recorded_orders(const core& of) {
  runtime::request_orders orders;
  orders.sealed_rules = recorded_rules(of).sealed;
  if (orders.empty() && of.record().find(requests_key) == nullptr)
    return {};
  if (orders.empty()) // They cannot be read, and without them nothing may be let through.
    orders.sealed_rules = "unreadable";
  std::tie(orders.certificate, orders.sealed_key) = pair_in(of, authority_key);
  if (const auto& rule = of.options().claims) {
    const auto& entries = of.record().entries();
    const auto run = last_run(entries);
    orders.identity = rule(of.id(), metadata_of(entries), run ? run->number : 0);
  }
  return orders;
}

bool has_authority(const core& of) {
  return of.record().find(authority_key) != nullptr;
}

std::string recorded_authority(const core& of) {
  return pair_in(of, authority_key).first;
}

bool is_authority_trusted(const core& of) {
  return of.record().find(trusted_key) != nullptr;
}

storage::change change_of_trust(bool is_trusted) {
  return {trusted_key, is_trusted ? std::optional<std::string>{"1"} : std::nullopt};
}

const std::map<std::string, std::string>& trust_environment() {
  static const auto all = [] {
    std::map<std::string, std::string> made{{"NODE_USE_SYSTEM_CA", "1"}};
    for (const char* name :
         {"AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
          "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "NODE_EXTRA_CA_CERTS", "NPM_CONFIG_CAFILE",
          "PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"})
      made[name] = trust_bundle;
    return made;
  }();
  return all;
}

} // namespace insula::actors::inside_sandbox
