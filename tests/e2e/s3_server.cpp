#include "tests/e2e/s3_server.hpp"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <stdexcept>
#include <sys/wait.h>

namespace insula::test {

namespace {

using namespace std::chrono_literals;

constexpr auto patience = 60s;

/// Letters, digits and -._~ are as they are; the rest is %XX.
std::string encoded(const std::string& text) {
  constexpr std::string_view plain =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string url;
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (plain.find(each) != plain.npos)
      url += each;
    else
      url.append({'%', digits[byte >> 4u], digits[byte & 15u]});
  }
  return url;
}

/// What stands between the next <name> and its end, from `at` on, which is moved behind it.
std::optional<std::string> element(const std::string& xml, const std::string& name,
                                   std::size_t& at) {
  const auto begin = "<" + name + ">", end = "</" + name + ">";
  const auto from = xml.find(begin, at);
  if (from == std::string::npos)
    return std::nullopt;
  const auto to = xml.find(end, from);
  at = to + end.size();
  return xml.substr(from + begin.size(), to - from - begin.size());
}

} // namespace

const std::string s3_server::key = "INSULATESTKEY0000001";
const std::string s3_server::secret = "kept/Out+of=the/Sandbox0000000000000001/";

s3_server::s3_server(std::vector<std::string> buckets)
    : buckets_(std::move(buckets)) {
  start();
}

/// Its port may be that of somebody's connection for a moment.
void s3_server::start() {
  constexpr std::string_view taken = "EADDRINUSE";
  const auto until = std::chrono::steady_clock::now() + patience;
  for (auto why = try_to_start(); !why.empty(); why = try_to_start())
    if (why.find(taken) == std::string::npos || std::chrono::steady_clock::now() > until)
      throw std::runtime_error("s3rver did not get ready: " + why);
}

/// Why it does not serve; empty: it does.
std::string s3_server::try_to_start() {
  const std::string clients = INSULA_CLIENTS_DIR;
  std::vector<std::string> words{clients + "/node",
                                 clients + "/s3_server.mjs",
                                 files_.path().string(),
                                 std::to_string(port_),
                                 key,
                                 secret};
  words.insert(words.end(), buckets_.begin(), buckets_.end());
  const auto log = (files_ / "log").string();
  program_ = std::make_unique<child_program>(words, child_program::options{.error_file = log});
  const auto line = program_->read_line(patience);
  const std::string ready = "ready on ";
  if (!line || !line->starts_with(ready)) {
    std::ifstream file{log};
    std::string why{std::istreambuf_iterator<char>{file}, {}};
    return why.empty() ? "it says nothing" : why;
  }
  port_ = static_cast<std::uint16_t>(std::stoi(line->substr(ready.size())));
  return {};
}

void s3_server::stop() const {
  program_->signal(SIGSTOP);
  int status = 0; // It stands still when this returns.
  if (::waitpid(pid(), &status, WUNTRACED) != pid() || !WIFSTOPPED(status))
    throw std::runtime_error("s3rver does not stop");
}

void s3_server::resume() const {
  program_->signal(SIGCONT);
}

void s3_server::kill() {
  program_->signal(SIGKILL);
  if (!program_->wait(patience))
    throw std::runtime_error("s3rver does not end");
}

s3_client::answer s3_client::ask(const std::string& target, std::vector<std::string> words) const {
  const temp_dir there;
  const auto body = (there / "body").string();
  std::vector<std::string> argv{
    "curl",   "-sS", "--noproxy",   "*",
    "-m",     "60",  "--aws-sigv4", "aws:amz:us-east-1:s3",
    "--user", user_, "-H",          "x-amz-content-sha256: UNSIGNED-PAYLOAD",
    "-o",     body,  "-w",          "%{http_code}"};
  argv.insert(argv.end(), words.begin(), words.end());
  argv.push_back(at_ + target);
  answer got;
  got.status = std::stoi(output_of(argv));
  std::ifstream file{body, std::ios::binary};
  got.body.assign(std::istreambuf_iterator<char>{file}, {});
  return got;
}

std::string s3_client::path_of(const std::string& object) const {
  std::string path;
  for (std::size_t at = 0; at <= object.size();) {
    const auto end = std::min(object.find('/', at), object.size());
    path += "/" + encoded(object.substr(at, end - at));
    at = end + 1;
  }
  return path;
}

void s3_client::put(const std::string& object, const std::string& content) const {
  const temp_dir there;
  const auto file = (there / "content").string();
  std::ofstream{file, std::ios::binary} << content;
  if (const auto got = ask(path_of(object), {"-T", file}); got.status != 200)
    throw std::runtime_error("put " + object + ": " + got.body);
}

std::optional<std::string> s3_client::get(const std::string& object) const {
  auto got = ask(path_of(object));
  if (got.status == 404 && got.body.find("NoSuchKey") != std::string::npos)
    return std::nullopt;
  if (got.status != 200)
    throw std::runtime_error("get " + object + ": " + got.body);
  return std::move(got.body);
}

std::map<std::string, std::uint64_t> s3_client::list(const std::string& prefix) const {
  std::map<std::string, std::uint64_t> all;
  // A thousand are in one answer; the next one begins behind the last of them.
  for (std::string last, more = "true"; more == "true";) {
    // In the order of the names, in which they are signed.
    const auto got = ask("?list-type=2&prefix=" + encoded(prefix) +
                         (last.empty() ? "" : "&start-after=" + encoded(last)));
    if (got.status != 200)
      throw std::runtime_error("list: " + got.body);
    std::size_t at = 0;
    while (const auto object = element(got.body, "Key", at)) {
      last = *object;
      all[last] = std::stoull(element(got.body, "Size", at).value_or("0"));
    }
    at = 0;
    more = element(got.body, "IsTruncated", at).value_or("");
  }
  return all;
}

void s3_client::remove(const std::string& object) const {
  if (const auto got = ask(path_of(object), {"-X", "DELETE"}); got.status != 204)
    throw std::runtime_error("remove " + object + ": " + got.body);
}

} // namespace insula::test
