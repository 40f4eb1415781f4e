// Runs that leave their disks, in a cluster: a stopped sandbox is no node's, and one whose node is
// lost goes on as of its last snapshot.
#include "tests/e2e/box_of_project.hpp"
#include "tests/e2e/small_cluster.hpp"
#include "tests/support/metrics_text.hpp"
#include "tests/support/temp_dir.hpp"

#include <csignal>
#include <string>

using namespace insula::test;

TEST_CASE("a sandbox that was stopped at one node goes on at any other", "[cluster]") {
  const temp_dir place;
  small_cluster nodes{2, copies_in(place)};
  box_of_project box{"moves"};
  box.make(nodes[0]);
  said(nodes[1], box.id(), "echo kept > file; mkdir ~/bin; echo tool > ~/bin/tool");
  const auto at = nodes.owner_number(box.id());
  const auto left = box.stop(nodes[1 - at]);
  REQUIRE_FALSE(left.empty());
  REQUIRE(eventually([&] { return is_shared(nodes[at], left); }));

  nodes[at].crash_both();
  auto& other = nodes[1 - at];
  const auto first = box.session();
  const auto got = box.resume_patiently(other);
  CHECK(got.body.find("\"resumed\":true") != std::string::npos);
  CHECK(got.body.find("\"sourceSnapshotId\":\"snap_" + left) != std::string::npos);
  CHECK_FALSE(got.fields.contains("insula-recovered")); // Nothing was lost.
  CHECK(box.session() != first);
  CHECK(said(other, box.id(), "cat file ~/bin/tool") == "kept\ntool\n");
  nodes[at].start();
  CHECK(eventually([&] { return small_cluster::members(other) == 2; }));
  CHECK(box.resume(nodes[at]).body.find(box.session()) != std::string::npos);
  CHECK_FALSE(box.stop(nodes[at]).empty());
}

TEST_CASE("a run whose node is lost is aborted, and the next one begins with what was kept last",
          "[cluster]") {
  const temp_dir place;
  small_cluster nodes{2, copies_in(place, "interval: 1s")};
  box_of_project box{"lost"};
  box.make(nodes[0]);
  said(nodes[0], box.id(), "echo kept > file");
  const auto at = nodes.owner_number(box.id());
  const auto kept = [&] {
    return metrics_page{nodes[at].ask("GET", "/metrics").body}.value("insula_disk_snapshots_kept_"
                                                                     "total");
  };
  const auto before = kept();
  REQUIRE(eventually([&] {
    said(nodes[at], box.id(), "true");
    return kept() >= before + 2;
  }));
  nodes[at].crash_both();
  auto& other = nodes[1 - at];
  const auto got = box.resume_patiently(other);
  INFO(got.body);
  CHECK(got.fields.contains("insula-recovered"));
  CHECK(said(other, box.id(), "cat file") == "kept\n");
  const auto all = box.sessions(other);
  INFO(all);
  CHECK(all.find("\"status\":\"running\"") < all.find("\"status\":\"aborted\""));
  CHECK(all.find("\"status\":\"aborted\"") != std::string::npos);
  CHECK_FALSE(box.resume(other).fields.contains("insula-recovered")); // It has been told.
  nodes[at].start();
}

TEST_CASE("a server that ends keeps the disks of its runs", "[runs]") {
  node it;
  it.keeps_snapshots = true;
  box_of_project box{"kept"};
  box.make(it);
  said(it, box.id(), "echo kept > file");
  CHECK(it.stop(SIGINT) == 0);
  it.start();
  const auto got = box.resume_patiently(it);
  CHECK(got.fields.contains("insula-recovered"));
  CHECK(said(it, box.id(), "cat file") == "kept\n");
  CHECK_FALSE(box.stop(it).empty());
}
