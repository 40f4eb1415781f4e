#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace insula::http::vercel {

/// What a sign-in is confirmed with: a token that exists from then on, so that it ends with the key
/// with which it was confirmed.
struct device_grant {
  std::string token;
  std::int64_t lasts_s = 0; ///< How long it is good.
};

/// Sign-ins of command lines that wait for somebody to confirm them, as RFC 8628 has it. Of a
/// device code only a digest is kept. Any thread.
class device_codes {
public:
  using clock = std::chrono::steady_clock;
  using time_point = clock::time_point;

  static constexpr std::chrono::minutes lasts{15};
  static constexpr std::chrono::seconds interval{5}; ///< Between two questions, at least.
  static constexpr std::size_t most = 256, most_of_network = 16;
  /// One that nobody has asked about for so long makes way for others of its network.
  static constexpr std::chrono::seconds silence{60};

  struct codes {
    std::string device; ///< What the command line asks with. A secret.
    std::string user;   ///< What somebody types: XXXX-XXXX.
  };
  /// A new sign-in. None: as many wait as may, from that network or from all of them.
  std::optional<codes> open(const std::string& network, time_point now);

  /// The network from which a sign-in was begun that waits to be confirmed. None: there is none.
  std::optional<std::string> network_of(std::string_view user, time_point now) const;
  /// Without a grant it is refused. False: none waits by this code.
  bool decide(std::string_view user, std::optional<device_grant> what, time_point now);

  enum class state : std::uint8_t { waiting, too_soon, refused, unknown, granted };
  struct outcome {
    state is = state::unknown;
    device_grant grant = {}; ///< Of one that is granted.
  };
  /// How it stands, which is told of a refused or granted one once. One that is asked about too
  /// soon has a longer interval from then on.
  outcome ask(std::string_view device, time_point now);

  /// None waits any more: the node has another main key.
  void clear();

private:
  struct sign_in {
    std::string user, network;
    time_point ends;
    time_point begun;
    std::chrono::seconds interval = device_codes::interval;
    std::optional<time_point> asked = {};
    bool decided = false;
    std::optional<device_grant> grant = {};
  };
  /// Null: none has this code and is not over.
  template <class All>
  static auto* find(All& all, std::string_view user, time_point now) {
    for (auto& [digest, each] : all)
      if (each.user == user && now < each.ends)
        return &each;
    return static_cast<decltype(&all.begin()->second)>(nullptr);
  }

  void drop_silent(const std::string& network, time_point now);

  mutable std::mutex guard_;
  std::map<std::string, sign_in> all_; ///< By the device code's digest.
};

/// What was typed in place of a user code, in its form. Empty: it is none.
std::string user_code_in(std::string_view typed);

} // namespace insula::http::vercel
