#!/usr/bin/env bash
# Ten tries at once: a sandbox builds a small program, is forked ten times while it runs, and each sibling tries another
# change. The best one is the parent of the next round.
# INSULA_URL says where the server is; SANDBOX_API_KEY is its key, if it has one: the same variable as the server's.
set -euo pipefail

URL=${INSULA_URL:-http://127.0.0.1:8787}
curl() { command curl -sS --fail-with-body ${SANDBOX_API_KEY:+-H "Authorization: Bearer $SANDBOX_API_KEY"} "$@"; }

# What a program in a sandbox prints: the output of a command comes as base64 in a stream of events.
in_sandbox() {
  local id=$1 line event='' code=''
  shift
  while IFS= read -r line; do
    case $line in
      'event: '*) event=${line#event: } ;;
      'data: '*)
        line=${line#data: }
        case $event in
          stdout) base64 -d <<<"$line" ;;
          stderr) base64 -d <<<"$line" >&2 ;;
          exit) [[ $line =~ \"exit_code\":([0-9]+) ]] && code=${BASH_REMATCH[1]} ;;
        esac
        ;;
    esac
  done < <(curl -N "$URL/v1/sandbox/$id/exec" -d "{\"argv\":[\"bash\",\"-c\",\"$*\"]}")
  [[ $code == 0 ]]
}
ids_in() { grep -o '"id":"[a-z2-7]*"' | cut -d '"' -f 4; }

made=()
cleanup() {
  local id
  for id in "${made[@]}"; do curl -o /dev/null -X DELETE "$URL/v1/sandbox/$id" || true; done
}
trap cleanup EXIT

parent=$(curl -X POST "$URL/v1/sandbox" | ids_in)
made+=("$parent")

# The program says how far a guess is from what is wanted. Something runs on beside it all the time.
in_sandbox "$parent" 'mkdir -p bin; echo 50 > guess; printf %s \"#!/bin/sh\necho \\$(( (\\$(cat guess) - 137) * (\\$(cat guess) - 137) ))\n\" > bin/distance; chmod +x bin/distance; (while :; do date > alive; sleep 0.1; done) > /dev/null 2>&1 &'
echo "the parent begins at a distance of $(in_sandbox "$parent" bin/distance)"

for round in 1 2 3; do
  mapfile -t siblings < <(curl -X POST "$URL/v1/sandbox/$parent/fork" -d '{"count":10}' | ids_in)
  made+=("${siblings[@]}")
  best='' least=''
  for i in "${!siblings[@]}"; do
    change=$(((i - 4) * 60 / (round * round)))
    distance=$(in_sandbox "${siblings[i]}" "echo \$(( \$(cat guess) + $change )) > guess; bin/distance")
    if [[ -z $least || $distance -lt $least ]]; then
      least=$distance best=${siblings[i]}
    fi
  done
  echo "round $round: the best of ${#siblings[@]} siblings has a distance of $least"
  parent=$best
done
