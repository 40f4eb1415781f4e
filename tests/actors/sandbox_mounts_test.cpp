// Buckets in a sandbox, as its actor keeps them: what is asked of the engine, and what is durable.
#include "actors/bucket_mount.hpp"
#include "tests/actors/fixture.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;
using insula::actors::bucket_mount;

namespace {

constexpr const char* endpoint = "http://127.0.0.1:4568";

mount_bucket_request mount_of(const std::string& path, const std::string& bucket = "data") {
  mount_bucket_request wanted{path};
  wanted.endpoint = endpoint;
  wanted.bucket = bucket;
  wanted.credentials = bucket_credentials{"the-key", "the-secret"};
  return wanted;
}

mount_bucket_request bound(const std::string& path, const std::string& binding = "DATA") {
  mount_bucket_request wanted{path};
  wanted.binding = binding;
  return wanted;
}

struct mounting_node : small_node {
  sandbox_object_actor box;

  mounting_node() {
    options->buckets.bindings["DATA"] = {endpoint, "lent", false, std::nullopt};
    options->buckets.credentials = bucket_credentials{"node-key", "node-secret"};
    options->buckets.allowed_private = {"127.0.0.1/32", "::1/128", "10.1.2.3/32"};
    box = make_sandbox();
  }

  auto mount(mount_bucket_request wanted) { return sys.ask<caf::ok_atom>(box, std::move(wanted)); }
  auto unmount(const std::string& path) {
    return sys.ask<caf::ok_atom>(box, unmount_bucket_request{path});
  }
  std::vector<mounted_bucket> list() {
    return sys.ask<std::vector<mounted_bucket>>(box, list_mounts_request{}).value();
  }
  void start() { sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value(); }
  /// Its first process ends, and it is started anew.
  void start_again() {
    engine.creations.back().end();
    sys.run();
    start();
  }
};

std::vector<std::string> paths_of(const std::vector<runtime::mount_spec>& specs) {
  std::vector<std::string> all;
  for (const auto& each : specs)
    all.push_back(each.path);
  return all;
}

using paths = std::vector<std::string>;

std::string why_of(mount_bucket_request wanted, std::optional<bucket_credentials> node = {}) {
  mounting_node with;
  with.options->buckets.credentials = std::move(node);
  const auto asked = with.mount(std::move(wanted));
  CHECK(asked.reason().code != errc::invalid_request); // That is the door's.
  return asked.reason().message;
}

} // namespace

TEST_CASE("a bucket is mounted, durable, and answered in this order", "[actors][mounts]") {
  mounting_node node;
  node.start();
  node.place().hold_mount = true;
  const auto asked = node.mount(mount_of("/mnt//data/"));
  REQUIRE(node.place().mount_specs.size() == 1);
  const auto& spec = node.place().mount_specs[0];
  CHECK(spec.path == "/mnt/data");
  CHECK(spec.source == "data");
  CHECK(spec.argv[0] == "s3fs");
  CHECK(spec.secret == "data:the-key:the-secret\n");
  for (const auto& word : spec.argv)
    CHECK(word.find("the-") == std::string::npos);
  CHECK(asked.open());
  CHECK(node.store.value("abc", "mount=/mnt/data").empty());

  node.store.hold_writes = true;
  node.place().finish_mounts();
  node.sys.run();
  CHECK(asked.open());
  node.store.let_go();
  node.sys.run();
  CHECK_NOTHROW(asked.value());
  CHECK_FALSE(node.store.value("abc", "mount=/mnt/data").empty());

  const auto all = node.list();
  REQUIRE(all.size() == 1);
  CHECK(all[0].path == "/mnt/data");
  CHECK(all[0].endpoint == endpoint);
  CHECK(all[0].live);
}

TEST_CASE("an unmount ends it, its record, and whatever holds the path", "[actors][mounts]") {
  mounting_node node;
  CHECK_NOTHROW(node.mount(mount_of("/mnt/data")).value());
  CHECK(node.unmount("/mnt/other").reason().message == "No active mount found at path: /mnt/other");
  CHECK_NOTHROW(node.unmount("/mnt/x/../data/").value());
  CHECK(node.place().unmounted == std::vector<std::string>{"/mnt/data"});
  CHECK(node.list().empty());
  CHECK(node.unmount("/mnt/data").reason().code == errc::not_found);
  CHECK_NOTHROW(node.mount(mount_of("/mnt/data")).value());

  SECTION("one that fails leaves it as it is") {
    node.place().unmount_error = error{errc::io_failed, "busy"};
    CHECK(node.unmount("/mnt/data").reason().message == "busy");
    CHECK(node.list().size() == 1);
  }
  SECTION("one that is not there any more is forgotten") {
    node.place().unmount_error = error{errc::not_found, "nothing"};
    CHECK_NOTHROW(node.unmount("/mnt/data").value());
    CHECK(node.list().empty());
  }
  SECTION("one of a sandbox that does not run starts nothing") {
    node.engine.creations.back().end();
    node.sys.run();
    CHECK_FALSE(node.list().at(0).live);
    CHECK_NOTHROW(node.unmount("/mnt/data").value());
    CHECK(node.engine.creations.size() == 1);
    CHECK(node.list().empty());
  }
}

TEST_CASE("what was mounted is put back before the first command of the next start",
          "[actors][mounts]") {
  mounting_node node;
  CHECK_NOTHROW(node.mount(mount_of("/a")).value());
  CHECK_NOTHROW(node.mount(bound("/b")).value());
  node.engine.creations.back().end();
  node.sys.run();
  node.options->buckets.bindings["DATA"].bucket = "another"; // As of a server with a new file.
  node.engine.ready_at_once = false;
  const auto asked = node.sys.ask<process_actor>(node.box, command("true"));
  node.place().hold_mount = true;
  node.engine.creations.back().ready();
  node.sys.run();
  REQUIRE(node.place().mount_specs.size() == 2);
  CHECK(node.place().mount_specs[0].secret == "data:the-key:the-secret\n");
  CHECK(node.place().mount_specs[1].secret == "another:node-key:node-secret\n");
  CHECK(node.place().processes.empty());
  SECTION("if that works") {}
  SECTION("and if it does not, it stays in the record") {
    node.place().mount_error = error{errc::io_failed, "no such bucket"};
  }
  const bool good = !node.place().mount_error;
  node.place().finish_mounts();
  node.sys.run();
  REQUIRE(node.place().processes.size() == 1);
  node.process().start();
  node.sys.run();
  CHECK_NOTHROW(asked.value());
  CHECK(node.list().size() == 2);
  CHECK(node.list()[0].live == good);
}

TEST_CASE("a mount that lies in another one is put back after that", "[actors][mounts]") {
  mounting_node node;
  for (const std::string path : {"/data", "/data/in", "/data/in/deep", "/data-2"})
    CHECK_NOTHROW(node.mount(mount_of(path)).value());
  node.engine.creations.back().end();
  node.sys.run();
  node.engine.ready_at_once = false;
  const auto asked = node.sys.ask<process_actor>(node.box, command("true"));
  node.place().hold_mount = true;
  node.engine.creations.back().ready();
  node.sys.run();
  const auto finish = [&] {
    node.place().finish_mounts();
    node.sys.run();
    return paths_of(node.place().mount_specs);
  };
  CHECK(paths_of(node.place().mount_specs) == paths{"/data", "/data-2"});
  SECTION("one level after the other") {
    CHECK(finish() == paths{"/data", "/data-2", "/data/in"});
    CHECK(node.place().processes.empty());
    CHECK(finish() == paths{"/data", "/data-2", "/data/in", "/data/in/deep"});
    CHECK(node.place().processes.empty());
    finish();
  }
  SECTION("and not before that is there") {
    node.place().mount_error = error{errc::io_failed, "away"};
    CHECK(finish() == paths{"/data", "/data-2"});
    node.place().mount_error.reset();
    node.place().hold_mount = false;
    node.sys.advance(limits::mount_again);
    CHECK(paths_of(node.place().mount_specs) ==
          paths{"/data", "/data-2", "/data", "/data-2", "/data/in", "/data/in/deep"});
  }
  CHECK(node.place().processes.size() == 1);
  for (const auto& each : node.list())
    CHECK(each.live);
}

TEST_CASE("a mount is neither covered nor taken away by what is done to its directory's",
          "[actors][mounts]") {
  mounting_node node;
  CHECK_NOTHROW(node.mount(mount_of("/data/in")).value());
  const std::string why =
    "Mount path \"/data\" has another mount in it, at \"/data/in\". Unmount that one first.";
  CHECK(node.mount(mount_of("/data")).reason().message == why);
  CHECK_NOTHROW(node.unmount("/data/in").value());
  CHECK_NOTHROW(node.mount(mount_of("/data")).value());
  CHECK_NOTHROW(node.mount(mount_of("/data/in")).value());
  CHECK_NOTHROW(node.mount(mount_of("/data-2")).value());
  CHECK(node.unmount("/data").reason().message == why);
  CHECK(node.list().size() == 3);
  SECTION("its program dies with that of the other one's place") {
    node.engine.creations.back().listener.on_mount_ended("/data");
    node.sys.run();
    CHECK(node.place().unmounted == paths{"/data/in", "/data", "/data/in"});
    CHECK(paths_of(node.place().mount_specs) ==
          paths{"/data/in", "/data", "/data/in", "/data-2", "/data", "/data/in"});
  }
  SECTION("inside first") {
    CHECK_NOTHROW(node.unmount("/data/in").value());
    CHECK_NOTHROW(node.unmount("/data").value());
    CHECK(node.list().size() == 1);
  }
}

TEST_CASE("what could not be put back is tried again, and not for ever", "[actors][mounts]") {
  mounting_node node;
  node.options->ladder.stop_after = std::chrono::hours{24};
  const auto left = std::make_shared<fake_sandbox>();
  left->mount_error = error{errc::io_failed, "away"};
  node.engine.left["abc"] = left;
  const bucket_mount recorded{"/mnt", "DATA", {}, {}, {}, false, {}, {}};
  node.store.disk.commit(
    {"abc", 1, {{"created_ms", "5"}, {"started_ms", "5"}, {"mount=/mnt", recorded.text()}}, {}},
    [](const result<void>&) {});
  node.start();
  REQUIRE(left->mount_specs.size() == 1);
  CHECK_FALSE(node.list().at(0).live);
  const auto wait = [&](std::chrono::seconds all) { // It waits in steps.
    for (; all.count() > 0; all -= 20s)
      node.sys.advance(20s);
  };
  SECTION("when the service is there again") {
    node.sys.advance(limits::mount_again - 1ms);
    CHECK(left->mount_specs.size() == 1);
    node.sys.advance(1ms);
    CHECK(left->mount_specs.size() == 2);
    left->mount_error.reset();
    wait(2 * limits::mount_again);
    CHECK(left->mount_specs.size() == 3);
    CHECK(node.list().at(0).live);
    wait(limits::mount_again_longest);
    CHECK(left->mount_specs.size() == 3);
  }
  SECTION("unless nobody wants it any more") {
    CHECK_NOTHROW(node.unmount("/mnt").value());
    wait(limits::mount_again_longest);
    CHECK(left->mount_specs.size() == 1);
  }
  SECTION("up to a number of times") {
    for (unsigned i = 0; i < limits::mount_attempts + 5; ++i)
      wait(limits::mount_again_longest);
    CHECK(left->mount_specs.size() == limits::mount_attempts);
  }
}

TEST_CASE("trying again does not keep a sandbox awake", "[actors][mounts]") {
  mounting_node node;
  CHECK_NOTHROW(node.mount(mount_of("/mnt")).value());
  node.engine.creations.back().end();
  node.sys.run();
  node.engine.ready_at_once = false;
  const auto asked = node.sys.ask<caf::ok_atom>(node.box, find_atom::value, request_context{});
  node.place().mount_error = error{errc::io_failed, "away"};
  node.engine.creations.back().ready();
  node.sys.run();
  CHECK_NOTHROW(asked.value());
  for (int i = 0; i < 50 && node.place().destroys == 0; ++i)
    node.sys.advance(limits::mount_again);
  CHECK(node.place().mount_specs.size() > 2);
  CHECK(node.place().destroys == 1);
}

TEST_CASE("what an earlier server has mounted goes on; the rest is put right",
          "[actors][mounts][adoption]") {
  mounting_node node;
  const auto record = [](const std::string& path) {
    return storage::change{"mount=" + path,
                           bucket_mount{path, "DATA", {}, {}, {}, false, {}, {}}.text()};
  };
  node.store.disk.commit(
    {"abc",
     1,
     {{"created_ms", "5"}, {"started_ms", "5"}, record("/good"), record("/dead"), record("/lost")},
     {}},
    [](const result<void>&) {});
  const auto left = std::make_shared<fake_sandbox>();
  left->mounted = {{"/good", true}, {"/dead", false}, {"/unknown", true}};
  node.engine.left["abc"] = left;
  node.start();
  CHECK(left->unmounted == std::vector<std::string>{"/dead", "/unknown"});
  REQUIRE(left->mount_specs.size() == 2);
  CHECK(left->mount_specs[0].path == "/dead");
  CHECK(left->mount_specs[1].path == "/lost");
  for (const auto& each : node.list())
    CHECK(each.live);
}

TEST_CASE("what lies in what has to be replaced is mounted again after that",
          "[actors][mounts][adoption]") {
  mounting_node node;
  const auto record = [](const std::string& path) {
    return storage::change{"mount=" + path,
                           bucket_mount{path, "DATA", {}, {}, {}, false, {}, {}}.text()};
  };
  node.store.disk.commit({"abc",
                          1,
                          {{"created_ms", "5"},
                           {"started_ms", "5"},
                           record("/dead"),
                           record("/dead/in"),
                           record("/good")},
                          {}},
                         [](const result<void>&) {});
  const auto left = std::make_shared<fake_sandbox>();
  left->mounted = {{"/dead", false}, {"/dead/in", true}, {"/good", true}};
  node.engine.left["abc"] = left;
  node.start();
  CHECK(left->unmounted == paths{"/dead", "/dead/in"});
  CHECK(paths_of(left->mount_specs) == paths{"/dead", "/dead/in"});
}

TEST_CASE("a program that dies is replaced, but not for ever", "[actors][mounts]") {
  mounting_node node;
  CHECK_NOTHROW(node.mount(mount_of("/mnt")).value());
  for (unsigned i = 0; i < limits::mount_revivals + 2; ++i) {
    node.engine.creations.back().listener.on_mount_ended("/mnt");
    node.sys.run();
  }
  CHECK(node.place().mount_specs.size() == 1 + limits::mount_revivals);
  CHECK(node.place().unmounted.size() == limits::mount_revivals);
}

TEST_CASE("one after the other, and each against those before it", "[actors][mounts]") {
  mounting_node node;
  node.start();
  node.place().hold_mount = true;
  const auto first = node.mount(mount_of("/mnt", "one"));
  const auto second = node.mount(mount_of("/mnt", "two"));
  CHECK(node.place().mount_specs.size() == 1);
  node.place().finish_mounts();
  node.sys.run();
  CHECK_NOTHROW(first.value());
  CHECK(
    second.reason().message ==
    "Mount path \"/mnt\" is already in use by bucket \"one\". Unmount the existing bucket first "
    "or use a different mount path.");
  node.place().hold_mount = false;
  CHECK_NOTHROW(node.mount(bound("/b")).value());
  CHECK_NOTHROW(node.mount(bound("/c")).value());
  auto other = bound("/d");
  other.read_only = true;
  CHECK(node.mount(other).reason().message.find("already mounted at \"/b\"") != std::string::npos);
  for (std::size_t i = 3; i < limits::mounts_per_sandbox; ++i)
    CHECK_NOTHROW(node.mount(mount_of("/m" + std::to_string(i))).value());
  CHECK(node.mount(mount_of("/more")).reason().code == errc::limit_reached);
}

TEST_CASE("what cannot be mounted is said in words, and nothing of it is kept",
          "[actors][mounts]") {
  auto wanted = mount_of("/mnt");
  wanted.prefix = "part";
  CHECK(why_of(wanted) == "Prefix must start with '/': \"part\"");
  wanted.prefix = "/a/../b";
  CHECK(why_of(wanted) == "Prefix must be a plain path: \"/a/../b\"");

  for (const std::string bad :
       {"", "nonsense", "ftp://host", "http://", "http://user@host", "http://host,uid=0",
        "https://host?x", "http://-host", "http://host:65536", "http://host:99999",
        "http://host:123456", "http://host:x", "http://a:1:2", "http://[::1", "http:///host"}) {
    wanted = mount_of("/mnt");
    wanted.endpoint = bad;
    CHECK(why_of(wanted) == "Invalid endpoint URL: \"" + bad + "\". Must be a valid HTTP(S) URL.");
  }
  wanted = mount_of("/mnt", "data:/part");
  CHECK(why_of(wanted) ==
        "Bucket name cannot contain ':'. To mount a prefix, use the 'prefix' "
        "option:\n  {\"bucket\": \"data\", \"options\": {\"prefix\": \"/part\"}}");
  for (const std::string bad : {"Data", "-data", "data-", "da ta", "../data"})
    CHECK(why_of(mount_of("/mnt", bad)).starts_with("Invalid bucket name: \"" + bad + "\"."));
  for (const std::string bad : {"/", "/../", "/proc", "/proc/1", "/sys/x", "/dev", "/dev/shm/x"})
    CHECK(why_of(mount_of(bad)).starts_with("Nothing can be mounted at"));
  wanted = mount_of("/mnt");
  wanted.credentials.reset();
  CHECK(why_of(wanted).starts_with("No credentials found."));
  wanted.credentials = bucket_credentials{"a:b", "c"};
  CHECK(why_of(wanted) == "The credentials have characters that credentials do not have.");
  CHECK(why_of(bound("/mnt", "1DATA")).starts_with("Invalid R2 binding name: \"1DATA\""));
  CHECK(why_of(bound("/mnt", "OTHER"))
          .starts_with("R2 binding \"OTHER\" not found in Worker env. Ensure"));
  wanted = mount_of("/mnt");
  wanted.options = {"storage_class=STANDARD\r\nX-Other: 1"};
  CHECK(why_of(wanted) == "An s3fs option has no commas, no backslashes and no control characters: "
                          "\"storage_class\".");
  wanted.options = {"logfile=/etc/passwd"};
  CHECK(why_of(wanted) == "The s3fs option \"logfile\" is not allowed.");
  wanted.options = {"url=http://other"};
  wanted.by_proxy = true;
  CHECK(why_of(wanted) == "s3fsOptions cannot set url with credentialProxy.");

  mounting_node node;
  node.start();
  node.place().mount_error = error{errc::io_failed, "the directory is not empty"};
  const auto asked = node.mount(mount_of("/mnt"));
  CHECK(asked.reason().message == "S3FS mount failed: the directory is not empty");
  CHECK(node.list().empty());
  CHECK(node.store.value("abc", "mount=/mnt").empty());
}

TEST_CASE("nothing that a program says reaches a client", "[actors][mounts]") {
  mounting_node node;
  node.start();
  const auto why = [&](errc code, const std::string& said) {
    node.place().mount_error = error{code, said};
    return node.mount(mount_of("/mnt")).reason().message;
  };
  const std::string failed = "S3FS mount failed: ";
  for (const std::string said : {"", "INTERNAL-BANNER of a service", "the-secret\n"})
    CHECK(why(errc::launch_failed, said) ==
          failed +
            "The program that serves the bucket has ended. The node's log has what it said.");
  CHECK(why(errc::deadline_exceeded, "INTERNAL-BANNER") ==
        failed + "FUSE filesystem never appeared at /mnt. The endpoint has not answered in time.");
  CHECK(why(errc::launch_failed, "[CRT] s3fs.cpp:s3fs_check_service(3721): invalid "
                                 "credentials(host=http://h) - result of checking service.\n") ==
        failed + "The service refuses the credentials.");
  CHECK(why(errc::launch_failed, "<Code>NoSuchBucket</Code> INTERNAL-BANNER") ==
        failed + "There is no such bucket at the endpoint, or no such prefix in it.");
  CHECK(why(errc::launch_failed, "unable to connect(host=http://h) - INTERNAL-BANNER")
          .starts_with(failed + "The endpoint cannot be reached, or does not answer as an S3"));
  CHECK(why(errc::launch_failed, "s3fs: argument should be over 1: connect_timeout") ==
        failed + "The program does not accept an option.");
  CHECK(why(errc::launch_failed, "x509: certificate signed by INTERNAL-BANNER") ==
        failed + "The endpoint's certificate is not valid for it.");
  CHECK(why(errc::launch_failed, "net/http: request canceled (Client.Timeout exceeded)") ==
        failed + "The endpoint has not answered in time.");
}

TEST_CASE("the node's credentials are for its bindings and for endpoints that it lists",
          "[actors][mounts]") {
  mounting_node node;
  node.options->buckets.credentials_for = {"https://S3.example.com", "http://10.1.2.3:9000"};
  node.options->buckets.bindings["KEYS"] = {endpoint, "kept", false,
                                            bucket_credentials{"its-key", "its-secret"}};
  node.start();
  const auto asked = [&](const std::string& where, std::vector<std::string> options = {}) {
    auto wanted = mount_of("/m" + std::to_string(node.place().mount_specs.size()));
    wanted.credentials.reset();
    wanted.endpoint = where;
    wanted.options = std::move(options);
    const auto answer = *node.mount(wanted).answer;
    REQUIRE(answer);
    return *answer ? std::string{} : answer->reason().message;
  };
  const auto last = [&] { return node.place().mount_specs.back(); };
  CHECK(asked("https://s3.example.com").empty());
  CHECK(last().secret == "data:node-key:node-secret\n");
  CHECK(("," + last().argv.back() + ",").find(",sigv4,") != std::string::npos);
  CHECK(asked("HTTPS://s3.Example.com:443/").empty());
  for (const std::string other :
       {"http://s3.example.com", "https://s3.example.com:444", "https://s3.example.com.evil.test",
        "https://evil.test/s3.example.com", "https://bucket.s3.example.com", endpoint,
        "https://s3.example.com/path", "http://10.1.2.3", "https://s3.amazonaws.com"}) {
    CAPTURE(other);
    CHECK(asked(other).starts_with("No credentials found. Those of the server's environment are "
                                   "not for the endpoint"));
  }
  for (const std::string option :
       {"sigv2", "use_path_request_style", "no_check_certificate", "ssl_verify_hostname=0",
        "enable_unsigned_payload", "requester_pays"}) {
    const auto name = option.substr(0, option.find('='));
    CAPTURE(option);
    CHECK(asked("https://s3.example.com", {option}) ==
          "The s3fs option \"" + name + "\" is not allowed with the node's own credentials.");
    auto lent = bound("/lent");
    lent.options = {option};
    CHECK(node.mount(lent).reason().message.starts_with("The s3fs option \"" + name));
    auto kept = bound("/kept"); // Credentials of a binding are the operator's as well.
    kept.binding = "KEYS";
    kept.options = {option};
    CHECK(node.mount(kept).reason().message.starts_with("The s3fs option \"" + name));
    auto own = mount_of("/own" + name);
    own.options = {option};
    CHECK_NOTHROW(node.mount(own).value());
    CHECK(("," + last().argv.back() + ",").find(",sigv4,") == std::string::npos);
  }
  CHECK_NOTHROW(node.mount(bound("/lent")).value());
  CHECK(last().secret == "lent:node-key:node-secret\n");
  CHECK(("," + last().argv.back() + ",").find(",sigv4,") != std::string::npos);
  auto kept = bound("/kept");
  kept.binding = "KEYS";
  CHECK_NOTHROW(node.mount(kept).value());
  CHECK(last().secret == "kept:its-key:its-secret\n");
  CHECK(("," + last().argv.back() + ",").find(",sigv4,") != std::string::npos);
}

TEST_CASE("slashes of a prefix and the case of an endpoint make no other mount",
          "[actors][mounts]") {
  mounting_node node;
  auto wanted = mount_of("/mnt");
  wanted.prefix = "//a///b//";
  wanted.endpoint = "HTTP://S3.Example.com:65535//";
  CHECK_NOTHROW(node.mount(wanted).value());
  CHECK(node.place().mount_specs.at(0).source == "data:/a/b");
  CHECK(node.list().at(0).prefix == "/a/b");
  CHECK(node.list().at(0).endpoint == "http://s3.example.com:65535");
  for (const std::string good : {"https://[::1]:443", "http://[::1]", "http://host:"}) {
    wanted = mount_of("/m" + std::to_string(node.place().mount_specs.size()));
    wanted.endpoint = good;
    CHECK_NOTHROW(node.mount(wanted).value());
  }
  wanted = mount_of("/root");
  wanted.prefix = "//";
  CHECK_NOTHROW(node.mount(wanted).value());
  CHECK(node.place().mount_specs.back().source == "data");
}

TEST_CASE("a mount that is ready after the end of its sandbox is none", "[actors][mounts]") {
  mounting_node node;
  node.start();
  node.place().hold_mount = true;
  const auto asked = node.mount(mount_of("/mnt"));
  auto& place = node.place();
  node.engine.creations.back().end();
  node.sys.run();
  place.finish_mounts();
  node.sys.run();
  CHECK(asked.reason().code == errc::sandbox_not_running);
  CHECK(node.store.value("abc", "mount=/mnt").empty());
  CHECK(node.list().empty());
}

TEST_CASE("one whose record cannot be written is taken away again", "[actors][mounts]") {
  mounting_node node;
  node.start();
  node.store.write_error = error{errc::disk_full, "full"};
  CHECK(node.mount(mount_of("/mnt")).reason().code == errc::disk_full);
  CHECK(node.place().unmounted == std::vector<std::string>{"/mnt"});
  node.store.write_error.reset();
  CHECK(node.list().empty());
}

TEST_CASE("a mount reads as it was written", "[actors][mounts]") {
  const bucket_mount all{"/mnt",
                         "",
                         "http://h",
                         "b",
                         "/p",
                         true,
                         bucket_credentials{"k", "s"},
                         {"retries=2", "nonempty"}};
  const auto again = bucket_mount::read("/mnt", all.text());
  REQUIRE(again);
  CHECK(again->text() == all.text());
  CHECK(again->credentials == all.credentials);
  CHECK(again->options == all.options);
  CHECK_FALSE(bucket_mount::read("/mnt", ""));
  CHECK_FALSE(bucket_mount::read("/mnt", std::string("2\0\0\0\0\0\0\0\0\0", 10)));
  CHECK(actors::normalised_path("//a/./b/../c/") == "/a/c");
  CHECK(actors::normalised_path("/..//") == "/");
}

TEST_CASE("what a program has said is told without secrets, and its last lines only",
          "[actors][mounts]") {
  std::string said;
  for (int i = 0; i < 30; ++i)
    said += "line " + std::to_string(i) + "\n";
  const auto told = actors::without_secrets(said, {"k", "s"});
  CHECK(told.starts_with("line 10\nline 11\n"));
  CHECK(told.ends_with("\nline 29"));
  CHECK(actors::without_secrets("12:00 [INF] fine\n12:01 [CRT] bad\n", {"k", "s"}) ==
        "12:01 [CRT] bad");
  CHECK(actors::without_secrets("key1 said secret2 and key1key1", {"key1", "secret2"}) ==
        "*** said *** and ******");
}
