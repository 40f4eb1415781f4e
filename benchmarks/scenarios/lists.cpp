#include "benchmarks/http_client.hpp"
#include "benchmarks/scenario.hpp"
#include "storage/sqlite_store.hpp"

#include <condition_variable>
#include <mutex>
#include <stdexcept>

namespace insula::bench {

namespace {

constexpr const char* large_project = "prj_many";
constexpr const char* small_project = "prj_few";
constexpr std::size_t few = 50;
constexpr std::size_t tagged_each = 500; ///< One in so many has the tag that is looked for.
constexpr std::int64_t first_ms = 1'700'000'000'000;

/// 26 letters, as ids have them.
std::string id_of(std::size_t number, char kind) {
  std::string id(26, kind);
  for (std::size_t i = 25; number > 0; --i, number /= 26)
    id[i] = static_cast<char>('a' + number % 26);
  return id;
}

std::string name_of(std::size_t number) {
  const auto digits = std::to_string(number * 7919 % 100'000);
  return "box-" + std::string(5 - digits.size(), '0') + digits;
}

/// The record of a sandbox of the Vercel API that has had one run, without its lines in lists: the
/// server makes those when it starts.
storage::write_batch record_of(std::size_t number, const std::string& project, char kind) {
  const auto made = std::to_string(first_ms + static_cast<std::int64_t>(number) * 1000);
  const auto* const tag = number % tagged_each == 0 ? "rare" : "common";
  return {id_of(number, kind),
          1,
          {{"created_ms", made},
           {"image", "host"},
           {"metadata/vercel", R"({"project":")" + project + R"(","name":")" + name_of(number) +
                                 R"(","persistent":true,"timeout":300000,"vcpus":2,"updated":)" +
                                 made + R"(,"region":"iad1","ports":[3000],"tags":{"kind":")" +
                                 tag + R"(","team":"red"},"networkPolicy":{"mode":"allow-all"}})"},
           {"run/0000000000000001",
            "3 " + made + ' ' + made + ' ' + made + ' ' + made + " 300000 12 0 0"},
           {"run_totals", "1 1000 12 0 0"}}};
}

void write_records(const std::string& path, std::size_t many) {
  auto opened = storage::sqlite_store::open(path);
  if (!opened)
    throw std::runtime_error(opened.reason().message);
  std::mutex mutex;
  std::condition_variable written;
  std::size_t left = 0;
  std::string failure;
  const auto write = [&](storage::write_batch batch) {
    std::unique_lock lock{mutex};
    written.wait(lock, [&] { return left < 1'000; });
    ++left;
    lock.unlock();
    (*opened)->commit(std::move(batch), [&](const result<void>& done) {
      const std::lock_guard held{mutex};
      if (!done)
        failure = done.reason().message;
      --left;
      written.notify_one();
    });
  };
  for (std::size_t i = 0; i < many; ++i)
    write(record_of(i, large_project, 'm'));
  for (std::size_t i = 0; i < few; ++i)
    write(record_of(i, small_project, 'f'));
  std::unique_lock lock{mutex};
  written.wait(lock, [&] { return left == 0; });
  if (!failure.empty())
    throw std::runtime_error(failure);
}

/// A text member of JSON that has no escapes.
std::string text_member(const std::string& json, const std::string& name) {
  const auto mark = "\"" + name + "\":\"";
  const auto at = json.rfind(mark);
  return at == std::string::npos
           ? std::string{}
           : json.substr(at + mark.size(), json.find('"', at + mark.size()) - at - mark.size());
}

/// Pages of a project's list among ten thousand sandboxes.
class lists : public scenario {
public:
  std::string name() const override { return "lists"; }
  std::string about() const override {
    return "pages of a project's sandboxes by the Vercel API, among 10,000";
  }

  void measure(bench& with) override {
    for (auto* each : {&newest_, &named_, &changed_, &tagged_, &few_, &health_})
      each->next_round();
    const auto server = with.start_insula();
    server->kill_and_replace([&] { write_records(server->records(), with.repeat(10'000, 1'000)); });
    {
      http_client client{server->port(), server->key()};
      const auto list = "/v2/sandboxes?project=" + std::string{large_project};
      // Half way down the list by name.
      std::string middle = "&cursor=";
      for (std::size_t i = 0, pages = with.repeat(100, 10); i < pages; ++i)
        middle =
          "&cursor=" +
          text_member(
            page(client, nullptr, list + "&limit=50&sortBy=name" + (i == 0 ? "" : middle)), "next");
      for (std::size_t i = 0; i < with.repeat(300, 30); ++i)
        run_in_random_order(
          with,
          {{&newest_, [&] { page(client, &newest_, list); }},
           {&named_, [&] { page(client, &named_, list + "&limit=50&sortBy=name" + middle); }},
           {&changed_, [&] { page(client, &changed_, list + "&limit=50&sortBy=statusUpdatedAt"); }},
           {&tagged_, [&] { page(client, &tagged_, list + "&tags=kind%3Arare"); }},
           {&few_,
            [&] { page(client, &few_, "/v2/sandboxes?project=" + std::string{small_project}); }},
           {&health_, [&] { page(client, &health_, "/health"); }}});
    }
    server->stop();
  }

  void tell(const bench&, report& all) const override {
    const auto health = make_row("GET /health", "ms", health_);
    const auto small = make_row("20 of a project with 50", "ms", few_);
    auto newest = make_row("20 of 10,000, the newest", "ms", newest_);
    auto named = make_row("50 of 10,000 by name, half way down", "ms", named_);
    auto changed = make_row("50 of 10,000 by statusUpdatedAt", "ms", changed_);
    for (auto* each : {&newest, &named, &changed}) {
      each->wanted = {5, {}, {}};
      each->floors = {{"of 50", small.measured.p50}, {"/health", health.measured.p50}};
    }
    const auto tagged = make_row("a tag that one in 500 has: 1,000 looked at", "ms", tagged_);
    for (const auto& each : {newest, named, changed, tagged, small, health})
      all.rows.push_back(each);
  }

private:
  static std::string page(http_client& client, series* to, const std::string& path) {
    client.ready();
    std::string answer;
    const auto began = clock::now();
    const auto status = client.ask("GET", path, {}, answer);
    const auto took = ms_since(began);
    if (status != 200)
      throw std::runtime_error("answered with " + std::to_string(status) + ": " + answer);
    if (to != nullptr)
      to->add(took);
    return answer;
  }

  series newest_, named_, changed_, tagged_, few_, health_;
};

} // namespace

std::unique_ptr<scenario> make_lists() {
  return std::make_unique<lists>();
}

} // namespace insula::bench
