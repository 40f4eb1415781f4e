#include "base/limits.hpp"
#include "http/opensandbox/commands.hpp"
#include "http/opensandbox/execd_json.hpp"
#include "http/opensandbox/execd_route.hpp"
#include "http/opensandbox/file_question.hpp"
#include "http/opensandbox/file_upload.hpp"
#include "http/opensandbox/files_json.hpp"
#include "http/opensandbox/line_window.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/byte_range.hpp"
#include "http/sandboxes/channel_reader.hpp"
#include "http/text/header_text.hpp"
#include "http/text/percent.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <optional>
#include <system_error>
#include <utility>

namespace insula::http::opensandbox {

namespace {

constexpr std::string_view json_type = "application/json; charset=utf-8";
constexpr std::uint64_t longest_body = 2u << 20; // Of all that a task can be told, as JSON.
constexpr std::size_t longest_whole = 16u << 20; // Of what is no listing and no file.

response missing_query(std::string_view name) {
  return execd_failure(400, "MISSING_QUERY", "missing query parameter '" + std::string{name} + "'");
}

/// How many words stand for one file.
std::size_t group_of(file_task what) {
  switch (what) {
    case file_task::make_directories:
    case file_task::permit: return 4;
    case file_task::replace: return 3;
    case file_task::move: return 2;
    default: return 1;
  }
}

response failure_of(const file_head& head, const asked_task& task) {
  const auto& [what, words] = std::tie(task.what, task.words);
  const auto at =
    std::min<std::uint64_t>(head.size, words.size() / group_of(what)) * group_of(what);
  const auto& path = at < words.size() ? words[at] : words.front();
  const auto step = static_cast<file_step>(head.step);
  const auto said = std::generic_category().message(head.error);
  if (head.error == EINVAL && (step == file_step::owner || step == file_step::group))
    return execd_failure(500, "RUNTIME_ERROR", path + ": the owner or group is not known");
  if (head.error == EINVAL && step == file_step::mode)
    return execd_failure(500, "RUNTIME_ERROR", path + ": the mode has no octal digits");
  if (what == file_task::list && head.error == ENOTDIR && step == file_step::type)
    return execd_failure(400, "INVALID_REQUEST_BODY", path + " is no directory");
  if (what == file_task::read && step == file_step::type)
    return execd_failure(400, "INVALID_REQUEST_BODY",
                         path + (head.error == EISDIR ? " is a directory" : " is no regular file"));
  const bool gone = head.error == ENOENT || head.error == ENOTDIR;
  if (task.must_exist)
    return execd_failure(400, "INVALID_REQUEST_BODY", path + ": " + said);
  if (gone && step == file_step::open && what != file_task::permit)
    return execd_failure(404, "FILE_NOT_FOUND", path + ": " + said);
  if (what == file_task::move && head.error == EEXIST)
    return execd_failure(500, "RUNTIME_ERROR",
                         (at + 1 < words.size() ? words[at + 1] : path) + " already exists");
  return execd_failure(500, "RUNTIME_ERROR", path + ": " + said);
}

/// Has the task done, and its channel listened to.
void ask(asked_task task, std::shared_ptr<channel_listener> listener) {
  const auto to = task.to;
  if (std::any_of(task.words.begin(), task.words.end(),
                  [](const auto& each) { return each.find('\0') != std::string::npos; }))
    return to->respond(execd_failure(400, "INVALID_REQUEST_BODY", "a path cannot have a NUL"));
  // Many files take minutes, and nothing may be said of them before the end.
  const std::chrono::milliseconds silence =
    task.what == file_task::read ? limits::reader_patience : limits::tree_check_patience;
  file_task_request wanted;
  wanted.what = task.what;
  wanted.words = std::move(task.words);
  wanted.only_if_there = !task.target.makes_sandbox();
  question{*task.target.with, task.id, std::move(wanted), to}
    .within(sandbox_patience + silence, no_answer_in_time())
    .starts(task.target.makes_sandbox())
    .or_else(execd_failure)
    .then<file_channel>([to, silence, listener = std::move(listener)](const file_channel& channel) {
      read_channel(channel, to->strand(), listener, silence);
    });
}

/// What all of them do with a failure.
class task_listener : public channel_listener {
public:
  explicit task_listener(asked_task task)
      : task_(std::move(task)) {}

  bool begin(const file_head& head) override {
    if (head.error == 0)
      return true;
    task_.to->respond(failure_of(head, task_));
    return false;
  }

  /// Once something has been sent, dropping the stream cuts the connection.
  void cut(const error& why) override { task_.to->respond(execd_failure(why)); }

protected:
  asked_task task_;
};

// ---- Answers that are read as a whole

class whole_listener final : public task_listener {
public:
  whole_listener(asked_task task, task_done then)
      : task_listener(std::move(task))
      , then_(std::move(then)) {}

  void take(std::string bytes, bool last, std::function<void()> next) override {
    all_ += bytes;
    if (last)
      return then_(task_, all_);
    if (all_.size() > longest_whole)
      return cut({errc::limit_reached, "the sandbox has too much to say"});
    next();
  }

private:
  task_done then_;
  std::string all_;
};

void done(const asked_task& task, const std::string&) {
  task.to->respond({200, {}, {}});
}

// ---- Listings

/// An array of entries, as they come.
class listing final : public task_listener {
public:
  using task_listener::task_listener;

  void take(std::string bytes, bool last, std::function<void()> next) override {
    std::string json = stream_ ? "" : "[";
    told_entry entry;
    for (std::string_view left = bytes; take_entry(left, entry);) {
      if (std::exchange(any_, true))
        json += ',';
      append_entry(json, entry);
    }
    if (last)
      json += ']';
    if (last && !stream_)
      return task_.to->respond({200, std::move(json), json_type});
    if (!stream_)
      stream_ = task_.to->stream({json_type});
    if (!stream_)
      return; // Only the head was asked for.
    if (last)
      return stream_->finish(std::move(json));
    stream_->write(std::move(json), [next = std::move(next)](bool taken) {
      if (taken)
        next();
    });
  }

private:
  std::shared_ptr<answer_stream> stream_;
  bool any_ = false;
};

// ---- Downloads

response out_of_reach(std::uint64_t size) {
  auto answer = execd_failure(416, "UNKNOWN", "the file has no such bytes");
  answer.fields.push_back(no_part_of(size));
  return answer;
}

/// "Fri, 20 Nov 2026 09:16:36 GMT"
std::string http_date(std::int64_t unix_ns) {
  const std::time_t seconds = unix_ns / 1'000'000'000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return text.data();
}

/// The name may have any letters: what a header cannot have is encoded.
std::string disposition_of(std::string_view path) {
  const auto name = path.substr(path.rfind('/') + 1);
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\' && c != '%';
  });
  if (plain)
    return "attachment; filename=\"" + std::string{name} + "\"";
  const auto encoded = percent_encode(name);
  return "attachment; filename=\"" + encoded + "\"; filename*=UTF-8''" + encoded;
}

/// Whether If-Range names the file as it is. A file that has changed within the last second may
/// have done so twice with one time.
bool is_unchanged(const std::string& if_range, std::int64_t modified_ns) {
  using namespace std::chrono;
  const auto age = system_clock::now().time_since_epoch() - nanoseconds{modified_ns};
  return age >= 1s && if_range == http_date(modified_ns);
}

class download final : public task_listener {
public:
  /// `range`: a part is wanted, if `if_range` is empty or names the file as it is; else all of it.
  download(asked_task task, std::optional<byte_range> range, std::string if_range)
      : task_listener(std::move(task))
      , range_(std::move(range))
      , if_range_(std::move(if_range)) {}

  bool begin(const file_head& head) override {
    if (head.error == ERANGE) {
      is_out_of_reach(head.size);
      return false;
    }
    from_ = head.size;
    return task_listener::begin(head);
  }

  void take(std::string bytes, bool last, std::function<void()> next) override {
    if (!stream_) {
      if (!answer(bytes))
        return;
      if (!last)
        return next(); // The header leaves with the first bytes.
    }
    left_ -= std::min<std::uint64_t>(left_, bytes.size());
    if (last || left_ == 0) // Whatever the sandbox would still say.
      return stream_->finish(std::move(bytes));
    stream_->write(std::move(bytes), [next = std::move(next)](bool taken) {
      if (taken)
        next();
    });
  }

private:
  /// `entry` is what the first frame has, and is taken out of it. False: there is nothing to send.
  bool answer(std::string& entry) {
    told_entry is;
    std::string_view left = entry;
    if (!take_entry(left, is) || from_ > is.is.size) {
      cut({errc::io_failed, "the sandbox makes no sense"});
      return false;
    }
    stream_head how{"application/octet-stream",
                    {{"Content-Disposition", disposition_of(is.path)},
                     {"Accept-Ranges", "bytes"},
                     {"Last-Modified", http_date(is.is.modified_ns)}}};
    how.length = is.is.size;
    if (range_ && !if_range_.empty() && !is_unchanged(if_range_, is.is.modified_ns)) {
      ask_for_all();
      return false;
    }
    if (range_) {
      const auto part = part_of(*range_, from_, is.is.size);
      if (!part) {
        task_.to->respond(out_of_reach(is.is.size));
        return false;
      }
      tell_part(how, *part);
    }
    left_ = *how.length;
    entry.clear();
    stream_ = task_.to->stream(std::move(how));
    return stream_ != nullptr; // Else only the head was asked for.
  }

  /// Of a file that is not known to be the one that was meant, all is told.
  void is_out_of_reach(std::uint64_t size) {
    if_range_.empty() ? task_.to->respond(out_of_reach(size)) : ask_for_all();
  }

  void ask_for_all() {
    task_.words[1] = "0";
    task_.words[2] = "";
    ask(task_, std::make_shared<download>(task_, std::nullopt, std::string{}));
  }

  const std::optional<byte_range> range_;
  const std::string if_range_;
  std::uint64_t from_ = 0;
  std::uint64_t left_ = 0; ///< Of what was announced.
  std::shared_ptr<answer_stream> stream_;
};

/// Some lines of a text.
class line_download final : public task_listener {
public:
  line_download(asked_task task, line_window window)
      : task_listener(std::move(task))
      , window_(window) {}

  void take(std::string bytes, bool last, std::function<void()> next) override {
    auto text = std::exchange(seen_entry_, true) ? window_.feed(bytes) : std::string{};
    last = last || window_.full();
    if (last && !stream_)
      return task_.to->respond({200, std::move(text), "text/plain; charset=utf-8"});
    if (last)
      return stream_->finish(std::move(text));
    if (text.empty())
      return next();
    if (!stream_)
      stream_ = task_.to->stream({"text/plain; charset=utf-8"});
    if (!stream_)
      return; // Only the head was asked for.
    stream_->write(std::move(text), [next = std::move(next)](bool taken) {
      if (taken)
        next();
    });
  }

private:
  line_window window_;
  bool seen_entry_ = false; ///< The first frame is no text.
  std::shared_ptr<answer_stream> stream_;
};

/// None: it is no whole number from 1 on.
std::optional<std::uint64_t> line_number(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool good = why == std::errc{} && end == text.data() + text.size() && number >= 1;
  return good ? std::optional{number} : std::nullopt;
}

void fetch(const execd_target& target, const execd_call& what, const std::string&,
           const reply& to) {
  const auto path = form_value(what.query, "path");
  if (path.empty())
    return to->respond(missing_query("path"));
  const auto offset = form_value(what.query, "offset"), limit = form_value(what.query, "limit");
  asked_task task{target, target.id(what), file_task::read, {path, "0", ""}, to};
  if (!offset.empty() || !limit.empty()) {
    const auto first = offset.empty() ? 1 : line_number(offset);
    const auto count = limit.empty() ? UINT64_MAX : line_number(limit);
    if (!first || !count || !what.range.empty())
      return to->respond(execd_failure(
        400, "INVALID_REQUEST_BODY",
        what.range.empty() ? "offset and limit must be whole numbers from 1 on"
                           : "offset and limit count lines: they do not go with a Range"));
    ask(task, std::make_shared<line_download>(task, line_window{*first, *count}));
    return;
  }
  std::optional<byte_range> range;
  if (!what.range.empty()) { // Of several the first counts.
    range = read_range(what.range).first;
    if (!range)
      return to->respond(execd_failure(416, "UNKNOWN", "the range makes no sense"));
    task.words[1] = range->first;
    task.words[2] = range->last;
  }
  ask(task, std::make_shared<download>(task, range, what.if_range));
}

// ---- The routes

/// A task with the paths of a query. Without any there is nothing to do.
execd_answer with_paths(file_task task, task_done then, std::string_view nothing) {
  return
    [=](const execd_target& target, const execd_call& what, const std::string&, const reply& to) {
      auto paths = form_values(what.query, "path");
      if (std::count(paths.begin(), paths.end(), std::string{}) > 0)
        return to->respond(execd_failure(400, "INVALID_REQUEST_BODY", "a path is empty"));
      if (paths.empty())
        return to->respond({200, std::string{nothing}, json_type});
      run_task({target, target.id(what), task, std::move(paths), to}, then);
    };
}

/// A task whose words are in a body.
execd_answer with_body(file_task task,
                       result<std::vector<std::string>> (*read)(std::string_view body)) {
  return [=](const execd_target& target, const execd_call& what, const std::string& body,
             const reply& to) {
    auto words = read(body);
    if (!words)
      return to->respond(execd_failure(words.reason()));
    if (words->empty())
      return to->respond({200, {}, {}});
    run_task({target, target.id(what), task, std::move(*words), to}, done);
  };
}

void tell_entries(const asked_task& task, const std::string& bytes) {
  task.to->respond({200, write_entries_of(task.words, bytes), json_type});
}

void replace(const execd_target& target, const execd_call& what, const std::string& body,
             const reply& to) {
  auto words = read_replacements(body);
  if (!words)
    return to->respond(execd_failure(words.reason()));
  const bool tells = form_value(what.query, "verbose") == "true";
  if (words->empty())
    return to->respond({200, tells ? "{}" : "", json_type});
  run_task({target, target.id(what), file_task::replace, std::move(*words), to},
           [tells](const asked_task& task, const std::string& bytes) {
             if (!tells)
               return done(task, bytes);
             std::vector<std::string> paths;
             for (std::size_t i = 0; i < task.words.size(); i += 3)
               paths.push_back(task.words[i]);
             std::vector<std::uint64_t> counts(bytes.size() / sizeof(std::uint64_t));
             std::memcpy(counts.data(), bytes.data(), counts.size() * sizeof(std::uint64_t));
             task.to->respond({200, write_counts(paths, counts), json_type});
           });
}

void search(const execd_target& target, const execd_call& what, const std::string&,
            const reply& to) {
  const auto path = form_value(what.query, "path");
  if (path.empty())
    return to->respond(missing_query("path"));
  const auto patterns = read_glob(form_value(what.query, "pattern"));
  if (!patterns)
    return to->respond(execd_failure(500, "RUNTIME_ERROR", patterns.reason().message));
  std::vector<std::string> words{path};
  words.insert(words.end(), patterns->begin(), patterns->end());
  asked_task task{target, target.id(what), file_task::search, std::move(words), to};
  ask(task, std::make_shared<listing>(task));
}

void list(const execd_target& target, const execd_call& what, const std::string&, const reply& to) {
  const auto path = form_value(what.query, "path");
  if (path.empty())
    return to->respond(missing_query("path"));
  auto depth = form_value(what.query, "depth");
  if (depth.empty())
    depth = "1";
  if (depth.size() > 9 ||
      !std::all_of(depth.begin(), depth.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return to->respond(
      execd_failure(400, "INVALID_REQUEST_BODY", "depth must be a whole number from 0 on"));
  asked_task task{target, target.id(what), file_task::list, {path, depth}, to};
  ask(task, std::make_shared<listing>(task));
}

} // namespace

void run_task(asked_task task, task_done then) {
  ask(task, std::make_shared<whole_listener>(task, std::move(then)));
}

void add_file_routes(std::vector<route>& table, const execd_target& target,
                     const std::string& prefix) {
  constexpr std::string_view tag = "OpenSandbox: files", as_json = "application/json";
  const auto add = [&](verb method, std::string_view path, body_use body, execd_answer answer,
                       operation document) {
    document.tag = tag;
    document.answers.push_back(bad_answer);
    table.push_back(execd_route(method, prefix + std::string{path}, target, body, std::move(answer),
                                std::move(document), longest_body));
  };
  const auto one_path = [](std::string_view what) {
    return parameter{"path", "query", what, true, "/workspace"};
  };
  const parameter paths{"path",
                        "query",
                        "Where it is; once for each.",
                        true,
                        R"(["/workspace/notes.txt"])",
                        R"({"type":"array","items":{"type":"string"}})"};
  const auto none = body_use::ignored, some = body_use::buffered;
  add(verb::get, "/files/info", none, with_paths(file_task::look, tell_entries, "{}"),
      {.id = "getExecdFilesInfo",
       .summary = "What is known of files, by the paths that were asked for.",
       .parameters = {paths},
       .answers = {{"200", "By path.", as_json, "ExecdFilesInfo"}}});
  add(verb::del, "/files", none, with_paths(file_task::remove, done, ""),
      {.id = "deleteExecdFiles",
       .summary = "Delete files. One that is not there is no failure.",
       .parameters = {paths},
       .answers = {done_answer}});
  add(verb::post, "/files/permissions", some, with_body(file_task::permit, read_permissions),
      {.id = "setExecdPermissions",
       .summary = "Change modes and owners of files, by path.",
       .body_type = as_json,
       .body_schema = "ExecdPermissions",
       .answers = {done_answer}});
  add(verb::post, "/files/mv", some, with_body(file_task::move, read_moves),
      {.id = "moveExecdFiles",
       .summary = "Move or rename files. Directories above the new path are made.",
       .body_type = as_json,
       .body_schema = "ExecdMoves",
       .answers = {done_answer}});
  add(verb::get, "/files/search", none, search,
      {.id = "searchExecdFiles",
       .summary = "Files and links below a directory whose name matches a pattern.",
       .parameters = {one_path("The directory."),
                      {"pattern", "query",
                       "As in a shell, for the name alone; everything unless given.", false,
                       "*.txt"}},
       .answers = {{"200", "What has been found.", as_json, "ExecdFileList"}}});
  add(verb::post, "/files/replace", some, replace,
      {.id = "replaceInExecdFiles",
       .summary = "Replace a text in files, wherever it stands in them.",
       .parameters = {{"verbose", "query", "true: how often it stood there is told.", false}},
       .body_type = as_json,
       .body_schema = "ExecdReplacements",
       .answers = {
         {"200", "Done. The body is empty unless verbose is true.", as_json, "ExecdReplaced"}}});
  add(verb::get, "/files/download", none, fetch,
      {.id = "downloadExecdFile",
       .summary = "Read a file, all of it, a range of bytes, or some of its lines.",
       .parameters =
         {one_path("The file."),
          {"offset",
           "query",
           "The first line, from 1 on.",
           false,
           {},
           R"({"type":"integer","minimum":1})"},
          {"limit", "query", "How many lines.", false, {}, R"({"type":"integer","minimum":1})"},
          {"Range", "header", "bytes=a-b, bytes=a- or bytes=-n."},
          {"If-Range", "header",
           "Range counts only if this is the file's Last-Modified, and more than a second ago."}},
       .answers = {{"200", "The file, or its lines as text.", "application/octet-stream"},
                   {"206", "The range.", "application/octet-stream"},
                   {"416", "The range is outside of the file.", as_json, "OpenSandboxError"}}});
  table.push_back(execd_sink_route(
    verb::post, prefix + "/files/upload", target, most_uploaded, make_file_upload,
    {.id = "uploadExecdFiles",
     .summary = "Write files. For each a part `metadata`, which is JSON with path, mode, owner and "
                "group, and a part `file`; both have a file name.",
     .body_type = "multipart/form-data",
     .body_schema = "ExecdUpload",
     .answers = {done_answer, bad_answer},
     .tag = tag}));
  add(verb::post, "/directories", some, with_body(file_task::make_directories, read_permissions),
      {.id = "makeExecdDirectories",
       .summary = "Make directories, with those above them.",
       .body_type = as_json,
       .body_schema = "ExecdPermissions",
       .answers = {done_answer}});
  add(verb::del, "/directories", none, with_paths(file_task::remove_trees, done, ""),
      {.id = "deleteExecdDirectories",
       .summary = "Delete directories with all that is in them.",
       .parameters = {paths},
       .answers = {done_answer}});
  add(verb::get, "/directories/list", none, list,
      {.id = "listExecdDirectory",
       .summary = "What is in a directory, as deep as told.",
       .parameters =
         {one_path("The directory."),
          {"depth", "query", "1 unless given.", false, {}, R"({"type":"integer","minimum":0})"}},
       .answers = {{"200", "What is there.", as_json, "ExecdFileList"}}});
}

} // namespace insula::http::opensandbox
