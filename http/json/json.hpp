#pragma once

#include <string>
#include <string_view>

/// The node's own few texts, and numbers, in JSON.
namespace insula::http::json {

/// A JSON number as JavaScript prints it: 1000, 1.5, 1e+21.
std::string number_text(double value);

/// {"error":"…","code":"…"}, and "reason" behind them unless it is empty. Bytes of `message` and
/// `reason` that are no UTF-8 are replaced.
std::string write_error(std::string_view message, std::string_view code,
                        std::string_view reason = {});

/// {"ok":true}
std::string write_ok();

} // namespace insula::http::json
