#include "apps/image.hpp"

#include "actors/record_keys.hpp"
#include "apps/config.hpp"
#include "apps/find_login.hpp"
#include "apps/import_calls.hpp"
#include "apps/progress_bar.hpp"
#include "apps/pull_image.hpp"
#include "storage/images/image_store.hpp"
#include "storage/registry/credentials.hpp"
#include "storage/registry/reference.hpp"
#include "storage/sqlite_store.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <unistd.h>

namespace insula {

namespace {

namespace images = storage::images;
namespace registry = storage::registry;

volatile std::sig_atomic_t was_interrupted = 0;

void watch_for_interrupts() {
  struct sigaction note {};
  note.sa_handler = [](int) { was_interrupted = 1; };
  for (const int number : {SIGINT, SIGTERM, SIGHUP})
    ::sigaction(number, &note, nullptr);
}

/// A name out of a file's: "/tmp/Debian_12.tar.gz" makes "debian_12". May be none.
std::string name_of_file(const std::string& source) {
  auto path = std::filesystem::path{source}.lexically_normal();
  auto name = (path.filename().empty() ? path.parent_path() : path).filename().string();
  for (bool cut = true; cut;) {
    cut = false;
    for (const char* end : {".tar", ".gz", ".tgz", ".zst", ".xz", ".bz2", ".oci"})
      if (name.size() > std::string_view{end}.size() && name.ends_with(end)) {
        name.resize(name.size() - std::string_view{end}.size());
        cut = true;
      }
  }
  return image_name_from(name);
}

std::string size_text(std::uint64_t bytes) {
  if (bytes == 0)
    return "-";
  constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit)
    value /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text.data();
}

std::string time_text(std::int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &parts);
  return text.data();
}

/// Enough of a digest to tell it from others.
std::string short_digest(const std::string& digest) {
  constexpr std::size_t enough = 12;
  return digest.substr(digest.find(':') + 1).substr(0, enough);
}

void print_table(const std::vector<images::image_record>& all) {
  std::vector<std::array<std::string, 7>> rows{
    {"NAME", "SIZE", "CREATED", "LAST USED", "DIGEST", "SOURCE", "BASE"}};
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  for (const auto& each : all)
    rows.push_back({each.name, size_text(each.size_bytes), time_text(each.created_ms),
                    each.used_ms > 0 ? time_text(each.used_ms) : "-", short_digest(each.digest),
                    or_dash(each.reference), or_dash(each.base)});
  std::array<std::size_t, 6> widths{};
  for (const auto& row : rows)
    for (std::size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < widths.size(); ++i)
      std::cout << row[i] << std::string(widths[i] - row[i].size() + 2, ' ');
    std::cout << row.back() << '\n';
  }
}

int complain(const error& why) {
  std::cerr << "insula: " << why.message << '\n';
  return 1;
}

std::map<std::string, std::string> login_variables() {
  std::map<std::string, std::string> all;
  for (const char* name : {"REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "HOME"})
    if (const char* value = std::getenv(name))
      all[name] = value;
  return all;
}

/// All of standard input, but for the end of its line.
result<std::string> read_password() {
  constexpr std::size_t longest = 64u << 10; // A token of a cloud's has a few thousand bytes.
  std::string text;
  std::array<char, 4096> piece{};
  while (text.size() <= longest && std::cin.read(piece.data(), piece.size()).gcount() > 0)
    text.append(piece.data(), static_cast<std::size_t>(std::cin.gcount()));
  while (text.ends_with('\n') || text.ends_with('\r'))
    text.pop_back();
  if (text.empty() || text.size() > longest)
    return error{errc::invalid_request,
                 "--password-stdin reads a password of 1 byte to 64 KiB from standard input"};
  return text;
}

} // namespace

struct image_commands::impl {
  CLI::App* group = nullptr;
  CLI::App* pull = nullptr;
  CLI::App* import = nullptr;
  CLI::App* list = nullptr;
  CLI::App* show = nullptr;
  CLI::App* remove = nullptr;

  std::optional<std::string> state, config_file;
  std::string source, name;
  images::import_options how;
  std::string platform, user;
  bool password_by_input = false;
  bool insecure = false;
  bool json = false;
  bool force = false;

  int run();
  int run_pull(images::image_store& store, const config& values);
  int run_import(images::image_store& store);
  int tell(const images::image_record& made);
  result<registry::login> find_login(const registry::image_reference& image, std::string& helper);
  int run_list(const images::image_store& store) const;
  int run_show(const images::image_store& store) const;
  int run_remove(images::image_store& store, const config& values);
};

image_commands::image_commands(CLI::App& program)
    : impl_(std::make_unique<impl>()) {
  auto& my = *impl_;
  my.group = program.add_subcommand("image", "Bring, list and remove what sandboxes start from");
  my.group->require_subcommand(1);
  my.pull = my.group->add_subcommand("pull", "Bring an image here from a registry, by its name");
  my.pull->add_option("reference", my.source, "HOST/NAME:TAG or HOST/NAME@DIGEST")->required();
  my.pull->add_option("--name", my.name,
                      "What it is called here. Default: made from the reference: debian-12");
  my.pull->add_option("--platform", my.platform,
                      "OS/ARCHITECTURE/VARIANT, where there are several. Default: this machine's");
  my.pull->add_flag("--replace", my.how.replace, "Put it in the place of an image of that name");
  auto* user = my.pull->add_option(
    "--username", my.user,
    "Who asks. Default: as REGISTRY_AUTH_FILE, DOCKER_CONFIG or ~/.docker/config.json say");
  user->needs(
    my.pull
      ->add_flag("--password-stdin", my.password_by_input, "Read the password from standard input")
      ->needs(user));
  my.pull->add_flag("--insecure", my.insecure,
                    "Also by HTTP, and with a certificate that cannot be verified");
  my.pull
    ->add_option("--max-size", my.how.max_bytes,
                 "What its layers may have, packed and unpacked, such as 10GiB. Default: 64GiB")
    ->transform(CLI::AsSizeValue(true));
  my.pull->footer(
    "A pull that is interrupted leaves no image, and the next one of the same reference goes on "
    "where it was. A server that runs finds new images when it is started next.");

  my.import = my.group->add_subcommand(
    "import", "Bring an image here: an OCI layout (a directory), an oci-archive tar or a file of "
              "docker save");
  my.import->add_option("source", my.source, "The directory or file")
    ->required()
    ->check(CLI::ExistingPath);
  my.import->add_option("--name", my.name,
                        "What it is called here. Default: made from the source's name");
  my.import->add_option("--tag", my.how.tag, "Which image, where the source has several");
  my.import->add_flag(
    "--replace", my.how.replace,
    "Put it in the place of an image of that name. A server that runs goes on with the old "
    "one until it is started again");
  my.import
    ->add_option("--max-size", my.how.max_bytes,
                 "What its layers may unpack to together, such as 10GiB. Default: 64GiB")
    ->transform(CLI::AsSizeValue(true));
  my.import->footer("A server that runs knows new images at once. Name the image in cluster.yaml "
                    "(image.default) to "
                    "have all new sandboxes start from it.");

  my.list = my.group->add_subcommand("ls", "List the images that are here");
  my.list->add_flag("--json", my.json, "Everything that is known of them, as JSON");

  my.show = my.group->add_subcommand("show", "Print what is known of one image, as JSON");
  my.show->add_option("name", my.name, "The image")->required();

  my.remove = my.group->add_subcommand("rm", "Remove an image");
  my.remove->add_option("name", my.name, "The image")->required();
  my.remove->add_flag("--force", my.force,
                      "Also when sandboxes start from it: they start again only once it is back");

  for (auto* each : {my.pull, my.import, my.list, my.show, my.remove}) {
    each->add_option("--state", my.state, "The server's state directory. Default: /var/lib/insula");
    each->add_option("--config", my.config_file, "The server's configuration, which names it too");
  }
}

image_commands::~image_commands() = default;

std::optional<int> image_commands::run() {
  if (!impl_->group->parsed())
    return std::nullopt;
  return impl_->run();
}

int image_commands::impl::run() {
  const auto values = load_config(config_file, {}, {.listen = {}, .state_directory = state});
  if (!values) {
    std::cerr << "insula: " << values.reason().message << '\n';
    return 2;
  }
  if (::geteuid() != 0)
    return complain(
      {errc::invalid_request, "insula image needs root: only root may look into images"});
  images::image_store store{values->state.directory};
  if (pull->parsed())
    return run_pull(store, *values);
  if (import->parsed())
    return run_import(store);
  if (list->parsed())
    return run_list(store);
  if (show->parsed())
    return run_show(store);
  return run_remove(store, *values);
}

int image_commands::impl::run_import(images::image_store& store) {
  how.name = name.empty() ? name_of_file(source) : name;
  if (name.empty() && (!images::is_image_name(how.name) || how.name == "host")) {
    std::cerr << "insula: the name of " << source << " makes no name for an image: give it one "
              << "with --name\n";
    return 2;
  }
  watch_for_interrupts();
  if (const auto ok = allow_only_import_calls(); !ok)
    return complain(ok.reason());
  how.cancelled = [] { return was_interrupted != 0; };
  const auto made = [&] {
    progress_bar bar;
    how.on_progress = [&bar](const images::import_progress& now) { bar.show(now); };
    return store.import_image(source, how);
  }();
  if (!made && made.reason().code == errc::deadline_exceeded)
    return complain({errc::deadline_exceeded, "interrupted; nothing was imported"});
  if (!made)
    return complain(made.reason());
  return tell(*made);
}

/// Of an image that is here now.
int image_commands::impl::tell(const images::image_record& made) {
  std::cout << made.name << ": " << (made.base.empty() ? "imported" : made.base) << ", "
            << made.entries << " files, " << size_text(made.size_bytes) << ", " << made.digest
            << '\n';
  if (made.account.shell.empty())
    std::cerr << "insula: " << made.name << " has neither /bin/bash nor /bin/sh, so sandboxes "
              << "start from it, but no command runs in them\n";
  return 0;
}

result<registry::login> image_commands::impl::find_login(const registry::image_reference& image,
                                                         std::string& helper) {
  if (!user.empty()) {
    if (user.find(':') != user.npos)
      return error{errc::invalid_request, "a --username has no ':'"};
    auto password = read_password();
    if (!password)
      return password.reason();
    return registry::login{user, std::move(*password), {}};
  }
  auto found = insula::find_login(login_variables(), image);
  if (!found)
    return found.reason();
  helper = std::move(found->helper);
  return std::move(found->who);
}

int image_commands::impl::run_pull(images::image_store& store, const config& values) {
  const auto image = registry::parse_reference(source);
  auto which = platform.empty() ? result<registry::platform>{registry::machine_platform()}
                                : registry::parse_platform(platform);
  if (!image || !which) {
    std::cerr << "insula: " << (image ? which.reason() : image.reason()).message << '\n';
    return 2;
  }
  const auto machine = registry::machine_platform();
  if (which->os != machine.os || which->architecture != machine.architecture)
    return complain(
      {errc::invalid_request,
       "an image for " + which->str() + " does not run here: this machine is " + machine.str()});
  how.name = name.empty() ? name_of_image(*image) : name;
  how.reference = image->str();
  if (auto ok = store.check_name(how); !ok)
    return complain(ok.reason());
  pull_order order{*image, *which, {}, how.name, how.replace, false, how.max_bytes};
  order.client.insecure = insecure;
  auto who = find_login(*image, order.client.helper);
  if (!who)
    return complain(who.reason());
  order.client.who = std::move(*who);

  watch_for_interrupts();
  auto made = [&] {
    progress_bar bar;
    return pull_image(values.state.directory, order,
                      {[&bar](const registry::pull_progress& now) { bar.show(now); },
                       [&bar](const images::import_progress& now) { bar.show(now); },
                       [] { return was_interrupted != 0; }});
  }();
  if (!made && made.reason().code == errc::deadline_exceeded)
    return complain(
      {errc::deadline_exceeded, "interrupted; the next pull goes on with what has come"});
  if (!made)
    return complain(made.reason());
  if (!made->was_here)
    return tell(made->record);
  std::cout << made->record.name << ": "
            << (made->record.base.empty() ? "named" : made->record.base) << ", was here already, "
            << made->record.digest << '\n';
  return 0;
}

int image_commands::impl::run_list(const images::image_store& store) const {
  const auto all = store.list();
  if (!all)
    return complain(all.reason());
  if (json)
    std::cout << images::to_json(*all);
  else
    print_table(*all);
  return 0;
}

int image_commands::impl::run_show(const images::image_store& store) const {
  const auto found = store.find(name);
  if (!found)
    return complain(found.reason());
  std::cout << images::to_json(*found);
  return 0;
}

int image_commands::impl::run_remove(images::image_store& store, const config& values) {
  if (name == "host")
    return complain({errc::invalid_request, "host is the machine itself: every start makes it"});
  if (const auto found = store.find(name); !found && found.reason().code == errc::not_found)
    return complain(found.reason());
  if (!force) {
    const auto users =
      storage::owners_with(values.state.directory + "/records/insula.db", actors::image_key, name);
    if (!users)
      return complain(users.reason());
    if (!users->empty())
      return complain({errc::limit_reached,
                       (users->size() == 1 ? "a sandbox starts"
                                           : std::to_string(users->size()) + " sandboxes start") +
                         " from " + name + ", " + users->front() +
                         "; delete what starts from it first, or use --force"});
    const auto& wanted = values.image.available;
    if (values.image.default_name == name ||
        std::find(wanted.begin(), wanted.end(), name) != wanted.end())
      return complain({errc::limit_reached, "the configuration names " + name +
                                              ", so the server would not start without it; change "
                                              "that first, or use --force"});
  }
  if (const auto ok = store.remove(name); !ok)
    return complain(ok.reason());
  std::cout << name << " is removed\n";
  return 0;
}

} // namespace insula
