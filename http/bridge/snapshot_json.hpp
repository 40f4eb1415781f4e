#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/protocol/snapshots.hpp"
#include "base/error.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// JSON texts about snapshots of disks, and what queries say of pages. Errors: invalid_request.
namespace insula::http::bridge {

/// Of a query with `limit`, from 1 to `most`; `usual` if it has none.
result<std::uint32_t> read_limit(std::string_view query, std::uint32_t usual, std::uint32_t most);

/// {"name":"…","labels":{"…":"…"},"keep_seconds":3600,"keep_last":5}; none of it has to be there,
/// nor the text itself.
result<take_snapshot> read_snapshot_body(std::string_view text);

/// {"count":3} or {"ids":["…"]}; with "env":{"…":"…"} and "copy_env":true.
struct fork_body {
  std::uint32_t count = 1;
  std::vector<std::string> ids; ///< Empty: new ones.
  std::map<std::string, std::string> env;
  bool copy_env = false;
};
result<fork_body> read_fork_body(std::string_view text);

/// {"snapshot":"…"}
result<std::string> read_rollback_body(std::string_view text);

/// {"id":"…","sandbox":"…","parent":"…","root":"…","state":"created","kind":"manual",
///  "image":"host","bytes":…,"labels":{…},"created_ms":…,"last_used_ms":…}; with "run", "name",
/// "image_digest", "expires_ms", "shared", "not_shared" and "sandboxes" where there are any.
std::string write_snapshot(const snapshot_description& is);
/// {"snapshots":[…],"cursor":"…"}; without a cursor it is the last page.
std::string write_snapshots(const snapshot_page& page);
/// {"from":"…","changes":[{"path":"…","change":"added","type":"file","bytes":…}],"cursor":"…"};
/// without `from` it is the image. Bytes of paths that are no UTF-8 are replaced.
std::string write_changes(const snapshot_changes& page, const std::string& cursor);
/// {"sandboxes":[{"id":"…"}]}
std::string write_siblings(const std::vector<std::string>& ids);

} // namespace insula::http::bridge
