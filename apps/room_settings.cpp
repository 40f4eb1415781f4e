#include "apps/room_settings.hpp"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace insula {

namespace {

constexpr int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

error failed(const std::string& what) {
  return {errc::io_failed, what + ": " + std::strerror(errno)};
}

const error too_long{errc::payload_too_large,
                     "the settings of the process that brings images have more than " +
                       std::to_string(most_room_settings_bytes >> 20) + " MiB"};

/// Every value, in the order in which they stand in the file.
template <class Settings, class Values>
void go_through(Settings& how, Values& with) {
  auto& [directory, trusted, policy, least] = how;
  auto& [pull, allow, insecure, auth_file, max_bytes, keep_unused] = policy;
  with.text(directory);
  with.list(trusted.all, [&with](auto& each) {
    auto& [pem, hash] = each;
    with.text(pem);
    with.text(hash);
  });
  with.choice(pull, image_pull::always);
  for (auto* patterns : {&allow, &insecure})
    with.list(*patterns, [&with](auto& each) { with.text(each); });
  with.text(auth_file);
  with.number(max_bytes);
  with.time(keep_unused);
  with.choice(least, log::level::error);
}

/// Numbers have eight bytes, and texts and lists their length before them.
class values_out {
public:
  void number(std::uint64_t value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void time(std::chrono::milliseconds value) { number(static_cast<std::uint64_t>(value.count())); }
  template <class Choice>
  void choice(Choice value, Choice) {
    number(static_cast<std::uint64_t>(value));
  }
  void text(const std::string& value) {
    number(value.size());
    bytes += value;
  }
  template <class Value, class Each>
  void list(const std::vector<Value>& values, Each each) {
    number(values.size());
    for (const auto& value : values)
      each(value);
  }

  std::string bytes;
};

/// Behind the first value that is not good, all are empty and 0.
class values_in {
public:
  explicit values_in(std::string_view bytes)
      : left_(bytes) {}

  void number(std::uint64_t& value) {
    value = 0;
    if (const auto from = take(sizeof value); good_)
      std::memcpy(&value, from.data(), sizeof value);
  }
  void time(std::chrono::milliseconds& value) {
    std::uint64_t count = 0;
    number(count);
    value = std::chrono::milliseconds{static_cast<std::int64_t>(count)};
  }
  template <class Choice>
  void choice(Choice& value, Choice last) {
    std::uint64_t which = 0;
    number(which);
    good_ = good_ && which <= static_cast<std::uint64_t>(last);
    value = good_ ? static_cast<Choice>(which) : Choice{};
  }
  void text(std::string& value) {
    std::uint64_t size = 0;
    number(size);
    value = take(size);
  }
  template <class Value, class Each>
  void list(std::vector<Value>& values, Each each) {
    std::uint64_t count = 0;
    number(count);
    for (; good_ && count > 0; --count)
      each(values.emplace_back());
  }

  bool is_whole() const { return good_ && left_.empty(); }

private:
  std::string_view take(std::uint64_t size) {
    good_ = good_ && size <= left_.size();
    const auto taken = good_ ? left_.substr(0, size) : std::string_view{};
    left_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view left_;
  bool good_ = true;
};

} // namespace

result<unique_fd> keep_room_settings(const image_room::settings& how) {
  values_out out;
  go_through(how, out);
  const auto& bytes = out.bytes;
  if (bytes.size() > most_room_settings_bytes)
    return too_long;
  unique_fd file{::memfd_create("insula-room-settings", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!file ||
      ::write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()) ||
      ::fcntl(file.get(), F_ADD_SEALS, seals) != 0)
    return failed("keeping the settings of the process that brings images");
  return file;
}

result<image_room::settings> read_room_settings(int file) {
  struct stat info {};
  if (::fstat(file, &info) != 0)
    return failed("the settings of the process that brings images");
  const error wrong{errc::invalid_request,
                    "these are no settings of the process that brings images"};
  if (const int has = ::fcntl(file, F_GET_SEALS); has < 0 || (has & seals) != seals)
    return wrong;
  if (static_cast<std::uint64_t>(info.st_size) > most_room_settings_bytes)
    return too_long;
  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  if (::pread(file, bytes.data(), bytes.size(), 0) != info.st_size)
    return failed("the settings of the process that brings images");
  values_in in{bytes};
  image_room::settings how;
  go_through(how, in);
  if (!in.is_whole())
    return wrong;
  return how;
}

} // namespace insula
