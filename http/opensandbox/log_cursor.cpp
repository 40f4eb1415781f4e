#include "http/opensandbox/log_cursor.hpp"

namespace insula::http::opensandbox {

void log_cursor::count(std::string_view bytes) {
  for (std::size_t at = 0; (at = bytes.find('\n', at)) != std::string_view::npos; ++at) {
    stop_ = total_ + at + 1;
    if (++line_ == after_)
      start_ = stop_;
  }
  total_ += bytes.size();
}

void log_cursor::end(bool over) {
  if (over && total_ > stop_) {
    stop_ = total_;
    if (++line_ == after_)
      start_ = stop_;
  }
  if (!start_) // The client knows of lines that are not there.
    start_ = stop_;
}

} // namespace insula::http::opensandbox
