#include "runtime/spawner/request_check.hpp"

#include "runtime/gateway/protocol.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace insula::runtime::spawner {

namespace {

template <std::size_t Size>
bool terminated(const char (&text)[Size]) {
  return std::memchr(text, '\0', Size) != nullptr;
}

bool are_ceilings(const limits& wanted) {
  return std::max({wanted.memory_bytes, wanted.disk_bytes, wanted.shm_bytes}) <= max_bytes &&
         wanted.cpu_percent <= max_cpu_percent && wanted.processes <= max_processes &&
         wanted.open_files <= max_open_files;
}

bool is_mount_path(std::string_view path) {
  if (path.size() < 2 || path.size() > max_mount_path || path.front() != '/')
    return false;
  while (!path.empty()) {
    path.remove_prefix(1);
    const auto name = path.substr(0, path.find('/'));
    if (name.empty() || name == "." || name == "..")
      return false;
    path.remove_prefix(name.size());
  }
  return true;
}

bool is_type(std::string_view type) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789_-";
  constexpr std::size_t longest = 32;
  return !type.empty() && type.size() <= longest &&
         type.find_first_not_of(letters) == std::string_view::npos;
}

} // namespace

std::optional<read_packet> read_request(std::string_view packet) {
  read_packet read{};
  auto& wanted = read.wanted;
  if (packet.size() < sizeof wanted || packet.size() - sizeof wanted > max_text)
    return std::nullopt;
  std::memcpy(&wanted, packet.data(), sizeof wanted);
  if (!terminated(wanted.host_name) || !terminated(wanted.tag) || !terminated(wanted.tree) ||
      !terminated(wanted.snapshot) || wanted.slot >= max_slots)
    return std::nullopt;
  read.text = packet.substr(sizeof wanted);
  return read;
}

int check(const request& wanted, std::string_view text, std::size_t fds) {
  const auto valid = [](bool good) { return good ? 0 : EINVAL; };
  if (wanted.what == op::hold)
    return valid(fds <= max_held_fds && text.size() <= max_label);
  if (fds != 0)
    return EINVAL;
  switch (wanted.what) {
    case op::create:
      if (!is_tree_name(wanted.tree))
        return EPERM;
      return valid((wanted.flags & ~create_flags) == 0 && are_ceilings(wanted.ceilings) &&
                   (*wanted.snapshot == '\0' || is_snapshot_name(wanted.snapshot)));
    case op::claim: return valid(are_ceilings(wanted.ceilings));
    case op::charge_logs: return valid(wanted.name <= max_bytes);
    case op::open_sockets: return valid(wanted.count >= 1 && wanted.count <= max_fds);
    case op::mount: {
      constexpr auto known =
        mount_read_only | mount_over_files | mount_keeps_directory | mount_is_listed;
      return valid((wanted.flags & ~known) == 0 && wanted.owner < uids_per_slot &&
                   wanted.count <= max_cache_mib && read_mount(text).has_value());
    }
    case op::attach_drive:
      return valid((wanted.flags & ~mount_read_only) == 0 && wanted.owner < uids_per_slot &&
                   wanted.count < max_slots &&
                   (*wanted.snapshot == '\0' || is_snapshot_name(wanted.snapshot)) &&
                   read_drive_path(text).has_value());
    case op::flush_disk:
    case op::take_snapshot:
    case op::show_snapshot:
    case op::drop_snapshot: return valid(is_snapshot_name(wanted.snapshot));
    case op::broker: return valid(wanted.count <= 1);
    case op::list_snapshots:
      return valid(*wanted.snapshot == '\0' || is_snapshot_name(wanted.snapshot));
    case op::hello:
    case op::destroy:
    case op::hold:
    case op::release:
    case op::shut_down:
    case op::unmount:
    case op::permit:
    case op::adopt: return 0;
  }
  return EINVAL;
}

bool is_snapshot_name(std::string_view name) {
  return !name.empty() && name.size() <= max_snapshot_name &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
}

bool is_tree_name(std::string_view name) {
  constexpr std::string_view prefix = ".tree-", digits = "0123456789";
  constexpr std::size_t longest_stamp = 20;
  if (name == "host")
    return true;
  if (!name.starts_with(prefix))
    return false;
  name.remove_prefix(prefix.size());
  return !name.empty() && name.size() <= longest_stamp &&
         name.find_first_not_of(digits) == std::string_view::npos;
}

bool is_fuse_program(std::string_view name) {
  return name == "s3fs" || name == "rclone";
}

std::optional<std::string> read_drive_path(std::string_view text) {
  constexpr std::array own{std::string_view{"/proc"}, std::string_view{"/sys"},
                           std::string_view{"/dev"}};
  const bool is_own = std::any_of(own.begin(), own.end(), [text](auto each) {
    return text == each || text.starts_with(std::string{each} + '/');
  });
  return is_mount_path(text) && !is_own ? std::optional{std::string{text}} : std::nullopt;
}

std::optional<mount_words> read_mount(std::string_view text) {
  std::vector<std::string> words;
  for (auto end = text.find('\0'); end != std::string_view::npos; end = text.find('\0')) {
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  constexpr std::size_t before_argv = 5;
  if (words.size() <= before_argv || !is_mount_path(words[0]) || !is_type(words[2]) ||
      words[4].empty() || words[4].size() > gateway::max_reach ||
      !is_fuse_program(words[before_argv]))
    return std::nullopt;
  return mount_words{
    std::move(words[0]),
    std::move(words[1]),
    std::move(words[2]),
    std::move(words[3]),
    std::move(words[4]),
    {std::make_move_iterator(words.begin() + before_argv), std::make_move_iterator(words.end())}};
}

} // namespace insula::runtime::spawner
