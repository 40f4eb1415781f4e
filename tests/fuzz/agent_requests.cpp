// A packet as the agent takes it.
#include "runtime/agent/requests.hpp"
#include "tests/fuzz/bytes.hpp"

#include <memory>

using namespace insula::fuzz;
using namespace insula::runtime::agent;

namespace {

/// The strings of a list, each of which lies in the packet's text.
std::size_t length_of(char** list, const char* begin, const char* end) {
  std::size_t count = 0;
  for (; list[count] != nullptr; ++count)
    must(list[count] >= begin && list[count] + std::strlen(list[count]) < end,
         "a string lies in the packet");
  return count;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // As received: exactly so long, and a NUL behind it that is the agent's own.
  const std::unique_ptr<char[]> packet{new char[size + 1]};
  std::memcpy(packet.get(), data, size);
  packet[size] = '\0';
  const auto* req = request_in(packet.get(), size);
  if (req == nullptr)
    return 0;
  char* const text = packet.get() + sizeof *req;
  const char* const end = packet.get() + size;
  static string_list strings;
  if (read_words(*req, text, strings))
    must(length_of(strings, text, end) == req->argc && strings[0] == text, "the path comes first");
  command wanted;
  if (!read_command(*req, text, strings, wanted))
    return 0;
  must(length_of(wanted.argv, text, end) == req->argc && req->argc > 0, "argv is as long as said");
  must(length_of(wanted.env, text, end) == req->envc, "env is as long as said");
  must(wanted.cwd == text, "the directory comes first");
  return 0;
}
