#include "apps/pull_image.hpp"

#include "apps/fetch_image.hpp"
#include "apps/import_calls.hpp"

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>

namespace insula {

namespace {

namespace images = storage::images;
namespace registry = storage::registry;

/// May the next pull of the same image go on where this one has ended?
bool may_go_on(const error& why) {
  return why.code == errc::io_failed || why.code == errc::limit_reached ||
         why.code == errc::deadline_exceeded;
}

/// One import at a time: the others wait.
template <class Write>
auto when_nobody_writes(const pull_order& order, const pull_watch& watch, Write write) {
  constexpr std::chrono::milliseconds pause{100};
  const auto until = std::chrono::steady_clock::now() + order.patience;
  while (true) {
    auto made = write();
    if (made || made.reason().code != errc::limit_reached || watch.cancelled() ||
        std::chrono::steady_clock::now() >= until)
      return made;
    std::this_thread::sleep_for(pause);
  }
}

/// Under any name.
result<images::image_record> image_with(const images::image_store& store,
                                        const std::string& digest) {
  const auto all = store.list();
  if (!all)
    return all.reason();
  const auto at =
    std::find_if(all->begin(), all->end(), [&](const auto& each) { return each.digest == digest; });
  if (at == all->end())
    return error{errc::io_failed, "the image " + digest + " has been removed meanwhile"};
  return *at;
}

/// The shortest one, or else one with the beginning of the digest.
std::string free_name(const images::image_store& store, const registry::image_reference& image,
                      const std::string& digest) {
  constexpr std::size_t enough = 12, longest = 63;
  auto name = name_of_image(image);
  if (name.empty() || name == "host")
    name = "image";
  const auto there = store.find(name);
  if (image.digest.empty() && !there && there.reason().code == errc::not_found)
    return name;
  return name.substr(0, longest - enough - 1) + "-" + digest.substr(digest.find(':') + 1, enough);
}

} // namespace

std::string image_name_from(const std::string& name) {
  constexpr std::size_t longest = 63;
  std::string made;
  for (const char each : name) {
    const auto small = each >= 'A' && each <= 'Z' ? static_cast<char>(each - 'A' + 'a') : each;
    const bool plain = (small >= 'a' && small <= 'z') || (small >= '0' && small <= '9');
    if (plain || (!made.empty() && made.size() < longest))
      made += plain || small == '.' || small == '_' ? small : '-';
    if (made.size() == longest)
      break;
  }
  return made;
}

std::string name_of_image(const registry::image_reference& from) {
  const auto last = from.repository.substr(from.repository.rfind('/') + 1);
  return image_name_from(from.tag.empty() || from.tag == "latest" ? last : last + ":" + from.tag);
}

result<pulled_image> pull_image(const std::string& state_directory, const pull_order& order,
                                const pull_watch& watch) {
  images::image_store store{state_directory};
  fetch_order fetching{order.image, order.client, order.which, order.max_bytes, {}};
  const auto all = store.list();
  if (!all)
    return all.reason();
  for (const auto& each : *all)
    if (each.name != "host")
      fetching.here.insert(each.digest);

  auto place = pull_place::take(state_directory, order.image.str() + " " + order.which.str());
  if (!place)
    return place.reason();
  auto fetched = fetch_image(fetching, *place, watch.on_fetch, watch.cancelled);
  // Of an index with the digest that was asked for, the fetcher has chosen the manifest.
  if (fetched && !fetched->was_here && !order.image.digest.empty())
    if (auto ok = registry::check_way(place->layout(), order.image.digest, fetched->digest); !ok)
      fetched = ok.reason();
  if (!fetched) {
    if (!may_go_on(fetched.reason()) || place->is_empty())
      place->remove();
    return fetched.reason();
  }
  if (auto ok = allow_only_import_calls(); !ok)
    return ok.reason();
  images::import_options how;
  how.by_node = order.by_node;
  how.replace = order.replace;
  how.reference = order.image.str();
  how.digest = fetched->digest;
  how.max_bytes = order.max_bytes;
  how.on_progress = watch.on_import;
  how.cancelled = watch.cancelled;
  auto made = when_nobody_writes(order, watch, [&] {
    if (order.name.empty() && fetched->was_here)
      return image_with(store, fetched->digest);
    how.name = order.name.empty() ? free_name(store, order.image, fetched->digest) : order.name;
    return fetched->was_here ? store.name_again(fetched->digest, how)
                             : store.import_image(place->layout(), how);
  });
  // What was interrupted may go on; what the importer refuses, it refuses again.
  if (made || !watch.cancelled())
    place->remove();
  if (!made)
    return made.reason();
  return pulled_image{std::move(*made), fetched->was_here};
}

} // namespace insula
