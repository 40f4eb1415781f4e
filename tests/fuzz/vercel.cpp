// What clients of the Vercel Sandbox service say, what this API keeps of it, and the lines of a
// command's log. The first byte says what it is, the second how output comes.
#include "base/limits.hpp"
#include "http/json/document.hpp"
#include "http/text/utf8.hpp"
#include "http/vercel/drives.hpp"
#include "http/vercel/ids.hpp"
#include "http/vercel/listing.hpp"
#include "http/vercel/objects_json.hpp"
#include "http/vercel/settings.hpp"
#include "http/vercel/words.hpp"
#include "tests/fuzz/bytes.hpp"

#include <algorithm>
#include <string>

using namespace insula;
using namespace insula::fuzz;
using namespace insula::http;
using namespace insula::http::vercel;

namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0 && c != '\n'; });
}

void must_be_json(const std::string& text) {
  json::document document;
  must(is_ascii(text), "an answer is ASCII in one line");
  must(json::parse(text, document), "an answer is JSON");
}

void check_refusal(const refusal& why) {
  must(why.status >= 400 && why.status < 500, "a bad body is the client's fault");
  must(!why.message.empty(), "a refusal has words");
  const auto said = failure(why);
  json::document document;
  must(said.status == why.status && json::parse(said.body, document), "a failure is JSON");
}

/// Whatever is kept is understood later, and answered.
void check_settings(const settings& is) {
  must(is.ports.size() <= 15 && is.tags.size() <= 5, "lists have their ceilings");
  must(is.timeout_ms >= 1000 && is.timeout_ms <= most_timeout_ms, "a time is in its bounds");
  must(is.vcpus >= 1 && is.vcpus <= most_vcpus, "processors are in their bounds");
  must(policy_of(is.network).rules.size() <= max_egress_rules, "a policy has its ceiling");
  const auto text = text_of(is);
  must_be_json(text);
  const auto again = read_settings(text);
  must(again.has_value(), "what is kept can be read");
  must(text_of(*again) == text, "what is kept stays the same");
  json::ascii_writer sandbox, session;
  const sandbox_view view{"a", is, 1, {}, {}};
  write_sandbox(sandbox, view);
  write_session(session, view);
  must_be_json(sandbox.str());
  must_be_json(session.str());
}

void check_create(std::string_view text) {
  create_request request;
  const auto wrong = read_create(text, request);
  if (wrong)
    return check_refusal(*wrong);
  must(is_sandbox_name(request.wanted.name), "a sandbox has a name");
  must(!request.git || !request.tarball, "there is one source");
  for (const auto& [name, value] : request.env)
    must(!name.empty() && name.find_first_of(std::string_view{"=\0", 2}) == name.npos &&
           value.find('\0') == value.npos,
         "an environment can have it");
  const auto seen = settings_in(text);
  must(seen.project == request.wanted.project, "both readers see one project");
  must(seen.name.empty() || seen.name == request.wanted.name, "both readers see one name");
  must(own_drive_of(seen, "s") == own_drive_of(request.wanted, "s"), "both readers see one drive");
  for (const auto& each : drives_of(request.wanted, "s"))
    must(each.path.front() == '/' && each.path.find('\n') == each.path.npos &&
           is_drive_name(each.name),
         "a record can have it");
  check_settings(request.wanted);
}

void check_drive(std::string_view text) {
  std::string name;
  if (const auto wrong = read_drive_fork(text, name))
    check_refusal(*wrong);
  else
    must(is_drive_name(name) && drive_of_id(name).empty(), "a fork has the name of a drive");
  drive_settings is;
  if (const auto wrong = read_drive_request(text, is, 10ull << 30))
    return check_refusal(*wrong);
  is.name = "d";
  const auto again = drive_settings_of({{drive_metadata_api, text_of(is)}});
  must(again && again->project == is.project && again->region == is.region &&
         again->max_bytes == is.max_bytes && text_of(*again) == text_of(is),
       "a drive is read as it was written");
  must(drive_group_of({{drive_metadata_api, text_of(is)}})->group != is.project,
       "its group is no project");
}

void check_patch(std::string_view text) {
  settings is{.project = "p", .name = "n"};
  const auto before = text_of(is);
  std::string snapshot;
  if (const auto wrong = apply_patch(text, is, snapshot)) {
    check_refusal(*wrong);
    must(text_of(is) == before && snapshot.empty(), "all or nothing of it");
    return;
  }
  must(is.project == "p" && is.name == "n", "a patch gives no other name");
  check_settings(is);
}

void check_fork(std::string_view text) {
  create_request request;
  request.wanted = {.project = "p", .name = "source"};
  bool other_image = false;
  if (const auto wrong = read_fork(text, request, other_image))
    return check_refusal(*wrong);
  must(request.wanted.project == "p" && is_sandbox_name(request.wanted.name), "a fork has a name");
  must(other_image == !request.wanted.image.empty(), "it is told of another image");
  check_settings(request.wanted);
}

void check_snapshot_request(std::string_view text) {
  snapshot_request request;
  if (const auto wrong = read_snapshot_request(text, request))
    return check_refusal(*wrong);
  must(!request.keep_ms || *request.keep_ms == 0 || *request.keep_ms >= 86'400'000,
       "a snapshot is kept for a day, or for good");
}

void check_ids(std::string_view text) {
  if (const auto snapshot = snapshot_of(text); !snapshot.empty())
    must(id_of_snapshot(snapshot) == text, "an id is read back");
  if (const auto id = session_id::parse(text)) {
    const auto again = session_id::parse(id->text());
    must(again && again->sandbox == id->sandbox && again->run == id->run, "an id is read back");
  }
  if (const auto key = key_of_command(text); !key.empty())
    must("cmd_" + key == text, "a command has one id");
  if (const auto place = place_of_cursor(text))
    must(cursor_text(*place) == text, "a place has one cursor");
  if (!text.empty() && text.size() <= 512)
    must(place_of_cursor(cursor_text(text)) == text, "a cursor is read back");
  if (const auto limit = page_limit(text))
    must(*limit >= 1 && *limit <= longest_page, "a page has its bounds");
}

/// What a node of another version may have kept.
void check_kept(std::string_view text) {
  if (const auto is = read_settings(text)) {
    const auto kept = text_of(*is);
    must_be_json(kept);
    must(kept.empty() || read_settings(kept).has_value(), "what is kept can be read");
  }
  const auto command = text_of(read_command_view(text));
  must_be_json(command);
  must(text_of(read_command_view(command)) == command, "a command is read back");
}

/// A log in pieces, beside the whole of it.
void check_log(std::string_view text, std::size_t piece) {
  log_lines lines;
  std::string told, whole;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    output_frame frame;
    frame.stream = output_stream::out;
    frame.bytes = text.substr(at, piece);
    lines.output(told, {frame});
  }
  lines.finish(told);
  for (std::string_view left = told; !left.empty();) {
    const auto end = left.find('\n');
    must(end != left.npos, "a line has an end");
    json::document line;
    must(json::parse(left.substr(0, end), line), "a line is JSON");
    const auto* data = json::find(line, "data");
    must(data != nullptr && data->IsString(), "a line has its data");
    whole += json::text_of(*data);
    left.remove_prefix(end + 1);
  }
  must(whole == to_utf8(text), "nothing is lost of a log");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  const auto what = from.plain<std::uint8_t>() % 5;
  const std::size_t piece = 1 + from.plain<std::uint8_t>() % 17;
  const auto text = from.rest();
  switch (what) {
    case 0: check_create(text); break;
    case 1:
      check_patch(text);
      check_fork(text);
      check_snapshot_request(text);
      check_drive(text);
      break;
    case 2: check_ids(text); break;
    case 3: check_kept(text); break;
    default: check_log(text, piece); break;
  }
  return 0;
}
