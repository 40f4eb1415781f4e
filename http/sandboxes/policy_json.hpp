#pragma once

#include "base/error.hpp"
#include "base/network.hpp"
#include "http/json/document.hpp"
#include "http/json/writer.hpp"

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::http {

/// Nothing, if an object has no other members than these.
std::optional<error> only(const json::value& object, std::initializer_list<std::string_view> known,
                          const std::string& where);

/// What every API's reader of an egress policy has: rules, actions, flags, up to the first thing
/// that is wrong. Texts are read strictly: a rule that is overlooked is a hole.
class policy_reader {
protected:
  using value = json::value;

  /// Errors: invalid_request; limit_reached (more than max_egress_rules).
  result<egress_policy> finish();
  /// Of several errors the first is told.
  bool fail(error why);
  bool failed() const { return why_.has_value(); }
  bool knows(const value& object, std::initializer_list<std::string_view> known,
             const std::string& where = {});
  /// `where`: what the target is called in an error.
  void add(bool allow, const value& target, const std::string& where);
  void read_flag(const value& body, const char* name, bool& into);
  /// True: "allow".
  std::optional<bool> read_action(const value* given, const char* name);
  /// [{"action":"allow"|"deny","target":"…"}]
  void add_rules(const value& rules, const char* name);

  egress_policy policy_;

private:
  std::optional<error> why_;
};

/// A member: [{"action":"allow"|"deny","target":"…"}]
void write_rules(json::writer& out, const char* name, const std::vector<egress_rule>& rules);

} // namespace insula::http
