#include "runtime/port_list.hpp"

#include "runtime/gateway/protocol.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <charconv>
#include <string>
#include <tuple>

namespace insula::runtime {

namespace {

std::string_view take_word(std::string_view& line) {
  const auto end = line.find(' ');
  const auto word = line.substr(0, end);
  line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  return word;
}

template <class Number>
bool read(std::string_view word, Number& into) {
  const auto [end, why] = std::from_chars(word.data(), word.data() + word.size(), into);
  return !word.empty() && why == std::errc{} && end == word.data() + word.size();
}

bool is_address(const std::string& text) {
  std::array<unsigned char, 16> bytes;
  return ::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

bool is_gateways(const listening_port& each) {
  return each.port == gateway::tcp_port && (each.address == "127.0.0.1" || each.address == "::1");
}

} // namespace

std::vector<listening_port> parse_port_list(std::string_view text) {
  std::vector<listening_port> all;
  while (!text.empty()) {
    const auto end = text.find('\n');
    auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    listening_port each;
    const auto port = take_word(line);
    each.address = take_word(line);
    const auto pid = take_word(line);
    constexpr std::size_t longest_name = 15;
    each.process = line == "?" ? "" : std::string{line.substr(0, longest_name)};
    const bool printable = std::all_of(each.process.begin(), each.process.end(),
                                       [](char c) { return c > ' ' && c <= '~'; });
    if (read(port, each.port) && read(pid, each.pid) && each.pid >= 0 && is_address(each.address) &&
        printable && !is_gateways(each))
      all.push_back(std::move(each));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::tie(a.port, a.address) < std::tie(b.port, b.address);
  });
  return all;
}

} // namespace insula::runtime
