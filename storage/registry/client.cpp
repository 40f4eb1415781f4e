#include "storage/registry/client.hpp"

#include "base/limits.hpp"
#include "base/printable.hpp"
#include "storage/curl_library.hpp"
#include "storage/images/digest.hpp"
#include "storage/images/json.hpp"
#include "storage/registry/challenge.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace insula::storage::registry {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t largest_refusal = 64u << 10;
constexpr std::size_t largest_token_answer = 1u << 20;
constexpr std::size_t longest_token = 64u << 10;
constexpr std::size_t largest_head = 256u << 10;
constexpr std::size_t shown_bytes = 300;
constexpr std::uint64_t real_progress = 1u << 20;
constexpr unsigned most_redirects = 5;
constexpr long slowest = 1024; ///< Bytes a second.
constexpr auto moment = 100ms; ///< As long as nobody looks whether all is cancelled.

constexpr const char* manifest_types = "Accept: application/vnd.oci.image.index.v1+json, "
                                       "application/vnd.oci.image.manifest.v1+json, "
                                       "application/vnd.docker.distribution.manifest.list.v2+json, "
                                       "application/vnd.docker.distribution.manifest.v2+json";

const error was_cancelled{errc::deadline_exceeded, "the pull was cancelled"};

/// The beginning of what somebody else says.
std::string shown(std::string words) {
  words.resize(std::min(words.size(), shown_bytes));
  return printable(std::move(words));
}

struct free_list {
  void operator()(curl_slist* each) const { ::curl_slist_free_all(each); }
};
using header_list = std::unique_ptr<curl_slist, free_list>;

void add(header_list& to, const std::string& line) {
  to.reset(::curl_slist_append(to.release(), line.c_str()));
}

/// One transfer at a time, and the connections that it leaves open for the next one.
class connection {
public:
  connection()
      : multi_(::curl_multi_init())
      , easy_(::curl_easy_init()) {}
  ~connection() {
    ::curl_easy_cleanup(easy_);
    ::curl_multi_cleanup(multi_);
  }
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  CURL* easy() const { return easy_; }

  /// None: it was cancelled.
  template <class Cancelled>
  std::optional<CURLcode> run(Cancelled cancelled) {
    if (::curl_multi_add_handle(multi_, easy_) != CURLM_OK)
      return CURLE_OUT_OF_MEMORY;
    std::optional<CURLcode> ended;
    int running = 1;
    bool stop = false;
    while (running > 0 && !(stop = cancelled())) {
      if (::curl_multi_perform(multi_, &running) != CURLM_OK) {
        ended = CURLE_OUT_OF_MEMORY;
        break;
      }
      if (running > 0)
        ::curl_multi_poll(multi_, nullptr, 0, static_cast<int>(moment / 1ms), nullptr);
    }
    int left = 0;
    while (const auto* said = ::curl_multi_info_read(multi_, &left))
      if (said->msg == CURLMSG_DONE && !stop)
        ended = said->data.result;
    ::curl_multi_remove_handle(multi_, easy_);
    return ended;
  }

private:
  CURLM* const multi_;
  CURL* const easy_;
};

struct address_parts {
  std::string scheme, host, port;

  bool operator==(const address_parts&) const = default;
};

std::optional<address_parts> parts_of(const std::string& url) {
  const std::unique_ptr<CURLU, decltype(&::curl_url_cleanup)> parsed{::curl_url(),
                                                                     ::curl_url_cleanup};
  if (!parsed || ::curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK)
    return std::nullopt;
  const auto part = [&](CURLUPart which) {
    char* text = nullptr;
    std::string made;
    if (::curl_url_get(parsed.get(), which, &text, CURLU_DEFAULT_PORT) == CURLUE_OK)
      made = text;
    ::curl_free(text);
    return made;
  };
  return address_parts{part(CURLUPART_SCHEME), part(CURLUPART_HOST), part(CURLUPART_PORT)};
}

std::string field_of(CURL* of, const char* name) {
  curl_header* found = nullptr;
  return ::curl_easy_header(of, name, 0, CURLH_HEADER, -1, &found) == CURLHE_OK ? found->value
                                                                                : std::string{};
}

/// All of that name, as one.
std::string fields_of(CURL* of, const char* name) {
  std::string all;
  curl_header* found = nullptr;
  for (std::size_t i = 0; ::curl_easy_header(of, name, i, CURLH_HEADER, -1, &found) == CURLHE_OK;
       ++i)
    all += (all.empty() ? "" : ", ") + std::string{found->value};
  return all;
}

std::string encoded(const std::string& text) {
  char* const made = ::curl_easy_escape(nullptr, text.data(), static_cast<int>(text.size()));
  std::string url = made != nullptr ? made : "";
  ::curl_free(made);
  return url;
}

/// "bytes 100-199/200" begins at 100. None: it says nothing that can be read.
std::optional<std::uint64_t> begin_of(const std::string& content_range) {
  unsigned long long begin = 0;
  if (std::sscanf(content_range.c_str(), "bytes %llu-", &begin) != 1)
    return std::nullopt;
  return begin;
}

struct request {
  std::string url;
  std::string accept = {};        ///< A whole line. Empty: anything.
  std::string form = {};          ///< Sent by POST, if there is one.
  std::string authorization = {}; ///< "Bearer …"
  std::size_t most = limits::image_document_bytes;
  blob_sink* into = nullptr; ///< For what comes with 200 or 206.
};

struct answer {
  long status = 0;               ///< 0: there was none.
  std::string broken;            ///< Why the answer is not whole. Empty: it is.
  bool speaks_otherwise = false; ///< Nobody listens there, or what listens speaks another protocol.
  std::optional<error> fatal;    ///< To ask again is no use.
  bool elsewhere = false;        ///< It is that of another host than the one that was asked.
  std::string body;              ///< But for what has gone into a sink.
  std::string type, digest, challenges, redirect;
  std::chrono::seconds retry_after{0};
};

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/// What the callbacks of one transfer share.
struct transfer {
  CURL* easy;
  const request& wanted;
  answer& said;
  std::uint64_t asked_from;
  std::size_t head_bytes = 0;
  bool begun = false; ///< The sink has been told where the bytes belong.

  bool stop(error why) {
    said.fatal = std::move(why);
    return false;
  }

  /// Where do the bytes that come now belong?
  bool begin() {
    begun = true;
    auto& into = *wanted.into;
    if (said.status == 206) {
      const auto at = begin_of(field_of(easy, "Content-Range"));
      if (at && *at == asked_from)
        return true;
      return stop({errc::invalid_request, "it answers with another part than was asked for"});
    }
    curl_off_t length = -1;
    ::curl_easy_getinfo(easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (length >= 0 && static_cast<std::uint64_t>(length) != into.whole_size())
      return stop({errc::invalid_request, "it sends " + std::to_string(length) +
                                            " bytes, and its manifest says " +
                                            std::to_string(into.whole_size())});
    if (asked_from == 0)
      return true;
    if (const auto ok = into.start_over(); !ok)
      return stop(ok.reason());
    return true;
  }

  bool take(const char* bytes, std::size_t count) {
    ::curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &said.status);
    if (wanted.into != nullptr && (said.status == 200 || said.status == 206)) {
      auto& into = *wanted.into;
      if (!begun && !begin())
        return false;
      if (count > into.whole_size() - into.size())
        return stop({errc::invalid_request, "it sends more than the " +
                                              std::to_string(into.whole_size()) +
                                              " bytes that its manifest says"});
      if (const auto ok = into.add(bytes, count); !ok)
        return stop(ok.reason());
      return true;
    }
    if (said.status < 200 || said.status > 299) { // Only words about it: cut where it gets long.
      said.body.append(bytes, std::min(count, largest_refusal - said.body.size()));
      return said.body.size() < largest_refusal;
    }
    if (said.body.size() + count > wanted.most)
      return stop({errc::payload_too_large,
                   "it sends a document of more than " + std::to_string(wanted.most) + " bytes"});
    said.body.append(bytes, count);
    return true;
  }

  static std::size_t take_body(char* bytes, std::size_t, std::size_t count, void* self) {
    return static_cast<transfer*>(self)->take(bytes, count) ? count : 0;
  }
  static std::size_t take_head(char*, std::size_t, std::size_t count, void* self) {
    auto& my = *static_cast<transfer*>(self);
    my.head_bytes += count;
    if (my.head_bytes <= largest_head)
      return count;
    my.stop({errc::payload_too_large, "it sends a header without an end"});
    return 0;
  }
};

} // namespace

std::string machine_authorities() {
  begin_curl();
  const char* named = std::getenv("SSL_CERT_FILE");
  const auto* about = ::curl_version_info(CURLVERSION_NOW);
  const char* usual = about->age >= CURLVERSION_SEVENTH ? about->cainfo : nullptr;
  for (const char* path :
       {named, usual, "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"}) {
    if (path == nullptr || *path == '\0')
      continue;
    std::ifstream file{path, std::ios::binary};
    std::string text{std::istreambuf_iterator<char>{file}, {}};
    if (!text.empty())
      return text;
  }
  return {};
}

class registry_client::core {
public:
  core(image_reference image, client_options options)
      : image_(std::move(image))
      , options_(std::move(options))
      // Its name is one for people.
      , machine_(image_.host == "docker.io" ? "registry-1.docker.io" : image_.host) {
    begin_curl();
  }

  result<document> manifest(const std::string& which) {
    if (auto ok = find_registry(); !ok)
      return ok.reason();
    request wanted{base_ + image_.repository + "/manifests/" + which, manifest_types};
    auto said = ask(wanted);
    if (!said)
      return said.reason();
    if (said->status != 200)
      return refusal(*said, which);
    document made{std::move(said->body), std::move(said->type), {}};
    const auto& expected = images::is_digest(which) ? which : said->digest;
    made.digest = images::digest_of(made.text, expected);
    if (images::is_digest(expected) && made.digest != expected)
      return from_here({errc::invalid_request, "the document that it sends for " + which +
                                                 " has another digest than " + expected});
    return made;
  }

  result<void> blob(const std::string& digest, blob_sink& into) {
    if (auto ok = find_registry(); !ok)
      return ok;
    request wanted{base_ + image_.repository + "/blobs/" + digest};
    wanted.into = &into;
    auto said = ask(wanted);
    constexpr long no_such_range = 416;
    if (said && said->status == no_such_range && into.size() > 0) {
      if (auto ok = into.start_over(); !ok)
        return ok;
      said = ask(wanted);
    }
    if (!said)
      return said.reason();
    if (said->status != 200 && said->status != 206)
      return refusal(*said, digest);
    return {};
  }

private:
  bool cancelled(const blob_sink* into = nullptr) const {
    return (options_.cancelled && options_.cancelled()) || (into != nullptr && into->unwanted());
  }

  error from_here(error why) const {
    if (why.code == errc::deadline_exceeded)
      return why;
    return {why.code, image_.host + ": " + why.message};
  }

  // ---- One request

  answer send(connection& on, const std::string& url, const std::string& authorization,
              const request& wanted) const {
    answer said;
    CURL* const easy = on.easy();
    const auto set = [easy](CURLoption option, auto value) {
      ::curl_easy_setopt(easy, option, value);
    };
    transfer now{easy, wanted, said, wanted.into == nullptr ? 0 : wanted.into->size()};
    std::array<char, CURL_ERROR_SIZE> why{};
    header_list lines;
    if (!wanted.accept.empty())
      add(lines, wanted.accept);
    if (!authorization.empty())
      add(lines, "Authorization: " + authorization);
    add(lines, "Expect:");
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_PATH_AS_IS, 1L);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_USERAGENT, "insula");
    set(CURLOPT_HTTPHEADER, lines.get());
    set(CURLOPT_ERRORBUFFER, why.data());
    set(CURLOPT_WRITEFUNCTION, &transfer::take_body);
    set(CURLOPT_WRITEDATA, &now);
    set(CURLOPT_HEADERFUNCTION, &transfer::take_head);
    set(CURLOPT_HEADERDATA, &now);
    set(CURLOPT_BUFFERSIZE, 256L << 10);
    set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(options_.connect_patience / 1s));
    set(CURLOPT_LOW_SPEED_LIMIT, slowest);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.silence_patience / 1s));
#if LIBCURL_VERSION_NUM >= 0x075700
    set(CURLOPT_QUICK_EXIT, 1L); // A name that is still looked up holds nobody up.
#endif
    if (const auto to = parts_of(url); to && is_loopback(to->host))
      set(CURLOPT_NOPROXY, "*");
    if (options_.insecure) {
      set(CURLOPT_SSL_VERIFYPEER, 0L);
      set(CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (!options_.authorities.empty()) {
      curl_blob lent{const_cast<char*>(options_.authorities.data()), options_.authorities.size(),
                     CURL_BLOB_NOCOPY};
      ::curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &lent);
    }
    if (wanted.into == nullptr)
      set(CURLOPT_TIMEOUT, static_cast<long>(options_.document_patience / 1s));
    if (!wanted.form.empty())
      set(CURLOPT_POSTFIELDS, wanted.form.c_str());
    const auto range = std::to_string(now.asked_from) + "-";
    if (now.asked_from > 0)
      set(CURLOPT_RANGE, range.c_str());

    const auto ended = on.run([&] { return cancelled(wanted.into); });
    ::curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &said.status);
    said.type = field_of(easy, "Content-Type");
    said.digest = field_of(easy, "Docker-Content-Digest");
    said.challenges = fields_of(easy, "WWW-Authenticate");
    curl_off_t wait = 0;
    ::curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &wait);
    said.retry_after = std::chrono::seconds{std::clamp<curl_off_t>(wait, 0, 1 << 30)};
    char* next = nullptr;
    if (is_redirect(said.status) &&
        ::curl_easy_getinfo(easy, CURLINFO_REDIRECT_URL, &next) == CURLE_OK && next != nullptr)
      said.redirect = next;
    // Its connections stay; the secret goes, and whatever points into this call.
    ::curl_easy_reset(easy);
    if (!ended)
      said.fatal = was_cancelled;
    if (said.fatal || ended == CURLE_OK)
      return said;
    // Of a refusal, what has come of its words is enough.
    if (ended == CURLE_WRITE_ERROR && said.status > 299)
      return said;
    said.broken = shown(why.front() == '\0' ? ::curl_easy_strerror(*ended) : why.data());
    said.speaks_otherwise = said.status == 0 && ended != CURLE_PEER_FAILED_VERIFICATION &&
                            ended != CURLE_OPERATION_TIMEDOUT;
    if (ended == CURLE_PEER_FAILED_VERIFICATION || ended == CURLE_SSL_CACERT_BADFILE)
      said.fatal =
        error{errc::invalid_request, "its certificate cannot be verified: " + said.broken};
    return said;
  }

  /// HTTP is for those who have chosen it.
  bool may_go_to(const address_parts& where) const {
    return where.scheme == "https" || (where.scheme == "http" && plain_);
  }

  answer follow(connection& on, const request& wanted) const {
    const auto first = parts_of(wanted.url);
    auto url = wanted.url, authorization = wanted.authorization;
    bool elsewhere = false;
    for (unsigned hops = 0; hops <= most_redirects; ++hops) {
      auto said = send(on, url, authorization, wanted);
      said.elsewhere = elsewhere;
      if (said.fatal || said.redirect.empty())
        return said;
      const auto next = parts_of(said.redirect);
      if (!next || !may_go_to(*next) || !wanted.form.empty()) {
        said.fatal = error{errc::invalid_request,
                           "it leads on to " + shown(said.redirect) + ", where nobody goes for it"};
        return said;
      }
      // Another host never hears who asks, and neither does one that it leads back to.
      if (!(next == first)) {
        elsewhere = true;
        authorization.clear();
      }
      url = said.redirect;
    }
    answer lost;
    lost.fatal = error{errc::invalid_request,
                       "it leads on more than " + std::to_string(most_redirects) + " times"};
    return lost;
  }

  class lent_connection {
  public:
    explicit lent_connection(core& of)
        : of_(of) {
      const std::lock_guard hold{of_.guard_};
      if (of_.idle_.empty())
        of_.idle_.push_back(std::make_unique<connection>());
      mine_ = std::move(of_.idle_.back());
      of_.idle_.pop_back();
    }
    ~lent_connection() {
      const std::lock_guard hold{of_.guard_};
      of_.idle_.push_back(std::move(mine_));
    }
    lent_connection(const lent_connection&) = delete;
    lent_connection& operator=(const lent_connection&) = delete;

    connection& operator*() const { return *mine_; }

  private:
    core& of_;
    std::unique_ptr<connection> mine_;
  };

  // ---- Again, where it may pass

  /// False: it was cancelled.
  bool pause(std::chrono::milliseconds how_long, const blob_sink* into) const {
    const auto until = std::chrono::steady_clock::now() + how_long;
    while (!cancelled(into) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(how_long, moment));
    return !cancelled(into);
  }

  static bool may_pass(const answer& said) {
    return !said.broken.empty() || said.status == 429 || said.status >= 500 ||
           // An address that was good for a time only: the registry gives another one.
           (said.elsewhere && (said.status == 401 || said.status == 403));
  }

  /// As often as it may help. `go` makes one try.
  template <class Try>
  result<answer> persevere(const blob_sink* into, Try go) {
    unsigned tries = 0;
    auto how_long = options_.first_pause;
    auto before = into == nullptr ? 0 : into->size();
    while (true) {
      if (cancelled(into))
        return was_cancelled;
      result<answer> said = go();
      if (!said)
        return said;
      if (said->fatal)
        return from_here(*said->fatal);
      const bool whole = into == nullptr || (said->status != 200 && said->status != 206) ||
                         into->size() == into->whole_size();
      if (said->broken.empty() && !whole)
        said->broken = "its answer ends after " + std::to_string(into->size()) + " of " +
                       std::to_string(into->whole_size()) + " bytes";
      if (!may_pass(*said))
        return said;
      if (into != nullptr && into->size() >= before + real_progress) {
        before = into->size();
        tries = 0;
        how_long = options_.first_pause;
      }
      if (said->retry_after > options_.longest_pause)
        return from_here({errc::limit_reached, "it answers " + std::to_string(said->status) +
                                                 " and wants to be asked again in " +
                                                 std::to_string(said->retry_after.count()) + " s"});
      if (++tries >= options_.tries)
        return said->broken.empty() ? said
                                    : result<answer>{from_here({errc::io_failed, said->broken})};
      const auto wait = said->retry_after > 0s ? std::chrono::milliseconds{said->retry_after}
                                               : std::min(how_long, options_.longest_pause);
      if (!pause(wait, into))
        return was_cancelled;
      how_long *= 2;
    }
  }

  result<answer> ask(request wanted) {
    const lent_connection on{*this};
    unsigned refused = 0;
    return persevere(wanted.into, [&]() -> result<answer> {
      while (true) {
        const auto before = wanted.into == nullptr ? 0 : wanted.into->size();
        const auto mine = permit();
        wanted.authorization = mine.text;
        auto said = follow(*on, wanted);
        if (wanted.into != nullptr && wanted.into->size() > before)
          refused = 0; // A permit may end while a large blob comes.
        if (said.status != 401 || said.elsewhere || said.fatal)
          return said;
        if (++refused > 2)
          return refusal(said, "");
        if (auto ok = authorize(said, mine, *on); !ok)
          return ok.reason();
      }
    });
  }

  // ---- Who asks

  struct permit_text {
    std::string text;
    unsigned number = 0;
  };

  permit_text permit() {
    const std::lock_guard hold{guard_};
    return permit_;
  }

  error refusal(const answer& said, const std::string& what) const {
    const auto words = said_of(said.body);
    if (said.status == 401 || said.status == 403) {
      const auto whom = options_.who.empty() ? std::string{} : options_.who.user;
      std::string why = whom.empty() ? "it gives " + image_.repository +
                                         " to nobody who has not logged in, or has no such image"
                                     : "it does not give " + image_.repository + " to " +
                                         shown(whom) + ", or has no such image";
      if (!options_.helper.empty())
        why += "; the login is with the program docker-credential-" + shown(options_.helper) +
               ", which is not run for it: use --username and --password-stdin";
      else if (whom.empty())
        why += "; --username and --password-stdin log in, and so does a config.json of docker's";
      return from_here({errc::unauthorized, why + words});
    }
    if (said.status == 404)
      return from_here({errc::not_found, "it has no " + image_.repository +
                                           (images::is_digest(what) ? "@" : ":") + what + words});
    if (said.status == 429)
      return from_here({errc::limit_reached, "it has had too many requests" + words});
    return from_here({errc::io_failed, "it answers " + std::to_string(said.status) + words});
  }

  /// What the registry says in its own words, behind a colon. Empty: nothing.
  static std::string said_of(const std::string& body) {
    const auto text = images::parse_json(body);
    const auto* all = text ? images::member(*text, "errors") : nullptr;
    if (all == nullptr || !all->IsArray() || all->Empty())
      return {};
    const auto words = shown(images::text_of((*all)[0], "message"));
    return words.empty() ? "" : " (\"" + words + "\")";
  }

  /// After a 401 to somebody who has asked with `used`.
  result<void> authorize(const answer& said, const permit_text& used, connection& on) {
    const std::lock_guard one{renewing_};
    if (permit().number != used.number)
      return {}; // Another thread has a new one.
    const auto all = read_challenges(said.challenges);
    const auto of = [&](const char* scheme) {
      return std::find_if(all.begin(), all.end(),
                          [&](const challenge& each) { return each.scheme == scheme; });
    };
    std::string fresh;
    if (const auto bearer = of("bearer"); bearer != all.end()) {
      auto token = token_for(*bearer, on);
      if (!token)
        return token.reason();
      fresh = "Bearer " + *token;
    } else if (of("basic") != all.end()) {
      if (options_.who.user.empty() || used.text.starts_with("Basic "))
        return refusal(said, "");
      fresh = "Basic " + options_.who.basic();
    } else {
      return refusal(said, "");
    }
    const std::lock_guard hold{guard_};
    permit_ = {std::move(fresh), used.number + 1};
    return {};
  }

  /// From the token service that the registry names. Source: the distribution project's token
  /// authentication specification, and its OAuth2 one for identity tokens.
  result<std::string> token_for(const challenge& from, connection& on) {
    const auto of = [&](const char* name) {
      const auto at = from.parameters.find(name);
      return at == from.parameters.end() ? std::string{} : at->second;
    };
    const auto realm = of("realm");
    const auto where = parts_of(realm);
    if (!where || where->host.empty() || !may_go_to(*where))
      return from_here({errc::invalid_request, "the token service that it names, \"" +
                                                 shown(realm) + "\", is no place to ask"});
    // What is needed, whatever the challenge would have.
    const auto query = "service=" + encoded(of("service")) +
                       "&scope=" + encoded("repository:" + image_.repository + ":pull");
    request wanted{realm};
    wanted.most = largest_token_answer;
    if (!options_.who.identity_token.empty())
      wanted.form = "grant_type=refresh_token&client_id=insula&" + query +
                    "&refresh_token=" + encoded(options_.who.identity_token);
    else
      wanted.url += (realm.find('?') == realm.npos ? "?" : "&") + query;
    if (!options_.who.user.empty() && options_.who.identity_token.empty())
      wanted.authorization = "Basic " + options_.who.basic();
    const auto said = persevere(nullptr, [&]() -> result<answer> { return follow(on, wanted); });
    if (!said)
      return error{said.reason().code, "asking for a token: " + said.reason().message};
    if (said->status != 200)
      return refusal(*said, "");
    const auto text = images::parse_json(said->body);
    auto token = text ? images::text_of(*text, "token") : std::string{};
    if (token.empty() && text)
      token = images::text_of(*text, "access_token");
    const auto plain = [](char c) { return c > ' ' && c <= '~'; };
    if (token.empty() || token.size() > longest_token ||
        !std::all_of(token.begin(), token.end(), plain))
      return from_here({errc::invalid_request, "the token service at " + shown(where->host) +
                                                 " answers without a good token"});
    return token;
  }

  // ---- How the registry is spoken to

  result<void> find_registry() {
    const std::lock_guard one{finding_};
    if (!base_.empty())
      return {};
    // On the way inside of this machine nobody listens, and each kind of server knows at once when
    // TLS is not meant. Elsewhere TLS is what one hopes for.
    const bool here = is_loopback(image_.host);
    std::vector<std::string> schemes{here ? "http" : "https"};
    if (here || options_.insecure)
      schemes.emplace_back(here ? "https" : "http");
    const lent_connection on{*this};
    std::string broken;
    const auto said = persevere(nullptr, [&]() -> result<answer> {
      answer last;
      for (const auto& scheme : schemes) {
        base_ = scheme + "://" + machine_ + "/v2/";
        plain_ = options_.insecure || scheme == "http";
        last = follow(*on, {base_});
        const bool is_other_kind = last.speaks_otherwise || (here && last.status == 400);
        if (last.fatal || !is_other_kind)
          break;
        if (broken.empty())
          broken = last.broken;
      }
      // Nobody is there: whoever has mistyped a name wants to hear of it at once.
      if (last.status == 0 && !last.fatal) {
        auto why = broken.empty() ? last.broken : broken;
        if (why.find("wrong version number") != why.npos) // OpenSSL's words.
          why += "; it may speak HTTP alone, which has to be allowed (--insecure)";
        last.fatal = error{errc::io_failed, std::move(why)};
      }
      return last;
    });
    if (!said || said->status == 429 || said->status >= 500) {
      base_.clear();
      return said ? refusal(*said, "") : said.reason();
    }
    return {};
  }

  const image_reference image_;
  const client_options options_;
  const std::string machine_;

  std::mutex finding_, renewing_;
  std::string base_;   ///< "https://host/v2/". Empty: not known yet.
  bool plain_ = false; ///< HTTP will do.

  std::mutex guard_;
  std::vector<std::unique_ptr<connection>> idle_;
  permit_text permit_;
};

registry_client::registry_client(image_reference image, client_options options)
    : core_(std::make_unique<core>(std::move(image), std::move(options))) {}

registry_client::~registry_client() = default;

result<registry_client::document> registry_client::manifest(const std::string& which) {
  return core_->manifest(which);
}

result<void> registry_client::blob(const std::string& digest, blob_sink& into) {
  return core_->blob(digest, into);
}

} // namespace insula::storage::registry
