#include "actors/sandbox/profile.hpp"

#include "base/limits.hpp"
#include "runtime/agent/identity.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>

namespace insula::actors::inside_sandbox {

namespace {

constexpr std::string_view env_line = "env ";

bool is_clean(std::string_view text) {
  return text.find('\0') == std::string_view::npos;
}

/// Below the root, and in the shortest words.
bool is_directory(const std::string& path) {
  return path.starts_with('/') && !path.ends_with('/') && path.size() <= limits::image_path_bytes &&
         is_clean(path) && std::filesystem::path{path}.lexically_normal().native() == path;
}

bool is_id(std::uint32_t id) {
  return id < runtime::agent::ids_of_sandbox;
}

/// As `useradd` takes it.
bool is_login(std::string_view name) {
  constexpr std::string_view begins = "abcdefghijklmnopqrstuvwxyz_";
  constexpr std::size_t most = 32;
  return name.size() <= most && begins.find(name.front()) != std::string_view::npos &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789-") == std::string_view::npos;
}

bool read_user(std::string_view text, command_user& into) {
  const auto* const end = text.data() + text.size();
  const auto user = std::from_chars(text.data(), end, into.uid);
  if (user.ec != std::errc{} || user.ptr == end || *user.ptr != ':')
    return false;
  const auto group = std::from_chars(user.ptr + 1, end, into.gid);
  return group.ec == std::errc{} && group.ptr == end;
}

constexpr std::string_view user_line = "user", privileges_line = "privileges", login_line = "login";

void append_line(std::string& text, std::string_view name, std::string_view value) {
  ((text.append(name) += '=').append(value)) += '\0';
}

/// False: this version does not know the line.
bool read_line(std::string_view line, sandbox_profile& into) {
  const auto equals = line.find('=');
  if (equals == std::string_view::npos)
    return false;
  const auto name = line.substr(0, equals), value = line.substr(equals + 1);
  if (name.starts_with(env_line)) {
    into.env[std::string{name.substr(env_line.size())}] = value;
    return true;
  }
  if (name == user_line)
    return read_user(value, into.user);
  if (name == privileges_line) {
    const auto gains = privileges_of(value);
    into.gains = gains.value_or(privileges::none);
    return gains.has_value();
  }
  if (name == login_line)
    into.login = value;
  else if (name == "home")
    into.home = value;
  else if (name == "cwd")
    into.cwd = value;
  else
    return false;
  return true;
}

} // namespace

std::string write_profile(const sandbox_profile& what) {
  std::string text;
  append_line(text, user_line, std::to_string(what.user.uid) + ':' + std::to_string(what.user.gid));
  if (!what.login.empty())
    append_line(text, login_line, what.login);
  append_line(text, "home", what.home);
  append_line(text, "cwd", what.cwd);
  append_line(text, privileges_line, word_of(what.gains));
  for (const auto& [name, value] : what.env)
    append_line(text, std::string{env_line} + name, value);
  return text;
}

std::string write_privileges(privileges gains) {
  std::string text;
  append_line(text, privileges_line, word_of(gains));
  return text;
}

result<sandbox_profile> read_profile(std::string_view text, sandbox_profile of_node) {
  // One that begins with its user is whole.
  auto found = text.starts_with(user_line) ? sandbox_profile{} : std::move(of_node);
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\0'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!read_line(line, found))
      return error{errc::launch_failed,
                   "its profile was written by a later version; once the node runs that version, "
                   "the sandbox starts"};
  }
  return found;
}

std::optional<error> malformed_profile(const sandbox_profile& what) {
  const auto wrong = [](const char* why) { return error{errc::invalid_request, why}; };
  if (!is_id(what.user.uid) || !is_id(what.user.gid))
    return wrong("the ids of a sandbox's user are below 65536");
  if (!is_directory(what.cwd) || !(what.home.empty() || is_directory(what.home)))
    return wrong(
      "a directory of a profile is a path below /, of at most 4095 bytes and without ..");
  if (!what.login.empty() && (!is_login(what.login) || what.home.empty()))
    return wrong("a user's name has at most 32 of a-z, 0-9, _ and -, begins with no digit, and has "
                 "a home");
  std::size_t bytes = 0;
  for (const auto& [name, value] : what.env) {
    if (name.empty() || name.find('=') != std::string::npos || !is_clean(name) || !is_clean(value))
      return wrong("a variable has a name without '=', and no NUL");
    bytes += name.size() + value.size();
  }
  if (bytes > limits::image_environment_bytes)
    return wrong("the variables of a profile have at most 65536 bytes");
  return std::nullopt;
}

result<sandbox_profile> recorded_profile(const core& of) {
  const auto* text = of.record().find(profile_key);
  auto of_node = of.options().profile;
  if (text != nullptr || of.exists())
    of_node.gains = privileges::none;
  return text == nullptr ? of_node : read_profile(*text, std::move(of_node));
}

std::optional<error> objection_to(privileges gains, const sandbox_options& of_node) {
  if (gains == privileges::none || of_node.allow_sudo)
    return std::nullopt;
  return error{errc::forbidden,
               "this node makes no sandboxes with the privileges `sudo` (sandbox.allow_sudo)"};
}

runtime::sandbox_user user_of(const core& of) {
  const auto& user = of.profile().user;
  return {user.uid, user.gid};
}

std::string home_of(const core& of) {
  if (!of.profile().home.empty())
    return of.profile().home;
  for (const auto* env : {&of.image().env, &of.profile().env})
    if (const auto at = env->find("HOME"); at != env->end())
      return at->second;
  return {};
}

} // namespace insula::actors::inside_sandbox
