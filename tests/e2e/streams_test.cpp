#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <array>
#include <openssl/evp.h>

using namespace insula::test;

namespace {

constexpr std::uint64_t MiB = 1u << 20;

class sha256 {
public:
  sha256() { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  std::string hex() {
    std::array<unsigned char, 32> digest{};
    EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr);
    std::string text;
    for (const auto byte : digest)
      text.append({"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]});
    return text;
  }

private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_{EVP_MD_CTX_new(),
                                                                   &EVP_MD_CTX_free};
};

/// Returns once process `pid` of the sandbox has moved nothing for a while: it stands in a write.
const std::string until_blocked = R"(
  last=; for ((i = 0; i < 150; ++i)); do
    now=$(grep wchar /proc/$pid/io); [ "$now" = "$last" ] && break; last=$now; sleep 0.3
  done; [ "$now" = "$last" ] && echo blocked)";

} // namespace

TEST_CASE("output of 64 MiB arrives whole, and the server does not grow with it", "[streams]") {
  const node it;
  REQUIRE(it.sh("a", "true").exit_code == 0);
  const auto before = resident_bytes(it.pid());
  auto stream = it.open(
    "a", {"bash", "-c", "head -c 67108864 /dev/urandom > big; sha256sum < big >&2; cat big"});
  sha256 hash;
  std::uint64_t bytes = 0, most = before;
  std::string said;
  std::optional<exec_event> last;
  while (auto event = stream.next()) {
    if (event->name == "stdout") {
      hash.add(event->data);
      if ((bytes / MiB) != ((bytes + event->data.size()) / MiB))
        most = std::max(most, resident_bytes(it.pid()));
      bytes += event->data.size();
    } else if (event->name == "stderr") {
      said += event->data;
    }
    last = std::move(event);
  }
  CHECK(stream.connection().whole());
  CHECK(bytes == 64 * MiB);
  CHECK(said.substr(0, 64) == hash.hex());
  CHECK(last == exec_event{"exit", R"({"exit_code":0})"});
  CHECK(most < before + 32 * MiB);
}

TEST_CASE("a reader that stands still holds the command up, not the server's memory", "[streams]") {
  const node it{"sandbox: {limits: {log: 4MiB}}"};
  REQUIRE(it.sh("a", "true").exit_code == 0);
  const auto before = resident_bytes(it.pid());
  auto stream = it.open("a", {"bash", "-c", "echo $$ > pid; exec yes"});
  auto event = stream.next();
  REQUIRE(event);
  CHECK(it.sh("a", "pid=$(cat pid)" + until_blocked).out == "blocked\n");
  CHECK(resident_bytes(it.pid()) < before + 32 * MiB);
  CHECK(it.ask("GET", "/health").status == 200);
  // It goes on where it stood, and nothing is missing or twice: far more than any buffer between
  // could hold.
  std::uint64_t bytes = 0;
  bool right = true;
  for (; event && bytes < 48 * MiB; event = stream.next()) {
    for (std::size_t i = 0; i < event->data.size(); ++i)
      right = right && event->data[i] == ((bytes + i) % 2 == 0 ? 'y' : '\n');
    bytes += event->data.size();
  }
  CHECK(right);
  CHECK(bytes >= 48 * MiB);
  CHECK(resident_bytes(it.pid()) < before + 32 * MiB);
  CHECK(it.remove("a") == 204);
}

TEST_CASE("twenty clients that hang up in the middle stop none of their commands", "[streams]") {
  const node it;
  REQUIRE(it.sh("a", "mkdir done; mkfifo gate").exit_code == 0);
  at_once(20, [&](std::size_t i) {
    const auto n = std::to_string(i);
    // After the client has gone it prints more than any pipe holds, and must neither stand still
    // nor get EPIPE.
    auto stream = it.open(
      "a", {"bash", "-c",
            "trap '' PIPE; echo up; read x < gate; head -c 3000000 /dev/zero && touch done/" + n});
    if (stream.next() != exec_event{"stdout", "up\n"})
      throw std::runtime_error("it did not come up");
    if (i % 2 == 0)
      stream.connection().abandon();
    else
      stream.connection().close();
    return true;
  });
  const auto all = it.sh("a",
                         "exec 3<>gate; while [ $(ls done | wc -l) -lt 20 ]; do echo >&3; sleep "
                         "0.05; done; ls done | wc -l",
                         ",\"timeout_ms\":20000");
  CHECK(all.out == "20\n");
  // They were in no one's way, and leave nothing behind.
  CHECK(it.sh("a",
              "while [ $(ps -e --no-headers | grep -c -w -e head -e bash) -gt 2 ]; do sleep 0.05; "
              "done; echo quiet",
              ",\"timeout_ms\":20000")
          .out == "quiet\n");
}

TEST_CASE("a client that leaves before its sandbox has started disturbs nobody", "[streams]") {
  const node it;
  for (int i = 0; i < 10; ++i) {
    http_connection one{it.port()};
    one.send(
      http_request("POST", "/v1/sandbox/a/exec", exec_body({"sh", "-c", "echo x >> marks"})));
    one.abandon();
  }
  CHECK(it.sh("a", "echo fine").out == "fine\n");
  CHECK(it.ask("GET", "/health").status == 200);
}
