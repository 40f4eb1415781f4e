#pragma once

#include "actors/protocol/request_context.hpp"
#include "base/log.hpp"
#include "http/transport/figures.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace insula::http {

/// The id a request goes by: what the client has sent if that is 1 to 64 of [A-Za-z0-9._-], else a
/// new one. Cheap: no system call. Any thread.
std::string request_id(std::string_view sent);

/// `queue;dur=0.120, start;dur=1.500, …` in milliseconds: what is known by now.
std::string server_timing(const request_times& of);

/// One request from its header to the end of its answer: its id, its figures, and its line in the
/// log. Whoever has the request has this; where it ends without finish(), the answer was never
/// complete.
///
/// Threads: one at a time.
class request_track {
public:
  request_track() = default; ///< Of nothing.
  /// `row` belongs to `all`.
  request_track(std::shared_ptr<figures> all, route_figures& row, request_context context);
  request_track(request_track&& other) noexcept { swap(other); }
  request_track& operator=(request_track&& other) noexcept {
    request_track{std::move(other)}.swap(*this);
    return *this;
  }
  ~request_track();

  const request_context& context() const { return context_; }
  /// Of a visitor, who has no say in what a sandbox is made with.
  void forget_wishes() {
    context_.gains.reset();
    context_.image.clear();
  }

  /// As of request_context.
  void set_key(std::string name) { context_.key = std::move(name); }

  /// Header fields of the answer, a line each.
  void append_fields(std::string& head) const;

  void head_leaves();
  void body_leaves(std::size_t bytes);
  /// The answer is complete, with `bytes` more: it has been handed to the socket.
  void finish(int status, std::size_t bytes = 0);

  /// There is a request, and it has not been finished.
  bool open() const { return all_ != nullptr; }

private:
  using clock = std::chrono::steady_clock;

  void swap(request_track& other) noexcept;
  void leave(std::string_view status, log::level at);

  std::shared_ptr<figures> all_; ///< Null: of nothing, or finished.
  route_figures* row_ = nullptr;
  request_context context_;
  clock::time_point began_;
  std::uint64_t bytes_ = 0;
};

} // namespace insula::http
