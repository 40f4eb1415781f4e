#include "actors/snapshots/questions.hpp"

#include "actors/record_text.hpp"
#include "actors/snapshots/snapshot_record.hpp"

#include <string>
#include <utility>

namespace insula::actors::snapshots {

namespace {

constexpr const char* kind_key = "asks";
constexpr const char* id_key = "id";
constexpr const char* sandbox_key = "sandbox";
constexpr const char* hidden_key = "hidden_too";
constexpr const char* copy_key = "needs_copy";
constexpr const char* again_key = "again";
constexpr const char* request_key = "request";
// What a record does not have, of a description.
constexpr const char* sandboxes_key = "sandboxes";
constexpr const char* changed_key = "image_changed";
constexpr const char* away_key = "away";

struct writer {
  record_entries into;

  void operator()(const find_snapshot& asked) {
    put("find", asked.id, asked.context);
    if (asked.hidden)
      into[hidden_key] = "1";
    if (asked.needs_copy)
      into[copy_key] = "1";
  }
  void operator()(const hold_snapshot& asked) {
    put("hold", asked.id, asked.context);
    into[sandbox_key] = asked.sandbox;
    if (asked.again)
      into[again_key] = "1";
  }
  void operator()(const release_snapshot& asked) {
    put("release", asked.id, {});
    into[sandbox_key] = asked.sandbox;
  }
  void operator()(const delete_snapshot& asked) {
    // A node of an earlier version refuses the word, and deletes nothing.
    put(asked.evicts ? "evict" : "delete", asked.id, asked.context);
    if (asked.keep_ms > 0)
      into[keep_key] = std::to_string(asked.keep_ms);
  }

private:
  void put(const char* kind, const std::string& id, const request_context& of) {
    into[kind_key] = kind;
    into[id_key] = id;
    into[request_key] = of.id;
  }
};

} // namespace

std::string text_of(const question& asked) {
  writer words;
  std::visit(words, asked);
  return to_text(words.into);
}

std::optional<question> read_question(std::string_view text) {
  const auto words = from_text(text);
  const auto asks = text_in(words, kind_key);
  auto id = text_in(words, id_key);
  request_context of;
  of.id = text_in(words, request_key);
  if (id.empty())
    return std::nullopt;
  if (asks == "find")
    return find_snapshot{std::move(id), std::move(of), words.contains(hidden_key),
                         words.contains(copy_key)};
  if (asks == "hold")
    return hold_snapshot{std::move(id), text_in(words, sandbox_key), std::move(of),
                         words.contains(again_key)};
  if (asks == "release")
    return release_snapshot{std::move(id), text_in(words, sandbox_key)};
  if (asks == "delete" || asks == "evict")
    return delete_snapshot{std::move(id), std::move(of), asks == "evict",
                           number_in(words, keep_key).value_or(0)};
  return std::nullopt;
}

const std::string& snapshot_of(const question& asked) {
  return std::visit([](const auto& one) -> const std::string& { return one.id; }, asked);
}

std::string text_of(const snapshot_description& told) {
  record_entries words;
  for (const auto& each : changes_of(told))
    if (each.value)
      words[each.key] = *each.value;
  words[id_key] = told.id;
  words[sandboxes_key] = std::to_string(told.sandboxes);
  if (!told.copy.empty())
    words[snapshot_key] = "0 " + told.copy;
  if (!told.no_copy.empty())
    words[no_copy_key] = told.no_copy;
  if (told.image_changed)
    words[changed_key] = "1";
  if (told.away)
    words[away_key] = "1";
  return to_text(words);
}

result<snapshot_description> read_description(std::string_view text) {
  const auto words = from_text(text);
  auto told = describe(text_in(words, id_key), words);
  if (!told || told->id.empty())
    return error{errc::internal, "what another node says of a snapshot makes no sense"};
  told->sandboxes = static_cast<std::uint64_t>(number_in(words, sandboxes_key).value_or(0));
  told->image_changed = words.contains(changed_key);
  told->away = words.contains(away_key);
  return std::move(*told);
}

} // namespace insula::actors::snapshots
