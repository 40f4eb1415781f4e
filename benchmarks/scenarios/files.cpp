#include "benchmarks/load/process_stats.hpp"
#include "benchmarks/loopback_peer.hpp"
#include "benchmarks/scenario.hpp"

#include <algorithm>
#include <stdexcept>

namespace insula::bench {

namespace {

constexpr std::size_t small_bytes = 1024;
constexpr std::size_t large_bytes = 32 << 20;
constexpr double mega = 1e6;

/// Looks whether a file comes back as it was written, while it comes.
class comparison {
public:
  explicit comparison(const std::string& expected)
      : left_(expected) {}

  response_reader::body_fn taker() {
    return [this](std::string_view piece) {
      same_ = same_ && left_.substr(0, piece.size()) == piece;
      left_.remove_prefix(std::min(piece.size(), left_.size()));
    };
  }

  void demand() const {
    if (!same_ || !left_.empty())
      throw std::runtime_error("the file came back different");
  }

private:
  std::string_view left_;
  bool same_ = true;
};

std::string random_bytes(std::size_t count, std::mt19937_64& random) {
  std::string bytes(count, '\0');
  std::generate(bytes.begin(), bytes.end(), [&random] { return static_cast<char>(random()); });
  return bytes;
}

/// A file of one size, written and read through the API, beside the same bytes over a loopback
/// connection.
struct file_size {
  series write, read, write_floor, read_floor;

  void next_round() {
    for (auto* each : {&write, &read, &write_floor, &read_floor})
      each->next_round();
  }
};

class files : public scenario {
public:
  std::string name() const override { return "files"; }
  std::string about() const override {
    return "PUT and GET of 1 KB and of 32 MiB; the server's memory meanwhile";
  }

  void measure(bench& with) override {
    const auto small = random_bytes(small_bytes, with.random),
               large = random_bytes(large_bytes, with.random);
    const auto server = with.start_insula();
    bridge_client client{server->port(), server->key()};
    const auto id = client.create();
    loopback_peer peer;
    const auto as_ms = [](double ms) { return ms; };
    const auto as_rate = [](double ms) { return large_bytes / mega / (ms / 1000); };

    file_size warming;
    for (std::size_t i = 0; i < with.repeat(50, 10); ++i)
      write_and_read(with, client, id, peer, small, warming, as_ms);
    small_.next_round();
    for (std::size_t i = 0; i < with.repeat(300, 50); ++i)
      write_and_read(with, client, id, peer, small, small_, as_ms);

    for (auto* each : {&before_, &peak_, &after_})
      each->next_round();
    large_.next_round();
    load::reset_peak(server->pid());
    before_.add(mib(server->pid(), "VmRSS"));
    write_and_read(with, client, id, peer, large, warming, as_rate);
    for (std::size_t i = 0; i < with.repeat(15, 4); ++i)
      write_and_read(with, client, id, peer, large, large_, as_rate);
    peak_.add(mib(server->pid(), "VmHWM") - mib_before());
    after_.add(mib(server->pid(), "VmRSS") - mib_before());
    server->stop();
  }

  void tell(const bench&, report& all) const override {
    tell_size(all, small_, "1 KB", "ms", better::lower, 0.5);
    tell_size(all, large_, "32 MiB", "MB/s", better::higher, 500);
    all.rows.push_back(make_row("server memory before the large ones", "MiB", before_));
    auto peak = make_row("its growth at the peak of the large ones", "MiB", peak_);
    peak.wanted = {8, {}, {}};
    all.rows.push_back(peak);
    all.rows.push_back(make_row("its growth afterwards", "MiB", after_));
  }

private:
  static double mib(pid_t pid, const char* field) {
    return static_cast<double>(load::status_kib(pid, field)) / 1024;
  }
  double mib_before() const { return before_.last(); }

  template <class Unit>
  void write_and_read(bench& with, bridge_client& client, const std::string& id,
                      loopback_peer& peer, const std::string& bytes, file_size& to,
                      const Unit& unit) {
    // A new file each time: replacing one makes the file system write the new one to the disk
    // first.
    const auto path = "/workspace/measured-" + std::to_string(++files_);
    const auto timed = [&unit](series& values, const auto& what) {
      const auto since = clock::now();
      what();
      values.add(unit(ms_since(since)));
    };
    run_in_random_order(
      with, {{&to.write,
              [&] {
                client.ready();
                timed(to.write, [&] { client.write_file(id, path, bytes); });
                comparison same{bytes};
                timed(to.read, [&] { client.read_file(id, path, same.taker()); });
                same.demand();
              }},
             {&to.write_floor, [&] { timed(to.write_floor, [&] { peer.write(bytes); }); }},
             {&to.read_floor, [&] { timed(to.read_floor, [&] { peer.read(bytes.size()); }); }}});
  }

  static void tell_size(report& all, const file_size& size, const std::string& name,
                        const std::string& unit, better which, double wanted) {
    auto write = make_row("write " + name, unit, size.write, which);
    auto read = make_row("read " + name, unit, size.read, which);
    const auto write_floor =
      make_row("loopback, to a peer: " + name, unit, size.write_floor, which);
    const auto read_floor =
      make_row("loopback, from a peer: " + name, unit, size.read_floor, which);
    write.wanted.p50 = read.wanted.p50 = wanted;
    write.floors = {{"loopback", write_floor.measured.p50}};
    read.floors = {{"loopback", read_floor.measured.p50}};
    for (const auto& each : {write, read, write_floor, read_floor})
      all.rows.push_back(each);
  }

  std::uint64_t files_ = 0;
  file_size small_, large_;
  series before_, peak_, after_;
};

} // namespace

std::unique_ptr<scenario> make_files() {
  return std::make_unique<files>();
}

} // namespace insula::bench
