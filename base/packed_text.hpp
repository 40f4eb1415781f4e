#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

/// Texts of any bytes, one behind the other: each is its length, ':' and itself.
namespace insula {

class packed_writer {
public:
  packed_writer& text(std::string_view value) {
    made_ += std::to_string(value.size());
    made_ += ':';
    made_ += value;
    return *this;
  }
  packed_writer& number(std::uint64_t value) { return text(std::to_string(value)); }

  std::string take() { return std::move(made_); }

private:
  std::string made_;
};

/// Reads what a packed_writer has made, and nothing else: from the first text on that is none, all
/// are empty and numbers are 0, and it is not good.
class packed_reader {
public:
  explicit packed_reader(std::string_view text)
      : left_(text) {}

  std::string text() {
    std::size_t size = 0;
    const auto [end, why] = std::from_chars(left_.data(), left_.data() + left_.size(), size);
    const auto head = static_cast<std::size_t>(end - left_.data());
    if (why != std::errc{} || head >= left_.size() || left_[head] != ':' ||
        left_.size() - head - 1 < size || (head > 1 && left_.front() == '0'))
      return fail();
    std::string value{left_.substr(head + 1, size)};
    left_.remove_prefix(head + 1 + size);
    return value;
  }
  std::uint64_t number() {
    const auto digits = text();
    std::uint64_t value = 0;
    const auto [end, why] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (why != std::errc{} || end != digits.data() + digits.size() ||
        (digits.size() > 1 && digits.front() == '0'))
      fail();
    return good_ ? value : 0;
  }
  /// At most so many: the number of what follows.
  std::size_t count(std::size_t most) {
    const auto value = number();
    if (value > most)
      fail();
    return good_ ? static_cast<std::size_t>(value) : 0;
  }
  std::string fail() {
    good_ = false;
    left_ = {};
    return {};
  }

  bool good() const { return good_; }
  /// All has been read, and it was good.
  bool is_over() const { return good_ && left_.empty(); }

private:
  std::string_view left_;
  bool good_ = true;
};

} // namespace insula
