// SPDX-License-Identifier: Apache-2.0
// The little of protobuf's wire format that a tokenizer.model needs: a bounded walk over fields, and writing them.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "hydrant/error.h"

namespace hydrant::tokenizer {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct ProtoField {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t value = 0;      // kVarint, kFixed64, kFixed32
  std::string_view bytes;  // kBytes
};

class ProtoReader {
 public:
  ProtoReader(std::string_view message, const std::string& file) : rest_(message), file_(file) {}

  // The next field; false at the end. Throws FileError on malformed bytes.
  bool Next(ProtoField* field) {
    if (rest_.empty()) return false;
    const uint64_t tag = Varint();
    const uint64_t number = tag >> 3;
    if (number == 0 || number > 0x1FFFFFFF) Fail("has a field number out of range");
    field->number = static_cast<uint32_t>(number);
    switch (tag & 7) {
      case 0: field->value = Varint(); break;
      case 1: field->value = Fixed(8); break;
      case 2: field->bytes = Take(Varint()); break;
      case 5: field->value = Fixed(4); break;
      default: Fail("has a field of an unknown wire type");
    }
    field->type = static_cast<WireType>(tag & 7);
    return true;
  }

  [[noreturn]] void Fail(const std::string& problem) const {
    throw FileError(file_, problem, "this is not a SentencePiece model, or it is damaged");
  }

 private:
  uint64_t Varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(Take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    Fail("has a number of more than 10 bytes");
  }

  uint64_t Fixed(size_t size) {
    const std::string_view bytes = Take(size);
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
    return value;
  }

  std::string_view Take(uint64_t size) {
    if (size > rest_.size()) {
      Fail("is truncated: a field wants " + std::to_string(size) + " bytes, " + std::to_string(rest_.size()) +
           " are left");
    }
    const std::string_view taken = rest_.substr(0, static_cast<size_t>(size));
    rest_.remove_prefix(static_cast<size_t>(size));
    return taken;
  }

  std::string_view rest_;
  const std::string& file_;
};

class ProtoWriter {
 public:
  void Number(uint32_t field, uint64_t value) {
    Varint(static_cast<uint64_t>(field) << 3);
    Varint(value);
  }
  void Float(uint32_t field, float value) {
    Varint((static_cast<uint64_t>(field) << 3) | 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (unsigned i = 0; i < 4; ++i) message_.push_back(static_cast<char>(static_cast<uint8_t>(bits >> (8 * i))));
  }
  void Bytes(uint32_t field, std::string_view bytes) {
    Varint((static_cast<uint64_t>(field) << 3) | 2);
    Varint(bytes.size());
    message_ += bytes;
  }
  const std::string& message() const { return message_; }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) message_.push_back(static_cast<char>(static_cast<uint8_t>(value | 0x80)));
    message_.push_back(static_cast<char>(static_cast<uint8_t>(value)));
  }

  std::string message_;
};

}  // namespace hydrant::tokenizer
