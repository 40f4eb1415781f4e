#include "apps/yaml_document.hpp"

#include <sstream>
#include <yaml-cpp/eventhandler.h>

namespace insula {

namespace {

/// Takes everything in, and keeps nothing.
class deaf_handler final : public YAML::EventHandler {
public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

/// Not by loading all of them: of some texts, such as a comma, the library makes documents without
/// end.
bool has_several_documents(const std::string& text) {
  std::istringstream from{text};
  YAML::Parser parser{from};
  deaf_handler handler;
  return parser.HandleNextDocument(handler) && parser.HandleNextDocument(handler);
}

/// Whether the line of a mistake begins with a tab, after blanks and the dashes of a list at most.
bool is_indented_by_tab(const std::string& text, const YAML::Mark& mark) {
  std::istringstream lines{text};
  std::string line;
  for (int i = 0; i <= mark.line; ++i)
    if (!std::getline(lines, line))
      return false;
  return line.substr(0, line.find_first_not_of("\t -")).find('\t') != std::string::npos;
}

} // namespace

result<YAML::Node> yaml_document(const std::string& text, const std::string& name) try {
  if (has_several_documents(text))
    return error{errc::invalid_request, name + ": expected one YAML document, got more"};
  return YAML::Load(text);
} catch (const YAML::Exception& e) {
  const auto why = is_indented_by_tab(text, e.mark)
                     ? "a tab indents this line, and only blanks may do that"
                     : e.msg;
  return error{errc::invalid_request, yaml_place(name, e.mark) + ": not YAML: " + why};
}

std::string spelled(const YAML::Node& value) {
  if (value.IsScalar())
    return '"' + value.Scalar() + '"';
  return value.IsMap() ? "a section" : value.IsSequence() ? "a list" : "nothing";
}

std::string yaml_place(const std::string& name, const YAML::Mark& mark) {
  return name + ":" + std::to_string(mark.line + 1);
}

} // namespace insula
