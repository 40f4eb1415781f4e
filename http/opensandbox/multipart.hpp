#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// multipart/form-data (RFC 7578), taken apart as it comes.
namespace insula::http::opensandbox {

/// The boundary that a Content-Type names; none: it is no multipart/form-data.
std::optional<std::string> boundary_of(std::string_view content_type);

class multipart_reader {
public:
  enum class event : std::uint8_t {
    nothing, ///< More bytes are needed.
    part,    ///< One begins: name() and is_file() are of it.
    content, ///< Some of its bytes: content().
    part_end,
    end,  ///< The last part has ended. What follows counts for nothing.
    wrong ///< This is no such body.
  };

  /// `boundary`: not empty.
  explicit multipart_reader(const std::string& boundary)
      : mark_("\r\n--" + boundary) {}

  void feed(std::string_view bytes);

  /// What comes next of all that has been fed.
  event next();

  const std::string& name() const { return name_; }
  bool is_file() const { return is_file_; }             ///< It says a filename.
  std::string_view content() const { return content_; } ///< Until the next call.

private:
  enum class place : std::uint8_t { before, after_mark, header, body, over, lost };

  event lose();
  event read_header();
  event read_body();

  const std::string mark_; ///< Between the parts.
  /// The first mark may have no line before it.
  std::string held_ = "\r\n";
  std::size_t taken_ = 0; ///< Of what is held.
  place where_ = place::before;
  bool first_ = false; ///< Nothing of this part's body has been looked at.
  std::string name_;
  bool is_file_ = false;
  std::string_view content_;
};

} // namespace insula::http::opensandbox
