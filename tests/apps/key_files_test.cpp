#include "apps/key_files.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/child_program.hpp"
#include "tests/support/jwt_check.hpp"
#include "tests/support/temp_dir.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t some_time = 1'700'000'000;

config below(const fs::path& state) {
  config values;
  values.state.directory = state.string();
  return values;
}

std::string content_of(const fs::path& file) {
  std::ifstream in{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

struct command_outcome {
  int status = -1;
  std::string out, err;
};

command_outcome oidc(std::vector<std::string> words, const fs::path& state, uid_t user = 0) {
  const temp_dir where;
  fs::permissions(where.path(), fs::perms::all);
  words.insert(words.begin(), {INSULA_PROGRAM, "oidc"});
  words.insert(words.end(), {"--state", state.string()});
  child_program program{words, {.error_file = (where / "err").string(), .user = user}};
  command_outcome made;
  made.out = program.read_all(60s);
  if (const auto status = program.wait(20s); status && WIFEXITED(*status))
    made.status = WEXITSTATUS(*status);
  made.err = content_of(where / "err");
  return made;
}

const std::vector<std::string> token_words{"token",  "--audience", "https://a.example/b",
                                           "--team", "t",          "--project",
                                           "p",      "--sandbox",  "sbx_1"};

} // namespace

TEST_CASE("a first start makes both files of keys, and later ones have the same", "[apps][oidc]") {
  const temp_dir state;
  const auto first = key_files::open(below(state.path()), some_time);
  REQUIRE(first);
  std::set<std::string> names;
  for (const auto& each : fs::directory_iterator{state.path()}) {
    names.insert(each.path().filename().string());
    struct stat info {};
    REQUIRE(::stat(each.path().c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == 0600);
  }
  CHECK(names == std::set<std::string>{"oidc-keys.json", "secrets.key"});
  const auto text = content_of(state / "oidc-keys.json");
  const auto second = key_files::open(below(state.path()), some_time + 1);
  REQUIRE(second);
  CHECK(second->secrets.key_id() == first->secrets.key_id());
  CHECK(second->oidc == first->oidc);
  CHECK(content_of(state / "oidc-keys.json") == text);
  auto named = below(state / "other");
  named.secrets.key_file = (state / "secrets.key").string();
  named.oidc.key_file = (state / "oidc-keys.json").string();
  const auto third = key_files::open(named, some_time);
  REQUIRE(third);
  CHECK(third->oidc == first->oidc);
}

TEST_CASE("two first starts at once sign with the same key", "[apps][oidc]") {
  const temp_dir state;
  std::vector<std::string> published(4);
  std::vector<std::thread> all;
  for (auto& each : published)
    all.emplace_back([&] {
      const auto files = key_files::open(below(state.path()), some_time);
      each = files ? files->oidc.published(some_time, 1h) : files.reason().message;
    });
  for (auto& each : all)
    each.join();
  CHECK(std::set(published.begin(), published.end()).size() == 1);
  CHECK(json_in(published.front()).IsObject());
}

TEST_CASE("a file of keys that is broken or open to others stops a start and stays",
          "[apps][oidc]") {
  const temp_dir state;
  REQUIRE(key_files::open(below(state.path()), some_time));
  const auto path = state / "oidc-keys.json";
  const auto good = content_of(path);
  const auto why = [&] {
    const auto files = key_files::open(below(state.path()), some_time);
    REQUIRE_FALSE(files);
    CHECK(files.reason().code == errc::invalid_request);
    CHECK(files.reason().message.starts_with(path.string() + ": "));
    CHECK(files.reason().message.find("PRIVATE") == std::string::npos);
    return files.reason().message;
  };
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  CHECK(why().find("chmod 600") != std::string::npos);
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  for (const auto& bad : {std::string{}, good.substr(0, good.size() / 2), std::string{"{}"}}) {
    std::ofstream{path} << bad;
    CHECK(why().find("from a copy") != std::string::npos);
    CHECK(content_of(path) == bad);
  }
  std::ofstream{path} << good;
  CHECK(key_files::open(below(state.path()), some_time));
}

TEST_CASE("insula oidc makes tokens, and adds and shows keys", "[apps][oidc]") {
  const temp_dir state;
  const auto files = key_files::open(below(state.path()), some_time);
  REQUIRE(files);
  const auto path = state / "oidc-keys.json";
  const auto kept = std::chrono::hours{24};
  const auto first = files->oidc.list(some_time).front().kid;

  auto named = token_words;
  named.insert(named.end(), {"--name", "my box"});
  const auto made = oidc(named, state.path());
  CHECK(made.status == 0);
  REQUIRE(made.out.ends_with("\n"));
  const auto token = made.out.substr(0, made.out.size() - 1);
  CHECK(is_signed_by(files->oidc.published(some_time, kept), token));
  const auto said = json_in(part_of_token(token, 1));
  CHECK(said["aud"] == "https://a.example/b");
  CHECK(said["sandbox_name"] == "my box");
  CHECK(said["exp"].GetInt64() - said["iat"].GetInt64() == 900);

  const auto rotated = oidc({"rotate"}, state.path());
  CHECK(rotated.status == 0);
  CHECK(rotated.err.empty());
  CHECK(rotated.out.find("SIGHUP") != std::string::npos);
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);
  const auto after = read_oidc_keys(path);
  REQUIRE(after);
  REQUIRE(after->list(some_time).size() == 2);
  const auto second = after->list(some_time).back().kid;
  CHECK(rotated.out.find(second) != std::string::npos);
  // The first key signs until verifiers know the second.
  const auto another = oidc(token_words, state.path()).out;
  CHECK(
    is_signed_by(files->oidc.published(some_time, kept), another.substr(0, another.size() - 1)));

  const auto shown = oidc({"show"}, state.path());
  CHECK(shown.status == 0);
  CHECK(shown.out.find(first + "  made ") == 0);
  CHECK(shown.out.find(second + "  made ") != std::string::npos);
  CHECK(shown.out.find(", signs for ") != std::string::npos);
  CHECK(shown.out.find(", is published, and signs next\n") != std::string::npos);
  CHECK(shown.out.find("https://oidc.vercel.com/insula/.well-known/jwks\n") != std::string::npos);
  CHECK(shown.out.find("/oidc/insula/.well-known/jwks\n") != std::string::npos);
  CHECK(shown.out.find("PRIVATE") == std::string::npos);

  const auto alone = oidc({"rotate", "--drop-old"}, state.path());
  CHECK(alone.status == 0);
  const auto only = read_oidc_keys(path);
  REQUIRE(only);
  CHECK(only->list(some_time).size() == 1);
  CHECK(alone.out.find(only->list(some_time).front().kid) != std::string::npos);
}

TEST_CASE("insula oidc says what is missing, and makes no file", "[apps][oidc]") {
  const temp_dir state;
  for (const auto& words : {std::vector<std::string>{"rotate"}, {"show"}, token_words}) {
    CAPTURE(words);
    const auto got = oidc(words, state.path());
    CHECK(got.status == 1);
    CHECK(got.out.empty());
    CHECK(got.err ==
          "insula: " + (state / "oidc-keys.json").string() + ": there is no such file\n");
  }
  CHECK(fs::is_empty(state.path()));
  REQUIRE(key_files::open(below(state.path()), some_time));
  fs::permissions(state.path(), fs::perms::all);
  const auto stranger = oidc({"show"}, state.path(), 65534);
  CHECK(stranger.status == 1);
  CHECK(stranger.err.find("Permission denied") != std::string::npos);
  const auto nobody = oidc(
    {"token", "--audience", "https://a.example", "--team", "t", "--project", "p", "--sandbox", ""},
    state.path());
  CHECK(nobody.status == 2);
  CHECK(nobody.out.empty());
}

TEST_CASE("insula oidc reads a configuration whose key is in the server's environment",
          "[apps][oidc]") {
  const temp_dir state;
  auto values = below(state.path());
  REQUIRE(key_files::open(values, some_time));
  std::ofstream{state / "cluster.yaml"}
    << "server: {listen: \"0.0.0.0:8787\"}\noidc: {issuer: \"https://me.example/oidc/acme\"}\n";
  const auto got = oidc({"show", "--config", (state / "cluster.yaml").string()}, state.path());
  CHECK(got.status == 0);
  CHECK(got.out.find("https://me.example/oidc/acme/.well-known/jwks\n") != std::string::npos);
  CHECK(got.out.find("/oidc/acme/.well-known/jwks\n") != std::string::npos);
}
