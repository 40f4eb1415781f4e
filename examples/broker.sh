#!/usr/bin/env bash
# Code in a sandbox calls an API with a key that it never sees. Then it looks for that key everywhere: in the environment
# and the memory of all processes, in files, and in what its program has sent and received.
#
# examples/broker.sh [API_URL [HEADER [VALUE]]]: an https URL that answers with an error without the header, and does not
# tell it in its answer. Unless given, a public page for tests that wants a name and a password. The three can be variables
# as well; so VALUE is in no list of processes.
# INSULA_URL says where the server is; SANDBOX_API_KEY is its key, if it has one: the same variable as the server's.
set -euo pipefail

URL=${INSULA_URL:-http://127.0.0.1:8787}
API_URL=${1:-${API_URL:-https://postman-echo.com/basic-auth}}
HEADER=${2:-${HEADER:-authorization}}
VALUE=${3:-${VALUE:-Basic cG9zdG1hbjpwYXNzd29yZA==}}

die() {
  echo "${0##*/}: $*" >&2
  exit 1
}
curl() { command curl -sS --fail-with-body ${SANDBOX_API_KEY:+-H "Authorization: Bearer $SANDBOX_API_KEY"} "$@"; }

pattern='^https://([A-Za-z0-9.-]+)(/[A-Za-z0-9._~/?=&%-]*)?$'
[[ $API_URL =~ $pattern ]] || die "$API_URL: an https URL at port 443 is needed"
name=${BASH_REMATCH[1]}
pattern='^[A-Za-z0-9 ._~+/=:-]+$'
[[ $HEADER =~ ^[A-Za-z0-9-]+$ && $VALUE =~ $pattern ]] || die "the header has characters that this example cannot pass on"

# What a program in a sandbox prints: the output of a command comes as base64 in a stream of events.
in_sandbox() {
  local line event='' code=''
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
  done < <(curl -N -H 'Insula-End-With-Shell: true' "$URL/v1/sandbox/$id/exec" -d "{\"argv\":[\"bash\",\"-c\",\"$*\"]}")
  [[ $code == 0 ]]
}
# A file of the workspace, from standard input.
put() { curl -o /dev/null -X PUT --data-binary @- "$URL/v1/sandbox/$id/file/workspace/$1"; }

# Root inside sees more, where the server lets clients have it.
made=$(curl -X POST -H 'Insula-Privileges: sudo' "$URL/v1/sandbox" 2>/dev/null) || made=$(curl -X POST "$URL/v1/sandbox")
id=$(grep -o '[a-z2-7]\{26\}' <<<"$made" | head -n 1)
# shellcheck disable=SC2317  # Called by trap.
cleanup() { curl -o /dev/null -X DELETE "$URL/v1/sandbox/$id" || true; }
trap cleanup EXIT

# ---- The programs inside. None of them is told the key: the search gets another text, and changes what it reads alike.

put call.py <<'PYTHON'
"""One request, whose bytes are written down as this program sends and receives them. Then it stays as it is."""
import ctypes, socket, ssl, sys, time
from urllib.parse import urlsplit

ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1))  # PR_SET_PTRACER: others may read its memory, where Linux asks for that.
at = urlsplit(sys.argv[1])
target = (at.path or '/') + (f'?{at.query}' if at.query else '')
asked = f'GET {target} HTTP/1.1\r\nHost: {at.hostname}\r\nUser-Agent: example\r\n\r\n'.encode()
said = b''
with open('said', 'wb') as log:
    way = ssl.create_default_context().wrap_socket(socket.create_connection((at.hostname, 443), 30), server_hostname=at.hostname)
    way.sendall(asked)
    log.write(asked)
    while b'\r\n\r\n' not in said:
        some = way.recv(65536)
        if not some:
            break
        said += some
        log.write(some)
        log.flush()
    print(said.split(b'\r\n')[0].decode(), file=open('status', 'w'), flush=True)
    way.settimeout(1)
    try:
        while some := way.recv(65536):
            said += some
            log.write(some)
            log.flush()
    except OSError:
        pass
time.sleep(600)
PYTHON

put packets.py <<'PYTHON'
"""Every packet of the sandbox, as root sees them."""
import socket

try:
    way = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
except OSError as why:
    print(why.strerror, file=open('no-packets', 'w'), flush=True)
else:
    with open('packets', 'wb', 0) as log:
        while True:
            log.write(way.recv(65536))
PYTHON

put look.py <<'PYTHON'
"""Looks for two texts: the key, and a marker that shows that this search finds what is there. Each is given with one more in
every byte, and what is read becomes one more as well, so that this program never has the key."""
import os, stat, sys

key, marker = (bytes.fromhex(each) for each in sys.argv[1:3])
one_more = bytes((each + 1) % 256 for each in range(256))
is_shown = True


class Place:
    def __init__(self, name):
        self.name, self.things, self.bytes, self.key, self.marker = name, 0, 0, [], False

    def look(self, text, where):
        self.bytes += len(text)
        text = text.translate(one_more)
        self.marker |= marker in text
        if key in text and where not in self.key:
            self.key.append(where)

    def tell(self, needs_marker=True):
        global is_shown
        is_shown &= not self.key and (self.marker or not needs_marker)
        is_there = f'IT IS THERE: {", ".join(self.key[:5])}' if self.key else 'the key is not there'
        proof = ' (the marker is)' if self.marker else ' (THE MARKER IS NOT EITHER)' if needs_marker else ''
        print(f'{self.name}: {self.things} looked at, {self.bytes >> 10} KiB: {is_there}{proof}')


def read(path):
    try:
        with open(path, 'rb') as file:
            return file.read()
    except OSError:
        return b''


def look_at_processes():
    words, memory = Place('environments and command lines'), Place('memory of processes')
    overlap = max(len(key), len(marker))
    closed = 0
    for pid in (each for each in os.listdir('/proc') if each.isdigit()):
        words.things += 1
        for name in ('environ', 'cmdline'):
            words.look(read(f'/proc/{pid}/{name}'), f'/proc/{pid}/{name}')
        try:
            maps = open(f'/proc/{pid}/maps').read().splitlines()
            mem = open(f'/proc/{pid}/mem', 'rb', 0)
        except OSError:
            closed += 1
            continue
        memory.things += 1
        for line in maps:
            span, rights = line.split()[:2]
            at, end = (int(each, 16) for each in span.split('-'))
            while at < end and rights[0] == 'r' and '[v' not in line:
                try:
                    mem.seek(at)
                    text = mem.read(min(end - at, 8 << 20))
                except (OSError, OverflowError, ValueError):
                    break
                if not text:
                    break
                memory.look(text, f'/proc/{pid}/mem')
                at += max(len(text) - overlap, 1) if at + len(text) < end else len(text)
    words.tell()
    memory.tell()
    print(f'  (the memory of {closed} more is closed to programs inside)')


def look_at_files():
    files, said = Place('files'), Place('what was sent and received')
    begin = os.stat('/proc/1').st_mtime - 5
    for root, directories, names in os.walk('/'):
        if root == '/':
            directories[:] = [each for each in directories if each not in ('proc', 'sys')]
        for name in names:
            path = os.path.join(root, name)
            try:
                is_ = os.lstat(path)
            except OSError:
                continue
            # What is older than the sandbox is the image's.
            if stat.S_ISREG(is_.st_mode) and is_.st_size < 256 << 20 and max(is_.st_ctime, is_.st_mtime) >= begin:
                files.things += 1
                files.look(read(path), path)
    said.things = 1
    said.look(read('said'), 'said')
    files.tell()
    said.tell(False)
    if os.path.exists('packets'):
        packets = Place('packets')
        packets.things = 1
        packets.look(read('packets'), 'packets')
        packets.tell(False)
    else:
        print('packets: no program inside can capture them: ' + read('no-packets').decode().strip())


look_at_processes() if sys.argv[3] == 'processes' else look_at_files()
sys.exit(not is_shown)
PYTHON

# ---- Without the rule, and with it.

status_of() { in_sandbox "curl -s -o /dev/null -w %{http_code} --max-time 30 '$API_URL'" || true; }

# The sandbox may reach that name alone, with what else is said of it. The key is on no command line here either.
allow() { curl -X PUT "$URL/v1/sandbox/$id/network" -d @- <<<"{\"default\":\"deny\",\"rules\":[{\"action\":\"allow\",\"target\":\"$name\"$1}]}"; }

allow '' >/dev/null
before=$(status_of)
echo "Without a rule $name answers $before."
told=$(allow ",\"transform\":{\"headers\":{\"$HEADER\":\"$VALUE\"}}")
after=$(status_of)
echo "With the rule it answers $after."
[[ $after == 2?? ]] || die "the API does not take the key"
[[ $before != "$after" ]] || die "the API answers without the key as well, so this shows nothing"

# ---- A program that stays, one that listens, and the search.

secret=${VALUE##* }
[[ $told != *"$secret"* && $(curl "$URL/v1/sandbox/$id/network") != *"$secret"* ]] || die "the server tells the key"
echo "The server tells of the rule: $(grep -o '"transform":{[^}]*}' <<<"$told")"

marker=marker-$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
# Each byte and one more, in hexadecimal digits.
one_more() {
  local byte
  for byte in $(printf %s "$1" | od -An -v -tu1); do printf %02x $((byte + 1)); done
}
root=$(in_sandbox 'sudo -n true 2>/dev/null && echo sudo -nE || true')
in_sandbox "(setsid $root python3 packets.py > /dev/null 2>&1 &); for i in {1..100}; do [[ -e no-packets || -e packets ]] && break; sleep 0.1; done"
in_sandbox "echo $marker > /tmp/marker; (MARKER=$marker setsid python3 call.py '$API_URL' > errors 2>&1 &); for i in {1..300}; do [[ -s status ]] && break; sleep 0.1; done; sleep 2; cat errors >&2; [[ -s status ]]" ||
  die "the program inside has no answer"
echo "A program inside was answered: $(in_sandbox 'cat status')"
echo "It looks for the key:"
texts="$(one_more "$secret") $(one_more "$marker")"
nowhere=yes
in_sandbox "python3 look.py $texts processes" || nowhere=no
in_sandbox "$root python3 look.py $texts files" || nowhere=no # As root, if it can.
[[ $nowhere == yes ]] || die "this has not shown that the key is nowhere"
echo "The key is nowhere in the sandbox."
