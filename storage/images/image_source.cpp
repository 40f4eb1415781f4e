#include "storage/images/image_source.hpp"

#include "base/limits.hpp"
#include "storage/images/digest.hpp"

#include <algorithm>
#include <sys/utsname.h>

namespace insula::storage::images {

namespace {

error refused(std::string why) {
  return {errc::invalid_request, std::move(why)};
}

/// The same error, with the document's name before it.
error in(const std::string& document, const error& why) {
  return {why.code, document + ": " + why.message};
}

std::string blob_name(const std::string& digest) {
  const auto colon = digest.find(':');
  return "blobs/" + digest.substr(0, colon) + "/" + digest.substr(colon + 1);
}

/// A document by its descriptor: of the size and the digest that were said.
result<std::string> read_document(const file_set& files, const descriptor& wanted) {
  auto text = read_small(files, blob_name(wanted.digest), limits::image_document_bytes);
  if (!text)
    return text;
  if (text->size() != wanted.size)
    return refused(wanted.digest + ": it has " + std::to_string(text->size()) + " bytes, not " +
                   std::to_string(wanted.size));
  if (digest_of(*text, wanted.digest) != wanted.digest)
    return refused(wanted.digest + ": its content has another digest");
  return text;
}

bool fits_machine(const std::string& os, const std::string& architecture) {
  return (os.empty() || os == "linux") &&
         (architecture.empty() || architecture == machine_architecture());
}

std::string platform_of(const std::string& os, const std::string& architecture) {
  return (os.empty() ? "?" : os) + "/" + (architecture.empty() ? "?" : architecture);
}

bool has_tag(const std::string& name, const std::string& tag) {
  return tag.empty() || name == tag || name.ends_with(":" + tag);
}

/// One of an index's manifests: that of the tag, for this machine.
result<descriptor> choose(const oci_index& index, const std::string& tag) {
  std::vector<descriptor> fitting;
  std::string tags, platforms;
  for (const auto& each : index.manifests) {
    tags += " " + (each.name.empty() ? "(none)" : each.name);
    platforms += " " + platform_of(each.os, each.architecture);
    if (has_tag(each.name, tag) && fits_machine(each.os, each.architecture))
      fitting.push_back(each);
  }
  // Several names of one image are no choice.
  const auto same = [&](auto& each) { return each.digest == fitting.front().digest; };
  if (!fitting.empty() && std::all_of(fitting.begin(), fitting.end(), same))
    return fitting.front();
  if (fitting.empty())
    return refused("it has no image " + (tag.empty() ? "" : "\"" + tag + "\" ") +
                   "for this machine (linux/" + machine_architecture() + "); its tags:" + tags +
                   "; its platforms:" + platforms);
  return refused("it has several images for this machine; --tag says which; its tags:" + tags);
}

bool is_config(const std::string& type) {
  return type == "application/vnd.oci.image.config.v1+json" ||
         type == "application/vnd.docker.container.image.v1+json";
}

bool is_layer(const std::string& type) {
  for (const char* base : {"application/vnd.oci.image.layer.v1.tar",
                           "application/vnd.oci.image.layer.nondistributable.v1.tar"})
    if (type == base || type == std::string{base} + "+gzip" || type == std::string{base} + "+zstd")
      return true;
  return type == "application/vnd.docker.image.rootfs.diff.tar" ||
         type == "application/vnd.docker.image.rootfs.diff.tar.gzip";
}

/// What a configuration and a list of layers have to agree on.
result<void> check(const oci_config& config, std::size_t layers) {
  if (!fits_machine(config.os, config.architecture))
    return {refused("the image is for " + platform_of(config.os, config.architecture) +
                    "; this machine is linux/" + machine_architecture())};
  if (config.diff_ids.size() != layers)
    return {refused("the image has " + std::to_string(layers) + " layers, and its configuration " +
                    std::to_string(config.diff_ids.size()))};
  if (layers == 0)
    return {refused("the image has no layers")};
  return {};
}

result<image_source> from_layout(const file_set& files, const std::string& tag) {
  const auto text = read_small(files, "index.json", limits::image_document_bytes);
  if (!text)
    return text.reason();
  auto index = read_index(*text);
  if (!index)
    return in("index.json", index.reason());
  auto chosen = choose(*index, tag);
  for (std::size_t depth = 1; chosen && is_index(chosen->media_type); ++depth) {
    if (depth > limits::image_index_depth)
      return refused("more than " + std::to_string(limits::image_index_depth) +
                     " indexes lead to each other");
    const auto nested = read_document(files, *chosen);
    if (!nested)
      return nested.reason();
    index = read_index(*nested);
    if (!index)
      return in(chosen->digest, index.reason());
    chosen = choose(*index, "");
  }
  if (!chosen)
    return in("index.json", chosen.reason());

  const auto manifest_text = read_document(files, *chosen);
  if (!manifest_text)
    return in("the manifest", manifest_text.reason());
  const auto manifest = read_manifest(*manifest_text);
  if (!manifest)
    return in("the manifest " + chosen->digest, manifest.reason());
  if (!is_config(manifest->config.media_type))
    return refused("what the manifest describes is no image for sandboxes but " +
                   manifest->config.media_type);
  const auto config_text = read_document(files, manifest->config);
  if (!config_text)
    return in("the configuration", config_text.reason());
  auto config = read_config(*config_text);
  if (!config)
    return in("the configuration " + manifest->config.digest, config.reason());
  if (auto ok = check(*config, manifest->layers.size()); !ok)
    return ok.reason();

  image_source made{"oci", chosen->digest, std::move(*config), {}};
  for (std::size_t i = 0; i < manifest->layers.size(); ++i) {
    const auto& layer = manifest->layers[i];
    if (!is_layer(layer.media_type))
      return refused("the layer " + layer.digest +
                     " is of a kind that is not known: " + layer.media_type);
    const auto blob = files.find(blob_name(layer.digest));
    if (!blob)
      return blob.reason();
    if (!*blob)
      return refused("the layer " + layer.digest + " is missing");
    if ((*blob)->size != layer.size)
      return refused("the layer " + layer.digest + " has " + std::to_string((*blob)->size) +
                     " bytes, not " + std::to_string(layer.size));
    made.layers.push_back({**blob, layer.digest, layer.digest, made.config.diff_ids[i]});
  }
  return made;
}

result<docker_image> choose_docker(const std::vector<docker_image>& all, const std::string& tag) {
  std::string tags;
  std::vector<docker_image> fitting;
  for (const auto& each : all) {
    const auto fits = [&](auto& name) { return has_tag(name, tag); };
    if (tag.empty() || std::any_of(each.tags.begin(), each.tags.end(), fits))
      fitting.push_back(each);
    for (const auto& name : each.tags)
      tags += " " + name;
  }
  if (fitting.size() == 1)
    return fitting.front();
  return refused(fitting.empty() ? "it has no image \"" + tag + "\"; its tags:" + tags
                                 : "it has several images; --tag says which; its tags:" + tags);
}

result<image_source> from_docker(const file_set& files, const std::string& tag) {
  const auto text = read_small(files, "manifest.json", limits::image_document_bytes);
  if (!text)
    return text.reason();
  const auto all = read_docker_images(*text);
  if (!all)
    return in("manifest.json", all.reason());
  const auto chosen = choose_docker(*all, tag);
  if (!chosen)
    return in("manifest.json", chosen.reason());
  const auto config_text = read_small(files, chosen->config, limits::image_document_bytes);
  if (!config_text)
    return in("the configuration", config_text.reason());
  // It is called by its digest: "<64 digits>.json" or "blobs/sha256/<64 digits>".
  const auto digest = digest_of(*config_text);
  const auto digits = digest.substr(digest.find(':') + 1);
  auto name = chosen->config.substr(chosen->config.rfind('/') + 1);
  if (name.ends_with(".json"))
    name.resize(name.size() - 5);
  if (is_digest("sha256:" + name) && name != digits)
    return refused("the configuration " + chosen->config + ": its content has another digest");
  auto config = read_config(*config_text);
  if (!config)
    return in("the configuration " + chosen->config, config.reason());
  if (auto ok = check(*config, chosen->layers.size()); !ok)
    return ok.reason();

  image_source made{"docker", digest, std::move(*config), {}};
  for (std::size_t i = 0; i < chosen->layers.size(); ++i) {
    const auto& member = chosen->layers[i];
    const auto blob = files.find(member);
    if (!blob)
      return blob.reason();
    if (!*blob)
      return refused("the layer " + member + " is missing");
    made.layers.push_back({**blob, member, "", made.config.diff_ids[i]});
  }
  return made;
}

} // namespace

std::string machine_architecture() {
  utsname machine{};
  ::uname(&machine);
  const std::string name = machine.machine;
  return name == "x86_64" ? "amd64" : name == "aarch64" ? "arm64" : name == "i686" ? "386" : name;
}

result<image_source> open_image_source(const file_set& files, const std::string& tag) {
  const auto index = files.find("index.json");
  if (!index)
    return index.reason();
  if (*index) // Newer versions of docker write both.
    return from_layout(files, tag);
  const auto list = files.find("manifest.json");
  if (!list)
    return list.reason();
  if (*list)
    return from_docker(files, tag);
  return refused("it is neither an OCI layout (no index.json) nor what docker save writes (no "
                 "manifest.json)");
}

} // namespace insula::storage::images
