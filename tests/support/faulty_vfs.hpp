#pragma once

#include <cstddef>
#include <memory>
#include <random>
#include <string>

namespace insula::test {

enum class fault {
  none,
  short_write, ///< Half of it is written, then the disk is full.
  full,        ///< Nothing is written, the disk is full.
  write_error, ///< EIO.
  sync_error,  ///< EIO; parts are on the disk, the rest never gets there although reads show it.
  read_error,  ///< EIO.
  power_loss,  ///< At a write or a sync; from then on everything fails until boot().
};

/// A disk under SQLite, for tests: a VFS over the system's own which keeps in memory what was
/// written and not yet synced, shows it to every reader, and loses it in a power cut. Any thread.
class faulty_vfs {
public:
  /// `seed` decides which pieces of unsynced writes reach the disk all the same.
  explicit faulty_vfs(unsigned seed);
  ~faulty_vfs();
  faulty_vfs(const faulty_vfs&) = delete;
  faulty_vfs& operator=(const faulty_vfs&) = delete;

  /// What SQLite knows it by.
  const std::string& name() const;

  /// Lets `after` operations of the kind pass, then fails `times` of them.
  void fail(fault kind, int after, int times = 1);
  void heal();

  /// How many operations were failed by now.
  int struck() const;

  /// Did a power_loss strike, or one of those below?
  bool off() const;

  /// The machine stops: unsynced writes are gone, but for some pieces of 512 bytes, in any order.
  /// Everything fails until boot(), so that whoever still has a file open cannot change it.
  void power_cut();

  /// The process stops: what was written stays readable, synced or not. As above until boot().
  void kill();

  /// The next process may open files again. All files of the one before must be closed.
  void boot();

  struct state;

private:
  std::unique_ptr<state> state_;
};

} // namespace insula::test
