#pragma once

#include "base/metrics.hpp"

namespace insula::storage {

/// What a store counts of its writing. Any thread.
struct store_figures {
  metrics::histogram commit;                ///< A group of batches, until it is durable or refused.
  metrics::histogram group{metrics::sizes}; ///< Batches that went together.
  metrics::counter refused;                 ///< Batches that the disk or an epoch refused.
  metrics::counter scanned;                 ///< Lines that pages of lists have read.
  metrics::counter steps; ///< What SQLite has done for lists, as it counts its steps.
  metrics::gauge waiting; ///< Batches that wait or are being written.

  void write(metrics::text& into) const {
    using metrics::kind;
    into.single("insula_store_commit_seconds", kind::histogram,
                "Commits of the store: all batches that wait become one, with one sync.", commit);
    into.single("insula_store_commit_batches", kind::histogram, "Batches in each commit.", group);
    into.single("insula_store_refused_total", kind::counter,
                "Batches that the disk refused, or that an older owner sent.", refused);
    into.single("insula_store_lines_read_total", kind::counter,
                "Lines of lists that have been read for pages of them.", scanned);
    into.single("insula_store_waiting", kind::gauge,
                "Batches that wait for their commit or are in it.", waiting);
  }
};

} // namespace insula::storage
