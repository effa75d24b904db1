// SPDX-License-Identifier: Apache-2.0
// Ranks as threads. A collective is two meetings: at the first every rank has said where its bytes are, between them
// each copies what it wants from the others' memory, and after the second that memory may change again.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "parallel/communicator.h"

namespace hydrant::parallel {
namespace {

// What a rank brings to a collective.
struct Offer {
  const char* collective = "";
  std::span<const std::byte> bytes;
  int root = 0;
};

struct Group {
  explicit Group(int size) : offers(static_cast<size_t>(size)) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Offer> offers;  // [size]
  size_t num_waiting = 0;
  uint64_t num_meetings = 0;
  std::string failure;       // why no rank comes any more; empty: they do
  std::exception_ptr error;  // of the rank that has failed first
};

class ThreadRank : public Communicator {
 public:
  ThreadRank(Group* group, int rank, const CommunicatorOptions& options)
      : Communicator(options), group_(group), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->offers.size()); }

  // The others' collectives end with `message`.
  void Fail(const std::string& message, std::exception_ptr error) {
    const std::lock_guard lock(group_->mutex);
    if (!group_->error) group_->error = std::move(error);
    if (group_->failure.empty()) group_->failure = message;
    group_->changed.notify_all();
  }

 protected:
  void DoBroadcast(std::span<std::byte> bytes, int root) override {
    Exchange(bytes, root, [&] {
      if (root != rank_) Copy(group_->offers[static_cast<size_t>(root)].bytes, bytes);
    });
  }

  void DoAllGather(std::span<const std::byte> own, std::span<std::byte> all) override {
    Exchange(own, 0, [&] {
      for (size_t r = 0; r < group_->offers.size(); ++r) {
        Copy(group_->offers[r].bytes, all.subspan(r * own.size(), own.size()));
      }
    });
  }

  void DoAllToAll(std::span<const std::byte> own, std::span<std::byte> all) override {
    const size_t part = own.size() / group_->offers.size();
    Exchange(own, 0, [&] {
      for (size_t r = 0; r < group_->offers.size(); ++r) {
        const std::span<const std::byte> theirs = group_->offers[r].bytes;
        Copy(theirs.subspan(static_cast<size_t>(rank_) * part, part), all.subspan(r * part, part));
      }
    });
  }

  void DoAbort(const std::string& message) override { Fail(message, std::make_exception_ptr(RankError(message))); }

 private:
  static void Copy(std::span<const std::byte> from, std::span<std::byte> to) {
    if (!to.empty()) std::memcpy(to.data(), from.data(), to.size());
  }

  template <typename Fn>
  void Exchange(std::span<const std::byte> own, int root, const Fn& take) {
    group_->offers[static_cast<size_t>(rank_)] = {.collective = collective(), .bytes = own, .root = root};
    Meet(/*all_have_come=*/false);
    // All ranks see the same offers, so that all or none go on.
    for (const Offer& offer : group_->offers) {
      HYDRANT_CHECK(std::strcmp(offer.collective, collective()) == 0);
      HYDRANT_CHECK(offer.bytes.size() == own.size() && offer.root == root);
    }
    take();
    Meet(/*all_have_come=*/true);
  }

  // all_have_come: nothing but copying stands between them and this meeting, so that it fails for nobody, and no rank
  // leaves with its memory while another one reads it.
  void Meet(bool all_have_come) {
    std::unique_lock lock(group_->mutex);
    if (!all_have_come && !group_->failure.empty()) throw RankError(group_->failure);
    const uint64_t meeting = group_->num_meetings;
    if (++group_->num_waiting == group_->offers.size()) {
      group_->num_waiting = 0;
      ++group_->num_meetings;
      group_->changed.notify_all();
      return;
    }
    const auto met = [&] { return group_->num_meetings != meeting; };
    if (all_have_come) return group_->changed.wait(lock, met);
    const auto ended = [&] { return met() || !group_->failure.empty(); };
    if (!group_->changed.wait_for(lock, options().limit, ended)) {
      lock.unlock();
      Overdue();
    }
    if (!met()) throw RankError(group_->failure);
  }

  Group* group_;
  int rank_;
};

void RunRank(Group* group, int rank, const CommunicatorOptions& options,
             const std::function<void(Communicator& ranks)>& body) {
  ThreadRank own(group, rank, options);
  const std::string name = "rank " + std::to_string(rank);
  try {
    body(own);
    own.Fail(name + " has ended, and others wait for it", nullptr);
  } catch (const std::exception& e) {
    own.Fail(name + " has failed: " + e.what(), std::current_exception());
  } catch (...) {
    own.Fail(name + " has failed", std::current_exception());
  }
}

}  // namespace

void RunThreads(int size, const CommunicatorOptions& options, const std::function<void(Communicator& ranks)>& body) {
  HYDRANT_CHECK(size >= 1);
  Group group(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { RunRank(&group, rank, options, body); });
  }
  for (std::thread& thread : threads) thread.join();
  if (group.error) std::rethrow_exception(group.error);
}

}  // namespace hydrant::parallel
