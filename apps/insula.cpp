#include "apps/command_words.hpp"
#include "apps/image.hpp"
#include "apps/image_room.hpp"
#include "apps/oidc.hpp"
#include "apps/room_process.hpp"
#include "apps/serve.hpp"
#include "apps/token.hpp"
#include "apps/upgrade.hpp"
#include "benchmarks/load/command.hpp"
#include "http/server.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

extern char** environ;

namespace {

insula::environment current_environment() {
  insula::environment all;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string text = *each;
    if (const auto sign = text.find('='); sign != std::string::npos)
      all.emplace(text.substr(0, sign), text.substr(sign + 1));
  }
  return all;
}

} // namespace

int main(int argc, char** argv) {
  if (argc > 0 && std::string_view{argv[0]} == insula::image_room::program_name)
    return insula::run_image_room();
  CLI::App app{"Insula runs isolated sandboxes on this machine, behind the APIs that their clients "
               "already speak.",
               "insula"};
  app.set_version_flag("--version", std::string{"insula "} + INSULA_VERSION);
  bool openapi = false;
  app.add_flag("--openapi", openapi, "Print the OpenAPI document of every route, and end");

  std::optional<std::string> file, listen, execd, state;
  auto* serve = app.add_subcommand(
    "serve", "Run a node until Ctrl-C (ends its sandboxes) or SIGTERM (leaves them)");
  serve->add_option(
    "--listen", listen,
    "Where to listen: ADDR:PORT; port 0 takes any free one. Default: 127.0.0.1:8787");
  serve->add_option(
    "--execd", execd,
    "Where OpenSandbox's execd is served as well, for one sandbox that is made with "
    "its first use: ADDR:PORT. Default: nowhere");
  serve->add_option("--state", state,
                    "Where records, images and sandbox files are kept. Default: /var/lib/insula");
  serve->add_option("--config", file,
                    "The configuration; cluster.yaml in the source tree shows every key");
  std::optional<std::string> node, upgrade_node;
  serve->add_option("--node", node,
                    "Which node of the configuration's cluster this is. Without a cluster: none");
  serve->footer(
    "Environment: SANDBOX_API_KEY and the WARM_POOL_* names overrule the configuration. "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the same two of R2, are for mounts of buckets "
    "that bring no credentials; those of SNAPSHOTS for snapshots of sandboxes' files.");
  std::optional<std::string> upgrade_file, upgrade_state;
  auto* upgrade = app.add_subcommand(
    "upgrade", "Replace the running server by this program; its sandboxes go on");
  upgrade->add_option("--state", upgrade_state,
                      "The state directory of the server. Default: as for serve");
  upgrade->add_option("--config", upgrade_file,
                      "The configuration that names the state directory, if --state does not");
  upgrade->add_option("--node", upgrade_node, "Which node of its cluster the server is");
  bool end_sandboxes = false;
  upgrade->add_flag("--end-sandboxes", end_sandboxes,
                    "Also if this program cannot take them over: then they end");
  upgrade->footer("The new server gets the old one's arguments, environment, output and listening "
                  "sockets. If it does not get ready, the old program is started again.");
  insula::image_commands image{app};
  insula::token_commands token{app};
  insula::oidc_commands oidc{app};
  insula::load::bench_command bench{app};
  const auto* help =
    app.add_subcommand("help", "Say how a command is used: insula help image import");
  const auto* version = app.add_subcommand("version", "Say which version this is");
  const auto usage = app.help();
  auto words = insula::command_words(app, {argv + 1, argv + argc});
  if (!words) {
    std::cerr << "insula: " << words.reason().message << '\n';
    const bool of_bench = argc > 1 && std::string{argv[1]} == "bench";
    return of_bench ? insula::load::bench_command::status_unusable : 2;
  }
  try {
    std::reverse(words->begin(), words->end()); // The library takes the last one first.
    app.parse(std::move(*words));
  } catch (const CLI::ParseError& why) {
    // The library has a number for each kind of mistake.
    if (app.exit(why) == 0)
      return 0;
    return bench.is_meant() ? insula::load::bench_command::status_unusable : 2;
  }

  if (help->parsed() || version->parsed()) { // Behind an option.
    std::cout << (help->parsed() ? usage : app.version() + '\n');
    return 0;
  }
  if (openapi) {
    std::cout << insula::http::openapi_document() << '\n';
    return 0;
  }
  if (const auto status = image.run())
    return *status;
  if (const auto status = token.run(current_environment()))
    return *status;
  if (const auto status = oidc.run(current_environment()))
    return *status;
  if (const auto status = bench.run({argv, argv + argc}))
    return *status;
  if (upgrade->parsed()) {
    const auto where =
      insula::load_config(upgrade_file, current_environment(),
                          {.state_directory = upgrade_state, .node = upgrade_node});
    if (!where) {
      std::cerr << "insula: " << where.reason().message << '\n';
      return 2;
    }
    return insula::upgrade(where->state.directory, end_sandboxes);
  }
  if (!serve->parsed()) {
    std::cout << app.help();
    return 2;
  }
  const insula::config_origin from{
    file,
    current_environment(),
    {.listen = listen, .execd = execd, .state_directory = state, .node = node}};
  auto config = insula::load_config(from.file, from.env, from.typed);
  if (!config) {
    std::cerr << "insula: " << config.reason().message << '\n';
    return 2;
  }
  return insula::serve(*config, from);
}
