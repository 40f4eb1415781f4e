#include "http/opensandbox/execd.hpp"

#include "base/id.hpp"
#include "base/limits.hpp"
#include "http/opensandbox/commands.hpp"
#include "http/opensandbox/execd_json.hpp"
#include "http/percent.hpp"

#include <array>
#include <charconv>
#include <stdexcept>
#include <sys/random.h>

namespace insula::http::opensandbox {

namespace {

using shared_services = std::shared_ptr<const bridge::services>;

/// What is told of a command's text afterwards: a record is written at its start and at its end.
constexpr std::size_t longest_remembered = 4096;

/// 32 hexadecimal digits, from the kernel's random source.
std::string new_command_id() {
  constexpr std::string_view digits = "0123456789abcdef";
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("getrandom() gave no bytes");
  std::string id;
  for (const auto each : bytes) {
    id += digits[each >> 4];
    id += digits[each & 15];
  }
  return id;
}

response too_large(std::uint64_t, std::uint64_t limit) {
  return execd_failure(413, "INVALID_REQUEST_BODY",
                       "the body exceeds " + std::to_string(limit) + " bytes");
}

/// What is there of a request, for whichever sandbox it is for.
struct place {
  shared_services with;
  std::string fixed_id;

  std::string id(const call& what) const { return fixed_id.empty() ? what.id : fixed_id; }
};

void run(const place& at, const call& what, const std::string& body, const reply& to) {
  auto wanted = read_command_body(body);
  if (!wanted)
    return to->respond(execd_failure(wanted.reason()));
  command_job job;
  job.with = at.with;
  job.sandbox = at.id(what);
  job.makes_sandbox = !at.fixed_id.empty();
  job.background = wanted->background;
  job.cwd_named = !wanted->cwd.empty();
  // Their own clients compare lines without their ends.
  job.keeps_ends = !what.user_agent.starts_with("OpenSandbox-");
  job.to = to;
  auto& command = job.command;
  // In the background both kinds of output are one, in their order.
  command.command_line = (wanted->background ? "exec 2>&1; " : "") + wanted->command;
  command.cwd = std::move(wanted->cwd);
  command.expands_cwd = true;
  command.env = std::move(wanted->envs);
  if (wanted->timeout_ms > 0)
    command.timeout_ms = wanted->timeout_ms;
  if (wanted->uid)
    command.user = command_user{*wanted->uid, wanted->gid.value_or(*wanted->uid)};
  command.rules = {true, true};
  if (wanted->command.size() > longest_remembered)
    wanted->command.resize(longest_remembered);
  command.remembered = remembered_command{wanted->background, std::move(wanted->command)};
  command.once = {new_command_id(), {}};
  command.only_if_there = at.fixed_id.empty();
  command.context = to->context();
  run_command(std::move(job));
}

/// A route of execd, for a sandbox that may be one.
template <class Answer>
route execd_route(verb method, const std::string& pattern, const place& at, body_use body,
                  Answer answer) {
  return {method,
          pattern,
          access::execd,
          body,
          body == body_use::ignored ? 0 : limits::exec_body_bytes,
          [at, answer](const call& what) {
            admission plan;
            if (!sandbox_id::parse(at.id(what)))
              plan.refusal = execd_failure(404, "DOCKER::SANDBOX_NOT_FOUND",
                                           "Sandbox " + what.id + " not found.");
            else
              plan.answer = [at, answer, what](const std::string& text, const reply& to) {
                answer(at, what, text, to);
              };
            return plan;
          },
          {},
          &too_large};
}

command_question question_of(const place& at, const call& what, std::string id, const reply& to) {
  return {at.with, at.id(what), std::move(id), to};
}

/// None: it is no whole number, which is as if it were not there.
std::optional<std::int64_t> read_cursor(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = !text.empty() && why == std::errc{} && end == text.data() + text.size();
  return whole ? std::optional{value} : std::nullopt;
}

} // namespace

std::vector<route> execd_routes(shared_services with, const execd_place& where) {
  const place at{std::move(with), where.id};
  const auto ignored = body_use::ignored;
  std::vector<route> table;
  const auto add = [&](verb method, std::string_view path, body_use body, auto answer) {
    table.push_back(
      execd_route(method, where.prefix + std::string{path}, at, body, std::move(answer)));
  };
  add(verb::get, "/ping", ignored, [](const place&, const call&, const auto&, const reply& to) {
    to->respond({200, {}, {}});
  });
  add(verb::post, "/command", body_use::buffered, run);
  add(verb::get, "/command/status/:sid", ignored,
      [](const place& from, const call& what, const auto&, const reply& to) {
        tell_status(question_of(from, what, percent_decode(what.sid), to));
      });
  add(verb::get, "/command/:sid/logs", ignored,
      [](const place& from, const call& what, const auto&, const reply& to) {
        tell_logs(question_of(from, what, percent_decode(what.sid), to),
                  read_cursor(form_value(what.query, "cursor")));
      });
  add(verb::del, "/command", ignored,
      [](const place& from, const call& what, const auto&, const reply& to) {
        auto id = form_value(what.query, "id");
        if (id.empty())
          return to->respond(execd_failure(400, "MISSING_QUERY", "missing query parameter 'id'"));
        interrupt(question_of(from, what, std::move(id), to));
      });
  for (const auto method : {verb::get, verb::put, verb::post, verb::patch, verb::del, verb::other})
    add(method, "/*", ignored, [](const place&, const call&, const auto&, const reply& to) {
      to->respond({404, "404 page not found", "text/plain"});
    });
  return table;
}

} // namespace insula::http::opensandbox
