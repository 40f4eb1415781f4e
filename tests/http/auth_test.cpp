#include "http/auth.hpp"
#include "tests/support/catch.hpp"

using insula::http::key_check;

TEST_CASE("without a key everybody is let in", "[http][auth]") {
  const key_check nobody_asks{""};
  CHECK(nobody_asks.allows_header("", true));
  CHECK(nobody_asks.allows_header("Bearer whatever", false));
  CHECK(nobody_asks.allows_query(""));
}

TEST_CASE("the key is compared byte by byte, with exactly one blank before it", "[http][auth]") {
  const key_check key{"s3cret"};
  CHECK(key.allows_header("Bearer s3cret", false));
  for (const auto* wrong :
       {"", "Bearer", "Bearer ", "s3cret", "Bearer  s3cret", "Bearer s3cret ", "Bearer S3cret",
        "Bearer s3cre", "Bearer s3crets", "Basic s3cret", "Bearer\ts3cret"})
    CHECK_FALSE(key.allows_header(wrong, true));
}

TEST_CASE("the word Bearer may be in any letter case where that is allowed", "[http][auth]") {
  const key_check key{"s3cret"};
  CHECK(key.allows_header("bEARER s3cret", true));
  CHECK_FALSE(key.allows_header("bEARER s3cret", false));
}

TEST_CASE("a token in the query is percent-decoded", "[http][auth]") {
  const key_check key{"a b&c"};
  CHECK(key.allows_query("token=a%20b%26c"));
  CHECK(key.allows_query("x=1&token=a%20b%26c&y=2"));
  CHECK_FALSE(key.allows_query("token=a"));
  CHECK_FALSE(key.allows_query("xtoken=a%20b%26c"));
  CHECK_FALSE(key.allows_query(""));
}
