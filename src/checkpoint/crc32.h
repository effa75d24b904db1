// SPDX-License-Identifier: Apache-2.0
// The checksum of zip entries.
#pragma once

#include <cstdint>
#include <string_view>

namespace hydrant::checkpoint {

uint32_t Crc32(std::string_view bytes);

}  // namespace hydrant::checkpoint
