// Tasks with files of a sandbox: what becomes of them inside.
#include "base/file_tasks.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/file_channel.hpp"
#include "tests/support/live_node.hpp"

#include <cerrno>
#include <cstring>
#include <future>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;

namespace {

using words = std::vector<std::string>;

/// "path kind mode owner group size", a line each.
std::string lines_of(std::string_view bytes) {
  std::string all;
  file_entry is{};
  while (bytes.size() >= sizeof is) {
    std::memcpy(&is, bytes.data(), sizeof is);
    bytes.remove_prefix(sizeof is);
    const auto take = [&](std::uint32_t size) {
      std::string text{bytes.substr(0, size)};
      bytes.remove_prefix(size);
      return text;
    };
    const auto path = take(is.path_bytes), owner = take(is.owner_bytes),
               group = take(is.group_bytes);
    constexpr std::string_view kinds = "?fdol";
    char mode[8];
    std::snprintf(mode, sizeof mode, "%o", is.mode);
    all += path + " " + kinds[static_cast<std::size_t>(is.kind)] + " " + mode + " " + owner + " " +
           group + " " + std::to_string(is.kind == file_kind::directory ? 0 : is.size) + "\n";
  }
  CHECK(bytes.empty());
  return all;
}

int count_of(std::string_view text, std::string_view part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

std::string paths_of(std::string_view bytes) {
  std::string all;
  auto lines = lines_of(bytes);
  for (std::size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1)
    all += lines.substr(at, lines.find(' ', at) - at) + " ";
  return all;
}

bool is(const file_answer& got, int error, file_step step, std::uint64_t group = 0) {
  CHECK(got.heard);
  CHECK(got.head.error == error);
  CHECK(got.head.step == static_cast<std::uint32_t>(step));
  CHECK(got.head.size == group);
  return got.head.error == error;
}

bool worked(const file_answer& got) {
  CHECK(got.whole);
  return is(got, 0, file_step::none);
}

} // namespace

TEST_CASE("a walk that loses a directory under way does not say that it is whole",
          "[runtime][files]") {
  live_sandbox box{shared_node()};
  REQUIRE(box.run("mkdir -p t/a t/b; (cd t; touch a/f{1..200} b/f{1..200})").exited(0));
  // Two directories change places all the time. A walk may miss one, as the kernel does not tell it
  // of all that is renamed meanwhile; of one that it has found it has all files, or says so.
  auto swaps = box.start(R"(cd t; exec python3 -c '
import ctypes
swap = ctypes.CDLL(None).renameat2
print("begins", flush=True)
while True:
  swap(-100, b"a", -100, b"b", 2)
')");
  swaps.says("begins");
  int whole = 0, cut = 0;
  constexpr int most = 5'000; // About one in fifty is cut.
  while (whole + cut < most && (whole == 0 || cut == 0)) {
    const auto got = run_task(*box, file_task::list, {"/workspace/t", "2"});
    if (!got.whole) {
      ++cut;
      continue;
    }
    ++whole;
    const auto lines = lines_of(got.bytes);
    const auto directories =
      count_of(lines, "/workspace/t/a d ") + count_of(lines, "/workspace/t/b d ");
    CHECK(count_of(lines, "/workspace/t/") == directories * (1 + 200));
  }
  CHECK(whole > 0);
  CHECK(cut > 0);
}

TEST_CASE("files are looked at, themselves and not what they lead to", "[runtime][files]") {
  live_sandbox box{shared_node()};
  box.run("echo four > file; chmod 640 file; mkdir -m 700 directory; ln -s file link; mkfifo fifo");
  const auto got = run_task(*box, file_task::look,
                            {"/workspace/file", "/workspace/directory", "/workspace/link",
                             "/workspace/fifo", "/etc/passwd"});
  REQUIRE(worked(got));
  const auto told = lines_of(got.bytes);
  CHECK(told.starts_with("/workspace/file f 640 sandbox sandbox 5\n"
                         "/workspace/directory d 700 sandbox sandbox 0\n"
                         "/workspace/link l 777 sandbox sandbox 4\n"
                         "/workspace/fifo o 644 sandbox sandbox 0\n"
                         "/etc/passwd f 644 root root "));
  CHECK(is(run_task(*box, file_task::look, {"/workspace/file", "/workspace/none"}), ENOENT,
           file_step::open, 1));
  CHECK(is(run_task(*box, file_task::look, {"/workspace/file/x"}), ENOTDIR, file_step::open));
  // Of directories, through links; and of any year.
  box.run("ln -s directory to; ln -s nowhere dangling; touch -d 2400-01-01 file");
  CHECK(lines_of(run_task(*box, file_task::look, {"/workspace/to/."}).bytes) ==
        "/workspace/to/. d 700 sandbox sandbox 0\n");
  for (const auto* path : {"/workspace/file/.", "/workspace/dangling/."})
    CHECK(run_task(*box, file_task::look, {path}).head.error != 0);
  CHECK(worked(run_task(*box, file_task::look, {"/workspace/file"})));
}

TEST_CASE("directories are listed down to a depth, in order", "[runtime][files]") {
  live_sandbox box{shared_node()};
  box.run("mkdir -p t/b/c/d t/a; touch t/b/z t/b/c/y t/.hidden t/x; ln -s b t/link; ln -s t root");
  const auto list = [&](const char* path, const char* depth) {
    const auto got = run_task(*box, file_task::list, {path, depth});
    REQUIRE(worked(got));
    return paths_of(got.bytes);
  };
  CHECK(list("/workspace/t", "0").empty());
  CHECK(list("/workspace/t", "1") ==
        "/workspace/t/.hidden /workspace/t/a /workspace/t/b /workspace/t/link /workspace/t/x ");
  CHECK(list("/workspace/t/b", "2") ==
        "/workspace/t/b/c /workspace/t/b/c/d /workspace/t/b/c/y /workspace/t/b/z ");
  CHECK(list("/workspace/t", "99").find("/workspace/t/b/c/d ") != std::string::npos);
  CHECK(list("/workspace/t", "99").find("link/") == std::string::npos);
  CHECK(is(run_task(*box, file_task::list, {"/workspace/root", "1"}), ENOTDIR, file_step::type));
  CHECK(is(run_task(*box, file_task::list, {"/workspace/t/x", "1"}), ENOTDIR, file_step::type));
  CHECK(is(run_task(*box, file_task::list, {"/workspace/no", "1"}), ENOENT, file_step::open));
}

TEST_CASE("files are found by their names", "[runtime][files]") {
  live_sandbox box{shared_node()};
  box.run("mkdir -p t/sub.py/deep t/closed; touch t/a.py t/sub.py/b.py t/.c.py t/d.txt "
          "t/sub.py/deep/\xc3\xa9.md; ln -s /etc t/etc.py; chmod 0 t/closed");
  const auto search = [&](const words& patterns) {
    words all{"/workspace/t"};
    all.insert(all.end(), patterns.begin(), patterns.end());
    const auto got = run_task(*box, file_task::search, all);
    REQUIRE(worked(got));
    return paths_of(got.bytes);
  };
  CHECK(search({"*.py"}) == "/workspace/t/.c.py /workspace/t/a.py /workspace/t/etc.py "
                            "/workspace/t/sub.py/b.py ");
  CHECK(search({"?.md"}) == "/workspace/t/sub.py/deep/\xc3\xa9.md ");
  CHECK(search({"[!a].py", "*.txt"}) == "/workspace/t/d.txt /workspace/t/sub.py/b.py ");
  CHECK(search({"none"}).empty());
  box.run("rm -r t/sub.py; for i in $(seq 3000); do : > t/file_of_some_length_$i; done");
  CHECK(search({"file_of_*"}).size() > 3000 * 30); // Many frames.
  CHECK(is(run_task(*box, file_task::search, {"/workspace/no", "*"}), ENOENT, file_step::open));
  // Neither of these can be told from an empty one by what is found in it.
  box.run("mkdir /workspace/shut /workspace/half; touch /workspace/half/a; "
          "chmod 0 /workspace/shut; chmod 400 /workspace/half");
  for (const std::string path : {"/workspace/shut", "/workspace/half"}) {
    CHECK(is(run_task(*box, file_task::search, {path, "*"}), EACCES, file_step::open));
    CHECK(is(run_task(*box, file_task::list, {path, "1"}), EACCES, file_step::open));
  }
}

TEST_CASE("a part of a file is read", "[runtime][files]") {
  live_sandbox box{shared_node()};
  box.run("printf 0123456789 > ten; : > empty; mkdir d; mkfifo p");
  const auto read = [&](const char* first, const char* last, const char* path = "/workspace/ten") {
    return run_task(*box, file_task::read, {path, first, last});
  };
  const auto part = [&](const char* first, const char* last) {
    const auto got = read(first, last);
    CHECK(got.whole);
    CHECK(got.head.error == 0);
    const auto entry = sizeof(file_entry) + std::strlen("/workspace/tensandboxsandbox");
    return std::to_string(got.head.size) + ":" + got.bytes.substr(entry);
  };
  CHECK(part("0", "") == "0:0123456789");
  CHECK(part("3", "") == "3:3456789");
  CHECK(part("3", "5") == "3:345");
  CHECK(part("9", "9") == "9:9");
  CHECK(part("5", "99") == "5:56789");
  CHECK(part("", "4") == "6:6789");
  CHECK(part("", "99") == "0:0123456789");
  CHECK(is(read("10", ""), ERANGE, file_step::read, 10));
  CHECK(is(read("5", "4"), ERANGE, file_step::read, 10));
  CHECK(is(read("", "0"), ERANGE, file_step::read, 10));
  CHECK(read("0", "", "/workspace/empty").whole);
  CHECK(is(read("0", "", "/workspace/d"), EISDIR, file_step::type));
  CHECK(is(read("0", "", "/workspace/p"), EINVAL, file_step::type));
  CHECK(is(read("0", "", "/workspace/no"), ENOENT, file_step::open));
}

TEST_CASE("a file is put with a mode", "[runtime][files]") {
  live_sandbox box{shared_node()};
  const auto put = [&](const words& said, const std::string& content) {
    return run_task(*box, file_task::put, said, content);
  };
  CHECK(put({"/workspace/a/new", "", "", ""}, "x").head.mode == 0755);
  CHECK(put({"/workspace/secret", "600", "sandbox", "sandbox"}, "y").head.mode == 0600);
  CHECK(put({"/workspace/secret", "", "", ""}, "z").head.mode == 0600);
  CHECK(put({"/workspace/secret", "640", "1000", "1000"}, "w").head.mode == 0640);
  CHECK(box.run("cat a/new secret").out == "xw");
  CHECK(is(put({"/workspace/secret", "", "nobody_here", ""}, "v"), EINVAL, file_step::owner));
  CHECK(is(put({"/workspace/secret", "", "", "nobody_here"}, "v"), EINVAL, file_step::group));
  CHECK(is(put({"/workspace/secret", "888", "", ""}, std::string(3 << 20, 'v')), EINVAL,
           file_step::mode));
  CHECK(is(put({"/workspace/secret", "", "root", ""}, "v"), EPERM, file_step::owner));
  CHECK(box.run("cat secret; find . -name '.insula*'").out == "w");
}

TEST_CASE("files and trees are removed", "[runtime][files]") {
  live_sandbox box{shared_node()};
  box.run("mkdir -p t/a/b other; touch t/a/b/c t/f g other/kept; ln -s ../other t/link");
  CHECK(worked(
    run_task(*box, file_task::remove, {"/workspace/g", "/workspace/none", "/workspace/none/x"})));
  CHECK(is(run_task(*box, file_task::remove, {"/workspace/other/kept", "/workspace/t"}), EISDIR,
           file_step::write, 1));
  box.run("touch other/kept");
  CHECK(worked(run_task(*box, file_task::remove_trees, {"/workspace/t", "/workspace/none"})));
  CHECK(box.run("ls -A; ls other").out == "other\nkept\n");
  // Deeper than a path can be, and with what may not be removed.
  box.run("mkdir deep; cd deep; for i in $(seq 600); do mkdir 123456789 && cd 123456789; done");
  CHECK(worked(run_task(*box, file_task::remove_trees, {"/workspace/deep"})));
  CHECK(box.run("ls").out == "other\n");
  CHECK(run_task(*box, file_task::remove_trees, {"/etc/passwd"}).head.error == EACCES);
  // Deeper than can be walked: that is said, and not passed over.
  box.run("n=$(printf %0250d 7); mkdir abyss; cd abyss; for i in $(seq 300); do mkdir $n && cd $n; "
          "done");
  CHECK(run_task(*box, file_task::remove_trees, {"/workspace/abyss"}).head.error == ENAMETOOLONG);
  CHECK_FALSE(run_task(*box, file_task::list, {"/workspace/abyss", "9999"}).whole);
  CHECK_FALSE(run_task(*box, file_task::search, {"/workspace/abyss", "*"}).whole);
  box.run("rm -r abyss");
}

TEST_CASE("directories are made, and rights are given", "[runtime][files]") {
  live_sandbox box{shared_node()};
  CHECK(worked(run_task(*box, file_task::make_directories,
                        {"/workspace/a/b", "", "", "", "/workspace/c", "700", "", ""})));
  CHECK(worked(run_task(*box, file_task::make_directories, {"/workspace/c", "755", "", ""})));
  CHECK(box.run("stat -c %a a a/b c").out == "755\n755\n700\n");
  box.run("touch file");
  CHECK(is(run_task(*box, file_task::make_directories, {"/workspace/file", "", "", ""}), ENOTDIR,
           file_step::type));
  CHECK(
    worked(run_task(*box, file_task::permit,
                    {"/workspace/file", "4711", "sandbox", "", "/workspace/c", "750", "", ""})));
  CHECK(box.run("stat -c %a file c").out == "4711\n750\n");
  CHECK(is(run_task(*box, file_task::permit,
                    {"/workspace/file", "600", "", "", "/workspace/no", "600", "", ""}),
           ENOENT, file_step::open, 1));
  CHECK(box.run("stat -c %a file").out == "600\n");
  CHECK(is(run_task(*box, file_task::permit, {"/workspace/file", "", "root", ""}), EPERM,
           file_step::owner));
  // Ids that no sandbox has: the last means "as it is" to the kernel.
  for (const char* id : {"65536", "4294967294", "4294967295", "4294967296", "-1"}) {
    CAPTURE(id);
    CHECK(is(run_task(*box, file_task::permit, {"/workspace/file", "", id, ""}), EINVAL,
             file_step::owner));
    CHECK(is(run_task(*box, file_task::permit, {"/workspace/file", "", "", id}), EINVAL,
             file_step::group));
  }
  for (const char* id : {"0", "65534", "65535"}) // They are there, and another's.
    CHECK(is(run_task(*box, file_task::permit, {"/workspace/file", "", id, ""}), EPERM,
             file_step::owner));
  CHECK(worked(run_task(*box, file_task::permit, {"/workspace/file", "", "1000", "1000"})));
}

TEST_CASE("files are moved to where nothing is", "[runtime][files]") {
  live_sandbox box{shared_node()};
  box.run("echo 1 > one; echo 2 > two; mkdir d");
  CHECK(worked(run_task(*box, file_task::move, {"/workspace/one", "/workspace/x/y/uno"})));
  CHECK(box.run("cat x/y/uno").out == "1\n");
  CHECK(is(run_task(*box, file_task::move,
                    {"/workspace/two", "/workspace/due", "/workspace/no", "/workspace/z"}),
           ENOENT, file_step::open, 1));
  CHECK(is(run_task(*box, file_task::move, {"/workspace/due", "/workspace/d"}), EEXIST,
           file_step::rename));
  CHECK(worked(run_task(*box, file_task::move, {"/workspace/d", "/workspace/e"})));
  CHECK(box.run("ls").out == "due\ne\nx\n");
}

TEST_CASE("what stands in files is replaced", "[runtime][files]") {
  live_sandbox box{shared_node()};
  box.run("printf 'a.b.c' > f; chmod 751 f; printf aaaa > g; : > empty; ln -s f link; mkdir d; "
          "head -c 3000000 /dev/zero | tr '\\0' x > large; stat -c %i large > inode");
  const auto counts = [&](const words& said) {
    const auto got = run_task(*box, file_task::replace, said);
    REQUIRE(worked(got));
    std::string all;
    for (std::size_t at = 0; at + 8 <= got.bytes.size(); at += 8) {
      std::uint64_t count = 0;
      std::memcpy(&count, got.bytes.data() + at, 8);
      all += std::to_string(count) + " ";
    }
    return all;
  };
  CHECK(counts({"/workspace/link", ".", "--", "/workspace/g", "aa", "a", "/workspace/empty", "x",
                "y"}) == "2 2 0 ");
  CHECK(box.run("cat f g; stat -c %a f; readlink link").out == "a--b--caa751\nf\n");
  CHECK(counts({"/workspace/large", "y", "z"}) == "0 ");
  CHECK(box.run("stat -c %i large | cmp - inode && echo same").out == "same\n");
  CHECK(counts({"/workspace/large", "x", "yy"}) == "3000000 ");
  CHECK(box.run("stat -c %s large; tr -d y < large | wc -c").out == "6000000\n0\n");
  CHECK(
    is(run_task(*box, file_task::replace, {"/workspace/g", "a", "b", "/workspace/none", "a", "b"}),
       ENOENT, file_step::open, 1));
  CHECK(run_task(*box, file_task::replace, {"/workspace/d", "a", "b"}).head.error == EISDIR);
  CHECK(run_task(*box, file_task::replace, {"/etc/passwd", "root", "b"}).head.error == EACCES);
  // Where no second file can be made it is written in place.
  box.run("mkdir shut; printf 'a long text a' > shut/f; chmod 555 shut");
  CHECK(counts({"/workspace/shut/f", "a", ""}) == "2 ");
  CHECK(box.run("cat shut/f; chmod 755 shut").out == " long text ");
  CHECK(box.run("cat g; ls -A . shut").out.find(".insula") == std::string::npos);
}

namespace {

/// A sandbox whose user gets a name.
struct named_box {
  result<void> name(const std::string& login, bool anew = true) {
    std::promise<result<void>> told;
    (*box).name_user({{}, login, "/home/maker", "/made/here", "/workspace", anew},
                     [&](const result<void>& outcome) { told.set_value(outcome); });
    return told.get_future().get();
  }
  std::string as_root(const std::string& line) { return box.run(line, {0, 0}).out; }
  std::string users() { return as_root("grep -v '^root:' /etc/passwd"); }

  live_sandbox box{shared_node()};
};

} // namespace

TEST_CASE("a sandbox's user gets a name, a home and a directory", "[runtime][files]") {
  named_box it;
  it.as_root("chmod 640 /etc/passwd; chown 0:4 /etc/passwd; rm -rf /workspace/*");
  const auto others = it.as_root("grep -v :1000: /etc/passwd | md5sum");
  REQUIRE(it.name("maker"));
  CHECK(it.as_root("grep :1000: /etc/passwd") ==
        "maker:x:1000:1000:sandbox:/home/maker:/bin/bash\n");
  CHECK(it.as_root("grep :1000: /etc/group | cut -d: -f1,3") == "maker:1000\n");
  CHECK(it.as_root("grep -v :1000: /etc/passwd | md5sum") == others);
  CHECK(it.as_root("stat -c '%a %u %g' /etc/passwd /made /made/here /home /home/maker") ==
        "640 0 4\n755 1000 1000\n755 1000 1000\n755 0 0\n755 1000 1000\n");
  CHECK(it.as_root("readlink /workspace") == "/made/here\n");

  INFO("later it changes nothing but what is missing");
  it.as_root("chmod 700 /home/maker; rmdir /made/here; chown 0:0 /made; sed -i "
             "s:/bin/bash:/bin/sh: /etc/passwd; stat -c %i /etc/passwd > /tmp/inode");
  REQUIRE(it.name("maker", false));
  CHECK(it.as_root("stat -c %i /etc/passwd | cmp - /tmp/inode && stat -c '%a %u' /home/maker /made "
                   "/made/here") == "700 1000\n755 0\n755 1000\n");
}

TEST_CASE("a user's name is the user's alone, whatever the image has of it", "[runtime][files]") {
  named_box it;
  const std::string line = "maker:x:1000:1000::/home/maker:/bin/bash\n";
  SECTION("no such user") {
    it.as_root("echo root:x:0:0:root:/root:/bin/sh > /etc/passwd; printf root:x:0: > /etc/group");
    REQUIRE(it.name("maker"));
    CHECK(it.users() == line);
    CHECK(it.as_root("cat /etc/group") == "root:x:0:\nmaker:x:1000:\n");
  }
  SECTION("the name, with a home of its own and directories of root's") {
    it.as_root("printf 'root:x:0:0::/root:/bin/sh\nmaker:x:1000:1000::/old:/bin/sh\n' > "
               "/etc/passwd; mkdir -p /made/here; chmod 700 /made/here");
    REQUIRE(it.name("maker"));
    CHECK(it.users() == line);
    CHECK(it.as_root("stat -c '%a %u' /made/here") == "755 1000\n");
  }
  SECTION("the name is another user's") {
    it.as_root("printf 'root:x:0:0::/root:/bin/sh\nmaker:x:5:5::/:/bin/sh\n"
               "old:x:1000:1000::/old:/bin/sh\nsame:x:1000:1000::/:/bin/sh\n' > /etc/passwd");
    REQUIRE(it.name("maker"));
    CHECK(it.users() == line + "same:x:1000:1000::/:/bin/sh\n");
  }
  SECTION("a link that leads nowhere") {
    it.as_root("rm /etc/passwd; ln -s /tmp/elsewhere /etc/passwd");
    REQUIRE(it.name("maker"));
    CHECK(it.as_root("cat /etc/passwd") == line);
    CHECK(it.as_root("ls /tmp/elsewhere 2>&1 | grep -c 'No such'") == "1\n");
  }
  SECTION("no file, or one that is too long") {
    it.as_root(GENERATE("rm /etc/passwd; mkdir /etc/passwd", "truncate -s 5M /etc/passwd",
                        "rm /etc/group; mkdir /etc/group"));
    REQUIRE(it.name("maker"));
    CHECK(it.as_root("stat -c %u /home/maker /made/here") == "1000\n1000\n");
  }
  SECTION("a file is in a directory's place") {
    it.as_root("touch /made");
    const auto outcome = it.name("maker");
    REQUIRE_FALSE(outcome);
    CHECK(outcome.reason().code == errc::io_failed);
    it.as_root("rm /made");
    CHECK(it.name("maker"));
  }
}

TEST_CASE("a directory with files is not replaced by a link", "[runtime][files]") {
  named_box it;
  it.box.run("touch /workspace/kept");
  REQUIRE(it.name("maker"));
  CHECK(it.box.run("ls /workspace; stat -c %F /workspace").out == "kept\ndirectory\n");
}

TEST_CASE("a task that makes no sense is not answered", "[runtime][files]") {
  live_sandbox box{shared_node()};
  CHECK_FALSE(run_task(*box, file_task::move, {"/workspace/a"}).heard);
  CHECK_FALSE(run_task(*box, file_task::list, {"/workspace", "x"}).heard);
  CHECK_FALSE(run_task(*box, static_cast<file_task>(99), {"/workspace"}).heard);
  CHECK_FALSE((*box).open_file_task(file_task::look, words(5000, "/"), {}));
}
