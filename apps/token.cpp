#include "apps/token.hpp"

#include "apps/named_keys.hpp"
#include "base/clock.hpp"
#include "http/vercel/tokens.hpp"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <iostream>
#include <string>

namespace insula {

namespace {

constexpr std::int64_t day_s = 24LL * 60 * 60;
constexpr int default_days = 30, most_days = 3650;
constexpr std::size_t longest_name = 128;

/// A line of a shell's or an environment file takes it as it is.
std::string check_name(const std::string& text) {
  if (!text.empty() && text.size() <= longest_name &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
        std::string::npos)
    return {};
  return "expected 1 to 128 of a-z, A-Z, 0-9, _ and -";
}

} // namespace

struct token_commands::impl {
  CLI::App* group = nullptr;
  CLI::App* vercel = nullptr;
  std::optional<std::string> config_file;
  http::vercel::token_scope of;
  int days = default_days;

  int run_vercel(const environment& env) const;
};

token_commands::token_commands(CLI::App& program)
    : impl_(std::make_unique<impl>()) {
  auto& my = *impl_;
  my.group = program.add_subcommand("token", "Make tokens that open a part of the server");
  my.group->require_subcommand(1);
  my.vercel = my.group->add_subcommand(
    "vercel", "Make the tokens with which clients of the Vercel Sandbox service use one project");
  my.vercel->add_option("--team", my.of.team, "The team, as the client names it")
    ->required()
    ->check(check_name);
  my.vercel->add_option("--project", my.of.project, "The project; the token opens no other")
    ->required()
    ->check(check_name);
  my.vercel->add_option("--key", my.of.key,
                        "Sign with this one of `keys`, and not with the main key: the tokens end "
                        "with it, and what they make counts for its limits");
  my.vercel->add_option("--days", my.days, "How long it is good: 1 to 3650. Default: 30")
    ->check(CLI::Range(1, most_days));
  my.vercel->add_option("--config", my.config_file, "The server's configuration");
  my.vercel->footer(
    "It prints lines for an environment file: VERCEL_TOKEN with VERCEL_TEAM_ID and "
    "VERCEL_PROJECT_ID for programs that hand these to the SDK, and VERCEL_OIDC_TOKEN for programs "
    "that hand it nothing. The tokens are signed with the server's key (SANDBOX_API_KEY or "
    "server.api_key) or with the named key: with another key they are over, and before their time "
    "there is no other way to take one back.");
}

token_commands::~token_commands() = default;

int token_commands::impl::run_vercel(const environment& env) const {
  const auto values = load_config(config_file, env, {});
  if (!values) {
    std::cerr << "insula: " << values.reason().message << '\n';
    return 2;
  }
  const http::key_check key{values->server.api_key, named_keys_of(*values)};
  if (key.open()) {
    std::cerr << "insula: tokens are signed with the server's key: set SANDBOX_API_KEY, or name "
                 "the configuration that has it with --config\n";
    return 2;
  }
  if (!http::is_among(values->vercel.projects, of.project)) {
    std::cerr << "insula: --project: " << of.project << " is not one of vercel.projects\n";
    return 2;
  }
  if (!of.key.empty()) {
    const auto named = key.by_name(of.key);
    const auto why = !named                                  ? "there is no such key"
                     : !named->may_use("vercel")             ? "it is not for the Vercel API"
                     : !named->may_reach_team(of.team)       ? "it is not for this team"
                     : !named->may_reach_project(of.project) ? "it is not for this project"
                                                             : "";
    if (*why != '\0') {
      std::cerr << "insula: --key: keys." << of.key << ": " << why << '\n';
      return 2;
    }
  }
  const auto now = system_clock{}.unix_ms() / 1000;
  const auto ends = now + days * day_s;
  std::cout << "VERCEL_TOKEN=" << make_access_token(key, of, now, ends)
            << "\nVERCEL_TEAM_ID=" << of.team << "\nVERCEL_PROJECT_ID=" << of.project
            << "\nVERCEL_OIDC_TOKEN=" << make_identity_token(key, of, now, ends) << '\n';
  return 0;
}

std::optional<int> token_commands::run(const environment& env) {
  if (!impl_->vercel->parsed())
    return std::nullopt;
  return impl_->run_vercel(env);
}

} // namespace insula
