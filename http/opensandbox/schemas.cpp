#include "http/opensandbox/schemas.hpp"

namespace insula::http::opensandbox {

std::string_view schemas() {
  return R"json({
"OpenSandboxError": {
  "type": "object",
  "required": ["code", "message"],
  "properties": {
    "code": {"type": "string", "examples": ["DOCKER::SANDBOX_NOT_FOUND", "INVALID_REQUEST_BODY"]},
    "message": {"type": "string", "description": "For people."}
  }
},
"ExecdUnauthorized": {
  "type": "object",
  "required": ["error"],
  "properties": {"error": {"type": "string", "description": "For people."}}
},
"OpenSandboxCreateRequest": {
  "type": "object",
  "required": ["image", "entrypoint", "resourceLimits"],
  "example": {"image": {"uri": "host"}, "entrypoint": ["tail", "-f", "/dev/null"], "resourceLimits": {}, "timeout": 600},
  "properties": {
    "image": {
      "type": "object",
      "required": ["uri"],
      "properties": {"uri": {"type": "string", "description": "An image of this node's, as imported; a tag is behind a hyphen in its name."}}
    },
    "entrypoint": {"type": "array", "minItems": 1, "items": {"type": "string"}, "description": "A command that is run once it is there."},
    "resourceLimits": {"$ref": "#/components/schemas/OpenSandboxLimits"},
    "timeout": {"type": ["integer", "null"], "minimum": 60, "description": "Seconds until it ends. None: it has no end."},
    "env": {"type": "object", "additionalProperties": {"type": ["string", "null"]}, "description": "Variables of all its commands."},
    "metadata": {"$ref": "#/components/schemas/OpenSandboxMetadata"},
    "networkPolicy": {"$ref": "#/components/schemas/OpenSandboxPolicy"}
  }
},
"OpenSandboxLimits": {
  "type": "object",
  "example": {"cpu": "500m", "memory": "512Mi"},
  "properties": {
    "cpu": {"type": "string", "description": "CPUs, such as 2 or 500m."},
    "memory": {"type": "string", "description": "Bytes, such as 512Mi."},
    "gpu": {"type": "string", "description": "None but 0: there are no GPUs."}
  }
},
"OpenSandboxMetadata": {
  "type": "object",
  "additionalProperties": {"type": "string", "maxLength": 63},
  "description": "Keys and values are as Kubernetes has them in labels."
},
"OpenSandboxMetadataPatch": {
  "type": "object",
  "additionalProperties": {"type": ["string", "null"], "maxLength": 63},
  "example": {"purpose": "tests"}
},
"OpenSandbox": {
  "type": "object",
  "required": ["id", "status", "createdAt"],
  "properties": {
    "id": {"$ref": "#/components/schemas/SandboxId"},
    "image": {"type": "object", "properties": {"uri": {"type": "string"}}},
    "status": {
      "type": "object",
      "required": ["state"],
      "properties": {
        "state": {"type": "string", "enum": ["Running", "Paused"]},
        "reason": {"type": "string"},
        "message": {"type": "string"},
        "lastTransitionAt": {"type": "string", "format": "date-time"}
      }
    },
    "metadata": {"$ref": "#/components/schemas/OpenSandboxMetadata"},
    "entrypoint": {"type": "array", "items": {"type": "string"}},
    "expiresAt": {"type": "string", "format": "date-time", "description": "None: it has no end."},
    "createdAt": {"type": "string", "format": "date-time"}
  }
},
"OpenSandboxPage": {
  "type": "object",
  "properties": {
    "page": {"type": "integer"},
    "pageSize": {"type": "integer"},
    "totalItems": {"type": "integer"},
    "totalPages": {"type": "integer"},
    "hasNextPage": {"type": "boolean"}
  }
},
"OpenSandboxList": {
  "type": "object",
  "required": ["items", "pagination"],
  "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/OpenSandbox"}},
    "pagination": {"$ref": "#/components/schemas/OpenSandboxPage"}
  }
},
"OpenSandboxSnapshotList": {
  "type": "object",
  "required": ["items", "pagination"],
  "properties": {
    "items": {"type": "array", "maxItems": 0, "items": {"type": "object"}},
    "pagination": {"$ref": "#/components/schemas/OpenSandboxPage"}
  }
},
"OpenSandboxExpiration": {
  "type": "object",
  "required": ["expiresAt"],
  "properties": {"expiresAt": {"type": "string", "format": "date-time"}}
},
"OpenSandboxEndpoint": {
  "type": "object",
  "required": ["endpoint"],
  "properties": {
    "endpoint": {"type": "string", "description": "Host, port and path; the scheme is that of this node."},
    "headers": {"type": "object", "additionalProperties": {"type": "string"}, "description": "To be sent with every request."}
  }
},
"OpenSandboxRule": {
  "type": "object",
  "required": ["action", "target"],
  "properties": {
    "action": {"type": "string", "enum": ["allow", "deny"]},
    "target": {"type": "string", "description": "A domain, *.domain for all below it, an address or a subnet."}
  }
},
"OpenSandboxRules": {
  "type": "array",
  "minItems": 1,
  "items": {"$ref": "#/components/schemas/OpenSandboxRule"},
  "example": [{"action": "allow", "target": "*.debian.org"}]
},
"OpenSandboxTargets": {
  "type": "array",
  "items": {"type": "string"},
  "example": ["*.debian.org"]
},
"OpenSandboxPolicy": {
  "type": "object",
  "example": {"defaultAction": "deny", "egress": [{"action": "allow", "target": "*.debian.org"}]},
  "properties": {
    "defaultAction": {"type": "string", "enum": ["allow", "deny"], "description": "For what no rule matches; deny unless given."},
    "egress": {"type": "array", "maxItems": 4096, "items": {"$ref": "#/components/schemas/OpenSandboxRule"}, "description": "The first that matches decides."}
  }
},
"OpenSandboxPolicyStatus": {
  "type": "object",
  "required": ["status", "mode", "policy"],
  "properties": {
    "status": {"type": "string", "const": "ok"},
    "mode": {"type": "string", "enum": ["allow_all", "deny_all", "enforcing"]},
    "enforcementMode": {"type": "string"},
    "policy": {"$ref": "#/components/schemas/OpenSandboxPolicy"}
  }
},
"ExecdCommandRequest": {
  "type": "object",
  "required": ["command"],
  "example": {"command": "echo hello"},
  "properties": {
    "command": {"type": "string", "minLength": 1, "description": "A shell's command line."},
    "cwd": {"type": "string", "description": "Where it runs; ~ and variables are known."},
    "background": {"type": "boolean", "description": "The answer ends at once, and the command goes on."},
    "timeout": {"type": "integer", "minimum": 0, "description": "Milliseconds until it is killed. 0 or none: no limit."},
    "uid": {"type": "integer", "minimum": 0},
    "gid": {"type": "integer", "minimum": 0, "description": "Only with uid."},
    "envs": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Variables of this command."}
  }
},
"ExecdEvent": {
  "type": "object",
  "required": ["type", "timestamp"],
  "properties": {
    "type": {"type": "string", "enum": ["init", "stdout", "stderr", "ping", "execution_complete", "error"]},
    "timestamp": {"type": "integer", "description": "Unix time in milliseconds."},
    "text": {"type": "string", "description": "Of init the command's id, of stdout and stderr a line, or a part of one, as the guide of this API says."},
    "execution_time": {"type": "integer", "description": "Milliseconds."},
    "error": {
      "type": "object",
      "properties": {
        "ename": {"type": "string"},
        "evalue": {"type": "string", "description": "The exit code, or words."},
        "traceback": {"type": "array", "items": {"type": "string"}}
      }
    }
  }
},
"ExecdCommandStatus": {
  "type": "object",
  "required": ["id", "running"],
  "properties": {
    "id": {"type": "string"},
    "content": {"type": "string", "description": "The command line."},
    "running": {"type": "boolean"},
    "exit_code": {"type": ["integer", "null"], "description": "Null while it runs, and when it was killed for its time."},
    "error": {"type": "string", "description": "Empty: it has ended well, or runs."},
    "started_at": {"type": "string", "format": "date-time"},
    "finished_at": {"type": ["string", "null"], "format": "date-time"}
  }
},
"ExecdSessionRequest": {
  "type": "object",
  "properties": {"cwd": {"type": "string", "description": "Where its shell starts."}}
},
"ExecdSession": {
  "type": "object",
  "required": ["session_id"],
  "properties": {"session_id": {"type": "string"}}
},
"ExecdSessionRunRequest": {
  "type": "object",
  "required": ["command"],
  "example": {"command": "pwd"},
  "properties": {
    "command": {"type": "string", "minLength": 1},
    "cwd": {"type": "string", "description": "A directory to change to first."},
    "timeout": {"type": "integer", "minimum": 0, "description": "Milliseconds."}
  }
},
"ExecdFileInfo": {
  "type": "object",
  "required": ["path", "type", "size", "mode"],
  "properties": {
    "path": {"type": "string"},
    "type": {"type": "string", "enum": ["file", "directory", "symlink", "other"]},
    "size": {"type": "integer"},
    "modified_at": {"type": "string", "format": "date-time"},
    "created_at": {"type": "string", "format": "date-time"},
    "owner": {"type": "string"},
    "group": {"type": "string"},
    "mode": {"type": "integer", "description": "Octal digits as a decimal number: 644."}
  }
},
"ExecdFilesInfo": {
  "type": "object",
  "additionalProperties": {"$ref": "#/components/schemas/ExecdFileInfo"}
},
"ExecdFileList": {
  "type": "array",
  "items": {"$ref": "#/components/schemas/ExecdFileInfo"}
},
"ExecdPermission": {
  "type": "object",
  "properties": {
    "mode": {"type": "integer", "description": "Octal digits as a decimal number: 644."},
    "owner": {"type": "string"},
    "group": {"type": "string"}
  }
},
"ExecdPermissions": {
  "type": "object",
  "additionalProperties": {"$ref": "#/components/schemas/ExecdPermission"},
  "example": {"/workspace/tools": {"mode": 755}}
},
"ExecdMoves": {
  "type": "array",
  "items": {
    "type": "object",
    "required": ["src", "dest"],
    "properties": {"src": {"type": "string"}, "dest": {"type": "string"}}
  },
  "example": [{"src": "/workspace/a", "dest": "/workspace/b"}]
},
"ExecdReplacements": {
  "type": "object",
  "additionalProperties": {
    "type": "object",
    "required": ["old", "new"],
    "properties": {"old": {"type": "string", "minLength": 1}, "new": {"type": "string"}}
  },
  "example": {"/workspace/notes.txt": {"old": "one", "new": "two"}}
},
"ExecdReplaced": {
  "type": "object",
  "additionalProperties": {"type": "object", "properties": {"replacedCount": {"type": "integer"}}}
},
"ExecdUpload": {
  "type": "object",
  "required": ["metadata", "file"],
  "properties": {
    "metadata": {"type": "string", "contentMediaType": "application/json", "description": "{\"path\":\"/workspace/a\",\"mode\":644}, as a part with a file name."},
    "file": {"type": "string", "format": "binary"}
  }
},
"ExecdMetrics": {
  "type": "object",
  "properties": {
    "cpu_count": {"type": "number"},
    "cpu_used_pct": {"type": "number", "description": "Of all of them."},
    "mem_total_mib": {"type": "number"},
    "mem_used_mib": {"type": "number"},
    "timestamp": {"type": "integer", "description": "Unix time in milliseconds."}
  }
},
"ExecdPtyRequest": {
  "type": "object",
  "properties": {
    "cwd": {"type": "string"},
    "command": {"type": "string", "description": "Instead of a shell."}
  }
},
"ExecdPty": {
  "type": "object",
  "required": ["session_id", "running", "output_offset"],
  "properties": {
    "session_id": {"type": "string"},
    "running": {"type": "boolean"},
    "output_offset": {"type": "integer"}
  }
},
"ExecdCodeContext": {
  "type": "object",
  "properties": {"language": {"type": "string"}, "cwd": {"type": "string"}}
},
"ExecdCodeContexts": {
  "type": "array",
  "items": {"type": "object"}
},
"ExecdCodeRequest": {
  "type": "object",
  "required": ["code"],
  "example": {"code": "echo hello"},
  "properties": {
    "code": {"type": "string"},
    "context": {"type": "object", "properties": {"id": {"type": "string"}, "language": {"type": "string"}}}
  }
}
})json";
}

} // namespace insula::http::opensandbox
