#!/usr/bin/env bash
# A sandbox from beginning to end: made, a command in it, a file in and out, deleted.
# INSULA_URL says where the server is; SANDBOX_API_KEY is its key, if it has one: the same variable as the server's.
set -euo pipefail

URL=${INSULA_URL:-http://127.0.0.1:8787}
curl() { command curl --fail-with-body ${SANDBOX_API_KEY:+-H "Authorization: Bearer $SANDBOX_API_KEY"} "$@"; }

ID=$(curl -s -X POST "$URL/v1/sandbox" | grep -o '[a-z2-7]\{26\}')
curl -sN "$URL/v1/sandbox/$ID/exec" -d '{"argv": ["sh", "-c", "echo hello; sleep 1; echo again >&2"]}'
curl -s -w '\n' -X PUT --data-binary 'a file of mine' "$URL/v1/sandbox/$ID/file/workspace/notes.txt"
curl -s -w '\n' "$URL/v1/sandbox/$ID/file/workspace/notes.txt"
curl -s -w '%{http_code}\n' -X DELETE "$URL/v1/sandbox/$ID"
