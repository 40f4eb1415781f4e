#pragma once

#include "actors/object.hpp"
#include "actors/protocol/messages.hpp"
#include "actors/record_keys.hpp"
#include "actors/sandbox/reply.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::actors::inside_sandbox {

/// The memory of a sandbox in one of the two stores, as its parts see it. object_storage has the
/// promises of each function.
class kept_record {
public:
  using entry_map = record_entries;

  virtual ~kept_record() = default;

  virtual void load(then_function then, otherwise_function otherwise,
                    request_context context = {}) = 0;
  virtual bool loaded() const = 0;
  virtual const entry_map& entries() const = 0;
  /// Null: there is no such key. Good until the next write.
  const std::string* find(std::string_view key) const {
    const auto at = entries().find(key);
    return at == entries().end() ? nullptr : &at->second;
  }
  std::string value(std::string_view key) const {
    const auto* found = find(key);
    return found == nullptr ? std::string{} : *found;
  }

  virtual void write_at(storage::epoch now) = 0;
  virtual void write(std::vector<storage::change> changes, request_context context = {}) = 0;
  virtual bool is_settled() const = 0;
  /// The store may have what was refused.
  virtual bool is_doubtful() const { return false; }
  virtual void when_durable(then_function then, otherwise_function otherwise) = 0;
  /// Answers once all that was written is durable; also when the object ends before.
  virtual void answer(const reply<caf::ok_atom>& to) = 0;
  virtual void answer(const reply<write_once_answer>& to, write_once_answer what) = 0;

  virtual void set_alarm(std::chrono::milliseconds delay,
                         std::vector<storage::change> changes = {}) = 0;
  virtual bool is_set(const alarm_due& due) const = 0;
  virtual std::optional<std::chrono::milliseconds> alarm_left() const = 0;
  virtual void alarm_over(const alarm_due& due, std::vector<storage::change> changes = {}) = 0;

  virtual void destroy(then_function then, otherwise_function otherwise,
                       request_context context) = 0;
  virtual void abandon(const error& why) = 0;
};

} // namespace insula::actors::inside_sandbox
