#include "base/unique_fd.hpp"
#include "benchmarks/scenario.hpp"
#include "storage/sqlite_store.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace insula::bench {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::size_t value_bytes = 512; ///< What an object's record is about as long as.

/// Removed with all that is in it.
class directory {
public:
  explicit directory(std::string path)
      : path_(std::move(path)) {
    fs::create_directories(path_);
  }
  ~directory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  directory(const directory&) = delete;
  directory& operator=(const directory&) = delete;

  const std::string& path() const { return path_; }

private:
  std::string path_;
};

/// So many writers, each of which writes again as soon as its last write is durable.
class writers {
public:
  writers(storage::store& to, std::size_t count)
      : to_(to)
      , open_(count) {
    for (std::size_t i = 0; i < count; ++i)
      write("writer" + std::to_string(i), 0);
  }

  /// Until each has stopped. Answers writes per second.
  double run(std::chrono::milliseconds length, series& took) {
    std::this_thread::sleep_for(length);
    ending_ = true;
    std::unique_lock lock{mutex_};
    ended_.wait(lock, [this] { return open_ == 0; });
    if (!failure_.empty())
      throw std::runtime_error(failure_);
    took.add(latencies_);
    return static_cast<double>(latencies_.size()) * 1000 / ms_between(began_, last_);
  }

private:
  void write(const std::string& owner, std::uint64_t number) {
    const auto since = clock::now();
    to_.commit({owner, 1, {{"key" + std::to_string(number % 16), std::string(value_bytes, 'x')}}},
               [this, owner, number, since](const result<void>& done) {
                 const bool more = written(since, done);
                 if (more)
                   write(owner, number + 1);
               });
  }

  bool written(clock::time_point since, const result<void>& done) {
    const std::lock_guard lock{mutex_};
    last_ = clock::now();
    if (done)
      latencies_.push_back(ms_between(since, last_));
    else
      failure_ = done.reason().message;
    if (done && !ending_)
      return true;
    --open_;
    ended_.notify_one();
    return false;
  }

  storage::store& to_;
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t open_;
  std::vector<double> latencies_;
  std::string failure_;
  clock::time_point began_ = clock::now(), last_;
};

/// What it costs to be told that a write would survive a power cut.
class durable_store : public scenario {
public:
  std::string name() const override { return "durable store"; }
  std::string about() const override {
    return "records of 512 bytes that are synced before they are acknowledged";
  }

  void measure(bench& with) override {
    const directory place{with.scratch + "/store"};
    for (auto* each : {&alone_, &together_, &per_second_, &plain_})
      each->next_round();
    const auto length = with.quick ? 500ms : 4000ms;
    append_and_sync(place.path() + "/plain", length);
    auto opened = storage::sqlite_store::open(place.path() + "/db");
    if (!opened)
      throw std::runtime_error(opened.reason().message);
    writers{**opened, 1}.run(length, alone_);
    per_second_.add(writers{**opened, many}.run(length, together_));
  }

  void tell(const bench&, report& all) const override {
    const auto plain = make_row("append to a file and fdatasync", "ms", plain_);
    auto alone = make_row("a write, one writer", "ms", alone_);
    auto together = make_row("a write, 64 writers", "ms", together_);
    alone.floors = together.floors = {{"fdatasync", plain.measured.p50}};
    all.rows.push_back(alone);
    all.rows.push_back(together);
    all.rows.push_back(
      make_row("writes per second, 64 writers", "1/s", per_second_, better::higher));
    all.rows.push_back(plain);
  }

private:
  static constexpr std::size_t many = 64;

  void append_and_sync(const std::string& path, std::chrono::milliseconds length) {
    const unique_fd file{::open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600)};
    const std::string record(value_bytes, 'x');
    for (const auto until = clock::now() + length; clock::now() < until;) {
      const auto since = clock::now();
      if (::write(file.get(), record.data(), record.size()) < 0 || ::fdatasync(file.get()) < 0)
        throw std::system_error(errno, std::generic_category(), path);
      plain_.add(ms_since(since));
    }
  }

  series alone_, together_, per_second_, plain_;
};

} // namespace

std::unique_ptr<scenario> make_durable_store() {
  return std::make_unique<durable_store>();
}

} // namespace insula::bench
