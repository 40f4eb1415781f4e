#include "apps/room_process.hpp"

#include "apps/find_login.hpp"
#include "apps/image_room.hpp"
#include "apps/pull_image.hpp"
#include "apps/room_protocol.hpp"
#include "apps/room_settings.hpp"
#include "base/log.hpp"
#include "storage/images/image_store.hpp"
#include "storage/images/programs.hpp"
#include "storage/registry/allow.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <linux/capability.h>
#include <list>
#include <map>
#include <poll.h>
#include <set>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace insula {

namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;
namespace fs = std::filesystem;
namespace images = storage::images;
namespace registry = storage::registry;
using room_protocol::longest_text;
using room_protocol::receive_packet;
using room_protocol::send_packet;

constexpr std::size_t most_at_once = 2; ///< Pulls.
constexpr auto import_patience = 30min; ///< For an import of somebody else.
constexpr auto quiet = 50ms;            ///< A change of the directory comes in several steps.

/// What an importer needs, and a process that starts one with less. A program that was started by
/// root has all of root's, so this comes after it.
bool keep_only_rights() {
  constexpr std::array kept{
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER,     CAP_FSETID, CAP_SETFCAP,
    CAP_SETGID, CAP_SETUID,       CAP_SETPCAP,         CAP_SYS_CHROOT, CAP_KILL};
  for (int each = 0; ::prctl(PR_CAPBSET_READ, each, 0, 0, 0) >= 0; ++each)
    if (std::find(kept.begin(), kept.end(), each) == kept.end() &&
        ::prctl(PR_CAPBSET_DROP, each, 0, 0, 0) != 0)
      return false;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> rights{};
  for (const int each : kept)
    rights[CAP_TO_INDEX(each)].permitted |= CAP_TO_MASK(each);
  for (auto& each : rights)
    each.effective = each.permitted;
  // Nothing is written down of its memory either, which has logins during a pull.
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_capset, &header, rights.data()) == 0 &&
         ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}

// ---- A pull: a process of its own

[[noreturn]] void run_pull(const image_room::settings& how, pull_order order, int way,
                           pid_t parent) {
  ::prctl(PR_SET_NAME, "insula-pull");
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  const auto fail = [way](const error& why) {
    send_packet(way, room_head{room_news::failed, static_cast<std::uint32_t>(why.code)},
                std::string_view{why.message}.substr(0, longest_text / 2));
    ::_exit(0);
  };
  if (::getppid() != parent)
    ::_exit(0);
  if (const auto& file = how.policy.auth_file; !file.empty()) {
    auto found = find_login({{"REGISTRY_AUTH_FILE", file}}, order.image);
    if (!found)
      fail(found.reason());
    order.client.who = std::move(found->who);
    order.client.helper = std::move(found->helper);
  }
  auto next = clock::now();
  // While the image is unpacked, all of it has come.
  const auto tell = [&](std::uint64_t bytes, std::uint64_t total) {
    if (clock::now() < next)
      return;
    next = clock::now() + 100ms;
    send_packet(way, room_head{room_news::progress, 0, 0, bytes, total}, {});
  };
  const auto made =
    pull_image(how.state_directory, order,
               {[&](const registry::pull_progress& now) { tell(now.bytes, now.total_bytes); },
                [&](const images::import_progress& now) { tell(now.total_bytes, now.total_bytes); },
                [] { return false; }}); // It is killed.
  if (!made)
    fail(made.reason());
  send_packet(way, room_head{room_news::done}, made->record.name);
  ::_exit(0);
}

// ---- The room

class room {
public:
  room(int way, const image_room::settings& how)
      : way_(way)
      , how_(how)
      , store_(how.state_directory)
      , directory_(how.state_directory + "/images") {}

  /// Until the server ends.
  void serve();

private:
  struct pull {
    std::uint64_t number;
    pid_t process;
    unique_fd way;
  };

  bool take_order();
  void begin_pull(const room_order& order, const std::string& reference);
  void hear(pull& of);
  void look_again(const std::string& ours = {});
  bool tell_image(const images::image_record& record);
  void answer(std::uint64_t number, const result<std::string>& how) const;
  result<std::string> remove(const std::string& name);

  const int way_;
  const image_room::settings& how_;
  images::image_store store_;
  const std::string directory_;
  std::map<std::string, std::string> known_; ///< The tree of each name, as the server knows it.
  std::list<pull> pulls_;
};

void room::serve() {
  const unique_fd changes{::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
  if (!changes || ::inotify_add_watch(changes.get(), directory_.c_str(),
                                      IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO) < 0)
    log::warning("images.not_watched",
                 {{"reason", std::strerror(errno)},
                  {"consequence", "images that others bring are found at the next start"}});
  look_again();
  std::optional<clock::time_point> changed;
  while (true) {
    std::vector<pollfd> all{{way_, POLLIN, 0}, {changes.get(), POLLIN, 0}};
    for (const auto& each : pulls_)
      all.push_back({each.way.get(), POLLIN, 0});
    ::poll(all.data(), all.size(), changed ? static_cast<int>(quiet.count()) : -1);
    if (all[1].revents != 0) {
      std::array<char, 4096> read;
      while (::read(changes.get(), read.data(), read.size()) > 0) {
      }
      changed = clock::now();
    }
    if (changed && clock::now() - *changed >= quiet) {
      changed.reset();
      look_again();
    }
    auto at = all.begin() + 2;
    for (auto each = pulls_.begin(); at != all.end(); ++at) {
      const auto next = std::next(each);
      if (at->revents != 0)
        hear(*each);
      each = next;
    }
    if (all[0].revents != 0 && !take_order())
      return;
  }
}

/// False: the server has ended, or says what no server says.
bool room::take_order() {
  auto got = receive_packet<room_order>(way_);
  if (!got)
    return false;
  const auto& [order, text] = *got;
  switch (order.task) {
    case room_task::pull: begin_pull(order, text); return true;
    case room_task::remove: answer(order.number, remove(text)); return true;
    case room_task::sweep: {
      std::set<std::string> needed;
      for (std::string_view left = text; !left.empty();) {
        const auto tree = left.substr(0, left.find('\0'));
        left.remove_prefix(std::min(left.size(), tree.size() + 1));
        needed.insert(directory_ + "/" + std::string{tree} + "/root");
      }
      store_.sweep(std::move(needed));
      return true;
    }
    case room_task::used: store_.mark_used(text); return true;
  }
  return false;
}

void room::answer(std::uint64_t number, const result<std::string>& how) const {
  if (how)
    send_packet(way_, room_head{room_news::done, 0, number}, *how);
  else
    send_packet(way_,
                room_head{room_news::failed, static_cast<std::uint32_t>(how.reason().code), number},
                how.reason().message);
}

void room::begin_pull(const room_order& order, const std::string& reference) {
  const auto image = registry::parse_reference(reference);
  if (!image)
    return answer(order.number, image.reason());
  if (pulls_.size() >= most_at_once)
    return answer(order.number, error{errc::limit_reached, "too many images are being fetched"});
  const auto& policy = how_.policy;
  if (!registry::allows(policy.allow, *image))
    return answer(order.number, error{errc::forbidden, "images.allow does not name " + reference});
  pull_order wanted{*image};
  wanted.client.insecure =
    std::find(policy.insecure.begin(), policy.insecure.end(), image->host) != policy.insecure.end();
  wanted.by_node = true;
  wanted.max_bytes = policy.max_bytes;
  wanted.patience = import_patience;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return answer(order.number, error{errc::io_failed, std::strerror(errno)});
  unique_fd ours{ends[0]};
  const unique_fd theirs{ends[1]};
  const auto parent = ::getpid();
  const auto process = ::fork();
  if (process < 0)
    return answer(order.number, error{errc::io_failed, std::strerror(errno)});
  if (process == 0) {
    ::close(way_);
    pulls_.clear();
    ours.reset();
    run_pull(how_, std::move(wanted), theirs.get(), parent);
  }
  pulls_.push_back({order.number, process, std::move(ours)});
}

void room::hear(pull& of) {
  auto got = receive_packet<room_head>(of.way.get());
  if (got && got->first.kind == room_news::progress) {
    got->first.number = of.number;
    send_packet(way_, got->first, {});
    return;
  }
  while (::waitpid(of.process, nullptr, 0) < 0 && errno == EINTR) {
  }
  const auto mine =
    std::find_if(pulls_.begin(), pulls_.end(), [&](const pull& each) { return &each == &of; });
  const auto number = of.number;
  pulls_.erase(mine);
  if (!got)
    return answer(number, error{errc::io_failed, "the process that unpacks the image has ended"});
  if (got->first.kind == room_news::failed)
    return answer(number, error{static_cast<errc>(got->first.code), got->second});
  look_again();
  if (known_.contains(got->second))
    answer(number, got->second);
  else
    answer(number, error{errc::io_failed, "the image " + got->second + " cannot be read"});
}

/// False: no sandbox can start from it.
bool room::tell_image(const images::image_record& record) {
  const auto place = fs::path{record.root}.parent_path();
  auto bundle = images::trust(place.string(), how_.trusted);
  if (!bundle) {
    log::warning("image.authorities",
                 {{"image", record.name}, {"reason", bundle.reason().message}});
    bundle = std::string{};
  }
  const unique_fd root{::open(record.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  auto text = images::to_json(record) + '\0' + place.filename().string() + '\0' + *bundle + '\0';
  for (const auto& [program, version] : images::programs_of(root.get()))
    text += program + ' ' + version + '\n';
  if (text.size() > longest_text) {
    log::warning("image.left_out",
                 {{"image", record.name}, {"reason", "its settings have more than 64 KiB"}});
    return false;
  }
  send_packet(way_, room_head{room_news::image}, text);
  return true;
}

/// `ours`: the name that the server's own order has removed.
void room::look_again(const std::string& ours) {
  const auto all = store_.list();
  if (!all)
    return log::warning("images.not_read", {{"reason", all.reason().message}});
  std::map<std::string, std::string> now;
  for (const auto& each : *all) {
    if (each.name == "host")
      continue;
    const auto before = known_.find(each.name);
    if ((before != known_.end() && before->second == each.root) || tell_image(each))
      now[each.name] = each.root;
  }
  for (const auto& [name, root] : known_)
    if (!now.contains(name))
      send_packet(way_, room_head{room_news::gone, 0, 0, 0, 0, name == ours ? 1u : 0u}, name);
  known_ = std::move(now);
}

result<std::string> room::remove(const std::string& name) {
  if (!images::is_image_name(name) || name == "host")
    return error{errc::invalid_request, "the image " + name + " cannot be removed"};
  if (auto ok = store_.remove(name); !ok)
    return ok.reason();
  look_again(name);
  return name;
}

} // namespace

int run_image_room() {
  const auto complain = [](const std::string& why) {
    std::fprintf(stderr, "insula-images: %s\n", why.c_str());
    return 1;
  };
  ::prctl(PR_SET_NAME, image_room::program_name);
  const auto how = read_room_settings(room_protocol::settings_there);
  if (!how)
    return complain(how.reason().message + "; insula starts this itself");
  ::close(room_protocol::settings_there);
  constexpr int way = room_protocol::way_there;
  ::fcntl(way, F_SETFD, FD_CLOEXEC);
  log::set_level(how->least);
  if (!keep_only_rights())
    return complain(std::string{"giving up rights: "} + std::strerror(errno));
  room{way, *how}.serve();
  ::_exit(0); // It has made nothing that would have to be taken down.
}

} // namespace insula
