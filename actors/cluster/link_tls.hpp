#pragma once

#include "actors/cluster/links.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include <memory>
#include <string>

namespace insula::actors::cluster {

using link_stream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;

/// For both ends of a link: TLS 1.3, and a certificate of the cluster's authority from each. No
/// session is ever resumed. Errors: invalid_request, naming the file.
result<std::shared_ptr<boost::asio::ssl::context>> link_context(const link_options& options);

/// The common name in the certificate of the other end, once that is verified. Empty: there is not
/// exactly one.
std::string peer_name(link_stream& stream);

} // namespace insula::actors::cluster
