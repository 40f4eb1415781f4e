#pragma once

#include <string_view>

namespace insula::http {

/// Looks at all of a message that is no content: its header, and what is around its chunks. Each
/// line has to end with CR LF, and none may begin with a blank, which would make it a part of the
/// line before: another server that reads the same bytes would find other lines in them.
class line_check {
public:
  /// What comes is the rest of a first line.
  void begin() { *this = line_check{}; }

  /// Looks at `bytes` up to the end of an empty line. What comes behind that is not looked at.
  void take(std::string_view bytes) {
    for (const char c : bytes) {
      if (ended_ || !good_)
        return;
      look_at(c);
    }
  }

  /// Content has come, and a line's end has to follow it before anything else.
  void skip_content() {
    at_start_ = is_empty_ = false;
    behind_content_ = true;
  }

  /// There is another line behind the empty one.
  void go_on() {
    ended_ = false;
    at_start_ = true;
  }

  bool is_good() const { return good_; }

private:
  void look_at(char c) {
    good_ = was_return_ == (c == '\n') && !(at_start_ && (c == ' ' || c == '\t')) &&
            (!behind_content_ || c == '\r');
    behind_content_ = false;
    if (c == '\n') {
      ended_ = is_empty_;
      at_start_ = is_empty_ = true;
    } else {
      at_start_ = false;
      is_empty_ = is_empty_ && c == '\r';
    }
    was_return_ = c == '\r';
  }

  bool good_ = true;
  bool ended_ = false;
  bool at_start_ = false;       ///< Nothing of this line has come.
  bool is_empty_ = false;       ///< Nothing but perhaps its CR.
  bool was_return_ = false;     ///< A CR was last.
  bool behind_content_ = false; ///< Content was last.
};

} // namespace insula::http
