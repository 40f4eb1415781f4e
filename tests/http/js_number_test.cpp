#include "http/json/js_number.hpp"
#include "tests/support/catch.hpp"

#include <cmath>
#include <limits>
#include <utility>

using insula::http::js_number;

TEST_CASE("a text is the number that JavaScript makes of it", "[http]") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::pair<const char*, double> numbers[] = {{"80", 80},
                                                    {"0", 0},
                                                    {"-1", -1},
                                                    {"+7", 7},
                                                    {"007", 7},
                                                    {"1.5", 1.5},
                                                    {".5", 0.5},
                                                    {"5.", 5},
                                                    {"1e3", 1000},
                                                    {"1E+2", 100},
                                                    {"1e-2", 0.01},
                                                    {"0x10", 16},
                                                    {"0XfF", 255},
                                                    {"0o17", 15},
                                                    {"0b101", 5},
                                                    {"  80\t\n", 80},
                                                    {"\u00a0\u200980\ufeff", 80},
                                                    {"", 0},
                                                    {"   ", 0},
                                                    {"Infinity", infinity},
                                                    {"-Infinity", -infinity},
                                                    {"1e999", infinity},
                                                    {"-1e999", -infinity},
                                                    {"1e-999", 0},
                                                    {"1000000000", 1e9}};
  for (const auto& [text, number] : numbers) {
    CAPTURE(text);
    REQUIRE(js_number(text));
    CHECK(*js_number(text) == number);
  }
  for (const char* text : {"abc", "8 0", "80px", "0x",       "0xg",   "-0x10", "+0x10", "0o8",
                           "0b2", "1e",  "e5",   ".",        "-",     "+",     "--1",   "+-1",
                           "inf", "nan", "NaN",  "infinity", "1_000", "1,5",   "0x1.8", "0x1p3"}) {
    CAPTURE(text);
    CHECK_FALSE(js_number(text));
  }
}
