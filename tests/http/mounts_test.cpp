#include "base/limits.hpp"
#include "http/bridge/mount_json.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace insula;
using namespace insula::test;

namespace {

const std::string mount_path = "/v1/sandbox/abc/mount";
const std::string unmount_path = "/v1/sandbox/abc/unmount";
const std::string list_path = "/v1/sandbox/abc/mounts";
const std::string good = R"({"bucket":"b","mountPath":"/m","options":{"endpoint":"http://s3"}})";

std::string wire_error(const std::string& message, const std::string& code) {
  std::string escaped;
  for (const char each : message) {
    if (each == '"')
      escaped += '\\';
    escaped += each;
  }
  return "{\"error\":\"" + escaped + "\",\"code\":\"" + code + "\"}";
}

void check_refused(house& h, const std::string& path, const std::string& body,
                   const std::string& why) {
  CAPTURE(body);
  const auto got = ask(h.port(), "POST", path, body);
  CHECK(got.status == 400);
  CHECK(got.body == wire_error(why, "invalid_request"));
}

/// A body that mounts, but for the text of its options.
std::string with_options(const std::string& options) {
  return R"({"bucket":"b","mountPath":"/m","options":{)" + options + "}}";
}

} // namespace

TEST_CASE("a request to mount is refused for the first thing that is wrong with it",
          "[http][mounts]") {
  // Each body has what comes later in the table wrong as well, as far as that is possible.
  const auto [body, why] = GENERATE(table<std::string, std::string>({
    {"", "Invalid JSON body"},
    {"{", "Invalid JSON body"},
    {"null", "Invalid JSON body"},
    {good + "x", "Invalid JSON body"},
    {good + std::string(1, '\0') + "x", "Invalid JSON body"},
    {"{\"bucket\":\"\xff\"}", "Invalid JSON body"},
    {R"({"bucket":7})", "bucket must be a non-empty string"},
    {R"({"bucket":null})", "bucket must be a non-empty string"},
    {R"({"bucket":""})", "bucket must be a non-empty string"},
    {R"({"bucket":["b"]})", "bucket must be a non-empty string"},
    {"{}", "mountPath must be a non-empty string"},
    {"[]", "mountPath must be a non-empty string"},
    {"7", "mountPath must be a non-empty string"},
    {"\"mountPath\"", "mountPath must be a non-empty string"},
    {R"({"mountPath":""})", "mountPath must be a non-empty string"},
    {R"({"mountPath":null})", "mountPath must be a non-empty string"},
    {R"({"mountPath":{}})", "mountPath must be a non-empty string"},
    {R"({"mountPath":"/m","mountPath":1})", "mountPath must be a non-empty string"},
    {R"({"mountPath":"m"})", "mountPath must be an absolute path (start with /)"},
    {R"({"mountPath":"./m","options":[]})", "mountPath must be an absolute path (start with /)"},
    {R"({"mountPath":"/m","binding":7})", "options must be an object"},
    {R"({"mountPath":"/m","options":null})", "options must be an object"},
    {R"({"mountPath":"/m","options":[]})", "options must be an object"},
    {R"({"mountPath":"/m","options":"x"})", "options must be an object"},
    {R"({"mountPath":"/m","binding":7,"options":{"endpoint":7}})",
     "options.endpoint must be a string when provided"},
    {with_options(R"("endpoint":null)"), "options.endpoint must be a string when provided"},
    {R"({"mountPath":"/m","binding":7,"options":{"endpoint":"e"}})",
     "binding must be a string when provided"},
    {R"({"mountPath":"/m","binding":null,"options":{}})", "binding must be a string when provided"},
    {R"({"mountPath":"/m","binding":"","options":{"endpoint":"e"}})",
     "binding must be a non-empty string when provided"},
    {R"({"mountPath":"/m","binding":"B","options":{"endpoint":"e","s3fsOptions":7}})",
     "Provide either binding or options.endpoint, not both"},
    {R"({"mountPath":"/m","binding":"B","options":{"endpoint":""}})",
     "Provide either binding or options.endpoint, not both"},
    {with_options(R"("s3fsOptions":"ro","readOnly":7)"),
     "options.s3fsOptions must be an array of strings when provided"},
    {with_options(R"("s3fsOptions":null)"),
     "options.s3fsOptions must be an array of strings when provided"},
    {with_options(R"("s3fsOptions":["ro",1])"),
     "options.s3fsOptions must be an array of strings when provided"},
    {with_options(R"("readOnly":"true","prefix":7)"),
     "options.readOnly must be a boolean when provided"},
    {with_options(R"("readOnly":null)"), "options.readOnly must be a boolean when provided"},
    {with_options(R"("prefix":7,"credentialProxy":7)"),
     "options.prefix must be a string when provided"},
    {with_options(R"("prefix":null)"), "options.prefix must be a string when provided"},
    {with_options(R"("credentialProxy":1,"credentials":7)"),
     "options.credentialProxy must be a boolean when provided"},
    {with_options(R"("credentialProxy":null)"),
     "options.credentialProxy must be a boolean when provided"},
    {R"({"mountPath":"/m","options":{"endpoint":"e","credentials":null}})",
     "options.credentials must include string accessKeyId and secretAccessKey"},
    {with_options(R"("credentials":[])"),
     "options.credentials must include string accessKeyId and secretAccessKey"},
    {with_options(R"("credentials":{"accessKeyId":"a"})"),
     "options.credentials must include string accessKeyId and secretAccessKey"},
    {with_options(R"("credentials":{"accessKeyId":"a","secretAccessKey":null})"),
     "options.credentials must include string accessKeyId and secretAccessKey"},
    {R"({"mountPath":"/m","options":{"endpoint":"e"}})",
     "bucket must be a non-empty string for remote mounts"},
    {R"({"mountPath":"/m","options":{}})",
     "binding must be a non-empty string for R2 binding mounts"},
    {R"({"bucket":"b","mountPath":"/\u0000m","options":{}})", "mountPath must not contain NUL"},
    {R"({"bucket":"b","mountPath":"/m","options":{"endpoint":"e\u0000"}})",
     "options.endpoint must not contain NUL"},
    {R"({"bucket":"\u0000","mountPath":"/m","options":{}})", "binding must not contain NUL"},
    {R"({"bucket":"\u0000","mountPath":"/m","options":{"endpoint":"e"}})",
     "bucket must not contain NUL"},
    {with_options(R"("prefix":"/a\u0000")"), "options.prefix must not contain NUL"},
    {with_options(R"("credentials":{"accessKeyId":"\u0000","secretAccessKey":""})"),
     "options.credentials.accessKeyId must not contain NUL"},
    {with_options(R"("credentials":{"accessKeyId":"","secretAccessKey":"s\u0000"})"),
     "options.credentials.secretAccessKey must not contain NUL"},
    {with_options(R"("s3fsOptions":["\u0000"])"), "options.s3fsOptions must not contain NUL"},
  }));
  house h;
  check_refused(h, mount_path, body, why);
  CHECK(h.heard().all().empty());
}

TEST_CASE("options of a mount have a number and a length", "[http][mounts]") {
  house h;
  const auto options = [](std::size_t count, std::size_t length) {
    std::string list;
    for (std::size_t i = 0; i < count; ++i)
      list += (i == 0 ? "\"" : ",\"") + std::string(length, 'o') + "\"";
    return with_options("\"s3fsOptions\":[" + list + "]");
  };
  CHECK(
    ask(h.port(), "POST", mount_path, options(limits::mount_options, limits::mount_option_bytes))
      .status == 200);
  check_refused(h, mount_path, options(limits::mount_options + 1, 1),
                "options.s3fsOptions must have at most 32 elements");
  check_refused(h, mount_path, options(1, limits::mount_option_bytes + 1),
                "options.s3fsOptions must have elements of at most 256 bytes");
  const std::string blanks(limits::mount_body_bytes - good.size(), ' ');
  CHECK(ask(h.port(), "POST", mount_path, good + blanks).status == 200);
  for (const auto& each : {mount_path, unmount_path})
    CHECK(ask(h.port(), "POST", each, good + blanks + " ").status == 413);
}

TEST_CASE("a sandbox is asked for what a request says, and started for it", "[http][mounts]") {
  const auto [body, words] = GENERATE(table<std::string, std::string>({
    {good, "mount /m endpoint=http://s3 bucket=b"},
    {"\xef\xbb\xbf " + good, "mount /m endpoint=http://s3 bucket=b"},
    {R"({"bucket":"b","mountPath":"/../m//n/ %20","options":{"endpoint":""}})",
     "mount /../m//n/ %20 bucket=b"}, // As it is given: the sandbox says what is wrong.
    {R"({"bucket":"a:b","mountPath":"/m","provider":"r2","options":{"endpoint":"e","readOnly":true,)"
     R"("prefix":"p","credentials":{"accessKeyId":"k","secretAccessKey":"s","sessionToken":7},)"
     R"("s3fsOptions":["use_cache=/tmp","nonempty"],"credentialProxy":true,"other":null}})",
     "mount /m endpoint=e bucket=a:b prefix=p read_only by k:s -o use_cache=/tmp -o nonempty "
     "by_proxy"},
    {with_options(
       R"("endpoint":"e","readOnly":false,"prefix":"","s3fsOptions":[],)"
       R"("credentialProxy":false,"credentials":{"accessKeyId":"","secretAccessKey":""})"),
     "mount /m endpoint=e bucket=b by :"},
    // Of a bucket of the node's. The name may stand in either.
    {R"({"binding":"DATA","mountPath":"/m","options":{}})", "mount /m binding=DATA"},
    {R"({"bucket":"DATA","mountPath":"/m","options":{}})", "mount /m binding=DATA"},
    {R"({"bucket":"b","binding":"DATA","mountPath":"/m","options":{"prefix":"/p/"}})",
     "mount /m binding=DATA prefix=/p/"},
    // Of several members of one name the last counts.
    {R"({"bucket":7,"bucket":"b","mountPath":"/m","options":7,"options":{"endpoint":7,"endpoint":"e"}})",
     "mount /m endpoint=e bucket=b"},
  }));
  CAPTURE(body);
  house h;
  const auto got = ask(h.port(), "POST", mount_path, body);
  CHECK(got.status == 200);
  CHECK(got.body == R"({"ok":true})");
  CHECK(h.heard().all() == std::vector<std::string>{"find abc", words});
}

TEST_CASE("a request to unmount is refused for the first thing that is wrong with it",
          "[http][mounts]") {
  house h;
  const std::string root = "mountPath must not resolve to / (filesystem root)";
  for (const auto& [body, why] : std::vector<std::pair<std::string, std::string>>{
         {"", "Invalid JSON body"},
         {"{]", "Invalid JSON body"},
         {"null", "Invalid JSON body"},
         {"[]", "mountPath must be a non-empty string"},
         {"{}", "mountPath must be a non-empty string"},
         {R"({"mountPath":null})", "mountPath must be a non-empty string"},
         {R"({"mountPath":["/m"]})", "mountPath must be a non-empty string"},
         {R"({"mountPath":""})", "mountPath must be a non-empty string"},
         {R"({"mountPath":"m"})", "mountPath must be an absolute path (start with /)"},
         {R"({"mountPath":"../"})", "mountPath must be an absolute path (start with /)"},
         {R"({"mountPath":"/"})", root},
         {R"({"mountPath":"//"})", root},
         {R"({"mountPath":"/./"})", root},
         {R"({"mountPath":"/.."})", root},
         {R"({"mountPath":"/a/../"})", root},
         {R"({"mountPath":"/a/./b//../../../."})", root},
         {R"({"mountPath":"/\u0000"})", "mountPath must not contain NUL"}})
    check_refused(h, unmount_path, body, why);
  CHECK(h.heard().all().empty());
}

TEST_CASE("a bucket is unmounted without a start", "[http][mounts]") {
  const std::string path =
    GENERATE("/m", "//x/y", "/m/", "/a/../m", "/...", "/a b", "/a%20b", "/.a");
  house h;
  const auto got = ask(h.port(), "POST", unmount_path, R"({"mountPath":")" + path + "\"}");
  CHECK(got.status == 200);
  CHECK(got.body == R"({"ok":true})");
  CHECK(h.heard().all() == std::vector<std::string>{"reach abc", "unmount " + path});
}

TEST_CASE("mounts are listed without a start and without a secret", "[http][mounts]") {
  house h;
  CHECK(ask(h.port(), "GET", list_path).body == R"({"mounts":[]})");
  h.plays().mounts = {{"/m", "", "http://s3", "b", "", false, true},
                      {"/n", "DATA", "", "my-data", "/p", true, false},
                      {"/\xff", "", "", "\"", "", false, false}};
  const auto got = ask(h.port(), "GET", list_path);
  CHECK(got.status == 200);
  CHECK(
    got.body ==
    R"({"mounts":[{"mountPath":"/m","bucket":"b","endpoint":"http://s3","readOnly":false,"mounted":true},)"
    R"({"mountPath":"/n","bucket":"my-data","binding":"DATA","prefix":"/p","readOnly":true,"mounted":false},)"
    "{\"mountPath\":\"/\xef\xbf\xbd\",\"bucket\":\"\\\"\",\"readOnly\":false,\"mounted\":false}]}");
  CHECK(h.heard().all() ==
        std::vector<std::string>{"reach abc", "list mounts", "reach abc", "list mounts"});
}

TEST_CASE("whatever a sandbox has against a mount is an error of the mount", "[http][mounts]") {
  house h;
  for (const auto code :
       {errc::invalid_request, errc::not_found, errc::already_exists, errc::io_failed,
        errc::limit_reached, errc::launch_failed, errc::deadline_exceeded, errc::outside_workspace,
        errc::sandbox_not_running}) {
    CAPTURE(static_cast<int>(code));
    h.plays().mount_error = error{code, R"(Prefix must start with '/': "p")"};
    auto got = ask(h.port(), "POST", mount_path, good);
    CHECK(got.status == 502);
    CHECK(got.body ==
          wire_error(R"(mount failed: Prefix must start with '/': "p")", "mount_error"));
    h.plays().mount_error = error{code, "No active mount found at path: /m"};
    got = ask(h.port(), "POST", unmount_path, R"({"mountPath":"/m"})");
    CHECK(got.status == 502);
    CHECK(got.body ==
          wire_error("unmount failed: No active mount found at path: /m", "unmount_error"));
    CHECK(ask(h.port(), "GET", list_path).status >= 400);
  }
}

TEST_CASE("what is the node's own trouble is told as everywhere", "[http][mounts]") {
  house h;
  const auto [code, status] = GENERATE(table<errc, int>({{errc::payload_too_large, 413},
                                                         {errc::capacity_exceeded, 503},
                                                         {errc::store_failed, 503},
                                                         {errc::disk_full, 507}}));
  h.plays().mount_error = error{code, "1"};
  CHECK(ask(h.port(), "POST", mount_path, good).status == status);
  CHECK(ask(h.port(), "POST", unmount_path, R"({"mountPath":"/m"})").status == status);
  h.plays().mount_error = error{errc::internal, "s3cret"};
  CHECK(ask(h.port(), "POST", mount_path, good).body ==
        wire_error("mount failed: internal error", "mount_error"));
  h.plays().mount_error.reset();
  h.plays().find_error = error{errc::launch_failed, "no agent"};
  CHECK(ask(h.port(), "POST", mount_path, good).body ==
        wire_error("pool error: no agent", "pool_error"));
}

TEST_CASE("mounts want the key, and a sandbox", "[http][mounts]") {
  http::server_options options;
  options.api_key = "s3cret";
  house h{options};
  const std::string key = "Authorization: Bearer s3cret\r\n";
  CHECK(ask(h.port(), "POST", mount_path, good).status == 401);
  CHECK(ask(h.port(), "POST", unmount_path, good).status == 401);
  CHECK(ask(h.port(), "GET", list_path).status == 401);
  CHECK(ask(h.port(), "POST", "/v1/sandbox/ABC/mount", good, key).status == 400);
  CHECK(ask(h.port(), "GET", mount_path, {}, key).status == 404);
  CHECK(ask(h.port(), "POST", list_path, {}, key).status == 404);
  CHECK(h.heard().all().empty());
  CHECK(ask(h.port(), "POST", mount_path, good, key).status == 200);
}
