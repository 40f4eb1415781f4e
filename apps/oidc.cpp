#include "apps/oidc.hpp"

#include "apps/key_files.hpp"
#include "base/clock.hpp"
#include "storage/private_file.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

namespace insula {

namespace {

constexpr int unusable_status = 2, failed_status = 1;
constexpr std::int64_t minute_s = 60, hour_s = 60 * minute_s, day_s = 24 * hour_s;

int say_failed(const error& why, int status) {
  std::cerr << "insula: " << why.message << '\n';
  return status;
}

/// In the largest unit of which there are two.
std::string span(std::int64_t seconds) {
  for (const auto& [unit, name] :
       {std::pair{day_s, " days"}, {hour_s, " hours"}, {minute_s, " minutes"}})
    if (seconds >= 2 * unit)
      return std::to_string(seconds / unit) + name;
  return std::to_string(seconds) + " seconds";
}

std::int64_t seconds_now() {
  return system_clock{}.unix_ms() / 1000;
}

/// What becomes of a key, from now on.
std::string future_of(const http::oidc::key_set::line& key, std::int64_t now_s,
                      const http::oidc::issuer_settings& settings) {
  if (!key.retired_s)
    return key.signs ? "signs" : "is published, and signs next";
  if (now_s < *key.retired_s)
    return std::string{key.signs ? "signs" : "is published, and signs next"} + " for " +
           span(*key.retired_s - now_s) + " more";
  const auto left = *key.retired_s + settings.keep().count() - now_s;
  return left > 0 ? "signs no more, is published for " + span(left) + " more"
                  : "is published no more";
}

} // namespace

struct oidc_commands::impl {
  CLI::App* group = nullptr;
  CLI::App *rotate = nullptr, *show = nullptr, *token = nullptr;
  std::optional<std::string> config_file, state, node;
  bool drop_old = false;
  std::string audience, team, project, sandbox, name;

  void add_place(CLI::App& to);
  int run_rotate(const config& values) const;
  int run_show(const config& values) const;
  int run_token(const config& values) const;
};

void oidc_commands::impl::add_place(CLI::App& to) {
  to.add_option("--config", config_file, "The server's configuration");
  to.add_option("--state", state, "Its state directory. Default: as for serve");
  to.add_option("--node", node, "Which node of the configuration's cluster this is");
}

oidc_commands::oidc_commands(CLI::App& program)
    : impl_(std::make_unique<impl>()) {
  auto& my = *impl_;
  my.group = program.add_subcommand(
    "oidc", "Change and show the keys that sign tokens about sandboxes; make such a token");
  my.group->require_subcommand(1);
  my.rotate = my.group->add_subcommand("rotate", "Add a key, which signs tokens ten minutes later");
  my.add_place(*my.rotate);
  my.rotate->add_flag("--drop-old", my.drop_old,
                      "Remove all other keys at once, for when somebody else has one: the new key "
                      "signs at once, and tokens that are there are refused");
  my.rotate->footer(
    "It writes the file oidc.key_file. The running server takes it anew at SIGHUP (systemctl "
    "reload). In a cluster, copy the file to all nodes and send each of them SIGHUP, all within "
    "ten minutes. The old key stays published until its tokens have ended, and a day more.");
  my.show = my.group->add_subcommand("show", "Say which keys there are, and where they are "
                                             "published");
  my.add_place(*my.show);
  my.show->footer("It reads the file oidc.key_file and prints no private key.");
  my.token = my.group->add_subcommand(
    "token", "Make a token such as sandboxes get, to try out what verifies them");
  my.token
    ->add_option("--audience", my.audience,
                 "The audience: the URL of a forward, without a "
                 "slash at its end")
    ->required();
  my.token->add_option("--team", my.team, "The claim team_id")->required();
  my.token->add_option("--project", my.project, "The claim project_id")->required();
  my.token->add_option("--sandbox", my.sandbox, "The claim sandbox_id")->required();
  my.token->add_option("--name", my.name, "The claim sandbox_name. Default: there is none");
  my.add_place(*my.token);
  my.token->footer("A verifier cannot tell it from a token of a sandbox: it holds for "
                   "oidc.token_lifetime. It takes the right to read oidc.key_file.");
}

oidc_commands::~oidc_commands() = default;

int oidc_commands::impl::run_rotate(const config& values) const {
  const auto path = key_file_of_tokens(values);
  const auto settings = issuer_of(values);
  const auto now_s = seconds_now();
  const auto keys = read_oidc_keys(path);
  if (!keys)
    return say_failed(keys.reason(), failed_status);
  auto next = drop_old ? http::oidc::key_set::make(now_s) : keys->rotated(now_s, settings.keep());
  if (!next)
    return say_failed(next.reason(), failed_status);
  auto text = next->text();
  if (!text)
    return say_failed(text.reason(), failed_status);
  const auto written = storage::replace_private_file(path, *text);
  wipe(*text);
  if (!written)
    return say_failed(written.reason(), failed_status);
  std::cout << path << " has the new key " << next->list(now_s).back().kid << ".\n"
            << "Send the server SIGHUP (systemctl reload): it takes the file then";
  if (drop_old)
    std::cout << ", and signs with the new key at once.\n"
              << "In a cluster, copy the file to all nodes and send each SIGHUP, at once.\n";
  else
    std::cout << ", and signs with the new key in\n"
              << span(http::oidc::publish_ahead.count())
              << ". In a cluster, copy the file to all nodes and send each SIGHUP before that.\n";
  return 0;
}

int oidc_commands::impl::run_show(const config& values) const {
  const auto path = key_file_of_tokens(values);
  const auto settings = issuer_of(values);
  const auto now_s = seconds_now();
  const auto keys = read_oidc_keys(path);
  if (!keys)
    return say_failed(keys.reason(), failed_status);
  for (const auto& each : keys->list(now_s))
    std::cout << each.kid << "  made " << span(std::max<std::int64_t>(0, now_s - each.created_s))
              << " ago, " << future_of(each, now_s, settings) << '\n';
  std::cout << "file:     " << path << "\nissuer:   " << settings.name
            << "\npublic:   " << settings.keys_url() << "\nhere at:  /oidc/" << settings.last_word()
            << "/.well-known/jwks\n";
  return 0;
}

int oidc_commands::impl::run_token(const config& values) const {
  auto keys = read_oidc_keys(key_file_of_tokens(values));
  if (!keys)
    return say_failed(keys.reason(), failed_status);
  const system_clock time;
  token_claims claims{{"team_id", team}, {"project_id", project}, {"sandbox_id", sandbox}};
  if (!name.empty())
    claims.emplace_back("sandbox_name", name);
  const http::oidc::issuer from{issuer_of(values), std::move(*keys), time};
  const auto made = from.sign(claims, audience);
  if (!made)
    return say_failed(made.reason(), unusable_status);
  std::cout << *made << '\n';
  return 0;
}

std::optional<int> oidc_commands::run(const environment& env) {
  if (!impl_->group->parsed())
    return std::nullopt;
  // Nothing is served: a key that the server has in its environment is not asked for here.
  auto without_key = env;
  without_key.insert_or_assign("SANDBOX_API_KEY", "not-needed-by-this-command");
  const auto values = load_config(impl_->config_file, without_key,
                                  {.state_directory = impl_->state, .node = impl_->node});
  if (!values)
    return say_failed(values.reason(), unusable_status);
  if (impl_->rotate->parsed())
    return impl_->run_rotate(*values);
  return impl_->show->parsed() ? impl_->run_show(*values) : impl_->run_token(*values);
}

} // namespace insula
