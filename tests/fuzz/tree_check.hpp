#pragma once

#include "base/stream_frames.hpp"
#include "base/tree_frames.hpp"
#include "tests/fuzz/bytes.hpp"

#include <cstring>
#include <string>
#include <string_view>

namespace insula::fuzz {

/// Reads a tree that is to be written (base/tree_frames.hpp), as strictly as it is described.
class tree_check {
public:
  void feed(std::string_view bytes) {
    pending_ += bytes;
    std::string_view left = pending_;
    while (in_content_ ? take_piece(left) : take_entry(left)) {
    }
    pending_.erase(0, pending_.size() - left.size());
  }

  bool ended() const { return ended_ && pending_.empty(); }
  std::uint64_t entries() const { return entries_; }
  std::uint64_t content_bytes() const { return content_bytes_; }

private:
  template <class Head>
  static bool peek(std::string_view bytes, Head& head) {
    if (bytes.size() < sizeof head)
      return false;
    std::memcpy(&head, bytes.data(), sizeof head);
    return true;
  }

  bool take_entry(std::string_view& left) {
    entry_head head{};
    if (left.empty())
      return false;
    must(!ended_, "nothing comes after the end");
    if (!peek(left, head))
      return false;
    must(head.kind <= entry_kind::special || head.kind == entry_kind::same,
         "an entry is of a known kind");
    must(head.name_bytes <= max_entry_name && head.target_bytes <= max_entry_name,
         "names have a ceiling");
    const std::size_t whole = sizeof head + head.name_bytes + head.target_bytes;
    if (left.size() < whole)
      return false;
    const auto name = left.substr(sizeof head, head.name_bytes);
    const auto target = left.substr(sizeof head + head.name_bytes, head.target_bytes);
    left.remove_prefix(whole);
    if (head.kind == entry_kind::end) {
      ended_ = true;
      return true;
    }
    entries_ += head.kind != entry_kind::same;
    must((head.mode & ~07777u) == 0, "a mode is permission bits");
    must(head.modified_ns < 1'000'000'000, "a second has so many nanoseconds");
    check_name(name);
    must(target.find('\0') == target.npos, "no NUL in a target");
    if (head.kind == entry_kind::hard_link || head.kind == entry_kind::same)
      check_name(target);
    in_content_ = head.kind == entry_kind::file;
    return true;
  }

  bool take_piece(std::string_view& left) {
    piece_head head{};
    if (!peek(left, head))
      return false;
    must(head.bytes <= max_frame_bytes, "pieces have a ceiling");
    if (left.size() < sizeof head + head.bytes)
      return false;
    left.remove_prefix(sizeof head + head.bytes);
    in_content_ = head.bytes > 0;
    content_bytes_ += head.bytes;
    return true;
  }

  static void check_name(std::string_view name) {
    must(!name.empty() && name.front() != '/', "a name is relative");
    must(name.find('\0') == name.npos, "no NUL in a name");
    const auto framed = '/' + std::string{name} + '/';
    must(framed.find("/../") == framed.npos, "a name leads to no place above");
  }

  std::string pending_;
  bool in_content_ = false;
  bool ended_ = false;
  std::uint64_t entries_ = 0;
  std::uint64_t content_bytes_ = 0;
};

} // namespace insula::fuzz
