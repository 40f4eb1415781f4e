#include "actors/snapshots/disk_helpers.hpp"

#include "base/limits.hpp"

#include <utility>
#include <vector>

namespace insula::actors::snapshots {

namespace {

constexpr std::string_view is_not_there_yet = " is not there yet";

/// Clients do not wait longer for a comparison than for this and their own.
constexpr std::chrono::minutes turn_patience{1};

} // namespace

shared_image image_under(const image_catalogue& images, const snapshot_description& is) {
  auto image = images.find(is.image);
  const auto digest = is.image_source.empty()
                        ? is.image_digest
                        : is.image_source.substr(is.image_source.find('@') + 1);
  if (digest.empty() || (image && image->digest == digest))
    return image;
  const auto [name, seen] = images.find_digest(digest);
  image = seen ? images.find(name) : nullptr;
  return image && image->digest == digest ? image : nullptr; // Not one that came meanwhile.
}

error copy_comes_later(const std::string& id) {
  return {errc::store_failed, "the copy of snapshot " + id + std::string{is_not_there_yet},
          limits::brought_again_s};
}

bool is_pending(const error& why) {
  return why.code == errc::store_failed && why.message.ends_with(is_not_there_yet);
}

runtime::sandbox_spec helper_spec(const sandbox_image& image, std::uint64_t disk_bytes) {
  runtime::sandbox_spec spec;
  spec.host_name = "disks";
  spec.image = image.layers;
  spec.network = egress_policy::deny_all();
  // Then all that can lie over an image does, so that it is none of what a disk has changed.
  spec.may_gain_rights = true;
  // On a node that has no memory left, copies let sandboxes go that are kept before they stop.
  spec.of_the_node = true;
  spec.limits = {.memory_bytes = limits::disk_helper_memory_bytes,
                 .disk_bytes = disk_bytes,
                 .shm_bytes = 1u << 20,
                 .log_bytes = 1u << 20,
                 .cpu_percent = 100,
                 .processes = 64,
                 .open_files = 8'192};
  return spec;
}

void disk_helpers::compare(shared_image image, const runtime::compare_request& wanted,
                           changes_function tell) {
  const auto until = std::chrono::steady_clock::now() + turn_patience;
  const auto what = std::make_shared<job>(job{std::move(image), wanted, std::move(tell), until});
  bool begins = false;
  {
    const std::lock_guard lock{guard_};
    begins = running_ < limits::disk_helpers;
    if (begins)
      ++running_;
    else if (waiting_.size() < limits::waiting_for_disk_helper)
      return waiting_.push_back(what);
  }
  begins ? begin(what)
         : what->tell(error{errc::limit_reached, "as many disks are compared as may be"});
}

void disk_helpers::begin(const std::shared_ptr<job>& what) {
  runtime::sandbox_listener heard;
  heard.on_ready = [self = shared_from_this(), what](const std::shared_ptr<runtime::sandbox>& it) {
    it->compare_disks(what->wanted, [self, what, it](const result<disk_changes>& found) {
      what->tell(found);
      it->destroy([self, it] { self->one_less(); });
    });
  };
  heard.on_failed = [self = shared_from_this(), what](const error& why) {
    what->tell(why);
    self->one_less();
  };
  heard.on_ended = [] {}; // The comparison says so.
  engine_.create(helper_spec(*what->image), std::move(heard));
}

void disk_helpers::one_less() {
  std::vector<std::shared_ptr<job>> late;
  std::shared_ptr<job> next;
  {
    const std::lock_guard lock{guard_};
    const auto now = std::chrono::steady_clock::now();
    while (!next && !waiting_.empty()) {
      (waiting_.front()->until > now ? next : late.emplace_back()) = waiting_.front();
      waiting_.pop_front();
    }
    if (!next)
      --running_;
  }
  for (const auto& each : late)
    each->tell(error{errc::deadline_exceeded, "other disks were compared for too long"});
  if (next)
    begin(next);
}

} // namespace insula::actors::snapshots
