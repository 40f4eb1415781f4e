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
  return at == all_.end() ? nullptr : at->second;
}

template <class Fits>
std::pair<std::string, shared_image> image_catalogue::find_if(Fits fits) const {
  const std::lock_guard hold{guard_};
  std::pair<std::string, shared_image> found;
  for (const auto& each : all_)
    if (fits(*each.second) && (!found.second || found.second->created_ms < each.second->created_ms))
      found = each;
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
  return all_;
}

void image_catalogue::put(const std::string& name, sandbox_image image) {
  auto shared = std::make_shared<const sandbox_image>(std::move(image));
  const std::lock_guard hold{guard_};
  auto& at = all_[name];
  if (at)
    nameless_.emplace_back(at);
  at = std::move(shared);
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
    for (const auto& each : {name, image->reference, image->digest})
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
    found.push_back(image->layers.tree);
  std::erase_if(nameless_, [&](const auto& each) {
    const auto image = each.lock();
    if (image)
      found.push_back(image->layers.tree);
    return image == nullptr;
  });
  return found;
}

shared_image image_catalogue::take(const std::string& name) {
  const std::lock_guard hold{guard_};
  auto gone = all_.extract(name);
  if (!gone)
    return nullptr;
  nameless_.emplace_back(gone.mapped());
  sign_all();
  return std::move(gone.mapped());
}

void image_catalogue::restore(const std::string& name, shared_image image) {
  const std::lock_guard hold{guard_};
  if (image && all_.try_emplace(name, std::move(image)).second)
    sign_all();
}

} // namespace insula::actors
