#include "http/openapi.hpp"

#include "http/bridge/api.hpp"

#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <algorithm>

namespace insula::http {

namespace {

using writer = rapidjson::Writer<rapidjson::StringBuffer>;

struct schema {
  std::string_view name;
  std::string_view json;
};

/// Names are public; generated clients make types of them.
constexpr schema schemas[] = {
  {"CreateSandboxResponse",
   R"({"type":"object","required":["id"],"properties":{"id":{"type":"string","pattern":"^[a-z2-7]{1,128}$"}}})"},
  {"RunningResponse",
   R"({"type":"object","required":["running"],"properties":{"running":{"type":"boolean"}}})"},
  {"ExecRequest",
   R"({"type":"object","required":["argv"],"example":{"argv":["echo","hello"]},"properties":{)"
   R"("argv":{"type":"array","minItems":1,"items":{"type":"string"},"description":"The program and its arguments; bash reads them as one line of quoted words."},)"
   R"("timeout_ms":{"type":"number","description":"Milliseconds until the command is ended; exit code 124 then. None: no limit."},)"
   R"("cwd":{"type":"string","description":"A directory in /workspace; relative to it unless absolute."}}})"},
  {"CreateSessionRequest",
   R"({"type":"object","properties":{)"
   R"("id":{"type":"string","pattern":"^[a-zA-Z0-9._-]{1,128}$","description":"None: one is made."},)"
   R"("cwd":{"type":"string","description":"Where its shell starts; /workspace if none is given."},)"
   R"("env":{"type":"object","additionalProperties":{"type":"string"},"description":"Variables of its shell."},)"
   R"("commandTimeoutMs":{"type":"number","description":"For its commands that bring no timeout_ms."}}})"},
  {"CreateSessionResponse",
   R"({"type":"object","required":["id"],"properties":{"id":{"type":"string"}}})"},
  {"WriteResponse",
   R"({"type":"object","required":["ok"],"properties":{"ok":{"type":"boolean"}}})"},
  {"OkResponse", R"({"type":"object","required":["ok"],"properties":{"ok":{"type":"boolean"}}})"},
  {"HealthProblems",
   R"({"type":"object","required":["ok","errors"],"properties":{"ok":{"type":"boolean"},"errors":{"type":"array","items":{"type":"string"}}}})"},
  {"Cluster",
   R"({"type":"object","required":["self","nodes","sandboxes"],"properties":{"self":{"type":"string","description":"The node that answers."},)"
   R"("nodes":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"address":{"type":"string"},)"
   R"("state":{"type":"string","enum":["member","draining","away"]},"version":{"type":"string"},"lease":{"type":"string"},)"
   R"("sandboxes":{"type":"integer"},"capacity":{"type":"integer"},"warm":{"type":"integer"},)"
   R"("clockAheadMs":{"type":"integer","description":"Of the answering node's clock."}}}},)"
   R"("sandboxes":{"type":"array","items":{"type":"object","properties":{"id":{"type":"string"},"node":{"type":"string"},)"
   R"("epoch":{"type":"integer","description":"It grows with each owner."}}}}}})"},
  {"PoolStats",
   R"({"type":"object","required":["warm","assigned","total","config","maxInstances"],"properties":{)"
   R"("warm":{"type":"integer","description":"Started, and nobody's."},)"
   R"("assigned":{"type":"integer","description":"In use."},)"
   R"("total":{"type":"integer","description":"Both."},)"
   R"("config":{"type":"object","properties":{"warmTarget":{"type":"integer"},"refreshInterval":{"type":"integer","description":"Milliseconds."},)"
   R"("maxInstances":{"type":"integer"},"scaleBatchSize":{"type":"integer"}}},)"
   R"("maxInstances":{"type":["integer","null"],"description":"The most that there may be."}}})"},
  {"NetworkPolicy",
   R"({"type":"object","example":{"default":"deny","rules":[{"action":"allow","target":"*.debian.org"}]},"properties":{)"
   R"("mode":{"type":"string","enum":["allow-all","deny-all","custom"],"description":"The first two have no rules."},)"
   R"("default":{"type":"string","enum":["allow","deny"],"description":"For what no rule matches."},)"
   R"("rules":{"type":"array","maxItems":4096,"description":"The first that matches decides.","items":{"type":"object","required":["action","target"],"properties":{)"
   R"("action":{"type":"string","enum":["allow","deny"]},"target":{"type":"string","description":"A domain, *.domain for all below it, * for everything, or a subnet."}}}},)"
   R"("dry_run":{"type":"boolean","description":"Everything passes; what would have been refused is recorded."},)"
   R"("match_host":{"type":"boolean","description":"Plain HTTP on port 80 is known by its Host. True unless told."},)"
   R"("allow":{"description":"Instead of all these: domains, with subnets.","oneOf":[{"type":"array","items":{"type":"string"}},{"type":"object"}]},)"
   R"("subnets":{"type":"object","properties":{"allow":{"type":"array","items":{"type":"string"}},"deny":{"type":"array","items":{"type":"string"}}}}}})"},
  {"Network",
   R"({"type":"object","required":["policy","running","figures"],"properties":{"policy":{"$ref":"#/components/schemas/NetworkPolicy"},)"
   R"("running":{"type":"boolean"},"figures":{"type":["object","null"],"description":"Since its start; null if it does not run.","properties":{)"
   R"("bytes_in":{"type":"integer"},"bytes_out":{"type":"integer"},"connections":{"type":"integer"},"open_connections":{"type":"integer"},"refusals":{"type":"integer"},"gateway_ms":{"type":"integer","description":"The processor's time that the node's gateway has spent for it."},)"
   R"("last_refusals":{"type":"array","description":"The newest first.","items":{"type":"object","properties":{"at":{"type":"string","format":"date-time"},)"
   R"("protocol":{"type":"string","enum":["tcp","dns"]},"name":{"type":"string"},"address":{"type":"string"},"port":{"type":"integer"},)"
   R"("rule":{"type":"string"},"let_through":{"type":"boolean","description":"In a dry run."}}}}}}}})"},
  {"Ports",
   R"({"type":"object","required":["ports"],"properties":{"ports":{"type":"array","items":{"type":"object","required":["port","address"],"properties":{)"
   R"("port":{"type":"integer"},"address":{"type":"string"},"pid":{"type":"integer","description":"As the sandbox sees it."},"process":{"type":"string"}}}}}})"},
  {"PortReady",
   R"({"type":"object","required":["ready","waited_ms"],"properties":{"ready":{"type":"boolean"},"waited_ms":{"type":"integer"}}})"},
  {"PreviewRequest",
   R"({"type":"object","required":["port"],"properties":{"port":{"type":"integer","minimum":1,"maximum":65535},)"
   R"("expires_in_s":{"type":"integer","minimum":1,"maximum":2592000,"description":"Of the token; 3600 unless given."}}})"},
  {"Preview",
   R"({"type":"object","required":["port","url","path","token","expires_at"],"properties":{"port":{"type":"integer"},)"
   R"("url":{"type":["string","null"],"description":"For browsers: each port is an origin of its own. Null if the sandbox's id is too long for a name."},)"
   R"("path":{"type":"string","description":"The same at this node's own address."},)"
   R"("token":{"type":["string","null"],"description":"In both of them already; otherwise in the header X-Insula-Preview-Token. Null if none is needed."},)"
   R"("expires_at":{"type":["string","null"],"format":"date-time"}}})"},
  {"MountBucketRequest",
   R"({"type":"object","required":["mountPath","options"],"example":{"bucket":"my-data","mountPath":"/workspace/data","options":{"endpoint":"https://s3.example.com"}},"properties":{)"
   R"("bucket":{"type":"string","minLength":1,"description":"With an endpoint: the bucket's name. Without: the same as binding."},)"
   R"("binding":{"type":"string","minLength":1,"description":"A bucket that the node's configuration has under this name. Not beside an endpoint."},)"
   R"("mountPath":{"type":"string","pattern":"^/","description":"Where it is to be; made if it is not there, and empty otherwise."},)"
   R"("options":{"$ref":"#/components/schemas/MountBucketRequestOptions"}}})"},
  {"MountBucketRequestOptions",
   R"({"type":"object","properties":{)"
   R"("endpoint":{"type":"string","format":"uri","description":"The S3 service; none for a bucket of the node's."},)"
   R"("readOnly":{"type":"boolean","description":"Nothing can be written."},)"
   R"("prefix":{"type":"string","description":"Only what is below it; begins with a slash. Empty: all of it."},)"
   R"("credentials":{"$ref":"#/components/schemas/MountBucketCredentials"},)"
   R"("s3fsOptions":{"type":"array","maxItems":32,"items":{"type":"string","maxLength":256},"description":"Options of s3fs: name, or name=value."},)"
   R"("credentialProxy":{"type":"boolean","description":"Credentials are never in the sandbox, with or without this; options that concern them are refused with it."}}})"},
  {"MountBucketCredentials",
   R"({"type":"object","required":["accessKeyId","secretAccessKey"],"description":"None: the node's own.","properties":{)"
   R"("accessKeyId":{"type":"string"},"secretAccessKey":{"type":"string","format":"password"}}})"},
  {"UnmountBucketRequest",
   R"({"type":"object","required":["mountPath"],"example":{"mountPath":"/workspace/data"},"properties":{)"
   R"("mountPath":{"type":"string","pattern":"^/","description":"Where it is mounted."}}})"},
  {"Mounts",
   R"({"type":"object","required":["mounts"],"properties":{"mounts":{"type":"array","items":{"type":"object","required":["mountPath","bucket","readOnly","mounted"],"properties":{)"
   R"("mountPath":{"type":"string"},"bucket":{"type":"string"},"binding":{"type":"string"},"endpoint":{"type":"string"},"prefix":{"type":"string"},)"
   R"("readOnly":{"type":"boolean"},"mounted":{"type":"boolean","description":"It can be used now."}}}}}})"},
  {"ErrorResponse",
   R"({"type":"object","required":["error","code"],"properties":{)"
   R"("error":{"type":"string","description":"For people."},)"
   R"("reason":{"type":"string","description":"For people: why a command could not start."},)"
   R"("code":{"type":"string","enum":["invalid_request","unauthorized","workspace_read_not_found","payload_too_large",)"
   R"("exec_error","exec_transport_error","workspace_archive_write_error","session_error","capacity_exceeded","pool_error","mount_error","unmount_error","network_error","port_not_ready","port_not_listening","sandbox_not_running","bad_answer","deadline_exceeded","internal_error"]}}})"},
};

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
  raw(out, R"({"type":"string"})");
  if (!what.example.empty())
    member(out, "example", what.example);
  out.EndObject();
}

void write_operation(writer& out, const route& row) {
  const auto& doc = row.document;
  key(out, name_of(row.method));
  out.StartObject();
  member(out, "operationId", doc.id);
  member(out, "summary", doc.summary);
  if (row.who == access::everybody) {
    key(out, "security");
    out.StartArray();
    out.EndArray();
  }
  if (!doc.parameters.empty()) {
    key(out, "parameters");
    out.StartArray();
    for (const auto& what : doc.parameters)
      write_parameter(out, what);
    out.EndArray();
  }
  if (!doc.body_type.empty()) {
    key(out, "requestBody");
    out.StartObject();
    key(out, "required");
    out.Bool(true);
    write_content(out, doc.body_type, doc.body_schema);
    out.EndObject();
  }
  key(out, "responses");
  out.StartObject();
  for (const auto& answer : doc.answers)
    write_answer(out, answer);
  // Whatever needs a sandbox needs the node's disk.
  const auto has = [&](std::string_view status) {
    return std::any_of(doc.answers.begin(), doc.answers.end(),
                       [&](const auto& each) { return each.status == status; });
  };
  if (has("502")) {
    if (!has("503"))
      write_answer(out, {"503", "", "", "StorageUnavailable"});
    write_answer(out, {"507", "", "", "DiskFull"});
  }
  if (row.who != access::everybody)
    write_answer(out, {"401", "", "", "Unauthorized"});
  out.EndObject();
  out.EndObject();
}

void write_paths(writer& out, std::vector<route> table) {
  std::erase_if(table, [](const route& row) { return row.document.id.empty(); });
  key(out, "paths");
  out.StartObject();
  for (std::size_t i = 0; i < table.size();) {
    const auto pattern = table[i].pattern;
    key(out, templated(pattern));
    out.StartObject();
    for (; i < table.size() && table[i].pattern == pattern; ++i) // Rows of one path stand together.
      write_operation(out, table[i]);
    out.EndObject();
  }
  out.EndObject();
}

void write_shared_answer(writer& out, std::string_view name, std::string_view description) {
  key(out, name);
  out.StartObject();
  member(out, "description", description);
  write_content(out, "application/json", "ErrorResponse");
  out.EndObject();
}

void write_components(writer& out) {
  key(out, "components");
  out.StartObject();
  key(out, "securitySchemes");
  raw(out, R"({"BearerAuth":{"type":"http","scheme":"bearer"}})");
  key(out, "schemas");
  out.StartObject();
  for (const auto& [name, json] : schemas) {
    key(out, name);
    raw(out, json);
  }
  out.EndObject();
  key(out, "responses");
  out.StartObject();
  write_shared_answer(out, "Unauthorized", "The key is missing or wrong.");
  write_shared_answer(out, "InvalidRequest", "Malformed; sending it again will not help.");
  write_shared_answer(out, "StorageUnavailable", "The node's disk refuses; nothing was done.");
  write_shared_answer(out, "DiskFull", "The node's disk is full; nothing was done.");
  out.EndObject();
  out.EndObject();
}

} // namespace

std::string openapi_document() {
  rapidjson::StringBuffer buffer;
  writer out{buffer};
  out.StartObject();
  member(out, "openapi", "3.1.0");
  key(out, "info");
  out.StartObject();
  member(out, "title", "Cloudflare Sandbox Service API");
  member(out, "version", "1.0.0");
  out.EndObject();
  key(out, "security");
  raw(out, R"([{"BearerAuth":[]}])");
  write_paths(out, bridge::routes(nullptr));
  write_components(out);
  out.EndObject();
  return {buffer.GetString(), buffer.GetSize()};
}

} // namespace insula::http
