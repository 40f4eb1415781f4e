#include "apps/room_settings.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace insula;
using namespace std::chrono_literals;

namespace {

constexpr int all_seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

image_room::settings some_settings() {
  image_room::settings how;
  how.state_directory = "/var/lib/somewhere else";
  how.trusted.all = {{"-----BEGIN CERTIFICATE-----\nAA==\n", "0a1b2c3d"}, {"second\n", "ffffffff"}};
  how.policy.pull = image_pull::always;
  how.policy.allow = {"docker.io/library/*", std::string{"a\0b", 3}, ""};
  how.policy.insecure = {"127.0.0.1:5000"};
  how.policy.auth_file = "/etc/auth.json";
  how.policy.max_bytes = 123'456'789'012;
  how.policy.keep_unused = 7h;
  how.least = log::level::error;
  return how;
}

void check_same(const image_room::settings& got, const image_room::settings& wanted) {
  CHECK(got.state_directory == wanted.state_directory);
  REQUIRE(got.trusted.all.size() == wanted.trusted.all.size());
  for (std::size_t i = 0; i < wanted.trusted.all.size(); ++i) {
    CHECK(got.trusted.all[i].pem == wanted.trusted.all[i].pem);
    CHECK(got.trusted.all[i].hash == wanted.trusted.all[i].hash);
  }
  CHECK(got.policy == wanted.policy);
  CHECK(got.least == wanted.least);
}

std::string bytes_of(const unique_fd& file) {
  struct stat info {};
  REQUIRE(::fstat(file.get(), &info) == 0);
  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  REQUIRE(::pread(file.get(), bytes.data(), bytes.size(), 0) == info.st_size);
  return bytes;
}

unique_fd file_of(std::string_view bytes, int seals = all_seals) {
  unique_fd file{::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  REQUIRE(::write(file.get(), bytes.data(), bytes.size()) == std::ssize(bytes));
  REQUIRE(::fcntl(file.get(), F_ADD_SEALS, seals) == 0);
  return file;
}

errc refusal_of(const unique_fd& file) {
  const auto read = read_room_settings(file.get());
  REQUIRE_FALSE(read);
  CHECK(read.reason().message.find("brings images") != std::string::npos);
  return read.reason().code;
}

} // namespace

TEST_CASE("the settings of an image room come over as they are", "[apps][room]") {
  for (const auto& wanted : {some_settings(), image_room::settings{}}) {
    const auto kept = keep_room_settings(wanted);
    REQUIRE(kept);
    const auto read = read_room_settings(kept->get());
    REQUIRE(read);
    check_same(*read, wanted);
  }
  INFO("also a bundle of certificates of several hundred KiB");
  auto large = some_settings();
  for (int i = 0; i < 100; ++i)
    large.trusted.all.push_back({std::string(40'000, 'x'), "00000000"});
  const auto kept = keep_room_settings(large);
  REQUIRE(kept);
  const auto read = read_room_settings(kept->get());
  REQUIRE(read);
  check_same(*read, large);
}

TEST_CASE("settings of an image room cannot be changed once they are kept", "[apps][room]") {
  const auto kept = keep_room_settings(some_settings());
  REQUIRE(kept);
  CHECK(::pwrite(kept->get(), "x", 1, 0) < 0);
  CHECK(::ftruncate(kept->get(), 1) != 0);
  const auto bytes = bytes_of(*kept);
  CHECK(read_room_settings(file_of(bytes).get()));
  for (const int seals : {0, F_SEAL_SEAL, all_seals & ~F_SEAL_WRITE, all_seals & ~F_SEAL_SHRINK})
    CHECK(refusal_of(file_of(bytes, seals)) == errc::invalid_request);
}

TEST_CASE("bytes that are no settings of an image room are refused", "[apps][room]") {
  const auto kept = keep_room_settings(some_settings());
  REQUIRE(kept);
  const auto good = bytes_of(*kept);
  INFO("cut off anywhere, or with more behind it");
  for (std::size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    CHECK(refusal_of(file_of(good.substr(0, size))) == errc::invalid_request);
  }
  CHECK(refusal_of(file_of(good + '\0')) == errc::invalid_request);
  CHECK(refusal_of(file_of(std::string(good.size(), '\xff'))) == errc::invalid_request);

  INFO("lengths that reach beyond the end, whatever they add up to");
  for (const std::uint64_t size :
       {std::uint64_t{good.size()}, std::uint64_t{1} << 32, ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    auto bad = good;
    bad.replace(0, sizeof size, reinterpret_cast<const char*>(&size), sizeof size);
    CHECK(refusal_of(file_of(bad)) == errc::invalid_request);
  }
  INFO("a choice that there is not");
  const std::uint64_t no_level = 4;
  CHECK(refusal_of(file_of(good.substr(0, good.size() - sizeof no_level) +
                           std::string{reinterpret_cast<const char*>(&no_level),
                                       sizeof no_level})) == errc::invalid_request);

  INFO("other files, and none");
  const unique_fd other{::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
  CHECK(refusal_of(other) == errc::invalid_request);
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const unique_fd from{ends[0]}, to{ends[1]};
  CHECK(refusal_of(from) == errc::invalid_request);
  CHECK(refusal_of(unique_fd{}) == errc::io_failed);
}

TEST_CASE("settings of an image room have a ceiling", "[apps][room]") {
  auto large = some_settings();
  large.policy.allow.push_back(std::string(most_room_settings_bytes, 'x'));
  const auto kept = keep_room_settings(large);
  REQUIRE_FALSE(kept);
  CHECK(kept.reason().code == errc::payload_too_large);
  CHECK(kept.reason().message.find("8 MiB") != std::string::npos);
  CHECK(refusal_of(file_of(std::string(most_room_settings_bytes + 1, 'x'))) ==
        errc::payload_too_large);
}
