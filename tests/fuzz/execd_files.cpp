// What execd's clients and its sandboxes say about files. The first byte says what it is, the
// second how a body comes.
#include "http/opensandbox/execd_json.hpp"
#include "http/opensandbox/files_json.hpp"
#include "http/opensandbox/line_window.hpp"
#include "http/opensandbox/multipart.hpp"
#include "tests/fuzz/bytes.hpp"

#include <string>

using namespace insula;
using namespace insula::fuzz;
using namespace insula::http::opensandbox;

namespace {

/// Parts and their contents, with marks that no content has to be told from.
std::string taken_apart(std::string_view body, std::size_t piece) {
  using event = multipart_reader::event;
  multipart_reader parts{"b"};
  std::string told;
  std::size_t content = 0;
  for (std::size_t at = 0; at < body.size(); at += piece) {
    parts.feed(body.substr(at, piece));
    for (bool more = true; more;) {
      switch (parts.next()) {
        case event::nothing: more = false; break;
        case event::part: told += "<" + parts.name() + (parts.is_file() ? "|f>" : "|>"); break;
        case event::content:
          must(!parts.content().empty(), "content is some");
          content += parts.content().size();
          told += parts.content();
          break;
        case event::part_end: told += "</>"; break;
        case event::end: return told + "<end>";
        case event::wrong: return told + "<wrong>";
      }
    }
  }
  must(content <= body.size(), "nothing is added");
  return told;
}

void check_words(const result<std::vector<std::string>>& words, std::size_t in_group) {
  if (!words)
    return;
  must(words->size() % in_group == 0, "words come in groups");
  for (const auto& each : *words)
    must(each.find('\0') == std::string::npos, "no word has a NUL");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  const auto what = from.plain<std::uint8_t>() % 6;
  const std::size_t piece = 1 + from.plain<std::uint8_t>() % 17;
  const auto text = from.rest();
  switch (what) {
    case 0: {
      const auto whole = taken_apart(text, text.size() + 1), bits = taken_apart(text, piece);
      // One that is cut short may have told less, but nothing else.
      must(whole.starts_with(bits) || bits.starts_with(whole), "however it comes, it is the same");
      static_cast<void>(boundary_of(text));
      break;
    }
    case 1: check_words(read_permissions(text), 4); break;
    case 2:
      check_words(read_moves(text), 2);
      check_words(read_replacements(text), 3);
      check_words(read_upload(text), 4);
      break;
    case 3: {
      const auto patterns = read_glob(text);
      must(!patterns || (!patterns->empty() && patterns->size() <= 256), "a glob is some patterns");
      break;
    }
    case 4: {
      auto left = text;
      std::string json;
      for (told_entry entry; take_entry(left, entry);)
        append_entry(json, entry);
      static_cast<void>(write_entries_of({"a", "b"}, text));
      break;
    }
    default: {
      line_window whole{1 + piece % 3, piece}, bits{1 + piece % 3, piece};
      std::string told;
      for (std::size_t at = 0; at < text.size(); at += piece)
        told += bits.feed(text.substr(at, piece));
      must(told == whole.feed(text), "however it comes, the lines are the same");
      static_cast<void>(read_session_cwd(text));
    }
  }
  return 0;
}
