#include "actors/image_catalogue.hpp"

#include <algorithm>
#include <utility>

namespace insula::actors {

image_catalogue::image_catalogue(std::map<std::string, sandbox_image> found) {
  for (auto& [name, image] : found)
    put(name, std::move(image));
}

shared_image image_catalogue::find(const std::string& name) const {
  const std::lock_guard hold{guard_};
  const auto at = all_.find(name);
  return at == all_.end() ? nullptr : at->second.held;
}

shared_image image_catalogue::look(const std::string& name) const {
  const std::lock_guard hold{guard_};
  const auto at = all_.find(name);
  return at == all_.end() ? nullptr : at->second.seen;
}

bool image_catalogue::is_held(const std::string& name) const {
  const std::lock_guard hold{guard_};
  const auto at = all_.find(name);
  return at != all_.end() && at->second.held.use_count() > 1;
}

template <class Fits>
std::pair<std::string, shared_image> image_catalogue::find_if(Fits fits) const {
  const std::lock_guard hold{guard_};
  std::pair<std::string, shared_image> found;
  for (const auto& [name, image] : all_)
    if (fits(*image.seen) && (!found.second || found.second->created_ms < image.seen->created_ms))
      found = {name, image.seen};
  return found;
}

std::pair<std::string, shared_image> image_catalogue::find_digest(const std::string& digest) const {
  return find_if([&](const sandbox_image& each) { return each.digest == digest; });
}

std::pair<std::string, shared_image>
image_catalogue::find_reference(const std::string& reference) const {
  return find_if([&](const sandbox_image& each) { return each.reference == reference; });
}

std::map<std::string, shared_image> image_catalogue::list() const {
  const std::lock_guard hold{guard_};
  std::map<std::string, shared_image> all;
  for (const auto& [name, image] : all_)
    all.emplace(name, image.seen);
  return all;
}

void image_catalogue::put(const std::string& name, sandbox_image image) {
  auto seen = std::make_shared<const sandbox_image>(std::move(image));
  const shared_image held{seen.get(), [seen](const sandbox_image*) {}};
  const std::lock_guard hold{guard_};
  auto& at = all_[name];
  if (at.held)
    nameless_.emplace_back(at.held);
  at = {held, seen};
  sign_all();
}

shared_image_signs image_catalogue::signs() const {
  const std::lock_guard hold{guard_};
  return signs_;
}

/// With the guard.
void image_catalogue::sign_all() {
  auto signs = std::make_shared<image_signs>();
  for (const auto& [name, image] : all_)
    for (const auto& each : {name, image.seen->reference, image.seen->digest})
      if (!each.empty() && signs->size() < most_image_signs)
        signs->push_back(sign_of(each));
  std::sort(signs->begin(), signs->end());
  signs->erase(std::unique(signs->begin(), signs->end()), signs->end());
  signs_ = std::move(signs);
}

std::vector<std::string> image_catalogue::trees() const {
  const std::lock_guard hold{guard_};
  std::vector<std::string> found;
  for (const auto& [name, image] : all_)
    found.push_back(image.seen->layers.tree);
  std::erase_if(nameless_, [&](const auto& each) {
    const auto image = each.lock();
    if (image)
      found.push_back(image->layers.tree);
    return image == nullptr;
  });
  return found;
}

image_catalogue::taken_image image_catalogue::take(const std::string& name) {
  const std::lock_guard hold{guard_};
  taken_image taken;
  if (auto gone = all_.extract(name)) {
    taken.is_ = std::move(gone.mapped());
    nameless_.emplace_back(taken.is_.held);
    sign_all();
  }
  return taken;
}

void image_catalogue::restore(const std::string& name, taken_image image) {
  const std::lock_guard hold{guard_};
  if (image && all_.try_emplace(name, std::move(image.is_)).second)
    sign_all();
}

} // namespace insula::actors
