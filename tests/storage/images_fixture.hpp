#pragma once

#include "storage/images/image_store.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/image_builder.hpp"

#include <set>
#include <sys/stat.h>
#include <sys/xattr.h>

namespace insula::test {

namespace fs = std::filesystem;
namespace images = storage::images;

/// A state directory with images, and something beside it that nobody may touch.
struct image_fixture {
  temp_dir where;
  std::string state = (where / "state").string();
  images::image_store store{state};

  image_fixture() { write_file(where / "outside/precious", "mine"); }
  ~image_fixture() {
    CHECK(read_file(where / "outside/precious") == "mine");
    CHECK(fs::hard_link_count(where / "outside/precious") == 1);
    CHECK(std::distance(fs::directory_iterator{where / "outside"}, fs::directory_iterator{}) == 1);
  }

  result<images::image_record> import(const std::string& source, images::import_options how = {}) {
    if (how.name.empty())
      how.name = "it";
    return store.import_image(source, how);
  }
  images::image_record imported(layout_builder& from, const images::import_options& how = {}) {
    from.write();
    auto made = import(from.path(), how);
    if (!made)
      FAIL(made.reason().message);
    return *made;
  }
  /// The sentence of a refusal; nothing of the image is there.
  std::string refusal(const std::string& source, const images::import_options& how = {},
                      errc code = errc::invalid_request) {
    const auto made = import(source, how);
    REQUIRE_FALSE(made);
    CHECK(made.reason().code == code);
    CHECK(leftovers().empty());
    CHECK(store.list()->empty());
    return made.reason().message;
  }
  std::string refusal(layout_builder& from, const images::import_options& how = {},
                      errc code = errc::invalid_request) {
    from.write();
    return refusal(from.path(), how, code);
  }

  /// What stands beside the images.
  std::set<std::string> leftovers() const {
    std::set<std::string> all, needed{".lock"};
    for (const auto& each : fs::directory_iterator{state + "/images"}) {
      if (each.is_symlink())
        needed.insert(fs::read_symlink(each).string());
      if (const auto name = each.path().filename().string(); name[0] == '.')
        all.insert(name);
    }
    for (const auto& each : needed)
      all.erase(each);
    return all;
  }

  fs::path at(const std::string& path) const { return fs::path{state + "/images/it/root"} / path; }
  bool there(const std::string& path) const { return fs::exists(fs::symlink_status(at(path))); }
  std::string target(const std::string& path) const { return fs::read_symlink(at(path)).string(); }
  std::string text(const std::string& path) const { return read_file(at(path)); }
  struct stat status(const std::string& path) const {
    struct stat info {};
    REQUIRE(::lstat(at(path).c_str(), &info) == 0);
    return info;
  }
  /// Empty: there is none.
  std::string attribute(const std::string& path, const char* name) const {
    char value[256];
    const auto size = ::lgetxattr(at(path).c_str(), name, value, sizeof value);
    return size < 0 ? "" : std::string{value, static_cast<std::size_t>(size)};
  }
};

inline bool contains(const std::string& text, const std::string& part) {
  UNSCOPED_INFO(text); // For the assertion that this is in.
  return text.find(part) != std::string::npos;
}

} // namespace insula::test
