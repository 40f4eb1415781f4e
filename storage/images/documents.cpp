#include "storage/images/documents.hpp"

#include "base/limits.hpp"
#include "storage/images/digest.hpp"
#include "storage/images/json.hpp"

#include <algorithm>

namespace insula::storage::images {

namespace {

using rapidjson::Value;

error refused(std::string why) {
  return {errc::invalid_request, std::move(why)};
}

result<descriptor> read_descriptor(const Value& from) {
  descriptor made;
  made.media_type = text_of(from, "mediaType");
  made.digest = text_of(from, "digest");
  const auto* size = member(from, "size");
  if (!is_digest(made.digest) || size == nullptr || !size->IsUint64())
    return refused("a descriptor without a good digest and size");
  made.size = size->GetUint64();
  if (const auto* platform = member(from, "platform")) {
    made.os = text_of(*platform, "os");
    made.architecture = text_of(*platform, "architecture");
    made.variant = text_of(*platform, "variant");
  }
  if (const auto* notes = member(from, "annotations"))
    made.name = text_of(*notes, "org.opencontainers.image.ref.name");
  return made;
}

result<std::vector<descriptor>> read_descriptors(const Value& from, const char* name,
                                                 std::size_t most) {
  const auto* list = member(from, name);
  if (list == nullptr || !list->IsArray())
    return refused(std::string{"there is no list of "} + name);
  if (list->Size() > most)
    return refused("more than " + std::to_string(most) + " " + name);
  std::vector<descriptor> all;
  for (const auto& each : list->GetArray()) {
    auto one = read_descriptor(each);
    if (!one)
      return one.reason();
    all.push_back(std::move(*one));
  }
  return all;
}

bool has_nul(const std::string& text) {
  return text.find('\0') != std::string::npos;
}

/// A command is handed its environment as texts with a NUL behind each: one inside would make two
/// of it.
std::optional<std::string> malformed(const image_settings& all) {
  std::size_t bytes = 0;
  for (const auto& each : all.env) {
    const auto sign = each.find('=');
    if (sign == 0 || sign == std::string::npos || has_nul(each))
      return "an environment variable that is not NAME=value";
    bytes += each.size() + 1;
  }
  if (bytes > limits::image_environment_bytes)
    return "an environment of more than " + std::to_string(limits::image_environment_bytes) +
           " bytes";
  if (has_nul(all.user) || has_nul(all.working_directory) ||
      std::any_of(all.entrypoint.begin(), all.entrypoint.end(), has_nul) ||
      std::any_of(all.command.begin(), all.command.end(), has_nul))
    return "a text with a NUL in it";
  return std::nullopt;
}

} // namespace

bool is_index(std::string_view media_type) {
  return media_type == "application/vnd.oci.image.index.v1+json" ||
         media_type == "application/vnd.docker.distribution.manifest.list.v2+json";
}

result<oci_index> read_index(std::string_view json) {
  const auto text = parse_json(json);
  if (!text)
    return text.reason();
  constexpr std::size_t most = 4096; // Tags and platforms of one image.
  auto manifests = read_descriptors(*text, "manifests", most);
  if (!manifests)
    return manifests.reason();
  return oci_index{std::move(*manifests)};
}

result<oci_manifest> read_manifest(std::string_view json) {
  const auto text = parse_json(json);
  if (!text)
    return text.reason();
  if (number_of(*text, "schemaVersion") != 2)
    return refused("its schemaVersion is not 2");
  const auto* described = member(*text, "config");
  if (described == nullptr)
    return refused("it names no configuration");
  auto config = read_descriptor(*described);
  if (!config)
    return config.reason();
  auto layers = read_descriptors(*text, "layers", limits::image_layers);
  if (!layers)
    return layers.reason();
  return oci_manifest{std::move(*config), std::move(*layers)};
}

result<oci_config> read_config(std::string_view json) {
  const auto text = parse_json(json);
  if (!text)
    return text.reason();
  oci_config made;
  made.os = text_of(*text, "os");
  made.architecture = text_of(*text, "architecture");
  const auto* tree = member(*text, "rootfs");
  auto diff_ids = tree == nullptr ? std::nullopt : texts_of(*tree, "diff_ids");
  if (!diff_ids || !std::all_of(diff_ids->begin(), diff_ids->end(), is_digest))
    return refused("it has no good list of rootfs.diff_ids");
  made.diff_ids = std::move(*diff_ids);
  if (const auto* run = member(*text, "config"); run != nullptr && !run->IsNull()) {
    auto env = texts_of(*run, "Env"), entrypoint = texts_of(*run, "Entrypoint"),
         command = texts_of(*run, "Cmd");
    if (!env || !entrypoint || !command)
      return refused("its Env, Entrypoint and Cmd are not lists of texts");
    made.settings = {std::move(*env), text_of(*run, "User"), text_of(*run, "WorkingDir"),
                     std::move(*entrypoint), std::move(*command)};
  }
  if (const auto wrong = malformed(made.settings))
    return refused("it has " + *wrong);
  return made;
}

result<std::vector<docker_image>> read_docker_images(std::string_view json) {
  const auto text = parse_json(json);
  if (!text)
    return text.reason();
  if (!text->IsArray())
    return refused("it is not a list of images");
  std::vector<docker_image> all;
  for (const auto& each : text->GetArray()) {
    auto layers = texts_of(each, "Layers"), tags = texts_of(each, "RepoTags");
    auto config = text_of(each, "Config");
    if (!layers || !tags || config.empty() || layers->size() > limits::image_layers)
      return refused("an image in it has no good Config, Layers and RepoTags");
    all.push_back({std::move(config), std::move(*layers), std::move(*tags)});
  }
  return all;
}

} // namespace insula::storage::images
