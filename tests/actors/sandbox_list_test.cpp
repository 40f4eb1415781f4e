// The list of all sandboxes: its lines, and how records of an earlier version come to be in it.
#include "actors/sandbox_list.hpp"
#include "base/limits.hpp"
#include "storage/local_lease.hpp"
#include "tests/actors/fixture.hpp"
#include "tests/support/stderr_of.hpp"
#include "tests/support/store_calls.hpp"

#include <algorithm>
#include <random>
#include <set>

using namespace insula;
using namespace insula::actors;
using namespace insula::test;

namespace {

using lines = std::vector<storage::owned_entry>;

record_entries record_of(std::int64_t created_ms) {
  return {{"created_ms", std::to_string(created_ms)}, {"image", "host"}, {"started_ms", "9"}};
}

lines lines_in(storage::store& where) {
  auto page = where.scan(sandbox_list, {}, 1'000);
  REQUIRE(page);
  REQUIRE_FALSE(page->more);
  return std::move(page->lines);
}

std::string ids_in(const lines& all) {
  std::string ids;
  for (const auto& each : all)
    ids += (ids.empty() ? "" : " ") + each.owner;
  return ids;
}

std::vector<storage::change> as_changes(const record_entries& record) {
  std::vector<storage::change> changes;
  for (const auto& [key, value] : record)
    changes.push_back({key, value});
  return changes;
}

std::string id_of(int i) {
  std::string id = "abcd";
  for (auto& each : id) {
    each = static_cast<char>('a' + i % 26);
    i /= 26;
  }
  return id;
}

std::unique_ptr<storage::local_lease> open_leases(storage::store& where) {
  auto opened = storage::local_lease::open(where);
  REQUIRE(opened);
  return std::move(*opened);
}

/// A store in memory that counts what it is asked for, and refuses what the test wants it to.
class watched_store final : public storage::store {
public:
  void commit(storage::write_batch batch, std::function<void(result<void>)> on_durable) override {
    ++commits;
    if (write_error)
      return on_durable(*write_error);
    if (batch.owner == refused)
      return on_durable(error{errc::invalid_request, "not this one"});
    inner.commit(std::move(batch), std::move(on_durable));
  }
  result<std::vector<storage::entry>> read(std::string_view owner,
                                           std::string_view prefix = {}) override {
    ++reads;
    return read_error ? result<std::vector<storage::entry>>{*read_error}
                      : inner.read(owner, prefix);
  }
  result<lines> find(std::string_view prefix) override {
    ++finds;
    auto found = find_error ? result<lines>{*find_error} : inner.find(prefix);
    if (found && !only_found.empty())
      std::erase_if(*found, [&](const auto& each) { return each.owner != only_found; });
    return found;
  }
  result<storage::mark_page> scan(std::string_view mark, const storage::mark_position& after,
                                  std::size_t limit) override {
    ++scans;
    return inner.scan(mark, after, limit);
  }
  result<storage::mark_page> scan_keys(std::string_view mark, const storage::mark_position& after,
                                       std::size_t limit) override {
    return inner.scan_keys(mark, after, limit);
  }
  result<storage::mark_page> read_each(const std::vector<storage::mark_position>& places) override {
    return inner.read_each(places);
  }
  result<std::uint64_t> count(std::string_view mark) override {
    ++counts;
    return inner.count(mark);
  }
  result<std::vector<std::string>> owners() override { return inner.owners(); }

  storage::memory_store inner;
  int commits = 0, reads = 0, finds = 0, scans = 0, counts = 0;
  std::optional<error> write_error, read_error, find_error;
  std::string refused;    ///< The owner that cannot be written.
  std::string only_found; ///< The only one that find() finds, if set.
};

std::size_t written_of(const listed_records& outcome) {
  CHECK(outcome.left == 0);
  CHECK_FALSE(outcome.why);
  return outcome.written;
}

/// Record by record, as a server of an earlier version has left them.
void write_older(storage::store& where, const std::string& id, std::int64_t created_ms) {
  REQUIRE(commit_now(where, {id, 5, as_changes(record_of(created_ms))}));
}

} // namespace

TEST_CASE("a line tells what its record does, and the newest is first", "[actors][list]") {
  CHECK_FALSE(line_of({}));
  CHECK_FALSE(line_of({{"network", "x"}, {"image", "host"}})); // There is none of it yet.
  auto record = record_of(1'700'000'000'123);
  record["expires_ms"] = "1800000000000";
  record["metadata/odd"] = std::string{"odd\n\0 5\nx", 9};
  record["paused"] = "1";
  const auto line = line_of(record);
  REQUIRE(line);
  CHECK(line->key.starts_with(sandbox_list));
  CHECK(line->value.find("started_ms") == std::string::npos);
  const auto told = read_line({"abc", line->key, line->value});
  CHECK(told.id == "abc");
  CHECK(told.is.exists);
  CHECK(told.is.created_ms == 1'700'000'000'123);
  CHECK(told.is.expires_ms == 1'800'000'000'000);
  CHECK(told.is.image == "host");
  CHECK(told.is.metadata == api_metadata{{"odd", record["metadata/odd"]}});
  CHECK(told.is.paused);
  std::string last;
  for (const std::int64_t ms :
       {std::int64_t{9'223'372'036'854'775'807}, std::int64_t{1'700'000'000'124},
        std::int64_t{1'700'000'000'123}, std::int64_t{10}, std::int64_t{9}, std::int64_t{0},
        std::int64_t{-1}}) {
    const auto key = line_of(record_of(ms))->key;
    CHECK(key.size() == sandbox_list.size() + 16);
    CHECK((ms < 0 ? last == key : last < key));
    last = key;
  }
}

TEST_CASE("a line that makes no sense tells nothing that is not there", "[actors][list]") {
  const auto good = *line_of(record_of(7));
  for (std::size_t size = 0; size <= good.value.size(); ++size)
    CHECK(read_line({"a", good.key, good.value.substr(0, size)}).is.image.size() <= 4);
  for (const std::string text :
       {"image", "image \n", "image 99\nhost\n", "image 18446744073709551615\nhost\n", " 0\n\n",
        "image -1\nhost\n", "image 4 host\n", "\n\n\n", "image 4x\nhost\n"}) {
    CAPTURE(text);
    CHECK(read_line({"a", good.key, text}).is.image.empty());
  }
  std::mt19937 rng{7};
  for (int i = 0; i < 2'000; ++i) {
    auto text = good.value;
    text[rng() % text.size()] = static_cast<char>(rng());
    read_line({"a", good.key, text});
  }
}

TEST_CASE("a place in the list goes out and comes back", "[actors][list]") {
  const auto line = *line_of(record_of(1'700'000'000'123));
  const auto cursor = cursor_of({"abc", line.key, line.value});
  CHECK(*position_of(cursor) == storage::mark_position{line.key, "abc"});
  CHECK(*position_of("") == storage::mark_position{});
  for (const auto& odd :
       {std::string{"x"}, cursor.substr(1), cursor.substr(0, 16), cursor.substr(0, 17),
        "X" + cursor.substr(1), cursor + std::string(storage::store::max_owner_bytes, 'a')})
    CHECK(position_of(odd).reason().code == errc::invalid_request);
}

TEST_CASE("records of an earlier version come to be in the list, once", "[actors][list]") {
  watched_store disk;
  for (int i = 0; i < 300; ++i)
    write_older(disk, id_of(i), 1'000 + i);
  REQUIRE(commit_now(disk, {"nothing", 5, {{"network", "x"}}}));
  REQUIRE(commit_now(disk, {"_secret", 1, {{"created_ms", "1"}}}));
  auto leases = open_leases(disk);
  std::set<std::string> let_go;
  const auto bring_up = [&] {
    return list_older_records(disk, *leases, found_records::all, {},
                              [&](const std::string& id) { let_go.insert(id); });
  };
  // The counter of a store that has been written to is beyond all that it was written at.
  while (true) {
    auto held = std::make_shared<storage::epoch>(0);
    leases->acquire("other", [held](result<storage::epoch> got) { *held = *got; });
    leases->release("other", *held);
    if (*held > 5)
      break;
  }
  SECTION("all of them") {
    CHECK(written_of(bring_up()) == 300);
    CHECK(let_go.size() == 300);
  }
  SECTION("those that somebody else holds are left to that one") {
    leases->acquire(id_of(7), [](result<storage::epoch>) {});
    const auto outcome = bring_up();
    CHECK(outcome.written == 299);
    CHECK(outcome.left == 1);
    CHECK(outcome.why.value().code == errc::limit_reached);
    CHECK(lines_in(disk).size() == 299);
    CHECK_FALSE(let_go.contains(id_of(7)));
    leases = open_leases(disk); // The next start goes on with it.
    CHECK(written_of(bring_up()) == 1);
  }
  const auto all = lines_in(disk);
  REQUIRE(all.size() == 300);
  CHECK(all.front().owner == id_of(299));
  CHECK(all.back().owner == id_of(0));
  CHECK(as_map(*disk.read(id_of(0))).at("started_ms") == "9");
  CHECK(written_of(bring_up()) == 0);
  leases->acquire(id_of(0), [](result<storage::epoch> held) { CHECK(held); }); // It was given back.
}

TEST_CASE("a start after all records are in the list reads none of them", "[actors][list]") {
  watched_store disk;
  fake_leases leases;
  leases.last = 10;
  const auto bring_up = [&](found_records found) {
    return list_older_records(disk, leases, found, {}, [](const auto&) {});
  };
  CHECK(written_of(bring_up(found_records::all)) == 0); // There are none at all.
  CHECK(disk.counts == 0);
  for (int i = 0; i < 300; ++i)
    write_older(disk, id_of(i), 1'000 + i);
  REQUIRE(commit_now(disk, {"nothing", 5, {{"network", "x"}}})); // This one never has a line.
  CHECK(written_of(bring_up(found_records::all)) == 300);
  const auto reads = disk.reads, finds = disk.finds;
  CHECK(written_of(bring_up(found_records::all)) == 0);
  CHECK(disk.reads == reads);
  CHECK(disk.finds == finds + 1); // It asks for their times alone, and how many lines there are.
  CHECK(disk.counts > 0);
  CHECK(disk.scans == 0);
  const auto last = leases.last;
  write_older(disk, "zzzzz", 7); // One more takes one lease.
  CHECK(written_of(bring_up(found_records::all)) == 1);
  CHECK(leases.last == last + 1);
  write_older(disk, "zzzzx",
              7); // Where all that are found are older, the number of lines says nothing.
  disk.only_found = "zzzzx";
  CHECK(written_of(bring_up(found_records::older)) == 1);
  CHECK(lines_in(disk).size() == 302);
}

TEST_CASE("a store that refuses leaves older records out of the list, all that they have, and says "
          "why",
          "[actors][list]") {
  watched_store disk;
  constexpr int many = 300;
  for (int i = 0; i < many; ++i)
    write_older(disk, id_of(i), 1'000 + i);
  fake_leases leases;
  leases.last = 10;
  auto found = found_records::all;
  const auto bring_up = [&] {
    return list_older_records(disk, leases, found, {}, [](const auto&) {});
  };
  const auto left = [&](int count, errc why) {
    const auto outcome = bring_up();
    CHECK(outcome.written + outcome.left == (count > 0 ? many : 0));
    CHECK(outcome.left == static_cast<std::size_t>(count));
    REQUIRE(outcome.why);
    CHECK(outcome.why->code == why);
    CHECK(leases.held.empty());
    const auto line = stderr_of([&] { tell(outcome); });
    CHECK(line.find("warning records.not_listed sandboxes=" +
                    (count > 0 ? std::to_string(count) : "unknown")) != std::string::npos);
    CHECK(line.find(outcome.why->message) != std::string::npos);
  };
  const auto commits = disk.commits;
  SECTION("nothing can be read") {
    disk.find_error = error{errc::store_failed, "no disk"};
    left(0, errc::store_failed);
    disk.find_error.reset();
    disk.read_error = error{errc::store_failed, "no records"};
    left(0, errc::store_failed);
    found = found_records::older;
    disk.reads = 0;
    left(many, errc::store_failed);
    CHECK(disk.reads == 2); // A store that is away takes its time for each.
  }
  SECTION("the disk is full") {
    disk.write_error = error{errc::disk_full, "no room"};
    left(many, errc::disk_full);
    CHECK(disk.commits - commits < many); // It does not try them all.
    CHECK(lines_in(disk).empty());
  }
  SECTION("their leases are refused") {
    leases.refusal = error{errc::node_unreachable, "cut off"};
    left(many, errc::node_unreachable);
    leases.refusal = error{errc::stale_epoch, "they are on node n2"};
    const auto outcome = bring_up(); // Which is for that node to do.
    CHECK(outcome.written + outcome.left == 0);
    CHECK_FALSE(outcome.why);
  }
  SECTION("their epochs are too old") {
    leases.last = 0;
    left(4, errc::stale_epoch); // Those that got one below that which all are written at.
  }
  SECTION("one cannot be written") {
    disk.refused = id_of(7);
    left(1, errc::invalid_request);
    CHECK(lines_in(disk).size() == many - 1);
    disk.refused.clear();
    const auto outcome = bring_up();
    CHECK(outcome.written == 1);
    CHECK(stderr_of([&] { tell(outcome); }).find("info records.listed sandboxes=1\n") !=
          std::string::npos);
  }
  CHECK(as_map(*disk.inner.read(id_of(7))).contains("started_ms"));
}

TEST_CASE("a record's line is written with whatever it tells of", "[actors][list]") {
  small_node node;
  const auto box = node.make_sandbox();
  define_sandbox made;
  made.metadata["one"] = "mine";
  made.expires_ms = node.sys.time.unix_ms() + 100'000;
  const auto writes = node.store.writes;
  REQUIRE_NOTHROW(node.sys.ask<sandbox_description>(box, made).value());
  CHECK(node.store.writes == writes + 1); // Both in one batch.
  const auto listed = [&] {
    const auto all = lines_in(node.store.disk);
    REQUIRE(all.size() == 1);
    return read_line(all[0]).is;
  };
  CHECK(listed().metadata.at("one") == "mine");
  CHECK(listed().expires_ms == made.expires_ms);
  redefine_sandbox change;
  change.expires_ms = *made.expires_ms + 1;
  node.sys.ask<sandbox_description>(box, change).value();
  CHECK(listed().expires_ms == *made.expires_ms + 1);
  change = {};
  change.metadata = {"one", "other"};
  node.sys.ask<sandbox_description>(box, change).value();
  CHECK(listed().metadata.at("one") == "other");
  node.sys.ask<sandbox_description>(box, pause_sandbox{true}).value();
  CHECK(listed().paused);
  node.sys.ask<sandbox_description>(box, pause_sandbox{false}).value();
  CHECK_FALSE(listed().paused);
  node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{}).value();
  CHECK(lines_in(node.store.disk).empty());
}

TEST_CASE("a change that the disk refuses is not in the list", "[actors][list]") {
  small_node node;
  const auto box = node.make_sandbox();
  define_sandbox made;
  made.metadata["one"] = "mine";
  node.sys.ask<sandbox_description>(box, made).value();
  node.store.write_error = error{errc::disk_full, "no room"};
  redefine_sandbox change;
  change.metadata = {"one", "other"};
  CHECK(node.sys.ask<sandbox_description>(box, change).reason().code == errc::disk_full);
  node.store.write_error.reset();
  CHECK(read_line(lines_in(node.store.disk).at(0)).is.metadata.at("one") == "mine");
  change.metadata->text = "third";
  node.sys.ask<sandbox_description>(box, change).value();
  CHECK(read_line(lines_in(node.store.disk).at(0)).is.metadata.at("one") == "third");
}

TEST_CASE("an older record that is used gets its line with the first lease", "[actors][list]") {
  small_node node;
  node.leases.last = 10;
  write_older(node.store.disk, "abc", 7);
  const auto box = node.make_sandbox();
  node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
  node.sys.run();
  CHECK(ids_in(lines_in(node.store.disk)) == "abc");
  CHECK(read_line(lines_in(node.store.disk)[0]).is.created_ms == 7);
}

TEST_CASE("a page of ten thousand sandboxes reads one page's worth", "[actors][list]") {
  small_node node;
  constexpr int many = 10'000;
  for (int i = 0; i < many; ++i) {
    auto record = record_of(1'700'000'000'000 + i / 3);
    const auto line = *line_of(record);
    record.emplace(line.key, line.value);
    node.store.disk.commit({id_of(i), 1, as_changes(record)}, [](result<void>) {});
  }
  const auto directory = node.make_directory();
  const auto read = [&] { return node.store.disk.lines_read(); };
  auto before = read();
  auto page = node.sys.ask<sandbox_page>(directory, list_sandboxes{{}, 20, true}).value();
  CHECK(page.sandboxes.size() == 20);
  CHECK(page.total == many);
  CHECK(page.sandboxes[0].is.created_ms == 1'700'000'000'000 + (many - 1) / 3);
  CHECK(read() - before == 21);
  CHECK(node.store.finds == 0); // Nothing looks through the store.

  std::set<std::string> ids;
  std::pair<std::int64_t, std::string> last{std::numeric_limits<std::int64_t>::max(), ""};
  before = read();
  int pages = 0;
  list_sandboxes wanted{{}, limits::list_page_sandboxes};
  do {
    page = node.sys.ask<sandbox_page>(directory, wanted).value();
    CHECK(page.total == 0); // It was not asked for.
    for (const auto& each : page.sandboxes) {
      ids.insert(each.id);
      const std::pair turn{each.is.created_ms, each.id};
      CHECK((turn.first < last.first || (turn.first == last.first && turn.second > last.second)));
      last = turn;
    }
    wanted.after = page.next;
    ++pages;
  } while (!page.next.empty());
  CHECK(ids.size() == many);
  CHECK(pages == (many + 255) / 256);
  CHECK(read() - before < many + static_cast<unsigned>(pages));
}

TEST_CASE("a page that makes no sense is refused", "[actors][list]") {
  small_node node;
  const auto directory = node.make_directory();
  const auto code = [&](const auto& wanted, auto none) {
    return node.sys.ask<decltype(none)>(directory, wanted).reason().code;
  };
  CHECK(code(list_sandboxes{{}, 0}, sandbox_page{}) == errc::invalid_request);
  CHECK(code(list_sandboxes{{}, limits::list_page_sandboxes + 1}, sandbox_page{}) ==
        errc::invalid_request);
  CHECK(code(list_sandboxes{"no place", 1}, sandbox_page{}) == errc::invalid_request);
  CHECK(code(list_activations{0, 0}, activation_page{}) == errc::invalid_request);
  CHECK(code(list_activations{0, limits::list_page_sandboxes + 1}, activation_page{}) ==
        errc::invalid_request);
  node.store.read_error = error{errc::store_failed, "no disk"};
  CHECK(code(list_sandboxes{{}, 1}, sandbox_page{}) == errc::store_failed);
  CHECK(code(list_sandboxes{{}, 1, true}, sandbox_page{}) == errc::store_failed);
}
