#include "actors/sandbox/description.hpp"

#include "actors/drive_record.hpp"
#include "actors/record_keys.hpp"
#include "actors/sandbox/disk_snapshots.hpp"
#include "actors/sandbox/egress.hpp"
#include "actors/sandbox/image_choice.hpp"
#include "actors/sandbox/profile.hpp"
#include "actors/sandbox/request_orders.hpp"
#include "actors/sandbox_metadata.hpp"

namespace insula::actors::inside_sandbox {

namespace {

constexpr const char* env_key = "env";
constexpr const char* memory_key = "memory_limit";
constexpr const char* cpu_key = "cpu_limit";

/// Empty: that API says nothing.
std::string text_of(const std::string& api, const kept_record& record) {
  auto all = metadata_of(record.entries());
  return std::move(all[api]);
}

/// None: the record may have that text.
std::optional<error> misfit(const metadata_change& wanted, const kept_record& record) {
  auto all = metadata_of(record.entries());
  all[wanted.api] = wanted.text;
  return malformed_metadata(all);
}

/// Those that a new sandbox gets.
privileges gains_of(const define_sandbox& wanted, const sandbox_options& of_node) {
  const auto of_profile = wanted.profile ? wanted.profile->gains : of_node.profile.gains;
  return wanted.gains.value_or(wanted.context.gains.value_or(of_profile));
}

std::optional<sandbox_caption> caption_of(const core& of) {
  const auto& rule = of.options().captions;
  return rule ? rule(metadata_of(of.record().entries())) : std::nullopt;
}

/// As it runs, or else as it would.
result<sandbox_profile> profile_of(const core& of) {
  if (of.runs())
    return of.profile();
  return recorded_profile(of);
}

std::optional<error> mismatch(privileges wanted, privileges has) {
  if (wanted == has)
    return std::nullopt;
  return error{errc::sandbox_mismatch,
               "the sandbox has the privileges `" + std::string{word_of(has)} + "`, not `" +
                 std::string{word_of(wanted)} + "`: they are settled when it is made"};
}

} // namespace

/// Together with the changes: it is ended at that time. None: that stays as it is.
void description::write(std::vector<storage::change> changes,
                        std::optional<std::int64_t> expires_ms) {
  if (!expires_ms)
    return record().write(std::move(changes));
  changes.push_back({expires_key, std::to_string(*expires_ms)});
  const auto left = std::max<std::int64_t>(*expires_ms - options().time->unix_ms(), 0);
  record().set_alarm(std::chrono::milliseconds{left}, std::move(changes));
}

/// A request that asks for what the sandbox has not is not served. What starts is looked at once it
/// runs.
bool description::delays(const request_context& context, const then_function& /*then*/,
                         const otherwise_function& otherwise) {
  if (core_.now() == phase::starting)
    return false;
  const bool is_there = core_.exists() || core_.runs();
  std::optional<error> wrong;
  if (context.gains && (is_there || record().find(profile_key) != nullptr))
    if (const auto is = profile_of(core_))
      wrong = mismatch(*context.gains, is->gains);
  if (!wrong && (is_there || record().find(image_asked_key) != nullptr))
    wrong = image_mismatch(core_, context.image);
  if (wrong)
    otherwise(*wrong);
  return wrong.has_value();
}

/// Of a sandbox that does not exist yet.
void description::keep_wishes(const request_context& context,
                              const reply<sandbox_description>& to) {
  const auto answer = [this, to] {
    record().when_durable([this, to] { to.deliver(core_.describe()); }, to.otherwise());
  };
  if (core_.lives()) // It is on its way: what it has is known once it runs.
    return core_.when_running(to, context, answer);
  std::vector<storage::change> changes;
  if (context.gains && record().find(profile_key) == nullptr)
    changes.push_back({std::string{profile_key}, write_privileges(*context.gains)});
  if (!context.image.empty() && record().find(image_asked_key) == nullptr)
    changes.push_back({image_asked_key, context.image});
  if (changes.empty())
    return answer();
  if (const auto wrong = context.gains ? objection_to(*context.gains, options()) : std::nullopt)
    return to.fail(*wrong);
  const auto keep = [=, this] {
    core_.with_lease(
      [=, this] {
        if (core_.exists() || core_.lives()) // Meanwhile.
          return core_.when_running(to, context, answer);
        if (delays(context, answer, to.otherwise())) // Another wish came while this one waited.
          return;
        record().write(changes, context);
        answer();
      },
      to.otherwise());
  };
  if (context.image.empty())
    return keep();
  // An image that is on its way may be used later; one that is not to be had is told now.
  with_image({context.image}, [=](const result<std::string>& found) {
    if (found || found.reason().code == errc::image_pending)
      keep();
    else
      to.fail(found.reason());
  });
}

/// `then` gets the name on this node; for no text, none.
void description::with_image(const image_wish& wanted, image_supply::found_function then) {
  if (wanted.text.empty())
    return then(std::string{});
  auto names = wanted.names;
  names.push_back(wanted.text);
  if (options().supply == nullptr) {
    for (const auto& each : names)
      if (options().images->look(each))
        return then(each);
    return then(error{errc::image_refused, "there is no image " + wanted.text + " on this node"});
  }
  options().supply->find(wanted, [then, post = core_.post()](const result<std::string>& found) {
    post([then, found] { then(found); }); // With the actor its requests have ended.
  });
}

void description::describe(sandbox_description& into) const {
  if (auto is = profile_of(core_))
    into.profile = std::move(*is);
  const auto limits = limits_of(core_);
  into.memory_limit_bytes = limits.memory_bytes;
  into.disk_limit_bytes = limits.disk_bytes;
  into.cpu_limit_percent = limits.cpu_percent;
  into.process_limit = limits.processes;
  into.state = name_of(core_.now());
  into.caption = caption_of(core_);
}

void description::count(sandbox_status& into) const {
  into.created_ms = number_in(record().entries(), created_key).value_or(0);
  const auto limits = limits_of(core_);
  into.memory_limit_bytes = limits.memory_bytes;
  into.cpu_limit_percent = limits.cpu_percent;
  into.caption = caption_of(core_);
}

/// NUL stands between its lines.
std::map<std::string, std::string> own_environment(const core& of) {
  std::map<std::string, std::string> all;
  const auto* text = of.record().find(env_key);
  for (std::string_view left = text != nullptr ? *text : std::string_view{}; !left.empty();) {
    const auto line = left.substr(0, left.find('\0'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    const auto equals = line.find('=');
    if (equals != std::string_view::npos)
      all[std::string{line.substr(0, equals)}] = line.substr(equals + 1);
  }
  return all;
}

/// One that begins with a snapshot holds that first.
void description::define(const define_sandbox& wanted, const reply<sandbox_description>& to) {
  if (wanted.snapshot.empty())
    return define_from(std::nullopt, wanted, to);
  if (!wanted.image.empty() || !wanted.context.image.empty())
    return to.fail({errc::invalid_request, "a sandbox that begins with a snapshot has the image of "
                                           "that one: name no other"});
  core_.with_record(to, wanted.context, [this, wanted](const reply<sandbox_description>& mine) {
    if (core_.exists() || core_.lives())
      return define_from(std::nullopt, wanted, mine); // Which says so.
    ++begins_with_[wanted.snapshot];
    core_.ask_snapshot(
      hold_snapshot{wanted.snapshot, core_.id(), wanted.context},
      reply<snapshot_description>::function{
        [this, wanted, mine](const result<snapshot_description>& held) {
          const reply<sandbox_description> over{reply<sandbox_description>::function{
            [this, mine, id = wanted.snapshot,
             is_held = static_cast<bool>(held)](const result<sandbox_description>& outcome) {
              // Two may be under way, of which one comes to write it down.
              const bool last = --begins_with_[id] == 0;
              if (last)
                begins_with_.erase(id);
              if (!outcome && is_held && last && record().value(disk_from_key) != id)
                core_.release_snapshot(id);
              mine.give(outcome);
            }}};
          held ? define_from(*held, wanted, over) : over.fail(held.reason());
        }});
  });
}

void description::define_from(const std::optional<snapshot_description>& from,
                              const define_sandbox& wanted, const reply<sandbox_description>& to) {
  core_.with_record(
    to, wanted.context, [this, wanted, from](const reply<sandbox_description>& mine) {
      // The answer waits until what is written of the sandbox is durable.
      const auto refuse = [this, mine] {
        record().when_durable(
          [mine] {
            mine.fail({errc::already_exists, "there is such a sandbox"});
          },
          mine.otherwise());
      };
      if (core_.exists() || core_.lives())
        return refuse();
      if (const auto wrong = malformed_metadata(wanted.metadata))
        return mine.fail(*wrong);
      if (const auto wrong = wanted.profile ? malformed_profile(*wanted.profile) : std::nullopt)
        return mine.fail(*wrong);
      const auto gains = gains_of(wanted, options());
      if (const auto wrong = objection_to(gains, options()))
        return mine.fail(*wrong);
      const auto& asked = wanted.image.empty() ? wanted.context.image : wanted.image;
      const auto write_it = [=, this](const result<std::string>& image) {
        if (!image)
          return mine.fail(image.reason());
        core_.with_lease(
          [=, this] {
            // Another definition, or a command, came while this one waited for the lease.
            if (core_.exists() || core_.lives())
              return refuse();
            std::string lines;
            for (const auto& [name, value] : wanted.env)
              lines += name + "=" + value + '\0';
            std::vector<storage::change> changes{
              {created_key, std::to_string(options().time->unix_ms())}};
            if (!wanted.context.key.empty())
              changes.push_back({made_by_key, wanted.context.key});
            for (const auto& [api, text] : wanted.metadata)
              for (auto& each : metadata_changes(api, text))
                changes.push_back(std::move(each));
            if (!lines.empty())
              changes.push_back({env_key, lines});
            if (!asked.empty()) {
              changes.push_back({image_key, *image});
              changes.push_back({image_asked_key, asked});
              if (const auto found = options().images->look(*image))
                if (auto source = source_of(*found); !source.empty())
                  changes.push_back({image_source_key, std::move(source)});
            }
            if (from)
              for (auto& each : disk_snapshots::changes_for(*from))
                changes.push_back(std::move(each));
            if (wanted.profile) {
              auto whole = *wanted.profile;
              whole.gains = gains;
              changes.push_back({std::string{profile_key}, write_profile(whole)});
            } else if (gains != privileges::none || record().find(profile_key) != nullptr) {
              changes.push_back({std::string{profile_key}, write_privileges(gains)});
            }
            if (wanted.network)
              changes.push_back({network_key, to_text(*wanted.network)});
            const auto of_requests = inside_sandbox::changes_of(wanted.requests, core_);
            if (!of_requests)
              return mine.fail(of_requests.reason());
            changes.insert(changes.end(), of_requests->begin(), of_requests->end());
            if (wanted.memory_bytes > 0)
              changes.push_back({memory_key, std::to_string(wanted.memory_bytes)});
            if (wanted.cpu_percent > 0)
              changes.push_back({cpu_key, std::to_string(wanted.cpu_percent)});
            if (wanted.disk_bytes > 0)
              changes.push_back({disk_limit_key, std::to_string(wanted.disk_bytes)});
            if (!wanted.drives.empty())
              changes.push_back({drives_key, actors::text_of(wanted.drives)});
            write(std::move(changes), wanted.expires_ms);
            if (wanted.prompt)
              return mine.deliver(core_.describe());
            record().when_durable([this, mine] { mine.deliver(core_.describe()); },
                                  mine.otherwise());
          },
          mine.otherwise());
      };
      from ? write_it(from->image) : with_image({asked, wanted.image_names}, write_it);
    });
}

bool description::changes_it(const redefine_sandbox& wanted) const {
  const auto& change = wanted.metadata;
  return (change || wanted.expires_ms || !wanted.snapshot.empty() || wanted.drives) &&
         core_.exists() &&
         !(change && change->only_if && *change->only_if != text_of(change->api, record()));
}

/// Errors: those of malformed_metadata().
result<std::vector<storage::change>> description::changes_of(const redefine_sandbox& wanted) const {
  std::vector<storage::change> changes;
  if (wanted.metadata) {
    if (const auto wrong = misfit(*wanted.metadata, record()))
      return *wrong;
    changes = metadata_changes(wanted.metadata->api, wanted.metadata->text);
  }
  if (wanted.drives && !wanted.drives->empty())
    changes.push_back({drives_key, actors::text_of(*wanted.drives)});
  else if (wanted.drives)
    changes.push_back({drives_key, std::nullopt});
  return changes;
}

void description::redefine(const redefine_sandbox& wanted, const reply<sandbox_description>& to) {
  core_.with_record(to, wanted.context, [this, wanted](const reply<sandbox_description>& mine) {
    if (wanted.keeps_wishes && !core_.exists())
      return keep_wishes(wanted.context, mine);
    const auto answer = [this, mine] {
      record().when_durable([this, mine] { mine.deliver(core_.describe()); }, mine.otherwise());
    };
    // Is there nothing to write? Then it is answered.
    const auto settled = [=, this] {
      if (!changes_it(wanted)) {
        answer();
        return true;
      }
      const auto changes = changes_of(wanted);
      if (!changes)
        mine.fail(changes.reason());
      return !changes;
    };
    if (settled())
      return;
    if (!wanted.snapshot.empty())
      return redefine_with_snapshot(wanted, mine);
    core_.with_lease(
      [=, this] {
        if (settled()) // Another change came while this one waited for the lease.
          return;
        write(*changes_of(wanted), wanted.expires_ms);
        answer();
      },
      mine.otherwise());
  });
}

/// All of it, or nothing.
void description::redefine_with_snapshot(const redefine_sandbox& wanted,
                                         const reply<sandbox_description>& to) {
  static const error changed{errc::sandbox_mismatch, "the sandbox was changed meanwhile"};
  begin_with_(
    wanted.snapshot, wanted.context,
    [=, this]() -> result<std::vector<storage::change>> {
      if (!changes_it(wanted))
        return changed;
      return changes_of(wanted);
    },
    [=, this](const result<void>& outcome) {
      outcome ? to.deliver(core_.describe()) : to.fail(outcome.reason());
    });
}

void description::copy(const copy_definition& wanted, const reply<define_sandbox>& to) {
  core_.with_record(to, wanted.context, [this, wanted](const reply<define_sandbox>& mine) {
    if (!core_.exists())
      return mine.fail(core_.not_found());
    define_sandbox is;
    if (wanted.with_env)
      is.env = own_environment(core_);
    if (const auto* text = record().find(network_key))
      if (auto policy = policy_from_text(*text))
        is.network = std::move(*policy);
    is.requests = recorded_rules(core_);
    is.memory_bytes =
      static_cast<std::uint64_t>(number_in(record().entries(), memory_key).value_or(0));
    is.cpu_percent = static_cast<std::uint32_t>(number_in(record().entries(), cpu_key).value_or(0));
    is.disk_bytes =
      static_cast<std::uint64_t>(number_in(record().entries(), disk_limit_key).value_or(0));
    auto profile = recorded_profile(core_);
    if (!profile)
      return mine.fail(profile.reason());
    if (record().find(profile_key) != nullptr)
      is.profile = std::move(*profile);
    mine.deliver(std::move(is));
  });
}

std::vector<storage::change> fitting_changes(const metadata_change& wanted, const core& of) {
  if ((wanted.only_if && *wanted.only_if != text_of(wanted.api, of.record())) ||
      misfit(wanted, of.record()))
    return {};
  return metadata_changes(wanted.api, wanted.text);
}

result<std::vector<storage::change>> changes_of(const run_limits& wanted, const core& of) {
  auto made = changes_of(wanted.requests, of);
  if (!made)
    return made;
  auto& changes = *made;
  changes.push_back({network_key, to_text(wanted.network)});
  if (wanted.memory_bytes > 0)
    changes.push_back({memory_key, std::to_string(wanted.memory_bytes)});
  if (wanted.cpu_percent > 0)
    changes.push_back({cpu_key, std::to_string(wanted.cpu_percent)});
  return made;
}

runtime::sandbox_limits limits_of(const core& of) {
  auto limits = of.options().limits;
  const auto lower = [&of](auto& limit, const char* key) {
    const auto wanted = number_in(of.record().entries(), key).value_or(0);
    using number = std::remove_reference_t<decltype(limit)>;
    if (wanted > 0 && (limit == 0 || static_cast<std::uint64_t>(wanted) < limit))
      limit = static_cast<number>(wanted);
  };
  lower(limits.memory_bytes, memory_key);
  lower(limits.cpu_percent, cpu_key);
  if (const auto disk = number_in(of.record().entries(), disk_limit_key); disk.value_or(0) > 0)
    limits.disk_bytes = static_cast<std::uint64_t>(*disk);
  return limits;
}

std::optional<std::chrono::milliseconds> time_left(const core& of) {
  const auto when = number_in(of.record().entries(), expires_key);
  return when ? std::optional{std::chrono::milliseconds{*when - of.options().time->unix_ms()}}
              : std::nullopt;
}

} // namespace insula::actors::inside_sandbox
