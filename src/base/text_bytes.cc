// SPDX-License-Identifier: Apache-2.0
#include "base/text_bytes.h"

#include "hydrant/error.h"

namespace hydrant::base {
namespace {

struct Form {
  std::string_view first_bytes, what, hint;
};

constexpr Form kForms[] = {
    {"\x1f\x8b", "is packed by gzip", "unpack it with gunzip"},
    {"PK\x03\x04", "is packed by zip", "unpack it with unzip"},
    {"\x28\xb5\x2f\xfd", "is packed by zstd", "unpack it with unzstd"},
    {std::string_view("\xfd\x37zXZ\0", 6), "is packed by xz", "unpack it with unxz"},
    {"BZh91AY&SY", "is packed by bzip2", "unpack it with bunzip2"},
    {"PAR1", "is in Parquet's form", "write it as lines of JSON, as datasets.to_json of Hugging Face does"},
    {"\xff\xfe", "is text in UTF-16", "convert it with iconv -f UTF-16 -t UTF-8"},
    {"\xfe\xff", "is text in UTF-16", "convert it with iconv -f UTF-16 -t UTF-8"},
};

}  // namespace

void CheckIsText(std::string_view content, const std::string& name) {
  for (const Form& form : kForms) {
    if (!content.starts_with(form.first_bytes)) continue;
    throw FileError(name, std::string(form.what) + ", expected text or JSON in UTF-8", std::string(form.hint));
  }
}

}  // namespace hydrant::base
