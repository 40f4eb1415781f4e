#include "storage/etcd/http_client.hpp"

#include "storage/curl_library.hpp"
#include "storage/etcd/gateway_json.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

namespace insula::storage::etcd {

namespace {

using namespace std::chrono_literals;
using nanoseconds = std::chrono::nanoseconds;

constexpr std::size_t largest_answer = 64u << 20;
constexpr std::size_t largest_line = 64u << 20;
constexpr auto connect_patience = 300ms;
constexpr auto longest_attempt = 3000ms;
constexpr auto pause_between = 20ms;
/// A watch that began at a member which is not asked any more is begun anew elsewhere: a member
/// that hangs tells nothing, and its connections stay.
constexpr auto watch_stays_for = 2s;
constexpr std::size_t bytes_per_ms = 20'000; ///< What a slow member takes of a large question.
/// Each has a connection of its own. Those that come when so many are under way wait, but for what
/// a lease depends on: a node must not lose it to its own haste.
constexpr std::size_t most_under_way = 64;
constexpr std::size_t idle_connections = most_under_way + 16;

nanoseconds boot_time() {
  timespec at{};
  ::clock_gettime(CLOCK_BOOTTIME, &at);
  return std::chrono::seconds{at.tv_sec} + nanoseconds{at.tv_nsec};
}

/// gRPC's codes, as far as it matters which one it is.
enum grpc : int { deadline_passed = 4, not_there = 5, used_up = 8, aborted = 10, unavailable = 14 };

struct easy_end {
  void operator()(CURL* handle) const { ::curl_easy_cleanup(handle); }
};
using easy = std::unique_ptr<CURL, easy_end>;

} // namespace

class http_client::core {
public:
  explicit core(http_options options)
      : options_(std::move(options))
      , multi_((begin_curl(), ::curl_multi_init()))
      , headers_(::curl_slist_append(nullptr, "Content-Type: application/json")) {
    headers_ = ::curl_slist_append(headers_, "Expect:");
    ::curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(idle_connections));
    thread_ = std::thread{[this] { run(); }};
  }

  ~core() {
    {
      const std::lock_guard lock{mutex_};
      ending_ = true;
    }
    ::curl_multi_wakeup(multi_);
    thread_.join();
    ::curl_multi_cleanup(multi_);
    ::curl_slist_free_all(headers_);
  }

  struct call {
    std::string path;
    std::string body;
    nanoseconds until{};
    std::function<void(result<std::string>)> then;
    // Of the attempt under way:
    std::array<char, CURL_ERROR_SIZE> words{}; ///< Why it has failed.
    easy handle;
    std::string answer;
    std::size_t endpoint = 0;
    unsigned attempts = 0;
    std::function<void(member_status)> told; ///< Asked of this member alone, for what it is.
    error last{errc::node_unreachable, "etcd does not answer"};
    bool has_reason = false; ///< `last` is more than that.
  };

  struct watching {
    std::string question;
    std::function<void(std::vector<event>, revision)> tell;
    std::function<void(error)> ended;
    std::weak_ptr<void> wanted;
    easy handle;
    std::size_t endpoint = 0;
    nanoseconds begun{};
    std::string line;
    std::optional<error> over;
  };

  /// `done` gets the answer's body. Not on our thread necessarily. `ahead`: it waits for no other.
  void ask(std::string path, std::string body, std::chrono::milliseconds patience, bool ahead,
           std::function<void(result<std::string>)> done) {
    ++questions_;
    auto made = std::make_unique<call>();
    made->path = std::move(path);
    made->body = std::move(body);
    // A large question has as much more time in all as each attempt has.
    made->until =
      boot_time() + patience + std::chrono::milliseconds{made->body.size() / bytes_per_ms};
    made->then = std::move(done);
    post([this, ahead, held = std::make_shared<std::unique_ptr<call>>(std::move(made))] {
      auto mine = std::move(*held);
      if (ahead || under_way() < most_under_way)
        return attempt(std::move(mine));
      if (waiting_.size() >= options_.max_waiting)
        return mine->then(error{errc::limit_reached, "too many questions to etcd wait"});
      waiting_.emplace(mine->until, std::move(mine));
    });
  }

  void look_at_members(std::chrono::milliseconds patience,
                       std::function<void(std::map<std::string, member_status>)> then) {
    struct look {
      std::map<std::string, member_status> found;
      std::function<void(std::map<std::string, member_status>)> then;
      ~look() { then(std::move(found)); }
    };
    auto all = std::make_shared<look>();
    all->then = std::move(then);
    post([this, all = std::move(all), until = boot_time() + patience] {
      for (std::size_t i = 0; i < options_.endpoints.size(); ++i) {
        ++questions_;
        auto made = std::make_unique<call>();
        made->path = "/v3/maintenance/status";
        made->body = "{}";
        made->until = until;
        made->endpoint = i;
        made->told = [all, at = options_.endpoints[i]](auto what) {
          all->found[at] = std::move(what);
        };
        made->then = [all](const auto&) {};
        attempt(std::move(made));
      }
    });
  }

  std::shared_ptr<void> watch(std::string prefix, revision from,
                              std::function<void(std::vector<event>, revision)> tell,
                              std::function<void(error)> ended) {
    auto wanted = std::make_shared<int>(0);
    auto made = std::make_shared<watching>();
    made->question = watch_question(prefix, from);
    made->tell = std::move(tell);
    made->ended = std::move(ended);
    made->wanted = wanted;
    post([this, made] { begin_watch(made); });
    return wanted;
  }

  void post(std::function<void()> what) {
    {
      const std::lock_guard lock{mutex_};
      posted_.push_back(std::move(what));
    }
    ::curl_multi_wakeup(multi_);
  }

  void after(nanoseconds pause, std::function<void()> what) {
    const auto due = boot_time() + pause;
    post([this, due, what = std::move(what)]() mutable { timers_.emplace(due, std::move(what)); });
  }

  std::uint64_t questions() const { return questions_; }

private:
  void run() {
    while (true) {
      std::deque<std::function<void()>> due;
      {
        const std::lock_guard lock{mutex_};
        if (ending_)
          break;
        due.swap(posted_);
      }
      for (auto& each : due)
        each();
      fire_timers();
      int running = 0;
      ::curl_multi_perform(multi_, &running);
      collect();
      go_on_with_waiting();
      drop_unwanted();
      wait();
    }
    end();
  }

  void wait() {
    auto pause = nanoseconds{200ms};
    auto due = boot_time() + pause;
    if (!timers_.empty())
      due = std::min(due, timers_.begin()->first);
    for (const auto* each : {&pausing_, &waiting_})
      if (!each->empty())
        due = std::min(due, each->begin()->first);
    pause = std::clamp(due - boot_time(), nanoseconds{0}, pause);
    {
      const std::lock_guard lock{mutex_};
      if (!posted_.empty() || ending_)
        pause = nanoseconds{0};
    }
    // Rounded up: a wait of 0 would turn in circles until the timer is due.
    const auto ms = static_cast<int>((pause + 999'999ns) / 1ms);
    ::curl_multi_poll(multi_, nullptr, 0, ms, nullptr);
  }

  std::size_t under_way() const { return open_.size() + pausing_.size(); }

  /// Also with those whose time is up: they are answered.
  void go_on_with_waiting() {
    const auto now = boot_time();
    while (!waiting_.empty() && (under_way() < most_under_way || waiting_.begin()->first <= now))
      attempt(std::move(waiting_.extract(waiting_.begin()).mapped()));
  }

  void fire_timers() {
    const auto now = boot_time();
    while (!pausing_.empty() && pausing_.begin()->first <= now) {
      auto mine = std::move(pausing_.begin()->second);
      pausing_.erase(pausing_.begin());
      attempt(std::move(mine));
    }
    while (!timers_.empty() && timers_.begin()->first <= now) {
      auto what = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      what();
    }
  }

  void common(CURL* handle, const std::string& url, const std::string& body) {
    ::curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
    ::curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    ::curl_easy_setopt(handle, CURLOPT_PROXY, "");
    ::curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    ::curl_easy_setopt(handle, CURLOPT_TCP_NODELAY, 1L);
    ::curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    ::curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers_);
    ::curl_easy_setopt(handle, CURLOPT_POST, 1L);
    ::curl_easy_setopt(handle, CURLOPT_POSTFIELDS, body.data());
    ::curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    ::curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS,
                       static_cast<long>(std::chrono::milliseconds{connect_patience}.count()));
    lend(handle, CURLOPT_CAINFO_BLOB, options_.authority);
    lend(handle, CURLOPT_SSLCERT_BLOB, options_.certificate);
    lend(handle, CURLOPT_SSLKEY_BLOB, options_.key);
  }

  /// A file's content, which stays with us.
  static void lend(CURL* handle, CURLoption as, const std::string& content) {
    if (content.empty())
      return;
    curl_blob lent{const_cast<char*>(content.data()), content.size(), CURL_BLOB_NOCOPY};
    ::curl_easy_setopt(handle, as, &lent);
  }

  template <std::size_t Ceiling>
  static std::size_t append(char* from, std::size_t, std::size_t count, void* to) {
    auto& text = *static_cast<std::string*>(to);
    if (text.size() + count > Ceiling)
      return 0;
    text.append(from, count);
    return count;
  }

  void attempt(std::unique_ptr<call> mine) {
    if (closing_)
      return mine->then(error{errc::io_failed, "the node is shutting down"});
    const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(mine->until - boot_time());
    if (left <= 0ms)
      return mine->then(std::move(mine->last));
    // A round over all members without an answer: they may be slow, rather than gone.
    const auto rounds = mine->attempts / static_cast<unsigned>(options_.endpoints.size());
    auto patience = options_.attempt * (1 + std::min(rounds, 9u)) +
                    std::chrono::milliseconds{mine->body.size() / bytes_per_ms};
    patience = std::min({patience,
                         std::chrono::milliseconds{longest_attempt} +
                           std::chrono::milliseconds{mine->body.size() / bytes_per_ms},
                         left});
    if (!mine->told)
      mine->endpoint = preferred_;
    ++mine->attempts;
    mine->answer.clear();
    mine->handle.reset(::curl_easy_init());
    auto* const handle = mine->handle.get();
    common(handle, options_.endpoints[mine->endpoint] + mine->path, mine->body);
    ::curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(patience.count()));
    ::curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &append<largest_answer>);
    ::curl_easy_setopt(handle, CURLOPT_WRITEDATA, &mine->answer);
    mine->words.front() = '\0';
    ::curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, mine->words.data());
    ::curl_multi_add_handle(multi_, handle);
    open_.emplace(handle, std::move(mine));
  }

  /// Whoever fails first moves everybody on.
  void move_on_from(std::size_t endpoint) {
    if (endpoint != preferred_)
      return;
    preferred_ = (preferred_ + 1) % options_.endpoints.size();
    look_at_watches_later();
  }

  void look_at_watches_later() {
    if (!std::exchange(looks_at_watches_, true))
      timers_.emplace(boot_time() + watch_stays_for, [this] { look_at_watches(); });
  }

  void look_at_watches() {
    looks_at_watches_ = false;
    const auto now = boot_time();
    std::vector<std::shared_ptr<watching>> left;
    for (auto at = watches_.begin(); at != watches_.end();) {
      if (at->second->endpoint == preferred_) {
        ++at;
      } else if (now - at->second->begun < watch_stays_for) {
        look_at_watches_later();
        ++at;
      } else {
        ::curl_multi_remove_handle(multi_, at->first);
        left.push_back(std::move(at->second));
        at = watches_.erase(at);
      }
    }
    for (const auto& each : left) {
      each->handle.reset();
      if (!each->wanted.expired())
        each->ended({errc::node_unreachable, "the member of etcd that tells of changes is slow"});
    }
  }

  void again(std::unique_ptr<call> mine) {
    if (mine->told)
      return mine->then(std::move(mine->last));
    move_on_from(mine->endpoint);
    if (boot_time() >= mine->until)
      return mine->then(std::move(mine->last));
    const bool round_over = mine->attempts % options_.endpoints.size() == 0;
    if (!round_over)
      return attempt(std::move(mine));
    pausing_.emplace(boot_time() + pause_between, std::move(mine));
  }

  void collect() {
    int left = 0;
    while (const auto* said = ::curl_multi_info_read(multi_, &left)) {
      if (said->msg != CURLMSG_DONE)
        continue;
      auto* const handle = said->easy_handle;
      const auto code = said->data.result;
      ::curl_multi_remove_handle(multi_, handle);
      if (const auto at = open_.find(handle); at != open_.end()) {
        auto mine = std::move(at->second);
        open_.erase(at);
        finished(std::move(mine), code);
      } else if (const auto it = watches_.find(handle); it != watches_.end()) {
        auto mine = std::move(it->second);
        watches_.erase(it);
        watch_over(*mine, code);
      }
    }
  }

  void finished(std::unique_ptr<call> mine, CURLcode code) {
    long status = 0, number = 0;
    ::curl_easy_getinfo(mine->handle.get(), CURLINFO_RESPONSE_CODE, &status);
    ::curl_easy_getinfo(mine->handle.get(), CURLINFO_OS_ERRNO, &number);
    if (code == CURLE_OK && mine->told)
      mine->told({clock_of(*mine), status == 200 ? read_version(mine->answer) : std::string{}});
    mine->handle.reset();
    if (code != CURLE_OK) {
      std::string why = mine->words.data();
      if (why.empty())
        why = ::curl_easy_strerror(code);
      if (code == CURLE_COULDNT_CONNECT && number != 0)
        why += " (" + std::system_category().message(static_cast<int>(number)) + ")";
      const bool hung_up =
        code == CURLE_GOT_NOTHING || code == CURLE_SEND_ERROR || code == CURLE_RECV_ERROR;
      if (hung_up && !options_.certificate.empty())
        why += " (as it does where a certificate is revoked)";
      // That the time was up says less than what an earlier attempt has met with.
      const bool timed_out = code == CURLE_OPERATION_TIMEDOUT;
      if (!timed_out || !mine->has_reason)
        mine->last = {errc::node_unreachable,
                      "etcd at " + options_.endpoints[mine->endpoint] + " does not answer: " + why};
      mine->has_reason = mine->has_reason || !timed_out;
      return again(std::move(mine));
    }
    if (status == 200)
      return mine->then(std::move(mine->answer));
    const auto why = read_refusal(mine->answer);
    const auto words = "etcd refuses: " + why.words;
    if (why.code == used_up && why.words.find("too many requests") == std::string::npos)
      return mine->then(error{errc::disk_full, words});
    if (why.code == not_there)
      return mine->then(error{errc::not_found, words});
    if (why.code == unavailable || why.code == deadline_passed || why.code == aborted ||
        why.code == used_up || status >= 500) {
      mine->last = {errc::node_unreachable, words};
      return again(std::move(mine));
    }
    mine->then(error{errc::invalid_request, words});
  }

  /// Its answer says the second that it was sent in.
  static std::optional<std::chrono::milliseconds> clock_of(const call& mine) {
    using namespace std::chrono;
    const auto now = system_clock::now();
    curl_header* date = nullptr;
    if (::curl_easy_header(mine.handle.get(), "Date", 0, CURLH_HEADER, -1, &date) != CURLHE_OK)
      return std::nullopt;
    const auto said = ::curl_getdate(date->value, nullptr);
    if (said == -1)
      return std::nullopt;
    return duration_cast<milliseconds>(system_clock::from_time_t(said) + 500ms - now);
  }

  static std::size_t hear(char* from, std::size_t, std::size_t count, void* to) {
    auto& mine = *static_cast<watching*>(to);
    mine.line.append(from, count);
    std::size_t begin = 0;
    for (auto end = mine.line.find('\n', begin); end != std::string::npos && !mine.over;
         end = mine.line.find('\n', begin)) {
      auto news = read_news(std::string_view{mine.line}.substr(begin, end - begin));
      begin = end + 1;
      if (!news) {
        mine.over = news.reason();
      } else {
        mine.over = std::move(news->ended);
        if (!mine.over && !mine.wanted.expired())
          mine.tell(std::move(news->events), news->at);
      }
    }
    mine.line.erase(0, begin);
    return mine.over || mine.line.size() > largest_line ? 0 : count;
  }

  void begin_watch(const std::shared_ptr<watching>& mine) {
    if (mine->wanted.expired() || closing_)
      return;
    mine->handle.reset(::curl_easy_init());
    auto* const handle = mine->handle.get();
    mine->endpoint = preferred_;
    mine->begun = boot_time();
    common(handle, options_.endpoints[mine->endpoint] + "/v3/watch", mine->question);
    ::curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
    ::curl_easy_setopt(handle, CURLOPT_TCP_KEEPIDLE, 2L);
    ::curl_easy_setopt(handle, CURLOPT_TCP_KEEPINTVL, 1L);
    ::curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &hear);
    ::curl_easy_setopt(handle, CURLOPT_WRITEDATA, mine.get());
    ::curl_multi_add_handle(multi_, handle);
    watches_.emplace(handle, mine);
  }

  void watch_over(watching& mine, CURLcode code) {
    mine.handle.reset();
    if (mine.wanted.expired())
      return;
    if (!mine.over)
      mine.over = error{errc::node_unreachable,
                        std::string{"the watch of etcd has ended: "} + ::curl_easy_strerror(code)};
    move_on_from(mine.endpoint);
    mine.ended(std::move(*mine.over));
  }

  void drop_unwanted() {
    for (auto at = watches_.begin(); at != watches_.end();) {
      if (at->second->wanted.expired()) {
        ::curl_multi_remove_handle(multi_, at->first);
        at = watches_.erase(at);
      } else {
        ++at;
      }
    }
  }

  void end() {
    closing_ = true;
    for (auto& [handle, mine] : watches_)
      ::curl_multi_remove_handle(multi_, handle);
    watches_.clear();
    timers_.clear();
    for (auto* each : {&pausing_, &waiting_})
      for (auto waiting = std::exchange(*each, {}); auto& [due, mine] : waiting)
        mine->then(error{errc::io_failed, "the node is shutting down"});
    for (auto open = std::exchange(open_, {}); auto& [handle, mine] : open) {
      ::curl_multi_remove_handle(multi_, handle);
      mine->then(error{errc::io_failed, "the node is shutting down"});
    }
    // What has been handed over and not been looked at: questions are answered, too.
    for (auto left = posted(); !left.empty(); left = posted())
      for (auto& each : left)
        each();
    timers_.clear();
  }

  std::deque<std::function<void()>> posted() {
    const std::lock_guard lock{mutex_};
    return std::exchange(posted_, {});
  }

  const http_options options_;
  CURLM* const multi_;
  curl_slist* headers_;
  std::atomic<std::uint64_t> questions_ = 0;

  std::mutex mutex_;
  std::deque<std::function<void()>> posted_;
  bool ending_ = false;

  // The thread's:
  std::unordered_map<CURL*, std::unique_ptr<call>> open_;
  std::unordered_map<CURL*, std::shared_ptr<watching>> watches_;
  std::multimap<nanoseconds, std::function<void()>> timers_;
  std::multimap<nanoseconds, std::unique_ptr<call>> pausing_; ///< Between two attempts.
  std::multimap<nanoseconds, std::unique_ptr<call>> waiting_; ///< For their first, by their ends.
  bool closing_ = false;
  std::size_t preferred_ = 0;
  bool looks_at_watches_ = false; ///< In a moment.
  std::thread thread_;
};

result<std::unique_ptr<http_client>> http_client::open(http_options options) {
  if (options.endpoints.empty())
    return error{errc::invalid_request, "etcd has no endpoints"};
  for (const auto& each : options.endpoints)
    if (!each.starts_with("http://") && !each.starts_with("https://"))
      return error{errc::invalid_request, "not an endpoint of etcd: " + each};
  // Read once: later this process may not be able to.
  for (auto* file : {&options.authority, &options.certificate, &options.key}) {
    if (file->empty())
      continue;
    std::ifstream in{*file};
    std::stringstream content;
    content << in.rdbuf();
    if (!in || content.str().empty())
      return error{errc::invalid_request, *file + ", for etcd, cannot be read"};
    *file = content.str();
  }
  for (auto& each : options.endpoints)
    while (each.ends_with('/'))
      each.pop_back();
  return std::unique_ptr<http_client>{new http_client{std::make_unique<core>(std::move(options))}};
}

http_client::http_client(std::unique_ptr<core> made)
    : core_(std::move(made)) {}

http_client::~http_client() = default;

void http_client::transact(transaction what, milliseconds patience,
                           std::function<void(result<outcome>)> then) {
  core_->ask("/v3/kv/txn", question(what), patience, what.ahead,
             [then = std::move(then)](auto answer) {
               then(answer ? read_outcome(*answer) : result<outcome>{answer.reason()});
             });
}

void http_client::grant(std::chrono::seconds lives, milliseconds patience,
                        std::function<void(result<lease_id>)> then) {
  core_->ask("/v3/lease/grant", grant_question(lives), patience, true,
             [then = std::move(then)](auto answer) {
               then(answer ? read_grant(*answer) : result<lease_id>{answer.reason()});
             });
}

void http_client::renew(lease_id which, milliseconds patience,
                        std::function<void(result<renewal>)> then) {
  core_->ask("/v3/lease/keepalive", lease_question(which), patience, true,
             [then = std::move(then)](auto answer) {
               if (answer)
                 then(read_renewal(*answer));
               else if (answer.reason().code == errc::not_found)
                 then(renewal{});
               else
                 then(answer.reason());
             });
}

void http_client::revoke(lease_id which, milliseconds patience,
                         std::function<void(result<void>)> then) {
  core_->ask("/v3/lease/revoke", lease_question(which), patience, true,
             [then = std::move(then)](auto answer) {
               if (answer || answer.reason().code == errc::not_found)
                 then({});
               else
                 then(answer.reason());
             });
}

std::shared_ptr<void> http_client::watch(std::string prefix, revision from,
                                         std::function<void(std::vector<event>, revision)> tell,
                                         std::function<void(error)> ended) {
  return core_->watch(std::move(prefix), from, std::move(tell), std::move(ended));
}

void http_client::look_at_members(milliseconds patience,
                                  std::function<void(std::map<std::string, member_status>)> then) {
  core_->look_at_members(patience, std::move(then));
}

void http_client::post(std::function<void()> what) {
  core_->post(std::move(what));
}

void http_client::after(std::chrono::nanoseconds pause, std::function<void()> what) {
  core_->after(pause, std::move(what));
}

std::chrono::nanoseconds http_client::now() const {
  return boot_time();
}

std::uint64_t http_client::questions() const {
  return core_->questions();
}

} // namespace insula::storage::etcd
