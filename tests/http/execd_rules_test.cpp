// What execd's file routes are made of, without a server.
#include "http/opensandbox/files_json.hpp"
#include "http/opensandbox/line_window.hpp"
#include "http/opensandbox/multipart.hpp"
#include "http/text/percent.hpp"
#include "tests/support/catch.hpp"

#include <cstring>

using namespace insula;
using namespace insula::http;
using namespace insula::http::opensandbox;

namespace {

using words = std::vector<std::string>;
using event = multipart_reader::event;

/// What a body is taken apart into, when it comes in pieces of so many bytes.
std::string taken_apart(const std::string& body, std::size_t piece) {
  multipart_reader parts{"XX"};
  std::string told;
  for (std::size_t at = 0; at <= body.size(); at += piece) {
    parts.feed(std::string_view{body}.substr(at, piece));
    for (bool more = true; more;) {
      switch (parts.next()) {
        case event::nothing: more = false; break;
        case event::part: told += "<" + parts.name() + (parts.is_file() ? " file:" : ":"); break;
        case event::content: told += parts.content(); break;
        case event::part_end: told += ">"; break;
        case event::end: return told + ".";
        case event::wrong: return told + "!";
      }
    }
  }
  return told;
}

std::string part(const std::string& header, const std::string& content) {
  return "--XX\r\nContent-Disposition: form-data; " + header + "\r\n\r\n" + content + "\r\n";
}

std::string window(std::uint64_t first, std::uint64_t count, const std::string& text,
                   std::size_t piece) {
  line_window lines{first, count};
  std::string told;
  for (std::size_t at = 0; at < text.size(); at += piece)
    told += lines.feed(std::string_view{text}.substr(at, piece));
  return told;
}

/// Of a read body; what is wrong with it, after an exclamation mark.
std::string plain(const result<words>& read) {
  if (!read)
    return "!" + read.reason().message;
  std::string all;
  for (const auto& each : *read)
    all += "[" + each + "]";
  return all;
}

std::string packed(file_entry entry, const std::string& path, const std::string& owner,
                   const std::string& group) {
  entry.path_bytes = static_cast<std::uint32_t>(path.size());
  entry.owner_bytes = static_cast<std::uint32_t>(owner.size());
  entry.group_bytes = static_cast<std::uint32_t>(group.size());
  return std::string(reinterpret_cast<const char*>(&entry), sizeof entry) + path + owner + group;
}

} // namespace

TEST_CASE("a multipart body is taken apart, however it comes", "[http][execd]") {
  const auto piece = GENERATE(1u, 2u, 3u, 7u, 64u, 4096u);
  CAPTURE(piece);
  const auto metadata = part("name=\"metadata\"; filename=\"metadata\"", "{\"path\":\"/a\"}");
  CHECK(taken_apart(metadata + part("name=\"file\"; filename=\"b\\\"c;d\"", "one\r\ntwo") +
                      "--XX--\r\n",
                    piece) == "<metadata file:{\"path\":\"/a\"}><file file:one\r\ntwo>.");
  CHECK(taken_apart("before\r\n" + metadata + "--XX--", piece) ==
        "<metadata file:{\"path\":\"/a\"}>.");
  CHECK(taken_apart(part("name=plain", "") + part("NAME=\"x\"; filename*=UTF-8''a", "\r\n--X") +
                      "--XX--after",
                    piece) == "<plain:><x file:\r\n--X>.");
  CHECK(taken_apart(metadata, piece).starts_with("<metadata file:"));
  CHECK(taken_apart("--XX--\r\n", piece) == ".");
  CHECK(taken_apart("--XX  \r\nA: b\r\n\r\nc\r\n--XX--", piece) == "<:c>.");
  CHECK(taken_apart("--XXno\r\n", piece) == "!");
  CHECK(taken_apart(std::string(100'000, 'x'), piece).empty());
  CHECK(taken_apart("--XX\r\nA: " + std::string(20'000, 'b'), piece) == "!");
  const std::string zeros(5000, '\0');
  CHECK((taken_apart(part("name=file; filename=f", zeros) + "--XX--", piece) ==
         "<file file:" + zeros + ">."));
}

TEST_CASE("the boundary is the content type's", "[http][execd]") {
  CHECK(boundary_of("multipart/form-data; boundary=abc") == "abc");
  CHECK(boundary_of("Multipart/Form-Data; charset=x; Boundary=\"a b;c\"") == "a b;c");
  CHECK_FALSE(boundary_of("multipart/form-data"));
  CHECK_FALSE(boundary_of("multipart/form-data; boundary="));
  CHECK_FALSE(boundary_of("application/json; boundary=abc"));
  CHECK_FALSE(boundary_of(""));
  CHECK_FALSE(boundary_of("multipart/form-data; boundary=" + std::string(300, 'a')));
}

TEST_CASE("some lines of a text", "[http][execd]") {
  const auto piece = GENERATE(1u, 2u, 5u, 100u);
  CAPTURE(piece);
  const std::string text = "one\r\ntwo\n\nfo\rur\r\r\nfive";
  CHECK(window(1, 99, text, piece) == "one\ntwo\n\nfo\rur\r\nfive");
  CHECK(window(2, 1, text, piece) == "two");
  CHECK(window(2, 2, text, piece) == "two\n");
  CHECK(window(3, 1, text, piece).empty());
  CHECK(window(3, 2, text, piece) == "\nfo\rur\r");
  CHECK(window(5, UINT64_MAX, text, piece) == "five");
  CHECK(window(6, 1, text, piece).empty());
  CHECK(window(1, 1, "a\r", piece) == "a");
  CHECK(window(1, 5, "a\n", piece) == "a");
  CHECK(window(UINT64_MAX, UINT64_MAX, text, piece).empty());
}

TEST_CASE("braces of a glob become patterns", "[http][execd]") {
  CHECK(plain(read_glob("*.py")) == "[*.py]");
  CHECK(plain(read_glob("")) == "[**]");
  CHECK(plain(read_glob("**")) == "[**]");
  CHECK(plain(read_glob("**/*.{js,ts}")) == "[*.js][*.ts]");
  CHECK(plain(read_glob("{a,b{1,2},}x")) == "[ax][b1x][b2x][x]");
  CHECK(plain(read_glob("\\{a,b\\}")) == "[\\{a,b\\}]");
  CHECK(plain(read_glob("[{]a[}]")) == "[[{]a[}]]");
  CHECK(plain(read_glob("[]a]")) == "[[]a]]");
  for (const auto* bad : {"[a", "{a", "a\\", "{a,[b}", "[^"})
    CHECK(plain(read_glob(bad)) == "!syntax error in pattern");
  std::string dense;
  for (int i = 0; i < 300; ++i)
    dense += "{}";
  CHECK(plain(read_glob("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}" + dense)) ==
        "!syntax error in pattern");
  CHECK(plain(read_glob(std::string(1025, 'a'))) == "!syntax error in pattern");
  CHECK(plain(read_glob("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}")) ==
        "!syntax error in pattern");
}

TEST_CASE("bodies about files become words", "[http][execd]") {
  CHECK(plain(read_permissions(
          R"({"/a":{"mode":644,"owner":"root"},"b":{"group":"x","mode":0},"c":null})")) ==
        "[/a][644][root][][b][][][x][c][][][]");
  CHECK(plain(read_permissions("{}")).empty());
  CHECK(plain(read_permissions("[]")) == "!the body must be a JSON object of paths");
  CHECK(plain(read_permissions(R"({"/a":{"mode":"644"}})")) ==
        "!mode must be a number such as 644");
  CHECK(plain(read_permissions(R"({"":{"mode":700}})")) == "!each path must have an object");
  CHECK(plain(read_replacements(R"({"":{"old":"a"}})")).starts_with("!"));
  CHECK(plain(read_permissions(R"({"/a":7})")) == "!each path must have an object");
  CHECK(plain(read_moves(R"([{"src":"a","dest":"b"},{"dest":"d","src":"c"}])")) == "[a][b][c][d]");
  CHECK(plain(read_moves(R"([{"src":"a"}])")) == "!dest must be a path");
  CHECK(plain(read_moves(R"([{"src":"a\u0000b","dest":"b"}])")) == "!src must be a path");
  CHECK(plain(read_moves("7")).starts_with("!"));
  CHECK(plain(read_replacements(R"({"a":{"old":"x","new":"y"},"b":{"old":"z"}})")) ==
        "[a][x][y][b][z][]");
  CHECK(plain(read_replacements(R"({"a":{"new":"y"}})")) == "!old must not be empty");
  CHECK(plain(read_upload(R"({"path":"/a","mode":600,"owner":"u","group":"g"})")) ==
        "[/a][600][u][g]");
  std::string many = "{\"a\":null";
  for (int i = 0; i < 2000; ++i)
    many += ",\"a\":null";
  CHECK(plain(read_permissions(many + "}")).starts_with("!too much for one request"));
  CHECK(plain(read_replacements(R"({"a":{"old":"x","new":")" + std::string(200'000, 'y') + "\"}}"))
          .starts_with("!too much for one request"));
  CHECK(plain(read_upload(R"({"path":")" + std::string(5000, 'p') + "\"}")).starts_with("!"));
  for (const auto* bad : {"", "{}", "[]", R"({"path":""})", R"({"path":1})", "{"})
    CHECK(plain(read_upload(bad)).starts_with("!"));
}

TEST_CASE("entries of files are told as objects", "[http][execd]") {
  file_entry file{};
  file.kind = file_kind::regular;
  file.mode = 0644;
  file.size = 5;
  file.modified_ns = 1'700'000'000'123'456'789;
  file.changed_ns = -1'000'000;
  auto link = file;
  link.kind = file_kind::link;
  link.mode = 0777;
  const auto bytes =
    packed(file, "/w/a\"b", "sandbox", "root") + packed(link, "/w/l\xff", "1", "2");
  CHECK(
    write_entries_of({"a", "l"}, bytes) ==
    R"({"a":{"path":"/w/a\"b","type":"file","size":5,"modified_at":"2023-11-14T22:13:20.123Z","created_at":"1969-12-31T23:59:59.999Z","owner":"sandbox","group":"root","mode":644},)"
    "\"l\":{\"path\":\"/w/l\xef\xbf\xbd\",\"type\":\"symlink\",\"size\":5,\"modified_at\":"
    R"("2023-11-14T22:13:20.123Z","created_at":"1969-12-31T23:59:59.999Z","owner":"1","group":"2","mode":777}})");
  // What is cut short is none.
  told_entry entry;
  for (std::size_t size = 0; size < packed(file, "p", "o", "g").size(); ++size) {
    const auto cut = packed(file, "p", "o", "g").substr(0, size);
    std::string_view left = cut;
    CHECK_FALSE(take_entry(left, entry));
  }
  CHECK(write_counts({"a", "b"}, {0, 7}) == R"({"a":{"replacedCount":0},"b":{"replacedCount":7}})");
}

TEST_CASE("a query can say the same thing more than once", "[http]") {
  CHECK(form_values("path=a&x=y&path=b%20c&path=", "path") == words{"a", "b c", ""});
  CHECK(form_values("", "path").empty());
  CHECK(percent_encode("a b/\xc3\xa9\n\"") == "a%20b%2F%C3%A9%0A%22");
}
