#pragma once

#include "http/sandboxes/short_command.hpp"
#include "http/vercel/failures.hpp"
#include "http/vercel/session_call.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <vector>

/// Files are made by the image's own programs, as the user of the sandbox.
namespace insula::http::vercel {

/// For the sandbox to do something with a file.
constexpr std::chrono::seconds file_patience{120};

refusal file_error(std::string message);

/// A program that ends a little before file_patience is over.
exec_request file_command(const session_call& call, std::vector<std::string> argv,
                          const request_context& context);

/// `{}`, or what the program has said last; or that the session, with which it ended, is over. On
/// any thread.
void answer_to_files(const session_call& call, const result<short_outcome>& outcome,
                     std::function<void(response)> then);

} // namespace insula::http::vercel
