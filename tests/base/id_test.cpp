#include "base/id.hpp"
#include "tests/support/catch.hpp"

#include <set>

using insula::base32;
using insula::sandbox_id;

TEST_CASE("base32 gives what RFC 4648 gives, in lower case and without padding", "[base][id]") {
  const auto of = [](std::string_view text) {
    return base32(reinterpret_cast<const unsigned char*>(text.data()), text.size());
  };
  CHECK(of("").empty());
  CHECK(of("f") == "my");
  CHECK(of("fo") == "mzxq");
  CHECK(of("foo") == "mzxw6");
  CHECK(of("foob") == "mzxw6yq");
  CHECK(of("fooba") == "mzxw6ytb");
  CHECK(of("foobar") == "mzxw6ytboi");
}

TEST_CASE("a sandbox id is 1 to 128 characters of its alphabet", "[base][id]") {
  CHECK(sandbox_id::parse("a"));
  CHECK(sandbox_id::parse(std::string(128, 'z')));
  CHECK(sandbox_id::parse("234567"));
  for (const char* bad : {"", "A", "a1", "a0", "a8", "a-b", "a/b", "a b", "%61", "ä"}) {
    CAPTURE(bad);
    CHECK_FALSE(sandbox_id::parse(bad));
  }
  CHECK_FALSE(sandbox_id::parse(std::string(129, 'a')));
  CHECK_FALSE(sandbox_id::parse(std::string_view{"a\0b", 3}));
}

TEST_CASE("an issued id has 26 characters, is well formed, and is never issued again",
          "[base][id]") {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const auto id = sandbox_id::generate();
    CHECK(id.str().size() == 26);
    CHECK(sandbox_id::parse(id.str()) == id);
    CHECK(seen.insert(id.str()).second);
  }
}
