#include "http/text/percent.hpp"
#include "http/text/utf8.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <random>

using namespace insula::http;

namespace {

/// Random text: characters of every length, and now and then bytes that are none.
std::string random_bytes(std::mt19937& rng) {
  const std::string pieces[] = {"a",
                                "\xc3\xa4",
                                "\xe2\x82\xac",
                                "\xf0\x9f\x98\x80",
                                "\xed\x9f\xbf",
                                "\xf4\x8f\xbf\xbf",
                                "\x80",
                                "\xc0\xaf",
                                "\xe0\x80\x80",
                                "\xf5",
                                "\xed\xa0\x80",
                                "\xf0\x9f"};
  std::string text;
  for (unsigned n = rng() % 30; n > 0; --n)
    text += pieces[rng() % 12];
  return text;
}

/// Whether a cut at `position` goes through a character.
bool splits_character(std::string_view text, std::size_t position) {
  for (std::size_t at = 0; at < position;) {
    const auto n = utf8_character(text.substr(at));
    if (at + n > position)
      return true;
    at += std::max<std::size_t>(n, 1);
  }
  return false;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto n = utf8_character(text);
    if (n == 0)
      return false;
    text.remove_prefix(n);
  }
  return true;
}

} // namespace

TEST_CASE("pieces never end inside a character that may become valid, and nothing is lost",
          "[http][utf8][property]") {
  const auto seed = GENERATE(take(500, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  const auto text = random_bytes(rng);
  utf8_holdback holdback;
  std::string passed;
  for (std::size_t at = 0; at < text.size();) {
    const auto size = std::min<std::size_t>(1 + rng() % 5, text.size() - at);
    const auto piece = holdback.feed(text.substr(at, size));
    at += size;
    passed += piece;
    CHECK_FALSE(splits_character(text, passed.size()));
    CHECK(at - passed.size() <= 3);
  }
  passed += holdback.flush();
  CHECK(passed == text);
}

TEST_CASE("valid text cut anywhere decodes piece by piece", "[http][utf8][property]") {
  const std::string text = "gr\xc3\xbc\xc3\x9f "
                           "\xe2\x82\xac\xf0\x9f\x98\x80!";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    utf8_holdback holdback;
    CHECK(is_utf8(holdback.feed(text.substr(0, cut))));
    CHECK(is_utf8(holdback.feed(text.substr(cut))));
    CHECK(holdback.flush().empty());
  }
}

TEST_CASE("an incomplete character waits until it is complete or turns out to be none",
          "[http][utf8]") {
  utf8_holdback holdback;
  CHECK(holdback.feed("a\xe2\x82") == "a");
  CHECK(holdback.feed("\xac") == "\xe2\x82\xac");
  CHECK(holdback.feed("\xe2\x82").empty());
  CHECK(holdback.feed("x") == "\xe2\x82x");
  CHECK(holdback.feed("\xf0\x9f\x98").empty());
  CHECK(holdback.flush() == "\xf0\x9f\x98");
  CHECK(holdback.feed("\xff") == "\xff");
}

TEST_CASE("bytes that are no UTF-8 are replaced in texts for people", "[http][utf8]") {
  CHECK(to_utf8("a\xff"
                "b") == "a\xef\xbf\xbd"
                        "b");
  CHECK(to_utf8("\xc3\xa4") == "\xc3\xa4");
  CHECK(to_utf8("\xe2\x82") == "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_CASE("escapes are decoded once, and what is none stays", "[http][percent]") {
  CHECK(percent_decode("a%23b") == "a#b");
  CHECK(percent_decode("%2525") == "%25");
  CHECK(percent_decode("a+b") == "a+b");
  CHECK(percent_decode("%c3%A4") == "\xc3\xa4");
  CHECK(percent_decode("%zz") == "%zz");
  CHECK(percent_decode("%") == "%");
  CHECK(percent_decode("a%2") == "a%2");
  CHECK(percent_decode("%ff") == "%ff");
  CHECK(percent_decode("%c3") == "%c3");
  CHECK(percent_decode("%c3%41") == "%c3A");
  CHECK(percent_decode("%00") == std::string(1, '\0'));
  CHECK(percent_decode("%F0%9F%98%80") == "\xf0\x9f\x98\x80");
}
