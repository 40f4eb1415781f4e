#include "http/api/access.hpp"

#include "http/json/json.hpp"

namespace insula::http {

bool credentials::shows_key(const request_head& head, bool any_case) const {
  return key_.allows_header(head.field("Authorization"), any_case) ||
         (browsers_ && browsers_->vouch_for(head, sign_ins::clock::now()));
}

response access_scheme::unauthorized(const request_head&) const {
  return {401, json::write_error("Unauthorized", "unauthorized")};
}

response access_scheme::forbidden(std::string_view why) const {
  return {403, json::write_error(why, "forbidden")};
}

shared_named_key access_scheme::named_key_in(const request_head& head,
                                             const credentials& known) const {
  return known.key().named_in_header(head.field("Authorization"), true);
}

std::vector<documented_answer> access_scheme::answers(bool of_sandbox) const {
  std::vector<documented_answer> all{
    {"401", "", "", "Unauthorized"},
    {"403", "The API key does not open this.", "application/json", "ErrorResponse"}};
  if (of_sandbox)
    all.push_back({"429", "A ceiling of the API key with which the sandbox was made is used up.",
                   "application/json", "ErrorResponse"});
  return all;
}

namespace access {

namespace {

class for_everybody : public access_scheme {
public:
  bool allows(const request_head&, const std::string&, const credentials&) const override {
    return true;
  }
  shared_named_key named_key_in(const request_head&, const credentials&) const override {
    return nullptr;
  }
  caller caller_of(const request_head&, const credentials&) const override {
    return caller::stranger;
  }
  std::string_view security() const override { return "[]"; }
  std::vector<documented_answer> answers(bool) const override { return {}; }
};

class for_own_page final : public for_everybody {
public:
  bool allows(const request_head& head, const std::string&,
              const credentials& known) const override {
    return known.comes_from_own_page(head);
  }
  response unauthorized(const request_head&) const override {
    return {403,
            json::write_error("Only this node's own page may ask for this", "invalid_request")};
  }
};

class by_key final : public access_scheme {
public:
  bool allows(const request_head& head, const std::string&,
              const credentials& known) const override {
    return known.shows_key(head, true);
  }
};

class by_key_or_token final : public access_scheme {
public:
  bool allows(const request_head& head, const std::string&,
              const credentials& known) const override {
    return known.shows_key(head, false) || known.key().allows_query(head.query);
  }
  shared_named_key named_key_in(const request_head& head, const credentials& known) const override {
    const auto found = known.key().named_in_header(head.field("Authorization"), false);
    return found ? found : known.key().named_in_query(head.query);
  }
  bool offers_sign_in() const override { return true; }
  std::string_view query_parameter() const override { return "token"; }
};

const for_everybody the_everybody;
const for_own_page the_own_page;
const by_key the_key;
const by_key_or_token the_key_or_token;

} // namespace

const access_scheme* const everybody = &the_everybody;
const access_scheme* const key = &the_key;
const access_scheme* const key_or_token = &the_key_or_token;
const access_scheme* const own_page = &the_own_page;

} // namespace access

} // namespace insula::http
