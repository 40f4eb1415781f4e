#include "actors/snapshots/disk_helpers.hpp"

#include "base/limits.hpp"

#include <utility>

namespace insula::actors::snapshots {

namespace {

runtime::sandbox_spec spec_of(const sandbox_image& image) {
  runtime::sandbox_spec spec;
  spec.host_name = "disks";
  spec.image = image.layers;
  spec.network = egress_policy::deny_all();
  spec.limits = {.memory_bytes = limits::disk_helper_memory_bytes,
                 .disk_bytes = 16u << 20,
                 .shm_bytes = 1u << 20,
                 .log_bytes = 1u << 20,
                 .cpu_percent = 100,
                 .processes = 64,
                 .open_files = 8'192};
  return spec;
}

} // namespace

void disk_helpers::compare(shared_image image, const runtime::compare_request& wanted,
                           changes_function tell) {
  const auto what = std::make_shared<job>(job{std::move(image), wanted, std::move(tell)});
  {
    const std::lock_guard lock{guard_};
    if (running_ == limits::disk_helpers && waiting_.size() < limits::waiting_for_disk_helper)
      return waiting_.push_back(what);
    if (running_ < limits::disk_helpers)
      ++running_;
    else
      return what->tell(error{errc::limit_reached, "as many disks are compared as may be"});
  }
  begin(what);
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
  engine_.create(spec_of(*what->image), std::move(heard));
}

void disk_helpers::one_less() {
  std::shared_ptr<job> next;
  {
    const std::lock_guard lock{guard_};
    if (waiting_.empty()) {
      --running_;
      return;
    }
    next = std::move(waiting_.front());
    waiting_.pop_front();
  }
  begin(next);
}

} // namespace insula::actors::snapshots
