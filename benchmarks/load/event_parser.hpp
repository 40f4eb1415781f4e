#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace insula::load {

/// Server-sent events out of a stream that arrives in pieces. Comments and fields that nobody
/// needs are skipped; lines may end with CR LF.
class event_parser {
public:
  /// `data` is valid during the call.
  using event_fn = std::function<void(std::string_view name, std::string_view data)>;

  explicit event_parser(event_fn on_event)
      : on_event_(std::move(on_event)) {}

  /// False: an event is longer than anyone would send (16 MiB); nothing more is read then.
  bool feed(std::string_view bytes);
  /// Whether something has begun and not ended.
  bool inside() const { return !line_.empty() || !name_.empty() || has_data_; }

private:
  void take(std::string_view line);

  event_fn on_event_;
  std::string line_, name_, data_;
  bool has_data_ = false;
};

} // namespace insula::load
