#pragma once

#include "actors/protocol/messages.hpp"
#include "tests/support/catch.hpp"

/// What sandbox_actor promises of metadata, whether it is the real one or one that is played.
namespace insula::test {

/// `ask`: answers a message with the description of a sandbox that is not there yet.
template <class Ask>
void check_metadata_contract(Ask ask) {
  const auto change = [&](metadata_change to) {
    redefine_sandbox message;
    message.metadata = std::move(to);
    return sandbox_description{ask(message)};
  };
  INFO("nothing is said of what is not there");
  CHECK_FALSE(change({"one", "1"}).exists);
  define_sandbox made;
  made.metadata = {{"one", "1"}, {"two", "2"}};
  CHECK(sandbox_description{ask(made)}.metadata == made.metadata);

  INFO("an API changes its own text, if it is as the API knows it");
  CHECK(change({"one", "1b", "1"}).metadata == api_metadata{{"one", "1b"}, {"two", "2"}});
  CHECK(change({"one", "late", "1"}).metadata.at("one") == "1b");
  CHECK(change({"two", "2b", "2"}).metadata == api_metadata{{"one", "1b"}, {"two", "2b"}});

  INFO("an API that has said nothing yet");
  CHECK_FALSE(change({"three", "3", "not it"}).metadata.contains("three"));
  CHECK(change({"three", "3", ""}).metadata.at("three") == "3");
  CHECK(change({"three", "3b"}).metadata.at("three") == "3b"); // On no condition.

  INFO("the time of its end changes beside it, or not at all");
  redefine_sandbox both;
  both.metadata = {"one", "1c", "not it"};
  both.expires_ms = 4'000'000'000'000;
  CHECK_FALSE(sandbox_description{ask(both)}.expires_ms);
  both.metadata->only_if = "1b";
  CHECK(sandbox_description{ask(both)}.expires_ms == both.expires_ms);
  CHECK(sandbox_description{ask(redefine_sandbox{})}.metadata ==
        api_metadata{{"one", "1c"}, {"two", "2b"}, {"three", "3b"}});
}

} // namespace insula::test
