#include "actors/sandbox/image_choice.hpp"

#include "actors/record_keys.hpp"

namespace insula::actors::inside_sandbox {

namespace {

std::string text_in(const core& of, const char* key) {
  const auto* text = of.record().find(key);
  return text == nullptr ? std::string{} : *text;
}

/// "docker.io/library/debian:12" -> "docker.io/library/debian"
std::string repository_of(const std::string& reference) {
  const auto whole = reference.substr(0, reference.find('@'));
  const auto colon = whole.rfind(':');
  return colon == std::string::npos || whole.find('/', colon) != std::string::npos
           ? whole
           : whole.substr(0, colon);
}

} // namespace

image_choice image_of(const core& of, const request_context& first) {
  if (auto name = text_in(of, image_key); !name.empty())
    return {std::move(name), text_in(of, image_source_key)};
  if (of.exists())
    return {of.options().image_name, {}};
  if (auto asked = text_in(of, image_asked_key); !asked.empty())
    return {std::move(asked), {}};
  return {first.image.empty() ? of.options().image_name : first.image, {}};
}

bool has_bytes_of(const image_choice& wanted, const sandbox_image& image) {
  return wanted.source.empty() || wanted.source.ends_with("@" + image.digest);
}

std::string source_of(const sandbox_image& image) {
  if (image.reference.empty() || image.digest.empty())
    return {};
  return repository_of(image.reference) + "@" + image.digest;
}

std::optional<error> image_mismatch(const core& of, const std::string& asked) {
  const auto was_asked = text_in(of, image_asked_key), name = text_in(of, image_key);
  if (asked.empty() || asked == was_asked || asked == name)
    return std::nullopt;
  const auto& has = !was_asked.empty() ? was_asked : name.empty() ? of.options().image_name : name;
  if (asked == has)
    return std::nullopt;
  return error{errc::sandbox_mismatch, "the sandbox is made from the image " + has + ", not " +
                                         asked + ": that is settled when it is made"};
}

} // namespace insula::actors::inside_sandbox
