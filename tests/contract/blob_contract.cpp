// What every blob store promises. A new one is done when it passes this file.
#include "base/limits.hpp"
#include "tests/support/blob_places.hpp"
#include "tests/support/catch.hpp"

#include <chrono>
#include <map>
#include <thread>

using namespace insula;
using namespace insula::storage;
using namespace insula::test;

namespace {

std::map<std::string, blob_info> list_of(blob_store& store, const std::string& prefix = {}) {
  std::map<std::string, blob_info> all;
  const auto listed = store.list(prefix, [&](const blob_info& each) {
    CHECK(all.emplace(each.name, each).second);
    return true;
  });
  if (!listed)
    FAIL(listed.reason().message);
  return all;
}

std::string get(blob_store& store, const std::string& name) {
  auto got = store.get(name, limits::blob_bytes);
  if (!got)
    FAIL(got.reason().message);
  return *got;
}

void put(blob_store& store, const std::string& name, std::string_view bytes) {
  const auto done = store.put(name, bytes);
  if (!done)
    FAIL(done.reason().message);
}

template <class Outcome>
errc code_of(const Outcome& outcome) {
  REQUIRE_FALSE(outcome);
  return outcome.reason().code;
}

std::string all_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<char>(i * 7 + i / 256);
  return bytes;
}

} // namespace

TEMPLATE_TEST_CASE("blobs come back byte for byte, and the later one counts", "[blobs][contract]",
                   directory_place, s3_place) {
  TestType place;
  auto& store = *place.store;
  for (const std::size_t size : {0ul, 1ul, 255ul, 70'000ul, 5ul << 20}) {
    CAPTURE(size);
    const auto bytes = all_bytes(size);
    put(store, "a/b-1/c.d_e=f", bytes);
    CHECK((get(store, "a/b-1/c.d_e=f") == bytes));
  }
  put(store, "a/b-1/c.d_e=f", "later");
  CHECK(get(store, "a/b-1/c.d_e=f") == "later");
  CHECK(*store.exists("a/b-1/c.d_e=f"));
  REQUIRE(store.remove("a/b-1/c.d_e=f"));
  CHECK_FALSE(*store.exists("a/b-1/c.d_e=f"));
  CHECK(code_of(store.get("a/b-1/c.d_e=f", 100)) == errc::not_found);
  CHECK(store.remove("a/b-1/c.d_e=f"));
  CHECK(store.remove("never/there"));
  CHECK_FALSE(*store.exists("never/there"));
}

TEMPLATE_TEST_CASE("a blob that is larger than expected is not read", "[blobs][contract]",
                   directory_place, s3_place) {
  TestType place;
  put(*place.store, "ten", "0123456789");
  CHECK(place.store->get("ten", 10));
  CHECK(code_of(place.store->get("ten", 9)) == errc::payload_too_large);
  CHECK(code_of(place.store->put("large", std::string(limits::blob_bytes + 1, 'x'))) ==
        errc::invalid_request);
}

TEMPLATE_TEST_CASE("names that are none are refused", "[blobs][contract]", directory_place,
                   s3_place) {
  TestType place;
  auto& store = *place.store;
  for (const std::string name : {"", "/", "a/", "/a", "a//b", ".", "..", "a/../b", "a/.b",
                                 ".incoming/x", "a b", "a?b", "a%2f", "\xc3\xa4", "a\n"}) {
    CAPTURE(name);
    CHECK(code_of(store.put(name, "x")) == errc::invalid_request);
    CHECK(code_of(store.get(name, 1)) == errc::invalid_request);
    CHECK(code_of(store.exists(name)) == errc::invalid_request);
    CHECK(code_of(store.remove(name)) == errc::invalid_request);
  }
  CHECK(code_of(store.put(std::string(blob_store::max_name_bytes + 1, 'a'), "x")) ==
        errc::invalid_request);
}

TEMPLATE_TEST_CASE("lists tell of what begins like that, with sizes and dates", "[blobs][contract]",
                   directory_place, s3_place) {
  TestType place;
  auto& store = *place.store;
  CHECK(list_of(store).empty());
  for (const std::string name : {"one/a", "one/b/c", "one/bb", "on", "two/a"})
    put(store, name, name);
  CHECK(list_of(store).size() == 5);
  const auto below = list_of(store, "one/");
  REQUIRE(below.size() == 3);
  CHECK(below.at("one/b/c").bytes == 7);
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count();
  CHECK(below.at("one/a").modified_ms > now - 600'000);
  CHECK(below.at("one/a").modified_ms < now + 600'000);
  CHECK(list_of(store, "one/b").size() == 2);
  CHECK(list_of(store, "on").size() == 4);
  CHECK(list_of(store, "three/").empty());
  int told = 0;
  CHECK(store.list("", [&](const blob_info&) { return ++told < 2; }));
  CHECK(told == 2);
}

TEMPLATE_TEST_CASE("many blobs are all in the list", "[blobs][contract]", directory_place,
                   s3_place) {
  TestType place;
  constexpr int many = 1'100; // More than one answer of S3 has.
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int n = i; n < many; n += 4)
        static_cast<void>(place.store->put("many/" + std::to_string(n), "x"));
    });
  for (auto& each : threads)
    each.join();
  CHECK(list_of(*place.store, "many/").size() == many);
}

// Of a service that is somebody else's the like cannot be promised; what snapshots write under one
// name is always the same.
TEST_CASE("of several who write one blob one wins whole", "[blobs]") {
  directory_place place;
  std::vector<std::thread> threads;
  for (char letter = 'a'; letter < 'e'; ++letter)
    threads.emplace_back([&, letter] {
      for (int i = 0; i < 10; ++i)
        static_cast<void>(place.store->put("dir/same", std::string(100'000, letter)));
    });
  for (int i = 0; i < 20; ++i)
    if (const auto seen = place.store->get("dir/same", limits::blob_bytes))
      CHECK((*seen == std::string(100'000, seen->front())));
  for (auto& each : threads)
    each.join();
  const auto last = get(*place.store, "dir/same");
  CHECK((last == std::string(100'000, last.front())));
}

TEMPLATE_TEST_CASE("a store that is closed refuses", "[blobs][contract]", directory_place,
                   s3_place) {
  TestType place;
  put(*place.store, "a", "x");
  place.store->close();
  CHECK(code_of(place.store->put("a", "y")) == errc::sandbox_not_running);
  CHECK(code_of(place.store->get("a", 1)) == errc::sandbox_not_running);
  CHECK(code_of(place.store->list("", [](const blob_info&) { return true; })) ==
        errc::sandbox_not_running);
}
