#include "http/api/wrong_key_log.hpp"

#include "base/limits.hpp"
#include "tests/support/catch.hpp"

#include <string>

using namespace insula;
using namespace insula::http;
using std::chrono::milliseconds;

namespace {

const wrong_key_log::time_point then{std::chrono::hours{1000}};

} // namespace

TEST_CASE("wrong keys of one network have a line a minute, which counts those without",
          "[http][wrong_keys]") {
  wrong_key_log keys;
  CHECK(keys.take_line("192.0.2.1", then).granted);
  for (int i = 0; i < 1000; ++i)
    CHECK_FALSE(keys.take_line("192.0.2.1", then + milliseconds{i}).granted);
  const auto other = keys.take_line("2001:db8::", then + milliseconds{1000});
  CHECK(other.granted);
  CHECK(other.left_out == 1000);
  CHECK_FALSE(
    keys.take_line("192.0.2.1", then + limits::wrong_keys_within - milliseconds{1}).granted);
  const auto later = keys.take_line("192.0.2.1", then + limits::wrong_keys_within);
  CHECK(later.granted);
  CHECK(later.left_out == 1);
  CHECK_FALSE(keys.take_line("2001:db8::", then + limits::wrong_keys_within).granted);
  CHECK(keys.take_line("2001:db8::", then + 2 * limits::wrong_keys_within).granted);
}

TEST_CASE("wrong keys of however many networks have so many lines of the log",
          "[http][wrong_keys]") {
  wrong_key_log keys;
  for (std::size_t i = 0; i < limits::wrong_key_lines; ++i) {
    const auto line = keys.take_line(std::to_string(i), then + milliseconds{i});
    CHECK(line.granted);
    CHECK(line.left_out == 0);
  }
  for (std::size_t i = 0; i < 3 * limits::wrong_networks; ++i)
    CHECK_FALSE(
      keys.take_line("another " + std::to_string(i), then + milliseconds{1000 + i}).granted);
  const auto later = keys.take_line("0", then + limits::wrong_keys_within);
  CHECK(later.granted);
  CHECK(later.left_out == 3 * limits::wrong_networks);
  CHECK(keys.take_line("1 more", then + limits::wrong_keys_within).left_out == 0);
}
