#include "http/vercel/access.hpp"

#include "http/vercel/failures.hpp"

namespace insula::http::vercel::access {

namespace {

class by_bearer final : public access_scheme {
public:
  bool allows(const request_head& head, const std::string&,
              const credentials& known) const override {
    return known.key().open() || known.shows_key(head, true);
  }
  response unauthorized(const request_head& head) const override {
    return head.field("Authorization").empty()
             ? failure({401, "unauthorized", "The request has no Authorization: Bearer token."})
             : failure({403, "forbidden", "The token is not one of this server's."});
  }
  std::vector<documented_answer> answers(bool) const override {
    return {{"401", "There is no bearer token.", "application/json", "VercelError"},
            {"403", "The token is not one of this server's.", "application/json", "VercelError"}};
  }
};

const by_bearer the_bearer;

} // namespace

const access_scheme* const bearer = &the_bearer;

} // namespace insula::http::vercel::access
