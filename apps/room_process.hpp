#pragma once

namespace insula {

/// The other end of an image_room, which has started this program under
/// image_room::program_name: keeps the rights of an importer, and serves until the server's end of
/// the way is closed. Gives back the status of a process that was started otherwise.
int run_image_room();

} // namespace insula
