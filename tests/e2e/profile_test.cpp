// A sandbox with a profile of its own, by its record: no API of today makes one.
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/older_store.hpp"

#include <csignal>
#include <filesystem>

using namespace insula::test;
namespace fs = std::filesystem;

TEST_CASE("what runs in a sandbox has the user, home, directory and variables of its profile",
          "[profile]") {
  const std::string profile{"user=0:0\0home=/tmp\0cwd=/usr\0privileges=none\0env EXTRA=more\0", 59};
  node it{{}, [&](const std::string& state) {
            fs::create_directories(state + "/records");
            write_older_store(state + "/records/insula.db", {{"own", "created_ms", "1700000000000"},
                                                             {"own", "image", "host"},
                                                             {"own", "profile", profile},
                                                             {"_lease", "reserved_until", "1000"}});
          }};
  const std::string look = "id -u; id -g; echo $HOME $EXTRA";
  // The bridge says where a command without a session runs.
  const auto begins_in = [&](const std::string& id) {
    return exec_stream{it.port(), id, exec_body({"pwd"}), "Session-Id: s\r\n"}.rest().out;
  };
  for (int start = 0; start < 2; ++start) {
    CAPTURE(start);
    CHECK(it.sh("own", look).out == "0\n0\n/tmp more\n");
    CHECK(begins_in("own") == "/usr\n");
    CHECK(it.sh("own", "grep NoNewPrivs /proc/self/status").out == "NoNewPrivs:\t1\n");
    CHECK(it.sh("other", look).out == "1000\n1000\n/home/sandbox\n");
    CHECK(begins_in("other") == "/workspace\n");
    CHECK(it.ask("PUT", "/v1/sandbox/own/file/workspace/made", "x").status == 200);
    CHECK(it.sh("own", "stat -c %u:%g /workspace/made").out == "0:0\n");
    REQUIRE(it.stop(SIGTERM) == 0);
    it.start();
  }
}
