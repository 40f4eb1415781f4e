#include "storage/blobs/s3_blobs.hpp"

#include "base/limits.hpp"
#include "storage/curl_library.hpp"
#include "storage/images/digest.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <ctime>
#include <optional>
#include <thread>

namespace insula::storage {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t idle_handles = 8;
/// Of a list of a thousand names, and of what a service says about an error.
constexpr std::size_t document_bytes = 4u << 20;
constexpr std::size_t reason_document_bytes = 64u << 10;
constexpr std::size_t reason_bytes = 300;

/// As AWS's signatures want it, a '/' included unless it is one of a path.
std::string encoded(std::string_view text, bool path) {
  constexpr std::string_view plain =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string url;
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (plain.find(each) != plain.npos || (path && each == '/'))
      url += each;
    else
      url.append({'%', digits[byte >> 4u], digits[byte & 15u]});
  }
  return url;
}

std::string unescaped(std::string_view text) {
  constexpr std::pair<std::string_view, char> known[] = {
    {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
  std::string plain;
  while (!text.empty()) {
    const auto* const found = std::find_if(std::begin(known), std::end(known),
                                           [&](auto& one) { return text.starts_with(one.first); });
    plain += found == std::end(known) ? text.front() : found->second;
    text.remove_prefix(found == std::end(known) ? 1 : found->first.size());
  }
  return plain;
}

/// What stands in the first <name> of `xml` from `at` on, which is moved behind it.
std::optional<std::string> element(std::string_view xml, const std::string& name, std::size_t& at) {
  const auto begin = "<" + name + ">", end = "</" + name + ">";
  const auto from = xml.find(begin, at);
  const auto to = from == xml.npos ? from : xml.find(end, from);
  if (to == xml.npos)
    return std::nullopt;
  at = to + end.size();
  return unescaped(xml.substr(from + begin.size(), to - from - begin.size()));
}

std::optional<std::string> element(std::string_view xml, const std::string& name) {
  std::size_t at = 0;
  return element(xml, name, at);
}

/// 2026-05-01T10:00:00.000Z
std::int64_t unix_ms(const std::string& text) {
  std::tm parts{};
  const char* const rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr)
    return 0;
  int ms = 0;
  if (*rest == '.')
    std::from_chars(rest + 1, text.data() + std::min<std::size_t>(text.size(), 23), ms);
  return std::int64_t{::timegm(&parts)} * 1000 + ms;
}

/// No control characters of somebody else's get into a log.
std::string printable(std::string text) {
  text.resize(std::min(text.size(), reason_bytes));
  std::replace_if(
    text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

const error closing{errc::sandbox_not_running, "the node is going down"};

} // namespace

struct s3_blobs::request {
  const char* method;
  std::string path;       ///< Below the bucket, with a slash; encoded.
  std::string query = {}; ///< Encoded, in the order in which it is signed: by name.
  std::string_view body = {};
  std::size_t max_bytes = document_bytes;
};

struct s3_blobs::answer {
  long status = 0;
  std::string body;
  bool too_large = false;
};

/// One of libcurl's, for one request at a time.
class s3_blobs::handle {
public:
  handle()
      : easy_(::curl_easy_init()) {}
  ~handle() { ::curl_easy_cleanup(easy_); }
  handle(const handle&) = delete;
  handle& operator=(const handle&) = delete;

  CURL* get() const { return easy_; }

private:
  CURL* const easy_;
};

s3_blobs::s3_blobs(s3_settings settings)
    : settings_(std::move(settings)) {
  begin_curl();
}

s3_blobs::~s3_blobs() = default;

namespace {

struct transfer {
  std::string_view body; ///< What is left of it.
  std::string taken;
  std::size_t max_bytes;
  bool too_large = false;
  const std::atomic<bool>* closed;
};

std::size_t give(char* into, std::size_t size, std::size_t count, void* self) {
  auto& body = static_cast<transfer*>(self)->body;
  const auto n = std::min(size * count, body.size());
  std::memcpy(into, body.data(), n);
  body.remove_prefix(n);
  return n;
}

std::size_t take(char* bytes, std::size_t size, std::size_t count, void* self) {
  auto& mine = *static_cast<transfer*>(self);
  if (mine.taken.size() + size * count > mine.max_bytes) {
    mine.too_large = true;
    return 0;
  }
  mine.taken.append(bytes, size * count);
  return size * count;
}

int look(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return *static_cast<transfer*>(self)->closed ? 1 : 0;
}

struct free_list {
  void operator()(curl_slist* each) const { ::curl_slist_free_all(each); }
};

} // namespace

result<s3_blobs::answer> s3_blobs::try_once(const request& wanted, bool& may_pass) {
  may_pass = false;
  std::unique_ptr<handle> mine;
  {
    const std::lock_guard hold{guard_};
    if (!idle_.empty()) {
      mine = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!mine)
    mine = std::make_unique<handle>();
  CURL* const easy = mine->get();
  if (easy == nullptr)
    return error{errc::store_failed, "libcurl has no memory"};

  transfer data{
    wanted.body, {}, std::max(wanted.max_bytes, reason_document_bytes), false, &closed_};
  const auto url = settings_.endpoint + "/" + settings_.bucket + wanted.path +
                   (wanted.query.empty() ? "" : "?" + wanted.query);
  const auto provider = "aws:amz:" + settings_.region + ":s3";
  // What is sent is signed, so that nobody on the way can change it.
  const auto digest = images::digest_of(wanted.body).substr(sizeof "sha256:" - 1);
  std::unique_ptr<curl_slist, free_list> fields;
  for (const auto& each : {"x-amz-content-sha256: " + digest, std::string{"Expect:"}})
    fields.reset(::curl_slist_append(fields.release(), each.c_str()));
  const auto set = [easy](CURLoption option, auto value) {
    ::curl_easy_setopt(easy, option, value);
  };
  std::array<char, CURL_ERROR_SIZE> why{};
  set(CURLOPT_ERRORBUFFER, why.data());
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_NOPROXY, "*");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_AWS_SIGV4, provider.c_str());
  set(CURLOPT_USERNAME, settings_.credentials.access_key_id.c_str());
  set(CURLOPT_PASSWORD, settings_.credentials.secret_access_key.c_str());
  set(CURLOPT_HTTPHEADER, fields.get());
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(settings_.connect_patience.count()));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(settings_.request_patience.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME,
      static_cast<long>(std::max<std::int64_t>(1, settings_.silence_patience / 1s)));
  set(CURLOPT_WRITEFUNCTION, &take);
  set(CURLOPT_WRITEDATA, &data);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &look);
  set(CURLOPT_XFERINFODATA, &data);
  const std::string_view method = wanted.method;
  if (method == "PUT") {
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_READFUNCTION, &give);
    set(CURLOPT_READDATA, &data);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(wanted.body.size()));
  } else if (method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (method != "GET") {
    set(CURLOPT_CUSTOMREQUEST, wanted.method);
  }
  const auto ended = ::curl_easy_perform(easy);
  answer said;
  ::curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &said.status);
  // Its connections stay; the secret goes, and whatever points into this call.
  ::curl_easy_reset(easy);
  said.body = std::move(data.taken);
  said.too_large = data.too_large || said.body.size() > wanted.max_bytes;
  if (closed_)
    return closing;
  if (ended != CURLE_OK && !data.too_large) {
    may_pass = ended != CURLE_PEER_FAILED_VERIFICATION && ended != CURLE_URL_MALFORMAT &&
               ended != CURLE_SSL_CACERT_BADFILE;
    return error{errc::store_failed,
                 settings_.endpoint + ": " +
                   (why.front() == '\0' ? ::curl_easy_strerror(ended) : printable(why.data()))};
  }
  may_pass = said.status == 429 || said.status >= 500;
  if (ended == CURLE_OK) {
    const std::lock_guard hold{guard_};
    if (idle_.size() < idle_handles)
      idle_.push_back(std::move(mine));
  }
  return said;
}

/// False: it is closed.
bool s3_blobs::pause(std::chrono::milliseconds how_long) const {
  const auto until = std::chrono::steady_clock::now() + how_long;
  while (!closed_ && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(how_long, 50ms));
  return !closed_;
}

result<s3_blobs::answer> s3_blobs::ask(const request& wanted) {
  auto how_long = settings_.first_pause;
  for (unsigned attempt = 1;; ++attempt) {
    if (closed_)
      return closing;
    bool may_pass = false;
    auto said = try_once(wanted, may_pass);
    if (!may_pass || attempt >= settings_.tries || !pause(how_long))
      return said;
    how_long *= 2;
  }
}

error s3_blobs::refused(const request& wanted, const answer& said) const {
  const auto code = element(said.body, "Code"), message = element(said.body, "Message");
  return {errc::store_failed, settings_.endpoint + ": " + wanted.method + " in bucket " +
                                settings_.bucket + ": " + std::to_string(said.status) +
                                (code ? " " + printable(*code) : "") +
                                (message ? ": " + printable(*message) : "")};
}

result<void> s3_blobs::put(const std::string& name, std::string_view bytes) {
  if (!is_blob_name(name) || bytes.size() > limits::blob_bytes)
    return error{errc::invalid_request, "a malformed name of a blob, or one that is too large"};
  const request wanted{"PUT", "/" + encoded(name, true), {}, bytes};
  const auto said = ask(wanted);
  if (!said)
    return said.reason();
  if (said->status != 200)
    return refused(wanted, *said);
  return {};
}

result<std::string> s3_blobs::get(const std::string& name, std::size_t max_bytes) {
  if (!is_blob_name(name))
    return error{errc::invalid_request, "a malformed name of a blob"};
  const auto most = std::min(max_bytes, limits::blob_bytes);
  const request wanted{"GET", "/" + encoded(name, true), {}, {}, most};
  auto said = ask(wanted);
  if (!said)
    return said.reason();
  // A bucket that is not there answers 404 as well, and is no reason to believe in an empty one.
  if (said->status == 404 && element(said->body, "Code").value_or("") != "NoSuchBucket")
    return error{errc::not_found, "there is no " + name};
  if (said->too_large && said->status == 200)
    return error{errc::payload_too_large, name + " is too large"};
  if (said->status != 200)
    return refused(wanted, *said);
  return std::move(said->body);
}

result<bool> s3_blobs::exists(const std::string& name) {
  if (!is_blob_name(name))
    return error{errc::invalid_request, "a malformed name of a blob"};
  const request wanted{"HEAD", "/" + encoded(name, true)};
  const auto said = ask(wanted);
  if (!said)
    return said.reason();
  if (said->status == 200 || said->status == 404)
    return said->status == 200;
  return refused(wanted, *said);
}

result<void> s3_blobs::remove(const std::string& name) {
  if (!is_blob_name(name))
    return error{errc::invalid_request, "a malformed name of a blob"};
  const request wanted{"DELETE", "/" + encoded(name, true)};
  const auto said = ask(wanted);
  if (!said)
    return said.reason();
  const bool gone =
    said->status == 404 && element(said->body, "Code").value_or("") != "NoSuchBucket";
  if (said->status != 204 && said->status != 200 && !gone)
    return refused(wanted, *said);
  return {};
}

result<void> s3_blobs::list(const std::string& prefix,
                            const std::function<bool(const blob_info&)>& tell) {
  std::string last;
  while (true) {
    // In the order of the names, in which they are signed.
    const request wanted{"GET", "/",
                         "list-type=2&prefix=" + encoded(prefix, false) +
                           (last.empty() ? "" : "&start-after=" + encoded(last, false))};
    const auto said = ask(wanted);
    if (!said)
      return said.reason();
    if (said->status != 200 || said->too_large)
      return refused(wanted, *said);
    std::size_t at = 0;
    const auto before = last;
    while (const auto contents = element(said->body, "Contents", at)) {
      blob_info each;
      each.name = element(*contents, "Key").value_or("");
      each.modified_ms = unix_ms(element(*contents, "LastModified").value_or(""));
      const auto size = element(*contents, "Size").value_or("0");
      std::from_chars(size.data(), size.data() + size.size(), each.bytes);
      last = std::max(last, each.name);
      if (each.name.starts_with(prefix) && is_blob_name(each.name) && !tell(each))
        return {};
    }
    if (element(said->body, "IsTruncated").value_or("false") != "true")
      return {};
    if (last == before)
      return error{errc::store_failed, settings_.endpoint + ": a list that does not go on"};
  }
}

} // namespace insula::storage
