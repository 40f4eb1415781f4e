#include "http/transport/response_head.hpp"

namespace insula::http {

namespace {

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 303: return "See Other";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 416: return "Range Not Satisfiable";
    case 421: return "Misdirected Request";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 507: return "Insufficient Storage";
    default: return "Status";
  }
}

} // namespace

std::string status_and_type(int status, std::string_view content_type) {
  std::string head;
  head.reserve(256);
  head += "HTTP/1.1 ";
  head += std::to_string(status);
  head += ' ';
  head += reason_phrase(status);
  head += "\r\n";
  if (!content_type.empty()) {
    head += "Content-Type: ";
    head += content_type;
    head += "\r\n";
  }
  return head;
}

void append_fields(std::string& head, const std::vector<header_field>& fields) {
  for (const auto& [name, value] : fields) {
    head += name;
    head += ": ";
    head += value;
    head += "\r\n";
  }
}

std::string closing_response(const response& answer, std::string_view more_fields) {
  const auto content = answer.content();
  auto raw = status_and_type(answer.status, answer.content_type);
  append_fields(raw, answer.fields);
  raw += more_fields;
  raw += "Content-Length: " + std::to_string(content.size()) + "\r\nConnection: close\r\n\r\n";
  raw += content;
  return raw;
}

} // namespace insula::http
