// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "parallel/communicator.h"

namespace hydrant::parallel {
namespace {

class Single : public Communicator {
 public:
  Single() : Communicator({}) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }

 protected:
  void DoBroadcast(std::span<std::byte>, int) override {}
  void DoAllGather(std::span<const std::byte> own, std::span<std::byte> all) override {
    std::ranges::copy(own, all.begin());
  }
  void DoAllToAll(std::span<const std::byte> own, std::span<std::byte> all) override {
    std::ranges::copy(own, all.begin());
  }
  void DoAbort(const std::string&) override {}
};

}  // namespace

std::unique_ptr<Communicator> MakeSingle() { return std::make_unique<Single>(); }

}  // namespace hydrant::parallel
