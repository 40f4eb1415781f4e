#include "actors/sandbox_state.hpp"

namespace insula::actors::inside_sandbox {

namespace {

const error not_there{errc::internal, "the network is not wired yet"};

} // namespace

void get_network(sandbox_pointer, const request_context&, reply_to<network_state> reply) {
  reply.deliver(to_caf(not_there));
}
void set_network(sandbox_pointer, const set_network_request&, reply_to<network_state> reply) {
  reply.deliver(to_caf(not_there));
}
void change_network(sandbox_pointer, const change_network_request&, reply_to<network_state> reply) {
  reply.deliver(to_caf(not_there));
}
void open_sockets(sandbox_pointer, const open_sockets_request&, reply_to<sandbox_sockets> reply) {
  reply.deliver(to_caf(not_there));
}
void list_ports(sandbox_pointer, const list_ports_request&,
                reply_to<std::vector<listening_port>> reply) {
  reply.deliver(to_caf(not_there));
}

} // namespace insula::actors::inside_sandbox
