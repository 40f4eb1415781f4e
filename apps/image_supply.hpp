#pragma once

#include "actors/image_catalogue.hpp"
#include "apps/config.hpp"
#include "apps/image_room.hpp"
#include "base/clock.hpp"
#include "base/unique_fd.hpp"
#include "http/sandboxes/node_images.hpp"
#include "storage/registry/reference.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace insula {

/// The images of a running server: it has the image room fetch those that sandboxes name, as far as
/// the configuration allows, and learns from the room of those that others bring.
///
/// All requests for one reference share one pull. A request waits for limits::image_patience, and
/// the pull goes on when that is over. What a registry has refused is refused for some seconds more
/// without a question.
///
/// Names that the server has found when it started lead to the same images until it ends, whatever
/// an operator does to them meanwhile: its warm sandboxes stand on them.
///
/// Threads: one of its own, which hears the room; all functions are for any thread.
class image_supply final : public actors::image_supply, public http::node_images {
public:
  struct settings {
    images_config policy;
    std::string default_name;
    std::map<std::string, std::string> env; ///< Of every image, over what it has.
    runtimes_config runtimes;
    std::set<std::string> pinned; ///< Names and references of images that are not removed.
    bool may_sweep = false;       ///< No sandbox of an earlier server stands on any tree.
    /// Sandboxes whose records name that image. Null: nobody can tell, and nothing is removed. It
    /// may wait for a disk or a network. Errors: limit_reached: nobody can tell of this image.
    std::function<result<std::vector<std::string>>(const std::string& name,
                                                   const actors::sandbox_image& is)>
      users = {};
    const clock* time = nullptr; ///< Not owned. Null: the machine's.
  };

  image_supply(image_room room, std::shared_ptr<actors::image_catalogue> all, settings how);
  ~image_supply() override;
  image_supply(const image_supply&) = delete;
  image_supply& operator=(const image_supply&) = delete;

  /// Refuses all that wait, before the asking actors go. Nothing is fetched after it.
  void end();

  void find(const actors::image_wish& wanted, found_function then) override;
  void used(const std::string& name) override;

  /// By which nodes are found that have it. None: it is the default image.
  actors::image_signs signs_of(const actors::image_wish& wanted) const;

  std::vector<http::node_image> list() const override;
  std::vector<http::image_on_its_way> on_their_way() const override;
  std::vector<http::node_runtime> runtimes() const override;
  void pull(const std::string& reference, answer then) override;
  void remove(const std::string& name, answer then) override;

  /// Of all pulls so far.
  struct figures {
    std::uint64_t pulled = 0, failed = 0, bytes = 0, removed = 0;
    std::size_t images = 0, on_their_way = 0;
    std::uint64_t image_bytes = 0;
  };
  figures read_figures() const;

private:
  using time_point = std::chrono::steady_clock::time_point;

  struct waiter {
    time_point until;
    found_function then;
  };
  struct pull_state {
    std::uint64_t number = 0; ///< 0: it waits for its turn.
    std::uint64_t bytes = 0, total_bytes = 0;
    std::list<waiter> waiters;
  };
  using pulls = std::map<std::string, pull_state>; ///< By reference.
  struct removal {
    std::string name;
    actors::image_catalogue::taken_image image; ///< For when it stays.
    answer then;
  };
  struct fetched_image {
    std::string name, digest;
  };
  struct failure {
    error why;
    time_point until;
  };
  /// Calls that are to be made once nothing is locked.
  using calls = std::vector<std::function<void()>>;

  void hear();
  pulls::iterator pull_of(std::uint64_t number);
  void take(const room_packet& packet, calls& then);
  void take_image(const room_packet& packet);
  void finish(std::uint64_t number, const result<std::string>& how, calls& then);
  void begin_pulls(calls& then);
  void refuse_impatient(calls& then);
  void refuse_all(calls& then);
  void begin_removals();
  void collect();
  void sweep();
  const std::string& image_of(const std::string& runtime) const;
  void ask(const actors::image_wish& wanted, bool asked_for, found_function then);
  const std::string& reference_of(const std::string& runtime) const;
  void begin_removal(const std::string& name, answer then);
  std::optional<error> objection_to_removal(const std::string& name,
                                            const actors::sandbox_image* is, bool is_held) const;
  std::optional<result<std::string>> known(const actors::image_wish& wanted,
                                           std::optional<storage::registry::image_reference>& image,
                                           bool asked_for) const;
  void join(const storage::registry::image_reference& image, waiter who);
  std::optional<time_point> next_deadline() const;
  void wake() const;

  image_room room_;
  const std::shared_ptr<actors::image_catalogue> all_;
  const settings how_;
  const clock& time_;
  unique_fd woken_;
  mutable std::mutex guard_;
  bool ends_ = false;
  std::atomic<bool> room_gone_ = false;
  std::uint64_t last_number_ = 0;
  pulls pulls_;
  std::list<std::string> turns_; ///< Of those that wait.
  std::map<std::uint64_t, removal> removals_;
  std::list<std::pair<std::string, answer>> wanted_removals_; ///< Not looked at yet.
  time_point next_collection_;
  std::map<std::string, fetched_image> fetched_; ///< By reference.
  std::map<std::string, failure> failures_;      ///< By reference.
  std::map<std::string, std::int64_t> used_;     ///< By name; Unix time in ms.
  std::set<std::string> found_;                  ///< Names that were here when it started.
  figures counts_;
  std::thread hears_;
};

} // namespace insula
