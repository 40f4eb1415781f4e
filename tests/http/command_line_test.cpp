#include "http/sandboxes/command_line.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <cstdio>
#include <memory>
#include <random>
#include <unistd.h>

using insula::http::command_line;
using insula::http::quote;

TEST_CASE("harmless elements stay as they are, others are quoted", "[http][command_line]") {
  const std::array<std::pair<std::string, std::string>, 21> table{{
    {"exit", "exit"},
    {"42", "42"},
    {"/tmp", "/tmp"},
    {"A=1", "A=1"},
    {"-lc", "-lc"},
    {"@%+=:,./-", "@%+=:,./-"},
    {"", "$''"},
    {"a_b", "$'a_b'"},
    {"*.txt", "$'*.txt'"},
    {"~", "$'~'"},
    {"echo $HOME", "$'echo $HOME'"},
    {"it's", "$'it\\'s'"},
    {"a\\b", "$'a\\\\b'"},
    {"a\nb", "$'a\\nb'"},
    {"a\rb", "$'a\\rb'"},
    {"a\tb", "$'a\\tb'"},
    {"a b", "$'a b'"},
    {"\"", "$'\"'"},
    {"\x01", "$'\x01'"},
    {"\xc3\xa4", "$'\xc3\xa4'"},
    {"#", "$'#'"},
  }};
  for (const auto& [element, quoted] : table)
    CHECK(quote(element) == quoted);
}

TEST_CASE("elements are joined with one blank", "[http][command_line]") {
  CHECK(command_line({"sh", "-lc", "echo $HOME"}) == "sh -lc $'echo $HOME'");
  CHECK(command_line({"A=1", "env"}) == "A=1 env");
  CHECK(command_line({""}) == "$''");
  CHECK(command_line({"", ""}) == "$'' $''");
}

TEST_CASE("a shell's script that no argument can hold goes through a descriptor",
          "[http][command_line]") {
  const std::string longest(131'071, 'x'), script(131'072, 'x');
  const auto led = [&](const std::string& line) {
    return "(insula_script=" + script + "; { printf %s \"$insula_script\" | " + line +
           " 9<&0 0<&8 8<&-; } 8<&0)";
  };
  const std::string read = quote("eval \"$(cat <&9 || echo exit 126)\" 9<&-");
  CHECK(command_line({"bash", "-c", longest}) == "bash -c " + longest);
  CHECK(command_line({"bash", "-c", script}) == led("bash -c " + read));
  CHECK(command_line({"env", "A=1", "/bin/sh", "-ec", script, "name", "a b"}) ==
        led("env A=1 /bin/sh -ec " + read + " name " + quote("a b")));
  CHECK(command_line({"bash", "-e", "-o", "pipefail", "-c", script}) ==
        led("bash -e -o pipefail -c " + read));
  // Neither a shell nor its script.
  for (const auto& argv : {std::vector<std::string>{"python3", "-c", script},
                           {"bash", "-x", script},
                           {"bash", "-c", "true", script},
                           {"echo", "bash", "-c", script},
                           {"bash", "file", "-c", script},
                           {"bash", "-o", "-c", script},
                           {"bash", script},
                           {script}})
    CHECK(command_line(argv).find("9<") == std::string::npos);
}

TEST_CASE("bash reads a quoted element back as it was", "[http][command_line][property]") {
  const auto seed = GENERATE(take(20, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  std::string element;
  for (unsigned n = rng() % 40; element.size() < n;)
    element += static_cast<char>(1 + rng() % 255);
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const std::string script = "printf %s " + quote(element);
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], 1);
    ::close(ends[0]);
    ::close(ends[1]);
    ::setenv("LC_ALL", "C", 1);
    ::execl("/bin/bash", "bash", "-c", script.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string printed;
  std::array<char, 256> buffer{};
  for (ssize_t n = 0; (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    printed.append(buffer.data(), static_cast<std::size_t>(n));
  ::close(ends[0]);
  CHECK(printed == element);
}

TEST_CASE("a shell that is no bash gets what it can read", "[command_line]") {
  CHECK(insula::http::posix_command_line({"echo", "plain"}).empty());
  CHECK(insula::http::posix_command_line({"sh", "-c", "echo $HOME; it's \\n"}) ==
        "sh -c 'echo $HOME; it'\\''s \\n'");
  CHECK(insula::http::posix_command_line({"a", ""}) == "a ''");
  const auto script = "it's" + std::string(131'072, '#');
  CHECK(insula::http::posix_command_line({"sh", "-c", script, "a"}) ==
        "(insula_script='it'\\''s" + script.substr(4) +
          "'; { printf %s \"$insula_script\" | sh -c 'eval \"$(cat <&9 || echo exit 126)\" 9<&-' a "
          "9<&0 0<&8 8<&-; } 8<&0)");
}
