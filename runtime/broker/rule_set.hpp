#pragma once

#include "base/request_rules.hpp"
#include "runtime/broker/message.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace insula::runtime::broker {

/// The rules of a sandbox in the form in which they are asked. Pure. Regular expressions take time
/// that grows with the text alone, and little memory (RE2).
class rule_set {
public:
  /// Errors: invalid_request, for an expression that is none.
  static result<std::shared_ptr<const rule_set>> make(std::vector<request_rule> rules);
  ~rule_set();

  /// The first that fits. None: the request passes as it is.
  std::optional<std::size_t> find(std::string_view name, const request_head& request) const;
  /// Does a rule of that name look at paths?
  bool looks_at_paths(std::string_view name) const;
  /// Is any of them for this name?
  bool covers(std::string_view name) const;
  const request_rule& operator[](std::size_t at) const { return rules_[at]; }
  std::size_t size() const { return rules_.size(); }

private:
  struct compiled;

  explicit rule_set(std::vector<request_rule> rules);

  const std::vector<request_rule> rules_;
  std::vector<compiled> compiled_;
};

} // namespace insula::runtime::broker
