#include "actors/sandbox/idempotency_record.hpp"

#include "base/limits.hpp"

#include <algorithm>
#include <charconv>

namespace insula::actors::inside_sandbox {

std::string idempotency_record::text() const {
  return digest + '\n' + std::to_string(made_ms) + '\n' + which +
         (status.empty() ? "" : '\n' + status);
}

idempotency_record idempotency_record::read(std::string_view text) {
  idempotency_record found;
  const auto next = [&text] {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    return line;
  };
  found.digest = next();
  const auto made = next();
  std::from_chars(made.data(), made.data() + made.size(), found.made_ms);
  found.which = next();
  found.status = text;
  return found;
}

bool idempotency_record::expired(std::int64_t now_ms) const {
  return now_ms - made_ms >= limits::results_kept.count();
}

std::string text_of(const command_state& known) {
  const auto end = known.end.value_or(process_end{});
  std::string text = known.output ? "1" : "0";
  for (const std::int64_t each :
       {known.ended_ms, std::int64_t{end.exit_code}, std::int64_t{end.signal},
        std::int64_t{end.timed_out}, end.timeout_ms, std::int64_t{end.out_of_memory},
        static_cast<std::int64_t>(end.memory_bytes), std::int64_t{end.lost},
        static_cast<std::int64_t>(known.run), static_cast<std::int64_t>(known.log_end),
        std::int64_t{known.told}})
    text += ' ' + std::to_string(each);
  return text + '\n' + known.text;
}

command_state command_state_of(const idempotency_record& record) {
  command_state known;
  const std::string_view text = record.status;
  auto numbers = text.substr(0, text.find('\n'));
  const auto next = [&numbers] {
    std::int64_t value = 0;
    const auto one = numbers.substr(0, numbers.find(' '));
    std::from_chars(one.data(), one.data() + one.size(), value);
    numbers.remove_prefix(std::min(numbers.size(), one.size() + 1));
    return value;
  };
  known.known = true;
  known.text = text.substr(std::min(text.size(), numbers.size() + 1));
  known.started_ms = record.made_ms;
  known.output = next() != 0;
  known.ended_ms = next();
  process_end end;
  end.exit_code = static_cast<std::int32_t>(next());
  end.signal = static_cast<std::int32_t>(next());
  end.timed_out = next() != 0;
  end.timeout_ms = next();
  end.out_of_memory = next() != 0;
  end.memory_bytes = static_cast<std::uint64_t>(next());
  end.lost = next() != 0;
  known.run = static_cast<std::uint64_t>(next()); // Not in records of earlier versions.
  known.log_end = static_cast<std::uint64_t>(next());
  known.told = next() != 0;
  if (known.ended_ms != 0)
    known.end = end;
  return known;
}

} // namespace insula::actors::inside_sandbox
