#pragma once

#include "http/api/auth.hpp"
#include "http/api/public_api.hpp"
#include "http/api/sign_ins.hpp"
#include "http/api/wrong_key_log.hpp"
#include "http/sandboxes/services.hpp"

#include <memory>
#include <string>
#include <vector>

/// The page at / on which one sees what lives on a node, and what only that page asks for, below
/// /console/. No part of the public API: everything else it does is the bridge's.
namespace insula::http::console {

struct services {
  std::shared_ptr<const http::services> common; ///< What the routes of every API work with.
  key_check key{""};
  std::shared_ptr<sign_ins> browsers;
  std::shared_ptr<wrong_key_log> wrong_keys;
  std::string node = {}; ///< Its name in its cluster; empty: there is none.
};

std::shared_ptr<const public_api> make_api(std::shared_ptr<const services> with);

/// The page itself, on which a key can be typed.
response page(bool takes_gzip);

} // namespace insula::http::console
