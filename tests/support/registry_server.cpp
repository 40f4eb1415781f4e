#include "tests/support/registry_server.hpp"

#include "storage/images/digest.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cctype>
#include <csignal>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <optional>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

namespace insula::test {

class registry_server::connection final : public client {
public:
  connection(unique_fd socket, SSL_CTX* tls, const std::atomic<bool>& ends)
      : socket_(std::move(socket))
      , ends_(ends) {
    if (tls == nullptr)
      return;
    tls_ = ::SSL_new(tls);
    ::SSL_set_fd(tls_, socket_.get());
  }
  ~connection() override {
    if (thread.joinable())
      thread.join();
    if (tls_ != nullptr)
      ::SSL_free(tls_);
  }
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  bool send(std::string_view bytes) override {
    while (!bytes.empty()) {
      const auto n = tls_ != nullptr
                       ? ::SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size()))
                       : ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0)
        return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  void hang() override {
    // What a client may still say is of no interest; that it goes is.
    std::array<char, 256> piece;
    while (!ends_ && ::recv(socket_.get(), piece.data(), piece.size(), 0) > 0) {
    }
    closed_ = true;
  }

  void close() override {
    closed_ = true;
    ::shutdown(socket_.get(), SHUT_RDWR);
  }

  std::optional<request> receive() {
    std::size_t end = 0;
    while ((end = text_.find("\r\n\r\n")) == std::string::npos)
      if (closed_ || !fill())
        return std::nullopt;
    request made;
    auto head = text_.substr(0, end + 2);
    text_.erase(0, end + 4);
    const auto first = head.find(' '), second = head.find(' ', first + 1);
    made.method = head.substr(0, first);
    made.target = head.substr(first + 1, second - first - 1);
    for (auto at = head.find("\r\n") + 2; at < head.size();) {
      const auto line_end = head.find("\r\n", at), colon = head.find(':', at);
      auto name = head.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      made.fields[name] = head.substr(colon + 2, line_end - colon - 2);
      at = line_end + 2;
    }
    const auto length = made.field("content-length");
    const auto size = length.empty() ? 0 : std::stoul(length);
    while (text_.size() < size)
      if (!fill())
        return std::nullopt;
    made.body = text_.substr(0, size);
    text_.erase(0, size);
    return made;
  }

  bool shake_hands() { return tls_ == nullptr || ::SSL_accept(tls_) == 1; }

  std::thread thread;

private:
  bool fill() {
    std::array<char, 4096> piece;
    const auto n = tls_ != nullptr ? ::SSL_read(tls_, piece.data(), piece.size())
                                   : ::recv(socket_.get(), piece.data(), piece.size(), 0);
    if (n <= 0)
      return false;
    text_.append(piece.data(), static_cast<std::size_t>(n));
    return tls_ != nullptr || text_.front() != '\x16'; // It speaks TLS.
  }

  unique_fd socket_;
  SSL* tls_ = nullptr;
  const std::atomic<bool>& ends_;
  std::string text_;
  std::atomic<bool> closed_ = false;
};

std::string registry_server::request::field(const std::string& name) const {
  const auto at = fields.find(name);
  return at == fields.end() ? std::string{} : at->second;
}

void registry_server::client::answer(int status, std::string_view body, std::string_view fields) {
  send("HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: " +
       std::to_string(body.size()) + "\r\n" + std::string{fields} + "\r\n" + std::string{body});
}

registry_server::registry_server(script what, const tls_files* tls)
    : script_(std::move(what)) {
  std::signal(SIGPIPE, SIG_IGN); // OpenSSL writes without MSG_NOSIGNAL.
  if (tls != nullptr) {
    auto* const context = ::SSL_CTX_new(::TLS_server_method());
    if (context == nullptr ||
        ::SSL_CTX_use_certificate_file(context, tls->certificate.c_str(), SSL_FILETYPE_PEM) != 1 ||
        ::SSL_CTX_use_PrivateKey_file(context, tls->key.c_str(), SSL_FILETYPE_PEM) != 1)
      throw std::runtime_error("no certificate for a registry");
    tls_ = context;
  }
  listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  auto* const address = reinterpret_cast<sockaddr*>(&where);
  if (::bind(listener_.get(), address, size) != 0 || ::listen(listener_.get(), 64) != 0 ||
      ::getsockname(listener_.get(), address, &size) != 0)
    throw std::runtime_error("no socket for a registry");
  port_ = ntohs(where.sin_port);
  thread_ = std::thread{[this] { accept_all(); }};
}

registry_server::~registry_server() {
  ends_ = true;
  ::shutdown(listener_.get(), SHUT_RDWR);
  thread_.join();
  for (const auto& each : connections_)
    each->close();
  connections_.clear();
  ::SSL_CTX_free(static_cast<SSL_CTX*>(tls_));
}

void registry_server::accept_all() {
  while (!ends_) {
    unique_fd socket{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    if (!socket)
      continue;
    const std::lock_guard hold{guard_};
    connections_.push_back(
      std::make_unique<connection>(std::move(socket), static_cast<SSL_CTX*>(tls_), ends_));
    auto& one = *connections_.back();
    one.thread = std::thread{[this, &one] {
      serve(one);
      one.close();
    }};
  }
}

void registry_server::serve(connection& one) {
  if (!one.shake_hands())
    return;
  while (const auto what = one.receive()) {
    {
      const std::lock_guard hold{guard_};
      requests_.push_back(*what);
    }
    if (!script_ || !script_(*what, one))
      answer_by_rules(*what, one);
  }
}

void registry_server::answer_by_rules(const request& what, client& to) {
  if (what.target == "/v2/")
    return to.answer(200, "{}");
  const auto last = what.target.substr(what.target.rfind('/') + 1);
  if (what.target.find("/manifests/") != std::string::npos) {
    std::unique_lock hold{guard_};
    const auto at = manifests_.find(last);
    if (at == manifests_.end()) {
      hold.unlock();
      return to.answer(404,
                       R"({"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]})");
    }
    const auto found = at->second;
    hold.unlock();
    return to.answer(200, found.text, "Content-Type: " + found.media_type + "\r\n");
  }
  std::optional<std::string> found;
  {
    const std::lock_guard hold{guard_};
    if (const auto at = blobs_.find(last); at != blobs_.end())
      found = at->second;
  }
  if (!found)
    return to.answer(404, R"({"errors":[{"code":"BLOB_UNKNOWN","message":"blob unknown"}]})");
  const auto& bytes = *found;
  const auto range = what.field("range");
  std::size_t from = 0;
  std::string fields;
  int status = 200;
  if (range.starts_with("bytes=")) {
    from = std::stoul(range.substr(6));
    if (from >= bytes.size())
      return to.answer(416);
    status = 206;
    fields = "Content-Range: bytes " + std::to_string(from) + "-" +
             std::to_string(bytes.size() - 1) + "/" + std::to_string(bytes.size()) + "\r\n";
  }
  blob_bytes_ += bytes.size() - from;
  to.answer(status, std::string_view{bytes}.substr(from), fields);
}

std::string registry_server::put_manifest(const std::string& tag, const std::string& text,
                                          const std::string& media_type) {
  auto digest = storage::images::digest_of(text);
  const std::lock_guard hold{guard_};
  manifests_[tag] = manifests_[digest] = {text, media_type};
  return digest;
}

std::string registry_server::put_blob(const std::string& bytes) {
  auto digest = storage::images::digest_of(bytes);
  const std::lock_guard hold{guard_};
  blobs_[digest] = bytes;
  return digest;
}

std::vector<registry_server::request> registry_server::requests() const {
  const std::lock_guard hold{guard_};
  return requests_;
}

std::size_t registry_server::count(std::string_view part_of_target) const {
  const auto all = requests();
  return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [&](const request& each) {
    return each.target.find(part_of_target) != std::string::npos;
  }));
}

} // namespace insula::test
