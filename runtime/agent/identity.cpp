#include "runtime/agent/identity.hpp"

#include <cerrno>
#include <grp.h>
#include <unistd.h>

namespace insula::runtime::agent {

bool become_user(std::uint32_t uid, std::uint32_t gid) {
  if (uid >= ids_of_sandbox || gid >= ids_of_sandbox) {
    errno = EINVAL;
    return false;
  }
  if (::setgroups(0, nullptr) != 0 || ::setresgid(gid, gid, gid) != 0 ||
      ::setresuid(uid, uid, uid) != 0)
    return false;
  uid_t users[3];
  gid_t groups[3];
  if (::getresuid(&users[0], &users[1], &users[2]) != 0 ||
      ::getresgid(&groups[0], &groups[1], &groups[2]) != 0)
    return false;
  bool is_it = ::getgroups(0, nullptr) == 0;
  for (int i = 0; i < 3; ++i)
    is_it = is_it && users[i] == uid && groups[i] == gid;
  errno = EPERM;
  return is_it;
}

} // namespace insula::runtime::agent
