#include "actors/sandbox_state.hpp"

namespace insula::actors::inside_sandbox {

void mount_bucket(sandbox_pointer, const mount_bucket_request&, reply_to<caf::ok_atom> reply) {
  reply.deliver(to_caf({errc::io_failed, "not built"}));
}
void unmount_bucket(sandbox_pointer, const unmount_bucket_request&, reply_to<caf::ok_atom> reply) {
  reply.deliver(to_caf({errc::io_failed, "not built"}));
}
void list_mounts(sandbox_pointer, const list_mounts_request&,
                 reply_to<std::vector<mounted_bucket>> reply) {
  reply.deliver(std::vector<mounted_bucket>{});
}

} // namespace insula::actors::inside_sandbox
