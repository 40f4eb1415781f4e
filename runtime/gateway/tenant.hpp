#pragma once

#include "base/network.hpp"
#include "base/unique_fd.hpp"
#include "runtime/egress/name_table.hpp"
#include "runtime/egress/policy.hpp"
#include "runtime/epoch_fence.hpp"
#include "runtime/gateway/openings.hpp"
#include "runtime/gateway/sockets.hpp"
#include "runtime/gateway/world.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace insula::runtime::gateway {

class broker_link;
class connection;

/// What is refused or fails, as far as it is known when that happens.
struct refused_thing {
  std::string protocol = "tcp";
  std::string name = {};
  std::string address = {};
  std::uint16_t port = 0;
  std::string rule = {};
};

/// Names whose requests a broker carries, and the places to which its rules forward some of them.
struct carried_names {
  std::vector<std::string> domains;
  std::set<std::pair<std::string, std::uint16_t>> forwards;
};

/// Takes the first lines of a question::policy. None: they are wrong.
std::optional<carried_names> take_carried(std::string_view& text);

/// One sandbox, or the program of one of its mounts: what arrives from it, what it may reach and
/// what it has had. Single-threaded. All that is done for it is done in its turn and charged to it.
/// Ceilings: limits::gateway_connections at once, most_questions to the DNS that wait for an
/// answer.
class tenant : public std::enable_shared_from_this<tenant> {
public:
  static constexpr std::size_t most_questions = 256;

  using known_hosts = std::map<std::string, std::vector<egress::ip_address>>;

  /// `sockets` as gateway::op::add has them; those of IPv6 may be missing. It pays as `as` does,
  /// and shares all that has a ceiling with that; null: for itself.
  tenant(world& in, std::vector<unique_fd> sockets, const tenant* as = nullptr);

  /// It is the program of a mount: this holds for as long as it is there, at this port only. No
  /// address is its own. Where `hosts` are the DNS is not asked.
  void confine(const egress_policy& policy, std::uint16_t port, known_hosts hosts);

  /// A question to the DNS for this name is answered with the sandbox's own addresses.
  void set_host_name(std::string name) { host_name_ = std::move(name); }

  void listen();
  void close(); ///< It has gone: everything of it is cut.

  /// Connections for names of the domains that are carried, to the port of HTTPS, are the broker's.
  /// False: it is not changed, since the asker does not hold the sandbox any more, or the tenant is
  /// confined.
  bool set_policy(const egress_policy& policy, std::uint64_t epoch, carried_names carried = {});
  bool has_domains() const { return !carried_.domains.empty(); }
  bool is_carried(std::string_view name) const;
  /// May its broker have a connection there? Empty: yes.
  std::string why_not_for_broker(const std::string& host, std::uint16_t port) const;
  /// Null: there is none now.
  const std::shared_ptr<broker_link>& broker() const { return broker_; }
  void set_broker(unique_fd way);

  /// Null: nobody has said yet what it may reach.
  const std::shared_ptr<const egress::policy>& policy() const { return policy_; }

  /// Counts and remembers it. `let_through`: the policy only tries itself.
  void refused(const refused_thing& what, bool let_through = false);
  /// The same, where nothing is at the other end. What its rule is does not matter.
  void failed(const refused_thing& what, connection_failure how);
  const network_figures& figures();

  world& shared() { return world_; }
  const payer& paid_by() const { return payer_; }
  turns::share& time() { return *payer_.time; }
  egress::name_table& names() { return names_; }
  std::uint64_t& bytes_in() { return figures_.bytes_in; }
  std::uint64_t& bytes_out() { return figures_.bytes_out; }
  void connected() { ++figures_.connections; }
  void over(const std::shared_ptr<connection>& which);

  /// Sends it on: its connection is told when its client is there, mostly before this returns.
  void let_in(const egress::opening& held);
  /// Sends a packet that this opening has written.
  void answer_client(const egress::opening& held, const std::string& packet) const;

  /// Where a name is, as resolver::resolve() tells it.
  void resolve(const std::string& name, std::function<void(const resolver::addresses&)> tell);

  /// Answers a question to the DNS. `room`: of the answer, in bytes. Empty: there is none.
  void answer(std::string_view message, bool by_tcp, std::function<void(std::string)> tell);

private:
  using socket = boost::asio::posix::stream_descriptor;

  void hear();
  void hear_all();
  void take(const egress::opening& held);
  void accept(socket& from);
  void accept_all(socket& from);
  bool accept_some(socket& from);
  void accept_later(socket& from);
  void take(unique_fd client, const socket_address& by);
  void take_questions(unique_fd client);
  std::optional<std::string> why_not(const egress::ip_address& address, std::uint16_t port) const;
  std::string no_place() const;
  std::vector<egress::ip_address> own_addresses() const;
  void receive(socket& from);
  void receive_all(socket& from);
  void reply_real(const egress::dns::question& asked, std::size_t room,
                  std::function<void(std::string)> tell);
  /// Tells the asker that it has failed for now.
  void overload(const egress::dns::question& asked, const std::function<void(std::string)>& tell);

  world& world_;
  const payer payer_;
  std::vector<std::unique_ptr<socket>> streams_, datagrams_;
  std::optional<openings> openings_; ///< None: they are not held.
  std::shared_ptr<const egress::policy> policy_;
  std::optional<std::uint16_t> only_port_; ///< Of one that is confined.
  known_hosts hosts_;                      ///< The same.
  std::string host_name_;
  epoch_fence fence_;
  carried_names carried_;
  std::shared_ptr<broker_link> broker_;
  boost::asio::steady_timer pause_;
  network_figures figures_;
  egress::name_table names_;
  std::set<std::shared_ptr<connection>> connections_;
  /// Of these, those whose client is not there yet.
  std::map<egress::tcp_flow, std::shared_ptr<connection>> held_;
  std::size_t questions_ = 0;
  std::size_t question_streams_ = 0; ///< Each has a place among the connections.
  bool closed_ = false;
};

} // namespace insula::runtime::gateway
