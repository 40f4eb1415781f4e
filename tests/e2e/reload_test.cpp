#include "tests/e2e/node.hpp"
#include "tests/http/client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/made_authority.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

using namespace insula::test;
namespace fs = std::filesystem;

namespace {

/// Where the lines begin that say how the node has taken its configuration anew.
std::vector<std::size_t> outcomes_in(const std::string& log) {
  std::vector<std::size_t> found;
  for (std::size_t at = 0; at < log.size(); at = std::min(log.find('\n', at), log.size()) + 1) {
    std::string time, level, event;
    std::istringstream{log.substr(at, log.find('\n', at) - at)} >> time >> level >> event;
    if (event == "config.reloaded" || event == "config.not_reloaded")
      found.push_back(at);
  }
  return found;
}

void hang_up(const node& it) {
  REQUIRE(::kill(it.pid(), SIGHUP) == 0);
}

/// Sends SIGHUP, and returns the lines of the log about it.
std::string reload(const node& it) {
  const auto before = it.log().size();
  const auto has = [&](std::size_t count) {
    return eventually([&] { return outcomes_in(it.log().substr(before)).size() >= count; });
  };
  hang_up(it);
  REQUIRE(has(1));
  // What is said last comes before the next one.
  hang_up(it);
  REQUIRE(has(2));
  const auto log = it.log().substr(before);
  return log.substr(0, outcomes_in(log).at(1));
}

/// The one that reads the files of the configuration.
pid_t reader_of(const node& it) {
  for (const auto pid : it.processes()) {
    std::ifstream name{"/proc/" + std::to_string(pid) + "/comm"};
    if (std::string word; std::getline(name, word) && word == "insula-files")
      return pid;
  }
  return -1;
}

std::string bearer(const std::string& key) {
  return "Authorization: Bearer " + key + "\r\n";
}

void copy_as_roots(const std::string& from, const fs::path& to) {
  const auto beside = to.string() + ".next"; // Whole or not at all.
  fs::copy_file(from, beside, fs::copy_options::overwrite_existing);
  REQUIRE(::chmod(beside.c_str(), 0600) == 0);
  fs::rename(beside, to);
}

} // namespace

TEST_CASE("SIGHUP has the server take another key and another level", "[reload]") {
  const std::string first = "the-first-key-of-this-node", next = "another-key-of-this-node";
  node it{"server: {api_key: " + first + "}\npool: {target: 0}"};
  fs::permissions(fs::path{it.scratch()} / "cluster.yaml", fs::perms::owner_read);
  const auto status = [&](const std::string& key) {
    return it.ask("GET", "/v1/sandbox/a/running", {}, bearer(key)).status;
  };
  REQUIRE(it.ask("POST", "/v1/sandbox/a/exec", exec_body({"true"}), bearer(first)).status == 200);
  // One that is under way, one whose connection waits, and a browser that has signed in.
  client open{it.port()}, waits{it.port()}, browser{it.port()};
  REQUIRE(
    open.send(request("POST", "/v1/sandbox/a/exec",
                      exec_body({"sh", "-c", "echo up; sleep 3; echo done"}), bearer(first))));
  open.read_until("\r\n\r\n");
  REQUIRE(!open.chunk().empty());
  waits.send(request("GET", "/v1/sandbox/a/running", {}, bearer(first)));
  REQUIRE(waits.receive().status == 200);
  const auto host = "localhost:" + std::to_string(it.port());
  const auto of_page = [&](std::string_view method, std::string_view target,
                           const std::string& fields, const std::string& body = {}) {
    browser.send(std::string{method} + " " + std::string{target} + " HTTP/1.1\r\nHost: " + host +
                 "\r\nOrigin: http://" + host + "\r\nContent-Length: " +
                 std::to_string(body.size()) + "\r\n" + fields + "\r\n" + body);
    return browser.receive();
  };
  const auto signed_in = of_page("POST", "/console/sign-in", "", first);
  REQUIRE(signed_in.fields.contains("set-cookie"));
  const auto& cookie = signed_in.fields.at("set-cookie");
  const auto shows_cookie = "Cookie: " + cookie.substr(0, cookie.find(';')) + "\r\n";
  REQUIRE(of_page("GET", "/console/sandboxes", shows_cookie).status == 200);

  it.configure("server: {api_key: " + next + "}\nlog: {level: debug}\npool: {target: 1}\n" +
               "sandbox: {limits: {memory: 1GiB}}");
  const auto said = reload(it);
  CHECK(said.find("config.reloaded key=another level=another") != std::string::npos);
  CHECK(said.find("config.needs_restart") != std::string::npos);
  CHECK(said.find("sandbox.limits.memory pool.target") != std::string::npos);
  CHECK(said.find(next) == std::string::npos);
  CHECK(status(first) == 401);
  CHECK(status(next) == 200);
  CHECK(it.log().find("debug ") != std::string::npos);
  waits.send(request("GET", "/v1/sandbox/a/running", {}, bearer(first)));
  CHECK(waits.receive().status == 401);
  CHECK(of_page("GET", "/console/sandboxes", shows_cookie).status == 401);
  std::string rest;
  for (std::string piece; !(piece = open.chunk()).empty();)
    rest += piece;
  CHECK(rest.find(R"({"exit_code":0})") != std::string::npos);
  it.configure("server: {api_key: " + next + "}\nlog: {level: info}");
  CHECK(reload(it).find("config.reloaded key=same level=another") != std::string::npos);
  CHECK(reload(it).find("config.reloaded key=same level=same") != std::string::npos);
  CHECK(status(next) == 200);
}

TEST_CASE("a configuration that is broken changes nothing", "[reload]") {
  const std::string key = "the-one-key-of-this-node";
  node it{"server: {api_key: " + key + "}"};
  for (const auto& [text, why] : std::initializer_list<std::pair<std::string, std::string>>{
         {"server: {api_key: another-key-which-is-long}\nsandbox: {limits: {memory: much}}",
          "sandbox.limits.memory"},
         {"server: {api_key: another-key-which-is-long}\nlog: {level: loud}", "log.level"},
         {"server: {api_key: another-key-which-is-long", "not YAML"},
         {"sever: {api_key: another-key-which-is-long}", "no such key"},
         {"server: {metrics_listen: \"0.0.0.0:1\"}", "server.metrics_listen"}}) {
    CAPTURE(text);
    it.configure(text);
    const auto said = reload(it);
    CHECK(said.find("error config.not_reloaded") != std::string::npos);
    CHECK(said.find(why) != std::string::npos);
    CHECK(said.find("config.needs_restart") == std::string::npos);
  }
  CHECK(it.ask("GET", "/v1/sandbox/a/running", {}, bearer(key)).status == 200);
  fs::remove(fs::path{it.scratch()} / "cluster.yaml");
  CHECK(reload(it).find("No such file or directory") != std::string::npos);
  CHECK(it.ask("GET", "/v1/sandbox/a/running", {}, bearer(key)).status == 200);
  // A key more or less changes what is asked of everybody: not while it runs.
  it.configure("");
  const auto said = reload(it);
  CHECK(said.find("server.api_key") != std::string::npos);
  CHECK(said.find("config.needs_restart") != std::string::npos);
  CHECK(it.ask("GET", "/v1/sandbox/a/running").status == 401);
}

TEST_CASE("that the log will be silent is the last line of it", "[reload]") {
  node it{"log: {level: debug}"};
  const auto says = [&](const std::string& what) {
    const auto before = it.log().size();
    hang_up(it);
    return eventually([&] { return it.log().find(what, before) != std::string::npos; });
  };
  it.configure("log: {level: error}\npool: {target: 1}");
  CHECK(says("warning config.needs_restart keys=pool.target"));
  CHECK(it.log().find("config.reloaded key=same level=another") != std::string::npos);
  const auto before = it.log().size();
  CHECK(it.sh("a", "true").exit_code == 0);
  // The spawner is another process, which may say that the machine's disk is small.
  std::istringstream lines{it.log().substr(before)};
  for (std::string line; std::getline(lines, line);)
    CHECK(line.find(" spawner.") != std::string::npos);
  it.configure("log: {level: info}\npool: {target: 0}");
  CHECK(says("config.reloaded key=same level=another"));
}

TEST_CASE("a file that does not come holds up neither the end nor the next time", "[reload]") {
  node it;
  const auto reader = reader_of(it);
  REQUIRE(reader > 0);
  const auto not_reloaded = [&](const std::string& why) {
    return eventually([&] {
      const auto log = it.log();
      const auto at = log.rfind("config.not_reloaded");
      return at != std::string::npos && log.find(why, at) != std::string::npos;
    });
  };
  REQUIRE(::kill(reader, SIGSTOP) == 0); // As if the file system did not answer.
  hang_up(it);
  CHECK(not_reloaded("that takes too long"));
  CHECK(it.ask("GET", "/health").status == 200);
  REQUIRE(::kill(reader, SIGCONT) == 0);
  CHECK(reload(it).find("config.reloaded") != std::string::npos);
  REQUIRE(::kill(reader, SIGSTOP) == 0);
  hang_up(it);
  CHECK(it.stop(SIGINT) == 0);
  CHECK(not_reloaded("the server ends"));
  REQUIRE(::kill(reader, SIGKILL) == 0);
}

TEST_CASE("without the process that reads its files, a server says that it needs a restart",
          "[reload]") {
  node it;
  const auto reader = reader_of(it);
  const auto process = open_process(reader);
  REQUIRE(::kill(reader, SIGKILL) == 0);
  REQUIRE(wait_for_end(process, 10s));
  CHECK(reload(it).find("the server needs a restart") != std::string::npos);
  CHECK_FALSE(fs::exists("/proc/" + std::to_string(reader))); // Nor is it a zombie.
  CHECK(it.ask("GET", "/health").status == 200);
}

TEST_CASE("SIGHUP has the server show another certificate, which only root may read",
          "[reload][tls]") {
  made_authority by;
  const auto first = by.issue("first"), next = by.issue("next");
  const temp_dir where;
  fs::permissions(where.path(), fs::perms::owner_all);
  const auto certificate = where / "live.crt", key = where / "live.key";
  copy_as_roots(first.certificate, certificate);
  copy_as_roots(first.key, key);
  node it{"server: {tls: {certificate: " + certificate.string() + ", key: " + key.string() + "}}"};
  const auto shown = [&] { return client{it.port(), true}.shown(); };
  client open{it.port(), true};
  CHECK(open.shown() == "first");
  open.send(request("GET", "/health"));
  REQUIRE(open.receive().status == 200);

  const auto refused = [&](const std::string& why) {
    const auto said = reload(it);
    CHECK(said.find("error config.not_reloaded") != std::string::npos);
    CHECK(said.find(why) != std::string::npos);
    CHECK(shown() == "first");
  };
  copy_as_roots(next.certificate, certificate);
  refused(key.string()); // It belongs to another certificate.
  fs::remove(key);
  refused("No such file or directory");
  std::ofstream{key} << "no key";
  refused(key.string());
  output_of({"openssl", "pkey", "-in", next.key, "-aes256", "-passout", "pass:x", "-out", key});
  refused(key.string());
  fs::resize_file(certificate, 0);
  refused(certificate.string());

  // As by links to what is newest.
  fs::create_directory(where / "archive");
  copy_as_roots(next.certificate, where / "archive/2.crt");
  copy_as_roots(next.key, where / "archive/2.key");
  for (const auto& [link, to] : {std::pair{certificate, "archive/2.crt"}, {key, "archive/2.key"}}) {
    fs::remove(link);
    fs::create_symlink(to, link);
  }
  CHECK(reload(it).find("config.reloaded") != std::string::npos);
  CHECK(shown() == "next");
  open.send(request("GET", "/health"));
  CHECK(open.receive().status == 200);

  // Where they are is decided at the start, also when they are not there any more.
  fs::remove(key);
  it.configure("server: {tls: {certificate: " + first.certificate + ", key: " + first.key +
               "}}\nlog: {level: debug}");
  const auto said = reload(it);
  CHECK(said.find("config.reloaded key=same level=another certificate=same") != std::string::npos);
  CHECK(said.find("server.tls.certificate server.tls.key") != std::string::npos);
  CHECK(shown() == "next");
}

TEST_CASE("what opens the configuration for a server can do nothing else", "[reload]") {
  node it;
  const auto child = reader_of(it);
  REQUIRE(child > 0);
  std::ifstream file{"/proc/" + std::to_string(child) + "/status"};
  std::map<std::string, std::string> status;
  for (std::string line; std::getline(file, line);)
    if (const auto colon = line.find(":\t"); colon != std::string::npos)
      status[line.substr(0, colon)] = line.substr(colon + 2);
  CHECK(status["CapEff"] == "0000000000000004"); // CAP_DAC_READ_SEARCH
  CHECK(status["CapPrm"] == "0000000000000004");
  CHECK(status["NoNewPrivs"] == "1");
  CHECK(status["Seccomp"] == "2");
  CHECK(open_files(child) == 1);
  // It goes with its server, whatever ends that.
  const auto process = open_process(child);
  it.crash_server();
  CHECK(wait_for_end(process, 10s));
  it.start();
}

TEST_CASE("SIGHUP has the server publish other keys for tokens, and nothing that is broken",
          "[reload][oidc]") {
  node it{"log: {level: info}"};
  const auto path = fs::path{it.state()} / "oidc-keys.json";
  const auto published = [&] { return it.ask("GET", "/oidc/insula/.well-known/jwks").body; };
  const auto owners_alone = [](const fs::path& file) {
    struct stat info {};
    REQUIRE(::stat(file.c_str(), &info) == 0);
    return info.st_uid == 0 && (info.st_mode & 07777) == 0600;
  };
  CHECK(owners_alone(path));
  CHECK(owners_alone(fs::path{it.state()} / "secrets.key"));
  CHECK(it.log().find("PRIVATE KEY") == std::string::npos);
  const auto before = published();
  CHECK(before.find("\"kty\":\"RSA\"") != std::string::npos);
  CHECK(reload(it).find("signing_keys=same") != std::string::npos);

  output_of({INSULA_PROGRAM, "oidc", "rotate", "--state", it.state()});
  CHECK(published() == before);
  CHECK(reload(it).find("signing_keys=others") != std::string::npos);
  const auto after = published();
  CHECK(after.size() > before.size() + 300);
  CHECK(after.starts_with(before.substr(0, before.size() - 2)));

  const auto refused = [&](const std::string& why) {
    const auto said = reload(it);
    CHECK(said.find("error config.not_reloaded") != std::string::npos);
    CHECK(said.find(why) != std::string::npos);
    CHECK(said.find("PRIVATE KEY") == std::string::npos);
    CHECK(published() == after);
  };
  const auto good = fs::path{it.scratch()} / "good.json";
  fs::copy_file(path, good);
  fs::resize_file(path, fs::file_size(path) / 2);
  refused("from a copy");
  fs::remove(path);
  refused("No such file or directory");
  fs::copy_file(good, path);
  REQUIRE(::chmod(path.c_str(), 0644) == 0);
  refused("chmod 600");
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  CHECK(reload(it).find("signing_keys=same") != std::string::npos);
  // The next server has the same.
  it.crash_server();
  it.start();
  CHECK(published() == after);
}
