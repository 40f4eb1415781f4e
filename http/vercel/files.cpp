#include "http/sandboxes/channel_reader.hpp"
#include "http/sandboxes/short_command.hpp"
#include "http/vercel/archive_upload.hpp"
#include "http/vercel/file_command.hpp"
#include "http/vercel/members.hpp"
#include "http/vercel/operations.hpp"
#include "http/vercel/session_call.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

namespace insula::http::vercel {

namespace {

struct asked_path {
  std::string path;
  bool recursive = false;
};

std::optional<refusal> read_path(const session_call& call, std::string_view body,
                                 asked_path& into) {
  json::document document;
  if (auto wrong = read_object(body, document))
    return wrong;
  std::string cwd;
  for (auto wrong : {read_text(document, "path", into.path), read_text(document, "cwd", cwd),
                     read_flag(document, "recursive", into.recursive)})
    if (wrong)
      return wrong;
  if (into.path.empty())
    return bad_request("path is required");
  into.path = resolved(into.path, cwd, call.directory());
  return std::nullopt;
}

void make_directory(const session_call& call, const std::string& body, const reply& to) {
  asked_path wanted;
  if (const auto wrong = read_path(call, body, wanted))
    return to->respond(failure(*wrong));
  std::vector<std::string> argv{"mkdir"};
  if (wanted.recursive)
    argv.emplace_back("-p");
  argv.emplace_back("--");
  argv.push_back(wanted.path);
  to->answer_within(file_patience, late_answer());
  run_short_command(*call.with, call.sandbox(), file_command(call, std::move(argv), to->context()),
                    [call, to](const result<short_outcome>& outcome) {
                      answer_to_files(call, outcome,
                                      [to](response told) { to->respond(std::move(told)); });
                    });
}

// ---- Reading

class download final : public channel_listener {
public:
  download(std::string path, reply to)
      : path_(std::move(path))
      , to_(std::move(to)) {}

  bool begin(const file_head& head) override {
    if (head.error == 0 && head.kind == file_kind::regular)
      return true;
    const bool missing = head.error == ENOENT || head.error == ENOTDIR;
    std::exchange(to_, {})->respond(
      missing ? failure(refusal{404, "not_found", "File not found: " + path_})
              : failure(file_error(path_ + ": " +
                                   (head.kind == file_kind::directory ? "Is a directory"
                                    : head.error != 0 ? std::generic_category().message(head.error)
                                                      : "not a regular file"))));
    return false;
  }

  void take(std::string bytes, bool last, std::function<void()> next) override {
    if (to_)
      stream_ = std::exchange(to_, {})->stream({"application/octet-stream"});
    if (!stream_)
      return;
    if (last)
      return stream_->finish(std::move(bytes));
    stream_->write(std::move(bytes), [next = std::move(next)](bool taken) {
      if (taken)
        next();
    });
  }

  /// Once something has been sent, dropping the stream cuts the connection.
  void cut(const error& why) override {
    if (to_)
      std::exchange(to_, {})->respond(failure(why));
    stream_.reset();
  }

private:
  const std::string path_;
  reply to_; ///< Until the answer has begun.
  std::shared_ptr<answer_stream> stream_;
};

void read(const session_call& call, const std::string& body, const reply& to) {
  asked_path wanted;
  if (const auto wrong = read_path(call, body, wanted))
    return to->respond(failure(*wrong));
  to->answer_within(file_patience, late_answer());
  read_file_request message{wanted.path};
  message.context = to->context();
  message.context.run = call.session.run;
  message.only_if_there = true;
  sandbox_question<read_file_request, file_channel> asked{
    call.with->directory, call.sandbox(), std::move(message),
    [to, path = wanted.path](const file_channel& channel) {
      read_channel(channel, to->strand(), std::make_shared<download>(path, to));
    },
    [to](question_stage, const error& why) { to->respond(failure(why)); }};
  asked.starts_it = false;
  ask_sandbox(*call.with, std::move(asked));
}

} // namespace

void add_file_routes(std::vector<route>& table, const shared_services& with,
                     const std::string& prefix) {
  table.push_back(session_route(
    with, prefix, verb::post, "/fs/mkdir", make_directory,
    listed_of_run("makeVercelDirectory", "Makes a directory.", "VercelNothing", "VercelPath")));
  auto reading =
    listed_of_run("readVercelFile", "The bytes of a file.", "VercelNothing", "VercelPath");
  reading.answers.front() = {"200", "Its bytes.", "application/octet-stream"};
  table.push_back(session_route(with, prefix, verb::post, "/fs/read", read, std::move(reading)));
  auto writing =
    listed_of_run("writeVercelFiles", "Unpacks an archive below a directory.", "VercelNothing",
                  "VercelNothing", {{"x-cwd", "header", "The directory, absolute; else /."}});
  writing.body_type = "application/gzip";
  writing.body_schema = {};
  writing.answers.push_back({"415", "The body is said to be something else than application/gzip.",
                             "application/json", "VercelError"});
  table.push_back(
    session_sink_route(with, prefix, "/fs/write", make_archive_upload, std::move(writing)));
}

} // namespace insula::http::vercel
