#pragma once

#include "tests/support/child_program.hpp"
#include "tests/support/temp_dir.hpp"

#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

namespace insula::test {

/// An internet of the test's own: the calling thread gets a network with 203.0.113.1 and
/// 2001:db8::1, and behind it is another one with the sites of network_sites.py at 203.0.113.2,
/// 203.0.113.3 and 2001:db8::2. Whatever the thread starts from then on is in its network. Both are
/// gone with the test's process. Needs root, iproute2 and openssl.
class internet {
public:
  explicit internet(const std::string& sites_script);
  ~internet();
  internet(const internet&) = delete;
  internet& operator=(const internet&) = delete;

  static constexpr const char* resolver = "203.0.113.2";

  /// The words of a program that runs where the sites are.
  std::vector<std::string> beside_sites(std::vector<std::string> argv) const;

private:
  temp_dir files_;
  pid_t far_ = -1; ///< Whose network the other one is.
  std::unique_ptr<child_program> sites_;
};

} // namespace insula::test
