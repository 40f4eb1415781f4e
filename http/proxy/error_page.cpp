#include "http/proxy/error_page.hpp"

#include "http/json/json.hpp"

namespace insula::http::proxy {

namespace {

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text)
    switch (c) {
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '&': safe += "&amp;"; break;
      default: safe += c;
    }
  return safe;
}

} // namespace

response error_answer(int status, std::string_view code, const std::string& why, bool as_page,
                      bool retries) {
  response answer{status, {}, "text/html; charset=utf-8", {{"Cache-Control", "no-store"}}};
  if (!as_page) {
    answer.content_type = "application/json";
    answer.body = json::write_error(why, code);
    return answer;
  }
  answer.body = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>" +
                std::to_string(status) + "</title>";
  if (retries)
    answer.body += "<meta http-equiv=\"refresh\" content=\"2\">";
  answer.body += "<body style=\"font:1em sans-serif;margin:4em\"><h1>" + std::to_string(status) +
                 "</h1><p>" + escaped(why) + ".</p>";
  if (retries)
    answer.body += "<p>This page asks again every two seconds.</p>";
  answer.body += "<p><small>Insula, " + std::string{code} + "</small></p></body></html>\n";
  return answer;
}

} // namespace insula::http::proxy
