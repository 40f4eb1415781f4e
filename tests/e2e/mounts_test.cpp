// Buckets of a real S3 service as directories in sandboxes of the real program.
#include "base/limits.hpp"
#include "tests/e2e/node.hpp"
#include "tests/e2e/s3_server.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/internet.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <openssl/sha.h>
#include <optional>
#include <random>

using namespace insula::test;

namespace {

const std::string ok = R"({"ok":true})";
const std::string data = "/workspace/data";

std::string credentials(const std::string& secret = s3_server::secret) {
  return R"(,"credentials":{"accessKeyId":")" + s3_server::key + R"(","secretAccessKey":")" +
         secret + "\"}";
}

/// The services of these tests are on the machine's loopback.
std::string near() {
  return "network: {allow_private: [127.0.0.1/32]}\n";
}

/// What is mounted at `data`, with further options; these are right, but for the bucket.
std::string request(const s3_server& from, const std::string& more = credentials(),
                    const std::string& path = data, const std::string& bucket = "data") {
  return R"({"bucket":)" + json_string(bucket) + R"(,"mountPath":)" + json_string(path) +
         R"(,"options":{"endpoint":")" + from.endpoint() + "\"" + more + "}}";
}

http_answer mount(const node& it, const std::string& id, const std::string& body) {
  return it.ask("POST", "/v1/sandbox/" + id + "/mount", body);
}

void must_mount(const node& it, const std::string& id, const std::string& body) {
  const auto answer = mount(it, id, body);
  INFO(answer.body);
  REQUIRE(answer.status == 200);
  REQUIRE(answer.body == ok);
}

http_answer unmount(const node& it, const std::string& id, const std::string& path = data) {
  return it.ask("POST", "/v1/sandbox/" + id + "/unmount",
                R"({"mountPath":)" + json_string(path) + "}");
}

std::string list(const node& it, const std::string& id) {
  return it.ask("GET", "/v1/sandbox/" + id + "/mounts").body;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// It was refused as a mount, with this in the reason, and without the secret.
void check_refused(const http_answer& answer, const std::string& part) {
  CAPTURE(answer.body, part);
  CHECK(answer.status == 502);
  CHECK(answer.body.starts_with(R"({"error":"mount failed: )"));
  CHECK(answer.body.ends_with(R"(","code":"mount_error"})"));
  CHECK(says(answer.body, part));
  CHECK_FALSE(says(answer.body, s3_server::secret));
}

/// The programs that mount buckets for this node.
std::vector<pid_t> drivers(const node& it) {
  std::vector<pid_t> found;
  for (const auto pid : it.processes()) {
    std::ifstream file{"/proc/" + std::to_string(pid) + "/comm"};
    if (std::string name; std::getline(file, name) && (name == "s3fs" || name == "rclone"))
      found.push_back(pid);
  }
  return found;
}

std::string sha256(const std::string& bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash{};
  ::SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), hash.data());
  std::string text;
  for (const auto byte : hash) {
    constexpr std::string_view digits = "0123456789abcdef";
    text.append({digits[byte >> 4u], digits[byte & 15u]});
  }
  return text;
}

std::string random_bytes(std::size_t count) {
  std::mt19937_64 numbers{count};
  std::string bytes(count, '\0');
  for (auto& each : bytes)
    each = static_cast<char>(numbers());
  return bytes;
}

/// A script in a process of its own that says "up", waits for the file `go` in the workspace, and
/// goes on.
std::vector<std::string> in_two_steps(const std::string& before, const std::string& after) {
  return {"/usr/bin/python3", "-uc",
          "import os,time\n" + before +
            "\nos.write(1, b'up\\n')\n"
            "while not os.path.exists('/workspace/go'): time.sleep(0.01)\n" +
            after + "\n"};
}

void let_go(const node& it) {
  REQUIRE(it.ask("PUT", "/v1/sandbox/a/file/workspace/go", "x").status == 200);
}

/// Connections to the service that have something in them which it has not read: it stands still,
/// and whoever has sent that waits.
std::size_t unread_by(const s3_server& server) {
  std::ifstream table{"/proc/net/tcp"};
  std::size_t count = 0;
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    constexpr unsigned listens = 10;
    unsigned port = 0, state = 0, received = 0;
    if (std::sscanf(line.c_str(), " %*u: %*x:%x %*x:%*x %x %*x:%x", &port, &state, &received) ==
          3 &&
        port == server.port() && state != listens && received > 0)
      ++count;
  }
  return count;
}

/// A busy machine takes a while to end processes. How long it takes is measured in benchmarks.
constexpr auto at_once_nearly = insula::limits::mount_end_patience + 4s;

/// How long it took.
template <class What>
std::chrono::steady_clock::duration time_of(What what) {
  const auto began = std::chrono::steady_clock::now();
  what();
  return std::chrono::steady_clock::now() - began;
}

/// Variables that a server inherits, for as long as this is there.
class server_credentials {
public:
  explicit server_credentials(const std::optional<std::string>& id = {},
                              const std::optional<std::string>& secret = {}) {
    for (const char* name : names)
      ::unsetenv(name);
    if (id && secret) {
      ::setenv(names[0], id->c_str(), 1);
      ::setenv(names[1], secret->c_str(), 1);
    }
  }
  ~server_credentials() {
    for (const char* name : names)
      ::unsetenv(name);
  }
  server_credentials(const server_credentials&) = delete;
  server_credentials& operator=(const server_credentials&) = delete;

private:
  static constexpr const char* names[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                          "R2_ACCESS_KEY_ID", "R2_SECRET_ACCESS_KEY"};
};

/// A binding as cluster.yaml has it.
std::string binding(const std::string& name, const s3_server& of, const std::string& more) {
  return "    " + name + ": {endpoint: \"" + of.endpoint() + "\", bucket: data" + more + "}\n";
}

std::string keys_of_binding() {
  return ", access_key_id: " + s3_server::key + ", secret_access_key: \"" + s3_server::secret +
         "\"";
}

std::string bound(const std::string& name, const std::string& options = {},
                  const std::string& path = data, const std::string& member = "binding") {
  return "{\"" + member + "\":\"" + name + R"(","mountPath":)" + json_string(path) +
         R"(,"options":{)" + options + "}}";
}

} // namespace

TEST_CASE("what a sandbox writes is in the bucket, and what is in the bucket can be read",
          "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near()};
  bucket.put("there/before", "old\n");
  must_mount(it, "a", request(server));
  CHECK(it.sh("a", "cat data/there/before").out == "old\n");
  CHECK(it.sh("a", "mkdir data/sub && echo one > data/sub/file").exit_code == 0);
  CHECK(bucket.get("sub/file") == "one\n");
  bucket.put("sub/of others", "theirs\n");
  CHECK(it.sh("a", "ls data/sub; cat 'data/sub/of others'").out == "file\nof others\ntheirs\n");
  CHECK(it.sh("a", "[[ -w data && -O data/sub/file ]] && echo mine").out == "mine\n");

  SECTION("it can grow") {
    CHECK(it.sh("a", "echo two >> data/sub/file; cat data/sub/file").out == "one\ntwo\n");
    CHECK(bucket.get("sub/file") == "one\ntwo\n");
  }
  SECTION("it can be renamed and removed") {
    CHECK(it.sh("a", "mv data/sub/file data/sub/other && ls data/sub").out == "of others\nother\n");
    CHECK(bucket.get("sub/other") == "one\n");
    CHECK_FALSE(bucket.has("sub/file"));
    CHECK(it.sh("a", "rm data/sub/other").exit_code == 0);
    CHECK_FALSE(bucket.has("sub/other"));
  }
  SECTION("it is a file of the API") {
    CHECK(it.ask("GET", "/v1/sandbox/a/file" + data + "/sub/file").body == "one\n");
    CHECK(it.ask("PUT", "/v1/sandbox/a/file" + data + "/put", "by HTTP").status == 200);
    CHECK(bucket.get("put") == "by HTTP");
  }
  SECTION("it is listed, and stays in the bucket when that is unmounted") {
    CHECK(list(it, "a") == R"({"mounts":[{"mountPath":")" + data +
                             R"(","bucket":"data","endpoint":")" + server.endpoint() +
                             R"(","readOnly":false,"mounted":true}]})");
    CHECK(drivers(it).size() == 1);
    const auto answer = unmount(it, "a", "/workspace/./none//../data/");
    CHECK(answer.status == 200);
    CHECK(answer.body == ok);
    CHECK(list(it, "a") == R"({"mounts":[]})");
    CHECK(it.sh("a", "ls -A").out.empty()); // The directory was made for it.
    CHECK(eventually([&] { return drivers(it).empty(); }));
    CHECK(bucket.get("sub/file") == "one\n");
    must_mount(it, "a", request(server));
    CHECK(it.sh("a", "cat data/sub/file").out == "one\n");
  }
  SECTION("it is not the next sandbox's of this name") {
    CHECK(it.remove("a") == 204);
    CHECK(list(it, "a") == R"({"mounts":[]})");
    CHECK(it.sh("a", "ls -A").out.empty());
  }
}

TEST_CASE("a bucket can be mounted anywhere but where the system's own files are", "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near()};
  bucket.put("file", "content\n");
  for (const std::string path :
       {"/mnt/deep/in there", "/home/sandbox/data", "/tmp/data", "/workspace/é"}) {
    CAPTURE(path);
    must_mount(it, "a", request(server, credentials(), path));
    CHECK(it.sh("a", "cat '" + path + "/file'").out == "content\n");
    CHECK(unmount(it, "a", path).status == 200);
    CHECK(it.sh("a", "[ ! -e '" + path + "' ]").exit_code == 0);
  }
  for (const std::string path : {"/", "//", "/workspace/..", "/proc", "/proc/self", "/sys/x",
                                 "/workspace/../sys", "/dev", "/dev/shm/data"}) {
    CAPTURE(path);
    const auto answer = mount(it, "a", request(server, credentials(), path));
    CHECK(answer.status == 502);
    CHECK(says(answer.body, R"("code":"mount_error")"));
  }
  CHECK(list(it, "a") == R"({"mounts":[]})");
  CHECK(it.sh("a", "echo > /dev/null; ls /proc/self/fd > /tmp/fds && echo fine").out == "fine\n");
}

TEST_CASE("large files go both ways", "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near()};
  constexpr std::size_t size = 32u << 20;
  must_mount(it, "a", request(server));
  const auto written =
    it.sh("a", "head -c " + std::to_string(size) + " /dev/urandom | tee data/out | sha256sum");
  CHECK(written.exit_code == 0);
  const auto out = bucket.get("out");
  REQUIRE(out);
  CHECK(out->size() == size);
  CHECK(written.out == sha256(*out) + "  -\n");

  const auto in = random_bytes(size);
  bucket.put("in", in);
  CHECK(it.sh("a", "sha256sum < data/in").out == sha256(in) + "  -\n");
  // What is large is copied in parts by the service.
  CHECK(it.sh("a", "mv data/in data/there && printf end >> data/there").exit_code == 0);
  const auto there = bucket.get("there");
  REQUIRE(there);
  CHECK(sha256(*there) == sha256(in + "end"));
  CHECK_FALSE(bucket.has("in"));
}

TEST_CASE(
  "files can be larger than the cache together, and to be read, but not one that is written",
  "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near() + "buckets: {cache: 64MiB}"};
  constexpr std::size_t size = 100u << 20, part = 30u << 20;
  bucket.put("large", random_bytes(size));
  must_mount(it, "a", request(server));
  CHECK(it.sh("a", "sha256sum < data/large").out == sha256(random_bytes(size)) + "  -\n");
  const auto written = it.sh(
    "a", "head -c " + std::to_string(size) + " /dev/urandom > own; for i in 1 2 3 4; do head -c " +
           std::to_string(part) + " own > data/$i || exit 1; done; sha256sum < data/1");
  CHECK(written.exit_code == 0);
  const auto last = bucket.get("4");
  REQUIRE(last);
  CHECK(written.out == sha256(*last) + "  -\n");
  const auto refused = it.sh("a", "cat own > data/copy");
  CHECK(refused.exit_code != 0);
  CHECK(says(refused.err, "Input/output error"));
  CHECK(it.sh("a", "echo fine > data/next && cat data/next").out == "fine\n");
}

TEST_CASE("five hundred small files", "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near()};
  must_mount(it, "a", request(server));
  REQUIRE(
    it.sh("a", "mkdir data/many; for i in {1..500}; do echo $i > data/many/$i; done").exit_code ==
    0);
  CHECK(
    it.sh("a", "ls data/many | wc -l; cat data/many/* | sort -n | md5sum; seq 500 | md5sum").out ==
    it.sh("a", "echo 500; seq 500 | md5sum; seq 500 | md5sum").out);
  const auto files = [&] {
    auto all = bucket.list("many/");
    std::erase_if(all, [](const auto& each) { return each.first.ends_with('/'); });
    return all.size();
  };
  CHECK(files() == 500);
  CHECK(it.sh("a", "rm -r data/many && ls -A data").out.empty());
  CHECK(files() == 0);
}

TEST_CASE("a prefix is all that is seen of its bucket", "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near()};
  bucket.put("part/of it/one", "1\n");
  bucket.put("other", "2\n");
  const std::string prefix = GENERATE("/part", "/part/");
  must_mount(it, "a", request(server, credentials() + R"(,"prefix":")" + prefix + "\""));
  CHECK(it.sh("a", "ls -A data; cat 'data/of it/one'").out == "of it\n1\n");
  CHECK(it.sh("a", "echo 3 > data/new; cat data/../other data/other 2>/dev/null").out.empty());
  CHECK(bucket.get("part/new") == "3\n");
  CHECK(says(list(it, "a"), R"("prefix":"/part)"));
  check_refused(
    mount(it, "a", request(server, credentials() + R"(,"prefix":"part")", "/workspace/b")),
    R"(Prefix must start with '/': \"part\")");
}

TEST_CASE("a prefix can be longer than what the kernel lists a mount by", "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near()};
  const std::string part(150, 'p'), prefix = "/" + part + "/" + part;
  bucket.put(part + "/" + part + "/file", "content\n");
  must_mount(it, "a", request(server, credentials() + R"(,"prefix":")" + prefix + "\""));
  CHECK(it.sh("a", "cat data/file; echo new > data/new").out == "content\n");
  CHECK(bucket.get(part + "/" + part + "/new") == "new\n");
}

TEST_CASE("nothing can be written to what was mounted to be read", "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near()};
  bucket.put("file", "content\n");
  must_mount(it, "a", request(server, credentials() + R"(,"readOnly":true)"));
  CHECK(it.sh("a", "cat data/file").out == "content\n");
  for (const std::string change :
       {"echo x > data/new", "echo x >> data/file", "rm data/file", "mkdir data/d"}) {
    CAPTURE(change);
    const auto done = it.sh("a", change);
    CHECK(done.exit_code != 0);
    CHECK(says(done.err, "Read-only file system"));
  }
  CHECK(bucket.list() == std::map<std::string, std::uint64_t>{{"file", 8}});
  CHECK(says(list(it, "a"), R"("readOnly":true)"));
}

TEST_CASE("what cannot be mounted is told, and leaves nothing behind", "[mounts]") {
  s3_server server;
  const node it{near()};
  REQUIRE(it.sh("a", "mkdir kept").exit_code == 0);
  const auto check = [&](const std::string& part,
                         const std::function<std::string(std::string)>& body) {
    for (const auto& path : {data, std::string{"/workspace/kept"}})
      check_refused(mount(it, "a", body(path)), part);
    for (const auto& path : {data + "/deep/down", std::string{"/workspace/kept/down"}})
      check_refused(mount(it, "a", body(path)), part);
    CHECK(it.sh("a", "ls -A . kept; grep -c fuse /proc/self/mounts").out ==
          ".:\nkept\n\nkept:\n0\n");
    CHECK(list(it, "a") == R"({"mounts":[]})");
    CHECK(eventually([&] { return drivers(it).empty(); }));
  };
  SECTION("wrong credentials") {
    check("S3FS mount failed: ",
          [&](const std::string& path) { return request(server, credentials("another"), path); });
  }
  SECTION("no such bucket") {
    check("S3FS mount failed: ",
          [&](const std::string& path) { return request(server, credentials(), path, "none"); });
  }
  SECTION("nobody is there") {
    server.kill();
    check("S3FS mount failed: ",
          [&](const std::string& path) { return request(server, credentials(), path); });
  }
  SECTION("somebody is there and says nothing") {
    server.stop();
    check("S3FS mount failed: FUSE filesystem never appeared at /workspace/",
          [&](const std::string& path) { return request(server, credentials(), path); });
  }
  SECTION("no name of a bucket") {
    check(R"(Invalid bucket name: \"Data\".)",
          [&](const std::string& path) { return request(server, credentials(), path, "Data"); });
    check("Bucket name cannot contain ':'", [&](const std::string& path) {
      return request(server, credentials(), path, "data:/part");
    });
  }
  SECTION("no URL") {
    check(R"(Invalid endpoint URL: \"s3\". Must be a valid HTTP(S) URL.)",
          [&](const std::string& path) {
            return R"({"bucket":"data","mountPath":")" + path + R"(","options":{"endpoint":"s3")" +
                   credentials() + "}}";
          });
  }
  CHECK_FALSE(says(it.log(), s3_server::secret));
}

TEST_CASE("a path takes one bucket, and a directory with files none unless that is wanted",
          "[mounts]") {
  const s3_server server{{"data", "other"}};
  const s3_client bucket{server};
  const node it{near()};
  bucket.put("file", "of the bucket\n");
  must_mount(it, "a", request(server));
  for (const auto& path : {data, data + "/", std::string{"/tmp/../workspace//./data"}})
    check_refused(
      mount(it, "a", request(server, credentials(), path, "other")),
      R"(Mount path \"/workspace/data\" is already in use by bucket \"data\". Unmount the existing bucket first or use a different mount path.)");
  must_mount(it, "a", request(server, credentials(), "/workspace/other", "other"));
  CHECK(drivers(it).size() == 2);

  REQUIRE(it.sh("a", "mkdir full; echo 'of the sandbox' > full/own").exit_code == 0);
  const std::string full = "/workspace/full";
  check_refused(mount(it, "a", request(server, credentials(), full)), "");
  CHECK(it.sh("a", "cat full/own").out == "of the sandbox\n");
  must_mount(it, "a", request(server, credentials() + R"(,"s3fsOptions":["nonempty"])", full));
  CHECK(it.sh("a", "cat full/*").out == "of the bucket\n");
  CHECK(unmount(it, "a", full).status == 200);
  CHECK(it.sh("a", "cat full/*").out == "of the sandbox\n");
}

TEST_CASE("what is not mounted cannot be unmounted", "[mounts]") {
  const node it{near()};
  const auto why = [](const std::string& path) {
    return R"({"error":"unmount failed: No active mount found at path: )" + path +
           R"(","code":"unmount_error"})";
  };
  const auto never = unmount(it, "never");
  CHECK(never.status == 502);
  CHECK(never.body == why(data));
  CHECK(it.sandbox_groups().empty()); // Nobody was started for it.
  REQUIRE(it.sh("a", "mkdir data").exit_code == 0);
  CHECK(unmount(it, "a", "//workspace/x/../data/").body == why(data));
  CHECK(unmount(it, "a", "/proc").body == why("/proc"));
  CHECK(it.sh("a", "ls").out == "data\n");
}

TEST_CASE("a sandbox has a number of mounts", "[mounts][slow]") {
  const s3_server server;
  const node it{near()};
  const auto at = [](std::size_t i) { return "/workspace/" + std::to_string(i); };
  for (std::size_t i = 0; i < insula::limits::mounts_per_sandbox; ++i)
    must_mount(it, "a", request(server, credentials(), at(i)));
  check_refused(
    mount(it, "a", request(server, credentials(), at(insula::limits::mounts_per_sandbox))), "");
  CHECK(drivers(it).size() == insula::limits::mounts_per_sandbox);
  CHECK(it.sh("a", "echo x > 0/file; cat 15/file").out == "x\n");
  CHECK(unmount(it, "a", at(3)).status == 200);
  must_mount(it, "a", request(server, credentials(), at(16)));
  CHECK(it.remove("a") == 204);
  CHECK(drivers(it).empty());
}

TEST_CASE("a sandbox whose bucket does not answer can be deleted", "[mounts]") {
  const s3_server server;
  const node it{near()};
  must_mount(it, "a", request(server));
  auto writing = it.open(
    "a", in_two_steps("f = open('data/file', 'wb'); f.write(b'x' * 10_000_000)", "f.close()"));
  REQUIRE(writing.next());
  auto reading = it.open("a", in_two_steps("", "os.listdir('data/none')"));
  REQUIRE(reading.next());
  server.stop();
  let_go(it);
  REQUIRE(eventually([&] { return unread_by(server) >= 2; })); // Both are in the middle of it.
  CHECK(time_of([&] { CHECK(it.remove("a") == 204); }) < at_once_nearly);
  CHECK_FALSE(writing.rest().exit_code);
  CHECK(it.sandbox_groups().empty());
  CHECK(eventually([&] { return drivers(it).empty(); }));
  CHECK(it.sh("a", "echo fine").out == "fine\n");
}

TEST_CASE("a bucket that does not answer is unmounted, and once it does it has what was written",
          "[mounts][slow]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near()};
  must_mount(it, "a", request(server));
  auto writing = it.open("a", in_two_steps("f = open('data/file', 'wb'); f.write(b'x' * 1_000_000)",
                                           "f.close(); print('closed')"));
  REQUIRE(writing.next());
  server.stop();
  let_go(it);
  REQUIRE(eventually([&] { return unread_by(server) >= 1; }));
  const auto took = time_of([&] {
    const auto answer = unmount(it, "a");
    CHECK(answer.status == 200);
    CHECK(answer.body == ok);
  });
  CHECK(took >= insula::limits::unmount_patience);
  CHECK(took < insula::limits::unmount_patience + at_once_nearly);
  CHECK(list(it, "a") == R"({"mounts":[]})");
  CHECK(it.sh("a", "ls").out == "go\n");
  server.resume();
  const auto rest = writing.rest();
  CHECK(rest.exit_code == 0);
  CHECK(rest.out == "closed\n");
  CHECK(bucket.get("file") == std::string(1'000'000, 'x'));
  CHECK(eventually([&] { return drivers(it).empty(); }));
}

TEST_CASE("below a mount that does not answer nothing is mounted, and elsewhere it is",
          "[mounts][slow]") {
  const s3_server server, other;
  const s3_client bucket{other};
  const node it{near()};
  bucket.put("file", "content\n");
  must_mount(it, "a", request(server));
  server.stop();
  const auto took = time_of(
    [&] { check_refused(mount(it, "a", request(other, credentials(), data + "/below")), ""); });
  CHECK(took < insula::limits::mount_patience + 2 * at_once_nearly);
  must_mount(it, "a", request(other, credentials(), "/workspace/beside"));
  CHECK(it.sh("a", "cat beside/file").out == "content\n");
  CHECK(time_of([&] { CHECK(it.remove("a") == 204); }) < at_once_nearly);
  CHECK(eventually([&] { return drivers(it).empty(); }));
}

TEST_CASE("a mount lies in another one, after each start", "[mounts]") {
  const s3_server server{{"data", "other"}};
  const s3_client bucket{server}, other{server, "other"};
  node it{near()};
  const auto inner = data + "/inner";
  must_mount(it, "a", request(server));
  must_mount(it, "a", request(server, credentials(), inner, "other"));
  it.crash_both();
  it.start();
  REQUIRE(it.sh("a", "echo outer > data/file; echo inner > data/inner/file").exit_code == 0);
  CHECK(bucket.get("file") == "outer\n");
  CHECK(other.get("file") == "inner\n");
  CHECK_FALSE(bucket.has("inner/file"));
  const auto refused = unmount(it, "a");
  CHECK(refused.status == 502);
  CHECK(
    refused.body ==
    R"({"error":"unmount failed: Mount path \"/workspace/data\" has another mount in it, at \"/workspace/data/inner\". Unmount that one first.","code":"unmount_error"})");
  CHECK(it.sh("a", "cat data/inner/file").out == "inner\n");
  CHECK(unmount(it, "a", inner).status == 200);
  CHECK(unmount(it, "a").status == 200);
  CHECK(it.sh("a", "ls").out.empty());
}

TEST_CASE("what is written late is in its bucket although the server has gone meanwhile",
          "[mounts][slow][adoption]") {
  const s3_server server;
  const s3_client bucket{server};
  node it{near()};
  must_mount(it, "a", request(server));
  REQUIRE(it.sh("a", "(exec 3> data/held; until [ -e go ]; do sleep 0.01; done; echo held >&3) "
                     "> /dev/null 2>&1 &")
            .exit_code == 0);
  const auto before = drivers(it);
  REQUIRE(before.size() == 1);
  {
    const std::jthread asking{[&] {
      try {
        unmount(it, "a");
      } catch (const std::exception&) { // Its server goes.
      }
    }};
    REQUIRE(eventually([&] { return it.sh("a", "[ ! -e data ]").exit_code == 0; }));
    it.crash_server();
  }
  it.start();
  // What is asked now has as long a limit as what was asked before, and is over after that.
  must_mount(it, "b", request(server));
  REQUIRE(it.sh("b", "sleep 1000 > data/other 2>&1 &").exit_code == 0);
  CHECK(unmount(it, "b").status == 200);
  let_go(it);
  CHECK(eventually([&] { return bucket.get("held") == "held\n"; }));
  const auto ended = [&] {
    const auto now = drivers(it);
    return std::find(now.begin(), now.end(), before[0]) == now.end();
  };
  CHECK(eventually(ended));
}

TEST_CASE("whoever writes while the service goes hears of it, and the sandbox goes on",
          "[mounts]") {
  s3_server server;
  const s3_client bucket{server};
  const node it{near()};
  must_mount(it, "a", request(server));
  REQUIRE(it.sh("a", "echo old > data/old").exit_code == 0);
  auto writing = it.open(
    "a", in_two_steps("f = open('data/file', 'wb'); f.write(b'x' * 10_000_000)", "f.close()"));
  REQUIRE(writing.next());
  server.kill();
  let_go(it);
  const auto rest = writing.rest();
  REQUIRE(rest.exit_code);
  CHECK(rest.exit_code != 0);
  CHECK(says(rest.err, "OSError"));
  CHECK(it.sh("a", "echo fine").out == "fine\n");
  CHECK(it.ask("GET", "/v1/sandbox/a/mounts").status == 200);
  server.start();
  CHECK(eventually([&] { return it.sh("a", "echo new > data/new").exit_code == 0; }));
  CHECK(bucket.get("new") == "new\n");
  CHECK(it.sh("a", "cat data/old").out == "old\n");
}

TEST_CASE("a bucket that is in use is unmounted, and what is written late is in it", "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near()};
  must_mount(it, "a", request(server));
  auto using_it =
    it.open("a", in_two_steps("os.chdir('data'); f = open('late', 'w'); f.write('be'); f.flush()",
                              "f.write('fore'); f.close(); print('closed')"));
  REQUIRE(using_it.next());
  const auto answer = unmount(it, "a");
  CHECK(answer.status == 200);
  CHECK(answer.body == ok);
  CHECK(list(it, "a") == R"({"mounts":[]})");
  CHECK(it.sh("a", "ls -A").out.empty());
  let_go(it);
  const auto rest = using_it.rest();
  CHECK(rest.exit_code == 0);
  CHECK(rest.out == "closed\n");
  CHECK(eventually([&] { return bucket.get("late") == "before"; }));
  CHECK(eventually([&] { return drivers(it).empty(); }));
  must_mount(it, "a", request(server));
  CHECK(it.sh("a", "cat data/late").out == "before");
}

TEST_CASE("a sandbox that is deleted takes what has mounted its buckets with it", "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near()};
  must_mount(it, "a", request(server));
  must_mount(it, "a", request(server, credentials(), "/workspace/again"));
  must_mount(it, "b", request(server));
  CHECK(drivers(it).size() == 3);
  REQUIRE(
    it.sh("a", "echo kept > data/file; sleep 1000 < data/file > /dev/null 2>&1 &").exit_code == 0);
  CHECK(it.remove("a") == 204);
  CHECK(drivers(it).size() == 1);
  CHECK(it.sh("b", "cat data/file").out == "kept\n");
  CHECK(it.remove("b") == 204);
  CHECK(drivers(it).empty());
  CHECK(bucket.get("file") == "kept\n");
}

TEST_CASE("twenty sandboxes share a bucket", "[mounts]") {
  constexpr std::size_t count = 20;
  const s3_server server;
  const node it{near()};
  const std::string names = "abcdefghijklmnopqrst";
  const auto mounted = at_once(count, [&](std::size_t i) {
    const std::string id(1, names[i]);
    http_answer got;
    // Twenty programs that start at once on a busy machine may take longer than a mount waits.
    eventually([&] {
      got = mount(it, id, request(server));
      return got.body.find("FUSE filesystem never appeared") == std::string::npos;
    });
    if (got.status != 200)
      return got.body;
    return it.sh(id, "echo " + id + " > data/of_" + id).err;
  });
  CHECK(mounted == std::vector<std::string>(count));
  const auto seen = at_once(count, [&](std::size_t i) {
    const std::string id(1, names[i]);
    std::string all;
    eventually([&] { return (all = it.sh(id, "cat data/of_* | tr -d '\\n'").out) == names; });
    return all;
  });
  CHECK(seen == std::vector<std::string>(count, names));
  CHECK(drivers(it).size() == count);
}

TEST_CASE("buckets of the node's are mounted by their names", "[mounts]") {
  const server_credentials none;
  const s3_server server;
  const s3_client bucket{server};
  bucket.put("part/file", "content\n");
  const node it{near() + "buckets:\n  bindings:\n" + binding("DATA", server, keys_of_binding()) +
                binding("KEPT", server, keys_of_binding() + ", read_only: true") +
                binding("BARE", server, "")};
  SECTION("in either member") {
    must_mount(it, "a", bound("DATA", {}, data, GENERATE("binding", "bucket")));
    CHECK(it.sh("a", "cat data/part/file; echo new > data/new").out == "content\n");
    CHECK(bucket.get("new") == "new\n");
    CHECK(list(it, "a") ==
          R"({"mounts":[{"mountPath":")" + data +
            R"(","bucket":"data","binding":"DATA","readOnly":false,"mounted":true}]})");
    check_refused(mount(it, "a", bound("DATA", R"("prefix":"/part")", "/workspace/b")), "");
    CHECK(unmount(it, "a").status == 200);
    must_mount(it, "a", bound("DATA", R"("prefix":"/part","readOnly":true)"));
    CHECK(it.sh("a", "cat data/file").out == "content\n");
  }
  SECTION("read only, whatever is asked for") {
    must_mount(it, "a", bound("KEPT", R"("readOnly":false)"));
    CHECK(says(it.sh("a", "cat data/part/file; echo > data/new").err, "Read-only file system"));
    CHECK(says(list(it, "a"), R"("readOnly":true)"));
  }
  SECTION("that are there, and for which there are credentials") {
    check_refused(mount(it, "a", bound("NONE")), R"(R2 binding \"NONE\" not found)");
    check_refused(mount(it, "a", bound("my-data")), "Invalid R2 binding name");
    check_refused(mount(it, "a", bound("BARE")), "No credentials found.");
    check_refused(mount(it, "a", request(server, "")), "No credentials found.");
    CHECK(it.sh("a", "ls -A").out.empty());
  }
}

TEST_CASE("the server's own credentials are for mounts that bring none", "[mounts]") {
  const server_credentials own{s3_server::key, s3_server::secret};
  const s3_server server, other;
  const node it{near() + "buckets:\n  credentials_for: [\"" + server.endpoint() +
                "\"]\n  bindings:\n" + binding("BARE", server, "")};
  must_mount(it, "a", request(server, ""));
  must_mount(it, "a", bound("BARE", {}, "/workspace/bare"));
  CHECK(it.sh("a", "echo x > data/file; cat bare/file").out == "x\n");
  check_refused(mount(it, "a", request(other, "", "/workspace/b")), "No credentials found.");
  check_refused(mount(it, "a", request(server, R"(,"s3fsOptions":["sigv2"])", "/workspace/b")),
                R"(The s3fs option \"sigv2\" is not allowed with the node's own credentials.)");
  check_refused(mount(it, "a", request(server, credentials("another"), "/workspace/c")),
                "S3FS mount failed: ");
}

TEST_CASE("credentials are nowhere in a sandbox", "[mounts]") {
  const server_credentials own{"INSULATESTKEY0000002", s3_server::secret};
  const s3_server server;
  const std::string driver = GENERATE("s3fs", "rclone");
  CAPTURE(driver);
  const node it{near() + "buckets:\n  driver: " + driver + "\n  bindings:\n" +
                binding("DATA", server, keys_of_binding())};
  must_mount(it, "a",
             request(server, credentials() + R"(,"credentialProxy":)" +
                               std::string{GENERATE("true", "false")}));
  must_mount(it, "a", bound("DATA", {}, "/workspace/bound"));
  check_refused(mount(it, "a", request(server, credentials("another"), "/workspace/c")), "");
  REQUIRE(it.sh("a", "echo x > data/file && echo y > bound/other").exit_code == 0);
  const s3_client bucket{server};
  CHECK(eventually([&] { return bucket.get("file") == "x\n" && bucket.get("other") == "y\n"; }));
  // In two halves, so that the one who searches does not find itself.
  const auto half = s3_server::secret.size() / 2;
  const auto found = it.exec(
    "a",
    {"/usr/bin/python3", "-c",
     "import os\n"
     "secret = ('" +
       s3_server::secret.substr(0, half) + "' + '" + s3_server::secret.substr(half) +
       "').encode()\n"
       "looked = 0\n"
       "def look(path):\n"
       "  global looked\n"
       "  try:\n"
       "    with open(path, 'rb') as f:\n"
       "      if secret in f.read(1 << 24): print(path)\n"
       "      looked += 1\n"
       "  except OSError: pass\n"
       "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
       "  for name in ('cmdline', 'environ', 'mounts', 'mountinfo', 'mountstats', 'comm'):\n"
       "    look(f'/proc/{pid}/{name}')\n"
       "  try:\n"
       "    if open(f'/proc/{pid}/comm').read() in ('s3fs\\n', 'rclone\\n'): print('driver', pid)\n"
       "  except OSError: pass\n"
       "for top in ('/tmp', '/var', '/run', '/home', '/etc', '/workspace', '/dev/shm', '/root'):\n"
       "  for where, _, files in os.walk(top):\n"
       "    for each in files:\n"
       "      if os.path.isfile(f'{where}/{each}'): look(f'{where}/{each}')\n"
       "print('looked' if looked > 10 else 'blind')\n"});
  CHECK(found.out == "looked\n");
  CHECK(found.err.empty());
  CHECK_FALSE(says(it.sh("a", "env; mount").out, s3_server::secret));
  CHECK_FALSE(says(list(it, "a"), s3_server::key));
  CHECK_FALSE(says(it.log(), s3_server::secret));
  // Nor can another user of this machine read it.
  const auto content = [](pid_t pid, const std::string& name) {
    std::ifstream file{"/proc/" + std::to_string(pid) + "/" + name};
    return std::string{std::istreambuf_iterator<char>{file}, {}};
  };
  for (const auto pid : it.processes())
    CHECK_FALSE(says(content(pid, "cmdline"), s3_server::secret));
  const auto all = drivers(it);
  CHECK(all.size() == 2);
  for (const auto pid : all) {
    const auto variables = content(pid, "environ");
    CHECK(says(variables, "HOME=/tmp/cache"));
    CHECK_FALSE(says(variables, s3_server::secret));
    CHECK_FALSE(says(variables, "AWS_"));
  }
}

TEST_CASE("mounts outlive their server", "[mounts][adoption]") {
  const int signal = GENERATE(SIGKILL, SIGTERM);
  CAPTURE(signal);
  const s3_server server;
  const s3_client bucket{server};
  node it{near()};
  must_mount(it, "a", request(server));
  REQUIRE(it.sh("a", "(exec 3> data/held; until [ -e go ]; do sleep 0.01; done; echo held >&3) "
                     "> /dev/null 2>&1 &")
            .exit_code == 0);
  const auto before = drivers(it);
  REQUIRE(before.size() == 1);
  it.stop(signal);
  it.start();
  CHECK(says(list(it, "a"), R"("mountPath":"/workspace/data","bucket":"data")"));
  CHECK(it.sh("a", "echo new > data/new && cat data/new").out == "new\n");
  CHECK(bucket.get("new") == "new\n");
  CHECK(drivers(it) == before);
  CHECK(says(list(it, "a"), R"("mounted":true)"));
  let_go(it);
  CHECK(eventually([&] { return bucket.get("held") == "held\n"; }));
  check_refused(mount(it, "a", request(server)), "is already in use by bucket");
  CHECK(unmount(it, "a").status == 200);
  CHECK(eventually([&] { return drivers(it).empty(); }));
  CHECK(it.sh("a", "[ ! -e data ] && echo gone").out == "gone\n");
  must_mount(it, "a", request(server));
  CHECK(it.sh("a", "cat data/new").out == "new\n");
}

TEST_CASE("a mount is there again when its sandbox starts again", "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  node it{near() + "sandbox: {freeze_after: 500ms, stop_after: 3s}"};
  must_mount(it, "a", request(server));
  REQUIRE(it.sh("a", "echo kept > data/file; echo lost > file").exit_code == 0);
  SECTION("after it was stopped for being idle") {
    REQUIRE(
      eventually([&] { return it.log().find("sandbox.idle id=a") != std::string::npos; }, 60s));
    CHECK(eventually([&] { return drivers(it).empty(); }));
    CHECK(says(list(it, "a"), R"("mounted":false)"));
  }
  SECTION("after server and spawner were killed") {
    it.crash_both();
    it.start();
    CHECK(says(list(it, "a"), R"("mounted":false)"));
  }
  CHECK(it.sh("a", "cat data/file; ls").out == "kept\ndata\n");
  CHECK(says(list(it, "a"), R"("mounted":true)"));
  CHECK(it.sh("a", "echo new > data/new").exit_code == 0);
  CHECK(bucket.get("new") == "new\n");
  CHECK(unmount(it, "a").status == 200);
  CHECK(it.sh("a", "ls").out.empty());
}

TEST_CASE("a sandbox that was frozen goes on with its mounts", "[mounts][idle]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near() + "sandbox: {freeze_after: 500ms}"};
  const auto frozen = [&] {
    return says(it.ask("GET", "/console/sandboxes").body, R"("id":"a","state":"frozen")");
  };
  must_mount(it, "a", request(server));
  REQUIRE(eventually(frozen));
  bucket.put("file", "content\n");
  CHECK(it.sh("a", "cat data/file").out == "content\n");
  REQUIRE(eventually(frozen));
  CHECK(unmount(it, "a").status == 200);
  CHECK(it.sh("a", "ls").out.empty());
}

TEST_CASE("a sandbox whose service is away starts all the same, and can do without its mount",
          "[mounts]") {
  s3_server server;
  node it{near()};
  must_mount(it, "a", request(server));
  REQUIRE(it.sh("a", "echo kept > data/file").exit_code == 0);
  it.crash_both();
  server.kill();
  it.start();
  CHECK(it.sh("a", "echo fine").out == "fine\n");
  CHECK(says(list(it, "a"), R"("mounted":false)"));
  CHECK(unmount(it, "a").status == 200);
  CHECK(list(it, "a") == R"({"mounts":[]})");
}

TEST_CASE("a mount comes back by itself when its service does", "[mounts][slow]") {
  s3_server server;
  const s3_client bucket{server};
  node it{near()};
  must_mount(it, "a", request(server));
  it.crash_both();
  server.kill();
  it.start();
  REQUIRE(it.sh("a", "[ ! -e data ]").exit_code == 0);
  server.start();
  CHECK(eventually([&] { return says(list(it, "a"), R"("mounted":true)"); }));
  CHECK(it.sh("a", "echo new > data/new").exit_code == 0);
  CHECK(bucket.get("new") == "new\n");
}

TEST_CASE("rclone mounts buckets as well", "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  bucket.put("there/before", "old\n");
  const node it{near() + "buckets: {driver: rclone}"};
  must_mount(it, "a", request(server));
  CHECK(it.sh("a", "cat data/there/before").out == "old\n");
  CHECK(it.sh("a", "mkdir -p data/sub && echo one > data/sub/file && echo two >> data/sub/file")
          .exit_code == 0);
  CHECK(it.sh("a", "cat data/sub/file").out == "one\ntwo\n");
  CHECK(eventually([&] { return bucket.get("sub/file") == "one\ntwo\n"; }));
  // What is written just before is in the bucket all the same.
  CHECK(it.sh("a", "echo last > data/last").exit_code == 0);
  CHECK(unmount(it, "a").status == 200);
  CHECK(eventually([&] { return bucket.get("last") == "last\n"; }));
  CHECK(eventually([&] { return drivers(it).empty(); }));
  const auto refused = mount(it, "a", request(server, credentials("another")));
  CHECK(refused.status == 502);
  CHECK_FALSE(says(refused.body, s3_server::secret));
  must_mount(it, "a", request(server, credentials() + R"(,"readOnly":true)"));
  CHECK(says(it.sh("a", "echo x > data/new").err, "Read-only file system"));
}

TEST_CASE("what was closed in a mount of rclone's is in the bucket after an unmount", "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near() + "buckets: {driver: rclone}"};
  must_mount(it, "a", request(server));
  // More than the kernel tells a program of at once.
  REQUIRE(it.sh("a", "for i in {1..300}; do echo $i > data/$i; done").exit_code == 0);
  SECTION("of the mount") {
    CHECK(unmount(it, "a").status == 200);
  }
  SECTION("with the sandbox") {
    CHECK(it.remove("a") == 204);
  }
  CHECK(eventually([&] { return drivers(it).empty(); }));
  CHECK(bucket.list().size() == 300);
  CHECK(bucket.get("300") == "300\n");
}

TEST_CASE("what was closed in a mount of rclone's outlives its sandbox, which waits for nothing",
          "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near() + "buckets: {driver: rclone}"};
  must_mount(it, "a", request(server));
  auto writing =
    it.open("a", in_two_steps("f = open('data/file', 'wb'); f.write(b'x' * 50_000_000)",
                              "f.close(); print('closed')"));
  REQUIRE(writing.next());
  server.stop();
  let_go(it);
  CHECK(writing.rest().out == "closed\n");
  REQUIRE(eventually([&] { return unread_by(server) >= 1; }));
  CHECK(time_of([&] { CHECK(it.remove("a") == 204); }) < at_once_nearly);
  CHECK(it.sandbox_groups().empty());
  CHECK(drivers(it).size() == 1);
  SECTION("the service goes on") {
    server.resume();
    CHECK(eventually([&] { return drivers(it).empty(); }));
    const auto file = bucket.get("file");
    REQUIRE(file);
    CHECK(*file == std::string(50'000'000, 'x'));
  }
  SECTION("and does not hold up what comes next") {
    CHECK(it.sh("a", "ls -A").out.empty());
    CHECK(it.remove("a") == 204);
    server.resume();
    CHECK(eventually([&] { return drivers(it).empty(); }));
  }
}

// ---- What a bucket's program can reach, and what is heard of it

namespace {

/// An HTTP service on the loopback of the calling thread's network, at this port (0: any). Answers
/// every request with this status and this banner. Says where it is, then for each request the
/// beginning of its Authorization.
constexpr const char* banner_service = R"(
import http.server,socketserver,sys
class Banner(http.server.BaseHTTPRequestHandler):
  def do_GET(self):
    print((self.headers.get('Authorization') or 'nothing')[:8], flush=True)
    body=b'INTERNAL-SECRET-BANNER'
    self.send_response(int(sys.argv[2])); self.send_header('Content-Length', str(len(body)))
    self.end_headers()
    if self.command != 'HEAD': self.wfile.write(body)
  do_HEAD=do_PUT=do_GET
  def log_message(self, *_): pass
class Service(socketserver.ThreadingMixIn, http.server.HTTPServer): daemon_threads=True
s=Service(('127.0.0.1',int(sys.argv[1])),Banner); print(s.server_port,flush=True); s.serve_forever()
)";

std::vector<std::string> banner(const std::string& port, const std::string& status) {
  return {"/usr/bin/python3", "-c", banner_service, port, status};
}

std::string request_to(const std::string& endpoint, const std::string& more = credentials()) {
  return R"({"bucket":"data","mountPath":")" + data + R"(","options":{"endpoint":")" + endpoint +
         "\"" + more + "}}";
}

constexpr const char* one_try = R"(,"s3fsOptions":["retries=1"])";

/// A node in the middle of an internet, with a service on its loopback that nobody asks.
struct guarded_node : internet, node {
  guarded_node()
      : internet(INSULA_NETWORK_SITES)
      , node("network: {resolvers: [203.0.113.2]}\n") {
    REQUIRE(inside.read_line(60s) == "9000");
  }
  void check_unasked() {
    CHECK(inside.running());
    CHECK_THROWS(inside.read_line(0s));
  }

  child_program inside{banner("9000", "200")};
};

std::string namespace_of(pid_t pid, const std::string& kind) {
  return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/ns/" + kind);
}

} // namespace

TEST_CASE("an endpoint is nowhere that only the node can reach", "[mounts]") {
  guarded_node it;
  for (const std::string host :
       {"127.0.0.1",       "localhost",         "x.localhost", "[::1]",      "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "2130706433",  "0x7f000001", "0x7f.1",
        "127.1",           "0177.0.0.1",        "127.0.0.1.",  "0.0.0.0",    "169.254.169.254",
        "10.1.2.3",        "192.168.0.1",       "100.64.0.1",  "[fd00::1]",  "[fe80::1]"}) {
    CAPTURE(host);
    const auto answer = mount(it, "a", request_to("http://" + host + ":9000"));
    check_refused(answer, "The endpoint \\\"http://" + host + ":9000\\\" is not allowed: ");
  }
  // What the gateway finds out: the node's own address, and where names lead.
  for (const std::string host : {"203.0.113.1", "rebound.example", "inner.example",
                                 "metadata.example", "nowhere.example", "empty.example"}) {
    CAPTURE(host);
    check_refused(mount(it, "a", request_to("http://" + host + ":9000", credentials() + one_try)),
                  "The endpoint cannot be reached");
  }
  it.check_unasked();
  CHECK(list(it, "a") == R"({"mounts":[]})");
  CHECK(eventually([&] { return drivers(it).empty(); }));
}

TEST_CASE("a service cannot lead a mount to what only the node can reach", "[mounts]") {
  guarded_node it;
  must_mount(it, "a", request_to("http://moving.example:9000", credentials() + one_try));
  REQUIRE(it.ask("PUT", "/v1/sandbox/a/network", R"({"mode":"deny-all"})").status == 200);
  CHECK(it.sh("a", "cat data/file").out == "content\n");
  SECTION("by a redirect") {
    const auto read = it.sh("a", "cat data/away");
    CHECK(read.exit_code != 0);
    CHECK(read.out.empty());
  }
  SECTION("by a name that moves there") {
    output_of({"/usr/bin/curl", "-sS", "http://203.0.113.2:9000/move/moving.example/127.0.0.1"});
    int next = 0; // An object that was not asked for before.
    CHECK(
      eventually([&] { return it.sh("a", "cat data/" + std::to_string(++next)).exit_code != 0; }));
    CHECK(it.sh("a", "cat data/another").out.empty());
  }
  it.check_unasked();
}

TEST_CASE("nothing of what a service says is in an answer, and the log has it", "[mounts]") {
  const std::string driver = GENERATE("s3fs", "rclone");
  CAPTURE(driver);
  child_program service{banner("0", "403")};
  const auto endpoint = "http://127.0.0.1:" + service.read_line(60s).value();
  const node it{near() + "buckets: {driver: " + driver + "}"};
  const auto answer = mount(it, "a", request_to(endpoint));
  check_refused(answer, "The service refuses the credentials.");
  CHECK_FALSE(says(answer.body, "BANNER"));
  CHECK(says(it.log(), "mount.program_said"));
  CHECK_FALSE(says(list(it, "a"), "BANNER"));
}

TEST_CASE("with the node's credentials nothing is signed that is good elsewhere", "[mounts]") {
  const server_credentials own{s3_server::key, s3_server::secret};
  child_program service{banner("0", "403")};
  const auto endpoint = "http://127.0.0.1:" + service.read_line(60s).value();
  const node it{near() + "buckets: {credentials_for: [\"" + endpoint + "\"]}"};
  check_refused(mount(it, "a", request_to(endpoint, "")), "The service refuses the credentials.");
  service.signal(SIGTERM);
  const auto signed_by = service.read_all(60s);
  CHECK(says(signed_by, "AWS4-HMA\n"));
  CHECK_FALSE(says(signed_by, "AWS ")); // By version 2, which s3fs falls back to.
}

TEST_CASE("the program behind a mount is shut in", "[mounts]") {
  const s3_server server;
  const std::string driver = GENERATE("s3fs", "rclone");
  CAPTURE(driver);
  const node it{near() + "buckets: {driver: " + driver + "}"};
  must_mount(it, "a", request(server));
  REQUIRE(it.sh("a", "echo x > data/file && cat data/file").out == "x\n");
  const auto programs = drivers(it);
  REQUIRE(programs.size() == 1);
  const auto program = programs.front();
  CHECK(status_of(program, "Seccomp") == "2");
  CHECK(status_of(program, "NoNewPrivs") == "1");
  CHECK(status_of(program, "NSpid").ends_with("\t1"));
  CHECK(status_of(program, "Groups").find_first_not_of(' ') == std::string::npos);
  for (const std::string set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) {
    CAPTURE(set);
    CHECK(status_of(program, set) == "0000000000000000");
  }
  for (const std::string kind : {"net", "pid", "mnt", "ipc", "uts"}) {
    CAPTURE(kind);
    CHECK(namespace_of(program, kind) != namespace_of(it.pid(), kind));
    CHECK(namespace_of(program, kind) != namespace_of(it.spawner(), kind));
  }
  const std::filesystem::path root = "/proc/" + std::to_string(program) + "/root";
  for (const char* other : {"home", "root", "var", "run", "sys", "mnt", "opt", "boot", "srv"})
    CHECK_FALSE(std::filesystem::exists(root / other));
  for (const char* other : {"etc/shadow", "etc/passwd", "etc/machine-id", "etc/ssl/private"})
    CHECK_FALSE(std::filesystem::exists(root / other));
  CHECK(std::filesystem::exists(root / "usr/bin" / driver));
}

TEST_CASE("a mount goes on when the gateway is started again", "[mounts]") {
  const s3_server server;
  const s3_client bucket{server};
  const node it{near()};
  must_mount(it, "a", request(server));
  for (int i = 0; i < 2; ++i) {
    const auto name = std::to_string(i);
    const auto before = it.gateway();
    ::kill(before, SIGKILL);
    REQUIRE(eventually([&] { return it.gateway() > 0 && it.gateway() != before; }));
    CHECK(
      eventually([&] { return it.sh("a", "echo x" + name + " > data/" + name).exit_code == 0; }));
    CHECK(bucket.get(name) == "x" + name + "\n");
  }
}
