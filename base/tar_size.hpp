#pragma once

#include "base/tree_frames.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

/// How large the tar archive of a tree becomes, without making it: pax, as http/tar_encoder.hpp
/// writes it by libarchive. A test holds both together.
namespace insula {

/// The name of the attribute that tells a file with several names; its value is a number.
inline constexpr std::string_view file_number_attribute = "user.insula.file";

class tar_size {
public:
  /// `name`: below the top; "." is that itself. `extents`: those of a file's map, if it has one.
  void add(entry_kind kind, std::string_view name, std::string_view target, std::uint64_t size,
           std::uint32_t number = 0, const std::vector<extent>* extents = nullptr) {
    std::uint64_t extended = 0, content = kind == entry_kind::file ? size : 0;
    std::string path = name == "." ? "./" : "./" + std::string{name};
    if (kind == entry_kind::directory && path.back() != '/')
      path += '/';
    if (!fits(path))
      extended += record("path", path.size());
    std::string link{target};
    if (kind == entry_kind::hard_link)
      link = "./" + link;
    if (link.size() > plain_name || !is_ascii(link))
      extended += record("linkpath", link.size());
    if (!is_text(path) || !is_text(link))
      extended += record("hdrcharset", std::string_view{"BINARY"}.size());
    if (number != 0)
      extended += record(file_number_attribute, digits(number), std::string_view{"SCHILY.xattr."});
    if (extents != nullptr) {
      const auto [bytes, map] = data_of(*extents, size);
      extended += 2 * record("GNU.sparse.major", 1) + record("GNU.sparse.name", path.size()) +
                  record("GNU.sparse.realsize", digits(size));
      content = whole(map) + bytes;
    }
    bytes_ += (extended > 0 ? block + whole(extended) : 0) + block + whole(content);
  }

  /// Whether a file of this name can have a map. libarchive cuts longer names off, behind a map.
  static bool takes_map(std::string_view name) {
    const auto path = "./" + std::string{name};
    return path.size() < plain_name || fits(path);
  }

  /// Of all, with its end.
  std::uint64_t bytes() const {
    return (bytes_ + 2 * block + last_block - 1) / last_block * last_block;
  }

private:
  static constexpr std::uint64_t block = 512, last_block = 10'240;
  static constexpr std::size_t plain_name = 100, plain_prefix = 155;

  static std::uint64_t whole(std::uint64_t bytes) { return (bytes + block - 1) / block * block; }

  static std::size_t digits(std::uint64_t number) { return std::to_string(number).size(); }

  /// "length key=value\n", where the length counts its own digits.
  static std::uint64_t record(std::string_view key, std::size_t value,
                              std::string_view before = {}) {
    const auto rest = before.size() + key.size() + value + 3;
    auto all = rest + digits(rest);
    return rest + digits(all);
  }

  static bool is_ascii(std::string_view text) {
    for (const char each : text)
      if (static_cast<unsigned char>(each) > 127)
        return false;
    return true;
  }

  /// UTF-8, in a locale of that.
  static bool is_text(const std::string& text) {
    return is_ascii(text) ||
           std::mbstowcs(nullptr, text.c_str(), 0) != static_cast<std::size_t>(-1);
  }

  /// Whether a plain header can say it, in two parts if need be.
  static bool fits(std::string_view path) {
    if (!is_ascii(path))
      return false;
    if (path.size() <= plain_name)
      return true;
    const auto cut = path.find('/', path.size() - plain_name - 1);
    return cut != path.npos && cut + 1 < path.size() && cut <= plain_prefix;
  }

  struct sparse_data {
    std::uint64_t bytes, map;
  };
  /// With an empty part at the end of what ends with a hole.
  static sparse_data data_of(const std::vector<extent>& extents, std::uint64_t size) {
    sparse_data all{0, 0};
    auto count = extents.size();
    for (const auto& each : extents) {
      all.bytes += each.bytes;
      all.map += digits(each.offset) + digits(each.bytes) + 2;
    }
    if (extents.empty() || extents.back().offset + extents.back().bytes < size) {
      ++count;
      all.map += digits(size) + 3;
    }
    all.map += digits(count) + 1;
    return all;
  }

  std::uint64_t bytes_ = 0;
};

} // namespace insula
