#include "tests/support/store_fixtures.hpp"

#define INSULA_SCANNED insula::test::in_memory, insula::test::sqlite, insula::test::node_sqlite
#include "tests/contract/scan_contract.hpp"
