#include "actors/protocol/errors.hpp"

#include <caf/atom.hpp>
#include <caf/deep_to_string.hpp>
#include <caf/exit_reason.hpp>
#include <caf/make_message.hpp>
#include <caf/message.hpp>
#include <caf/sec.hpp>

namespace insula {

namespace {
constexpr auto category = caf::atom("insula");
}

caf::error to_caf(const error& why) {
  return {static_cast<std::uint8_t>(why.code), category,
          caf::make_message(why.message, why.retry_s)};
}

bool is_being_deleted(const error& why) {
  return why.code == being_deleted.code && why.message == being_deleted.message;
}

bool came_too_late(const caf::error& why) {
  return why == caf::sec::request_receiver_down;
}

bool is_silence(const caf::error& why) {
  return came_too_late(why) || why.category() == caf::atom("exit");
}

error from_caf(const caf::error& why) {
  if (why.category() == category) {
    const auto& context = why.context();
    const auto code = static_cast<errc>(why.code());
    if (context.match_elements<std::string, std::uint32_t>())
      return {code, context.get_as<std::string>(0), context.get_as<std::uint32_t>(1)};
    return {code, context.match_elements<std::string>() ? context.get_as<std::string>(0) : ""};
  }
  if (why == caf::sec::request_timeout)
    return {errc::deadline_exceeded, "there was no answer in time"};
  if (is_silence(why))
    return {errc::sandbox_not_running, "it has just ended"};
  return {errc::internal, caf::deep_to_string(why)};
}

} // namespace insula
