#include "benchmarks/load/chart.hpp"
#include "benchmarks/load/markdown.hpp"
#include "benchmarks/load/reports.hpp"
#include "benchmarks/load/whole_file.hpp"
#include "tests/load/made_run.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <filesystem>

using namespace insula;
using namespace insula::test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& file) {
  const auto text = load::read_whole(file.string(), 1 << 20);
  REQUIRE(text);
  return *text;
}

/// What is wrong with a text as XML, as far as our pictures need it: elements that are closed in
/// order, attributes in quotes, known entities, no control characters.
std::string wrong_with_xml(const std::string& text) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '&') {
      const auto end = text.find(';', at);
      const auto name = text.substr(at + 1, end - at - 1);
      if (end == text.npos || (name != "amp" && name != "lt" && name != "gt" && name != "quot"))
        return "the entity at " + std::to_string(at);
      at = end + 1;
    } else if (text[at] == '<') {
      const auto end = text.find('>', at);
      if (end == text.npos)
        return "an element without an end";
      const auto tag = text.substr(at + 1, end - at - 1);
      if (tag.find('<') != tag.npos || std::count(tag.begin(), tag.end(), '"') % 2 != 0)
        return "the element <" + tag + ">";
      const auto name = tag.substr(0, tag.find_first_of(" /", 1));
      if (tag.front() == '/') {
        if (open.empty() || '/' + open.back() != tag)
          return "the end </" + tag + ">";
        open.pop_back();
      } else if (tag.back() != '/') {
        open.push_back(name);
      }
      at = end + 1;
    } else if (static_cast<unsigned char>(text[at]) < ' ' && text[at] != '\n') {
      return "a control character";
    } else {
      ++at;
    }
  }
  return open.empty() ? "" : "an open <" + open.back() + ">";
}

load::run_result growth() {
  auto all = made_run();
  auto& of = all.scenarios[0];
  of.name = "growth";
  of.operations.clear();
  for (const char* at : {"exec, 1 live", "exec, 100 live", "exec, 1 client", "exec, 64 clients"})
    of.operations.push_back(made_operation(at, {1, 2, 3}));
  of.operations[1].failures["timeout"] = 1;
  of.values = {{"memory, 1 live", 30, "MiB", false}, {"memory, 100 live", 60, "MiB", false}};
  return all;
}

} // namespace

TEST_CASE("a scenario has its pictures", "[load]") {
  const temp_dir dir;
  auto all = made_run();
  all.scenarios.push_back(all.scenarios[0]);
  all.scenarios.back().operations[0].seconds.resize(9, {1, 1, 1, 0, 9, 9});
  const auto names = load::write_plots((dir / "new").string(), all);
  REQUIRE(names);
  CHECK(*names == std::vector<std::string>{"exec-open-latency.svg", "exec-open-latency-2.svg",
                                           "exec-open-throughput.svg"});
  for (const auto& name : *names) {
    const auto picture = text_of(dir / "new" / name);
    CAPTURE(name, picture);
    CHECK(wrong_with_xml(picture) == "");
    CHECK_THAT(picture, Contains(">exec-open: ") && Contains("polyline"));
  }
  CHECK_THAT(text_of(dir / "new" / "exec-open-latency.svg"), Contains(">90 %</text>"));
  CHECK_THAT(text_of(dir / "new" / "exec-open-throughput.svg"), Contains(">failed or dropped<"));
}

TEST_CASE("growth is drawn by what grows", "[load]") {
  const temp_dir dir;
  const auto names = load::write_plots(dir.path().string(), growth());
  REQUIRE(names);
  CHECK(*names == std::vector<std::string>{"growth-clients.svg", "growth-live-sandboxes.svg",
                                           "growth-live-sandboxes-memory.svg"});
  for (const auto& name : *names)
    CHECK(wrong_with_xml(text_of(dir / name)) == "");
  CHECK_THAT(text_of(dir / "growth-clients.svg"), Contains(">exec p99<") && Contains(">64<"));
  CHECK_THAT(text_of(dir / "growth-live-sandboxes.svg"), Contains("it has failed"));
  CHECK_THAT(text_of(dir / "growth-live-sandboxes-memory.svg"), Contains(">memory, MiB<"));
}

TEST_CASE("none of what grows has its place as well", "[load]") {
  const temp_dir dir;
  auto all = growth();
  auto& of = all.scenarios[0];
  of.name = "pty-echo";
  of.operations.clear();
  for (const char* at : {"echo, 0 others", "echo, 50 others", "echo, 500 others"})
    of.operations.push_back(made_operation(at, {1, 2, 3}));
  of.values = {{"lines printed, 50 others", 49, "1/s", true}};
  const auto names = load::write_plots(dir.path().string(), all);
  REQUIRE(names);
  CHECK(*names ==
        std::vector<std::string>{"pty-echo-others.svg", "pty-echo-others-lines-printed.svg"});
  const auto picture = text_of(dir / "pty-echo-others.svg");
  CHECK(wrong_with_xml(picture) == "");
  for (const auto* mark : {">0<", ">50<", ">500<", ">Number of others<", ">echo p99<"})
    CHECK_THAT(picture, Contains(mark));
  of.operations.resize(1); // With nothing but none.
  CHECK(load::write_plots(dir.path().string(), all));
}

TEST_CASE("names mean nothing in a picture, a path or a page", "[load]") {
  const temp_dir dir;
  auto all = made_run();
  const std::string evil = "../<b a=\"1\">&\x01|`*\n# \xff";
  all.scenarios[0].name = evil;
  all.scenarios[0].method = evil;
  all.scenarios[0].operations[0].name = evil;
  all.scenarios[0].notes = {evil};
  all.command = "insula\n# bench";
  REQUIRE(load::write_page(dir.path().string(), all, ""));
  const auto picture = text_of(dir / "b-a-1-latency.svg");
  CHECK(wrong_with_xml(picture) == "");
  CHECK_THAT(picture, Contains("../&lt;b a=&quot;1&quot;&gt;&amp; |`*"));
  const auto page = text_of(dir / "README.md");
  CAPTURE(page);
  CHECK_THAT(page, !Contains("<b a") && !Contains("\n# \xef") && !Contains("\x01"));
  CHECK_THAT(page, Contains("\n    insula # bench\n"));
  CHECK_THAT(page, Contains("## ../&lt;b a=\"1\">&amp; \\|\\`\\* # "));
}

TEST_CASE("curves of nothing and of one point can be drawn", "[load]") {
  const auto spell = [](double) -> std::string { return "x"; };
  load::chart made;
  CHECK(wrong_with_xml(load::svg(made)) == "");
  made.x = load::linear_axis("x", 0, spell);
  made.y = load::logarithmic_axis("y", 5, 5, spell);
  made.curves = {{"one", load::nth_colour(17), false, true, false, {{0, 5}}, {{0, 5}}}};
  const auto picture = load::svg(made);
  CHECK(wrong_with_xml(picture) == "");
  CHECK_THAT(picture, Contains("<circle") && !Contains("nan") && !Contains("inf"));
}

TEST_CASE("axes end at round marks around what there is", "[load]") {
  const auto spell = [](double number) { return std::to_string(static_cast<int>(number)); };
  const auto ends = [](const load::axis& of) { return std::pair{of.from, of.to}; };
  CHECK(ends(load::linear_axis("", 7, spell)) == std::pair{0.0, 8.0});
  CHECK(ends(load::linear_axis("", 230, spell)) == std::pair{0.0, 250.0});
  CHECK(load::linear_axis("", 230, spell).marks.size() == 6);
  CHECK(ends(load::linear_axis("", 10, spell)) == std::pair{0.0, 10.0});
  CHECK(ends(load::logarithmic_axis("", 3, 700, spell)) == std::pair{1.0, 1000.0});
  CHECK(ends(load::logarithmic_axis("", 3, 70, spell)) == std::pair{2.0, 100.0});
}

TEST_CASE("a page shows a run", "[load]") {
  const temp_dir dir;
  auto all = made_run();
  all.scenarios[0].void_reasons = {"its timers were late"};
  all.scenarios[0].operations[0].failures["timeout"] = 1;
  const load::verdict judged{false, {"MISSED  exec-open: VOID"}};
  REQUIRE(load::write_page(dir.path().string(), all, "", &judged));
  const auto page = text_of(dir / "README.md");
  CAPTURE(page);
  CHECK_THAT(page, Contains("    insula bench --url http://127.0.0.1:8787\n"));
  CHECK_THAT(page, Contains("**Not all are kept.**\n\n- MISSED  exec-open: VOID\n"));
  CHECK_THAT(page, Contains("## exec-open\n\n> **VOID, the client was the bottleneck: its timers "
                            "were late**\n\nopen loop, Poisson, 5/s; 2 s measured"));
  CHECK_THAT(page, Contains("| exec | 11 | 10 | 1 | 0 | 0 | 5.00 | 6.00 ms | 10.0 ms | failed |"));
  CHECK_THAT(page, Contains("- Failures of exec: timeout (1)\n- an ordinary note\n"));
  CHECK_THAT(page, Contains("![exec-open: latency by percentile](exec-open-latency.svg)\n"));
  CHECK_THAT(page, Contains("| client's kernel | 6.1.0 |\n"));
  REQUIRE(load::write_page(dir.path().string(), all, "", &judged));
  CHECK(text_of(dir / "README.md") == page);
}

TEST_CASE("what was written into the page by hand survives", "[load]") {
  const temp_dir dir;
  const auto file = dir / "README.md";
  REQUIRE(load::write_page(dir.path().string(), made_run(), ""));
  CHECK_THAT(text_of(file), Contains("<!-- by hand -->\n<!-- /by hand -->\n"));
  REQUIRE(load::write_whole(file.string(),
                            "old\n<!-- by hand -->\nMy *own* <b>words</b>.\n"
                            "<!-- /by hand -->\nold\n<!-- by hand -->2<!-- /by hand -->"));
  REQUIRE(load::write_page(dir.path().string(), made_run(), ""));
  const auto page = text_of(file);
  CHECK_THAT(page, Contains("<!-- by hand -->\nMy *own* <b>words</b>.\n<!-- /by hand -->\n\n"
                            "<!-- by hand -->2<!-- /by hand -->\n"));
  CHECK_THAT(page, !Contains("old"));
  REQUIRE(load::write_page(dir.path().string(), made_run(), ""));
  CHECK(text_of(file) == page);

  REQUIRE(load::write_whole(file.string(), "<!-- by hand --> no end"));
  const auto refused = load::write_page(dir.path().string(), made_run(), "");
  REQUIRE_FALSE(refused);
  CHECK(refused.reason().message ==
        file.string() + ": not written: <!-- by hand --> without <!-- /by hand -->");
  CHECK(text_of(file) == "<!-- by hand --> no end");
}

TEST_CASE("what stands beside its floor is shown with its ratio", "[load]") {
  const temp_dir dir;
  const std::string floors =
    R"json({"environment": {"commit": "abc"}, "remarks": ["no nginx"],
    "rows": [
      {"scenario": "cold", "row": "create | exit", "unit": "ms", "better": "lower", "n": 1000,
       "p50": 14.5, "p99": 60.7, "worst": 80, "target_p50": 12, "target_p99": 30,
       "floors": [{"name": "host", "p50": 1.45}, {"name": "bubblewrap", "p50": 0}],
       "verdict": "missed by 21 % (p50)"},
      {"scenario": "cold", "row": "DELETE", "unit": "ms", "better": "lower", "n": 0, "verdict": ""},
      {"scenario": "files", "row": "write", "unit": "MB/s", "better": "higher", "p50": 584,
       "target_p50": 500, "floors": [{"name": "loopback", "p50": 2336}], "verdict": "met"},
      17]})json";
  REQUIRE(load::write_page(dir.path().string(), made_run(), floors));
  const auto page = text_of(dir / "README.md");
  CAPTURE(page);
  CHECK_THAT(page, Contains("## Beside their floors\n"));
  CHECK_THAT(page, Contains("Targets: 1 met, 1 missed.\n\n### cold\n\n"
                            "|  | unit | n | p50 | p99 | worst | target | verdict | x host | x "
                            "bubblewrap |\n"));
  CHECK_THAT(page, Contains("| create \\| exit | ms | 1,000 | 14.5 | 60.7 | 80.0 | &lt;= 12, p99 "
                            "&lt;= 30 | missed by 21 % (p50) | 10.0 | - |\n"));
  CHECK_THAT(page, Contains("| DELETE | ms | 0 | - | - | - |  |  |  |  |\n"));
  CHECK_THAT(page, Contains("| write | MB/s | 0 | 584 | - | - | >= 500 | met | 0.25"));
  CHECK_THAT(page, Contains("Remark: no nginx\n") && Contains("| commit | abc |\n"));

  for (const auto* bad : {"nothing", "[]", "{}", R"({"rows": []})", R"({"rows": 5})"}) {
    CAPTURE(bad);
    const auto refused = load::write_page(dir.path().string(), made_run(), bad);
    REQUIRE_FALSE(refused);
    CHECK(refused.reason().message.starts_with("the floors: "));
  }
  CHECK(text_of(dir / "README.md") == page);
}
