#include "tests/http/client.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/must.hpp"

#include <openssl/ssl.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace insula::test {

client::client(std::uint16_t port, bool tls, const std::string& address)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  must(fd_ >= 0);
  const timeval patience{60, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  must(::inet_pton(AF_INET, address.c_str(), &where.sin_addr) == 1);
  must(::bind(fd_, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0);
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  must(::connect(fd_, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0);
  if (tls) {
    context_ = SSL_CTX_new(TLS_client_method());
    tls_ = SSL_new(context_);
    SSL_set_fd(tls_, fd_);
    must(SSL_connect(tls_) == 1);
  }
}

client::~client() {
  close();
}

void client::close() {
  if (tls_ != nullptr)
    SSL_free(std::exchange(tls_, nullptr));
  if (context_ != nullptr)
    SSL_CTX_free(std::exchange(context_, nullptr));
  if (fd_ >= 0)
    ::close(std::exchange(fd_, -1));
}

std::string client::shown() const {
  X509* const certificate = tls_ != nullptr ? SSL_get1_peer_certificate(tls_) : nullptr;
  char name[256] = {};
  if (certificate != nullptr)
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name,
                              sizeof name);
  X509_free(certificate);
  return name;
}

bool client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = tls_ != nullptr ? SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size()))
                                   : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0)
      return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool client::fill() {
  std::array<char, 64 * 1024> bytes{};
  const auto n = tls_ != nullptr ? SSL_read(tls_, bytes.data(), static_cast<int>(bytes.size()))
                                 : ::recv(fd_, bytes.data(), bytes.size(), 0);
  if (n > 0)
    buffer_.append(bytes.data(), static_cast<std::size_t>(n));
  return n > 0;
}

std::string client::read(std::size_t count) {
  while (buffer_.size() < count && fill()) {
  }
  auto got = buffer_.substr(0, count);
  buffer_.erase(0, got.size());
  return got;
}

std::string client::read_until(std::string_view mark) {
  std::size_t at = 0;
  while ((at = buffer_.find(mark)) == std::string::npos) {
    if (!fill())
      return std::exchange(buffer_, {});
  }
  return read(at + mark.size());
}

std::string client::chunk() {
  const auto line = read_until("\r\n");
  if (line.size() < 3)
    return {};
  const auto size = std::stoul(line, nullptr, 16);
  auto bytes = read(size);
  read(2);
  return bytes.size() == size ? bytes : std::string{};
}

bool client::at_end() {
  return buffer_.empty() && !fill();
}

answer client::receive(bool head_only) {
  answer got;
  const auto line = read_until("\r\n");
  if (line.size() < 12)
    return got;
  got.status = std::stoi(line.substr(9, 3));
  for (auto field = read_until("\r\n"); field.size() > 2; field = read_until("\r\n")) {
    auto name = field.substr(0, field.find(':'));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    got.fields[name] = field.substr(name.size() + 2, field.size() - name.size() - 4);
  }
  if (head_only || got.status == 204 || got.status == 100) {
    got.complete = true;
  } else if (got.fields.count("transfer-encoding") != 0) {
    for (;;) {
      const auto size_line = read_until("\r\n");
      if (size_line.size() < 3)
        return got;
      const auto size = std::stoul(size_line, nullptr, 16);
      got.body += read(size);
      if (read(2).size() < 2)
        return got;
      if (size == 0)
        break;
    }
    got.complete = true;
  } else if (got.fields.count("content-length") != 0) {
    const auto size = std::stoul(got.fields["content-length"]);
    got.body = read(size);
    got.complete = got.body.size() == size;
  } else {
    while (fill()) {
    }
    got.body = std::exchange(buffer_, {});
    got.complete = true;
  }
  return got;
}

std::string request(std::string_view method, std::string_view target, std::string_view body,
                    std::string_view fields) {
  std::string text{method};
  text += ' ';
  text += target;
  text += " HTTP/1.1\r\nHost: localhost\r\n";
  text += fields;
  if (!body.empty() || method == "POST" || method == "PUT")
    text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  text += "\r\n";
  text += body;
  return text;
}

int other_end(int fd) {
  const auto ports = [](int of) {
    sockaddr_in here{}, there{};
    socklen_t size = sizeof here, other_size = sizeof there;
    const bool both = ::getsockname(of, reinterpret_cast<sockaddr*>(&here), &size) == 0 &&
                      ::getpeername(of, reinterpret_cast<sockaddr*>(&there), &other_size) == 0 &&
                      here.sin_family == AF_INET;
    return both ? std::pair{here.sin_port, there.sin_port} : std::pair{in_port_t{}, in_port_t{}};
  };
  const auto [here, there] = ports(fd);
  constexpr int most = 4096;
  for (int other = 0; other < most; ++other)
    if (ports(other) == std::pair{there, here})
      return other;
  return -1;
}

bool takes_more(int fd) {
  pollfd ready{fd, POLLOUT, 0};
  return ::poll(&ready, 1, 0) == 1;
}

answer ask(std::uint16_t port, std::string_view method, std::string_view target,
           std::string_view body, std::string_view fields) {
  client one{port};
  one.send(request(method, target, body, fields));
  return one.receive(method == "HEAD");
}

} // namespace insula::test
