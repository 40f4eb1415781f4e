#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/http/socket_door.hpp"
#include "tests/http/web_socket_client.hpp"
#include "tests/support/catch.hpp"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// A certificate made by itself, in a directory that goes away.
class self_made {
public:
  self_made() {
    std::string pattern = (std::filesystem::temp_directory_path() / "insula-tls-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    directory_ = pattern;
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
    X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
    X509_sign(certificate, key, EVP_sha256());
    write(files().certificate, [&](FILE* to) { PEM_write_X509(to, certificate); });
    write(files().key,
          [&](FILE* to) { PEM_write_PrivateKey(to, key, nullptr, nullptr, 0, nullptr, nullptr); });
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  ~self_made() { std::filesystem::remove_all(directory_); }

  http::tls_files files() const {
    return {(directory_ / "cert.pem").string(), (directory_ / "key.pem").string()};
  }

private:
  template <class Write>
  static void write(const std::string& path, Write what) {
    FILE* to = std::fopen(path.c_str(), "w");
    REQUIRE(to != nullptr);
    what(to);
    std::fclose(to);
  }

  std::filesystem::path directory_;
};

} // namespace

TEST_CASE("everything works over TLS", "[http][tls]") {
  self_made certificate;
  http::server_options options;
  options.tls = certificate.files();
  options.api_key = "k";
  house h{options};
  const std::string key = "Authorization: Bearer k\r\n";
  SECTION("requests, pipelined") {
    client one{h.port(), true};
    one.send(request("GET", "/health") + request("GET", "/v1/sandbox/abc/running", {}, key));
    CHECK(one.receive().body == R"({"ok":true})");
    CHECK(one.receive().body == R"({"running":true})");
  }
  SECTION("an exec, and another on the same connection") {
    h.plays().output = {{output_stream::out, "a\n"}};
    client one{h.port(), true};
    for (int i = 0; i < 3; ++i) {
      one.send(request("POST", "/v1/sandbox/abc/exec", R"({"argv":["echo","a"]})", key));
      CHECK(one.receive().body ==
            "event: stdout\ndata: YQo=\n\nevent: exit\ndata: {\"exit_code\":0}\n\n");
    }
  }
  SECTION("a client that leaves is noticed") {
    h.plays().end.reset();
    client one{h.port(), true};
    one.send(request("POST", "/v1/sandbox/abc/exec", R"({"argv":["a"]})", key));
    REQUIRE(h.heard().has("read 0 attached"));
    one.close();
    CHECK(h.heard().has("detached"));
  }
  SECTION("an upload that asks first") {
    std::string content;
    h.plays().file = [&](int fd) {
      if (read_frames(fd, content))
        write_head(fd, {});
    };
    client one{h.port(), true};
    one.send("PUT /v1/sandbox/abc/file/workspace/a HTTP/1.1\r\nHost: localhost\r\nExpect: "
             "100-continue\r\n" +
             key + "Content-Length: 3000000\r\n\r\n");
    CHECK(one.read_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
    one.send(std::string(3'000'000, 'x'));
    CHECK(one.receive().status == 200);
    CHECK(content.size() == 3'000'000);
  }
  SECTION("a refusal before the body") {
    client one{h.port(), true};
    one.send("PUT /v1/sandbox/abc/file/workspace/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
             "99999999\r\n\r\n");
    CHECK(one.receive().status == 401);
  }
  SECTION("plain HTTP is not served") {
    client one{h.port()};
    one.send(request("GET", "/health"));
    CHECK(one.receive().status == 0);
  }
}

TEST_CASE("a handshake has a time limit", "[http][tls]") {
  self_made certificate;
  http::server_options options;
  options.tls = certificate.files();
  options.time.handshake = 50ms;
  house h{options};
  client silent{h.port()};
  CHECK(silent.at_end());
}

TEST_CASE("unusable TLS files are an error at the start", "[http][tls]") {
  io_pool pool{1};
  caf::actor_system_config config;
  caf::actor_system system{config};
  http::server_options options;
  options.port = 0;
  options.tls = http::tls_files{"/nowhere/cert.pem", "/nowhere/key.pem"};
  http::server unusable{pool, system, options, directory_actor{}, nullptr};
  const auto started = unusable.start();
  REQUIRE_FALSE(started);
  CHECK(started.reason().code == errc::invalid_request);
  CHECK(started.reason().message.find("/nowhere/cert.pem") != std::string::npos);
}

TEST_CASE("an address that cannot be had is an error at the start", "[http]") {
  io_pool pool{1};
  caf::actor_system_config config;
  caf::actor_system system{config};
  http::server_options options;
  options.address = "192.0.2.1";
  http::server elsewhere{pool, system, options, directory_actor{}, nullptr};
  const auto started = elsewhere.start();
  REQUIRE_FALSE(started);
  CHECK(started.reason().code == errc::io_failed);
}

TEST_CASE("a WebSocket works over TLS, from its first frame to its close", "[http][tls]") {
  const self_made made;
  http::front_door_options options;
  options.tls = made.files();
  socket_door door{options};
  web_socket_client one{door.port(), "/", {}, true, encode_frame(frame_kind::binary, "early")};
  CHECK(one.head().status == 101);
  const auto held = door.echo();
  CHECK(one.next().bytes == "early");
  const std::string much(1'000'000, 'x');
  one.type(much);
  CHECK((one.next().bytes == much));
  held->close(http::close_reason::normal, {});
  CHECK(one.to_end().code == 1000);
  CHECK(one.raw().at_end());
}
