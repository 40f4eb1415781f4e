#include "http/api/route_table.hpp"

#include "http/text/header_text.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace insula::http {

namespace {

/// Takes the first segment off `path`, which begins with a slash.
std::string_view take_segment(std::string_view& path) {
  path.remove_prefix(1);
  const auto segment = path.substr(0, path.find('/'));
  path.remove_prefix(segment.size());
  return segment;
}

/// `q=0`, `q=0.0` and so on.
bool is_zero_weight(std::string_view parameter) {
  return parameter.size() > 2 && (parameter[0] | 0x20) == 'q' && parameter[1] == '=' &&
         parameter.find_first_not_of("0.", 2) == std::string_view::npos;
}

} // namespace

bool accepts_gzip(std::string_view accept_encoding) {
  while (!accept_encoding.empty()) {
    auto item = take_until(accept_encoding, ',');
    if (same_letters(take_until(item, ';'), "gzip"))
      return !is_zero_weight(trimmed(item));
  }
  return false;
}

admission refused(response answer) {
  admission plan;
  plan.refusal = std::move(answer);
  return plan;
}

admission answered_by(admission::answer_fn answer) {
  admission plan;
  plan.answer = std::move(answer);
  return plan;
}

const std::string& request_path::operator[](std::string_view name) const {
  static const std::string none;
  const auto at = std::find_if(segments_.begin(), segments_.end(),
                               [&](const auto& each) { return each.first == name; });
  return at == segments_.end() ? none : at->second;
}

std::optional<std::string> matched_request::field_if_any(std::string_view name) const {
  const auto found = head_.field(name); // What is there and empty has a place in the head.
  return found.data() != nullptr ? std::optional{std::string{found}} : std::nullopt;
}

bool matched_request::takes_gzip() const {
  return accepts_gzip(head_.field("Accept-Encoding"));
}

/// A walk along one path. It is no deeper than the longest pattern.
struct route_table::search {
  using named_segment =
    std::pair<std::string_view, std::string_view>; ///< Its name in the pattern, and it.
  static constexpr std::size_t most_named = 8;

  const std::vector<route>& rows;
  verb method;
  std::size_t best = std::string::npos;
  std::array<named_segment, most_named> way{}; ///< To here.
  std::size_t named = 0;
  std::array<named_segment, most_named> best_way{};
  std::size_t best_named = 0;
  std::string_view best_tail{};

  void take(const std::vector<std::size_t>& ending, std::string_view tail) {
    for (const auto row : ending)
      if (row < best && rows[row].method == method) {
        best = row;
        best_way = way;
        best_named = named;
        best_tail = tail;
      }
  }

  /// `path`: what is left of it, with the slash before it.
  void walk(const node& at, std::string_view path) {
    if (!at.rest.empty())
      take(at.rest, path.empty() ? path : path.substr(1));
    if (path.empty())
      return take(at.ends, {});
    const auto segment = take_segment(path);
    if (const auto next = at.literal.find(segment); next != at.literal.end())
      walk(*next->second, path);
    for (const auto& [name, next] : at.named) {
      // An id may be empty, so that it can be said to be wrong.
      if ((segment.empty() && name != "id") || named == most_named)
        continue;
      way[named++] = {name, segment};
      walk(*next, path);
      --named;
    }
  }
};

route_table::route_table(std::vector<route> rows)
    : rows_(std::move(rows)) {
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    auto* at = &top_;
    std::string_view pattern = rows_[row].pattern;
    bool has_rest = false;
    while (!pattern.empty() && !has_rest) {
      const auto segment = take_segment(pattern);
      has_rest = segment == "*";
      if (has_rest)
        break;
      auto& next = segment.starts_with(':') ? at->named[std::string{segment.substr(1)}]
                                            : at->literal[std::string{segment}];
      if (!next)
        next = std::make_unique<node>();
      at = next.get();
    }
    (has_rest ? at->rest : at->ends).push_back(row);
  }
}

std::optional<route_table::found> route_table::find(const request_head& head) const {
  if (head.path.empty() || head.path.front() != '/')
    return std::nullopt;
  search looking{rows_, head.method};
  looking.walk(top_, head.path);
  if (looking.best == std::string::npos)
    return std::nullopt;
  found result{looking.best, {}};
  for (std::size_t i = 0; i < looking.best_named; ++i)
    result.path.set(looking.best_way[i].first, looking.best_way[i].second);
  result.path.tail = looking.best_tail;
  result.path.query = head.query;
  return result;
}

bool route_table::has(verb method, std::string_view path) const {
  if (path.empty() || path.front() != '/')
    return false;
  search looking{rows_, method};
  looking.walk(top_, path);
  const auto end = looking.best_way.begin() + static_cast<std::ptrdiff_t>(looking.best_named);
  return looking.best != std::string::npos &&
         std::none_of(looking.best_way.begin(), end,
                      [](const auto& each) { return each.second.empty(); });
}

std::string route_table::methods_of(std::string_view path) const {
  constexpr std::string_view names[] = {"GET, HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"};
  std::string all;
  for (const auto method : all_verbs)
    if (has(method, path))
      (all += all.empty() ? "" : ", ") += names[static_cast<std::size_t>(method)];
  return all;
}

} // namespace insula::http
