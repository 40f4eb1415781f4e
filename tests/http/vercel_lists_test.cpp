// Lists of the Vercel API over HTTP, in front of a directory that the test plays.
#include "http/vercel/settings.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

#include <rapidjson/document.h>
#include <utility>

using namespace insula;
using namespace insula::test;

namespace {

listed_sandbox box(const std::string& name, std::map<std::string, std::string> tags = {},
                   run_state state = run_state::running, const std::string& project = "prj") {
  http::vercel::settings is{project, name};
  is.tags = std::move(tags);
  listed_sandbox made;
  made.id = "abcdefghij";
  made.is.exists = true;
  made.is.created_ms = 1'700'000'000'000;
  made.is.metadata[http::vercel::metadata_api] = text_of(is);
  made.is.run.emplace();
  made.is.run->number = 1;
  made.is.run->state = state;
  return made;
}

struct page {
  int status = 0;
  std::string body;
  std::vector<std::string> names;
  std::uint64_t count = 0;
  std::string next; ///< Empty: null.
};

page list(const house& h, const std::string& query) {
  const auto got = ask(h.port(), "GET", "/v2/sandboxes?" + query);
  page told{got.status, got.body};
  rapidjson::Document read;
  read.Parse(got.body.c_str());
  if (got.status != 200 || read.HasParseError())
    return told;
  for (const auto& each : read["sandboxes"].GetArray())
    told.names.emplace_back(each["name"].GetString());
  const auto& pagination = read["pagination"];
  told.count = pagination["count"].GetUint64();
  if (!pagination["next"].IsNull())
    told.next = pagination["next"].GetString();
  return told;
}

using names = std::vector<std::string>;

} // namespace

TEST_CASE("Vercel: a list is read page by page, with the cursor of each", "[http][vercel]") {
  house h;
  for (int i = 0; i < 45; ++i)
    h.plays().grouped.push_back(box("box-" + std::to_string(i)));
  const auto first = list(h, "project=prj");
  CHECK(first.count == 20);
  REQUIRE(first.names.size() == 20);
  CHECK(first.names.front() == "box-0");
  REQUIRE(h.plays().group_steps.size() == 1); // One question for a page, of one more than it has.
  const auto step = h.plays().group_steps[0];
  CHECK(step.group == "prj");
  CHECK(step.by == list_order::created);
  CHECK(step.descends);
  CHECK(step.limit == 21);
  CHECK(step.after.empty());
  const auto second = list(h, "project=prj&limit=24&cursor=" + first.next);
  REQUIRE(second.names.size() == 24);
  CHECK(second.names.front() == "box-20");
  const auto last = list(h, "project=prj&cursor=" + second.next);
  CHECK(last.names == names{"box-44"});
  CHECK(last.next.empty());
  CHECK(last.body.find(R"("next":null)") != std::string::npos);
  // A page that is full to the last sandbox has nobody behind it.
  CHECK(list(h, "project=prj&limit=45&cursor=").next.empty());
  CHECK(list(h, "project=prj&limit=25&cursor=" + first.next).next.empty());
}

TEST_CASE("Vercel: a list has the order and the beginning of names that are asked for",
          "[http][vercel]") {
  house h;
  h.plays().grouped.push_back(box("box"));
  list(h, "project=p%2Fq&sortBy=name&sortOrder=asc&namePrefix=bo&limit=3");
  list(h, "project=prj&sortBy=statusUpdatedAt");
  list(h, "project=prj&sortBy=createdAt&sortOrder=desc&limit=50");
  const auto& steps = h.plays().group_steps;
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].group == "p/q");
  CHECK(steps[0].by == list_order::name);
  CHECK_FALSE(steps[0].descends);
  CHECK(steps[0].name_prefix == "bo");
  CHECK(steps[0].limit == 4);
  CHECK(steps[1].by == list_order::state);
  CHECK(steps[1].descends);
  CHECK(steps[2].by == list_order::created);
  CHECK(steps[2].limit == 51);
}

TEST_CASE("Vercel: what a list cannot be asked is refused", "[http][vercel]") {
  house h;
  for (const auto* query :
       {"", "limit=5", "project=prj&limit=0", "project=prj&limit=51", "project=prj&limit=x",
        "project=prj&sortBy=size", "project=prj&sortOrder=up", "project=prj&namePrefix=a",
        "project=prj&sortBy=createdAt&namePrefix=a", "project=prj&tags=rare",
        "project=prj&cursor=xyz", "project=prj&cursor=abc",
        "project=prj&cursor=656c73657768657265"}) { // "elsewhere".
    CAPTURE(query);
    const auto got = list(h, query);
    CHECK(got.status == 400);
    CHECK(got.body.find(R"("code":"bad_request")") != std::string::npos);
  }
}

TEST_CASE("Vercel: a filter is looked for through the list, and ends a page that takes too long",
          "[http][vercel]") {
  house h;
  auto& all = h.plays().grouped;
  const auto steps = [&] { return std::exchange(h.plays().group_steps, {}); };
  for (int i = 0; i < 3'000; ++i)
    all.push_back(box("box-" + std::to_string(i), {{"kind", i % 700 == 699 ? "rare" : "common"}},
                      i % 1'500 == 1'400 ? run_state::failed : run_state::running));
  SECTION("what it leaves out is not counted") {
    const auto got = list(h, "project=prj&tags=kind%3Acommon&limit=3&status=running");
    CHECK(got.names == names{"box-0", "box-1", "box-2"});
    CHECK(steps().size() == 1);
    CHECK(list(h, "project=prj&tags=kind%3Acommon&limit=3&cursor=" + got.next).names ==
          names{"box-3", "box-4", "box-5"});
    CHECK(list(h, "project=prj&tags=common&limit=3").status == 400);
  }
  SECTION("a page of few ends with a cursor, and together they have all") {
    names found;
    std::string cursor;
    int pages = 0;
    do {
      const auto got = list(h, "project=prj&tags=kind%3Arare&cursor=" + cursor);
      CHECK(got.count == got.names.size());
      CHECK(got.names.size() < 3);
      found.insert(found.end(), got.names.begin(), got.names.end());
      cursor = got.next;
      std::uint64_t looked_at = 0;
      for (const auto& each : steps())
        looked_at += each.limit;
      CHECK(looked_at <= 1'024);
      ++pages;
    } while (!cursor.empty());
    CHECK(found == names{"box-699", "box-1399", "box-2099", "box-2799"});
    CHECK(pages == 3);
  }
  SECTION("a page may have none") {
    auto got = list(h, "project=prj&status=failed");
    CHECK(got.names.empty());
    CHECK_FALSE(got.next.empty());
    got = list(h, "project=prj&status=failed&cursor=" + got.next);
    CHECK(got.names == names{"box-1400"});
    CHECK(list(h, "project=prj&tags=kind%3Anone&cursor=" + list(h, "project=prj&tags=x%3Ay").next)
            .names.empty());
  }
  SECTION("steps that are answered in part go on where they ended") {
    h.plays().most_on_page = 10;
    const auto got = list(h, "project=prj&limit=50");
    CHECK(got.names.size() == 50);
    CHECK(got.names.back() == "box-49");
    CHECK(steps().size() == 6);
  }
}

TEST_CASE("Vercel: a list shows what is the project's and has had a run", "[http][vercel]") {
  house h;
  auto& all = h.plays().grouped;
  all.push_back(box("first"));
  all.push_back(box("defined")); // It is just being made.
  all.back().is.run.reset();
  all.push_back(box("foreign", {}, run_state::running, "other"));
  all.push_back(box("odd"));
  all.back().is.metadata[http::vercel::metadata_api] = "{";
  all.push_back(box("last"));
  auto got = list(h, "project=prj");
  CHECK(got.names == names{"first", "last"});
  CHECK(got.next.empty());
  got = list(h, "project=prj&limit=1");
  CHECK(got.names == names{"first"});
  CHECK(list(h, "project=prj&limit=1&cursor=" + got.next).names == names{"last"});
}
