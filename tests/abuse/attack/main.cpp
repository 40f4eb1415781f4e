// insula_attack [again] <what> [arguments]: the attacks by name; see attacks.hpp.
#include "tests/abuse/attack/attacks.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>

int main(int argc, char** argv) {
  using namespace insula::attack;
  int at = 1;
  if (argc > 1 && std::string_view{argv[1]} == "again") {
    again();
    ++at;
  }
  const std::string_view what = argc > at ? argv[at] : "";
  const auto number = [&](int nth) { return argc > at + nth ? std::atol(argv[at + nth]) : 1; };
  const char* const text = argc > at + 1 ? argv[at + 1] : ".";
  if (what == "fork_bomb")
    fork_bomb();
  if (what == "threads")
    many_threads(number(1));
  if (what == "zombies")
    zombie_storm();
  if (what == "burn")
    burn(number(1));
  if (what == "stop")
    stop_everybody();
  if (what == "memory")
    memory_hog();
  if (what == "hogs")
    many_hogs(number(1), number(2));
  if (what == "descriptors")
    many_descriptors(text, number(2));
  if (what == "terminals")
    many_terminals();
  if (what == "locks")
    many_locks("posix", number(1));
  if (what == "open_locks")
    many_locks("open", number(1));
  if (what == "directories")
    many_directories(text, number(2), number(3));
  if (what == "buffers")
    fill_buffers(text);
  if (what == "table")
    fill_kernel_table(text);
  if (what == "figures")
    read_figures(number(1));
  if (what == "filters")
    many_filters(number(1));
  if (what == "ask")
    ask_for(text);
  if (what == "chatter")
    chatter();
  if (what == "bytes")
    fill_bytes(text);
  if (what == "inodes")
    fill_inodes(text);
  if (what == "depth")
    deep_directories(number(1));
  else if (what == "flood")
    flood(number(1));
  else {
    std::fprintf(stderr, "insula_attack: there is no attack \"%s\"\n", argc > at ? argv[at] : "");
    return 2;
  }
  return 0;
}
