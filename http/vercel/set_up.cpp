#include "http/vercel/set_up.hpp"

#include "http/vercel/objects_json.hpp"

#include <algorithm>

namespace insula::http::vercel {

namespace {

constexpr std::string_view user_name = "vercel-sandbox", home = "/home/vercel-sandbox";
constexpr command_user user{1000, 1000};
constexpr std::int64_t fetch_ms = 240'000;

set_up_step step(std::string script, std::string failure) {
  set_up_step made;
  made.command.argv = {"/bin/sh", "-c", std::move(script)};
  made.command.cwd = "/";
  made.command.user = user;
  made.command.timeout_ms = fetch_ms;
  made.command.rules = {true, true};
  made.command.only_if_there = true;
  made.failure = std::move(failure);
  return made;
}

/// What the clone is called, as git itself names it.
std::string directory_of(const std::string& url) {
  auto path = url.substr(0, url.find_first_of("?#"));
  while (path.ends_with('/'))
    path.pop_back();
  if (path.ends_with(".git"))
    path.resize(path.size() - 4);
  auto name = path.substr(path.rfind('/') + 1);
  std::erase_if(name, [](char c) { return c == '\0' || c == '/'; });
  return name.empty() || name == "." || name == ".." ? std::string{"repository"} : name;
}

/// The credentials are in the environment of this one command. A helper tells them to git, for the
/// host of the source alone: not for one that it redirects to. Helpers of the image hear nothing.
set_up_step clone(const git_source& from) {
  constexpr std::string_view script = R"sh(set -e
cd /vercel/sandbox
export GIT_TERMINAL_PROMPT=0
fetch() { git fetch -q "$@"; }
if [ -n "$SOURCE_USERNAME$SOURCE_PASSWORD" ]; then
  host=${SOURCE_URL#*://}
  helper="credential.${SOURCE_URL%%://*}://${host%%[/?#]*}.helper"
  tell='!f() { printf "username=%s\npassword=%s\n" "$SOURCE_USERNAME" "$SOURCE_PASSWORD"; }; f'
  fetch() { git -c credential.helper= -c "$helper=$tell" fetch -q "$@"; }
fi
git init -q "$SOURCE_DIRECTORY"
cd "$SOURCE_DIRECTORY"
git remote add origin "$SOURCE_URL"
if [ -n "$SOURCE_REVISION" ]; then
  if ! fetch ${SOURCE_DEPTH:+--depth "$SOURCE_DEPTH"} origin "$SOURCE_REVISION" 2>/dev/null; then
    fetch --tags origin '+refs/heads/*:refs/remotes/origin/*'
    commit=$(git rev-parse -q --verify "$SOURCE_REVISION^{commit}" ||
      git rev-parse -q --verify "origin/$SOURCE_REVISION^{commit}") || {
      echo "the repository has no branch, tag or commit '$SOURCE_REVISION'" >&2
      exit 1
    }
    git checkout -q "$commit"
  else
    git checkout -q FETCH_HEAD
  fi
else
  fetch ${SOURCE_DEPTH:+--depth "$SOURCE_DEPTH"} origin HEAD
  git remote set-head origin -a >/dev/null 2>&1 || true
  head=$(git symbolic-ref -q --short refs/remotes/origin/HEAD || echo origin/main)
  git checkout -q -B "${head#origin/}" FETCH_HEAD
fi
)sh";
  auto made = step(std::string{script}, "The git source could not be fetched: ");
  made.command.env = {
    {"SOURCE_URL", from.url},           {"SOURCE_DIRECTORY", directory_of(from.url)},
    {"SOURCE_REVISION", from.revision}, {"SOURCE_USERNAME", from.username},
    {"SOURCE_PASSWORD", from.password}, {"HOME", std::string{home}}};
  if (from.depth > 0)
    made.command.env["SOURCE_DEPTH"] = std::to_string(from.depth);
  return made;
}

set_up_step download(const tarball_source& from) {
  constexpr std::string_view script = R"sh(
exec curl -fsSL --proto '=http,https' --max-redirs 10 --max-time 200 --max-filesize 2147483648 \
  -o /tmp/insula-source -- "$SOURCE_URL"
)sh";
  auto made = step(std::string{script}, "The tarball could not be fetched: ");
  made.command.env = {{"SOURCE_URL", from.url}, {"HOME", std::string{home}}};
  return made;
}

/// Of what tar says, the first line that is no note has the reason.
set_up_step unpack() {
  constexpr std::string_view script = R"sh(set -e
said=$(mktemp)
trap 'rm -f /tmp/insula-source "$said"' EXIT
cd /vercel/sandbox
tar -xf /tmp/insula-source --no-same-owner 2>"$said" || {
  grep -v -e '^$' -e 'Removing leading' "$said" | head -n 1 >&2
  exit 1
}
)sh";
  return step(std::string{script}, "The tarball could not be unpacked: ");
}

} // namespace

run_limits limits_of(const settings& is) {
  return {static_cast<std::uint64_t>(is.vcpus * memory_of_vcpu_mb) << 20, is.vcpus * 100,
          policy_of(is.network), is.network.sealed};
}

std::optional<run_limits> limits_in(const api_metadata& all) {
  const auto at = all.find(metadata_api);
  const auto is = at == all.end() ? std::nullopt : read_settings(at->second);
  return is ? std::optional{limits_of(*is)} : std::nullopt;
}

define_sandbox definition_of(const create_request& wanted, std::string_view secret) {
  const auto& is = wanted.wanted;
  define_sandbox message;
  message.env = wanted.env;
  for (const auto& [name, value] : {std::pair{"USER", user_name}, std::pair{"LOGNAME", user_name},
                                    std::pair{"SHELL", std::string_view{"/bin/bash"}},
                                    std::pair{"LANG", std::string_view{"C.UTF-8"}}})
    message.env.try_emplace(name, value); // Over the image's; what the client says wins.
  message.snapshot = wanted.snapshot;
  if (wanted.snapshot.empty()) // Else the image is that one's.
    message.image = image_name(is);
  message.drives = drives_of(is, secret);
  message.network = has_source(wanted) ? egress_policy::allow_all() : policy_of(is.network);
  if (!has_source(wanted))
    message.requests = is.network.sealed;
  const auto limits = limits_of(is);
  message.memory_bytes = limits.memory_bytes;
  message.cpu_percent = limits.cpu_percent;
  sandbox_profile profile;
  profile.user = user;
  profile.login = user_name;
  profile.home = home;
  profile.cwd = working_directory;
  profile.env = {{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}};
  profile.gains = privileges::sudo;
  message.profile = std::move(profile);
  message.gains = privileges::sudo;
  return message;
}

std::vector<set_up_step> steps_of(const create_request& wanted) {
  std::vector<set_up_step> all;
  if (wanted.git)
    all.push_back(clone(*wanted.git));
  if (wanted.tarball) {
    all.push_back(download(*wanted.tarball));
    all.push_back(unpack());
  }
  return all;
}

std::string last_line(std::string_view text) {
  while (text.ends_with('\n'))
    text.remove_suffix(1);
  const auto line = text.substr(text.rfind('\n') + 1);
  return line.empty() ? std::string{"it failed without a word"} : std::string{line};
}

} // namespace insula::http::vercel
