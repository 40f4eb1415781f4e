#include "actors/sandbox/files.hpp"

#include "actors/sandbox/commands.hpp"
#include "actors/sandbox/profile.hpp"

#include <filesystem>

namespace insula::actors::inside_sandbox {

namespace {

/// From `base` on, without empty segments, `.` and `..`, as text; a last /. stays.
std::string clean(const std::string& base, const std::string& path) {
  auto text = (std::filesystem::path{base} / path).lexically_normal().string();
  while (text.size() > 1 && text.ends_with('/'))
    text.pop_back();
  return path.ends_with("/.") ? text + "/." : text;
}

void give_channel(result<unique_fd> socket, core& of, const reply<file_channel>& to) {
  if (!socket)
    return to.fail(socket.reason());
  to.deliver(file_channel{std::make_shared<unique_fd>(std::move(*socket)), of.keep_awake()});
}

} // namespace

void files::open(const request_context& context, const std::string& session, open_function open,
                 const reply<file_channel>& to) {
  core_.when_running(to, context, [=, this, open = std::move(open)] {
    note("sandbox.file", core_, context);
    if (!session.empty())
      if (const auto made = find_session_(session); !made)
        return to.fail(made.reason());
    give_channel(open(*engine_sandbox(), user_of(core_)), core_, to);
  });
}

void files::read(const read_file_request& wanted, const reply<file_channel>& to) {
  const auto read = [=, this] {
    open(
      wanted.context, wanted.session,
      [path = wanted.path, part = wanted.part](runtime::sandbox& in,
                                               const runtime::sandbox_user& user) {
        return part ? in.open_file_task(file_task::read, {path, part->first, part->second}, user)
                    : in.open_file(runtime::file_operation::read, path, user);
      },
      to);
  };
  wanted.only_if_there ? core_.when_there(wanted.context, read, to.otherwise()) : read();
}

void files::write(const write_file_request& wanted, const reply<file_channel>& to) {
  open(
    wanted.context, wanted.session,
    [path = wanted.path](runtime::sandbox& in, const runtime::sandbox_user& user) {
      return in.open_file(runtime::file_operation::write, path, user);
    },
    to);
}

void files::read_tree(const read_tree_request& wanted, const reply<file_channel>& to) {
  open(
    wanted.context, {},
    [tree = runtime::tree_request{runtime::file_operation::read, wanted.path, wanted.excludes,
                                  false, wanted.compact}](
      runtime::sandbox& in, const runtime::sandbox_user& user) { return in.open_tree(tree, user); },
    to);
}

void files::write_tree(const write_tree_request& wanted, const reply<file_channel>& to) {
  open(
    wanted.context, {},
    [tree = runtime::tree_request{runtime::file_operation::write, wanted.path, {}}](
      runtime::sandbox& in, const runtime::sandbox_user& user) { return in.open_tree(tree, user); },
    to);
}

void files::run_task_now(const file_task_request& wanted, const reply<file_channel>& to) {
  note("sandbox.file_task", core_, wanted.context);
  auto words = wanted.words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!is_path(wanted.what, i))
      continue;
    auto whole = expanded(core_, words[i]);
    if (!whole)
      return to.fail(whole.reason());
    words[i] = clean(core_.profile().cwd, *whole);
  }
  give_channel(engine_sandbox()->open_file_task(wanted.what, words, user_of(core_)), core_, to);
}

void files::run_task(const file_task_request& wanted, const reply<file_channel>& to) {
  const auto run = [=, this] {
    core_.when_running(to, wanted.context, [=, this] { run_task_now(wanted, to); });
  };
  wanted.only_if_there ? core_.when_there(wanted.context, run, to.otherwise()) : run();
}

} // namespace insula::actors::inside_sandbox
