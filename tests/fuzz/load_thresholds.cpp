// What a run has to reach.
#include "benchmarks/load/reports.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/load/made_run.hpp"

using namespace insula;
using namespace insula::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto all = test::made_run();
  const auto made = load::judge_text(std::string{text_of(data, size)}, "limits.yaml", all);
  if (!made) {
    must(made.reason().message.starts_with("limits.yaml"), "a refusal names the file");
    return 0;
  }
  bool passed = true;
  for (const auto& line : made->lines) {
    must(line.starts_with("met ") || line.starts_with("MISSED "), "each line says how it went");
    passed = passed && line.starts_with("met ");
  }
  must(passed == made->passed, "it passes when nothing is missed");
  return 0;
}
