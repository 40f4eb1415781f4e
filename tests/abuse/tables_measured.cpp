// The same attacks as in tables_test.cpp, measured: what each costs the neighbours. Nobody runs it
// by accident; `./dev abuse` does. Of the environment: INSULA_ABUSE_ROWS, parts of the rows' names
// with commas between them (all, if it is empty), and INSULA_ABUSE_REPORT, where to write a table
// in Markdown.
#include "tests/abuse/neighbourhood.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/given_back.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

using namespace insula::test;

namespace {

/// Under attack, p99 is less than so many times what it is while nothing happens.
constexpr double allowed_ratio = 5;

/// While nothing happens it is measured before each attack, a part of it each time, and all of that
/// together is what an attack is compared with: a machine has its own quiet and busy moments.
constexpr int idle_part = 4;

/// What is measured of the neighbours, and how often. A 99th percentile needs some hundred times.
struct thing {
  const char* name;
  done_things (neighbourhood::*act)(int) const;
  int times;
};
constexpr std::array things{
  thing{"exec", &neighbourhood::executes, 300},
  thing{"start", &neighbourhood::starts, 100},
  thing{"resolve", &neighbourhood::resolves, 500},
  thing{"connect", &neighbourhood::connects, 500},
  thing{"download", &neighbourhood::downloads, 300},
};
using results = std::array<done_things, things.size()>;

/// An attack that ends with its sandbox is begun anew so often, and a part is measured each time.
constexpr int rounds_of_ending = 5;

double at(std::vector<double> all, double part) {
  if (all.empty())
    return 0;
  const auto nth = all.begin() + std::llround(part * static_cast<double>(all.size() - 1));
  std::nth_element(all.begin(), nth, all.end());
  return *nth;
}

std::string text(const char* format, double number) {
  char made[32];
  std::snprintf(made, sizeof made, format, number);
  return made;
}

std::string in_ms(const std::vector<double>& all) {
  return text("%.1f", at(all, 0.5)) + " / " + text("%.1f", at(all, 0.99));
}

void measure(const neighbourhood& place, int part_of, results& into) {
  for (std::size_t i = 0; i < things.size(); ++i) {
    const auto got = (place.*things[i].act)(std::max(things[i].times / part_of, 1));
    into[i].ms.insert(into[i].ms.end(), got.ms.begin(), got.ms.end());
    into[i].wrong.insert(into[i].wrong.end(), got.wrong.begin(), got.wrong.end());
  }
}

struct row {
  const table_attack* what = nullptr;
  std::string told;
  results attacked;
  std::int64_t lost = 0, charged = 0; ///< At the worst of all moments looked at.
};

void look(const neighbourhood& place, const memory_reading& before, row& into) {
  const auto now = place.memory();
  const auto lost = now.lost_since(before), charged = now.charged_since(before);
  if (lost - charged > into.lost - into.charged || (into.lost == 0 && into.charged == 0)) {
    into.lost = lost;
    into.charged = charged;
  }
}

row measure(neighbourhood& place, const table_attack& what) {
  row made{&what, {}, {}};
  const int rounds = what.ends() ? rounds_of_ending : 1;
  for (int round = 0; round < rounds; ++round) {
    if (what.ends())
      wait_until_given_back();
    const auto before = place.memory();
    running_attack attack{place, what};
    if (!what.ends())
      made.told = attack.hear();
    look(place, before, made);
    measure(place, rounds, made.attacked);
    look(place, before, made);
    if (what.ends())
      made.told = attack.hear();
    place.end();
  }
  return made;
}

/// A line of the table. `good`: nothing in it is beyond what is allowed.
std::string line_of(const row& got, const results& idle, bool& good) {
  const auto& may = got.what->told;
  good = std::find(may.begin(), may.end(), got.told) != may.end();
  std::string line = std::string{"| "} + got.what->table + " | " + got.told;
  line += good ? "" : " **unexpected**";
  for (std::size_t i = 0; i < things.size(); ++i) {
    const auto& attacked = got.attacked[i];
    const auto ratio = at(attacked.ms, 0.99) / std::max(at(idle[i].ms, 0.99), 0.001);
    const bool slow = ratio >= allowed_ratio || attacked.ms.empty();
    const auto times = text("%.1f", ratio);
    line += " | " + in_ms(attacked.ms) + ", " + (slow ? "**" + times + "**" : times);
    if (!attacked.wrong.empty())
      line += ", **" + std::to_string(attacked.wrong.size()) + " failed**";
    good = good && !slow && attacked.wrong.empty();
  }
  const bool paid = got.lost <= got.charged + static_cast<std::int64_t>(uncharged_allowed);
  good = good && paid;
  const auto bytes = std::to_string(got.lost >> 20) + " / " + std::to_string(got.charged >> 20);
  return line + " | " + (paid ? bytes : "**" + bytes + "**") + " |\n";
}

/// All lines, by the idle times as they are known by now. Answers which rows are not good.
std::vector<std::string> write_report(const std::vector<row>& rows, const results& idle) {
  const char* const where = std::getenv("INSULA_ABUSE_REPORT");
  std::ofstream report{where != nullptr ? where : "/dev/stdout"};
  report << "| Table | What the attack is told |";
  for (const auto& each : things)
    report << ' ' << each.name << " |";
  report << " memory lost / charged |\n| --- | --- |";
  for ([[maybe_unused]] const auto& each : things)
    report << " --- |";
  report << " --- |\n| *nothing happens* | |";
  for (const auto& each : idle)
    report << ' ' << in_ms(each.ms) << " |";
  report << " |\n";
  std::vector<std::string> beyond;
  for (const auto& each : rows) {
    bool good = false;
    report << line_of(each, idle, good);
    if (!good)
      beyond.emplace_back(each.what->table);
  }
  return beyond;
}

bool is_wanted(const std::string& table) {
  const char* const rows = std::getenv("INSULA_ABUSE_ROWS");
  std::istringstream parts{rows != nullptr ? rows : ""};
  bool any = false;
  for (std::string part; std::getline(parts, part, ',');) {
    any = true;
    if (table.find(part) != std::string::npos)
      return true;
  }
  return !any;
}

} // namespace

TEST_CASE("what attacks on the tables cost the neighbours", "[.measured]") {
  neighbourhood place;
  results idle;
  std::vector<row> rows;
  std::vector<std::string> beyond;
  for (const auto& each : all_table_attacks()) {
    if (!is_wanted(each.table))
      continue;
    std::cerr << "abuse: " << each.table << '\n';
    measure(place, idle_part, idle);
    for (const auto& wrong : rows.emplace_back(measure(place, each)).attacked)
      if (!wrong.wrong.empty())
        std::cerr << "abuse: " << wrong.wrong.front() << '\n';
    beyond = write_report(rows, idle); // Each time: it takes long, and may be cut short.
  }
  for (const auto& each : idle)
    CHECK(each.wrong == std::vector<std::string>{});
  CHECK(beyond == std::vector<std::string>{});
}
