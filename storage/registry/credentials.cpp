#include "storage/registry/credentials.hpp"

#include "base/unique_fd.hpp"
#include "storage/images/json.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <openssl/evp.h>
#include <optional>
#include <unistd.h>

namespace insula::storage::registry {

namespace {

using images::member;
using images::text_of;

constexpr std::size_t largest_file = 1u << 20;

/// None: it is not base64.
std::optional<std::string> decoded(std::string text) {
  constexpr std::string_view blank = "\r\n\t ";
  while (!text.empty() && blank.find(text.back()) != blank.npos)
    text.pop_back();
  if (text.size() % 4 != 0) // Some leave out the end.
    text.append(4 - text.size() % 4, '=');
  const auto padding = text.size() - (text.find_last_not_of('=') + 1);
  if (text.empty() || padding > 2)
    return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int count = ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                      reinterpret_cast<const unsigned char*>(text.data()),
                                      static_cast<int>(text.size()));
  if (count != static_cast<int>(bytes.size()))
    return std::nullopt;
  bytes.resize(bytes.size() - padding);
  return bytes;
}

/// "https://index.docker.io/v1/" is docker.io: how docker wrote it down in its first years.
std::string host_and_path(std::string_view key) {
  bool address = false;
  for (const std::string_view scheme : {"https://", "http://"})
    if (key.starts_with(scheme)) {
      key.remove_prefix(scheme.size());
      address = true;
    }
  auto host = std::string{key.substr(0, key.find('/'))};
  std::transform(host.begin(), host.end(), host.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  auto path = std::string{address ? std::string_view{} : key.substr(host.size())};
  while (path.ends_with('/'))
    path.pop_back();
  if (host == "index.docker.io" || host == "registry-1.docker.io")
    host = "docker.io";
  if (path == "/v1" || path == "/v2")
    path.clear();
  return host + path;
}

error refused(const std::string& why) {
  return {errc::invalid_request, why};
}

result<login> read_login(const std::string& host, const rapidjson::Value& from) {
  login made{text_of(from, "username"), text_of(from, "password"), text_of(from, "identitytoken")};
  if (const auto packed = text_of(from, "auth"); !packed.empty()) {
    const auto plain = decoded(packed);
    const auto colon = plain ? plain->find(':') : std::string::npos;
    if (colon == std::string::npos || colon == 0)
      return refused("the entry of " + host +
                     " in auths has an \"auth\" that is not the base64 "
                     "of USER:PASSWORD");
    made.user = plain->substr(0, colon);
    made.password = plain->substr(colon + 1);
    // Docker's own end of a text that was padded.
    made.password.resize(made.password.find_last_not_of('\0') + 1);
  }
  if (made.user.find(':') != std::string::npos)
    return refused("the entry of " + host + " in auths has a name with a ':'");
  return made;
}

/// None with errno ENOENT: there is no such file.
std::optional<std::string> content_of(const std::string& path) {
  const unique_fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!file)
    return std::nullopt;
  std::string text;
  std::array<char, 16 * 1024> piece;
  ssize_t n = 0;
  while ((n = ::read(file.get(), piece.data(), piece.size())) > 0) {
    text.append(piece.data(), static_cast<std::size_t>(n));
    if (text.size() > largest_file) {
      errno = EFBIG;
      return std::nullopt;
    }
  }
  return n < 0 ? std::nullopt : std::optional{text};
}

} // namespace

std::string login::basic() const {
  const auto plain = user + ":" + password;
  std::string made(4 * ((plain.size() + 2) / 3) + 1, '\0');
  const int count = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(made.data()),
                                      reinterpret_cast<const unsigned char*>(plain.data()),
                                      static_cast<int>(plain.size()));
  made.resize(static_cast<std::size_t>(count));
  return made;
}

result<credentials> credentials::read(std::string_view json) {
  const auto text = images::parse_json(json);
  if (!text)
    return text.reason();
  if (!text->IsObject())
    return refused("it is no object");
  credentials made;
  if (const auto* auths = member(*text, "auths"); auths != nullptr && !auths->IsNull()) {
    if (!auths->IsObject())
      return refused("its auths are no object");
    for (const auto& [key, value] : auths->GetObject()) {
      const auto where = host_and_path({key.GetString(), key.GetStringLength()});
      auto who = read_login(where, value);
      if (!who)
        return who.reason();
      // Of two ways to write one host, the one that says something counts.
      if (auto& kept = made.logins_[where]; kept.empty())
        kept = std::move(*who);
    }
  }
  if (const auto* helpers = member(*text, "credHelpers"); helpers != nullptr && helpers->IsObject())
    for (const auto& [key, value] : helpers->GetObject())
      if (value.IsString())
        made.helpers_[host_and_path({key.GetString(), key.GetStringLength()})] =
          std::string{value.GetString(), value.GetStringLength()};
  made.store_ = text_of(*text, "credsStore");
  return made;
}

credentials::found credentials::find(const image_reference& image) const {
  found made;
  for (auto name = image.name(); made.who.empty() && made.helper.empty();
       name.resize(name.rfind('/'))) {
    if (const auto at = helpers_.find(name); at != helpers_.end())
      made.helper = at->second;
    if (const auto at = logins_.find(name); at != logins_.end())
      made.who = at->second;
    if (name.find('/') == name.npos)
      break;
  }
  if (made.who.empty() && made.helper.empty())
    made.helper = store_;
  if (!made.who.empty())
    made.helper.clear();
  return made;
}

result<credentials> read_credentials(const std::map<std::string, std::string>& environment) {
  const auto variable = [&](const char* name) {
    const auto at = environment.find(name);
    return at == environment.end() ? std::string{} : at->second;
  };
  auto path = variable("REGISTRY_AUTH_FILE");
  const bool named = !path.empty();
  if (!named) {
    auto directory = variable("DOCKER_CONFIG");
    if (directory.empty() && !variable("HOME").empty())
      directory = variable("HOME") + "/.docker";
    if (directory.empty())
      return credentials{};
    path = directory + "/config.json";
  }
  const auto text = content_of(path);
  if (!text && !named && (errno == ENOENT || errno == ENOTDIR))
    return credentials{};
  if (!text)
    return error{errc::io_failed, path + ": " + std::strerror(errno)};
  auto made = credentials::read(*text);
  if (!made)
    return error{made.reason().code, path + ": " + made.reason().message};
  return made;
}

} // namespace insula::storage::registry
