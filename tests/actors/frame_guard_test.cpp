#include "actors/cluster/frame_guard.hpp"

#include "actors/cluster/greeting.hpp"
#include "base/limits.hpp"
#include "tests/support/catch.hpp"

#include <random>
#include <vector>

using namespace insula;
using namespace insula::actors::cluster;

namespace {

constexpr std::uint64_t here = 7;   ///< The actor that may be spoken to.
constexpr std::uint64_t there = 12; ///< Who speaks.
const std::string shape = "+what+it+is";
const std::string identity = "node-one";

std::string big_endian(std::uint64_t value, int bytes) {
  std::string all;
  for (int i = bytes - 1; i >= 0; --i)
    all += static_cast<char>(value >> (8 * i));
  return all;
}

struct frame {
  int what = 2;
  std::string payload;
  std::uint64_t from = there;
  std::uint64_t to = here;
  int flags = 0;

  std::string head(std::uint64_t length) const {
    return std::string{static_cast<char>(what), '\0', '\0', static_cast<char>(flags)} +
           big_endian(length, 4) + big_endian(0, 8) + big_endian(from, 8) + big_endian(to, 8);
  }
  std::string bytes() const { return head(payload.size()) + payload; }
};

const std::string hello = frame{1, identity + "...", 0, 0}.bytes();
const std::string heartbeat = frame{6, "", 0, 0}.bytes();
const std::string message = frame{2, shape + " and what it says"}.bytes();

frame_guard guard(bool dialled = false) {
  return frame_guard{{dialled, here, shape, identity.size(),
                      [](const std::string& claimed) { return claimed == identity; }}};
}

/// What passes, or "!" and why the peer is dropped.
std::string through(frame_guard& by, const std::string& bytes) {
  std::string out;
  const auto why = by.feed(bytes, out);
  return why ? "!" + std::string{*why} : out;
}
std::string through(const std::string& bytes, bool dialled = false) {
  auto one = guard(dialled);
  return through(one, bytes);
}

bool dropped(const std::string& bytes, bool dialled = false) {
  return through(bytes, dialled).starts_with("!");
}

} // namespace

TEST_CASE("what links need passes a guard unchanged", "[actors][links][guard]") {
  const auto monitor = frame{4, "who and whom", 0, here}.bytes();
  const auto all = hello + heartbeat + hello + message + monitor + message + heartbeat;
  CHECK(through(all) == all);
  const auto accepted = frame{0, identity + " and more", 0, 0}.bytes() + message + heartbeat;
  CHECK(through(accepted, true) == accepted);
}

TEST_CASE("what is for others does not pass, and what follows does", "[actors][links][guard]") {
  const std::vector<frame> refused{
    {.payload = shape + "spawn something", .to = 1, .flags = 1},
    {.payload = shape + "to another", .to = here + 1},
    {.payload = "+other+types of message"},
    {.payload = "short"},
    {.payload = shape + "from nobody", .from = 0},
    {.payload = shape, .flags = 1},
    {.what = 3, .payload = "through this node"},
    {.what = 4, .payload = "watch another", .to = here + 1},
    {.what = 4, .payload = std::string(5000, 'x')},
    {.what = 5, .payload = "somebody has ended"},
  };
  for (const auto& each : refused) {
    CAPTURE(each.what, each.payload);
    CHECK(through(hello + each.bytes() + message) == hello + message);
  }
  const auto by_another = frame{.payload = shape + "by another", .from = there + 1}.bytes();
  CHECK(through(hello + message + by_another + message) == hello + message + message);
}

TEST_CASE("who breaks the rules is dropped", "[actors][links][guard]") {
  CHECK(dropped(message));
  CHECK(dropped(heartbeat));
  CHECK(dropped(hello, true));
  CHECK(dropped(frame{0, identity, 0, 0}.bytes()));
  CHECK(dropped(hello + hello + hello));
  CHECK(dropped(frame{1, "node-two...", 0, 0}.bytes()));
  CHECK(dropped(frame{1, "", 0, 0}.bytes()));
  CHECK(dropped(frame{1, "x", 0, 0}.bytes()));
  CHECK(dropped(frame{1, identity + std::string(5000, 'x'), 0, 0}.bytes()));
  CHECK(dropped(hello + frame{7, "x"}.bytes()));
  CHECK(dropped(hello + frame{255, "x"}.bytes()));
  CHECK(dropped(hello + frame{6, "x"}.bytes()));
  CHECK(dropped(hello + frame{2, ""}.bytes()));
  CHECK(dropped(hello + frame{4, ""}.bytes()));
  // By its header alone.
  CHECK(dropped(hello + frame{}.head(limits::link_frame_bytes + 1)));
  CHECK(dropped(frame{1}.head(0xfffffff0)));
  CHECK_FALSE(dropped(hello + frame{}.head(limits::link_frame_bytes)));
}

TEST_CASE("a guard says the same however the bytes arrive", "[actors][links][guard][property]") {
  const auto seed = GENERATE(take(50, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 random{seed};
  std::string all = hello;
  for (int i = 0; i < 30; ++i) {
    frame one;
    one.what = std::vector{2, 2, 3, 4, 5}[random() % 5];
    one.flags = random() % 4 == 0;
    one.to = here + (random() % 4 == 0);
    one.payload = (random() % 4 ? shape : std::string{"x"}) + std::string(random() % 300, 'p');
    all += one.bytes();
  }
  const auto at_once = through(all);
  auto by = guard();
  std::string bit_by_bit;
  for (std::string_view rest = all; !rest.empty();) {
    const auto some = rest.substr(0, random() % 50);
    CHECK_FALSE(by.feed(some, bit_by_bit));
    rest.remove_prefix(some.size());
  }
  CHECK(bit_by_bit == at_once);
}

TEST_CASE("whatever bytes come, a guard lets nothing large or unasked through",
          "[actors][links][guard][property]") {
  const auto seed = GENERATE(take(200, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 random{seed};
  std::string noise(random() % 2000, '\0');
  for (auto& each : noise)
    each = static_cast<char>(random() % 8 ? random() % 8 : random());
  const auto out = through(hello + noise);
  CHECK((out.starts_with("!") || out.starts_with(hello)));
}

TEST_CASE("a greeting is one line of a fixed length", "[actors][links]") {
  const auto said = greeting::parse(greeting{12, "1.2-abc"}.line());
  REQUIRE(said);
  CHECK(said->version == 12);
  CHECK(said->build == "1.2-abc");
  CHECK(greeting{1, std::string(100, 'x')}.line().size() == greeting::bytes);
  CHECK(greeting::parse(greeting{1, std::string(100, 'x')}.line()));
  CHECK(greeting::parse(greeting{4'000'000'000, "a b\n"}.line())->build == "a?b?");
  CHECK(greeting::parse(greeting{1, ""}.line())->build.empty());
  auto line = greeting{1, "x"}.line();
  CHECK_FALSE(greeting::parse(line + "x"));
  CHECK_FALSE(greeting::parse(line.substr(1)));
  line[12] = 'x';
  CHECK_FALSE(greeting::parse(line));
  CHECK_FALSE(greeting::parse(std::string(greeting::bytes, '\0')));
  CHECK_FALSE(greeting::parse("insula-link " + std::string(51, '1') + "\n"));
}
