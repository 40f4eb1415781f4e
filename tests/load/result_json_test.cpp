#include "benchmarks/load/reports.hpp"
#include "benchmarks/load/whole_file.hpp"
#include "storage/images/json.hpp"
#include "tests/load/made_run.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/temp_dir.hpp"

#include <cmath>
#include <filesystem>
#include <random>

using namespace insula;
using namespace insula::test;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& file) {
  const auto text = load::read_whole(file.string(), 1 << 20);
  REQUIRE(text);
  return *text;
}

/// What is said about the written run after one part of its text was replaced.
std::string said_of(const std::string& part, const std::string& by) {
  auto text = load::to_json(made_run());
  const auto at = text.find(part);
  CAPTURE(text);
  REQUIRE(at != text.npos);
  const auto read = load::parse_json(text.replace(at, part.size(), by), "run.json");
  REQUIRE_FALSE(read);
  CHECK(read.reason().code == errc::invalid_request);
  return read.reason().message;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& each : fs::directory_iterator{directory})
    names.push_back(each.path().filename().string());
  return names;
}

} // namespace

TEST_CASE("a run is read exactly as it was written", "[load]") {
  auto all = made_run();
  auto odd = made_scenario("odd \u00b5 \"names\"\n");
  std::mt19937_64 random{3};
  for (int i = 0; i < 2000; ++i) {
    odd.operations[0].latency.record(random() % 1'000'000'000);
    odd.operations[0].samples_ms.push_back(std::ldexp(static_cast<double>(random()), -70));
  }
  odd.operations[0].failures = {{"status 503", 3}, {"timeout", 1}};
  odd.operations[0].dropped = 7;
  odd.operations[0].late = 5;
  odd.operations.push_back({});
  odd.values.push_back({"tiny", -4.9e-324, "", false});
  odd.values.push_back({"huge", 1.7976931348623157e308, "", false});
  odd.void_reasons = {"timers fired 12 ms late", "no file was left"};
  odd.partial = "interrupted";
  all.scenarios.push_back(odd);
  all.scenarios.push_back({});
  all.scenarios.back().skipped = "the server has no terminals";
  const auto read = load::parse_json(load::to_json(all), "run.json");
  REQUIRE(read);
  CHECK(*read == all);
  CHECK(load::to_json(*read) == load::to_json(all));

  const temp_dir dir;
  REQUIRE(load::write_json((dir / "run.json").string(), all));
  const auto from_file = load::read_json((dir / "run.json").string());
  REQUIRE(from_file);
  CHECK(*from_file == all);
  CHECK((fs::status(dir / "run.json").permissions() & fs::perms::all) == fs::perms{0644});
}

TEST_CASE("what is no number or no text is still written", "[load]") {
  auto all = made_run();
  all.scenarios[0].values[0].value = std::nan("");
  all.scenarios[0].notes = {"\xff half \xc3"};
  const auto read = load::parse_json(load::to_json(all), "run.json");
  REQUIRE(read);
  CHECK(std::isnan(read->scenarios[0].values[0].value));
  CHECK(read->scenarios[0].notes[0] == "\ufffd half \ufffd");
}

TEST_CASE("a document that is no run says where", "[load]") {
  CHECK(said_of("\"format\": \"insula load result 1\"", "\"format\": 2") ==
        "run.json: expected a run's result with \"format\": \"insula load result 1\"");
  CHECK(said_of("\"exec\"", "17") ==
        "run.json: scenarios[0].operations[0].name: expected a text, got that number");
  CHECK(said_of("\"method\"", "\"methods\"") ==
        "run.json: scenarios[0]: expected a member \"method\"");
  CHECK(said_of("\"late\": 0", "\"late\": -1") ==
        "run.json: scenarios[0].operations[0].late: expected a whole number up to "
        "9007199254740992, got that number");
  CHECK(said_of("\"late\": 0", "\"late\": 9007199254740993")
          .starts_with("run.json: scenarios[0].operations[0].late: "));
  CHECK(said_of("\"higher_is_better\": false", "\"higher_is_better\": null") ==
        "run.json: scenarios[0].values[0].higher_is_better: expected true or false, got null");
  CHECK(said_of("\"clients\": 1", "\"clients\": 4294967296").starts_with("run.json: clients: "));
  CHECK(said_of("\"seed\": 18446744073709551607", "\"seed\": 18446744073709551616") ==
        "run.json: seed: expected a whole number");
  CHECK(said_of("\"min_us\": 1000", "\"min_us\": 999")
          .starts_with("run.json: scenarios[0].operations[0].latency: expected steps of"));
  CHECK(said_of("\"seconds\": 2.0", "\"seconds\": \"2\"") ==
        "run.json: scenarios[0].seconds: expected a number, got a text");
  CHECK(said_of("[6, 5, 0, 0, 15000, 5000]", "[6, 5]") ==
        "run.json: scenarios[0].operations[0].seconds[0]: expected a list of 6 numbers, got a "
        "list");
  CHECK(said_of("\"command\": \"echo", "\"rate\": \"echo") ==
        "run.json: scenarios[0].parameters.rate: given twice");
  CHECK(said_of("\"wall clock\"", "\"\\udc00\"").find("surrogate") != std::string::npos);
}

TEST_CASE("what is no JSON at all, too deep or too much is refused", "[load]") {
  const auto said = [](const std::string& text) {
    const auto read = load::parse_json(text, "run.json");
    REQUIRE_FALSE(read);
    return read.reason().message;
  };
  CHECK(said("").starts_with("run.json: it is not JSON: "));
  CHECK(said("{} {}").starts_with("run.json: it is not JSON: "));
  CHECK(said(load::to_json(made_run()).substr(0, 700)).starts_with("run.json: it is not JSON: "));
  CHECK(said("[]").starts_with("run.json: expected a run's result"));
  CHECK(said(R"({"seed": 1e999})").starts_with("run.json: it is not JSON: "));
  CHECK(said(std::string(1'000'000, '[')).starts_with("run.json: it nests deeper than 64"));
  std::string many = R"({"format": "insula load result 1", "scenarios": [0)";
  for (int i = 0; i < 256; ++i)
    many += ",0";
  CHECK(said(many + "]}") == "run.json: scenarios: expected at most 256 with 512 operations");
}

TEST_CASE("a file that is not there, and one that is too large", "[load]") {
  const temp_dir dir;
  const auto missing = (dir / "none.json").string();
  const auto read = load::read_json(missing);
  REQUIRE_FALSE(read);
  CHECK(read.reason().code == errc::io_failed);
  CHECK(read.reason().message == missing + ": cannot be read: No such file or directory");
  const auto large = load::read_json("/dev/zero");
  REQUIRE_FALSE(large);
  CHECK(large.reason().message == "/dev/zero: expected at most 64 MiB");
}

TEST_CASE("a full disk leaves the old file and nothing else", "[load]") {
  const small_disk disk{16 * 1024};
  const auto path = disk.path() + "/run.json";
  REQUIRE(load::write_whole(path, "before"));
  auto all = made_run();
  all.scenarios[0].notes.assign(2000, "a note that takes room");
  const auto full = load::write_json(path, all);
  REQUIRE_FALSE(full);
  CHECK(full.reason().code == errc::io_failed);
  CHECK(full.reason().message == path + ": cannot be written: No space left on device");
  CHECK(names_in(disk.path()) == std::vector<std::string>{"run.json"});
  CHECK(text_of(path) == "before");
}

TEST_CASE("what is no ordinary file is written to, and a link stays one", "[load]") {
  const auto full = load::write_whole("/dev/full", "text");
  REQUIRE_FALSE(full);
  CHECK(full.reason().message == "/dev/full: cannot be written: No space left on device");
  CHECK(fs::is_character_file("/dev/full"));
  CHECK(load::write_whole("/dev/null", "text"));
  const temp_dir dir;
  REQUIRE(load::write_whole((dir / "real").string(), "1"));
  fs::create_symlink("real", dir / "link");
  REQUIRE(load::write_whole((dir / "link").string(), "2"));
  CHECK(fs::is_symlink(dir / "link"));
  CHECK(text_of(dir / "real") == "2");
  CHECK_FALSE(load::write_whole(dir.path().string(), "3"));
  CHECK_FALSE(load::write_whole((dir / "none" / "run.json").string(), "3"));
}

TEST_CASE("the tti scenarios have ComputeSDK's shape and score", "[load]") {
  const temp_dir dir;
  const auto path = (dir / "computesdk.json").string();
  auto all = made_run();
  const auto none = load::write_computesdk_json(path, all);
  REQUIRE_FALSE(none);
  CHECK(none.reason().message.find("no tti scenario") != std::string::npos);
  CHECK(names_in(dir.path()).empty());

  load::scenario_result cold;
  cold.name = "tti-cold";
  cold.operations = {made_operation("tti", {}), made_operation("tti concurrent", {50, 70})};
  auto& tti = cold.operations[0];
  for (int i = 40; i >= 1; --i) { // Two are cut off at each end: 3 to 38 hundred ms are left.
    tti.samples_ms.push_back(i * 100);
    tti.latency.record(static_cast<std::uint64_t>(i) * 100'000);
  }
  tti.samples_ms.insert(tti.samples_ms.begin() + 5, 10, -1);
  tti.failures["status 503"] = 10;
  all.scenarios.push_back(cold);
  REQUIRE(load::write_computesdk_json(path, all));
  const auto document = storage::images::parse_json(text_of(path));
  REQUIRE(document);
  const auto& results = (*document)["results"];
  REQUIRE(results.Size() == 2);
  const auto& in_turn = results[0];
  CHECK(std::string{in_turn["mode"].GetString()} == "sequential");
  REQUIRE(in_turn["iterations"].Size() == 50);
  CHECK(in_turn["iterations"][0]["ttiMs"].GetDouble() == 4000);
  CHECK_FALSE(in_turn["iterations"][0].HasMember("error"));
  CHECK(std::string{in_turn["iterations"][5]["error"].GetString()} == "status 503");
  const auto& summary = in_turn["summary"]["ttiMs"];
  CHECK(summary["median"].GetDouble() == 2050);
  CHECK(summary["p95"].GetDouble() == 3700); // 35th of 36
  CHECK(summary["p99"].GetDouble() == 3800);
  CHECK(in_turn["successRate"].GetDouble() == 0.8);
  // (0.6 * 79.5 + 0.25 * 63 + 0.15 * 62) * 0.8
  CHECK(in_turn["compositeScore"].GetDouble() == 58.2);
  const auto& at_once = results[1];
  CHECK(std::string{at_once["mode"].GetString()} == "burst");
  CHECK(at_once["wallClockMs"].GetDouble() == 70);
  CHECK(at_once["timeToFirstReadyMs"].GetDouble() == 50);
  CHECK(at_once["concurrency"].GetUint64() == 2);
}
