#include "base/secret_box.hpp"
#include "tests/support/catch.hpp"

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace insula;

namespace {

const std::string first_key(32, 'k'), other_key(32, 'o');

secret_box box_of(const std::string& key) {
  auto box = secret_box::from_key(key);
  REQUIRE(box);
  return std::move(*box);
}

std::string sealed_by(const secret_box& box, std::string_view plain, std::string_view purpose) {
  auto sealed = box.seal(plain, purpose);
  REQUIRE(sealed);
  return *sealed;
}

} // namespace

TEST_CASE("what is sealed opens again, for its purpose and with its key alone", "[secrets]") {
  const auto box = box_of(first_key);
  const auto plain = GENERATE(std::string{}, std::string{"a word"}, std::string("\0\xff\n", 3),
                              std::string(secret_box::most_bytes, 'x'));
  const auto sealed = sealed_by(box, plain, "purpose");
  CHECK(sealed.front() == '1');
  const auto opened = box.open(sealed, "purpose");
  REQUIRE(opened);
  CHECK((*opened == plain)); // In parentheses: a large one is not shown.
  CHECK(*box_of(first_key).open(sealed, "purpose") == plain);
  for (const auto* other : {"", "purpos", "purpose ", "another"}) {
    CAPTURE(other);
    const auto refused = box.open(sealed, other);
    REQUIRE_FALSE(refused);
    CHECK(refused.reason().code == errc::io_failed);
  }
  CHECK_FALSE(box_of(other_key).open(sealed, "purpose"));
}

TEST_CASE("a sealed text that was changed anywhere does not open", "[secrets]") {
  const auto box = box_of(first_key);
  const std::string plain = "the-secret-itself";
  const auto sealed = sealed_by(box, plain, "p");
  for (std::size_t at = 0; at < sealed.size(); ++at)
    for (const int bit : {1, 2, 4, 8, 16, 32, 64, 128}) {
      auto changed = sealed;
      changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ bit);
      CAPTURE(at, bit);
      const auto refused = box.open(changed, "p");
      REQUIRE_FALSE(refused);
      CHECK(refused.reason().message.find(plain) == std::string::npos);
      CHECK(refused.reason().message.find(sealed) == std::string::npos);
    }
  for (std::size_t size = 0; size < sealed.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(box.open(sealed.substr(0, size), "p"));
    CHECK_FALSE(box.open(sealed.substr(size + 1), "p"));
  }
  for (const auto& longer : {sealed + "A", sealed + "AAAA", sealed + "=", "1" + sealed})
    CHECK_FALSE(box.open(longer, "p"));
  CHECK_FALSE(box.open(std::string(10u << 20, '1'), "p"));
}

TEST_CASE("of one text no two seals are the same", "[secrets]") {
  const auto box = box_of(first_key);
  std::set<std::string> seals;
  for (int i = 0; i < 1000; ++i)
    seals.insert(sealed_by(box, "text", "p").substr(0, 17)); // The nonce.
  CHECK(seals.size() == 1000);
}

TEST_CASE("what is too large is refused before it is sealed", "[secrets]") {
  const auto refused = box_of(first_key).seal(std::string(secret_box::most_bytes + 1, 'x'), "p");
  REQUIRE_FALSE(refused);
  CHECK(refused.reason().code == errc::limit_reached);
}

TEST_CASE("a key of another length is none", "[secrets]") {
  for (const std::size_t size : {0, 16, 31, 33, 64})
    CHECK(secret_box::from_key(std::string(size, 'k')).reason().code == errc::invalid_request);
}

TEST_CASE("an id tells keys apart, and is the same for the same key", "[secrets]") {
  const auto box = box_of(first_key);
  CHECK(box.key_id().size() == 16);
  CHECK(box.key_id().find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(box.key_id() == box_of(first_key).key_id());
  CHECK(box.key_id() != box_of(other_key).key_id());
}

TEST_CASE("many threads use one box", "[secrets]") {
  const auto box = box_of(first_key);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> all;
  for (int i = 0; i < 8; ++i)
    all.emplace_back([&, plain = std::to_string(i)] {
      for (int n = 0; n < 500; ++n) {
        const auto sealed = box.seal(plain, plain);
        const auto opened = sealed ? box.open(*sealed, plain) : sealed;
        wrong += !opened || *opened != plain || box.open(*sealed, "other");
      }
    });
  for (auto& each : all)
    each.join();
  CHECK(wrong == 0);
}
