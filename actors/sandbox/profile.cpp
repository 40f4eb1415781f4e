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

bool read_user(std::string_view text, command_user& into) {
  const auto* const end = text.data() + text.size();
  const auto user = std::from_chars(text.data(), end, into.uid);
  if (user.ec != std::errc{} || user.ptr == end || *user.ptr != ':')
    return false;
  const auto group = std::from_chars(user.ptr + 1, end, into.gid);
  return group.ec == std::errc{} && group.ptr == end;
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
  if (name == "user")
    return read_user(value, into.user);
  if (name == "home")
    into.home = value;
  else if (name == "cwd")
    into.cwd = value;
  else
    return name == "privileges" && value == "none";
  return true;
}

} // namespace

std::string write_profile(const sandbox_profile& what) {
  std::string text;
  const auto line = [&](std::string name, const std::string& value) {
    text += std::move(name) + '=' + value + '\0';
  };
  line("user", std::to_string(what.user.uid) + ':' + std::to_string(what.user.gid));
  line("home", what.home);
  line("cwd", what.cwd);
  switch (what.gains) {
    case privileges::none: line("privileges", "none"); break;
  }
  for (const auto& [name, value] : what.env)
    line(std::string{env_line} + name, value);
  return text;
}

result<sandbox_profile> read_profile(std::string_view text) {
  sandbox_profile found;
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
  return text == nullptr ? of.options().profile : read_profile(*text);
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
