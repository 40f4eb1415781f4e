#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

using namespace insula::test;

/// A sandbox behaves like the machine that people know.

namespace {

std::string line_of(const std::string& file) {
  std::string line;
  std::getline(std::ifstream{file}, line);
  return line;
}

bool has(const char* program) {
  return std::filesystem::exists(program);
}

} // namespace

TEST_CASE("a sandbox's own host name resolves", "[machine]") {
  const node it;
  const auto resolve = [&](const std::string& id, const std::string& more = {}) {
    return it.sh(id,
                 "getent hosts $(hostname) | cut -d' ' -f1; hostname -i; "
                 "python3 -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'; "
                 "node -e 'require(\"dns\").lookup(require(\"os\").hostname(), (e, a) => "
                 "console.log(e ?? a))'" +
                   more);
  };
  const auto got = resolve("a");
  std::istringstream lines{got.out};
  std::string getent, hostname, python, node_js;
  std::getline(lines, getent);
  std::getline(lines, hostname);
  std::getline(lines, python);
  std::getline(lines, node_js);
  const std::string ipv4 = "10.0.0.1", ipv6 = "fd00:10::1";
  CAPTURE(got.out);
  CHECK((getent == ipv4 || getent == ipv6));
  CHECK(hostname.find(ipv4) != std::string::npos);
  CHECK(python == ipv4);
  CHECK((node_js == ipv4 || node_js == ipv6));
  CHECK(got.err.empty());
  // A server of the sandbox is reached by that name, whatever the policy says; another name is not.
  CHECK(it.ask("PUT", "/v1/sandbox/a/network", R"({"default":"deny"})").status == 200);
  CHECK(it.sh("a",
              "python3 -m http.server 8000 >/dev/null 2>&1 & "
              "for i in $(seq 100); do curl -s -o /dev/null http://$(hostname):8000/ && break; "
              "sleep 0.1; done; curl -s -o /dev/null -w '%{http_code}\n' "
              "http://$(hostname):8000/; kill $!")
          .out == "200\n");
  CHECK(it.sh("a", "getent hosts another").exit_code != 0);
  CHECK(resolve("b").out == got.out);
}

TEST_CASE("the host name of a warm sandbox is its new owner's", "[machine]") {
  const node it{"pool: {target: 1}"};
  REQUIRE(eventually(
    [&] { return it.ask("GET", "/v1/pool/stats").body.find("\"warm\":1") != std::string::npos; }));
  const auto got = it.sh("a", "test $(hostname) != warm && getent hosts $(hostname) >/dev/null && "
                              "! getent hosts warm");
  CHECK(got.exit_code == 0);
}

TEST_CASE("each sandbox has a machine id of its own", "[machine]") {
  const node it;
  const auto of = [&](const std::string& id) { return it.sh(id, "cat /etc/machine-id").out; };
  const auto a = of("a"), b = of("b");
  CHECK(a.size() == 33);
  CHECK(a.find_first_not_of("0123456789abcdef\n") == std::string::npos);
  CHECK(a != b);
  CHECK(of("a") == a);
  CHECK(a != line_of("/etc/machine-id") + "\n");
}

TEST_CASE("a server inside may listen at a low port", "[machine]") {
  const node it;
  CHECK(it.sh("a",
              "python3 -c 'import socket\n"
              "for family in [socket.AF_INET] + [socket.AF_INET6] * socket.has_dualstack_ipv6():\n"
              "  for port in 1024, 443, 80:\n"
              "    socket.socket(family).bind((\"\", port))\n"
              "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind((\"\", 123))\n"
              "print(\"bound\")'")
          .out == "bound\n");
}

TEST_CASE("npm installs programs without root, and shells find them", "[machine]") {
  const node it;
  const auto made = it.sh(
    "a", "mkdir tool && cd tool && echo '{\"name\":\"some-tool\",\"version\":\"1.0.0\",\"bin\":"
         "{\"some-tool\":\"run.js\"}}' > package.json && printf '%s\\n' '#!/usr/bin/env node' "
         "'console.log(\"it runs\")' > run.js && chmod +x run.js && npm install -g --offline "
         "--no-audit --no-fund \"$PWD\"");
  CAPTURE(made.out, made.err);
  CHECK(made.exit_code == 0);
  CHECK(it.exec("a", {"some-tool"}).out == "it runs\n");
  CHECK(it.exec("a", {"bash", "-lc", "some-tool"}).out == "it runs\n");
  CHECK(it.exec("a", {"sh", "-c", "some-tool"}).out == "it runs\n");
  CHECK(it.exec("a", {"some-tool"}, R"(,"cwd":"tool")").out == "it runs\n");
  if (has("/usr/bin/corepack")) {
    CHECK(it.sh("a", "corepack enable").exit_code == 0);
    CHECK(it.sh("a", "command -v yarn").out == "/home/sandbox/.local/bin/yarn\n");
  }
}

TEST_CASE("pip installs without root, for the user and by itself", "[machine]") {
  const node it;
  // A wheel needs neither the network nor a compiler.
  const std::string wheel =
    "python3 - <<'END'\nimport zipfile\n"
    "with zipfile.ZipFile('some_tool-1-py3-none-any.whl', 'w') as z:\n"
    "  z.writestr('some_tool.py', 'def main(): print(\"it runs\")\\n')\n"
    "  i = 'some_tool-1.dist-info/'\n"
    "  z.writestr(i + 'METADATA', 'Metadata-Version: 2.1\\nName: some-tool\\nVersion: 1\\n')\n"
    "  z.writestr(i + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: "
    "py3-none-any\\n')\n"
    "  z.writestr(i + 'entry_points.txt', '[console_scripts]\\nsome-tool = some_tool:main\\n')\n"
    "  z.writestr(i + 'RECORD', '')\nEND\n";
  for (const std::string how : {"pip install", "pip install --user", "python3 -m pip install"}) {
    CAPTURE(how);
    const std::string id = how.find("--user") != std::string::npos ? "b"
                           : how.starts_with("python3")            ? "c"
                                                                   : "a";
    const auto made = it.sh(id, wheel + how + " --no-index ./some_tool-1-py3-none-any.whl");
    CAPTURE(made.out, made.err);
    CHECK(made.exit_code == 0);
    CHECK(it.exec(id, {"some-tool"}).out == "it runs\n");
    CHECK(it.exec(id, {"bash", "-lc", "some-tool"}).out == "it runs\n");
  }
  const auto apart = it.sh("a", "python3 -m venv v && v/bin/pip install --no-index "
                                "./some_tool-1-py3-none-any.whl && v/bin/some-tool");
  CAPTURE(apart.err);
  CHECK(apart.out.ends_with("it runs\n"));
}

TEST_CASE("the machine's programs find their files in /etc", "[machine]") {
  const node it;
  const auto works = [&](const std::string& script, const std::string& says) {
    const auto got = it.sh("a", script);
    CAPTURE(script, got.out, got.err);
    CHECK(got.exit_code == 0);
    CHECK(got.out.find(says) != std::string::npos);
  };
  works("printf 'class H { public static void main(String[] a) { System.out.println(6 * 7); } }' "
        "> H.java && java H.java && javac H.java && java -cp . H",
        "42\n42\n");
  works("fc-list | head -1; fc-match sans 2>&1", "DejaVu");
  works("manpath 2>&1 | grep -v '^manpath:'", "/usr/share/man");
  works("man -k '^ls$'", "ls (1)");
  works("cat /etc/shells", "/bin/bash\n");
  works("chromium --version", "Chromium");
  works("printf 'begin writeln(6*7) end.' > p.pas && fpc p.pas && ./p", "42");
  works("openssl version -d && curl --version && test -s /etc/ssl/certs/ca-certificates.crt",
        "curl");
  // Links from /usr into /etc lead somewhere, those that are for all.
  const auto broken = it.sh("a", "find /usr/lib /usr/share -xtype l -lname '/etc/*' 2>/dev/null | "
                                 "grep -v -e /ssl/private -e /environment");
  CHECK(broken.out.empty());
}

TEST_CASE("apt knows the release and what is installed, where root inside asks it", "[machine]") {
  const node it;
  const auto made = it.ask("POST", "/v1/sandboxes",
                           R"({"image":{"uri":"host"},"entrypoint":["tail","-f","/dev/null"],)"
                           R"("resourceLimits":{}})");
  REQUIRE(made.status == 202);
  const auto id = made.body.substr(7, 26);
  const auto as_root = [&](const std::string& script) {
    return it
      .ask("POST", "/v1/sandboxes/" + id + "/proxy/44772/command",
           "{\"uid\":0,\"gid\":0,\"command\":" + json_string(script) + "}")
      .body;
  };
  const auto targets = as_root("apt-get --print-uris update 2>&1");
  CAPTURE(targets);
  CHECK(targets.find("http://deb.debian.org/debian-security/dists/") != std::string::npos);
  CHECK(targets.find("W:") == std::string::npos);
  CHECK(as_root("dpkg-query -W -f '${Status}' bash 2>&1").find("install ok installed") !=
        std::string::npos);
}

namespace {

constexpr const char* half_a_machine = "sandbox: {limits: {memory: 512MiB, cpus: 1.0}}";

/// A number among the words that a program prints.
double number_from(const exec_outcome& got) {
  CAPTURE(got.out, got.err);
  REQUIRE(got.exit_code == 0);
  return std::stod(got.out);
}

} // namespace

TEST_CASE("a sandbox reads its limits by the names of cgroup v2", "[machine]") {
  const node it{"sandbox: {limits: {memory: 512MiB, cpus: 0.5, processes: 300}}"};
  CHECK(
    it.sh("a", "cd /sys/fs/cgroup && cat memory.max pids.max cpu.max cpuset.cpus.effective").out ==
    "536870912\n300\n50000 100000\n0\n");
  const auto used = [&](const std::string& before) {
    return number_from(it.sh("a", before + "cat /sys/fs/cgroup/memory.current"));
  };
  const auto idle = used("");
  CHECK(used("head -c 100000000 /dev/zero >/dev/shm/x; ") > idle + 90e6);
  CHECK(eventually([&] { // Once what has run before is buried.
    return number_from(it.sh("a", "cat /sys/fs/cgroup/pids.current")) < 10;
  }));
}

TEST_CASE("a limit of processes that is 0 goes by the machine's processors", "[machine]") {
  const node it{"sandbox: {limits: {processes: 0}}"};
  const auto wanted = std::clamp(512 * std::thread::hardware_concurrency(), 1024u, 4096u);
  CHECK(it.sh("a", "cat /sys/fs/cgroup/pids.max").out == std::to_string(wanted) + "\n");
}

TEST_CASE("programs size themselves by the sandbox's limits", "[machine]") {
  const node it{half_a_machine};
  const auto number = [&](const std::string& script) { return number_from(it.sh("a", script)); };
  CHECK(number("nproc") == 1);
  CHECK(number("getconf _NPROCESSORS_ONLN") == 1);
  CHECK(number("lscpu -p=CPU | grep -vc '#'") == 1);
  CHECK(number("grep -c '^Cpus_allowed_list:.[0-9]*$' /proc/self/status") == 1);
  CHECK(number("python3 -c 'import os; print(os.cpu_count())'") == 1);
  CHECK(number("python3 -c 'import os; print(len(os.sched_getaffinity(0)))'") == 1);
  CHECK(number("node -p 'os.availableParallelism()'") == 1);
  // V8 takes half of the memory that it knows of, and Java a quarter.
  CHECK(number("node -p 'v8.getHeapStatistics().heap_size_limit / 1048576'") < 300);
  if (has("/usr/bin/java")) {
    const std::string flags = "java -XX:+PrintFlagsFinal -version 2>/dev/null | grep -w ";
    CHECK(number(flags + "MaxHeapSize | tr -dc '0-9 '") <= 256 << 20);
    CHECK(number("printf 'public class P { public static void main(String[] a) { System.out"
                 ".println(Runtime.getRuntime().availableProcessors()); } }' > P.java && "
                 "java P.java") == 1);
  }
  if (has("/usr/bin/make"))
    CHECK(number("printf 'all:; @echo $(MAKEFLAGS)\\n' > M; make -f M -j$(nproc) | "
                 "grep -o 'j1' | tr -d j") == 1);
}

TEST_CASE("a shell and its children have the processors of their sandbox", "[machine]") {
  const node it{half_a_machine};
  REQUIRE(it.ask("POST", "/v1/sandbox/a/session", R"({"id":"s"})").status == 200);
  const auto got =
    exec_stream{it.port(), "a", exec_body({"eval", "(nproc; bash -c nproc)"}), "Session-Id: s\r\n"}
      .rest();
  CHECK(got.out == "1\n1\n");
}

TEST_CASE("a sandbox that is taken from the pool shows the limits that it is given", "[machine]") {
  const node it{"pool: {target: 1}"};
  REQUIRE(eventually(
    [&] { return it.ask("GET", "/v1/pool/stats").body.find("\"warm\":1") != std::string::npos; }));
  const auto made = it.ask("POST", "/v1/sandboxes",
                           R"({"image":{"uri":"host"},"entrypoint":["tail","-f","/dev/null"],)"
                           R"("resourceLimits":{"cpu":"500m","memory":"256Mi"}})");
  REQUIRE(made.status == 202);
  const auto got =
    it.ask("POST", "/v1/sandboxes/" + made.body.substr(7, 26) + "/proxy/44772/command",
           R"({"command":"nproc; getconf _NPROCESSORS_ONLN; )"
           R"(cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/memory.max"})")
      .body;
  CAPTURE(got);
  CHECK(got.find("50000 100000") != std::string::npos);
  CHECK(got.find("268435456") != std::string::npos);
  const std::string one = R"("text":"1\n")";
  const auto first = got.find(one);
  CHECK(first != std::string::npos);
  CHECK(got.find(one, first + 1) != std::string::npos);
}
