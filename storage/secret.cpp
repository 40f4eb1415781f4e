#include "storage/secret.hpp"

#include <cerrno>
#include <cstring>
#include <future>
#include <sys/random.h>

namespace insula::storage {

namespace {

constexpr auto record_owner = "_secret";
constexpr std::size_t secret_bytes = 32;

} // namespace

result<std::string> kept_secret(store& where, std::string_view name) {
  const auto found = where.read(record_owner, name);
  if (!found)
    return found.reason();
  for (const auto& each : *found)
    if (each.key == name)
      return each.value;
  std::string fresh(secret_bytes, '\0');
  if (::getrandom(fresh.data(), fresh.size(), 0) != static_cast<ssize_t>(fresh.size()))
    return error{errc::internal, std::string{"getrandom: "} + std::strerror(errno)};
  std::promise<result<void>> durable;
  where.commit({record_owner, 1, {{std::string{name}, fresh}}},
               [&](result<void> outcome) { durable.set_value(std::move(outcome)); });
  if (const auto outcome = durable.get_future().get(); !outcome)
    return outcome.reason();
  return fresh;
}

} // namespace insula::storage
