#include "runtime/broker/rule_set.hpp"

#include "runtime/egress/policy.hpp"

#include <re2/re2.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace insula::runtime::broker {

namespace {

class matcher {
public:
  explicit matcher(const text_match& from, bool is_name = false)
      : how_(from.how)
      , text_(is_name && from.how != text_match::kind::regex ? lower_case(from.text) : from.text) {
    if (how_ != text_match::kind::regex)
      return;
    re2::RE2::Options options;
    options.set_log_errors(false);
    options.set_max_mem(regex_memory);
    options.set_encoding(re2::RE2::Options::EncodingLatin1); // Headers are bytes.
    options.set_case_sensitive(!is_name);
    regex_ = std::make_unique<re2::RE2>(text_, options);
  }

  bool is_good() const { return !regex_ || regex_->ok(); }
  bool fits(std::string_view value) const {
    switch (how_) {
      case text_match::kind::exact: return value == text_;
      case text_match::kind::prefix: return value.starts_with(text_);
      case text_match::kind::regex:
        return re2::RE2::PartialMatch(re2::StringPiece{value.data(), value.size()}, *regex_);
    }
    return false;
  }

private:
  text_match::kind how_;
  std::string text_;
  std::unique_ptr<re2::RE2> regex_;
};

using optional_matcher = std::optional<matcher>;

optional_matcher made_of(const std::optional<text_match>& from, bool is_name = false) {
  return from ? optional_matcher{std::in_place, *from, is_name} : std::nullopt;
}

bool fits(const optional_matcher& with, std::string_view value) {
  return !with || with->fits(value);
}

struct pair_matcher {
  optional_matcher key, value;

  bool is_good() const { return (!key || key->is_good()) && (!value || value->is_good()); }
};

/// As forms are encoded.
std::string decoded(std::string_view text) {
  std::string made{text};
  std::replace(made.begin(), made.end(), '+', ' ');
  return decoded_path(made);
}

/// A path of a rule's, in the form in which those of requests are compared.
std::optional<text_match> plain(std::optional<text_match> path) {
  if (path && path->how != text_match::kind::regex)
    path->text = decoded_path(path->text);
  return path;
}

std::vector<std::pair<std::string, std::string>> pairs_of(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> all;
  while (!query.empty()) {
    const auto end = query.find('&');
    const auto part = query.substr(0, end);
    query.remove_prefix(end == std::string_view::npos ? query.size() : end + 1);
    const auto equals = part.find('=');
    if (!part.empty())
      all.emplace_back(decoded(part.substr(0, equals)), equals == std::string_view::npos
                                                          ? std::string{}
                                                          : decoded(part.substr(equals + 1)));
  }
  return all;
}

} // namespace

struct rule_set::compiled {
  optional_matcher path;
  std::vector<pair_matcher> query, headers;

  bool is_good() const {
    const auto good = [](const auto& all) {
      return std::all_of(all.begin(), all.end(), [](const auto& each) { return each.is_good(); });
    };
    return (!path || path->is_good()) && good(query) && good(headers);
  }
};

rule_set::rule_set(std::vector<request_rule> rules)
    : rules_(std::move(rules)) {
  for (const auto& each : rules_) {
    auto& made = compiled_.emplace_back();
    made.path = made_of(plain(each.match.path));
    for (const auto& pair : each.match.query)
      made.query.push_back({made_of(pair.key), made_of(pair.value)});
    for (const auto& pair : each.match.headers)
      made.headers.push_back({made_of(pair.key, true), made_of(pair.value)});
  }
}

rule_set::~rule_set() = default;

result<std::shared_ptr<const rule_set>> rule_set::make(std::vector<request_rule> rules) {
  if (auto ok = check(rules); !ok)
    return ok.reason();
  const std::shared_ptr<const rule_set> made{new rule_set{std::move(rules)}};
  for (std::size_t i = 0; i < made->compiled_.size(); ++i)
    if (!made->compiled_[i].is_good())
      return error{errc::invalid_request, "rule " + std::to_string(i + 1) + ", for " +
                                            made->rules_[i].domain +
                                            ": a regular expression is none, or is too large"};
  return made;
}

bool rule_set::covers(std::string_view name) const {
  return std::any_of(rules_.begin(), rules_.end(),
                     [&](const auto& each) { return egress::matches(each.domain, name); });
}

bool rule_set::looks_at_paths(std::string_view name) const {
  return std::any_of(rules_.begin(), rules_.end(), [&](const auto& each) {
    return each.match.path && egress::matches(each.domain, name);
  });
}

std::optional<std::size_t> rule_set::find(std::string_view name,
                                          const request_head& request) const {
  std::optional<std::vector<std::pair<std::string, std::string>>> query;
  const auto path = decoded_path(request.path());
  const auto method = upper_case(request.method);
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const auto& match = rules_[i].match;
    const auto& with = compiled_[i];
    if (!egress::matches(rules_[i].domain, name) || !fits(with.path, path))
      continue;
    if (!match.methods.empty() &&
        std::none_of(match.methods.begin(), match.methods.end(),
                     [&](const auto& each) { return upper_case(each) == method; }))
      continue;
    if (!with.query.empty() && !query)
      query = pairs_of(request.query());
    const bool has_query =
      std::all_of(with.query.begin(), with.query.end(), [&](const auto& wanted) {
        return std::any_of(query->begin(), query->end(), [&](const auto& each) {
          return fits(wanted.key, each.first) && fits(wanted.value, each.second);
        });
      });
    const bool has_headers =
      std::all_of(with.headers.begin(), with.headers.end(), [&](const auto& wanted) {
        return std::any_of(request.rest.begin(), request.rest.end(), [&](const auto& each) {
          return fits(wanted.key, each.name) && fits(wanted.value, each.value);
        });
      });
    if (has_query && has_headers)
      return i;
  }
  return std::nullopt;
}

} // namespace insula::runtime::broker
