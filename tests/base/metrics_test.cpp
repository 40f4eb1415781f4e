#include "base/metrics.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/metrics_text.hpp"

#include <thread>
#include <vector>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;
using metrics::kind;

TEST_CASE("what is written can be read back, whatever stands in a label", "[base][metrics]") {
  const std::string odd = "a \"b\"\\\n{c=\"d\",} #";
  metrics::counter seen;
  seen.add(3);
  metrics::gauge depth;
  depth.subtract(2);
  metrics::text text;
  text.family("seen_total", kind::counter, "Line one\nand \\ a \"quote\".");
  text.sample(seen, {{"path", odd}, {"other", ""}});
  text.sample(std::uint64_t{18'446'744'073'709'551'615u}, {{"path", "most"}});
  text.single("depth", kind::gauge, "Below nothing.", depth);
  text.single("share", kind::gauge, "Not whole.", 0.1);

  const metrics_page page{text.str()};
  CHECK(page.value("seen_total", {{"path", odd}, {"other", ""}}) == 3);
  CHECK(page.value("seen_total", {{"path", "most"}}) == 18'446'744'073'709'551'615.0);
  CHECK(page.value("depth") == -2);
  CHECK(page.value("share") == 0.1);
  CHECK(page.type("seen_total") == "counter");
  CHECK(page.type("depth") == "gauge");
  CHECK(page.help("seen_total") == "Line one\\nand \\\\ a \"quote\".");
}

TEST_CASE("a histogram's buckets hold all that is not larger, and the last one everything",
          "[base][metrics]") {
  metrics::histogram took;
  for (const auto each : {0ns, 100'000ns, 100'001ns, 1'000'000ns, 60'000'000'000ns})
    took.observe(each);
  took.observe(std::chrono::nanoseconds{3min}); // Larger than every end.
  took.observe(std::chrono::nanoseconds{-5});   // A clock that was read in the wrong order.
  metrics::text text;
  text.single("took_seconds", kind::histogram, "Time.", took);

  const metrics_page page{text.str()};
  const auto at = [&](const char* end) { return page.value("took_seconds_bucket", {{"le", end}}); };
  CHECK(page.type("took_seconds") == "histogram");
  CHECK(at("0.0001") == 3);
  CHECK(at("0.00025") == 4);
  CHECK(at("0.001") == 5);
  CHECK(at("30") == 5);
  CHECK(at("60") == 6);
  CHECK(at("+Inf") == 7);
  CHECK(page.value("took_seconds_count") == 7);
  CHECK(page.value("took_seconds_sum") == Approx(240.001200001));
  double before = 0;
  std::size_t buckets = 0;
  std::map<double, double> by_end;
  for (const auto& [name, value] : page.samples())
    if (name.first == "took_seconds_bucket")
      by_end[std::strtod(name.second.at("le").c_str(), nullptr)] = value;
  for (const auto& [end, value] : by_end) {
    CHECK(value >= before);
    before = value;
    ++buckets;
  }
  CHECK(buckets == 19);
}

TEST_CASE("nothing is lost when many count at once", "[base][metrics]") {
  metrics::counter count;
  metrics::histogram sizes{metrics::sizes};
  constexpr unsigned each = 20'000;
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i <= 4; ++i)
      threads.emplace_back([&, i] {
        for (unsigned n = 0; n < each; ++n) {
          count.add();
          sizes.observe(i);
        }
      });
  }
  CHECK(count.value() == 4 * each);
  CHECK(sizes.count() == 4 * each);
  CHECK(sizes.sum() == 10.0 * each);
}
