// The parts that stand in a sandbox's record: its description, its network, its mounts.
#include "base/limits.hpp"
#include "tests/actors/sandbox/fake_core.hpp"

#include <algorithm>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

TEST_CASE("a sandbox is defined once, and told when that is durable", "[parts]") {
  fake_core core;
  description about{core};
  core.have({&about});
  core.cluster.hold = true;
  owed<sandbox_description> first, second;
  define_sandbox wanted;
  wanted.metadata["one"] = "mine";
  wanted.expires_ms = core.time.unix_ms() + 7000;
  wanted.memory_bytes = 1 << 20;
  about.define(wanted, first);
  CHECK(first.open());
  about.define(wanted, second);
  core.cluster.let_go();
  CHECK(first.got().metadata == api_metadata{{"one", "mine"}});
  CHECK(first.got().exists);
  CHECK(second.code() == errc::already_exists);
  CHECK(core.cluster.alarm == 7000ms);
  CHECK(limits_of(core).memory_bytes == 1 << 20);
  CHECK(time_left(core) == 7000ms);
}

TEST_CASE("a definition of an unknown image, or without the lease, changes nothing", "[parts]") {
  fake_core core;
  description about{core};
  owed<sandbox_description> unknown, refused;
  define_sandbox wanted;
  wanted.image = "none";
  about.define(wanted, unknown);
  CHECK(unknown.code() == errc::image_refused);
  core.lease_error = error{errc::stale_epoch, "another's"};
  about.define({}, refused);
  CHECK(refused.code() == errc::stale_epoch);
  CHECK(core.cluster.kept.empty());
  CHECK(core.operations() == 0);
}

TEST_CASE("a number in a record is the whole of its text", "[parts]") {
  CHECK(actors::number_in("-12") == -12);
  for (const auto* odd : {"", " 1", "1 ", "12x", "x", "9223372036854775808"})
    CHECK_FALSE(actors::number_in(odd));
  CHECK(actors::number_in({{"created_ms", "5"}}, actors::created_key) == 5);
  CHECK_FALSE(actors::number_in({{"image", "5"}}, actors::created_key));
}

TEST_CASE("a part adds to what the record tells, wherever it stands in the table", "[parts]") {
  class stands_still final : public part {
  public:
    using part::part;
    void describe(sandbox_description& into) const override {
      CHECK(into.image == "host");
      into.paused = true;
    }
  };
  fake_core core;
  stands_still odd{core};
  description about{core};
  core.cluster.kept = {{"created_ms", "5"}, {"expires_ms", "9"}, {"image", "host"}};
  for (const auto& order : {std::vector<part*>{&odd, &about}, {&about, &odd}}) {
    core.have(order);
    const auto said = core.describe();
    CHECK(said.exists);
    CHECK(said.created_ms == 5);
    CHECK(said.expires_ms == 9);
    CHECK(said.paused);
  }
}

TEST_CASE("a description changes only if it is as the client knows it", "[parts]") {
  fake_core core;
  description about{core};
  core.have({&about});
  core.cluster.kept = {{"created_ms", "1"}, {"metadata/one", "a"}, {"metadata/two", "x"}};
  owed<sandbox_description> other, mine;
  redefine_sandbox wanted;
  wanted.metadata = {"one", "b", "x"};
  about.redefine(wanted, other);
  CHECK(other.got().metadata.at("one") == "a");
  wanted.metadata->only_if = "a";
  about.redefine(wanted, mine);
  CHECK(mine.got().metadata == api_metadata{{"one", "b"}, {"two", "x"}});
}

TEST_CASE("the ceiling of metadata holds for two changes that wait for the lease", "[parts]") {
  fake_core core;
  description about{core};
  core.have({&about});
  core.cluster.kept = {{"created_ms", "1"}};
  core.hold_lease = true;
  owed<sandbox_description> first, second, small;
  const std::string half(limits::metadata_bytes / 2, 'x');
  redefine_sandbox wanted;
  wanted.metadata = {"one", half};
  about.redefine(wanted, first);
  wanted.metadata = {"two", half};
  about.redefine(wanted, second);
  wanted.metadata = {"two", "small"};
  about.redefine(wanted, small);
  core.let_lease_go();
  CHECK(first.got().metadata.at("one") == half);
  CHECK(second.code() == errc::invalid_request);
  CHECK(small.got().metadata.at("two") == "small");
}

TEST_CASE("the sandbox's own environment goes over the node's", "[parts]") {
  fake_core core;
  core.be_running();
  core.cluster.kept["env"] = std::string{"HOME=/mine\0A=1\0", 15};
  const auto all = environment(core, {}, {{"A", "2"}});
  CHECK(all == std::vector<std::string>{"A=2", "HOME=/mine"});
  CHECK(*expanded(core, "~/x/$A") == "/mine/x/1");
  CHECK_FALSE(expanded(core, "$NONE"));
}

TEST_CASE("a policy is durable before the engine is told, and before it is answered", "[parts]") {
  fake_core core;
  egress network{core};
  core.be_running();
  network.of_start();
  core.cluster.hold = true;
  owed<network_state> told;
  network.set_network({egress_policy::deny_all()}, told);
  CHECK(core.place->policies.empty());
  core.cluster.let_go();
  CHECK(core.place->policies.size() == 1);
  CHECK(told.open());
  core.run();
  CHECK(told.got().policy == egress_policy::deny_all());
  CHECK(told.got().running);
}

TEST_CASE("a start waits until the engine has the policy that is durable", "[parts]") {
  fake_core core;
  egress network{core};
  core.cluster.kept["created_ms"] = "1";
  core.become(phase::starting);
  core.next_start();
  network.of_start();
  owed<network_state> told;
  network.set_network({egress_policy::deny_all()}, told); // The engine was asked already.
  CHECK_FALSE(told.got().running);
  core.set_engine_sandbox(core.place);
  int settled = 0;
  std::vector<errc> failed;
  const auto settle = [&] {
    return network.settle([&] { ++settled; },
                          [&](const error& why) { failed.push_back(why.code); });
  };
  core.place->network_error = error{errc::io_failed, "no answer"};
  CHECK_FALSE(settle());
  core.run();
  CHECK(failed == std::vector{errc::launch_failed});
  CHECK(core.place->destroys == 1);
  CHECK(settled == 0);
  CHECK(settle()); // It was told.
}

TEST_CASE("changes of rules are made to what is on its way to the disk", "[parts]") {
  fake_core core;
  egress network{core};
  core.cluster.hold = true;
  owed<network_state> one, two;
  network.change_network({{{true, "a.example"}}, {}}, one);
  network.change_network({{{true, "b.example"}}, {}}, two);
  core.cluster.let_go();
  CHECK(two.got().policy.rules.size() == 2);
}

TEST_CASE("sockets keep the sandbox awake for as long as they are held", "[parts]") {
  fake_core core;
  egress network{core};
  owed<sandbox_sockets> asleep, many, some;
  network.open_sockets({}, asleep);
  CHECK(asleep.code() == errc::sandbox_not_running);
  core.be_running();
  network.open_sockets({false, 17}, many);
  CHECK(many.code() == errc::invalid_request);
  network.open_sockets({false, 2}, some);
  core.run();
  CHECK(some.got().sockets->size() == 2);
  CHECK(core.in_use());
  some.given->clear();
  core.run();
  CHECK_FALSE(core.in_use());
}

namespace {

mount_bucket_request bucket_at(std::string path) {
  mount_bucket_request wanted;
  wanted.path = std::move(path);
  wanted.endpoint = "https://s3.example";
  wanted.bucket = "things";
  wanted.credentials = bucket_credentials{"id", "secret"};
  return wanted;
}

} // namespace

TEST_CASE("mounts are made one after the other, and recorded when they can be used", "[parts]") {
  fake_core core;
  mounts buckets{core};
  core.be_running();
  core.place->hold_mount = true;
  owed<caf::ok_atom> first, second;
  buckets.mount(bucket_at("/a"), first);
  buckets.mount(bucket_at("/b"), second);
  CHECK(core.place->mount_specs.size() == 1);
  CHECK(core.in_use());
  core.place->finish_mounts();
  core.run();
  first.got();
  CHECK(core.cluster.kept.count("mount=/a") == 1);
  CHECK(core.place->mount_specs.size() == 2);
  CHECK(second.open());
  core.place->finish_mounts();
  core.run();
  second.got();
  owed<caf::ok_atom> again;
  buckets.mount(bucket_at("/a"), again);
  CHECK(again.code() == errc::already_exists);
}

TEST_CASE("what is recorded is mounted again before the sandbox runs", "[parts]") {
  fake_core core;
  mounts buckets{core};
  core.have({&buckets});
  core.be_running();
  owed<caf::ok_atom> made;
  buckets.mount(bucket_at("/a"), made);
  core.run();
  made.got();
  core.stops();
  core.place = std::make_shared<fake_sandbox>();
  core.be_running();
  bool settled = false;
  CHECK_FALSE(buckets.settle([&] { settled = true; }, [](const error&) {}));
  core.run();
  CHECK(settled);
  CHECK(core.place->mounted.size() == 1);
}

TEST_CASE("a mount whose program ends gets another, a few times", "[parts]") {
  fake_core core;
  mounts buckets{core};
  core.be_running();
  owed<caf::ok_atom> made;
  buckets.mount(bucket_at("/a"), made);
  core.run();
  for (unsigned i = 0; i <= limits::mount_revivals; ++i) {
    buckets.on_program_ended(core.start(), "/a");
    core.run();
  }
  CHECK(core.place->mount_specs.size() == 1 + limits::mount_revivals);
  buckets.on_program_ended(core.start() - 1, "/a"); // Of an earlier start.
  CHECK(core.place->mount_specs.size() == 1 + limits::mount_revivals);
}

TEST_CASE("a mount is gone when its record is", "[parts]") {
  fake_core core;
  mounts buckets{core};
  owed<caf::ok_atom> none, gone;
  buckets.unmount({"/a"}, none);
  CHECK(none.code() == errc::not_found);
  core.be_running();
  owed<caf::ok_atom> made;
  buckets.mount(bucket_at("/a"), made);
  core.run();
  core.cluster.hold = true;
  buckets.unmount({"/a/"}, gone);
  core.run();
  CHECK(gone.open());
  core.cluster.let_go();
  gone.got();
  owed<std::vector<mounted_bucket>> all;
  buckets.list({}, all);
  CHECK(all.got().empty());
}

TEST_CASE("rules about requests are sealed in the record, with the first comes an authority",
          "[parts]") {
  fake_core core;
  egress network{core};
  core.be_running();
  network.of_start();
  owed<network_state> first, second, changed, without;
  const std::vector<request_rule> shape{{"a.example", {}, transform_action{{{"x-key", ""}}}}};
  set_network_request wanted{egress_policy::deny_all()};
  wanted.requests = sealed_rules{to_text(shape), "sealed"};
  network.set_network(wanted, first);
  core.run();
  CHECK(first.got().requests == shape);
  CHECK(core.place->trusted == std::vector<std::string>{"certificate 1\n"});
  REQUIRE(core.place->orders.size() == 1);
  const auto orders = core.place->orders.front();
  CHECK(orders.sealed_rules == "sealed");
  CHECK(orders.certificate == "certificate 1\n");
  CHECK(orders.sealed_key == "key 1");
  const auto all = environment(core, {}, {{"PIP_CERT", "/mine"}});
  CHECK(std::count(all.begin(), all.end(), "PIP_CERT=/mine") == 1);
  CHECK(std::count(all.begin(), all.end(), "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt") ==
        1);
  // A change of the rules about names leaves those about requests.
  network.change_network({{{true, "b.example"}}, {}}, changed);
  core.run();
  CHECK(changed.got().requests == shape);
  CHECK(core.place->orders.back().sealed_rules == "sealed");
  wanted.requests = sealed_rules{to_text(shape), "sealed again"};
  network.set_network(wanted, second);
  core.run();
  CHECK(second.got().requests == shape);
  CHECK(core.place->orders.back().certificate == "certificate 1\n"); // It stays.
  CHECK(core.place->trusted.size() == 1);
  wanted.requests = sealed_rules{};
  network.set_network(wanted, without);
  core.run();
  CHECK(without.got().requests.empty());
  CHECK(core.place->orders.back().empty());
}

TEST_CASE("what is defined with rules is copied with them, and has its own authority", "[parts]") {
  fake_core core;
  description about{core};
  core.have({&about});
  owed<sandbox_description> made;
  owed<define_sandbox> copied;
  define_sandbox wanted;
  wanted.network = egress_policy::deny_all();
  wanted.requests = {"shape", "sealed"};
  about.define(wanted, made);
  CHECK(made.got().exists);
  CHECK(core.cluster.kept.at("authority").find("certificate 1") != std::string::npos);
  about.copy({}, copied);
  CHECK(copied.got().requests == wanted.requests);
}
