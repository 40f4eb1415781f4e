#pragma once

#include "tests/e2e/image_trees.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/child_program.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/temp_dir.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace insula::test {

/// For skopeo.
inline const std::string debian = "oci:" + (inputs / "layout").string() + ":debian";

/// Debian's own registry, with what the test has pushed.
class docker_registry {
public:
  /// `more`: further lines of its configuration, behind those of `http`.
  explicit docker_registry(const std::string& more = "") {
    std::ofstream{where_ / "config.yml"}
      << "version: 0.1\nlog: {accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: "
      << (where_ / "data").string() << "}}\nhttp:\n  addr: '127.0.0.1:0'\n  secret: x\n"
      << more;
    program_.emplace(
      std::vector<std::string>{"docker-registry", "serve", (where_ / "config.yml").string()},
      child_program::options{.error_file = (where_ / "err").string()});
    const std::string before = "listening on 127.0.0.1:";
    REQUIRE(eventually([&] {
      const auto said = std::filesystem::exists(where_ / "err") ? content_of(where_ / "err") : "";
      const auto at = said.find(before);
      if (at == said.npos)
        return false;
      port_ = static_cast<std::uint16_t>(std::stoul(said.substr(at + before.size(), 6)));
      return true;
    }));
  }

  std::uint16_t port() const { return port_; }
  std::string host() const { return "127.0.0.1:" + std::to_string(port_); }

  void push(const std::string& from, const std::string& as, const std::string& login = "") const {
    std::vector<std::string> words{"skopeo", "copy", "--quiet", "--dest-tls-verify=false"};
    if (!login.empty())
      words.insert(words.end(), {"--dest-creds", login});
    words.insert(words.end(), {from, "docker://" + host() + "/" + as});
    output_of(words);
  }

private:
  temp_dir where_;
  std::uint16_t port_ = 0;
  std::optional<child_program> program_;
};

} // namespace insula::test
