#include "base/limits.hpp"
#include "storage/images/documents.hpp"
#include "storage/images/layer_reader.hpp"
#include "tests/storage/images_fixture.hpp"

#include <fcntl.h>

using namespace insula;
using namespace insula::test;

namespace {

/// A member that no image may have, and what is said about it.
struct bad_member {
  tar_member what;
  std::string said;
};

/// One block of a tar: a member with so many bytes after it.
std::string tar_header(const std::string& name, char type, std::size_t size) {
  std::string block(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) {
    block.replace(at, text.size(), text);
  };
  const auto octal = [](std::size_t value) {
    char text[12];
    std::snprintf(text, sizeof text, "%011zo", value);
    return std::string{text};
  };
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, octal(size));
  put(136, octal(0));
  put(148, std::string(8, ' '));
  put(156, std::string(1, type));
  put(257, std::string{"ustar\0"
                       "00",
                       8});
  std::size_t sum = 0;
  for (const unsigned char each : block)
    sum += each;
  put(148, octal(sum).substr(5) + '\0');
  return block;
}

std::string padded(std::string text) {
  text.resize((text.size() + 511) / 512 * 512);
  return text;
}

/// "holes", an empty file as GNU tar --sparse-version=1.0 writes it, with so many entries in the
/// map that stands before its content.
std::string sparse_member(std::size_t entries) {
  std::string records;
  for (const std::string each : {"GNU.sparse.major=1\n", "GNU.sparse.minor=0\n",
                                 "GNU.sparse.name=holes\n", "GNU.sparse.realsize=0\n"})
    records += std::to_string(each.size() + 3) + " " + each; // All have two digits.
  auto map = std::to_string(entries) + "\n";
  for (std::size_t i = 0; i < entries; ++i)
    map += "0\n0\n";
  map = padded(map); // The padding belongs to the member.
  return tar_header("x", 'x', records.size()) + padded(records) + tar_header("y", '0', map.size()) +
         map;
}

} // namespace

TEST_CASE("members that would leave the image are refused by name", "[images][hostile]") {
  image_fixture it;
  layout_builder from;
  const auto [what, said] = GENERATE(values<bad_member>({
    {{"/etc/x", 'f', "x"}, "/etc/x: its name is absolute"},
    {{"//x", 'd', ""}, "//x/: its name is absolute"},
    {{"../x", 'f', "x"}, "../x: its name has a \"..\" in it"},
    {{"a/../../x", 'f', "x"}, "its name has a \"..\" in it"},
    {{"a/..", 'd', ""}, "its name has a \"..\" in it"},
    {{"..", 'd', ""}, "its name has a \"..\" in it"},
    {{"./..//outside/precious", 'f', "x"}, "its name has a \"..\" in it"},
    {{"/.wh.x", 'f', ""}, "its name is absolute"},
    {{"../.wh.outside", 'f', ""}, "its name has a \"..\" in it"},
    {{"x", 'h', "/etc/passwd"}, "x: a hard link: /etc/passwd: its target is absolute"},
    {{"x", 'h', "../../outside/precious"}, "its target has a \"..\" in it"},
    {{"x", 'h', "way/precious"}, "which is no file of the image"},
    {{"x", 'h', "real"}, "which is no file of the image"},
    {{"x", 'h', "not/there"}, "which is no file of the image"},
    {{"x", 'h', "."}, "which is no file of the image"},
    {{"x", 'h', "x"}, "which is no file of the image"},
    {{"way/x", 'f', "x"}, "way: the way there is a symlink"},
    {{"way/x", 'd', ""}, "way: the way there is a symlink"},
    {{"way/x", 'l', "y"}, "way: the way there is a symlink"},
    {{"way/x", 'h', "real/file"}, "way: the way there is a symlink"},
    {{"way/x/y/z", 'f', ""}, "symlink"},
    {{"way/.wh.precious", 'f', ""}, "way: the way there is a symlink"},
    {{"way/.wh..wh..opq", 'f', ""}, "way: the way there is a symlink"},
    {{"inner/x", 'f', "x"}, "inner: the way there is a symlink"},
    {{"real/up/x", 'f', "x"}, "real/up: the way there is a symlink"},
    {{"real/file/x", 'f', "x"}, "real/file: it is no directory"},
    {{"dev/null", 'c', ""}, "dev/null: a device"},
    {{"disk", 'b', ""}, "disk: a device"},
    {{"x", 'f', "", 0, 65'536, 0}, "x: its owner 65536:0 is not between 0 and 65535"},
    {{"x", 'd', "", 0, 0, 100'000}, "x: its owner 0:100000 is not between 0 and 65535"},
    {{"x", 'l', "y", 0, 70'000, 0}, "is not between 0 and 65535"},
    {{".wh.", 'f', ""}, "a whiteout that hides nothing that could be there"},
    {{"real/.wh..", 'f', ""}, "a whiteout that hides nothing that could be there"},
    {{"real/.wh...", 'f', ""}, "a whiteout that hides nothing that could be there"},
    {{".wh.real/x", 'f', ""}, "something below a whiteout"},
    {{"real/.wh.x/.wh.y", 'f', ""}, "something below a whiteout"},
    {{".", 'f', "x"}, "the root of the image is no directory"},
    {{"./", 'l', "real"}, "the root of the image is no directory"},
    {{std::string(256, 'n'), 'f', ""}, "a part of its name is longer than 255 bytes"},
    {{"real/" + std::string(300, 'n'), 'd', ""}, "a part of its name is longer than 255 bytes"},
    {{"s", 'l', std::string(5000, 't')}, "a symlink whose target is empty or longer"},
  }));
  CAPTURE(what.path, what.kind, what.content);
  const auto outside = (it.where / "outside").string();
  // In the layer below, or just before: both are the same to who looks for a way out.
  const std::vector<tar_member> before{{"real/file", 'f', "file"},
                                       {"real/up", 'l', ".."},
                                       {"way", 'l', outside},
                                       {"inner", 'l', "real"}};
  const bool below = GENERATE(true, false) || what.path.find(".wh.") != std::string::npos;
  auto members = before;
  if (below) {
    from.add(members);
    members.clear();
  }
  members.push_back(what);
  from.add(members, packing::gzip);
  const auto why = it.refusal(from);
  CHECK(contains(why, said));
  CHECK(contains(why, below ? "layer 2 (sha256:" : "layer 1 (sha256:"));
}

TEST_CASE("deep and long names are refused before anything is made of them", "[images][hostile]") {
  image_fixture it;
  layout_builder from;
  std::string deep, lengthy;
  for (std::size_t i = 0; i <= limits::image_path_depth; ++i)
    deep += "d/";
  for (int i = 0; i < 20; ++i)
    lengthy += std::string(250, 'l') + "/";
  SECTION("deep") {
    from.add({{deep, 'd', ""}});
    CHECK(contains(it.refusal(from), "deeper than 256 directories"));
  }
  SECTION("long") {
    from.add({{lengthy + "x", 'f', ""}});
    CHECK(contains(it.refusal(from), "its name is longer than 4095 bytes"));
  }
  SECTION("as deep as may be") {
    from.add({{deep.substr(2), 'd', ""}});
    from.add({{".wh.d", 'f', ""}});
    it.imported(from);
    CHECK_FALSE(it.there("d"));
  }
}

TEST_CASE("a symlink that leads out is kept, and nothing is done through it", "[images][hostile]") {
  image_fixture it;
  layout_builder from;
  const auto outside = (it.where / "outside").string();
  from.add(
    {{"way", 'l', outside}, {"file", 'l', outside + "/precious"}, {"up", 'l', "../../../.."}});
  // Each takes the link's place.
  from.add({{"way", 'd', "", 0700, 5, 5}, {"file", 'f', "new", 0600, 5, 5}, {".wh.up", 'f', ""}});
  it.imported(from);
  CHECK(S_ISDIR(it.status("way").st_mode));
  CHECK(it.text("file") == "new");
  CHECK_FALSE(it.there("up"));
}

TEST_CASE("a hard link to a symlink is one more name of the symlink", "[images][hostile]") {
  image_fixture it;
  layout_builder from;
  from.add({{"link", 'l', (it.where / "outside/precious").string()}, {"again", 'h', "link"}});
  from.add({{"again", 'f', "mine now"}});
  it.imported(from);
  CHECK(it.text("again") == "mine now");
  CHECK(S_ISLNK(it.status("link").st_mode));
}

TEST_CASE("what does not have its digest is not imported", "[images][hostile][digest]") {
  image_fixture it;
  layout_builder from;
  const auto how = GENERATE(packing::plain, packing::gzip, packing::zstd);
  from.add({{"a", 'f', "a"}, {"b", 'f', std::string(300'000, 'b')}}, how);
  auto& layer = from.layers.front();
  SECTION("a layer with another byte") {
    from.write();
    auto bytes = layer.blob;
    bytes[bytes.size() / 2] ^= 1;
    write_file(from.blob(layer.digest), bytes);
    it.refusal(from.path());
  }
  SECTION("a layer with something behind it") {
    layer.size += 5;
    from.write();
    write_file(from.blob(layer.digest), layer.blob + "extra");
    it.refusal(from.path());
  }
  SECTION("a layer that is cut off") {
    from.write();
    fs::resize_file(from.blob(layer.digest), layer.blob.size() / 2);
    CHECK(contains(it.refusal(from.path()), "bytes, not " + std::to_string(layer.size)));
  }
  SECTION("a layer that is cut off, and everybody says so") {
    layer.blob.resize(layer.blob.size() / 2);
    layer.size = layer.blob.size();
    layer.digest = sha256(layer.blob);
    it.refusal(from);
  }
  SECTION("another diff_id") {
    layer.diff_id = sha256("something else");
    CHECK(contains(it.refusal(from), "its digest unpacked is sha256:"));
  }
  SECTION("a layer that is missing") {
    from.write();
    fs::remove(from.blob(layer.digest));
    CHECK(contains(it.refusal(from.path()), "is missing"));
  }
  SECTION("a layer that is a symlink") {
    from.write();
    fs::rename(from.blob(layer.digest), it.where / "elsewhere");
    fs::create_symlink(it.where / "elsewhere", from.blob(layer.digest));
    CHECK(contains(it.refusal(from.path()), "is missing"));
  }
  SECTION("a configuration with another byte") {
    from.write();
    auto text = from.config();
    const auto name = from.blob(sha256(text));
    text[text.find("linux")] = 'L';
    write_file(name, text);
    CHECK(contains(it.refusal(from.path()), "its content has another digest"));
  }
  SECTION("a manifest with another byte") {
    from.write();
    auto index = read_file(from.where / "index.json");
    const auto at = index.find("sha256:") + 7;
    const auto name = from.blob("sha256:" + index.substr(at, 64));
    write_file(name, read_file(name) + " ");
    it.refusal(from.path());
  }
  SECTION("a file's data that its tar does not have") {
    auto tar = make_tar({{"a", 'f', std::string(400, 'a')}});
    tar.resize(tar.find("aaaa") + 6);
    from.layers.clear();
    from.add_tar(tar, how);
    CHECK(contains(it.refusal(from), "cut off"));
  }
}

TEST_CASE("what docker save wrote is checked by what it has", "[images][hostile][digest]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', "the content"}});
  auto tar = from.docker_tar();
  const auto change = GENERATE("the content", "\"linux\"");
  CAPTURE(change);
  tar[tar.find(change) + 1] ^= 1;
  write_file(it.where / "image.tar", tar);
  CHECK(contains(it.refusal((it.where / "image.tar").string()), "digest"));
}

TEST_CASE("an image that unpacks to too much is stopped", "[images][hostile][limits]") {
  image_fixture it;
  layout_builder from;
  images::import_options how;
  how.max_bytes = 4 << 20;
  SECTION("in a packed layer") {
    from.add({{"bomb", 'f', std::string(64 << 20, '\0')}}, packing::gzip);
    CHECK(from.layers[0].size < 1 << 20);
    CHECK(contains(it.refusal(from, how, errc::payload_too_large), "--max-size"));
  }
  SECTION("in many small layers") {
    for (int i = 0; i < 5; ++i)
      from.add({{"part" + std::to_string(i), 'f', std::string(1 << 20, '\0')}}, packing::zstd);
    CHECK(contains(it.refusal(from, how, errc::payload_too_large), "layer 4"));
  }
  SECTION("in a hole") {
    tar_member sparse{"disk", 'f', "x"};
    sparse.hole = 32 << 20;
    from.add({sparse});
    CHECK(contains(it.refusal(from, how, errc::payload_too_large), "disk: larger"));
  }
  SECTION("in a packed archive") {
    from.add({{"bomb", 'f', std::string(64 << 20, '\0')}});
    const auto file = it.where / "image.tar.gz";
    write_file(file, pack(from.docker_tar(), packing::gzip));
    it.refusal(file.string(), how, errc::payload_too_large);
  }
}

TEST_CASE("a header of many megabytes is refused before it is read", "[images][hostile][limits]") {
  image_fixture it;
  layout_builder from;
  const auto before = make_tar({{"before", 'f', std::string(3 << 20, 'b')}});
  // Without the blocks of nothing at its end.
  const auto tar = before.substr(0, before.size() - 1024) + sparse_member(3'000'000);
  const auto how = GENERATE(packing::plain, packing::gzip, packing::zstd);
  SECTION("in a layer") {
    from.add_tar(tar, how);
    std::uint64_t read = 0;
    images::import_options options;
    options.on_progress = [&](const images::import_progress& now) { read = now.bytes; };
    const auto why = it.refusal(from, options, errc::payload_too_large);
    CHECK(contains(why, "the member after before has a header of more than 1048576 bytes"));
    if (how == packing::plain)
      CHECK(read < 6 << 20);
  }
  SECTION("in the first member of a layer") {
    from.add_tar(sparse_member(3'000'000), how);
    const auto why = it.refusal(from, {}, errc::payload_too_large);
    CHECK(contains(why, "its first member has a header of more than"));
  }
  SECTION("in an archive") {
    write_file(it.where / "image.tar", pack(tar, how));
    const auto why = it.refusal((it.where / "image.tar").string(), {}, errc::payload_too_large);
    CHECK(contains(why, "the member after before has a header of more than 1048576 bytes"));
  }
}

TEST_CASE("a file with many holes is taken, and content is no header", "[images][limits]") {
  image_fixture it;
  layout_builder from;
  // Nobody reads what a whiteout has as its content.
  const auto unread = tar_header(".wh.it", '0', 3 << 20) + std::string(3 << 20, 'x');
  from.add_tar(unread + sparse_member(100'000) + make_tar({{"after", 'f', "after"}}),
               GENERATE(packing::plain, packing::zstd));
  it.imported(from);
  CHECK(it.status("holes").st_size == 0);
  CHECK(it.text("after") == "after");
}

TEST_CASE("a layer that is packed twice is not unpacked twice", "[images][hostile][limits]") {
  image_fixture it;
  layout_builder from;
  const auto tar = make_tar({{"a", 'f', "a"}});
  from.add_tar(pack(tar, packing::gzip), packing::gzip);
  it.refusal(from);
}

TEST_CASE("files and names have ceilings over all layers", "[images][hostile][limits]") {
  const temp_dir where;
  const auto tar = make_tar({{"one", 'f', ""}, {"two", 'f', ""}, {"three", 'f', ""}});
  write_file(where / "tar", tar);
  images::import_budget budget{1 << 20, 100, 100, nullptr, nullptr};
  const auto allowed = [&] {
    images::file_range blob{
      std::make_shared<const unique_fd>(::open((where / "tar").c_str(), O_RDONLY | O_CLOEXEC)), 0,
      tar.size()};
    images::layer_reader reader{blob, {"", sha256(tar)}, budget};
    images::layer_entry entry;
    for (int count = 0;; ++count) {
      const auto more = reader.next(entry);
      if (!more) {
        CHECK(more.reason().code == errc::payload_too_large);
        return count;
      }
      if (!*more)
        return count;
    }
  };
  CHECK(allowed() == 3);
  budget.entries = 2;
  CHECK(allowed() == 2);
  budget.entries = 100;
  budget.names = 7;
  CHECK(allowed() == 2);
}

TEST_CASE("a source that is no image is refused in words", "[images][hostile][documents]") {
  image_fixture it;
  const auto source = it.where / "source";
  SECTION("an empty directory") {
    fs::create_directory(source);
    CHECK(contains(it.refusal(source.string()), "neither an OCI layout"));
  }
  SECTION("a tar of a file system") {
    write_file(source, make_tar({{"etc/passwd", 'f', ""}}));
    CHECK(contains(it.refusal(source.string()), "neither an OCI layout"));
  }
  SECTION("some file") {
    write_file(source, std::string(5000, 'x'));
    CHECK(contains(it.refusal(source.string()), "no directory and no tar"));
  }
  SECTION("a packed file that is cut off") {
    write_file(source, pack(make_tar({{"x", 'f', std::string(9999, 'x')}}), packing::gzip));
    fs::resize_file(source, 40);
    CHECK(contains(it.refusal(source.string()), "unpacking it"));
  }
  SECTION("a FIFO") {
    REQUIRE(::mkfifo(source.c_str(), 0600) == 0);
    CHECK(contains(it.refusal(source.string()), "expected a directory or a file"));
  }
}

TEST_CASE("documents with mistakes are refused in words", "[images][hostile][documents]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', ""}});
  from.write();
  const auto index = [&](const std::string& text) {
    write_file(from.where / "index.json", text);
    return it.refusal(from.path());
  };
  CHECK(contains(index(""), "it is not JSON"));
  CHECK(contains(index("{\"manifests\":["), "it is not JSON"));
  CHECK(contains(index("{}"), "no list of manifests"));
  CHECK(contains(index("[]"), "no list of manifests"));
  CHECK(contains(index(R"({"manifests":{}})"), "no list of manifests"));
  CHECK(contains(index(R"({"manifests":[]})"), "no image for this machine"));
  CHECK(contains(index(R"({"manifests":[1]})"), "without a good digest"));
  CHECK(contains(index(R"({"manifests":[{"digest":"sha256:../../x","size":1}]})"),
                 "without a good digest"));
  CHECK(
    contains(index(R"({"manifests":[{"digest":"md5:00","size":1}]})"), "without a good digest"));
  const auto missing = "sha256:" + std::string(64, '0');
  CHECK(contains(index(R"({"manifests":[{"digest":")" + missing + R"(","size":1}]})"),
                 "there is no file blobs/sha256/000"));
  CHECK(contains(index(R"({"manifests":[{"digest":")" + missing + R"(","size":-1}]})"),
                 "without a good digest and size"));
  CHECK(contains(index("{\"a\":" + std::string(100'000, '[')), "nests deeper than 64"));
  CHECK(contains(index(std::string(limits::image_document_bytes + 1, ' ')), "more than"));

  // An index that leads to itself cannot be, because of the digests; one that goes on and on can.
  std::string inner = R"({"manifests":[]})";
  for (int i = 0; i < 10; ++i) {
    write_file(from.blob(sha256(inner)), inner);
    inner = R"({"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":")" +
            sha256(inner) + R"(","size":)" + std::to_string(inner.size()) + "}]}";
  }
  CHECK(contains(index(inner), "indexes lead to each other"));
}

TEST_CASE("configurations with mistakes are refused in words", "[images][hostile][documents]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', ""}});
  const auto refusal = [&](const std::string& run) {
    from.run = run;
    return it.refusal(from);
  };
  CHECK(contains(refusal(R"({"Env":["NOTHING"]})"), "not NAME=value"));
  CHECK(contains(refusal(R"({"Env":["=x"]})"), "not NAME=value"));
  CHECK(contains(refusal(R"({"Env":["A=b\u0000LD_PRELOAD=x"]})"), "not NAME=value"));
  CHECK(contains(refusal(R"({"Env":"PATH=/bin"})"), "not lists of texts"));
  CHECK(contains(refusal(R"({"Env":[1]})"), "not lists of texts"));
  CHECK(contains(refusal(R"({"Entrypoint":{"a":1}})"), "not lists of texts"));
  CHECK(contains(refusal(R"({"User":"a\u0000b"})"), "a NUL"));
  CHECK(
    contains(refusal(R"({"Env":["A=)" + std::string(limits::image_environment_bytes, 'x') + "\"]}"),
             "an environment of more than"));
  from.run = "{}";
  from.os = "windows";
  CHECK(contains(it.refusal(from), "the image is for windows/"));
  from.os = "linux";
  from.layers[0].media_type = "application/vnd.oci.image.layer.v1.tar+encrypted";
  CHECK(contains(it.refusal(from), "of a kind that is not known"));
  from.layers.clear();
  CHECK(contains(it.refusal(from), "no layers"));
}

TEST_CASE("a configuration and a manifest have to count the same layers",
          "[images][hostile][documents]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', ""}});
  const auto text = from.config();
  from.add({{"b", 'f', ""}});
  auto tar = from.docker_tar();
  const auto config = from.config();
  tar.replace(tar.find(config), config.size(),
              text + std::string(config.size() - text.size(), ' '));
  write_file(it.where / "image.tar", tar);
  // Its name is its digest, so that is what is found first.
  CHECK(contains(it.refusal((it.where / "image.tar").string()), "another digest"));
  CHECK_FALSE(images::read_docker_images(R"([{"Config":"","Layers":[],"RepoTags":[]}])"));
  CHECK_FALSE(images::read_config(R"({"rootfs":{"diff_ids":["sha256:1"]}})"));
}
