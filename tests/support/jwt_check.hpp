#pragma once

#include "base/base64.hpp"

#include <algorithm>
#include <memory>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <rapidjson/document.h>
#include <string>
#include <string_view>

/// What a verifier does with a token, by the text of the RFCs and with none of the server's code.
namespace insula::test {

inline rapidjson::Document json_in(std::string_view text) {
  rapidjson::Document read;
  read.Parse(text.data(), text.size());
  return read;
}

/// Part `which` of a token, decoded.
inline std::string part_of_token(std::string_view token, int which) {
  for (; which > 0; --which)
    token.remove_prefix(std::min(token.find('.') + 1, token.size()));
  return from_base64url(token.substr(0, token.find('.'))).value_or("");
}

/// Is `token` signed by that one of these keys that its header names?
inline bool is_signed_by(std::string_view keys, std::string_view token) {
  const auto header = json_in(part_of_token(token, 0));
  const auto set = json_in(keys);
  if (!header.IsObject() || std::string_view{header["alg"].GetString()} != "RS256" ||
      !set.IsObject())
    return false;
  for (const auto& key : set["keys"].GetArray()) {
    if (key["kid"] != header["kid"])
      continue;
    const auto number = [&](const char* name) {
      const auto bytes = from_base64url(key[name].GetString()).value_or("");
      return std::unique_ptr<BIGNUM, decltype(&BN_free)>{
        BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()),
                  static_cast<int>(bytes.size()), nullptr),
        BN_free};
    };
    const auto n = number("n"), e = number("e");
    const std::unique_ptr<OSSL_PARAM_BLD, decltype(&OSSL_PARAM_BLD_free)> parts{
      OSSL_PARAM_BLD_new(), OSSL_PARAM_BLD_free};
    OSSL_PARAM_BLD_push_BN(parts.get(), OSSL_PKEY_PARAM_RSA_N, n.get());
    OSSL_PARAM_BLD_push_BN(parts.get(), OSSL_PKEY_PARAM_RSA_E, e.get());
    const std::unique_ptr<OSSL_PARAM, decltype(&OSSL_PARAM_free)> params{
      OSSL_PARAM_BLD_to_param(parts.get()), OSSL_PARAM_free};
    const std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> making{
      EVP_PKEY_CTX_new_from_name(nullptr, "RSA", nullptr), EVP_PKEY_CTX_free};
    EVP_PKEY* made = nullptr;
    if (EVP_PKEY_fromdata_init(making.get()) != 1 ||
        EVP_PKEY_fromdata(making.get(), &made, EVP_PKEY_PUBLIC_KEY, params.get()) != 1)
      return false;
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> by{made, EVP_PKEY_free};
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> with{EVP_MD_CTX_new(),
                                                                       EVP_MD_CTX_free};
    const auto text = token.substr(0, token.rfind('.'));
    const auto signature = part_of_token(token, 2);
    return EVP_DigestVerifyInit(with.get(), nullptr, EVP_sha256(), nullptr, by.get()) == 1 &&
           EVP_DigestVerify(with.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                            signature.size(), reinterpret_cast<const unsigned char*>(text.data()),
                            text.size()) == 1;
  }
  return false;
}

} // namespace insula::test
