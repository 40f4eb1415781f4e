// What comes out of a sandbox, or from a resolver, as a message of the DNS. The first byte decides
// as what it is read.
#include "runtime/egress/dns.hpp"
#include "runtime/egress/policy.hpp"
#include "tests/fuzz/bytes.hpp"

#include <string>

using namespace insula::fuzz;
using namespace insula::runtime::egress;

namespace {

void read_as_question(std::string_view text) {
  const auto asked = dns::read_question(text);
  if (!asked)
    return;
  must(asked->name.size() <= 253, "a name has its length");
  must(asked->name == plain_name(asked->name), "a name is as it is compared");
  must(asked->udp_bytes >= dns::plain_udp && asked->udp_bytes <= dns::largest_udp,
       "a datagram has its size");
  const auto ours = dns::forward(*asked, 7);
  const auto again = dns::read_question(ours);
  must(again && again->name == asked->name && again->type == asked->type,
       "what is asked on is the same question");
  for (const auto& answer :
       {dns::write_status(*asked, dns::status::refused), dns::write_truncated(*asked),
        dns::write_addresses(*asked, {ip_address{}, ip_address{ip_address::ipv4_bytes{9, 9, 9, 9}}},
                             60)}) {
    const auto said = dns::read_reply(answer, dns::forward(*asked, asked->id));
    must(said && said->repeats && said->id == asked->id, "what we answer is an answer to it");
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  const auto as = from.plain<std::uint8_t>();
  const auto text = from.rest();
  if (as % 2 == 0) {
    read_as_question(text);
    return 0;
  }
  const auto asked = dns::write_question(0x1234, "a.example", dns::type_a);
  if (const auto said = dns::read_reply(text, asked)) {
    must(said->addresses.size() <= 32, "addresses have a ceiling");
    must(said->repeats || said->addresses.empty(), "only an answer to the question counts");
  }
  return 0;
}
