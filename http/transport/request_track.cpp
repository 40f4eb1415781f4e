#include "http/transport/request_track.hpp"

#include "http/text/iso_time.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <random>
#include <utility>

namespace insula::http {

namespace {

constexpr std::size_t longest_id = 64;

bool is_request_id(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= longest_id &&
         std::all_of(text.begin(), text.end(), allowed);
}

/// SplitMix64: each thread counts from a place of its own, and no two numbers of one are the same.
std::uint64_t next_number() {
  thread_local std::uint64_t state = [] {
    std::random_device seed;
    return std::uint64_t{seed()} << 32 | seed();
  }();
  auto mixed = state += 0x9e3779b97f4a7c15;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
  return mixed ^ mixed >> 31;
}

void append_entry(std::string& text, std::string_view name, std::chrono::nanoseconds took,
                  std::string_view description = {}) {
  if (took.count() < 0)
    return;
  std::array<char, 32> digits{};
  const auto end =
    std::to_chars(digits.data(), digits.data() + digits.size(),
                  static_cast<double>(took.count()) / 1e6, std::chars_format::fixed, 3);
  if (!text.empty())
    text += ", ";
  text += name;
  text += ";dur=";
  text.append(digits.data(), end.ptr);
  if (!description.empty())
    ((text += ";desc=\"") += description) += '"';
}

} // namespace

std::string request_id(std::string_view sent) {
  if (is_request_id(sent))
    return std::string{sent};
  // 13 letters are 65 bits, and fit into a string without memory of its own.
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz234567";
  std::string id(13, '\0');
  auto number = next_number();
  for (auto& letter : id) {
    letter = letters[number & 31];
    number >>= 5;
  }
  return id;
}

std::string server_timing(const request_times& of) {
  using stage = request_times::stage;
  std::string text;
  append_entry(text, "queue", of.took(stage::queue));
  append_entry(text, "sandbox", of.took(stage::sandbox));
  if (of.started_it())
    for (std::size_t i = 0; i < start_phases; ++i) {
      const auto phase = static_cast<start_phase>(i);
      append_entry(text, name_of(phase), of.took(phase), "start of the sandbox");
    }
  append_entry(text, "start", of.took(stage::start));
  append_entry(text, "first", of.took(stage::first));
  append_entry(text, "total", of.so_far());
  return text;
}

request_track::request_track(std::shared_ptr<figures> all, route_figures& row,
                             request_context context)
    : all_(std::move(all))
    , row_(&row)
    , context_(std::move(context))
    , began_(clock::now()) {
  all_->in_flight.add();
}

request_track::~request_track() {
  if (!open())
    return;
  row_->count_aborted(clock::now() - began_);
  leave("aborted", log::level::debug);
}

void request_track::swap(request_track& other) noexcept {
  std::swap(all_, other.all_);
  std::swap(row_, other.row_);
  std::swap(context_, other.context_);
  std::swap(began_, other.began_);
  std::swap(bytes_, other.bytes_);
}

void request_track::append_fields(std::string& head) const {
  if (context_.id.empty())
    return;
  ((head += "X-Request-Id: ") += context_.id) += "\r\n";
  if (context_.times)
    ((head += "Server-Timing: ") += server_timing(*context_.times)) += "\r\n";
  if (const auto as_of = context_.recovered ? context_.recovered->tell() : std::nullopt)
    ((head += "Insula-Recovered: ") += iso_time(*as_of)) += "\r\n";
}

void request_track::head_leaves() {
  if (open())
    row_->head.observe(clock::now() - began_);
}

void request_track::body_leaves(std::size_t bytes) {
  if (open() && bytes_ == 0 && bytes > 0)
    row_->first_byte.observe(clock::now() - began_);
  bytes_ += bytes;
}

void request_track::finish(int status, std::size_t bytes) {
  if (!open())
    return;
  bytes_ += bytes;
  row_->count(status, clock::now() - began_);
  leave(std::to_string(status), status >= 500 ? log::level::warning : log::level::debug);
}

/// Nothing more is counted.
void request_track::leave(std::string_view status, log::level at) {
  all_->in_flight.subtract();
  if (log::enabled(at)) {
    const std::chrono::duration<double, std::milli> took = clock::now() - began_;
    log::write(at, "http.request",
               {{"method", row_->method},
                {"route", row_->route},
                {"status", status},
                {"ms", took.count()},
                {"bytes", bytes_},
                {"request", context_.id}});
  }
  all_ = nullptr; // Last: the row is one of its.
}

} // namespace insula::http
