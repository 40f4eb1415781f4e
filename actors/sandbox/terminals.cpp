#include "actors/sandbox/sandbox_state.hpp"

#include "base/limits.hpp"

#include <charconv>
#include <csignal>

/// Terminals that no session has. What one is stands in the sandbox's record, so that it can be
/// opened as long as the sandbox is there; once it runs it is a terminal like any other, under a
/// name that no session can have, by which the next server finds it.
namespace insula::actors::inside_sandbox {

namespace {

constexpr std::string_view definitions = "terminal/";

/// More than can run at once, and each at most as long as a request's command.
constexpr std::size_t most_definitions = 2 * limits::terminals_per_sandbox;

using terminal_reply = reply_to<terminal_actor, std::uint64_t, std::uint64_t>;

/// Of its record, and among all terminals: a session's id has no slash.
std::string name_of_terminal(const std::string& id) {
  return std::string{definitions} + id;
}

error not_known(const std::string& id) {
  return {errc::not_found, "there is no terminal " + id};
}

struct definition {
  std::int64_t made_ms = 0;
  std::string cwd, command; ///< None of them has a NUL, which stands between them.

  std::string text() const { return std::to_string(made_ms) + '\0' + cwd + '\0' + command; }
  static definition read(std::string_view text) {
    definition found;
    const auto next = [&text] {
      const auto word = text.substr(0, text.find('\0'));
      text.remove_prefix(std::min(text.size(), word.size() + 1));
      return word;
    };
    const auto made = next();
    std::from_chars(made.data(), made.data() + made.size(), found.made_ms);
    found.cwd = next();
    found.command = text;
    return found;
  }
};

/// In place of a new one, if there are as many as there may be: the oldest that does not run. An
/// error: all of them do.
result<std::vector<storage::change>> make_room(const sandbox_state& st) {
  std::size_t count = 0;
  std::string oldest;
  std::int64_t made_ms = 0;
  const auto& all = st.record->entries();
  for (auto at = all.lower_bound(definitions);
       at != all.end() && at->first.starts_with(definitions); ++at) {
    ++count;
    const auto made = definition::read(at->second).made_ms;
    if (st.terminals.count(at->first) == 0 && (oldest.empty() || made < made_ms)) {
      oldest = at->first;
      made_ms = made;
    }
  }
  if (count < most_definitions)
    return std::vector<storage::change>{};
  if (oldest.empty())
    return error{errc::limit_reached, "too many terminals in this sandbox"};
  return std::vector<storage::change>{{oldest, std::nullopt}};
}

/// With the record loaded, and with what an earlier server has left taken over. Nothing is started.
/// `go` calls what it is given when it has answered.
template <class Reply>
void with_terminals(sandbox_pointer self, Reply reply, const request_context& context,
                    std::function<void(std::function<void()>)> go) {
  if (lives(self->state))
    return when_running(self, reply, context, [go] { go([] {}); });
  with_record(self, reply, context, [go](errand mine) { go([mine] { mine.over(); }); });
}

runtime::process_spec spec_of(const sandbox_state& st, const definition& what,
                              const std::string& cwd) {
  runtime::process_spec spec;
  spec.argv = {st.image->shell};
  if (!what.command.empty())
    spec.argv.insert(spec.argv.end(), {"-c", what.command});
  spec.env = environment(st, {}, {});
  spec.cwd = cwd.empty() ? st.options->working_directory : cwd;
  spec.user = st.options->user;
  return spec;
}

void join(sandbox_pointer self, const open_terminal_request& wanted, terminal_reply reply) {
  auto& terminal = self->state.terminals.at(name_of_terminal(wanted.defined));
  ++terminal.joins;
  reply.delegate(terminal.actor, join_atom::value, wanted.takes_over);
}

/// Again what is defined, once there is room: it may have been forgotten meanwhile.
void make_and_join(sandbox_pointer self, const open_terminal_request& wanted,
                   terminal_reply reply) {
  const auto& st = self->state;
  const auto name = name_of_terminal(wanted.defined);
  const auto* const stored = st.record->find(name);
  if (stored == nullptr)
    return static_cast<void>(reply.deliver(to_caf(not_known(wanted.defined))));
  if (st.terminals.count(name) == 0) {
    const auto what = definition::read(*stored);
    auto cwd = expanded(st, what.cwd);
    if (!cwd)
      return static_cast<void>(reply.deliver(to_caf(cwd.reason())));
    make_terminal(self, name, spec_of(st, what, *cwd), wanted, false);
  }
  join(self, wanted, std::move(reply));
}

/// When the sandbox runs.
void join_or_make(sandbox_pointer self, const open_terminal_request& wanted, terminal_reply reply) {
  const auto& st = self->state;
  const auto name = name_of_terminal(wanted.defined);
  if (st.record->find(name) == nullptr)
    return static_cast<void>(reply.deliver(to_caf(not_known(wanted.defined))));
  if (st.terminals.count(name) > 0)
    return join(self, wanted, std::move(reply));
  with_terminal_room(
    self, [=] { make_and_join(self, wanted, reply); },
    [reply](const error& why) {
      auto to = reply;
      to.deliver(to_caf(why));
    });
}

} // namespace

void define(sandbox_pointer self, const define_terminal& wanted, reply_to<caf::ok_atom> reply) {
  with_terminals(self, reply, wanted.context, [=](const std::function<void()>& over) {
    const auto failed = [reply, over](const error& why) {
      auto to = reply;
      to.deliver(to_caf(why));
      over();
    };
    if (!exists(self->state) && !lives(self->state))
      return failed({errc::not_found, "Sandbox " + self->state.id->str() + " not found."});
    with_lease(
      self,
      [=] {
        auto& st = self->state;
        auto changes = make_room(st);
        if (!changes)
          return failed(changes.reason());
        const definition made{st.options->time->unix_ms(), wanted.cwd, wanted.command};
        changes->push_back({name_of_terminal(wanted.id), made.text()});
        st.record->write(std::move(*changes));
        st.record->when_durable(
          [reply, over] {
            auto to = reply;
            to.deliver(caf::ok_atom::value);
            over();
          },
          failed);
      },
      failed);
  });
}

void find(sandbox_pointer self, const find_terminal& asked, reply_to<known_terminal> reply) {
  with_terminals(self, reply, asked.context, [=](const std::function<void()>& over) {
    auto to = reply;
    auto& st = self->state;
    const auto name = name_of_terminal(asked.id);
    known_terminal found;
    found.known = st.record->find(name) != nullptr;
    const auto at = st.terminals.find(name);
    if (!found.known || at == st.terminals.end()) {
      to.deliver(found);
      return over();
    }
    self->request(at->second.actor, caf::infinite, measure_atom::value)
      .then(
        [=](std::uint64_t, std::uint64_t end) mutable {
          found.running = true;
          found.end_offset = end;
          to.deliver(found);
          over();
        },
        [=](const caf::error&) mutable { // It has ended meanwhile.
          to.deliver(found);
          over();
        });
  });
}

void forget(sandbox_pointer self, const forget_terminal& asked, reply_to<caf::ok_atom> reply) {
  with_terminals(self, reply, asked.context, [=](const std::function<void()>& over) {
    const auto failed = [reply, over](const error& why) {
      auto to = reply;
      to.deliver(to_caf(why));
      over();
    };
    const auto name = name_of_terminal(asked.id);
    if (self->state.record->find(name) == nullptr)
      return failed(not_known(asked.id));
    with_lease(
      self,
      [=] {
        auto& st = self->state;
        if (const auto at = st.terminals.find(name); at != st.terminals.end())
          caf::anon_send(at->second.actor, signal_terminal{SIGKILL});
        st.end_terminal(name);
        st.record->write({{name, std::nullopt}});
        st.record->when_durable(
          [reply, over] {
            auto to = reply;
            to.deliver(caf::ok_atom::value);
            over();
          },
          failed);
      },
      failed);
  });
}

void open_defined_terminal(sandbox_pointer self, const open_terminal_request& wanted,
                           terminal_reply reply) {
  const auto go = [=] {
    when_running(self, reply, wanted.context, [=] { join_or_make(self, wanted, reply); });
  };
  if (lives(self->state))
    return go();
  with_record(self, reply, wanted.context, [=](errand mine) {
    auto to = reply;
    if (self->state.record->find(name_of_terminal(wanted.defined)) != nullptr)
      go();
    else
      to.deliver(to_caf(not_known(wanted.defined)));
    mine.over();
  });
}

} // namespace insula::actors::inside_sandbox
