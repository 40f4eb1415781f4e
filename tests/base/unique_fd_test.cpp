#include "base/unique_fd.hpp"
#include "tests/support/catch.hpp"

#include <fcntl.h>
#include <unistd.h>

using insula::unique_fd;

namespace {
bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}
} // namespace

TEST_CASE("a descriptor is closed with its owner", "[base][fd]") {
  int raw = -1;
  {
    const unique_fd owner{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    raw = owner.get();
    REQUIRE(is_open(raw));
  }
  CHECK_FALSE(is_open(raw));
}

TEST_CASE("a moved descriptor has one owner, and the one it replaces is closed", "[base][fd]") {
  unique_fd first{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  unique_fd second{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  const int kept = first.get();
  const int replaced = second.get();
  second = std::move(first);
  CHECK(second.get() == kept);
  CHECK(is_open(kept));
  CHECK_FALSE(is_open(replaced));
  const unique_fd released{second.release()};
  CHECK_FALSE(second);
  CHECK(is_open(released.get()));
}
