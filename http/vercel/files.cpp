#include "http/sandboxes/channel_reader.hpp"
#include "http/sandboxes/short_command.hpp"
#include "http/vercel/members.hpp"
#include "http/vercel/operations.hpp"
#include "http/vercel/session_call.hpp"
#include "http/vercel/set_up.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

namespace insula::http::vercel {

namespace {

constexpr std::chrono::seconds file_patience{120};
constexpr std::int64_t file_ms = 110'000;

refusal file_error(std::string message) {
  return {400, "file_error", std::move(message)};
}

struct asked_path {
  std::string path;
  bool recursive = false;
};

std::optional<refusal> read_path(std::string_view body, asked_path& into) {
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
  into.path = resolved(into.path, cwd);
  return std::nullopt;
}

exec_request command_of(const session_call& call, std::vector<std::string> argv, const reply& to) {
  exec_request command;
  command.argv = std::move(argv);
  command.timeout_ms = file_ms;
  command.rules = {true, true};
  command.only_if_there = true;
  command.env = {{"LC_ALL", "C.UTF-8"}};
  command.context = to->context();
  command.context.run = call.session.run;
  return command;
}

/// `{}`, or what the command has said.
void answer_with(const services& with, const session_call& call, exec_request command,
                 const reply& to) {
  to->answer_within(file_patience, late_answer());
  run_short_command(with, call.sandbox(), std::move(command),
                    [to](const result<short_outcome>& outcome) {
                      if (!outcome)
                        return to->respond(failure(outcome.reason()));
                      if (outcome->end.exit_code != 0)
                        return to->respond(failure(file_error(last_line(outcome->err))));
                      to->respond({200, "{}"});
                    });
}

void make_directory(const session_call& call, const std::string& body, const reply& to) {
  asked_path wanted;
  if (const auto wrong = read_path(body, wanted))
    return to->respond(failure(*wrong));
  std::vector<std::string> argv{"mkdir"};
  if (wanted.recursive)
    argv.emplace_back("-p");
  argv.emplace_back("--");
  argv.push_back(wanted.path);
  answer_with(*call.with, call, command_of(call, std::move(argv), to), to);
}

/// The archive is the command's descriptor 9. Its members belong to the user, with the permissions
/// that they have there.
void write(const session_call& call, const std::string& body, const reply& to) {
  const auto base = call.cwd.empty() ? std::string{"/"} : call.cwd;
  if (!base.starts_with('/') || base.find('\0') != std::string::npos)
    return to->respond(failure(bad_request("x-cwd must be an absolute path")));
  if (body.size() < 2 || body[0] != '\x1f' || body[1] != '\x8b')
    return to->respond(failure(bad_request("the body must be a gzip-compressed tar archive")));
  auto command =
    command_of(call,
               {"tar", "--extract", "--gzip", "--file=/proc/self/fd/9", "--directory=" + base,
                "--no-same-owner", "--preserve-permissions", "--overwrite", "--touch"},
               to);
  command.command_line = body;
  answer_with(*call.with, call, std::move(command), to);
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
  if (const auto wrong = read_path(body, wanted))
    return to->respond(failure(*wrong));
  to->answer_within(file_patience, late_answer());
  read_file_request message{wanted.path};
  message.context = to->context();
  message.context.run = call.session.run;
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
  table.push_back(session_route(with, prefix, verb::post, "/fs/write", write, std::move(writing)));
  table.back().body_limit = limits::archive_body_bytes;
}

} // namespace insula::http::vercel
