#include "http/api/openapi.hpp"

#include "http/api/dispatcher.hpp"
#include "http/opensandbox/api.hpp"
#include "http/opensandbox/schemas.hpp"

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

struct schema {
  std::string_view name;
  std::string_view json;
};

/// Names are public; generated clients make types of them.
constexpr schema schemas[] = {
  {"SandboxId", R"({"type":"string","pattern":"^[a-z2-7]{1,128}$"})"},
  {"CreateSandboxResponse",
   R"({"type":"object","required":["id"],"properties":{"id":{"$ref":"#/components/schemas/SandboxId"}}})"},
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
   R"("rule":{"type":"string"},"let_through":{"type":"boolean","description":"In a dry run."}}}},)"
   R"("failures":{"type":"integer","description":"Connections that came to nothing at the other end."},)"
   R"("last_failures":{"type":"array","description":"The newest first.","items":{"type":"object","properties":{"at":{"type":"string","format":"date-time"},)"
   R"("protocol":{"type":"string","enum":["tcp"]},"name":{"type":"string"},"address":{"type":"string"},"port":{"type":"integer"},)"
   R"("reason":{"type":"string","enum":["refused","reset","timed_out","unreachable","unresolved"]}}}}}}}})"},
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
   R"("code":{"type":"string","enum":["invalid_request","unauthorized","not_found","workspace_read_not_found","payload_too_large",)"
   R"("exec_error","exec_transport_error","workspace_archive_read_error","workspace_archive_write_error","session_error","capacity_exceeded","pool_error",)"
   R"("mount_error","unmount_error","network_error","port_not_ready","port_not_listening","sandbox_not_running","bad_answer","deadline_exceeded",)"
   R"("idempotency_conflict","result_gone","insufficient_storage","storage_unavailable","node_unreachable","limit_reached","internal_error"]}}})"},
};

struct tag {
  std::string_view name;
  std::string_view description;
};

constexpr tag tags[] = {
  {"Sandboxes", "A sandbox has an id, which you may choose: it starts with its first use."},
  {"Commands", "Commands in a sandbox, with their output as it comes."},
  {"Files", "Files of a sandbox, one by one."},
  {"Archives", "The workspace as a tar archive, out and in."},
  {"Sessions", "A session is a shell in which directory and variables last."},
  {"Terminals", "A terminal lives in its sandbox, also when nobody looks."},
  {"Buckets", "S3 buckets as directories of a sandbox."},
  {"Network", "What a sandbox may reach, and what listens in it."},
  {"Previews", "Servers in a sandbox, reached from outside."},
  {"Pool", "Warm sandboxes."},
  {"Cluster", "The nodes that answer as one."},
  {"Node", "This node itself."},
  {"OpenSandbox: lifecycle",
   "For clients of OpenSandbox. Every path is there without /v1 as well."},
  {"OpenSandbox: network policy",
   "What a sandbox may reach, where OpenSandbox's clients look for it. Also without /v1."},
  {"OpenSandbox: commands",
   "execd, through the proxy to its port. Also without /v1; and for one sandbox at the address of "
   "`insula serve --execd`, with the part behind 44772 alone."},
  {"OpenSandbox: sessions", "execd's bash sessions."},
  {"OpenSandbox: files", "execd's files and directories."},
  {"OpenSandbox: metrics", "What a sandbox uses, as execd tells it."},
  {"OpenSandbox: terminals", "execd's terminals."},
  {"OpenSandbox: code", "execd's code: without a language it is a shell command."},
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

// What the segments of a path stand for, unless a row says it otherwise.
constexpr std::string_view id_schema = R"({"$ref":"#/components/schemas/SandboxId"})";
constexpr std::string_view port_schema = R"({"type":"integer","minimum":1,"maximum":65535})";
const parameter bridge_id{"id",
                          "path",
                          "The sandbox's id, issued by createSandbox or chosen by you: 1 to 128 "
                          "characters of a-z and 2-7.",
                          true,
                          {},
                          id_schema};
const parameter path_parameters[] = {
  {"id", "path", "The sandbox's id.", true, {}, id_schema},
  {"port", "path", "1 to 65535.", true, "8000", port_schema},
  {"sid", "path", "Its id.", true},
  {"node", "path", "The node's name.", true},
  {"path", "path", "The rest of the path.", true},
};

const parameter& path_parameter(std::string_view name, const route& row) {
  if (name == "id" && row.pattern.starts_with("/v1/sandbox/"))
    return bridge_id;
  for (const auto& each : path_parameters)
    if (each.name == name)
      return each;
  std::abort(); // The router knows no others.
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
std::vector<parameter> parameters_of(const route& row) {
  std::vector<parameter> all;
  const auto& own = row.document.parameters;
  const auto path = templated(row.pattern);
  for (auto at = path.find('{'); at != path.npos; at = path.find('{', at + 1)) {
    const auto name = path.substr(at + 1, path.find('}', at) - at - 1);
    const auto said = std::find_if(own.begin(), own.end(), [&](const auto& each) {
      return each.in == "path" && each.name == name;
    });
    all.push_back(said != own.end() ? *said : path_parameter(name, row));
  }
  std::copy_if(own.begin(), own.end(), std::back_inserter(all),
               [](const auto& each) { return each.in != "path"; });
  return all;
}

/// Whose key is asked for, if another than everywhere.
std::string_view security_of(access who) {
  switch (who) {
    case access::everybody:
    case access::own_page: return "[]";
    case access::key:
    case access::key_or_token: break;
    case access::open_sandbox_key:
    case access::lifecycle: return R"([{"BearerAuth":[]},{"OpenSandboxKey":[]}])";
    case access::execd: return R"([{"BearerAuth":[]},{"OpenSandboxKey":[]},{"ExecdToken":[]}])";
  }
  return {};
}

/// What every route of its kind may answer as well.
std::vector<documented_answer> common_answers(const route& row) {
  const bool of_sandbox = row.pattern.find(":id") != std::string::npos;
  std::vector<documented_answer> all;
  const auto add = [&](std::string_view status, std::string_view name) {
    all.push_back({status, "", "", name});
  };
  switch (row.who) {
    case access::everybody:
    case access::own_page: break;
    case access::key:
    case access::key_or_token: add("401", "Unauthorized"); break;
    case access::open_sandbox_key: add("401", "KeyIsMissing"); break;
    case access::lifecycle:
      add("401", "OpenSandboxUnauthorized");
      if (of_sandbox)
        add("404", "SandboxNotFound");
      add("500", "OpenSandboxFailed");
      add("503", "OpenSandboxBusy");
      break;
    case access::execd:
      add("401", "ExecdUnauthorized");
      add("404", "SandboxNotFound");
      add("500", "OpenSandboxFailed");
      break;
  }
  return all;
}

void write_operation(writer& out, const route& row) {
  const auto& doc = row.document;
  key(out, name_of(row.method));
  out.StartObject();
  member(out, "operationId", doc.id);
  key(out, "tags");
  out.StartArray();
  text(out, doc.tag);
  out.EndArray();
  member(out, "summary", doc.summary);
  if (const auto security = security_of(row.who); !security.empty()) {
    key(out, "security");
    raw(out, security);
  }
  if (const auto parameters = parameters_of(row); !parameters.empty()) {
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
  if (has("502") && row.who != access::open_sandbox_key) {
    if (!has("503"))
      write_answer(out, {"503", "", "", "StorageUnavailable"});
    write_answer(out, {"507", "", "", "DiskFull"});
  }
  for (const auto& answer : common_answers(row))
    if (!has(answer.status))
      write_answer(out, answer);
  out.EndObject();
  out.EndObject();
}

void write_paths(writer& out, const std::vector<route>& table) {
  std::set<std::string_view> written;
  key(out, "paths");
  out.StartObject();
  for (const auto& row : table) {
    if (row.document.id.empty() || !written.insert(row.pattern).second)
      continue;
    key(out, templated(row.pattern));
    out.StartObject();
    for (const auto& each : table)
      if (each.pattern == row.pattern && !each.document.id.empty())
        write_operation(out, each);
    out.EndObject();
  }
  out.EndObject();
}

void write_shared_answer(writer& out, std::string_view name, std::string_view description,
                         std::string_view schema_name = "ErrorResponse") {
  key(out, name);
  out.StartObject();
  member(out, "description", description);
  if (schema_name.empty())
    write_content(out, "text/plain", {});
  else
    write_content(out, "application/json", schema_name);
  out.EndObject();
}

void write_opensandbox_schemas(writer& out) {
  rapidjson::Document all;
  const auto json = opensandbox::schemas();
  all.Parse(json.data(), json.size());
  for (const auto& each : all.GetObject()) {
    key(out, each.name.GetString());
    each.value.Accept(out);
  }
}

void write_components(writer& out) {
  key(out, "components");
  out.StartObject();
  key(out, "securitySchemes");
  raw(
    out,
    R"({"BearerAuth":{"type":"http","scheme":"bearer"},)"
    R"("OpenSandboxKey":{"type":"apiKey","in":"header","name":"OPEN-SANDBOX-API-KEY","description":"The same key, as OpenSandbox's clients send it."},)"
    R"("ExecdToken":{"type":"apiKey","in":"header","name":"X-EXECD-ACCESS-TOKEN","description":"The same key, or what getEndpoint gives for one sandbox."}})");
  key(out, "schemas");
  out.StartObject();
  for (const auto& [name, json] : schemas) {
    key(out, name);
    raw(out, json);
  }
  write_opensandbox_schemas(out);
  out.EndObject();
  key(out, "responses");
  out.StartObject();
  write_shared_answer(out, "Unauthorized", "The key is missing or wrong.");
  write_shared_answer(out, "InvalidRequest", "Malformed; sending it again will not help.");
  write_shared_answer(out, "StorageUnavailable", "The node's disk refuses; nothing was done.");
  write_shared_answer(out, "DiskFull", "The node's disk is full; nothing was done.");
  write_shared_answer(out, "KeyIsMissing", "The key is missing or wrong.", {});
  write_shared_answer(out, "OpenSandboxUnauthorized", "The key is missing or wrong.",
                      "OpenSandboxError");
  write_shared_answer(out, "ExecdUnauthorized", "The token is missing or wrong.",
                      "ExecdUnauthorized");
  write_shared_answer(out, "SandboxNotFound",
                      "There is no such sandbox, or no more; or what is asked for is not in it.",
                      "OpenSandboxError");
  write_shared_answer(out, "OpenSandboxFailed", "It could not be done; the message says why.",
                      "OpenSandboxError");
  write_shared_answer(out, "OpenSandboxBusy",
                      "Not now: no room, or the node's disk refuses. Nothing was done.",
                      "OpenSandboxError");
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
  member(out, "description",
         "Every route of this node: those of the sandbox bridge, with what Insula adds to it, and "
         "those of OpenSandbox. A sandbox has the same id in both.");
  out.EndObject();
  key(out, "tags");
  out.StartArray();
  for (const auto& each : tags) {
    out.StartObject();
    member(out, "name", each.name);
    member(out, "description", each.description);
    out.EndObject();
  }
  out.EndArray();
  key(out, "security");
  raw(out, R"([{"BearerAuth":[]}])");
  auto table = bridge::routes(nullptr);
  for (auto& each : opensandbox::routes(nullptr))
    table.push_back(std::move(each));
  write_paths(out, table);
  write_components(out);
  out.EndObject();
  return {buffer.GetString(), buffer.GetSize()};
}

} // namespace insula::http
