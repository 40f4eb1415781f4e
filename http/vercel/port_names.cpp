#include "http/vercel/port_names.hpp"

#include "base/id.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/keyed_id.hpp"
#include "http/text/header_text.hpp"
#include "http/text/hmac.hpp"
#include "http/vercel/failures.hpp"
#include "http/vercel/ids.hpp"
#include "http/vercel/settings.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace insula::http::vercel {

namespace {

constexpr std::string_view label_prefix = "sb-", domain = ".vercel.run";
constexpr std::size_t signature_digits = 16;

/// Of a label that this node's secret has made.
std::optional<named_port> port_of(std::string_view secret, std::string_view label) {
  if (!label.starts_with(label_prefix) || label.size() > 63)
    return std::nullopt;
  const auto rest = label.substr(label_prefix.size());
  if (rest.size() < sandbox_digits + 1 || rest[sandbox_digits] != '-')
    return std::nullopt;
  named_port found{std::string{rest.substr(0, sandbox_digits)}, 0};
  const auto* const end = rest.data() + rest.size();
  const auto [at, why] = std::from_chars(rest.data() + sandbox_digits + 1, end, found.port);
  if (why != std::errc{} || found.port == 0 || !sandbox_id::parse(found.sandbox) ||
      !is_same_secret(label_of(secret, found.sandbox, found.port), label))
    return std::nullopt;
  return found;
}

class labels final : public port_names {
public:
  explicit labels(shared_services with)
      : with_(std::move(with)) {}

  std::optional<named_port> find(std::string_view host) const override {
    const auto name = lower_case(host.substr(0, host.find(':')));
    if (auto found = port_of(with_->secret, std::string_view{name}.substr(0, name.find('.'))))
      return found;
    return name.ends_with(domain) ? std::optional{named_port{}} : std::nullopt;
  }

  void check(const named_port& to, const request_context& context,
             std::function<void(std::optional<response>)> then) const override {
    find_runs look;
    look.limit = 1;
    look.context = context;
    const auto tell =
      std::make_shared<std::function<void(std::optional<response>)>>(std::move(then));
    sandbox_question<find_runs, run_list> asked{
      with_->directory, to.sandbox, std::move(look),
      [tell, port = to.port](const run_list& all) { (*tell)(objection(all.sandbox, port)); },
      [tell](question_stage, const error& why) {
        (*tell)(why.code == errc::not_found ? not_there() : vercel::failure(why));
      }};
    asked.starts_it = false;
    ask_sandbox(*with_, std::move(asked));
  }

  response unknown() const override { return not_there(); }

  response failure(int status, std::string_view code, const std::string& why) const override {
    if (code == "sandbox_not_running")
      return stopped();
    if (code == "port_not_listening")
      return vercel::failure(refusal{502, "SANDBOX_NOT_LISTENING", why});
    return vercel::failure(refusal{status, "SANDBOX_NOT_ANSWERING", why});
  }

private:
  static response not_there() {
    return vercel::failure(
      refusal{404, "SANDBOX_NOT_FOUND", "No sandbox has an open port of this name."});
  }
  static response stopped() {
    return vercel::failure(refusal{410, "SANDBOX_STOPPED", "The sandbox has stopped."});
  }
  static std::optional<response> objection(const sandbox_description& is, std::uint16_t port) {
    const auto known = settings_of(is);
    if (!known || !is.exists || !is.run ||
        std::find(known->ports.begin(), known->ports.end(), port) == known->ports.end())
      return not_there();
    if (!is_alive(is.run->state) || is.run->state == run_state::stopping)
      return stopped();
    return std::nullopt;
  }

  const shared_services with_;
};

} // namespace

std::string label_of(std::string_view secret, std::string_view id, std::uint16_t port) {
  const auto number = std::to_string(port);
  const auto key = "\nvercel-preview" + std::string{id} + ':' + number;
  return std::string{label_prefix} + std::string{id} + '-' + number + '-' +
         keyed_id(secret, key).substr(0, signature_digits);
}

std::shared_ptr<const port_names> make_port_names(shared_services with) {
  return std::make_shared<const labels>(std::move(with));
}

} // namespace insula::http::vercel
