#include "apps/find_login.hpp"
#include "storage/registry/reference.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <fstream>
#include <string>
#include <utility>

using namespace insula;
using namespace insula::test;
namespace registry = storage::registry;

namespace {

template <class T>
T value_of(result<T> made) {
  INFO((made ? "" : made.reason().message));
  REQUIRE(made);
  return std::move(*made);
}

/// What a file that says this has for the image.
result<registry::credentials::found> login_in(const std::string& json, const std::string& image) {
  const temp_dir where;
  const auto file = (where / "auth.json").string();
  std::ofstream{file} << json;
  return find_login({{"REGISTRY_AUTH_FILE", file}}, value_of(registry::parse_reference(image)));
}

} // namespace

TEST_CASE("another process finds the login for a registry", "[apps][login]") {
  const std::string json = R"({"auths": {
    "one.example": {"username": "me", "password": "secret"},
    "one.example/mine": {"username": "i", "password": "", "identitytoken": "a token"}},
    "credHelpers": {"two.example": "desktop"}})";
  const auto plain = value_of(login_in(json, "one.example/other/x:1"));
  CHECK(plain.who == registry::login{"me", "secret", {}});
  CHECK(plain.helper.empty());
  CHECK(value_of(login_in(json, "one.example/mine/x:1")).who ==
        registry::login{"i", "", "a token"});
  CHECK(value_of(login_in(json, "two.example/x:1")).helper == "desktop");
  CHECK(value_of(login_in(json, "three.example/x:1")).who.empty());
  CHECK(value_of(find_login({}, value_of(registry::parse_reference("one.example/x")))).who.empty());
}

TEST_CASE("a file of logins that cannot be read is told of by its name", "[apps][login]") {
  const auto wrong = login_in("{", "one.example/x");
  REQUIRE_FALSE(wrong);
  CHECK(wrong.reason().code == errc::invalid_request);
  CHECK(wrong.reason().message.find("auth.json: ") != std::string::npos);
  const auto none = find_login({{"REGISTRY_AUTH_FILE", "/nowhere/auth.json"}},
                               value_of(registry::parse_reference("one.example/x")));
  REQUIRE_FALSE(none);
  CHECK(none.reason().code == errc::io_failed);
  CHECK(none.reason().message.find("/nowhere/auth.json: ") != std::string::npos);
}

TEST_CASE("a login has a ceiling", "[apps][login]") {
  const auto of_size = [](std::size_t size) {
    return login_in(R"({"auths":{"one.example":{"username":"u","password":")" +
                      std::string(size, 'x') + R"("}}})",
                    "one.example/x");
  };
  CHECK(value_of(of_size((64u << 10) - 1)).who.password.size() == (64u << 10) - 1);
  const auto large = of_size(64u << 10);
  REQUIRE_FALSE(large);
  CHECK(large.reason().code == errc::payload_too_large);
}
