#include "http/api/openapi.hpp"

#include <rapidjson/document.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>

namespace insula::http {

namespace {

using writer = rapidjson::Writer<rapidjson::StringBuffer>;

void key(writer& out, std::string_view name) {
  out.Key(name.data(), static_cast<rapidjson::SizeType>(name.size()));
}

void text(writer& out, std::string_view value) {
  out.String(value.data(), static_cast<rapidjson::SizeType>(value.size()));
}

void member(writer& out, std::string_view name, std::string_view value) {
  key(out, name);
  text(out, value);
}

void raw(writer& out, std::string_view json) {
  out.RawValue(json.data(), json.size(), rapidjson::kObjectType);
}

// What the segments of a path stand for, unless a row says it otherwise.
constexpr std::string_view id_schema = R"({"$ref":"#/components/schemas/SandboxId"})";
constexpr std::string_view port_schema = R"({"type":"integer","minimum":1,"maximum":65535})";
const parameter path_parameters[] = {
  {"id", "path", "The sandbox's id.", true, {}, id_schema},
  {"port", "path", "1 to 65535.", true, "8000", port_schema},
  {"sid", "path", "Its id.", true},
  {"node", "path", "The node's name.", true},
  {"name", "path", "The image's name.", true},
  {"path", "path", "The rest of the path.", true},
};

const parameter& path_parameter(std::string_view name, const public_api& api) {
  if (const auto* own = api.path_parameter(name))
    return *own;
  for (const auto& each : path_parameters)
    if (each.name == name)
      return each;
  std::abort(); // A row that says nothing of it.
}

/// `/v1/sandbox/:id/file/*` as `/v1/sandbox/{id}/file/{path}`.
std::string templated(std::string_view pattern) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '*') {
      path += "{path}";
    } else if (pattern[i] == ':') {
      const auto end = std::min(pattern.find('/', i), pattern.size());
      path += '{' + std::string{pattern.substr(i + 1, end - i - 1)} + '}';
      i = end - 1;
    } else {
      path += pattern[i];
    }
  }
  return path;
}

std::string_view name_of(verb method) {
  switch (method) {
    case verb::get: return "get";
    case verb::put: return "put";
    case verb::post: return "post";
    case verb::patch: return "patch";
    case verb::del: return "delete";
    case verb::other: break;
  }
  return "trace";
}

void reference(writer& out, std::string_view kind, std::string_view name) {
  member(out, "$ref", "#/components/" + std::string{kind} + "/" + std::string{name});
}

void write_content(writer& out, std::string_view type, std::string_view schema_name) {
  key(out, "content");
  out.StartObject();
  key(out, type);
  out.StartObject();
  key(out, "schema");
  out.StartObject();
  if (!schema_name.empty())
    reference(out, "schemas", schema_name);
  else if (type == "application/json")
    member(out, "type", "object");
  else
    member(out, "type", "string");
  out.EndObject();
  out.EndObject();
  out.EndObject();
}

void write_answer(writer& out, const documented_answer& answer) {
  key(out, answer.status);
  out.StartObject();
  if (answer.content_type.empty() && !answer.schema.empty()) {
    reference(out, "responses", answer.schema);
  } else {
    member(out, "description", answer.description);
    if (!answer.content_type.empty())
      write_content(out, answer.content_type, answer.schema);
  }
  out.EndObject();
}

void write_parameter(writer& out, const parameter& what) {
  out.StartObject();
  member(out, "name", what.name);
  member(out, "in", what.in);
  key(out, "required");
  out.Bool(what.required);
  member(out, "description", what.description);
  key(out, "schema");
  raw(out, what.schema.empty() ? R"({"type":"string"})" : what.schema);
  if (what.schema.empty() && !what.example.empty())
    member(out, "example", what.example);
  else if (!what.example.empty()) {
    key(out, "example");
    raw(out, what.example);
  }
  out.EndObject();
}

/// Those of the path first, in its order.
std::vector<parameter> parameters_of(const route& row, const public_api& api) {
  std::vector<parameter> all;
  const auto& own = row.document.parameters;
  const auto path = templated(row.pattern);
  for (auto at = path.find('{'); at != path.npos; at = path.find('{', at + 1)) {
    const auto name = path.substr(at + 1, path.find('}', at) - at - 1);
    const auto said = std::find_if(own.begin(), own.end(), [&](const auto& each) {
      return each.in == "path" && each.name == name;
    });
    all.push_back(said != own.end() ? *said : path_parameter(name, api));
  }
  std::copy_if(own.begin(), own.end(), std::back_inserter(all),
               [](const auto& each) { return each.in != "path"; });
  return all;
}

void write_operation(writer& out, const route& row, const public_api& api) {
  const auto& doc = row.document;
  key(out, name_of(row.method));
  out.StartObject();
  member(out, "operationId", doc.id);
  key(out, "tags");
  out.StartArray();
  text(out, doc.tag);
  out.EndArray();
  member(out, "summary", doc.summary);
  if (const auto security = row.who->security(); !security.empty()) {
    key(out, "security");
    raw(out, security);
  }
  if (const auto parameters = parameters_of(row, api); !parameters.empty()) {
    key(out, "parameters");
    out.StartArray();
    for (const auto& what : parameters)
      write_parameter(out, what);
    out.EndArray();
  }
  if (!doc.body_type.empty()) {
    key(out, "requestBody");
    out.StartObject();
    key(out, "required");
    out.Bool(!doc.body_optional);
    write_content(out, doc.body_type, doc.body_schema);
    out.EndObject();
  }
  key(out, "responses");
  out.StartObject();
  for (const auto& answer : doc.answers)
    write_answer(out, answer);
  const auto has = [&](std::string_view status) {
    return std::any_of(doc.answers.begin(), doc.answers.end(),
                       [&](const auto& each) { return each.status == status; });
  };
  // Whatever needs a sandbox needs the node's disk.
  if (has("502") && doc.needs_disk) {
    if (!has("503"))
      write_answer(out, {"503", "", "", "StorageUnavailable"});
    write_answer(out, {"507", "", "", "DiskFull"});
  }
  for (const auto& answer : row.who->answers(row.pattern.find(":id") != std::string::npos))
    if (!has(answer.status))
      write_answer(out, answer);
  out.EndObject();
  out.EndObject();
}

void write_paths(writer& out, const public_api& api) {
  const auto table = api.routes();
  std::set<std::string_view> written;
  for (const auto& row : table) {
    if (row.document.id.empty() || !written.insert(row.pattern).second)
      continue;
    key(out, templated(row.pattern));
    out.StartObject();
    for (const auto& each : table)
      if (each.pattern == row.pattern && !each.document.id.empty())
        write_operation(out, each, api);
    out.EndObject();
  }
}

/// The parts that each API brings, as one object or one array.
class parts {
public:
  explicit parts(const std::vector<std::shared_ptr<const public_api>>& apis) {
    for (const auto& api : apis) {
      const auto text = api->document_parts();
      all_.emplace_back().Parse(text.data(), text.size());
    }
  }

  void write(writer& out, const char* name) const {
    key(out, name);
    const bool is_list = all_.front()[name].IsArray();
    is_list ? out.StartArray() : out.StartObject();
    for (const auto& each : all_)
      if (is_list)
        for (const auto& element : each[name].GetArray())
          element.Accept(out);
      else
        for (const auto& member_of : each[name].GetObject()) {
          key(out, member_of.name.GetString());
          member_of.value.Accept(out);
        }
    is_list ? out.EndArray() : out.EndObject();
  }

private:
  std::vector<rapidjson::Document> all_;
};

} // namespace

std::string openapi_text(const std::vector<std::shared_ptr<const public_api>>& apis) {
  const parts of{apis};
  rapidjson::StringBuffer buffer;
  writer out{buffer};
  out.StartObject();
  member(out, "openapi", "3.1.0");
  key(out, "info");
  out.StartObject();
  member(out, "title", "Cloudflare Sandbox Service API");
  member(out, "version", "1.0.0");
  member(
    out, "description",
    "Every route of this node: those of the sandbox bridge, with what Insula adds to it, those "
    "of OpenSandbox, and those of the Vercel Sandbox service. A sandbox has the same id in "
    "the first two; the third has names, by project.");
  out.EndObject();
  of.write(out, "tags");
  key(out, "security");
  raw(out, R"([{"BearerAuth":[]}])");
  key(out, "paths");
  out.StartObject();
  for (const auto& api : apis)
    write_paths(out, *api);
  out.EndObject();
  key(out, "components");
  out.StartObject();
  for (const auto* name : {"securitySchemes", "schemas", "responses"})
    of.write(out, name);
  out.EndObject();
  out.EndObject();
  return {buffer.GetString(), buffer.GetSize()};
}

} // namespace insula::http
