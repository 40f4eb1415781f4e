#include "apps/resolvers.hpp"
#include "tests/support/catch.hpp"

using namespace insula;

TEST_CASE("a resolv.conf names at most three resolvers, by their addresses", "[apps][resolvers]") {
  using all = std::vector<std::string>;
  CHECK(resolvers_in("").empty());
  CHECK(resolvers_in("search example.org\nnameserver 9.9.9.9\n# nameserver 1.1.1.1\n") ==
        all{"9.9.9.9"});
  CHECK(resolvers_in("nameserver\t2620:fe::fe options\nnameserver host.example\nnameserver\n"
                     "nameserver 127.0.0.53") == all{"2620:fe::fe", "127.0.0.53"});
  CHECK(resolvers_in("nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\nnameserver "
                     "10.0.0.4\n")
          .size() == 3);
}
