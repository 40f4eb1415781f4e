// A disk that comes out of a sandbox (base/tree_frames.hpp), up to the pieces of its copy.
#include "base/limits.hpp"
#include "base/unique_fd.hpp"
#include "storage/snapshots/snapshot_store.hpp"
#include "storage/snapshots/zstd_piece.hpp"
#include "tests/fuzz/bytes.hpp"

#include <functional>
#include <map>
#include <string>
#include <sys/socket.h>

using namespace insula;
using namespace insula::fuzz;
using namespace insula::storage;
using namespace insula::storage::snapshots;

namespace {

class memory_blobs final : public blob_store {
public:
  result<void> put(const std::string& name, std::string_view bytes) override {
    all[name] = bytes;
    return {};
  }
  result<std::string> get(const std::string& name, std::size_t most) override {
    const auto at = all.find(name);
    if (at == all.end())
      return error{errc::not_found, "it is not there"};
    must(at->second.size() <= most, "what is written can be read");
    return at->second;
  }
  result<void> remove(const std::string& name) override {
    all.erase(name);
    return {};
  }
  result<bool> exists(const std::string& name) override { return all.contains(name); }
  result<void> list(const std::string&, const std::function<bool(const blob_info&)>&) override {
    return {};
  }
  void close() override {}

  std::map<std::string, std::string> all;
};

std::string bytes_of(const auto& what) {
  return {reinterpret_cast<const char*>(&what), sizeof what};
}

std::string entry(entry_kind kind, const std::string& name, const std::string& target,
                  std::uint64_t size = 0) {
  entry_head head{};
  head.kind = kind;
  head.size = size;
  head.name_bytes = static_cast<std::uint32_t>(name.size());
  head.target_bytes = static_cast<std::uint32_t>(target.size());
  return bytes_of(head) + name + target;
}

std::string group(entry_kind kind, std::uint64_t number) {
  return entry(kind, "", bytes_of(group_head{{{number, number}}, 0, 0}));
}

/// What is known: groups 1 and 2, and in that a content 3.
std::string known_tree() {
  return bytes_of(tree_result{0, 0}) + group(entry_kind::group, 1) +
         entry(entry_kind::directory, ".", "") + group(entry_kind::group, 2) +
         entry(entry_kind::file, "small", "", 3) + "abc" + group(entry_kind::content, 3) +
         entry(entry_kind::file, "large", "", large_file_bytes) +
         std::string(large_file_bytes, 'x') + bytes_of(entry_head{});
}

result<std::string> take(snapshot_store& to, std::string_view bytes, std::int64_t when,
                         const std::string& earlier) {
  int ends[2];
  must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
  const unique_fd ours{ends[0]}, theirs{ends[1]};
  const int room = 4 << 20;
  ::setsockopt(theirs.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
  ::send(theirs.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::shutdown(theirs.get(), SHUT_WR);
  return to.take({"disk", 1, when, earlier, true}, ours.get(), nullptr);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  memory_blobs blobs;
  snapshot_store store{blobs, "space"};
  static const auto known = known_tree();
  const auto first = take(store, known, 1, {});
  must(static_cast<bool>(first), "a good tree is taken");
  const auto made = take(store, text_of(data, size), 2, *first);
  if (!made) {
    must(made.reason().code == errc::io_failed || made.reason().code == errc::limit_reached,
         "a bad tree is the sandbox's fault");
    return 0;
  }
  const auto text = blobs.get(reference::read(*made)->name, limits::snapshot_manifest_bytes);
  const auto found = manifest::read(*text);
  must(found.has_value(), "a manifest can be read");
  std::string archive;
  for (const auto& each : found->pieces) {
    const auto frame = blobs.get(each.name("space"), limits::blob_bytes);
    must(static_cast<bool>(frame), "each piece is there");
    const auto plain = expanded(*frame, each.bytes);
    must(static_cast<bool>(plain), "each piece is what it was");
    archive += *plain;
  }
  must(archive.size() % 512 == 0 && archive.size() >= 1024, "an archive is whole blocks");
  must(archive.find_first_not_of('\0', archive.size() - 1024) == archive.npos,
       "an archive ends with two empty blocks");
  return 0;
}
