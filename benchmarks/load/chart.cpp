#include "benchmarks/load/chart.hpp"

#include "benchmarks/load/figures.hpp"
#include "http/text/utf8.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace insula::load {

namespace {

// In the picture's own units, which are pixels where it is not scaled.
constexpr double width = 760;
constexpr double left = 76, right = 28; ///< Left of the axes and right of them.
constexpr double plot_height = 260;
constexpr double below = 52; ///< The labels and the title of the x axis.
constexpr double line_of_text = 19;
constexpr double character = 6.5; ///< About, of the legend's text.

constexpr const char* colours[] = {"#2f81f7", "#db6d28", "#2da44e", "#a371f7", "#1b9aaa",
                                   "#bf8700", "#d3558f", "#768390", "#e5534b"};

const char* name_of(colour which) {
  return colours[static_cast<std::size_t>(which)];
}

std::string text_of(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", number);
  return text;
}

/// ` name="12.3"`
std::string attribute(const char* name, double value) {
  return std::string{" "} + name + "=\"" + text_of(value) + '"';
}

std::string text_at(double x, double y, const char* look, const std::string& text,
                    const std::string& more = {}) {
  return "<text" + attribute("x", x) + attribute("y", y) + " class=\"" + look + '"' + more + '>' +
         xml_escaped(text) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const std::string& look) {
  return "<line" + attribute("x1", x1) + attribute("y1", y1) + attribute("x2", x2) +
         attribute("y2", y2) + ' ' + look + "/>\n";
}

std::string stroke(const curve& of, double thickness) {
  return std::string{"stroke=\""} + name_of(of.drawn_in) + "\"" +
         attribute("stroke-width", thickness) + (of.dashed ? " stroke-dasharray=\"5 4\"" : "");
}

/// 0 to 1 along an axis; what is beyond its ends is put there.
double along(const axis& of, double value) {
  const auto part = of.logarithmic
                      ? std::log(std::max(value, of.from) / of.from) / std::log(of.to / of.from)
                      : (value - of.from) / (of.to - of.from);
  return std::clamp(part, 0.0, 1.0);
}

/// Draws from the top to the bottom, so that what stands above the axes takes the room it needs.
class drawing {
public:
  explicit drawing(const chart& of)
      : of_(of) {}

  std::string whole() {
    body_ += text_at(left, y_ += 26, "title", of_.title);
    if (!of_.subtitle.empty())
      body_ += text_at(left, y_ += line_of_text, "label", of_.subtitle);
    if (!of_.warning.empty())
      body_ += text_at(left, y_ += line_of_text, "warning", of_.warning);
    legend();
    top_ = y_ + 18;
    axes();
    for (const auto& each : of_.curves)
      if (each.filled)
        area(each);
    for (const auto& each : of_.curves)
      path(each);
    return frame(top_ + plot_height + below);
  }

private:
  double x_of(double value) const { return left + along(of_.x, value) * (width - left - right); }
  double y_of(double value) const { return top_ + (1 - along(of_.y, value)) * plot_height; }

  void legend() {
    double x = left;
    y_ += line_of_text + 3;
    for (const auto& each : of_.curves) {
      if (each.name.empty())
        continue;
      const auto room = 30 + character * static_cast<double>(width_of(each.name)) + 16;
      if (x > left && x + room > width - right) {
        x = left;
        y_ += line_of_text;
      }
      body_ += line(x, y_ - 4, x + 22, y_ - 4, stroke(each, 2.5));
      body_ += text_at(x + 29, y_, "label", each.name);
      x += room;
    }
  }

  void axes() {
    const auto bottom = top_ + plot_height;
    for (const auto& [value, label] : of_.y.marks) {
      body_ += line(left, y_of(value), width - right, y_of(value), "class=\"grid\"");
      body_ += text_at(left - 8, y_of(value) + 4, "label", label, " text-anchor=\"end\"");
    }
    for (const auto& [value, label] : of_.x.marks) {
      body_ += line(x_of(value), top_, x_of(value), bottom, "class=\"grid\"");
      body_ += text_at(x_of(value), bottom + 18, "label", label, " text-anchor=\"middle\"");
    }
    body_ += line(left, bottom, width - right, bottom, "class=\"axis\"");
    body_ += text_at((left + width - right) / 2, bottom + 40, "label", of_.x.title,
                     " text-anchor=\"middle\"");
    const auto middle = text_of(top_ + plot_height / 2);
    body_ += text_at(16, top_ + plot_height / 2, "label", of_.y.title,
                     " text-anchor=\"middle\" transform=\"rotate(-90 16 " + middle + ")\"");
  }

  std::string points_of(const curve& each) const {
    std::string all;
    for (const auto& [x, y] : each.points)
      all += (all.empty() ? "" : " ") + text_of(x_of(x)) + ',' + text_of(y_of(y));
    return all;
  }

  void area(const curve& each) {
    if (each.points.empty())
      return;
    const auto bottom = ',' + text_of(top_ + plot_height);
    body_ += std::string{"<polygon fill=\""} + name_of(each.drawn_in) +
             "\" fill-opacity=\"0.13\" points=\"" + text_of(x_of(each.points.front().first)) +
             bottom + ' ' + points_of(each) + ' ' + text_of(x_of(each.points.back().first)) +
             bottom + "\"/>\n";
  }

  void path(const curve& each) {
    if (each.points.size() > 1)
      body_ += "<polyline fill=\"none\" stroke-linejoin=\"round\" " + stroke(each, 2) +
               " points=\"" + points_of(each) + "\"/>\n";
    if (each.dotted || each.points.size() == 1)
      for (const auto& [x, y] : each.points)
        body_ += "<circle" + attribute("cx", x_of(x)) + attribute("cy", y_of(y)) +
                 attribute("r", 3.5) + " fill=\"" + name_of(each.drawn_in) + "\"/>\n";
    for (const auto& [x, y] : each.crosses)
      for (const int side : {-1, 1})
        body_ += line(x_of(x) - 5, y_of(y) - side * 5, x_of(x) + 5, y_of(y) + side * 5,
                      std::string{"stroke=\""} + name_of(colour::bad) + "\" stroke-width=\"2.5\"");
  }

  std::string frame(double height) const {
    const auto size = text_of(width) + ' ' + text_of(height);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + size + '"' +
           attribute("width", width) + attribute("height", height) + " role=\"img\" aria-label=\"" +
           xml_escaped(of_.title) +
           "\">\n<style>\n"
           "text { font-family: -apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, "
           "sans-serif; fill: #75808b; }\n"
           ".title { font-size: 16px; font-weight: 600; }\n"
           ".label { font-size: 12px; }\n"
           ".warning { font-size: 12px; font-weight: 600; fill: " +
           name_of(colour::bad) +
           "; }\n"
           ".grid { stroke: #8b949e; stroke-opacity: 0.25; }\n"
           ".axis { stroke: #8b949e; }\n"
           "</style>\n" +
           body_ + "</svg>\n";
  }

  const chart& of_;
  std::string body_;
  double y_ = 0;   ///< How far down it is drawn.
  double top_ = 0; ///< Of the axes.
};

} // namespace

axis linear_axis(std::string title, double most, std::string (*spell)(double)) {
  most = std::isfinite(most) && most > 0 ? most : 1;
  // The smallest of 1, 2, 5, 10, 20 … with at most five of them up to the end.
  const auto decade = std::pow(10, std::floor(std::log10(most / 5)));
  const auto fits = [&](double times) { return times * decade * 5 >= most * (1 - 1e-9); };
  const auto each = decade * (fits(1) ? 1 : fits(2) ? 2 : fits(5) ? 5 : 10);
  axis made{std::move(title), false, 0, 0, {}};
  for (int i = 0; made.to < most * (1 - 1e-9) || i == 0; ++i)
    made.to = each * (i + 1);
  for (int i = 0; i * each <= made.to * (1 + 1e-9); ++i)
    made.marks.emplace_back(i * each, spell(i * each));
  return made;
}

axis logarithmic_axis(std::string title, double least, double most, std::string (*spell)(double)) {
  const auto steps = most / least < 50 ? std::vector<double>{1, 2, 5} : std::vector<double>{1};
  axis made{std::move(title), true, least, most, {}};
  std::vector<double> candidates;
  for (int power = static_cast<int>(std::floor(std::log10(least)));
       candidates.empty() || candidates.back() < most; ++power)
    for (const double step : steps)
      candidates.push_back(step * std::pow(10, power));
  // From the last one that is not above all values to the first that is not below them.
  for (const double each : candidates) {
    if (each <= least * (1 + 1e-9))
      made.marks.clear();
    made.marks.emplace_back(each, spell(each));
    if (each >= most * (1 - 1e-9))
      break;
  }
  if (made.marks.size() == 1)
    made.marks.emplace_back(2 * made.marks.front().first, spell(2 * made.marks.front().first));
  made.from = made.marks.front().first;
  made.to = made.marks.back().first;
  return made;
}

colour nth_colour(std::size_t n) {
  return static_cast<colour>(n % static_cast<std::size_t>(colour::bad));
}

std::string svg(const chart& of) {
  return drawing{of}.whole();
}

std::string xml_escaped(std::string_view text) {
  std::string made;
  for (const char c : http::to_utf8(text))
    if (c == '&')
      made += "&amp;";
    else if (c == '<')
      made += "&lt;";
    else if (c == '>')
      made += "&gt;";
    else if (c == '"')
      made += "&quot;";
    else // There is no way to write control characters in XML.
      made += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  return made;
}

} // namespace insula::load
