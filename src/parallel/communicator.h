// SPDX-License-Identifier: Apache-2.0
// Ranks: processes or threads that run the same program on parts of its data, and what they tell each other. A
// collective is a call that every rank makes, in the same order; it returns when all have made it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "hydrant/error.h"

namespace hydrant::parallel {

// A collective did not come to its end: another rank has failed, has ended, or does not come.
class RankError : public Error {
 public:
  using Error::Error;
};

struct CommunicatorOptions {
  // How long a rank waits for the others before it says so and ends the job.
  std::chrono::milliseconds limit = std::chrono::seconds(60);
  // Hears why this rank ends the job, just before it does.
  std::function<void(const std::string& text)> on_abort = {};
};

class Communicator {
 public:
  explicit Communicator(CommunicatorOptions options) : options_(std::move(options)) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Ends the job: processes end here. Ranks that are threads get a RankError, the others at their next collective.
  [[noreturn]] void Abort(const std::string& message);

  // Every rank gets the bytes of `root`.
  void Broadcast(std::span<std::byte> bytes, int root);
  // Rank r's `own` becomes part r of `all` on every rank. All have equally many bytes, together less than 2^31.
  void AllGather(std::span<const std::byte> own, std::span<std::byte> all);
  // Every rank gets the sums over all ranks, element by element. The order of additions is fixed: neighbours first,
  // then neighbouring pairs, and so on, the lower ranks on the left: ((0 + 1) + (2 + 3)) + 4. So every rank gets the
  // same bits, and every kind of communicator gives them.
  void TreeSum(std::span<float> values);
  void TreeSum(std::span<double> values);
  int64_t MaxReduce(int64_t value);
  void Barrier();

  // Where the job is, for errors about ranks that do not come.
  void set_step(int64_t step) { step_ = step; }

 protected:
  // What kinds of communicators implement. Barrier, TreeSum and MaxReduce are made of these.
  virtual void DoBroadcast(std::span<std::byte> bytes, int root) = 0;
  virtual void DoAllGather(std::span<const std::byte> own, std::span<std::byte> all) = 0;
  // Part r of `own` becomes part rank() of rank r's `all`.
  virtual void DoAllToAll(std::span<const std::byte> own, std::span<std::byte> all) = 0;
  // No collective ends any more. May return: then this rank gets a RankError.
  virtual void DoAbort(const std::string& message) = 0;

  // The watchdog's end: options().limit has passed in the collective that is under way.
  [[noreturn]] void Overdue();
  const char* collective() const { return collective_; }
  const CommunicatorOptions& options() const { return options_; }

 private:
  template <typename T>
  void Sum(std::span<T> values);

  CommunicatorOptions options_;
  const char* collective_ = "";
  int64_t step_ = -1;  // not known
};

// The bytes of numbers, for Broadcast and AllGather.
template <typename T>
std::span<std::byte> BytesOf(std::span<T> values) {
  return std::as_writable_bytes(values);
}

// One rank alone.
std::unique_ptr<Communicator> MakeSingle();

// Ranks that are threads of this process: calls body(communicator) for ranks 0 .. size - 1, each on a thread of its
// own, and returns when all have ended. Throws what the first rank to fail has thrown; the others get a RankError.
void RunThreads(int size, const CommunicatorOptions& options, const std::function<void(Communicator& ranks)>& body);

}  // namespace hydrant::parallel
