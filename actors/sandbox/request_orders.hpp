#pragma once

#include "actors/sandbox/core.hpp"

#include <map>
#include <string>
#include <vector>

/// What is done with single requests of a sandbox, as its record has it: rules, whose secrets only
/// the engine opens, and the authority that its programs believe. The record is loaded.
namespace insula::actors::inside_sandbox {

/// What makes these rules hold. The first ones bring an authority, which stays. Errors: those of
/// engine::make_authority().
result<std::vector<storage::change>> changes_of(const sealed_rules& wanted, const core& of);

/// What gives the sandbox an authority, if it has none. Errors: the same.
result<std::vector<storage::change>> changes_of_authority(const core& of);

sealed_rules recorded_rules(const core& of);
/// For the engine. Empty where there are no rules.
runtime::request_orders recorded_orders(const core& of);
bool has_authority(const core& of);
/// The certificate that programs believe, as PEM. Empty: there is none.
std::string recorded_authority(const core& of);

/// Have its programs been told of it, and was there a place for it?
bool is_authority_trusted(const core& of);
storage::change change_of_trust(bool is_trusted);

/// Variables by which programs that do not look where the system has its authorities find them.
const std::map<std::string, std::string>& trust_environment();

} // namespace insula::actors::inside_sandbox
