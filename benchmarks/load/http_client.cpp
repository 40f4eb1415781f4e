#include "benchmarks/load/http_connection.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/http/basic_parser.hpp>

#include <algorithm>
#include <cstring>

namespace insula::load {

namespace {

namespace ssl = asio::ssl;
namespace http = boost::beast::http;
using asio::ip::tcp;
using text_view = boost::beast::string_view;

constexpr std::size_t kept_body = 64 * 1024;
constexpr std::size_t read_size = 32 * 1024;

/// Hands the body out as it comes, without a copy.
class answer_parser : public http::basic_parser<false> {
public:
  answer_parser(http_answer& into, const std::function<void(std::string_view)>& on_body)
      : into_(into)
      , on_body_(on_body) {
    eager(true);
    body_limit(boost::none);
  }

private:
  void take(text_view bytes) {
    into_.body_bytes += bytes.size();
    if (on_body_ && into_.status == 200)
      on_body_({bytes.data(), bytes.size()});
    else if (into_.body.size() < kept_body)
      into_.body.append(bytes.data(), std::min(bytes.size(), kept_body - into_.body.size()));
  }

  void on_request_impl(http::verb, text_view, text_view, int, error_code&) override {}
  void on_response_impl(int status, text_view, int, error_code&) override { into_.status = status; }
  void on_field_impl(http::field, text_view, text_view, error_code&) override {}
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(text_view bytes, error_code&) override {
    take(bytes);
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t, text_view, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, text_view bytes, error_code&) override {
    take(bytes);
    return bytes.size();
  }
  void on_finish_impl(error_code&) override {}

  http_answer& into_;
  const std::function<void(std::string_view)>& on_body_;
};

} // namespace

result<std::vector<tcp::endpoint>> look_up(const base_url& url) {
  asio::io_context io;
  tcp::resolver resolver{io};
  error_code failed;
  const auto found = resolver.resolve(url.host, std::to_string(url.port), failed);
  if (failed)
    return error{errc::io_failed, "there is no host " + url.host + ": " + failed.message()};
  std::vector<tcp::endpoint> all;
  for (const auto& each : found)
    all.push_back(each.endpoint());
  return all;
}

http_client::http_client(asio::io_context& io, const client_options& options,
                         std::vector<tcp::endpoint> endpoints)
    : io_(io)
    , options_(options)
    , endpoints_(std::move(endpoints)) {
  if (options_.url.tls) {
    tls_.emplace(ssl::context::tls_client);
    if (options_.insecure) {
      tls_->set_verify_mode(ssl::verify_none);
    } else {
      tls_->set_verify_mode(ssl::verify_peer);
      tls_->set_default_verify_paths();
      tls_->set_verify_callback(ssl::host_name_verification{options_.url.host});
      if (!options_.ca_file.empty())
        tls_->load_verify_file(options_.ca_file);
    }
  }
  fields_ = " HTTP/1.1\r\nHost: " + options_.url.authority() +
            "\r\nUser-Agent: insula-bench\r\nAccept: */*\r\n";
  if (!options_.key.empty())
    key_field_ = "Authorization: Bearer " + options_.key + "\r\n";
}

http_client::~http_client() = default;

std::string http_client::head_of(const http_request& request) const {
  std::string head;
  head.reserve(256);
  head.append(request.method).append(" ").append(options_.url.prefix).append(request.target);
  head += fields_;
  if (request.with_key)
    head += key_field_;
  if (!request.session.empty())
    head.append("Session-Id: ").append(request.session).append("\r\n");
  const auto size = request.upload ? request.upload->size() : request.body.size();
  if (request.upload)
    head += "Content-Type: application/octet-stream\r\n";
  else if (size > 0)
    head += "Content-Type: application/json\r\n";
  if (request.method != "GET" && request.method != "DELETE")
    head.append("Content-Length: ").append(std::to_string(size)).append("\r\n");
  return head += "\r\n";
}

const char* http_client::why_ended(const connection& which, const char* otherwise) const {
  return which.ended_because != nullptr ? which.ended_because : otherwise;
}

std::unique_ptr<http_client::connection> http_client::take_idle() {
  while (!idle_.empty()) {
    auto found = std::move(idle_.back());
    idle_.pop_back();
    // The server may have closed it meanwhile, which is its right and no failure.
    if (!found->has_ended())
      return found;
  }
  return nullptr;
}

task<std::string> http_client::connect(connection& made) {
  error_code failed;
  for (const auto& each : endpoints_) {
    failed = {};
    made.socket.close(failed);
    made.socket.open(each.protocol(), failed);
    if (!failed)
      co_await made.socket.async_connect(each, into(failed));
    if (!failed || made.ended_because != nullptr)
      break;
  }
  if (failed || made.ended_because != nullptr) {
    last_trouble_ = failed.message();
    if (failed.value() == EMFILE || failed.value() == ENFILE) {
      ran_out_of_files_ = true;
      co_return failure::no_files;
    }
    co_return why_ended(made, failure::refused);
  }
  made.socket.set_option(tcp::no_delay{true}, failed);
  if (!tls_)
    co_return std::string{};
  made.encrypted.emplace(made.socket, *tls_);
  ::SSL_set_tlsext_host_name(made.encrypted->native_handle(), options_.url.host.c_str());
  co_await made.encrypted->async_handshake(ssl::stream_base::client, into(failed));
  if (failed) {
    last_trouble_ = failed.message();
    co_return why_ended(made, failure::tls);
  }
  co_return std::string{};
}

task<http_answer> http_client::exchange(connection& with, http_request& request) {
  http_answer got;
  error_code unsent, failed;
  const auto head = head_of(request);
  const auto size = request.upload ? request.upload->size() : request.body.size();
  const auto piece_at = [&request](std::uint64_t offset) {
    return request.upload ? request.upload->at(offset) : std::string_view{request.body};
  };
  std::uint64_t offset = 0;
  std::string_view front = head;
  do {
    const auto piece = piece_at(offset);
    const connection::buffers both{asio::buffer(front), asio::buffer(piece)};
    co_await with.write(both, unsent);
    offset += piece.size();
    front = {};
  } while (!unsent && offset < size);

  // Also when not everything could be sent: a server may say no before it has heard everything.
  answer_parser parser{got, request.on_body};
  while (!parser.is_done()) {
    if (with.filled == with.bytes.size()) {
      got.failure = failure::malformed; // A head that has no end.
      co_return got;
    }
    co_await with.read(failed);
    if (failed == asio::error::eof || failed == ssl::error::stream_truncated) {
      failed = {};
      if (parser.got_some())
        parser.put_eof(failed);
      if (failed || !parser.is_done())
        got.failure = why_ended(with, failure::cut);
      co_return got;
    }
    if (failed) {
      got.failure = why_ended(with, failure::cut);
      co_return got;
    }
    while (with.filled > 0 && !parser.is_done()) {
      const auto used = parser.put(asio::buffer(with.bytes.data(), with.filled), failed);
      std::memmove(with.bytes.data(), with.bytes.data() + used, with.filled - used);
      with.filled -= used;
      if (failed == http::error::need_more)
        break;
      if (failed) {
        got.failure = failure::malformed;
        co_return got;
      }
    }
  }
  if (unsent || !parser.keep_alive() || with.filled > 0)
    with.end(nullptr);
  co_return got;
}

task<http_answer> http_client::ask(http_request request) {
  http_answer got;
  const auto now = clock::now();
  if (ending_ && !request.cleaning_up) {
    got.failure = failure::let_go;
    co_return got;
  }
  auto used = take_idle();
  const bool fresh = !used;
  if (fresh) {
    used = std::make_unique<connection>(io_);
    used->bytes.resize(read_size);
  }
  used->deadline = now + request.patience;
  used->cleaning_up = request.cleaning_up;
  {
    const in_use counted{*this, *used};
    if (fresh)
      got.failure = co_await connect(*used);
    if (got.failure.empty())
      got = co_await exchange(*used, request);
  }
  if (got.failure.empty() && used->socket.is_open())
    idle_.push_back(std::move(used));
  co_return got;
}

void http_client::look_at_deadlines(clock::time_point now) {
  for (auto* each : busy_) {
    if (each->ended_because != nullptr)
      continue;
    if (now >= each->deadline)
      each->end(failure::timeout);
    else if (ending_ && now >= *ending_ && !each->cleaning_up)
      each->end(failure::let_go);
  }
}

void http_client::let_go_at(clock::time_point when) {
  ending_ = when;
}

} // namespace insula::load
