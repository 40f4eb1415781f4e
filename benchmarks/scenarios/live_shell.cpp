#include "benchmarks/child.hpp"
#include "benchmarks/scenario.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>

#include <csignal>
#include <pty.h>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace insula::bench {

namespace {

namespace beast = boost::beast;
using tcp = boost::asio::ip::tcp;

constexpr timeval patience{60, 0};

/// A terminal with bash behind it, wherever that runs.
class shell_terminal {
public:
  virtual ~shell_terminal() = default;
  virtual void type(std::string_view bytes) = 0;
  /// What is printed next, at least a byte. Throws when nothing comes any more.
  virtual std::string read() = 0;

  /// What has been printed until `end` was.
  void until(std::string_view end) {
    for (std::string printed; printed.find(end) == std::string::npos;)
      printed += read();
  }
  /// From now on each byte that is typed is printed once by a program, and nothing else is.
  void become_cat() {
    type("stty raw -echo; echo g''o; exec cat\n");
    until("go\n");
  }
  double echo() {
    const auto since = clock::now();
    type("x");
    until("x");
    return ms_since(since);
  }
};

class host_shell : public shell_terminal {
public:
  host_shell() {
    static const auto env = plain_environment();
    std::vector<char*> pointers;
    for (const auto& each : env)
      pointers.push_back(const_cast<char*>(each.c_str()));
    pointers.push_back(nullptr);
    int master = -1;
    pid_ = ::forkpty(&master, nullptr, nullptr, nullptr);
    if (pid_ < 0)
      throw std::system_error{errno, std::generic_category(), "forkpty"};
    if (pid_ == 0) {
      ::execle("/bin/bash", "bash", "--norc", "--noprofile", "--noediting", nullptr,
               pointers.data());
      ::_exit(127);
    }
    master_.reset(master);
  }
  ~host_shell() override {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  host_shell(const host_shell&) = delete;
  host_shell& operator=(const host_shell&) = delete;

  void type(std::string_view bytes) override {
    if (::write(master_.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      throw std::system_error{errno, std::generic_category(), "a terminal on the host"};
  }
  std::string read() override {
    char bytes[4096];
    const ssize_t n = ::read(master_.get(), bytes, sizeof bytes);
    if (n <= 0)
      throw std::runtime_error("the shell on the host has ended");
    return {bytes, static_cast<std::size_t>(n)};
  }
  /// A builtin, until the shell has said its status: what a session does, without a sandbox.
  double run_builtin() {
    const auto since = clock::now();
    type(": ; echo +$?+\n");
    until("+0+");
    return ms_since(since);
  }

private:
  pid_t pid_ = -1;
  unique_fd master_;
};

class sandbox_terminal : public shell_terminal {
public:
  sandbox_terminal(const insula_server& server, const std::string& id) {
    socket_.next_layer().connect({boost::asio::ip::address_v4::loopback(), server.port()});
    socket_.next_layer().set_option(tcp::no_delay{true});
    ::setsockopt(socket_.next_layer().native_handle(), SOL_SOCKET, SO_RCVTIMEO, &patience,
                 sizeof patience);
    socket_.set_option(
      beast::websocket::stream_base::decorator([&server](beast::websocket::request_type& request) {
        request.set(beast::http::field::authorization, "Bearer " + server.key());
      }));
    socket_.handshake("127.0.0.1", "/v1/sandbox/" + id + "/pty");
    socket_.binary(true);
    do
      read();
    while (!socket_.got_text()); // The first control message says that it is ready.
  }

  void type(std::string_view bytes) override {
    socket_.write(boost::asio::buffer(bytes.data(), bytes.size()));
  }
  std::string read() override {
    beast::flat_buffer message;
    socket_.read(message);
    return beast::buffers_to_string(message.data());
  }

private:
  boost::asio::io_context io_;
  beast::websocket::stream<tcp::socket> socket_{io_};
};

/// A shell that lives: a command in a session, and a key in a terminal.
class live_shell : public scenario {
public:
  std::string name() const override { return "a live shell"; }
  std::string about() const override {
    return "POST exec of `:` in a session, and a key through a terminal to `cat` and back";
  }

  void measure(bench& with) override {
    const auto server = with.start_insula();
    bridge_client client{server->port(), server->key()};
    const auto id = client.create();
    const command builtin{{":"}, {}};
    constexpr std::string_view in_session = "Session-Id: bench\r\n";
    client.exec(id, builtin, clock::now(), in_session);
    host_shell host;
    host.type("stty -echo\n");
    host_shell host_cat;
    host_cat.become_cat();
    sandbox_terminal cat{*server, id};
    cat.become_cat();
    for (auto* each : {&command_, &host_command_, &echo_, &host_echo_})
      each->next_round();
    for (std::size_t i = 0; i < with.repeat(1000, 100); ++i)
      run_in_random_order(with, {{&command_,
                                  [&] {
                                    client.ready();
                                    command_.add(
                                      client.exec(id, builtin, clock::now(), in_session).exit_ms);
                                  }},
                                 {&host_command_, [&] { host_command_.add(host.run_builtin()); }},
                                 {&echo_, [&] { echo_.add(cat.echo()); }},
                                 {&host_echo_, [&] { host_echo_.add(host_cat.echo()); }}});
    server->stop();
  }

  void tell(const bench&, report& all) const override {
    const auto host_command = make_row("on the host: `:` typed to bash", "ms", host_command_);
    const auto host_echo = make_row("on the host: a key to `cat` and back", "ms", host_echo_);
    auto command = make_row("`:` in a session", "ms", command_);
    auto echo = make_row("a key to `cat` and back", "ms", echo_);
    command.floors = {{"host", host_command.measured.p50}};
    echo.floors = {{"host", host_echo.measured.p50}};
    command.wanted = {1, {}, {}};
    echo.wanted = {0.5, 3, {}};
    for (const auto& each : {command, host_command, echo, host_echo})
      all.rows.push_back(each);
  }

private:
  series command_, host_command_, echo_, host_echo_;
};

} // namespace

std::unique_ptr<scenario> make_live_shell() {
  return std::make_unique<live_shell>();
}

} // namespace insula::bench
