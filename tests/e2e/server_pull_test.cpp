// A server that fetches the images which sandboxes name, and sees those that others bring.
#include "tests/e2e/docker_registry.hpp"
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/counting_relay.hpp"
#include "tests/support/image_builder.hpp"

#include <algorithm>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <future>
#include <iterator>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

using namespace insula::test;
using insula::unique_fd;
using namespace std::string_literals;

namespace {

namespace fs = std::filesystem;

/// One without a shell costs nothing.
std::string small_image(const docker_registry& registry, const std::string& as,
                        const std::string& text) {
  layout_builder small;
  small.add({{"etc", 'd'}, {"etc/made", 'f', text}});
  small.write();
  registry.push("oci:" + small.path(), as);
  return registry.host() + "/" + as;
}

std::string pulls(const std::string& policy, const std::string& more = "allow: ['**']") {
  return "images: {pull: " + policy + ", " + more + "}\n";
}

http_answer ask_with(const node& it, const std::string& id, const std::string& image) {
  return it.ask("POST", "/v1/sandbox/" + id + "/exec", exec_body({"cat", "/opt/kit/only"}),
                "Insula-Image: " + image + "\r\n");
}

exec_outcome exec_with(const node& it, const std::string& id, const std::string& image) {
  return exec_stream{it.port(), id, exec_body({"cat", "/opt/kit/only"}),
                     "Insula-Image: " + image + "\r\n"}
    .rest();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string proc(pid_t pid, const std::string& file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

/// The one of that name. Waits for it.
pid_t process_of(const node& it, const std::string& name) {
  pid_t found = 0;
  REQUIRE(eventually([&] {
    for (const auto pid : it.processes()) {
      std::ifstream file{proc(pid, "comm")};
      if (std::string is; file >> is && is == name)
        found = pid;
    }
    return found > 0;
  }));
  return found;
}

/// No number that would mean several processes.
void kill_one(pid_t pid) {
  REQUIRE(pid > 1);
  REQUIRE(::kill(pid, SIGKILL) == 0);
}

pid_t kill_by_name(const node& it, const std::string& name) {
  const auto pid = process_of(it, name);
  kill_one(pid);
  return pid;
}

std::string text_of(pid_t pid, const std::string& file) {
  std::ifstream opened{proc(pid, file)};
  return {std::istreambuf_iterator<char>{opened}, {}};
}

/// Those of the texts that stand anywhere in the memory of that process.
std::set<std::string> found_in_memory(pid_t pid, const std::vector<std::string>& texts) {
  std::ifstream maps{proc(pid, "maps")};
  const unique_fd memory{::open(proc(pid, "mem").c_str(), O_RDONLY | O_CLOEXEC)};
  REQUIRE(memory);
  constexpr std::uint64_t piece = 1u << 20, longest = 256, of_a_sanitizer = 1u << 30;
  std::vector<char> bytes(piece + longest);
  std::set<std::string> found;
  std::uint64_t seen = 0;
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t from = 0, to = 0;
    char readable = 0;
    REQUIRE(std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %c", &from, &to, &readable) == 3);
    if (readable != 'r' || to - from > of_a_sanitizer)
      continue;
    for (auto at = from; at < to; at += piece) {
      const auto wanted = std::min<std::uint64_t>(bytes.size(), to - at);
      const auto n = ::pread(memory.get(), bytes.data(), wanted, static_cast<off_t>(at));
      if (n <= 0)
        continue;
      seen += static_cast<std::uint64_t>(n);
      for (const auto& each : texts)
        if (::memmem(bytes.data(), static_cast<std::size_t>(n), each.data(), each.size()))
          found.insert(each);
    }
  }
  CHECK(seen > piece);
  return found;
}

/// Of this process and of those that it starts, as long as it is there.
class variable {
public:
  variable(std::string name, const std::string& value)
      : name_(std::move(name)) {
    if (const char* is = ::getenv(name_.c_str()))
      before_ = is;
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~variable() {
    if (before_)
      ::setenv(name_.c_str(), before_->c_str(), 1);
    else
      ::unsetenv(name_.c_str());
  }
  variable(const variable&) = delete;
  variable& operator=(const variable&) = delete;

private:
  const std::string name_;
  std::optional<std::string> before_;
};

} // namespace

TEST_CASE("an image that a request names is fetched once, and its sandboxes start from it",
          "[images][pull]") {
  const docker_registry registry;
  registry.push(debian, "acme/debian:12");
  counting_relay way{registry.port()};
  const auto reference = way.host() + "/acme/debian:12";
  node it{pulls("missing")};
  constexpr int askers = 8;
  std::vector<std::future<exec_outcome>> all;
  for (int i = 0; i < askers; ++i)
    all.push_back(std::async(std::launch::async, [&, i] {
      exec_outcome got;
      // An answer that says "later" is asked again.
      do
        got = exec_with(it, std::string{"a"} + static_cast<char>('a' + i), reference);
      while (got.status == 503 && has(got.refusal, "image_pending"));
      return got;
    }));
  for (auto& each : all) {
    const auto got = each.get();
    INFO(got.refusal << got.err);
    CHECK(got.out == "fresh\n");
  }
  std::uint64_t size = 0;
  for (const auto& each : fs::recursive_directory_iterator{inputs / "layout/blobs"})
    size += each.is_regular_file() ? each.file_size() : 0;
  CHECK(way.bytes() < size + (1u << 20));
  CHECK_FALSE(fs::exists(it.state() + "/pulls"));

  INFO("what a sandbox is made from is told, and other words are refused");
  CHECK(has(it.ask("GET", "/v1/sandbox/aa").body, "\"image\":\"debian-12\""));
  const auto other = exec_with(it, "aa", "host");
  CHECK(other.status == 409);
  CHECK(has(other.refusal, "sandbox_mismatch"));

  INFO("the other API's clients name it as they like");
  const auto made = it.ask("POST", "/v1/sandboxes",
                           R"({"image":{"uri":")" + reference +
                             R"("},"entrypoint":["tail","-f","/dev/null"],"resourceLimits":{}})",
                           "Content-Type: application/json\r\n");
  INFO(made.body);
  CHECK(made.status == 202);

  INFO("the next server has it too, and sandboxes go on starting from it");
  it.stop(SIGINT);
  it.configure(pulls("never"));
  it.start();
  CHECK(it.sh("aa", "cat /opt/kit/only").out == "fresh\n");
  const auto listed = it.ask("GET", "/v1/images").body;
  CHECK(has(listed, "\"name\":\"debian-12\",\"reference\":\"" + reference));
  CHECK(has(listed, "\"used_ms\""));
  CHECK(has(image(it.state(), {"ls"}).out, "LAST USED"));
}

TEST_CASE("an image that is not to be had is refused with the reason, and makes no sandbox",
          "[images][pull]") {
  const docker_registry registry;
  const auto mine = small_image(registry, "acme/small:1", "one");
  const auto refused = [](const node& it, const std::string& image, int status,
                          const std::string& part) {
    CAPTURE(image);
    const auto got = ask_with(it, "a", image);
    INFO(got.body);
    CHECK(got.status == status);
    CHECK(has(got.body, part));
    CHECK(it.ask("GET", "/v1/sandbox/a").status == 404);
  };
  {
    node it{pulls("never")};
    refused(it, mine, 400, "there is no image " + mine + " on this node");
    refused(it, "Bad Name", 400, "there is no image Bad Name on this node");
    const auto pulled = it.ask("POST", "/v1/images/pull", R"({"reference":")" + mine + R"("})");
    INFO(pulled.body);
    CHECK(pulled.status == 200); // Somebody asks for just that.
    CHECK(has(pulled.body, "\"name\":\"small-1\""));
  }
  node it{pulls("missing", "allow: ['" + registry.host() + "/acme/*']")};
  refused(it, registry.host() + "/other/small:1", 403, "images.allow");
  refused(it, "debian:12", 403, "docker.io/library/debian:12");
  refused(it, registry.host() + "/acme/none:1", 400, "it has no acme/none:1");
  const auto nobody = it.ask("POST", "/v1/images/pull", R"({"reference":"debian:12"})");
  CHECK(nobody.status == 403);
  CHECK(it.ask("POST", "/v1/images/pull", "[]").status == 400);
  CHECK(it.ask("DELETE", "/v1/images/none").status == 404);
  CHECK(it.ask("DELETE", "/v1/images/host").status == 409);
  const auto made = it.ask("POST", "/v1/sandboxes",
                           R"({"image":{"uri":")" + registry.host() +
                             R"(/acme/none:1"},"entrypoint":["true"],"resourceLimits":{}})",
                           "Content-Type: application/json\r\n");
  CHECK(made.status == 500);
  CHECK(has(made.body, "DOCKER::SANDBOX_IMAGE_PULL_FAILED"));
  CHECK(has(made.body, "it has no acme/none:1"));
  INFO("unless the operator says that the default takes the place of any");
  const node kind{"image: {unknown: default}\n" + pulls("missing", "allow: []")};
  CHECK(kind
          .ask("POST", "/v1/sandboxes",
               R"({"image":{"uri":"debian:12"},"entrypoint":["true"],"resourceLimits":{}})",
               "Content-Type: application/json\r\n")
          .status == 202);
}

TEST_CASE("a pull that takes long is told of, goes on without its asker, and ends with its server",
          "[images][pull]") {
  const docker_registry registry;
  registry.push(debian, "debian:12");
  counting_relay way{registry.port()};
  const auto reference = way.host() + "/debian:12";
  node it{pulls("missing")};
  way.hold_at(1u << 20);
  const auto first = ask_with(it, "a", reference);
  INFO(first.body);
  CHECK(first.status == 503);
  CHECK(has(first.body, "image_pending"));
  CHECK(has(first.body, reference + " is being fetched ("));
  CHECK(first.fields.contains("retry-after"));
  const auto listed = it.ask("GET", "/v1/images").body;
  CHECK(has(listed, "\"pulling\":[{\"reference\":\"" + reference + "\",\"bytes\":"));
  CHECK(has(it.ask("GET", "/metrics").body, "insula_images_on_their_way 1"));
  SECTION("it goes on") {
    const auto asked = it.ask("POST", "/v1/images/pull", R"({"reference":")" + reference + R"("})");
    CHECK(asked.status == 202);
    CHECK(has(asked.body, reference));
    way.hold_at(~0ull);
    REQUIRE(eventually([&] { return has(it.log(), "image.here image=debian-12"); }, 60s));
    CHECK(exec_with(it, "a", reference).out == "fresh\n");
    CHECK(eventually([&] { // The image is here a moment before the pull is over.
      return has(it.ask("GET", "/metrics").body, "insula_image_pulls_total{outcome=\"here\"} 1");
    }));
  }
  SECTION("the server ends") {
    it.stop(SIGTERM);
    CHECK(eventually([&] { return it.processes().empty(); }));
    CHECK_FALSE(fs::exists(it.state() + "/images/debian-12"));
    way.hold_at(~0ull);
    it.start(); // The next pull goes on with what has come.
    CHECK(eventually([&] { return exec_with(it, "a", reference).out == "fresh\n"; }, 60s));
  }
  SECTION("what fetches is killed") {
    kill_by_name(it, "insula-fetch");
    REQUIRE(eventually([&] { return has(it.log(), "image.not_pulled"); }));
    way.hold_at(~0ull);
    CHECK(eventually([&] { return exec_with(it, "a", reference).out == "fresh\n"; }, 60s));
  }
}

TEST_CASE("a server that runs sees the images that others bring and remove", "[images][pull]") {
  const docker_registry registry;
  registry.push(debian, "debian:12");
  node it;
  CHECK(ask_with(it, "a", "mine").status == 400);
  const auto made = image(it.state(), {"pull", registry.host() + "/debian:12", "--name", "mine"});
  INFO(made.err);
  REQUIRE(made.status == 0);
  CHECK(eventually([&] { return exec_with(it, "a", "mine").out == "fresh\n"; }));
  const auto in_use = it.ask("DELETE", "/v1/images/mine");
  CHECK(in_use.status == 409);
  CHECK(has(in_use.body, "sandboxes run from the image mine"));
  CHECK(it.remove("a") == 204);
  http_answer gone;
  const bool is_gone = eventually([&] {
    gone = it.ask("DELETE", "/v1/images/mine");
    return gone.status == 204;
  });
  INFO(gone.body);
  CHECK(is_gone);
  CHECK(ask_with(it, "b", "mine").status == 400);
  CHECK_FALSE(fs::exists(it.state() + "/images/mine"));
}

TEST_CASE("what the node has fetched and nobody uses goes, and what somebody needs stays",
          "[images][pull]") {
  const docker_registry registry;
  registry.push(debian, "debian:12");
  const auto unused = small_image(registry, "unused:1", "nobody");
  const auto settings = pulls("missing", "allow: ['**'], keep_unused: 1ms");
  node it{pulls("missing")};
  CHECK(exec_with(it, "a", registry.host() + "/debian:12").out == "fresh\n");
  CHECK(it.ask("POST", "/v1/images/pull", R"({"reference":")" + unused + R"("})").status == 200);
  it.stop(SIGINT); // Its sandbox sleeps, and stands on its image by its record.
  it.configure(settings);
  it.start();
  CHECK(eventually([&] { return !fs::exists(it.state() + "/images/unused-1"); }, 120s));
  CHECK(fs::exists(it.state() + "/images/debian-12"));
  CHECK(it.sh("a", "cat /opt/kit/only").out == "fresh\n");
}

TEST_CASE("without the process that fetches, all that needs none goes on", "[images][pull]") {
  node it{pulls("missing")};
  CHECK(it.sh("a", "echo here").out == "here\n");
  const auto room = kill_by_name(it, "insula-images");
  REQUIRE(eventually([&] { return has(it.log(), "images.room_gone"); }));
  CHECK_FALSE(fs::exists(proc(room, ""))); // No zombie either.
  CHECK(it.sh("b", "echo here").out == "here\n");
  const auto got = ask_with(it, "c", "127.0.0.1:1/x");
  CHECK(got.status == 503);
  CHECK(has(got.body, "needs a restart"));
}

TEST_CASE("the processes that fetch images have no secrets of the server or of other registries",
          "[images][pull]") {
  const std::string key = "the-key-of-the-api-7c1d0e", secret = "the-secret-of-a-bucket-93ab4f";
  const variable id{"AWS_ACCESS_KEY_ID", "an-id"}, hidden{"AWS_SECRET_ACCESS_KEY", secret};
  const variable around{"all_proxy", "http://127.0.0.1:9"}; // Registries on loopback need none.
  const docker_registry registry;
  std::string noise(4u << 20, '\0'); // It stays as large when it is packed.
  for (std::mt19937 next; auto& each : noise)
    each = static_cast<char>(next());
  small_image(registry, "noise:1", noise);
  counting_relay way{registry.port()};
  const auto reference = way.host() + "/noise:1";
  const std::string own = "the-password-for-this-2f6e81", another = "the-password-for-that-b05d3c";
  const temp_dir where;
  const auto logins = (where / "logins.json").string();
  std::ofstream{logins} << R"({"auths":{")" << way.host() << R"(":{"username":"me","password":")"
                        << own << R"("},"registry.example":{"username":"me","password":")"
                        << another << R"("}}})";
  node it{"server: {api_key: " + key + "}\n" +
          pulls("missing", "allow: ['**'], auth_file: " + logins)};
  way.hold_at(1u << 20);
  auto answer = std::async(std::launch::async, [&] {
    return it.ask("POST", "/v1/images/pull", R"({"reference":")" + reference + R"("})",
                  "Authorization: Bearer " + key + "\r\n");
  });
  REQUIRE(way.wait_until_held(60s));
  const auto room = process_of(it, "insula-images"), fetcher = process_of(it, "insula-fetch");

  INFO("the server has them, and would be found out");
  const std::vector<std::string> theirs{key, secret, own, another};
  CHECK(found_in_memory(it.pid(), theirs) == std::set<std::string>{key, secret});
  for (const auto pid : {room, process_of(it, "insula-pull"), fetcher}) {
    CAPTURE(status_of(pid, "Name"));
    const auto environment = text_of(pid, "environ");
    CHECK(has(environment, "all_proxy=http://127.0.0.1:9"));
    for (const auto* other : {"AWS_", "SANDBOX_API_KEY", "HOME=", "PATH="})
      CHECK_FALSE(has(environment, other));
    // The one login that the pull needs, and no other registry's.
    CHECK(found_in_memory(pid, theirs) ==
          (pid == room ? std::set<std::string>{} : std::set<std::string>{own}));
  }

  INFO("the room has the rights of an importer, and no file but its log");
  CHECK(text_of(room, "cmdline") == "insula-images\0"s + it.state() + '\0');
  for (const auto* which : {"CapPrm", "CapEff", "CapBnd"})
    CHECK(status_of(room, which) == "00000000800401ff");
  for (const auto* which : {"CapInh", "CapAmb"})
    CHECK(status_of(room, which) == "0000000000000000");
  CHECK(status_of(room, "NoNewPrivs") == "1");
  CHECK(status_of(room, "Threads") == "1");
  for (const auto& each : fs::directory_iterator{proc(room, "fd")}) {
    const auto number = std::stoi(each.path().filename());
    const auto leads = fs::read_symlink(each.path()).string();
    CAPTURE(number, leads);
    CHECK((leads.starts_with("socket:") || leads == "anon_inode:inotify" ||
           (number == STDIN_FILENO && leads == "/dev/null") ||
           (number <= STDERR_FILENO && leads == it.scratch() + "/log")));
  }

  INFO("the process that speaks to a registry has a ceiling for its memory");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  std::istringstream limits{text_of(fetcher, "limits")};
  std::uint64_t soft = 0, hard = 0;
  for (std::string line; std::getline(limits, line);)
    std::sscanf(line.c_str(), "Max address space %" SCNu64 " %" SCNu64, &soft, &hard);
  CHECK(soft == hard);
  CHECK(hard > 512u << 20);
  CHECK(hard <= (std::stoull(status_of(fetcher, "VmSize")) << 10) + (512u << 20));
#endif
  way.hold_at(~0ull);
  CHECK(answer.get().status == 200);
}

TEST_CASE("the process that unpacks an image makes few system calls, and its end is told",
          "[images][pull]") {
  const docker_registry registry;
  const auto reference = small_image(registry, "small:1", "small");
  node it{pulls("missing")};
  const unique_fd others{::open((it.state() + "/images/.lock").c_str(),
                                O_RDWR | O_CREAT | O_CLOEXEC,
                                0600)}; // Another import, for which it waits.
  REQUIRE(::flock(others.get(), LOCK_EX) == 0);
  const auto unpacking = [&] {
    const auto pid = process_of(it, "insula-pull");
    REQUIRE(eventually([&] { return status_of(pid, "Seccomp") == "2"; }, 60s));
    return pid;
  };
  auto first = std::async(std::launch::async, [&] { return ask_with(it, "a", reference); });
  const auto pid = unpacking();
  CHECK(status_of(pid, "NoNewPrivs") == "1");
  kill_one(pid);
  const auto said = first.get();
  INFO(said.body);
  CHECK(said.status == 503);
  CHECK(has(said.body, "the process that unpacks the image has ended"));
  CHECK_FALSE(fs::exists(proc(pid, "")));

  auto second = std::async(std::launch::async, [&] {
    return eventually([&] { // The failure is remembered for some seconds.
      const auto got = it.ask("POST", "/v1/images/pull", R"({"reference":")" + reference + R"("})");
      return got.status == 200 && has(got.body, "\"name\":\"small-1\"");
    });
  });
  unpacking();
  REQUIRE(::flock(others.get(), LOCK_UN) == 0);
  CHECK(second.get());
  CHECK(content_of(it.state() + "/images/small-1/root/etc/made") == "small");
}
