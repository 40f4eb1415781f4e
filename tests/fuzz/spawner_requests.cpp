// A server's packet, as the spawner reads and checks it.
#include "runtime/gateway/protocol.hpp"
#include "runtime/spawner/request_check.hpp"
#include "tests/fuzz/bytes.hpp"

#include <algorithm>
#include <string>
#include <vector>

using namespace insula::fuzz;
using namespace insula::runtime::spawner;

namespace {

/// The slow way: by its parts.
bool is_plain_path(const std::string& path) {
  if (path.empty() || path.front() != '/' || path.back() == '/' || path.size() > max_mount_path)
    return false;
  const auto has = [&](const std::string& part) { return (path + "/").find(part) != path.npos; };
  return !has("//") && !has("/./") && !has("/../");
}

bool is_an_images(const std::string& name) {
  if (name == "host")
    return true;
  return name.size() > 6 && name.size() <= 26 && name.compare(0, 6, ".tree-") == 0 &&
         std::all_of(name.begin() + 6, name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void must_be_in_order(const request& wanted, std::string_view text, std::size_t fds) {
  const auto& most = wanted.ceilings;
  switch (wanted.what) {
    case op::create:
      must(is_an_images(wanted.tree), "a tree is one of an image's");
      must(wanted.flags <= 7, "a create has no other flags");
      [[fallthrough]];
    case op::claim:
      must(std::max({most.memory_bytes, most.disk_bytes, most.shm_bytes}) <= max_bytes &&
             most.cpu_percent <= max_cpu_percent && most.processes <= max_processes &&
             most.open_files <= max_open_files,
           "no ceiling is too high");
      break;
    case op::hold:
      must(fds <= max_held_fds && text.size() <= max_label, "no more is held than there is room");
      return;
    case op::charge_logs: must(wanted.name <= max_bytes, "no charge is too high"); break;
    case op::open_sockets:
      must(wanted.count >= 1 && wanted.count <= max_fds, "sockets fit into one packet");
      break;
    case op::mount: {
      must(wanted.flags < 16 && wanted.owner < uids_per_slot && wanted.count <= max_cache_mib,
           "a mount's numbers are known");
      const auto words = read_mount(text);
      must(words.has_value(), "a mount can be read");
      must(is_plain_path(words->path), "a mount's path leads down");
      must(!words->argv.empty() && (words->argv[0] == "s3fs" || words->argv[0] == "rclone"),
           "a mount's program is known");
      must(!words->reach.empty() && words->reach.size() <= insula::runtime::gateway::max_reach,
           "the gateway is told something of a mount");
      std::string again;
      for (const auto* each :
           {&words->path, &words->source, &words->type, &words->secret, &words->reach})
        (again += *each) += '\0';
      for (const auto& each : words->argv)
        (again += each) += '\0';
      must(text.substr(0, again.size()) == again &&
             text.substr(again.size()).find('\0') == text.npos,
           "all of a mount's words are read");
      break;
    }
    default: break;
  }
  must(fds == 0, "only what is held comes with descriptors");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The first byte is how many descriptors came; the packet is exactly so long.
  if (size == 0)
    return 0;
  const std::size_t fds = data[0] % 20;
  const std::vector<char> packet{data + 1, data + size};
  const auto read = read_request({packet.data(), packet.size()});
  must(!read || packet.size() >= sizeof(request), "nothing is read that is not there");
  if (!read)
    return 0;
  const auto& wanted = read->wanted;
  must(wanted.slot < max_slots, "a slot is one that there is");
  must(std::string{wanted.host_name}.size() < max_host_name &&
         std::string{wanted.tag}.size() < max_tag &&
         std::string{wanted.tree}.size() < max_tree_name,
       "strings end in their places");
  must(read->text.size() == packet.size() - sizeof(request) && read->text.size() <= max_text,
       "the text is what is left");
  const int why = check(wanted, read->text, fds);
  must(why == 0 || why == EINVAL || (why == EPERM && wanted.what == op::create),
       "what is refused is refused with a reason");
  if (why == 0)
    must_be_in_order(wanted, read->text, fds);
  return 0;
}
