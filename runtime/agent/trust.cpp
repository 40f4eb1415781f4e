#include "runtime/agent/trust.hpp"

#include "base/inner_places.hpp"
#include "runtime/agent/channel.hpp"
#include "runtime/agent/file_operations.hpp"
#include "runtime/agent/whole_file.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace insula::runtime::agent {

namespace {

/// Where a machine's own programs make the bundle of what is in certain directories.
constexpr const char* anchors[] = {
  "/etc/pki/ca-trust/source/anchors/vercel-proxy-ca.pem",
  "/usr/local/share/ca-certificates/vercel-proxy-ca.pem",
  "/usr/local/share/ca-certificates/vercel-proxy-ca.crt", // update-ca-certificates takes no other.
};
/// Where others have the bundle.
constexpr const char* other_bundles[] = {"/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem",
                                         "/etc/ssl/ca-bundle.pem"};
constexpr std::string_view block_begin = "# Begin of the authority of this sandbox\n",
                           block_end = "# End of the authority of this sandbox\n";
constexpr std::size_t most_bundle_bytes = 4u << 20;

/// The frames that its asker sends. False: they end too early, or are too many.
bool read_frames(int channel, std::string& into) {
  for (;;) {
    frame_head head{};
    if (!receive_all(channel, &head, sizeof head) || head.bytes > max_frame_bytes ||
        into.size() + head.bytes > most_bundle_bytes)
      return false;
    if (head.bytes == 0)
      return true;
    const auto before = into.size();
    into.resize(before + head.bytes);
    if (!receive_all(channel, into.data() + before, head.bytes))
      return false;
  }
}

file_step put(const char* path, std::string_view text, const struct stat& is) {
  char parent[PATH_MAX];
  parent_of(path, parent);
  if (const int why = make_directories(parent); why != 0) {
    errno = why;
    return file_step::parents;
  }
  return write_whole_file(path, text, is);
}

/// Without the authority that was there before, as of the sandbox of which this one is a fork.
void drop_block(std::string& bundle) {
  const auto begin = bundle.find(block_begin);
  if (begin == std::string::npos)
    return;
  const auto end = bundle.find(block_end, begin);
  bundle.erase(begin, end == std::string::npos ? end : end + block_end.size() - begin);
}

file_step trust(std::string_view pem, const std::string& usual) {
  struct stat is {};
  is.st_mode = 0644;
  for (const auto* each : anchors)
    if (const auto failed = put(each, pem, is); failed != file_step::none)
      return failed;
  std::string bundle;
  if (!read_whole_file(trust_bundle, bundle, is))
    return file_step::read;
  for (const auto* each : other_bundles)
    if (bundle.empty() && !read_whole_file(each, bundle, is))
      bundle.clear();
  if (bundle.empty()) {
    is = {};
    is.st_mode = 0644;
    bundle = usual;
  }
  drop_block(bundle);
  if (!bundle.empty() && bundle.back() != '\n')
    bundle += '\n';
  ((bundle += block_begin) += pem) += block_end;
  return put(trust_bundle, bundle, is);
}

} // namespace

void trust_authority(int channel, const char* pem) {
  std::string usual;
  if (!read_frames(channel, usual))
    return;
  ::umask(022);
  file_head head{};
  head.step = static_cast<std::uint32_t>(trust(pem, usual));
  head.error = head.step == 0 ? 0 : errno;
  send_all(channel, &head, sizeof head);
}

} // namespace insula::runtime::agent
