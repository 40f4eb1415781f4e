#include "tests/support/catch.hpp"
#include "tests/support/child_program.hpp"
#include "tests/support/temp_dir.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/wait.h>
#include <vector>

using namespace insula::test;
using namespace std::chrono_literals;

namespace {

struct outcome {
  int status = -1; ///< As exit() was told.
  std::string out, err;
};

/// `insula …`, to its end.
outcome insula_with(std::vector<std::string> words, uid_t user = 0) {
  const temp_dir where;
  words.insert(words.begin(), INSULA_PROGRAM);
  child_program program{words, {.error_file = (where / "err").string(), .user = user}};
  outcome made;
  made.out = program.read_all(60s);
  if (const auto status = program.wait(20s); status && WIFEXITED(*status))
    made.status = WEXITSTATUS(*status);
  std::ifstream err{where / "err"};
  made.err.assign(std::istreambuf_iterator<char>{err}, {});
  return made;
}

} // namespace

TEST_CASE("help and version are commands as well", "[apps][program]") {
  CHECK(insula_with({"version"}).out == insula_with({"--version"}).out);
  CHECK(insula_with({"version"}).out.starts_with("insula "));
  CHECK(insula_with({"help"}).out == insula_with({"--help"}).out);
  CHECK(insula_with({"help"}).out.find("\nUsage: insula [OPTIONS] [SUBCOMMAND]\n") !=
        std::string::npos);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"serve"},
                                                {"upgrade"},
                                                {"image"},
                                                {"image", "import"},
                                                {"oidc"},
                                                {"oidc", "rotate"},
                                                {"bench"},
                                                {"bench", "merge"}}) {
    auto by_option = words, by_command = words;
    by_option.emplace_back("--help");
    by_command.insert(by_command.begin(), "help");
    CAPTURE(words);
    const auto wanted = insula_with(by_option);
    CHECK(wanted.status == 0);
    std::string usage = "\nUsage: insula";
    for (const auto& each : words)
      usage += " " + each;
    CHECK(wanted.out.find(usage + " [OPTIONS]") != std::string::npos);
    const auto got = insula_with(by_command);
    CHECK(got.status == 0);
    CHECK(got.out == wanted.out);
    CHECK(got.err.empty());
  }
  CHECK(insula_with({"serve", "help"}).out == insula_with({"serve", "--help"}).out);
  CHECK(insula_with({"image", "help", "rm"}).out == insula_with({"image", "rm", "--help"}).out);
  // Behind an option as well.
  for (const auto* word : {"help", "version"}) {
    const auto got = insula_with({"--openapi", word});
    CHECK(got.status == 0);
    CHECK(got.out == insula_with({word}).out);
    CHECK(insula_with({"--state", "x", word}).status == 2);
    CHECK(insula_with({"--state", "x", word}).err.find("--state") != std::string::npos);
  }
}

TEST_CASE("a command that there is not is answered with those that there are", "[apps][program]") {
  const auto wrong = [](const std::vector<std::string>& words, int status) {
    CAPTURE(words);
    const auto got = insula_with(words);
    CHECK(got.status == status);
    CHECK(got.out.empty());
    return got.err;
  };
  const std::string all = "serve, upgrade, image, token, oidc, bench, help and version\n";
  CHECK(wrong({"start"}, 2) == "insula: insula has no command start; it has: " + all);
  CHECK(wrong({"Serve", "--listen", "x"}, 2) ==
        "insula: insula has no command Serve; it has: " + all);
  CHECK(wrong({"help", "start"}, 2) == "insula: insula has no command start; it has: " + all);
  CHECK(wrong({"image", "list"}, 2) ==
        "insula: insula image has no command list; it has: pull, import, ls, show and rm\n");
  CHECK(wrong({"image"}, 2) ==
        "insula: insula image needs a command: pull, import, ls, show and rm\n");
  CHECK(wrong({"bench", "compare"}, 1) ==
        "insula: insula bench has no command compare; it has: run, merge and report\n");
}

TEST_CASE("an upgrade without a server says that there is none, whatever is missing",
          "[apps][program]") {
  const temp_dir where;
  std::filesystem::permissions(where / "", std::filesystem::perms::all);
  std::ofstream{where / "file"} << "no directory\n";
  std::filesystem::create_directory(where / "empty");
  std::filesystem::create_directory(where / "left");
  std::ofstream{where / "left/lock"} << "1234567\n"; // Of one that has ended.
  std::filesystem::permissions(where / "left/lock", std::filesystem::perms::owner_read);
  for (const std::string name : {"missing", "missing/too", "empty", "file", "left"}) {
    const auto state = (where / name).string();
    CAPTURE(state);
    const auto none =
      "insula: no server runs with the state directory " + state + "; `insula serve` starts one\n";
    const auto got = insula_with({"upgrade", "--state", state});
    CHECK(got.status == 1);
    CHECK(got.err == none);
    const auto other = insula_with({"upgrade", "--state", state}, 65534);
    CHECK(other.status == 1);
    CHECK(other.err == (name == "left"
                          ? "insula: insula upgrade needs root, as the server does at its start\n"
                          : none));
  }
}
