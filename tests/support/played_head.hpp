#pragma once

#include "http/text/header_text.hpp"
#include "http/transport/exchange.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace insula::test {

/// A request's header as a test wants it. What it is given as views must outlive it.
class played_head : public http::request_head {
public:
  using fields_type = std::vector<std::pair<std::string, std::string>>;

  played_head(http::verb how, std::string_view wanted, fields_type fields)
      : fields_(std::move(fields)) {
    method = how;
    method_name = how == http::verb::post ? "POST" : "GET";
    path = wanted;
    keep_alive = true;
  }

  std::string_view field(std::string_view name) const override {
    for (const auto& [known, value] : fields_)
      if (http::same_letters(known, name))
        return value;
    return {};
  }
  void
  each_field(const std::function<void(std::string_view, std::string_view)>& tell) const override {
    for (const auto& [name, value] : fields_)
      tell(name, value);
  }

private:
  fields_type fields_;
};

} // namespace insula::test
