// The bodies of requests to mount a bucket and to unmount one.
#include "base/limits.hpp"
#include "http/bridge/mount_json.hpp"
#include "tests/fuzz/bytes.hpp"

#include <algorithm>

using namespace insula;
using namespace insula::fuzz;
using namespace insula::http;

namespace {

bool has_nul(const std::string& text) {
  return text.find('\0') != std::string::npos;
}

void check(const mount_bucket_request& wanted) {
  must(wanted.path.starts_with('/') && !has_nul(wanted.path), "a path is absolute");
  must(wanted.binding.empty() != wanted.bucket.empty(), "it is a bucket by one of two names");
  must(wanted.binding.empty() || wanted.endpoint.empty(), "a binding has its own endpoint");
  must(!has_nul(wanted.binding) && !has_nul(wanted.bucket) && !has_nul(wanted.endpoint) &&
         !has_nul(wanted.prefix),
       "texts are whole for C as well");
  must(wanted.options.size() <= limits::mount_options, "options have a number");
  for (const auto& each : wanted.options)
    must(each.size() <= limits::mount_option_bytes && !has_nul(each), "an option has a length");
  const auto listed = json::write_mounts({{wanted.path, wanted.binding, wanted.endpoint,
                                           wanted.bucket, wanted.prefix, wanted.read_only, true}});
  must(listed.starts_with(R"({"mounts":[{"mountPath":"/)"), "it can be listed");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = text_of(data, size);
  if (const auto wanted = json::read_mount_body(text))
    check(*wanted);
  else
    must(wanted.reason().code == errc::invalid_request, "a bad body is the client's fault");
  if (const auto gone = json::read_unmount_body(text))
    must(gone->path.starts_with('/') && gone->path.size() > 1,
         "a path to be unmounted is not the root");
  else
    must(gone.reason().code == errc::invalid_request, "a bad body is the client's fault");
  return 0;
}
