#include "benchmarks/host_command.hpp"
#include "benchmarks/scenario.hpp"
#include "storage/images/digest.hpp"

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <sys/utsname.h>

namespace insula::bench {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t files = 6'000, directories = 300;
constexpr std::size_t total_bytes = 150'000'000;

/// Text that packs to about a third, as programs and documentation do.
std::string some_text(std::size_t bytes, std::mt19937_64& random) {
  static const std::vector<std::string> words = [] {
    std::mt19937_64 fixed{1};
    std::vector<std::string> all(4096);
    for (auto& each : all)
      for (auto letters = 2 + fixed() % 9; letters > 0; --letters)
        each += static_cast<char>('!' + fixed() % 90);
    return all;
  }();
  std::string text;
  while (text.size() < bytes)
    text += words[random() % words.size()] + ' ';
  text.resize(bytes);
  return text;
}

/// Sizes as a distribution has them: many small files, few large ones.
void make_tree(const fs::path& root, std::mt19937_64& random) {
  std::vector<double> shares(files);
  double sum = 0;
  for (auto& each : shares)
    sum += each = std::exp(static_cast<double>(random() % 1000) / 1000 * 6);
  for (std::size_t i = 0; i < files; ++i) {
    const auto in = root / ("d" + std::to_string(i % directories));
    fs::create_directories(in);
    std::ofstream{in / ("f" + std::to_string(i))}
      << some_text(static_cast<std::size_t>(shares[i] / sum * total_bytes), random);
  }
}

std::string digest_of_file(const fs::path& path) {
  storage::images::hasher all;
  std::ifstream file{path, std::ios::binary};
  for (std::array<char, 1 << 16> part{}; file.read(part.data(), part.size()), file.gcount() > 0;)
    all.add(part.data(), static_cast<std::size_t>(file.gcount()));
  return all.digest();
}

std::string descriptor(const std::string& type, const std::string& digest, std::uint64_t size) {
  return R"({"mediaType":"application/vnd.oci.image.)" + type + R"(","digest":")" + digest +
         R"(","size":)" + std::to_string(size) + "}";
}

/// Writes a document and answers its descriptor.
std::string put_text(const fs::path& layout, const std::string& type, const std::string& text) {
  const auto digest = storage::images::digest_of(text);
  std::ofstream{layout / "blobs/sha256" / digest.substr(7)} << text;
  return descriptor(type, digest, text.size());
}

/// An image of one layer, around a tar that is there.
void make_layout(const fs::path& layout, const fs::path& blob, const std::string& suffix,
                 const std::string& diff_id) {
  fs::create_directories(layout / "blobs/sha256");
  const auto digest = digest_of_file(blob);
  fs::create_hard_link(blob, layout / "blobs/sha256" / digest.substr(7));
  utsname machine{};
  ::uname(&machine);
  const std::string name = machine.machine;
  const auto architecture = name == "x86_64" ? "amd64" : name == "aarch64" ? "arm64" : name;
  const auto config =
    put_text(layout, "config.v1+json",
             R"({"os":"linux","architecture":")" + architecture +
               R"(","config":{},"rootfs":{"type":"layers","diff_ids":[")" + diff_id + "\"]}}");
  const auto manifest =
    put_text(layout, "manifest.v1+json",
             R"({"schemaVersion":2,"config":)" + config + R"(,"layers":[)" +
               descriptor("layer.v1.tar" + suffix, digest, fs::file_size(blob)) + "]}");
  std::ofstream{layout / "index.json"} << R"({"schemaVersion":2,"manifests":[)" << manifest << "]}";
}

struct measured_layer {
  std::string name;
  std::string tar_flags;
  series import, untar, untar_synced;
};

class image_import : public scenario {
public:
  std::string name() const override { return "image import"; }
  std::string about() const override {
    return "insula image import of 150 MB in 6,000 files, beside tar -x of the same layer";
  }

  void measure(bench& with) override {
    const auto top = fs::path{with.scratch} / "import";
    fs::remove_all(top);
    fs::create_directories(top);
    make_tree(top / "tree", with.random);
    const auto tar = top / "layer.tar", packed = top / "layer.tar.gz";
    run_on_host({"tar", "-cf", tar, "-C", top / "tree", "."});
    run_on_host({"gzip", "--keep", tar});
    fs::remove_all(top / "tree");
    const auto diff_id = digest_of_file(tar);
    make_layout(top / "plain", tar, "", diff_id);
    make_layout(top / "gzip", packed, "+gzip", diff_id);
    run_on_host({"sync", "-f", top}); // What is not measured does not wait for the disk meanwhile.

    for (auto* each : {&plain_, &packed_})
      for (auto* values : {&each->import, &each->untar, &each->untar_synced})
        values->next_round();
    for (std::size_t i = 0; i < with.repeat(4, 1); ++i) {
      measure_layer(with, top, top / "plain", tar, plain_);
      measure_layer(with, top, top / "gzip", packed, packed_);
    }
    fs::remove_all(top);
  }

  void tell(const bench&, report& all) const override {
    for (const auto* each : {&packed_, &plain_}) {
      auto import = make_row("import, " + each->name, "ms", each->import);
      const auto untar = make_row("tar -x: " + each->name, "ms", each->untar);
      const auto synced = make_row("tar -x and sync: " + each->name, "ms", each->untar_synced);
      import.floors = {{"tar -x", untar.measured.p50}, { "tar -x and sync", synced.measured.p50 }};
      for (const auto& row : {import, untar, synced})
        all.rows.push_back(row);
    }
  }

private:
  static void measure_layer(bench& with, const fs::path& top, const fs::path& layout,
                            const fs::path& tar, measured_layer& to) {
    const auto timed = [&](series& values, const std::vector<std::string>& argv) {
      const auto target = top / "target";
      fs::create_directory(target);
      values.add(run_on_host(argv).exit_ms);
      fs::remove_all(target);
      run_on_host({"sync", "-f", top});
    };
    const auto target = (top / "target").string();
    const std::vector<std::string> untar{"tar", to.tar_flags, tar, "--numeric-owner", "-C", target};
    run_in_random_order(
      with, {{&to.import,
              [&] {
                timed(to.import,
                      {with.insula, "image", "import", layout, "--name", "it", "--state", target});
              }},
             {&to.untar, [&] { timed(to.untar, untar); }},
             {&to.untar_synced, [&] {
                timed(to.untar_synced, {"sh", "-c",
                                        "tar " + to.tar_flags +
                                          " \"$0\" --numeric-owner -C \"$1\" && sync -f \"$1\"",
                                        tar, target});
              }}});
  }

  measured_layer plain_{"plain", "-xpf", {}, {}, {}}, packed_{"gzip", "-xpzf", {}, {}, {}};
};

} // namespace

std::unique_ptr<scenario> make_image_import() {
  return std::make_unique<image_import>();
}

} // namespace insula::bench
