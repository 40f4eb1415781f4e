#include "base/limits.hpp"
#include "base/tree_frames.hpp"
#include "http/bridge/archives.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

#include <sys/socket.h>
#include <unistd.h>

using namespace insula;
using namespace insula::test;

namespace {

const std::string persist = "/v1/sandbox/abc/persist";
const std::string hydrate = "/v1/sandbox/abc/hydrate";
const std::string empty_archive(1024, '\0');

void put(int fd, const void* data, std::size_t count) {
  const auto* at = static_cast<const char*>(data);
  while (count > 0) {
    const auto n = ::send(fd, at, count, MSG_NOSIGNAL);
    if (n <= 0)
      return;
    at += n;
    count -= static_cast<std::size_t>(n);
  }
}

void put_result(int fd, int exit_code, std::string_view text = {}) {
  const tree_result result{exit_code, static_cast<std::uint32_t>(text.size())};
  put(fd, &result, sizeof result);
  put(fd, text.data(), text.size());
}

void put_entry(int fd, entry_kind kind, std::string_view name, std::string_view content = {}) {
  entry_head head{};
  head.kind = kind;
  head.mode = 0644;
  head.size = content.size();
  head.name_bytes = static_cast<std::uint32_t>(name.size());
  put(fd, &head, sizeof head);
  put(fd, name.data(), name.size());
  put(fd, content.data(), content.size());
}

/// Until the other side has sent `mark` bytes of an `end`, or has gone. True: it was the whole.
bool drain(int fd) {
  std::string all;
  char buffer[4096];
  for (;;) {
    const auto n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0)
      return false;
    all.append(buffer, static_cast<std::size_t>(n));
    const entry_head end{};
    if (all.size() >= sizeof end &&
        all.compare(all.size() - sizeof end, sizeof end,
                    std::string{reinterpret_cast<const char*>(&end), sizeof end}) == 0)
      return true;
  }
}

void check_error(const answer& got, int status, const std::string& message,
                 const std::string& code) {
  CHECK(got.status == status);
  CHECK(got.body == "{\"error\":\"" + message + "\",\"code\":\"" + code + "\"}");
}

std::vector<std::string> excludes(std::string_view query) {
  const auto got = http::bridge::read_excludes(query);
  REQUIRE(got);
  return *got;
}

} // namespace

TEST_CASE("excludes are read as a form's value", "[archives]") {
  using list = std::vector<std::string>;
  CHECK(excludes("").empty());
  CHECK(excludes("excludes=").empty());
  CHECK(excludes("excludes").empty());
  CHECK(excludes("root=/etc&excludes=a&excludes=b") == list{"./a"});
  CHECK(excludes("excludes=a,b%2Cc,,d") == list{"./a", "./b", "./c", "./d"});
  CHECK(excludes("excludes=a+b%20c") == list{"./a b c"});
  CHECK(excludes("excludes=./a,././b,.") == list{"./a", "././b", "./."});
  CHECK(excludes("%65xcludes=node_modules/,*.o") == list{"./node_modules/", "./*.o"});
  CHECK(excludes("excludes=--checkpoint-action%3Dexec") == list{"./--checkpoint-action=exec"});
  for (const auto* bad : {"excludes=..", "excludes=a..b", "excludes=ok,../x", "excludes=%2e%2e"}) {
    const auto got = http::bridge::read_excludes(bad);
    REQUIRE_FALSE(got);
    CHECK(got.reason().message == "exclude paths must not contain \"..\"");
  }
  CHECK_FALSE(http::bridge::read_excludes("excludes=a%00b"));
}

TEST_CASE("a workspace comes as an archive", "[archives]") {
  house h;
  h.plays().file = [](int fd) {
    put_result(fd, 0);
    put_entry(fd, entry_kind::directory, ".");
    put_entry(fd, entry_kind::file, "a", std::string(1'000'000, 'a'));
    put_entry(fd, entry_kind::end, "");
  };
  const auto got =
    ask(h.port(), "POST", persist + "?excludes=x,y", "ignored", "Session-Id: not/a/session\r\n");
  CHECK(got.status == 200);
  CHECK(got.fields.at("content-type") == "application/octet-stream");
  CHECK(got.complete);
  CHECK(got.body.size() > 1'000'000);
  CHECK(got.body.size() % 512 == 0);
  CHECK(h.heard().has("read_tree /workspace without ./x without ./y"));
}

TEST_CASE("a workspace that cannot be read is an answer, not a broken stream", "[archives]") {
  house h;
  h.plays().file = [](int fd) { put_result(fd, 2, "tar: ./x: Cannot open: Permission denied"); };
  check_error(ask(h.port(), "POST", persist), 502,
              "tar failed (exit 2): tar: ./x: Cannot open: Permission denied",
              "workspace_archive_read_error");
  check_error(ask(h.port(), "POST", persist + "?excludes=../x"), 400,
              "exclude paths must not contain \\\"..\\\"", "invalid_request");
  h.plays().file = [](int) {};
  check_error(ask(h.port(), "POST", persist), 502, "persist failed: the sandbox ended the transfer",
              "workspace_archive_read_error");
  h.plays().file_error = error{errc::sandbox_not_running, "it has ended"};
  CHECK(ask(h.port(), "POST", persist).status == 502);
}

TEST_CASE("half an archive never looks whole", "[archives]") {
  house h;
  h.plays().file = [](int fd) {
    put_result(fd, 0);
    put_entry(fd, entry_kind::file, "a", std::string(500'000, 'a'));
  };
  const auto cut = ask(h.port(), "POST", persist);
  CHECK(cut.status == 200);
  CHECK_FALSE(cut.complete);
  h.plays().file = [](int fd) {
    put_result(fd, 0);
    put_entry(fd, entry_kind::file, "a", std::string(500'000, 'a'));
    put_entry(fd, entry_kind::file, "../../etc/passwd", "x");
    put_entry(fd, entry_kind::end, "");
  };
  CHECK_FALSE(ask(h.port(), "POST", persist).complete);
}

TEST_CASE("an archive that is too large to be hydrated is told before it comes", "[archives]") {
  house h;
  std::uint64_t size = limits::archive_body_bytes;
  h.plays().file = [&size](int fd) {
    put_result(fd, 0);
    entry_head measure{};
    measure.kind = entry_kind::measure;
    measure.size = size;
    put(fd, &measure, sizeof measure);
    put_entry(fd, entry_kind::directory, ".");
    put_entry(fd, entry_kind::end, "");
  };
  const auto asked = [&](const std::string& fields) {
    return ask(h.port(), "POST", persist, "", fields);
  };
  const std::string wanted = "Insula-For-Hydrate: true\r\n";
  for (const auto& fields : {std::string{}, wanted}) {
    const auto got = asked(fields);
    CHECK(got.status == 200);
    CHECK(got.complete);
    CHECK(got.fields.count("insula-too-large-to-hydrate") == 0);
  }
  CHECK(h.heard().has("read_tree /workspace"));
  CHECK(h.heard().has("read_tree /workspace as compact"));
  size += 512;
  const auto plain = asked({});
  CHECK(plain.status == 200);
  CHECK(plain.fields.count("insula-too-large-to-hydrate") == 0); // Nobody has asked.
  const auto told = asked("Insula-For-Hydrate: false\r\n");
  CHECK(told.status == 200);
  CHECK(told.complete);
  CHECK(told.body == plain.body);
  CHECK(told.fields.at("insula-too-large-to-hydrate") == "33554944");
  check_error(asked(wanted), 413,
              "the archive would have 33554944 bytes, and hydrate takes 33554432",
              "payload_too_large");
  check_error(asked("Insula-For-Hydrate: yes\r\n"), 400,
              "Insula-For-Hydrate: expected true or false", "invalid_request");
  // A sandbox of before does not measure.
  h.plays().file = [](int fd) {
    put_result(fd, 0);
    put_entry(fd, entry_kind::directory, ".");
    put_entry(fd, entry_kind::end, "");
  };
  CHECK(asked({}).status == 200);
  for (const auto& fields : {wanted, std::string{"Insula-For-Hydrate: false\r\n"}})
    check_error(asked(fields), 502,
                "persist failed: the sandbox was made by an older version, which cannot tell how "
                "large its archive becomes; ask for a plain one",
                "workspace_archive_read_error");
}

TEST_CASE("a client that leaves ends the reading", "[archives]") {
  house h;
  h.plays().file = [&h](int fd) {
    put_result(fd, 0);
    entry_head head{};
    head.kind = entry_kind::file;
    head.size = 4ull << 30;
    head.name_bytes = 1;
    put(fd, &head, sizeof head);
    put(fd, "a", 1);
    const std::string content(1 << 20, 'a');
    while (::send(fd, content.data(), content.size(), MSG_NOSIGNAL) > 0) {
    }
    h.heard().add("cut");
  };
  {
    client leaving{h.port()};
    leaving.send(request("POST", persist));
    CHECK(leaving.read(100'000).size() == 100'000);
  }
  CHECK(h.heard().has("cut"));
}

TEST_CASE("an archive is unpacked once all of it is here", "[archives]") {
  house h;
  h.plays().file = [&h](int fd) {
    h.heard().add(drain(fd) ? "whole" : "cut");
    put_result(fd, 0);
  };
  const auto got = ask(h.port(), "POST", hydrate, empty_archive, "Session-Id: not/a/session\r\n");
  CHECK(got.status == 200);
  CHECK(got.body == R"({"ok":true})");
  CHECK(h.heard().has("write_tree /workspace"));
  CHECK(h.heard().has("whole"));
}

TEST_CASE("an archive with a key is remembered of the start that it was unpacked in",
          "[archives][once]") {
  house h;
  h.plays().file = [](int fd) {
    drain(fd);
    put_result(fd, 0);
  };
  const auto send = [&] {
    return ask(h.port(), "POST", hydrate, empty_archive, "Idempotency-Key: k\r\n");
  };
  CHECK(send().status == 200);
  CHECK(h.heard().has("written once in 1"));
  h.plays().next_start = "2";
  check_error(send(), 502, "hydrate failed: the sandbox has ended",
              "workspace_archive_write_error");
}

TEST_CASE("an archive that cannot be unpacked says why", "[archives]") {
  house h;
  h.plays().file = [](int fd) {
    drain(fd);
    put_result(fd, 0);
  };
  check_error(ask(h.port(), "POST", hydrate, "garbage"), 502,
              "tar extract failed (exit 2): tar: This does not look like a tar archive\\ntar: "
              "Exiting with failure status due to previous errors",
              "workspace_archive_write_error");
  h.plays().file = [](int fd) {
    drain(fd);
    put_result(fd, 2, "tar: x: Cannot open: Permission denied\ntar: last");
  };
  check_error(ask(h.port(), "POST", hydrate, empty_archive), 502,
              "tar extract failed (exit 2): tar: x: Cannot open: Permission denied\\ntar: last",
              "workspace_archive_write_error");
  h.plays().file = [](int) {};
  check_error(ask(h.port(), "POST", hydrate, empty_archive), 502,
              "hydrate failed: the sandbox ended the transfer", "workspace_archive_write_error");
}

TEST_CASE("an archive has a size, and the contract's words for a wrong one", "[archives]") {
  house h;
  h.plays().file = [](int fd) {
    drain(fd);
    put_result(fd, 0);
  };
  check_error(ask(h.port(), "POST", hydrate), 400, "Empty tar payload", "invalid_request");
  const std::string most(limits::archive_body_bytes, '\0');
  CHECK(ask(h.port(), "POST", hydrate, most).status == 200);
  const auto too_large = [](std::uint64_t bytes) {
    return "tar payload too large: " + std::to_string(bytes) +
           " bytes exceeds the 33554432-byte limit";
  };
  check_error(ask(h.port(), "POST", hydrate, most + "x"), 400, too_large(33'554'433),
              "invalid_request");
  // Without a length it is known only at the end.
  client chunks{h.port()};
  chunks.send("POST " + hydrate +
              " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string mebibyte = "100000\r\n" + std::string(1 << 20, '\0') + "\r\n";
  for (int i = 0; i < 32; ++i)
    chunks.send(mebibyte);
  chunks.send("1\r\nx\r\n0\r\n\r\n");
  check_error(chunks.receive(), 400, too_large(33'554'433), "invalid_request");
}

TEST_CASE("a client that leaves before the end of its archive changes nothing", "[archives]") {
  house h;
  h.plays().file = [](int fd) {
    drain(fd);
    put_result(fd, 0);
  };
  {
    client leaving{h.port()};
    leaving.send("POST " + hydrate +
                 " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2048\r\n\r\n" + empty_archive);
  }
  CHECK(ask(h.port(), "POST", hydrate, empty_archive).status == 200);
  std::size_t seen = 0;
  for (const auto& each : h.heard().all())
    seen += each == "write_tree /workspace";
  CHECK(seen == 1);
}
