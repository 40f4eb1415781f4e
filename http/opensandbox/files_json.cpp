#include "http/opensandbox/files_json.hpp"

#include "base/limits.hpp"
#include "http/json/document.hpp"
#include "http/json/writer.hpp"
#include "http/opensandbox/execd_json.hpp"
#include "http/text/iso_time.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace insula::http::opensandbox {

namespace {

using json::value;
using json::wrong;

/// Braces in braces make many patterns of few letters.
constexpr std::size_t most_patterns = 256;
constexpr unsigned most_steps = 4096;
constexpr std::size_t longest_glob = 1024; // No name has more than 255 bytes.

/// A path, or what replaces what: any text without NUL, since words end with one.
bool is_word(const value& from) {
  return from.IsString() && json::string_of(from).find('\0') == std::string::npos;
}

bool is_path(const value& from) {
  return is_word(from) && from.GetStringLength() > 0;
}

/// Words as they are read: more than a task can be told are refused before they take room.
class word_list {
public:
  void add(std::string word) {
    bytes_ += word.size() + 1;
    if (!full())
      words_.push_back(std::move(word));
  }
  bool full() const { return bytes_ > max_task_bytes || words_.size() >= max_task_words; }
  result<std::vector<std::string>> taken() {
    if (full())
      return error{errc::payload_too_large, "too much for one request: at most " +
                                              std::to_string(max_task_words) + " words, and " +
                                              std::to_string(max_task_bytes) + " bytes of them"};
    return std::move(words_);
  }

private:
  std::vector<std::string> words_;
  std::size_t bytes_ = 0;
};

/// A number, and none that a user or a group in a sandbox can have.
bool is_wrong_id(std::string_view name) {
  const bool is_number = name.find_first_of("0123456789") != std::string_view::npos &&
                         name.find_first_not_of("0123456789+-.") == std::string_view::npos;
  std::uint32_t number = 0;
  const auto* last = name.data() + name.size();
  const auto [end, why] = std::from_chars(name.data(), last, number);
  return is_number && (why != std::errc{} || end != last || number > limits::largest_user_id);
}

/// Of an object that may have them.
std::optional<error> read_rights(const value& from, word_list& words) {
  std::array<std::string, 3> read;
  if (const auto at = from.FindMember("mode"); at != from.MemberEnd() && !at->value.IsNull()) {
    if (!at->value.IsUint())
      return wrong("mode must be a number such as 644");
    if (const auto digits = at->value.GetUint(); digits != 0)
      read[0] = std::to_string(digits); // Octal digits, written as a decimal number.
  }
  for (const auto& [name, into] : {std::pair{"owner", &read[1]}, {"group", &read[2]}}) {
    const auto at = from.FindMember(name);
    if (at == from.MemberEnd() || at->value.IsNull())
      continue;
    if (!is_word(at->value))
      return wrong(std::string{name} + " must be a string");
    *into = json::string_of(at->value);
    if (is_wrong_id(*into))
      return wrong(std::string{name} + " must be a name or a whole number from 0 to " +
                   std::to_string(limits::largest_user_id));
  }
  for (auto& each : read)
    words.add(std::move(each));
  return std::nullopt;
}

const char* name_of(file_kind kind) {
  switch (kind) {
    case file_kind::regular: return "file";
    case file_kind::directory: return "directory";
    case file_kind::link: return "symlink";
    default: return "other";
  }
}

void write_entry(json::writer& out, const told_entry& entry) {
  unsigned mode = 0; // Octal digits, written as a decimal number.
  for (unsigned i = 4; i-- > 0;)
    mode = mode * 10 + ((entry.is.mode >> (3 * i)) & 7u);
  out.begin_object();
  out.member("path", entry.path);
  out.member("type", name_of(entry.is.kind));
  out.member("size", entry.is.size);
  out.member("modified_at", iso_time(entry.is.modified_ns / 1'000'000));
  out.member("created_at", iso_time(entry.is.changed_ns / 1'000'000));
  out.member("owner", entry.owner);
  out.member("group", entry.group);
  out.member("mode", mode);
  out.end_object();
}

/// Where what begins at `at` with a bracket or a brace ends; npos: nowhere.
std::size_t end_of(std::string_view glob, std::size_t at, char opens, char closes) {
  int depth = 0;
  for (; at < glob.size(); ++at) {
    if (glob[at] == '\\')
      ++at;
    else if (glob[at] == opens)
      ++depth;
    else if (glob[at] == closes && --depth == 0)
      return at;
  }
  return std::string_view::npos;
}

/// A class in brackets: its first letter after ^ or ! may be the closing one.
std::size_t end_of_class(std::string_view glob, std::size_t at) {
  auto first = at + 1;
  if (first < glob.size() && (glob[first] == '^' || glob[first] == '!'))
    ++first;
  for (auto i = first; i < glob.size(); ++i)
    if (glob[i] == '\\')
      ++i;
    else if (glob[i] == ']' && i > first)
      return i;
  return std::string_view::npos;
}

/// The alternatives between the braces of `inner`, as they are written.
std::vector<std::string_view> alternatives(std::string_view inner) {
  std::vector<std::string_view> all;
  int depth = 0;
  std::size_t from = 0;
  for (std::size_t i = 0; i < inner.size(); ++i) {
    if (inner[i] == '\\')
      ++i;
    else if (inner[i] == '{')
      ++depth;
    else if (inner[i] == '}')
      --depth;
    else if (inner[i] == ',' && depth == 0) {
      all.push_back(inner.substr(from, i - from));
      from = i + 1;
    }
  }
  all.push_back(inner.substr(from));
  return all;
}

/// Adds what `glob` says to `all`. False: it makes no sense, or says too much.
bool expand(const std::string& glob, unsigned& steps, std::vector<std::string>& all) {
  if (++steps > most_steps)
    return false;
  for (std::size_t i = 0; i < glob.size(); ++i) {
    if (glob[i] == '\\') {
      if (++i == glob.size())
        return false;
    } else if (glob[i] == '[') {
      i = end_of_class(glob, i);
      if (i == std::string::npos)
        return false;
    } else if (glob[i] == '{') {
      const auto end = end_of(glob, i, '{', '}');
      if (end == std::string::npos)
        return false;
      const auto inner = std::string_view{glob}.substr(i + 1, end - i - 1);
      for (const auto each : alternatives(inner))
        if (!expand(glob.substr(0, i) + std::string{each} + glob.substr(end + 1), steps, all))
          return false;
      return true;
    }
  }
  all.push_back(glob);
  return all.size() <= most_patterns;
}

} // namespace

result<std::vector<std::string>> read_permissions(std::string_view body) {
  json::document document;
  if (!json::parse(body, document, {.any_rest = true}) || !document.IsObject())
    return wrong("the body must be a JSON object of paths");
  word_list words;
  for (const auto& each : document.GetObject()) {
    if (words.full())
      break;
    if (!is_path(each.name) || (!each.value.IsObject() && !each.value.IsNull()))
      return wrong("each path must have an object");
    words.add(json::string_of(each.name));
    static const value nothing{rapidjson::kObjectType};
    if (auto failed = read_rights(each.value.IsNull() ? nothing : each.value, words))
      return *failed;
  }
  return words.taken();
}

result<std::vector<std::string>> read_moves(std::string_view body) {
  json::document document;
  if (!json::parse(body, document, {.any_rest = true}) || !document.IsArray())
    return wrong("the body must be a JSON array of {\"src\", \"dest\"}");
  word_list words;
  for (const auto& each : document.GetArray()) {
    if (words.full())
      break;
    for (const auto* name : {"src", "dest"}) {
      if (!each.IsObject() || !each.HasMember(name) || !is_path(each[name]))
        return wrong(std::string{name} + " must be a path");
      words.add(json::string_of(each[name]));
    }
  }
  return words.taken();
}

result<std::vector<std::string>> read_replacements(std::string_view body) {
  json::document document;
  if (!json::parse(body, document, {.any_rest = true}) || !document.IsObject())
    return wrong("the body must be a JSON object of paths");
  word_list words;
  for (const auto& each : document.GetObject()) {
    if (words.full())
      break;
    const auto& what = each.value;
    if (!is_path(each.name) || !what.IsObject())
      return wrong("each path must have an object with old and new");
    words.add(json::string_of(each.name));
    for (const auto* name : {"old", "new"}) {
      const auto at = what.FindMember(name);
      const bool there = at != what.MemberEnd() && !at->value.IsNull();
      if (there && !is_word(at->value))
        return wrong(std::string{name} + " must be a string without NUL");
      if (name == std::string_view{"old"} && (!there || at->value.GetStringLength() == 0))
        return wrong("old must not be empty");
      words.add(there ? json::string_of(at->value) : std::string{});
    }
  }
  return words.taken();
}

result<std::vector<std::string>> read_upload(std::string_view body) {
  json::document document;
  if (!json::parse(body, document, {.any_rest = true}) || !document.IsObject())
    return wrong("the metadata must be a JSON object");
  const auto at = document.FindMember("path");
  if (at == document.MemberEnd() || !is_path(at->value))
    return wrong("the metadata must have a path");
  constexpr std::size_t longest_path = 4096, longest_in_all = longest_path + 1024;
  word_list words;
  words.add(json::string_of(at->value));
  if (auto failed = read_rights(document, words))
    return *failed;
  auto read = words.taken();
  std::size_t bytes = 0;
  if (read)
    for (const auto& each : *read)
      bytes += each.size();
  if (bytes > longest_in_all || at->value.GetStringLength() >= longest_path)
    return wrong("the metadata has too long a path, owner or group");
  return read;
}

result<std::vector<std::string>> read_glob(std::string_view glob) {
  while (glob.starts_with("**/"))
    glob.remove_prefix(3);
  std::vector<std::string> all;
  unsigned steps = 0;
  if (glob.size() > longest_glob || !expand(std::string{glob.empty() ? "**" : glob}, steps, all))
    return wrong("syntax error in pattern");
  return all;
}

void append_entry(std::string& json, const told_entry& entry) {
  json::writer out;
  write_entry(out, entry);
  json += out.view();
}

std::string write_entries_of(const std::vector<std::string>& paths, std::string_view entries) {
  json::writer out;
  out.begin_object();
  told_entry each;
  for (const auto& path : paths) {
    if (!take_entry(entries, each))
      break;
    out.key(path);
    write_entry(out, each);
  }
  out.end_object();
  return out.str();
}

std::string write_counts(const std::vector<std::string>& paths,
                         const std::vector<std::uint64_t>& counts) {
  json::writer out;
  out.begin_object();
  for (std::size_t i = 0; i < paths.size() && i < counts.size(); ++i) {
    out.key(paths[i]).begin_object().member("replacedCount", counts[i]).end_object();
  }
  out.end_object();
  return out.str();
}

} // namespace insula::http::opensandbox
