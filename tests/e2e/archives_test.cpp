// The workspace as an archive, out and in, with the sandbox's own GNU tar as the judge.
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <sys/wait.h>

using namespace insula::test;

namespace {

namespace fs = std::filesystem;

constexpr std::size_t most = 33'554'432;

/// What a shell of this machine says; the status, if it is not 0, at the end.
std::string host(const std::string& command) {
  std::string said;
  FILE* from = ::popen(("LC_ALL=C; " + command + " 2>&1").c_str(), "r");
  REQUIRE(from != nullptr);
  char buffer[4096];
  while (!std::feof(from) && !std::ferror(from))
    said.append(buffer, std::fread(buffer, 1, sizeof buffer, from));
  if (const int status = ::pclose(from); status != 0)
    said += "\nstatus " + std::to_string(WEXITSTATUS(status));
  return said;
}

struct archives {
  node it{};

  http_answer persist(const std::string& id, const std::string& query = {},
                      const std::string& fields = {}) const {
    return it.ask("POST", "/v1/sandbox/" + id + "/persist" + query, {}, fields);
  }
  http_answer hydrate(const std::string& id, std::string_view archive) const {
    return it.ask("POST", "/v1/sandbox/" + id + "/hydrate", archive);
  }
  void put(const std::string& id, const std::string& name, std::string_view bytes) const {
    REQUIRE(it.ask("PUT", "/v1/sandbox/" + id + "/file/workspace/" + name, bytes).status == 200);
  }
  std::string get(const std::string& id, const std::string& name) const {
    const auto got = it.ask("GET", "/v1/sandbox/" + id + "/file/workspace/" + name);
    REQUIRE(got.status == 200);
    return got.body;
  }

  /// A file of this machine with the archive in it.
  std::string saved(std::string_view archive) const {
    auto path = it.scratch() + "/archive.tar";
    std::ofstream{path, std::ios::binary} << archive;
    return path;
  }
  /// Its members, a line each, in the order of their names.
  std::string listed(std::string_view archive, const std::string& options = {}) const {
    return host("tar " + options + " -tvf " + saved(archive) +
                " --full-time --numeric-owner --quoting-style=escape --warning=no-unknown-keyword "
                "| sort -k 6");
  }
  std::string names(std::string_view archive) const {
    return host("LC_ALL=C.UTF-8 tar -tf " + saved(archive) +
                " --quoting-style=escape | LC_ALL=C sort");
  }
};

/// All that tar restores of a workspace; moments since 2020 are the test's own.
constexpr const char* everything =
  "cd /workspace; find . -printf '%M %U:%G %n %T@ %p -> %l\\n' | "
  "sed 's/^\\(d[^ ]* [^ ]*\\) [0-9]*/\\1/; s/ 1[6-9][0-9]\\{8\\}\\.[0-9]*/ now/' | sort; "
  "find . -type f -perm -u=r -exec sha256sum {} + | sort -k 2";

/// Some of each kind.
constexpr const char* furnished =
  "set -e; umask 022; mkdir -p src/deep/er empty .git node_modules/a sub/node_modules;"
  "echo content > src/file; echo '#!/bin/sh' > src/script; chmod 4755 src/script; mkdir special; "
  "chmod 3755 special;"
  "echo secret > .git/config; chmod 600 .git/config; head -c 300000 /dev/urandom > src/noise;"
  "ln -s file src/link; ln -s /etc/passwd src/absolute; ln -s nowhere src/dangling;"
  "ln -s ../../outside src/upwards; ln src/file src/hard;"
  "echo x > node_modules/a/x; echo y > sub/node_modules/y; echo 'a b' > 'with blank';"
  "echo u > $(printf '\\303\\274mlaut'); echo e > sub/\"$(printf 'line\\nbreak')\"; echo o > a.o;"
  "mkdir -p $(printf 'd%.0s' {1..90})/$(printf 'e%.0s' {1..90});"
  "echo long > $(printf 'd%.0s' {1..90})/$(printf 'n%.0s' {1..200});"
  "ln -s $(printf 't%.0s' {1..150}) src/far; chmod 500 src/deep/er;"
  "truncate -s 100000 src/sparse; touch -d @1500000000.25 src/file; touch -d @1400000000 .git";

/// The lines that only one of them has.
std::string difference(const std::string& ours, const std::string& theirs) {
  const auto lines_of = [](const std::string& text) {
    std::istringstream in{text};
    std::multiset<std::string> lines;
    for (std::string line; std::getline(in, line);)
      lines.insert(line);
    return lines;
  };
  const auto left = lines_of(ours), right = lines_of(theirs);
  std::string text;
  for (const auto& each : left)
    if (left.count(each) != right.count(each))
      text += "ours   " + each + "\n";
  for (const auto& each : right)
    if (left.count(each) != right.count(each))
      text += "theirs " + each + "\n";
  return text;
}

} // namespace

TEST_CASE("what is persisted is what the sandbox's own tar makes", "[archives]") {
  const archives all;
  REQUIRE(all.it.sh("a", furnished).exit_code == 0);
  const auto made =
    all.it.sh("a", "tar --hard-dereference -cf /tmp/own.tar . && cp /tmp/own.tar own; "
                   "echo $?");
  REQUIRE(made.out == "0\n");
  const auto own = all.get("a", "own");
  REQUIRE(all.it
            .sh("a", "rm own; mkfifo fifo; python3 -c 'import socket; "
                     "socket.socket(socket.AF_UNIX).bind(\"socket\")'; touch -d @1450000000 .")
            .exit_code == 0);
  const auto got = all.persist("a");
  REQUIRE(got.status == 200);
  CHECK(got.fields.at("content-type") == "application/octet-stream");
  CHECK(got.complete);
  // Moments of directories differ by what has been done to them since.
  const auto without_top = [](std::string text) { return text.substr(text.find('\n') + 1); };
  CHECK(difference(without_top(all.listed(got.body)), without_top(all.listed(own))) == "");
  CHECK(got.body.compare(0, 3, "./\0", 3) == 0);
  CHECK(all.it.sh("a", "ls -A /tmp").out == "own.tar\n");
}

TEST_CASE("excludes leave out what tar's own leave out", "[archives]") {
  const archives all;
  REQUIRE(all.it.sh("a", furnished).exit_code == 0);
  for (const auto& [query, pattern] :
       std::vector<std::pair<std::string, std::string>>{{"node_modules", "node_modules"},
                                                        {"./node_modules", "node_modules"},
                                                        {"*/node_modules", "*/node_modules"},
                                                        {"node_modules/", "node_modules/"},
                                                        {"*.o", "*.o"},
                                                        {"src/*", "src/*"},
                                                        {"src/n?ise", "src/n?ise"},
                                                        {"%C3%BCmlaut", "\xc3\xbcmlaut"},
                                                        {"?mlaut", "?mlaut"},
                                                        {"[a-m]*", "[a-m]*"},
                                                        {"src/%5C*", "src/\\*"},
                                                        {"with+blank", "with blank"},
                                                        {".", "."},
                                                        {"*", "*"},
                                                        {"--exclude", "--exclude"},
                                                        {"$(touch+/tmp/x)", "$(touch /tmp/x)"},
                                                        {"no/such", "no/such"}}) {
    CAPTURE(query);
    const auto own =
      all.it.exec("a", {"bash", "-c",
                        "tar -C /workspace --exclude=\"./$1\" --quoting-style=escape -cf - . | "
                        "tar --quoting-style=escape -tf - | LC_ALL=C sort",
                        "-", pattern});
    REQUIRE(own.err.empty());
    const auto got = all.persist("a", "?excludes=" + query);
    REQUIRE(got.status == 200);
    CHECK(all.names(got.body) == own.out);
  }
  const auto two = all.names(all.persist("a", "?excludes=node_modules,,.git%2Csub").body);
  CHECK(two.find("./.git") == std::string::npos);
  CHECK(two.find("node_modules") == std::string::npos);
  CHECK(two.find("./src/file\n") != std::string::npos);
  CHECK(all.it.sh("a", "ls -A /tmp").out.empty());
}

TEST_CASE("what is hydrated is what the sandbox's own tar would have unpacked", "[archives]") {
  const archives all;
  REQUIRE(all.it.sh("maker", furnished).exit_code == 0);
  // What the archives come upon.
  const std::string before =
    "set -e; umask 022; mkdir -p src empty/full sub file_here dir_link_target; echo old > src/file;"
    "chmod 444 src/file; echo stays > src/stays; echo in > empty/full/in; ln -s dir_link_target "
    ".git;"
    "ln -s file_here src/link; mkdir a.o; echo old > src/hard; touch -d @1300000000 src/stays;"
    "touch -d @1300000000 empty/full/in empty/full file_here dir_link_target";
  const std::vector<std::string> packed = {
    "tar -cf /tmp/a.tar .",
    "tar --format=posix -cf /tmp/a.tar .",
    "tar --format=ustar -cf /tmp/a.tar --exclude=src/far --exclude='d*' .",
    "tar -zcf /tmp/a.tar src sub",
    "tar -Jcf /tmp/a.tar src .git",
    "tar -jcf /tmp/a.tar .git",
    "tar --zstd -cf /tmp/a.tar src",
    "tar -S -cf /tmp/a.tar src",
    "tar -P -cf /tmp/a.tar /workspace/src",
    "mkdir twice; echo 1 > twice/f; tar -cf /tmp/a.tar twice; echo 2 > twice/f; ln -s /tmp "
    "twice/l; "
    "tar -rf /tmp/a.tar twice; rm -r twice",
    "mkfifo pipe; tar -cf /tmp/a.tar pipe; rm pipe",
    "head -c 10240 /dev/zero > /tmp/a.tar",
    "mkdir ro; echo x > ro/x; chmod 555 ro; tar -cf /tmp/a.tar ro; chmod 755 ro; rm -r ro",
  };
  for (std::size_t i = 0; i < packed.size(); ++i) {
    CAPTURE(packed[i]);
    REQUIRE(all.it.sh("maker", "umask 022; " + packed[i] + " && mv /tmp/a.tar .").exit_code == 0);
    const auto archive = all.get("maker", "a.tar");
    REQUIRE(all.it.sh("maker", "rm a.tar").exit_code == 0);
    const auto ours = std::string{"ours"} + static_cast<char>('a' + i);
    const auto theirs = std::string{"theirs"} + static_cast<char>('a' + i);
    for (const auto& id : {ours, theirs})
      REQUIRE(all.it.sh(id, before).exit_code == 0);
    all.put(theirs, "a.tar", archive);
    const auto own = all.it.sh(theirs, "mv a.tar /tmp; touch -d @1300000000 .; umask 022; "
                                       "tar -xf /tmp/a.tar 2>/dev/null");
    REQUIRE(all.it.sh(ours, "touch -d @1300000000 .").exit_code == 0);
    const auto got = all.hydrate(ours, archive);
    CAPTURE(got.body, own.err);
    CHECK((got.status == 200) == (own.exit_code == 0));
    CHECK(difference(all.it.sh(ours, everything).out, all.it.sh(theirs, everything).out) == "");
    CHECK(all.it.sh(ours, "ls -A /tmp").out.empty());
    CHECK(all.it.remove(ours) == 204);
    CHECK(all.it.remove(theirs) == 204);
  }
}

TEST_CASE("what was persisted can be hydrated, also elsewhere", "[archives]") {
  const archives all;
  REQUIRE(all.it.sh("a", furnished).exit_code == 0);
  const auto archive = all.persist("a").body;
  REQUIRE(all.hydrate("b", archive).body == R"({"ok":true})");
  // A moment is a whole second, and special bits are gone.
  const auto seen = [&](const std::string& id) {
    return all.it
      .sh(id, "find . ! -name special ! -name script -printf '%M %U:%G %n %Ts %p -> %l\\n' | sort; "
              "find . -type f -exec sha256sum {} + | sort -k 2; stat -c %Y src/file")
      .out;
  };
  CHECK(seen("a") == seen("b"));
  CHECK(all.persist("b").body.size() == archive.size());
}

TEST_CASE("members that lead out of the workspace are refused, the others are there",
          "[archives]") {
  const archives all;
  REQUIRE(all.it
            .sh("maker",
                "mkdir t; cd t; echo in > in; echo last > z; mkdir d; echo up > d/up;"
                "tar -P -cf ../up.tar in --transform='s,^d/up,d/../../up,' d/up z;"
                "rm -rf d; ln -s /tmp d; tar -cf ../through.tar d; rm d; mkdir d; echo x > d/x;"
                "tar -rf ../through.tar d/x z; rm -rf d; ln -s /etc/passwd p;"
                "tar -cf ../replaced.tar p; rm p; echo mine > p; tar -rf ../replaced.tar p")
            .exit_code == 0);
  const auto up = all.hydrate("a", all.get("maker", "up.tar"));
  CHECK(up.status == 502);
  CHECK(
    up.body ==
    R"({"error":"tar extract failed (exit 2): tar: d/../../up: Member name contains '..'\ntar: )"
    R"(Exiting with failure status due to previous errors","code":"workspace_archive_write_error"})");
  CHECK(all.it.sh("a", "cat in z; ls -A / | grep -c '^up$'").out == "in\nlast\n0\n");
  const auto through = all.hydrate("a", all.get("maker", "through.tar"));
  CHECK(through.status == 502);
  CHECK(through.body.find("tar: d/x: Cannot open: Not a directory") != std::string::npos);
  CHECK(all.it.sh("a", "readlink d; cat z; ls -A /tmp").out == "/tmp\nlast\n");
  CHECK(all.hydrate("a", all.get("maker", "replaced.tar")).status == 200);
  CHECK(all.it.sh("a", "stat -c %F p; cat p").out == "regular file\nmine\n");
}

TEST_CASE("what cannot be read or written is told as tar would", "[archives]") {
  const archives all;
  all.it.sh("a",
            "mkdir closed sub; echo x > sub/locked; echo y > open; chmod 000 closed sub/locked");
  const auto got = all.persist("a");
  CHECK(got.status == 502);
  CHECK(got.body.find(R"({"error":"tar failed (exit 2): tar: ./)") == 0);
  CHECK(got.body.find("tar: ./closed: Cannot open: Permission denied") != std::string::npos);
  CHECK(got.body.find("tar: ./sub/locked: Cannot open: Permission denied") != std::string::npos);
  CHECK(got.body.find(R"("code":"workspace_archive_read_error")") != std::string::npos);
  CHECK(all.persist("a", "?excludes=closed,sub/locked").status == 200);
  // A directory in which nothing can be made.
  all.it.sh("maker", "mkdir -p sub2/x; echo 1 > sub2/x/f; echo 2 > g; tar -cf a.tar sub2 g");
  all.it.sh("a", "mkdir sub2; chmod 555 sub2");
  const auto put = all.hydrate("a", all.get("maker", "a.tar"));
  CHECK(put.status == 502);
  CHECK(put.body.find("tar: sub2/x: Cannot mkdir: Permission denied") != std::string::npos);
  CHECK(all.it.sh("a", "cat g").out == "2\n");
  // An archive that ends in the middle of a file leaves no half of it.
  all.it.sh("maker", "echo whole > whole; head -c 100000 /dev/urandom > half; "
                     "tar -cf a.tar whole half; truncate -s 50000 a.tar");
  const auto cut = all.hydrate("a", all.get("maker", "a.tar"));
  CHECK(cut.status == 502);
  CHECK(cut.body.find("tar: Unexpected EOF in archive") != std::string::npos);
  CHECK(all.it.sh("a", "cat whole; ls half").out == "whole\n");
}

TEST_CASE("a workspace that changes while it is read gives a whole archive", "[archives]") {
  const archives all;
  all.it.sh("a", "mkdir d; for i in {1..300}; do head -c 20000 /dev/urandom > d/$i; done");
  auto churn =
    all.it.open("a", {"bash", "-c",
                      "echo up; while :; do for i in d/*; do case $((RANDOM % 5)) in 0) rm -f $i;; "
                      "1) : > $i;; 2) head -c 50000 /dev/zero >> $i;; 3) mkdir -p n; mv $i n/;; "
                      "*) echo new > d/new$RANDOM;; esac; done; mv n/* d/; done"});
  REQUIRE(churn.next()->data == "up\n");
  for (int i = 0; i < 20; ++i) {
    const auto got = all.persist("a");
    CHECK(got.status == 200);
    CHECK(got.complete);
    const auto listed = host("tar -tf " + all.saved(got.body) + " >/dev/null");
    CHECK(listed.empty());
  }
}

TEST_CASE("archives that are large, many or cut short leave the server as it was", "[archives]") {
  const archives all;
  all.it.sh("a", "truncate -s 600M large; echo x > small");
  all.it.sh("b", "true");
  const auto before = resident_bytes(all.it.pid());
  // One as a whole, without ever holding it here either.
  http_connection reader{all.it.port()};
  reader.send(http_request("POST", "/v1/sandbox/a/persist"));
  CHECK(reader.receive_head().status == 200);
  std::uint64_t total = 0;
  while (const auto more = reader.more())
    total += more->size();
  CHECK(reader.whole());
  CHECK(total > 600u << 20);
  CHECK(resident_bytes(all.it.pid()) < before + (24u << 20));
  // The largest that is allowed, several at once, one byte more, and none.
  const std::string zeros(most, '\0');
  for (const int status : at_once(4, [&](std::size_t) { return all.hydrate("b", zeros).status; }))
    CHECK(status == 200);
  CHECK(resident_bytes(all.it.pid()) < before + (48u << 20));
  const auto refused = all.hydrate("b", zeros + "x");
  CHECK(refused.status == 400);
  CHECK(refused.body == R"({"error":"tar payload too large: 33554433 bytes exceeds the )"
                        R"(33554432-byte limit","code":"invalid_request"})");
  CHECK(all.hydrate("b", {}).body == R"({"error":"Empty tar payload","code":"invalid_request"})");
  // Clients that leave in the middle.
  for (int i = 0; i < 5; ++i) {
    http_connection leaving{all.it.port()};
    leaving.send(http_request("POST", "/v1/sandbox/a/persist"));
    CHECK(leaving.receive_head().status == 200);
    leaving.more();
    leaving.abandon();
    http_connection giving_up{all.it.port()};
    giving_up.send("POST /v1/sandbox/b/hydrate HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                   "1000000\r\n\r\n" +
                   zeros.substr(0, 500'000));
    giving_up.abandon();
  }
  // Nothing stays open or running: only the shell that looks.
  CHECK(eventually([&] { return open_files(all.it.pid()) < 100; }));
  for (const auto* id : {"a", "b"})
    CHECK(eventually([&] {
      return all.it.sh(id, "ps -u sandbox -o comm= | grep -vxE 'bash|ps|grep'").out.empty();
    }));
  CHECK(all.it.sh("b", "find . -mindepth 1").out.empty());
  CHECK(fs::is_empty(all.it.state() + "/logs"));
}

TEST_CASE("a file that no archive can take is told before anything is sent", "[archives]") {
  const archives all;
  all.it.sh("a", "truncate -s 8G large; echo x > small");
  const auto got = all.persist("a");
  CHECK(got.status == 502);
  CHECK(got.body.find("tar: ./large: Larger than the 8 GiB that an archive can take") !=
        std::string::npos);
  CHECK(all.persist("a", "?excludes=large").status == 200);
}

TEST_CASE("an archive of a few bytes that asks for much memory gets none", "[archives]") {
  const archives all;
  all.it.sh("a", "true");
  // Zeros, packed with the largest dictionary that there is, behind a member that is refused.
  const auto made = all.it.sh(
    "maker", "truncate -s 200M z && tar -cf - --transform='s,z,../z,' -P z | "
             "xz --lzma2=preset=0,dict=768MiB -T1 > /tmp/a && mv /tmp/a .; ls -l a >&2; rm z");
  CAPTURE(made.err);
  const auto archive = all.get("maker", "a");
  REQUIRE(archive.size() < 1u << 20);
  const auto before = resident_bytes(all.it.pid());
  const auto got = all.hydrate("a", archive);
  CHECK(got.status == 502);
  CHECK(resident_bytes(all.it.pid()) < before + (100u << 20));
  CHECK(all.it.sh("a", "find / -name z -user sandbox 2>/dev/null").out.empty());
}

TEST_CASE("archives of one sandbox at the same time do not disturb each other", "[archives]") {
  const archives all;
  REQUIRE(all.it.sh("a", furnished).exit_code == 0);
  const auto alone = all.persist("a").body;
  const auto together = at_once(8, [&](std::size_t i) {
    return i % 2 == 0 ? all.persist("a").body : all.hydrate(std::string(i, 'b'), alone).body;
  });
  for (std::size_t i = 0; i < together.size(); ++i)
    CHECK((i % 2 == 0 ? all.listed(together[i]) : together[i]) ==
          (i % 2 == 0 ? all.listed(alone) : R"({"ok":true})"));
}

TEST_CASE("a tree deeper than a path can be long is persisted", "[archives]") {
  const archives all;
  const auto made =
    all.it.sh("a", "python3 -c 'import os\nfor i in range(3000):\n  os.mkdir(\"d\"); "
                   "os.chdir(\"d\")\nopen(\"f\", \"w\").write(\"x\")'");
  REQUIRE(made.exit_code == 0);
  const auto got = all.persist("a");
  REQUIRE(got.status == 200);
  CHECK(host("tar -tf " + all.saved(got.body) + " | wc -l") == "3002\n");
  CHECK(all.it.remove("a") == 204);
}

namespace {

/// Files with several names and with holes: what there is of them, and how much room they take.
constexpr const char* linked_and_sparse =
  "set -e; mkdir -p d/e; echo one > d/one; ln d/one two; ln d/one d/e/three; echo like > like; "
  "echo like > other; ln like like2; : > empty; ln empty empty2; echo in > /tmp/out; "
  "ln /tmp/out half; truncate -s 2M hole; printf middle | dd of=hole bs=1 seek=1000000 "
  "conv=notrunc status=none; dd if=/dev/urandom of=ends bs=4k count=1 status=none; truncate -s "
  "300000 ends; truncate -s 8M nothing; ln nothing nothing2; "
  "truncate -s 1000000 $'h\\303\\266le' $(printf 'l%.0s' {1..200}); sync";
constexpr const char* links_and_holes =
  "set -e; sync; for i in d/one two d/e/three like like2 other empty empty2 half hole ends nothing "
  "nothing2 h\303\266le llll*; do stat -c '%n %s %h' $i; sha256sum < $i; done; for i in hole ends "
  "nothing h*le llll*; do "
  "test $(du -k $i | cut -f1) -lt 64 && echo $i is sparse; done; "
  "test d/one -ef two; test two -ef d/e/three; test like -ef like2; test ! like -ef other; "
  "test nothing -ef nothing2; test empty -ef empty2; test -z \"$(find . -name '.insula*')\"; echo "
  "all";

} // namespace

TEST_CASE("hard links and holes are there again after persist and hydrate", "[archives]") {
  const archives all;
  REQUIRE(all.it.sh("a", linked_and_sparse).exit_code == 0);
  auto wanted = all.it.sh("a", links_and_holes).out;
  REQUIRE(wanted.ends_with("all\n"));
  // Its other name is not in the workspace.
  const auto half = wanted.find("half 3 2");
  REQUIRE(half != std::string::npos);
  wanted[half + std::string{"half 3 "}.size()] = '1';
  const auto plain = all.persist("a");
  REQUIRE(plain.status == 200);
  // An archive that clients take: no links, no maps.
  CHECK(host("tar -tvf " + all.saved(plain.body) + " | cut -c1 | sort -u") == "-\nd\n");
  CHECK(
    host("python3 -c 'import sys, tarfile; print(any(each.issparse() or each.islnk() for each in "
         "tarfile.open(sys.argv[1])))' " +
         all.saved(plain.body)) == "False\n");
  const auto compact = all.persist("a", {}, "Insula-For-Hydrate: true\r\n");
  REQUIRE(compact.status == 200);
  CHECK(compact.body.size() < 1'100'000); // Of the last one, whose name is too long for a map.
  // One that the sandbox's tar unpacks as well; where there is no map, that tar makes no holes.
  all.put("theirs", "a.tar", compact.body);
  const auto unpacked =
    all.it.sh("theirs", "tar -xf a.tar && rm a.tar && " + std::string{links_and_holes}).out;
  const auto unmapped = std::string(200, 'l') + " is sparse\n";
  const auto at = wanted.find(unmapped);
  REQUIRE(at != std::string::npos);
  CHECK(unpacked == std::string{wanted}.erase(at, unmapped.size()));
  for (const auto& [id, archive] : {std::pair{"b", &plain.body}, {"c", &compact.body}}) {
    CAPTURE(id);
    REQUIRE(all.hydrate(id, *archive).body == R"({"ok":true})");
    CHECK(all.it.sh(id, links_and_holes).out == wanted);
    // And over what is there already.
    CHECK(all.it.sh(id, "echo changed >> two; echo changed >> nothing").exit_code == 0);
    REQUIRE(all.hydrate(id, *archive).status == 200);
    CHECK(all.it.sh(id, links_and_holes).out == wanted);
  }
  // Only a part of it.
  REQUIRE(all.hydrate("d", all.persist("a", "?excludes=two,d/one").body).status == 200);
  CHECK(all.it.sh("d", "ls d/e; stat -c %h d/e/three like").out == "three\n1\n2\n");
}

TEST_CASE("a gigabyte of holes goes through hydrate, and what does not is told beforehand",
          "[archives]") {
  const archives all;
  const std::string wanted = "Insula-For-Hydrate: true\r\n";
  REQUIRE(
    all.it.sh("a", "truncate -s 1G hole; printf end >> hole; mkdir d; ln hole d/again").exit_code ==
    0);
  const auto before = resident_bytes(all.it.pid());
  const auto got = all.persist("a", {}, wanted);
  REQUIRE(got.status == 200);
  CHECK(got.body.size() <= 10'240);
  REQUIRE(all.hydrate("b", got.body).status == 200);
  CHECK(all.it
          .sh("b", "sync; stat -c '%s %h' hole; tail -c 3 d/again; test $(du -k hole | cut -f1) "
                   "-lt 100 && echo ' sparse'")
          .out == "1073741827 2\nend sparse\n");
  // The plain one is as large as it looks, and says so before any of it comes.
  http_connection reader{all.it.port()};
  reader.send(http_request("POST", "/v1/sandbox/a/persist", {}, "Insula-For-Hydrate: false\r\n"));
  const auto head = reader.receive_head();
  CHECK(head.status == 200);
  CHECK(head.fields.at("insula-too-large-to-hydrate") == "2147491840");
  reader.close();
  CHECK(resident_bytes(all.it.pid()) < before + (24u << 20));
  // To the byte: the largest that hydrate takes, and one block more (of tar's, 10 KiB).
  REQUIRE(all.it.sh("a", "rm -r hole d; head -c 33544192 /dev/urandom > f").exit_code == 0);
  const auto largest = all.persist("a", {}, wanted);
  CHECK(largest.status == 200);
  CHECK(largest.body.size() == 33'546'240);
  CHECK(all.persist("a", {}, "Insula-For-Hydrate: false\r\n")
          .fields.count("insula-too-large-to-hydrate") == 0);
  REQUIRE(all.hydrate("c", largest.body).status == 200);
  REQUIRE(all.it.sh("a", "echo more >> f").exit_code == 0);
  const auto refused = all.persist("a", {}, wanted);
  CHECK(refused.status == 413);
  CHECK(refused.body ==
        R"({"error":"the archive would have 33556480 bytes, and hydrate takes 33554432",)"
        R"("code":"payload_too_large"})");
  const auto large = all.persist("a", {}, "Insula-For-Hydrate: false\r\n");
  CHECK(all.persist("a").fields.count("insula-too-large-to-hydrate") == 0); // Nobody has asked.
  CHECK(large.fields.at("insula-too-large-to-hydrate") == std::to_string(large.body.size()));
  CHECK(all.hydrate("c", large.body).status == 400);
  CHECK(all.persist("a", "?excludes=f", wanted).status == 200);
  // A persist that fails for another reason says that.
  REQUIRE(all.it.sh("a", "echo x > secret; chmod 0 secret").exit_code == 0);
  CHECK(all.persist("a", {}, wanted).status == 502);
}

TEST_CASE("no hard link of an archive leads out of the workspace", "[archives]") {
  const archives all;
  REQUIRE(all.it
            .sh("maker", R"(python3 - <<'end'
import io, tarfile
def archive(name, *members):
    with tarfile.open(name, "w", format=tarfile.PAX_FORMAT) as to:
        for path, kind, more in members:
            one = tarfile.TarInfo(path)
            one.type = kind
            if kind == tarfile.REGTYPE:
                one.size = 4
                if more:
                    one.pax_headers = {"SCHILY.xattr.user.insula.file": more}
                to.addfile(one, io.BytesIO(b"text"))
            else:
                one.linkname = more
                to.addfile(one)
            one = None
link, soft, file = tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.REGTYPE
archive("absolute.tar", ("in", link, "/tmp/out"), ("z", file, None))
archive("upwards.tar", ("in", link, "../tmp/out"), ("z", file, None))
archive("by-link.tar", ("d", soft, "/tmp"), ("in", link, "d/out"), ("z", file, None))
archive("to-link.tar", ("s", soft, "/tmp/out"), ("in", link, "s"), ("in", file, None))
archive("marked.tar", ("one", file, "1"), ("d", soft, "/tmp"), ("d/out", file, "1"))
archive("swapped.tar", ("d/x", file, "1"), ("d/x", soft, "/tmp/out"), ("y", file, "1"))
end)")
            .exit_code == 0);
  for (const auto* name : {"absolute", "upwards", "by-link", "to-link", "marked", "swapped"}) {
    CAPTURE(name);
    const std::string box{name[0], name[1]};
    REQUIRE(all.it.sh(box, "echo outside > /tmp/out").exit_code == 0);
    const auto got = all.hydrate(box, all.get("maker", std::string{name} + ".tar"));
    CAPTURE(got.body);
    CHECK(all.it
            .sh(box, "cat /tmp/out; stat -c %h /tmp/out; find . -type f -samefile /tmp/out; "
                     "ls -A /tmp")
            .out == "outside\n1\nout\n");
    CHECK(all.it.remove(box) == 204);
  }
}
