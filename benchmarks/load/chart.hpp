#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Charts with two axes as SVG, to be read on a light and on a dark page alike: nothing is filled
/// behind them, and every colour stands out from both.
namespace insula::load {

struct axis {
  std::string title;
  bool logarithmic = false;
  double from = 0;
  double to = 1;
  std::vector<std::pair<double, std::string>> marks; ///< Where there is a line, and its label.
};

/// Round marks from 0 to at least `most`. `spell` labels them.
axis linear_axis(std::string title, double most, std::string (*spell)(double));
/// Marks at powers of ten, and between them where there are few. Both ends are positive.
axis logarithmic_axis(std::string title, double least, double most, std::string (*spell)(double));

enum class colour { first, second, third, fourth, fifth, sixth, seventh, eighth, bad };
/// The one of the nth curve; they begin again after the eighth.
colour nth_colour(std::size_t n);

struct curve {
  std::string name; ///< For the legend; empty for none.
  colour drawn_in = colour::first;
  bool dashed = false;
  bool filled = false;                            ///< Down to the axis, faintly.
  bool dotted = false;                            ///< Every point is marked.
  std::vector<std::pair<double, double>> points;  ///< By ascending x.
  std::vector<std::pair<double, double>> crosses; ///< Where something failed.
};

struct chart {
  std::string title;
  std::string subtitle;
  std::string warning; ///< Loud; empty for none.
  axis x;
  axis y;
  std::vector<curve> curves;
};

std::string svg(const chart& of);

/// What means something to XML, escaped; what it does not allow, replaced.
std::string xml_escaped(std::string_view text);

} // namespace insula::load
