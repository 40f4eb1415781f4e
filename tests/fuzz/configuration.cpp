// cluster.yaml, then a NUL, then lines of the environment: NAME=value.
#include "apps/config.hpp"
#include "tests/fuzz/bytes.hpp"

#include <string>
#include <sys/mman.h>
#include <unistd.h>

using namespace insula;
using namespace insula::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  const auto text = from.until('\0');
  environment env;
  while (!from.empty()) {
    const auto whole = from.until('\n');
    const auto sign = whole.find('=');
    if (sign != std::string_view::npos)
      env[std::string{whole.substr(0, sign)}] = whole.substr(sign + 1);
  }
  const int file = ::memfd_create("cluster.yaml", MFD_CLOEXEC);
  must(file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()),
       "there is a file");
  const auto values = load_config("/proc/self/fd/" + std::to_string(file), env);
  ::close(file);
  if (values)
    must(static_cast<bool>(check(*values)), "what was loaded goes together");
  else
    must(!values.reason().message.empty(), "a refusal says why");
  return 0;
}
