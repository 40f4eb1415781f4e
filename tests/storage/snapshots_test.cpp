#include "storage/snapshots/snapshot_store.hpp"

#include "base/limits.hpp"
#include "runtime/agent/tree_operations.hpp"
#include "storage/snapshots/piece_writer.hpp"
#include "storage/snapshots/zstd_piece.hpp"
#include "tests/support/blob_places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/child_program.hpp"

#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <random>
#include <sched.h>
#include <set>
#include <sstream>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

using namespace insula;
using namespace insula::storage;
using namespace insula::storage::snapshots;
using namespace insula::test;
namespace fs = std::filesystem;

namespace {

/// A store of blobs that counts what is written, and can be told to fail.
class watched_blobs final : public blob_store {
public:
  explicit watched_blobs(blob_store& real)
      : real_(real) {}

  result<void> put(const std::string& name, std::string_view bytes) override {
    if (puts_left == 0)
      return error{errc::store_failed, "it is full"};
    --puts_left;
    written.push_back(name);
    largest = std::max(largest, bytes.size());
    return real_.put(name, bytes);
  }
  result<std::string> get(const std::string& name, std::size_t most) override {
    if (before_get)
      before_get(name);
    ++gets;
    return real_.get(name, most);
  }
  result<bool> exists(const std::string& name) override { return real_.exists(name); }
  result<void> remove(const std::string& name) override { return real_.remove(name); }
  result<void> list(const std::string& prefix,
                    const std::function<bool(const blob_info&)>& tell) override {
    return real_.list(prefix, tell);
  }
  void close() override { real_.close(); }

  std::vector<std::string> written;
  std::size_t largest = 0;
  std::size_t puts_left = 1'000'000;
  std::size_t gets = 0;
  std::function<void(const std::string&)> before_get;

private:
  blob_store& real_;
};

/// What the agent's child does in a sandbox, in a process of its own.
class tree_child {
public:
  /// `first`: what it does before, in a mount namespace of its own. `whole`: a disk is read, or a
  /// whole tree written.
  tree_child(bool writes, const std::string& path, const std::function<bool()>& first = nullptr,
             bool whole = false) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("no sockets");
    ours_.reset(ends[0]);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      char* no_excludes[] = {nullptr};
      if (first && (::unshare(CLONE_NEWNS) != 0 ||
                    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 || !first()))
        ::_exit(1);
      ::umask(022);
      if (writes)
        runtime::agent::receive_tree(ends[1], path.c_str(),
                                     whole ? runtime::agent::tree_writing::whole
                                           : runtime::agent::tree_writing::exact);
      else if (whole)
        runtime::agent::send_disk(ends[1], ::open(path.c_str(), O_PATH | O_DIRECTORY));
      else
        runtime::agent::send_tree(ends[1], path.c_str(), no_excludes, tree_exact);
      ::_exit(0);
    }
    ::close(ends[1]);
  }
  ~tree_child() {
    ours_.reset();
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  tree_child(const tree_child&) = delete;
  tree_child& operator=(const tree_child&) = delete;

  int socket() const { return ours_.get(); }
  pid_t pid() const { return pid_; }

private:
  unique_fd ours_;
  pid_t pid_ = -1;
};

struct fixture {
  directory_place place;
  watched_blobs blobs{*place.store};
  snapshot_store store{blobs, "space"};
  temp_dir files;
  std::string from = (files / "from").string();
  std::int64_t now_ms = 1'700'000'000'000;

  fixture() { fs::create_directory(from); }

  result<std::string> try_take(const std::string& earlier = {}, const std::string& owner = "abc",
                               const std::function<bool()>& first = nullptr) {
    const tree_child child{false, from, first};
    return store.take({owner, 7, ++now_ms, earlier}, child.socket(), nullptr);
  }
  std::string take(const std::string& earlier = {}, const std::string& owner = "abc") {
    blobs.written.clear();
    auto taken = try_take(earlier, owner);
    if (!taken)
      FAIL(taken.reason().message);
    return *taken;
  }
  /// Into a new directory, whose path is the answer.
  result<std::string> try_put_back(const std::string& reference) {
    const auto into = (files / ("into" + std::to_string(++made))).string();
    fs::create_directory(into);
    return try_put_back(reference, into);
  }
  result<std::string> try_put_back(const std::string& reference, const std::string& into) {
    const tree_child child{true, into};
    if (const auto back = store.put_back(reference, child.socket(), nullptr); !back)
      return back.reason();
    return into;
  }
  manifest manifest_of(const std::string& text) const {
    const auto which = reference::read(text);
    REQUIRE(which);
    const auto found = manifest::read(*place.store->get(which->name, limits::blob_bytes));
    REQUIRE(found);
    return *found;
  }
  std::string put_back(const std::string& reference) {
    auto back = try_put_back(reference);
    if (!back)
      FAIL(back.reason().message);
    return *back;
  }
  void write(const std::string& name, std::string_view content) const {
    fs::create_directories(fs::path{from + "/" + name}.parent_path());
    std::ofstream file{from + "/" + name, std::ios::binary};
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  std::set<std::string> names(const std::string& prefix) {
    std::set<std::string> all;
    REQUIRE(place.store->list(prefix, [&](const blob_info& each) {
      if (each.name != "space/clock")
        all.insert(each.name);
      return true;
    }));
    return all;
  }
  /// All that is there was written years ago, by the place's clock.
  void grow_old() const {
    for (const auto& each : fs::recursive_directory_iterator{place.where.path()})
      if (each.is_regular_file())
        fs::last_write_time(each.path(),
                            fs::file_time_type::clock::now() - std::chrono::hours{24 * 3'000});
  }
  int made = 0;
};

std::string random_bytes(std::size_t count, unsigned seed = 1) {
  std::mt19937_64 rng{seed};
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    const auto word = rng();
    bytes.replace(i, 8, reinterpret_cast<const char*>(&word), 8);
  }
  return bytes;
}

std::string read(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// All of a tree in words, one entry each: kind, mode, time, size, content or target.
std::map<std::string, std::string> shown(const std::string& top) {
  std::map<std::string, std::string> all;
  const auto add = [&](const fs::path& path) {
    struct stat is {};
    REQUIRE(::lstat(path.c_str(), &is) == 0);
    std::string words = std::to_string(is.st_mode) + " " + std::to_string(is.st_mtim.tv_sec) + "." +
                        std::to_string(is.st_mtim.tv_nsec);
    if (S_ISREG(is.st_mode))
      words += " " + std::to_string(std::hash<std::string>{}(read(path.string())));
    if (S_ISLNK(is.st_mode))
      words += " -> " + fs::read_symlink(path).string();
    all[fs::relative(path, top).string()] = words;
  };
  add(top);
  for (const auto& each : fs::recursive_directory_iterator{top})
    add(each.path());
  return all;
}

void set_time(const std::string& path, std::int64_t s, long ns) {
  const timespec times[2] = {{0, UTIME_OMIT}, {s, ns}};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
}

constexpr std::int64_t days_ms = 24ll * 3'600'000;

/// Calls `work` with a directory so far below that its name is too long for one system call.
void far_below(const std::string& top, const std::function<void(int)>& work, bool make = false) {
  const std::string part(200, 'd');
  unique_fd at{::open(top.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  for (int depth = 0; depth < 25; ++depth) {
    if (make)
      REQUIRE(::mkdirat(at.get(), part.c_str(), 0750) == 0);
    unique_fd next{::openat(at.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    REQUIRE(next);
    at = std::move(next);
  }
  work(at.get());
}

std::size_t blocks_of(const std::string& path) {
  struct stat is {};
  REQUIRE(::stat(path.c_str(), &is) == 0);
  return static_cast<std::size_t>(is.st_blocks) * 512;
}

} // namespace

TEST_CASE("pieces are compressed and come back", "[snapshots]") {
  for (const std::size_t size : {1ul, 100'000ul, limits::snapshot_piece_bytes}) {
    CAPTURE(size);
    for (const auto& plain : {std::string(size, 'x'), random_bytes(size)}) {
      const auto frame = compressed(plain);
      REQUIRE(frame);
      CHECK(frame->size() < size + 65'536);
      const auto back = expanded(*frame, size);
      REQUIRE(back);
      CHECK((*back == plain));
      CHECK_FALSE(expanded(*frame, size + 1));
      CHECK_FALSE(expanded(*frame, size - 1));
      CHECK_FALSE(expanded(frame->substr(0, frame->size() / 2), size));
    }
  }
  CHECK_FALSE(expanded("no frame at all", 10));
}

TEST_CASE("manifests are read as they were written, and nothing else is", "[snapshots]") {
  const manifest one{123,
                     {{19'000, std::string(64, 'a'), 1}, {19'001, std::string(64, '0'), 4096}}};
  const auto back = manifest::read(one.text());
  REQUIRE(back);
  CHECK(back->taken_ms == 123);
  CHECK(back->pieces == one.pieces);
  CHECK(manifest::read(manifest{}.text()));
  const auto text = one.text();
  for (std::size_t cut = 0; cut < text.size(); ++cut)
    if (text[cut] != '\n')
      CHECK_FALSE(manifest::read(text.substr(0, cut + 1)));
  for (const std::string bad :
       {"", "\n", "insula-snapshot 2\ntaken_ms 1\n", "insula-snapshot 1\ntaken_ms -1\n",
        "insula-snapshot 1\ntaken_ms 1\n1 abc 5\n", "insula-snapshot 1\ntaken_ms 1\n\n"})
    CHECK_FALSE(manifest::read(bad));
  CHECK_FALSE(
    manifest::read("insula-snapshot 1\ntaken_ms 1\n1 " + std::string(64, 'a') + " 999999999\n"));

  INFO("groups of a disk");
  auto with_groups = one;
  with_groups.groups = {{group_kind::entries, {{1, ~0ull}}, 0, 2},
                        {group_kind::content, {{0xabc, 0}}, 1, 1}};
  const auto grouped = manifest::read(with_groups.text());
  REQUIRE(grouped);
  CHECK(grouped->groups == with_groups.groups);
  CHECK(grouped->pieces == one.pieces);
  const auto said = with_groups.text();
  for (std::size_t cut = 0; cut < said.size(); ++cut)
    if (said[cut] != '\n')
      CHECK_FALSE(manifest::read(said.substr(0, cut + 1)));
  const std::string head = "insula-snapshot 2\ntaken_ms 1\n1 " + std::string(64, 'a') + " 5\n",
                    key = std::string(32, '1');
  CHECK(manifest::read(head + "group " + key + " 0 1\n"));
  for (const auto& bad :
       {head, head + "group " + key + " 0 2\n", head + "group " + key + " 1 1\n",
        head + "group " + key + "1 0 1\n", head + "group " + key + " 0\n",
        head + "other " + key + " 0 1\n", head + "group " + key + " 1 0\ncontent " + key + " 0 1\n",
        head + "group " + key + " 0 1\n1 " + std::string(64, 'a') + " 5\n"})
    CHECK_FALSE(manifest::read(bad));
}

TEST_CASE("names of manifests grow with epoch and time", "[snapshots]") {
  const auto first = manifest_name("s", "abc", 9, 999), second = manifest_name("s", "abc", 9, 1000),
             third = manifest_name("s", "abc", 10, 5);
  CHECK(first < second);
  CHECK(second < third);
  const auto key = key_of("s", third);
  REQUIRE(key);
  CHECK(key->owner == "abc");
  CHECK(key->at == 10);
  CHECK(key->taken_ms == 5);
  CHECK_FALSE(key_of("other", third));
  CHECK_FALSE(key_of("s", "s/manifests/abc/1"));
  CHECK_FALSE(reference::read("a"));
  CHECK_FALSE(reference::read("a sha256:12"));
}

TEST_CASE("a workspace comes back as it was", "[snapshots]") {
  fixture it;
  it.write("plain", "hello\n");
  it.write("empty", "");
  it.write("deep/er/and/deeper/file", "below");
  it.write("odd name\twith\nall kinds *?[]\\'\"", "odd");
  it.write("\xff\xfe not utf-8 \x80", "bytes");
  it.write("\xc3\xa4\xe6\xbc\xa2\xf0\x9f\x98\x80", "utf-8");
  it.write(std::string(255, 'n'), "long");
  it.write(std::string(200, 'd') + "/" + std::string(200, 'e') + "/" + std::string(200, 'f'),
           "path");
  it.write("executable", "#!/bin/sh\n");
  ::chmod((it.from + "/executable").c_str(), 0755);
  it.write("private", "secret");
  ::chmod((it.from + "/private").c_str(), 0600);
  it.write("for group", "g");
  ::chmod((it.from + "/for group").c_str(), 0664);
  it.write("nobody", "x");
  ::chmod((it.from + "/nobody").c_str(), 0000);
  fs::create_directory(it.from + "/empty directory");
  fs::create_directory(it.from + "/sticky");
  ::chmod((it.from + "/sticky").c_str(), 01777);
  fs::create_symlink("plain", it.from + "/link");
  fs::create_symlink("/etc/passwd", it.from + "/absolute");
  fs::create_symlink("../../outside", it.from + "/outside");
  std::string far;
  for (int i = 0; i < 200; ++i)
    far += "there/";
  fs::create_symlink(far, it.from + "/long link");
  fs::create_symlink("nowhere \xff", it.from + "/dangling");
  it.write("large", random_bytes(9'000'000));
  it.write("just a piece", random_bytes(limits::snapshot_piece_bytes, 2));
  for (int i = 0; i < 1'500; ++i)
    it.write("many/" + std::to_string(i % 13) + "/" + std::to_string(i), std::to_string(i * i));
  set_time(it.from + "/plain", 1'234'567'890, 123'456'789);
  set_time(it.from + "/empty", 1, 0);
  set_time(it.from + "/executable", 4'000'000'000, 5);
  set_time(it.from + "/link", 1'111'111'111, 999'999'999);
  set_time(it.from + "/deep/er", 1'000'000'000, 1);
  set_time(it.from, 1'500'000'000, 7);
  const auto before = shown(it.from);
  const auto into = it.put_back(it.take());
  CHECK(shown(into) == before);
}

namespace {

void give(const std::string& path, const char* name, std::string_view value) {
  REQUIRE(::lsetxattr(path.c_str(), name, value.data(), value.size(), 0) == 0);
}
std::string given(const std::string& path, const char* name) {
  char value[256];
  const auto n = ::lgetxattr(path.c_str(), name, value, sizeof value);
  return n < 0 ? "none" : std::string{value, static_cast<std::size_t>(n)};
}
/// Mode, owner, group and time.
std::string of(const std::string& path) {
  struct stat is {};
  if (::lstat(path.c_str(), &is) != 0)
    return "none";
  std::ostringstream words;
  words << std::oct << is.st_mode << std::dec << ' ' << is.st_uid << ':' << is.st_gid << ' '
        << is.st_mtim.tv_sec;
  return words.str();
}

} // namespace

TEST_CASE("a whole disk comes back over its image", "[snapshots]") {
  if (::geteuid() != 0)
    return; // Owners are root's to set.
  fixture it;
  const auto disk = it.from, u = disk + "/u/", image = (it.files / "image").string() + "/";
  fs::create_directory(disk + "/uu");
  const auto write = [](const std::string& path, std::string_view content) {
    fs::create_directories(fs::path{path}.parent_path());
    std::ofstream{path, std::ios::binary} << content;
  };
  for (const auto* each :
       {"etc/kept", "etc/gone", "etc/changed", "etc/deep/gone/file", "opaque/old/file",
        "file/was/directory", "directory", "usr/lib/old", "usr/lib/kept", "link"})
    write(image + each, "image");
  write(u + "etc/changed", "disk");
  REQUIRE(::chown((u + "etc/changed").c_str(), 5, 6) == 0);
  REQUIRE(::chmod((u + "etc/changed").c_str(), 04711) == 0);
  give(u + "etc/changed", "user.note", std::string{"a\0b", 3});
  give(u + "etc/changed", "user.overlay.origin", "of this machine");
  const auto odd = "user.\xc3\xa4 b%c=" + std::string(200, 'n');
  give(u + "etc/changed", odd.c_str(), "odd");
  // cap_net_raw+ep, as the kernel keeps it.
  const std::string capability{"\1\0\0\2\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20};
  write(u + "bin/ping", "ping");
  REQUIRE(::chown((u + "bin/ping").c_str(), 1, 1) == 0);
  give(u + "bin/ping", "security.capability", capability);
  fs::create_hard_link(u + "bin/ping", u + "bin/ping6");
  for (const auto* each : {"etc/gone", "etc/deep"})
    REQUIRE(::mknod((u + each).c_str(), S_IFCHR, 0) == 0);
  write(u + "opaque/new", "new");
  give(u + "opaque", opaque_attribute, "y");
  write(u + "file", "a file now");
  write(u + "directory/in", "a directory now");
  REQUIRE(::chown((u + "directory").c_str(), 7, 8) == 0);
  REQUIRE(::chmod((u + "directory").c_str(), 03770) == 0);
  REQUIRE(::mkfifo((u + "fifo").c_str(), 0600) == 0);
  REQUIRE(::chown((u + "fifo").c_str(), 9, 9) == 0);
  fs::create_symlink("/absolute", u + "link");
  REQUIRE(::lchown((u + "link").c_str(), 65'534, 65'535) == 0);
  fs::create_directories(u + "empty");
  write(disk + "/uu/lib/new", "new");
  REQUIRE(::mknod((disk + "/uu/lib/old").c_str(), S_IFCHR, 0) == 0);
  write(u + "large", random_bytes(3'000'000));
  for (const auto* each : {"etc/changed", "directory", "fifo", "link", "empty", "."})
    set_time(u + each, 1'000'000'000, 5);

  std::string reference;
  {
    const tree_child child{false, disk, nullptr, true};
    const auto taken = it.store.take({"abc", 7, ++it.now_ms, {}, true}, child.socket(), nullptr);
    REQUIRE(taken);
    reference = *taken;
  }
  {
    const tree_child child{true, image, nullptr, true};
    REQUIRE(it.store.put_back(reference, child.socket(), nullptr, true));
  }
  for (const auto* each :
       {"etc/changed", "bin/ping", "directory", "fifo", "link", "empty", "file", "large", "."}) {
    INFO(each);
    CHECK(of(image + each) == of(u + each));
  }
  CHECK(read(image + "etc/changed") == "disk");
  CHECK(read(image + "etc/kept") == "image");
  CHECK(given(image + "etc/changed", "user.note") == std::string{"a\0b", 3});
  CHECK(given(image + "etc/changed", "user.overlay.origin") == "none");
  CHECK(given(image + "etc/changed", odd.c_str()) == "odd");
  CHECK(given(image + "bin/ping", "security.capability") == capability);
  CHECK(fs::equivalent(image + "bin/ping", image + "bin/ping6"));
  CHECK(given(image + "opaque", opaque_attribute) == "none"); // It is so by what is in it.
  CHECK(read(image + "opaque/new") == "new");
  for (const auto* gone : {"etc/gone", "etc/deep", "opaque/old", "usr/lib/old"}) {
    INFO(gone);
    CHECK(of(image + gone) == "none");
  }
  CHECK(read(image + "file") == "a file now");
  CHECK(read(image + "directory/in") == "a directory now");
  CHECK(fs::read_symlink(image + "link") == "/absolute");
  CHECK(read(image + "usr/lib/new") == "new");
  CHECK(read(image + "usr/lib/kept") == "image");
  CHECK((read(image + "large") == read(u + "large")));

  INFO("it is not to be had as a workspace, and a workspace has no owners");
  CHECK(it.try_put_back(reference).reason().code == errc::store_failed);
}

namespace {

struct disk_copy {
  std::string reference;
  manifest made;
  std::uint64_t read = 0; ///< By the child: bytes of files, and of what it was told.
};

disk_copy copy_disk(fixture& it, const std::string& disk, const std::string& earlier) {
  const tree_child child{false, disk, nullptr, true};
  const auto taken = it.store.take({"abc", 7, ++it.now_ms, earlier, true}, child.socket(), nullptr);
  REQUIRE(taken);
  disk_copy done{*taken, it.manifest_of(*taken)};
  siginfo_t ended{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child.pid()), &ended, WEXITED | WNOWAIT) == 0);
  std::ifstream numbers{"/proc/" + std::to_string(child.pid()) + "/io"};
  std::string name;
  REQUIRE(numbers >> name >> done.read);
  REQUIRE(name == "rchar:");
  return done;
}

std::vector<std::string> digests_of(const manifest& of) {
  std::vector<std::string> all;
  for (const auto& each : of.pieces)
    all.push_back(each.digest);
  return all;
}

} // namespace

TEST_CASE("of a disk only what has changed is read again, and its copy is the same",
          "[snapshots]") {
  fixture it;
  const auto disk = it.from, u = disk + "/u/";
  fs::create_directory(disk + "/uu");
  const auto write = [&](const std::string& name, const std::string& content) {
    fs::create_directories(fs::path{u + name}.parent_path());
    std::ofstream{u + name, std::ios::binary} << content;
  };
  for (int i = 0; i < 3'000; ++i)
    write("files/" + std::to_string(i % 30) + "/" + std::to_string(i), random_bytes(1'000));
  for (int i = 0; i < 6; ++i)
    write("files/large" + std::to_string(i), random_bytes(3'000'000 + 100 * i));
  fs::create_hard_link(u + "files/3/33", u + "files/same");
  fs::create_hard_link(u + "files/large3", u + "files/4/same");
  const auto first = copy_disk(it, disk, {});
  CHECK(first.read > 20'000'000);
  CHECK(first.made.groups.size() > 6);

  INFO("nothing has changed");
  const auto same = copy_disk(it, disk, first.reference);
  CHECK(same.made.pieces == first.made.pieces);
  CHECK(same.made.groups == first.made.groups);
  CHECK(same.read < 100'000);

  INFO("one change after the other");
  const std::vector<std::function<void()>> changes{
    [&] { write("files/7/7", "another"); },
    [&] { write("files/7/new", random_bytes(5'000)); },
    [&] {
      std::ofstream{u + "files/large1", std::ios::app} << "more";
    },
    [&] { set_time(u + "files/large2", 1'000'000'000, 5); },
    [&] { fs::remove(u + "files/large0"); },
    [&] { fs::rename(u + "files/5", u + "files/renamed"); },
    [&] { fs::remove(u + "files/3/33"); },
    [&] { fs::remove(u + "files/large3"); },
    [&] { fs::permissions(u + "files/9", fs::perms::owner_all); },
    [&] { fs::remove_all(u + "files/11"); },
    [&] { fs::remove_all(u + "files"); },
  };
  auto before = same.reference;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(i);
    changes[i]();
    const auto next = copy_disk(it, disk, before);
    const auto anew = copy_disk(it, disk, {});
    CHECK(digests_of(next.made) == digests_of(anew.made));
    CHECK(next.made.groups == anew.made.groups);
    CHECK(next.read < 8'000'000);
    before = next.reference;
  }

  INFO("all of it comes back");
  const auto into = (it.files / "back").string();
  fs::create_directory(into);
  const tree_child child{true, into, nullptr, true};
  CHECK(it.store.put_back(before, child.socket(), nullptr, true));
}

TEST_CASE("an empty workspace is a snapshot as well", "[snapshots]") {
  fixture it;
  const auto into = it.put_back(it.take());
  CHECK(fs::is_empty(into));
}

TEST_CASE("hard links stay what they are, and sockets and FIFOs are left out", "[snapshots]") {
  fixture it;
  const auto large = random_bytes(20'000'000);
  it.write("store/one", large);
  fs::create_directory(it.from + "/used");
  fs::create_hard_link(it.from + "/store/one", it.from + "/used/two");
  fs::create_hard_link(it.from + "/store/one", it.from + "/used/three");
  it.write("empty", "");
  fs::create_hard_link(it.from + "/empty", it.from + "/empty too");
  REQUIRE(::mkfifo((it.from + "/fifo").c_str(), 0600) == 0);
  const auto reference = it.take();
  CHECK(it.blobs.written.size() <= 8); // Once.
  const auto into = it.put_back(reference);
  CHECK((read(into + "/used/three") == large));
  CHECK(fs::hard_link_count(into + "/store/one") == 3);
  CHECK(fs::equivalent(into + "/store/one", into + "/used/two"));
  CHECK(fs::equivalent(into + "/empty", into + "/empty too"));
  CHECK_FALSE(fs::exists(into + "/fifo"));
  CHECK(shown(into + "/used") == shown(it.from + "/used"));
}

TEST_CASE("names that are too long for one system call come back", "[snapshots]") {
  fixture it;
  far_below(
    it.from,
    [](int at) {
      const unique_fd file{::openat(at, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0640)};
      REQUIRE(::write(file.get(), "deep", 4) == 4);
      REQUIRE(::symlinkat("file", at, "link") == 0);
      REQUIRE(::symlinkat("/etc/passwd", at, "out") == 0);
      REQUIRE(::linkat(at, "file", at, "again", 0) == 0);
      REQUIRE(::mkdirat(at, "last", 0700) == 0);
    },
    true);
  const auto into = it.put_back(it.take());
  far_below(into, [](int at) {
    char text[100];
    const unique_fd file{::openat(at, "again", O_RDONLY | O_CLOEXEC)};
    REQUIRE(::read(file.get(), text, sizeof text) == 4);
    CHECK(std::string(text, 4) == "deep");
    struct stat is {};
    REQUIRE(::fstat(file.get(), &is) == 0);
    CHECK(is.st_nlink == 2);
    CHECK((is.st_mode & 0777) == 0640);
    CHECK(::readlinkat(at, "link", text, sizeof text) == 4);
    CHECK(::readlinkat(at, "out", text, sizeof text) == 11);
    REQUIRE(::fstatat(at, "last", &is, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK((is.st_mode & 0777) == 0700);
    REQUIRE(::fstat(at, &is) == 0);
    CHECK((is.st_mode & 0777) == 0750);
  });
}

TEST_CASE("what an image has in the workspace makes way for a snapshot", "[snapshots]") {
  fixture it;
  it.write("app/main", "mine");
  it.write("both", "later");
  fs::create_symlink("x", it.from + "/data");
  const auto reference = it.take();
  const auto into = (it.files / "image").string();
  for (const auto* each : {"/app", "/data/full", "/only/in/the image"})
    fs::create_directories(into + each);
  std::ofstream{into + "/both"} << "earlier";
  std::ofstream{into + "/only/in/file"} << "x";
  fs::create_symlink("/etc", into + "/only/link");
  // The top is the sandbox user's, and nothing else.
  constexpr uid_t user = 12'345;
  REQUIRE(::chown(into.c_str(), user, user) == 0);
  REQUIRE(::chmod((into + "/app").c_str(), 0700) == 0);
  const auto back = it.try_put_back(reference, into);
  if (!back)
    FAIL(back.reason().message);
  CHECK(shown(into) == shown(it.from));
  for (const auto& each : fs::recursive_directory_iterator{into}) {
    struct stat is {};
    REQUIRE(::lstat(each.path().c_str(), &is) == 0);
    CHECK(is.st_uid == user);
    CHECK(is.st_gid == user);
  }
  CHECK(fs::exists("/etc/passwd"));
}

TEST_CASE("what is mounted in a workspace is no part of a snapshot", "[snapshots]") {
  fixture it;
  it.write("moved/own", "own");
  fs::create_directory(it.from + "/moved/bucket");
  const auto mount_at = [](const std::string& where) {
    return ::mount("tmpfs", where.c_str(), "tmpfs", 0, nullptr) == 0 &&
           std::ofstream{where + "/foreign"} << "x";
  };
  const auto taken = it.try_take({}, "abc", [&] { return mount_at(it.from + "/moved/bucket"); });
  if (!taken)
    FAIL(taken.reason().message);
  const auto into = it.put_back(*taken);
  CHECK(read(into + "/moved/own") == "own");
  CHECK_FALSE(fs::exists(into + "/moved/bucket"));
  // What is below such a one at the top would be in no snapshot.
  const auto hidden = it.try_take({}, "abc", [&] { return mount_at(it.from); });
  REQUIRE_FALSE(hidden);
  CHECK(hidden.reason().code == errc::io_failed);
  CHECK(hidden.reason().message.find("mounted") != std::string::npos);
}

TEST_CASE("holes stay holes, and cost nothing", "[snapshots]") {
  fixture it;
  it.write("sparse", "begin");
  fs::resize_file(it.from + "/sparse", 300u << 20);
  {
    std::fstream file{it.from + "/sparse", std::ios::in | std::ios::out | std::ios::binary};
    file.seekp(100u << 20);
    file << "middle";
  }
  const auto before = std::hash<std::string>{}(read(it.from + "/sparse"));
  const auto reference = it.take();
  CHECK(it.blobs.written.size() < 10);
  it.blobs.gets = 0;
  const auto into = it.put_back(reference);
  CHECK(it.blobs.gets < 10); // All zeros are one piece, which is had once.
  CHECK(fs::file_size(into + "/sparse") == 300u << 20);
  CHECK(std::hash<std::string>{}(read(into + "/sparse")) == before);
  CHECK(blocks_of(into + "/sparse") < 1u << 20);
}

TEST_CASE("what has not changed is not written again", "[snapshots]") {
  fixture it;
  it.write("large", random_bytes(20'000'000));
  for (int i = 0; i < 3'000; ++i)
    it.write("many/" + std::to_string(i), random_bytes(800, static_cast<unsigned>(i)));
  const auto first = it.take();
  CHECK(it.blobs.written.size() > 8);
  const auto second = it.take(first);
  CHECK(it.blobs.written.size() == 1); // The manifest.
  it.write("many/1500", "changed");
  const auto third = it.take(second);
  CHECK(it.blobs.written.size() <= 3);
  {
    std::ofstream more{it.from + "/large", std::ios::binary | std::ios::app};
    more << "more";
  }
  const auto fourth = it.take(third);
  CHECK(it.blobs.written.size() <= 4); // Its header's piece, and its last one.
  const auto into = it.put_back(fourth);
  CHECK(shown(into) == shown(it.from));
  // Not knowing of an earlier one, the same pieces are made.
  const auto names = it.names("space/pieces/");
  static_cast<void>(it.take());
  CHECK(it.names("space/pieces/") == names);
}

TEST_CASE("pieces one behind the other are a .tar.zst", "[snapshots]") {
  fixture it;
  it.write("a/file", "hello");
  it.write("large", random_bytes(5'000'000));
  const auto which = reference::read(it.take());
  REQUIRE(which);
  const auto text = it.place.store->get(which->name, limits::blob_bytes);
  const auto found = manifest::read(*text);
  REQUIRE(found);
  const auto archive = (it.files / "all.tar.zst").string();
  {
    std::ofstream file{archive, std::ios::binary};
    for (const auto& each : found->pieces)
      file << *it.place.store->get(each.name("space"), limits::blob_bytes);
  }
  CHECK(output_of({"tar", "--zstd", "-xOf", archive, "./a/file"}) == "hello");
}

TEST_CASE("a piece that was changed, cut short or lost is refused", "[snapshots]") {
  fixture it;
  it.write("large", random_bytes(6'000'000));
  it.write("small", "x");
  const auto reference = it.take();
  CHECK(it.try_put_back(reference));
  const auto pieces = it.names("space/pieces/");
  REQUIRE(pieces.size() >= 2);
  for (const auto& name : pieces) {
    CAPTURE(name);
    const auto whole = *it.place.store->get(name, limits::blob_bytes);
    auto changed = whole;
    changed[changed.size() / 2] = static_cast<char>(changed[changed.size() / 2] ^ 1);
    const auto other = *compressed("something else");
    for (const auto& bad : {changed, whole.substr(0, whole.size() / 2), std::string{}, other}) {
      REQUIRE(it.place.store->put(name, bad));
      const auto back = it.try_put_back(reference);
      REQUIRE_FALSE(back);
      CHECK(back.reason().code == errc::store_failed);
      CHECK(back.reason().message.find("damaged") != std::string::npos);
    }
    REQUIRE(it.place.store->remove(name));
    const auto lost = it.try_put_back(reference);
    REQUIRE_FALSE(lost);
    CHECK(lost.reason().code == errc::store_failed);
    REQUIRE(it.place.store->put(name, whole));
  }
  CHECK(it.try_put_back(reference));
}

TEST_CASE("a manifest that was changed or lost is refused", "[snapshots]") {
  fixture it;
  it.write("small", "x");
  const auto reference = it.take();
  const auto name = reference::read(reference)->name;
  const auto text = *it.place.store->get(name, limits::blob_bytes);
  REQUIRE(it.place.store->put(name, manifest{}.text()));
  CHECK(it.try_put_back(reference).reason().code == errc::store_failed);
  REQUIRE(it.place.store->remove(name));
  CHECK(it.try_put_back(reference).reason().code == errc::store_failed);
  for (const auto& bad : {std::string{}, std::string{"x"}, name, name + " sha256:00"})
    CHECK(it.try_put_back(bad).reason().code == errc::store_failed);
  REQUIRE(it.place.store->put(name, text));
  CHECK(it.try_put_back(reference));
}

TEST_CASE("a snapshot that fails on its way is none", "[snapshots]") {
  fixture it;
  it.write("large", random_bytes(20'000'000));
  SECTION("because the place is full") {
    it.blobs.puts_left = 2;
    const auto taken = it.try_take();
    REQUIRE_FALSE(taken);
    CHECK(taken.reason().code == errc::store_failed);
    CHECK(taken.reason().message == "it is full");
  }
  SECTION("because the sandbox ends") {
    const tree_child child{false, it.from};
    it.blobs.before_get = nullptr;
    bool killed = false;
    const auto taken = it.store.take({"abc", 7, 1, {}}, child.socket(), [&] {
      if (!std::exchange(killed, true))
        ::kill(child.pid(), SIGKILL);
      return false;
    });
    REQUIRE_FALSE(taken);
    CHECK(taken.reason().code == errc::io_failed);
  }
  SECTION("because nobody wants it") {
    const tree_child child{false, it.from};
    const auto taken = it.store.take({"abc", 7, 1, {}}, child.socket(), [] { return true; });
    REQUIRE_FALSE(taken);
    CHECK(taken.reason().code == errc::sandbox_not_running);
  }
  SECTION("because nobody wants it any more, though all flows") {
    const tree_child child{false, it.from};
    int asked = 0;
    const auto taken =
      it.store.take({"abc", 7, 1, {}}, child.socket(), [&] { return ++asked > 5; });
    REQUIRE_FALSE(taken);
    CHECK(taken.reason().code == errc::sandbox_not_running);
    CHECK(it.names("space/pieces/").size() < 4);
  }
  SECTION("because its files cannot be read") {
    const tree_child child{false, it.from + "/nowhere"};
    const auto taken = it.store.take({"abc", 7, 1, {}}, child.socket(), nullptr);
    REQUIRE_FALSE(taken);
    CHECK(taken.reason().code == errc::io_failed);
  }
  CHECK(it.names("space/manifests/").empty());
}

TEST_CASE("putting back ends when nobody wants it any more, also between zeros", "[snapshots]") {
  fixture it;
  bool zeros = false;
  SECTION("random bytes") {
    it.write("file", random_bytes(30'000'000));
  }
  SECTION("zeros") {
    zeros = true;
    it.write("file", "");
    fs::resize_file(it.from + "/file", 1u << 30);
  }
  const auto reference = it.take();
  const auto into = (it.files / "into").string();
  fs::create_directory(into);
  const tree_child child{true, into};
  int asked = 0, answered = 0;
  it.blobs.gets = 0;
  const auto back = it.store.put_back(reference, child.socket(), [&] {
    answered += asked > 20; // It is not asked on and on.
    return ++asked > 20;
  });
  REQUIRE_FALSE(back);
  CHECK(back.reason().code == errc::sandbox_not_running);
  CHECK(answered < 3);
  CHECK(it.blobs.gets < (zeros ? 4 : 24)); // Of its 256 pieces of zeros one.
}

TEST_CASE("pieces are known again, and too many new ones are refused", "[snapshots]") {
  fixture it;
  const auto add = [](piece_writer& to, const std::string& content) {
    const auto added = to.add(content);
    return added ? to.cut() : added;
  };
  piece_writer first{it.blobs, "space", 1, {}, 3};
  for (const auto* each : {"a", "b", "b", "b", "a", "c"})
    REQUIRE(add(first, each));
  CHECK(first.pieces().size() == 6);
  CHECK(first.written() == 3);
  CHECK(add(first, "d").reason().code == errc::limit_reached);
  piece_writer second{it.blobs, "space", 2, {0, first.pieces()}, 1};
  for (const auto* each : {"c", "b", "d", "d", "a"})
    REQUIRE(add(second, each));
  CHECK(second.written() == 1);
  CHECK(second.pieces().front() == first.pieces().back());
  CHECK(add(second, "e").reason().code == errc::limit_reached);
}

TEST_CASE("nonsense from a sandbox is no tree", "[snapshots]") {
  fixture it;
  const auto take_from = [&](const std::string& bytes, bool whole = false,
                             const std::string& earlier = {}) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const unique_fd ours{ends[0]}, theirs{ends[1]};
    const int room = 4 << 20; // For all of it: nobody reads yet.
    ::setsockopt(theirs.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    REQUIRE(::send(theirs.get(), bytes.data(), bytes.size(), 0) ==
            static_cast<ssize_t>(bytes.size()));
    ::shutdown(theirs.get(), SHUT_WR);
    return it.store.take({"abc", 7, whole ? ++it.now_ms : 1, earlier, whole}, ours.get(), nullptr);
  };
  const auto bytes_of = [](const auto& what) {
    return std::string{reinterpret_cast<const char*>(&what), sizeof what};
  };
  const auto fine = bytes_of(tree_result{0, 0});
  const auto entry = [&](entry_kind kind, const std::string& name, const std::string& target = {},
                         std::uint64_t size = 0) {
    entry_head head{};
    head.kind = kind;
    head.size = size;
    head.name_bytes = static_cast<std::uint32_t>(name.size());
    head.target_bytes = static_cast<std::uint32_t>(target.size());
    return bytes_of(head) + name + target;
  };
  const auto end = bytes_of(entry_head{});
  CHECK(take_from(fine + entry(entry_kind::directory, ".") + end));
  const auto bad = std::vector<std::string>{
    "",
    "x",
    bytes_of(tree_result{2, 0}),
    bytes_of(tree_result{2, ~0u}),
    fine,
    fine + entry(entry_kind::file, "../out") + end,
    fine + entry(entry_kind::file, "/out") + end,
    fine + entry(entry_kind::file, "a/../../out") + end,
    fine + entry(entry_kind::file, std::string{"nul\0", 4}) + end,
    fine + entry(entry_kind::file, "") + end,
    fine + entry(entry_kind::file, ".") + end,
    fine + entry(entry_kind::file, "large", "", ~0ull) + end,
    fine + entry(entry_kind::file, "short", "", 100) + "abc",
    fine + entry(entry_kind::symlink, "link") + end,
    fine + entry(entry_kind::hard_link, "link") + end,
    fine + entry(entry_kind::hard_link, "link", "../a") + end,
    fine + entry(entry_kind::hard_link, "link", ".") + end,
    fine + entry(entry_kind::hard_link, ".", "a") + end,
    fine + entry(static_cast<entry_kind>(77), "what") + end,
    fine + entry(entry_kind::file, std::string(max_entry_name + 1, 'n')) + end,
  };
  for (const auto& each : bad) {
    CAPTURE(each.size());
    const auto taken = take_from(each);
    REQUIRE_FALSE(taken);
    CHECK(taken.reason().code == errc::io_failed);
  }

  INFO("groups");
  const auto group = [&](entry_kind kind, std::uint64_t number, std::uint32_t known) {
    return entry(kind, "", bytes_of(group_head{{{number, number}}, known, 0}));
  };
  const auto content = std::string(large_file_bytes, 'x');
  const auto file = entry(entry_kind::file, "large", "", content.size());
  const auto good = fine + group(entry_kind::group, 1, 0) + entry(entry_kind::directory, ".") +
                    group(entry_kind::group, 2, 0) + group(entry_kind::content, 3, 0) + file +
                    content + end;
  CHECK_FALSE(take_from(good)); // It is of a disk.
  const auto first = take_from(good, true);
  REQUIRE(first);
  const auto again =
    take_from(fine + group(entry_kind::group, 1, 1) + group(entry_kind::group, 4, 0) +
                group(entry_kind::content, 3, 1) + file + group(entry_kind::group, 5, 0) + end,
              true, *first);
  REQUIRE(again);
  CHECK(it.manifest_of(*again).pieces == it.manifest_of(*first).pieces);
  for (const auto& each : {fine + group(entry_kind::group, 9, 1) + end,
                           fine + group(entry_kind::group, 3, 1) + end, // It is a content.
                           fine + group(entry_kind::content, 9, 1) + file + end,
                           fine + group(entry_kind::content, 1, 1) + file + end,
                           fine + group(entry_kind::content, 3, 1) +
                             entry(entry_kind::file, "other", "", content.size() + 1) + end,
                           fine + group(entry_kind::content, 3, 1) +
                             entry(entry_kind::file, "small", "", 1) + "x" + end,
                           fine + entry(entry_kind::group, "", "short") + end}) {
    const auto taken = take_from(each, true, *first);
    REQUIRE_FALSE(taken);
    CHECK(taken.reason().code == errc::io_failed);
  }
}

TEST_CASE("older snapshots are forgotten, and all of a sandbox that is deleted", "[snapshots]") {
  fixture it;
  it.write("a", "1");
  const auto first = it.take();
  const auto other = it.take({}, "abcd");
  const auto second = it.take(first);
  REQUIRE(it.store.forget("abc", 7, second));
  CHECK_FALSE(it.try_put_back(first));
  CHECK(it.try_put_back(second));
  CHECK(it.try_put_back(other));
  // Whoever owns it at a later epoch is not touched by one who does not know.
  REQUIRE(it.store.forget("abc", 6, {}));
  CHECK(it.try_put_back(second));
  REQUIRE(it.store.forget("abc", 7, {}));
  CHECK_FALSE(it.try_put_back(second));
  CHECK(it.try_put_back(other));
  CHECK_FALSE(it.store.forget("abc", 7, "nonsense"));
}

TEST_CASE("a sweep removes what nobody refers to once it is old, and nothing else", "[snapshots]") {
  fixture it;
  it.write("a", random_bytes(2'000'000, 1));
  const auto forgotten = it.take();
  const auto old_pieces = it.names("space/pieces/");
  it.write("a", random_bytes(2'000'000, 2));
  const auto remembered = it.take({}, "kept");
  const auto lost = it.take({}, "lost"); // Its sandbox's record has gone, and nobody has told.
  const auto stranger = snapshot_store{it.blobs, "other"};
  std::vector<std::string> references{remembered};
  const auto sweep = [&](std::int64_t at) {
    return it.store.sweep(at, [&]() -> result<std::vector<std::string>> { return references; });
  };
  REQUIRE(it.store.forget("abc", 7, {}));
  const auto all = it.names("");
  const auto soon = sweep(it.now_ms + 3'600'000);
  REQUIRE(soon);
  CHECK(soon->pieces == 0);
  CHECK(it.names("") == all);

  constexpr auto four_days = 4 * days_ms;
  SECTION("what a writer's clock says, or this node's, makes nothing old") {
    const auto early = sweep(it.now_ms + four_days); // By the place's clock all is of now.
    REQUIRE(early);
    CHECK(it.names("") == all);
    it.now_ms = 4'000'000'000'000; // In a hundred years, as it thinks.
    CHECK(sweep(it.now_ms));
    CHECK(it.names("") == all);
    return;
  }
  it.grow_old();
  SECTION("but not while it is not known what is remembered") {
    const auto unknown =
      it.store.sweep(it.now_ms + four_days, []() -> result<std::vector<std::string>> {
        return error{errc::store_failed, "no"};
      });
    CHECK_FALSE(unknown);
    CHECK(it.names("") == all);
  }
  SECTION("nor while one that is remembered cannot be read") {
    references.push_back(forgotten);
    CHECK_FALSE(sweep(it.now_ms + four_days));
    CHECK(it.names("") == all);
  }
  SECTION("all of it") {
    const auto swept = sweep(it.now_ms + four_days);
    if (!swept)
      FAIL(swept.reason().message);
    CHECK(swept->manifests == 1);
    CHECK(swept->pieces >= 1);
    CHECK(it.try_put_back(remembered));
    CHECK_FALSE(it.try_put_back(lost));
    std::size_t left = 0;
    for (const auto& each : old_pieces)
      left += it.names("space/pieces/").count(each);
    CHECK(left < old_pieces.size());
    CHECK(sweep(it.now_ms + four_days)->pieces == 0);
  }
}

TEST_CASE("a sweep that is overtaken by new snapshots takes nothing from them", "[snapshots]") {
  fixture it;
  it.write("a", random_bytes(2'000'000, 9));
  static_cast<void>(it.take());
  const auto useless = it.names("space/pieces/");
  REQUIRE(it.store.forget("abc", 7, {}));
  it.write("a", random_bytes(2'000'000, 1));
  const auto first = it.take();
  it.grow_old();
  const auto later = it.now_ms + 10 * days_ms;
  it.now_ms = later;
  std::string newest = first;
  result<snapshot_store::swept> swept = snapshot_store::swept{};
  // In the middle of the sweep: a new one with the old pieces, and the old one is forgotten.
  const auto replace = [&] {
    newest = it.take(newest);
    REQUIRE(it.store.forget("abc", 7, newest));
  };
  SECTION("before it is known what is remembered") {
    swept = it.store.sweep(later, [&]() -> result<std::vector<std::string>> {
      replace();
      return std::vector{newest};
    });
  }
  SECTION("after that") {
    int left = 5;
    it.blobs.before_get = [&](const std::string& name) {
      if (name == reference::read(newest)->name && left > 0 && left-- > 0) {
        const auto before = std::exchange(it.blobs.before_get, nullptr);
        replace();
        it.blobs.before_get = before;
      }
    };
    swept = it.store.sweep(
      later, [&]() -> result<std::vector<std::string>> { return std::vector{newest}; });
    it.blobs.before_get = nullptr;
    CHECK(left == 0);
  }
  if (!swept)
    FAIL(swept.reason().message);
  CHECK(newest != first);
  CHECK(it.try_put_back(newest));
  std::size_t there = 0;
  for (const auto& each : useless)
    there += it.names("space/pieces/").count(each);
  CHECK(there < useless.size()); // Of the end of a tar both may have the same one.
  CHECK(swept->pieces >= 1);
}

TEST_CASE("a sweep that never catches up removes nothing", "[snapshots]") {
  fixture it;
  it.write("a", random_bytes(2'000'000, 1));
  auto newest = it.take();
  it.grow_old();
  const auto later = it.now_ms + 10 * days_ms;
  it.now_ms = later;
  it.blobs.before_get = [&](const std::string& name) {
    if (name != reference::read(newest)->name)
      return;
    const auto before = std::exchange(it.blobs.before_get, nullptr);
    newest = it.take(newest);
    REQUIRE(it.store.forget("abc", 7, newest));
    it.blobs.before_get = before;
  };
  const auto swept = it.store.sweep(
    later, [&]() -> result<std::vector<std::string>> { return std::vector{newest}; });
  CHECK_FALSE(swept);
  it.blobs.before_get = nullptr;
  CHECK(it.try_put_back(newest));
}

TEST_CASE("memory does not grow with a workspace", "[snapshots]") {
  fixture it;
  const auto peak_kib = [] {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss;
  };
  for (int i = 0; i < 30; ++i)
    it.write("file" + std::to_string(i), random_bytes(8u << 20, static_cast<unsigned>(i)));
  const auto before = peak_kib();
  const auto reference = it.take();
  CHECK(it.blobs.largest < limits::snapshot_piece_bytes + 65'536);
  static_cast<void>(it.put_back(reference));
  CHECK(peak_kib() - before < 64 * 1024);
}

TEST_CASE("snapshots in a bucket", "[snapshots]") {
  s3_place place;
  snapshot_store store{*place.store, "space"};
  fixture it;
  it.write("large", random_bytes(9'000'000));
  it.write("small", "x");
  std::string reference;
  {
    const tree_child child{false, it.from};
    const auto taken = store.take({"abc", 7, 1'700'000'000'000, {}}, child.socket(), nullptr);
    if (!taken)
      FAIL(taken.reason().message);
    reference = *taken;
  }
  const auto into = (it.files / "into").string();
  {
    const tree_child child{true, into};
    const auto back = store.put_back(reference, child.socket(), nullptr);
    if (!back)
      FAIL(back.reason().message);
  }
  CHECK(shown(into) == shown(it.from));
  CHECK(store.forget("abc", 7, {}));
  const tree_child child{true, into};
  CHECK_FALSE(store.put_back(reference, child.socket(), nullptr));
}
