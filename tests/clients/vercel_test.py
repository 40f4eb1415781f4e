"""The Python SDK of the Vercel Sandbox service, unmodified, against a running Insula: INSULA_URL says where,
INSULA_API_KEY with which key."""

import asyncio
import base64
import contextlib
import hashlib
import io
import json
import os
import subprocess
import unittest
import urllib.error
import urllib.request
from datetime import timedelta

import anyio
from vercel import sandbox
from vercel.api import session
from vercel.sandbox import sync

SERVER, KEY = os.environ["INSULA_URL"], os.environ["INSULA_API_KEY"]


def credentials(project="prj_python", token=KEY):
    return sandbox.SandboxCredentials(token=token, team_id="team_test", project_id=project)


def at_this_server(**which):
    async def asked():
        return credentials(**which)

    return session(service_options=[sandbox.SandboxServiceOptions(base_url=SERVER + "/api", credentials_factory=asked)])


def at_this_server_sync(**which):
    options = sync.SandboxServiceOptions(base_url=SERVER + "/api", credentials_factory=lambda: credentials(**which))
    return session(service_options=[options])


def written(process, **piece):
    """What the server answers to one piece of a command's input."""
    place = f"/api/v2/sandboxes/sessions/{process.session_id}/cmd/{process.id}/stdin?teamId=team_test"
    if "data" in piece:
        piece["data"] = base64.b64encode(piece["data"]).decode()
    fields = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(SERVER + place, json.dumps(piece).encode(), fields)) as answer:
            return answer.status, json.load(answer)["bytesWritten"]
    except urllib.error.HTTPError as refusal:
        with refusal:
            told = json.load(refusal)["error"]
            return refusal.code, told.get("bytesWritten", told["code"])


# A tool server as agents have them: JSON-RPC, one message a line.
TOOL_SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        answer = {"protocolVersion": asked["params"]["protocolVersion"], "serverInfo": {"name": "adder"}}
    elif asked["method"] == "tools/list":
        answer = {"tools": [{"name": "add"}]}
    elif asked["method"] == "tools/call":
        answer = {"content": [{"type": "text", "text": str(sum(asked["params"]["arguments"].values()))}]}
    else:
        continue  # A notification.
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
print("over", file=sys.stderr)
"""


BOX = {
    "name": "python-box",
    "ports": [3000],
    "execution_time_limit": 600,
    "env": {"GREETING": "hello", "SHARED": "sandbox"},
    "tags": {"owner": "tests"},
    "resources": sandbox.SandboxResources(vcpus=2),
}


def setUpModule():  # pylint: disable=invalid-name
    with at_this_server_sync():
        sync.create_sandbox(**BOX)


def tearDownModule():  # pylint: disable=invalid-name
    with at_this_server_sync():
        sync.get_sandbox(name=BOX["name"]).destroy()


class Refusals:
    @contextlib.contextmanager
    def refused(self, status, code):
        with self.assertRaises(sandbox.SandboxApiError) as caught:
            yield
        self.assertEqual((caught.exception.status_code, caught.exception.code), (status, code), caught.exception)


class Asynchronous(Refusals, unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        await self.enterAsyncContext(at_this_server())
        self.box = await sandbox.get_sandbox(name=BOX["name"])

    async def output(self, command, *args, **how):
        done = await self.box.run_process(command, args, capture_output=True, check=True, **how)
        return done.stdout

    async def shell(self, script, **how):
        return await self.output("sh", "-c", script, **how)

    # ---- Sandboxes.

    async def test_a_sandbox_says_what_it_was_made_with(self):
        box = self.box
        self.assertEqual((box.name, box.status, box.persistent), (BOX["name"], sandbox.SandboxStatus.RUNNING, True))
        self.assertEqual((box.vcpus, box.memory, box.tags), (2, 4096, BOX["tags"]))
        self.assertEqual(box.execution_time_limit, timedelta(seconds=600))
        self.assertEqual([route.port for route in box.routes], [3000])
        self.assertEqual(box.current_session.status, sandbox.SandboxStatus.RUNNING)

    async def test_a_scope_that_ends_stops_and_destroys_its_sandbox(self):
        async with sandbox.create_sandbox(execution_time_limit=60) as one:
            self.assertRegex(one.name, r"^[a-z0-9-]{10,}$")
        with self.refused(404, "not_found"):
            await sandbox.get_sandbox(name=one.name)

    async def test_get_or_create_makes_one_and_then_finds_it(self):
        one, made = await sandbox.get_or_create_sandbox(name="python-lazy", execution_time_limit=60)
        two, again = await sandbox.get_or_create_sandbox(name="python-lazy", execution_time_limit=60)
        self.assertEqual((made, again), (True, False))
        self.assertEqual(one.current_session_id, two.current_session_id)
        await two.destroy()

    async def test_a_stopped_sandbox_goes_on_with_its_files(self):
        one = await sandbox.create_sandbox(execution_time_limit=60)
        await one.run_process("sh", ["-c", "echo kept > file"])
        first = one.current_session_id
        await one.stop()
        found = await sandbox.get_sandbox(name=one.name)
        self.assertEqual(found.status, sandbox.SandboxStatus.STOPPED)
        self.assertEqual((await found.run_process("cat", ["file"], capture_output=True)).stdout, "kept\n")
        self.assertNotEqual(found.current_session_id, first)
        await found.destroy()

    async def test_a_stopped_sandbox_without_a_snapshot_is_there_and_is_not_run_again(self):
        one = await sandbox.create_sandbox(execution_time_limit=60, persistent=False)
        await one.stop()
        self.assertEqual(one.current_session.status, sandbox.SandboxStatus.STOPPED)
        await one.stop()
        found = await sandbox.get_sandbox(name=one.name)
        self.assertEqual(found.status, sandbox.SandboxStatus.STOPPED)
        with self.refused(410, "snapshot_not_found"):
            await found.run_process("true")
        await one.destroy()

    async def test_get_or_create_replaces_a_stopped_sandbox_without_a_snapshot(self):
        one = await sandbox.create_sandbox(name="python-again", execution_time_limit=60, persistent=False)
        await one.stop()
        two, made = await sandbox.get_or_create_sandbox(name="python-again", execution_time_limit=60)
        self.assertTrue(made)
        self.assertNotEqual(one.current_session_id, two.current_session_id)
        self.assertEqual(two.status, sandbox.SandboxStatus.RUNNING)
        await two.destroy()

    async def test_a_destroyed_sandbox_is_gone_and_its_name_is_free(self):
        one = await sandbox.create_sandbox(name="python-to-go", execution_time_limit=60)
        await one.destroy()
        with self.refused(404, "not_found"):
            await sandbox.get_sandbox(name="python-to-go")
        async with sandbox.create_sandbox(name="python-to-go", execution_time_limit=60) as two:
            self.assertNotEqual(one.current_session_id, two.current_session_id)

    async def test_lists_go_from_page_to_page(self):
        async with at_this_server(project="prj_python_lists"):
            names = ["list-a", "list-b", "list-c"]
            made = [await sandbox.create_sandbox(name=name, tags={"which": name}, execution_time_limit=60) for name in names]

            async def listed(query=None):
                return [each.name async for each in sandbox.query_sandboxes(query=query, page_size=1)]

            self.assertEqual(await listed(), names[::-1])
            self.assertEqual(await listed(sandbox.SandboxQueryByCreatedAt(sort_order="asc")), names)
            self.assertEqual(await listed(sandbox.SandboxQueryByName(name_prefix="list-b")), ["list-b"])
            tag = sandbox.TagFilter(key="which", value="list-a")
            self.assertEqual(await listed(sandbox.SandboxQueryByCreatedAt(tag=tag)), ["list-a"])
            for each in made:
                await each.destroy()
            self.assertEqual(await listed(), [])

    async def test_an_update_changes_ports_tags_time_and_network(self):
        async with sandbox.create_sandbox(execution_time_limit=60, ports=[3000], tags={"old": "tag"}) as one:
            await one.update(ports=[3000, 5173], tags={"new": "tag"}, execution_time_limit=90)
            self.assertEqual(sorted(route.port for route in one.routes), [3000, 5173])
            self.assertEqual((one.tags, one.execution_time_limit), ({"new": "tag"}, timedelta(seconds=90)))
            await one.update(network_policy=sandbox.NetworkPolicy.deny_all())
            self.assertEqual(one.network_policy.mode, "deny-all")
            subnets = sandbox.NetworkPolicySubnets(allow=["10.0.0.0/8"], deny=["10.1.0.0/16"])
            await one.update(network_policy=sandbox.NetworkPolicy.custom({"a.example": [], "*.b.example": []}, subnets))
            found = await sandbox.get_sandbox(name=one.name)
            self.assertEqual(found.network_policy.mode, "custom")
            self.assertEqual(sorted(found.network_policy.allowed_domains), ["*.b.example", "a.example"])
            self.assertEqual(found.network_policy.subnets, subnets)
            await one.update(network_policy=sandbox.NetworkPolicy.allow_all(), tags={})
            self.assertEqual((one.network_policy.mode, one.tags), ("allow-all", {}))

    async def test_a_route_leads_to_its_port(self):
        (route,) = self.box.routes

        def asked():
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(urllib.request.Request(SERVER, headers={"X-Forwarded-Host": f"{route.subdomain}.vercel.run"}))
            with caught.exception as answer:
                return answer.code, answer.read().decode()

        status, body = await asyncio.to_thread(asked)
        self.assertEqual(status, 502)
        self.assertIn("SANDBOX_NOT_LISTENING", body)

    async def test_sessions_are_listed_and_given_more_time(self):
        async with sandbox.create_sandbox(execution_time_limit=60) as one:
            self.assertEqual([each.id for each in await one.list_sessions()], [one.current_session_id])
            self.assertEqual([each.id async for each in sandbox.query_sessions(name=one.name)], [one.current_session_id])
            before = one.current_session.execution_time_limit
            longer = await one.extend_execution_time_limit(60)
            self.assertEqual(longer.execution_time_limit - before, timedelta(seconds=60))

    # ---- Commands.

    async def test_a_command_is_waited_for_with_its_streams(self):
        done = await self.box.run_process("sh", ["-c", "echo out; echo err >&2; exit 7"], capture_output=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (7, "out\n", "err\n"))
        self.assertEqual((done.cwd, done.args[0]), ("/vercel/sandbox", "sh"))
        out, err = io.StringIO(), io.StringIO()
        await self.box.run_process("sh", ["-c", "echo out; echo err >&2"], stdout=out, stderr=err)
        self.assertEqual((out.getvalue(), err.getvalue()), ("out\n", "err\n"))
        merged = await self.box.run_process("sh", ["-c", "echo err >&2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(merged.stdout, "err\n")
        with self.assertRaises(subprocess.CalledProcessError):
            await self.box.run_process("false", check=True)

    async def test_arguments_and_output_are_kept_as_they_are(self):
        odd = ["a b", "$HOME", '"', "'", "\\", "ü€😀", ""]
        self.assertEqual(await self.output("printf", "%s|", *odd), "".join(each + "|" for each in odd))
        self.assertEqual(await self.shell('for i in $(seq 20000); do printf "€😀"; done'), "€😀" * 20000)

    async def test_a_handle_is_there_when_a_command_starts(self):
        started = []
        done = await self.box.run_process("echo", ["hello"], capture_output=True, on_start=started.append)
        self.assertEqual([each.id for each in started], [done.id])
        self.assertEqual(started[0].returncode, 0)

    async def test_variables_of_a_command_are_over_those_of_its_sandbox(self):
        self.assertEqual(await self.shell("echo $GREETING $SHARED $USER", env={"SHARED": "command"}), "hello command vercel-sandbox\n")

    async def test_a_command_has_a_directory(self):
        self.assertEqual(await self.output("pwd"), "/vercel/sandbox\n")
        self.assertEqual(await self.output("pwd", cwd="/tmp"), "/tmp\n")
        with self.refused(400, "bad_request"):
            await self.box.run_process("true", cwd="/no/such/place")

    async def test_sudo_makes_a_command_root(self):
        self.assertEqual(await self.output("id", "-un"), "vercel-sandbox\n")
        self.assertEqual(await self.shell("id -un; echo $GREETING", sudo=True), "root\nhello\n")

    async def test_a_command_past_its_time_is_killed(self):
        done = await self.box.run_process("sh", ["-c", 'trap "" TERM; sleep 60'], kill_after=0.3)
        self.assertEqual(done.returncode, 137)

    async def test_a_program_that_is_not_there_is_an_error(self):
        with self.refused(400, "executable_not_found"):
            await self.box.run_process("no-such-program")

    async def test_a_command_on_its_own_is_read_waited_for_and_found_again(self):
        await self.shell("rm -f go && mkfifo go")
        process = await self.box.create_process("sh", ["-c", "echo one; echo two >&2; read x < go; echo three; exit 4"])
        self.assertIsNone(process.returncode)
        self.assertEqual(await process.stdout.readline(), "one\n")  # While it runs.
        found = await self.box.get_process(process.id)
        self.assertIsNone(found.returncode)
        await self.shell("echo > go")
        self.assertEqual(await process.communicate(), ("three\n", "two\n"))
        self.assertEqual(process.returncode, 4)
        # Each handle reads from the beginning.
        self.assertEqual((await found.stdout.read(), await found.stderr.read(), await found.wait()), ("one\nthree\n", "two\n", 4))
        with self.refused(404, "not_found"):
            await self.box.get_process("cmd_00000000000000000000000000000000")

    async def test_commands_are_listed_and_read_when_their_session_is_over(self):
        one = await sandbox.create_sandbox(execution_time_limit=60)
        first = await one.create_process("sh", ["-c", "echo out; echo err >&2; exit 3"])
        await first.wait()
        second = await one.create_process("sh", ["-c", "echo begun; exec sleep 987"])
        self.assertEqual(await second.stdout.readline(), "begun\n")
        self.assertEqual([(each.id, each.returncode) for each in await one.query_processes()], [(second.id, None), (first.id, 3)])
        await one.stop()
        ended, stopped = await one.get_process(first.id), await one.get_process(second.id)
        self.assertEqual((await ended.stdout.read(), await ended.stderr.read(), await ended.wait()), ("out\n", "err\n", 3))
        self.assertEqual(await stopped.stdout.read(), "begun\n")
        self.assertIn(stopped.returncode, (143, None))  # By the signal, or with its session.
        self.assertEqual([each.id for each in await one.query_processes()], [second.id, first.id])
        await one.destroy()

    async def test_both_streams_are_one_if_asked_for(self):
        process = await self.box.create_process("sh", ["-c", "echo out; echo err >&2"], stderr=subprocess.STDOUT)
        out, err = await process.communicate()
        self.assertEqual((sorted(out.splitlines()), err), (["err", "out"], None))

    async def test_signals_reach_a_command(self):
        process = await self.box.create_process("sleep", ["infinity"])
        await process.kill()
        self.assertEqual(await process.wait(), 137)
        await process.kill()  # It has ended: nothing happens.
        script = 'trap "exit 9" TERM; echo ready; while :; do sleep 0.05; done'
        process = await self.box.create_process("sh", ["-c", script])
        self.assertEqual(await process.stdout.readline(), "ready\n")
        await process.terminate()
        out, _ = await process.communicate()  # The shell may have a word on its child.
        self.assertEqual((out, process.returncode), ("", 9))

    async def test_a_command_without_input_reads_nothing(self):
        self.assertEqual(await self.output("cat"), "")

    # ---- Standard input.

    async def test_a_command_reads_its_input_to_the_end(self):
        done = await self.box.run_process("sort", input="pear\nfig\napple\n", capture_output=True, check=True)
        self.assertEqual(done.stdout, "apple\nfig\npear\n")
        self.assertEqual(await self.output("cat", input="ü€😀"), "ü€😀")
        self.assertEqual(await self.output("cat", input=""), "")
        every = bytes(range(256)) * 4000
        self.assertEqual((await self.output("sha256sum", input=every)).split()[0], hashlib.sha256(every).hexdigest())

    async def test_a_python_prompt_answers_line_by_line(self):
        process = await self.box.create_process("python3", ["-u", "-i", "-q"], stdin=subprocess.PIPE)
        await process.stdin.send(b"value = 6\n")
        for factor in (7, 8, 9):
            await process.stdin.send(f"print(value * {factor})\n".encode())
            self.assertEqual(await process.stdout.readline(), f"{6 * factor}\n")
        await process.stdin.aclose()
        self.assertEqual(await process.wait(), 0)

    async def test_a_tool_server_is_spoken_to_over_its_streams(self):
        await self.box.fs.write_text("tool_server.py", TOOL_SERVER)
        process = await self.box.create_process("python3", ["tool_server.py"], stdin=subprocess.PIPE)

        async def call(number, method, params):
            await process.stdin.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n")
            answer = json.loads(await process.stdout.readline())
            self.assertEqual(answer["id"], number)
            return answer["result"]

        self.assertEqual((await call(1, "initialize", {"protocolVersion": "2025-06-18"}))["serverInfo"], {"name": "adder"})
        await process.stdin.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        self.assertEqual(await call(2, "tools/list", {}), {"tools": [{"name": "add"}]})
        for number in range(3, 20):
            result = await call(number, "tools/call", {"name": "add", "arguments": {"a": number, "b": 1}})
            self.assertEqual(result["content"][0]["text"], str(number + 1))
        self.assertEqual(await process.communicate(), ("", "over\n"))
        self.assertEqual(process.returncode, 0)

    async def test_a_terminal_runs_a_program(self):
        async with self.box.open_interactive("sh", ["-c", "read -r line; stty size; exit 3"]) as pty:
            await pty.resize(132, 50)
            await pty.stream.send(b"\n")
            said = b""
            with contextlib.suppress(anyio.EndOfStream):
                while True:
                    said += await pty.stream.receive()
            self.assertEqual(said, b"\r\n50 132\r\n")
            self.assertEqual(await pty.wait(), 3)

    async def test_a_hundred_megabytes_go_through(self):
        piece = os.urandom(1_000_000)
        process = await self.box.create_process("sh", ["-c", "cat | sha256sum"], stdin=subprocess.PIPE)
        for _ in range(10):
            await process.stdin.send(piece * 10)
        out, _ = await process.communicate()
        self.assertEqual(out.split()[0], hashlib.sha256(piece * 100).hexdigest())
        # And back, as it comes.
        text = "".join(f"{each:07}\n" for each in range(2_000_000))
        process = await self.box.create_process("cat", stdin=subprocess.PIPE)

        async def write():
            await process.stdin.send(text.encode())
            await process.stdin.aclose()

        writing = asyncio.create_task(write())
        self.assertEqual(hashlib.sha256((await process.stdout.read()).encode()).digest(), hashlib.sha256(text.encode()).digest())
        await writing
        self.assertEqual(await process.wait(), 0)

    async def test_a_command_that_does_not_read_is_waited_for(self):
        await self.shell("rm -f start && mkfifo start")
        process = await self.box.create_process("sh", ["-c", "read -r x < start; exec sha256sum"], stdin=subprocess.PIPE)
        data = os.urandom(400_000)
        status, taken = await asyncio.to_thread(written, process, data=data, offset=0)
        self.assertEqual(status, 504)
        self.assertTrue(65_536 <= taken < len(data), taken)
        self.assertEqual(await asyncio.to_thread(written, process), (200, taken))
        found = await self.box.get_process(process.id)
        rest = asyncio.create_task(found.stdin.send(data[taken:]))
        await self.shell("echo > start")
        await rest
        await found.stdin.aclose()
        self.assertEqual((await process.stdout.read()).split()[0], hashlib.sha256(data).hexdigest())

    async def test_a_piece_that_comes_again_is_taken_once(self):
        process = await self.box.create_process("cat", stdin=subprocess.PIPE)
        for piece, answer in (
            ({}, (200, 0)),
            ({"data": b"one\n", "offset": 0}, (200, 4)),
            ({"data": b"one\n", "offset": 0}, (200, 4)),
            ({"data": b"one\ntwo\n", "offset": 0}, (200, 8)),
            ({"data": b"four\n", "offset": 14}, (409, 8)),
            ({"offset": 9, "close": True}, (409, 8)),
            ({"data": b"three\n", "offset": 8, "close": True}, (200, 14)),
            ({"data": b"three\n", "offset": 8, "close": True}, (200, 14)),
            ({"offset": 14, "close": True}, (200, 14)),
            ({"data": b"four\n", "offset": 14}, (400, 14)),
            ({"data": b"x" * 524_289, "offset": 14}, (413, "payload_too_large")),
            ({"offset": -1}, (400, "bad_request")),
        ):
            with self.subTest(**piece):
                self.assertEqual(await asyncio.to_thread(written, process, **piece), answer)
        self.assertEqual((await process.stdout.read(), await process.wait()), ("one\ntwo\nthree\n", 0))

    async def test_a_command_that_reads_no_more_is_noticed(self):
        process = await self.box.create_process("sh", ["-c", "exec <&-; echo closed; exec sleep infinity"], stdin=subprocess.PIPE)
        self.assertEqual(await process.stdout.readline(), "closed\n")
        with self.assertRaises(anyio.BrokenResourceError):
            await process.stdin.send(b"text")
        await process.stdin.aclose()
        await process.kill()
        process = await self.box.create_process("head", ["-n", "1"], stdin=subprocess.PIPE)
        await process.stdin.send(b"one\n")
        self.assertEqual((await process.stdout.read(), await process.wait()), ("one\n", 0))
        with self.assertRaises(anyio.BrokenResourceError):
            await process.stdin.send(b"two\n")
        await process.stdin.aclose()
        await process.stdin.aclose()

    async def test_a_command_without_input_says_so(self):
        process = await self.box.create_process("sleep", ["infinity"])
        self.assertIsNone(process.stdin)
        self.assertEqual(await asyncio.to_thread(written, process, data=b"text", offset=0), (400, 0))
        found = await self.box.get_process(process.id)
        with self.assertRaises(sandbox.SandboxStdinError):
            await found.stdin.send(b"text")
        await process.kill()

    # ---- Files.

    async def test_files_are_written_and_read(self):
        files = self.box.fs
        await files.write_text("text.txt", "as text, ü€😀")
        self.assertEqual(await files.read_text("text.txt"), "as text, ü€😀")
        await files.write_bytes("/tmp/below/bytes", bytes(range(256)))
        self.assertEqual(await files.read_bytes("below/bytes", cwd="/tmp"), bytes(range(256)))
        async with files.batch() as batch:
            batch.write_text("many/a", "a")
            batch.write_bytes("many/b", b"")
        self.assertEqual((await files.read_text("many/a"), await files.read_bytes("many/b")), ("a", b""))
        with self.assertRaises(sandbox.SandboxPathNotFoundError):
            await files.read_bytes("nothing")

    async def test_files_are_opened_as_streams(self):
        async with self.box.fs.open("streamed", "wb") as file:
            for each in range(64):
                await file.write(bytes([each]) * 65536)
        self.assertEqual(await self.output("stat", "-c", "%s", "streamed"), f"{64 * 65536}\n")
        async with self.box.fs.open("streamed", "rb") as file:
            read = 0
            while some := await file.read(100_000):
                read += len(some)
        self.assertEqual(read, 64 * 65536)

    async def test_directories_are_made_listed_renamed_and_removed(self):
        files = self.box.fs
        await files.mkdir("tree/deep", recursive=True)
        await files.write_text("tree/file", "one")
        self.assertEqual(
            [(os.path.basename(each.path), each.kind) for each in await files.listdir("tree")],
            [("deep", "directory"), ("file", "file")],
        )
        self.assertTrue(await files.is_dir("tree/deep") and await files.is_file("tree/file"))
        await files.rename("tree/file", "tree/other")
        self.assertEqual((await files.exists("tree/file"), await files.read_text("tree/other")), (False, "one"))
        with self.refused(400, "file_error"):
            await files.mkdir("tree", recursive=False)
        await files.remove("tree", recursive=True)
        self.assertFalse(await files.exists("tree"))

    async def test_a_user_of_its_own_runs_commands_and_has_files(self):
        alice = await self.box.create_user("alice")
        done = await alice.run_process("sh", ["-c", "id -un; pwd"], capture_output=True)
        self.assertEqual(done.stdout, "alice\n/home/alice\n")
        await alice.fs.write_text("own", "hers")
        self.assertEqual(await alice.fs.read_text("own"), "hers")
        self.assertEqual(await self.output("stat", "-c", "%U", "/home/alice/own", sudo=True), "alice\n")

    # ---- Errors.

    async def test_what_is_out_of_range_is_refused(self):
        for wrong in ({"ports": [80]}, {"resources": sandbox.SandboxResources(vcpus=3)}, {"name": "a b"}, {"name": BOX["name"]}):
            with self.subTest(**wrong), self.refused(400, "bad_request"):
                await sandbox.create_sandbox(**wrong)
        with self.refused(400, "sandbox_timeout_invalid"):
            await sandbox.create_sandbox(execution_time_limit=90_000)

    async def test_a_wrong_key_is_refused(self):
        async with at_this_server(token="wrong"):
            with self.refused(403, "forbidden"):
                await sandbox.get_sandbox(name=BOX["name"])

    async def test_a_name_belongs_to_its_project(self):
        async with at_this_server(project="prj_other"):
            with self.refused(404, "not_found"):
                await sandbox.get_sandbox(name=BOX["name"])


class Synchronous(Refusals, unittest.TestCase):
    def setUp(self):
        self.enterContext(at_this_server_sync())
        self.box = sync.get_sandbox(name=BOX["name"])

    def test_a_sandbox_is_made_updated_stopped_and_destroyed(self):
        with sync.create_sandbox(execution_time_limit=60) as one:
            one.update(tags={"new": "tag"}, ports=[4000])
            self.assertEqual((one.tags, [route.port for route in one.routes]), ({"new": "tag"}, [4000]))
            self.assertIn(one.name, [each.name for each in sync.query_sandboxes(page_size=1)])
            one.stop()
            self.assertEqual(sync.get_sandbox(name=one.name).status, sandbox.SandboxStatus.STOPPED)
        with self.refused(404, "not_found"):
            sync.get_sandbox(name=one.name)

    def test_commands_are_waited_for_or_not(self):
        done = self.box.run_process("sh", ["-c", "echo out; echo err >&2; exit 7"], capture_output=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (7, "out\n", "err\n"))
        process = self.box.create_process("sh", ["-c", "echo one; exec sleep infinity"])
        self.assertEqual(process.stdout.readline(), "one\n")
        process.kill()
        self.assertEqual(process.communicate(), ("", ""))
        self.assertEqual(process.returncode, 137)

    def test_commands_have_input(self):
        self.assertEqual(self.box.run_process("sort", input="b\na\n", capture_output=True, check=True).stdout, "a\nb\n")
        process = self.box.create_process("sh", ["-c", 'while read -r line; do echo "<$line>"; done'], stdin=subprocess.PIPE)
        with io.TextIOWrapper(process.stdin, encoding="utf-8", line_buffering=True) as text:
            for each in ("one", "two", "three"):
                print(each, file=text)
                self.assertEqual(process.stdout.readline(), f"<{each}>\n")
        self.assertEqual(process.wait(), 0)
        with self.assertRaises(BrokenPipeError):
            self.box.get_process(process.id).stdin.write(b"four\n")

    def test_a_terminal_runs_a_program(self):
        script = 'stty size; echo "$GREETING $MORE"; read -r line; echo "<$line>"; exit 7'
        with self.box.open_interactive("sh", ["-c", script], env={"MORE": "more"}, cols=100, rows=30) as pty:
            self.assertEqual(pty.stream.readline(), b"30 100\r\n")
            self.assertEqual(pty.stream.readline(), b"hello more\r\n")
            pty.stream.write(b"word\n")
            self.assertEqual(pty.stream.read(), b"word\r\n<word>\r\n")
            self.assertEqual(pty.wait(), 7)
        with self.box.open_interactive("id", ["-u"], sudo=True) as pty:
            self.assertEqual(pty.stream.read(), b"0\r\n")
            self.assertEqual(pty.wait(), 0)

    def test_files_are_written_and_read(self):
        self.box.fs.write_text("sync/text", "as text")
        self.assertEqual(self.box.fs.read_text("sync/text"), "as text")
        self.assertEqual([each.kind for each in self.box.fs.listdir("sync")], ["file"])

    def test_a_client_of_its_own_needs_no_session(self):
        options = sync.SandboxServiceOptions(base_url=SERVER + "/api", credentials_factory=credentials)
        client = sync.SyncSandboxClient.create(options=options)
        try:
            self.assertEqual(client.get_sandbox(name=BOX["name"]).name, BOX["name"])
        finally:
            client.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
