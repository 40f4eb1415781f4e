#include "http/preview/tunnel.hpp"

#include "http/proxy/byte_tunnel.hpp"

namespace insula::http::preview {

void tunnel(std::shared_ptr<connection> client, std::shared_ptr<upstream> server,
            std::string first) {
  std::make_shared<byte_tunnel<upstream>>(std::move(client), std::move(server))
    ->start(std::move(first));
}

} // namespace insula::http::preview
