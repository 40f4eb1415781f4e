#include "tests/support/blob_places.hpp"
#include "tests/support/catch.hpp"

#include <arpa/inet.h>
#include <atomic>
#include <fstream>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

using namespace insula;
using namespace insula::storage;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

error reason_of(const result<std::string>& outcome) {
  REQUIRE_FALSE(outcome);
  return outcome.reason();
}

} // namespace

TEST_CASE("a directory has nothing but whole blobs, for its owner alone", "[blobs]") {
  namespace fs = std::filesystem;
  directory_place place;
  REQUIRE(place.store->put("a/b", "content"));
  std::ifstream file{place.where / "a/b"};
  CHECK(std::string{std::istreambuf_iterator<char>{file}, {}} == "content");
  CHECK((fs::status(place.where / "a/b").permissions() & fs::perms::others_all) == fs::perms::none);
  CHECK(fs::is_empty(place.where / ".incoming"));
}

TEST_CASE("what an interrupted writer has left goes after a day", "[blobs]") {
  namespace fs = std::filesystem;
  const temp_dir where;
  fs::create_directory(where / ".incoming");
  std::ofstream{where / ".incoming/old"} << "x";
  std::ofstream{where / ".incoming/new"} << "x";
  fs::last_write_time(where / ".incoming/old", fs::file_time_type::clock::now() - 25h);
  const directory_blobs store{open_directory(where.path().string()), "there"};
  CHECK_FALSE(fs::exists(where / ".incoming/old"));
  CHECK(fs::exists(where / ".incoming/new"));
}

TEST_CASE("a directory of blobs goes with the last of them", "[blobs]") {
  namespace fs = std::filesystem;
  directory_place place;
  REQUIRE(place.store->put("a/b/one", "x"));
  REQUIRE(place.store->put("a/two", "x"));
  REQUIRE(place.store->remove("a/b/one"));
  CHECK_FALSE(fs::exists(place.where / "a/b"));
  CHECK(*place.store->get("a/two", 10) == "x");
  REQUIRE(place.store->remove("a/two"));
  CHECK_FALSE(fs::exists(place.where / "a"));
  CHECK(fs::exists(place.where.path()));
}

TEST_CASE("whoever puts a blob does so, though others remove the last one there", "[blobs]") {
  directory_place place;
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (char letter = 'a'; letter < 'd'; ++letter)
    threads.emplace_back([&, name = std::string{"deep/er/"} + letter] {
      for (int i = 0; i < 100; ++i) {
        const bool good = place.store->put(name, "x") && place.store->get(name, 1) &&
                          place.store->list("", [](const blob_info&) { return true; }) &&
                          place.store->remove(name);
        failed += good ? 0 : 1;
      }
    });
  for (auto& each : threads)
    each.join();
  CHECK(failed == 0);
}

TEST_CASE("no symlink leads out of a directory of blobs", "[blobs]") {
  namespace fs = std::filesystem;
  const temp_dir outside;
  std::ofstream{outside / "secret"} << "x";
  directory_place place;
  fs::create_directory_symlink(outside.path(), place.where / "link");
  fs::create_symlink(outside / "secret", place.where / "file");
  CHECK(reason_of(place.store->get("link/secret", 10)).code == errc::store_failed);
  CHECK_FALSE(place.store->get("file", 10));
  CHECK_FALSE(place.store->put("link/new", "x"));
  CHECK_FALSE(fs::exists(outside / "new"));
  int told = 0;
  CHECK(place.store->list("", [&](const blob_info&) { return ++told > 0; }));
  CHECK(told == 0);
}

TEST_CASE("a service that refuses is quoted, without secrets", "[blobs]") {
  s3_server server;
  auto settings = settings_for(server);
  settings.credentials.secret_access_key = "another-secret-of-mine";
  s3_blobs wrong{settings};
  const auto why = reason_of(wrong.get("a", 10));
  CAPTURE(why.message);
  CHECK(why.code == errc::store_failed);
  CHECK(why.message.find("SignatureDoesNotMatch") != std::string::npos);
  CHECK(why.message.find("another-secret") == std::string::npos);
  CHECK(why.message.find(s3_server::secret) == std::string::npos);

  settings = settings_for(server);
  settings.bucket = "nowhere";
  s3_blobs elsewhere{settings};
  const auto missing = reason_of(elsewhere.get("a", 10));
  CAPTURE(missing.message);
  CHECK(missing.code == errc::store_failed); // And no blob that is not there.
  CHECK(missing.message.find("NoSuchBucket") != std::string::npos);
}

TEST_CASE("a service that is gone is told within limits of time, and found again", "[blobs]") {
  s3_place place;
  REQUIRE(place.store->put("a", "x"));
  place.server.kill();
  const auto why = reason_of(place.store->get("a", 10));
  CHECK(why.code == errc::store_failed);
  CHECK(why.message.find(place.server.endpoint()) != std::string::npos);
  place.server.start();
  CHECK(*place.store->get("a", 10) == "x");
}

TEST_CASE("a service that does not answer is given up, and by a close at once", "[blobs]") {
  s3_server server;
  auto settings = settings_for(server);
  settings.silence_patience = 1s;
  settings.tries = 2;
  s3_blobs store{settings};
  REQUIRE(store.put("a", "x"));
  server.stop();
  CHECK(reason_of(store.get("a", 10)).code == errc::store_failed);

  server.resume();
}

TEST_CASE("a close ends what waits for a service", "[blobs]") {
  const unique_fd listening{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* const address = reinterpret_cast<sockaddr*>(&at);
  REQUIRE(::bind(listening.get(), address, size) == 0);
  REQUIRE(::listen(listening.get(), 1) == 0);
  REQUIRE(::getsockname(listening.get(), address, &size) == 0);
  s3_settings settings;
  settings.endpoint = "http://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  settings.bucket = "data";
  settings.credentials = {"key", "secret"};
  settings.silence_patience = 600s;
  settings.request_patience = 600s;
  s3_blobs store{settings};
  unique_fd connection;
  std::thread closer{[&] {
    connection.reset(::accept(listening.get(), nullptr, nullptr)); // And no answer.
    store.close();
  }};
  CHECK(reason_of(store.get("a", 10)).code == errc::sandbox_not_running);
  closer.join();
}
