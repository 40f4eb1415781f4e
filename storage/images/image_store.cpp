#include "storage/images/image_store.hpp"

#include "storage/images/beneath.hpp"
#include "storage/images/file_set.hpp"
#include "storage/images/image_source.hpp"
#include "storage/images/layer_reader.hpp"
#include "storage/images/tree_writer.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace insula::storage::images {

namespace {

constexpr auto record_file = "image.json";
constexpr auto used_file = "used"; ///< Its time is that of the last use.
// No image has a name that begins with a dot.
const std::string new_prefix = ".new-", tree_prefix = ".tree-", lock_file = ".lock";

error failed(const std::string& what) {
  return {errc::io_failed, what + ": " + std::strerror(errno)};
}

std::int64_t unix_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
           std::chrono::system_clock::now().time_since_epoch())
    .count();
}

/// A name that no tree has had here before.
std::string new_tree() {
  return tree_prefix + std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
}

/// Where in `directory` the image of that name is; the machine's own has no tree elsewhere, since
/// only a server that starts makes it. Empty, with errno set: nowhere; EINVAL where `name` is no
/// symlink.
std::string place_of(int directory, const std::string& name) {
  if (name == "host")
    return name;
  std::array<char, NAME_MAX + 1> target{};
  const auto size = ::readlinkat(directory, name.c_str(), target.data(), target.size());
  if (size < 0)
    return {};
  std::string place{target.data(), static_cast<std::size_t>(size)};
  if (place.starts_with(tree_prefix) && place.find('/') == place.npos)
    return place;
  errno = ENOENT;
  return {};
}

unique_fd open_directory(const std::string& path) {
  return unique_fd{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
}

/// Files and directories below, and the bytes of the files; a file with several names counts once
/// for each.
void measure(int directory, image_record& into) {
  for_each_name(directory, [&](const std::string& name) {
    struct stat info {};
    if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
      return true;
    ++into.entries;
    if (S_ISREG(info.st_mode))
      into.size_bytes += static_cast<std::uint64_t>(info.st_size);
    if (S_ISDIR(info.st_mode))
      if (const unique_fd below{
            ::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)})
        measure(below.get(), into);
    return true;
  });
}

result<void> write_record_in(int directory, const image_record& record) {
  const auto text = to_json(record);
  const std::string fresh = std::string{record_file} + ".new";
  ::unlinkat(directory, fresh.c_str(), 0);
  const unique_fd file{
    ::openat(directory, fresh.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644)};
  if (!file || !write_all(file.get(), text.data(), text.size()) || ::fsync(file.get()) != 0 ||
      ::renameat(directory, fresh.c_str(), directory, record_file) != 0)
    return {failed(record_file)};
  return {};
}

/// The same error, with the layer's name before it.
error in_layer(std::size_t number, const source_layer& layer, const error& why) {
  if (why.code == errc::deadline_exceeded)
    return why;
  return {why.code, "layer " + std::to_string(number) + " (" + layer.name + "): " + why.message};
}

result<void> apply_layer(const source_layer& layer, import_budget& budget, tree_writer& tree) {
  layer_reader reader{layer.blob, {layer.digest, layer.diff_id}, budget};
  tree.begin_layer();
  const auto data = [&reader] { return reader.data(); };
  for (layer_entry entry;;) {
    const auto more = reader.next(entry);
    if (!more)
      return more.reason();
    if (!*more)
      return reader.finish();
    if (auto ok = tree.apply(entry, data); !ok)
      return ok;
  }
}

} // namespace

image_store::image_store(std::string state_directory)
    : state_(std::move(state_directory))
    , directory_(state_ + "/images") {}

std::string image_store::root_in(const std::string& place) const {
  return directory_ + "/" + place + "/root";
}

/// The one who writes. Makes the directories.
result<unique_fd> image_store::lock() const {
  std::error_code refused;
  if (std::filesystem::create_directories(state_, refused))
    ::chmod(state_.c_str(), 0711);
  // Only root may look inside: files may be setuid there, and belong to ids of this machine.
  if ((::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) ||
      ::chmod(directory_.c_str(), 0700) != 0)
    return failed(directory_);
  unique_fd held{
    ::open((directory_ + "/" + lock_file).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  if (!held)
    return failed(directory_);
  if (::flock(held.get(), LOCK_EX | LOCK_NB) != 0)
    return error{errc::limit_reached, "another one imports or removes images in " + directory_};
  return held;
}

bool image_store::in_use() const {
  // What a server has left behind goes on, and stands on trees: where that is so, its spawner's
  // socket is there.
  std::error_code unknown;
  if (std::filesystem::exists(state_ + "/spawner.sock", unknown) || unknown)
    return true;
  const unique_fd held{::open((state_ + "/lock").c_str(), O_RDWR | O_CLOEXEC)};
  return held && ::flock(held.get(), LOCK_SH | LOCK_NB) != 0;
}

void image_store::remove_leftovers(bool also_trees, std::set<std::string> needed) const {
  const auto here = open_directory(directory_);
  if (!here)
    return;
  const auto is_needed = [&](const std::string& name) {
    const auto place = place_of(here.get(), name);
    if (place.empty())
      return errno == EINVAL; // Who cannot tell what is needed removes nothing.
    needed.insert(root_in(place));
    return true;
  };
  also_trees = also_trees && for_each_name(here.get(), is_needed);
  for_each_name(here.get(), [&](const std::string& name) {
    if (name.starts_with(new_prefix) ||
        (also_trees && name.starts_with(tree_prefix) && !needed.contains(root_in(name))))
      remove_all_at(here.get(), name.c_str());
    return true;
  });
}

void image_store::sweep(std::set<std::string> roots) {
  if (const auto held = lock())
    remove_leftovers(true, std::move(roots));
}

result<image_record> image_store::build(const std::string& source, const import_options& how,
                                        const std::string& place,
                                        const unique_fd& directory) const {
  const auto files = open_file_set(source, directory_, how.max_bytes, how.cancelled);
  if (!files)
    return files.reason();
  auto image = open_image_source(**files, how.tag);
  if (!image)
    return error{image.reason().code, source + ": " + image.reason().message};

  if (!how.digest.empty() && image->digest != how.digest)
    return error{errc::invalid_request,
                 source + ": its image is " + image->digest + ", not " + how.digest};

  const auto here = directory.get();
  remove_all_at(here, place.c_str());
  if (::mkdirat(here, place.c_str(), 0700) != 0)
    return failed(directory_ + "/" + place);
  const auto top = open_beneath(here, place, O_RDONLY | O_DIRECTORY);
  if (!top || ::mkdirat(top.get(), "root", 0755) != 0 ||
      ::fchmodat(top.get(), "root", 0755, 0) != 0)
    return failed(directory_ + "/" + place);
  tree_writer tree{open_beneath(top.get(), "root", O_RDONLY | O_DIRECTORY)};

  import_progress now;
  now.layers = image->layers.size();
  for (const auto& each : image->layers)
    now.total_bytes += each.blob.size;
  import_budget budget{how.max_bytes, limits::image_entries, limits::image_name_bytes, nullptr,
                       how.cancelled};
  budget.on_read = [&](std::uint64_t bytes) {
    now.bytes += bytes;
    now.entries = limits::image_entries - budget.entries;
    if (how.on_progress)
      how.on_progress(now);
  };
  for (const auto& each : image->layers) {
    ++now.layer;
    if (auto ok = apply_layer(each, budget, tree); !ok)
      return in_layer(now.layer, each, ok.reason());
  }
  auto account = furnish(tree.root());
  if (!account)
    return account.reason();
  if (auto ok = tree.finish(); !ok)
    return ok.reason();

  image_record made;
  made.name = how.name;
  made.format = image->format;
  made.digest = image->digest;
  made.reference = how.reference;
  made.by_node = how.by_node;
  made.base = pretty_name(tree.root());
  made.architecture =
    image->config.architecture.empty() ? machine_architecture() : image->config.architecture;
  made.created_ms = unix_ms();
  made.account = std::move(*account);
  made.settings = std::move(image->config.settings);
  measure(tree.root(), made);
  // One sync for all files: each by itself would take many times as long.
  if (::syncfs(top.get()) != 0)
    return failed("writing the image to the disk");
  if (auto ok = write_record_in(top.get(), made); !ok)
    return ok.reason();
  if (::fsync(top.get()) != 0)
    return failed("writing the image to the disk");
  return made;
}

result<void> image_store::check_name(int here, const import_options& how) const {
  if (!is_image_name(how.name) || how.name == "host")
    return {{errc::invalid_request,
             "\"" + how.name +
               "\" is no name for an image: expected at most 63 of a-z, 0-9, '.', '_' and "
               "'-', beginning with a letter or digit, and not \"host\""}};
  struct stat info {};
  const bool taken = ::fstatat(here, how.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  if (taken && !S_ISLNK(info.st_mode))
    return {
      {errc::invalid_request, directory_ + "/" + how.name + " is no image, and in the way of one"}};
  if (taken && !how.replace)
    return {{errc::invalid_request, "there is an image \"" + how.name +
                                      "\" already; --replace puts this one in its "
                                      "place, and --name gives it another name"}};
  return {};
}

result<void> image_store::lead(int here, const std::string& name, const std::string& tree) const {
  const auto place = new_prefix + name;
  if (::symlinkat(tree.c_str(), here, place.c_str()) != 0 || ::fsync(here) != 0 ||
      ::renameat(here, place.c_str(), here, name.c_str()) != 0 || ::fsync(here) != 0)
    return {failed(directory_ + "/" + name)};
  return {};
}

result<void> image_store::check_name(const import_options& how) const {
  const auto here = open_directory(directory_);
  return check_name(here.get(), how); // In a directory that is not there, no name is taken.
}

result<image_record> image_store::import_image(const std::string& source,
                                               const import_options& how) {
  const auto held = lock();
  if (!held)
    return held.reason();
  const auto here = open_directory(directory_);
  if (!here)
    return failed(directory_);
  remove_leftovers(!in_use());
  if (auto ok = check_name(here.get(), how); !ok)
    return ok.reason();
  const auto place = new_prefix + how.name;
  auto made = build(source, how, place, here);
  if (!made) {
    remove_all_at(here.get(), place.c_str());
    return made;
  }
  const auto tree = new_tree();
  const bool moved = ::renameat(here.get(), place.c_str(), here.get(), tree.c_str()) == 0;
  const auto led =
    moved ? lead(here.get(), how.name, tree) : result<void>{failed(directory_ + "/" + how.name)};
  made->root = root_in(tree);
  remove_leftovers(!in_use());
  if (!led)
    return led.reason();
  return made;
}

result<image_record> image_store::name_again(const std::string& digest, const import_options& how) {
  const auto held = lock();
  if (!held)
    return held.reason();
  const auto here = open_directory(directory_);
  if (!here)
    return failed(directory_);
  if (auto ok = check_name(here.get(), how); !ok)
    return ok.reason();
  const auto all = list();
  if (!all)
    return all.reason();
  const auto at = std::find_if(all->begin(), all->end(), [&](const image_record& each) {
    return each.digest == digest && each.name != "host";
  });
  if (at == all->end())
    return error{errc::not_found, "there is no image with the digest " + digest};
  auto made = *at;
  made.name = how.name;
  remove_all_at(here.get(), (new_prefix + how.name).c_str());
  if (auto ok = lead(here.get(), how.name, place_of(here.get(), at->name)); !ok)
    return ok.reason();
  remove_leftovers(!in_use());
  return made;
}

result<std::vector<image_record>> image_store::list() const {
  std::vector<image_record> all;
  const auto here = open_directory(directory_);
  if (!here && errno == ENOENT)
    return all;
  if (!here)
    return failed(directory_);
  for_each_name(here.get(), [&](const std::string& name) {
    if (is_image_name(name))
      if (auto one = find(name))
        all.push_back(std::move(*one));
    return true;
  });
  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.name < b.name; });
  return all;
}

result<image_record> image_store::find(const std::string& name) const {
  const error missing{
    errc::not_found, "there is no image \"" + name + "\" in " + directory_ +
                       "; insula image pull or insula image import brings one, and insula image ls "
                       "shows those that are there"};
  if (!is_image_name(name))
    return missing;
  const auto here = open_directory(directory_);
  const auto where = here ? place_of(here.get(), name) : std::string{};
  if (where.empty() || !open_directory(directory_ + "/" + where))
    return missing;
  const auto place = open_file_set(directory_ + "/" + where, directory_, 0);
  if (!place)
    return place.reason();
  const auto text = read_small(**place, record_file, limits::image_document_bytes);
  if (!text)
    return missing;
  auto record = read_image_record(*text);
  if (!record)
    return error{errc::invalid_request,
                 directory_ + "/" + name + "/" + record_file + ": " + record.reason().message};
  record->name = name;
  record->root = root_in(where);
  struct stat info {};
  const auto note = directory_ + "/" + where + "/" + used_file;
  if (::lstat(note.c_str(), &info) == 0)
    record->used_ms = std::int64_t{info.st_mtim.tv_sec} * 1000 + info.st_mtim.tv_nsec / 1'000'000;
  return record;
}

void image_store::mark_used(const std::string& name) const {
  if (!is_image_name(name))
    return;
  const auto here = open_directory(directory_);
  const auto where = here ? place_of(here.get(), name) : std::string{};
  const unique_fd note{where.empty() ? -1
                                     : ::openat(here.get(), (where + "/" + used_file).c_str(),
                                                O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644)};
  if (note)
    ::futimens(note.get(), nullptr);
}

result<void> image_store::remove(const std::string& name) {
  if (const auto found = find(name); !found && found.reason().code == errc::not_found)
    return found.reason();
  const auto held = lock();
  if (!held)
    return held.reason();
  const auto here = open_directory(directory_);
  if (!here || ::unlinkat(here.get(), name.c_str(), 0) != 0 || ::fsync(here.get()) != 0)
    return {failed(directory_ + "/" + name)};
  remove_leftovers(!in_use());
  return {};
}

result<void> image_store::write_record(const image_record& record) {
  const auto top = open_directory(directory_ + "/" + record.name);
  if (!top)
    return {failed(directory_ + "/" + record.name)};
  return write_record_in(top.get(), record);
}

} // namespace insula::storage::images
