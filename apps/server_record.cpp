#include "apps/server_record.hpp"

#include "runtime/spawner/protocol.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char** environ;

namespace insula {

namespace {

namespace fs = std::filesystem;

constexpr char file_name[] = "insula-server-record";
constexpr int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
constexpr off_t most_bytes = 4 << 20; ///< Twice what the kernel passes to a program.

std::string proc_of(pid_t pid) {
  return "/proc/" + std::to_string(pid);
}

/// The 22nd field of its stat; those before the last ')' are two, of which one may be anything.
std::string start_of(pid_t pid) {
  std::ifstream file{proc_of(pid) + "/stat"};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  std::size_t at = text.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field)
    at = text.find(' ', at + 1);
  return at == std::string::npos ? "" : text.substr(at + 1, text.find(' ', at + 1) - at - 1);
}

/// Two files at different times have the same number, but not the same birth.
std::string identity_of_program(int file) {
  struct statx info {};
  if (::statx(file, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &info) != 0)
    return "";
  return std::to_string(info.stx_dev_major) + ':' + std::to_string(info.stx_dev_minor) + ' ' +
         std::to_string(info.stx_ino) + ' ' + std::to_string(info.stx_btime.tv_sec) + '.' +
         std::to_string(info.stx_btime.tv_nsec);
}

/// Each with a NUL behind it.
std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& each : words)
    text.append(each).push_back('\0');
  return text;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t end = 0; (end = text.find('\0')) != std::string_view::npos;
       text.remove_prefix(end + 1))
    words.emplace_back(text.substr(0, end));
  return words;
}

error failed(const std::string& what) {
  return {errc::io_failed, what + ": " + std::strerror(errno)};
}

/// Written by root and by nobody since.
bool is_record(int file) {
  struct stat info {};
  const int has = ::fcntl(file, F_GET_SEALS); // -1: a file that can have none.
  return has >= 0 && (has & seals) == seals && ::fstat(file, &info) == 0 && info.st_uid == 0 &&
         info.st_size <= most_bytes;
}

std::string content_of(int file) {
  struct stat info {};
  ::fstat(file, &info);
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  if (::pread(file, text.data(), text.size(), 0) != info.st_size)
    text.clear();
  return text;
}

/// First all that is one word, then the arguments' number, the arguments and the environment.
std::string text_of(const server_record& record) {
  return joined({std::to_string(record.pid), std::to_string(record.protocol), record.started,
                 record.program, record.state, record.directory,
                 std::to_string(record.arguments.size())}) +
         joined(record.arguments) + joined(record.environment);
}

bool parse(std::string_view text, server_record& record) {
  auto words = split(text);
  constexpr std::size_t first = 7;
  std::size_t count = 0;
  const auto read = [](const std::string& word, auto& number) {
    return std::from_chars(word.data(), word.data() + word.size(), number).ec == std::errc{};
  };
  if (words.size() < first || !read(words[0], record.pid) || !read(words[1], record.protocol) ||
      !read(words[6], count) || count == 0 || count > words.size() - first)
    return false;
  record.started = words[2];
  record.program = words[3];
  record.state = words[4];
  record.directory = words[5];
  const auto arguments = words.begin() + first;
  const auto environment = arguments + static_cast<std::ptrdiff_t>(count);
  record.arguments.assign(arguments, environment);
  record.environment.assign(environment, words.end());
  return true;
}

} // namespace

result<unique_fd> publish_server_record(const std::string& state) {
  server_record record;
  record.pid = ::getpid();
  record.protocol = runtime::spawner::version;
  record.started = start_of(record.pid);
  const unique_fd program{::open("/proc/self/exe", O_PATH | O_CLOEXEC)};
  record.program = identity_of_program(program.get());
  record.state = state;
  std::error_code refused;
  record.directory = fs::current_path(refused).string();
  std::ifstream arguments{"/proc/self/cmdline", std::ios::binary};
  record.arguments = split(std::string{std::istreambuf_iterator<char>{arguments}, {}});
  for (char** each = environ; *each != nullptr; ++each)
    record.environment.emplace_back(*each);
  const auto text = text_of(record);
  unique_fd file{::memfd_create(file_name, MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fcntl(file.get(), F_ADD_SEALS, seals) != 0)
    return failed("keeping how the server was started");
  return file;
}

result<server_record> find_server_record(pid_t pid, int process, int program) {
  const auto name = "/memfd:" + std::string{file_name} + " (deleted)";
  std::error_code refused;
  for (const auto& each : fs::directory_iterator{proc_of(pid) + "/fd", refused}) {
    std::error_code gone;
    if (fs::read_symlink(each.path(), gone).string() != name)
      continue;
    int number = -1;
    const auto digits = each.path().filename().string();
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const unique_fd file{static_cast<int>(::syscall(SYS_pidfd_getfd, process, number, 0))};
    server_record record;
    if (file && is_record(file.get()) && parse(content_of(file.get()), record) &&
        record.pid == pid && record.started == start_of(pid) &&
        record.program == identity_of_program(program))
      return record;
  }
  return error{errc::not_found,
               "process " + std::to_string(pid) + " is not a server that can be replaced"};
}

} // namespace insula
