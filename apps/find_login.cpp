#include "apps/find_login.hpp"

#include "apps/child_process.hpp"
#include "apps/room_protocol.hpp"
#include "base/unique_fd.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace insula {

namespace {

using namespace std::chrono_literals;
namespace registry = storage::registry;
using found_login = registry::credentials::found;

constexpr auto end_patience = 1s; ///< Of a process that has said all.

/// Before the texts of a login, one behind the other, or the words of an error.
struct login_head {
  std::uint32_t code; ///< Of an error. 0: there is none.
  std::array<std::uint32_t, 4> sizes;
};

std::array<std::string*, 4> texts_of(found_login& of) {
  return {&of.who.user, &of.who.password, &of.who.identity_token, &of.helper};
}

void tell(int way, result<found_login> what) {
  login_head head{};
  std::string text;
  if (what)
    for (std::size_t i = 0; const auto* each : texts_of(*what)) {
      head.sizes[i++] = static_cast<std::uint32_t>(each->size());
      text += *each;
    }
  if (text.size() > room_protocol::longest_text)
    what = error{errc::payload_too_large, "the login has more than 64 KiB"};
  if (!what) {
    head.code = static_cast<std::uint32_t>(what.reason().code);
    text = what.reason().message;
  }
  room_protocol::send_packet(way, head, text);
}

found_login read(const login_head& head, std::string_view text) {
  found_login made;
  for (std::size_t i = 0; auto* each : texts_of(made)) {
    *each = text.substr(0, head.sizes[i++]);
    text.remove_prefix(each->size());
  }
  return made;
}

} // namespace

result<found_login> find_login(const std::map<std::string, std::string>& variables,
                               const registry::image_reference& image) {
  const auto failed = [] {
    return error{errc::io_failed, std::string{"looking for a login: "} + std::strerror(errno)};
  };
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return failed();
  const unique_fd way{ends[0]};
  unique_fd theirs{ends[1]};
  const auto process = ::fork();
  if (process < 0)
    return failed();
  if (process == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    const auto known = registry::read_credentials(variables);
    tell(theirs.get(), known ? result<found_login>{known->find(image)} : known.reason());
    ::_exit(0);
  }
  child_process child{process};
  theirs.reset();
  const auto got = room_protocol::receive_packet<login_head>(way.get());
  child.take_end(end_patience);
  if (!got)
    return error{errc::io_failed, "the process that looks for a login has ended"};
  if (got->first.code != 0)
    return error{static_cast<errc>(got->first.code), got->second};
  return read(got->first, got->second);
}

} // namespace insula
