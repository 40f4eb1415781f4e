#pragma once

#include "http/vercel/api.hpp"
#include "http/vercel/failures.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace insula::http::vercel {

void add_list_route(std::vector<route>& table, const shared_services& with,
                    const std::string& prefix);

inline constexpr std::uint32_t default_page = 20, longest_page = 50;

/// What each list is asked in the same words.
struct page_words {
  std::uint32_t limit = default_page;
  bool ascends = false;
  std::string after = {}; ///< The place that the cursor stands for. Empty: there is none.
};
/// None: they make sense.
std::optional<refusal> read_page(std::string_view query, page_words& into);

/// The parameter `limit`. None: it makes no sense.
std::optional<std::uint32_t> page_limit(std::string_view query);

/// Cursors are texts of this server's that clients give back as they are.
std::string cursor_text(std::string_view place);
std::optional<std::string> place_of_cursor(std::string_view cursor);

} // namespace insula::http::vercel
