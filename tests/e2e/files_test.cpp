#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <utility>

using namespace insula::test;

namespace {

constexpr std::size_t limit = 33'554'432;

std::string encode(std::string_view name) {
  constexpr char digits[] = "0123456789ABCDEF";
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || c == '/' || c == '-' || c == '.' || c == '_')
      text += c;
    else
      text.append("%").append({digits[byte >> 4], digits[byte & 15]});
  }
  return text;
}

struct files {
  const node& it;

  http_answer put(const std::string& path, std::string_view bytes) const {
    return it.ask("PUT", "/v1/sandbox/a/file/" + path, bytes);
  }
  http_answer get(const std::string& path) const {
    return it.ask("GET", "/v1/sandbox/a/file/" + path);
  }
};

std::string noise(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 12345;
  for (auto& each : bytes) {
    state = state * 1664525 + 1013904223;
    each = static_cast<char>(state >> 24);
  }
  return bytes;
}

/// The events that inotify tells watchers of a directory in sandbox "a": "event name", a line
/// each, without opens and reads. Node's fs.watch and all file watchers are made of it.
class watched {
public:
  watched(const node& it, const std::string& directory)
      : stream_(it.open("a", {"python3", "-u", "-c", script, directory})) {
    REQUIRE(stream_.next()->data == "up\n");
    it_ = &it;
    directory_ = directory;
  }

  /// Until now.
  std::string events() {
    it_->sh("a", "mkdir " + directory_ + "/end-of-test");
    const auto all = stream_.rest();
    it_->sh("a", "rmdir " + directory_ + "/end-of-test");
    REQUIRE(all.exit_code == 0);
    return std::exchange(seen_, {}) + all.out;
  }
  /// The kernel tells an event once that comes again before it has been read: waits until as many
  /// have been.
  void wait_for(std::size_t count) {
    while (static_cast<std::size_t>(std::count(seen_.begin(), seen_.end(), '\n')) < count) {
      const auto next = stream_.next();
      REQUIRE(next);
      seen_ += next->data;
    }
  }

private:
  static constexpr const char* script = R"(
import ctypes, os, struct, sys
names = {2: "modify", 4: "attrib", 8: "close_write", 64: "moved_from", 128: "moved_to",
         256: "create", 512: "delete"}
libc = ctypes.CDLL(None)
fd = libc.inotify_init()
assert libc.inotify_add_watch(fd, sys.argv[1].encode(), sum(names)) >= 0
os.write(1, b"up\n")
while True:
    bytes = os.read(fd, 65536)
    while bytes:
        _, mask, _, size = struct.unpack("iIII", bytes[:16])
        name = bytes[16:16 + size].rstrip(b"\0").decode()
        bytes = bytes[16 + size:]
        if name == "end-of-test":
            sys.exit(0)
        print(*(names[each] for each in names if mask & each), name)
)";
  exec_stream stream_;
  const node* it_ = nullptr;
  std::string directory_;
  std::string seen_;
};

/// An execd upload of one file.
std::string uploaded(const std::string& metadata, const std::string& content) {
  const auto part = [](const std::string& name, const std::string& bytes) {
    return "--XX\r\nContent-Disposition: form-data; name=\"" + name + "\"; filename=\"" + name +
           "\"\r\n\r\n" + bytes + "\r\n";
  };
  return part("metadata", metadata) + part("file", content) + "--XX--\r\n";
}

std::string chunked(std::string_view target, std::string_view bytes) {
  std::string text = "PUT " + std::string{target} +
                     " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (std::size_t at = 0; at < bytes.size(); at += 0x8000) {
    const auto piece = bytes.substr(at, 0x8000);
    char size[16];
    std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
    text.append(size).append(piece).append("\r\n");
  }
  return text + "0\r\n\r\n";
}

} // namespace

TEST_CASE("files of every allowed size come back byte for byte", "[files]") {
  const node it;
  const files of{it};
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{1024}, std::size_t{65'537}, limit}) {
    CAPTURE(size);
    const auto bytes = noise(size);
    const auto put = of.put("workspace/f", bytes);
    CHECK(put.status == 200);
    CHECK(put.body == R"({"ok":true})");
    const auto got = of.get("workspace/f");
    CHECK(got.status == 200);
    CHECK(got.complete);
    CHECK(got.fields.at("content-type") == "application/octet-stream");
    CHECK((got.body == bytes));
    CHECK(it.sh("a", "stat -c %s f").out == std::to_string(size) + "\n");
  }
  const auto whole = noise(limit + 1);
  const std::string too_large =
    R"({"error":"payload too large: 33554433 bytes exceeds the 33554432-byte limit","code":"payload_too_large"})";
  const auto refused = of.put("workspace/g", whole);
  CHECK(refused.status == 413);
  CHECK(refused.body == too_large);
  http_connection one{it.port()};
  one.send(chunked("/v1/sandbox/a/file/workspace/g", whole));
  const auto also = one.receive();
  CHECK(also.status == 413);
  CHECK(also.body == too_large);
  CHECK(of.get("workspace/g").status == 404);
  http_connection other{it.port()};
  other.send(chunked("/v1/sandbox/a/file/workspace/g", std::string_view{whole}.substr(1)));
  CHECK(other.receive().status == 200);
  CHECK((of.get("workspace/g").body == whole.substr(1)));
  CHECK(it.sh("a", "ls -A").out == "f\ng\n"); // Nothing temporary stays.
}

TEST_CASE("a file may have any name, and commands see it under that name", "[files]") {
  const node it;
  const files of{it};
  std::vector<std::string> names;
  for (const char c : std::string{"#?&=%+;,@$'\"!*()[]{}<>|\\^`~: _-"})
    names.push_back(std::string{"a"} + c + "b");
  for (const char* name : {" lead", "trail ", "-rf", "--", "ä€😀", "a%23b", "a%2Fb", "...",
                           ".hidden", "new\nline", "tab\t", "\x01\x7f", "..a", "a.."})
    names.emplace_back(name);
  for (const auto& name : names) {
    CAPTURE(name);
    const auto path = "workspace/n/" + encode(name);
    CHECK(of.put(path, name).status == 200);
    const auto got = of.get(path);
    CHECK(got.status == 200);
    CHECK(got.body == name);
  }
  auto listed = it.sh("a", "cd n; find . -type f -printf '%P\\0'").out;
  std::vector<std::string> seen;
  for (std::size_t at = 0, end; (end = listed.find('\0', at)) != std::string::npos; at = end + 1)
    seen.push_back(listed.substr(at, end - at));
  std::sort(seen.begin(), seen.end());
  std::sort(names.begin(), names.end());
  CHECK(seen == names);
  // Left as they are: what is no escape, and plus.
  CHECK(of.put("workspace/m/a+b", "").status == 200);
  CHECK(of.put("workspace/m/%zz", "").status == 200);
  CHECK(of.put("workspace/m/%FF%FE", "").status == 200); // No UTF-8.
  CHECK(of.put("workspace/m/100%", "").status == 200);
  CHECK(of.put("workspace/m/query?x=/../..", "").status == 200);
  CHECK(it.sh("a", "LC_ALL=C ls m").out == "%FF%FE\n%zz\n100%\na+b\nquery\n");
  const std::string longest(255, 'x');
  CHECK(of.put("workspace/" + longest, "1").status == 200);
  CHECK(of.get("workspace/" + longest).body == "1");
  const auto too_long = of.put("workspace/" + longest + "x", "1");
  CHECK(too_long.status == 502);
  CHECK(too_long.body ==
        R"({"error":"write failed: File name too long","code":"workspace_archive_write_error"})");
}

TEST_CASE("what is no readable file is told apart", "[files]") {
  const node it;
  const files of{it};
  REQUIRE(it.sh("a", "mkfifo fifo; mkdir dir; echo x > file; echo x > secret; chmod 0 secret; "
                     "mkdir closed; chmod 0 closed; "
                     "ln -s /dev/null null; ln -s nowhere dangling; ln -s loop loop; echo out > "
                     "/tmp/x; ln -s /tmp/x link")
            .exit_code == 0);
  const auto missing = [](const std::string& path) {
    return R"({"error":"File not found: /workspace)" + path +
           R"(","code":"workspace_read_not_found"})";
  };
  for (const std::string path :
       {"/missing", "/dir", "/file/below", "/missing/below", "", "/dangling"}) {
    CAPTURE(path);
    const auto got = of.get("workspace" + path);
    CHECK(got.status == 404);
    CHECK(got.body == missing(path));
  }
  CHECK(of.get("workspace/dir/").status == 404);
  for (const std::string path : {"fifo", "null", "secret", "closed/x", "loop"}) {
    CAPTURE(path);
    const auto got = of.get("workspace/" + path);
    CHECK(got.status == 502);
    CHECK(got.body.starts_with(R"({"error":"read failed: )"));
    CHECK(got.body.ends_with(R"(","code":"exec_transport_error"})"));
  }
  for (const std::string path : {"dir", "file/below", "closed/x", "fifo", "loop"}) {
    CAPTURE(path);
    const auto got = of.put("workspace/" + path, "y");
    CHECK(got.status == 502);
    CHECK(got.body.starts_with(R"({"error":"write failed: )"));
    CHECK(got.body.ends_with(R"(","code":"workspace_archive_write_error"})"));
  }
  CHECK(it.sh("a", "test -p fifo && test -d dir && cat file").out == "x\n");
  // Links are followed inside of the sandbox.
  CHECK(of.get("workspace/link").body == "out\n");
  CHECK(of.put("workspace/link", "new").status == 200);
  CHECK(it.sh("a", "test -L link && cat /tmp/x").out == "new");
}

TEST_CASE("no path leads out of the sandbox", "[files]") {
  const node it;
  const files of{it};
  REQUIRE(it.sh("a", "ln -s /etc/shadow shadow; ln -s / root; ln -s /etc/passwd passwd; ln -s "
                     "../../../../../../.. up; "
                     "ln -s /proc/1/root proc")
            .exit_code == 0);
  for (const std::string path :
       {"../etc/passwd", "workspace/../etc/passwd", "workspace/../../etc/passwd",
        "workspace/%2e%2e/etc/passwd", "workspace/..%2f..%2fetc%2fpasswd",
        "%2e%2e%2f%2e%2e%2fetc/passwd", "workspace/x%2f..%2f..%2f..%2fetc/passwd", "/etc/passwd",
        "//etc/passwd", "%2fetc%2fpasswd", "workspacefoo", "workspace%2f..%2fetc%2fpasswd",
        "workspace/./../etc/passwd", "etc/passwd", "."}) {
    CAPTURE(path);
    const auto got = of.get(path), put = of.put(path, "x");
    CHECK((got.status == 403 || got.status == 404));
    CHECK((put.status == 403 || put.status == 404));
  }
  CHECK(of.get("/workspace/../workspace/missing").status == 404);
  // The sandbox's own, as its user.
  CHECK(of.get("workspace/shadow").status != 200);
  CHECK(of.get("workspace/root/etc/shadow").status != 200);
  CHECK(of.put("workspace/root/etc/new", "x").status == 502);
  CHECK(of.get("workspace/passwd").body.find("sandbox:") != std::string::npos);
  CHECK(of.get("workspace/passwd").body == it.sh("a", "cat /etc/passwd").out);
  CHECK(of.get("workspace/up/etc/passwd").body == it.sh("a", "cat /etc/passwd").out);
  CHECK(of.get("workspace/root" + it.state() + "/lock").status == 404);
  CHECK(of.get("workspace/proc" + it.state() + "/lock").status >= 404);
}

TEST_CASE("a file keeps its mode, and new ones have that of the umask", "[files]") {
  const node it;
  const files of{it};
  REQUIRE(of.put("workspace/deep/er/f", "1").status == 200);
  CHECK(it.sh("a", "stat -c '%a %U' deep deep/er deep/er/f").out ==
        "755 sandbox\n755 sandbox\n644 sandbox\n");
  REQUIRE(it.sh("a", "chmod 751 deep/er/f").exit_code == 0);
  REQUIRE(of.put("workspace/deep/er/f", "#!/bin/sh\necho ran").status == 200);
  CHECK(it.sh("a", "stat -c %a deep/er/f; deep/er/f").out == "751\nran\n");
}

TEST_CASE("of parallel writers one wins whole", "[files]") {
  const node it;
  const files of{it};
  const std::size_t size = 1u << 20;
  const auto all = at_once(8, [&](std::size_t i) {
    int good = 0;
    for (int round = 0; round < 4; ++round)
      good += of.put("workspace/f", std::string(size, static_cast<char>('a' + i))).status == 200;
    return good;
  });
  CHECK(all == std::vector<int>(8, 4));
  const auto got = of.get("workspace/f").body;
  REQUIRE(got.size() == size);
  CHECK((got == std::string(size, got.front())));
  CHECK(it.sh("a", "ls -A").out == "f\n");
}

TEST_CASE("an upload that is cut off leaves the file as it was", "[files]") {
  const node it;
  const files of{it};
  REQUIRE(of.put("workspace/f", "before").status == 200);
  {
    http_connection one{it.port()};
    one.send("PUT /v1/sandbox/a/file/workspace/f HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
             "1000000\r\n\r\n" +
             noise(500'000));
    one.abandon();
  }
  CHECK(it.sh("a", "while [ $(ls -A | wc -l) -ne 1 ]; do sleep 0.05; done; cat f",
              ",\"timeout_ms\":10000")
          .out == "before");
}

TEST_CASE("a watcher of a directory sees one event for a file that is put", "[files]") {
  const node it;
  const files of{it};
  REQUIRE(it.sh("a", "mkdir -p w far; echo old > w/old; chmod 640 w/old; ln -s ../w/old far/link; "
                     "ln -s ../w/later far/dangling; mkdir -p /tmp/w")
            .exit_code == 0);
  const auto large = noise(3u << 20);
  {
    watched there{it, "/workspace/w"};
    for (const auto* path : {"w/new", "w/old", "w/new", "far/link", "far/dangling"})
      REQUIRE(of.put(std::string{"workspace/"} + path, large).status == 200);
    CHECK(there.events() == "moved_to new\nmoved_to old\nmoved_to new\nmoved_to old\n"
                            "moved_to later\n");
    CHECK(it.sh("a", "cd w; stat -c '%n %a %s' *; readlink ../far/*").out ==
          "later 644 3145728\nnew 644 3145728\nold 640 3145728\n../w/later\n../w/old\n");
  }
  { // A directory that is made for it is one more event, and what is in it none.
    watched there{it, "/workspace/w"};
    REQUIRE(of.put("workspace/w/sub/sub/file", "x").status == 200);
    CHECK(there.events() == "create sub\n");
  }
  { // Two who write at once.
    watched there{it, "/workspace/w"};
    const auto both = at_once(2, [&](std::size_t i) {
      return of.put("workspace/w/both", std::string(200'000, i == 0 ? 'a' : 'b')).status;
    });
    CHECK(both == std::vector<int>{200, 200});
    const auto told =
      there.events(); // Of two equal ones that wait to be read the kernel makes one.
    CHECK((told == "moved_to both\nmoved_to both\n" || told == "moved_to both\n"));
  }
  { // The same of two files.
    watched there{it, "/workspace/w"};
    const auto both = at_once(2, [&](std::size_t i) {
      return of.put("workspace/w/both" + std::to_string(i), std::string(200'000, 'a')).status;
    });
    CHECK(both == std::vector<int>{200, 200});
    const auto told = there.events();
    CHECK(
      (told == "moved_to both0\nmoved_to both1\n" || told == "moved_to both1\nmoved_to both0\n"));
  }
  { // An upload by execd's API, which has a mode; and a text that is replaced by it.
    watched there{it, "/tmp/w"};
    const std::string base = "/sandboxes/a/proxy/44772/files/";
    std::size_t count = 0;
    for (const auto* mode : {"600", "755"}) {
      REQUIRE(it.ask("POST", base + "upload",
                     uploaded(R"({"path":"/tmp/w/one","mode":)" + std::string{mode} + "}", "text"),
                     "Content-Type: multipart/form-data; boundary=XX\r\n")
                .status == 200);
      there.wait_for(++count);
    }
    REQUIRE(it.ask("POST", base + "replace", R"({"/tmp/w/one":{"old":"ex","new":"oas"}})").status ==
            200);
    CHECK(there.events() == "moved_to one\nmoved_to one\nmoved_to one\n");
    CHECK(it.sh("a", "cat /tmp/w/one; stat -c ' %a' /tmp/w/one").out == "toast 755\n");
  }
  { // One that is cut off is none.
    watched there{it, "/workspace/w"};
    http_connection one{it.port()};
    one.send("PUT /v1/sandbox/a/file/workspace/w/cut HTTP/1.1\r\nHost: localhost\r\n"
             "Content-Length: 1000000\r\n\r\n" +
             noise(500'000));
    one.abandon();
    CHECK(eventually([&] { return it.sh("a", "pgrep -u sandbox -f '^insula-'").out.empty(); }));
    CHECK(there.events().empty());
  }
}

TEST_CASE("a watcher of the kind that editors use hears of a file once it is whole", "[files]") {
  const node it;
  const files of{it};
  const auto large = noise(2u << 20);
  REQUIRE(it.sh("a", "mkdir w; echo old > w/file").exit_code == 0);
  auto watching =
    it.open("a", {"node", "-e",
                  "const fs = require('fs'); fs.watch('w', (event, name) => { if (name === 'end') "
                  "process.exit(); console.log(event, name, fs.statSync('w/' + name).size); });"
                  "console.log('up')"});
  REQUIRE(watching.next()->data == "up\n");
  REQUIRE(of.put("workspace/w/file", large).status == 200);
  REQUIRE(of.put("workspace/w/other", large).status == 200);
  REQUIRE(it.sh("a", "mkdir w/end").exit_code == 0);
  CHECK(watching.rest().out == "rename file 2097152\nrename other 2097152\n");
}

TEST_CASE("a writer that is killed leaves nothing, and the file as it was", "[files]") {
  const node it;
  const files of{it};
  // A directory that takes no new file, one in memory, and a link to a file that is not there yet.
  REQUIRE(it.sh("a", "mkdir closed; echo old > closed/file; chmod 555 closed; echo old > file; "
                     "echo old > /dev/shm/file; ln -s /tmp/not-yet dangling")
            .exit_code == 0);
  const std::string look = "ls -A . closed /tmp /dev/shm; cat closed/file file /dev/shm/file";
  const auto list = [&] { return it.sh("a", look).out; };
  const auto kill_while = [&](const std::string& request, const std::string& rest) {
    http_connection one{it.port()};
    one.send(request);
    REQUIRE(
      eventually([&] { return it.sh("a", "pkill -9 -u sandbox -f '^insula-'").exit_code == 0; }));
    one.send(rest);
    CHECK(one.receive().status >= 500);
  };
  const auto before = list();
  for (const auto* path : {"workspace/new", "workspace/file", "workspace/closed/file",
                           "workspace/dangling", "workspace/made/for/it"}) {
    CAPTURE(path);
    kill_while("PUT /v1/sandbox/a/file/" + std::string{path} +
                 " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + noise(500'000),
               noise(500'000));
  }
  REQUIRE(it.sh("a", "rm -r made").exit_code == 0);
  for (const auto* path : {"/dev/shm/new", "/dev/shm/file"}) {
    CAPTURE(path);
    const auto body = uploaded(R"({"path":")" + std::string{path} + "\"}", noise(1'000'000));
    kill_while("POST /sandboxes/a/proxy/44772/files/upload HTTP/1.1\r\nHost: localhost\r\n"
               "Content-Type: multipart/form-data; boundary=XX\r\nContent-Length: " +
                 std::to_string(body.size()) + "\r\n\r\n" + body.substr(0, 600'000),
               body.substr(600'000));
  }
  CHECK(list() == before);
  REQUIRE(of.put("workspace/file", "new").status == 200);
  CHECK(of.get("workspace/file").body == "new");
}

TEST_CASE("a file is read with its length, or in part", "[files]") {
  const node it;
  const files of{it};
  REQUIRE(of.put("workspace/f", noise(600'000)).status == 200);
  REQUIRE(it.sh("a",
                "ln -s /proc/self/status kernel; ln -s /sys/kernel/mm/transparent_hugepage/enabled "
                "page; printf 0123456789 > ten; : > empty; mkfifo pipe")
            .exit_code == 0);
  const auto get = [&](const std::string& name, const std::string& range) {
    return it.ask("GET", "/v1/sandbox/a/file/workspace/" + name, {}, "Range: " + range + "\r\n");
  };
  const auto whole = of.get("workspace/f");
  CHECK(whole.fields.at("content-length") == "600000");
  CHECK(whole.fields.at("accept-ranges") == "bytes");
  // What a download tool does: how long it is, then the rest of what it has.
  http_connection one{it.port()};
  one.send(http_request("HEAD", "/v1/sandbox/a/file/workspace/f"));
  CHECK(one.receive(true).fields.at("content-length") == "600000");
  auto part = get("f", "bytes=300000-");
  CHECK(part.status == 206);
  CHECK(part.fields.at("content-range") == "bytes 300000-599999/600000");
  CHECK((part.body == whole.body.substr(300'000)));
  CHECK(get("ten", "bytes=2-4").body == "234");
  CHECK(get("ten", "bytes=-3").body == "789");
  CHECK(get("ten", "bytes=0-99").fields.at("content-range") == "bytes 0-9/10");
  part = get("ten", "bytes=10-");
  CHECK(part.status == 416);
  CHECK(part.fields.at("content-range") == "bytes */10");
  CHECK(get("ten", "bytes=007-9").body == "789");
  for (const auto* range : {"bytes=0-", "bytes=-1", "bytes=7-"}) {
    const auto nothing = get("empty", range);
    CHECK(nothing.status == 200);
    CHECK(nothing.fields.at("content-length") == "0");
  }
  for (const auto* all : {"bytes=0-1,3-4", "bytes=4-2", "pages=1-2", "bytes=a-b"})
    CHECK(get("ten", all).body == "0123456789");
  CHECK(get("none", "bytes=0-1").status == 404);
  CHECK(get("pipe", "bytes=0-1").status == 502);
  // The kernel's own files say nothing true of their length.
  const auto status = of.get("workspace/kernel");
  CHECK(status.complete);
  CHECK(status.body.starts_with("Name:\t"));
  const auto page = of.get("workspace/page");
  CHECK((page.status != 200 || page.complete));
  // Nor do downloads that may go on stumble over that.
  const auto resumable = get("kernel", "bytes=0-");
  CHECK(resumable.status == 200);
  CHECK(resumable.body.starts_with("Name:\t"));
  if (page.status == 200) {
    const auto whole_page = get("page", "bytes=0-");
    CHECK(whole_page.complete);
    CHECK(whole_page.body == page.body);
  }
}
