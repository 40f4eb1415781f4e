#include "storage/registry/pull.hpp"

#include "base/printable.hpp"
#include "storage/images/digest.hpp"
#include "storage/images/documents.hpp"
#include "storage/images/file_set.hpp"
#include "storage/images/image_source.hpp"
#include "storage/images/json.hpp"
#include "storage/registry/spool.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

namespace insula::storage::registry {

namespace {

using images::descriptor;

error refused(std::string why) {
  return {errc::invalid_request, std::move(why)};
}

std::string mib(std::uint64_t bytes) {
  return std::to_string((bytes + (1u << 20) - 1) >> 20u) + " MiB";
}

enum class document_kind { index, manifest, old_manifest, other };

/// By what it says of itself, what the answer said, or what it looks like, in this order.
document_kind kind_of(const registry_client::document& document, std::string& type) {
  const auto text = images::parse_json(document.text);
  if (!text)
    return document_kind::other;
  type = images::text_of(*text, "mediaType");
  if (type.empty())
    type = document.media_type.substr(0, document.media_type.find(';'));
  if (type.starts_with("application/vnd.docker.distribution.manifest.v1") ||
      images::number_of(*text, "schemaVersion") == 1)
    return document_kind::old_manifest;
  if (images::is_index(type))
    return document_kind::index;
  if (type == "application/vnd.oci.image.manifest.v1+json" ||
      type == "application/vnd.docker.distribution.manifest.v2+json")
    return document_kind::manifest;
  if (images::member(*text, "manifests") != nullptr) {
    type = "application/vnd.oci.image.index.v1+json";
    return document_kind::index;
  }
  if (images::member(*text, "config") == nullptr)
    return document_kind::other;
  type = "application/vnd.oci.image.manifest.v1+json";
  return document_kind::manifest;
}

/// The best of those that fit: nothing is chosen that says another platform.
result<descriptor> choose(const images::oci_index& index, const platform& which) {
  const descriptor* best = nullptr;
  int best_rank = 0;
  std::set<std::string> platforms;
  for (const auto& each : index.manifests) {
    platforms.insert(platform{each.os.empty() ? "?" : each.os,
                              each.architecture.empty() ? "?" : each.architecture, each.variant}
                       .str());
    const bool says_nothing = each.os.empty() && each.architecture.empty();
    const bool fits = each.os == which.os && each.architecture == which.architecture &&
                      (which.variant.empty() || each.variant == which.variant);
    const int rank = fits ? (each.variant == which.variant ? 3 : 2) : says_nothing ? 1 : 0;
    if (rank > best_rank) {
      best = &each;
      best_rank = rank;
    }
  }
  if (best != nullptr)
    return *best;
  std::string all;
  for (const auto& each : platforms)
    all += (all.empty() ? "" : ", ") + each;
  return refused("it is not there for " + which.str() +
                 "; its platforms: " + (all.empty() ? "none" : all.substr(0, 500)));
}

/// What several threads add to.
class tally {
public:
  tally(const pull_options& options, std::uint64_t total, std::size_t layers)
      : options_(options) {
    now_.total_bytes = total;
    now_.layers = layers;
  }

  void add(std::int64_t bytes, std::size_t done = 0) {
    const std::lock_guard hold{guard_};
    now_.bytes += static_cast<std::uint64_t>(bytes); // Modulo 2^64: less is more, too.
    now_.done += done;
    if (options_.on_progress)
      options_.on_progress(now_);
  }

private:
  const pull_options& options_;
  std::mutex guard_;
  pull_progress now_;
};

class one_pull {
public:
  one_pull(registry_client& client, const image_reference& image, spool& into,
           const pull_options& options, const std::function<bool()>& cancelled)
      : client_(client)
      , image_(image)
      , spool_(into)
      , options_(options)
      , cancelled_(cancelled) {}

  result<pulled> run() {
    std::string type;
    const auto found = find_manifest(type);
    if (!found)
      return found.reason();
    if (options_.is_here && options_.is_here(found->digest))
      return pulled{found->digest, true};
    const auto manifest = images::read_manifest(found->text);
    if (!manifest)
      return refused("its manifest: " + manifest.reason().message);
    if (manifest->config.media_type != "application/vnd.oci.image.config.v1+json" &&
        manifest->config.media_type != "application/vnd.docker.container.image.v1+json")
      return refused("what its manifest describes is no image for sandboxes but " +
                     manifest->config.media_type.substr(0, 100));
    // The same layer twice is fetched once.
    std::vector<descriptor> layers;
    std::set<std::string> wanted{manifest->config.digest};
    for (const auto& each : manifest->layers)
      if (wanted.insert(each.digest).second)
        layers.push_back(each);
    const auto total = sum(manifest->config, layers);
    if (!total)
      return total.reason();
    if (auto ok = spool_.begin(wanted); !ok)
      return ok.reason();
    if (auto ok = check_room(*total, wanted); !ok)
      return ok.reason();

    tally count{options_, *total, layers.size()};
    // First, as it says for which machine all else is.
    if (auto ok = fetch(manifest->config, count); !ok)
      return ok.reason();
    if (auto ok = check_config(manifest->config); !ok)
      return ok.reason();
    if (auto ok = fetch_layers(std::move(layers), count); !ok)
      return ok.reason();
    way_.push_back(*found);
    for (const auto& each : way_)
      if (auto ok = spool_.put(each.digest, each.text); !ok)
        return ok.reason();
    if (auto ok = spool_.finish(R"({"mediaType":")" + type + R"(","digest":")" + found->digest +
                                R"(","size":)" + std::to_string(found->text.size()) + "}");
        !ok)
      return ok.reason();
    return pulled{found->digest, false};
  }

private:
  /// From index to index, up to a manifest. `type`: its media type.
  result<registry_client::document> find_manifest(std::string& type) {
    auto found = client_.manifest(image_.digest.empty() ? image_.tag : image_.digest);
    for (std::size_t depth = 0; found; ++depth) {
      switch (kind_of(*found, type)) {
        case document_kind::manifest: return found;
        case document_kind::old_manifest:
          return refused("it is of docker's old kind, schema 1, which is not taken; whoever has it "
                         "can push it again with a docker of today");
        case document_kind::other:
          return refused("what the registry has under that name is no image: " +
                         (type.empty() ? "it is no JSON" : type.substr(0, 100)));
        case document_kind::index: break;
      }
      if (depth == limits::image_index_depth)
        return refused("more than " + std::to_string(limits::image_index_depth) +
                       " indexes lead to each other");
      const auto index = images::read_index(found->text);
      way_.push_back(*found);
      if (!index)
        return refused("its index: " + index.reason().message);
      const auto chosen = choose(*index, options_.which);
      if (!chosen)
        return chosen.reason();
      found = client_.manifest(chosen->digest);
      if (found && found->text.size() != chosen->size)
        return refused(chosen->digest + ": it has " + std::to_string(found->text.size()) +
                       " bytes, not " + std::to_string(chosen->size));
    }
    return found;
  }

  result<std::uint64_t> sum(const descriptor& config, const std::vector<descriptor>& layers) const {
    if (config.size > limits::image_document_bytes)
      return error{errc::payload_too_large, "its configuration has " + mib(config.size) +
                                              ", and at most " + mib(limits::image_document_bytes) +
                                              " are taken"};
    auto total = config.size;
    for (const auto& each : layers) {
      if (each.size > options_.max_bytes || total > options_.max_bytes - each.size)
        return error{errc::payload_too_large, "its layers have more than the " +
                                                mib(options_.max_bytes) + " that are allowed"};
      total += each.size;
    }
    return total;
  }

  result<void> check_room(std::uint64_t total, const std::set<std::string>& wanted) const {
    std::uint64_t there = 0;
    for (const auto& each : wanted)
      there += spool_.bytes_of(each);
    const auto missing = total > there ? total - there : 0;
    if (const auto room = spool_.free_bytes(); missing > room)
      return {{errc::disk_full, "it needs another " + mib(missing) +
                                  " on the node's disk, which "
                                  "has " +
                                  mib(room) + " left"}};
    return {};
  }

  result<void> check_config(const descriptor& which) const {
    const auto text = spool_.get(which.digest, limits::image_document_bytes);
    if (!text)
      return text.reason();
    const auto config = images::read_config(*text);
    if (!config)
      return refused("its configuration: " + config.reason().message);
    const platform said{config->os.empty() ? "linux" : config->os, config->architecture, {}};
    const platform asked{options_.which.os, options_.which.architecture, {}};
    if (!said.architecture.empty() && !(said == asked))
      return refused("it is for " + said.str() + ", not for " + asked.str());
    return {};
  }

  result<void> fetch(const descriptor& which, tally& count) {
    spooled_blob into{spool_, which.digest, which.size,
                      [&](std::int64_t bytes) { count.add(bytes); },
                      [this] { return has_to_end(); }};
    if (auto ok = into.open(); !ok)
      return ok;
    // What was there may be wrong, so once more is one more chance, and no more than that.
    for (bool again = into.size() > 0;; again = false) {
      if (into.size() < into.whole_size() || into.whole_size() == 0)
        if (auto ok = client_.blob(which.digest, into); !ok)
          return ok;
      const auto good = into.finish();
      if (!good)
        return good.reason();
      if (*good)
        return {};
      if (!again)
        return refused("what " + image_.host + " sends as " + which.digest + " has another digest");
    }
  }

  result<void> fetch_layers(std::vector<descriptor> layers, tally& count) {
    // A large one that begins last would have the line for itself at the end.
    std::stable_sort(layers.begin(), layers.end(),
                     [](auto& a, auto& b) { return a.size > b.size; });
    std::atomic<std::size_t> next = 0;
    std::mutex guard;
    std::optional<error> first;
    const auto work = [&] {
      for (std::size_t at = 0; !has_to_end() && (at = next++) < layers.size();) {
        const auto ok = fetch(layers[at], count);
        if (ok) {
          count.add(0, 1);
          continue;
        }
        const std::lock_guard hold{guard};
        // Those that are ended because of the first have nothing to say.
        if (!first)
          first = ok.reason();
        ended_ = true;
      }
    };
    std::vector<std::thread> others;
    const auto most = std::min<std::size_t>(options_.at_once, layers.size());
    for (std::size_t i = 1; i < most; ++i)
      others.emplace_back(work);
    work();
    for (auto& each : others)
      each.join();
    if (first)
      return *first;
    if (has_to_end())
      return {{errc::deadline_exceeded, "the pull was cancelled"}};
    return {};
  }

  bool has_to_end() const { return ended_ || (cancelled_ && cancelled_()); }

  registry_client& client_;
  const image_reference& image_;
  spool& spool_;
  const pull_options& options_;
  const std::function<bool()>& cancelled_;
  std::vector<registry_client::document> way_; ///< The indexes, and at the end the manifest.
  std::atomic<bool> ended_ = false;            ///< One layer cannot be had, so no other is wanted.
};

} // namespace

std::string platform::str() const {
  return os + "/" + architecture + (variant.empty() ? "" : "/" + variant);
}

result<platform> parse_platform(std::string_view text) {
  std::vector<std::string> parts{""};
  bool good = text.size() <= 64;
  for (const char c : text) {
    if (c == '/')
      parts.emplace_back();
    else
      parts.back() += c;
    good = good && (c == '/' || c == '_' || c == '-' || c == '.' || (c >= 'a' && c <= 'z') ||
                    (c >= '0' && c <= '9'));
  }
  good = good && (parts.size() == 2 || parts.size() == 3) &&
         std::none_of(parts.begin(), parts.end(), [](auto& each) { return each.empty(); });
  if (!good)
    return refused("a platform is OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, such as "
                   "linux/amd64");
  return platform{parts[0], parts[1], parts.size() == 3 ? parts[2] : ""};
}

platform machine_platform() {
  return {"linux", images::machine_architecture(), {}};
}

result<pulled> pull(registry_client& client, const image_reference& image,
                    const std::string& directory, const pull_options& options,
                    const std::function<bool()>& cancelled) {
  auto into = spool::open(directory);
  if (!into)
    return into.reason();
  auto made = one_pull{client, image, *into, options, cancelled}.run();
  if (made || made.reason().code == errc::deadline_exceeded)
    return made;
  // Some of it may be what the registry's documents say.
  return error{made.reason().code, printable(image.str() + ": " + made.reason().message)};
}

result<void> check_way(const std::string& directory, const std::string& asked,
                       const std::string& manifest) {
  const auto files = images::open_file_set(directory, directory, 0);
  if (!files)
    return files.reason();
  std::set<std::string> at{asked};
  for (std::size_t depth = 0; depth <= limits::image_index_depth; ++depth) {
    if (at.contains(manifest))
      return {};
    std::set<std::string> next;
    for (const auto& digest : at) {
      const auto colon = digest.find(':');
      const auto name = "blobs/" + digest.substr(0, colon) + "/" + digest.substr(colon + 1);
      const auto text = images::read_small(**files, name, limits::image_document_bytes);
      // Of an index all but one are not there.
      if (!text || images::digest_of(*text, digest) != digest)
        continue;
      if (const auto index = images::read_index(*text))
        for (const auto& each : index->manifests)
          next.insert(each.digest);
    }
    at = std::move(next);
  }
  return {refused(asked + " does not lead to the image that has come, " + manifest)};
}

} // namespace insula::storage::registry
