// The profile of a sandbox: what it is made with, and what all that runs in it has of it.
#include "base/limits.hpp"
#include "tests/actors/fake_snapshot_archive.hpp"
#include "tests/actors/sandbox/fake_core.hpp"

#include "actors/sandbox/profile.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

sandbox_profile sample() {
  sandbox_profile made;
  made.user = {7, 8};
  made.home = "/srv/home";
  made.cwd = "/srv/work";
  made.env = {{"HOME", "/other"}, {"EDITOR", "a=b\nc"}, {"EMPTY", ""}};
  return made;
}

void define(whole_sandbox& box, std::optional<sandbox_profile> with,
            std::optional<privileges> gains = {}) {
  owed<sandbox_description> told;
  define_sandbox wanted;
  wanted.profile = std::move(with);
  wanted.gains = gains;
  box.parts.description_.define(wanted, told);
  box.run();
  CHECK(told.got().exists);
}

/// The spec of a command, once it is to start.
runtime::process_spec command(whole_sandbox& box, exec_request wanted = {}) {
  owed<process_actor> told;
  wanted.command_line = "true";
  box.parts.commands_.run({std::move(wanted), nullptr}, told);
  return box.processes.back()->options.spec;
}

bool has(const std::vector<std::string>& env, const std::string& line) {
  return std::find(env.begin(), env.end(), line) != env.end();
}

bool is(const runtime::sandbox_user& user, std::uint32_t uid, std::uint32_t gid) {
  return user.uid == uid && user.gid == gid;
}

} // namespace

TEST_CASE("a profile is read as it was written", "[parts][profile]") {
  const auto wrote = sample();
  sandbox_profile of_node;
  of_node.env = {{"OF", "node"}};
  of_node.cwd = "/of/node";
  const auto read = read_profile(write_profile(wrote), of_node);
  REQUIRE(read);
  CHECK(read->user.uid == 7);
  CHECK(read->user.gid == 8);
  CHECK(read->home == wrote.home);
  CHECK(read->cwd == wrote.cwd);
  CHECK(read->env == wrote.env);
  CHECK(read->gains == privileges::none);
  // The form of records: it stays.
  CHECK(write_profile({}) ==
        std::string{"user=1000:1000\0home=\0cwd=/workspace\0privileges=none\0", 52});
  for (const std::string later : {"limbs=4", "privileges=all", "user=root", "user=1", "user=1:2:3",
                                  "env", "user=-1:1", "user=99999999999:1"})
    CHECK(read_profile(later, {}).reason().code == errc::launch_failed);
  auto with_sudo = wrote;
  with_sudo.gains = privileges::sudo;
  CHECK(read_profile(write_profile(with_sudo), {})->gains == privileges::sudo);
  // One that says nothing but the privileges has all else of the node.
  CHECK(write_privileges(privileges::sudo) == std::string{"privileges=sudo\0", 16});
  const auto part = read_profile(write_privileges(privileges::sudo), of_node);
  REQUIRE(part);
  CHECK(part->gains == privileges::sudo);
  CHECK(part->cwd == of_node.cwd);
  CHECK(part->env == of_node.env);
}

TEST_CASE("the user of a sandbox has its name before a request is served", "[parts][profile]") {
  whole_sandbox box;
  sandbox_profile with;
  with.login = "maker";
  with.home = "/home/maker";
  with.cwd = "/made";
  define(box, with);
  box.engine.holds_names = true;
  const auto used = box.use();
  auto& place = box.newest();
  REQUIRE(place.accounts.size() == 1);
  const auto& named = place.accounts.front();
  CHECK(named.name == "maker");
  CHECK(named.home == "/home/maker");
  CHECK(named.directory == "/made");
  CHECK(named.link == "/workspace");
  CHECK(named.anew);
  CHECK(is(named.user, 1000, 1000));
  CHECK(used.open());
  SECTION("and then it is served") {
    place.naming.front()({});
    box.run();
    used.got();
    INFO("the next start tells it again");
    box.stops();
    const auto again = box.use();
    CHECK_FALSE(box.newest().accounts.front().anew);
    box.newest().naming.front()({});
    box.run();
    again.got();
  }
  SECTION("else the start has failed") {
    place.naming.front()(error{errc::io_failed, "no room"});
    box.run();
    CHECK(used.code() == errc::launch_failed);
    CHECK(place.destroys == 1);
    CHECK(box.now() == phase::asleep);
  }
  SECTION("an answer that comes too late is no answer") {
    owed<caf::ok_atom> gone;
    box.parts.teardown_.remove({}, gone);
    box.run();
    place.naming.front()({});
    box.run();
    CHECK(used.code() == errc::sandbox_not_running);
    gone.got();
  }
}

TEST_CASE("a sandbox that is adopted has its user's name, unless its first run was to begin",
          "[parts][profile]") {
  for (const auto state : {run_state::pending, run_state::running}) {
    CAPTURE(name_of(state));
    whole_sandbox box;
    sandbox_profile with;
    with.login = "maker";
    with.home = "/home/maker";
    define(box, with);
    box.cluster.kept["started_ms"] = "1";
    sandbox_run run;
    run.number = 1;
    run.state = state;
    run.timeout_ms = 60'000;
    box.cluster.kept[actors::key_of_run(1)] = actors::text_of(run);
    box.engine.left[box.id()] = std::make_shared<fake_sandbox>();
    const auto place = box.engine.left[box.id()];
    box.parts.startup_.adopt();
    box.run();
    CHECK(box.now() == phase::running);
    CHECK(place->accounts.size() == (state == run_state::pending ? 1u : 0u));
  }
}

TEST_CASE("a user's name is one, and has a home", "[parts][profile]") {
  sandbox_profile with;
  with.home = "/home/x";
  for (const std::string good : {"", "a", "_", "vercel-sandbox", "a1"}) {
    with.login = good;
    CHECK_FALSE(malformed_profile(with));
    CHECK(read_profile(write_profile(with), {})->login == good);
  }
  for (const std::string bad : {"1a", "-a", "A", "a b", "a:b", "a\nb"}) {
    with.login = bad;
    CHECK(malformed_profile(with));
  }
  with.login = std::string(33, 'a');
  CHECK(malformed_profile(with));
  with.login = "a";
  with.home.clear();
  CHECK(malformed_profile(with));
}

TEST_CASE("a sandbox keeps the privileges with which it came to be", "[parts][profile]") {
  const auto gains = [](privileges of_node, std::optional<privileges> wanted, bool defined) {
    whole_sandbox box;
    box.fake_world::options->profile.gains = of_node;
    if (defined)
      define(box, {}, wanted);
    request_context context;
    if (!defined)
      context.gains = wanted;
    box.use(context).got();
    CHECK((box.engine.creations.back().spec.may_gain_rights) ==
          (box.profile().gains == privileges::sudo));
    const auto first = box.profile().gains;
    box.stops();
    box.use().got();
    CHECK(box.profile().gains == first);
    return first;
  };
  for (const bool defined : {true, false}) {
    CAPTURE(defined);
    for (const auto of_node : {privileges::none, privileges::sudo}) {
      CHECK(gains(of_node, {}, defined) == of_node);
      for (const auto wanted : {privileges::none, privileges::sudo})
        CHECK(gains(of_node, wanted, defined) == wanted);
    }
  }
}

TEST_CASE("of two wishes for a sandbox that is not there the first is kept", "[parts][profile]") {
  whole_sandbox box;
  redefine_sandbox wish;
  wish.keeps_wishes = true;
  owed<sandbox_description> first, other, same;
  for (const auto& [gains, told] :
       {std::pair{privileges::sudo, &first}, std::pair{privileges::none, &other},
        std::pair{privileges::sudo, &same}}) {
    wish.context.gains = gains;
    box.parts.description_.redefine(wish, *told);
  }
  box.run();
  CHECK_FALSE(first.got().exists);
  CHECK(other.code() == errc::sandbox_mismatch);
  CHECK_FALSE(same.got().exists);
  CHECK(box.engine.creations.empty());
  box.use().got();
  CHECK(box.profile().gains == privileges::sudo);
}

TEST_CASE("all that runs in a sandbox has its profile", "[parts][profile]") {
  whole_sandbox box;
  box.have_image({{"host", true}, {{"HOME", "/image"}, {"EDITOR", "image's"}}});
  define(box, sample());
  box.use().got();
  SECTION("commands") {
    const auto spec = command(box);
    CHECK(is(spec.user, 7, 8));
    CHECK(spec.cwd == "/srv/work");
    CHECK(has(spec.env, "HOME=/srv/home"));
    CHECK(has(spec.env, "EDITOR=image's")); // What an image says of its programs counts.
    CHECK(has(spec.env, "EMPTY="));
    exec_request other;
    other.user = command_user{1, 2};
    other.cwd = "/else";
    CHECK(is(command(box, other).user, 1, 2));
    CHECK(command(box, other).cwd == "/else");
  }
  SECTION("sessions and terminals") {
    owed<caf::ok_atom> told;
    box.parts.sessions_.create({"mine"}, told);
    REQUIRE(box.sessions.size() == 1);
    const auto& spec = box.sessions[0]->options.first;
    CHECK(is(spec.user, 7, 8));
    CHECK(spec.cwd == "/srv/work");
    CHECK(has(spec.env, "HOME=/srv/home"));
    box.have_image({{"host", true}, {}, "/bin/sh"}); // Then it needs no session.
    owed<terminal_actor, std::uint64_t, std::uint64_t> opened;
    open_terminal_request wanted;
    wanted.session = "other";
    box.parts.terminals_.open(wanted, opened);
    box.run();
    REQUIRE(box.terminals.size() == 1);
    CHECK(is(box.terminals[0]->options.spec.user, 7, 8));
    CHECK(box.terminals[0]->options.spec.cwd == "/srv/work");
  }
  SECTION("file operations") {
    owed<file_channel> read, task;
    box.parts.files_.read({"/a"}, read);
    CHECK(is(box.newest().last_user, 7, 8));
    box.newest().last_user = {};
    box.parts.files_.run_task({file_task::read, {"b", "0", "1"}}, task);
    CHECK(box.newest().files.back().find(" /srv/work/b ") != std::string::npos);
    CHECK(is(box.newest().last_user, 7, 8));
  }
}

TEST_CASE("what an earlier version kept goes into the directory of the profile",
          "[parts][profile]") {
  whole_sandbox box;
  fake_snapshot_archive files;
  box.fake_world::options->files = &files;
  define(box, sample());
  box.cluster.kept["snapshot"] = "42 place7";
  box.use().got();
  REQUIRE(files.back.size() == 1);
  CHECK(box.newest().files.back() == "write tree /srv/work");
}

TEST_CASE("a profile is read once in each start", "[parts][profile]") {
  whole_sandbox box;
  define(box, sample());
  CHECK(box.profile().cwd == "/workspace"); // It has not been started.
  box.use().got();
  auto other = sample();
  other.cwd = "/later";
  box.cluster.kept[std::string{profile_key}] = write_profile(other);
  CHECK(command(box).cwd == "/srv/work");
  box.stops();
  box.use().got();
  CHECK(command(box).cwd == "/later");
}

TEST_CASE("a sandbox without a profile of its own has the node's", "[parts][profile]") {
  whole_sandbox box;
  define(box, {});
  CHECK(box.cluster.kept.count(std::string{profile_key}) == 0);
  box.use().got();
  const auto spec = command(box);
  CHECK(is(spec.user, 1000, 1000));
  CHECK(spec.cwd == "/workspace");
  CHECK(has(spec.env, "HOME=/home/sandbox"));
}

TEST_CASE("a sandbox whose profile is of a later version does not start", "[parts][profile]") {
  whole_sandbox box;
  box.cluster.kept = {{"created_ms", "1"},
                      {"profile", std::string{"user=1:1\0privileges=all\0", 24}}};
  const auto told = box.use();
  CHECK(told.code() == errc::launch_failed);
  CHECK(box.engine.creations.empty());
  CHECK(box.now() == phase::asleep);
}

TEST_CASE("a profile that no sandbox may have makes none", "[parts][profile]") {
  fake_core core;
  description about{core};
  const auto code = [&](auto spoil) {
    auto with = sample();
    spoil(with);
    owed<sandbox_description> told;
    define_sandbox wanted;
    wanted.profile = std::move(with);
    about.define(wanted, told);
    return told.code();
  };
  const std::string nul{"/a\0b", 4};
  for (const auto& path : {std::string{}, std::string{"a"}, std::string{"/"}, std::string{"/a/"},
                           std::string{"/a/../b"}, std::string{"//a"}, nul,
                           "/" + std::string(limits::image_path_bytes, 'x')})
    CHECK(code([&](auto& it) { it.cwd = path; }) == errc::invalid_request);
  CHECK(code([&](auto& it) { it.home = nul; }) == errc::invalid_request);
  CHECK(code([&](auto& it) { it.user.uid = 65536; }) == errc::invalid_request);
  CHECK(code([&](auto& it) { it.user.gid = 65536; }) == errc::invalid_request);
  CHECK(code([&](auto& it) { it.env["A=B"] = "x"; }) == errc::invalid_request);
  CHECK(code([&](auto& it) { it.env[""] = "x"; }) == errc::invalid_request);
  CHECK(code([&](auto& it) { it.env["A"] = nul; }) == errc::invalid_request);
  CHECK(code([&](auto& it) { it.env["A"].assign(limits::image_environment_bytes, 'x'); }) ==
        errc::invalid_request);
  CHECK(core.cluster.kept.empty());
}
