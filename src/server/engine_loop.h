// SPDX-License-Identifier: Apache-2.0
// The thread that takes an engine's steps while there are requests, and sleeps while there are none.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "hydrant/engine.h"

namespace hydrant::server {

class EngineLoop {
 public:
  // `engine` must outlive this. `after_step` is called by the loop's thread.
  EngineLoop(Engine& engine, std::function<void()> after_step);
  // Ends after the step in hand; requests that are open get no further call.
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // As Engine::Submit; callbacks come from the loop's thread.
  RequestId Submit(const GenerationRequest& request, RequestCallbacks callbacks);

 private:
  void Run();

  Engine& engine_;
  std::function<void()> after_step_;
  std::mutex mutex_;  // guards has_work_ and ends_
  std::condition_variable changed_;
  bool has_work_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace hydrant::server
