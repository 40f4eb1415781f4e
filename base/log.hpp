#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

/// One event, one line, named fields: `2026-05-01T10:00:00.000Z info sandbox.ready id=ab… ms=4`.
/// Never the API key, never a command beyond its first word, never a body. Any thread.
namespace insula::log {

enum class level { debug, info, warning, error };

struct field {
  std::string_view name;
  std::string value;

  field(std::string_view n, std::string v)
      : name(n)
      , value(std::move(v)) {}
  field(std::string_view n, std::string_view v)
      : name(n)
      , value(v) {}
  field(std::string_view n, const char* v)
      : name(n)
      , value(v) {}
  template <class Number>
  requires std::is_arithmetic_v<Number> field(std::string_view n, Number v)
      : name(n)
      , value(std::to_string(v)) {}
};

/// Lines below this are dropped. Initially info.
void set_level(level least);

/// While it lives, lines of the calling thread have a level of their own in place of set_level()'s.
/// One per thread at a time.
class level_of_thread {
public:
  explicit level_of_thread(level least);
  ~level_of_thread();
  level_of_thread(const level_of_thread&) = delete;
  level_of_thread& operator=(const level_of_thread&) = delete;
};

/// Would a line be written? For those who would have to make its values first.
bool enabled(level at);

void write(level at, std::string_view event, std::initializer_list<field> fields = {});

inline void debug(std::string_view event, std::initializer_list<field> fields = {}) {
  write(level::debug, event, fields);
}
inline void info(std::string_view event, std::initializer_list<field> fields = {}) {
  write(level::info, event, fields);
}
inline void warning(std::string_view event, std::initializer_list<field> fields = {}) {
  write(level::warning, event, fields);
}
inline void error(std::string_view event, std::initializer_list<field> fields = {}) {
  write(level::error, event, fields);
}

} // namespace insula::log
