// SPDX-License-Identifier: Apache-2.0
// Memory of a chosen page size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant::base {

enum class PageSize : uint8_t { kSmall, kHuge };  // 4 KB; 2 MB where the system gives them

// Aligned to 2 MB, zero, and not yet backed by pages: whoever writes first decides on which node they lie.
class PageBuffer {
 public:
  PageBuffer() = default;
  // Throws UserError when the system has not that much memory. Without `reserve` it may be more than there is: then
  // only what is written counts.
  PageBuffer(size_t bytes, PageSize pages, bool reserve = true);
  ~PageBuffer();
  PageBuffer(PageBuffer&& other) noexcept;
  PageBuffer& operator=(PageBuffer&& other) noexcept;

  // Backs all of it by pages now, so that nobody waits for them later. False where the system cannot (Linux
  // before 5.14).
  bool Populate();

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Part of the buffer that lies in huge pages now, 0 to 1: the system may refuse without a word. 0 where it does not
  // say.
  double HugeShare() const;

 private:
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hydrant::base
