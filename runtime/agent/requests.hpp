#pragma once

#include "runtime/agent/protocol.hpp"

namespace insula::runtime::agent {

/// The request that a packet of `bytes` begins with. Null: it is too short for one, or its text has
/// another length than it says. `packet` is aligned as a request is.
const request* request_in(const char* packet, std::size_t bytes);

/// What an exec request's text says. Pointers into that text and into the caller's `strings`.
struct command {
  char* cwd = nullptr;
  char** argv =
    nullptr; ///< Ends with a null pointer, as execve wants it, and has at least one before.
  char** env = nullptr; ///< The same, maybe with none.
};

/// Room for cwd, argv, null, env, null.
using string_list = char * [max_strings + 3];

/// Takes the text apart, in place. False: it does not hold as many strings as the request says, or
/// the request asks for none or for too many.
bool read_command(const request& req, char* text, string_list& strings, command& into);

/// The same for a file operation: its path, then what else it is told, then a null pointer.
bool read_words(const request& req, char* text, string_list& words);

} // namespace insula::runtime::agent
