#pragma once

#include "tests/simulation/world.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

namespace insula::simulation {

/// Answers that a server waits for. When it ends, nobody gets them any more.
class open_answers {
public:
  explicit open_answers(world& in)
      : world_(in) {}
  open_answers(const open_answers&) = delete;
  open_answers& operator=(const open_answers&) = delete;
  ~open_answers() {
    drop();
    *alive_ = false;
  }

  /// To be called once, whenever it comes.
  template <class T>
  std::function<void(T)> keep(std::function<void(T)> tell) {
    const auto number = ++last_;
    open_.emplace(number, std::make_shared<std::function<void(T)>>(std::move(tell)));
    return [this, alive = alive_, number](T what) {
      if (!*alive)
        return;
      if (const auto mine = open_.extract(number))
        (*std::static_pointer_cast<std::function<void(T)>>(mine.mapped()))(std::move(what));
    };
  }
  void after(nanoseconds pause, std::function<void()> what) {
    world_.after(pause,
                 [go = keep<bool>([what = std::move(what)](bool) { what(); })] { go(true); });
  }
  /// Who is let go of may ask again.
  void drop() {
    while (!open_.empty())
      std::exchange(open_, {}).clear();
  }

private:
  world& world_;
  std::map<std::uint64_t, std::shared_ptr<void>> open_;
  std::uint64_t last_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

} // namespace insula::simulation
