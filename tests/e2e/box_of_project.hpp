#pragma once

#include "tests/e2e/disk_requests.hpp"

#include <chrono>
#include <exception>
#include <string>

namespace insula::test {

/// A sandbox of the Vercel Sandbox service's API, in one project.
class box_of_project {
public:
  explicit box_of_project(std::string name)
      : name_(std::move(name)) {}

  void make(const node& at, std::chrono::milliseconds timeout = std::chrono::minutes{10}) {
    took(at.ask("POST", "/v3/sandboxes",
                R"({"projectId":"p","ports":[],"timeout":)" + std::to_string(timeout.count()) +
                  R"(,"name":")" + name_ + "\"}"));
  }
  box_of_project fork(const node& at, const std::string& name) const {
    box_of_project made{name};
    made.took(at.ask("POST", "/v2/sandboxes/" + name_ + "/fork?projectId=p",
                     "{\"name\":\"" + name + "\"}"));
    return made;
  }
  /// Begins no session.
  http_answer look(const node& at) const { return at.ask("GET", path({})); }
  http_answer resume(const node& at) const { return at.ask("GET", path("resume=true&")); }
  /// Until it can be: what its clients are told meanwhile is to come again.
  http_answer resume_patiently(const node& at) {
    http_answer got;
    CHECK(eventually([&] {
      try {
        got = resume(at);
        return got.status == 200;
      } catch (const std::exception&) {
        return false;
      }
    }));
    took(got);
    return got;
  }
  /// The snapshot that the session leaves.
  std::string stop(const node& at) const {
    const auto stopped = at.ask("POST", "/v2/sandboxes/sessions/" + session_ + "/stop");
    INFO(stopped.body);
    REQUIRE(stopped.status == 200);
    return snapshot_in(stopped.body, "\"snapshot\":{\"id\":\"snap_");
  }
  std::string sessions(const node& at) const {
    return at.ask("GET", "/v2/sandboxes/sessions?project=p&name=" + name_).body;
  }
  /// What makes one or begins a session has answered so.
  void took(const http_answer& answer) {
    INFO(answer.body);
    REQUIRE(answer.status == 200);
    session_ = member(answer.body, "currentSessionId");
    REQUIRE(session_.starts_with("sbx_"));
  }
  /// As the node calls it.
  std::string id() const { return session_.substr(4, sandbox_digits); }
  const std::string& session() const { return session_; }

private:
  static constexpr auto sandbox_digits = 26;

  std::string path(const std::string& query) const {
    return "/v2/sandboxes/" + name_ + "?" + query + "projectId=p";
  }
  static std::string snapshot_in(const std::string& body, const std::string& before) {
    const auto at = body.find(before);
    return at == std::string::npos ? std::string{}
                                   : body.substr(at + before.size(), sandbox_digits);
  }

  std::string name_;
  std::string session_;
};

} // namespace insula::test
