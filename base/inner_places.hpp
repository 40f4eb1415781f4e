#pragma once

#include <string_view>

/// What every sandbox has, whatever its image, beside its network.
namespace insula {

/// What says which machine this is. The spawner makes it; /etc/machine-id of the image leads here.
inline constexpr const char* inner_machine_id = "/dev/machine-id";

/// .profile of a home that has none. Programs that are installed without root are found by login
/// shells as well, whose /etc/profile begins a path of its own.
inline constexpr std::string_view inner_profile =
  "# Programs that are installed without root.\n"
  "PATH=\"$HOME/.local/bin:$HOME/.cargo/bin:$HOME/go/bin:$PATH\"\n";

/// The authorities that programs believe, as PEM: where Debian has them.
inline constexpr const char* trust_bundle = "/etc/ssl/certs/ca-certificates.crt";

/// A file of /etc/sudoers.d, for a sudo of a package's: each user becomes any other without a
/// password, as by Insula's own.
inline constexpr std::string_view inner_sudo_rule =
  "Defaults !use_pty,!env_reset,!secure_path,lecture=never\n"
  "ALL ALL=(ALL:ALL) NOPASSWD: SETENV: ALL\n";

} // namespace insula
