// Certificates that the broker shows, to a client of OpenSSL's over memory.
#include "runtime/broker/authority.hpp"
#include "runtime/broker/stream.hpp"
#include "tests/support/catch.hpp"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <memory>
#include <string>

using namespace insula;
using namespace insula::runtime::broker;

namespace {

constexpr std::int64_t now_s = 1'800'000'000, day_s = 86'400;

struct frees {
  void operator()(SSL* what) const { SSL_free(what); }
  void operator()(SSL_CTX* what) const { SSL_CTX_free(what); }
  void operator()(BIO* what) const { BIO_free(what); }
  void operator()(X509* what) const { X509_free(what); }
};

/// What a client that trusts `trusted` alone makes of the server of `context`: "", or why not.
std::string handshake(SSL_CTX* context, const std::string& trusted, const std::string& name,
                      std::string* protocol = nullptr, std::int64_t at_s = now_s) {
  const std::unique_ptr<SSL_CTX, frees> of_client{SSL_CTX_new(TLS_client_method())};
  const std::unique_ptr<BIO, frees> text{
    BIO_new_mem_buf(trusted.data(), static_cast<int>(trusted.size()))};
  const std::unique_ptr<X509, frees> anchor{
    PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr)};
  X509_STORE_add_cert(SSL_CTX_get_cert_store(of_client.get()), anchor.get());
  SSL_CTX_set_verify(of_client.get(), SSL_VERIFY_PEER, nullptr);
  const std::unique_ptr<SSL, frees> client{SSL_new(of_client.get())}, server{SSL_new(context)};
  X509_VERIFY_PARAM_set_time(SSL_get0_param(client.get()), at_s);
  SSL_set_tlsext_host_name(client.get(), name.c_str());
  SSL_set1_host(client.get(), name.c_str());
  const unsigned char offered[] = "\x08http/1.1\x02h2";
  SSL_set_alpn_protos(client.get(), offered, sizeof offered - 1);
  BIO *one = nullptr, *other = nullptr;
  BIO_new_bio_pair(&one, 1 << 16, &other, 1 << 16);
  SSL_set_bio(client.get(), one, one);
  SSL_set_bio(server.get(), other, other);
  SSL_set_connect_state(client.get());
  SSL_set_accept_state(server.get());
  for (int i = 0; i < 10 && SSL_do_handshake(client.get()) != 1; ++i)
    SSL_do_handshake(server.get());
  if (!SSL_is_init_finished(client.get()))
    return X509_verify_cert_error_string(SSL_get_verify_result(client.get()));
  if (protocol != nullptr) {
    const unsigned char* chosen = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(client.get(), &chosen, &size);
    protocol->assign(reinterpret_cast<const char*>(chosen), size);
  }
  return {};
}

} // namespace

TEST_CASE("TLS keeps no sessions on either side", "[broker]") {
  const auto text = make_authority(now_s);
  const auto made = authority::make(*text);
  const auto server = (*made)->context_for("a.example", now_s);
  const auto client = insula::runtime::broker::make_client_context(text->certificate);
  REQUIRE(server);
  REQUIRE(client);
  for (SSL_CTX* each : {server->get(), client->get()}) {
    CHECK(SSL_CTX_get_session_cache_mode(each) == SSL_SESS_CACHE_OFF);
    const auto has = SSL_CTX_get_options(each);
    CHECK((has & SSL_OP_NO_TICKET) != 0);
    CHECK((has & SSL_OP_NO_RENEGOTIATION) != 0);
    CHECK((has & SSL_OP_NO_COMPRESSION) != 0);
  }
  CHECK(SSL_CTX_get_num_tickets(server->get()) == 0);
}

TEST_CASE("a sandbox's authority shows certificates for names, to those who trust it", "[broker]") {
  const auto text = make_authority(now_s), other = make_authority(now_s);
  REQUIRE(text);
  REQUIRE(other);
  CHECK(text->certificate != other->certificate);
  const auto made = authority::make(*text);
  REQUIRE(made);
  const std::string longest = std::string(63, 'a') + "." + std::string(63, 'b') + ".example";
  for (const std::string& name :
       {std::string{"a.example"}, std::string{"x_y.b.example"}, longest}) {
    const auto context = (*made)->context_for(name, now_s);
    REQUIRE(context);
    std::string protocol;
    CHECK(handshake(context->get(), text->certificate, name, &protocol).empty());
    CHECK(protocol == "h2");
    CHECK(handshake(context->get(), text->certificate, "b.example") == "hostname mismatch");
    CHECK_FALSE(handshake(context->get(), other->certificate, name).empty());
    CHECK(handshake(context->get(), text->certificate, name, nullptr, now_s + 31 * day_s) ==
          "certificate has expired");
    CHECK((*made)->context_for(name, now_s + day_s)->get() == context->get()); // The same,
    const auto anew = (*made)->context_for(name, now_s + 30 * day_s);          // until it is old.
    REQUIRE(anew);
    CHECK(anew->get() != context->get());
    CHECK(handshake(anew->get(), text->certificate, name, nullptr, now_s + 31 * day_s).empty());
  }
  for (const std::string name : {"", "a b", "a.example,DNS:b.example", "A", "a\n", "*.example"})
    CHECK_FALSE((*made)->context_for(name, now_s));
}

TEST_CASE("of certificates so many are kept as were used last", "[broker]") {
  const auto made = authority::make(*make_authority(now_s));
  REQUIRE(made);
  const auto first = *(*made)->context_for("first.example", now_s);
  for (std::size_t i = 0; i < authority::most_names; ++i)
    REQUIRE((*made)->context_for("n" + std::to_string(i) + ".example", now_s));
  CHECK((*made)->context_for("first.example", now_s)->get() != first.get());
}

TEST_CASE("what is no authority with its key is refused", "[broker]") {
  const auto one = make_authority(now_s), other = make_authority(now_s);
  CHECK_FALSE(authority::make({one->certificate, other->key}));
  CHECK_FALSE(authority::make({"", ""}));
  CHECK_FALSE(authority::make({one->key, one->certificate}));
}
