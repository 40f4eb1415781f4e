#!/usr/bin/env bash
# The running server is replaced twice while fifty commands print, and no byte of theirs is lost: whoever is cut asks the
# next server, with the key of the command and the id of the last event that has come.
#
# examples/upgrade-under-load.sh [insula]: the program, build/release/insula of the clone unless given. Needs root. It
# starts a server of its own on a free port, without a key and with a state directory of its own, and leaves nothing behind.
set -euo pipefail

clone=$(dirname -- "${BASH_SOURCE[0]}")/..
insula=$(realpath -m -- "${1:-$clone/build/release/insula}")
[[ -x $insula ]] || {
  echo "${0##*/}: there is no program $insula; ./dev build release makes it" >&2
  exit 1
}
streams=50
sandboxes=10
last=500 # Each command prints 1 to this, in about ten seconds.
command="exec 9<> <(:); for ((i = 1; i <= $last; i++)); do echo \$i; read -rt 0.02 -u 9; done; true"

dir=$(mktemp -d "${TMPDIR:-/var/tmp}/insula-upgrade.XXXXXX")
chmod 755 "$dir"
export NO_PROXY=127.0.0.1
unset SANDBOX_API_KEY

die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# The server of now has its pid in the lock of the state directory.
server() { cat -- "$dir/state/lock"; }

# shellcheck disable=SC2317  # Called by trap.
cleanup() {
  local pid
  trap '' INT TERM
  jobs -p | xargs -r kill 2>/dev/null || true
  if pid=$(server 2>/dev/null) && kill -INT "$pid" 2>/dev/null; then
    for ((i = 0; i < 300; i++)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
  fi
  rm -rf --one-file-system -- "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# One request for a command, from the last event on. What has come whole is put down: the output, still in base64, the
# exit code, and the id of the last event, for the next request.
ask() {
  local place=$1 key=$2 id=$3 from=()
  [[ ! -s $place.last ]] || from=(-H "Last-Event-ID: $(<"$place.last")")
  curl -sSN --fail-with-body --max-time 120 -H "Idempotency-Key: $key" "${from[@]}" "$url/v1/sandbox/$id/exec" \
    -d "{\"argv\": [\"bash\", \"-c\", \"$command\"]}" 2>>"$place.log" |
    awk -v place="$place" '
      /^id: /    { id = substr($0, 5) }
      /^event: / { event = substr($0, 8) }
      /^data: /  { data = substr($0, 7) }
      /^$/ && event != "" {
        if (event == "stdout") { print data >> (place ".out"); fflush() }
        if (event == "exit") print data > (place ".exit")
        print id > (place ".last"); close(place ".last")
        event = ""
      }'
}

follow() {
  local place=$dir/$1 key=stream-$1 id=$2 times=0
  while [[ ! -s $place.exit ]] && ((times < 100)); do
    ((times == 0)) || sleep 0.1
    times=$((times + 1))
    ask "$place" "$key" "$id" || true
  done
  echo "$times" >"$place.times"
}

is_whole() {
  [[ -s $dir/$1.exit && $(<"$dir/$1.exit") == '{"exit_code":0}' ]] && base64 -d "$dir/$1.out" | cmp -s - <(seq "$last")
}

# A background job of a script begins with SIGINT ignored; the server shall not.
printf 'runtime: {first_slot: %d, slots: 100}\nsandbox: {max_instances: 100}\n' $((36000 + $$ % 8 * 100)) >"$dir/cluster.yaml"
mkfifo "$dir/said"
env --default-signal=INT,QUIT "$insula" serve --listen 127.0.0.1:0 --state "$dir/state" --config "$dir/cluster.yaml" \
  >"$dir/said" 2>"$dir/log" </dev/null &
disown
exec {said}<"$dir/said"
IFS= read -r -t 60 -u "$said" line || die "the server does not start: $(tail -n 3 "$dir/log")"
[[ $line =~ ^insula\ is\ ready\ on\ (http://.*)$ ]] || die "the server does not start: $line"
url=${BASH_REMATCH[1]}
cat <&"$said" >/dev/null & # Nobody may fill the pipe.
disown

ids=()
for ((i = 0; i < sandboxes; i++)); do
  ids+=("$(curl -sS -X POST "$url/v1/sandbox" | grep -o '[a-z2-7]\{26\}')")
done
readers=()
for ((i = 0; i < streams; i++)); do
  follow "$i" "${ids[i % sandboxes]}" &
  readers+=($!)
done
for ((i = 0; i < streams; i++)); do
  for ((tenths = 0; tenths < 600; tenths++)); do
    [[ ! -s $dir/$i.last ]] || break
    sleep 0.1
  done
  ((tenths < 600)) || die "stream $i does not begin" # Not by the file: it is written anew with each event.
done
echo "$streams streams are open, in $sandboxes sandboxes."
for round in first second; do
  sleep 1
  before=$(server)
  "$insula" upgrade --state "$dir/state" >>"$dir/log" 2>&1 || die "the upgrade fails: $(tail -n 3 "$dir/log")"
  echo "The $round upgrade: server $before has given way to $(server)."
done
wait "${readers[@]}"

whole=0 cut=0
for ((i = 0; i < streams; i++)); do
  cut=$((cut + $(<"$dir/$i.times") - 1))
  if is_whole "$i"; then
    whole=$((whole + 1))
  else
    echo "stream $i is not whole: $(base64 -d "$dir/$i.out" 2>/dev/null | wc -l) lines, exit $(cat "$dir/$i.exit" 2>/dev/null)" >&2
    tail -n 2 "$dir/$i.log" >&2
  fi
done
echo "$whole of $streams streams are whole: every number once, in order, exit code 0. They were cut $cut times."
((whole == streams)) || die "not all of them"
((cut > 0)) || die "no stream was ever cut, so this has shown nothing"
echo "None was lost."
