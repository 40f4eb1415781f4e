#include "benchmarks/nginx_server.hpp"

#include "benchmarks/clock.hpp"
#include "benchmarks/http_client.hpp"
#include "benchmarks/load/interrupt.hpp"

#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <stdexcept>
#include <sys/socket.h>
#include <system_error>
#include <thread>

namespace insula::bench {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto start_patience = 10s;

std::uint16_t free_port() {
  const unique_fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof any;
  auto* address = reinterpret_cast<sockaddr*>(&any);
  if (::bind(socket.get(), address, size) != 0 || ::getsockname(socket.get(), address, &size) != 0)
    throw std::system_error{errno, std::generic_category(), "a free port"};
  return ntohs(any.sin_port);
}

/// One process, which is the worker; nothing is logged, and connections are kept for ever.
std::string configuration(const std::string& directory, std::uint16_t port) {
  std::string text =
    "daemon off;\nmaster_process off;\nworker_processes 1;\npid " + directory +
    "/pid;\nerror_log " + directory +
    "/error.log crit;\nevents { worker_connections 1024; }\nhttp {\n  access_log off;\n" +
    "  keepalive_requests 1000000000;\n  keepalive_timeout 1h;\n";
  for (const char* what : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
    text += std::string{"  "} + what + "_temp_path " + directory + "/" + what + ";\n";
  return text + "  server { listen 127.0.0.1:" + std::to_string(port) +
         "; location / { default_type application/json; return 200 '{\"ok\":true}'; } }\n}\n";
}

} // namespace

nginx_server::nginx_server(const std::string& program, std::string directory)
    : directory_(std::move(directory))
    , port_(free_port()) {
  fs::create_directories(directory_);
  const auto file = directory_ + "/nginx.conf";
  std::ofstream{file} << configuration(directory_, port_);
  process_.emplace(
    child::options{{program, "-p", directory_, "-c", file, "-e", directory_ + "/error.log"},
                   plain_environment(),
                   directory_ + "/log"});
  // It says nothing when it is ready.
  for (const auto until = clock::now() + start_patience;;) {
    load::throw_if_interrupted();
    try {
      connect_to(port_);
      return;
    } catch (const std::system_error&) {
      if (clock::now() > until)
        throw std::runtime_error("nginx does not start; what it said is in " + directory_);
      std::this_thread::sleep_for(10ms);
    }
  }
}

nginx_server::~nginx_server() {
  process_.reset();
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

} // namespace insula::bench
