// sudo: what a user of a sandbox with the privileges `sudo` becomes its root by. It needs no
// configuration and asks for no password: in such a sandbox every user may become any other, and
// its root is nobody on the machine. It works only where programs may change their user.
//
// A program of its own, static: it is laid over images of every kind. Of the files of the image it
// reads /etc/passwd and /etc/group.

#include <cctype>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr const char* usage =
  "usage: sudo [-EHknPS] [-u USER] [-g GROUP] [-D DIRECTORY] [-i | -s] [NAME=VALUE...] "
  "[COMMAND...]\n"
  "       sudo -h | -K | -k | -V | -v | -l\n"
  "\n"
  "Runs a command as root of this sandbox, or as USER (a name, or # and a number), with this\n"
  "environment. It asks for no password.\n"
  "\n"
  "  -u, --user=USER      as this user          -g, --group=GROUP    with this primary group\n"
  "  -i, --login          in a login shell      -s, --shell          in a shell\n"
  "  -H, --set-home       HOME is the user's    -D, --chdir=DIR      in this directory\n"
  "  -P, --preserve-groups keeps the groups     -l, --list           what may be run\n"
  "  -E, -n, -S, -A, -k, -K, -p, -v             are taken, and change nothing\n";

constexpr std::size_t most_groups = 65536;

[[noreturn, gnu::format(printf, 1, 2)]] void refuse(const char* words, ...) {
  std::fputs("sudo: ", stderr);
  va_list more;
  va_start(more, words);
  std::vfprintf(stderr, words, more);
  va_end(more);
  std::fputc('\n', stderr);
  std::exit(1);
}

struct account {
  std::string name, home = "/", shell = "/bin/sh";
  uid_t uid = 0;
  gid_t gid = 0;
};

/// The first line of a file of accounts that is wanted, or null.
template <class Line, class IsWanted>
Line* find_line(const char* file, Line* (*next)(std::FILE*), IsWanted is_wanted) {
  auto* const all = std::fopen(file, "re");
  Line* line = nullptr;
  while (all != nullptr && (line = next(all)) != nullptr && !is_wanted(*line))
    ;
  if (all != nullptr)
    std::fclose(all);
  return line;
}

/// "#12" as 12; -1 if it is none.
long number_of(const char* text) {
  char* end = nullptr;
  const long value =
    *text == '#' && text[1] >= '0' && text[1] <= '9' ? std::strtol(text + 1, &end, 10) : -1;
  return end != nullptr && *end == '\0' && value < 0xffff'ffffl ? value : -1;
}

/// By its name, or by "#" and its number.
bool find_account(const char* wanted, account& found) {
  const auto number = number_of(wanted);
  const auto* line = find_line<passwd>("/etc/passwd", ::fgetpwent, [&](const passwd& each) {
    return number >= 0 ? static_cast<long>(each.pw_uid) == number
                       : std::strcmp(each.pw_name, wanted) == 0;
  });
  if (line != nullptr)
    found = {line->pw_name, line->pw_dir, *line->pw_shell != '\0' ? line->pw_shell : "/bin/sh",
             line->pw_uid, line->pw_gid};
  else if (number == 0 || std::strcmp(wanted, "root") == 0)
    found.name = "root"; // Also where an image has no list of users.
  else
    return false;
  return true;
}

gid_t find_group(const char* wanted) {
  const auto number = number_of(wanted);
  const auto* line = find_line<group>("/etc/group", ::fgetgrent, [&](const group& each) {
    return number >= 0 ? static_cast<long>(each.gr_gid) == number
                       : std::strcmp(each.gr_name, wanted) == 0;
  });
  if (line == nullptr)
    refuse("unknown group %s", wanted);
  return line->gr_gid;
}

std::vector<gid_t> groups_of(const account& user) {
  std::vector<gid_t> all{user.gid};
  find_line<group>("/etc/group", ::fgetgrent, [&](const group& each) {
    for (auto** member = each.gr_mem; *member != nullptr && all.size() < most_groups; ++member)
      if (user.name == *member)
        all.push_back(each.gr_gid);
    return false;
  });
  return all;
}

/// A command in one text, as a shell reads it back.
std::string escaped(char** words) {
  std::string text;
  for (; *words != nullptr; ++words) {
    if (!text.empty())
      text += ' ';
    for (const char* at = *words; *at != '\0'; ++at) {
      if (std::isalnum(static_cast<unsigned char>(*at)) == 0 && std::strchr("_-$", *at) == nullptr)
        text += '\\';
      text += *at;
    }
  }
  return text;
}

/// What a login begins with.
void forget_environment(const account& user) {
  std::string kept;
  if (const char* terminal = std::getenv("TERM"))
    kept = terminal;
  ::clearenv();
  if (!kept.empty())
    ::setenv("TERM", kept.c_str(), 1);
  ::setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
  ::setenv("SHELL", user.shell.c_str(), 1);
}

/// A user's PATH often lacks the directories of root's programs, which package managers look for.
void complete_path() {
  const char* own = std::getenv("PATH");
  std::string path = own != nullptr ? own : "/usr/local/bin:/usr/bin:/bin";
  for (const std::string each : {"/usr/local/sbin", "/usr/sbin", "/sbin"})
    if ((':' + path + ':').find(':' + each + ':') == std::string::npos)
      path += ':' + each;
  ::setenv("PATH", path.c_str(), 1);
}

struct wishes {
  const char* user = nullptr;
  const char* group = nullptr;
  const char* directory = nullptr;
  bool login = false, shell = false, home = false, keeps_groups = false, only_asks = false;
};

wishes read_options(int argc, char** argv) {
  static const option names[] = {{"user", required_argument, nullptr, 'u'},
                                 {"group", required_argument, nullptr, 'g'},
                                 {"chdir", required_argument, nullptr, 'D'},
                                 {"prompt", required_argument, nullptr, 'p'},
                                 {"close-from", required_argument, nullptr, 'C'},
                                 {"login", no_argument, nullptr, 'i'},
                                 {"shell", no_argument, nullptr, 's'},
                                 {"set-home", no_argument, nullptr, 'H'},
                                 {"preserve-env", optional_argument, nullptr, 'E'},
                                 {"preserve-groups", no_argument, nullptr, 'P'},
                                 {"non-interactive", no_argument, nullptr, 'n'},
                                 {"stdin", no_argument, nullptr, 'S'},
                                 {"askpass", no_argument, nullptr, 'A'},
                                 {"reset-timestamp", no_argument, nullptr, 'k'},
                                 {"remove-timestamp", no_argument, nullptr, 'K'},
                                 {"validate", no_argument, nullptr, 'v'},
                                 {"list", no_argument, nullptr, 'l'},
                                 {"version", no_argument, nullptr, 'V'},
                                 {"help", no_argument, nullptr, 'h'},
                                 {}};
  wishes all;
  ::opterr = 0;
  for (int each = 0;
       (each = ::getopt_long(argc, argv, "+:u:g:D:p:C:isHEPnSAkKvlVh", names, nullptr)) != -1;)
    switch (each) {
      case 'u': all.user = ::optarg; break;
      case 'g': all.group = ::optarg; break;
      case 'D': all.directory = ::optarg; break;
      case 'i': all.login = true; break;
      case 's': all.shell = true; break;
      case 'H': all.home = true; break;
      case 'P': all.keeps_groups = true; break;
      case 'E':
      case 'n':
      case 'S':
      case 'A':
      case 'p':
      case 'C': break;
      case 'k':
      case 'K':
      case 'v': all.only_asks = true; break;
      case 'l':
        std::puts("Every user of this sandbox may run:\n    (ALL : ALL) NOPASSWD: ALL");
        std::exit(0);
      case 'V': std::puts("sudo of Insula"); std::exit(0);
      case 'h': std::fputs(usage, stdout); std::exit(0);
      case ':': refuse("%s needs a value; sudo -h says how", argv[::optind - 1]);
      default: refuse("%s is not known here; sudo -h says what is", argv[::optind - 1]);
    }
  if (all.login && all.shell)
    refuse("-i and -s do not go together");
  return all;
}

/// NAME=VALUE, and no path.
bool is_assignment(const char* word) {
  const auto name = std::string_view{word}.substr(0, std::strcspn(word, "="));
  return word[name.size()] == '=' && !name.empty() && name.find('/') == std::string_view::npos;
}

/// The user who runs this.
account caller() {
  account found;
  const auto own = "#" + std::to_string(::getuid());
  if (!find_account(own.c_str(), found))
    found = {own.substr(1), "/", "/bin/sh", ::getuid(), ::getgid()};
  return found;
}

void become(const account& user, gid_t group, bool keeps_groups) {
  auto groups = groups_of(user);
  groups.front() = group;
  if ((!keeps_groups && ::setgroups(groups.size(), groups.data()) != 0) ||
      ::setresgid(group, group, group) != 0 || ::setresuid(user.uid, user.uid, user.uid) != 0)
    refuse("becoming %s: %s", user.name.c_str(), std::strerror(errno));
}

} // namespace

int main(int argc, char** argv) {
  const auto wanted = read_options(argc, argv);
  if (::geteuid() != 0 && ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
    refuse("this process was started with no_new_privs: programs change their user no more");
  if (::geteuid() != 0)
    refuse("this sandbox has the privileges `none`: nobody in it becomes root; ask for `sudo` when "
           "it is made");
  const auto from = caller();
  account user;
  // A group alone is one for the user who asks.
  if (wanted.user == nullptr && wanted.group != nullptr)
    user = from;
  else if (!find_account(wanted.user != nullptr ? wanted.user : "root", user))
    refuse("unknown user %s", wanted.user);
  const auto group = wanted.group != nullptr ? find_group(wanted.group) : user.gid;

  if (wanted.login)
    forget_environment(user);
  for (; ::optind < argc && is_assignment(argv[::optind]); ++::optind)
    ::putenv(argv[::optind]);
  char** const words = argv + ::optind;
  const bool in_shell = wanted.login || wanted.shell;
  if (*words == nullptr && !in_shell) {
    if (wanted.only_asks)
      return 0;
    std::fputs(usage, stderr);
    return 1;
  }

  ::setenv("SUDO_USER", from.name.c_str(), 1);
  ::setenv("SUDO_UID", std::to_string(from.uid).c_str(), 1);
  ::setenv("SUDO_GID", std::to_string(from.gid).c_str(), 1);
  ::setenv("USER", user.name.c_str(), 1);
  ::setenv("LOGNAME", user.name.c_str(), 1);
  if (user.uid == 0)
    complete_path();
  if (wanted.home || wanted.login)
    ::setenv("HOME", user.home.c_str(), 1);
  ::umask(::umask(0) | 022);
  ::close_range(3, ~0u, 0);
  become(user, group, wanted.keeps_groups);
  const auto* directory = wanted.directory != nullptr ? wanted.directory
                          : wanted.login              ? user.home.c_str()
                                                      : nullptr;
  if (directory != nullptr && ::chdir(directory) != 0) {
    if (wanted.directory != nullptr)
      refuse("%s: %s", directory, std::strerror(errno));
    std::fprintf(stderr, "sudo: %s: %s\n", directory, std::strerror(errno)); // As a login does.
  }
  if (!in_shell) {
    ::setenv("SUDO_COMMAND", words[0], 1);
    ::execvp(words[0], words);
    if (errno == ENOENT)
      refuse("%s: command not found", words[0]);
    refuse("%s: %s", words[0], std::strerror(errno));
  }
  const char* own_shell = std::getenv("SHELL");
  const std::string shell = wanted.login || own_shell == nullptr ? user.shell : own_shell;
  auto name = shell.substr(shell.rfind('/') + 1);
  if (wanted.login)
    name.insert(0, 1, '-');
  ::setenv("SUDO_COMMAND", shell.c_str(), 1);
  const auto text = escaped(words);
  if (text.empty())
    ::execl(shell.c_str(), name.c_str(), nullptr);
  else
    ::execl(shell.c_str(), name.c_str(), "-c", text.c_str(), nullptr);
  refuse("%s: %s", shell.c_str(), std::strerror(errno));
}
