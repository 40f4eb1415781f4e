#include "apps/server_record.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/child_program.hpp"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

using namespace insula;
using namespace insula::test;

namespace {

result<server_record> record_of(pid_t pid) {
  const auto exe = "/proc/" + std::to_string(pid) + "/exe";
  const unique_fd program{::open(exe.c_str(), O_PATH | O_CLOEXEC)};
  return find_server_record(pid, open_process(pid).get(), program.get());
}

} // namespace

TEST_CASE("how a server was started is read as it was said, and cannot be changed", "[upgrade]") {
  if (::geteuid() != 0)
    FAIL("this test needs root");
  CHECK_FALSE(record_of(::getpid())); // Nothing has been said.
  ::setenv("INSULA_TEST_WORDS", "a\nb =c", 1);
  const auto published = publish_server_record("/some where");
  REQUIRE(published);
  ::setenv("INSULA_TEST_WORDS", "later", 1);
  const auto found = record_of(::getpid());
  REQUIRE(found);
  CHECK(found->pid == ::getpid());
  CHECK(found->protocol != 0);
  CHECK(found->state == "/some where");
  CHECK(found->arguments.front().find("apps_test") != std::string::npos);
  CHECK(std::count(found->environment.begin(), found->environment.end(),
                   "INSULA_TEST_WORDS=a\nb =c") == 1);
  CHECK(::pwrite((*published).get(), "9", 1, 0) < 0);
  CHECK(::ftruncate((*published).get(), 0) < 0);
}

TEST_CASE("what is not sealed, or another process's, is no record", "[upgrade]") {
  const unique_fd forged{::memfd_create("insula-server-record", MFD_CLOEXEC)};
  REQUIRE(forged);
  CHECK_FALSE(record_of(::getpid()));
  const auto published = publish_server_record("/state");
  REQUIRE(published);
  const child_program other{{"/bin/sleep", "1000"}};
  CHECK_FALSE(record_of(other.pid()));
  const auto ours = open_process(::getpid());
  const unique_fd program{::open("/proc/self/exe", O_PATH | O_CLOEXEC)};
  const unique_fd another{::open("/bin/sleep", O_PATH | O_CLOEXEC)};
  CHECK_FALSE(find_server_record(other.pid(), ours.get(), program.get()));
  CHECK_FALSE(find_server_record(::getpid(), ours.get(), another.get()));
  CHECK(find_server_record(::getpid(), ours.get(), program.get()));
}
