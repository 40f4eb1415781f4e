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
constexpr std::size_t most_remembered = 1024; ///< Of failures, and of references with their names.
constexpr std::int64_t used_step_ms = 60'000; ///< Uses are noted as often as that.
constexpr auto beyond_answer = 10s; ///< Of one that is answered in any case while it waits.
constexpr auto collection_pause = 10min;
constexpr auto first_collection = 1min;
const system_clock machines_clock{};

error not_here(const std::string& text) {
  return {errc::image_refused, "there is no image " + text + " on this node"};
}

/// Will it be the same in a moment?
bool is_final(const error& why) {
  return why.code != errc::io_failed && why.code != errc::limit_reached &&
         why.code != errc::disk_full && why.code != errc::deadline_exceeded &&
         why.code != errc::image_pending;
}

/// What a client is told of a pull that has failed: the next one may do better, or not.
error told(const std::string& reference, const error& why) {
  if (why.code == errc::disk_full || why.code == errc::forbidden)
    return why;
  const auto& text = why.message;
  return {is_final(why) ? errc::image_refused : errc::image_pending,
          text.find(reference) != std::string::npos ? text
                                                    : "the image " + reference + ": " + text};
}

error pending(const std::string& reference, std::uint64_t bytes, std::uint64_t total) {
  auto text = "the image " + reference + " is being fetched";
  if (total > 0)
    text += " (" + std::to_string(std::min<std::uint64_t>(99, bytes * 100 / total)) + " %)";
  return {errc::image_pending, text + "; ask again"};
}

/// Images have their references in full, while a configuration may say node:24, or a digest.
image_supply::settings with_pins_in_full(image_supply::settings how) {
  const auto pinned = how.pinned;
  for (const auto& each : pinned)
    if (const auto image = registry::parse_reference(each);
        image && !storage::images::is_image_name(each))
      how.pinned.insert(image->digest.empty() ? image->str() : image->digest);
  return how;
}

} // namespace

image_supply::image_supply(image_room room, std::shared_ptr<actors::image_catalogue> all,
                           settings how)
    : room_(std::move(room))
    , all_(std::move(all))
    , how_(with_pins_in_full(std::move(how)))
    , time_(how_.time != nullptr ? *how_.time : machines_clock)
    , woken_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
    , next_collection_(time_.now() +
                       std::min<time_point::duration>(first_collection, how_.policy.keep_unused)) {
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
  end();
}

void image_supply::end() {
  {
    const std::lock_guard hold{guard_};
    ends_ = true;
  }
  wake();
  if (hears_.joinable())
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
  const auto& text = asked_for ? reference_of(wanted.text) : image_of(wanted.text);
  if (!asked_for && all_->look(text))
    return text;
  if (auto parsed = registry::parse_reference(text))
    image = std::move(*parsed);
  const auto reference = image ? image->str() : std::string{};
  // A node that fetches nothing takes names for what they seem; another one does not give what is
  // from elsewhere.
  for (const auto& name : wanted.names)
    if (const auto is = all_->look(name);
        is && (!fetches || is->reference.empty() || is->reference == reference))
      return name;
  if (!image)
    return not_here(text);
  // What a digest leads to never changes.
  const bool looks_again =
    image->digest.empty() && (asked_for || policy.pull == image_pull::always);
  if (!looks_again) {
    if (const auto at = fetched_.find(reference); at != fetched_.end())
      if (const auto is = all_->look(at->second.name); is && is->digest == at->second.digest)
        return at->second.name;
    if (auto [name, is] = all_->find_digest(image->digest); is && !image->digest.empty())
      return name;
    if (auto [name, is] = all_->find_reference(reference); is)
      return name;
  }
  if (!asked_for && !fetches)
    return not_here(text);
  if (!registry::allows(policy.allow, *image))
    return error{errc::forbidden,
                 "this node does not fetch the image " + reference + " (images.allow)"};
  if (room_gone_)
    return error{errc::image_pending, "the process that fetches images has ended; the server needs "
                                      "a restart"};
  if (const auto at = failures_.find(reference);
      at != failures_.end() && at->second.until > time_.now())
    return told(reference, at->second.why);
  return std::nullopt;
}

void image_supply::find(const actors::image_wish& wanted, found_function then) {
  ask(wanted, false, std::move(then));
}

actors::image_signs image_supply::signs_of(const actors::image_wish& wanted) const {
  const auto& text = image_of(wanted.text);
  std::vector<std::string> all = wanted.names;
  all.push_back(text);
  if (std::find(all.begin(), all.end(), how_.default_name) != all.end())
    return {};
  if (const auto image = registry::parse_reference(text)) {
    all.push_back(image->str());
    all.push_back(image->digest);
  }
  actors::image_signs signs;
  for (const auto& each : all)
    if (!each.empty())
      signs.push_back(actors::sign_of(each));
  return signs;
}

void image_supply::ask(const actors::image_wish& wanted, bool asked_for, found_function then) {
  std::optional<result<std::string>> at_once;
  {
    const std::lock_guard hold{guard_};
    std::optional<registry::image_reference> image;
    at_once = known(wanted, image, asked_for);
    if (!at_once) {
      const auto at = pulls_.find(image->str());
      if (ends_ || (at == pulls_.end() && turns_.size() >= limits::images_waiting) ||
          (at != pulls_.end() && at->second.waiters.size() >= limits::waiting_per_image))
        at_once = error{errc::image_pending, "too many images are being fetched; ask again"};
      else
        join(*image,
             {time_.now() + limits::image_patience + (asked_for ? beyond_answer : 0s), then});
    }
  }
  if (at_once)
    then(*at_once);
  else
    wake();
}

void image_supply::pull(const std::string& reference, answer then) {
  ask({reference}, true, std::move(then));
}

void image_supply::join(const registry::image_reference& image, waiter who) {
  const auto reference = image.str();
  auto [at, is_new] = pulls_.try_emplace(reference);
  at->second.waiters.push_back(std::move(who));
  if (is_new)
    turns_.push_back(reference);
}

void image_supply::used(const std::string& name) {
  const auto now = time_.unix_ms();
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
  if (at == how_.runtimes.end() || (at->second.empty() && all_->look(runtime)))
    return runtime;
  return at->second.empty() ? how_.default_name : at->second;
}

/// The same text, if it is no runtime that leads to a registry.
const std::string& image_supply::reference_of(const std::string& runtime) const {
  const auto at = how_.runtimes.find(runtime);
  return at == how_.runtimes.end() || storage::images::is_image_name(at->second) ||
             at->second.empty()
           ? runtime
           : at->second;
}

std::vector<http::node_runtime> image_supply::runtimes() const {
  std::vector<http::node_runtime> all;
  for (const auto& [name, image] : how_.runtimes) {
    http::node_runtime is{name, image_of(name), {}};
    const auto program = name.substr(0, name.find_first_of("0123456789"));
    if (const auto here = all_->look(is.image))
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
  std::optional<error> why;
  {
    const std::lock_guard hold{guard_};
    if (ends_)
      why = error{errc::io_failed, "the server ends"};
    else if (wanted_removals_.size() >= limits::images_waiting)
      why = error{errc::limit_reached, "too many images are being removed"};
    else
      wanted_removals_.emplace_back(name, then);
  }
  if (why)
    then(*why);
  else
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
    bool ends = false;
    {
      const std::lock_guard hold{guard_};
      ends = ends_;
      if (ends) {
        refuse_all(then);
      } else {
        begin_pulls(then);
        refuse_impatient(then);
        if (const auto next = next_deadline()) {
          const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - time_.now());
          patience_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
        }
      }
    }
    for (const auto& each : then)
      each();
    if (ends)
      return;
    begin_removals();
    if (time_.now() >= next_collection_)
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

std::optional<image_supply::time_point> image_supply::next_deadline() const {
  auto next = how_.policy.keep_unused > 0ms ? std::optional{next_collection_} : std::nullopt;
  for (const auto& [reference, pull] : pulls_)
    for (const auto& each : pull.waiters)
      if (!next || each.until < *next)
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
    log::info("image.pulling", {{"image", reference}});
    if (room_.send({room_task::pull, pull.number}, reference))
      ++running;
    else
      finish(pull.number, error{errc::io_failed, "the process that fetches images is busy"}, then);
  }
}

void image_supply::refuse_impatient(calls& then) {
  const auto now = time_.now();
  for (auto& [reference, pull] : pulls_)
    pull.waiters.remove_if([&, &reference = reference, &pull = pull](waiter& each) {
      if (each.until > now)
        return false;
      then.push_back([to = std::move(each.then),
                      why = pending(reference, pull.bytes, pull.total_bytes)] { to(why); });
      return true;
    });
}

void image_supply::refuse_all(calls& then) {
  const error why{errc::image_pending, "the server ends, or fetches no images any more"};
  for (auto& [reference, pull] : pulls_)
    for (auto& each : pull.waiters)
      then.push_back([to = std::move(each.then), why] { to(why); });
  pulls_.clear();
  turns_.clear();
  for (auto& [number, each] : removals_)
    then.push_back([to = std::move(each.then), why] { to(error{errc::io_failed, why.message}); });
  removals_.clear();
  for (auto& [name, to] : std::exchange(wanted_removals_, {}))
    then.push_back([to = std::move(to), why] { to(error{errc::io_failed, why.message}); });
}

/// The end: no pull on its way has that number.
image_supply::pulls::iterator image_supply::pull_of(std::uint64_t number) {
  return std::find_if(pulls_.begin(), pulls_.end(),
                      [=](auto& each) { return number > 0 && each.second.number == number; });
}

void image_supply::take(const room_packet& packet, calls& then) {
  const auto& head = packet.head;
  switch (head.kind) {
    case room_news::image: return take_image(packet);
    case room_news::gone:
      if (head.ours != 0 || !found_.contains(packet.text)) {
        all_->take(packet.text);
        used_.erase(packet.text);
        found_.erase(packet.text);
      }
      return;
    case room_news::progress:
      if (const auto at = pull_of(head.number); at != pulls_.end()) {
        at->second.bytes = head.bytes;
        at->second.total_bytes = head.total_bytes;
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
  const auto before = all_->look(record->name);
  if (before && (before->layers.tree == told->tree || found_.contains(record->name)))
    return;
  auto made = image_from(*record, told->tree, told->bundle, how_.env);
  made.programs = told->programs;
  all_->put(record->name, std::move(made));
  log::info(
    "image.here",
    {{"image", record->name}, {"reference", record->reference}, {"digest", record->digest}});
}

void image_supply::finish(std::uint64_t number, const result<std::string>& how, calls& then) {
  if (auto ended = removals_.extract(number)) {
    auto& is = ended.mapped();
    counts_.removed += how ? 1 : 0;
    if (!how)
      all_->restore(is.name, std::move(is.image));
    then.push_back([to = std::move(is.then), how] { to(how); });
    return;
  }
  const auto at = pull_of(number);
  if (at == pulls_.end())
    return;
  auto [reference, pull] = std::move(*at);
  pulls_.erase(at);
  if (how) {
    ++counts_.pulled;
    counts_.bytes += pull.total_bytes;
    if (fetched_.size() >= most_remembered) // They are asked for once more.
      fetched_.clear();
    if (const auto is = all_->look(*how))
      fetched_[reference] = {*how, is->digest};
    failures_.erase(reference);
  } else {
    ++counts_.failed;
    log::warning("image.not_pulled", {{"image", reference}, {"reason", how.reason().message}});
    std::erase_if(failures_, [this](auto& each) { return each.second.until <= time_.now(); });
    if (failures_.size() < most_remembered)
      failures_.insert_or_assign(
        reference,
        failure{how.reason(), time_.now() + (is_final(how.reason()) ? refused_for : failed_for)});
  }
  const auto said = how ? how : result<std::string>{told(reference, how.reason())};
  for (auto& each : pull.waiters)
    then.push_back([to = std::move(each.then), said] { to(said); });
}

// ---- Images that go

/// None: no sandbox needs the image. `is`: null if there is none of that name.
std::optional<error> image_supply::objection_to_removal(const std::string& name,
                                                        const actors::sandbox_image* is,
                                                        bool is_held) const {
  const auto is_pinned = [this](const std::string& each) { return how_.pinned.contains(each); };
  if (!is)
    return error{errc::not_found, "there is no image " + name + " on this node"};
  if (is_pinned(name) || is_pinned(is->reference) || is_pinned(is->digest))
    return error{errc::limit_reached, "the configuration names the image " + name};
  if (is_held)
    return error{errc::limit_reached, "sandboxes run from the image " + name};
  if (!how_.users)
    return error{errc::limit_reached, "this server cannot tell which sandboxes need the image " +
                                        name + "; insula image rm removes it"};
  const auto users = how_.users(name, *is);
  if (!users)
    return users.reason();
  if (!users->empty())
    return error{errc::limit_reached, "the sandbox " + users->front() + " starts from the image " +
                                        name + "; delete it first"};
  return std::nullopt;
}

/// No sandbox begins with the image from the moment of the question on.
void image_supply::begin_removal(const std::string& name, answer then) {
  if (room_gone_)
    return then(
      error{errc::io_failed, "the server can remove no image any more; it needs a restart"});
  if (const auto why = objection_to_removal(name, all_->look(name).get(), all_->is_held(name)))
    return then(*why);
  auto is = all_->take(name);
  if (const auto why =
        objection_to_removal(name, is ? &*is : nullptr, actors::image_catalogue::is_held(is))) {
    // It was needed just now.
    all_->restore(name, std::move(is));
    return then(*why);
  }
  calls now;
  {
    const std::lock_guard hold{guard_};
    const auto number = ++last_number_;
    removals_[number] = {name, std::move(is), std::move(then)};
    if (!room_.send({room_task::remove, number}, name))
      finish(number, error{errc::limit_reached, "the process that removes images is busy"}, now);
  }
  for (const auto& each : now)
    each();
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
    begin_removal(next.first, std::move(next.second));
  }
}

/// Images that the node has fetched, and that no sandbox has used for long.
void image_supply::collect() {
  next_collection_ =
    time_.now() + std::clamp<time_point::duration>(how_.policy.keep_unused, 1s, collection_pause);
  if (how_.policy.keep_unused <= 0ms || !how_.users)
    return;
  const auto oldest = time_.unix_ms() - how_.policy.keep_unused.count();
  std::vector<std::string> unused;
  {
    const std::lock_guard hold{guard_};
    for (const auto& [name, is] : all_->list()) {
      const auto at = used_.find(name);
      const auto last =
        std::max({at == used_.end() ? std::int64_t{0} : at->second, is->used_ms, is->created_ms});
      if (is->by_node && last < oldest)
        unused.push_back(name);
    }
  }
  for (const auto& name : unused)
    begin_removal(name, [name](const result<std::string>& gone) {
      if (gone)
        log::info("image.unused", {{"image", name}});
    });
  sweep();
}

/// Trees without a name, on which no sandbox stands any more.
void image_supply::sweep() {
  if (!how_.may_sweep)
    return;
  std::string needed;
  for (const auto& each : all_->trees())
    needed += each + '\0';
  constexpr std::size_t longest = 32u << 10;
  if (needed.size() <= longest)
    room_.send({room_task::sweep}, needed);
}

} // namespace insula
