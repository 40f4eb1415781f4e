#pragma once

#include "base/error.hpp"
#include "http/sandboxes/told_entry.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// What execd's clients and it say to each other about files. Bodies are read as execd_json.hpp
/// says; what is read of them are the words of base/file_tasks.hpp. Errors: invalid_request.
namespace insula::http::opensandbox {

/// {"path":{"mode":644,"owner":"…","group":"…"}}, of permit and make_directories.
result<std::vector<std::string>> read_permissions(std::string_view body);

/// [{"src":"…","dest":"…"}], of move.
result<std::vector<std::string>> read_moves(std::string_view body);

/// {"path":{"old":"…","new":"…"}}, of replace.
result<std::vector<std::string>> read_replacements(std::string_view body);

/// {"path":"…","mode":644,"owner":"…","group":"…"}, of put.
result<std::vector<std::string>> read_upload(std::string_view text);

/// What a glob of file names says, as patterns without braces: a name has to match one of them. A
/// leading **/ says nothing here.
result<std::vector<std::string>> read_glob(std::string_view glob);

using http::take_entry;
using http::told_entry;

/// {"path":"…","type":"file",…}
void append_entry(std::string& json, const told_entry& entry);

/// {"requested path":{…},…}. `entries`: as many of them, one after the other, as there are paths.
std::string write_entries_of(const std::vector<std::string>& paths, std::string_view entries);

/// {"path":{"replacedCount":1},…}
std::string write_counts(const std::vector<std::string>& paths,
                         const std::vector<std::uint64_t>& counts);

} // namespace insula::http::opensandbox
