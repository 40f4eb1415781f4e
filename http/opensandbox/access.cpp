#include "http/opensandbox/access.hpp"

#include "http/opensandbox/execd.hpp"

namespace insula::http::opensandbox::access {

namespace {

bool shows_key(const request_head& head, const credentials& known) {
  return known.key().open() || known.has_key_in(head, key_field) || known.shows_key(head, true);
}

class by_header : public access_scheme {
public:
  bool allows(const request_head& head, const std::string&,
              const credentials& known) const override {
    return shows_key(head, known);
  }
  response unauthorized(const request_head&) const override {
    return {401, "Unauthorized", "text/plain"};
  }
  std::string_view security() const override {
    return R"([{"BearerAuth":[]},{"OpenSandboxKey":[]}])";
  }
  std::vector<documented_answer> answers(bool) const override {
    return {{"401", "", "", "KeyIsMissing"}};
  }
};

class of_lifecycle final : public by_header {
public:
  response unauthorized(const request_head& head) const override {
    return {401, !head.field(key_field).empty()
                   ? R"({"code":"INVALID_API_KEY","message":"The API key is not the server's."})"
                   : R"({"code":"MISSING_API_KEY","message":"OPEN-SANDBOX-API-KEY is missing."})"};
  }
  std::vector<documented_answer> answers(bool of_sandbox) const override {
    std::vector<documented_answer> all{{"401", "", "", "OpenSandboxUnauthorized"}};
    if (of_sandbox)
      all.push_back({"404", "", "", "SandboxNotFound"});
    all.push_back({"500", "", "", "OpenSandboxFailed"});
    all.push_back({"503", "", "", "OpenSandboxBusy"});
    return all;
  }
};

class of_execd final : public access_scheme {
public:
  bool allows(const request_head& head, const std::string& sandbox,
              const credentials& known) const override {
    return shows_any_key(head, known) ||
           known.holds_token(head.field(token_field), sandbox, execd_port);
  }
  response unauthorized(const request_head&) const override {
    return {401, R"({"error":"Unauthorized: invalid or missing header X-EXECD-ACCESS-TOKEN"})",
            "application/json; charset=utf-8"};
  }
  caller caller_of(const request_head& head, const credentials& known) const override {
    return shows_any_key(head, known) ? caller::holder : caller::visitor;
  }
  std::string_view security() const override {
    return R"([{"BearerAuth":[]},{"OpenSandboxKey":[]},{"ExecdToken":[]}])";
  }
  std::vector<documented_answer> answers(bool) const override {
    return {{"401", "", "", "ExecdUnauthorized"},
            {"404", "", "", "SandboxNotFound"},
            {"500", "", "", "OpenSandboxFailed"}};
  }

private:
  static bool shows_any_key(const request_head& head, const credentials& known) {
    return shows_key(head, known) || known.has_key_in(head, token_field);
  }
};

const by_header the_key;
const of_lifecycle the_lifecycle;
const of_execd the_execd;

} // namespace

const access_scheme* const key = &the_key;
const access_scheme* const lifecycle = &the_lifecycle;
const access_scheme* const execd = &the_execd;

} // namespace insula::http::opensandbox::access
