// Stands in for the fuzzer where there is none: gives every file of the directories it is told to
// the target, once.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/resource.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

/// No input may cost more than this; sanitizers have maps that count as memory, and ceilings of
/// their own.
void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlimit ceiling{4ull << 30, 4ull << 30};
  ::setrlimit(RLIMIT_AS, &ceiling);
#endif
}

} // namespace

int main(int argc, char** argv) {
  limit_memory();
  int seen = 0;
  for (int i = 1; i < argc; ++i)
    for (const auto& file : std::filesystem::directory_iterator{argv[i]}) {
      std::ifstream from{file.path(), std::ios::binary};
      const std::string bytes{std::istreambuf_iterator<char>{from}, {}};
      std::printf("%s\n", file.path().c_str());
      std::fflush(stdout); // The last name is that of the input that ended this.
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++seen;
    }
  std::printf("%d inputs\n", seen);
  return seen > 0 ? 0 : 1;
}
