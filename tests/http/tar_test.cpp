// Tar archives and the entries they stand for; what the system's own tar and libarchive make of
// them.
#include "base/holes.hpp"
#include "base/stream_frames.hpp"
#include "base/tar_size.hpp"
#include "base/unique_fd.hpp"
#include "http/sandboxes/tar_decoder.hpp"
#include "http/sandboxes/tar_encoder.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <clocale>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

using namespace insula;
using namespace insula::http;
using namespace insula::test;

namespace {

template <class Struct>
std::string bytes_of(const Struct& what) {
  return {reinterpret_cast<const char*>(&what), sizeof what};
}

std::string entry(entry_kind kind, const std::string& name, const std::string& target = {},
                  std::uint64_t size = 0, std::uint32_t mode = 0644) {
  entry_head head{};
  head.kind = kind;
  head.mode = mode;
  head.size = size;
  head.modified_s = 1'700'000'000;
  head.name_bytes = static_cast<std::uint32_t>(name.size());
  head.target_bytes = static_cast<std::uint32_t>(target.size());
  return bytes_of(head) + name + target;
}

const std::string end = bytes_of(entry_head{});

std::string file(const std::string& name, const std::string& content) {
  return entry(entry_kind::file, name, {}, content.size()) + content;
}

/// The archive of a whole entry stream, fed `step` bytes at a time.
std::string encode(const std::string& entries, std::size_t step = 1u << 20, bool compact = false) {
  tar_encoder encoder{compact};
  std::string archive;
  for (std::size_t at = 0; at < entries.size(); at += step) {
    REQUIRE(encoder.feed(std::string_view{entries}.substr(at, step)));
    archive += encoder.take();
  }
  CHECK(encoder.done());
  return archive;
}

bool refused(const std::string& entries, bool compact = false) {
  tar_encoder encoder{compact};
  return !encoder.feed(entries);
}

/// One of several names of a file.
std::string numbered(const std::string& name, const std::string& content, std::uint32_t number) {
  auto all = file(name, content);
  std::memcpy(all.data() + offsetof(entry_head, number), &number, sizeof number);
  return all;
}

std::string map_of(const std::vector<extent>& extents) {
  return entry(
    entry_kind::map, "",
    std::string{reinterpret_cast<const char*>(extents.data()), extents.size() * sizeof(extent)});
}

/// What came out of an archive.
struct decoded {
  struct member {
    entry_head head;
    std::string name, target, content;
    bool whole = true;
  };
  std::vector<member> members;
  std::string failure;

  const member* find(const std::string& name) const {
    for (const auto& each : members)
      if (each.name == name)
        return &each;
    return nullptr;
  }
};

decoded decode(const std::string& archive, unpack_ceilings ceilings = {1ull << 30, 10'000}) {
  const unique_fd source{::memfd_create("archive", MFD_CLOEXEC)};
  REQUIRE(::write(source.get(), archive.data(), archive.size()) ==
          static_cast<ssize_t>(archive.size()));
  ::lseek(source.get(), 0, SEEK_SET);
  tar_decoder decoder{source.get(), ceilings};
  std::string stream;
  while (!decoder.ended()) {
    const auto batch = decoder.next();
    CHECK(batch.size() < 3 * max_frame_bytes);
    stream += batch;
  }
  decoded all;
  all.failure = decoder.failure();
  std::size_t at = 0;
  const auto take = [&](void* into, std::size_t count) {
    REQUIRE(at + count <= stream.size());
    std::memcpy(into, stream.data() + at, count);
    at += count;
  };
  for (;;) {
    decoded::member next{};
    take(&next.head, sizeof next.head);
    if (next.head.kind == entry_kind::end)
      break;
    next.name.resize(next.head.name_bytes);
    next.target.resize(next.head.target_bytes);
    take(next.name.data(), next.name.size());
    take(next.target.data(), next.target.size());
    if (next.head.kind == entry_kind::file) {
      next.content.resize(next.head.size);
      for (;;) {
        piece_head piece{};
        take(&piece, sizeof piece);
        next.whole = piece.offset != no_content;
        if (piece.bytes == 0)
          break;
        REQUIRE(piece.offset + piece.bytes <= next.content.size());
        take(next.content.data() + piece.offset, piece.bytes);
      }
    }
    all.members.push_back(std::move(next));
  }
  CHECK(at == stream.size());
  return all;
}

/// An archive that libarchive makes, of a kind that the system's tar cannot be talked into.
std::string made(const std::function<void(archive*)>& fill, int (*filter)(archive*) = nullptr) {
  const std::unique_ptr<archive, archive_deleter> out{archive_write_new()};
  std::string bytes(4 << 20, '\0');
  std::size_t used = 0;
  archive_write_set_format_pax(out.get());
  if (filter != nullptr)
    filter(out.get());
  archive_write_open_memory(out.get(), bytes.data(), bytes.size(), &used);
  fill(out.get());
  archive_write_close(out.get());
  bytes.resize(used);
  return bytes;
}

void add(archive* to, const std::string& name, unsigned type, const std::string& content = {},
         const std::function<void(archive_entry*)>& change = nullptr) {
  const std::unique_ptr<archive_entry, archive_deleter> what{archive_entry_new()};
  archive_entry_set_pathname(what.get(), name.c_str());
  archive_entry_set_filetype(what.get(), type);
  archive_entry_set_perm(what.get(), 0644);
  archive_entry_set_size(what.get(), static_cast<la_int64_t>(content.size()));
  if (change)
    change(what.get());
  REQUIRE(archive_write_header(to, what.get()) >= ARCHIVE_WARN);
  archive_write_data(to, content.data(), content.size());
}

std::string shell(const std::string& command) {
  std::string said;
  FILE* from = ::popen((command + " 2>&1").c_str(), "r");
  REQUIRE(from != nullptr);
  char buffer[4096];
  while (!std::feof(from) && !std::ferror(from))
    said.append(buffer, std::fread(buffer, 1, sizeof buffer, from));
  ::pclose(from);
  return said;
}

} // namespace

TEST_CASE("the system's tar reads what was encoded", "[tar]") {
  const temp_dir where;
  const std::string long_name(150, 'x');
  const std::string deep = std::string(90, 'd') + "/" + std::string(90, 'e');
  const std::string long_target(180, 't');
  const auto archive =
    encode(entry(entry_kind::directory, ".", {}, 0, 0755) + file("plain", "content") +
           entry(entry_kind::directory, "sub", {}, 0, 0700) + file("sub/empty", "") +
           file(long_name, "long") + file("\xc3\xbc", "umlaut") + file("no\xffutf", "raw") +
           entry(entry_kind::directory, deep.substr(0, 90)) + entry(entry_kind::directory, deep) +
           entry(entry_kind::symlink, "link", "sub/empty") +
           entry(entry_kind::symlink, "far", long_target) + end);
  CHECK(archive.size() % 10'240 == 0);
  std::ofstream{where / "a.tar", std::ios::binary} << archive;
  const auto listed = shell("LC_ALL=C tar --quoting-style=escape -tvf " +
                            (where / "a.tar").string() + " | sort -k 6");
  CHECK(listed.find("drwxr-xr-x sandbox/sandbox") != std::string::npos);
  for (const auto& name :
       {std::string{" ./\n"}, std::string{" ./plain\n"}, std::string{" ./sub/\n"},
        " ./" + long_name + "\n", std::string{" ./\\303\\274\n"}, std::string{" ./no\\377utf\n"},
        " ./" + deep + "/\n", std::string{" ./link -> sub/empty\n"},
        " ./far -> " + long_target + "\n"}) {
    CAPTURE(name, listed);
    CHECK(listed.find(name) != std::string::npos);
  }
  CHECK(shell("tar -xOf " + (where / "a.tar").string() + " ./plain ./" + long_name +
              " --warning=no-unknown-keyword") == "contentlong");
  // Extended headers only where they are needed.
  std::size_t extended = 0;
  for (std::size_t at = 156; at < archive.size(); at += 512)
    extended += archive.compare(at + 101, 5, "ustar") == 0 && archive[at] == 'x';
  CHECK(extended == 4);
}

TEST_CASE("an entry stream may come in pieces of any size", "[tar]") {
  const auto entries = entry(entry_kind::directory, ".") + file("a", std::string(5000, 'a')) +
                       entry(entry_kind::symlink, "b", "a") + file("c", "") + end;
  const auto whole = encode(entries);
  for (const std::size_t step : {1, 7, 48, 49, 511, 4096})
    CHECK((encode(entries, step) == whole));
}

TEST_CASE("what a sandbox sends is not trusted", "[tar]") {
  CHECK(refused(file("/absolute", "x")));
  CHECK(refused(file("../out", "x")));
  CHECK(refused(file("a/../../out", "x")));
  CHECK(refused(file("", "x")));
  CHECK(refused(file(std::string{"a\0b", 3}, "x")));
  CHECK(refused(file(".", "x")));
  CHECK(refused(entry(entry_kind::symlink, "s", "")));
  CHECK(refused(entry(entry_kind::symlink, "s", std::string{"a\0b", 3})));
  CHECK(refused(entry(entry_kind::hard_link, "h", "a")));
  CHECK(refused(entry(entry_kind::fifo, "f")));
  CHECK(refused(entry(static_cast<entry_kind>(99), "f")));
  CHECK(refused(entry(entry_kind::file, "huge", {}, 1ull << 33)));
  auto endless = entry_head{};
  endless.kind = entry_kind::file;
  endless.name_bytes = 1u << 31;
  CHECK(refused(bytes_of(endless)));
  // A moment before the epoch is not one that tar can tell; the file is there all the same.
  auto old = file("old", "x");
  const std::int64_t long_ago = -1'000'000;
  std::memcpy(old.data() + offsetof(entry_head, modified_s), &long_ago, sizeof long_ago);
  CHECK_FALSE(refused(old + end));
}

TEST_CASE("what the system's tar packed is decoded, however compressed", "[tar]") {
  const temp_dir where;
  const auto top = where.path().string();
  shell("cd " + top +
        " && mkdir -p t/sub && echo one > t/sub/one && ln t/sub/one t/hard && "
        "ln -s sub/one t/soft && mkfifo t/fifo && echo long > t/" +
        std::string(200, 'n') +
        " && truncate -s 1M t/sparse && echo end >> t/sparse && chmod 751 t/sub && "
        "touch -d @1600000000.5 t/sub/one");
  for (const auto* options :
       {"--format=gnu", "--format=posix", "--format=ustar --exclude=n*", "--format=v7 --exclude=n*",
        "--format=gnu -S", "--format=posix -S", "-z", "-j", "-J", "--zstd", "-P"}) {
    CAPTURE(options);
    shell("cd " + top + "/t && tar " + options + " -cf ../a.tar .");
    std::ifstream in{top + "/a.tar", std::ios::binary};
    const std::string archive{std::istreambuf_iterator<char>{in}, {}};
    const auto got = decode(archive);
    CHECK(got.failure.empty());
    REQUIRE(got.find("sub/one") != nullptr);
    const auto* first = got.find("hard");
    REQUIRE(first != nullptr);
    const auto* second = got.find("sub/one");
    const auto* content = first->head.kind == entry_kind::file ? first : second;
    const auto* link = content == first ? second : first;
    CHECK(content->content == "one\n");
    CHECK(link->head.kind == entry_kind::hard_link);
    CHECK(link->target == content->name);
    CHECK(content->head.modified_s == 1'600'000'000);
    CHECK(got.find("soft")->target == "sub/one");
    if (std::string_view{options}.find("v7") == std::string_view::npos)
      CHECK(got.find("fifo")->head.kind == entry_kind::fifo);
    CHECK(got.find("sub")->head.mode == 0751);
    CHECK(got.find(".")->head.kind == entry_kind::directory);
    const auto* sparse = got.find("sparse");
    REQUIRE(sparse != nullptr);
    CHECK(sparse->content == std::string(1 << 20, '\0') + "end\n");
    if (std::string_view{options}.find("exclude") == std::string_view::npos)
      CHECK(got.find(std::string(200, 'n'))->content == "long\n");
  }
}

TEST_CASE("members that would lead out are left out, and told of", "[tar]") {
  const auto archive = made([](auto* to) {
    add(to, "../up", AE_IFREG, "x");
    add(to, "a/../../up", AE_IFREG, "x");
    add(to, "..", AE_IFDIR);
    add(to, "link", AE_IFREG, "",
        [](auto* e) { archive_entry_set_hardlink(e, "../../etc/passwd"); });
    add(to, "///absolute//name/.", AE_IFREG, "kept");
    add(to, "a..b/..c", AE_IFREG, "kept too");
    add(to, "device", AE_IFCHR, "", [](auto* e) { archive_entry_set_rdev(e, 259); });
    add(to, ".", AE_IFREG, "");
  });
  const auto got = decode(archive);
  CHECK(got.members.size() == 3);
  CHECK(got.find("absolute/name")->content == "kept");
  CHECK(got.find("a..b/..c")->content == "kept too");
  CHECK(got.find("device")->head.kind == entry_kind::special);
  CHECK(got.failure == "tar: ../up: Member name contains '..'\n"
                       "tar: a/../../up: Member name contains '..'\n"
                       "tar: ../: Member name contains '..'\n"
                       "tar: link: Link target contains '..'\n"
                       "tar: .: Cannot open: Is a directory\n");
}

TEST_CASE("what is no archive, or half of one, is told", "[tar]") {
  CHECK(decode("garbage").failure == "tar: This does not look like a tar archive\n");
  CHECK(decode(std::string(10'000, 'x')).failure == "tar: This does not look like a tar archive\n");
  CHECK(decode("\x1f\x8b garbage behind a gzip mark").failure ==
        "tar: This does not look like a tar archive\n");
  CHECK(decode(std::string(1024, '\0')).failure.empty());
  CHECK(decode(std::string(10'240, '\0')).failure.empty());
  const auto whole = made([](auto* to) {
    add(to, "one", AE_IFREG, std::string(3000, '1'));
    add(to, "two", AE_IFREG, std::string(700'000, '2'));
  });
  CHECK(decode(whole).failure.empty());
  for (const std::size_t size : {600u, 2000u, 5000u, 300'000u, 702'000u}) {
    CAPTURE(size);
    const auto got = decode(whole.substr(0, size));
    CHECK_FALSE(got.failure.empty());
    // What did not come whole says so.
    if (!got.members.empty())
      CHECK(got.members.back().whole == false);
  }
}

TEST_CASE("an archive that unpacks to too much is stopped", "[tar]") {
  const auto bomb = made(
    [](auto* to) {
      for (int i = 0; i < 8; ++i)
        add(to, "zeros" + std::to_string(i), AE_IFREG, std::string(1 << 20, '\0'));
    },
    &archive_write_add_filter_gzip);
  CHECK(bomb.size() < 100'000);
  const auto got = decode(bomb, {4u << 20, 1000});
  CHECK(got.failure == "tar: The archive unpacks to more than a sandbox has room for\n");
  CHECK(got.members.size() <= 5);
  CHECK_FALSE(got.members.back().whole);
  const auto many = decode(bomb, {1u << 30, 3});
  CHECK(many.failure == "tar: The archive has more members than a sandbox has room for\n");
  CHECK(many.members.size() == 3);
}

namespace {

/// A header block of ustar for `name`, of this type and size.
std::string header(const std::string& name, char type, std::uint64_t size) {
  std::string block(512, '\0');
  const auto put = [&block](std::size_t at, const std::string& text) {
    block.replace(at, text.size(), text);
  };
  put(0, name);
  put(100, "0000644");
  put(108, "0001750");
  put(116, "0001750");
  char digits[13];
  std::snprintf(digits, sizeof digits, "%011llo", static_cast<unsigned long long>(size));
  put(124, digits);
  put(136, "00000000000");
  block[156] = type;
  put(257, std::string{"ustar\00000", 8});
  put(148, "        ");
  unsigned sum = 0;
  for (const char c : block)
    sum += static_cast<unsigned char>(c);
  std::snprintf(digits, sizeof digits, "%06o", sum);
  put(148, digits);
  block[154] = '\0';
  return block;
}

std::string padded(std::string content) {
  content.resize((content.size() + 511) / 512 * 512);
  return content;
}

/// Bytes as one of the filters packs them.
std::string packed(const std::string& plain, int (*filter)(archive*)) {
  const std::unique_ptr<archive, archive_deleter> out{archive_write_new()};
  std::string bytes(plain.size() + (1 << 20), '\0');
  std::size_t used = 0;
  archive_write_set_format_raw(out.get());
  filter(out.get());
  archive_write_set_bytes_in_last_block(out.get(), 1);
  REQUIRE(archive_write_open_memory(out.get(), bytes.data(), bytes.size(), &used) == ARCHIVE_OK);
  const std::unique_ptr<archive_entry, archive_deleter> whole{archive_entry_new()};
  archive_entry_set_filetype(whole.get(), AE_IFREG);
  REQUIRE(archive_write_header(out.get(), whole.get()) == ARCHIVE_OK);
  archive_write_data(out.get(), plain.data(), plain.size());
  archive_write_close(out.get());
  bytes.resize(used);
  return bytes;
}

} // namespace

TEST_CASE("a map of holes that fills memory is refused", "[tar]") {
  // Four bytes each in the archive, many more in memory; libarchive reads it with the header.
  std::string map = "1000000\n";
  for (int i = 0; i < 1'000'000; ++i)
    map += "0\n0\n";
  const std::string mark = "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n";
  const auto archive = header("x", 'x', mark.size()) + padded(mark) +
                       header("file", '0', map.size()) + padded(map) + std::string(1024, '\0');
  const auto got = decode(archive);
  CHECK(got.failure == "tar: A member's header is larger than a MiB\n");
  CHECK(got.members.empty());
}

TEST_CASE("an archive is unpacked once, and no further", "[tar]") {
  const auto archive = made([](auto* to) { add(to, "one", AE_IFREG, "1"); });
  for (auto* filter : {&archive_write_add_filter_gzip, &archive_write_add_filter_bzip2,
                       &archive_write_add_filter_xz, &archive_write_add_filter_zstd}) {
    const auto once = packed(archive, filter);
    CHECK(decode(once).failure.empty());
    CHECK(decode(once).find("one")->content == "1");
    CHECK(decode(packed(once, filter)).failure == "tar: This does not look like a tar archive\n");
    CHECK_FALSE(decode(once.substr(0, once.size() / 2)).failure.empty());
  }
}

TEST_CASE("what is left out counts, and is passed over step by step", "[tar]") {
  // Thirty members that are refused, with a MiB each.
  std::string archive;
  for (int i = 0; i < 30; ++i)
    archive += header("../" + std::to_string(i), '0', 1 << 20) + std::string(1 << 20, '\0');
  archive += std::string(1024, '\0');
  CHECK(
    decode(archive, {8u << 20, 1000}).failure.find("unpacks to more than a sandbox has room for") !=
    std::string::npos);
  const unique_fd source{::memfd_create("archive", MFD_CLOEXEC)};
  REQUIRE(::write(source.get(), archive.data(), archive.size()) ==
          static_cast<ssize_t>(archive.size()));
  ::lseek(source.get(), 0, SEEK_SET);
  tar_decoder decoder{source.get(), {1u << 30, 1000}};
  int steps = 0;
  while (!decoder.ended()) {
    decoder.next();
    ++steps;
  }
  CHECK(steps >= 10);
}

TEST_CASE("a file with several names is whole under each, and one again when it is unpacked",
          "[tar]") {
  const temp_dir where;
  const std::string content(5000, 'c');
  const auto archive = encode(numbered("a", content, 1) + numbered("b", "", 2) +
                              numbered("sub/c", content, 1) + numbered("d", "", 2) + end);
  std::ofstream{where / "a.tar", std::ios::binary} << archive;
  // Nothing of it is news for others: no links, and attributes that nobody asks for.
  CHECK(shell("tar -tvf " + (where / "a.tar").string() + " | cut -c1") == "-\n-\n-\n-\n");
  CHECK(archive.find("LIBARCHIVE") == archive.npos);
  const auto got = decode(archive);
  CHECK(got.failure.empty());
  std::string seen;
  for (const auto& each : got.members)
    seen += (each.head.kind == entry_kind::same ? "same " : "file ") + each.name + " " +
            each.target + "\n";
  CHECK(seen == "file a \nfile b \nfile sub/c \nsame sub/c a\nfile d \nsame d b\n");
  CHECK(got.find("sub/c")->content == content);
}

TEST_CASE("files that are marked as one stay two if they are not alike any more", "[tar]") {
  const std::string content(5000, 'c');
  auto other = content;
  other.back() = 'x';
  const auto is_one = [](const std::string& entries) {
    const auto got = decode(encode(entries + end));
    CHECK(got.failure.empty());
    return std::any_of(got.members.begin(), got.members.end(),
                       [](const auto& each) { return each.head.kind == entry_kind::same; });
  };
  CHECK(is_one(numbered("a", content, 7) + numbered("b", content, 7)));
  CHECK_FALSE(is_one(numbered("a", content, 7) + numbered("b", other, 7)));
  CHECK_FALSE(is_one(numbered("a", content, 7) + numbered("b", content + "c", 7)));
  CHECK_FALSE(is_one(numbered("a", content, 7) + numbered("b", content, 8)));
  CHECK_FALSE(is_one(numbered("a", content, 7) + file("b", content)));
  // The first name has become something else meanwhile.
  CHECK_FALSE(is_one(numbered("a", content, 7) + file("a", other) + numbered("b", content, 7)));
  CHECK_FALSE(is_one(numbered("a", content, 7) + entry(entry_kind::symlink, "a", "/etc/passwd") +
                     numbered("b", content, 7)));
  CHECK_FALSE(is_one(numbered("a", content, 7) + entry(entry_kind::directory, "a") +
                     numbered("b", content, 7)));
  // Names of a hundred thousand such files are too much to remember; the files are all there.
  std::string many;
  for (std::uint32_t i = 1; i <= 30'000; ++i)
    many += numbered(std::to_string(i), "", i);
  const auto got =
    decode(encode(many + numbered("first", "", 1) + numbered("last", "", 30'000) + end),
           {1ull << 30, 100'000});
  CHECK(got.members.size() == 30'003);
  CHECK(got.members[30'001].head.kind == entry_kind::same);
  // One name that many of them have in turn is not.
  many.clear();
  for (std::uint32_t i = 1; i <= 30'000; ++i)
    many += numbered("again", "", i);
  const auto last =
    decode(encode(many + numbered("a", "", 30'001) + numbered("b", "", 30'001) + end),
           {1ull << 30, 100'000});
  CHECK(last.members.back().head.kind == entry_kind::same);
}

TEST_CASE("a compact archive has links and holes, as GNU tar knows them", "[tar]") {
  const temp_dir where;
  const std::string data(20 * 512, 'd');
  const std::uint64_t large = 5ull << 30;
  const auto entries = map_of({{1u << 20, data.size()}, {large - data.size(), data.size()}}) +
                       entry(entry_kind::file, "holes", {}, large) + data + data +
                       map_of({{0, 4}}) + entry(entry_kind::file, "end", {}, 1u << 20) + "data" +
                       map_of({}) + entry(entry_kind::file, "empty", {}, 1u << 20) +
                       file("plain", "p") + entry(entry_kind::hard_link, "link", "plain") +
                       entry(entry_kind::hard_link, std::string(120, 'l'), "holes") + end;
  const auto archive = encode(entries, 1u << 20, true);
  CHECK(archive.size() < 50'000);
  for (const std::size_t step : {1, 7, 49, 511, 4096})
    CHECK((encode(entries, step, true) == archive));
  std::ofstream{where / "a.tar", std::ios::binary} << archive;
  const auto top = where.path().string();
  shell("cd " + top + " && tar -xf a.tar");
  const auto said = [&](const std::string& command) {
    return shell("cd " + top + " && " + command);
  };
  CHECK(said("stat -c '%n %s %h' holes end empty plain") ==
        "holes 5368709120 2\nend 1048576 1\nempty 1048576 1\nplain 1 2\n");
  CHECK(std::stoi(said("du -ck holes end empty | tail -n1 | cut -f1")) < 100);
  CHECK(said("head -c 4 end; tail -c 4 end | tr '\\0' 0; cat link") == "data0000p");
  CHECK(said("tail -c +1048577 holes | head -c 10241 | tr -d d | tr '\\0' 0") == "0");
  CHECK(said("tail -c 10241 holes | tr -d d | tr '\\0' 0") == "0");
  const auto got = decode(encode(map_of({{4096, 4}}) + entry(entry_kind::file, "f", {}, 1u << 20) +
                                   "data" + entry(entry_kind::hard_link, "link", "f") + end,
                                 1u << 20, true));
  CHECK(got.failure.empty());
  CHECK(got.find("f")->content ==
        std::string(4096, '\0') + "data" + std::string((1u << 20) - 4100, '\0'));
  CHECK(got.find("link")->target == "f");
}

TEST_CASE("maps that make no sense are refused", "[tar]") {
  const auto with = [](const std::vector<extent>& extents, std::uint64_t size) {
    return map_of(extents) + entry(entry_kind::file, "f", {}, size);
  };
  CHECK_FALSE(refused(with({{4096, 4096}}, 1u << 20), true));
  CHECK_FALSE(refused(with({{4096, 4096}, {8200, 1}}, 1u << 20), true));
  CHECK(refused(with({{4096, 4096}}, 1u << 20)));                  // Nobody asked for it.
  CHECK(refused(with({{4096, 4095}, {8200, 1}}, 1u << 20), true)); // Not a whole block.
  CHECK(refused(with({{4096, 4096}}, 8191), true));
  CHECK(refused(with({{4096, 0}}, 1u << 20), true));
  CHECK(refused(with({{4096, 4096}, {0, 1}}, 1u << 20), true));
  CHECK(refused(with({{4096, 4096}, {8192, 1}}, 1u << 20), true));
  CHECK(refused(with({{4096, 4096}, {8191, 9}}, 1u << 20), true));
  CHECK(refused(with({{1ull << 40, 1}}, 1u << 20), true));
  CHECK(refused(with({{1, ~0ull}}, 1u << 20), true));
  CHECK(refused(map_of({}) + map_of({}), true));
  CHECK(refused(map_of({}) + end, true));
  CHECK(refused(map_of({}) + entry(entry_kind::directory, "d"), true));
  CHECK(refused(map_of({}) + entry(entry_kind::file, std::string(200, 'n'), {}, 10'000), true));
  CHECK(refused(entry(entry_kind::map, "", "no extents"), true));
  CHECK(refused(entry(entry_kind::measure, "", "", 512), true));
  CHECK(refused(entry(entry_kind::same, "a", "b"), true));
  for (const auto* target : {"/etc/passwd", "../up", "a/../../up", ".", ""})
    CHECK(refused(file("f", "") + entry(entry_kind::hard_link, "h", target), true));
}

TEST_CASE("the size of an archive is known before it is made", "[tar]") {
  std::setlocale(LC_CTYPE, "C.UTF-8"); // As the agent does.
  const auto check = [](bool compact) {
    tar_size size;
    std::string entries;
    const auto both = [&](entry_kind kind, const std::string& name, const std::string& target = {},
                          std::uint64_t bytes = 0) {
      size.add(kind, name, target, bytes);
      entries += entry(kind, name, target, bytes) + std::string(bytes, 'x');
    };
    both(entry_kind::directory, ".");
    std::string deep;
    for (std::size_t length = 1; length < 280; ++length) {
      const std::string name(std::min<std::size_t>(length, 255), 'n');
      both(entry_kind::file, name, {}, length * 37);
      both(entry_kind::symlink, "s" + std::to_string(length), std::string(length, 't'));
      deep += (deep.empty() ? "" : "/") + std::string(length % 60 + 1, 'd');
      both(entry_kind::directory, deep);
      both(entry_kind::file, deep + "/" + name.substr(0, 99));
      if (compact)
        both(entry_kind::hard_link, "h" + name.substr(1) + std::to_string(length), name);
      else {
        size.add(entry_kind::file, "m" + std::to_string(length), {}, 3,
                 static_cast<std::uint32_t>(length * length));
        entries += numbered("m" + std::to_string(length), "abc",
                            static_cast<std::uint32_t>(length * length));
      }
    }
    for (const auto* name : {"\xc3\xbc", "no\xffutf", "with blank", "line\nbreak"}) {
      both(entry_kind::file, name, {}, 512);
      both(entry_kind::symlink, std::string{"to "} + name, name);
      both(entry_kind::directory, std::string(150, 'd') + name);
    }
    if (compact)
      for (std::size_t count = 0; count < 300; ++count) {
        std::vector<extent> extents;
        std::string data;
        for (std::size_t i = 0; i < count; ++i) {
          const auto bytes = i + 1 == count ? count : (1 + i % 100) * extent_block;
          extents.push_back({i * 70'000, bytes});
          data += std::string(bytes, 'd');
        }
        const auto bytes = 30'000'000 + count;
        const auto name =
          std::string(count % 150 + 1, 'p') + (count % 150 < 90 ? "" : "/") + std::to_string(count);
        size.add(entry_kind::file, name, {}, bytes, 0, &extents);
        entries += map_of(extents) + entry(entry_kind::file, name, {}, bytes) + data;
      }
    CHECK(size.bytes() == encode(entries + end, 1u << 20, compact).size());
  };
  check(false);
  check(true);
  // And one by one, since what is off in two ways could be right together.
  for (std::size_t length = 1; length < 280; ++length)
    for (const std::string& name : {std::string(length, 'n'), std::string(length / 2 + 1, 'a') +
                                                                "/" + std::string(length, 'b')}) {
      CAPTURE(name);
      std::string entries;
      tar_size size;
      for (int i = 0; i < 20; ++i) { // A block more or less of each is seen in the whole.
        size.add(entry_kind::file, name, {}, 0);
        entries += file(name, "");
      }
      CHECK(size.bytes() == encode(entries + end).size());
    }
}

TEST_CASE("blocks of zeros are no part of what is written", "[tar]") {
  const std::string data(hole_block, 'd'), zeros(hole_block, '\0');
  std::string seen;
  const auto cut = [&seen](std::uint64_t offset, const std::string& bytes,
                           std::size_t most = 1u << 20) {
    seen.clear();
    std::string whole(offset + bytes.size(), '\0');
    CHECK(without_holes(offset, bytes, most, [&](std::uint64_t at, std::string_view some) {
      CHECK(!some.empty());
      CHECK(some.size() <= most);
      seen += std::to_string(at) + "+" + std::to_string(some.size()) + " ";
      whole.replace(at, some.size(), some);
      return true;
    }));
    CHECK((whole.substr(offset) == bytes));
    return seen;
  };
  CHECK(cut(0, "").empty());
  CHECK(cut(0, zeros + zeros).empty());
  CHECK(cut(0, data + zeros + zeros + data + "x") == "0+4096 12288+4097 ");
  CHECK(cut(100, data + zeros + zeros + data) == "100+8092 12288+4196 ");
  CHECK(cut(4000, std::string(96, '\0') + data) == "4096+4096 ");
  CHECK(cut(0, data + data + data, 8192) == "0+8192 8192+4096 ");
  CHECK_FALSE(without_holes(0, data + zeros + data, 1u << 20, [](auto, auto) { return false; }));
  // And of an archive that knows of no holes.
  const auto archive = made([&](auto* to) {
    add(to, "f", AE_IFREG, std::string(300'000, '\0') + data + std::string(300'000, '\0'));
  });
  const auto got = decode(archive);
  CHECK(got.find("f")->content == std::string(300'000, '\0') + data + std::string(300'000, '\0'));
}
