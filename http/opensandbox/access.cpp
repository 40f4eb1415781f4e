#include "http/opensandbox/access.hpp"

#include "http/json/writer.hpp"
#include "http/opensandbox/execd.hpp"

namespace insula::http::opensandbox::access {

namespace {

bool shows_key(const request_head& head, const credentials& known) {
  return known.key().open() || known.has_key_in(head, key_field) || known.shows_key(head, true);
}

shared_named_key shown_by_name(const request_head& head, const credentials& known) {
  const auto found = known.key().named(head.field(key_field));
  return found ? found : known.key().named_in_header(head.field("Authorization"), true);
}

std::string write_refusal(std::string_view why) {
  return json::writer{}
    .begin_object()
    .member("code", "FORBIDDEN")
    .member("message", why)
    .end_object()
    .str();
}

constexpr documented_answer not_for_key{"403", "The API key does not open this.",
                                        "application/json", "OpenSandboxError"};
constexpr documented_answer over_ceiling{
  "429", "A ceiling of the API key with which the sandbox was made is used up.", "application/json",
  "OpenSandboxError"};

class by_header : public access_scheme {
public:
  bool allows(const request_head& head, const std::string&,
              const credentials& known) const override {
    return shows_key(head, known);
  }
  response unauthorized(const request_head&) const override {
    return {401, "Unauthorized", "text/plain"};
  }
  shared_named_key named_key_in(const request_head& head, const credentials& known) const override {
    return shown_by_name(head, known);
  }
  response forbidden(std::string_view why) const override {
    return {403, std::string{why}, "text/plain"};
  }
  std::string_view security() const override {
    return R"([{"BearerAuth":[]},{"OpenSandboxKey":[]}])";
  }
  std::vector<documented_answer> answers(bool) const override {
    return {{"401", "", "", "KeyIsMissing"},
            {"403", "The API key does not open this.", "text/plain", ""}};
  }
};

class of_lifecycle final : public by_header {
public:
  response unauthorized(const request_head& head) const override {
    return {401, !head.field(key_field).empty()
                   ? R"({"code":"INVALID_API_KEY","message":"The API key is not the server's."})"
                   : R"({"code":"MISSING_API_KEY","message":"OPEN-SANDBOX-API-KEY is missing."})"};
  }
  response forbidden(std::string_view why) const override { return {403, write_refusal(why)}; }
  std::vector<documented_answer> answers(bool of_sandbox) const override {
    std::vector<documented_answer> all{{"401", "", "", "OpenSandboxUnauthorized"}, not_for_key};
    all.push_back(over_ceiling);
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
  shared_named_key named_key_in(const request_head& head, const credentials& known) const override {
    const auto found = shown_by_name(head, known);
    return found ? found : known.key().named(head.field(token_field));
  }
  response forbidden(std::string_view why) const override { return {403, write_refusal(why)}; }
  caller caller_of(const request_head& head, const credentials& known) const override {
    return shows_any_key(head, known) ? caller::holder : caller::visitor;
  }
  std::string_view security() const override {
    return R"([{"BearerAuth":[]},{"OpenSandboxKey":[]},{"ExecdToken":[]}])";
  }
  std::vector<documented_answer> answers(bool) const override {
    return {{"401", "", "", "ExecdUnauthorized"},
            not_for_key,
            over_ceiling,
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
