#include "runtime/agent/requests.hpp"

#include <cstring>

namespace insula::runtime::agent {

const request* request_in(const char* packet, std::size_t bytes) {
  if (bytes < sizeof(request))
    return nullptr;
  const auto* req = reinterpret_cast<const request*>(packet);
  return req->text_bytes == bytes - sizeof *req ? req : nullptr;
}

namespace {

/// Splits text into strings. False when there are not as many.
bool split(char* text, std::size_t bytes, std::uint32_t count, char** strings) {
  for (std::uint32_t i = 0; i < count; ++i) {
    char* end = static_cast<char*>(std::memchr(text, '\0', bytes));
    if (end == nullptr)
      return false;
    strings[i] = text;
    bytes -= static_cast<std::size_t>(end + 1 - text);
    text = end + 1;
  }
  return true;
}

} // namespace

bool read_command(const request& req, char* text, string_list& strings, command& into) {
  const std::uint32_t total = 1 + req.argc + req.envc;
  if (req.argc == 0 || req.argc > max_strings || req.envc > max_strings || total > max_strings ||
      !split(text, req.text_bytes, total, strings))
    return false;
  into = {strings[0], strings + 1, strings + 2 + req.argc};
  std::memmove(into.env, strings + 1 + req.argc, req.envc * sizeof *into.env);
  into.argv[req.argc] = nullptr;
  into.env[req.envc] = nullptr;
  return true;
}

bool read_words(const request& req, char* text, string_list& words) {
  if (req.argc == 0 || req.argc > max_strings || !split(text, req.text_bytes, req.argc, words))
    return false;
  words[req.argc] = nullptr;
  return true;
}

} // namespace insula::runtime::agent
