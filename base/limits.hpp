#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

/// Every ceiling that is not a matter of configuration, with its reason. What an operator may want
/// to change lives in cluster.yaml.
namespace insula::limits {

using namespace std::chrono_literals;

// ---- HTTP
// -------------------------------------------------------------------------------------------------------

/// A request line longer than this is refused. Paths of a file are at most 4,096 bytes, three times
/// that when encoded.
inline constexpr std::size_t url_bytes = 16 * 1024;
inline constexpr std::size_t header_fields = 100;
inline constexpr std::size_t header_value_bytes = 16 * 1024;

/// Body of an exec request. Scripts of 90 kB are usual; the contract wants at least 8 MiB.
inline constexpr std::uint64_t exec_body_bytes = 16ull << 20;

/// All request bodies that are in memory together. Sixteen of the largest: a body is there for
/// moments, so more than that is no load but an attack.
inline constexpr std::uint64_t buffered_body_bytes = 256ull << 20;

/// Body of a request for a session: its variables have to fit into what a program can be given.
inline constexpr std::uint64_t session_body_bytes = 1u << 20;

/// Body of a network policy: max_egress_rules with names of the greatest length, and what JSON puts
/// around them.
inline constexpr std::uint64_t network_body_bytes = 2u << 20;

/// Elements of a command's argv. Each becomes a string of its own, and the shortest take three
/// bytes of a body: without a ceiling one body would cost many times its size. Command lines of
/// globs over large trees stay below it.
inline constexpr std::size_t argv_elements = 65'536;

/// The largest user or group id in a sandbox, whose user namespace has no more of them.
inline constexpr std::uint32_t largest_user_id = 65'535;

/// Body of a file upload, inclusive; a number of the public contract.
inline constexpr std::uint64_t file_body_bytes = 33'554'432;

/// Body of a hydrate, inclusive; a number of the public contract.
inline constexpr std::uint64_t archive_body_bytes = 33'554'432;

/// Archives that have arrived, or are arriving, are on disk until they are unpacked: all of them
/// together. Sixty-four of the largest.
inline constexpr std::uint64_t spooled_body_bytes = 2ull << 30;

/// How much of such a body waits in memory for the disk before the client has to wait.
inline constexpr std::size_t spool_ahead_bytes = 512 * 1024;

/// What an archive may unpack to: a few compressed bytes can stand for very many, and decoding is
/// the server's own time. More than the usual sandbox has disk and inodes for.
inline constexpr std::uint64_t unpacked_bytes = 16ull << 30;
inline constexpr std::uint64_t unpacked_entries = 1'000'000;

/// How long a sandbox may look through its workspace before it sends any of it. A million files on
/// a busy machine take minutes.
inline constexpr std::chrono::minutes tree_check_patience{5};

/// Archives that are being decompressed at once: each may hold up to 128 MiB for it, also while its
/// sandbox takes nothing.
inline constexpr std::uint64_t open_decompressors = 8;

/// Threads that may wait for disks on behalf of requests, and decompress. Their jobs are short.
inline constexpr std::size_t http_workers = 2;

/// Open connections of a listener that has nothing but /metrics: a few scrapers come to one.
inline constexpr unsigned metrics_connections = 64;

/// One in so many places of a listener is kept from clients of public previews, for those that have
/// the key, and for newcomers. As many strangers of one network may be connected.
inline constexpr std::size_t places_kept_of = 8;

/// At least so many strangers of one network, where there are few places: a browser comes with six
/// connections at once.
inline constexpr std::size_t least_strangers_of_network = 64;

/// How long a browser is signed in to the console: a working day.
inline constexpr std::chrono::hours sign_in_lasts{12};

/// Browsers that are signed in at once.
inline constexpr std::size_t sign_ins = 1024;

/// Wrong keys typed into the console, from one network, before another one has to wait: nobody
/// mistypes so often. The right key never waits.
inline constexpr std::size_t wrong_keys = 10;
inline constexpr std::chrono::minutes wrong_keys_within{1};

/// Networks that wrong keys have come from lately, and that are remembered: some 400 KiB.
inline constexpr std::size_t wrong_networks = 1024;

/// Lines of the log about wrong keys in each such time, one for each network: networks are cheap.
inline constexpr std::size_t wrong_key_lines = 100;

/// A key that is typed into the console. A header can hold no more.
inline constexpr std::uint64_t typed_key_bytes = header_value_bytes;

/// For a paused sandbox to be resumed, of a request that needs it. Less than its caller waits.
inline constexpr std::chrono::seconds pause_patience{25};

/// A JSON text that nests deeper is refused.
inline constexpr std::size_t json_depth = 64;

/// Body of a request to mount a bucket: mount_options of the longest, and what JSON puts around
/// them.
inline constexpr std::uint64_t mount_body_bytes = 64 * 1024;

/// Buckets that are mounted in one sandbox at once: each is a process of the node's.
inline constexpr std::size_t mounts_per_sandbox = 16;
/// For the drives of a run to be kept before the run ends.
inline constexpr std::chrono::seconds drive_patience{10};
/// Snapshots of one drive that are under way for sandboxes which begin with it as it is.
inline constexpr std::size_t drives_shown_at_once = 32;

/// Drives that are attached to one sandbox at once.
inline constexpr std::size_t drives_per_sandbox = 16;

/// How often the process of a mount is replaced that ends by itself, in one life of its sandbox.
inline constexpr unsigned mount_revivals = 3;

/// What could not be put back is tried again after this time, which doubles up to the longest: a
/// service may be away for hours. After so many times it waits for the next start.
inline constexpr std::chrono::seconds mount_again{15};
inline constexpr std::chrono::minutes mount_again_longest{5};
inline constexpr unsigned mount_attempts = 32;

/// Options of one mount.
inline constexpr std::size_t mount_options = 32;
inline constexpr std::size_t mount_option_bytes = 256;

/// For a bucket to be usable. What s3fs needs for its first answer, and a slow service.
inline constexpr std::chrono::seconds mount_patience{6};

/// Of who asks for an unmount, for what was written to be in the bucket. What is still in use then
/// has so long again before its process is ended: uploads of large files take minutes.
inline constexpr std::chrono::seconds unmount_patience{10};
inline constexpr std::chrono::minutes late_write_patience{10};

/// For the processes of a sandbox that is being destroyed to end by themselves, before what keeps
/// them is ended: those that wait for a bucket that does not answer cannot.
inline constexpr std::chrono::milliseconds mount_end_patience{1'000};

/// Programs of a node that still write what was closed in sandboxes that are gone, each for
/// late_write_patience: they take memory. Those beyond that many have mount_end_patience.
inline constexpr std::size_t late_writers = 16;

/// For a sandbox to stand still, before it is left running: what waits for a slow disk does not.
inline constexpr std::chrono::seconds freeze_patience{2};

/// Files and directories below the machine's /usr that not everybody may read, each of which is
/// hidden from sandboxes. Most machines have a few.
inline constexpr std::size_t hidden_files = 65'536;

/// What dpkg knows of the machine's packages, for sandboxes with the privileges `sudo`: four files
/// for each package, 40 KB together.
inline constexpr std::size_t package_list_files = 32'768;
inline constexpr std::uint64_t package_list_bytes = 256ull << 20;

/// Silence on an event stream after which a comment is sent, since proxies cut idle connections.
inline constexpr auto stream_heartbeat = 20s;

/// How long a client may take nothing before its stream is dropped.
inline constexpr auto reader_patience = 30s;

// ---- Sandboxes and commands
// -------------------------------------------------------------------------------------

/// Requests that wait for one sandbox to start. More are refused: nobody can be waiting for that
/// many answers.
inline constexpr std::size_t waiting_per_sandbox = 4096;

/// What a list of all sandboxes waits for any one of them. They answer in microseconds, unless
/// their store does not.
inline constexpr auto list_patience = 2s;

/// All that APIs say of one sandbox. Its line in the list has that as well, and is one value.
inline constexpr std::size_t metadata_bytes = 1'000'000;

/// The most sandboxes in one page of a list, and in one step of a walk through all of the list.
/// A step holds nothing else up.
inline constexpr std::uint32_t list_page_sandboxes = 256;

/// Commands that run at once in one sandbox; its process limit usually ends earlier.
inline constexpr std::size_t commands_per_sandbox = 2048;

/// Commands of one sandbox at once that may keep as much output as the configuration says; a
/// further one keeps a megabyte. Logs are on the node's disk, outside of the sandbox's own ceiling.
inline constexpr std::size_t full_logs_per_sandbox = 16;

/// Results of one sandbox that are kept for requests that come again: each command's is a log and a
/// descriptor, of the server's and of the spawner's.
inline constexpr std::size_t kept_results_per_sandbox = 1000;

/// How long they are kept, which is a number of the public contract; and how much later what still
/// runs then is looked at again.
inline constexpr std::chrono::milliseconds results_kept = 24h;

/// A body that says which sandbox its request is about, or what that starts from: a node of a
/// cluster reads all of it before it passes the request on.
inline constexpr std::uint64_t routed_body_bytes = 64 * 1024;

/// Of each sandbox that has runs, in its record. The sums count all of them.
inline constexpr std::size_t kept_runs = 100;

/// What was said of a sandbox's remembered commands when they were started, together: it is in
/// memory as long as they are known. One alone may be as large as a program's words.
inline constexpr std::size_t kept_result_bytes = 32u << 20;

/// Of the list of a run's commands: what was said of them when they were started, together.
inline constexpr std::size_t command_list_bytes = 8u << 20;

/// After a server's start so long what the one before has not answered is known by its content.
inline constexpr std::chrono::seconds repeat_patience{30};

/// A sandbox's agent has so long for the names and directories of its user.
inline constexpr std::chrono::seconds name_user_patience{30};

/// The end of a run waits so long for the disk to keep its commands' logs, and as long for the
/// commands to end with it.
inline constexpr std::chrono::seconds kept_logs_patience{5};

/// From an interrupt's SIGTERM to its SIGKILL, as OpenSandbox's clients expect it.
inline constexpr std::chrono::seconds interrupt_grace{3};
inline constexpr std::chrono::milliseconds kept_result_pause = 10min;

/// Sessions of one sandbox: each is a shell of 2 to 4 MB.
inline constexpr std::size_t sessions_per_sandbox = 256;

/// Lines of commands that wait for their sandbox's start or for their session, in bytes: of one
/// sandbox, and of a whole node.
inline constexpr std::uint64_t waiting_sandbox_bytes = 64ull << 20;
inline constexpr std::uint64_t waiting_node_bytes = 512ull << 20;

/// Commands that wait for one session to become free.
inline constexpr std::size_t waiting_per_session = 1024;

/// Pipes of one sandbox's sessions that what their commands have left running still writes to. Each
/// is a descriptor of the server's; a shell that starts services has a handful.
inline constexpr std::size_t late_pipes_per_sandbox = 256;

/// A session's shell that was told to end itself, and what was told to end it, have so long each;
/// then the next harsher step is taken. Killing takes milliseconds.
inline constexpr auto shell_end_patience = 3s;

/// From the force that a session's command is ended with until its shell is killed with it.
inline constexpr std::chrono::milliseconds shell_grace{500};

/// From there until the shell's keeper is given up too: with kill_grace before it, and half a
/// second for the shell to go, this stays below the 5 s that the Python client waits.
inline constexpr auto shell_kill_patience = 1s;

/// Whoever keeps a session's shell is asked so often whether it is alive while a command runs
/// there, and killed if it has not answered by the next time: something inside has stopped it.
inline constexpr auto shell_pulse = 60s;

/// To hear from a shell where it is and what it exports; nobody's profile takes longer.
inline constexpr auto look_around_patience = 1s;

/// What was to say so and does not let itself be interrupted is ended by force then, although that
/// can cost the shell: nothing else can run there meanwhile.
inline constexpr auto late_look_patience = 15s;

/// A larger environment is not passed on: a request to the agent would not hold it.
inline constexpr std::size_t surroundings_bytes = 128u << 10;
inline constexpr std::size_t surroundings_variables = 3'500;

/// Newest output of a terminal that is kept for who comes later; a number of the public contract.
inline constexpr std::size_t terminal_bytes = 262'144;

/// How far a client of a terminal may be behind before it is let go of. More than is kept for who
/// comes later, so that a short stall costs nothing.
inline constexpr std::size_t terminal_log_bytes = 1u << 20;

/// How far a terminal's output runs ahead of whoever reads it fastest, as long as it waits for that
/// one: runtime/reader_pace.hpp. A rate of 640 KiB/s is good enough, and a second is what a network
/// may hold back.
inline constexpr std::size_t terminal_ahead_bytes = terminal_log_bytes / 2;
inline constexpr std::chrono::nanoseconds patience_per_terminal_byte{1'600};
inline constexpr std::chrono::milliseconds terminal_patience{1'000};

/// The largest message that a terminal's client may send. A paste of a megabyte is one.
inline constexpr std::size_t terminal_input_bytes = 4u << 20;

/// What a terminal's clients may have typed together that it has not taken. A program that does not
/// read leaves the rest with them. Each message counts for what it costs to keep, however short.
inline constexpr std::size_t waiting_input_bytes = 16u << 20;
inline constexpr std::size_t waiting_input_cost = 1024;

/// Commands of one sandbox whose standard input is open, at once: each may have 128 KiB of the
/// server's memory that it does not read.
inline constexpr std::size_t inputs_per_sandbox = 256;

/// One piece of a command's input, and how long it waits for a command that does not read; numbers
/// of the public contract.
inline constexpr std::size_t input_piece_bytes = 512 * 1024;
inline constexpr std::chrono::seconds input_patience{30};

/// What a client may take to say what its terminal is to start, where its first message does.
inline constexpr std::chrono::seconds start_message_patience{30};

/// Tokens that were used and have not expired: one of them counts once. Of the node.
inline constexpr std::size_t used_tokens = 16'384;
/// One sandbox has this share of them, so that no sandbox alone uses up the node's.
inline constexpr std::size_t used_tokens_of_sandbox = 2'048;

/// Terminals of one sandbox. It can have 64 in all (the launcher's devpts): the others are left for
/// what opens terminals inside, as tmux does.
inline constexpr std::size_t terminals_per_sandbox = 48;

/// Clients of one terminal at once.
inline constexpr std::size_t clients_per_terminal = 64;

/// A command that has not come to life by then is killed: something inside keeps it from it.
inline constexpr auto start_patience = 30s;

/// From SIGTERM to SIGKILL when a command's time is up. The Python client gives up 5 s after the
/// command's own time.
inline constexpr auto kill_grace = 3s;

/// What one object may have written that is not durable yet. A disk that stands still for a moment
/// refuses nobody; more would be a client that writes faster than the disk.
inline constexpr std::size_t object_pending_bytes = 4u << 20;

/// Alarms whose objects are at work at once: a thousand that are due together take their turns, and
/// requests come between them.
inline constexpr std::size_t alarms_at_work = 32;

/// What an alarm's object has for its work until it is told again; and how long it is left alone
/// after a failure, the first time and at most.
inline constexpr auto alarm_patience = 60s;
inline constexpr auto alarm_retry = 1s;
inline constexpr auto longest_alarm_retry = 60s;

/// For the egress gateway to answer a server. It looks at a thousand connections in less.
inline constexpr std::chrono::milliseconds gateway_patience{5'000};

/// The same, of whoever asks for the node's figures. It keeps one of the few threads for such work.
inline constexpr std::chrono::milliseconds gateway_totals_patience{1'000};

/// Questions for figures that wait for its answer.
inline constexpr std::size_t gateway_questions = 1024;

/// Of the gateway's one thread, until the next sandbox has its turn and it is looked for what is
/// new. A neighbour's connection comes to be in five steps, each of which may wait for one turn:
/// with turns of 100 us it takes 600 us beside a flood instead of 190. A change costs 1 to 2 us.
inline constexpr std::chrono::microseconds gateway_turn{25};

/// Of the gateway's process, for which all sandboxes wait: three times the weight of one that has
/// no priority, so that it does not wait behind what else the node does. No more, since a sandbox
/// can keep it busy.
inline constexpr int gateway_nice = -5;

/// Questions to the DNS that are under way: of one sandbox, whether it asks them or dials a name,
/// and of all. A page of a browser asks some 50. Each is a socket, and keeps its place for 4 s
/// where the name server is silent, so a sandbox gets through 16 such names a second.
inline constexpr std::size_t gateway_lookups = 128;
inline constexpr std::size_t gateway_all_lookups = 4096;

/// Of these a quarter is for sandboxes with next to none: 512 of them have both questions for a
/// name (IPv4, IPv6) under way while all others ask what they can.
inline constexpr std::size_t gateway_kept_lookups = 1024;
inline constexpr std::size_t gateway_few_lookups = 2;

/// Further ones of a sandbox wait so long for their turn. A client of the DNS asks again after 5 s,
/// so what waits longer waits for nobody.
inline constexpr std::size_t gateway_waiting_lookups = 512;
inline constexpr std::chrono::milliseconds gateway_lookup_patience{4'000};

/// Names that a sandbox has asked for and that are remembered for it: 256 KiB at most.
inline constexpr std::size_t gateway_names = 256;
inline constexpr std::chrono::seconds gateway_name_memory{60};

/// How long it is remembered for a sandbox that nobody has answered, or that a server has failed. A
/// loop asks once in that time, and a service that is there again is found at once.
inline constexpr std::chrono::seconds gateway_failure_memory{2};

/// Connections that are on their way to their servers, of one sandbox and of all. One that leads to
/// nowhere keeps its place for 10 s. The kept ones as above.
inline constexpr std::size_t gateway_dials = 128;
inline constexpr std::size_t gateway_all_dials = 4096;
inline constexpr std::size_t gateway_kept_dials = 1024;
inline constexpr std::size_t gateway_few_dials = 4;
inline constexpr std::chrono::milliseconds gateway_dial_patience{10'000};

/// Open connections of one sandbox; those of all are what the gateway's descriptors allow, of which
/// a quarter is for sandboxes with few.
inline constexpr std::size_t gateway_connections = 2048;
inline constexpr std::size_t gateway_few_connections = 64;

/// Descriptors that a connection may have: two sockets and two pipes with two ends each.
inline constexpr std::size_t gateway_connection_descriptors = 6;

/// Pipes of the greatest size, which hold bytes between two sockets: 128 of 256 KiB are half of
/// what the kernel lets one user have (fs.pipe-user-pages-soft). Of these one sandbox may have 16,
/// and the last 32 are for sandboxes with next to none. What gets none has a pipe of the least
/// size.
inline constexpr std::size_t gateway_pipes = 16;
inline constexpr std::size_t gateway_all_pipes = 128;
inline constexpr std::size_t gateway_kept_pipes = 32;
inline constexpr std::size_t gateway_few_pipes = 2;

/// Bytes that wait in a socket to be sent, beyond those that are on the wire: what one pipe holds.
/// A peer that takes nothing costs no more, whatever the kernel would grow its buffer to.
inline constexpr std::uint32_t gateway_unsent_bytes = 256 * 1024;

/// Receive buffers of a sandbox's connections, of which each has two: what nobody reads waits
/// there. So many that move bytes grow to 1 MiB, and 16 of these to 6 MiB (5 and 30 MB/s where an
/// answer takes 100 ms). All others have room for 64 KiB. A sandbox cannot hold more than 96 MiB
/// and 96 MiB with the former, and 512 MiB with 4,096 small ones, which the kernel counts twice;
/// 2,048 connections that may grow would hold 24 GiB.
inline constexpr std::size_t gateway_growing_buffers = 112;
inline constexpr std::size_t gateway_large_buffers = 16;
inline constexpr std::size_t gateway_small_buffer = 64 * 1024;
inline constexpr std::size_t gateway_middle_buffer = 1u << 20;
inline constexpr std::size_t gateway_large_buffer = 6u << 20;

/// One that has moved nothing for so long gives way to one that moves. A download that stands still
/// between two files does not.
inline constexpr std::chrono::milliseconds gateway_quiet_buffer{1'000};

/// For a list of ports to come out of a sandbox, and what it may say: 1,024 lines.
inline constexpr auto port_list_patience = 10s;
inline constexpr std::size_t port_list_bytes = 128 * 1024;

/// A sandbox that is not ready by then is given up. On a busy machine a hundred start at once.
inline constexpr auto create_patience = 30s;

/// For the agent of a sandbox that a new server takes over to say what there is.
inline constexpr auto adopt_patience = 10s;

/// A warm sandbox that somebody has asked for and that is not his by then is given up for the next
/// one. It takes less than a millisecond, and longer where a hundred are asked for at once.
inline constexpr auto claim_patience = 2s;

/// A warm sandbox whose agent has not answered by then is taken out of the pool.
inline constexpr auto check_patience = 5s;

/// Between a claim and the start of what takes its place: who has claimed goes first.
inline constexpr std::chrono::milliseconds refill_pause{2};

/// Dead sandboxes that a claim meets before it makes one of its own.
inline constexpr unsigned claims_in_vain = 16;

/// Who has asked for a sandbox's end is owed an answer by then, if only that it takes longer. The
/// spawner goes on trying.
inline constexpr auto destroy_patience = 30s;

/// A command line up to here is one argument of bash (the kernel allows 131,072 bytes with the
/// NUL); a longer one travels through a file.
inline constexpr std::size_t inline_command_bytes = 120 * 1024;

// ---- Snapshots
// --------------------------------------------------------------------------------------------------

/// A piece of a snapshot before it is compressed. Two or three of them are in memory for each
/// snapshot that is written or read.
inline constexpr std::size_t snapshot_piece_bytes = 4u << 20;

/// What says of which pieces a snapshot is made: a line for each.
inline constexpr std::size_t snapshot_manifest_bytes = 16u << 20;

/// What one snapshot may cost others: bytes of files, with those of holes, which cost its owner
/// nothing; objects that are written anew; time on a slow network.
inline constexpr std::uint64_t snapshot_tree_bytes = 256ull << 30;
inline constexpr std::size_t snapshot_new_pieces = 40'000;
inline constexpr std::chrono::hours snapshot_time{3};

/// Snapshots that are written or put back at once, each by a thread and a sandbox of the node's
/// own. One of those that write takes what nobody waits for. So many wait to be written; the others
/// are tried again later.
inline constexpr std::size_t snapshot_writers = 3;
inline constexpr std::size_t snapshot_readers = 2;
inline constexpr std::size_t snapshot_jobs_waiting = 1'024;

/// Snapshots that are brought to the node at once, or wait for that. A start waits so long for one;
/// the client is told to come again after so many seconds, and the snapshot goes on to come.
inline constexpr std::size_t snapshots_brought_at_once = 64;
inline constexpr std::chrono::seconds brought_patience{20};
inline constexpr std::uint32_t brought_again_s = 3;
/// One that another node has as well stays so long after its last use, whatever else needs room.
inline constexpr std::chrono::seconds snapshot_cached_at_least{60};
/// The node that has its object answers so soon, or is away. Deleting one waits for its bytes.
inline constexpr std::chrono::seconds snapshot_question_patience{25};

/// How long a sandbox or a service may say nothing, and how often what is at work looks whether
/// anybody still wants it.
inline constexpr std::chrono::seconds snapshot_patience{30};
inline constexpr std::chrono::milliseconds snapshot_glance{250};

/// After one that has failed, and no sooner than it took. Each time twice as long, up to the second
/// one, if that is the sandbox's doing: most likely it fails again.
inline constexpr std::chrono::seconds snapshot_retry{10};
inline constexpr std::chrono::seconds snapshot_longest_retry{600};
inline constexpr std::chrono::seconds snapshot_longest_away_retry{40};

/// For those of all sandboxes, when the server ends.
inline constexpr std::chrono::seconds last_snapshots_patience{120};

/// Pieces that nothing refers to and that are older go; how often they are looked for.
inline constexpr std::chrono::hours snapshot_garbage_age{48};
inline constexpr std::chrono::hours snapshot_sweep_pause{6};

/// Of a snapshot of a whole disk: what its caller says of it, the sandboxes that stand on it, and
/// how many of one sandbox are taken at once.
inline constexpr std::size_t snapshot_name_bytes = 256;
inline constexpr std::size_t snapshot_labels_bytes = 4u << 10;
inline constexpr std::size_t snapshot_sandboxes = 10'000;
inline constexpr std::size_t snapshots_at_once = 8;

/// For a page of what differs between two disks. Sandboxes that compare are the node's own: so many
/// at once, with so much memory each; and so many requests wait for one.
inline constexpr auto compare_patience = 60s;
inline constexpr std::size_t disk_helpers = 2;
inline constexpr std::uint64_t disk_helper_memory_bytes = 512ull << 20;
inline constexpr std::size_t waiting_for_disk_helper = 64;
/// Sandboxes of the node's own at once, where disks are copied.
inline constexpr std::size_t own_sandboxes = disk_helpers + snapshot_writers + snapshot_readers;
/// A thread that copies a disk waits so long for the sandbox that does, and for its answer.
inline constexpr std::chrono::minutes copy_helper_patience{1};

/// A body about snapshots, or about siblings with their environment.
inline constexpr std::uint64_t snapshot_body_bytes = 256u << 10;

/// Siblings that one request makes.
inline constexpr std::size_t forks_at_once = 100;

/// A snapshot for forks expires after this time.
inline constexpr std::chrono::milliseconds fork_snapshot_kept = 10min;

/// The bytes of a deleted snapshot that could not be freed in the last moment of a server are freed
/// after the first time. A failure is tried again after the second one, in which the records of its
/// holders are read as well. The record of a holder may not name the snapshot before the third one.
inline constexpr std::chrono::milliseconds snapshot_free_again = 5s;
inline constexpr std::chrono::milliseconds snapshot_look_again = 1h;
inline constexpr std::chrono::milliseconds snapshot_hold_settles = 10min;

/// So long it is known of a deleted snapshot that it was there; longer if others came from it.
inline constexpr std::chrono::milliseconds deleted_snapshots_kept = 24h * 30;

/// The object of a snapshot of which nothing was asked for so long ends.
inline constexpr std::chrono::seconds snapshot_rests_after{2};

/// An object of a blob store that is read into memory.
inline constexpr std::size_t blob_bytes = 17u << 20;

// ---- Images
// -----------------------------------------------------------------------------------------------------

/// What the layers of an image may unpack to together, unless --max-size says something else: an
/// image with all of a machine learning kit has 20 GiB.
inline constexpr std::uint64_t image_bytes = 64ull << 30;

/// How long a request waits for an image that is fetched for it. Clients of OpenSandbox give up
/// after 30 s.
inline constexpr std::chrono::seconds image_patience{20};

/// Images that wait until others have been fetched, and requests that wait for one.
inline constexpr std::size_t images_waiting = 32;
inline constexpr std::size_t waiting_per_image = 256;

/// Files and directories in all layers together; a large distribution has a tenth.
inline constexpr std::uint64_t image_entries = 4'000'000;

/// All their names together. They are remembered while a layer is applied.
inline constexpr std::uint64_t image_name_bytes = 256ull << 20;

/// A longer name cannot be opened in one piece (PATH_MAX with its NUL).
inline constexpr std::size_t image_path_bytes = 4095;

/// Directories inside each other: removing a tree holds a descriptor for each.
inline constexpr std::size_t image_path_depth = 256;

/// Layers of an image. Builders stop at 127.
inline constexpr std::size_t image_layers = 512;

/// An index, a manifest or a configuration. Registries refuse manifests over 4 MiB.
inline constexpr std::uint64_t image_document_bytes = 8u << 20;

/// Indexes that lead to each other until there is a manifest.
inline constexpr std::size_t image_index_depth = 4;

/// Members of a tar that holds an image: a few for each layer.
inline constexpr std::size_t image_archive_members = 100'000;

/// What a tar may say about one member before its content: a name and attributes have some KiB, the
/// kernel takes 64 KiB of each attribute. libarchive keeps a map of holes in 24 times its size.
inline constexpr std::uint64_t image_header_bytes = 1u << 20;

/// What an image may add to the environment of every command: a quarter of what a command line may
/// have.
inline constexpr std::size_t image_environment_bytes = 64 * 1024;

/// An /etc/passwd or /etc/group that is read to look for a user.
inline constexpr std::uint64_t image_accounts_bytes = 4u << 20;

// ---- Links between nodes
// -----------------------------------------------------------------------------------------------------

/// What one node asks another, and what it answers. All on a link waits behind it.
inline constexpr std::size_t link_text_bytes = 256 * 1024;

/// A word that says what is asked for.
inline constexpr std::size_t link_word_bytes = 64;

/// One message on a link, with what is around it: room for more than the largest text.
inline constexpr std::size_t link_frame_bytes = 1u << 20;

/// Questions to one peer that wait for their answers, and the same of one from a peer: 64 MiB of
/// the largest.
inline constexpr std::size_t link_calls = 256;

/// Who has not shown by then that it is a node of this cluster is sent away. A machine that is very
/// busy takes tenths of a second.
inline constexpr auto link_handshake = 3s;

/// Connections whose other end has not shown it yet. Each may cost some 50 KiB; one more takes the
/// place of the oldest, so that those who say nothing keep nobody out.
inline constexpr std::size_t link_strangers = 64;

/// The same at the listener for other nodes' requests, where nodes come in bursts.
inline constexpr std::size_t node_strangers = 256;

/// A peer says each second that it is there.
inline constexpr auto link_heartbeat = 1s;
inline constexpr auto link_silence = 5s;

/// Between two attempts to reach a peer: at first, and at most. A peer that comes back is to be
/// found at once, and one that stays away costs a packet each second.
inline constexpr std::chrono::milliseconds link_retry{50};
inline constexpr std::chrono::milliseconds longest_link_retry{1000};

/// Accepting has failed, most likely for want of descriptors.
inline constexpr std::chrono::milliseconds link_accept_pause{50};

} // namespace insula::limits
