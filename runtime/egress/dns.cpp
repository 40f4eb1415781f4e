#include "runtime/egress/dns.hpp"

#include "runtime/egress/policy.hpp"

#include <algorithm>

namespace insula::runtime::egress::dns {

namespace {

constexpr std::size_t head_bytes = 12;
constexpr std::uint16_t flag_reply = 0x8000, flag_truncated = 0x0200, flag_recursion = 0x0100,
                        flag_available = 0x0080, mask_opcode = 0x7800, mask_status = 0x000f;

std::uint16_t number_at(std::string_view from, std::size_t at) {
  return static_cast<std::uint16_t>(static_cast<unsigned char>(from[at]) << 8 |
                                    static_cast<unsigned char>(from[at + 1]));
}

void put(std::string& to, std::uint32_t number, int bytes) {
  while (bytes-- > 0)
    to += static_cast<char>(number >> 8 * bytes & 0xff);
}

/// Reads names and numbers one after the other, and says so when there is nothing more.
class reader {
public:
  reader(std::string_view message, std::size_t at)
      : message_(message)
      , at_(at) {}

  bool number(std::uint16_t& into) {
    if (message_.size() - at_ < 2)
      return false;
    into = number_at(message_, at_);
    at_ += 2;
    return true;
  }
  bool number(std::uint32_t& into) {
    std::uint16_t high = 0, low = 0;
    if (!number(high) || !number(low))
      return false;
    into = std::uint32_t{high} << 16 | low;
    return true;
  }
  bool skip(std::size_t bytes) {
    if (message_.size() - at_ < bytes)
      return false;
    at_ += bytes;
    return true;
  }

  /// Labels with dots between them, as they are. Pointers lead backwards only, so they end.
  bool name(std::string& into) {
    std::size_t at = at_, limit = message_.size();
    bool jumped = false;
    into.clear();
    for (;;) {
      if (at >= message_.size())
        return false;
      const auto length = static_cast<unsigned char>(message_[at]);
      if ((length & 0xc0) == 0xc0) {
        if (at + 1 >= message_.size())
          return false;
        const std::size_t target = number_at(message_, at) & 0x3fffu;
        if (!jumped)
          at_ = at + 2;
        jumped = true;
        if (target >= std::min(at, limit))
          return false;
        at = limit = target;
        continue;
      }
      if ((length & 0xc0) != 0)
        return false;
      if (length == 0) {
        if (!jumped)
          at_ = at + 1;
        return true;
      }
      constexpr std::size_t longest = 255;
      if (message_.size() - at - 1 < length || into.size() + length + 1 > longest)
        return false;
      if (!into.empty())
        into += '.';
      // A dot within a label would be read as two labels: no name that anybody can ask us for.
      const auto label = message_.substr(at + 1, length);
      for (const char c : label)
        into += c == '.' ? '?' : c;
      at += 1u + length;
    }
  }

  std::size_t at() const { return at_; }
  std::string_view since(std::size_t begin) const { return message_.substr(begin, at_ - begin); }
  std::string_view rest() const { return message_.substr(at_); }

private:
  std::string_view message_;
  std::size_t at_;
};

std::string head(std::uint16_t id, std::uint16_t flags, std::uint16_t answers) {
  std::string text;
  put(text, id, 2);
  put(text, flags, 2);
  put(text, 1, 2);
  put(text, answers, 2);
  put(text, 0, 4);
  return text;
}

std::string answer_head(const question& asked, std::uint16_t more, std::uint16_t answers) {
  const auto flags = static_cast<std::uint16_t>(flag_reply | flag_available |
                                                (asked.recursion ? flag_recursion : 0) | more);
  return head(asked.id, flags, answers) + asked.raw;
}

/// A record's fields behind its name.
struct record {
  std::uint16_t type = 0, of_class = 0, length = 0;
  std::uint32_t ttl = 0;
};

bool read_record(reader& from, record& into) {
  std::string owner;
  return from.name(owner) && from.number(into.type) && from.number(into.of_class) &&
         from.number(into.ttl) && from.number(into.length);
}

} // namespace

std::optional<question> read_question(std::string_view message) {
  if (message.size() < head_bytes || message.size() > max_message)
    return std::nullopt;
  question asked;
  asked.id = number_at(message, 0);
  const auto flags = number_at(message, 2);
  const auto questions = number_at(message, 4);
  if ((flags & (flag_reply | mask_opcode)) != 0 || questions != 1)
    return std::nullopt;
  asked.recursion = (flags & flag_recursion) != 0;
  reader from{message, head_bytes};
  std::string name;
  if (!from.name(name) || !from.number(asked.type) || !from.number(asked.of_class))
    return std::nullopt;
  asked.raw = from.since(head_bytes);
  // There is nothing before it that a pointer could lead to.
  constexpr std::size_t type_and_class = 4;
  if (asked.raw.size() != (name.empty() ? 1 : name.size() + 2) + type_and_class)
    return std::nullopt;
  asked.name = plain_name(name);
  // What else it says counts only for the size of datagrams, and may be nonsense.
  for (unsigned left = number_at(message, 6) + number_at(message, 8) + number_at(message, 10);
       left > 0; --left) {
    record each;
    if (!read_record(from, each) || !from.skip(each.length))
      break;
    if (each.type == type_opt)
      asked.udp_bytes = std::clamp<std::size_t>(each.of_class, plain_udp, largest_udp);
  }
  return asked;
}

std::string write_status(const question& asked, status how) {
  return answer_head(asked, static_cast<std::uint16_t>(how), 0);
}

std::string write_truncated(const question& asked) {
  return answer_head(asked, flag_truncated, 0);
}

std::string write_addresses(const question& asked, const std::vector<ip_address>& addresses,
                            std::uint32_t ttl) {
  std::string records;
  std::uint16_t count = 0;
  for (const auto& each : addresses) {
    if (each.is_ipv4() ? asked.type != type_a : asked.type != type_aaaa)
      continue;
    put(records, 0xc000 | head_bytes, 2); // The question's name.
    put(records, asked.type, 2);
    put(records, 1, 2);
    put(records, ttl, 4);
    const auto ipv4 = each.ipv4();
    const auto& ipv6 = each.ipv6();
    const bool four = each.is_ipv4();
    put(records, four ? 4 : 16, 2);
    four ? records.append(ipv4.begin(), ipv4.end()) : records.append(ipv6.begin(), ipv6.end());
    ++count;
  }
  return answer_head(asked, 0, count) + records;
}

std::string write_question(std::uint16_t id, std::string_view name, std::uint16_t type) {
  auto text = head(id, flag_recursion, 0);
  while (!name.empty()) {
    const auto label = name.substr(0, name.find('.'));
    put(text, static_cast<std::uint32_t>(std::min<std::size_t>(label.size(), 63)), 1);
    text += label.substr(0, 63);
    name.remove_prefix(std::min(label.size() + 1, name.size()));
  }
  put(text, 0, 1);
  put(text, type, 2);
  put(text, 1, 2);
  return text;
}

std::string forward(const question& asked, std::uint16_t id) {
  return head(id, flag_recursion, 0) + asked.raw;
}

std::optional<reply> read_reply(std::string_view message, std::string_view asked) {
  if (message.size() < head_bytes || asked.size() < head_bytes)
    return std::nullopt;
  reply said;
  said.id = number_at(message, 0);
  const auto flags = number_at(message, 2);
  if ((flags & flag_reply) == 0)
    return std::nullopt;
  said.how = static_cast<status>(flags & mask_status);
  said.truncated = (flags & flag_truncated) != 0;
  const auto question_part = asked.substr(head_bytes);
  const auto same = [](char a, char b) {
    const auto low = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return low(a) == low(b);
  };
  said.repeats =
    number_at(message, 4) == 1 && message.size() >= asked.size() &&
    std::equal(question_part.begin(), question_part.end(), message.begin() + head_bytes, same);
  if (!said.repeats)
    return said;
  reader from{message, asked.size()};
  for (unsigned left = number_at(message, 6) + number_at(message, 8) + number_at(message, 10);
       left > 0 && !said.truncated; --left) {
    record each;
    if (!read_record(from, each))
      return std::nullopt;
    const auto data = from.rest().substr(0, each.length);
    if (!from.skip(each.length))
      return std::nullopt;
    said.has_services = said.has_services || each.type == type_svcb || each.type == type_https;
    constexpr std::size_t soa_numbers = 20, minimum_at = 16; // Behind its two names.
    if (each.type == type_soa && data.size() >= soa_numbers) {
      reader last{data, data.size() - soa_numbers + minimum_at};
      std::uint32_t minimum = 0;
      last.number(minimum);
      said.negative_ttl = std::min(each.ttl, minimum);
    }
    std::optional<ip_address> address;
    if (each.type == type_a && data.size() == 4) {
      ip_address::ipv4_bytes four{};
      std::copy(data.begin(), data.end(), four.begin());
      address.emplace(four);
    } else if (each.type == type_aaaa && data.size() == 16) {
      ip_address::bytes six{};
      std::copy(data.begin(), data.end(), six.begin());
      address.emplace(six);
    }
    constexpr std::size_t most = 32;
    if (!address || said.addresses.size() >= most)
      continue;
    said.ttl = said.addresses.empty() ? each.ttl : std::min(said.ttl, each.ttl);
    said.addresses.push_back(*address);
  }
  return said;
}

std::string with_id(std::string_view message, std::uint16_t id) {
  std::string text{message};
  if (text.size() >= 2) {
    text[0] = static_cast<char>(id >> 8);
    text[1] = static_cast<char>(id & 0xff);
  }
  return text;
}

} // namespace insula::runtime::egress::dns
