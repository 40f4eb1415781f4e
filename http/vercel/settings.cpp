#include "http/vercel/settings.hpp"

#include "base/limits.hpp"
#include "http/text/percent.hpp"
#include "http/vercel/drives.hpp"
#include "http/vercel/ids.hpp"
#include "http/vercel/members.hpp"

#include <algorithm>
#include <set>

namespace insula::http::vercel {

namespace {

using json::find;

constexpr std::size_t longest_mount_path = 512, most_ports = 15, most_tags = 5, longest_tag = 256;
constexpr std::int64_t day_ms = 24LL * 60 * 60 * 1000;

refusal bad_timeout(const std::string& why) {
  return {400, "sandbox_timeout_invalid", why};
}

std::optional<refusal> read_ports(const json::value& in, std::vector<std::uint16_t>& into) {
  const auto* list = given(in, "ports");
  if (list == nullptr)
    return std::nullopt;
  if (!list->IsArray())
    return bad_request("ports must be an array of numbers");
  if (list->Size() > most_ports)
    return bad_request("ports: a sandbox has at most " + std::to_string(most_ports));
  std::vector<std::uint16_t> all;
  for (const auto& each : list->GetArray()) {
    const auto port = whole_number(each);
    if (!port || *port < 1024 || *port > 65535)
      return bad_request("ports: each must be a number from 1024 to 65535");
    if (std::find(all.begin(), all.end(), *port) != all.end())
      return bad_request("ports: " + std::to_string(*port) + " is there twice");
    all.push_back(static_cast<std::uint16_t>(*port));
  }
  into = std::move(all);
  return std::nullopt;
}

std::optional<refusal> read_timeout(const json::value& in, std::int64_t& into) {
  const auto* value = given(in, "timeout");
  if (value == nullptr)
    return std::nullopt;
  const auto ms = whole_number(*value);
  if (!ms)
    return bad_request("timeout must be a number of milliseconds");
  if (*ms < 1000 || *ms > most_timeout_ms)
    return bad_timeout("timeout must be from 1000 to " + std::to_string(most_timeout_ms) +
                       " milliseconds");
  into = *ms;
  return std::nullopt;
}

std::optional<refusal> read_resources(const json::value& in, unsigned& into) {
  const auto* resources = given(in, "resources");
  if (resources == nullptr)
    return std::nullopt;
  if (!resources->IsObject())
    return bad_request("resources must be an object");
  const auto* vcpus = given(*resources, "vcpus");
  const auto* memory = given(*resources, "memory");
  const auto count = vcpus != nullptr ? whole_number(*vcpus) : std::optional<std::int64_t>{into};
  if (!count || *count < 1 || *count > most_vcpus || (*count != 1 && *count % 2 != 0))
    return bad_request("resources.vcpus must be 1 or an even number up to " +
                       std::to_string(most_vcpus));
  if (memory != nullptr && whole_number(*memory) != *count * memory_of_vcpu_mb)
    return bad_request("resources.memory must be 2048 times resources.vcpus");
  into = static_cast<unsigned>(*count);
  return std::nullopt;
}

std::optional<refusal> read_tags(const json::value& in, std::map<std::string, std::string>& into) {
  std::map<std::string, std::string> all = into;
  if (auto wrong = read_texts(in, "tags", all))
    return wrong;
  if (all.size() > most_tags)
    return bad_request("tags: a sandbox has at most " + std::to_string(most_tags));
  for (const auto& [key, text] : all)
    if (key.empty() || key.size() > longest_tag || text.size() > longest_tag)
      return bad_request("tags." + key.substr(0, 64) + " must have at most 256 characters");
  into = std::move(all);
  return std::nullopt;
}

std::optional<refusal> check_expiration(std::int64_t ms, const char* name) {
  if (ms == 0 || ms >= day_ms)
    return std::nullopt;
  return bad_request(std::string{name} + " must be 0 or at least " + std::to_string(day_ms) +
                     " milliseconds");
}

std::optional<refusal> read_snapshot_settings(const json::value& in, settings& into,
                                              bool null_clears) {
  if (const auto* value = given(in, "snapshotExpiration")) {
    const auto ms = whole_number(*value);
    if (!ms)
      return bad_request("snapshotExpiration must be a number of milliseconds");
    if (auto wrong = check_expiration(*ms, "snapshotExpiration"))
      return wrong;
    into.snapshot_expiration_ms = *ms;
  }
  const auto* keep = find(in, "keepLastSnapshots");
  if (keep == nullptr)
    return std::nullopt;
  if (keep->IsNull()) {
    if (null_clears)
      into.keep_last.reset();
    return std::nullopt;
  }
  if (!keep->IsObject())
    return bad_request("keepLastSnapshots must be an object");
  retention kept;
  const auto* count = given(*keep, "count");
  const auto number = count != nullptr ? whole_number(*count) : std::nullopt;
  if (!number || *number < 1 || *number > 10)
    return bad_request("keepLastSnapshots.count must be from 1 to 10");
  kept.count = static_cast<int>(*number);
  if (const auto* value = given(*keep, "expiration")) {
    const auto ms = whole_number(*value);
    if (!ms)
      return bad_request("keepLastSnapshots.expiration must be a number of milliseconds");
    if (auto wrong = check_expiration(*ms, "keepLastSnapshots.expiration"))
      return wrong;
    kept.expiration_ms = *ms;
  }
  if (auto wrong = read_flag(*keep, "deleteEvicted", kept.delete_evicted))
    return wrong;
  into.keep_last = kept;
  return std::nullopt;
}

/// Absolute and normalised, and nothing that a sandbox has of the kernel.
bool is_mount_path(const std::string& path) {
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
  if (path.size() < 2 || path.size() > longest_mount_path || path.front() != '/' ||
      std::any_of(path.begin(), path.end(), is_control))
    return false;
  for (std::string_view left{path}; !left.empty();) {
    left.remove_prefix(1);
    const auto name = left.substr(0, left.find('/'));
    if (name.empty() || name == "." || name == "..")
      return false;
    left.remove_prefix(name.size());
  }
  const auto top = path.substr(0, path.find('/', 1));
  return top != "/proc" && top != "/sys" && top != "/dev";
}

/// In place of those that were there.
std::optional<refusal> read_mounts(const json::value& in, std::map<std::string, drive_wish>& into) {
  const auto* mounts = given(in, "mounts");
  if (mounts == nullptr)
    return std::nullopt;
  if (!mounts->IsObject())
    return bad_request("mounts must be an object");
  if (mounts->MemberCount() > limits::drives_per_sandbox)
    return bad_request("mounts: a sandbox has at most " +
                       std::to_string(limits::drives_per_sandbox));
  std::map<std::string, drive_wish> all;
  std::set<std::string> written;
  for (const auto& each : mounts->GetObject()) {
    const auto path = json::string_of(each.name);
    const auto of_it = "mounts." + path.substr(0, 64);
    if (!is_mount_path(path))
      return bad_request(of_it + " must be an absolute path without . and .., outside of /proc, "
                                 "/sys and /dev");
    drive_wish wish;
    std::string mode = insula::name_of(wish.mode);
    if (!each.value.IsObject())
      return bad_request(of_it + " must be an object");
    for (auto wrong :
         {read_text(each.value, "drive", wish.drive), read_text(each.value, "mode", mode)})
      if (wrong)
        return wrong;
    if (!is_drive_name(wish.drive))
      return bad_request(of_it + ".drive must be the name of a drive");
    const auto known = drive_mode_of(mode);
    if (!known)
      return bad_request(of_it + ".mode must be read-write, snapshot or read-only");
    wish.mode = *known;
    if (wish.mode == drive_mode::read_write && !written.insert(wish.drive).second)
      return bad_request("mounts: " + wish.drive + " is there twice to write to");
    if (!all.emplace(path, std::move(wish)).second)
      return bad_request(of_it + " is there twice");
  }
  for (const auto& [path, wish] : all)
    for (const auto& [other, ignored] : all)
      if (other.size() > path.size() && other.starts_with(path + '/'))
        return bad_request("mounts: " + other.substr(0, 64) + " is inside of " +
                           path.substr(0, 64));
  into = std::move(all);
  return std::nullopt;
}

/// What create and PATCH both have.
std::optional<refusal> read_common(const json::value& in, settings& into, bool& changes_network,
                                   bool null_clears) {
  for (auto wrong :
       {read_flag(in, "persistent", into.persistent), read_timeout(in, into.timeout_ms),
        read_resources(in, into.vcpus), read_ports(in, into.ports), read_tags(in, into.tags),
        read_snapshot_settings(in, into, null_clears), read_text(in, "region", into.region),
        read_text(in, "networkId", into.network_id)})
    if (wrong)
      return wrong;
  if (into.region.empty() || into.region.size() > 64)
    return bad_request("region must have 1 to 64 characters");
  if (const auto* id = find(in, "networkId"); null_clears && id != nullptr && id->IsNull())
    into.network_id.clear();
  if (auto wrong = read_mounts(in, into.mounts))
    return wrong;
  const auto* policy = given(in, "networkPolicy");
  changes_network = policy != nullptr;
  return policy == nullptr ? std::nullopt : read_policy(*policy, into.network);
}

bool is_web_address(const std::string& url) {
  return (url.starts_with("https://") || url.starts_with("http://")) && url.size() <= 4096 &&
         std::all_of(url.begin(), url.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

/// "https://name:password@host/…": git would keep these in the sandbox, with the address.
void take_credentials_from_address(git_source& from) {
  const auto begin = from.url.find("://") + 3;
  const auto at = from.url.substr(0, from.url.find_first_of("/?#", begin)).rfind('@');
  if (at == std::string::npos || at < begin)
    return;
  const auto said = from.url.substr(begin, at - begin);
  from.url.erase(begin, said.size() + 1);
  const auto colon = said.find(':');
  if (from.username.empty())
    from.username = percent_decode(said.substr(0, colon));
  if (from.password.empty() && colon != std::string::npos)
    from.password = percent_decode(said.substr(colon + 1));
}

std::optional<refusal> read_git(const json::value& in, create_request& into) {
  git_source from;
  for (auto wrong :
       {read_text(in, "url", from.url), read_text(in, "revision", from.revision),
        read_text(in, "username", from.username), read_text(in, "password", from.password)})
    if (wrong)
      return wrong;
  if (!is_web_address(from.url))
    return bad_request("source.url must be an http or https URL");
  take_credentials_from_address(from);
  if (from.revision.starts_with('-'))
    return bad_request("source.revision must not begin with a hyphen");
  if (const auto* depth = given(in, "depth")) {
    const auto number = whole_number(*depth);
    if (!number || *number < 1 || *number > 1'000'000)
      return bad_request("source.depth must be a number from 1 on");
    from.depth = static_cast<int>(*number);
  }
  into.git = std::move(from);
  return std::nullopt;
}

/// Of a new sandbox. One is made if there is none.
std::optional<refusal> read_name(const json::value& in, std::string& into) {
  into.clear();
  if (auto wrong = read_text(in, "name", into))
    return wrong;
  if (find(in, "name") == nullptr)
    into = generate_name();
  if (!is_name_to_give(into))
    return bad_request(
      "name must have 1 to 128 characters of a-z, A-Z, 0-9, _ and -, and not be sessions, "
      "snapshots, drives, or sbx_ and the id of a sandbox");
  return std::nullopt;
}

std::optional<refusal> read_source(const json::value& in, create_request& into) {
  const auto* source = given(in, "source");
  if (source == nullptr)
    return std::nullopt;
  std::string type;
  if (!source->IsObject())
    return bad_request("source must be an object");
  if (auto wrong = read_text(*source, "type", type))
    return wrong;
  if (type == "git")
    return read_git(*source, into);
  if (type == "tarball") {
    into.tarball.emplace();
    if (auto wrong = read_text(*source, "url", into.tarball->url))
      return wrong;
    return is_web_address(into.tarball->url)
             ? std::nullopt
             : std::optional{bad_request("source.url must be an http or https URL")};
  }
  if (type == "snapshot") {
    std::string id;
    if (auto wrong = read_text(*source, "snapshotId", id))
      return wrong;
    if (id.empty())
      return bad_request("source.snapshotId is required");
    into.snapshot = snapshot_of(id);
    return into.snapshot.empty() ? std::optional{gone_snapshot(id)} : std::nullopt;
  }
  return bad_request("source.type must be git, tarball or snapshot");
}

} // namespace

refusal gone_snapshot(const std::string& id) {
  return {410, "snapshot_not_found", "Snapshot '" + id.substr(0, 64) + "' not found."};
}

settings settings_in(std::string_view body) {
  json::document document;
  settings is;
  if (!json::parse(body, document) || !document.IsObject() ||
      read_text(document, "projectId", is.project) || read_text(document, "name", is.name) ||
      read_mounts(document, is.mounts))
    return {};
  return is;
}

std::optional<refusal> read_create(std::string_view body, create_request& into) {
  json::document document;
  if (auto wrong = read_object(body, document))
    return wrong;
  auto& wanted = into.wanted;
  bool changes_network = false;
  for (auto wrong :
       {read_text(document, "projectId", wanted.project),
        read_text(document, "runtime", wanted.runtime), read_text(document, "image", wanted.image),
        read_environment(document, into.env)})
    if (wrong)
      return wrong;
  if (wanted.project.empty() || wanted.project.size() > 128)
    return bad_request("projectId is required");
  if (auto wrong = read_name(document, wanted.name))
    return wrong;
  if (!wanted.runtime.empty() && !wanted.image.empty())
    return bad_request("runtime and image cannot be there both");
  if (wanted.runtime.size() > 64 || wanted.image.size() > 512)
    return bad_request("runtime or image is too long");
  if (auto wrong = read_common(document, wanted, changes_network, false))
    return wrong;
  return read_source(document, into);
}

std::optional<refusal> read_fork(std::string_view body, create_request& into, bool& other_image) {
  json::document document;
  if (auto wrong = read_object(body.empty() ? "{}" : body, document))
    return wrong;
  auto& wanted = into.wanted;
  bool changes_network = false;
  std::string image;
  for (auto wrong : {read_text(document, "image", image), read_environment(document, into.env)})
    if (wrong)
      return wrong;
  if (auto wrong = read_name(document, wanted.name))
    return wrong;
  if (image.size() > 512)
    return bad_request("image is too long");
  other_image = !image.empty();
  if (other_image) {
    wanted.image = std::move(image);
    wanted.runtime.clear();
  }
  return read_common(document, wanted, changes_network, false);
}

std::optional<refusal> apply_patch(std::string_view body, settings& to, std::string& snapshot) {
  json::document document;
  if (auto wrong = read_object(body, document))
    return wrong;
  auto changed = to;
  bool changes_network = false;
  std::string id, wanted;
  if (auto wrong = read_text(document, "currentSnapshotId", id))
    return wrong;
  if (!id.empty() && (wanted = snapshot_of(id)).empty())
    return gone_snapshot(id);
  if (auto wrong = read_common(document, changed, changes_network, true))
    return wrong;
  to = std::move(changed);
  snapshot = std::move(wanted);
  return std::nullopt;
}

std::optional<refusal> read_snapshot_request(std::string_view body, snapshot_request& into) {
  json::document document;
  if (auto wrong = read_object(body.empty() ? "{}" : body, document))
    return wrong;
  if (const auto* value = given(document, "expiration")) {
    into.keep_ms = whole_number(*value);
    if (!into.keep_ms)
      return bad_request("expiration must be a number of milliseconds");
    if (auto wrong = check_expiration(*into.keep_ms, "expiration"))
      return wrong;
  }
  const auto* own = given(document, "__insula");
  if (own == nullptr)
    return std::nullopt;
  if (!own->IsObject())
    return bad_request("__insula must be an object");
  return read_flag(*own, "keepRunning", into.keeps_running);
}

void write_mounts(json::ascii_writer& out, const std::map<std::string, drive_wish>& all) {
  out.begin_object();
  for (const auto& [path, wish] : all) {
    out.key(path).begin_object().member("drive", wish.drive);
    out.member("mode", insula::name_of(wish.mode)).end_object();
  }
  out.end_object();
}

std::vector<drive_mount> drives_of(const settings& is, std::string_view secret) {
  std::vector<drive_mount> all;
  for (const auto& [path, wish] : is.mounts)
    all.push_back({path, drive_of(secret, is.project, wish.drive), wish.mode, wish.drive});
  return all;
}

std::string own_drive_of(const settings& is, std::string_view secret) {
  const auto found = first_drive(drives_of(is, secret));
  return found ? found->drive : std::string{};
}

snapshot_retention retention_of(const settings& of) {
  const auto usual = of.snapshot_expiration_ms.value_or(default_snapshot_ms);
  snapshot_retention is;
  is.keeps = of.persistent;
  is.keep_ms = usual;
  if (!of.keep_last)
    return is;
  is.keep_ms = of.keep_last->expiration_ms.value_or(usual);
  // Without an expiry those that are not deleted stay as they are.
  if (!of.keep_last->delete_evicted && usual == 0)
    return is;
  is.keep_last = static_cast<std::uint32_t>(of.keep_last->count);
  is.evicted_keep_ms = of.keep_last->delete_evicted ? 0 : usual;
  return is;
}

snapshot_retention retention_in(const api_metadata& all) {
  const auto at = all.find(metadata_api);
  const auto is = at == all.end() ? std::nullopt : read_settings(at->second);
  return is && !is->unfinished ? retention_of(*is) : snapshot_retention{};
}

std::optional<grouped_sandbox> group_of(const api_metadata& all) {
  if (auto drive = drive_group_of(all))
    return drive;
  const auto at = all.find(metadata_api);
  json::document document;
  grouped_sandbox is;
  if (at == all.end() || !json::parse(at->second, document) || !document.IsObject() ||
      read_text(document, "project", is.group) || read_text(document, "name", is.name))
    return std::nullopt;
  if (find(document, "unfinished") != nullptr) // It is none yet, as GET has it.
    return std::nullopt;
  return is;
}

std::optional<sandbox_caption> caption_of(const api_metadata& all) {
  if (auto drive = drive_caption_of(all))
    return drive;
  const auto at = all.find(metadata_api);
  json::document document;
  sandbox_caption is;
  if (at == all.end() || !json::parse(at->second, document) || !document.IsObject() ||
      read_text(document, "project", is.group) || read_text(document, "name", is.name) ||
      read_tags(document, is.tags))
    return std::nullopt;
  return is;
}

token_claims claims_of(const std::string& sandbox, const api_metadata& all, std::uint64_t run) {
  const auto at = all.find(metadata_api);
  const auto is = at == all.end() ? std::nullopt : read_settings(at->second);
  if (!is) // It is another API's.
    return {{"team_id", usual_team},
            {"project_id", "insula/sandboxes"}, // Which no project of the API is.
            {"sandbox_id", sandbox},
            {"sandbox_name", sandbox}};
  return {{"team_id", is->team.empty() ? usual_team : is->team},
          {"project_id", is->project},
          {"sandbox_id", session_id{sandbox, run}.text()},
          {"sandbox_name", is->name}};
}

std::string image_name(const settings& of) {
  return of.runtime.empty() ? of.image : of.runtime;
}

// ---- As metadata

std::string text_of(const settings& what) {
  json::ascii_writer out;
  out.begin_object();
  out.member("project", what.project).member("name", what.name);
  out.member("persistent", what.persistent).member("timeout", what.timeout_ms);
  out.member("vcpus", what.vcpus).member("updated", what.updated_ms).member("region", what.region);
  for (const auto& [key, text] :
       {std::pair{"runtime", &what.runtime}, std::pair{"image", &what.image},
        std::pair{"networkId", &what.network_id}, std::pair{"team", &what.team}})
    if (!text->empty())
      out.member(key, *text);
  out.key("ports").begin_array();
  for (const auto each : what.ports)
    out.integer(each);
  out.end_array().key("tags").begin_object();
  for (const auto& [key, text] : what.tags)
    out.member(key, text);
  out.end_object().key("networkPolicy");
  write_reach(out, what.network);
  if (!what.network.sealed.empty()) {
    out.key("requestRules").begin_object().member("shape", what.network.sealed.shape);
    out.member("sealed", what.network.sealed.sealed).end_object();
  }
  if (what.snapshot_expiration_ms)
    out.member("snapshotExpiration", *what.snapshot_expiration_ms);
  if (what.keep_last) {
    out.key("keepLastSnapshots").begin_object().member("count", what.keep_last->count);
    if (what.keep_last->expiration_ms)
      out.member("expiration", *what.keep_last->expiration_ms);
    out.member("deleteEvicted", what.keep_last->delete_evicted).end_object();
  }
  if (!what.mounts.empty()) {
    out.key("mounts");
    write_mounts(out, what.mounts);
  }
  if (what.unfinished)
    out.member("unfinished", true);
  out.end_object();
  return out.str();
}

std::optional<settings> read_settings(std::string_view text) {
  json::document document;
  settings is;
  bool ignored = false;
  if (!json::parse(text, document) || !document.IsObject() ||
      read_text(document, "project", is.project) || read_text(document, "name", is.name) ||
      read_text(document, "runtime", is.runtime) || read_text(document, "image", is.image) ||
      read_text(document, "team", is.team) || read_common(document, is, ignored, false))
    return std::nullopt;
  if (const auto* kept = find(document, "requestRules")) {
    auto& sealed = is.network.sealed;
    if (!kept->IsObject() || read_text(*kept, "shape", sealed.shape) ||
        read_text(*kept, "sealed", sealed.sealed))
      return std::nullopt;
    auto rules = rules_from_text(sealed.shape);
    if (!rules)
      return std::nullopt;
    is.network.rules = std::move(*rules);
  }
  if (const auto* at = find(document, "updated"); at != nullptr && at->IsInt64())
    is.updated_ms = at->GetInt64();
  if (const auto* count = find(document, "vcpus"); count != nullptr && count->IsUint())
    is.vcpus = count->GetUint();
  is.unfinished = find(document, "unfinished") != nullptr;
  return is;
}

std::optional<settings> settings_of(const sandbox_description& is) {
  const auto at = is.metadata.find(metadata_api);
  return at == is.metadata.end() ? std::nullopt : read_settings(at->second);
}

} // namespace insula::http::vercel
