#pragma once

#include "actors/image_sign.hpp"
#include "actors/protocol/image_wish.hpp"
#include "base/error.hpp"
#include "runtime/engine.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace insula::actors {

/// What sandboxes start from, and what commands in them need of it.
struct sandbox_image {
  runtime::image_layers layers;
  std::map<std::string, std::string> env = {}; ///< Goes over a profile's.
  std::string shell = "/bin/bash";
  std::string digest = {};    ///< Of its manifest. Empty: not known.
  std::string reference = {}; ///< In its registry, in full. Empty: it is from none.
  bool by_node = false;       ///< The node has fetched it for itself.
  /// Runtimes of languages, with their versions: "node" -> "22.11.0".
  std::map<std::string, std::string> programs = {};
  // For people:
  std::string base = {};
  std::uint64_t size_bytes = 0; ///< 0: not known.
  std::int64_t created_ms = 0;  ///< When it came here; Unix time.
  std::int64_t used_ms = 0;     ///< When a sandbox last started from it, before this server.
};

using shared_image = std::shared_ptr<const sandbox_image>;

/// The images of a node, by name. Images come and go while the node runs. A sandbox holds the one
/// that it has started from, so that its files stay.
///
/// Threads: any.
class image_catalogue {
  /// Two owners of the same image: sandboxes share the one, readers the other.
  struct entry {
    shared_image held, seen;
  };

public:
  /// An image whose name leads nowhere any more.
  class taken_image {
  public:
    explicit operator bool() const { return is_.held != nullptr; }
    const sandbox_image& operator*() const { return *is_.held; }

  private:
    friend class image_catalogue;
    entry is_;
  };

  image_catalogue() = default;
  explicit image_catalogue(std::map<std::string, sandbox_image> found);

  /// For a sandbox: from now on it holds the image.
  shared_image find(const std::string& name) const;
  /// For all others, as the pointers below: they hold it for nobody.
  shared_image look(const std::string& name) const;
  /// Somebody holds what find() has given.
  bool is_held(const std::string& name) const;
  static bool is_held(const taken_image& is) { return is.is_.held.use_count() > 1; }
  /// Null: there is none with that digest, or of that reference. Of several, the one that came
  /// last.
  std::pair<std::string, shared_image> find_digest(const std::string& digest) const;
  std::pair<std::string, shared_image> find_reference(const std::string& reference) const;
  std::map<std::string, shared_image> list() const;

  /// Of the names, references and digests of all images, at most most_image_signs. Quick.
  shared_image_signs signs() const;

  /// Trees of the images that somebody holds, or that have a name.
  std::vector<std::string> trees() const;

  /// Sandboxes that have started from an earlier one of that name go on with it.
  void put(const std::string& name, sandbox_image image);
  /// The name leads to no image any more. False: it led to none.
  taken_image take(const std::string& name);
  /// Unless the name leads to another one by now, or the image is none.
  void restore(const std::string& name, taken_image image);

private:
  template <class Fits>
  std::pair<std::string, shared_image> find_if(Fits fits) const;
  void sign_all();

  mutable std::mutex guard_;
  std::map<std::string, entry> all_;
  shared_image_signs signs_ = std::make_shared<image_signs>();
  mutable std::vector<std::weak_ptr<const sandbox_image>> nameless_;
};

/// Brings images that are not here.
///
/// Threads: any.
class image_supply {
public:
  using found_function = std::function<void(const result<std::string>&)>;

  virtual ~image_supply() = default;

  /// `then` gets the name of an image in the catalogue, once, on any thread, perhaps before this
  /// returns. Errors: image_refused; forbidden by the configuration; image_pending: it is on its
  /// way, and takes longer than a request waits; disk_full.
  virtual void find(const image_wish& wanted, found_function then) = 0;
  /// A sandbox has started from it.
  virtual void used(const std::string& name) = 0;
};

} // namespace insula::actors
