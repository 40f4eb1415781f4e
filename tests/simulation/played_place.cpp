#include "tests/simulation/played_place.hpp"

#include "tests/support/must.hpp"

#include <array>
#include <sys/mman.h>
#include <unistd.h>

namespace insula::simulation {

using namespace actors;

namespace {

const error place_is_away{errc::store_failed, "the place for copies is away"};
const error not_wanted{errc::sandbox_not_running, "nobody wants it any more"};

} // namespace

unique_fd file_of(const std::string& text) {
  unique_fd file{::memfd_create("disk", MFD_CLOEXEC)};
  test::must(static_cast<bool>(file));
  test::must(::pwrite(file.get(), text.data(), text.size(), 0) ==
             static_cast<ssize_t>(text.size()));
  return file;
}

std::string text_of_file(int file) {
  std::array<char, 64> bytes{};
  const auto got = ::pread(file, bytes.data(), bytes.size(), 0);
  test::must(got >= 0);
  return {bytes.data(), static_cast<std::size_t>(got)};
}

std::optional<std::string> played_place::find(const std::string& reference) const {
  const auto at = copies_.find(reference);
  return at == copies_.end() ? std::nullopt : std::optional{at->second.text};
}

void played_place::forget(const std::string& of, storage::epoch last, const std::string& newest) {
  const auto kept = copies_.find(newest);
  std::erase_if(copies_, [&](const auto& each) {
    const auto& mine = each.second;
    if (mine.of != of)
      return false;
    return newest.empty() ? mine.at <= last
                          : kept != copies_.end() && mine.taken_ms < kept->second.taken_ms;
  });
}

void played_files::keep(keep_request what,
                        std::function<void(result<snapshot_reference>)> on_kept) {
  open_.after(takes(), [=, this] {
    if (what.token->cancelled())
      return on_kept(not_wanted);
    const auto opened = what.open();
    if (!opened)
      return on_kept(opened.reason());
    open_.after(takes(), [=, this, text = text_of_file(opened->get())] {
      if (what.token->cancelled())
        return on_kept(not_wanted);
      if (place_.away)
        return on_kept(place_is_away);
      const auto reference = place_.put(what.sandbox, what.epoch, what.taken_ms, text);
      open_.after(takes(), [=] { on_kept(reference); });
    });
  });
}

void played_files::put_back(put_back_request what, std::function<void(result<void>)> on_back) {
  open_.after(takes(), [=, this] {
    if (what.token->cancelled())
      return on_back(not_wanted);
    if (place_.away)
      return on_back(place_is_away);
    const auto text = place_.find(what.from);
    if (!text)
      return on_back(error{errc::store_failed, "there is no such copy"});
    const auto opened = what.open();
    if (!opened)
      return on_back(opened.reason());
    test::must(::pwrite(opened->get(), text->data(), text->size(), 0) ==
               static_cast<ssize_t>(text->size()));
    open_.after(takes(), [=] { on_back({}); });
  });
}

/// Nobody hears whether it is done.
void played_files::forget(const std::string& sandbox, storage::epoch last,
                          const snapshot_reference& newest) {
  open_.after(takes(), [=, this] {
    if (!place_.away)
      place_.forget(sandbox, last, newest);
  });
}

} // namespace insula::simulation
