// The first bytes of a connection out of a sandbox, in pieces: what is found early is not found
// otherwise later.
#include "runtime/egress/hello.hpp"
#include "runtime/egress/policy.hpp"
#include "tests/fuzz/bytes.hpp"

using namespace insula::fuzz;
using namespace insula::runtime::egress;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  const std::size_t step = 1 + from.plain<std::uint8_t>();
  const auto text = from.rest();
  for (const auto read : {&read_client_hello, &read_http_host}) {
    const auto whole = read(text);
    must(whole.is == hello_name::state::found
           ? whole.name == plain_name(whole.name) && !whole.name.empty()
           : whole.name.empty(),
         "a name is as it is compared");
    for (std::size_t cut = 0; cut < text.size(); cut += step) {
      const auto early = read(text.substr(0, cut));
      must(early.is != hello_name::state::found || early.name == whole.name,
           "a name that was found stays");
      must(early.is != hello_name::state::none || whole.is == hello_name::state::none,
           "what has no name gets none");
    }
  }
  return 0;
}
