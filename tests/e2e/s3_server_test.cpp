// The S3 service that mounts are tested with, and the client that looks into it.
#include "tests/e2e/s3_server.hpp"
#include "tests/support/catch.hpp"

#include <exception>

using namespace insula::test;

namespace {

template <class What>
std::string complaint_of(What what) {
  try {
    what();
  } catch (const std::exception& why) {
    return why.what();
  }
  return {};
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("the S3 service of these tests keeps what it is given", "[mounts][s3]") {
  s3_server server{{"data", "other"}};
  const s3_client data{server}, other{server, "other"};
  const std::string odd = "dir/a b+c&d=é%.txt";
  data.put("file", "one\n");
  data.put(odd, std::string("\0two\xff", 5));
  other.put("file", "");
  CHECK(data.get("file") == "one\n");
  CHECK(data.get(odd) == std::string("\0two\xff", 5));
  CHECK(other.get("file") == "");
  CHECK_FALSE(other.has("dir"));
  CHECK(data.list("dir/a b").size() == 1);
  CHECK(data.list() ==
        std::map<std::string, std::uint64_t>{{"dir/a b+c&amp;d=é%.txt", 5}, {"file", 4}});
  data.remove("file");
  CHECK_FALSE(data.has("file"));

  SECTION("and lets nobody else in") {
    const s3_client stranger{server, "data", "another"}, lost{server, "none"};
    CHECK(says(complaint_of([&] { stranger.get("file"); }), "SignatureDoesNotMatch"));
    CHECK(says(complaint_of([&] { lost.list(); }), "NoSuchBucket"));
    CHECK(says(output_of({"curl", "-s", "--noproxy", "*", server.endpoint() + "/data/file"}),
               "SignatureDoesNotMatch"));
  }
  SECTION("and keeps it when it has been killed") {
    server.kill();
    CHECK_THROWS(data.has("file"));
    server.start();
    CHECK(data.has(odd));
  }
  SECTION("and answers nothing while it is stopped") {
    server.stop();
    CHECK_THROWS(output_of({"curl", "-s", "-m", "1", "--noproxy", "*", server.endpoint()}));
    server.resume();
    CHECK(data.has(odd));
  }
}
