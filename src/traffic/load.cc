// SPDX-License-Identifier: Apache-2.0
#include "traffic/load.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "hydrant/error.h"
#include "traffic/http_client.h"
#include "traffic/summary.h"

namespace hydrant::traffic {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr auto kAwaitTimer = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kTick{50};
constexpr std::chrono::milliseconds kRest{100};  // a server that refuses is not asked in a tight loop
constexpr size_t kMaxErrorBytes = 64 << 10;

Clock::duration DurationOf(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class LoadRun {
 public:
  LoadRun(const Server& server, const Suite& suite, const RequestSettings& settings, const LoadPlan& plan,
          const OnTick& on_tick)
      : suite_(suite), settings_(settings), plan_(plan), on_tick_(on_tick), client_(io_, server), ticks_(io_) {
    most_ = plan.num_prompts > 0 || plan.seconds > 0 ? plan.num_prompts : static_cast<int64_t>(suite.prompts.size());
  }

  LoadResult Run() {
    const double cpu_before = CpuSeconds();
    begin_ = Clock::now();
    if (plan_.rate > 0) {
      Spawn(Arrive());
    } else {
      for (int32_t w = 0; w < plan_.concurrency; ++w) Spawn(Work());
    }
    asio::co_spawn(io_, Tick(), asio::detached);
    io_.run();
    const double elapsed = Now();
    double last = 0;
    for (const Reply& reply : result_.replies) last = std::max(last, reply.end);
    result_.seconds = last > 0 ? last : elapsed;
    result_.cpu_share = (CpuSeconds() - cpu_before) / std::max(elapsed, 1e-9);
    return std::move(result_);
  }

 private:
  double Now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  // What must end before the run does.
  void Spawn(asio::awaitable<void> task) {
    ++num_tasks_;
    asio::co_spawn(io_, std::move(task), [this](const std::exception_ptr& error) {
      if (--num_tasks_ == 0) ticks_.cancel();
      if (error) std::rethrow_exception(error);  // out of io_.run()
    });
  }

  // The next conversation's number, where there is one.
  std::optional<int64_t> Next(double at) {
    if ((most_ > 0 && next_ >= most_) || (plan_.seconds > 0 && at >= plan_.seconds)) return {};
    return next_++;
  }

  asio::awaitable<void> Work() {
    while (const std::optional<int64_t> index = Next(Now())) {
      if (co_await Converse(*index, Now())) continue;
      asio::steady_timer rest(io_, kRest);
      co_await rest.async_wait(kAwaitTimer);
    }
  }

  // Slow replies move no arrival: each is due by the clock alone.
  asio::awaitable<void> Arrive() {
    PoissonGaps gaps(plan_.rate, plan_.seed);
    asio::steady_timer timer(io_);
    for (double due = gaps.Next();; due += gaps.Next()) {
      const std::optional<int64_t> index = Next(due);
      if (!index) co_return;
      timer.expires_at(begin_ + DurationOf(due));
      co_await timer.async_wait(kAwaitTimer);
      if (num_open_ >= plan_.max_open) {
        ++result_.num_dropped;
      } else {
        Spawn(ConverseAt(*index, due));
      }
    }
  }
  asio::awaitable<void> ConverseAt(int64_t index, double due) { co_await Converse(index, due); }

  // All turns of one prompt. False where a request failed.
  asio::awaitable<bool> Converse(int64_t index, double due) {
    ++num_open_;
    const Prompt& prompt = suite_.prompts[static_cast<size_t>(index) % suite_.prompts.size()];
    std::vector<Message> messages = prompt.before;
    // Completions have no turns.
    const size_t num_turns = settings_.is_chat ? prompt.turns.size() : 1;
    bool is_well = true;
    for (size_t turn = 0; is_well && turn < num_turns; ++turn) {
      messages.push_back({.role = "user", .content = prompt.turns[turn]});
      Reply reply{.index = index, .turn = static_cast<int32_t>(turn), .start = turn == 0 ? due : Now()};
      co_await Ask(messages, reply);
      is_well = reply.failure == Failure::kNone;
      if (!is_well) ++num_failed_;
      messages.push_back({.role = "assistant", .content = reply.text});
      result_.replies.push_back(std::move(reply));
    }
    --num_open_;
    ++num_done_;
    co_return is_well;
  }

  asio::awaitable<void> Ask(const std::vector<Message>& messages, Reply& reply) {
    ReplyReader reader(reply);
    std::string error_body;
    HttpCall call{.path = PathOf(settings_), .body = RequestBody(settings_, messages, reply.index), .on_body = {}};
    call.on_body = [this, &reader, &error_body](int status, std::string_view bytes) {
      if (status == 200) return reader.Add(bytes, Now());
      error_body += bytes.substr(0, kMaxErrorBytes - std::min(kMaxErrorBytes, error_body.size()));
      return error_body.size() < kMaxErrorBytes;
    };
    HttpOutcome outcome = co_await client_.Send(std::move(call));
    reply.end = Now();
    reply.status = outcome.status;
    if (reply.failure != Failure::kNone) co_return;
    if (outcome.failure != Failure::kNone) {
      reply.failure = outcome.failure;
      reply.problem = std::move(outcome.problem);
    } else if (outcome.status != 200) {
      reply.failure = Failure::kStatus;
      reply.problem = MessageOfError(error_body);
    } else if (!reader.is_whole()) {
      reply.failure = Failure::kCut;
      reply.problem = reply.num_events == 0 ? "the reply has no event: does the server stream?"
                                            : "the stream ended before the reply did";
    }
  }

  asio::awaitable<void> Tick() {
    while (num_tasks_ > 0) {
      ticks_.expires_after(kTick);
      co_await ticks_.async_wait(kAwaitTimer);
      const double by_time = plan_.seconds > 0 ? Now() / plan_.seconds : 0;
      const double by_count = most_ > 0 ? static_cast<double>(num_done_) / static_cast<double>(most_) : 0;
      const LoadProgress progress{.share = std::min(1.0, std::max(by_time, by_count)),
                                  .num_open = num_open_,
                                  .num_done = num_done_,
                                  .num_failed = num_failed_};
      if (num_tasks_ == 0 || on_tick_(progress)) continue;
      result_.is_stopped = true;
      io_.stop();  // frames of what is open go with io_
      co_return;
    }
  }

  const Suite& suite_;
  const RequestSettings& settings_;
  const LoadPlan& plan_;
  const OnTick& on_tick_;
  LoadResult result_;
  int64_t most_ = 0;  // conversations; 0: no such limit
  int64_t next_ = 0;
  int64_t num_tasks_ = 0, num_open_ = 0, num_done_ = 0, num_failed_ = 0;
  Clock::time_point begin_;
  asio::io_context io_{1};
  HttpClient client_;
  asio::steady_timer ticks_;
};

}  // namespace

LoadResult RunLoad(const Server& server, const Suite& suite, const RequestSettings& settings, const LoadPlan& plan,
                   const OnTick& on_tick) {
  return LoadRun(server, suite, settings, plan, on_tick).Run();
}

}  // namespace hydrant::traffic
