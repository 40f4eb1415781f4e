#include "http/sandboxes/command_line.hpp"

#include <algorithm>
#include <array>

namespace insula::http {

namespace {

bool is_harmless(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
         std::string_view{"@%+=:,./-"}.find(c) != std::string_view::npos;
}

bool is_plain(std::string_view element) {
  return !element.empty() && std::all_of(element.begin(), element.end(), is_harmless);
}

std::string posix_quote(std::string_view element) {
  std::string quoted = "'";
  quoted.reserve(element.size() + 2);
  for (const char c : element)
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  return quoted + "'";
}

template <class Quote>
std::string joined(const std::vector<std::string>& argv, Quote quoted) {
  std::string line;
  for (const auto& element : argv) {
    if (!line.empty())
      line += ' ';
    if (is_plain(element))
      line += element;
    else
      line += quoted(element);
  }
  return line;
}

/// The kernel takes no argument of this size or more, its NUL included.
constexpr std::size_t longest_argument = 131'072;

std::string_view name_of(std::string_view program) {
  return program.substr(program.rfind('/') + 1); // All of it, if there is none.
}

bool is_shell(std::string_view program) {
  constexpr std::array<std::string_view, 6> all{"bash", "sh", "dash", "ash", "zsh", "ksh"};
  return std::find(all.begin(), all.end(), name_of(program)) != all.end();
}

/// Programs that run what is named behind them, with the descriptors that they have.
bool runs_others(std::string_view program) {
  constexpr std::array<std::string_view, 10> all{"env",    "timeout", "nice",    "nohup", "setsid",
                                                 "stdbuf", "exec",    "command", "time",  "ionice"};
  return std::find(all.begin(), all.end(), name_of(program)) != all.end();
}

/// `-c`, `-lc`, `-euxc`.
bool says_that_script_follows(std::string_view option) {
  return option.size() >= 2 && option.front() == '-' && option.back() == 'c' &&
         std::all_of(option.begin() + 1, option.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
}

/// Where the script is of the shell at `shell`, with options before it. 0: it has none.
std::size_t script_of(const std::vector<std::string>& argv, std::size_t shell) {
  for (auto i = shell + 1; i + 1 < argv.size() && argv[i].size() > 1 &&
                           (argv[i].front() == '-' || argv[i].front() == '+');
       ++i) {
    if (says_that_script_follows(argv[i]))
      return i + 1;
    if (argv[i] == "-o" || argv[i] == "+o" || argv[i] == "-O" || argv[i] == "+O")
      ++i; // Its name follows.
  }
  return 0;
}

/// Where in `argv` a shell's script is that no argument can hold; 0: nowhere.
std::size_t find_long_script(const std::vector<std::string>& argv) {
  for (std::size_t i = 0; i < argv.size(); ++i) {
    if (i == 1 && !runs_others(argv[0]))
      return 0; // A builtin that prints its arguments, say.
    if (!is_shell(argv[i]))
      continue;
    const auto script = script_of(argv, i);
    return script != 0 && argv[script].size() >= longest_argument ? script : 0;
  }
  return 0;
}

/// `argv` as a line, quoted by `quoted`. A script that no argument can hold comes to its shell
/// through descriptor 9, which neither the shell nor the script has then, and standard input stays
/// what it is. The script is in a variable, since a shell prints the whole text of a command that a
/// signal has ended.
template <class Quote>
std::string line_of(const std::vector<std::string>& argv, Quote quoted) {
  const auto script = find_long_script(argv);
  if (script == 0)
    return joined(argv, quoted);
  auto short_argv = argv;
  short_argv[script] = "eval \"$(cat <&9 || echo exit 126)\" 9<&-";
  return "(insula_script=" + joined({argv[script]}, quoted) +
         "; { printf %s \"$insula_script\" | " + joined(short_argv, quoted) +
         " 9<&0 0<&8 8<&-; } 8<&0)";
}

} // namespace

std::string quote(std::string_view element) {
  if (is_plain(element))
    return std::string{element};
  std::string quoted = "$'";
  quoted.reserve(element.size() + 3);
  for (const char c : element) {
    switch (c) {
      case '\\': quoted += "\\\\"; break;
      case '\'': quoted += "\\'"; break;
      case '\n': quoted += "\\n"; break;
      case '\r': quoted += "\\r"; break;
      case '\t': quoted += "\\t"; break;
      default: quoted += c;
    }
  }
  quoted += '\'';
  return quoted;
}

std::string command_line(const std::vector<std::string>& argv) {
  return line_of(argv, &quote);
}

std::string posix_command_line(const std::vector<std::string>& argv) {
  if (find_long_script(argv) == 0 && std::all_of(argv.begin(), argv.end(), &is_plain))
    return {};
  return line_of(argv, &posix_quote);
}

} // namespace insula::http
