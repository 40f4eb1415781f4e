#include "base/base64.hpp"
#include "tests/support/catch.hpp"

#include <string>

using namespace insula;

TEST_CASE("base64 goes both ways", "[base64]") {
  for (std::size_t length = 0; length < 70; ++length) {
    std::string bytes;
    for (std::size_t i = 0; i < length; ++i)
      bytes += static_cast<char>(i * 37 + length);
    CHECK(from_base64(base64(bytes)) == bytes);
    CHECK(from_base64url(base64url(bytes)) == bytes);
  }
  CHECK(base64("f") == "Zg==");
  CHECK(base64("fo") == "Zm8=");
  CHECK(base64("\xfb\xff") == "+/8=");
}

TEST_CASE("bytes have one spelling in the alphabet for addresses", "[base64]") {
  for (const std::string bytes : {"", "f", "fo", "foo", "foob", "fooba", "foobar"})
    CHECK(from_base64url(base64url(bytes)) == bytes);
  CHECK(base64url("foob") == "Zm9vYg");
  CHECK(base64url("\xfb\xff") == "-_8");
  for (const std::string wrong : {"Z", "Zm9vY", "Zm9vYh", "Zm9v=", "Zm 9v", "Zm+v", "Zg=="})
    CHECK_FALSE(from_base64url(wrong));
}

TEST_CASE("bytes have one spelling in the usual alphabet", "[base64]") {
  CHECK(from_base64("") == "");
  CHECK(from_base64("Zg==") == "f");
  CHECK(from_base64("Zm8=") == "fo");
  CHECK(from_base64("Zm9v") == "foo");
  CHECK(from_base64("+/8=") == "\xfb\xff");
  CHECK(from_base64("AAAA") == std::string(3, '\0'));
  for (const std::string wrong : {"Z", "Zg", "Zg=", "Zg===", "====", "Zh==", "Zm9=", "Zm 9", "Zm-v",
                                  "Zg==Zg==", "=Zg=", "Zm9v\n"})
    CHECK_FALSE(from_base64(wrong));
}
