#pragma once

#include "base/error.hpp"

#include <caf/error.hpp>

namespace insula {

/// An error as a message's answer, and back. What CAF itself reports becomes sandbox_not_running
/// (the actor has ended) or deadline_exceeded (a request's time ran out).
caf::error to_caf(const error& why);
error from_caf(const caf::error& why);

/// What a sandbox answers that is on its way to be deleted, and whether it is that.
inline const error being_deleted{errc::sandbox_not_running, "it is being deleted"};
bool is_being_deleted(const error& why);

/// Said by nobody: the one who was asked has ended without a word, as all do when the server goes.
bool is_silence(const caf::error& why);

/// The one who was asked had ended before, and has not seen the question.
bool came_too_late(const caf::error& why);

} // namespace insula
