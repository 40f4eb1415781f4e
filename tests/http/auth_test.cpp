#include "http/api/auth.hpp"

#include "base/base64.hpp"
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

TEST_CASE("a text that carries the key is known, however the key is written", "[http][auth]") {
  const std::string key = "k-0123456789abcdef+/";
  const key_check known{key};
  // "k-0123456789abcdef+/" behind 0, 1 and 2 other bytes.
  for (const auto& text :
       {key, "Bearer " + key, "x" + key + "x", std::string{"k%2D0123456789abcdef%2b%2F"},
        std::string{"ay0wMTIzNDU2Nzg5YWJjZGVmKy8="}, std::string{"eGstMDEyMzQ1Njc4OWFiY2RlZisv"},
        std::string{"eHhrLTAxMjM0NTY3ODlhYmNkZWYrLw"},
        std::string{"p, base64url.ay0wMTIzNDU2Nzg5YWJjZGVmKy8"},
        std::string{"basic dTprLTAxMjM0NTY3ODlhYmNkZWYrLw=="}}) {
    CAPTURE(text);
    CHECK(known.is_in(text));
    CHECK_FALSE(key_check{{}}.is_in(text));
  }
  for (const std::string text :
       {"", "k-0123456789abcdef+", "K-0123456789ABCDEF+/", "Basic !", "Basic ", "%", "%2"}) {
    CAPTURE(text);
    CHECK_FALSE(known.is_in(text));
  }
  // A short one is a word of its own.
  const key_check brief{"dev"};
  for (const std::string text : {"dev", "Bearer dev", "a=dev; b", "/dev/", "Basic dTpkZXY="})
    CHECK(brief.is_in(text));
  for (const std::string text : {"develop", "webdev", "Basic dTpkZXZz", "ZGV2"})
    CHECK_FALSE(brief.is_in(text));
  CHECK(known.is_in_address("/a/" + key));
  CHECK_FALSE(brief.is_in_address("/dev/"));
}

TEST_CASE("with another key all copies know that one alone", "[http][auth]") {
  key_check key{"the first key of all"};
  const auto copy = key;
  key.replace("another key than that");
  for (const auto* each : std::initializer_list<const key_check*>{&key, &copy}) {
    CHECK(each->is_key("another key than that"));
    CHECK(each->allows_header("Bearer another key than that", false));
    CHECK(each->is_in("x another key than that y"));
    CHECK_FALSE(each->is_key("the first key of all"));
    CHECK_FALSE(each->allows_query("token=the first key of all"));
    CHECK_FALSE(each->is_in("x the first key of all y"));
  }
  // Whether there is one stays as it is.
  key.replace("");
  CHECK_FALSE(copy.open());
  CHECK(copy.is_key("another key than that"));
  key_check none{""};
  none.replace("a key");
  CHECK(none.open());
}

TEST_CASE("named keys are known beside the main one", "[http][auth]") {
  using insula::http::named_key;
  key_check key{"the first key of all", {{"ci", "the-key-0123456789+/", {"bridge"}, {}, {}}}};
  CHECK_FALSE(key.is_key("the-key-0123456789+/"));
  CHECK_FALSE(key.allows_header("Bearer the-key-0123456789+/", true));
  REQUIRE(key.named("the-key-0123456789+/"));
  CHECK(key.named("the-key-0123456789+/")->name == "ci");
  CHECK(key.named_in_header("bearer the-key-0123456789+/", true));
  CHECK_FALSE(key.named_in_header("bearer the-key-0123456789+/", false));
  CHECK(key.named_in_query("token=the-key-0123456789%2B/"));
  CHECK_FALSE(key.named("the first key of all"));
  CHECK_FALSE(key.named(""));
  CHECK_FALSE(key.named_in_query(""));
  REQUIRE(key.by_name("ci"));
  CHECK(key.by_name("ci")->may_use("bridge"));
  CHECK_FALSE(key.by_name("ci")->may_use("vercel"));
  CHECK_FALSE(key.by_name(""));
  // Neither goes anywhere.
  for (const std::string text : {"the first key of all", "x the-key-0123456789+/ y",
                                 "the-key-0123456789%2B%2F", "Basic dGhlLWtleS0wMTIzNDU2Nzg5Ky86"})
    CHECK(key.is_in(text));
  CHECK(key.is_in_address("/a/the-key-0123456789+/"));
  CHECK_FALSE(key.is_in("the-key-0123456789"));
  CHECK(key.seal("a") != key.seal("a", "ci"));
  CHECK(key.seal("a", "ci").size() == 32);
  CHECK(key.seal("a", "no").empty());
  const auto copy = key;
  key.replace("the first key of all");
  CHECK_FALSE(copy.named("the-key-0123456789+/"));
  CHECK_FALSE(copy.is_in("x the-key-0123456789+/ y"));
}

TEST_CASE("of many keys each is known in a text, long or short", "[http][auth]") {
  std::vector<insula::http::named_key> all;
  for (int i = 0; i < 300; ++i) {
    const auto number = std::to_string(i);
    all.push_back({"long" + number, "the-same-beginning-" + number + "-", {}, {}, {}});
    all.push_back({"short" + number, "k" + number, {}, {}, {}});
  }
  const key_check keys{"dev", all};
  for (const int i : {0, 7, 299}) {
    const auto number = std::to_string(i);
    for (const auto& text :
         {"x the-same-beginning-" + number + "-y", "the%2Dsame-beginning-" + number + "-",
          "a=k" + number + "; b", "Basic " + insula::base64("u:k" + number),
          "x" + insula::base64("uv:the-same-beginning-" + number + "-")}) {
      CAPTURE(text);
      CHECK(keys.is_in(text));
    }
    CHECK(keys.is_in_address("/the-same-beginning-" + number + "-"));
    CHECK_FALSE(keys.is_in_address("/k" + number));
  }
  CHECK(keys.is_in("dev"));
  for (const auto* text : {"", "k", "k300", "ak7", "the-same-beginning-", "the-same-beginning-300-",
                           "the-same-beginning-2", "Basic azMwMA==", "a longer text without one"})
    CHECK_FALSE(keys.is_in(text));
}
