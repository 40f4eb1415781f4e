// What the Vercel Sandbox service's clients say, and how they are answered, without a server.
#include "base/base64.hpp"
#include "base/sealed_rules.hpp"
#include "http/vercel/ids.hpp"
#include "http/vercel/objects_json.hpp"
#include "http/vercel/port_names.hpp"
#include "http/vercel/set_up.hpp"
#include "http/vercel/settings.hpp"
#include "http/vercel/tokens.hpp"
#include "http/vercel/words.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

using namespace insula;
using namespace insula::http;
using namespace insula::http::vercel;

namespace {

std::optional<refusal> refused_create(const std::string& members) {
  create_request into;
  return read_create(R"({"projectId":"p")" + (members.empty() ? "" : "," + members) + "}", into);
}

settings made_of(const std::string& members) {
  create_request into;
  const auto wrong = read_create(
    R"({"projectId":"p","name":"n")" + (members.empty() ? "" : "," + members) + "}", into);
  if (wrong)
    FAIL(wrong->message);
  return into.wanted;
}

std::string sandbox_text(const sandbox_view& of) {
  json::ascii_writer out;
  write_sandbox(out, of);
  return out.str();
}

std::string session_text(const sandbox_view& of) {
  json::ascii_writer out;
  write_session(out, of);
  return out.str();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("Vercel: an id says which sandbox it is about", "[http][vercel]") {
  const auto id = sandbox_of("secret", "p", "n");
  CHECK(id.size() == 26);
  CHECK(sandbox_of("secret", "p", "n") == id);
  CHECK(sandbox_of("secret", "p", "m") != id);
  CHECK(sandbox_of("secret", "pn", "") != id);
  CHECK(sandbox_of("other", "p", "n") != id);
  const session_id session{id, 0x1f};
  CHECK(session.text() == "sbx_" + id + "1f");
  const auto parsed = session_id::parse(session.text());
  REQUIRE(parsed);
  CHECK(parsed->sandbox == id);
  CHECK(parsed->run == 0x1f);
  const auto other = session_id::parse("sbx_" + id + "0");
  REQUIRE(other);
  CHECK(other->run == 0);
  for (const std::string& bad :
       {std::string{}, std::string{"sbx_"}, "sbx_" + id, "sbx_" + id + "00", "sbx_" + id + "x",
        "sbx_" + id + "12345678901234567", "snap_" + id + "1", "sbx_" + std::string(26, '1') + "1"})
    CHECK_FALSE(session_id::parse(bad));
  const auto command = new_command_id();
  CHECK(key_of_command(command) == command.substr(4));
  CHECK(new_command_id() != command);
  for (const auto* bad : {"", "cmd_", "cmd_zz", "cmd_0123456789abcdef0123456789abcdeF"})
    CHECK(key_of_command(bad).empty());
  CHECK(is_sandbox_name(generate_name()));
  CHECK(generate_name() != generate_name());
  CHECK(is_sandbox_name("aZ0_-"));
  for (const std::string& bad : {std::string{}, std::string{"a b"}, std::string{"sessions"},
                                 std::string{"drives"}, std::string(129, 'a'), std::string{"a/b"}})
    CHECK_FALSE(is_sandbox_name(bad));
  INFO("one of another API has its id for a name, and no other sandbox has such a name");
  CHECK(id_of_name("secret", "p", "sbx_" + id) == id);
  CHECK(id_of_name("secret", "p", "n") == id);
  CHECK(is_sandbox_name("sbx_" + id));
  CHECK_FALSE(is_name_to_give("sbx_" + id));
  CHECK(is_name_to_give("sbx_" + id + "0"));
  CHECK(is_name_to_give("sbx_n"));
}

TEST_CASE("Vercel: what is asked for is read, and what is wrong is named", "[http][vercel]") {
  create_request wanted;
  REQUIRE_FALSE(read_create(
    R"({"projectId":"p","name":"n","ports":[3000,65535],"timeout":60000,"resources":{"vcpus":4},
        "runtime":"node24","env":{"A":"b"},"tags":{"k":"v"},"persistent":false,
        "keepLastSnapshots":{"count":2},"snapshotExpiration":86400000,"__interactive":true,
        "source":{"type":"git","url":"https://a.example/b/c.git","depth":1,"revision":"main"},
        "networkPolicy":{"allow":["A.example."],"subnets":{"deny":["10.1.2.3/8"]}},"cwd":null})",
    wanted));
  const auto& is = wanted.wanted;
  CHECK(is.ports == std::vector<std::uint16_t>{3000, 65535});
  CHECK(is.timeout_ms == 60'000);
  CHECK(is.vcpus == 4);
  CHECK(is.runtime == "node24");
  CHECK_FALSE(is.persistent);
  CHECK(is.keep_last->count == 2);
  CHECK(is.snapshot_expiration_ms == 86'400'000);
  CHECK(wanted.env.at("A") == "b");
  CHECK(wanted.git->depth == 1);
  CHECK(is.network.domains == std::vector<std::string>{"a.example"});
  CHECK(is.network.denied == std::vector<std::string>{"10.0.0.0/8"});
  CHECK(read_settings(text_of(is)));
  CHECK(text_of(*read_settings(text_of(is))) == text_of(is));
  auto teams = is;
  teams.team = "team_a";
  CHECK(read_settings(text_of(teams))->team == "team_a");
  auto begun = is;
  begun.unfinished = true;
  CHECK(read_settings(text_of(begun))->unfinished);
  CHECK_FALSE(read_settings(text_of(is))->unfinished);

  const std::vector<std::pair<std::string, std::string>> wrong{
    {R"("name":"")", "name"},
    {R"("name":7)", "name"},
    {R"("ports":[1023])", "ports"},
    {R"("ports":[3000,3000])", "ports"},
    {R"("ports":[1024,1025,1026,1027,1028,1029,1030,1031,1032,1033,1034,1035,1036,1037,1038,1039])",
     "ports"},
    {R"("timeout":999)", "timeout"},
    {R"("timeout":"x")", "timeout"},
    {R"("resources":{"vcpus":3})", "vcpus"},
    {R"("resources":{"vcpus":2,"memory":1})", "memory"},
    {R"("tags":{"a":1})", "tags"},
    {R"("keepLastSnapshots":{"count":0})", "count"},
    {R"("snapshotExpiration":1)", "snapshotExpiration"},
    {R"("runtime":"a","image":"b")", "runtime and image"},
    {R"("env":{"A=B":"c"})", "env"},
    {R"("mounts":{"/a":{"drive":"d e"}})", "mounts./a.drive"},
    {R"("mounts":{"/a":{"drive":"d","mode":"w"}})", "mounts./a.mode"},
    {R"("mounts":{"/a/":{"drive":"d"}})", "mounts./a/"},
    {R"("mounts":{"/a":{"drive":"d"},"/a/b":{"drive":"e"}})", "/a/b"},
    {R"("networkPolicy":{"allow":["a b"]})", "networkPolicy"},
    {R"("networkPolicy":{"allow":["10.0.0.0/8"]})", "networkPolicy"},
    {R"("networkPolicy":{"mode":"odd"})", "mode"},
    {R"("networkPolicy":{"allow":{"a.example":[{"forwardURL":"http://x"}]}})", "https://"},
    {R"("source":{"type":"git","url":"file:///etc"})", "source.url"},
    {R"("source":{"type":"odd"})", "source.type"}};
  for (const auto& [members, named] : wrong) {
    CAPTURE(members);
    const auto why = refused_create(members);
    REQUIRE(why);
    CHECK(why->status == 400);
    CHECK(has(why->message, named));
  }
  CHECK(refused_create(R"("timeout":90000000)")->code == "sandbox_timeout_invalid");
  CHECK_FALSE(refused_create(""));
  create_request none;
  CHECK(read_create("[]", none));
  CHECK(read_create("{}", none)->message == "projectId is required");
  const auto seen = settings_in(R"({"projectId":"p","name":"n","mounts":{"/d":{"drive":"x"}}})");
  CHECK(seen.project == "p");
  CHECK(seen.name == "n");
  CHECK(own_drive_of(seen, "secret") == drive_of("secret", "p", "x"));
  CHECK(settings_in("{").project.empty());
}

TEST_CASE("Vercel: a change is made whole or not at all", "[http][vercel]") {
  auto is = made_of(R"("tags":{"a":"b"},"keepLastSnapshots":{"count":2})");
  const auto before = text_of(is);
  std::string snapshot;
  const std::string id(26, 'a');
  CHECK(apply_patch(R"({"tags":{"c":"d"},"ports":[1]})", is, snapshot));
  CHECK(text_of(is) == before);
  const auto gone = apply_patch(R"({"currentSnapshotId":"snap_x","timeout":5000})", is, snapshot);
  CHECK(gone->status == 410);
  CHECK(gone->code == "snapshot_not_found");
  CHECK(apply_patch(R"({"currentSnapshotId":"snap_)" + id + R"(","ports":[1]})", is, snapshot));
  CHECK(snapshot.empty());
  CHECK(text_of(is) == before);
  REQUIRE_FALSE(apply_patch(R"({"currentSnapshotId":"snap_)" + id + R"("})", is, snapshot));
  CHECK(snapshot == id);
  REQUIRE_FALSE(
    apply_patch(R"({"tags":{},"keepLastSnapshots":null,"timeout":5000})", is, snapshot));
  CHECK(snapshot.empty());
  CHECK(is.tags.empty());
  CHECK_FALSE(is.keep_last);
  CHECK(is.timeout_ms == 5000);
  REQUIRE_FALSE(apply_patch(R"({"networkPolicy":{"mode":"deny-all"}})", is, snapshot));
  CHECK(is.network.mode == network_wish::kind::deny_all);
}

TEST_CASE("Vercel: a fork has what its source has, but for what its request names",
          "[http][vercel]") {
  create_request forked;
  forked.wanted =
    made_of(R"("tags":{"a":"b"},"ports":[3000],"resources":{"vcpus":4},"runtime":"node22")");
  forked.env = {{"A", "1"}, {"B", "2"}};
  const auto source = forked;
  bool other_image = true;
  REQUIRE_FALSE(read_fork("", forked, other_image));
  CHECK_FALSE(other_image);
  CHECK(forked.wanted.name != source.wanted.name);
  CHECK(is_sandbox_name(forked.wanted.name));
  CHECK(forked.wanted.vcpus == 4);
  CHECK(forked.wanted.runtime == "node22");
  CHECK(forked.env == source.env);

  forked = source;
  REQUIRE_FALSE(
    read_fork(R"({"name":"n","tags":{"c":"d"},"env":{"C":"3"},"ports":[]})", forked, other_image));
  CHECK(forked.wanted.name == "n");
  CHECK(forked.wanted.tags == std::map<std::string, std::string>{{"c", "d"}});
  CHECK(forked.env == std::map<std::string, std::string>{{"C", "3"}});
  CHECK(forked.wanted.ports.empty());

  forked = source;
  REQUIRE_FALSE(read_fork(R"({"image":"other"})", forked, other_image));
  CHECK(other_image);
  CHECK(forked.wanted.runtime.empty());
  CHECK(read_fork(R"({"name":"snapshots"})", forked, other_image)->status == 400);
  CHECK(read_fork(R"({"ports":[1]})", forked, other_image)->status == 400);
}

TEST_CASE("Vercel: how long snapshots are kept, and how many", "[http][vercel]") {
  constexpr std::int64_t day = 86'400'000;
  const auto of = [](const std::string& members) { return retention_of(made_of(members)); };
  auto is = of("");
  CHECK(is.keeps);
  CHECK(is.keep_ms == 30 * day);
  CHECK(is.keep_last == 0);
  CHECK_FALSE(of(R"("persistent":false)").keeps);
  CHECK(of(R"("snapshotExpiration":0)").keep_ms == 0);
  is = of(R"("snapshotExpiration":86400000,"keepLastSnapshots":{"count":3})");
  CHECK(is.keep_ms == day);
  CHECK(is.keep_last == 3);
  CHECK(is.evicted_keep_ms == 0);
  is = of(R"("keepLastSnapshots":{"count":3,"expiration":0,"deleteEvicted":false})");
  CHECK(is.keep_ms == 0);
  CHECK(is.evicted_keep_ms == 30 * day);
  is = of(R"("snapshotExpiration":0,"keepLastSnapshots":{"count":3,"deleteEvicted":false})");
  CHECK(is.keep_last == 0);

  INFO("what is being made leaves nothing");
  auto unfinished = made_of("");
  unfinished.unfinished = true;
  CHECK_FALSE(retention_in(api_metadata{{metadata_api, text_of(unfinished)}}).keeps);
  CHECK_FALSE(retention_in(api_metadata{}).keeps);
}

TEST_CASE("Vercel: a body that asks for a snapshot", "[http][vercel]") {
  snapshot_request is;
  REQUIRE_FALSE(read_snapshot_request("", is));
  CHECK_FALSE(is.keep_ms);
  CHECK_FALSE(is.keeps_running);
  REQUIRE_FALSE(
    read_snapshot_request(R"({"expiration":86400000,"__insula":{"keepRunning":true}})", is));
  CHECK(is.keep_ms == 86'400'000);
  CHECK(is.keeps_running);
  for (const auto* wrong :
       {R"({"expiration":1})", R"({"expiration":"x"})", R"({"expiration":86399999})",
        R"({"__insula":1})", R"({"__insula":{"keepRunning":1}})", "[]"})
    CHECK(read_snapshot_request(wrong, is)->status == 400);
}

TEST_CASE("Vercel: the ids of snapshots", "[http][vercel]") {
  const std::string id(26, 'b');
  CHECK(id_of_snapshot(id) == "snap_" + id);
  CHECK(snapshot_of("snap_" + id) == id);
  for (const auto& wrong :
       std::vector<std::string>{"snap_" + id + "b", "snap_x", "sbx_" + id, id, "snap_"})
    CHECK(snapshot_of(wrong).empty());
}

TEST_CASE("Vercel: a snapshot as clients read it", "[http][vercel]") {
  const std::string id(26, 'c'), origin(26, 'd');
  snapshot_description is{id, origin};
  is.run = 3;
  is.created_ms = 10;
  is.last_used_ms = 20;
  const auto told = [&] {
    json::ascii_writer out;
    write_snapshot(out, is);
    return out.str();
  };
  CHECK(told() == R"({"id":"snap_)" + id + R"(","sourceSessionId":"sbx_)" + origin +
                    R"(3","region":"iad1","regions":["iad1"],"status":"created","sizeBytes":1,)"
                    R"("createdAt":10,"updatedAt":20,"lastUsedAt":20,"creationMethod":"manual"})");
  is.keep_ms = 5;
  is.parent = id;
  is.automatic = true;
  is.bytes = 7;
  CHECK(told().find(R"("expiresAt":25)") != std::string::npos);
  CHECK(told().find(R"("parentId":"snap_)" + id) != std::string::npos);
  CHECK(told().find(R"("creationMethod":"automatic")") != std::string::npos);
  is.state = snapshot_state::deleted;
  CHECK(told().find("expiresAt") == std::string::npos);
}

TEST_CASE("Vercel: policies become the node's, and are told in the form of answers",
          "[http][vercel]") {
  const auto is = made_of(
    R"("networkPolicy":{"allow":["a.example","*"],"subnets":{"allow":["10.0.0.0/8"],"deny":["10.1.0.0/16"]}})");
  const auto policy = policy_of(is.network);
  CHECK_FALSE(policy.allow_rest);
  CHECK_FALSE(policy.match_host);
  CHECK(policy.rules ==
        std::vector<egress_rule>{
          {false, "10.1.0.0/16"}, {true, "10.0.0.0/8"}, {true, "a.example"}, {true, "*"}});
  json::ascii_writer out;
  write_policy(out, is.network);
  CHECK(
    out.str() ==
    R"({"mode":"custom","allowedDomains":["a.example","*"],"allowedCIDRs":["10.0.0.0/8"],"deniedCIDRs":["10.1.0.0/16"]})");
  CHECK(policy_of(made_of(R"("networkPolicy":{})").network) == [] {
    auto none = egress_policy::deny_all();
    none.match_host = false;
    return none;
  }());
  CHECK(policy_of(made_of(R"("networkPolicy":{"mode":"allow-all"})").network) ==
        egress_policy::allow_all());
}

TEST_CASE("Vercel: objects have the members that clients need, and none that is null",
          "[http][vercel]") {
  sandbox_view view{sandbox_of("s", "p", "n"), made_of(R"("tags":{"ü":"€"})"), 1000, {}, {}};
  view.run.number = 7;
  view.run.state = run_state::running;
  view.run.asked_ms = 1000;
  view.run.started_ms = 1100;
  view.run.timeout_ms = 300'000;
  view.expires_ms = 301'100;
  const auto running = sandbox_text(view);
  for (const auto* member :
       {R"("name":"n")", R"("persistent":true)", R"("createdAt":1000)", R"("updatedAt":1100)",
        R"("status":"running")", R"("expiresAt":301100)", R"("memory":4096)", R"("vcpus":2)",
        R"("networkPolicy":{"mode":"allow-all"})", R"("tags":{"\u00FC":"\u20AC"})"})
    CHECK(has(running, member));
  CHECK(has(running, R"("currentSessionId":"sbx_)" + view.id + R"(7")"));
  CHECK_FALSE(has(running, "null"));
  CHECK_FALSE(has(running, "runtime"));
  CHECK_FALSE(has(running, "totalDurationMs"));

  view.run.state = run_state::stopped;
  view.expires_ms.reset();
  view.run.ended_ms = 5100;
  view.run.cpu_ms = 42;
  view.run.bytes_in = 3;
  view.totals = {1, 4000, 42, 3, 0};
  CHECK_FALSE(has(sandbox_text(view), "expiresAt"));
  CHECK(has(sandbox_text(view), R"("totalDurationMs":4000)"));
  const auto session = session_text(view);
  for (const auto* member :
       {R"("status":"stopped")", R"("stoppedAt":5100)", R"("duration":4000)",
        R"("activeCpuDurationMs":42)", R"("activeCpuUsageMs":42)",
        R"("networkTransfer":{"ingress":3,"egress":0})", R"("interactivePort":26661)",
        R"("runtime":"")", R"("cwd":"/vercel/sandbox")", R"("sourceSandboxName":"n")",
        R"("projectId":"p")"})
    CHECK(has(session, member));
  CHECK_FALSE(has(session, "null"));

  command_view command{"cmd_1", "sh", {"-c", "ü"}, "/x", "sbx_1", 9, {}, 0};
  CHECK(
    text_of(command) ==
    R"({"id":"cmd_1","name":"sh","args":["-c","\u00FC"],"cwd":"/x","sessionId":"sbx_1","exitCode":null,"startedAt":9})");
  command.exit_code = 3;
  command.duration_ms = 5;
  CHECK(has(text_of(command), R"("exitCode":3,"startedAt":9,"durationMs":5)"));
  CHECK(read_command_view(text_of(command)).args == command.args);

  json::ascii_writer pages;
  write_pagination(pages, 2, std::nullopt);
  CHECK(pages.str() == R"({"count":2,"next":null})");
}

TEST_CASE("Vercel: a log is lines of ASCII, however its bytes come", "[http][vercel]") {
  log_lines lines;
  std::string told;
  lines.output(told, {{output_stream::out, "a\xe2\x82", 0}});
  CHECK(told == "{\"stream\":\"stdout\",\"data\":\"a\"}\n");
  told.clear();
  lines.output(told, {{output_stream::err, "\xff", 0}, {output_stream::out, "\xac\n\"", 0}});
  CHECK(told == "{\"stream\":\"stderr\",\"data\":\"\\uFFFD\"}\n"
                "{\"stream\":\"stdout\",\"data\":\"\\u20AC\\n\\\"\"}\n");
  told.clear();
  lines.output(told, {{output_stream::out, "\xf0\x9f\x98\x80\xe2", 0}});
  CHECK(told == "{\"stream\":\"stdout\",\"data\":\"\\uD83D\\uDE00\"}\n");
  told.clear();
  lines.finish(told);
  CHECK(told == "{\"stream\":\"stdout\",\"data\":\"\\uFFFD\"}\n");
  told.clear();
  lines.output(told, {{output_stream::out, std::string(150'000, 'x'), 0}});
  CHECK(std::count(told.begin(), told.end(), '\n') == 3);
  told.clear();
  append_error_line(told, {errc::run_over, "x"});
  CHECK(has(told, R"({"stream":"error","data":{"code":"sandbox_stopped")"));
}

TEST_CASE("Vercel: every failure has a status and a sentence", "[http][vercel]") {
  CHECK(failure(error{errc::run_over, {}}).status == 410);
  CHECK(failure(error{errc::capacity_exceeded, "full"}).status == 429);
  CHECK(
    not_started({errc::launch_failed, "running the program x: No such file or directory"}).body ==
    R"({"error":{"code":"executable_not_found","message":"running the program x: No such file or directory"}})");
  CHECK(
    not_started({errc::launch_failed, "entering the working directory /x: No such file"}).status ==
    400);
  process_end end;
  end.exit_code = 143;
  CHECK(exit_code_of(end) == 143);
  end.timed_out = true;
  CHECK(exit_code_of(end) == 137);
}

TEST_CASE("Vercel: a source is fetched by a command that has its words in variables",
          "[http][vercel]") {
  create_request wanted;
  REQUIRE_FALSE(read_create(
    R"({"projectId":"p","source":{"type":"git","url":"https://a.example/b/c.git/","username":"u","password":"secret"}})",
    wanted));
  const auto steps = steps_of(wanted);
  REQUIRE(steps.size() == 1);
  CHECK(steps[0].command.user->uid == 1000);
  CHECK(steps[0].command.env.at("SOURCE_DIRECTORY") == "c");
  for (const auto& each : steps[0].command.argv)
    CHECK_FALSE(has(each, "secret"));
  CHECK(definition_of(wanted, "secret").network == egress_policy::allow_all());
  CHECK(steps[0].command.env.at("SOURCE_URL") == "https://a.example/b/c.git/");
  const auto made = definition_of(wanted, "secret");
  REQUIRE(made.profile);
  CHECK(made.profile->login == "vercel-sandbox");
  CHECK(made.profile->home == "/home/vercel-sandbox");
  CHECK(last_line("one\ntwo\n") == "two");
  CHECK(last_line("").size() > 3);
}

TEST_CASE("Vercel: credentials in a source's address are no part of the address",
          "[http][vercel]") {
  const auto read = [](const std::string& source) {
    create_request wanted;
    REQUIRE_FALSE(
      read_create(R"({"projectId":"p","source":{"type":"git",)" + source + "}}", wanted));
    return std::array{wanted.git->url, wanted.git->username, wanted.git->password};
  };
  using words = std::array<std::string, 3>;
  CHECK(read(R"("url":"https://n%40m:p:%2F@a.example:8/b@c")") ==
        words{"https://a.example:8/b@c", "n@m", "p:/"});
  CHECK(read(R"("url":"https://token@a.example/b")") == words{"https://a.example/b", "token", ""});
  CHECK(read(R"("url":"https://n:old@a.example/b","password":"new")") ==
        words{"https://a.example/b", "n", "new"});
  CHECK(read(R"("url":"https://a.example/b@c?d@e")") == words{"https://a.example/b@c?d@e", "", ""});
}

TEST_CASE("Vercel: a policy has as many entries as the node can judge by", "[http][vercel]") {
  const auto policy_with = [](std::size_t domains, std::size_t subnets) {
    std::string text = R"({"allow":[)";
    for (std::size_t i = 0; i < domains; ++i)
      text += (i == 0 ? "\"d" : ",\"d") + std::to_string(i) + ".example\"";
    text += R"(],"subnets":{"deny":[)";
    for (std::size_t i = 0; i < subnets; ++i)
      text += (i == 0 ? "\"10." : ",\"10.") + std::to_string(i / 256) + "." +
              std::to_string(i % 256) + ".0/24\"";
    return text + "]}}";
  };
  const auto read = [](const std::string& text) {
    json::document given;
    REQUIRE(json::parse(text, given));
    network_wish wish;
    const auto wrong = read_policy(given, wish);
    return wrong ? wrong->message : std::to_string(wish.domains.size() + wish.denied.size());
  };
  CHECK(read(policy_with(max_egress_rules, 0)) == std::to_string(max_egress_rules));
  CHECK(read(policy_with(max_egress_rules + 1, 0)).starts_with("networkPolicy.allow has more"));
  CHECK(read(policy_with(max_egress_rules - 1, 2)).starts_with("networkPolicy has more than"));
}

TEST_CASE("Vercel: rules about requests are kept without their values", "[http][vercel]") {
  const auto read = [](const std::string& text, network_wish& wish) {
    json::document given;
    REQUIRE(json::parse(text, given));
    const auto wrong = read_policy(given, wish);
    return wrong ? wrong->message : std::string{};
  };
  const auto box = secret_box::from_key(std::string(32, 'k'));
  REQUIRE(box);
  network_wish wish;
  CHECK(read(R"({"allow":{"a.example":[
      {"match":{"path":{"exact":"/x"},"method":["get"]},"transform":[{"headers":{"Authorization":"Bearer key"}}]},
      {"forwardURL":"https://p.example/x"}],
    "b.example":[{"response":{"statusCode":404,"body":"gone","contentType":"text/plain"}}],"c.example":[]}})",
             wish)
          .empty());
  CHECK(wish.domains == std::vector<std::string>{"a.example", "b.example", "c.example"});
  REQUIRE(wish.rules.size() == 3);
  REQUIRE_FALSE(seal(wish, &*box));
  settings is;
  is.project = "p";
  is.name = "n";
  is.network = wish;
  const auto kept = text_of(is);
  CHECK(kept.find("Bearer") == std::string::npos);
  CHECK(kept.find("gone") == std::string::npos);
  const auto again = read_settings(kept);
  REQUIRE(again);
  CHECK(again->network.sealed == wish.sealed);
  CHECK(text_of(*again) == kept);
  const auto opened = open_rules(*box, again->network.sealed.sealed);
  REQUIRE(opened);
  CHECK(std::get<transform_action>(opened->at(0).action).headers ==
        header_list{{"authorization", "Bearer key"}});
  json::ascii_writer out;
  write_policy(out, again->network);
  CHECK(
    out.str() ==
    R"({"mode":"custom","allowedDomains":["a.example","b.example","c.example"],)"
    R"("allowedCIDRs":[],"deniedCIDRs":[],)"
    R"("injectionRules":[{"domain":"a.example","headerNames":["authorization"],)"
    R"("match":{"path":{"exact":"/x"},"method":["GET"]}}],)"
    R"("forwardRules":[{"domain":"a.example","forwardURL":"https://p.example/x"}],)"
    R"("responseRules":[{"domain":"b.example","statusCode":404,"headerNames":["content-type"]}]})");
  // As the REST API says it.
  CHECK(read(R"({"mode":"custom","allowedDomains":["a.example"],
      "injectionRules":[{"domain":"a.example","headers":{"x":"y"},"match":{"path":{"regex":"^/v"}}}],
      "forwardRules":[{"domain":"d.example","forwardURL":"https://p.example"}]})",
             wish)
          .empty());
  CHECK(wish.rules.size() == 2);
  CHECK(wish.domains == std::vector<std::string>{"a.example", "d.example"});
  const auto refused = [&](const std::string& rule) {
    network_wish ignored;
    auto why = read(R"({"allow":{"a.example":[)" + rule + "]}}", ignored);
    if (why.empty())
      if (const auto wrong = seal(ignored, &*box))
        why = wrong->message;
    return why;
  };
  CHECK(refused(R"({"match":{}})").find("one of transform, forwardURL and response") !=
        std::string::npos);
  CHECK(refused(R"({"transform":[{"headers":{"x":"<redacted>"}}]})").find("<redacted>") !=
        std::string::npos);
  CHECK(refused(R"({"forwardURL":"https://p.example/?q"})").find("no query") != std::string::npos);
  CHECK(refused(R"({"response":{"statusCode":200,"body":"x"}})").find("contentType is required") !=
        std::string::npos);
  CHECK(
    refused(R"({"response":{"statusCode":204,"body":"x","contentType":"a/b"}})").find("no body") !=
    std::string::npos);
  CHECK(refused(R"({"response":{"statusCode":200,"headers":{"Content-Length":"1"}}})")
          .find("cannot be set") != std::string::npos);
  CHECK(refused(R"({"match":{"path":{"regex":"("}},"forwardURL":"https://p.example"})")
          .find("regular expression") != std::string::npos);
  CHECK(refused(R"({"forwardURL":"https://p.example","other":1})").find("other") !=
        std::string::npos);
}

TEST_CASE("Vercel: a label leads to its port, in front of any domain", "[http][vercel]") {
  auto with = std::make_shared<services>();
  with->secret = "secret";
  const auto names = make_port_names(with);
  const std::string id(26, 'a');
  const auto label = label_of("secret", id, 3000);
  CHECK(label.size() <= 63);
  const auto found = [&](const std::string& host) {
    const auto port = names->find(host);
    return port ? port->sandbox + ":" + std::to_string(port->port) : std::string{"not ours"};
  };
  for (const std::string after : {".vercel.run", ".localhost:8787", ".a.example", ""})
    CHECK(found(label + after) == id + ":3000");
  auto loud = label;
  loud[0] = 'S';
  CHECK(found(loud + ".LOCALHOST") == id + ":3000");
  // What is signed otherwise is nobody's, and below vercel.run that is known.
  for (const auto& other :
       {label_of("other", id, 3000), label_of("secret", id, 3000) + "a", label.substr(1),
        "sb-" + id + "-3001" + label.substr(label.rfind('-')), std::string{"sb-"}, "sb-" + id}) {
    CHECK(found(other + ".localhost") == "not ours");
    CHECK(found(other + ".vercel.run") == ":0");
  }
  CHECK(found("vercel.run") == "not ours");
}

TEST_CASE("Vercel: a token is for one team and project, until its time", "[http][vercel]") {
  const key_check key{"the key of this server"}, other{"the key of another one"}, none{""};
  const token_scope of{"team_a", "prj_1"};
  const auto allowed = [&](std::string_view token, std::int64_t now_s = 1000) {
    return standing_of(key, token, now_s).allowed;
  };
  for (const auto& token :
       {make_identity_token(key, of, 900, 2000), make_access_token(key, of, 900, 2000)}) {
    CAPTURE(token);
    CHECK(allowed(token) == of);
    CHECK(allowed(token, 1999) == of);
    CHECK_FALSE(allowed(token, 2000));
    CHECK_FALSE(standing_of(other, token, 1000).allowed);
    CHECK(standing_of(other, token, 1000).is_one);
    CHECK_FALSE(standing_of(none, token, 1000).allowed);
    // Each letter counts.
    for (std::size_t i = 0; i < token.size(); ++i) {
      auto changed = token;
      changed[i] = changed[i] == 'A' ? 'B' : 'A';
      CHECK_FALSE(allowed(changed));
    }
    CHECK_FALSE(allowed(token + "A"));
    CHECK_FALSE(allowed(token.substr(0, token.size() - 1)));
    CHECK_FALSE(allowed(token + "."));
  }
  // Clients take what has dots for an identity, and ask somebody else to renew it.
  CHECK(make_access_token(key, of, 900, 2000).find('.') == std::string::npos);
  const auto identity = make_identity_token(key, of, 900, 2000);
  const auto first = identity.find('.'), second = identity.rfind('.');
  const auto claims = from_base64url(identity.substr(first + 1, second - first - 1));
  REQUIRE(claims);
  CHECK(*claims == R"({"iss":"insula","sub":"owner:team_a:project:prj_1","owner_id":"team_a",)"
                   R"("project_id":"prj_1","iat":900,"exp":2000})");
  for (const std::string not_one :
       {"", "the key of this server", "a.b.c", "e30.e30.", "..", "insula", "x.eyJpc3MiOiJ4In0.y"})
    CHECK_FALSE(standing_of(key, not_one, 1000).is_one);
  CHECK_FALSE(allowed("insula_"));
  CHECK_FALSE(allowed("insula_" + std::string(10'000, 'A')));
}

TEST_CASE("Vercel: the caption of a sandbox has its project, name and tags", "[http][vercel]") {
  auto is = made_of(R"("tags":{"owner":"tests","<b>":"a:b"},"ports":[3000])");
  is.unfinished = true;
  const auto told = caption_of({{"other", "{}"}, {metadata_api, text_of(is)}});
  REQUIRE(told);
  CHECK(told->group == "p");
  CHECK(told->name == "n");
  CHECK(told->tags == std::map<std::string, std::string>{{"owner", "tests"}, {"<b>", "a:b"}});
  CHECK_FALSE(caption_of({}));
  for (const auto* odd : {"", "[]", R"({"project":1})", R"({"tags":[]})"})
    CHECK_FALSE(caption_of({{metadata_api, odd}}));
}
