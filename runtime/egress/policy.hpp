#pragma once

#include "base/network.hpp"
#include "runtime/egress/address.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::runtime::egress {

/// A policy in the form in which it is asked. Pure: what it answers depends on its arguments alone.
class policy {
public:
  explicit policy(const egress_policy& from);
  policy(const policy&) = delete; // Its rules point into it.
  policy& operator=(const policy&) = delete;

  enum class answer {
    allow,   ///< The address itself, or where it is known by a name only, that name.
    by_name, ///< Allowed by a rule about its name: what that resolves to, whatever the address.
    refuse,
    need_name, ///< It depends on the name, which is not known yet.
  };
  struct verdict {
    answer what;
    std::string rule; ///< By which: "deny 10.0.0.0/8", "default".
  };

  /// May a connection be made? `address`: null, if it is known by a name alone. `name`: none, if it
  /// is not known whether it has one; empty, if it has none.
  verdict judge(const ip_address* address, std::optional<std::string_view> name) const;

  /// The best that any name could do for a connection to this address.
  answer best(const ip_address& address) const;

  /// May an address be dialled that a name has led to? Any rule that denies it counts, wherever it
  /// stands. Empty: yes; else the rule.
  std::string denies(const ip_address& resolved) const;

  enum class dns_answer {
    inner, ///< An address that stands for the name: a rule about it allows it.
    real,  ///< What the world says.
    refuse,
  };
  /// What is a question about this name answered with?
  struct dns_verdict {
    dns_answer what;
    std::string rule;
  };
  dns_verdict judge_question(std::string_view name) const;

  bool dry_run() const { return from_.dry_run; }
  bool match_host() const { return from_.match_host; }

private:
  struct compiled {
    bool allow;
    std::optional<subnet> net; ///< None: it is about names.
    const std::string* target;
  };

  egress_policy from_;
  std::vector<compiled> rules_;
  bool allows_subnets_ = false;
  bool allows_any_ = false;
};

/// Does the name, in lower case and without a last dot, match? "*.x" takes any depth below x, "*"
/// in another place one label, "*" alone everything.
bool matches(std::string_view pattern, std::string_view name);

/// A name as it is compared: in lower case, without a last dot. Empty: it is none that can be asked
/// for.
std::string plain_name(std::string_view name);

} // namespace insula::runtime::egress
