#include "benchmarks/load/figures.hpp"
#include "benchmarks/load/floors.hpp"
#include "benchmarks/load/markdown.hpp"
#include "benchmarks/load/plots.hpp"
#include "benchmarks/load/reports.hpp"
#include "benchmarks/load/whole_file.hpp"
#include "http/text/utf8.hpp"

#include <filesystem>

namespace insula::load {

namespace {

constexpr std::size_t max_file_bytes = 4u << 20;
constexpr std::string_view by_hand = "<!-- by hand -->";
constexpr std::string_view end_of_it = "<!-- /by hand -->";

/// What somebody has written into the page, with its marks; a place for it if nobody has.
result<std::string> kept_of(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    return std::string{by_hand} + "\n" + std::string{end_of_it} + "\n";
  const auto page = read_whole(path, max_file_bytes);
  if (!page)
    return page.reason();
  std::string kept;
  for (auto from = page->find(by_hand); from != page->npos; from = page->find(by_hand, from)) {
    const auto end = page->find(end_of_it, from);
    if (end == page->npos)
      return error{errc::invalid_request, path + ": not written: " + std::string{by_hand} +
                                            " without " + std::string{end_of_it}};
    const auto next = end + end_of_it.size();
    kept += (kept.empty() ? "" : "\n") + page->substr(from, next - from) + '\n';
    from = next;
  }
  return kept.empty() ? std::string{by_hand} + "\n" + std::string{end_of_it} + "\n" : kept;
}

std::string paragraph(const std::string& text) {
  return text.empty() ? "" : markdown_escaped(text) + "\n\n";
}

std::string bullets(const std::vector<std::string>& lines) {
  std::string all;
  for (const auto& each : lines)
    all += "- " + markdown_escaped(each) + '\n';
  return all.empty() ? "" : all + '\n';
}

/// What was typed, as it is: four spaces in front of a line say so.
std::string code(std::string line) {
  for (auto& c : line)
    if (static_cast<unsigned char>(c) < ' ')
      c = ' ';
  return "    " + line + "\n\n";
}

std::string section_of(const scenario_result& of, const std::vector<picture>& pictures) {
  auto text = "## " + markdown_escaped(of.name) + "\n\n";
  for (const auto& warning : warnings(of))
    text += "> **" + markdown_escaped(warning) + "**\n\n";
  text += paragraph(headline(of)) + paragraph(parameters_text(of));
  if (!of.operations.empty())
    text += markdown_table(operation_table(of)) + '\n';
  std::vector<std::vector<std::string>> values{{"", ""}};
  for (const auto& each : of.values)
    values.push_back({each.name, in_unit(each)});
  if (values.size() > 1)
    text += markdown_table(values) + '\n';
  std::vector<std::string> remarks;
  for (const auto& each : of.operations)
    if (const auto kinds = failures_text(each); !kinds.empty())
      remarks.push_back("Failures of " + kinds);
  remarks.insert(remarks.end(), of.notes.begin(), of.notes.end());
  if (const auto itself = client_text(of.client); !itself.empty())
    remarks.push_back("The client used " + itself);
  text += bullets(remarks);
  for (const auto& each : pictures)
    text += "![" + markdown_escaped(each.title) + "](" + each.file + ")\n\n";
  return text;
}

std::string environment_of(const run_result& all) {
  std::vector<std::vector<std::string>> lines{{"", ""}};
  lines.push_back({"target", all.target});
  lines.push_back({"started", all.started_at});
  lines.push_back({"seed", std::to_string(all.seed)});
  lines.push_back({"clients", std::to_string(all.clients)});
  for (const auto& [name, value] : all.client)
    lines.push_back({"client's " + name, value});
  for (const auto& [name, value] : all.server)
    lines.push_back({"server's " + name, value});
  return "## Environment\n\n" + markdown_table(lines, true) + '\n';
}

std::string verdict_of(const verdict& judged) {
  auto text = std::string{"## Thresholds\n\n"} +
              (judged.passed ? "All are kept.\n\n" : "**Not all are kept.**\n\n");
  return text + bullets(judged.lines);
}

} // namespace

result<void> write_page(const std::string& directory, const run_result& all,
                        const std::string& floors_json, const verdict* judged) {
  const auto path = (std::filesystem::path{directory} / "README.md").string();
  const auto kept = kept_of(path);
  if (!kept)
    return kept.reason();
  std::string page =
    "# Measured\n\nWritten by the load harness; see [how it measures](../../benchmarks/README.md). "
    "Only what stands between the marks \"by hand\" is kept when it is written again.\n\n" +
    *kept + "\nThis run:\n\n" + code(all.command) +
    "Times count from the intended start; what failed or was dropped counts as slower than "
    "everything. *service p50* counts from the real start, *late* began more than a millisecond "
    "after the intended one, *MB/s* is what one transfer reached.\n\n";
  if (judged != nullptr)
    page += verdict_of(*judged);
  const auto pictures = draw_plots(all);
  for (std::size_t i = 0; i < all.scenarios.size(); ++i)
    page += section_of(all.scenarios[i], pictures[i]);
  if (!floors_json.empty()) {
    const auto floors = floors_as_markdown(floors_json);
    if (!floors)
      return floors.reason();
    page += "## Beside their floors\n\nThe same work without Insula, in the same run of "
            "`insula_bench`.\n\n" +
            *floors + '\n';
  }
  page += environment_of(all);
  page.pop_back(); // One of two line ends.
  if (const auto drawn = write_pictures(directory, pictures); !drawn)
    return drawn.reason();
  return write_whole(path, http::to_utf8(page));
}

} // namespace insula::load
