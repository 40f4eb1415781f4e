#!/usr/bin/env bash
# A real job: this project's own source goes into a sandbox, its base library is compiled and tested there with the output
# streamed, and the test report comes back out. The same is done here, and both must have run the same tests, all passed.
#
# INSULA_URL says where the server is; SANDBOX_API_KEY is its key, if it has one: the same variable as the server's. Needs a compiler, CMake, Ninja and Catch2
# here and in the sandbox's image. INSULA_HOST_BUILD is where this machine compiles: build/base_only unless set.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

url=${INSULA_URL:-http://127.0.0.1:8787}
host_build=${INSULA_HOST_BUILD:-build/base_only}
dir=$(mktemp -d)
id=

call() { curl -sS --fail-with-body ${SANDBOX_API_KEY:+-H "Authorization: Bearer $SANDBOX_API_KEY"} "$@"; }

# shellcheck disable=SC2317  # Called by trap.
cleanup() {
  [[ -z $id ]] || call -X DELETE "$url/v1/sandbox/$id" || true
  rm -rf -- "$dir"
}
trap cleanup EXIT

die() {
  echo "build_itself: $*" >&2
  exit 1
}

json_string() {
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\n'/\\n}
  printf '"%s"' "${text//$'\t'/\\t}"
}

# Runs a script in the sandbox, shows its output as it arrives, and returns its exit code. The answer is a stream of events:
# "event: <name>", "data: <payload>", an empty line; output is base64, the end is {"exit_code":N}.
in_sandbox() {
  local line event='' code=''
  echo "sandbox \$ $1" >&2
  while IFS= read -r line; do
    case $line in
      'event: '*) event=${line#event: } ;;
      'data: '*)
        line=${line#data: }
        case $event in
          stdout) base64 -d <<<"$line" ;;
          stderr) base64 -d <<<"$line" >&2 ;;
          exit) [[ $line =~ \"exit_code\":(-?[0-9]+) ]] && code=${BASH_REMATCH[1]} ;;
          *) echo "build_itself: $event: $line" >&2 ;;
        esac
        ;;
    esac
  done < <(call -N "$url/v1/sandbox/$id/exec" -d "{\"argv\": [\"bash\", \"-c\", $(json_string "$1")]}")
  [[ -n $code ]] || die "the stream ended without an exit code"
  return "$code"
}

# One line per test of a JUnit file: how it went, and its name.
results_of() {
  sed -n 's/.*<testcase name="\([^"]*\)".* status="\([^"]*\)".*/\2 \1/p' "$1" | sort
}

# ---- In. Files that git knows and that are there.
git ls-files -z | while IFS= read -rd '' file; do
  [[ ! -f $file ]] || printf '%s\0' "$file"
done | tar -cf "$dir/source.tar" --null --files-from=-

reply=$(call -X POST "$url/v1/sandbox")
[[ $reply =~ \"id\":\"([a-z2-7]+)\" ]] || die "no sandbox: $reply"
id=${BASH_REMATCH[1]}
echo "sandbox $id" >&2
call -o /dev/null -X PUT --data-binary "@$dir/source.tar" "$url/v1/sandbox/$id/file/workspace/source.tar"

# ---- There.
in_sandbox "mkdir source && tar -xf source.tar -C source && rm source.tar"
in_sandbox "CCACHE_DISABLE=1 cmake -S source -B build -G Ninja -DCMAKE_BUILD_TYPE=Debug -DINSULA_ONLY_BASE=ON"
in_sandbox "CCACHE_DISABLE=1 cmake --build build --parallel 2"
in_sandbox "ctest --test-dir build --no-tests=error --output-on-failure --output-junit /workspace/junit.xml"

# ---- Out.
expected=$(in_sandbox "sha256sum < junit.xml")
call -o "$dir/sandbox.xml" "$url/v1/sandbox/$id/file/workspace/junit.xml"
[[ $(sha256sum <"$dir/sandbox.xml") == "$expected" ]] || die "the report changed on its way out"

# ---- Here.
echo "the same here, in $host_build" >&2
mkdir -p "$host_build"
cmake -S . -B "$host_build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DINSULA_ONLY_BASE=ON >"$dir/log"
cmake --build "$host_build" --parallel 2 >>"$dir/log" || { cat "$dir/log" && die "it does not build here"; }
ctest --test-dir "$host_build" --no-tests=error --output-junit "$dir/host.xml" >>"$dir/log" ||
  { cat "$dir/log" && die "its tests fail here"; }

results_of "$dir/sandbox.xml" >"$dir/sandbox.txt"
results_of "$dir/host.xml" >"$dir/host.txt"
diff -u --label here --label sandbox "$dir/host.txt" "$dir/sandbox.txt" || die "the sandbox ran other tests"
[[ -s $dir/sandbox.txt ]] || die "the report names no test"
! grep -v '^run ' "$dir/sandbox.txt" || die "not every test passed"
echo "$(wc -l <"$dir/sandbox.txt") tests, the same ones here and in the sandbox, all passed"
