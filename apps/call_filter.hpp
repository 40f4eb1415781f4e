#pragma once

#include "base/error.hpp"

#include <memory>
#include <seccomp.h>
#include <set>
#include <span>
#include <string>

namespace insula {

/// The system calls that this process makes from some moment on, in all of its threads. A call that
/// is on no list fails with ENOSYS, as one that the kernel does not know, so that a library takes
/// another way; those that lead out of a process fail with EPERM. Nobody takes a filter away again,
/// and a program that would gain rights gains none.
class call_filter {
public:
  /// `whose`: for errors, such as "the server".
  explicit call_filter(std::string whose);

  /// By their names. This machine's architecture or libseccomp need not know all of them.
  void allow(std::span<const char* const> names);
  /// With an argument like this.
  void allow(int call, scmp_arg_cmp which);
  void allow(int call, scmp_arg_cmp which, scmp_arg_cmp and_which);

  /// Errors: io_failed, also where the filter would not hold for every thread.
  result<void> load();

private:
  struct release {
    void operator()(void* context) const { ::seccomp_release(context); }
  };

  const std::string whose_;
  std::unique_ptr<void, release> filter_;
  std::set<int> by_argument_; ///< Calls that are allowed with some arguments.
  bool good_ = true;
};

} // namespace insula
