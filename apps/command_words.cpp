#include "apps/command_words.hpp"

#include <CLI/CLI.hpp>

namespace insula {

namespace {

bool is_group(const CLI::App& app) {
  return !app.get_subcommands({}).empty();
}

/// Whether a word may stand there that is the value of nothing.
bool takes_words(const CLI::App& app) {
  return !app.get_options([](const CLI::Option* each) { return each->get_positional(); }).empty();
}

const CLI::App* command_of(const CLI::App& group, const std::string& name) {
  for (const auto* each : group.get_subcommands({}))
    if (each->get_name() == name)
      return each;
  return nullptr;
}

/// "ls, show and rm"
std::string commands_of(const CLI::App& group) {
  const auto all = group.get_subcommands({});
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i)
    text += (i == 0 ? "" : i + 1 == all.size() ? " and " : ", ") + all[i]->get_name();
  return text;
}

} // namespace

result<std::vector<std::string>> command_words(const CLI::App& program,
                                               std::vector<std::string> words) {
  const auto* at = &program;
  std::string so_far = "insula";
  bool asks_help = false;
  std::size_t next = 0;
  while (next < words.size() && !words[next].starts_with('-')) {
    const auto word = words[next];
    if (word == "help" && !takes_words(*at)) {
      asks_help = true;
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(next));
      continue;
    }
    if (at == &program && word == "version" && !asks_help)
      return std::vector<std::string>{"--version"};
    if (!is_group(*at))
      break;
    const auto* command = command_of(*at, word);
    if (command == nullptr)
      return error{errc::invalid_request,
                   so_far + " has no command " + word + "; it has: " + commands_of(*at)};
    so_far += " " + word;
    at = command;
    ++next;
  }
  if (asks_help) {
    words.resize(next); // What follows is not looked at.
    words.emplace_back("--help");
  } else if (next == words.size() && is_group(*at) && at->get_require_subcommand_min() > 0) {
    return error{errc::invalid_request, so_far + " needs a command: " + commands_of(*at)};
  }
  return words;
}

} // namespace insula
