#include "http/api/embedded_page.hpp"

#include <openssl/evp.h>
#include <zlib.h>

#include <array>
#include <cstdint>
#include <stdexcept>

namespace insula::http {

namespace {

// A gzip file: header, deflated data, the data's CRC and size, both little-endian (RFC 1952).
constexpr std::string_view gzip_header{"\x1f\x8b\x08\0\0\0\0\0\0\xff", 10};
constexpr std::size_t gzip_trailer_bytes = 8;

struct deflated {
  std::string_view data;
  std::uint32_t crc;
  std::uint32_t size; ///< When inflated, bytes.
};

std::uint32_t little_endian(const char* at) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(at[i]);
  return value;
}

void append_little_endian(std::string& to, std::uint32_t value) {
  for (int i = 0; i < 4; ++i)
    to += static_cast<char>(value >> 8 * i & 0xff);
}

deflated parts_of(std::string_view file) {
  const char* const trailer = file.data() + file.size() - gzip_trailer_bytes;
  return {file.substr(gzip_header.size(), file.size() - gzip_header.size() - gzip_trailer_bytes),
          little_endian(trailer), little_endian(trailer + 4)};
}

Bytef* bytes_of(std::string_view text) {
  // zlib does not write there, and says so with const only in its newer declarations.
  return reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
}

std::string inflated(const deflated& part) {
  std::string text(part.size, '\0');
  z_stream stream{};
  stream.next_in = bytes_of(part.data);
  stream.avail_in = static_cast<uInt>(part.data.size());
  stream.next_out = bytes_of(text);
  stream.avail_out = static_cast<uInt>(text.size());
  const bool good =
    inflateInit2(&stream, -MAX_WBITS) == Z_OK && inflate(&stream, Z_FINISH) == Z_STREAM_END;
  inflateEnd(&stream);
  if (!good)
    throw std::runtime_error{"the page inside this program is damaged"};
  return text;
}

/// Deflated so that more may follow: it ends on a byte, and what follows refers to nothing in it.
std::string deflated_beginning(std::string_view text) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) !=
      Z_OK)
    throw std::runtime_error{"zlib does not start"};
  std::string data(deflateBound(&stream, text.size()) + 16, '\0');
  stream.next_in = bytes_of(text);
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = bytes_of(data);
  stream.avail_out = static_cast<uInt>(data.size());
  const bool good = deflate(&stream, Z_FULL_FLUSH) == Z_OK && stream.avail_out > 0;
  data.resize(data.size() - stream.avail_out);
  deflateEnd(&stream);
  if (!good)
    throw std::runtime_error{"zlib does not compress the page"};
  return data;
}

/// Both parts as one gzip file; the larger one stays as it is.
std::string joined(std::string_view beginning, const deflated& rest) {
  std::string file{gzip_header};
  file += deflated_beginning(beginning);
  file += rest.data;
  const auto crc = crc32(0, bytes_of(beginning), static_cast<uInt>(beginning.size()));
  append_little_endian(file, static_cast<std::uint32_t>(crc32_combine(crc, rest.crc, rest.size)));
  append_little_endian(file, static_cast<std::uint32_t>(beginning.size()) + rest.size);
  return file;
}

/// ` 'sha256-...'` for the content of every `<tag>` that has no attributes, in one string.
std::string hashes_of(std::string_view html, std::string_view tag) {
  const auto open = '<' + std::string{tag} + '>';
  const auto close = "</" + std::string{tag} + '>';
  std::string list;
  for (auto at = html.find(open); at != html.npos; at = html.find(open, at)) {
    at += open.size();
    const auto content = html.substr(at, html.find(close, at) - at);
    at += content.size();
    std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
    unsigned size = 0;
    EVP_Digest(content.data(), content.size(), hash.data(), &size, EVP_sha256(), nullptr);
    std::array<unsigned char, 2 * EVP_MAX_MD_SIZE> base64{};
    EVP_EncodeBlock(base64.data(), hash.data(), static_cast<int>(size));
    list += " 'sha256-" + std::string{reinterpret_cast<const char*>(base64.data())} + '\'';
  }
  return list;
}

} // namespace

embedded_page make_page(std::string_view beginning, std::string_view file,
                        const page_options& options) {
  const auto part = parts_of(file);
  const auto rest = inflated(part);
  embedded_page page;
  page.html = std::make_shared<const std::string>(std::string{beginning} + rest);
  page.gzip = beginning.empty() ? std::make_shared<const std::string>(file)
                                : std::make_shared<const std::string>(joined(beginning, part));
  page.policy = "default-src 'none'; script-src" + hashes_of(rest, "script") + "; style-src" +
                hashes_of(rest, "style") + "; " + std::string{options.more_policy} +
                "; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'";
  page.referrer = options.referrer;
  return page;
}

response page_response(const embedded_page& page, bool takes_gzip) {
  response answer{200, {}, "text/html; charset=utf-8"};
  answer.fields = {{"Content-Security-Policy", page.policy},
                   {"Referrer-Policy", page.referrer},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Cache-Control", "no-store"},
                   {"Vary", "Accept-Encoding"}};
  if (takes_gzip)
    answer.fields.push_back({"Content-Encoding", "gzip"});
  answer.shared_body = takes_gzip ? page.gzip : page.html;
  return answer;
}

} // namespace insula::http
