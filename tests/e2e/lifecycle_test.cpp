#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <future>
#include <sys/wait.h>

using namespace insula::test;

namespace {

std::string content_of(const std::string& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

} // namespace

TEST_CASE("SIGINT ends a server at once with everything that runs in it", "[lifecycle]") {
  node it;
  // An hour is given to a command that is over: nothing waits for that hour.
  REQUIRE(it.exec("a", {"true"}, ",\"timeout_ms\":3600000").exit_code == 0);
  auto quiet = it.open("a", {"bash", "-c", "echo up; sleep 1000"});
  auto loud = it.open("b", {"bash", "-c", "echo up; exec yes"});
  auto limited =
    it.open("c", {"bash", "-c", "echo up; trap '' TERM; sleep 1000"}, ",\"timeout_ms\":3600000");
  for (auto* each : {&quiet, &loud, &limited})
    REQUIRE(each->next()->data.starts_with("up\n"));
  // Somebody has to read this one: the server waits a while for a client to take what it was sent.
  auto reader = std::async(std::launch::async, [&] { return loud.rest(); });
  const auto begin = std::chrono::steady_clock::now();
  const int status = it.stop(SIGINT);
  CHECK(status == 0);
  CHECK(std::chrono::steady_clock::now() - begin < 60s);
  for (const auto& got : {quiet.rest(), reader.get(), limited.rest()}) {
    CHECK_FALSE(got.exit_code);
    if (got.complete)
      CHECK_FALSE(got.error.empty());
  }
  CHECK(eventually([&] { return it.processes().empty(); }));
}

TEST_CASE("a server that is ready has neither root nor calls that it does not need",
          "[lifecycle]") {
  const node it;
  REQUIRE(it.sh("a", "true").exit_code == 0);
  const auto tasks = "/proc/" + std::to_string(it.pid()) + "/task";
  std::size_t threads = 0;
  for (const auto& each : std::filesystem::directory_iterator{tasks}) {
    ++threads;
    const auto status = content_of(each.path().string() + "/status");
    CAPTURE(status);
    CHECK(status.find("\nUid:\t0\t") == std::string::npos);
    CHECK(status.find("\nCapPrm:\t0000000000000000\n") != std::string::npos);
    CHECK(status.find("\nCapEff:\t0000000000000000\n") != std::string::npos);
    CHECK(status.find("\nNoNewPrivs:\t1\n") != std::string::npos);
    CHECK(status.find("\nSeccomp:\t2\n") != std::string::npos);
  }
  CHECK(threads > 2);
}

TEST_CASE("a second server on the same state directory is refused, and disturbs nothing",
          "[lifecycle]") {
  const node it;
  REQUIRE(it.sh("a", "mkfifo gate").exit_code == 0);
  auto stream = it.open("a", {"bash", "-c", "read x < gate; echo went on"});
  const auto file = it.scratch() + "/complaint";
  child_program second{it.command(), {.error_file = file}};
  const auto status = second.wait(20s);
  REQUIRE(status);
  CHECK((WIFEXITED(*status) && WEXITSTATUS(*status) == 1));
  CHECK(content_of(file).find("another insula uses the state directory " + it.state()) !=
        std::string::npos);
  CHECK(it.sh("a", "echo > gate").exit_code == 0);
  CHECK(stream.rest().out == "went on\n");
}

TEST_CASE("a start without root is refused with the reason", "[lifecycle]") {
  constexpr uid_t nobody = 65534;
  const temp_dir where;
  std::filesystem::permissions(where.path(), std::filesystem::perms::all);
  const auto file = (where / "complaint").string();
  // By its descriptor: nobody may not search every directory that a build can stand in.
  const insula::unique_fd program{::open(INSULA_PROGRAM, O_PATH)};
  child_program second{{"/proc/self/fd/" + std::to_string(program.get()), "serve", "--listen",
                        "127.0.0.1:0", "--state", (where / "state").string()},
                       {.error_file = file, .user = nobody}};
  const auto status = second.wait(20s);
  REQUIRE(status);
  CHECK((WIFEXITED(*status) && WEXITSTATUS(*status) == 1));
  CHECK(content_of(file).find("needs root") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(where / "state"));
}

TEST_CASE("two servers side by side do not touch each other", "[lifecycle]") {
  const node one;
  REQUIRE(one.sh("a", "echo one > file").exit_code == 0);
  {
    node other;
    REQUIRE(other.sh("a", "echo other > file").exit_code == 0);
    CHECK(one.sh("a", "cat file").out == "one\n");
    CHECK(other.remove("a") == 204);
    CHECK(one.sh("a", "cat file").out == "one\n");
    REQUIRE(other.sh("a", "echo other > file").exit_code == 0);
    other.crash_both();
    CHECK(one.sh("a", "cat file").out == "one\n");
    other.start();
    CHECK(one.sh("a", "cat file").out == "one\n");
  }
  CHECK(one.sh("a", "cat file; echo still").out == "one\nstill\n");
}

TEST_CASE("with a certificate the same is served over TLS", "[lifecycle][tls]") {
  const temp_dir where;
  const auto certificate = (where / "cert.pem").string(), key = (where / "key.pem").string();
  output_of({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
             "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
             "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate});
  const node it{"server: {tls: {certificate: " + certificate + ", key: " + key + "}}"};
  const auto url = "https://127.0.0.1:" + std::to_string(it.port());
  const auto curl = [&](std::vector<std::string> more) {
    std::vector<std::string> argv{"curl",      "-sS", "--max-time", "30",
                                  "--noproxy", "*",   "--cacert",   certificate};
    argv.insert(argv.end(), more.begin(), more.end());
    return output_of(argv);
  };
  CHECK(curl({"-N", url + "/v1/sandbox/a/exec", "-d", exec_body({"echo", "a"})}) ==
        "event: stdout\ndata: YQo=\n\nevent: exit\ndata: {\"exit_code\":0}\n\n");
  CHECK(curl({url + "/health"}) == R"({"ok":true})");
  const auto content = (where / "content").string();
  output_of({"sh", "-c", "head -c 5000000 /dev/urandom > " + content});
  CHECK(curl({"-T", content, url + "/v1/sandbox/a/file/workspace/f"}) == R"({"ok":true})");
  CHECK((curl({url + "/v1/sandbox/a/file/workspace/f"}) == content_of(content)));
  // Plain HTTP at that port is no way in.
  const auto plain = [&] {
    try {
      return http_ask(it.port(), "GET", "/health").status;
    } catch (const std::exception&) {
      return 0;
    }
  }();
  CHECK(plain != 200);
}
