#pragma once

#include <string_view>
#include <vector>

/// What a route says of itself for the OpenAPI document.
namespace insula::http {

struct parameter {
  std::string_view name;
  std::string_view in; ///< path, query or header.
  std::string_view description;
  bool required = false;
  std::string_view example = {}; ///< What a page fills in at first; empty: nothing.
  std::string_view schema = {};  ///< JSON; empty: a string.
};

struct documented_answer {
  std::string_view status;
  std::string_view description;
  std::string_view content_type = {}; ///< Empty: no body.
  std::string_view schema = {};       ///< A name from the document's schemas; empty: bytes.
};

struct operation {
  /// Public: generated clients name their functions after it. Empty: the route is not listed.
  std::string_view id = {};
  std::string_view summary = {};
  std::vector<parameter> parameters = {}; ///< Those of the path go without saying.
  std::string_view body_type = {};        ///< Content type of the request's body; empty: none.
  std::string_view body_schema = {};      ///< As above.
  std::vector<documented_answer> answers = {};
  std::string_view tag = {};  ///< The group that it is shown in; one of the document's.
  bool body_optional = false; ///< A request may come without one.
  bool own = false;           ///< Insula's alone: no contract of a public API says how it fails.
  bool needs_disk = true;     ///< A route that answers 502 may find the node's disk full as well.
};

} // namespace insula::http
