// Keys that sign tokens, and the tokens.
#include "http/oidc/api.hpp"
#include "http/oidc/issuer.hpp"
#include "http/oidc/keys.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/jwt_check.hpp"
#include "tests/support/manual_clock.hpp"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <atomic>
#include <set>
#include <thread>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;
using http::oidc::issuer;
using http::oidc::issuer_settings;
using http::oidc::key_set;
using http::oidc::publish_ahead;

namespace {

constexpr std::int64_t start = 1'700'000'000; ///< Of manual_clock, in seconds.
constexpr std::chrono::seconds kept = 1h;

/// One for all tests, since keys take their time.
const key_set& some_keys() {
  static const auto made = key_set::make(start);
  REQUIRE(made);
  return *made;
}

key_set after_rotation(const key_set& of, std::int64_t now_s, std::chrono::seconds keep = kept) {
  auto next = of.rotated(now_s, keep);
  REQUIRE(next);
  return std::move(*next);
}

std::set<std::string> kids_in(const std::string& keys) {
  const auto read = json_in(keys);
  std::set<std::string> kids;
  for (const auto& each : read["keys"].GetArray())
    kids.insert(each["kid"].GetString());
  return kids;
}

std::string kid_of_signer(const key_set& keys, std::int64_t now_s) {
  const auto made = keys.sign("{}", now_s);
  REQUIRE(made);
  return json_in(part_of_token(made->text, 0))["kid"].GetString();
}

const token_claims claims{{"team_id", "team_a"},
                          {"project_id", "prj_b"},
                          {"sandbox_id", "sbx_c"},
                          {"sandbox_name", "my box"}};
const std::string audience = "https://proxy.example/forward";

} // namespace

TEST_CASE("a token is what verifiers expect, and signed by a key that is published", "[oidc]") {
  manual_clock time;
  const issuer from{{}, some_keys(), time};
  const auto token = from.sign(claims, audience);
  REQUIRE(token);
  CHECK(is_signed_by(from.published_keys(), *token));
  const auto header = json_in(part_of_token(*token, 0));
  CHECK(header.MemberCount() == 3);
  CHECK(header["alg"] == "RS256");
  CHECK(header["typ"] == "JWT");
  CHECK(kids_in(from.published_keys()).contains(header["kid"].GetString()));
  const auto said = json_in(part_of_token(*token, 1));
  CHECK(said["iss"] == "https://oidc.vercel.com/insula");
  CHECK(said["aud"].GetString() == audience);
  CHECK(said["sub"] == "owner:team_a:project:prj_b:sandbox:sbx_c");
  CHECK(said["iat"].GetInt64() == start);
  CHECK(said["nbf"].GetInt64() == start);
  CHECK(said["exp"].GetInt64() == start + 900);
  CHECK(said.MemberCount() == 6 + claims.size());
  for (const auto& [name, value] : claims)
    CHECK(said[name.c_str()].GetString() == value);
  // With anything else in its place it is none.
  auto changed = *token;
  changed[changed.find('.') + 5] = changed[changed.find('.') + 5] == 'A' ? 'B' : 'A';
  CHECK_FALSE(is_signed_by(from.published_keys(), changed));
  const auto other = key_set::make(start);
  CHECK_FALSE(is_signed_by(other->published(start, kept), *token));
}

TEST_CASE("a public key has its thumbprint as its name, and nothing private", "[oidc]") {
  const auto published = some_keys().published(start, kept);
  const auto read = json_in(published);
  REQUIRE(read["keys"].Size() == 1);
  const auto& key = read["keys"][0];
  CHECK(key.MemberCount() == 6);
  CHECK(key["kty"] == "RSA");
  CHECK(key["alg"] == "RS256");
  CHECK(key["use"] == "sig");
  CHECK(key["e"] == "AQAB");
  CHECK(from_base64url(key["n"].GetString())->size() == 256);
  const auto members =
    std::string{R"({"e":"AQAB","kty":"RSA","n":")"} + key["n"].GetString() + "\"}";
  std::string digest(32, '\0');
  EVP_Digest(members.data(), members.size(), reinterpret_cast<unsigned char*>(digest.data()),
             nullptr, EVP_sha256(), nullptr);
  CHECK(key["kid"].GetString() == base64url(digest));
}

TEST_CASE("claims that verifiers do not take are not signed, and no value is told", "[oidc]") {
  manual_clock time;
  const issuer from{{}, some_keys(), time};
  const auto code_of = [&](const token_claims& said, const std::string& to = audience) {
    const auto made = from.sign(said, to);
    if (!made)
      CHECK(made.reason().message.find("a-value") == std::string::npos);
    return made ? std::optional<errc>{} : made.reason().code;
  };
  const auto with = [](std::string name, std::string value) {
    auto all = claims;
    all.emplace_back(std::move(name), std::move(value));
    return all;
  };
  CHECK_FALSE(code_of(with("other", "a-value")));
  CHECK_FALSE(code_of({claims.begin(), claims.begin() + 3})); // Without sandbox_name.
  for (std::size_t i = 0; i < 3; ++i) {
    auto less = claims;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
    CHECK(code_of(less) == errc::invalid_request);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    auto empty = claims;
    empty[i].second.clear();
    CHECK(code_of(empty) == errc::invalid_request);
  }
  for (const auto* name : {"iss", "aud", "sub", "iat", "nbf", "exp", "jti", "", "team_id"})
    CHECK(code_of(with(name, "a-value")) == errc::invalid_request);
  CHECK(code_of(claims, "") == errc::invalid_request);
  CHECK(code_of(with("other", std::string(issuer::most_claim_bytes, 'x'))) == errc::limit_reached);
  CHECK(code_of(claims, std::string(issuer::most_claim_bytes, 'x')) == errc::limit_reached);
  auto many = claims;
  while (many.size() <= issuer::most_claims)
    many.emplace_back("c" + std::to_string(many.size()), "a-value");
  CHECK(code_of(many) == errc::limit_reached);
  // What is no UTF-8 is no reason for a token that nobody can read.
  const auto odd = from.sign(with("odd", "a\xff\"\n"), audience);
  REQUIRE(odd);
  CHECK(json_in(part_of_token(*odd, 1))["odd"].IsString());
}

TEST_CASE("a new key is published first and signs later", "[oidc]") {
  const auto& before = some_keys();
  const auto first = kid_of_signer(before, start);
  const auto now = start + 1000;
  const auto after = after_rotation(before, now);
  const auto begins = now + publish_ahead.count();
  const auto second = after.list(now).back().kid;
  CHECK(second != first);
  CHECK(kids_in(after.published(now, kept)) == std::set{first, second});
  CHECK(kid_of_signer(after, now) == first);
  CHECK(kid_of_signer(after, begins - 1) == first);
  CHECK(kid_of_signer(after, begins) == second);
  CHECK(kid_of_signer(after, begins + 1'000'000) == second);
  // The old one is published until its last token has ended.
  CHECK(kids_in(after.published(begins + kept.count() - 1, kept)) == std::set{first, second});
  CHECK(kids_in(after.published(begins + kept.count(), kept)) == std::set{second});
  // And stays in the file until the next rotation.
  CHECK(after.list(begins + kept.count()).size() == 2);
  const auto later = after_rotation(after, begins + kept.count());
  const auto lines = later.list(begins + kept.count());
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].kid == second);
  CHECK(lines[0].signs);
  CHECK(lines[0].created_s == now);
  CHECK(lines[0].retired_s == begins + kept.count() + publish_ahead.count());
  CHECK_FALSE(lines[1].signs);
  CHECK_FALSE(lines[1].retired_s);
}

TEST_CASE("keys that follow each other quickly are each published before they sign", "[oidc]") {
  const auto now = start + 1000;
  const auto two = after_rotation(some_keys(), now);
  const auto three = after_rotation(two, now + 60);
  const auto lines = three.list(now);
  REQUIRE(lines.size() == 3);
  CHECK(kid_of_signer(three, now + publish_ahead.count() - 1) == lines[0].kid);
  CHECK(kid_of_signer(three, now + publish_ahead.count()) == lines[1].kid);
  CHECK(kid_of_signer(three, now + 60 + publish_ahead.count() - 1) == lines[1].kid);
  CHECK(kid_of_signer(three, now + 60 + publish_ahead.count()) == lines[2].kid);
}

TEST_CASE("there are so many keys and no more", "[oidc]") {
  std::optional<key_set> many;
  { // Their own keys would take long: these are the same number of lines.
    auto grown = some_keys();
    for (int i = 0; i < 3; ++i)
      grown = after_rotation(grown, start + i);
    many.emplace(std::move(grown));
  }
  CHECK(many->list(start).size() == 4);
  while (many->list(start).size() < key_set::most_keys)
    many = after_rotation(*many, start);
  const auto refused = many->rotated(start, kept);
  REQUIRE_FALSE(refused);
  CHECK(refused.reason().code == errc::limit_reached);
  CHECK(many->rotated(start + publish_ahead.count() + kept.count() + 3, kept));
  const auto text = many->text();
  REQUIRE(text);
  CHECK(text->size() < key_set::most_bytes / 2); // Larger keys fit as well.
  CHECK(key_set::read(*text));
}

TEST_CASE("keys are read as they were written", "[oidc]") {
  const auto two = after_rotation(some_keys(), start + 5);
  const auto text = two.text();
  REQUIRE(text);
  const auto read = key_set::read(*text);
  REQUIRE(read);
  CHECK(*read == two);
  CHECK_FALSE(*read == some_keys());
  CHECK(read->published(start, kept) == two.published(start, kept));
  const auto made = read->sign("{}", start + 5);
  REQUIRE(made);
  CHECK(is_signed_by(two.published(start, kept), made->text + '.' + base64url(made->bytes)));
}

namespace {

/// The file's text with one key, after `change`.
template <class Change>
std::string changed_text(Change change) {
  auto text = *after_rotation(some_keys(), start + 5).text();
  auto read = json_in(text);
  change(read, read.GetAllocator());
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> out{buffer};
  read.Accept(out);
  return {buffer.GetString(), buffer.GetSize()};
}

std::string pem_with(EVP_PKEY* key, const char* password = nullptr) {
  BIO* memory = BIO_new(BIO_s_mem());
  PEM_write_bio_PKCS8PrivateKey(memory, key, password ? EVP_aes_256_cbc() : nullptr, password,
                                password ? static_cast<int>(std::string{password}.size()) : 0,
                                nullptr, nullptr);
  char* bytes = nullptr;
  const auto size = BIO_get_mem_data(memory, &bytes);
  std::string text(bytes, static_cast<std::size_t>(size));
  BIO_free(memory);
  return text;
}

std::string refusal_of(const std::string& text) {
  const auto read = key_set::read(text);
  if (read)
    return "";
  CHECK(read.reason().code == errc::invalid_request);
  CHECK(read.reason().message.find("MII") == std::string::npos);
  return read.reason().message;
}

} // namespace

TEST_CASE("a file with other things in it than keys is refused", "[oidc]") {
  for (const auto* text : {"", "{", "[]", "{}", "null", R"({"keys":[]})", R"({"keys":{}})",
                           R"({"keys":[1]})", R"({"keys":[{}]})"})
    CHECK_FALSE(refusal_of(text).empty());
  CHECK_FALSE(refusal_of(std::string(key_set::most_bytes + 1, ' ')).empty());
  REQUIRE(refusal_of(changed_text([](auto&, auto&) {})).empty());
  for (const auto* member : {"kid", "created", "pem", "retired"}) {
    CAPTURE(member);
    CHECK_FALSE(
      refusal_of(changed_text([&](auto& read, auto&) { read["keys"][0].RemoveMember(member); }))
        .empty());
    CHECK_FALSE(
      refusal_of(changed_text([&](auto& read, auto&) { read["keys"][0][member].SetBool(true); }))
        .empty());
  }
  // Which one signs would not be known.
  CHECK(refusal_of(changed_text(
                     [](auto& read, auto& with) { read["keys"][1].AddMember("retired", 5, with); }))
          .find("the last key") != std::string::npos);
  CHECK(refusal_of(changed_text([](auto& read, auto& with) {
          read["keys"][0]["kid"].SetString(read["keys"][1]["kid"].GetString(), with);
        }))
          .find("kid") != std::string::npos);
  CHECK(refusal_of(changed_text([](auto& read, auto& with) {
          rapidjson::Value other;
          other.CopyFrom(read["keys"][0], with);
          read["keys"].PushBack(other, with);
          read["keys"][1].Swap(read["keys"][2]); // The last one is the same as before.
        }))
          .find("twice") != std::string::npos);
  CHECK_FALSE(
    refusal_of(changed_text([](auto& read, auto&) { read["keys"][0]["created"].SetInt64(-1); }))
      .empty());
}

TEST_CASE("a key that is no RSA key of a good size is refused", "[oidc]") {
  const auto with_pem = [](const std::string& pem) {
    return refusal_of(changed_text([&](auto& read, auto& with) {
      read["keys"][0]["pem"].SetString(pem.c_str(), static_cast<rapidjson::SizeType>(pem.size()),
                                       with);
    }));
  };
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> small{EVP_RSA_gen(1024), EVP_PKEY_free},
    curve{EVP_EC_gen("P-256"), EVP_PKEY_free}, good{EVP_RSA_gen(2048), EVP_PKEY_free};
  CHECK(with_pem(pem_with(small.get())).find("2048 to 4096 bits") != std::string::npos);
  CHECK(with_pem(pem_with(curve.get())).find("RSA") != std::string::npos);
  CHECK(with_pem(pem_with(good.get(), "word")).find("without a password") != std::string::npos);
  CHECK(with_pem(pem_with(good.get())).find("kid") != std::string::npos); // It is another one.
  CHECK_FALSE(with_pem("").empty());
  CHECK_FALSE(with_pem("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").empty());
  CHECK_FALSE(with_pem(std::string(100'000, 'A')).empty());
}

TEST_CASE("an issuer signs with the keys that it has taken, also while it signs", "[oidc]") {
  manual_clock time;
  const auto from = std::make_shared<issuer>(issuer_settings{}, some_keys(), time);
  const auto sign = issuer::signer(from);
  const auto first = sign(claims, audience);
  REQUIRE(first);
  auto next = after_rotation(some_keys(), start, from->settings().keep());
  time.advance(publish_ahead);
  std::atomic<bool> over = false;
  std::atomic<int> wrong = 0, made = 0;
  std::vector<std::thread> all;
  for (int i = 0; i < 4; ++i)
    all.emplace_back([&] {
      while (!over) {
        const auto token = sign(claims, audience);
        wrong += !token || !is_signed_by(next.published(start, kept), *token);
        wrong += kids_in(from->published_keys()).empty();
        ++made;
      }
    });
  for (int i = 0; i < 50; ++i) {
    from->take(i % 2 == 0 ? next : some_keys());
    for (const int before = made; made == before;) // One is made by these keys.
      std::this_thread::yield();
  }
  from->take(next);
  over = true;
  for (auto& each : all)
    each.join();
  CHECK(wrong == 0);
  CHECK(from->keys() == next);
  const auto second = sign(claims, audience);
  REQUIRE(second);
  CHECK(part_of_token(*second, 0) != part_of_token(*first, 0));
  CHECK(is_signed_by(from->published_keys(), *first));
  CHECK(is_signed_by(from->published_keys(), *second));
  time.advance(from->settings().keep());
  CHECK_FALSE(is_signed_by(from->published_keys(), *first));
}

TEST_CASE("the issuer's name decides where its keys are", "[oidc]") {
  manual_clock time;
  const auto at = [&](const std::string& name) {
    const auto of = std::make_shared<const issuer>(issuer_settings{name, 60s}, some_keys(), time);
    std::vector<std::string> paths;
    for (const auto& each : http::oidc::make_api(of)->routes())
      paths.push_back(each.pattern);
    return paths;
  };
  using paths = std::vector<std::string>;
  CHECK(at("https://oidc.vercel.com/acme") ==
        paths{"/oidc/acme/.well-known/jwks", "/oidc/acme/.well-known/openid-configuration"});
  CHECK(at("https://insula.example:8787/oidc/me").front() == "/oidc/me/.well-known/jwks");
}
