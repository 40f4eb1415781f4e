#pragma once

#include "http/api/access.hpp"
#include "http/api/claim.hpp"
#include "http/api/other_nodes.hpp"
#include "http/api/page_guard.hpp"
#include "http/api/public_api.hpp"
#include "http/api/route_table.hpp"
#include "http/api/wrong_key_log.hpp"
#include "http/transport/figures.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace insula::http {

/// Decides about requests at one door: pages where there is no key, the path, the key, the route.
/// Any thread.
class dispatcher {
public:
  struct options {
    credentials known;
    /// Behind another node: the keys by whose names that one says which it has let in.
    key_check keys{{}};
    page_guard pages{{}};
    std::vector<std::shared_ptr<const public_api>>
      apis; ///< Of two rows for a path the first counts.
    /// Every request is counted here, by its row.
    std::shared_ptr<figures> counts = std::make_shared<figures>();
    std::shared_ptr<const http::claims> claims = nullptr; ///< Null: nothing is claimed.
    std::shared_ptr<const other_nodes> others = nullptr;  ///< Null: there are none.
    bool keeps_snapshots =
      false; ///< Files of sandboxes can outlive the node, if that is asked for.
    std::shared_ptr<wrong_key_log> wrong_keys = std::make_shared<wrong_key_log>();
    /// On which a key can be typed; null: nobody can sign in.
    std::function<response(bool takes_gzip)> sign_in_page = nullptr;
  };

  explicit dispatcher(options is);

  admission admit(const request_head& head) const;

private:
  const public_api* api_of(std::string_view path) const;
  request_track track_of(const request_head& head, route_figures& row,
                         std::optional<request_track> decided) const;
  std::optional<response> refusal_of_client(const request_head& head, const access_scheme& by,
                                            const std::string& sandbox,
                                            shared_named_key& key) const;
  admission decide(const request_head& head, std::optional<route_table::found> found,
                   const other_nodes* others, const request_context& context) const;
  admission plan_of(const route& row, const matched_request& what, const other_nodes* others,
                    const request_context& context) const;
  admission admit_claimed(const request_head& head, const claimed_request& to,
                          const other_nodes* others, request_track track) const;
  std::optional<response> refusal(const request_head& head, const route* row) const;
  response refused_without_key(const request_head& head, const access_scheme& by) const;
  response no_route_for(const request_head& head) const;
  std::string_view place_of_key(const request_head& head) const;
  void note_wrong_key(const request_head& head, const admission& plan,
                      const route_figures& row) const;
  std::optional<response> objection_to_wishes(const request_head& head) const;

  const options is_;
  const bool behind_node_;
  const route_table table_;
  std::vector<route_figures*> rows_;    ///< One for each row of table_.
  std::vector<route_figures*> claimed_; ///< One for each pattern of claims.
};

} // namespace insula::http
