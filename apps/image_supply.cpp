#include "apps/image_supply.hpp"

#include "apps/find_images.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "storage/images/image_record.hpp"
#include "storage/registry/allow.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace insula {

namespace {

using namespace std::chrono_literals;
namespace registry = storage::registry;

constexpr std::size_t most_at_once = 2;       ///< As the room takes.
constexpr auto refused_for = 30s;             ///< What a registry says it has not, or not for us.
constexpr auto failed_for = 5s;               ///< All else.
constexpr std::size_t most_remembered = 1024; ///< Of failures.
constexpr std::int64_t used_step_ms = 60'000; ///< Uses are noted as often as that.
constexpr auto collection_pause = 10min;
constexpr auto first_collection = 1min;

std::int64_t unix_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
           std::chrono::system_clock::now().time_since_epoch())
    .count();
}

error not_here(const std::string& text) {
  return {errc::image_refused, "there is no image " + text + " on this node"};
}

/// What a client is told of a pull that has failed.
error told(const std::string& reference, const error& why) {
  switch (why.code) {
    case errc::disk_full:
    case errc::image_pending:
    case errc::forbidden: return why;
    case errc::limit_reached: return {errc::image_pending, why.message};
    default: break;
  }
  const auto& text = why.message;
  return {errc::image_refused, text.find(reference) != std::string::npos
                                 ? text
                                 : "the image " + reference + ": " + text};
}

/// Will it be the same in a moment?
bool is_final(const error& why) {
  return why.code != errc::io_failed && why.code != errc::limit_reached &&
         why.code != errc::disk_full && why.code != errc::deadline_exceeded;
}

error pending(const std::string& reference, std::uint64_t bytes, std::uint64_t total) {
  auto text = "the image " + reference + " is being fetched";
  if (total > 0)
    text += " (" + std::to_string(std::min<std::uint64_t>(99, bytes * 100 / total)) + " %)";
  return {errc::image_pending, text + "; ask again"};
}

} // namespace

image_supply::image_supply(image_room room, std::shared_ptr<actors::image_catalogue> all,
                           settings how)
    : room_(std::move(room))
    , all_(std::move(all))
    , how_(std::move(how))
    , woken_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
    , next_collection_(clock::now() +
                       std::min<clock::duration>(first_collection, how_.policy.keep_unused)) {
  for (const auto& [name, image] : all_->list())
    found_.insert(name);
  hears_ = std::thread{[this] {
    sigset_t every;
    ::sigfillset(&every);
    ::pthread_sigmask(SIG_BLOCK, &every, nullptr);
    hear();
  }};
}

image_supply::~image_supply() {
  {
    const std::lock_guard hold{guard_};
    ends_ = true;
  }
  wake();
  hears_.join();
}

void image_supply::wake() const {
  ::eventfd_write(woken_.get(), 1);
}

// ---- What is asked

/// None: it has to be fetched.
std::optional<result<std::string>>
image_supply::known(const actors::image_wish& wanted,
                    std::optional<registry::image_reference>& image, bool asked_for) const {
  const auto& policy = how_.policy;
  const bool fetches = policy.pull != image_pull::never;
  const auto& text = image_of(wanted.text);
  if (!asked_for && all_->find(text))
    return text;
  if (auto parsed = registry::parse_reference(text))
    image = std::move(*parsed);
  const auto reference = image ? image->str() : std::string{};
  // A node that fetches nothing takes names for what they seem; another one does not give what is
  // from elsewhere.
  for (const auto& name : wanted.names)
    if (const auto is = all_->find(name);
        is && (!fetches || is->reference.empty() || is->reference == reference))
      return name;
  if (!image)
    return not_here(text);
  const bool looks_again = asked_for || policy.pull == image_pull::always;
  if (!image->digest.empty()) {
    if (auto [name, is] = all_->find_digest(image->digest); is)
      return name;
  } else if (!looks_again) {
    if (const auto at = names_.find(reference); at != names_.end() && all_->find(at->second))
      return at->second;
    if (auto [name, is] = all_->find_reference(reference); is)
      return name;
  }
  if (!asked_for && !fetches)
    return not_here(text);
  if (!registry::allows(policy.allow, *image))
    return error{errc::forbidden,
                 "this node does not fetch the image " + reference + " (images.allow)"};
  if (room_gone_)
    return error{errc::image_refused, "the process that fetches images has ended; the server needs "
                                      "a restart"};
  if (const auto at = failures_.find(reference);
      at != failures_.end() && at->second.until > clock::now())
    return told(reference, at->second.why);
  return std::nullopt;
}

void image_supply::find(const actors::image_wish& wanted, found_function then) {
  std::optional<result<std::string>> answer;
  {
    const std::lock_guard hold{guard_};
    std::optional<registry::image_reference> image;
    answer = known(wanted, image, false);
    if (!answer) {
      const auto at = pulls_.find(image->str());
      if ((at == pulls_.end() && turns_.size() >= limits::images_waiting) ||
          (at != pulls_.end() && at->second.waiters.size() >= limits::waiting_per_image))
        answer = error{errc::image_pending, "too many images are being fetched; ask again"};
      else
        join(*image, {clock::now() + limits::image_patience, then});
    }
  }
  if (answer)
    then(*answer);
  else
    wake();
}

void image_supply::pull(const std::string& reference, answer then) {
  std::optional<result<std::string>> now;
  {
    const std::lock_guard hold{guard_};
    std::optional<registry::image_reference> image;
    now = known({reference}, image, true);
    if (!now && !pulls_.contains(image->str()) && turns_.size() >= limits::images_waiting)
      now = error{errc::image_pending, "too many images are being fetched; ask again"};
    if (!now)
      join(*image, {std::nullopt, then});
  }
  if (now)
    then(*now);
  else
    wake();
}

void image_supply::join(const registry::image_reference& image, waiter who) {
  const auto reference = image.str();
  auto [at, is_new] = pulls_.try_emplace(reference);
  at->second.waiters.push_back(std::move(who));
  if (!is_new)
    return;
  const auto& insecure = how_.policy.insecure;
  at->second.insecure = std::find(insecure.begin(), insecure.end(), image.host) != insecure.end();
  turns_.push_back(reference);
}

void image_supply::used(const std::string& name) {
  const auto now = unix_ms();
  {
    const std::lock_guard hold{guard_};
    auto& last = used_[name];
    if (now - last < used_step_ms)
      return;
    last = now;
  }
  room_.send({room_task::used}, name);
}

std::vector<http::node_image> image_supply::list() const {
  std::vector<http::node_image> all;
  const std::lock_guard hold{guard_};
  for (const auto& [name, is] : all_->list()) {
    const auto at = used_.find(name);
    all.push_back({name, is->reference, is->digest, is->base, is->size_bytes, is->created_ms,
                   at == used_.end() ? is->used_ms : at->second, name == how_.default_name,
                   is->programs});
  }
  return all;
}

/// The same text, if it is the name of none, or of an image.
const std::string& image_supply::image_of(const std::string& runtime) const {
  const auto at = how_.runtimes.find(runtime);
  if (at == how_.runtimes.end() || (at->second.empty() && all_->find(runtime)))
    return runtime;
  return at->second.empty() ? how_.default_name : at->second;
}

std::vector<http::node_runtime> image_supply::runtimes() const {
  std::vector<http::node_runtime> all;
  for (const auto& [name, image] : how_.runtimes) {
    http::node_runtime is{name, image_of(name), {}};
    const auto program = name.substr(0, name.find_first_of("0123456789"));
    if (const auto here = all_->find(is.image))
      if (const auto at = here->programs.find(program); at != here->programs.end())
        is.version = at->second;
    all.push_back(std::move(is));
  }
  return all;
}

std::vector<http::image_on_its_way> image_supply::on_their_way() const {
  std::vector<http::image_on_its_way> all;
  const std::lock_guard hold{guard_};
  for (const auto& [reference, is] : pulls_)
    all.push_back({reference, is.bytes, is.total_bytes});
  return all;
}

void image_supply::remove(const std::string& name, answer then) {
  {
    const std::lock_guard hold{guard_};
    if (wanted_removals_.size() < limits::images_waiting) {
      wanted_removals_.emplace_back(name, std::move(then));
      then = nullptr;
    }
  }
  if (then)
    then(error{errc::limit_reached, "too many images are being removed"});
  wake();
}

image_supply::figures image_supply::read_figures() const {
  const std::lock_guard hold{guard_};
  auto now = counts_;
  now.on_their_way = pulls_.size();
  for (const auto& [name, is] : all_->list()) {
    ++now.images;
    now.image_bytes += is->size_bytes;
  }
  return now;
}

// ---- The thread that hears the room

void image_supply::hear() {
  while (true) {
    calls then;
    int patience_ms = -1;
    {
      const std::lock_guard hold{guard_};
      if (ends_) {
        refuse_all(then);
      } else {
        begin_pulls(then);
        refuse_impatient(then);
        if (const auto next = next_deadline()) {
          const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - clock::now());
          patience_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
        }
      }
    }
    for (const auto& each : then)
      each();
    begin_removals();
    if (ends_)
      return;
    if (clock::now() >= next_collection_)
      collect();
    std::array<pollfd, 2> heard{
      {{woken_.get(), POLLIN, 0}, {room_gone_ ? -1 : room_.way(), POLLIN, 0}}};
    ::poll(heard.data(), heard.size(), patience_ms);
    std::uint64_t ignored = 0;
    ::eventfd_read(woken_.get(), &ignored);
    if (heard[1].revents == 0)
      continue;
    const auto packet = room_.receive();
    then.clear();
    {
      const std::lock_guard hold{guard_};
      if (packet) {
        take(*packet, then);
      } else {
        room_gone_ = true;
        refuse_all(then);
      }
    }
    if (!packet)
      log::error("images.room_gone",
                 {{"consequence", "no image is fetched until the server is started again"}});
    for (const auto& each : then)
      each();
  }
}

std::optional<image_supply::clock::time_point> image_supply::next_deadline() const {
  auto next = how_.policy.keep_unused > 0ms ? std::optional{next_collection_} : std::nullopt;
  for (const auto& [reference, pull] : pulls_)
    for (const auto& each : pull.waiters)
      if (each.until && (!next || *each.until < *next))
        next = each.until;
  return next;
}

void image_supply::begin_pulls(calls& then) {
  auto running = static_cast<std::size_t>(
    std::count_if(pulls_.begin(), pulls_.end(), [](auto& each) { return each.second.number > 0; }));
  while (running < most_at_once && !turns_.empty()) {
    const auto reference = std::move(turns_.front());
    turns_.pop_front();
    auto& pull = pulls_.at(reference);
    pull.number = ++last_number_;
    ++running;
    log::info("image.pulling", {{"image", reference}});
    if (!room_.send({room_task::pull, pull.insecure, pull.number, how_.policy.max_bytes},
                    reference))
      finish(pull.number, error{errc::io_failed, "the process that fetches images has ended"},
             then);
  }
}

void image_supply::refuse_impatient(calls& then) {
  const auto now = clock::now();
  for (auto& [reference, pull] : pulls_)
    pull.waiters.remove_if([&, &reference = reference, &pull = pull](waiter& each) {
      if (!each.until || *each.until > now)
        return false;
      then.push_back([to = std::move(each.then),
                      why = pending(reference, pull.bytes, pull.total_bytes)] { to(why); });
      return true;
    });
}

void image_supply::refuse_all(calls& then) {
  const error why{errc::image_refused, "the server ends, or can fetch no more images"};
  for (auto& [reference, pull] : pulls_)
    for (auto& each : pull.waiters)
      then.push_back([to = std::move(each.then), why] { to(why); });
  pulls_.clear();
  turns_.clear();
  for (auto& [number, to] : removals_)
    then.push_back([to = std::move(to), why] { to(error{errc::io_failed, why.message}); });
  removals_.clear();
}

void image_supply::take(const room_packet& packet, calls& then) {
  const auto& head = packet.head;
  switch (head.kind) {
    case room_news::image: return take_image(packet);
    case room_news::gone:
      if (head.ours != 0 || !found_.contains(packet.text)) {
        all_->remove(packet.text);
        used_.erase(packet.text);
      }
      return;
    case room_news::progress:
      for (auto& [reference, pull] : pulls_)
        if (pull.number == head.number) {
          pull.bytes = head.bytes;
          pull.total_bytes = head.total_bytes;
        }
      return;
    case room_news::done: return finish(head.number, packet.text, then);
    case room_news::failed:
      return finish(head.number, error{static_cast<errc>(head.code), packet.text}, then);
  }
}

void image_supply::take_image(const room_packet& packet) {
  const auto told = read_told_image(packet.text);
  auto record = told ? storage::images::read_image_record(told->record)
                     : result<storage::images::image_record>{error{errc::io_failed, "too short"}};
  if (!record)
    return log::error("images.unreadable", {{"reason", record.reason().message}});
  const auto before = all_->find(record->name);
  if (before && (before->layers.tree == told->tree ||
                 (packet.head.ours == 0 && found_.contains(record->name))))
    return;
  auto made = image_from(*record, told->tree, told->bundle, how_.env);
  made.programs = told->programs;
  all_->put(record->name, std::move(made));
  log::info(
    "image.here",
    {{"image", record->name}, {"reference", record->reference}, {"digest", record->digest}});
}

void image_supply::finish(std::uint64_t number, const result<std::string>& how, calls& then) {
  if (auto removal = removals_.extract(number)) {
    counts_.removed += how ? 1 : 0;
    then.push_back([to = std::move(removal.mapped()), how] { to(how); });
    return;
  }
  const auto at = std::find_if(pulls_.begin(), pulls_.end(),
                               [&](auto& each) { return each.second.number == number; });
  if (at == pulls_.end())
    return;
  auto [reference, pull] = std::move(*at);
  pulls_.erase(at);
  if (how) {
    ++counts_.pulled;
    counts_.bytes += pull.total_bytes;
    names_[reference] = *how;
    failures_.erase(reference);
  } else {
    ++counts_.failed;
    log::warning("image.not_pulled", {{"image", reference}, {"reason", how.reason().message}});
    std::erase_if(failures_, [](auto& each) { return each.second.until <= clock::now(); });
    if (failures_.size() < most_remembered)
      failures_.insert_or_assign(
        reference,
        failure{how.reason(), clock::now() + (is_final(how.reason()) ? refused_for : failed_for)});
  }
  const auto said = how ? how : result<std::string>{told(reference, how.reason())};
  for (auto& each : pull.waiters)
    then.push_back([to = std::move(each.then), said] { to(said); });
}

// ---- Images that go

/// None: nobody needs it.
std::optional<error> image_supply::objection_to_removal(const std::string& name) const {
  const auto is = all_->find(name);
  if (!is)
    return error{errc::not_found, "there is no image " + name + " on this node"};
  if (how_.pinned.contains(name))
    return error{errc::limit_reached, "the configuration names the image " + name};
  constexpr long mine = 2; // The catalogue's, and this one.
  if (is.use_count() > mine)
    return error{errc::limit_reached, "sandboxes run from the image " + name};
  if (!how_.users)
    return std::nullopt;
  const auto users = how_.users(name);
  if (!users)
    return users.reason();
  if (!users->empty())
    return error{errc::limit_reached, "the sandbox " + users->front() + " starts from the image " +
                                        name + "; delete it first"};
  return std::nullopt;
}

void image_supply::begin_removals() {
  while (true) {
    std::pair<std::string, answer> next;
    {
      const std::lock_guard hold{guard_};
      if (wanted_removals_.empty())
        return;
      next = std::move(wanted_removals_.front());
      wanted_removals_.pop_front();
    }
    if (const auto why = room_gone_ || ends_
                           ? std::optional{error{errc::io_failed, "the server ends, or can remove "
                                                                  "no image any more"}}
                           : objection_to_removal(next.first)) {
      next.second(*why);
      continue;
    }
    std::uint64_t number = 0;
    {
      const std::lock_guard hold{guard_};
      number = ++last_number_;
      removals_[number] = std::move(next.second);
    }
    room_.send({room_task::remove, 0, number}, next.first);
  }
}

/// What the node has fetched, and nobody has used for long.
void image_supply::collect() {
  next_collection_ =
    clock::now() + std::clamp<clock::duration>(how_.policy.keep_unused, 1s, collection_pause);
  if (how_.policy.keep_unused <= 0ms || !how_.users)
    return;
  const auto oldest = unix_ms() - how_.policy.keep_unused.count();
  for (const auto& each : list())
    if (!each.reference.empty() && std::max(each.used_ms, each.created_ms) < oldest &&
        !objection_to_removal(each.name)) {
      log::info("image.unused", {{"image", each.name}, {"reference", each.reference}});
      remove(each.name, [](const result<std::string>&) {});
    }
  begin_removals();
  sweep();
}

/// Trees without a name, on which no sandbox stands any more.
void image_supply::sweep() {
  if (!how_.may_sweep)
    return;
  std::string needed;
  for (const auto& each : all_->trees())
    needed += each + '\0';
  room_.send({room_task::sweep}, needed);
}

} // namespace insula
