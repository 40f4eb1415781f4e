#pragma once

#include "base/error.hpp"
#include "benchmarks/load/pattern.hpp"
#include "benchmarks/load/task.hpp"
#include "benchmarks/load/url.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::load {

/// The words for how a request can fail beside "status 503" and the like.
namespace failure {
inline constexpr const char* refused = "refused"; ///< No connection could be made.
inline constexpr const char* cut = "cut";         ///< The connection ended before the answer did.
inline constexpr const char* timeout = "timeout"; ///< The request's time was over.
inline constexpr const char* tls = "no TLS";      ///< No agreement about the encryption.
inline constexpr const char* malformed = "bad answer"; ///< Not HTTP, or not what the contract says.
inline constexpr const char* wrong_bytes = "wrong bytes";     ///< Not what was written or expected.
inline constexpr const char* no_files = "no open files left"; ///< The client's own fault.
/// The run has ended before the request did. It is nobody's failure and is counted apart.
inline constexpr const char* let_go = "let go";
} // namespace failure

struct http_request {
  std::string_view method; ///< A literal.
  std::string target;      ///< Behind the base URL's prefix.
  std::string session;     ///< The shell that it is for; empty: none.
  std::string body;
  std::optional<pattern> upload; ///< In place of `body`.
  /// Is given the body of an answer with status 200 piece by piece; without it, and of all other
  /// answers, the first 64 KiB are kept.
  std::function<void(std::string_view)> on_body;
  std::chrono::milliseconds patience{30'000}; ///< For all of it, the connection included.
  bool with_key = true;
  bool cleaning_up = false; ///< Goes out although the run has ended.
};

struct http_answer {
  int status = 0;
  std::string failure; ///< Empty: a whole answer has come, whatever its status.
  std::string body;
  std::uint64_t body_bytes = 0;
};

struct client_options {
  base_url url;
  std::string key;
  bool insecure = false; ///< Any certificate will do.
  std::string ca_file;   ///< Beside the system's own authorities.
};

/// Where the URL leads to. Errors: io_failed.
result<std::vector<asio::ip::tcp::endpoint>> look_up(const base_url& url);

/// Kept connections of one thread to one server, as many as are needed at the same time. All of it
/// belongs to the thread that runs `io`.
class http_client {
public:
  /// Throws boost::system::system_error if the options of TLS are no good.
  http_client(asio::io_context& io, const client_options& options,
              std::vector<asio::ip::tcp::endpoint> endpoints);
  ~http_client();
  http_client(const http_client&) = delete;
  http_client& operator=(const http_client&) = delete;

  task<http_answer> ask(http_request request);

  /// To be called some times in a second: ends what has no time left.
  void look_at_deadlines(clock::time_point now);
  /// From now on requests are let go unless they clean up; those under way have until then.
  void let_go_at(clock::time_point when);
  /// Takes let_go_at() back.
  void go_on() { ending_.reset(); }

  std::size_t under_way() const { return busy_.size(); }
  bool ran_out_of_files() const { return ran_out_of_files_; }
  /// What the last connection that could not be made said.
  const std::string& last_trouble() const { return last_trouble_; }

private:
  friend class web_socket; // It begins as one of its connections.
  struct connection;
  class in_use;

  task<std::string> connect(connection& made);
  task<http_answer> exchange(connection& with, http_request& request);
  std::unique_ptr<connection> take_idle();
  std::string head_of(const http_request& request) const;
  const char* why_ended(const connection& which, const char* otherwise) const;

  asio::io_context& io_;
  const client_options options_;
  const std::vector<asio::ip::tcp::endpoint> endpoints_;
  std::optional<asio::ssl::context> tls_;
  std::string fields_; ///< The same ones of every request.
  std::string key_field_;
  std::vector<std::unique_ptr<connection>> idle_;
  std::vector<connection*> busy_;
  std::optional<clock::time_point> ending_;
  bool ran_out_of_files_ = false;
  std::string last_trouble_;
};

} // namespace insula::load
