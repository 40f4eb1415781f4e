#include "actors/sandbox/sandbox_state.hpp"

#include "base/log.hpp"

#include <charconv>

/// What was said of a sandbox when it was made, by whoever did, and until when it is to be there.
namespace insula::actors::inside_sandbox {

namespace {

constexpr const char* about_key = "about";
constexpr const char* env_key = "env";
constexpr const char* expires_key = "expires_ms";
constexpr const char* image_key = "image";
constexpr const char* network_key = "network";
constexpr const char* memory_key = "memory_limit";
constexpr const char* cpu_key = "cpu_limit";

std::optional<std::int64_t> number_of(const object_storage& record, const char* key) {
  const auto text = record.value(key);
  std::int64_t value = 0;
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), value);
  return why == std::errc{} && !text.empty() ? std::optional{value} : std::nullopt;
}

/// Together with the changes: it is ended at that time. None: that stays as it is.
void write(sandbox_state& st, std::vector<storage::change> changes,
           std::optional<std::int64_t> expires_ms) {
  if (!expires_ms)
    return st.record->write(std::move(changes));
  changes.push_back({expires_key, std::to_string(*expires_ms)});
  const auto left = std::max<std::int64_t>(*expires_ms - st.options->time->unix_ms(), 0);
  st.record->set_alarm(std::chrono::milliseconds{left}, std::move(changes));
}

} // namespace

sandbox_description describe(const sandbox_state& st) {
  sandbox_description said;
  said.exists = exists(st);
  said.about = st.record->value(about_key);
  said.created_ms = number_of(*st.record, "created_ms").value_or(0);
  said.expires_ms = number_of(*st.record, expires_key);
  said.image = st.record->value(image_key);
  said.paused = is_paused(st);
  return said;
}

/// NUL stands between its lines.
std::map<std::string, std::string> own_environment(const sandbox_state& st) {
  std::map<std::string, std::string> all;
  const auto* text = st.record->find(env_key);
  for (std::string_view left = text != nullptr ? *text : std::string_view{}; !left.empty();) {
    const auto line = left.substr(0, left.find('\0'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    const auto equals = line.find('=');
    if (equals != std::string_view::npos)
      all[std::string{line.substr(0, equals)}] = line.substr(equals + 1);
  }
  return all;
}

void define(sandbox_pointer self, const define_sandbox& wanted,
            reply_to<sandbox_description> reply) {
  with_record(self, reply, wanted.context, [=](errand mine) {
    auto& st = self->state;
    const auto failed = [reply, mine](const error& why) {
      auto to = reply;
      to.deliver(to_caf(why));
      mine.over();
    };
    // Nobody is told before what is written of it is durable.
    const auto refuse = [self, failed] {
      self->state.record->when_durable(
        [failed] {
          failed({errc::already_exists, "there is such a sandbox"});
        },
        failed);
    };
    if (exists(st) || lives(st))
      return refuse();
    if (!wanted.image.empty() && st.options->images.count(wanted.image) == 0)
      return failed({errc::not_found, "there is no image " + wanted.image});
    with_lease(
      self,
      [=] {
        auto& now = self->state;
        // Another definition, or a command, came while this one waited for the lease.
        if (exists(now) || lives(now))
          return refuse();
        std::string lines;
        for (const auto& [name, value] : wanted.env)
          lines += name + "=" + value + '\0';
        std::vector<storage::change> changes{
          {"created_ms", std::to_string(now.options->time->unix_ms())}, {about_key, wanted.about}};
        if (!lines.empty())
          changes.push_back({env_key, lines});
        if (!wanted.image.empty())
          changes.push_back({image_key, wanted.image});
        if (wanted.network)
          changes.push_back({network_key, to_text(*wanted.network)});
        if (wanted.memory_bytes > 0)
          changes.push_back({memory_key, std::to_string(wanted.memory_bytes)});
        if (wanted.cpu_percent > 0)
          changes.push_back({cpu_key, std::to_string(wanted.cpu_percent)});
        write(now, std::move(changes), wanted.expires_ms);
        now.record->when_durable(
          [=] {
            auto to = reply;
            to.deliver(describe(self->state));
            mine.over();
          },
          failed);
      },
      failed);
  });
}

void redefine(sandbox_pointer self, const redefine_sandbox& wanted,
              reply_to<sandbox_description> reply) {
  with_record(self, reply, wanted.context, [=](errand mine) {
    const auto failed = [reply, mine](const error& why) {
      auto to = reply;
      to.deliver(to_caf(why));
      mine.over();
    };
    const auto told = [=] {
      auto to = reply;
      to.deliver(describe(self->state));
      mine.over();
    };
    const bool changes_it = wanted.about || wanted.expires_ms;
    const auto is_meant = [self, wanted] {
      return exists(self->state) && (!wanted.only_if_about ||
                                     *wanted.only_if_about == self->state.record->value(about_key));
    };
    if (!changes_it || !is_meant())
      return self->state.record->when_durable(told, failed);
    with_lease(
      self,
      [=] {
        auto& now = self->state;
        if (!is_meant()) // Another change came while this one waited for the lease.
          return now.record->when_durable(told, failed);
        std::vector<storage::change> changes;
        if (wanted.about)
          changes.push_back({about_key, *wanted.about});
        write(now, std::move(changes), wanted.expires_ms);
        now.record->when_durable(told, failed);
      },
      failed);
  });
}

runtime::sandbox_limits limits_of(const sandbox_state& st) {
  auto limits = st.options->limits;
  const auto lower = [&st](auto& limit, const char* key) {
    const auto wanted = number_of(*st.record, key).value_or(0);
    using number = std::remove_reference_t<decltype(limit)>;
    if (wanted > 0 && (limit == 0 || static_cast<std::uint64_t>(wanted) < limit))
      limit = static_cast<number>(wanted);
  };
  lower(limits.memory_bytes, memory_key);
  lower(limits.cpu_percent, cpu_key);
  return limits;
}

std::optional<std::chrono::milliseconds> time_left(const sandbox_state& st) {
  const auto when = number_of(*st.record, expires_key);
  return when ? std::optional{std::chrono::milliseconds{*when - st.options->time->unix_ms()}}
              : std::nullopt;
}

} // namespace insula::actors::inside_sandbox
