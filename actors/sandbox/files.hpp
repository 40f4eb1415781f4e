#pragma once

#include "actors/sandbox/core.hpp"

namespace insula::actors::inside_sandbox {

/// Files of the running sandbox: each operation is a socket into it.
class files final : public part {
public:
  /// Makes the session of a name if it is not there.
  using find_session_function = std::function<result<void>(const std::string& id)>;

  files(core& of, find_session_function find_session)
      : part(of)
      , find_session_(std::move(find_session)) {}

  void read(const read_file_request& wanted, const reply<file_channel>& to);
  void write(const write_file_request& wanted, const reply<file_channel>& to);
  void read_tree(const read_tree_request& wanted, const reply<file_channel>& to);
  void write_tree(const write_tree_request& wanted, const reply<file_channel>& to);
  void run_task(const file_task_request& wanted, const reply<file_channel>& to);

private:
  /// Starts the operation in the sandbox, as the user.
  using open_function =
    std::function<result<unique_fd>(runtime::sandbox&, const runtime::sandbox_user&)>;
  void open(const request_context& context, const std::string& session, open_function open,
            const reply<file_channel>& to);
  void run_task_now(const file_task_request& wanted, const reply<file_channel>& to);

  const find_session_function find_session_;
};

} // namespace insula::actors::inside_sandbox
