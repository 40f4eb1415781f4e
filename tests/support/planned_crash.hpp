#pragma once

#include <cstdlib>
#include <string>

namespace insula::test {

/// Servers that are started while it is there kill themselves at the step.
class planned_crash {
public:
  explicit planned_crash(const std::string& step) { ::setenv("INSULA_FAILPOINT", step.c_str(), 1); }
  ~planned_crash() { ::unsetenv("INSULA_FAILPOINT"); }
};

} // namespace insula::test
