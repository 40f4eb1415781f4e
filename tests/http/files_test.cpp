#include "base/limits.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

#include <cerrno>
#include <sys/socket.h>

using namespace insula;
using namespace insula::test;

namespace {

const std::string files = "/v1/sandbox/abc/file/";
const std::string file = files + "workspace/a.txt";

const file_head found{0, file_kind::regular, 0, 0644, 0};

file_head failed(int code, file_kind kind = file_kind::none) {
  return {code, kind, 0, 0, 0};
}

/// The other end of a read of `content`.
auto reads(std::string content) {
  return [content = std::move(content)](int fd) {
    write_head(fd, found);
    for (std::size_t at = 0; at < content.size(); at += max_frame_bytes)
      write_frame(fd, std::string_view{content}.substr(at, max_frame_bytes));
    write_frame(fd, {});
  };
}

/// The other end of a write: what came, whether it was complete, and that it has ended.
struct written {
  std::string content;
  bool committed = false;
};
auto writes(house& h, written& to, file_head answer = found) {
  return [&h, &to, answer](int fd) {
    const bool committed = to.committed = read_frames(fd, to.content);
    // Told before the answer: who has that knows that nothing more will be told.
    h.heard().add(committed ? "committed" : "thrown away");
    if (committed)
      write_head(fd, answer); // From here on `to` is the test's alone.
  };
}

void check_error(const answer& got, int status, const std::string& message,
                 const std::string& code) {
  CHECK(got.status == status);
  CHECK(got.body == "{\"error\":\"" + message + "\",\"code\":\"" + code + "\"}");
}

std::string chunked(std::string_view bytes, std::size_t size) {
  std::string text;
  char line[20];
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    const auto piece = bytes.substr(at, size);
    std::snprintf(line, sizeof line, "%zx\r\n", piece.size());
    text += line;
    text += piece;
    text += "\r\n";
  }
  return text + "0\r\n\r\n";
}

std::string chunked_put(std::string_view bytes, std::size_t size) {
  return "PUT " + file + " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
         chunked(bytes, size);
}

} // namespace

TEST_CASE("a file is read byte for byte", "[http][files]") {
  house h;
  std::string content = "\xef\xbb\xbf"
                        "binary \xff";
  content.push_back('\0');
  for (const auto size : {std::size_t{0}, content.size(), std::size_t{3'000'000}}) {
    content.resize(size, 'x');
    h.plays().file = reads(content);
    const auto got = ask(h.port(), "GET", file);
    CHECK(got.status == 200);
    CHECK(got.fields.at("content-type") == "application/octet-stream");
    CHECK(got.complete);
    CHECK(got.body == content);
  }
  CHECK(h.heard().has("read_file /workspace/a.txt"));
}

TEST_CASE("a download tells its length, where that is known", "[http][files]") {
  house h;
  const auto sized = [&](std::uint64_t size, const std::vector<std::string>& frames) {
    h.plays().file = [size, frames](int fd) {
      auto head = found;
      head.size = size;
      write_head(fd, head);
      for (const auto& each : frames)
        write_frame(fd, each);
      write_frame(fd, {});
    };
  };
  const auto length = [](const answer& of) {
    const auto at = of.fields.find("content-length");
    return at == of.fields.end() ? std::string{"none"} : at->second;
  };
  sized(6, {"abc", "def"});
  auto got = ask(h.port(), "GET", file);
  CHECK(length(got) == "6");
  CHECK(got.fields.at("accept-ranges") == "bytes");
  CHECK(got.body == "abcdef");
  client one{h.port()};
  one.send(request("HEAD", file) + request("GET", "/health"));
  got = one.receive(true);
  CHECK(length(got) == "6");
  CHECK(got.fields.at("accept-ranges") == "bytes");
  CHECK(one.receive().body == R"({"ok":true})");
  sized(0, {});
  CHECK(length(ask(h.port(), "GET", file)) == "0");
  // Some of the kernel's files say nothing of their length, or what is not so.
  sized(0, {"abc"});
  got = ask(h.port(), "GET", file);
  CHECK(length(got) == "3");
  CHECK(got.body == "abc");
  sized(4096, {"abc"});
  got = ask(h.port(), "GET", file);
  CHECK(got.complete);
  CHECK(got.body == "abc");
  sized(0, {"abc", "def"});
  got = ask(h.port(), "GET", file);
  CHECK(length(got) == "none");
  CHECK(got.fields.count("accept-ranges") == 0);
  CHECK(got.complete);
  CHECK(got.body == "abcdef");
  // It grows while it is read, or shrinks.
  sized(4, {"abc", "def"});
  got = ask(h.port(), "GET", file);
  CHECK(got.complete);
  CHECK(got.body == "abcd");
  sized(7, {"abc", "def"});
  got = ask(h.port(), "GET", file);
  CHECK(length(got) == "7");
  CHECK_FALSE(got.complete);
}

TEST_CASE("a part of a file is told as that", "[http][files]") {
  house h;
  const auto part = [&](std::uint64_t from, std::uint64_t size, const std::string& content,
                        const std::string& more = {}) {
    h.plays().file = [=](int fd) {
      write_head(fd, {0, file_kind::none, from, 0, 0});
      file_entry entry{};
      entry.kind = file_kind::regular;
      entry.size = size;
      entry.path_bytes = 1;
      write_frame(fd, std::string{reinterpret_cast<const char*>(&entry), sizeof entry} + "a");
      write_frame(fd, content);
      if (!more.empty())
        write_frame(fd, more);
      write_frame(fd, {});
    };
  };
  const auto get = [&](const std::string& range, const std::string& more = {}) {
    return ask(h.port(), "GET", file, {}, "Range: " + range + "\r\n" + more);
  };
  part(2, 10, "234");
  auto got = get("bytes=2-4");
  CHECK(got.status == 206);
  CHECK(got.body == "234");
  CHECK(got.complete);
  CHECK(got.fields.at("content-range") == "bytes 2-4/10");
  CHECK(got.fields.at("content-length") == "3");
  CHECK(got.fields.at("content-type") == "application/octet-stream");
  CHECK(h.heard().has("read_file /workspace/a.txt from 2 to 4"));
  part(7, 10, "789");
  CHECK(get("Bytes = 7-").fields.at("content-range") == "bytes 7-9/10");
  CHECK(get("bytes=-3").fields.at("content-range") == "bytes 7-9/10");
  CHECK(get("bytes=7-99999999999999999999999").fields.at("content-range") == "bytes 7-9/10");
  CHECK(get("bytes=007-9").fields.at("content-range") == "bytes 7-9/10");
  part(7, 10, "7", "8"); // It has become shorter.
  got = get("bytes=7-");
  CHECK(got.status == 206);
  CHECK_FALSE(got.complete);
  part(7, 4096, "78"); // As the kernel's own files, which have a page.
  got = get("bytes=7-");
  CHECK(got.status == 206);
  CHECK(got.complete);
  CHECK(got.fields.at("content-range") == "bytes 7-8/9");
  part(7, 10, "789abc"); // It says more than it may.
  CHECK(get("bytes=7-").body == "789");
  h.plays().file = [](int fd) { write_head(fd, {ERANGE, file_kind::none, 10, 0, 0}); };
  got = get("bytes=10-");
  CHECK(got.status == 416);
  CHECK(got.fields.at("content-range") == "bytes */10");
  CHECK(got.body == R"({"error":"the file has no such bytes","code":"invalid_request"})");
  // Of one that says that it is empty, or has less than it says, all is told.
  const auto then_whole = [&](const std::function<void(int)>& first) {
    h.plays().file = [first, asked = std::make_shared<bool>()](int fd) {
      std::exchange(*asked, true) ? reads("whole")(fd) : first(fd);
    };
  };
  const auto refuses_part = [](int fd) { write_head(fd, {ERANGE, file_kind::none, 0, 0, 0}); };
  for (const auto* range : {"bytes=0-", "bytes=0-99", "bytes=-1", "bytes=5-"}) {
    CAPTURE(range);
    then_whole(refuses_part);
    got = get(range);
    CHECK(got.status == 200);
    CHECK(got.body == "whole");
    CHECK(got.fields.count("content-range") == 0);
  }
  part(0, 0, "");
  then_whole(h.plays().file);
  CHECK(get("bytes=0-").body == "whole");
  part(0, 4096, "");
  then_whole(h.plays().file);
  CHECK(get("bytes=0-").body == "whole");
  part(4000, 4096, "");
  then_whole(h.plays().file);
  CHECK(get("bytes=-96").body == "whole");
  part(4000, 4096, "");
  CHECK(get("bytes=4000-").status == 416);
  then_whole([&](int fd) { // As the agent does, which cuts what is shorter than it says.
    write_head(fd, {0, file_kind::none, 0, 0, 0});
    file_entry entry{};
    entry.kind = file_kind::regular;
    entry.size = 4096;
    entry.path_bytes = 1;
    write_frame(fd, std::string{reinterpret_cast<const char*>(&entry), sizeof entry} + "a");
    write_frame(fd, "what");
  });
  CHECK(get("bytes=0-").body == "whole");
  part(5, 3, "x"); // It makes no sense.
  CHECK(get("bytes=5-").status == 416);
  h.plays().file = [](int fd) { write_head(fd, failed(ENOENT)); };
  CHECK(get("bytes=0-1").status == 404);
  h.plays().file = [](int fd) {
    write_head(fd, {EINVAL, file_kind::none, 0, 0, static_cast<std::uint32_t>(file_step::type)});
  };
  check_error(get("bytes=0-1"), 502, "read failed: not a regular file", "exec_transport_error");
  // What counts for nothing.
  h.plays().file = reads("0123456789");
  for (const auto* range : {"bytes=2-4, 6-7", "bytes=4-2", "bytes=10-9", "bytes=x", "bytes=-",
                            "bytes", "lines=1-2", "", "bytes=1-2-3", "bytes=+1-2"}) {
    CAPTURE(range);
    const auto all = get(range);
    CHECK(all.status == 200);
    CHECK(all.body == "0123456789");
  }
  CHECK(get("bytes=2-4", "If-Range: \"a\"\r\n").status == 200);
  CHECK(get("bytes=2-4", "If-Range: Fri, 20 Nov 2026 09:16:36 GMT\r\n").status == 200);
  CHECK(ask(h.port(), "HEAD", file, {}, "Range: bytes=2-4\r\n").status == 200);
}

TEST_CASE("HEAD is GET without the body", "[http][files]") {
  house h;
  h.plays().file = reads("abc");
  client one{h.port()};
  one.send(request("HEAD", file) + request("HEAD", "/health") + request("GET", "/health"));
  const auto head = one.receive(true);
  CHECK(head.status == 200);
  CHECK(head.fields.at("content-type") == "application/octet-stream");
  const auto health = one.receive(true);
  CHECK(health.fields.at("content-length") == "11");
  CHECK(one.receive().body == R"({"ok":true})");
  h.plays().file = [](int fd) { write_head(fd, failed(ENOENT)); };
  CHECK(ask(h.port(), "HEAD", file).status == 404);
}

TEST_CASE("what cannot be read is told by status", "[http][files]") {
  house h;
  const auto get = [&](file_head head) {
    h.plays().file = [head](int fd) { write_head(fd, head); };
    return ask(h.port(), "GET", file);
  };
  for (const auto& head : {failed(ENOENT), failed(ENOTDIR), failed(EISDIR),
                           failed(0, file_kind::directory), failed(EACCES, file_kind::directory)})
    check_error(get(head), 404, "File not found: /workspace/a.txt", "workspace_read_not_found");
  check_error(get(failed(EACCES)), 502, "read failed: Permission denied", "exec_transport_error");
  check_error(get(failed(0, file_kind::other)), 502, "read failed: not a regular file",
              "exec_transport_error");
  h.plays().file = [](int) {};
  check_error(ask(h.port(), "GET", file), 502, "read failed: the sandbox ended the transfer",
              "exec_transport_error");
  h.plays().file_error = error{errc::launch_failed, "no memory"};
  check_error(ask(h.port(), "GET", file), 502, "read failed: no memory", "exec_transport_error");
}

TEST_CASE("a download that is cut, or lies about its frames, never ends cleanly", "[http][files]") {
  house h;
  h.plays().file = [](int fd) {
    write_head(fd, found);
    write_frame(fd, "abc");
    const frame_head more{100};
    ::send(fd, &more, sizeof more, MSG_NOSIGNAL);
  };
  auto got = ask(h.port(), "GET", file);
  CHECK(got.status == 200);
  CHECK(got.body == "abc");
  CHECK_FALSE(got.complete);
  h.plays().file = [](int fd) { write_head(fd, found); }; // Nothing has been sent yet.
  check_error(ask(h.port(), "GET", file), 502, "read failed: the sandbox ended the transfer",
              "exec_transport_error");
  h.plays().file = [](int fd) {
    write_head(fd, found);
    write_frame(fd, "abc");
    const frame_head huge{0xffffffff};
    ::send(fd, &huge, sizeof huge, MSG_NOSIGNAL);
  };
  got = ask(h.port(), "GET", file);
  CHECK_FALSE(got.complete);
}

TEST_CASE("a path is checked in the contract's order", "[http][files]") {
  house h;
  for (const auto* method : {"GET", "PUT"}) {
    const auto at = [&](const std::string& path, const std::string& fields = {}) {
      return ask(h.port(), method, path, {}, fields);
    };
    const std::string outside = "path must resolve to a location within /workspace";
    check_error(at("/v1/sandbox/abc/file"), 400, "file path must not be empty", "invalid_request");
    check_error(at(files), 400, "file path must not be empty", "invalid_request");
    check_error(at(files + "?x=1"), 400, "file path must not be empty", "invalid_request");
    check_error(at(files + "main.py", "Session-Id: ..\r\n"), 403, outside, "invalid_request");
    check_error(at(files + "../x"), 403, outside, "invalid_request");
    check_error(at(files + "workspace/%2e%2e/etc"), 403, outside, "invalid_request");
    check_error(at(files + "workspace/a%00b"), 400, "file path must not contain NUL",
                "invalid_request");
    check_error(at(file, "Session-Id: ..\r\n"), 400, "Invalid session ID format",
                "invalid_request");
  }
  const auto too_long = files + "workspace/" + std::string(4090, 'x');
  check_error(ask(h.port(), "PUT", too_long, "x"), 502, "write failed: File name too long",
              "workspace_archive_write_error");
  CHECK(h.heard().all().empty());
}

TEST_CASE("a file is written as it came", "[http][files]") {
  house h;
  std::string content = "abc";
  for (const auto size : {std::size_t{0}, std::size_t{3}, std::size_t{5'000'000}}) {
    content.resize(size, 'y');
    written got;
    h.plays().file = writes(h, got);
    const auto put = ask(h.port(), "PUT", files + "workspace/d%C3%A4/a%23b?x=1", content,
                         "Content-Type: text/plain\r\nSession-Id: s1\r\n");
    CHECK(put.status == 200);
    CHECK(put.body == R"({"ok":true})");
    CHECK(got.content == content);
    CHECK(got.committed);
  }
  CHECK(h.heard().has("write_file /workspace/d\xc3\xa4/a#b in s1"));
}

TEST_CASE("a body may come in chunks of any size", "[http][files]") {
  house h;
  std::string content(100'000, 'z');
  for (const auto size : {std::size_t{1}, std::size_t{7}, std::size_t{70'000}}) {
    written got;
    h.plays().file = writes(h, got);
    client one{h.port()};
    one.send(chunked_put(content, size) + request("GET", "/health"));
    CHECK(one.receive().status == 200);
    CHECK(one.receive().body == R"({"ok":true})");
    CHECK(got.content == content);
  }
}

TEST_CASE("a write that fails says why, and only after the body", "[http][files]") {
  house h;
  written got;
  h.plays().file = writes(h, got, failed(EISDIR));
  check_error(ask(h.port(), "PUT", file, "x"), 502, "write failed: Is a directory",
              "workspace_archive_write_error");
  // It fails before it has read anything.
  h.plays().file = [](int fd) { write_head(fd, failed(EACCES)); };
  client one{h.port()};
  one.send(request("PUT", file, std::string(8 << 20, 'x')) + request("GET", "/health"));
  check_error(one.receive(), 502, "write failed: Permission denied",
              "workspace_archive_write_error");
  CHECK(one.receive().status == 200);
  h.plays().file = [](int) {};
  check_error(ask(h.port(), "PUT", file, "x"), 502, "write failed: the sandbox ended the transfer",
              "workspace_archive_write_error");
  h.plays().file_error = error{errc::launch_failed, "no memory"};
  check_error(ask(h.port(), "PUT", file, "x"), 502, "write failed: no memory",
              "workspace_archive_write_error");
}

TEST_CASE("32 MiB are written, one byte more is not", "[http][files]") {
  house h;
  const std::string most(limits::file_body_bytes, 'm');
  written got;
  h.plays().file = writes(h, got);
  CHECK(ask(h.port(), "PUT", file, most).status == 200);
  CHECK(got.content == most);
  const std::string refused = "payload too large: 33554433 bytes exceeds the 33554432-byte limit";
  SECTION("announced, it is refused before it is sent") {
    client one{h.port()};
    one.send("PUT " + file + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 33554433\r\n\r\n");
    check_error(one.receive(), 413, refused, "payload_too_large");
    CHECK(h.heard().all().size() == 3); // Of the write before.
  }
  SECTION("announced and sent all the same, the answer arrives") {
    check_error(ask(h.port(), "PUT", file, most + "x"), 413, refused, "payload_too_large");
  }
  SECTION("not announced, nothing is written") {
    written more;
    h.plays().file = writes(h, more);
    client one{h.port()};
    one.send(chunked_put(most + "x", 1 << 20));
    check_error(one.receive(), 413, refused, "payload_too_large");
    CHECK(h.heard().has("thrown away"));
    CHECK_FALSE(more.committed);
  }
}

TEST_CASE("the body waits while the sandbox is being found", "[http][files]") {
  house h;
  h.plays().hold_find = true;
  written got;
  h.plays().file = writes(h, got);
  client one{h.port()};
  one.send(request("PUT", file, "0123456789"));
  REQUIRE(h.heard().has("find abc"));
  h.release();
  CHECK(one.receive().status == 200);
  CHECK(got.content == "0123456789");
}

TEST_CASE("a slow writer holds the client up, not the server's memory", "[http][files]") {
  house h;
  written got;
  std::mutex gate;
  gate.lock();
  h.plays().file = [&](int fd) {
    std::lock_guard opened{gate};
    writes(h, got)(fd);
  };
  client one{h.port()};
  const int buffer = 64 * 1024;
  ::setsockopt(one.fd(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  const auto text = request("PUT", file, std::string(limits::file_body_bytes, 'm'));
  // As much as the kernel and one read of ours hold; then the socket takes no more.
  std::size_t sent = 0;
  const timeval patience{0, 300'000};
  ::setsockopt(one.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  for (ssize_t n = 0; sent < text.size(); sent += static_cast<std::size_t>(n)) {
    n = ::send(one.fd(), text.data() + sent, std::min<std::size_t>(text.size() - sent, 65'536),
               MSG_NOSIGNAL);
    if (n < 0)
      break;
  }
  CHECK(sent < text.size() / 2);
  gate.unlock();
  const timeval longer{60, 0};
  ::setsockopt(one.fd(), SOL_SOCKET, SO_SNDTIMEO, &longer, sizeof longer);
  one.send(std::string_view{text}.substr(sent));
  CHECK(one.receive().status == 200);
  CHECK(got.content.size() == limits::file_body_bytes);
}

TEST_CASE("an upload that is broken off writes nothing", "[http][files]") {
  house h;
  written got;
  h.plays().file = writes(h, got);
  client one{h.port()};
  one.send("PUT " + file + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc");
  REQUIRE(h.heard().has("write_file /workspace/a.txt"));
  one.close();
  CHECK(h.heard().has("thrown away"));
  CHECK_FALSE(got.committed);
}

TEST_CASE("a client that asks first is told to go on at once", "[http][files]") {
  house h;
  h.plays().hold_find = true;
  written got;
  h.plays().file = writes(h, got);
  client one{h.port()};
  const std::string head =
    "PUT " + file +
    " HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
  one.send(head);
  CHECK(one.read_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  one.send("abc");
  REQUIRE(h.heard().has("find abc"));
  h.release();
  CHECK(one.receive().status == 200);
  CHECK(got.content == "abc");
  // And is not, when it will be refused.
  client other{h.port()};
  other.send("PUT " + files +
             "x HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  CHECK(other.receive().status == 403);
  CHECK(other.at_end());
}

TEST_CASE("a client that takes nothing of a download is dropped", "[http][files]") {
  http::server_options options;
  options.time.write = std::chrono::milliseconds{200};
  house h{options};
  h.plays().file = [&](int fd) {
    write_head(fd, found);
    const std::string frame(max_frame_bytes, 'x');
    const frame_head head{max_frame_bytes};
    while (::send(fd, &head, sizeof head, MSG_NOSIGNAL) > 0 &&
           ::send(fd, frame.data(), frame.size(), MSG_NOSIGNAL) > 0) {
    }
    h.heard().add("dropped");
  };
  client one{h.port()};
  one.send(request("GET", file));
  CHECK(h.heard().has("dropped"));
}
