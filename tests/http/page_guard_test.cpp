#include "http/api/page_guard.hpp"
#include "tests/support/catch.hpp"

#include <string>

using insula::http::page_guard;

TEST_CASE("a Host that leads here by itself is let in, any other name only when listed",
          "[http][page_guard]") {
  const page_guard guard{{"Insula.example"}};
  for (const auto* host :
       {"localhost", "LocalHost:8787", "127.0.0.1", "127.0.0.1:8787", "10.1.2.3:80", "[::1]",
        "[::1]:8787", "[fe80::1]:1", "insula.example", "INSULA.EXAMPLE:443", ""}) {
    CAPTURE(host);
    CHECK_FALSE(guard.objection(host, "", ""));
  }
  for (const auto* host : {"evil.example",
                           "evil.example:8787",
                           "localhost.evil.example",
                           "127.0.0.1.evil.example",
                           "localhost.",
                           "xlocalhost",
                           "evil@localhost",
                           "localhost:8787@evil.example",
                           "localhost:x",
                           "[::1",
                           "[::1]x",
                           "[localhost]",
                           "[127.0.0.1]",
                           "[]",
                           "::1",
                           "127.1",
                           "0x7f000001",
                           "sub.insula.example",
                           ":8787",
                           "[",
                           "]",
                           ":"}) {
    CAPTURE(host);
    CHECK(guard.objection(host, "", ""));
    CHECK(guard.objection(host, std::string{"http://"} + host, ""));
  }
}

TEST_CASE("a page may ask only where it came from", "[http][page_guard]") {
  const page_guard guard{{}};
  CHECK_FALSE(guard.objection("localhost:8787", "http://localhost:8787", ""));
  CHECK_FALSE(guard.objection("localhost:8787", "http://LOCALHOST:8787", ""));
  CHECK_FALSE(guard.objection("[::1]:8787", "https://[::1]:8787", ""));
  for (const auto* origin :
       {"null", "https://evil.example", "http://localhost", "http://localhost:87",
        "http://localhost:8787.evil.example", "http://127.0.0.1:8787", "localhost:8787",
        "http://localhost:8787/", "file://", "://", "chrome-extension://abc"}) {
    CAPTURE(origin);
    CHECK(guard.objection("localhost:8787", origin, ""));
    CHECK(guard.objection("", origin, ""));
  }
  // A picture, a script or a link: no Origin.
  for (const auto* site : {"cross-site", "same-site"})
    CHECK(guard.objection("localhost:8787", "", site));
  for (const auto* site : {"same-origin", "none", ""})
    CHECK_FALSE(guard.objection("localhost:8787", "", site));
}
