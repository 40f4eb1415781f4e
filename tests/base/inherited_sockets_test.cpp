#include "base/inherited_sockets.hpp"

#include "tests/support/catch.hpp"

#include <fcntl.h>

using namespace insula;
namespace asio = boost::asio;
using tcp = asio::ip::tcp;

namespace {

tcp::endpoint at(const char* address, std::uint16_t port = 0) {
  return {asio::ip::make_address(address), port};
}

/// One that listens at a free port.
struct open_listener {
  asio::io_context io;
  tcp::acceptor it;

  explicit open_listener(const char* address)
      : it(io, at(address)) {}
  std::uint16_t port() const { return it.local_endpoint().port(); }
  int fd() { return it.native_handle(); }
};

std::uint16_t port_of(const unique_fd& socket) {
  tcp::endpoint bound;
  auto size = static_cast<socklen_t>(bound.capacity());
  REQUIRE(::getsockname(socket.get(), bound.data(), &size) == 0);
  return bound.port();
}

} // namespace

TEST_CASE("a socket of the server before is found by its address and port", "[inherited]") {
  open_listener one{"127.0.0.1"}, two{"127.0.0.1"}, elsewhere{"127.0.0.2"};
  const unique_fd none{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  const std::vector<int> all{none.get(), elsewhere.fd(), one.fd(), two.fd()};
  const auto found = find_inherited(all, at("127.0.0.1", two.port()));
  REQUIRE(found);
  CHECK(port_of(found) == two.port());
  CHECK(found.get() != two.fd());
  CHECK((::fcntl(found.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(port_of(find_inherited(all, at("127.0.0.1"))) == one.port());
  CHECK_FALSE(find_inherited(all, at("127.0.0.2", one.port())));
  CHECK_FALSE(find_inherited(all, at("::1")));
  CHECK_FALSE(find_inherited({}, at("127.0.0.1")));
}

TEST_CASE("a listener at any port does not take the socket of one that names its port",
          "[inherited]") {
  open_listener link{"127.0.0.1"}, plain{"127.0.0.1"};
  const auto ordered = order_inherited({link.fd(), plain.fd()}, {link.port()});
  CHECK(ordered == std::vector<int>{plain.fd(), link.fd()});
  CHECK(port_of(find_inherited(ordered, at("127.0.0.1"))) == plain.port());
  CHECK(port_of(find_inherited(ordered, at("127.0.0.1", link.port()))) == link.port());
}
