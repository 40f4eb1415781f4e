#pragma once

// Catch2 2.13 (Debian 12) and 3.x (backports, Debian 13) under one name.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
