#pragma once

#include "base/unique_fd.hpp"
#include "runtime/engine.hpp"
#include "runtime/output_log.hpp"

#include <boost/asio/thread_pool.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <sys/statvfs.h>
#include <utility>

namespace insula::runtime {

/// Logs that outlive what has held them open: a file DIRECTORY/OWNER/KEY each, in the form of
/// output_log. What an owner keeps, what all keep, how many files that are, and what has to stay
/// free on the disk have ceilings; the oldest go first.
///
/// Threads: any thread may call. The work is done on three threads of its own, which wait for the
///          disk: all that changes files on one, in the order of the calls, and what reads them on
///          two. Callbacks come on these threads.
/// Owner:   what is made belongs to the owner of the directory, also while the process is root.
/// End:     the destructor does what has been asked for by then.
class kept_logs {
public:
  struct ceilings {
    std::uint64_t of_owner = 0; ///< Bytes on the disk. 0: nothing is kept, as the next.
    std::uint64_t of_all = 0;
    std::size_t files = 100'000; ///< Of all: each has a place in memory and an inode.
    /// With less than this free the oldest go: a share of what is used and what is available
    /// together (what the file system reserves for others is in neither), and never more than that.
    unsigned free_percent = 5;
    std::uint64_t free_bytes = 1ull << 30;
  };
  /// How many bytes less have to be on the disk, so that enough of it is free.
  static std::uint64_t lacking_on(const struct statvfs& disk, const ceilings& most);

  /// One of them, for one reader at a time.
  struct reader {
    explicit reader(output_log in)
        : log(std::move(in)) {}
    output_log log;
  };

  /// `directory` is there, and its files are this process' to change.
  kept_logs(std::string directory, ceilings most);
  kept_logs(const kept_logs&) = delete;
  kept_logs& operator=(const kept_logs&) = delete;
  ~kept_logs();

  /// Keys of an owner's. None: it is not known which.
  using known_keys = std::function<std::optional<std::set<std::string>>(const std::string& owner)>;
  /// What an earlier process has left: all goes that is not known of its owner. Waits for the disk;
  /// comes before everything else.
  void take_over(const known_keys& wanted);

  /// Gives the file of a log its name. Whoever has it open goes on writing. `told`: it has it. Not
  /// for a file that has had a name before, but under the same name.
  void keep(const std::string& owner, const std::string& key, std::shared_ptr<unique_fd> file,
            std::function<void(bool)> told);
  /// Nobody writes to an owner's logs any more: they count for what they are now.
  void settle(const std::string& owner);
  /// `told`: null if it is not there, or ends before `least_end`.
  void open(const std::string& owner, const std::string& key, std::uint64_t least_end,
            std::function<void(std::shared_ptr<reader>)> told);
  /// As of output_log::read(). One question at a time.
  void read(std::shared_ptr<reader> of, std::uint64_t offset, std::size_t max_bytes,
            std::function<void(output_log::piece)> told);

  void remove(const std::string& owner, const std::string& key);
  void remove(const std::string& owner);

  /// Calls it once all that has been asked for before is done.
  void when_done(std::function<void()> then);

private:
  struct log_file {
    std::uint64_t bytes = 0;
    std::uint64_t age = 0; ///< Of two files the one that was kept first has the smaller one.
  };
  struct owned {
    std::map<std::string, log_file> files;
    std::uint64_t bytes = 0;
  };
  using owner_map = std::map<std::string, owned>;

  // All of these on the thread for changes.
  bool link(const std::string& owner, const std::string& key, int file);
  void count(const std::string& owner, const std::string& key, std::uint64_t bytes);
  bool drop(const std::string& owner, const std::string& key);
  void drop_oldest_of(const std::string& owner);
  void drop_oldest();
  void enforce(const std::string& owner);
  void give_away(int directory, const char* path) const;
  std::uint64_t lacking_on_disk() const;
  bool has(const std::string& owner, const std::string& key) const;
  unique_fd open_file(const std::string& owner, const std::string& key) const;

  const ceilings most_;
  const unique_fd directory_;
  owner_map owners_;
  std::map<std::uint64_t, std::pair<std::string, std::string>> by_age_;
  std::uint64_t last_age_ = 0;
  std::uint64_t bytes_ = 0;
  boost::asio::thread_pool changes_{1};
  boost::asio::thread_pool readers_{2};
};

} // namespace insula::runtime
