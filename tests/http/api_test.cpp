#include "http/api/dispatcher.hpp"
#include "tests/http/plain_api.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/played_head.hpp"

#include <string>

using namespace insula;
using namespace insula::http;

namespace {

class asked final : public test::played_head {
public:
  asked(std::string_view wanted, std::string credentials, std::string_view asks = {})
      : played_head(verb::get, wanted, {{"Authorization", std::move(credentials)}}) {
    query = asks;
  }
};

route open_to(const access_scheme* who, const std::string& pattern) {
  return {verb::get, pattern,
          who,       body_use::ignored,
          0,         [](const matched_request&) { return admission{}; },
          {}};
}

} // namespace

TEST_CASE("a route that wants the key gets it, wherever its path lies", "[http][api]") {
  const std::vector<route> table = {open_to(http::access::key, "/elsewhere"),
                                    open_to(http::access::key_or_token, "/document"),
                                    open_to(http::access::everybody, "/open")};
  const dispatcher api{test::served(table, credentials{key_check{"s3cret"}})};
  const auto status = [&](const asked& head) {
    const auto plan = api.admit(head);
    return plan.refusal ? plan.refusal->status : 200;
  };
  CHECK(status({"/elsewhere", ""}) == 401);
  CHECK(status({"/elsewhere", "Bearer wrong"}) == 401);
  CHECK(status({"/elsewhere", "", "token=s3cret"}) == 401);
  CHECK(status({"/elsewhere", "Bearer s3cret"}) == 200);
  CHECK(status({"/document", ""}) == 401);
  CHECK(status({"/document", "Bearer s3cret"}) == 200);
  CHECK(status({"/document", "", "token=s3cret"}) == 200);
  CHECK(status({"/open", ""}) == 200);
  CHECK(status({"/nowhere", ""}) == 404);
  const dispatcher keyless{test::served(table, credentials{key_check{""}})};
  CHECK_FALSE(keyless.admit(asked{"/elsewhere", ""}).refusal);
}

TEST_CASE("gzip is accepted where it is named, and not with a weight of 0", "[http][api]") {
  for (const auto* yes :
       {"gzip", "br, gzip", "deflate,GZip;q=0.5", " gzip ; q=1.0", "gzip;q=0.001"})
    CHECK(accepts_gzip(yes));
  for (const auto* no : {"", "br", "gzip;q=0", "gzip; q=0.000, br", "xgzip", "gzipped", ",;,", "*"})
    CHECK_FALSE(accepts_gzip(no));
}

TEST_CASE("a request can want a persistent sandbox, and is refused where there is none",
          "[http][api]") {
  const std::vector<route> table = {open_to(http::access::everybody, "/open")};
  const auto admit = [&](bool keeps, const std::string& wanted) {
    auto is = test::served(table, credentials{key_check{""}});
    is.keeps_snapshots = keeps;
    const dispatcher api{std::move(is)};
    return api.admit(test::played_head{verb::get, "/open", {{"Insula-Persistent", wanted}}});
  };
  const auto kept = admit(true, "true");
  CHECK_FALSE(kept.refusal);
  CHECK(kept.track.context().persistent);
  CHECK(kept.track.context().recovered);
  for (const auto* no : {"", "false"}) {
    CHECK_FALSE(admit(true, no).refusal);
    CHECK_FALSE(admit(true, no).track.context().persistent);
    CHECK_FALSE(admit(false, no).refusal);
    CHECK_FALSE(admit(false, no).track.context().recovered);
  }
  const auto gains = [&](const std::string& wanted) {
    const dispatcher api{test::served(table, credentials{key_check{""}})};
    return api.admit(test::played_head{verb::get, "/open", {{"Insula-Privileges", wanted}}});
  };
  CHECK(gains("sudo").track.context().gains == privileges::sudo);
  CHECK(gains("none").track.context().gains == privileges::none);
  CHECK_FALSE(gains("").track.context().gains);
  for (const auto* no : {"root", "SUDO", "sudo none"})
    CHECK(gains(no).refusal->status == 400);
  CHECK(admit(false, "true").refusal->status == 400);
  CHECK(admit(true, "yes").refusal->status == 400);
}
