#include "storage/images/image_record.hpp"

#include "storage/images/json.hpp"

#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>

namespace insula::storage::images {

namespace {

using writer = rapidjson::PrettyWriter<rapidjson::StringBuffer>;

void put(writer& to, const char* name, const std::string& text) {
  to.Key(name);
  to.String(text.data(), static_cast<rapidjson::SizeType>(text.size()));
}

void put(writer& to, const char* name, const std::vector<std::string>& texts) {
  to.Key(name);
  to.StartArray();
  for (const auto& each : texts)
    to.String(each.data(), static_cast<rapidjson::SizeType>(each.size()));
  to.EndArray();
}

void put(writer& to, const char* name, std::uint64_t number) {
  to.Key(name);
  to.Uint64(number);
}

void put(writer& to, const image_record& from) {
  to.StartObject();
  put(to, "name", from.name);
  put(to, "format", from.format);
  put(to, "digest", from.digest);
  if (!from.reference.empty())
    put(to, "reference", from.reference);
  if (from.by_node) {
    to.Key("by_node");
    to.Bool(true);
  }
  put(to, "base", from.base);
  put(to, "architecture", from.architecture);
  put(to, "created_ms", static_cast<std::uint64_t>(from.created_ms));
  if (from.used_ms > 0)
    put(to, "used_ms", static_cast<std::uint64_t>(from.used_ms));
  put(to, "size_bytes", from.size_bytes);
  put(to, "entries", from.entries);
  to.Key("sandbox");
  to.StartObject();
  put(to, "user", from.account.name);
  put(to, "home", from.account.home);
  put(to, "shell", from.account.shell);
  to.EndObject();
  to.Key("config");
  to.StartObject();
  put(to, "env", from.settings.env);
  put(to, "user", from.settings.user);
  put(to, "cwd", from.settings.working_directory);
  put(to, "entrypoint", from.settings.entrypoint);
  put(to, "command", from.settings.command);
  to.EndObject();
  to.EndObject();
}

} // namespace

bool is_image_name(std::string_view name) {
  constexpr std::string_view first = "abcdefghijklmnopqrstuvwxyz0123456789";
  constexpr std::string_view all = "abcdefghijklmnopqrstuvwxyz0123456789._-";
  constexpr std::size_t longest = 63;
  return !name.empty() && name.size() <= longest && first.find(name.front()) != first.npos &&
         name.find_first_not_of(all) == name.npos;
}

std::string to_json(const image_record& from) {
  rapidjson::StringBuffer text;
  writer to{text};
  to.SetIndent(' ', 2);
  put(to, from);
  return std::string{text.GetString(), text.GetSize()} + "\n";
}

std::string to_json(const std::vector<image_record>& all) {
  rapidjson::StringBuffer text;
  writer to{text};
  to.SetIndent(' ', 2);
  to.StartArray();
  for (const auto& each : all)
    put(to, each);
  to.EndArray();
  return std::string{text.GetString(), text.GetSize()} + "\n";
}

result<image_record> read_image_record(std::string_view json) {
  const auto text = parse_json(json);
  if (!text)
    return text.reason();
  image_record made;
  made.name = text_of(*text, "name");
  made.format = text_of(*text, "format");
  made.digest = text_of(*text, "digest");
  made.reference = text_of(*text, "reference");
  const auto* by_node = member(*text, "by_node");
  made.by_node = by_node != nullptr && by_node->IsTrue();
  made.base = text_of(*text, "base");
  made.architecture = text_of(*text, "architecture");
  made.created_ms = static_cast<std::int64_t>(number_of(*text, "created_ms"));
  made.used_ms = static_cast<std::int64_t>(number_of(*text, "used_ms"));
  made.size_bytes = number_of(*text, "size_bytes");
  made.entries = number_of(*text, "entries");
  const auto* account = member(*text, "sandbox");
  const auto* config = member(*text, "config");
  if (!is_image_name(made.name) || account == nullptr || config == nullptr)
    return error{errc::invalid_request, "it is no record of an image"};
  made.account = {text_of(*account, "user"), text_of(*account, "home"), text_of(*account, "shell")};
  auto env = texts_of(*config, "env"), entrypoint = texts_of(*config, "entrypoint"),
       command = texts_of(*config, "command");
  if (!env || !entrypoint || !command)
    return error{errc::invalid_request, "it is no record of an image"};
  made.settings = {std::move(*env), text_of(*config, "user"), text_of(*config, "cwd"),
                   std::move(*entrypoint), std::move(*command)};
  return made;
}

} // namespace insula::storage::images
