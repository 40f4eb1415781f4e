#!/usr/bin/env bash
# The command API of OpenSandbox's execd by curl, at the address where its documentation has it.
#
# examples/opensandbox/curl.sh [insula]: the program, build/release/insula of the clone unless given. Needs root, and port 44772 to be
# free. It starts a server of its own with a state directory of its own, and leaves nothing behind.
set -euo pipefail

clone=$(dirname -- "${BASH_SOURCE[0]}")/../..
insula=$(realpath -m -- "${1:-$clone/build/release/insula}")
[[ -x $insula ]] || {
  echo "${0##*/}: there is no program $insula; ./dev build release makes it" >&2
  exit 1
}
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/insula-execd.XXXXXX")
chmod 755 "$dir"
export NO_PROXY=localhost,127.0.0.1
server=

die() {
  echo "${0##*/}: $*" >&2
  [[ ! -s $dir/log ]] || tail -n 40 "$dir/log" >&2
  exit 1
}

# shellcheck disable=SC2317  # Called by trap.
cleanup() {
  trap '' INT TERM
  if [[ -n $server ]] && kill -INT "$server" 2>/dev/null; then
    wait "$server" || true
  fi
  rm -rf --one-file-system -- "$dir"
}
trap cleanup EXIT

SANDBOX_API_KEY=your-token env --default-signal=INT \
  "$insula" serve --listen 127.0.0.1:0 --execd 127.0.0.1:44772 --state "$dir/state" >"$dir/log" 2>&1 </dev/null &
server=$!
for ((i = 0; i < 600; i++)); do
  ! grep -q '^insula is ready' "$dir/log" || break
  kill -0 "$server" 2>/dev/null || die "the server has ended"
  sleep 0.1
done

expect() { # expect <what was said> <pattern>
  [[ $1 =~ $2 ]] || die "expected $2, got: $1"
  printf '%s\n' "$1"
}

# ---- A command in the foreground: its output as events.
said=$(curl -sS -X POST http://localhost:44772/command \
  -H "X-EXECD-ACCESS-TOKEN: your-token" \
  -H "Content-Type: application/json" \
  -d '{
    "command": "ls -la /workspace",
    "cwd": "/workspace",
    "background": false,
    "timeout": 30000
  }')
expect "$said" '"type":"init","text":"[0-9a-f]{32}".*"type":"stdout","text":"total .*"type":"execution_complete"'
id=$(grep -o '"type":"init","text":"[0-9a-f]*"' <<<"$said" | grep -o '[0-9a-f]\{32\}')

# ---- What has become of it.
said=$(curl -sS -X GET http://localhost:44772/command/status/"$id" \
  -H "X-EXECD-ACCESS-TOKEN: your-token")
expect "$said" '"content":"ls -la /workspace","running":false,"exit_code":0,"error":"","started_at":"20.*Z","finished_at":"20.*Z"'

# ---- One in the background, and its output from a line on.
said=$(curl -sS -X POST http://localhost:44772/command \
  -H "X-EXECD-ACCESS-TOKEN: your-token" \
  -H "Content-Type: application/json" \
  -d '{"command": "echo one; echo two >&2; exec sleep 1000", "background": true}')
id=$(grep -o '"type":"init","text":"[0-9a-f]*"' <<<"$said" | grep -o '[0-9a-f]\{32\}')
for ((i = 0; i < 300; i++)); do
  said=$(curl -sS -i -X GET http://localhost:44772/command/"$id"/logs \
    -H "X-EXECD-ACCESS-TOKEN: your-token")
  [[ $said != *two* ]] || break
  sleep 0.1
done
expect "$said" 'EXECD-COMMANDS-TAIL-CURSOR: 1.*one.*two'
said=$(curl -sS -X GET "http://localhost:44772/command/$id/logs?cursor=0" \
  -H "X-EXECD-ACCESS-TOKEN: your-token")
expect "$said" '^two$'

# ---- It is interrupted.
said=$(curl -sS -X DELETE "http://localhost:44772/command?id=$id" \
  -H "X-EXECD-ACCESS-TOKEN: your-token")
expect "$said" '^\{\}$'
said=$(curl -sS -X GET http://localhost:44772/command/status/"$id" \
  -H "X-EXECD-ACCESS-TOKEN: your-token")
expect "$said" '"running":false.*"error":"signal: terminated"'

# ---- What nobody has run, and who shows no token.
said=$(curl -sS -X GET http://localhost:44772/command/status/cmd-abc123 \
  -H "X-EXECD-ACCESS-TOKEN: your-token")
expect "$said" 'command not found: cmd-abc123'
said=$(curl -sS -X GET http://localhost:44772/command/cmd-abc123/logs \
  -H "X-EXECD-ACCESS-TOKEN: your-token")
expect "$said" 'command not found: cmd-abc123'
said=$(curl -sS -X DELETE "http://localhost:44772/command?id=session-456" \
  -H "X-EXECD-ACCESS-TOKEN: your-token")
expect "$said" 'command not found: session-456'
said=$(curl -sS -X GET http://localhost:44772/ping)
expect "$said" 'Unauthorized'
echo "good"
