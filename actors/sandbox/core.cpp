#include "actors/sandbox/core.hpp"

#include "actors/sandbox_list.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <cassert>

namespace insula::actors::inside_sandbox {

pending_operation::pending_operation(core& of)
    : core_(&of) {
  ++core_->operations_;
}

void pending_operation::over() const {
  --core_->operations_;
  core_->hibernate_if_idle();
}

core::core(std::string id, std::shared_ptr<const sandbox_options> options)
    : id_(std::move(id))
    , options_(std::move(options))
    , profile_(options_->profile) {
  options_->figures->entered(now_);
}

core::~core() {
  options_->figures->left(now_);
}

void core::become(phase next) {
  assert(may_become(now_, next));
  options_->figures->left(now_);
  options_->figures->entered(next);
  now_ = next;
}

std::optional<error> core::forbids_start() const {
  for (const auto* each : parts_)
    if (auto why = each->forbids_start())
      return why;
  return std::nullopt;
}

std::optional<error> core::forbids_leaving() const {
  for (const auto* each : parts_)
    if (auto why = each->forbids_leaving())
      return why;
  return std::nullopt;
}

bool core::is_written() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const auto* each) { return each->is_written(); });
}

bool core::in_use() const {
  return uses_ > 0 ||
         std::any_of(parts_.begin(), parts_.end(), [](const auto* each) { return each->in_use(); });
}

bool core::is_held() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const auto* each) { return each->is_held(); });
}

bool core::is_settled() const {
  return record().is_settled() && local().is_settled() && run_clock().is_settled();
}

void core::when_settled(then_function then) {
  for (auto* kept : {&record(), &local(), &run_clock()})
    if (!kept->is_settled())
      return kept->when_durable([=, this] { when_settled(then); },
                                [=, this](const error&) { when_settled(then); });
  then();
}

bool core::may_hibernate() const {
  return operations_ == 0 && is_settled() &&
         std::all_of(parts_.begin(), parts_.end(),
                     [](const auto* each) { return each->may_hibernate(); });
}

sandbox_description core::describe() const {
  auto said = describe_record(record().entries());
  each_part([&](const part& one) { one.describe(said); });
  return said;
}

sandbox_status core::status() const {
  sandbox_status row;
  row.id = id_;
  row.state = name_of(now_);
  each_part([&](const part& one) { one.count(row); });
  if (const auto used = engine_sandbox_ ? engine_sandbox_->usage() : std::nullopt) {
    row.memory_bytes = used->memory_bytes;
    if (used->cpu)
      row.cpu_us = static_cast<std::uint64_t>(used->cpu->count());
    row.processes = used->processes;
  }
  return row;
}

void core::mark_used() {
  if (now_ != phase::deleting)
    each_part([](part& one) { one.used(); });
}

/// One after the other: behind one that delays all are asked again.
bool core::delays(const request_context& context, const then_function& then,
                  const otherwise_function& otherwise) {
  const then_function again = [=, this] {
    if (!delays(context, then, otherwise))
      then();
  };
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](auto* each) { return each->delays(context, again, otherwise); });
}

bool core::delays(idle_step next) {
  return std::any_of(parts_.begin(), parts_.end(),
                     [next](auto* each) { return each->delays(next); });
}

/// The parts settle one after the other.
bool core::settle(const then_function& then, const otherwise_function& failed) {
  return std::all_of(parts_.begin(), parts_.end(),
                     [&](auto* each) { return each->settle(then, failed); });
}

void core::load(const request_context& context, const then_function& then,
                const otherwise_function& otherwise) {
  record().load(
    [=, this] {
      if (!delays(context, then, otherwise))
        then();
    },
    otherwise, context);
}

void core::with_record(const request_context& context, then_function go,
                       otherwise_function refuse) {
  if (refusal_)
    return refuse(*refusal_);
  const pending_operation mine{*this};
  load(
    context,
    [mine, go = std::move(go)] {
      go();
      mine.over();
    },
    [mine, refuse = std::move(refuse)](const error& why) {
      refuse(why);
      mine.over();
    });
}

void core::when_there(const request_context& context, then_function go, otherwise_function refuse) {
  if (lives())
    return go();
  with_record(
    context, [this, go = std::move(go), refuse] { exists() ? go() : refuse(not_found()); }, refuse);
}

std::shared_ptr<void> core::keep_awake() {
  ++uses_;
  return {nullptr, [this, post = post()](void*) {
            post([this] {
              --uses_;
              mark_used();
            });
          }};
}

void note(std::string_view event, const core& of, const request_context& context) {
  if (log::enabled(log::level::debug))
    log::debug(event, {{"id", of.id()}, {"request", context.id}});
}

} // namespace insula::actors::inside_sandbox
